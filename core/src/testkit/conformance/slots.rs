//! Who owns a slot.

use alloc::vec;
use alloc::vec::Vec;

use super::Store;
use super::owner::{OTHER_SLOT, Owner, SLOT, ask, load, owner_name, take, watch};
use super::samples::{queue_id, queue_with_partition};
use crate::store::{Commit, CommitNo, Epoch, Fence, SlotView, StoreReply, StoreRequest, Token};

pub(super) fn a_store_answers_a_ping(store: &mut dyn Store) {
    assert_eq!(ask(store, StoreRequest::Ping), StoreReply::Pong);
}

pub(super) fn a_fresh_slot_has_no_owner(store: &mut dyn Store) {
    let view = watch(store, SLOT);
    assert_eq!((view.epoch, view.token, view.owner), (Epoch(0), None, None));
}

pub(super) fn a_take_raises_the_epoch_and_shows_the_owner(store: &mut dyn Store) {
    assert_eq!(take(store, SLOT, Epoch(0), Token(1)), StoreReply::Taken(Epoch(1)));
    let view = watch(store, SLOT);
    assert_eq!((view.epoch, view.token, view.owner), (Epoch(1), Some(Token(1)), Some(owner_name(Token(1)))));
}

pub(super) fn a_late_take_is_told_who_was_quicker(store: &mut dyn Store) {
    let first = Owner::of(store, SLOT, u128::MAX);
    let expected = watch(store, SLOT);
    assert_eq!(expected.token, Some(Token(u128::MAX)));
    for seen in [Epoch(0), Epoch(2)] {
        assert_eq!(take(store, SLOT, seen, Token(2)), StoreReply::Watched(expected.clone()));
    }
    assert_eq!(first.renew(store), StoreReply::Renewed);
}

pub(super) fn a_second_owner_shuts_out_the_first(store: &mut dyn Store) {
    let mut first = Owner::of(store, SLOT, 1);
    first.commit(store, vec![]);
    let mut second = Owner::of(store, SLOT, 2);
    assert_eq!(second.fence.epoch, Epoch(2));
    let before = watch(store, SLOT);
    assert_all_fenced(store, first.fence);
    assert_eq!(watch(store, SLOT), before);
    assert_eq!(load(store, SLOT), vec![]);
    assert_eq!(second.renew(store), StoreReply::Renewed);
    second.commit(store, queue_with_partition(1));
}

pub(super) fn a_fence_is_epoch_and_token(store: &mut dyn Store) {
    let owner = Owner::of(store, SLOT, 1);
    let before = watch(store, SLOT);
    assert_all_fenced(store, Fence { token: Token(2), ..owner.fence });
    assert_all_fenced(store, Fence { token: Token(1 << 64 | 1), ..owner.fence });
    assert_all_fenced(store, Fence { epoch: Epoch(0), ..owner.fence });
    assert_all_fenced(store, Fence { epoch: Epoch(2), ..owner.fence });
    assert_all_fenced(store, Fence { slot: OTHER_SLOT, ..owner.fence });
    assert_eq!(watch(store, SLOT), before);
    assert_eq!(load(store, SLOT), vec![]);
}

pub(super) fn a_renewal_changes_the_beat_and_nothing_else_does(store: &mut dyn Store) {
    let mut owner = Owner::of(store, SLOT, 1);
    let mut last = watch(store, SLOT);
    for _ in 0..3 {
        owner.commit(store, vec![]);
        assert_eq!(watch(store, SLOT), last);
        assert_eq!(owner.renew(store), StoreReply::Renewed);
        let view = watch(store, SLOT);
        assert_ne!(view.beat, last.beat);
        assert_eq!(SlotView { beat: last.beat, ..view.clone() }, last);
        last = view;
    }
}

pub(super) fn a_released_slot_has_no_owner_and_keeps_its_epoch(store: &mut dyn Store) {
    let mut owner = Owner::of(store, SLOT, 1);
    owner.commit(store, queue_with_partition(1));
    assert_eq!(ask(store, StoreRequest::Release(owner.fence)), StoreReply::Released);
    let view = watch(store, SLOT);
    assert_eq!((view.epoch, view.owner), (Epoch(1), None));
    assert_all_fenced(store, owner.fence);
    assert_eq!(load(store, SLOT).len(), 2);
    let next = Owner::of(store, SLOT, 2);
    assert_eq!(next.fence.epoch, Epoch(2));
}

pub(super) fn slots_have_owners_of_their_own(store: &mut dyn Store) {
    let first = Owner::of(store, SLOT, 1);
    Owner::of(store, OTHER_SLOT, 2);
    let other = Owner::of(store, OTHER_SLOT, 3);
    assert_eq!((first.fence.epoch, other.fence.epoch), (Epoch(1), Epoch(2)));
    let view = watch(store, SLOT);
    assert_eq!(ask(store, StoreRequest::Release(other.fence)), StoreReply::Released);
    assert_eq!(watch(store, SLOT), view);
    assert_eq!(first.renew(store), StoreReply::Renewed);
}

/// Asks for everything that needs a fence, with a wrong one.
fn assert_all_fenced(store: &mut dyn Store, fence: Fence) {
    let commit = Commit {
        fence,
        number: CommitNo(9),
        time: crate::time::Timestamp::EPOCH,
        acknowledged: [None, None],
        writes: queue_with_partition(1),
    };
    let requests: Vec<StoreRequest> = vec![
        StoreRequest::Renew { fence, acknowledged: [None, None] },
        StoreRequest::Commit(commit),
        StoreRequest::Trim { fence, queue: queue_id(1), limit: 1 },
        StoreRequest::Settle { fence, token: Token(99), unknown: vec![] },
        StoreRequest::Release(fence),
    ];
    for request in requests {
        assert_eq!(ask(store, request.clone()), StoreReply::Fenced, "{request:?}");
    }
}
