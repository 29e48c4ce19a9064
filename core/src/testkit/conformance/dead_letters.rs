//! Dead letters: filed, found by id, dropped.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::Store;
use super::owner::{Owner, SLOT, ask, load};
use super::samples::{dead_letter, dead_letter_id, partition, plain_segment, queue_with_partition};
use crate::name::DeadLetterId;
use crate::record::{DeadLetterHead, DeadLetterRecord, PartitionRecord};
use crate::store::{Record, StoreReply, StoreRequest, Write};

/// An owner whose slot holds three dead letters of one partition, filed in two commits.
fn begin(store: &mut dyn Store) -> Owner {
    let mut owner = Owner::of(store, SLOT, 1);
    owner.commit(store, queue_with_partition(1));
    owner.commit(store, vec![Write::Append(plain_segment(1, 0, 4)), file(&dead_letter(1, 1))]);
    owner.commit(store, vec![file(&dead_letter(2, 1)), file(&dead_letter(3, 1))]);
    owner
}

fn file(record: &DeadLetterRecord) -> Write {
    Write::DeadLetter(Box::new(record.clone()))
}

fn find(store: &mut dyn Store, ids: Vec<DeadLetterId>) -> Vec<Option<DeadLetterRecord>> {
    match ask(store, StoreRequest::ReadDeadLetters(ids)) {
        StoreReply::DeadLetters(found) => found,
        other => panic!("a read of dead letters is answered {other:?}"),
    }
}

fn heads(store: &mut dyn Store) -> Vec<DeadLetterHead> {
    let only = |record| match record {
        Record::DeadLetter(head) => Some(head),
        _ => None,
    };
    load(store, SLOT).into_iter().filter_map(only).collect()
}

pub(super) fn a_dead_letter_is_read_by_its_id(store: &mut dyn Store) {
    let mut owner = begin(store);
    let ids = [3, 9, 1, 3].map(dead_letter_id);
    let expected = [Some(dead_letter(3, 1)), None, Some(dead_letter(1, 1)), Some(dead_letter(3, 1))];
    assert_eq!(find(store, ids.into()), expected);
    // It is a snapshot: its segment may go.
    owner.commit(store, vec![Write::Partition(PartitionRecord { log_start: 4, ..partition(1, 1) })]);
    assert_eq!(find(store, ids.into()), expected);
    assert_eq!(find(store, vec![]), []);
}

pub(super) fn a_dead_letter_loads_as_its_head(store: &mut dyn Store) {
    begin(store);
    let mut heads = heads(store);
    heads.sort_by_key(|head| head.id);
    assert_eq!(heads, [1, 2, 3].map(|number| dead_letter(number, 1).head));
}

pub(super) fn a_dead_letter_can_have_no_message(store: &mut dyn Store) {
    let mut owner = begin(store);
    let without = DeadLetterRecord { message: None, error: "".into(), ..dead_letter(4, 1) };
    owner.commit(store, vec![file(&without)]);
    assert_eq!(find(store, vec![dead_letter_id(4)]), [Some(without)]);
}

pub(super) fn a_dropped_dead_letter_is_gone_alone(store: &mut dyn Store) {
    let mut owner = begin(store);
    owner.commit(store, vec![Write::DropDeadLetter(dead_letter_id(2))]);
    let expected = [Some(dead_letter(1, 1)), None, Some(dead_letter(3, 1))];
    assert_eq!(find(store, [1, 2, 3].map(dead_letter_id).into()), expected);
    assert_eq!(heads(store).len(), 2);
}
