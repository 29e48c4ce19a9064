//! What a store holds, record by record (design.md 4.9). Whole values: a store keeps them as it likes and gives them
//! back equal.

use alloc::vec::Vec;
use bytes::Bytes;
use compact_str::CompactString;
use uuid::Uuid;

use crate::message::{NewMessage, StoredMessage};
use crate::name::{
    DeadLetterId, GroupName, LeaseId, MessageId, PartitionId, PartitionName, QueueId, QueueName, TenantId,
    TransactionHash,
};
use crate::options::{Labels, QueueOptions};
use crate::time::Timestamp;

/// A queue's one incarnation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueRecord {
    /// Stable across reconfiguration; a deleted queue's name gets a new one.
    pub id: QueueId,
    /// Whose it is.
    pub tenant: TenantId,
    /// Unique in the tenant.
    pub name: QueueName,
    /// Namespace and task.
    pub labels: Labels,
    /// All options, resolved.
    pub options: QueueOptions,
    /// When it was first written.
    pub created: Timestamp,
    /// Raised by each change, whoever makes it: of two versions the higher is the later one.
    pub revision: u64,
}

/// A partition. Its next offset and last commit time follow from its segments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionRecord {
    /// UUID v4.
    pub id: PartitionId,
    /// The queue's incarnation.
    pub queue: QueueId,
    /// Unique in the queue.
    pub name: PartitionName,
    /// When it was first written.
    pub created: Timestamp,
    /// First offset that retention has kept.
    pub log_start: u64,
    /// What retention left of what lies below.
    pub trimmed: Trimmed,
}

/// What is known of the messages that retention has deleted from a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Trimmed {
    /// First offset whose hash is kept: hashes from here to the log start outlived their messages (OPT-26). Those of
    /// messages that are there stay with them.
    pub hash_start: u64,
    /// Payload bytes of the partition from its first message ever to the last one deleted.
    pub bytes: u64,
    /// Commit time of the last one deleted: commit times go on from there even when nothing is left (OPT-11).
    pub last: Option<Timestamp>,
}

/// A rule that deletes messages (23).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum RetentionRule {
    /// `retentionSeconds` (OPT-15).
    Age,
    /// `completedRetentionSeconds` (OPT-18).
    Completed,
    /// `maxWaitTimeSeconds` (OPT-19).
    MaxWait,
}

impl RetentionRule {
    /// All, in the order in which they are asked: what several would delete is the first one's.
    pub const ALL: [RetentionRule; 3] = [RetentionRule::Age, RetentionRule::Completed, RetentionRule::MaxWait];

    /// The option that turns it on.
    pub const fn option(self) -> &'static str {
        match self {
            RetentionRule::Age => "retentionSeconds",
            RetentionRule::Completed => "completedRetentionSeconds",
            RetentionRule::MaxWait => "maxWaitTimeSeconds",
        }
    }

    /// Its number where it is stored; none is ever given another meaning.
    pub const fn code(self) -> u8 {
        match self {
            RetentionRule::Age => 0,
            RetentionRule::Completed => 1,
            RetentionRule::MaxWait => 2,
        }
    }

    /// The rule with that number.
    pub const fn of_code(code: u8) -> Option<RetentionRule> {
        match code {
            0 => Some(RetentionRule::Age),
            1 => Some(RetentionRule::Completed),
            2 => Some(RetentionRule::MaxWait),
            _ => None,
        }
    }
}

/// How much a rule deletes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Whole segments.
    pub segments: u64,
    /// Messages in them.
    pub messages: u64,
    /// Those that no group had consumed.
    pub unconsumed: u64,
}

impl Tally {
    /// Adds another's counts.
    pub fn add(&mut self, other: &Tally) {
        self.segments += other.segments;
        self.messages += other.messages;
        self.unconsumed += other.unconsumed;
    }
}

/// What a rule deleted from a queue within a minute. It outlives the queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HistoryRecord {
    /// Whose queue.
    pub tenant: TenantId,
    /// Its name.
    pub queue: QueueName,
    /// The start of the minute.
    pub minute: Timestamp,
    /// The rule.
    pub rule: RetentionRule,
    /// How much, in so many commits.
    pub tally: Tally,
    /// Commits that deleted something.
    pub events: u64,
}

