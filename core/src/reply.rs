//! What a client is told. A transport turns these into its own words; nothing here knows a status code.

use alloc::vec::Vec;
use bytes::Bytes;
use compact_str::CompactString;
use core::ops::AddAssign;

use crate::activity::ActivityRow;
use crate::error::Rejection;
use crate::message::StoredMessage;
use crate::name::{
    DeadLetterId, GroupName, LeaseId, MessageId, PartitionId, PartitionName, QueueId, QueueName, TraceId,
};
use crate::options::{Labels, QueueOptions};
use crate::record::{DeadLetterHead, HistoryRecord, RetentionRule, Tally, TraceRecord};
use crate::store::TraceName;
use crate::time::{Span, Timestamp};

/// The answer to a command, one variant per kind of command.
#[derive(Clone, PartialEq, Debug)]
pub enum Reply {
    /// The command was not carried out.
    Refused(Rejection),
    /// One outcome per item, in request order.
    Pushed(Vec<PushOutcome>),
    /// Messages, or nothing to give.
    Popped(Option<Delivery>),
    /// One outcome per item, in request order.
    Acked(Vec<AckOutcome>),
    /// How many partitions the lease was extended on, and the earliest new expiry.
    Extended {
        /// 0 when nothing was live.
        renewed: u32,
        /// None when nothing was live.
        earliest: Option<Timestamp>,
    },
    /// Done, one outcome per operation in request order; or undone, and why.
    Transacted(Result<Vec<OperationOutcome>, RolledBack>),
    /// The queue as it now is.
    Configured {
        /// Stable across calls.
        id: QueueId,
        /// As stored.
        labels: Labels,
        /// As stored.
        options: QueueOptions,
    },
    /// Whether there was one.
    QueueDeleted {
        /// It was there.
        existed: bool,
    },
    /// None when the queue is unknown.
    Retention(Option<RetentionPreview>),
    /// In order of time.
    History(Vec<HistoryRecord>),
    /// Newest created first.
    Queues(Vec<QueueSummary>),
    /// None when unknown.
    Queue(Option<QueueDetail>),
    /// Ordered by group, then queue, then partition.
    Groups(Vec<GroupStanding>),
    /// Subscription records changed.
    SubscriptionChanged {
        /// How many.
        records: u64,
    },
    /// Cursors moved; none when the queue or partition does not exist, or the queue has no partitions.
    Sought(Option<u64>),
    /// What was removed.
    GroupDeleted {
        /// Cursors.
        partitions: u64,
        /// Whether a subscription record was removed.
        metadata: bool,
    },
    /// None when there is no such message and no dead letter of it.
    Message(Option<MessageDetail>),
    /// How many were removed.
    DeadLettersDropped(u64),
    /// The new message; none when there is no such dead letter.
    Replayed(Option<Replayed>),
    /// One page.
    DeadLetters(Vec<DeadLetterRow>),
    /// One page, newest first, and how the groups of the queues that were looked at consume.
    Messages(MessagePage),
    /// None when the queue is unknown.
    Depth(Option<QueueDepth>),
    /// The trace's id; none when the partition is not the tenant's.
    Traced(Option<uuid::Uuid>),
    /// Traces, and how many there are in all.
    Traces(Vec<TraceRecord>, u64),
    /// Names, and how many there are in all.
    TraceNames(Vec<TraceName>, u64),
    /// What happened.
    Activity(ActivityReport),
    /// The store answered.
    Healthy,
}

/// What became of one pushed item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PushOutcome {
    /// Stored under this id.
    Queued(MessageId),
    /// Nothing stored: this message has the transaction id already.
    Duplicate(MessageId),
    /// This item's group was not stored, other groups of the push were.
    Failed(Rejection),
}

/// What a pop gives.
#[derive(Clone, PartialEq, Debug)]
pub struct Delivery {
    /// None with auto-ack.
    pub lease: Option<LeaseId>,
    /// In the order of claiming; at least one.
    pub claims: Vec<Claim>,
}

