//! The store port: what the core asks of a store and what each answer promises.
//!
//! A store knows no rule. It keeps records, hands slots to one owner at a time, and refuses every commit and trim
//! whose fence is not the slot's. `testkit::conformance` pins all of this down.

use alloc::boxed::Box;
use alloc::vec::Vec;
use compact_str::CompactString;

use crate::activity::ActivityRow;
use crate::error::StoreError;
use crate::message::SegmentSlice;
use crate::name::{DeadLetterId, GroupName, PartitionId, QueueId, QueueName, TenantId};
use crate::record::{
    CursorRecord, DeadLetterHead, DeadLetterRecord, HistoryRecord, NewSegment, PartitionRecord, QueueRecord,
    SegmentHead, SubscriptionRecord, TraceRecord,
};
use crate::time::{Span, Timestamp};

/// What one state machine owns.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(pub u8);

/// Counts the owners of a slot: raised by each take and each settling. 0 means never owned.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Epoch(pub u64);

/// A random value that tells one owner's epoch from another's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Token(pub u128);

/// Numbers the commits of one epoch, from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CommitNo(pub u64);

/// A commit's place: unique for ever in its slot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CommitKey {
    /// Of its owner.
    pub epoch: Epoch,
    /// Within the epoch.
    pub number: CommitNo,
}

/// What shows that the sender owns the slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fence {
    /// The slot.
    pub slot: Slot,
    /// Its epoch as the owner knows it.
    pub epoch: Epoch,
    /// The token that belongs to it.
    pub token: Token,
}

/// Numbers a request to the store, so that its answer is known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StoreCall(pub u64);

/// What the core asks.
#[derive(Clone, PartialEq, Debug)]
pub enum StoreRequest {
    /// Who owns the slot? `Watched`
    Watch(Slot),
    /// Take the slot if its epoch is still `seen`: epoch + 1, a fresh token, not released. `Taken`, or `Watched` when
    /// somebody was quicker.
    Take {
        /// The slot.
        slot: Slot,
        /// The epoch that `Watched` told.
        seen: Epoch,
        /// The token from now on.
        token: Token,
        /// Who takes it, for people.
        owner: CompactString,
    },
    /// Say that the owner lives. Refused as `SuffixLost` when an acknowledged commit is missing. `Renewed`
    Renew {
        /// The owner's fence.
        fence: Fence,
        /// The last two commits acknowledged to the owner, newest first.
        acknowledged: [Option<CommitKey>; 2],
    },
    /// Give the slot up: the next taker need not wait. `Released`
    Release(Fence),
    /// Commit writes, all or nothing. `Committed`
    Commit(Commit),
    /// Raise the own epoch, which shuts out every commit under the old one, then tell which commits are there. `Settled`
    Settle {
        /// The owner's fence; afterwards invalid.
        fence: Fence,
        /// The token of the raised epoch.
        token: Token,
        /// The commits whose outcome is unknown.
        unknown: Vec<CommitKey>,
    },
    /// A page of what the slot holds, without logs. `Page`
    Load {
        /// The slot.
        slot: Slot,
        /// What the previous page said.
        after: Option<LoadPosition>,
    },
    /// Queues of the slot in order of their ids: their options may have been changed in the store itself. `Queues`
    LoadQueues {
        /// The slot.
        slot: Slot,
        /// What the previous page said.
        after: Option<QueueId>,
    },
    /// Segment heads of partitions, newest first. `Logs`
    LoadLogs(Vec<LogRead>),
    /// Messages by offset. `Segments`
    Read(Vec<SegmentRead>),
    /// Dead letters by id. `DeadLetters`
    ReadDeadLetters(Vec<DeadLetterId>),
    /// Traces of a tenant. `Traces`
    ReadTraces {
        /// The tenant's slot.
        slot: Slot,
        /// The tenant.
        tenant: TenantId,
        /// Which.
        of: TracesOf,
    },
    /// The names that traces of a tenant carry, last seen first. `TraceNames`
    ReadTraceNames {
        /// The tenant's slot.
        slot: Slot,
        /// The tenant.
        tenant: TenantId,
        /// Rows at most.
        limit: u64,
        /// Rows skipped.
        offset: u64,
    },
    /// What happened on a tenant's queues, merged into buckets, in order of start and queue. `Activity`
    ReadActivity {
        /// The tenant's slot.
        slot: Slot,
        /// The tenant.
        tenant: TenantId,
        /// Only of this queue.
        queue: Option<QueueName>,
        /// Rows that start at or after this time
        from: Timestamp,
        /// and before this one.
        until: Timestamp,
        /// How long a bucket is. Buckets start at multiples of it.
        bucket: Span,
    },
    /// Remove rows of an ended queue, oldest first. `Trimmed`
    Trim {
        /// The owner's fence.
        fence: Fence,
        /// Its incarnation.
        queue: QueueId,
        /// Segments at most in this step.
        limit: u32,
    },
    /// Segments of partitions without what they hold, oldest first. `Extents`
    LoadExtents {
        /// Which.
        reads: Vec<ExtentRead>,
        /// Extents at most, over all reads; of each read a prefix is given.
        limit: u32,
    },
    /// Remove what lies below the watermarks of partitions, as they are stored: messages below the log start, of which
    /// hashes from the hash start on stay, and hashes below the hash start. Messages whose partition is being removed
    /// or is not there are nobody's any more. `Trimmed`
    TrimLogs {
        /// The owner's fence.
        fence: Fence,
        /// The partitions.
        partitions: Vec<PartitionId>,
        /// Rows at most in this step.
        limit: u32,
    },
    /// What retention deleted from a tenant's queues, in order of time. `History`
    LoadHistory {
        /// The slot.
        slot: Slot,
        /// Whose queues.
        tenant: TenantId,
        /// First minute wanted.
        since: Timestamp,
        /// The first minute not wanted.
        until: Timestamp,
    },
    /// Remove history of the slot. `Trimmed`
    TrimHistory {
        /// The owner's fence.
        fence: Fence,
        /// Older minutes go.
        before: Timestamp,
        /// Rows at most in this step.
        limit: u32,
    },
    /// A round trip that touches what stores. `Pong`
    Ping,
}

