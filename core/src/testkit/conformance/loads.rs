//! Loads: everything that was written, in pages, in an order in which nothing refers to what is still to come.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use super::Store;
use super::owner::{OTHER_SLOT, Owner, SLOT, ask, load, read};
use super::samples::{
    cursor, dead_letter, leased_cursor, partition, partition_id, plain_segment, queue, queue_with_partition,
    subscription, tail_of, tenant, time,
};
use crate::limits::MAX_PAGE_RECORDS;
use crate::name::PartitionId;
use crate::record::{QueueRecord, StartFrom, SubscriptionRecord};
use crate::store::{Commit, Record, StoreReply, StoreRequest, Write};

pub(super) fn a_slot_without_content_loads_as_one_page(store: &mut dyn Store) {
    let empty = StoreReply::Page { records: vec![], next: None, latest: None };
    assert_eq!(ask(store, StoreRequest::Load { slot: SLOT, after: None }), empty);
    Owner::of(store, SLOT, 1);
    assert_eq!(ask(store, StoreRequest::Load { slot: SLOT, after: None }), empty);
}

pub(super) fn a_load_gives_everything_as_written(store: &mut dyn Store) {
    let mut owner = Owner::of(store, SLOT, 1);
    owner.commit(store, one_of_each());
    assert_same_records(&load(store, SLOT), &records_of(&one_of_each()));
}

pub(super) fn a_load_tells_the_latest_time_of_any_commit(store: &mut dyn Store) {
    let latest = |store: &mut dyn Store| match ask(store, StoreRequest::Load { slot: SLOT, after: None }) {
        StoreReply::Page { latest, .. } => latest,
        other => panic!("no page: {other:?}"),
    };
    let mut owner = Owner::of(store, SLOT, 1);
    for (given, expected) in [(5, 5), (9, 9), (7, 9)] {
        let commit = Commit { time: time(given), ..owner.next_commit(vec![]) };
        assert_eq!(ask(store, StoreRequest::Commit(commit)), StoreReply::Committed);
        Owner::of(store, SLOT, 1);
        owner = Owner::of(store, SLOT, 2);
        assert_eq!(latest(store), Some(time(expected)));
    }
    let fenced = Commit { time: time(20), ..owner.next_commit(vec![]) };
    Owner::of(store, SLOT, 3);
    assert_eq!(ask(store, StoreRequest::Commit(fenced)), StoreReply::Fenced);
    assert_eq!(latest(store), Some(time(9)));
}

pub(super) fn a_load_survives_a_new_owner(store: &mut dyn Store) {
    let mut owner = Owner::of(store, SLOT, 1);
    owner.commit(store, one_of_each());
    Owner::of(store, SLOT, 2);
    assert_same_records(&load(store, SLOT), &records_of(&one_of_each()));
    assert_eq!(read(store, partition_id(1), 0, 4).len(), 2);
}

pub(super) fn a_load_in_pages_gives_each_record_once(store: &mut dyn Store) {
    let mut owner = Owner::of(store, SLOT, 1);
    let count = MAX_PAGE_RECORDS as u64;
    let mut writes = vec![Write::Queue(Box::new(queue(0)))];
    let subscribers = (0..count + 10).map(|number| subscription(0, &format!("group {number}"), StartFrom::New));
    writes.extend(subscribers.map(Write::Subscription));
    // A third of the partitions has two segments and a cursor, so that pages end at every kind of record.
    for number in 0..count {
        writes.push(Write::Partition(partition(number, 0)));
        if number % 3 == 0 {
            writes.push(Write::Append(plain_segment(number, 0, 2)));
            writes.push(Write::Append(plain_segment(number, 2, 1)));
            writes.push(Write::Cursor(cursor(number, "workers", 1)));
        }
    }
    for number in 0..count / 2 {
        writes.push(Write::DeadLetter(Box::new(dead_letter(number, number))));
    }
    let expected = records_of(&writes);
    let mut writes = writes.into_iter().peekable();
    while writes.peek().is_some() {
        owner.commit(store, writes.by_ref().take(4_000).collect());
    }
    assert_same_records(&load(store, SLOT), &expected);
}

pub(super) fn queues_are_loaded_alone(store: &mut dyn Store) {
    let mut owner = Owner::of(store, SLOT, 1);
    let mut other = Owner::of(store, OTHER_SLOT, 1);
    let count = MAX_PAGE_RECORDS as u64 + 10;
    let queues: Vec<_> = (0..count).map(queue).collect();
    // A queue with options of its own costs a call each: half of them in one commit comes near a second on a busy machine.
    for part in queues.chunks(1_000) {
        owner.commit(store, part.iter().cloned().map(Box::new).map(Write::Queue).collect());
    }
    owner.commit(store, vec![Write::EndQueue(queue(1).id), Write::Partition(partition(2, 2))]);
    other.commit(store, vec![Write::Queue(Box::new(queue(count)))]);
    let mut expected = queues;
    expected.remove(1);
    expected.sort_by_key(|queue| queue.id);
    let (mut loaded, mut after) = (Vec::new(), None);
    loop {
        match ask(store, StoreRequest::LoadQueues { slot: SLOT, after }) {
            StoreReply::Queues { queues, next } => {
                assert!(queues.len() <= MAX_PAGE_RECORDS && (next.is_none() || !queues.is_empty()));
                loaded.extend(queues);
                after = next;
            }
            other => panic!("a load of queues is answered {other:?}"),
        }
        if after.is_none() {
            break;
        }
    }
    assert!(loaded == expected, "{} queues loaded, {} written", loaded.len(), expected.len());
}