/// The batch from one partition.
#[derive(Clone, PartialEq, Debug)]
pub struct Claim {
    /// The partition's id.
    pub partition: PartitionId,
    /// The partition's name.
    pub name: PartitionName,
    /// In offset order; at least one.
    pub messages: Vec<DeliveredMessage>,
}

/// A message as delivered.
#[derive(Clone, PartialEq, Debug)]
pub struct DeliveredMessage {
    /// Its id.
    pub id: MessageId,
    /// Commit time of its segment.
    pub created: Timestamp,
    /// The message itself.
    pub message: StoredMessage,
}

/// What became of one ack item.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct AckOutcome {
    /// Why the item was refused; none means success.
    pub error: Option<AckError>,
    /// The lease ended with this decision.
    pub lease_released: bool,
    /// This very message was dead-lettered.
    pub dead_lettered: bool,
    /// This very message was dropped: its retries are exhausted and dead-lettering is off.
    pub dropped: bool,
    /// Completed, and it already was.
    pub noop: bool,
}

/// Why an ack item was refused. The texts are the wire's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AckError {
    /// The group has no cursor on that partition.
    #[error("consumer not found")]
    ConsumerNotFound,
    /// The lease is another's, expired, or gone.
    #[error("invalid or expired lease")]
    InvalidLease,
    /// A lease is required here and none was sent.
    #[error("a leaseId is required (TIDEGATE_REQUIRE_LEASE)")]
    LeaseRequired,
    /// No stored hash says which message that is.
    #[error(
        "unresolvable: transaction not in the ack window (hash purged or never pushed); if leased, the message redelivers"
    )]
    Unresolvable,
    /// The cursor is past the message, so it cannot fail any more.
    #[error("already committed: the cursor moved past this message before this ack")]
    AlreadyCommitted,
    /// Another tenant's partition.
    #[error("partition not owned by tenant")]
    ForeignPartition,
    /// The slot has another owner, or none; nothing changed.
    #[error("no broker owns this tenant's slot right now; nothing was changed")]
    NotOwner,
    /// The store did not take the decision; nothing changed.
    #[error("the store is unavailable; nothing was changed")]
    StoreUnavailable,
    /// The store may or may not have taken the decision.
    #[error("the outcome is unknown; ack again")]
    OutcomeUnknown,
}

/// What became of one operation of a transaction that was carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperationOutcome {
    /// The message is stored, or its twin earlier in the same transaction is.
    Pushed {
        /// The stored message.
        id: MessageId,
        /// An earlier operation of this transaction stored it.
        duplicate: bool,
    },
    /// The cursor stands where the decision put it.
    Acked {
        /// This very message was dead-lettered.
        dead_lettered: bool,
    },
}

/// Why a transaction changed nothing.
#[derive(Clone, PartialEq, Debug)]
pub enum RolledBack {
    /// An acked id is unknown in its partition.
    UnknownTransaction,
    /// A pushed id exists already.
    Duplicate {
        /// In this queue.
        queue: QueueName,
        /// And this partition.
        partition: PartitionName,
    },
    /// An ack group was refused.
    AckFailed {
        /// Its partition.
        partition: PartitionId,
        /// Its group.
        group: GroupName,
        /// Why.
        error: AckError,
    },
    /// The partition is unknown or another tenant's.
    ForeignPartition(PartitionId),
    /// A required lease is not live or covers no partition that is acked.
    RequiredLease,
}

/// Message counts of a partition or a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Retained messages.
    pub total: u64,
    /// Not yet behind every group.
    pub pending: u64,
    /// Out under a live lease; at most `pending`.
    pub processing: u64,
    /// The rest, without dead letters.
    pub completed: u64,
    /// Dead letters.
    pub dead_letter: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.total += other.total;
        self.pending += other.pending;
        self.processing += other.processing;
        self.completed += other.completed;
        self.dead_letter += other.dead_letter;
    }
}

/// A queue in a listing.
#[derive(Clone, PartialEq, Debug)]
pub struct QueueSummary {
    /// Its id.
    pub id: QueueId,
    /// Its name.
    pub name: QueueName,
    /// Namespace and task.
    pub labels: Labels,
    /// When it was first written.
    pub created: Timestamp,
    /// How many partitions it has.
    pub partitions: u64,
    /// Payload bytes retained.
    pub retained_bytes: u64,
    /// Segments retained; none where that is not known, as after a load.
    pub segments: Option<u64>,
    /// Messages over all partitions.
    pub counts: Counts,
    /// Its options.
    pub options: QueueOptions,
}