/// Writes that happen together.
#[derive(Clone, PartialEq, Debug)]
pub struct Commit {
    /// The owner's fence: another epoch or token in the store means `Fenced`, and nothing happens.
    pub fence: Fence,
    /// Stored with the writes; asking for it settles an unknown outcome.
    pub number: CommitNo,
    /// Store time of the commit as its owner reckons it. The next owner starts no earlier than the latest of these.
    pub time: Timestamp,
    /// The last two commits acknowledged to the owner, newest first: `SuffixLost` when one is missing.
    pub acknowledged: [Option<CommitKey>; 2],
    /// In order.
    pub writes: Vec<Write>,
}

/// One change of what is stored. Records are set whole.
#[derive(Clone, PartialEq, Debug)]
pub enum Write {
    /// Set a queue.
    Queue(Box<QueueRecord>),
    /// End a queue's incarnation: it, its partitions, cursors, subscriptions and dead letters are gone from every load;
    /// trims remove the rows.
    EndQueue(QueueId),
    /// Set a partition.
    Partition(PartitionRecord),
    /// Append a segment. Its start is the partition's next offset.
    Append(NewSegment),
    /// Set a cursor.
    Cursor(CursorRecord),
    /// Remove a cursor.
    DropCursor {
        /// Of this partition.
        partition: PartitionId,
        /// And this group.
        group: GroupName,
    },
    /// Set a subscription record.
    Subscription(SubscriptionRecord),
    /// Remove a subscription record.
    DropSubscription {
        /// On this queue.
        queue: QueueId,
        /// Of this group.
        group: GroupName,
    },
    /// File a dead letter.
    DeadLetter(Box<DeadLetterRecord>),
    /// Remove a dead letter.
    DropDeadLetter(DeadLetterId),
    /// Keep a trace.
    Trace(Box<TraceRecord>),
    /// Keep what happened in a minute; what is there for the same minute and queue is merged with it.
    Activity(Box<ActivityRow>),
    /// Remove rows of activity that start before a time, some of them if they are many.
    DropActivity {
        /// The time.
        before: Timestamp,
        /// Rows at most.
        limit: u32,
    },
    /// Remove a partition that has no message left, with its cursors and whatever lies below its watermarks.
    DropPartition(PartitionId),
    /// Add to what retention deleted from a queue within a minute.
    History(HistoryRecord),
}

/// Which traces are read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TracesOf {
    /// Those of a message, oldest first, the first `MAX_TRACES_READ` of them.
    Message(PartitionId, CompactString),
    /// Those that carry a name, newest first.
    Name {
        /// The name.
        name: CompactString,
        /// Rows at most.
        limit: u64,
        /// Rows skipped.
        offset: u64,
    },
}

/// A name that traces carry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceName {
    /// The name.
    pub name: CompactString,
    /// Traces that carry it.
    pub traces: u64,
    /// Messages they are about.
    pub messages: u64,
    /// When the last one was written.
    pub last: Timestamp,
}

/// Asks for a partition's segments from an offset on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExtentRead {
    /// The partition.
    pub partition: PartitionId,
    /// No segment that starts earlier is given.
    pub from: u64,
    /// Hashes that outlived their messages instead.
    pub hashes: bool,
}

/// What a segment spans.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Offset of its first message.
    pub start: u64,
    /// One past its last.
    pub end: u64,
    /// Commit time.
    pub created: Timestamp,
    /// Payload bytes of the partition from its first message ever to this segment's last.
    pub total: u64,
}

/// Messages `from` (inclusive) to `end` (exclusive) of a partition; what is deleted is left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentRead {
    /// The partition.
    pub partition: PartitionId,
    /// First offset wanted.
    pub from: u64,
    /// One past the last offset wanted.
    pub end: u64,
}