/// A segment that is to be appended: neighbouring messages with one commit time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewSegment {
    /// Where it goes.
    pub partition: PartitionId,
    /// Offset of its first message.
    pub start: u64,
    /// Commit time; never earlier than that of the partition's previous segment (OPT-11).
    pub created: Timestamp,
    /// Id of its first message; the others follow by counting.
    pub base: MessageId,
    /// At least one message.
    pub messages: Vec<NewMessage>,
    /// The hash of each message's transaction id, in order.
    pub hashes: Vec<TransactionHash>,
    /// Payload bytes of the partition from its first message ever to this segment's last.
    pub total: u64,
}

/// What is loaded of a segment: everything but its messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentHead {
    /// Where it stands.
    pub partition: PartitionId,
    /// Offset of its first message.
    pub start: u64,
    /// Commit time.
    pub created: Timestamp,
    /// Id of its first message.
    pub base: MessageId,
    /// Payload bytes of the partition from its first message ever to this segment's last.
    pub total: u64,
    /// One per message, in order.
    pub hashes: Vec<TransactionHash>,
}

/// The batch a group has out on a partition. It stays recorded after expiry until a pop or an ack replaces it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease {
    /// Shared by all partitions of the pop.
    pub id: LeaseId,
    /// It lives while now < expires.
    pub expires: Timestamp,
    /// One past the last offset delivered.
    pub end: u64,
}

impl Lease {
    /// Whether the lease still holds.
    pub fn lives(&self, now: Timestamp) -> bool {
        plant!(LeaseLivesAtExpiry => return now <= self.expires);
        plant!(LeaseEndsEarly => return now.next() < self.expires);
        now < self.expires
    }
}

/// Where a group stands on a partition. There is no per-message state.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cursor {
    /// First offset not yet committed (the wire's `committed` plus one).
    pub next: u64,
    /// Failed acks charged since the last reset.
    pub retries: u32,
    /// Messages committed over the cursor's life.
    pub consumed: u64,
    /// The batch that is out.
    pub lease: Option<Lease>,
}

/// A cursor with its key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CursorRecord {
    /// The partition.
    pub partition: PartitionId,
    /// The group.
    pub group: GroupName,
    /// Where it stands.
    pub cursor: Cursor,
}

/// Where a group starts on partitions without a cursor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StartFrom {
    /// Everything that is retained.
    All,
    /// The first segment committed at or after the registration.
    New,
    /// The first segment committed at or after this time.
    Time(Timestamp),
}

/// Written at a group's first any-partition or discovery pop of a queue; the first record wins for ever (6.6).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubscriptionRecord {
    /// The queue's incarnation.
    pub queue: QueueId,
    /// The group.
    pub group: GroupName,
    /// What the first pop asked for.
    pub start: StartFrom,
    /// When it was written: later than every commit before it, earlier than every commit after it.
    pub registered: Timestamp,
    /// A time set afterwards (13.2); counts only for partitions born after the registration.
    pub changed: Option<Timestamp>,
}

/// A dead letter: a snapshot, independent of its segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeadLetterRecord {
    /// What is kept in memory of it.
    pub head: DeadLetterHead,
    /// The message; none when retention had removed it before it was filed.
    pub message: Option<StoredMessage>,
    /// What put it here.
    pub error: CompactString,
}

/// The narrow part of a dead letter: enough to find, count and order it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeadLetterHead {
    /// UUID v7, in order of filing.
    pub id: DeadLetterId,
    /// Where its message stood.
    pub partition: PartitionId,
    /// The group that failed it.
    pub group: GroupName,
    /// Its message's offset.
    pub offset: u64,
    /// Its message's id.
    pub message: MessageId,
    /// Hash of its transaction id.
    pub hash: TransactionHash,
    /// Failed acks charged before the one that filed it.
    pub retries: u32,
    /// When it was filed.
    pub failed: Timestamp,
    /// Commit time of its message.
    pub created: Timestamp,
}

/// What a client noted about a message's way. It outlives the message and its queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceRecord {
    /// UUID v7.
    pub id: Uuid,
    /// Whose.
    pub tenant: TenantId,
    /// The message's partition.
    pub partition: PartitionId,
    /// Its transaction id; the message need not exist.
    pub transaction: CompactString,
    /// The queue's name when it was written.
    pub queue: QueueName,
    /// The partition's name.
    pub partition_name: PartitionName,
    /// The group that worked on it.
    pub group: GroupName,
    /// What kind of thing happened.
    pub event: CompactString,
    /// Any JSON.
    pub data: Bytes,
    /// What it is found by, besides its message; each name once.
    pub names: Vec<CompactString>,
    /// When it was written.
    pub created: Timestamp,
}
