//! Commits: whole or not at all, fenced, numbered, settled.

use alloc::boxed::Box;
use alloc::vec;

use super::Store;
use super::owner::{Owner, SLOT, ask, load, read, take, watch};
use super::samples::{
    cursor, leased_cursor, partition, partition_id, plain_segment, queue, queue_with_partition, subscription, tail_of,
};
use crate::record::StartFrom;
use crate::store::{CommitKey, CommitNo, Epoch, Record, StoreReply, StoreRequest, Token, Write};

pub(super) fn a_commit_happens_whole_and_in_order(store: &mut dyn Store) {
    let mut owner = Owner::of(store, SLOT, 1);
    let (first, second) = (plain_segment(1, 0, 3), plain_segment(1, 3, 2));
    owner.commit(
        store,
        vec![
            Write::Queue(Box::new(queue(1))),
            Write::Partition(partition(1, 1)),
            Write::Append(first.clone()),
            Write::Cursor(leased_cursor(1, "workers")),
            Write::Append(second.clone()),
            Write::Cursor(cursor(1, "workers", 2)),
        ],
    );
    let expected = [
        Record::Queue(Box::new(queue(1))),
        Record::Partition(partition(1, 1), tail_of(&second)),
        Record::Cursor(cursor(1, "workers", 2)),
    ];
    let records = load(store, SLOT);
    assert_eq!(records.len(), expected.len());
    expected.iter().for_each(|record| assert!(records.contains(record), "{record:?} is missing"));
}

pub(super) fn a_commit_of_nothing_is_a_commit(store: &mut dyn Store) {
    let mut owner = Owner::of(store, SLOT, 1);
    owner.commit(store, vec![]);
    let asked = [owner.key(1), owner.key(2)];
    assert_eq!(owner.settle(store, 2, &asked), [true, false]);
}

pub(super) fn a_commit_that_fails_changes_nothing(store: &mut dyn Store) {
    let mut owner = Owner::of(store, SLOT, 1);
    owner.commit(store, queue_with_partition(1));
    owner.commit(store, vec![Write::Cursor(leased_cursor(1, "workers"))]);
    let before = load(store, SLOT);
    let reply = owner.try_commit(
        store,
        vec![
            Write::Queue(Box::new(queue(2))),
            Write::Append(plain_segment(1, 0, 3)),
            Write::Cursor(cursor(1, "workers", 3)),
            Write::Subscription(subscription(1, "workers", StartFrom::New)),
            Write::Cursor(cursor(1, "others", 1)),
            // Its offsets are taken.
            Write::Append(plain_segment(1, 0, 1)),
        ],
    );
    assert!(matches!(reply, StoreReply::Failed(_)), "{reply:?}");
    assert_eq!(load(store, SLOT), before);
    assert_eq!(read(store, partition_id(1), 0, 9), vec![]);
    owner.commit(store, vec![Write::Append(plain_segment(1, 0, 3))]);
    let asked = [owner.key(3), owner.key(4)];
    assert_eq!(owner.settle(store, 2, &asked), [false, true]);
}

pub(super) fn an_append_over_another_changes_nothing(store: &mut dyn Store) {
    let mut owner = Owner::of(store, SLOT, 1);
    owner.commit(store, queue_with_partition(1));
    owner.commit(store, vec![Write::Append(plain_segment(1, 0, 3))]);
    let (heads, messages) = (load(store, SLOT), read(store, partition_id(1), 0, 9));
    let reply = owner.try_commit(store, vec![Write::Queue(Box::new(queue(2))), Write::Append(plain_segment(1, 0, 2))]);
    assert!(matches!(reply, StoreReply::Failed(_)), "{reply:?}");
    assert_eq!((load(store, SLOT), read(store, partition_id(1), 0, 9)), (heads, messages));
}

