//! The product's binary as a child process.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use crate::Failure;
use crate::drive::Target;

/// A broker, ended with this value.
pub struct Broker {
    process: Child,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Broker {
    /// Starts the program beside this one and waits until it answers.
    pub fn start(store: &str) -> Result<Self, Failure> {
        let program = std::env::current_exe()?.with_file_name("tidegate");
        let mut process = Command::new(program)
            .args(["serve", "--listen", "127.0.0.1:0", "--store", store])
            .env("LOG_LEVEL", "warn")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(process.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        let address =
            line.trim().strip_prefix("listening on http://").ok_or("it did not say where it listens")?.parse()?;
        let broker = Broker { process, address };
        while !broker.serves()? {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        Ok(broker)
    }

    /// Its process's number.
    pub fn process(&self) -> u32 {
        self.process.id()
    }

    /// What loads are told.
    pub fn target(&self) -> Target {
        Target::Tidegate(self.address)
    }

    /// Whether it answers, itself or through the owner.
    fn serves(&self) -> Result<bool, Failure> {
        let mut stream = TcpStream::connect(self.address)?;
        write!(stream, "GET /api/v1/resources/queues HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer.starts_with("HTTP/1.1 200"))
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // In good order, so that the next one need not wait. It may have ended by itself.
        if let Ok(process) = i32::try_from(self.process.id())
            && let Some(process) = rustix::process::Pid::from_raw(process)
        {
            let _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
        }
        let _ = self.process.wait();
    }
}
