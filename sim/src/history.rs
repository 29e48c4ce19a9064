//! The history: what clients sent and saw, what was done to the system, and, where the store is simulated, what it was
//! given to keep. One append-only list, written while a run goes on; checkers read nothing else.
//!
//! All three layers write it: the core on an event queue (A), real HTTP on virtual time (B), real processes (C). It is
//! made for a million records a second: names, ids and texts are numbers that whoever writes the history gave out
//! (`Interner`), times are microseconds, and a record holds at most one list.
//!
//! Each operation makes two records: `Invoke` before anything is sent, and one of `Ok`, `Fail`, `Unknown` when its client
//! knows what became of it. An operation without a second record is of unknown outcome. A client that tries again begins
//! a new operation. The place of a record in the list is the only order that counts among records of equal time.
//!
//! **A new operation** is a variant of `Operation`, one of `Answer`, and where it writes something new a variant of
//! `Written`: the compiler then names every checker that has to know.

mod answer;
mod interner;
mod written;

pub use answer::*;
pub use interner::*;
pub use written::*;

/// A point in true time: microseconds since the run began. Nobody's clock; layer C takes the clients' machine for it.
pub type At = i64;
/// A length of time in microseconds.
pub type Micros = i64;
/// A point in store time, in microseconds since 1970: what the system itself writes down and tells.
pub type Stamp = i64;

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident($of:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub struct $name(pub $of);

        impl $name {
            /// The number as a place in a list.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}

numbers! {
    /// A tenant.
    TenantNo(u16);
    /// A queue's name, within its tenant.
    QueueNo(u16);
    /// A partition's name within a queue's name: what a producer addresses.
    LaneNo(u16);
    /// One incarnation of a partition: a `PartitionId`. A lane of a deleted queue gets another one.
    PartitionNo(u32);
    /// A consumer group's name.
    GroupNo(u16);
    /// A text that a producer gave as transaction id.
    TextNo(u32);
    /// A message id.
    MessageNo(u32);
    /// A content: equal payloads have equal numbers, different ones different numbers.
    PayloadNo(u32);
    /// A lease id.
    LeaseNo(u32);
    /// A dead letter's id.
    DeadLetterNo(u32);
    /// One incarnation of a queue: a `QueueId`.
    QueueIdNo(u32);
    /// An operation; unique in a run.
    OpNo(u32);
    /// A client.
    ClientNo(u16);
    /// A broker's host, or where there is one broker only, 0. A restarted broker keeps its number.
    HostNo(u16);
}

/// The transaction id of a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Key {
    /// The producer gave one.
    Given(TextNo),
    /// None was given: the text of the message's own id.
    Own(MessageNo),
}

/// One line of the history.
#[derive(Clone, PartialEq, Debug, Hash)]
pub struct Record {
    /// When it was written.
    pub at: At,
    /// The client; 0 for what no client did.
    pub client: ClientNo,
    /// The broker that the client spoke to, or that did something to the store.
    pub host: HostNo,
    /// Ties the two records of an operation together; for a `Commit` nothing.
    pub op: OpNo,
    /// What happened.
    pub event: Event,
}

/// What a record says.
#[derive(Clone, PartialEq, Debug, Hash)]
pub enum Event {
    /// The client is about to send this.
    Invoke(Operation),
    /// It was answered.
    Ok(Answer),
    /// It was refused as a whole, and certainly had no effect.
    Fail(Refusal),
    /// Nobody can tell whether it had an effect; it may have it later, until `Phase::Settled`.
    Unknown,
    /// Something was done to the system.
    Fault(Fault),
    /// The run enters a phase.
    Phase(Phase),
    /// The store carried out a commit, at this very moment [W].
    Commit(Box<Committed>),
    /// The store has another owner for a slot, or another epoch of the same owner [W].
    Owner(Owner),
    /// The store lost its newest commits: those with a higher `serial` than this never happened [W].
    Lost {
        /// The serial of the last commit that is still there.
        last: u64,
    },
}

/// The phases of a run, in order. A run without one of them tells nothing about what the phase promises.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Phase {
    /// Faults happen.
    Storm,
    /// No more faults: brokers are up, the network and the store work, clocks go steadily.
    Healed,
    /// Nothing that was begun before is under way any more: no late request, no open operation.
    Settled,
    /// From here on the groups of `Operation::Pop` read until nothing is left, and nobody pushes.
    Draining,
    /// Every queue was popped empty for every group that is in use, and waited for.
    Drained,
}

