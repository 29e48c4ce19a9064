//! One run: brokers, clients, a history, and the verdict.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::brokers::Broker;
use crate::check::{Violation, check};
use crate::history::{Event, History};
use crate::random::Random;
use crate::recorder::Recorder;
use crate::session::Session;
use crate::workload;

/// How long clients may get no answer at all, faults included, before the run counts as stuck.
const STUCK: Duration = Duration::from_secs(60);

/// The seed of this run: drawn, printed, and set with `TIDEGATE_CRASH_SEED` to have a run again.
pub fn seed() -> u64 {
    let given = std::env::var("TIDEGATE_CRASH_SEED").ok();
    let given = given.map(|text| text.parse().expect("TIDEGATE_CRASH_SEED is a whole number"));
    given.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Random::new(now.as_nanos() as u64).below(1 << 32)
    })
}

pub struct Run {
    pub random: Random,
    pub recorder: Arc<Recorder>,
    pub brokers: Vec<Broker>,
    seed: u64,
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
}

impl Run {
    pub fn new(seed: u64) -> Self {
        eprintln!("TIDEGATE_CRASH_SEED={seed}");
        let (random, recorder) = (Random::new(seed), Arc::new(Recorder::new()));
        Self { random, recorder, brokers: Vec::new(), seed, stop: Arc::default(), clients: Vec::new() }
    }

    pub fn add_broker(&mut self, broker: Broker) {
        self.brokers.push(broker);
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.brokers.iter().map(|broker| broker.address).collect()
    }

    pub fn start_clients(&mut self) {
        let addresses = self.addresses();
        let mut session = |client| Session::new(client, self.recorder.clone(), &addresses, self.random.child());
        workload::configure(&mut session(100));
        let sessions: Vec<Session> = (0..workload::CLIENTS.len()).map(|client| session(1 + client as u32)).collect();
        for (work, session) in workload::CLIENTS.into_iter().zip(sessions) {
            self.clients.push(workload::start(work, session, self.random.child(), &self.stop));
        }
    }

    /// Waits until so many more calls were answered.
    pub fn until_answered(&mut self, count: u64) {
        let (start, until) = (Instant::now(), self.recorder.answered() + count);
        while self.recorder.answered() < until {
            assert!(start.elapsed() < STUCK, "no progress for {STUCK:?}; seed {}\n{}", self.seed, self.tail());
            self.brokers.iter_mut().for_each(Broker::supervise);
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits at most so long for so many more answers.
    pub fn work(&mut self, count: u64, at_most: Duration) {
        let (start, until) = (Instant::now(), self.recorder.answered() + count);
        while self.recorder.answered() < until && start.elapsed() < at_most {
            self.brokers.iter_mut().for_each(Broker::supervise);
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends the clients, drains, and says what was wrong. Faults must be over.
    pub fn verdict(&mut self) -> Vec<Violation> {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients.drain(..) {
            client.join().expect("clients do not panic");
        }
        let (addresses, recorder, random) = (self.addresses(), self.recorder.clone(), self.random.child());
        let stuck = workload::drain(|| Session::new(200, recorder.clone(), &addresses, random.clone()));
        let mut violations = check(&self.recorder.history(), &workload::rules());
        violations.extend(stuck.into_iter().map(|what| Violation { promise: "drain", what }));
        for broker in &self.brokers {
            let panics = broker.log();
            let panics = panics.lines().filter(|line| line.contains("panicked at"));
            violations.extend(panics.map(|line| Violation { promise: "no panic", what: line.to_owned() }));
        }
        violations
    }

    /// Ends the run; everything must have been right.
    pub fn finish(mut self) {
        let violations = self.verdict();
        self.summary();
        if !violations.is_empty() {
            let path = self.save();
            let first: Vec<String> = violations.iter().take(20).map(ToString::to_string).collect();
            let (count, seed, first) = (violations.len(), self.seed, first.join("\n"));
            panic!("{count} violations; TIDEGATE_CRASH_SEED={seed}, history in {path}:\n{first}");
        }
    }

    /// One line on how much happened.
    pub fn summary(&self) {
        let history = self.recorder.history();
        let count = |wanted: fn(&Event) -> bool| history.records.iter().filter(|record| wanted(&record.event)).count();
        eprintln!(
            "{} calls: {} answered, {} refused, {} of unknown outcome; {} faults; {:.1} s",
            count(|event| matches!(event, Event::Invoke(_))),
            count(|event| matches!(event, Event::Ok(_))),
            count(|event| matches!(event, Event::Fail(_))),
            count(|event| matches!(event, Event::Unknown(_))),
            count(|event| matches!(event, Event::Fault(_))),
            history.records.last().map_or(0.0, |record| record.at as f64 / 1e6),
        );
    }

    fn save(&self) -> String {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("history-{}.txt", self.seed));
        let _ = fs::write(&path, self.recorder.history().to_string());
        path.display().to_string()
    }

    fn tail(&self) -> String {
        let history = self.recorder.history();
        let records = history.records.iter().rev().take(40).rev().cloned().collect();
        History { records }.to_string()
    }
}
