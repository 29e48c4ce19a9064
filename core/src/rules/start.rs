//! Where a group starts on a partition it has no cursor for (6.6).

use crate::record::{StartFrom, SubscriptionRecord};
use crate::time::Timestamp;

/// Where reading starts, before it is looked up in a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// At the first retained message.
    Beginning,
    /// Behind the last message.
    End,
    /// At the first segment committed at or after this time; behind the last message where there is none.
    Since(Timestamp),
}

/// The start that a subscription record implies for a partition.
///
/// A registration is later than every commit before it and earlier than every commit after it, so "since the
/// registration" skips the backlog and nothing else. A time changed later counts only for partitions born afterwards.
pub fn implied(subscription: &SubscriptionRecord, partition_created: Timestamp) -> Start {
    plant!(NewGroupReadsBacklog => if subscription.start == StartFrom::New { return Start::Beginning });
    plant!(GroupSkipsBacklog => if subscription.start == StartFrom::All { return Start::Since(subscription.registered) });
    let born_later = partition_created > subscription.registered;
    match (subscription.changed.filter(|_| born_later), subscription.start) {
        (Some(time), _) | (None, StartFrom::Time(time)) => Start::Since(time),
        (None, StartFrom::All) => Start::Beginning,
        (None, StartFrom::New) => Start::Since(subscription.registered),
    }
}

/// The start of a one-partition pop of a group without a record.
pub fn requested(start: StartFrom) -> Start {
    match start {
        StartFrom::All => Start::Beginning,
        StartFrom::New => Start::End,
        StartFrom::Time(time) => Start::Since(time),
    }
}

/// The commit time of a partition's next segment: never earlier than its last (OPT-11), and later than every
/// registration on its queue.
pub fn commit_time(now: Timestamp, last: Option<Timestamp>, registered: Timestamp) -> Timestamp {
    plant!(CommitBeforeRegistration => return now.max(last.unwrap_or(Timestamp::MIN)));
    now.max(last.unwrap_or(Timestamp::MIN)).max(registered.next())
}