/// Why an operation was refused as a whole.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Refusal {
    /// The store could not be reached, nobody owned the slot, or the broker was stopping.
    Unavailable,
    /// The request itself cannot be carried out: 4xx.
    Invalid,
    /// It was never sent: no connection.
    NotSent,
}

/// What a client asks for.
#[derive(Clone, PartialEq, Debug, Hash)]
pub enum Operation {
    /// Append messages.
    Push {
        /// In request order.
        items: Vec<Item>,
    },
    /// Take messages.
    Pop(Pop),
    /// Settle deliveries.
    Ack {
        /// Whose.
        group: GroupNo,
        /// In request order.
        items: Vec<AckItem>,
    },
    /// Lengthen a lease.
    Extend {
        /// Which.
        lease: Proof,
        /// From the decision on.
        length: Micros,
    },
    /// Pushes and acks, all or nothing.
    Transaction {
        /// In request order.
        parts: Vec<Part>,
        /// Must be live and cover a partition that is acked.
        required: Vec<Proof>,
    },
    /// Replace a queue's options.
    Configure {
        /// The queue.
        queue: QueueNo,
        /// All of them.
        options: Box<Options>,
    },
    /// Delete a queue and all it holds.
    DeleteQueue {
        /// The queue.
        queue: QueueNo,
    },
    /// Move a group's cursors.
    Seek {
        /// The group.
        group: GroupNo,
        /// The queue.
        queue: QueueNo,
        /// Only this partition.
        lane: Option<LaneNo>,
        /// Where to.
        target: Target,
    },
    /// Forget a group.
    DeleteGroup {
        /// The group.
        group: GroupNo,
        /// Only on this queue.
        queue: Option<QueueNo>,
        /// Its subscription records too.
        metadata: bool,
    },
    /// Set the time that a group's subscriptions carry.
    ChangeSubscription {
        /// The group.
        group: GroupNo,
        /// The new time.
        since: Stamp,
    },
    /// Read one message.
    FindMessage {
        /// Its partition.
        partition: PartitionNo,
        /// Its transaction id.
        key: Key,
    },
    /// List dead letters, newest failure first.
    ListDeadLetters {
        /// Only of this queue.
        queue: Option<QueueNo>,
        /// Only of this group.
        group: Option<GroupNo>,
        /// Rows at most.
        limit: u32,
        /// Rows skipped.
        offset: u32,
    },
    /// Remove the dead letters of one message.
    DropDeadLetters {
        /// Its partition.
        partition: PartitionNo,
        /// Its transaction id.
        key: Key,
    },
    /// Move a dead letter back to the tail of its partition.
    Replay {
        /// Its partition.
        partition: PartitionNo,
        /// Its transaction id.
        key: Key,
        /// Whose; the newest failure's without it.
        group: Option<GroupNo>,
    },
    /// One queue with its partitions.
    DescribeQueue {
        /// The queue.
        queue: QueueNo,
    },
    /// Where groups stand.
    ListGroups {
        /// Only this one.
        group: Option<GroupNo>,
    },
}

/// The kinds of operations, for counting.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum OperationKind {
    /// `Operation::Push`
    Push,
    /// `Operation::Pop`
    Pop,
    /// `Operation::Ack`
    Ack,
    /// `Operation::Extend`
    Extend,
    /// `Operation::Transaction`
    Transaction,
    /// `Operation::Configure`
    Configure,
    /// `Operation::DeleteQueue`
    DeleteQueue,
    /// `Operation::Seek`
    Seek,
    /// `Operation::DeleteGroup`
    DeleteGroup,
    /// `Operation::ChangeSubscription`
    ChangeSubscription,
    /// `Operation::FindMessage`
    FindMessage,
    /// `Operation::ListDeadLetters`
    ListDeadLetters,
    /// `Operation::DropDeadLetters`
    DropDeadLetters,
    /// `Operation::Replay`
    Replay,
    /// `Operation::DescribeQueue`
    DescribeQueue,
    /// `Operation::ListGroups`
    ListGroups,
}

impl Operation {
    /// Without what it carries.
    pub fn kind(&self) -> OperationKind {
        match self {
            Operation::Push { .. } => OperationKind::Push,
            Operation::Pop(_) => OperationKind::Pop,
            Operation::Ack { .. } => OperationKind::Ack,
            Operation::Extend { .. } => OperationKind::Extend,
            Operation::Transaction { .. } => OperationKind::Transaction,
            Operation::Configure { .. } => OperationKind::Configure,
            Operation::DeleteQueue { .. } => OperationKind::DeleteQueue,
            Operation::Seek { .. } => OperationKind::Seek,
            Operation::DeleteGroup { .. } => OperationKind::DeleteGroup,
            Operation::ChangeSubscription { .. } => OperationKind::ChangeSubscription,
            Operation::FindMessage { .. } => OperationKind::FindMessage,
            Operation::ListDeadLetters { .. } => OperationKind::ListDeadLetters,
            Operation::DropDeadLetters { .. } => OperationKind::DropDeadLetters,
            Operation::Replay { .. } => OperationKind::Replay,
            Operation::DescribeQueue { .. } => OperationKind::DescribeQueue,
            Operation::ListGroups { .. } => OperationKind::ListGroups,
        }
    }
}

