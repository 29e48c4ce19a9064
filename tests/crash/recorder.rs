//! The history of a run that is still going on: clients append to it from their threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::history::{Event, History, Operation, Record};

pub struct Recorder {
    start: Instant,
    history: Mutex<History>,
    calls: AtomicU64,
    answered: AtomicU64,
}

impl Recorder {
    pub fn new() -> Self {
        let (history, calls, answered) = Default::default();
        Self { start: Instant::now(), history, calls, answered }
    }

    /// Before anything is sent.
    pub fn invoke(&self, client: u32, operation: Operation) -> u64 {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        self.append(client, call, Event::Invoke(operation));
        call
    }

    /// As soon as the client knows.
    pub fn end(&self, client: u32, call: u64, event: Event) {
        if matches!(event, Event::Ok(_)) {
            self.answered.fetch_add(1, Ordering::Relaxed);
        }
        self.append(client, call, event);
    }

    pub fn fault(&self, what: impl Into<String>) {
        self.append(0, u64::MAX, Event::Fault(what.into()));
    }

    /// How many calls were answered so far.
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    pub fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn append(&self, client: u32, call: u64, event: Event) {
        let mut history = self.history();
        // Read under the lock, so that the times ascend like the places.
        let at = self.start.elapsed().as_micros() as u64;
        history.records.push(Record { at, client, call, event });
    }
}
