//! What a simulated store was given to keep [W].

use super::*;

/// A commit as the store carried it out [W].
#[derive(Clone, PartialEq, Debug, Hash)]
pub struct Committed {
    /// Counts the commits of the store, from 1. After `Event::Lost` numbers are used again.
    pub serial: u64,
    /// The slot.
    pub slot: u8,
    /// The epoch under which it was made.
    pub epoch: u64,
    /// Its number in that epoch.
    pub number: u64,
    /// The clock reading that its decisions used: the latest of them.
    pub decided: Stamp,
    /// In order.
    pub writes: Vec<Written>,
}

/// A slot's owner, as the store has it from now on [W].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Owner {
    /// The slot.
    pub slot: u8,
    /// The epoch from now on.
    pub epoch: u64,
    /// Why.
    pub change: OwnerChange,
}

/// How a slot's owner changed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum OwnerChange {
    /// The record's host took it.
    Taken,
    /// The record's host raised its own epoch.
    Raised,
    /// The record's host gave it up.
    Released,
}

/// A write of a commit [W].
#[derive(Clone, PartialEq, Debug, Hash)]
pub enum Written {
    /// A queue, new or changed.
    Queue {
        /// Its incarnation.
        id: QueueIdNo,
        /// Its name.
        queue: QueueNo,
        /// Its options.
        options: Box<Options>,
    },
    /// A queue's incarnation ends, and all it holds.
    EndQueue {
        /// Which.
        id: QueueIdNo,
    },
    /// A partition, new or with another start of its log.
    Partition {
        /// The partition.
        partition: PartitionNo,
        /// Of this incarnation.
        queue: QueueIdNo,
        /// Its name.
        lane: LaneNo,
        /// First offset that is kept.
        log_start: u64,
    },
    /// Messages at the end of a log.
    Append {
        /// The partition.
        partition: PartitionNo,
        /// Offset of the first.
        start: u64,
        /// Their commit time.
        created: Stamp,
        /// In offset order.
        messages: Vec<Appended>,
    },
    /// A cursor, whole.
    Cursor {
        /// The partition.
        partition: PartitionNo,
        /// The group.
        group: GroupNo,
        /// First offset not yet committed.
        next: u64,
        /// Failed acks charged.
        retries: u32,
        /// Messages committed over its life.
        consumed: u64,
        /// The batch that is out, or was last.
        lease: Option<Leased>,
    },
    /// A cursor is forgotten.
    DropCursor {
        /// The partition.
        partition: PartitionNo,
        /// The group.
        group: GroupNo,
    },
    /// A group's subscription to a queue.
    Subscription {
        /// The queue's incarnation.
        queue: QueueIdNo,
        /// The group.
        group: GroupNo,
        /// What its first pop asked for.
        start: Start,
        /// When it was written.
        registered: Stamp,
        /// A time set afterwards.
        changed: Option<Stamp>,
    },
    /// A subscription is forgotten.
    DropSubscription {
        /// The queue's incarnation.
        queue: QueueIdNo,
        /// The group.
        group: GroupNo,
    },
    /// A dead letter is filed.
    DeadLetter {
        /// Its id.
        id: DeadLetterNo,
        /// Its message's partition.
        partition: PartitionNo,
        /// Who failed it.
        group: GroupNo,
        /// Its message's offset.
        offset: u64,
        /// Its message.
        message: MessageNo,
        /// Failed acks charged before.
        retries: u32,
    },
    /// A dead letter is removed.
    DropDeadLetter {
        /// Which.
        id: DeadLetterNo,
    },
    /// Something that a later version writes; a number for its kind.
    Other(u16),
}

/// A message of a commit [W].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Appended {
    /// Its id.
    pub message: MessageNo,
    /// Its transaction id.
    pub key: Key,
    /// What it holds.
    pub payload: PayloadNo,
}

/// A lease of a cursor [W].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Leased {
    /// Its id.
    pub lease: LeaseNo,
    /// It lives while now < this.
    pub expires: Stamp,
    /// One past the last offset delivered.
    pub end: u64,
}
