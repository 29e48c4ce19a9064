//! Retention: what is oldest, what a trim removes, what outlives it, what is remembered of it.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::Store;
use super::owner::{OTHER_SLOT, Owner, SLOT, ask, load, read};
use super::samples::{
    cursor, head_of, partition, partition_id, plain_segment, queue, queue_with_partition, tail_of, tenant, time,
};
use crate::name::PartitionId;
use crate::record::{HistoryRecord, NewSegment, PartitionRecord, RetentionRule, SegmentHead, Tally, Trimmed};
use crate::store::{Extent, ExtentRead, LogRead, LogTail, Record, StoreReply, StoreRequest, Token, Write};

/// Five segments of two messages.
fn segments() -> Vec<NewSegment> {
    (0..5).map(|n| plain_segment(1, 2 * n, 2)).collect()
}

fn begin(store: &mut dyn Store) -> Owner {
    let mut owner = Owner::of(store, SLOT, 1);
    owner.commit(store, queue_with_partition(1));
    owner.commit(store, segments().into_iter().map(Write::Append).collect());
    owner
}

/// The partition with its watermarks there.
fn at(log_start: u64, hash_start: u64) -> PartitionRecord {
    let last = segments().into_iter().rfind(|segment| segment.start + 2 <= log_start);
    let (bytes, last) = last.map_or((0, None), |last| (last.total, Some(last.created)));
    PartitionRecord { log_start, trimmed: Trimmed { hash_start, bytes, last }, ..partition(1, 1) }
}

fn extents(store: &mut dyn Store, reads: &[(u64, u64, bool)], limit: u32) -> Vec<Vec<(u64, u64)>> {
    let read = |(number, from, hashes): &(u64, u64, bool)| ExtentRead {
        partition: partition_id(*number),
        from: *from,
        hashes: *hashes,
    };
    match ask(store, StoreRequest::LoadExtents { reads: reads.iter().map(read).collect(), limit }) {
        StoreReply::Extents(lists) => {
            let span = |list: Vec<Extent>| list.into_iter().map(|extent| (extent.start, extent.end)).collect();
            lists.into_iter().map(span).collect()
        }
        other => panic!("a load of extents is answered {other:?}"),
    }
}

fn heads(store: &mut dyn Store) -> Vec<SegmentHead> {
    let read = LogRead { partition: partition_id(1), before: u64::MAX, since: time(i64::MIN / 2) };
    match ask(store, StoreRequest::LoadLogs(vec![read])) {
        StoreReply::Logs(mut pages) => pages.remove(0).segments,
        other => panic!("a load of logs is answered {other:?}"),
    }
}

fn trim(store: &mut dyn Store, owner: &Owner, partitions: &[PartitionId], limit: u32) -> bool {
    let request = StoreRequest::TrimLogs { fence: owner.fence, partitions: partitions.to_vec(), limit };
    match ask(store, request) {
        StoreReply::Trimmed { more } => more,
        other => panic!("a trim is answered {other:?}"),
    }
}

/// Trims one row at a time until nothing remains; says in how many steps.
fn trim_all(store: &mut dyn Store, owner: &Owner) -> usize {
    let steps = (1..100).find(|_| !trim(store, owner, &[partition_id(1)], 1));
    steps.unwrap_or_else(|| panic!("100 trims of a row leave something of five"))
}

pub(super) fn extents_are_given_oldest_first_up_to_a_limit(store: &mut dyn Store) {
    let mut owner = begin(store);
    owner.commit(store, vec![Write::Partition(partition(2, 1)), Write::Append(plain_segment(2, 0, 3))]);
    let reads = [(1, 4, false), (9, 0, false), (2, 0, false), (1, 0, true)];
    assert_eq!(extents(store, &reads, 9), [vec![(4, 6), (6, 8), (8, 10)], vec![], vec![(0, 3)], vec![]]);
    assert_eq!(extents(store, &reads, 2), [vec![(4, 6), (6, 8)], vec![], vec![], vec![]]);
    let read = ExtentRead { partition: partition_id(1), from: 8, hashes: false };
    let last = segments().remove(4);
    let extent = Extent { start: 8, end: 10, created: last.created, total: last.total };
    let answer = ask(store, StoreRequest::LoadExtents { reads: vec![read], limit: 1 });
    assert_eq!(answer, StoreReply::Extents(vec![vec![extent]]));
}