pub(super) fn a_fenced_commit_changes_nothing(store: &mut dyn Store) {
    let mut first = Owner::of(store, SLOT, 1);
    first.commit(store, queue_with_partition(1));
    let late = first.next_commit(vec![Write::Append(plain_segment(1, 0, 3)), Write::Cursor(cursor(1, "workers", 3))]);
    let mut second = Owner::of(store, SLOT, 2);
    let before = load(store, SLOT);
    assert_eq!(ask(store, StoreRequest::Commit(late)), StoreReply::Fenced);
    assert_eq!(load(store, SLOT), before);
    assert_eq!(second.settle(store, 3, &[first.key(2)]), [false]);
}

pub(super) fn a_settling_tells_which_commits_are_there(store: &mut dyn Store) {
    let mut owner = Owner::of(store, SLOT, 1);
    owner.commit(store, queue_with_partition(1));
    let never_sent = owner.next_commit(vec![]);
    owner.commit(store, vec![Write::Append(plain_segment(1, 0, 1))]);
    let asked = [owner.key(3), owner.key(never_sent.number.0), owner.key(1), owner.key(4)];
    assert_eq!(owner.settle(store, 2, &asked), [true, false, true, false]);
    assert_eq!(owner.settle(store, 3, &[]), [] as [bool; 0]);
}

pub(super) fn a_settling_shuts_out_the_late_original(store: &mut dyn Store) {
    let mut owner = Owner::of(store, SLOT, 1);
    owner.commit(store, queue_with_partition(1));
    let late = owner.next_commit(vec![Write::Append(plain_segment(1, 0, 3))]);
    let key = owner.key(2);
    let old = owner.fence;
    assert_eq!(owner.settle(store, 2, &[key]), [false]);
    assert_eq!(ask(store, StoreRequest::Commit(late)), StoreReply::Fenced);
    let renewal = StoreRequest::Renew { fence: old, acknowledged: [None, None] };
    assert_eq!(ask(store, renewal), StoreReply::Fenced);
    owner.commit(store, vec![Write::Append(plain_segment(1, 0, 1))]);
    assert_eq!(owner.settle(store, 3, &[key]), [false]);
    assert_eq!(read(store, partition_id(1), 0, 9)[0].messages.len(), 1);
}

pub(super) fn a_settling_leaves_the_slot_with_its_owner(store: &mut dyn Store) {
    let mut owner = Owner::of(store, SLOT, 1);
    let before = watch(store, SLOT);
    owner.settle(store, 2, &[]);
    let view = watch(store, SLOT);
    assert_eq!((view.epoch, view.token, view.owner), (Epoch(2), Some(Token(2)), before.owner));
    // Who watched before the settling comes too late.
    assert!(matches!(take(store, SLOT, before.epoch, Token(3)), StoreReply::Watched(_)));
    owner.commit(store, vec![]);
    assert_eq!(owner.renew(store), StoreReply::Renewed);
}

/// Two commits may be in flight, and the first one's answer may be lost after many others were acknowledged.
pub(super) fn a_settling_remembers_what_later_commits_overtook(store: &mut dyn Store) {
    let mut owner = Owner::of(store, SLOT, 1);
    let overtaken = owner.next_commit(queue_with_partition(1));
    let never_arrived = owner.next_commit(vec![]);
    assert_eq!(ask(store, StoreRequest::Commit(overtaken)), StoreReply::Committed);
    for _ in 0..20 {
        owner.commit(store, vec![]);
        assert_eq!(owner.renew(store), StoreReply::Renewed);
    }
    let asked = [owner.key(1), owner.key(never_arrived.number.0)];
    assert_eq!(owner.settle(store, 2, &asked), [true, false]);
}

pub(super) fn a_number_counts_within_its_epoch(store: &mut dyn Store) {
    let mut owner = Owner::of(store, SLOT, 1);
    owner.commit(store, vec![]);
    owner.commit(store, vec![]);
    let first = owner.key(2);
    owner.settle(store, 2, &[]);
    owner.commit(store, vec![]);
    let asked = [owner.key(2), first, owner.key(1)];
    assert_eq!(owner.settle(store, 3, &asked), [false, true, true]);
}

