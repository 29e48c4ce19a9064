//! Broker processes on fixed ports, to be killed, frozen and started again.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tidegate_store_postgres::fixture::free_port;

/// How long a broker may take until it serves. Generous: test machines are busy.
const START: Duration = Duration::from_secs(30);

pub struct Broker {
    pub address: SocketAddr,
    program: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    log: PathBuf,
    process: Option<Child>,
    /// How much of the log is of earlier lives.
    earlier: usize,
    frozen: bool,
}

impl Broker {
    /// Starts a broker on `store`. `alone`: no other one is on that store.
    pub fn start(store: &str, alone: bool) -> Self {
        Self::start_program(Path::new(env!("CARGO_BIN_EXE_tidegate")), store, alone, &[])
    }

    pub fn start_program(program: &Path, store: &str, alone: bool, environment: &[(&str, &str)]) -> Self {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let mut arguments = vec!["serve".to_owned(), format!("--listen={address}"), format!("--store={store}")];
        if !alone {
            arguments.push(format!("--advertise=http://{address}"));
        }
        let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("broker-{}.log", address.port()));
        let _ = fs::remove_file(&log);
        let environment = environment.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        let program = program.to_owned();
        let (process, earlier, frozen) = (None, 0, false);
        let mut broker = Self { address, program, arguments, environment, log, process, earlier, frozen };
        broker.resume();
        broker.wait_until_it_serves();
        broker
    }

    /// Starts the process again after [`Self::kill`]; does not wait for it.
    pub fn resume(&mut self) {
        assert!(self.process.is_none(), "it runs already");
        self.earlier = self.log().len();
        let log = File::options().create(true).append(true).open(&self.log).expect("the log can be written");
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).env_clear().env("NO_COLOR", "1").envs(self.environment.iter().cloned());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.process = Some(command.spawn().expect("the built binary starts"));
    }

    pub fn wait_until_it_serves(&mut self) {
        let start = Instant::now();
        while !self.serves() {
            assert!(start.elapsed() < START, "the broker does not serve:\n{}", self.log());
            self.supervise();
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// One that cannot reach the database when it starts says so and ends; it is started again, as a supervisor would.
    pub fn supervise(&mut self) {
        if self.ended() {
            self.resume();
        }
    }

    /// Whether it said so; that its port is open does not mean it.
    fn serves(&self) -> bool {
        self.log()[self.earlier..].contains(" serving ")
    }

    /// Whether it ended while it was starting. Once it serves it must never end by itself.
    fn ended(&mut self) -> bool {
        let Some(process) = &mut self.process else { return true };
        let Some(status) = process.try_wait().expect("it is our child") else { return false };
        let refused = !self.serves() && status.code() == Some(1);
        assert!(refused, "the broker ended by itself ({status}):\n{}", self.log());
        self.process = None;
        true
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        if self.ended() {
            return;
        }
        let mut process = self.process.take().expect("it runs");
        process.kill().expect("it is our child");
        process.wait().expect("it is our child");
        self.frozen = false;
    }

    pub fn freeze(&mut self) {
        self.signal(Signal::STOP);
        self.frozen = true;
    }

    pub fn thaw(&mut self) {
        if self.frozen {
            self.signal(Signal::CONT);
        }
        self.frozen = false;
    }

    fn signal(&self, signal: Signal) {
        if let Some(process) = &self.process {
            kill_process(Pid::from_child(process), signal).expect("it is our child");
        }
    }

    /// Everything it has said so far, all its lives together.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
        if thread::panicking() {
            eprintln!("the log of the broker on {}: {}", self.address, self.log.display());
        } else {
            let _ = fs::remove_file(&self.log);
        }
    }
}