/// A message as it is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Item {
    /// Where to.
    pub lane: LaneNo,
    /// The transaction id, if one is given.
    pub text: Option<TextNo>,
    /// What it holds.
    pub payload: PayloadNo,
}

/// A request for messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Pop {
    /// Where from.
    pub scope: Scope,
    /// For whom.
    pub group: GroupNo,
    /// Messages at most.
    pub batch: u32,
    /// Partitions at most; 0 means no cap.
    pub partitions: u32,
    /// Commit on delivery and take no lease.
    pub auto_ack: bool,
    /// Long poll this long; 0 answers at once.
    pub wait: Micros,
    /// Lease asked for; 0 means the queue's.
    pub lease: Micros,
    /// Where a group that is new here starts.
    pub start: Start,
}

/// Where a pop takes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Scope {
    /// Any partition of a queue.
    Queue(QueueNo),
    /// One partition.
    Lane(LaneNo),
    /// Any partition of every queue with this namespace (a number for its text).
    Namespace(u16),
}

/// Where a new group starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Start {
    /// Not said.
    Default,
    /// Everything that is there.
    All,
    /// What comes from now on.
    New,
    /// What was committed at or after this time.
    Time(Stamp),
}

/// What an ack says of the lease.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Proof {
    /// Nothing: no check is made.
    None,
    /// This one.
    Lease(LeaseNo),
    /// A text that never was a lease id.
    Foreign,
}

/// What is said of a delivered message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Status {
    /// Done.
    Completed,
    /// Not done: charge a retry.
    Failed,
    /// Not done: charge nothing.
    Retry,
    /// Dead-letter it now.
    DeadLetter,
}

/// One message that is settled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct AckItem {
    /// Its partition.
    pub partition: PartitionNo,
    /// Its transaction id.
    pub key: Key,
    /// What became of it.
    pub status: Status,
    /// The lease.
    pub lease: Proof,
}

/// A part of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Part {
    /// Append.
    Push(Item),
    /// Settle.
    Ack(GroupNo, AckItem),
}

/// Where a seek goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Target {
    /// Behind the last message.
    End,
    /// Before the first segment committed at or after this time.
    Time(Stamp),
}

/// A queue's options, as far as they decide anything. Seconds, as on the wire, unless said otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Options {
    /// OPT-3.
    pub lease_time: i64,
    /// OPT-6.
    pub retry_limit: i64,
    /// OPT-9: either half of the OR.
    pub dead_letters: bool,
    /// OPT-10.
    pub delayed_processing: i64,
    /// OPT-12, OPT-13.
    pub window_buffer: i64,
    /// OPT-14.
    pub retention_enabled: bool,
    /// OPT-15.
    pub retention: i64,
    /// OPT-18.
    pub completed_retention: i64,
    /// OPT-19.
    pub max_wait_time: i64,
    /// OPT-20, milliseconds.
    pub min_pop_wait_millis: i64,
    /// OPT-22.
    pub encryption: bool,
    /// OPT-24.
    pub dedup_window: i64,
    /// A number for the text of the queue's namespace (OPT-1).
    pub namespace: u16,
}