pub(super) fn a_settling_of_another_is_fenced(store: &mut dyn Store) {
    let mut first = Owner::of(store, SLOT, 1);
    first.commit(store, vec![]);
    let second = Owner::of(store, SLOT, 2);
    let settling = StoreRequest::Settle { fence: first.fence, token: Token(3), unknown: vec![first.key(1)] };
    assert_eq!(ask(store, settling), StoreReply::Fenced);
    assert_eq!(second.renew(store), StoreReply::Renewed);
}

pub(super) fn a_commit_that_was_overtaken_names_what_it_knew(store: &mut dyn Store) {
    let mut owner = Owner::of(store, SLOT, 1);
    owner.commit(store, vec![]);
    owner.settle(store, 2, &[]);
    owner.commit(store, vec![]);
    // It names a commit of the epoch before, and arrives after two that name none of it.
    let slow = owner.next_commit(vec![]);
    owner.commit(store, vec![]);
    owner.commit(store, vec![]);
    assert_eq!(owner.renew(store), StoreReply::Renewed);
    assert_eq!(ask(store, StoreRequest::Commit(slow)), StoreReply::Committed);
}

pub(super) fn acknowledged_commits_that_are_there_pass(store: &mut dyn Store) {
    let mut owner = Owner::of(store, SLOT, 1);
    for _ in 0..5 {
        owner.commit(store, vec![]);
        assert_eq!(owner.renew(store), StoreReply::Renewed);
    }
    // The last two are of the epoch before: they are still named until newer ones are acknowledged.
    owner.settle(store, 2, &[]);
    for _ in 0..3 {
        assert_eq!(owner.renew(store), StoreReply::Renewed);
        owner.commit(store, vec![]);
    }
}

pub(super) fn a_commit_after_a_lost_suffix_is_refused(store: &mut dyn Store) {
    let mut owner = Owner::of(store, SLOT, 1);
    owner.commit(store, queue_with_partition(1));
    let before = load(store, SLOT);
    let there = owner.key(1);
    for (acknowledged, number) in lost_suffixes(there).into_iter().zip(20..) {
        let mut commit = owner.next_commit(vec![Write::Append(plain_segment(1, 0, 1))]);
        (commit.acknowledged, commit.number) = (acknowledged, CommitNo(number));
        assert_eq!(ask(store, StoreRequest::Commit(commit)), StoreReply::SuffixLost, "{acknowledged:?}");
        assert_eq!(load(store, SLOT), before);
    }
    owner.commit(store, vec![Write::Append(plain_segment(1, 0, 1))]);
    let asked = [owner.key(20), owner.key(21), owner.key(22), owner.key(23)];
    assert_eq!(owner.settle(store, 2, &asked), [false; 4]);
}

pub(super) fn a_renewal_after_a_lost_suffix_is_refused(store: &mut dyn Store) {
    let mut owner = Owner::of(store, SLOT, 1);
    owner.commit(store, vec![]);
    let before = watch(store, SLOT);
    for acknowledged in lost_suffixes(owner.key(1)) {
        let renewal = StoreRequest::Renew { fence: owner.fence, acknowledged };
        assert_eq!(ask(store, renewal), StoreReply::SuffixLost, "{acknowledged:?}");
    }
    assert_eq!(watch(store, SLOT), before);
    assert_eq!(owner.renew(store), StoreReply::Renewed);
}

/// Acknowledged commits of which one never happened; `there` did.
fn lost_suffixes(there: CommitKey) -> [[Option<CommitKey>; 2]; 4] {
    let lost = CommitKey { number: CommitNo(there.number.0 + 1), ..there };
    let of_another_epoch = CommitKey { epoch: Epoch(there.epoch.0 + 1), ..there };
    [[Some(lost), Some(there)], [Some(lost), None], [Some(there), Some(lost)], [Some(of_another_epoch), Some(there)]]
}
