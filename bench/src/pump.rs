//! A broker and a memory store on one thread: the driver's work without a runtime.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidegate_core::broker::{Broker, Output};
use tidegate_core::command::{Command, RequestId};
use tidegate_core::name::TenantId;
use tidegate_core::reply::Reply;
use tidegate_core::settings::Settings;
use tidegate_core::store::StoreAnswer;
use tidegate_core::time::{Moment, Now, StoreClock, Timestamp};
use tidegate_store_memory::MemoryStore;

use crate::Failure;

/// How long a reply may take. Over a store in memory anything that is not at once is a fault.
const PATIENCE: Duration = Duration::from_secs(5);

/// Replies, each with what it answers.
pub type Replies = Vec<(RequestId, Reply)>;

/// The pair, with the time they are told.
pub struct Pump {
    broker: Broker,
    store: MemoryStore,
    origin: Instant,
    /// The store's own clock at `origin`.
    wall: Timestamp,
    /// What the broker knows of it.
    clock: StoreClock,
    now: Now,
    next: u64,
    commits: u64,
}

impl Pump {
    /// A broker that owns its slot over an empty store.
    pub fn start() -> Result<Self, Failure> {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let wall = Timestamp::from_micros(i64::try_from(wall.as_micros())?);
        let mut pump = Pump {
            // One seed for all runs: entropy costs the same whatever it is.
            broker: Broker::new(Settings::default(), [7; 32]),
            store: MemoryStore::new(),
            origin: Instant::now(),
            wall,
            clock: StoreClock::new(wall, Moment::default()),
            now: Now::default(),
            next: 0,
            commits: 0,
        };
        let mut replies = Replies::new();
        pump.broker.tick(pump.now);
        pump.turn(&mut replies);
        pump.read_clock();
        pump.request(Command::Probe);
        pump.answers(1, &mut replies)?;
        match replies.pop() {
            Some((_, Reply::Healthy)) => Ok(pump),
            other => Err(format!("the broker did not start: {other:?}").into()),
        }
    }

    /// Lets time pass, for the broker and the store alike. Returns what it read.
    pub fn read_clock(&mut self) -> Instant {
        let read = Instant::now();
        let micros = read.duration_since(self.origin).as_micros();
        self.now = self.clock.now(Moment::from_micros(u64::try_from(micros).unwrap_or(u64::MAX)));
        if self.broker.deadline().is_some_and(|deadline| deadline <= self.now.monotonic) {
            self.broker.tick(self.now);
        }
        read
    }

    /// Orders something. Ids are handed out in sequence.
    pub fn request(&mut self, command: Command) -> RequestId {
        let id = RequestId(self.next);
        self.next += 1;
        self.broker.request(self.now, id, TenantId::DEFAULT, command);
        id
    }

    /// Says that a reply reached its client, as the driver does for a delivery under a lease.
    pub fn sent(&mut self, id: RequestId) {
        self.broker.sent(id);
    }

    /// Works until `count` requests are answered; puts the replies, in any order, into `replies`.
    pub fn answers(&mut self, count: usize, replies: &mut Replies) -> Result<(), Failure> {
        replies.clear();
        self.turn(replies);
        let mut since = None;
        while replies.len() < count {
            let read = self.read_clock();
            if read.duration_since(*since.get_or_insert(read)) > PATIENCE {
                let have = replies.len();
                return Err(format!("the broker gave {have} of {count} replies in {PATIENCE:?}").into());
            }
            self.turn(replies);
        }
        Ok(())
    }

    /// Commits the store was asked for.
    pub fn commits(&self) -> u64 {
        self.commits
    }

    /// Does what the broker wants done until it wants nothing.
    fn turn(&mut self, replies: &mut Replies) {
        while let Some(output) = self.broker.poll() {
            match output {
                Output::Reply(id, reply) => replies.push((id, reply)),
                Output::Notice(_) => {}
                Output::Store(call, request) => {
                    self.commits += u64::from(matches!(request, tidegate_core::store::StoreRequest::Commit(_)));
                    let elapsed = self.now.monotonic.since(Moment::default());
                    let time = self.wall.plus(elapsed);
                    let reply = self.store.call(time, request);
                    self.clock.observe(time, self.now.monotonic);
                    self.broker.stored(self.now, StoreAnswer { call, time, reply });
                }
            }
        }
    }
}