/// What is done to the system. The letters are the catalogue's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Fault {
    /// G1: the store carried it out, its answer is lost.
    AnswerLost,
    /// G1: it never reached the store, and the broker cannot know.
    RequestLost,
    /// G2: refused as if another owner had the slot.
    Fenced,
    /// G6: it reaches the store late, and is answered.
    Stalled(Micros),
    /// G6, G8: answered as unknown, reaches the store later.
    Late(Micros),
    /// G4: the newest commits are gone.
    SuffixLost(u32),
    /// G10, G11: one request is refused.
    Failed,
    /// G10: every request is refused for as long.
    Outage(Micros),
    /// N2: a broker cannot reach the store for as long.
    CutFromStore(Micros),
    /// N2: two brokers cannot reach each other for as long; the other one's number.
    CutFromBroker(HostNo, Micros),
    /// N2: clients cannot reach a broker for as long.
    CutFromClients(Micros),
    /// P1: a broker's process ends without a word; the number of leases it had given is for people.
    Crash,
    /// P1: it starts again, with nothing in memory.
    Restart,
    /// P2: it stops in the middle of everything for as long, and goes on with its old plans.
    Pause(Micros),
    /// L9: it is told to stop and gives everything away.
    Shutdown,
    /// G12: its control connection, or a heartbeat, is lost.
    HeartbeatLost,
    /// K1, K3: a broker's clock jumps; only its monotonic reading matters to it, and that never goes back.
    ClockJump(Micros),
    /// K3: the store's clock jumps.
    StoreClockJump(Micros),
    /// K2: a broker's clock goes this many millionths faster.
    Drift(i32),
    /// N1: what is on its way between clients and brokers, or between brokers, takes as long.
    Slow(Micros),
    /// N4: a request was lost on its way.
    LostOnTheWay,
    /// N8: an answer was lost on its way, and the broker knows.
    AnswerRefused,
    /// N3: an answer was lost on its way, and the broker does not know.
    AnswerVanished,
    /// N5: a request arrived a second time, as much later.
    Duplicated(Micros),
    /// N8: a client left before it had its answer.
    ClientLeft,
    /// C1: a client ended with its leases.
    ClientCrash,
    /// Layers B and C: something else; a number for its text.
    Other(u16),
}

/// What a run promises before it begins: what checkers may rely on.
#[derive(Clone, PartialEq, Debug)]
pub struct Terms {
    /// Whether the history has the store's commits: `Commit`, `Owner`, `Lost`.
    pub commit_log: bool,
    /// Which queue each lane belongs to, by lane.
    pub lane_queue: Vec<QueueNo>,
    /// Which tenant each queue belongs to, by queue.
    pub queue_tenant: Vec<TenantNo>,
    /// Which tenant each client belongs to, by client.
    pub client_tenant: Vec<TenantNo>,
    /// The options of a queue that nobody configured.
    pub implicit: Options,
    /// The group of a pop that names none; subscriptions do not apply to it.
    pub queue_mode: Option<GroupNo>,
    /// Where a group starts that does not say: `Start::All` or `Start::New`.
    pub default_start: Start,
    /// OPT-12 holds, else OPT-13.
    pub hot_list: bool,
    /// Messages that end a window early (OPT-12).
    pub window_batch: u64,
    /// Acks without a lease are refused.
    pub require_lease: bool,
    /// Store time at true time 0.
    pub epoch: Stamp,
    /// How far a broker's idea of store time may be from true time, in microseconds, while no clock jumps: what a
    /// checker that compares `At` with `Stamp` has to allow.
    pub skew: Micros,
    /// How long an answer may take on the way to the client when nothing is wrong.
    pub latency: Micros,
}

/// Something that must not be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The checker.
    pub checker: &'static str,
    /// The place of the record at which it was noticed.
    pub place: u32,
    /// What contradicts what, for people.
    pub what: String,
}

/// Where checkers put what they notice.
#[derive(Clone, Default, Debug)]
pub struct Findings {
    /// What must not be, at most a few: one is enough to fail a run.
    pub violations: Vec<Violation>,
    /// Which named situations occurred, and how often.
    pub marks: crate::marks::Marks,
}

impl Findings {
    /// More are not worth the time: the run has failed.
    const KEPT: usize = 20;

    /// Notes a contradiction. The text is made only when it is kept.
    #[cold]
    pub fn violate(&mut self, checker: &'static str, place: u32, what: impl FnOnce() -> String) {
        if self.violations.len() < Self::KEPT {
            self.violations.push(Violation { checker, place, what: what() });
        }
    }
}

/// A promise that is checked: an online fold with constant work per record, and a last look.
pub trait Checker {
    /// Its name: that of its file.
    fn name(&self) -> &'static str;
    /// Takes the record at `place` into account.
    fn record(&mut self, place: u32, record: &Record, findings: &mut Findings);
    /// The history is complete.
    fn finish(&mut self, findings: &mut Findings);
}

/// A history in memory, for tests of checkers and for layers that check afterwards.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct History {
    /// In order.
    pub records: Vec<Record>,
}

impl History {
    /// What a checker finds in it.
    pub fn check(&self, checker: &mut dyn Checker) -> Findings {
        let mut findings = Findings::default();
        for (place, record) in (0u32..).zip(&self.records) {
            checker.record(place, record, &mut findings);
        }
        checker.finish(&mut findings);
        findings
    }
}