/// A queue with its partitions.
#[derive(Clone, PartialEq, Debug)]
pub struct QueueDetail {
    /// As in a listing.
    pub summary: QueueSummary,
    /// Sorted by name.
    pub partitions: Vec<PartitionDetail>,
}

/// A partition of a described queue.
#[derive(Clone, PartialEq, Debug)]
pub struct PartitionDetail {
    /// Its id.
    pub id: PartitionId,
    /// Its name.
    pub name: PartitionName,
    /// When it was first written.
    pub created: Timestamp,
    /// Its messages.
    pub counts: Counts,
    /// Commit time of the oldest retained segment.
    pub oldest: Option<Timestamp>,
    /// Commit time of the newest retained segment.
    pub newest: Option<Timestamp>,
    /// Messages committed over the lives of its cursors.
    pub consumed: u64,
}

/// Where one group stands on one partition.
#[derive(Clone, PartialEq, Debug)]
pub struct GroupStanding {
    /// The group.
    pub group: GroupName,
    /// The queue.
    pub queue: QueueName,
    /// The partition's id.
    pub partition: PartitionId,
    /// The partition's name.
    pub partition_name: PartitionName,
    /// The lease recorded last, live or not.
    pub lease: Option<LeaseId>,
    /// Whether it lives.
    pub lease_active: bool,
    /// Messages committed over the cursor's life.
    pub consumed: u64,
    /// Messages retained and not committed.
    pub lag: u64,
    /// Commit time of the first of them.
    pub oldest_unconsumed: Option<Timestamp>,
    /// Its age.
    pub time_lag: Span,
    /// Whether a cursor is stored; else the group counts as standing at its implied start.
    pub stored: bool,
}

/// What retention would delete of a queue now.
#[derive(Clone, PartialEq, Debug)]
pub struct RetentionPreview {
    /// The queue.
    pub queue: QueueName,
    /// Its options.
    pub options: QueueOptions,
    /// What each rule would delete alone, in the order of `RetentionRule::ALL`.
    pub rules: Vec<RulePreview>,
}

/// What one rule would delete.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RulePreview {
    /// The rule.
    pub rule: RetentionRule,
    /// Whether it is on: its window is set, and the gate open where it has one.
    pub active: bool,
    /// How much.
    pub tally: Tally,
    /// Commit time of the oldest segment that would go.
    pub oldest: Option<Timestamp>,
}

/// What a message's state is, over all groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageStatus {
    /// A dead letter of it exists.
    DeadLetter,
    /// Every group is past it.
    Completed,
    /// Some group has it out.
    Processing,
    /// None of these.
    Pending,
}

/// One message with its context.
#[derive(Clone, PartialEq, Debug)]
pub struct MessageDetail {
    /// Its id.
    pub id: MessageId,
    /// Its transaction id.
    pub transaction: CompactString,
    /// The payload; none when retention removed it.
    pub payload: Option<Bytes>,
    /// It is stored encrypted and was opened.
    pub encrypted: bool,
    /// Its trace.
    pub trace: Option<TraceId>,
    /// Its producer.
    pub producer: Option<CompactString>,
    /// Commit time.
    pub created: Timestamp,
    /// Partition id.
    pub partition: PartitionId,
    /// Partition name.
    pub partition_name: PartitionName,
    /// Queue name.
    pub queue: QueueName,
    /// The queue's labels.
    pub labels: Labels,
    /// The queue's options.
    pub options: QueueOptions,
    /// Over all groups.
    pub status: MessageStatus,
    /// Error and retry count of the newest dead letter.
    pub dead_letter: Option<(CompactString, u32)>,
    /// One row per group that has a cursor on the partition or a subscription on the queue.
    pub groups: Vec<MessageGroup>,
}

