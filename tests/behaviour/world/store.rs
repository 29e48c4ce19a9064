//! The store behind the broker, shared by its restarts, and what can be done to it from outside.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tidegate_core::error::{StoreError, StoreErrorKind};
use tidegate_core::store::{Fence, StoreReply, StoreRequest, Write};
use tidegate_core::time::{Span, Timestamp};
use tidegate_driver::{Answer, Clock, Store};
use tidegate_store_memory::MemoryStore;

/// The stores that behaviour is tested over.
pub enum Backend {
    /// `tidegate-store-memory`.
    Memory,
    /// `tidegate-store-postgres`.
    Postgres,
}

/// A store that outlives its brokers.
pub(super) type Shared = Arc<Mutex<dyn FnMut(Timestamp, StoreRequest) -> StoreReply + Send>>;

impl Backend {
    pub(super) fn open(self) -> Shared {
        match self {
            Backend::Memory => {
                let mut memory = MemoryStore::new();
                Arc::new(Mutex::new(move |now, request| memory.call(now, request)))
            }
            Backend::Postgres => {
                let mut postgres = super::postgres::open();
                Arc::new(Mutex::new(move |_now, request| postgres(request)))
            }
        }
    }
}

/// What a test does to the store; every field may change while the broker runs.
#[derive(Default)]
pub struct Faults {
    /// The store cannot be reached.
    away: AtomicBool,
    /// So many of the next commits fail.
    failing: AtomicU32,
    /// So many of the next commits are carried out, and nobody hears of it.
    lost_after: AtomicU32,
    /// So many of the next commits get lost on the way there, which nobody hears of either.
    lost_before: AtomicU32,
    /// Milliseconds that every answer takes.
    latency: AtomicU64,
    /// Microseconds by which the host's clock was set forward or back.
    clock_step: AtomicI64,
    /// Requests that are not about ownership.
    calls: AtomicU64,
    /// The owner's fence, as it was last renewed.
    fence: Mutex<Option<Fence>>,
    /// The payloads of every commit that was sent, whatever became of it.
    sent: Mutex<Vec<Bytes>>,
}

impl Faults {
    /// Takes the store away, or brings it back.
    pub fn set_away(&self, away: bool) {
        self.away.store(away, Relaxed);
    }

    /// Lets the next `count` commits fail: certainly nothing happened.
    pub fn fail_commits(&self, count: u32) {
        self.failing.store(count, Relaxed);
    }

    /// Carries the next `count` commits out and loses their answers.
    pub fn lose_answers(&self, count: u32) {
        self.lost_after.store(count, Relaxed);
    }

    /// Loses the next `count` commits before they reach the store.
    pub fn lose_commits(&self, count: u32) {
        self.lost_before.store(count, Relaxed);
    }

    /// Lets every answer take this long, so that commits overlap with what comes in meanwhile.
    pub fn set_latency_ms(&self, millis: u64) {
        self.latency.store(millis, Relaxed);
    }

    /// Sets the clock of the host that keeps the store's time.
    pub fn step_clock_secs(&self, secs: i64) {
        self.clock_step.fetch_add(secs * 1_000_000, Relaxed);
    }

    /// The fence under which the owner writes.
    pub(super) fn fence(&self) -> Fence {
        self.fence.lock().unwrap().expect("the owner has renewed its slot")
    }

    /// The payloads of every commit that was sent so far, whatever became of it.
    pub fn sent(&self) -> Vec<Bytes> {
        self.sent.lock().unwrap().clone()
    }

    /// Requests so far that were not about ownership.
    pub fn store_calls(&self) -> u64 {
        self.calls.load(Relaxed)
    }
}

/// Takes one from a count that is not used up yet.
fn take(count: &AtomicU32) -> bool {
    count.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
}

/// One broker's way to the store.
pub(super) struct Port {
    clock: Clock,
    store: Shared,
    faults: Arc<Faults>,
}

impl Port {
    pub(super) fn new(clock: Clock, store: Shared, faults: Arc<Faults>) -> Self {
        Port { clock, store, faults }
    }

    fn time(&self) -> Timestamp {
        self.clock.wall().plus(Span::from_micros(self.faults.clock_step.load(Relaxed)))
    }

    fn answer(&self, request: StoreRequest) -> StoreReply {
        let commit = matches!(request, StoreRequest::Commit(_));
        if let StoreRequest::Commit(commit) = &request {
            let appended = commit.writes.iter().filter_map(|write| match write {
                Write::Append(segment) => Some(segment.messages.iter().map(|message| message.payload.clone())),
                _ => None,
            });
            self.faults.sent.lock().unwrap().extend(appended.flatten());
        }
        if self.faults.away.load(Relaxed) || commit && take(&self.faults.failing) {
            let text = "the test took it away".into();
            return StoreReply::Failed(StoreError { kind: StoreErrorKind::Unavailable, text });
        }
        if commit && take(&self.faults.lost_before) {
            return StoreReply::Unknown;
        }
        let lost = commit && take(&self.faults.lost_after);
        let mut store = self.store.lock().expect("no test panicked inside the store");
        let reply = store(self.time(), request);
        if lost { StoreReply::Unknown } else { reply }
    }
}

impl Store for Port {
    fn call(&mut self, request: StoreRequest) -> Answer {
        let ownership = matches!(
            request,
            StoreRequest::Watch(_) | StoreRequest::Take { .. } | StoreRequest::Renew { .. } | StoreRequest::Release(_)
        );
        if !ownership {
            self.faults.calls.fetch_add(1, Relaxed);
        }
        if let StoreRequest::Renew { fence, .. } = &request {
            *self.faults.fence.lock().unwrap() = Some(*fence);
        }
        let (time, reply) = (self.time(), self.answer(request));
        match self.faults.latency.load(Relaxed) {
            0 => Answer::Now(time, reply),
            millis => Answer::Later(Box::pin(async move {
                tokio::time::sleep(Duration::from_millis(millis)).await;
                (time, reply)
            })),
        }
    }
}
