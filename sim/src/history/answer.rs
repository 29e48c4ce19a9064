//! What clients are told.

use super::*;

/// What a client is told.
#[derive(Clone, PartialEq, Debug, Hash)]
pub enum Answer {
    /// One per item.
    Pushed(Vec<Pushed>),
    /// What was given; without messages nothing was there.
    Popped(Delivery),
    /// One per item.
    Acked(Vec<Acked>),
    /// An extension.
    Extended {
        /// On how many partitions.
        renewed: u32,
        /// The earliest new expiry; none when nothing was live.
        earliest: Option<Stamp>,
    },
    /// Done whole.
    Transacted(Vec<PartDone>),
    /// Undone whole.
    RolledBack(RolledBack),
    /// Options are as asked for.
    Configured {
        /// The queue's incarnation.
        id: QueueIdNo,
    },
    /// Whether there was one.
    QueueDeleted {
        /// It was there.
        existed: bool,
    },
    /// Cursors moved; none where there is no such queue or partition.
    Sought(Option<u64>),
    /// What was removed.
    GroupDeleted {
        /// Cursors.
        cursors: u64,
        /// Whether a subscription record was.
        metadata: bool,
    },
    /// Subscription records changed.
    SubscriptionChanged(u64),
    /// A message, or none.
    Found(Option<Found>),
    /// A page.
    DeadLetters(Vec<DeadLetter>),
    /// How many were removed.
    DeadLettersDropped(u64),
    /// The new message; none where there is no such dead letter.
    Replayed(Option<MessageNo>),
    /// A queue's partitions, by name; none when unknown.
    Described(Option<Vec<PartitionCounts>>),
    /// Where groups stand.
    Groups(Vec<Standing>),
}

/// What became of a pushed item.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Pushed {
    /// Stored.
    Queued(MessageNo),
    /// Nothing stored: that message has the id already.
    Duplicate(MessageNo),
    /// Certainly not stored.
    Failed,
    /// Nobody can tell.
    Unknown,
}

/// What a pop gives.
#[derive(Clone, PartialEq, Debug, Default, Hash)]
pub struct Delivery {
    /// None with auto-ack.
    pub lease: Option<LeaseNo>,
    /// Neighbours of one partition are one claim, in the order of claiming; each claim in offset order.
    pub messages: Vec<Delivered>,
}

/// A message as it is received.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Delivered {
    /// Its partition.
    pub partition: PartitionNo,
    /// The partition's name.
    pub lane: LaneNo,
    /// Its id.
    pub message: MessageNo,
    /// Its transaction id.
    pub key: Key,
    /// What it holds.
    pub payload: PayloadNo,
    /// When it was committed.
    pub created: Stamp,
}

/// What became of an ack item.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Acked {
    /// Why it was refused; none means success.
    pub error: Option<AckError>,
    /// The lease ended with it.
    pub released: bool,
    /// This very message was dead-lettered.
    pub dead_lettered: bool,
    /// This very message was dropped: its retries are exhausted and there is no dead-lettering.
    pub dropped: bool,
    /// Completed, and it already was.
    pub noop: bool,
}

/// Why an ack item was refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum AckError {
    /// The group has no cursor there.
    ConsumerNotFound,
    /// The lease is another's, expired, or gone.
    InvalidLease,
    /// A lease is required and none was sent.
    LeaseRequired,
    /// Nobody knows which message that is.
    Unresolvable,
    /// The cursor is past it, so it cannot fail any more.
    AlreadyCommitted,
    /// Another tenant's partition.
    Foreign,
    /// Certainly nothing changed: no owner, or no store.
    Unavailable,
    /// Nobody can tell.
    Unknown,
}

/// What became of a part of a transaction that was carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum PartDone {
    /// Stored, or its twin earlier in the same transaction is.
    Pushed {
        /// The stored message.
        message: MessageNo,
        /// The twin's.
        duplicate: bool,
    },
    /// The cursor stands where the decision put it.
    Acked {
        /// This very message was dead-lettered.
        dead_lettered: bool,
    },
}

/// Why a transaction changed nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum RolledBack {
    /// An acked id is unknown.
    UnknownMessage,
    /// A pushed id exists already.
    Duplicate,
    /// An ack was refused.
    Ack(AckError),
    /// An unknown or foreign partition.
    ForeignPartition,
    /// A required lease is not live or covers nothing that is acked.
    RequiredLease,
}

/// A message that was looked up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Found {
    /// Its id.
    pub message: MessageNo,
    /// What it holds; none when it was removed.
    pub payload: Option<PayloadNo>,
    /// When it was committed.
    pub created: Stamp,
    /// Dead-lettered by somebody.
    pub dead_lettered: bool,
}

/// A dead letter in a listing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct DeadLetter {
    /// Its id.
    pub id: DeadLetterNo,
    /// Where its message stands.
    pub partition: PartitionNo,
    /// The partition's name.
    pub lane: LaneNo,
    /// Who failed it.
    pub group: GroupNo,
    /// The message.
    pub message: MessageNo,
    /// Its transaction id.
    pub key: Key,
    /// What it holds; none when it was removed before it was filed.
    pub payload: Option<PayloadNo>,
    /// Failed acks charged before the one that filed it.
    pub retries: u32,
    /// When it was filed.
    pub failed: Stamp,
}

/// A partition of a described queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct PartitionCounts {
    /// Its name.
    pub lane: LaneNo,
    /// Itself.
    pub partition: PartitionNo,
    /// Messages retained.
    pub total: u64,
    /// Of them not yet behind every group.
    pub pending: u64,
    /// Of these out under a live lease.
    pub processing: u64,
    /// Dead letters.
    pub dead_letters: u64,
}

/// Where a group stands on a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Standing {
    /// The group.
    pub group: GroupNo,
    /// The partition.
    pub partition: PartitionNo,
    /// The partition's name.
    pub lane: LaneNo,
    /// The lease recorded last.
    pub lease: Option<LeaseNo>,
    /// Whether it lives.
    pub live: bool,
    /// Messages committed over the cursor's life.
    pub consumed: u64,
    /// Messages retained and not committed.
    pub lag: u64,
}