pub(super) fn a_trim_removes_messages_and_leaves_younger_hashes(store: &mut dyn Store) {
    // req: OPT-17, OPT-26
    let mut owner = begin(store);
    let all = segments();
    owner.commit(store, vec![Write::Partition(at(8, 4))]);
    assert_eq!(read(store, partition_id(1), 0, 10).len(), 1);
    assert!(trim_all(store, &owner) >= 4, "a step removes one row");
    assert_eq!(extents(store, &[(1, 0, false), (1, 0, true)], 9), [vec![(8, 10)], vec![(4, 6), (6, 8)]]);
    assert_eq!(read(store, partition_id(1), 0, 10).len(), 1);
    let expected: Vec<_> = all[2..].iter().rev().map(head_of).collect();
    assert_eq!(heads(store), expected, "what outlived its messages goes on below the others");
    // Once they are old, the hashes go too.
    owner.commit(store, vec![Write::Partition(at(8, 6))]);
    trim_all(store, &owner);
    assert_eq!(extents(store, &[(1, 0, true), (1, 0, false)], 9), [vec![(6, 8)], vec![(8, 10)]]);
    // And what was never kept goes at once.
    owner.commit(store, vec![Write::Partition(at(10, 10))]);
    trim_all(store, &owner);
    assert_eq!(extents(store, &[(1, 0, true), (1, 0, false)], 9), [vec![], vec![]]);
    assert_eq!(heads(store), vec![]);
}

pub(super) fn a_log_goes_on_where_all_of_it_was_deleted(store: &mut dyn Store) {
    // req: OPT-11
    let mut owner = begin(store);
    let last = segments().remove(4);
    owner.commit(store, vec![Write::Partition(at(10, 10))]);
    trim_all(store, &owner);
    for _ in 0..2 {
        let records = load(store, SLOT);
        assert!(records.contains(&Record::Partition(at(10, 10), tail_of(&last))), "{records:?}");
        owner = Owner::of(store, SLOT, 2);
    }
    let next = plain_segment(1, 10, 1);
    owner.commit(store, vec![Write::Append(next.clone())]);
    assert_eq!(read(store, partition_id(1), 0, 99).len(), 1);
    assert!(load(store, SLOT).contains(&Record::Partition(at(10, 10), tail_of(&next))));
}

pub(super) fn a_load_tells_what_is_left_to_trim(store: &mut dyn Store) {
    let mut owner = begin(store);
    let last = segments().remove(4);
    let shows = |store: &mut dyn Store, record: PartitionRecord, untrimmed| {
        let tail = LogTail { untrimmed, ..tail_of(&last) };
        let records = load(store, SLOT);
        assert!(records.contains(&Record::Partition(record, tail)), "{records:?}");
    };
    owner.commit(store, vec![Write::Partition(at(4, 0))]);
    shows(store, at(4, 0), true);
    owner = Owner::of(store, SLOT, 2);
    shows(store, at(4, 0), true);
    trim_all(store, &owner);
    shows(store, at(4, 0), false);
    owner.commit(store, vec![Write::Partition(at(4, 2))]);
    shows(store, at(4, 2), true);
    trim_all(store, &owner);
    shows(store, at(4, 2), false);
}

pub(super) fn a_trim_below_watermarks_needs_the_fence(store: &mut dyn Store) {
    let mut owner = begin(store);
    owner.commit(store, vec![Write::Partition(at(4, 4))]);
    let old = owner.fence;
    owner.settle(store, 2, &[]);
    for fence in [old, crate::store::Fence { token: Token(9), ..owner.fence }] {
        let request = StoreRequest::TrimLogs { fence, partitions: vec![partition_id(1)], limit: 100 };
        assert_eq!(ask(store, request), StoreReply::Fenced);
        let request = StoreRequest::TrimHistory { fence, before: time(0), limit: 100 };
        assert_eq!(ask(store, request), StoreReply::Fenced);
    }
    assert_eq!(extents(store, &[(1, 0, false)], 1), [vec![(0, 2)]]);
    assert!(!trim(store, &owner, &[partition_id(9), partition_id(1)], 100));
    assert_eq!(extents(store, &[(1, 0, false)], 1), [vec![(4, 6)]]);
}

pub(super) fn a_dropped_partition_is_gone_with_its_cursors(store: &mut dyn Store) {
    let mut owner = begin(store);
    let rest = vec![Write::Partition(partition(2, 1)), Write::Append(plain_segment(2, 0, 1))];
    owner.commit(store, rest);
    owner.commit(store, vec![Write::Cursor(cursor(1, "workers", 10)), Write::Cursor(cursor(2, "workers", 1))]);
    owner.commit(store, vec![Write::Partition(at(10, 10))]);
    trim_all(store, &owner);
    owner.commit(store, vec![Write::DropPartition(partition_id(1))]);
    let records = load(store, SLOT);
    assert_eq!(records.len(), 3, "the queue, and the other partition with its cursor: {records:?}");
    // Its name is free, and its queue can end.
    let mut again = partition(3, 1);
    again.name = partition(1, 1).name;
    owner.commit(store, vec![Write::Partition(again), Write::Append(plain_segment(3, 0, 1))]);
    owner.commit(store, vec![Write::EndQueue(queue(1).id)]);
    let steps = (1..100).find(|_| {
        let request = StoreRequest::Trim { fence: owner.fence, queue: queue(1).id, limit: 1 };
        ask(store, request) == StoreReply::Trimmed { more: false }
    });
    assert!(steps.is_some());
    assert_eq!(load(store, SLOT), vec![]);
}

