//! Starts the built `tidegate serve` on a free port, over a store of its own, and ends it with the test.
//!
//! Declared with `#[path = "common/binary.rs"] mod binary;` by the tests that need the real program.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use tidegate_store_postgres::fixture::Cluster;

/// How long the program may take until it says where it listens. Generous: test machines are busy.
const START_DEADLINE: Duration = Duration::from_secs(30);
const ANNOUNCEMENT: &str = "listening on http://";

/// The stores that the program knows.
#[allow(dead_code, reason = "each test file uses its own part of this module")]
#[derive(Clone, Copy)]
pub enum Store {
    /// In the process.
    Memory,
    /// In a private server that the tests share.
    Postgres,
}

/// A running broker. Dropping it kills the process; its log is shown when the test fails.
pub struct Broker {
    process: Child,
    url: String,
    log: Arc<Mutex<String>>,
}

impl Broker {
    /// Starts a broker with the defaults of a first run.
    #[allow(dead_code, reason = "each test file uses its own part of this module")]
    pub fn start() -> Self {
        Self::start_with(&[], &[])
    }

    /// Starts a broker over a store that holds nothing.
    #[allow(dead_code, reason = "each test file uses its own part of this module")]
    pub fn over(store: Store) -> Self {
        match store {
            Store::Memory => Self::start(),
            Store::Postgres => Self::start_with(&["--store", &Cluster::shared().database()], &[]),
        }
    }

    /// Starts a broker with more arguments and environment variables. Nothing else of the caller's environment
    /// reaches it, so that a variable of the developer's shell cannot change a test.
    pub fn start_with(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(arguments)
            .env_clear()
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the built binary starts");
        let log = Arc::new(Mutex::new(String::new()));
        let (announce, announced) = mpsc::channel();
        follow(process.stdout.take().expect("stdout is piped"), log.clone(), announce.clone());
        follow(process.stderr.take().expect("stderr is piped"), log.clone(), announce);
        let Ok(url) = announced.recv_timeout(START_DEADLINE) else {
            let _ = process.kill();
            let _ = process.wait();
            panic!("`tidegate serve` did not say where it listens; its output:\n{}", log.lock().unwrap());
        };
        Self { process, url, log }
    }

    /// `http://127.0.0.1:<port>`, without a slash at the end.
    #[allow(dead_code, reason = "each test file uses its own part of this module")]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The process, for tests that send it signals or wait for its end.
    #[allow(dead_code, reason = "each test file uses its own part of this module")]
    pub fn process(&mut self) -> &mut Child {
        &mut self.process
    }

    /// Everything the program has printed so far, both streams.
    #[allow(dead_code, reason = "each test file uses its own part of this module")]
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if thread::panicking() {
            eprintln!("the broker's output:\n{}", self.log());
        }
    }
}

/// Keeps what the program prints, and passes on the first address that it announces.
fn follow(stream: impl Read + Send + 'static, log: Arc<Mutex<String>>, announce: mpsc::Sender<String>) {
    thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if let Some(address) = announced_address(&line) {
                let _ = announce.send(format!("http://{address}"));
            }
            let mut log = log.lock().unwrap();
            log.push_str(&line);
            log.push('\n');
        }
    });
}

fn announced_address(line: &str) -> Option<&str> {
    let address = &line[line.find(ANNOUNCEMENT)? + ANNOUNCEMENT.len()..];
    let end = address.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ':').unwrap_or(address.len());
    Some(&address[..end])
}
