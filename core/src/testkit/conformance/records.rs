//! Records: set whole, dropped alone.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::Store;
use super::owner::{Owner, SLOT, load};
use super::samples::{
    cursor, dead_letter_id, group, leased_cursor, partition, partition_id, plain_segment, queue, queue_id,
    queue_with_partition, subscription, tail_of, time,
};
use crate::options::{Labels, QueueOptions};
use crate::record::{Cursor, CursorRecord, PartitionRecord, QueueRecord, StartFrom, SubscriptionRecord, Trimmed};
use crate::store::{LogTail, Record, Write};

/// An owner whose slot holds queue 1 with partition 1.
fn begin(store: &mut dyn Store) -> Owner {
    let mut owner = Owner::of(store, SLOT, 1);
    owner.commit(store, queue_with_partition(1));
    owner
}

pub(super) fn a_queue_is_set_whole(store: &mut dyn Store) {
    let mut owner = begin(store);
    owner.commit(store, vec![Write::Append(plain_segment(1, 0, 1))]);
    let options = QueueOptions { encryption_enabled: true, lease_time: 0, ..QueueOptions::configured() };
    let labels = Labels { namespace: "".into(), task: "pack".into() };
    let changed = QueueRecord { options, labels, created: time(77), revision: 2, ..queue(1) };
    owner.commit(store, vec![Write::Queue(Box::new(changed.clone()))]);
    let records = load(store, SLOT);
    assert_eq!(records.len(), 2);
    assert!(records.contains(&Record::Queue(Box::new(changed))));
}

pub(super) fn a_partition_is_set_whole(store: &mut dyn Store) {
    let mut owner = begin(store);
    let last = plain_segment(1, 3, 3);
    owner.commit(store, vec![Write::Append(plain_segment(1, 0, 3)), Write::Append(last.clone())]);
    let trimmed = Trimmed { hash_start: 2, bytes: 17, last: Some(time(5)) };
    let changed = PartitionRecord { log_start: 4, created: time(77), trimmed, ..partition(1, 1) };
    owner.commit(store, vec![Write::Partition(changed.clone())]);
    let records = load(store, SLOT);
    let tail = LogTail { untrimmed: true, ..tail_of(&last) };
    assert!(records.contains(&Record::Partition(changed, tail)));
    owner.commit(store, vec![Write::Append(plain_segment(1, 6, 1))]);
}

pub(super) fn a_cursor_is_set_whole(store: &mut dyn Store) {
    let mut owner = begin(store);
    // Forwards, backwards, with and without a lease: the last one counts.
    let plain = CursorRecord { cursor: Cursor { retries: 2, ..cursor(1, "a", 9).cursor }, ..cursor(1, "a", 0) };
    for record in [cursor(1, "a", 5), leased_cursor(1, "a"), plain, leased_cursor(1, "a"), cursor(1, "a", 0)] {
        owner.commit(store, vec![Write::Cursor(record.clone())]);
        assert_eq!(cursors(store), [record]);
    }
}

pub(super) fn a_dropped_cursor_is_gone_alone(store: &mut dyn Store) {
    let mut owner = begin(store);
    owner.commit(store, vec![Write::Partition(partition(2, 1))]);
    let all = [cursor(1, "a", 1), cursor(1, "b", 2), cursor(1, "c", 3), cursor(2, "b", 4)];
    owner.commit(store, all.iter().cloned().map(Write::Cursor).collect());
    owner.commit(store, vec![Write::DropCursor { partition: partition_id(1), group: group("b") }]);
    let left = cursors(store);
    assert_eq!(left.len(), 3);
    assert!(!left.contains(&all[1]) && [0, 2, 3].iter().all(|at| left.contains(&all[*at])), "{left:?}");
    // Dropped and set again in one commit is set.
    let again = cursor(1, "a", 0);
    let drop = Write::DropCursor { partition: partition_id(1), group: group("a") };
    owner.commit(store, vec![drop, Write::Cursor(again.clone())]);
    assert!(cursors(store).contains(&again));
}

pub(super) fn a_subscription_is_set_whole(store: &mut dyn Store) {
    let mut owner = begin(store);
    let first = subscription(1, "a", StartFrom::New);
    let changed = SubscriptionRecord { changed: Some(time(3)), start: StartFrom::All, ..first.clone() };
    for record in [first.clone(), changed, first] {
        owner.commit(store, vec![Write::Subscription(record.clone())]);
        assert_eq!(subscriptions(store), [record]);
    }
}

pub(super) fn a_dropped_subscription_is_gone_alone(store: &mut dyn Store) {
    let mut owner = begin(store);
    owner.commit(store, queue_with_partition(2));
    let all = [(1, "a"), (1, "b"), (2, "a")].map(|(queue, group)| subscription(queue, group, StartFrom::All));
    owner.commit(store, all.iter().cloned().map(Write::Subscription).collect());
    owner.commit(store, vec![Write::DropSubscription { queue: queue_id(1), group: group("a") }]);
    let left = subscriptions(store);
    assert!(left.len() == 2 && left.contains(&all[1]) && left.contains(&all[2]), "{left:?}");
}

pub(super) fn dropping_what_is_not_there_is_nothing(store: &mut dyn Store) {
    let mut owner = begin(store);
    owner.commit(store, vec![Write::Cursor(cursor(1, "a", 1))]);
    let before = load(store, SLOT);
    owner.commit(
        store,
        vec![
            Write::DropCursor { partition: partition_id(1), group: group("b") },
            Write::DropCursor { partition: partition_id(9), group: group("a") },
            Write::DropSubscription { queue: queue_id(1), group: group("a") },
            Write::DropSubscription { queue: queue_id(9), group: group("a") },
            Write::DropDeadLetter(dead_letter_id(1)),
        ],
    );
    assert_eq!(load(store, SLOT), before);
}

fn cursors(store: &mut dyn Store) -> Vec<CursorRecord> {
    let only = |record| match record {
        Record::Cursor(record) => Some(record),
        _ => None,
    };
    load(store, SLOT).into_iter().filter_map(only).collect()
}

fn subscriptions(store: &mut dyn Store) -> Vec<SubscriptionRecord> {
    let only = |record| match record {
        Record::Subscription(record) => Some(record),
        _ => None,
    };
    load(store, SLOT).into_iter().filter_map(only).collect()
}