/// Heads of a partition's segments that start before `before` and were committed at or after `since`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogRead {
    /// The partition.
    pub partition: PartitionId,
    /// One past the last offset wanted: `u64::MAX` for the end, then the start of the last head given.
    pub before: u64,
    /// Earliest commit time wanted. The page may hold older ones too.
    pub since: Timestamp,
}

/// What is there for a `LogRead`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogPage {
    /// Newest first, without gaps.
    pub segments: Vec<SegmentHead>,
    /// Whether older ones that were asked for remain.
    pub more: bool,
}

/// Where a partition's log ends: all that is known of it before its heads are loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogTail {
    /// The next offset.
    pub next: u64,
    /// Commit time of the last segment.
    pub last: Option<Timestamp>,
    /// Payload bytes ever appended.
    pub total: u64,
    /// Whether a trim has something to remove below the partition's watermarks.
    pub untrimmed: bool,
}

/// Where the next page of a load starts; meaningless to anybody but the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoadPosition {
    /// Kind of record.
    pub kind: u8,
    /// Last key given.
    pub key: u128,
    /// Last number given under that key.
    pub number: u64,
}

/// What a load gives. Every record comes after the records it refers to.
#[derive(Clone, PartialEq, Debug)]
pub enum Record {
    /// A queue.
    Queue(Box<QueueRecord>),
    /// An ended queue whose rows are not all trimmed yet.
    Ended(QueueId),
    /// A subscription.
    Subscription(SubscriptionRecord),
    /// A partition, and where its log ends.
    Partition(PartitionRecord, LogTail),
    /// A cursor.
    Cursor(CursorRecord),
    /// A dead letter's narrow part.
    DeadLetter(DeadLetterHead),
}

/// Who owns a slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlotView {
    /// Its epoch.
    pub epoch: Epoch,
    /// The owner's token; settles a take of unknown outcome.
    pub token: Option<Token>,
    /// The owner, for people; none when never owned or released.
    pub owner: Option<CompactString>,
    /// Changes with each renewal.
    pub beat: u64,
    /// The owner's process is known to have ended: nobody needs to wait for its silence.
    pub gone: bool,
}

/// An answer of the store.
#[derive(Clone, PartialEq, Debug)]
pub struct StoreAnswer {
    /// To which request.
    pub call: StoreCall,
    /// The store's own time when it answered.
    pub time: Timestamp,
    /// What it says.
    pub reply: StoreReply,
}

/// What the store says.
#[derive(Clone, PartialEq, Debug)]
pub enum StoreReply {
    /// To `Watch`, and to a `Take` that came too late.
    Watched(SlotView),
    /// The slot is the asker's under this epoch.
    Taken(Epoch),
    /// The owner's counter was raised.
    Renewed,
    /// The slot has no owner.
    Released,
    /// Durable.
    Committed,
    /// The fence is not the slot's: certainly nothing happened.
    Fenced,
    /// A commit that was acknowledged is missing: certainly nothing happened, and all that was loaded is worthless.
    SuffixLost,
    /// Certainly nothing happened.
    Failed(StoreError),
    /// The answer was lost: it may have happened, or may still happen until a settling shuts it out.
    Unknown,
    /// The epoch now, and for each commit asked about whether it is there; final.
    Settled {
        /// The raised epoch.
        epoch: Epoch,
        /// In the order asked.
        committed: Vec<bool>,
    },
    /// A page, and where the next one starts.
    Page {
        /// In an order in which every record follows what it refers to.
        records: Vec<Record>,
        /// None when this was the last.
        next: Option<LoadPosition>,
        /// The latest time that any commit of the slot carried.
        latest: Option<Timestamp>,
    },
    /// A page of queues.
    Queues {
        /// In order of their ids.
        queues: Vec<QueueRecord>,
        /// The last id given, when there are more.
        next: Option<QueueId>,
    },
    /// For each log asked about, a page of it.
    Logs(Vec<LogPage>),
    /// For each read, what is there.
    Segments(Vec<Vec<SegmentSlice>>),
    /// For each id, the dead letter if it is there.
    DeadLetters(Vec<Option<DeadLetterRecord>>),
    /// Traces.
    Traces {
        /// In the order asked for.
        rows: Vec<TraceRecord>,
        /// How many there are, those not on this page too.
        total: u64,
    },
    /// Names of traces.
    TraceNames {
        /// In the order asked for.
        rows: Vec<TraceName>,
        /// How many there are, those not on this page too.
        total: u64,
    },
    /// Buckets of activity: at most `MAX_ACTIVITY_READ`, the newest if there are more.
    Activity(Vec<ActivityRow>),
    /// Whether rows remain.
    Trimmed {
        /// Ask again.
        more: bool,
    },
    /// For each read, as much as the limit let through.
    Extents(Vec<Vec<Extent>>),
    /// What retention deleted.
    History(Vec<HistoryRecord>),
    /// The store works.
    Pong,
}
