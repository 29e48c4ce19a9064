//! What a client can ask. Everything here is already parsed: names are valid, ids are ids, times are times.

use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;
use compact_str::CompactString;
use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64;

use crate::message::NewMessage;
use crate::name::{DeadLetterId, GroupName, LeaseId, PartitionId, PartitionName, QueueName, TransactionId};
use crate::options::{Labels, QueueOptions};
use crate::record::StartFrom;
use crate::reply::MessageStatus;
use crate::store::TracesOf;
use crate::time::{Span, Timestamp};

/// A transport's number for one call; never reused in a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub u64);

/// A client's order.
#[derive(Clone, PartialEq, Debug)]
pub enum Command {
    /// Append messages. `Reply::Pushed`
    Push(Push),
    /// Take messages. `Reply::Popped`
    Pop(Pop),
    /// Settle deliveries. `Reply::Acked`
    Ack(Ack),
    /// Lengthen a lease. `Reply::Extended`
    Extend {
        /// Which.
        lease: LeaseProof,
        /// The new expiry is now plus this, unless the old one is later.
        length: Span,
    },
    /// Pushes and acks, all or nothing. `Reply::Transacted`
    Transaction(Transaction),
    /// Replace a queue's whole configuration. `Reply::Configured`
    Configure {
        /// The queue.
        queue: QueueName,
        /// All options, resolved.
        options: QueueOptions,
        /// Namespace and task, resolved.
        labels: Labels,
    },
    /// Delete a queue and all it holds. `Reply::QueueDeleted`
    DeleteQueue {
        /// The queue.
        queue: QueueName,
    },
    /// Every queue of the tenant. `Reply::Queues`
    ListQueues,
    /// One queue with its partitions. `Reply::Queue`
    DescribeQueue {
        /// The queue.
        queue: QueueName,
    },
    /// Every group of the tenant, or one, by queue and partition. `Reply::Groups`
    ListGroups {
        /// Only this group.
        group: Option<GroupName>,
    },
    /// Set the time a group's subscription records carry. `Reply::SubscriptionChanged`
    ChangeSubscription {
        /// The group.
        group: GroupName,
        /// The new time.
        since: Timestamp,
    },
    /// Move a group's cursors. `Reply::Sought`
    Seek {
        /// The group.
        group: GroupName,
        /// The queue.
        queue: QueueName,
        /// Only this partition.
        partition: Option<PartitionName>,
        /// Where to.
        target: SeekTarget,
    },
    /// Forget a group. `Reply::GroupDeleted`
    DeleteGroup {
        /// The group.
        group: GroupName,
        /// Only on this queue.
        queue: Option<QueueName>,
        /// Its subscription records too.
        metadata: bool,
    },
    /// One message by its address. `Reply::Message`
    FindMessage(Address),
    /// Remove the dead letters of an address. `Reply::DeadLettersDropped`
    DropDeadLetters(Address),
    /// Move one dead letter back to the tail of its partition. `Reply::Replayed`
    Replay {
        /// The message's address.
        address: Address,
        /// Whose dead letter; the newest failure without it.
        group: Option<GroupName>,
    },
    /// Move the dead letter of this id back to the tail of its partition. `Reply::Replayed`
    ReplayRow(DeadLetterId),
    /// Remove all dead letters of a queue, or those of one group. `Reply::DeadLettersDropped`
    PurgeDeadLetters {
        /// The queue.
        queue: QueueName,
        /// Only of this group.
        group: Option<GroupName>,
    },
    /// A page of messages, newest first. `Reply::Messages`
    ListMessages(Box<MessageFilter>),
    /// How many messages wait for each group of a queue, and what for. `Reply::Depth`
    QueueDepth {
        /// The queue.
        queue: QueueName,
    },
    /// A page of dead letters, newest failure first. `Reply::DeadLetters`
    ListDeadLetters {
        /// Only of this queue.
        queue: Option<QueueName>,
        /// Only of this group.
        group: Option<GroupName>,
        /// Rows at most.
        limit: usize,
        /// Rows skipped.
        offset: usize,
    },
    /// Note something about a message's way. `Reply::Traced`
    Trace(Box<NewTrace>),
    /// Traces of a message or of a name. `Reply::Traces`
    ReadTraces(TracesOf),
    /// A page of the names that traces carry. `Reply::TraceNames`
    ReadTraceNames {
        /// Rows at most.
        limit: u64,
        /// Rows skipped.
        offset: u64,
    },
    /// What happened on queues, in buckets. `Reply::Activity`
    ReadActivity {
        /// Only of this queue.
        queue: Option<QueueName>,
        /// From this time on; an hour ago without it.
        from: Option<Timestamp>,
        /// Before this time; now without it.
        until: Option<Timestamp>,
        /// How long a bucket is; by the length of the whole without it.
        bucket: Option<Span>,
    },
    /// What each retention rule would delete of a queue now; deletes nothing. `Reply::Retention`
    PreviewRetention {
        /// The queue.
        queue: QueueName,
    },
    /// What retention deleted, minute by minute. `Reply::History`
    ListHistory {
        /// From this minute on.
        since: Timestamp,
        /// Up to this one, which is left out.
        until: Timestamp,
    },
    /// A real round trip to the store. `Reply::Healthy`
    Probe,
}

/// Where a message is: what clients ack with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    /// The partition.
    pub partition: PartitionId,
    /// The message's transaction id.
    pub transaction: TransactionId,
}

/// Which messages a listing shows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MessageFilter {
    /// Only of this queue.
    pub queue: Option<QueueName>,
    /// Only of partitions of this name.
    pub partition: Option<PartitionName>,
    /// Only of queues with these labels; an empty one matches every label.
    pub labels: Labels,
    /// Only those that queue mode sees like this.
    pub status: Option<MessageStatus>,
    /// Committed at or after this time; an hour ago without it.
    pub from: Option<Timestamp>,
    /// Committed before this time.
    pub until: Option<Timestamp>,
    /// Rows at most.
    pub limit: usize,
    /// Rows skipped.
    pub offset: usize,
}