pub(super) fn history_adds_up_and_outlives_its_queue(store: &mut dyn Store) {
    let mut owner = begin(store);
    let record = |number, minute, rule, messages| HistoryRecord {
        tenant: tenant(0),
        queue: queue(number).name,
        minute: time(minute),
        rule,
        tally: Tally { segments: 1, messages, unconsumed: messages / 2 },
        events: 1,
    };
    let of_other = HistoryRecord { tenant: tenant(1), ..record(1, 60, RetentionRule::Age, 1) };
    let writes = [
        record(2, 60, RetentionRule::Age, 4),
        record(1, 60, RetentionRule::MaxWait, 4),
        record(1, 60, RetentionRule::Age, 10),
        of_other.clone(),
    ];
    owner.commit(store, writes.iter().cloned().map(Write::History).collect());
    let more = vec![record(1, 60, RetentionRule::Age, 6), record(1, 120, RetentionRule::Completed, 2)];
    owner.commit(store, more.into_iter().map(Write::History).collect());
    owner.commit(store, vec![Write::EndQueue(queue(1).id)]);
    let asked =
        |tenant, since, until| StoreRequest::LoadHistory { slot: SLOT, tenant, since: time(since), until: time(until) };
    let sum = HistoryRecord {
        tally: Tally { segments: 2, messages: 16, unconsumed: 8 },
        events: 2,
        ..record(1, 60, RetentionRule::Age, 16)
    };
    let later = record(1, 120, RetentionRule::Completed, 2);
    let first = vec![sum, writes[1].clone(), writes[0].clone()];
    let all: Vec<_> = first.iter().cloned().chain([later.clone()]).collect();
    assert_eq!(ask(store, asked(tenant(0), 60, 121)), StoreReply::History(all));
    assert_eq!(ask(store, asked(tenant(0), 60, 120)), StoreReply::History(first));
    assert_eq!(ask(store, asked(tenant(0), 61, 121)), StoreReply::History(vec![later.clone()]));
    assert_eq!(ask(store, asked(tenant(1), 0, 121)), StoreReply::History(vec![of_other]));
    let elsewhere = StoreRequest::LoadHistory { slot: OTHER_SLOT, tenant: tenant(0), since: time(0), until: time(999) };
    assert_eq!(ask(store, elsewhere), StoreReply::History(vec![]));
    let trim = StoreRequest::TrimHistory { fence: owner.fence, before: time(120), limit: 1 };
    let steps = (1..100).find(|_| ask(store, trim.clone()) == StoreReply::Trimmed { more: false });
    assert!(steps.is_some_and(|steps| steps >= 4), "four rows, one at a time");
    assert_eq!(ask(store, asked(tenant(0), 0, 999)), StoreReply::History(vec![later]));
}

pub(super) fn a_partition_with_messages_in_a_failed_commit_is_as_it_was(store: &mut dyn Store) {
    let mut owner = begin(store);
    owner.commit(store, vec![Write::Partition(at(10, 4))]);
    trim_all(store, &owner);
    let before = (load(store, SLOT), heads(store));
    // A segment that leaves a gap fails the commit.
    let writes = vec![
        Write::Partition(at(10, 8)),
        Write::History(HistoryRecord {
            tenant: tenant(0),
            queue: queue(1).name,
            minute: time(0),
            rule: RetentionRule::Age,
            tally: Tally::default(),
            events: 1,
        }),
        Write::DropPartition(partition_id(1)),
        Write::Queue(Box::new(queue(2))),
        Write::Append(plain_segment(1, 10, 1)),
        Write::Append(plain_segment(1, 10, 1)),
    ];
    assert!(matches!(owner.try_commit(store, writes), StoreReply::Failed(_)));
    assert_eq!((load(store, SLOT), heads(store)), before);
    let history =
        StoreRequest::LoadHistory { slot: SLOT, tenant: tenant(0), since: time(i64::MIN / 2), until: time(999) };
    assert_eq!(ask(store, history), StoreReply::History(vec![]));
}