pub(super) fn slots_hold_content_of_their_own(store: &mut dyn Store) {
    let mut owner = Owner::of(store, SLOT, 1);
    let mut other = Owner::of(store, OTHER_SLOT, 2);
    let mut here = queue_with_partition(1);
    here.push(Write::Append(plain_segment(1, 0, 2)));
    let there = queue_with_partition(2);
    owner.commit(store, here.clone());
    assert_eq!(load(store, OTHER_SLOT), vec![]);
    other.commit(store, there.clone());
    assert_same_records(&load(store, SLOT), &records_of(&here));
    assert_same_records(&load(store, OTHER_SLOT), &records_of(&there));
    assert_eq!(other.settle(store, 3, &[owner.key(1), owner.key(2)]), [true, false], "keys are looked up in the slot");
}

pub(super) fn tenants_share_names_without_meeting(store: &mut dyn Store) {
    let mut owner = Owner::of(store, SLOT, 1);
    let name = queue(1).name;
    let of_tenant = |number| QueueRecord { tenant: tenant(number), name: name.clone(), ..queue(number) };
    let mut same_partition = partition(2, 2);
    same_partition.name = partition(1, 1).name;
    let writes = vec![
        Write::Queue(Box::new(of_tenant(1))),
        Write::Queue(Box::new(of_tenant(2))),
        Write::Partition(partition(1, 1)),
        Write::Partition(same_partition),
        Write::Append(plain_segment(1, 0, 1)),
        Write::Append(plain_segment(2, 0, 3)),
        Write::Cursor(cursor(1, "workers", 1)),
        Write::Cursor(cursor(2, "workers", 2)),
        Write::Subscription(subscription(1, "workers", StartFrom::All)),
        Write::Subscription(subscription(2, "workers", StartFrom::New)),
    ];
    owner.commit(store, writes.clone());
    assert_same_records(&load(store, SLOT), &records_of(&writes));
    assert_eq!(read(store, partition_id(1), 0, 9)[0].messages.len(), 1);
    owner.commit(store, vec![Write::EndQueue(of_tenant(1).id)]);
    assert!(load(store, SLOT).contains(&Record::Queue(Box::new(of_tenant(2)))));
    assert_eq!(read(store, partition_id(2), 0, 9)[0].messages.len(), 3);
}

/// Every kind of record, and the odd values.
fn one_of_each() -> Vec<Write> {
    let changed = Some(time(5));
    vec![
        Write::Queue(Box::new(queue(1))),
        Write::Queue(Box::new(queue(2))),
        Write::Partition(partition(1, 1)),
        Write::Partition(partition(2, 2)),
        Write::Append(plain_segment(1, 0, 1)),
        Write::Append(plain_segment(1, 1, 300)),
        Write::Append(plain_segment(2, 0, 7)),
        Write::Cursor(leased_cursor(1, "workers")),
        Write::Cursor(cursor(1, "", 1)),
        Write::Cursor(cursor(2, "workers", 7)),
        Write::Subscription(subscription(1, "workers", StartFrom::Time(time(-1)))),
        Write::Subscription(SubscriptionRecord { changed, ..subscription(1, "", StartFrom::All) }),
        Write::Subscription(subscription(2, "workers", StartFrom::New)),
        Write::DeadLetter(Box::new(dead_letter(1, 1))),
        Write::DeadLetter(Box::new(dead_letter(2, 2))),
    ]
}

/// What a load gives of writes that each set a record of their own.
fn records_of(writes: &[Write]) -> Vec<Record> {
    let tail = |id: PartitionId| {
        let last = writes.iter().rev().find_map(|write| match write {
            Write::Append(segment) if segment.partition == id => Some(tail_of(segment)),
            _ => None,
        });
        last.unwrap_or_default()
    };
    let record = |write: &Write| match write {
        Write::Queue(record) => Record::Queue(record.clone()),
        Write::Partition(record) => Record::Partition(record.clone(), tail(record.id)),
        Write::Cursor(record) => Record::Cursor(record.clone()),
        Write::Subscription(record) => Record::Subscription(record.clone()),
        Write::DeadLetter(record) => Record::DeadLetter(record.head.clone()),
        other => panic!("{other:?} sets no record"),
    };
    writes.iter().filter(|write| !matches!(write, Write::Append(_))).map(record).collect()
}

/// The same records in whatever order, except that each comes after what it refers to.
fn assert_same_records(loaded: &[Record], expected: &[Record]) {
    let texts = |records: &[Record]| records.iter().map(|record| format!("{record:?}")).collect::<BTreeSet<_>>();
    assert_eq!(loaded.len(), expected.len(), "records loaded and written");
    let (loaded_texts, expected_texts) = (texts(loaded), texts(expected));
    let missing = expected_texts.difference(&loaded_texts).next();
    let strange = loaded_texts.difference(&expected_texts).next();
    assert!(missing.is_none() && strange.is_none(), "written and not loaded: {missing:?}; the other way: {strange:?}");

    let mut queues = BTreeSet::new();
    let mut partitions = BTreeSet::new();
    for record in loaded {
        let in_order = match record {
            Record::Queue(queue) => queues.insert(queue.id),
            Record::Ended(_) => true,
            Record::Subscription(subscription) => queues.contains(&subscription.queue),
            Record::Partition(partition, _) => partitions.insert(partition.id) && queues.contains(&partition.queue),
            Record::Cursor(cursor) => partitions.contains(&cursor.partition),
            Record::DeadLetter(head) => partitions.contains(&head.partition),
        };
        assert!(in_order, "comes too early or twice: {record:?}");
    }
}