/// A trace that is to be written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewTrace {
    /// The message's partition.
    pub partition: PartitionId,
    /// Its transaction id.
    pub transaction: TransactionId,
    /// The group that worked on it.
    pub group: GroupName,
    /// What kind of thing happened.
    pub event: CompactString,
    /// Any JSON.
    pub data: Bytes,
    /// What it is found by.
    pub names: Vec<CompactString>,
}

/// Messages for any number of partitions, grouped so that each group is decided as one.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Push {
    /// In order of each group's first item.
    pub groups: Vec<PushGroup>,
    /// Items over all groups.
    pub items: usize,
}

/// The items of one push for one partition, in request order.
#[derive(Clone, PartialEq, Debug)]
pub struct PushGroup {
    /// The queue.
    pub queue: QueueName,
    /// The partition.
    pub partition: PartitionName,
    /// Position in the request and message.
    pub items: Vec<(u32, NewMessage)>,
}

impl Push {
    /// Groups items by queue and partition, keeping their order (4.3). Run it where the body is parsed.
    pub fn new(items: impl IntoIterator<Item = (QueueName, PartitionName, NewMessage)>) -> Self {
        let key = |queue: &QueueName, partition: &PartitionName| {
            xxh3_64(queue.as_str().as_bytes()).rotate_left(1) ^ xxh3_64(partition.as_str().as_bytes())
        };
        let mut groups: Vec<PushGroup> = Vec::new();
        let mut seen: HashTable<usize> = HashTable::new();
        let mut count = 0;
        for (index, (queue, partition, message)) in (0u32..).zip(items) {
            count += 1;
            let same = |at: usize| groups[at].queue == queue && groups[at].partition == partition;
            let at = match groups.len() {
                0 => None,
                1 => same(0).then_some(0),
                _ => seen.find(key(&queue, &partition), |&at| same(at)).copied(),
            };
            match at {
                Some(at) => groups[at].items.push((index, message)),
                None => {
                    let hash = key(&queue, &partition);
                    groups.push(PushGroup { queue, partition, items: alloc::vec![(index, message)] });
                    let rehash = |&at: &usize| key(&groups[at].queue, &groups[at].partition);
                    seen.insert_unique(hash, groups.len() - 1, rehash);
                }
            }
        }
        Push { groups, items: count }
    }
}

/// A request for messages.
#[derive(Clone, PartialEq, Debug)]
pub struct Pop {
    /// Where from.
    pub scope: PopScope,
    /// For whom; `GroupName::queue_mode()` where the client named none.
    pub group: GroupName,
    /// Messages over all partitions; at least 1.
    pub batch: u32,
    /// Partitions the call may claim; none means no cap.
    pub partitions: Option<u32>,
    /// Commit on delivery and take no lease.
    pub auto_ack: bool,
    /// Long poll this long; none or nothing answers at once.
    pub wait: Option<Span>,
    /// Lease asked for; none or nothing means the queue's (OPT-3).
    pub lease: Option<Span>,
    /// Where a group that is new here starts; none means the broker's default.
    pub start: Option<StartFrom>,
}

/// The three routes of a pop.
#[derive(Clone, PartialEq, Debug)]
pub enum PopScope {
    /// Any partition of one queue.
    Queue(QueueName),
    /// One partition.
    Partition(QueueName, PartitionName),
    /// Any partition of every queue whose labels match.
    Labels(Labels),
}

/// What an ack says about the lease it was delivered under.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LeaseProof {
    /// Nothing: no check is made.
    None,
    /// This lease.
    Lease(LeaseId),
    /// A text that never was a lease id: matches no lease.
    Foreign,
}

/// What became of a delivered message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AckStatus {
    /// Done.
    Completed,
    /// Not done: charge a retry.
    Failed,
    /// Not done: charge nothing.
    Retry,
    /// Dead-letter it now.
    DeadLetter,
}

/// One settled message.
#[derive(Clone, PartialEq, Debug)]
pub struct AckItem {
    /// Its partition.
    pub partition: PartitionId,
    /// Its transaction id; none where the client sent none, which resolves to nothing.
    pub transaction: Option<TransactionId>,
    /// What became of it.
    pub status: AckStatus,
    /// The lease.
    pub lease: LeaseProof,
    /// Why it failed; never empty.
    pub error: Option<CompactString>,
}

/// Settled messages of one group.
#[derive(Clone, PartialEq, Debug)]
pub struct Ack {
    /// Whose cursors move.
    pub group: GroupName,
    /// In request order.
    pub items: Vec<AckItem>,
}

/// Pushes and acks that happen together or not at all.
#[derive(Clone, PartialEq, Debug)]
pub struct Transaction {
    /// In request order, bundles of several pushes already flattened.
    pub operations: Vec<Operation>,
    /// Leases that must be live and cover a partition that is acked.
    pub required_leases: Vec<LeaseProof>,
}

/// One part of a transaction.
#[derive(Clone, PartialEq, Debug)]
pub enum Operation {
    /// Append a message.
    Push {
        /// The queue.
        queue: QueueName,
        /// The partition.
        partition: PartitionName,
        /// The message.
        message: NewMessage,
    },
    /// Settle a message.
    Ack {
        /// Whose cursor moves.
        group: GroupName,
        /// The message.
        item: AckItem,
    },
}

/// Where a seek puts a cursor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeekTarget {
    /// Behind the last message.
    End,
    /// Before the first segment committed at or after this time; behind the last where there is none.
    Time(Timestamp),
}
