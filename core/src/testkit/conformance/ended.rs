//! Ended queues: hidden at once, trimmed in steps.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::Store;
use super::owner::{Owner, SLOT, ask, load, read};
use super::samples::{
    cursor, dead_letter, dead_letter_id, leased_cursor, partition, partition_id, plain_segment, queue, queue_id,
    subscription,
};
use crate::record::{QueueRecord, StartFrom};
use crate::store::{Record, StoreReply, StoreRequest, Token, Write};

/// Everything that a queue can have: partitions `number` with three segments and `number + 1` without any.
fn furnished(number: u64) -> Vec<Write> {
    vec![
        Write::Queue(Box::new(queue(number))),
        Write::Partition(partition(number, number)),
        Write::Partition(partition(number + 1, number)),
        Write::Append(plain_segment(number, 0, 2)),
        Write::Append(plain_segment(number, 2, 2)),
        Write::Append(plain_segment(number, 4, 2)),
        Write::Cursor(leased_cursor(number, "workers")),
        Write::Cursor(cursor(number, "others", 3)),
        Write::Subscription(subscription(number, "workers", StartFrom::All)),
        Write::DeadLetter(Box::new(dead_letter(number, number))),
    ]
}

fn trim(store: &mut dyn Store, owner: &Owner, number: u64, limit: u32) -> bool {
    match ask(store, StoreRequest::Trim { fence: owner.fence, queue: queue_id(number), limit }) {
        StoreReply::Trimmed { more } => more,
        other => panic!("a trim is answered {other:?}"),
    }
}

/// Trims until nothing remains; says in how many steps.
fn trim_all(store: &mut dyn Store, owner: &Owner, number: u64, limit: u32) -> usize {
    let steps = (1..100).find(|_| !trim(store, owner, number, limit));
    steps.unwrap_or_else(|| panic!("100 trims of {limit} segments leave something of a queue with 3"))
}

pub(super) fn an_ended_queue_hides_all_it_had(store: &mut dyn Store) {
    let mut owner = Owner::of(store, SLOT, 1);
    owner.commit(store, furnished(10));
    owner.commit(store, furnished(20));
    let before = load(store, SLOT);
    owner.commit(store, vec![Write::EndQueue(queue_id(20))]);
    let after = load(store, SLOT);
    assert!(after.contains(&Record::Ended(queue_id(20))));
    let mut of_the_other = before.clone();
    of_the_other.retain(|record| after.contains(record));
    assert_eq!((of_the_other.len(), after.len()), (before.len() / 2, before.len() / 2 + 1));
    // A new owner learns of it too: it goes on trimming.
    Owner::of(store, SLOT, 2);
    assert_eq!(load(store, SLOT), after);
}

pub(super) fn an_ended_queue_makes_room_for_its_name(store: &mut dyn Store) {
    let mut owner = Owner::of(store, SLOT, 1);
    owner.commit(store, furnished(10));
    let again = QueueRecord { name: queue(10).name, ..queue(30) };
    let mut same_partition = partition(30, 30);
    same_partition.name = partition(10, 10).name;
    owner.commit(
        store,
        vec![
            Write::EndQueue(queue_id(10)),
            Write::Queue(Box::new(again.clone())),
            Write::Partition(same_partition),
            Write::Append(plain_segment(30, 0, 1)),
        ],
    );
    trim_all(store, &owner, 10, 100);
    let records = load(store, SLOT);
    assert_eq!(records.len(), 2);
    assert!(records.contains(&Record::Queue(Box::new(again))));
    assert_eq!(read(store, partition_id(30), 0, 9).len(), 1);
}

pub(super) fn a_trim_goes_in_steps_until_nothing_remains(store: &mut dyn Store) {
    let mut owner = Owner::of(store, SLOT, 1);
    for (number, limit) in [(10, 1), (20, 2), (30, 1_000)] {
        owner.commit(store, furnished(number));
        owner.commit(store, vec![Write::EndQueue(queue_id(number))]);
        let at_least = 3 / limit as usize;
        if at_least > 0 {
            assert!(trim(store, &owner, number, limit), "a step removes {limit} segments at most");
            assert!(load(store, SLOT).contains(&Record::Ended(queue_id(number))), "rows remain");
        }
        assert!(1 + trim_all(store, &owner, number, limit) >= at_least);
        assert_eq!(load(store, SLOT), vec![]);
        assert_eq!(read(store, partition_id(number), 0, 9), vec![]);
        let letters = ask(store, StoreRequest::ReadDeadLetters(vec![dead_letter_id(number)]));
        assert_eq!(letters, StoreReply::DeadLetters(vec![None]));
        assert!(!trim(store, &owner, number, limit), "nothing remains");
    }
}

pub(super) fn a_trim_of_an_empty_queue_removes_it(store: &mut dyn Store) {
    let mut owner = Owner::of(store, SLOT, 1);
    owner.commit(store, vec![Write::Queue(Box::new(queue(1)))]);
    owner.commit(store, vec![Write::EndQueue(queue_id(1))]);
    assert_eq!(load(store, SLOT), vec![Record::Ended(queue_id(1))]);
    trim_all(store, &owner, 1, 10);
    assert_eq!(load(store, SLOT), vec![]);
    assert!(!trim(store, &owner, 99, 10), "a queue that never was has no rows");
}

pub(super) fn a_trim_leaves_other_queues_alone(store: &mut dyn Store) {
    let mut owner = Owner::of(store, SLOT, 1);
    owner.commit(store, furnished(20));
    let before = load(store, SLOT);
    owner.commit(store, furnished(10));
    owner.commit(store, vec![Write::EndQueue(queue_id(10))]);
    trim_all(store, &owner, 10, 2);
    assert_eq!(load(store, SLOT), before);
    assert_eq!(read(store, partition_id(20), 0, 9).len(), 3);
    // Whatever the store reuses of the trimmed rows, new ones start clean.
    owner.commit(store, furnished(40));
    assert_eq!(load(store, SLOT).len(), 2 * before.len());
    assert_eq!(read(store, partition_id(40), 0, 9).len(), 3);
}

pub(super) fn a_trim_needs_the_fence(store: &mut dyn Store) {
    let mut owner = Owner::of(store, SLOT, 1);
    owner.commit(store, furnished(10));
    owner.commit(store, vec![Write::EndQueue(queue_id(10))]);
    let old = owner.fence;
    owner.settle(store, 2, &[]);
    for fence in [old, crate::store::Fence { token: Token(9), ..owner.fence }] {
        let request = StoreRequest::Trim { fence, queue: queue_id(10), limit: 100 };
        assert_eq!(ask(store, request), StoreReply::Fenced);
    }
    assert_eq!(load(store, SLOT), vec![Record::Ended(queue_id(10))]);
}