/// What happened on queues.
#[derive(Clone, PartialEq, Debug)]
pub struct ActivityReport {
    /// From this time on,
    pub from: Timestamp,
    /// up to this one.
    pub until: Timestamp,
    /// How long a bucket is.
    pub bucket: Span,
    /// In order of start and queue. Minutes that are not over are not in it.
    pub rows: Vec<ActivityRow>,
}

/// A page of a listing of messages.
#[derive(Clone, PartialEq, Debug)]
pub struct MessagePage {
    /// Newest first.
    pub rows: Vec<MessageRow>,
    /// Whether a queue that was looked at is consumed without a group.
    pub queue_mode: bool,
    /// How many named groups consume those queues.
    pub bus_groups: u64,
}

/// A message in a listing.
#[derive(Clone, PartialEq, Debug)]
pub struct MessageRow {
    /// Its id.
    pub id: MessageId,
    /// Its transaction id.
    pub transaction: CompactString,
    /// The payload.
    pub payload: Bytes,
    /// Its trace.
    pub trace: Option<TraceId>,
    /// Its producer.
    pub producer: Option<CompactString>,
    /// Commit time.
    pub created: Timestamp,
    /// Partition id.
    pub partition: PartitionId,
    /// Partition name.
    pub partition_name: PartitionName,
    /// Queue name.
    pub queue: QueueName,
    /// The queue's labels.
    pub labels: Labels,
    /// The queue's priority.
    pub priority: i64,
    /// Whether the store holds it encrypted.
    pub encrypted: bool,
    /// Its offset.
    pub offset: u64,
    /// Where its segment starts, as far as memory knows.
    pub segment: u64,
    /// As queue mode sees it.
    pub status: MessageStatus,
    /// Expiry of queue mode's live lease that covers it.
    pub lease_expires: Option<Timestamp>,
    /// Named groups that are past it.
    pub consumed_by: u64,
    /// Named groups of its partition.
    pub bus_groups: u64,
}

/// How deep a queue is.
#[derive(Clone, PartialEq, Debug)]
pub struct QueueDepth {
    /// Retained messages.
    pub total: u64,
    /// Retained messages that are too young for anybody (`delayedProcessing`).
    pub delayed: u64,
    /// Dead letters.
    pub dead: u64,
    /// Age of the oldest retained message.
    pub oldest: Option<Span>,
    /// By name.
    pub groups: Vec<GroupDepth>,
}

/// How deep a queue is for one group.
#[derive(Clone, PartialEq, Debug)]
pub struct GroupDepth {
    /// The group.
    pub group: GroupName,
    /// Messages that wait and are neither out nor delayed.
    pub pending: u64,
    /// Messages that are out under a live lease.
    pub leased: u64,
    /// Messages that wait for their delay to end.
    pub delayed: u64,
    /// The group's dead letters.
    pub dead: u64,
    /// Age of the oldest message that is not committed.
    pub oldest: Option<Span>,
}

/// What one group did with a message.
#[derive(Clone, PartialEq, Debug)]
pub struct MessageGroup {
    /// The group.
    pub group: GroupName,
    /// Its cursor is past the message.
    pub consumed: bool,
    /// Expiry of the live lease that covers the message.
    pub lease_expires: Option<Timestamp>,
}

/// A replayed dead letter.
#[derive(Clone, PartialEq, Debug)]
pub struct Replayed {
    /// Its queue.
    pub queue: QueueName,
    /// Its partition.
    pub partition: PartitionName,
    /// The new message, whose transaction id is the id's text.
    pub id: MessageId,
}

/// A dead letter in a listing.
#[derive(Clone, PartialEq, Debug)]
pub struct DeadLetterRow {
    /// Its id.
    pub id: DeadLetterId,
    /// Its queue.
    pub queue: QueueName,
    /// Its partition.
    pub partition_name: PartitionName,
    /// Keys, counts and times.
    pub head: DeadLetterHead,
    /// Transaction id.
    pub transaction: CompactString,
    /// The payload; none when retention had removed it before it was filed.
    pub payload: Option<Bytes>,
    /// It is stored encrypted and was opened.
    pub encrypted: bool,
    /// The producer.
    pub producer: Option<CompactString>,
    /// What put it here.
    pub error: CompactString,
}
