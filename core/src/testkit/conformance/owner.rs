//! A slot's owner as the checks play it: it takes, numbers its commits, names those acknowledged.

use alloc::vec::Vec;
use compact_str::CompactString;

use super::Store;
use crate::limits::MAX_PAGE_RECORDS;
use crate::message::SegmentSlice;
use crate::name::PartitionId;
use crate::store::{
    Commit, CommitKey, CommitNo, Epoch, Fence, Record, SegmentRead, Slot, SlotView, StoreReply, StoreRequest, Token,
    Write,
};
use crate::time::Timestamp;

/// The slot that most checks use.
pub(super) const SLOT: Slot = Slot(3);
/// Another one.
pub(super) const OTHER_SLOT: Slot = Slot(4);

/// More than any check needs.
const MOST_PAGES: usize = 1_000;

const NOW: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);

pub(super) fn ask(store: &mut dyn Store, request: StoreRequest) -> StoreReply {
    store.call(NOW, request)
}

pub(super) fn watch(store: &mut dyn Store, slot: Slot) -> SlotView {
    match ask(store, StoreRequest::Watch(slot)) {
        StoreReply::Watched(view) => view,
        other => panic!("a watch is answered {other:?}"),
    }
}

pub(super) fn take(store: &mut dyn Store, slot: Slot, seen: Epoch, token: Token) -> StoreReply {
    ask(store, StoreRequest::Take { slot, seen, token, owner: owner_name(token) })
}

/// The name under which the holder of `token` takes slots.
pub(super) fn owner_name(token: Token) -> CompactString {
    compact_str::format_compact!("owner {}", token.0)
}

/// Everything in a slot, in the order in which it comes. Pages have to end and to stay within their limit.
pub(super) fn load(store: &mut dyn Store, slot: Slot) -> Vec<Record> {
    let mut all = Vec::new();
    let mut after = None;
    for _ in 0..MOST_PAGES {
        match ask(store, StoreRequest::Load { slot, after }) {
            StoreReply::Page { records, next, .. } => {
                assert!(records.len() <= MAX_PAGE_RECORDS, "a page has {} records", records.len());
                assert!(next.is_none() || !records.is_empty(), "a page has no record and is not the last");
                all.extend(records);
                after = next;
            }
            other => panic!("a load is answered {other:?}"),
        }
        if after.is_none() {
            return all;
        }
    }
    panic!("a load does not end: {MOST_PAGES} pages have {} records", all.len());
}

pub(super) fn read_all(store: &mut dyn Store, reads: &[SegmentRead]) -> Vec<Vec<SegmentSlice>> {
    match ask(store, StoreRequest::Read(reads.to_vec())) {
        StoreReply::Segments(segments) => segments,
        other => panic!("a read is answered {other:?}"),
    }
}

pub(super) fn read(store: &mut dyn Store, partition: PartitionId, from: u64, end: u64) -> Vec<SegmentSlice> {
    let mut answers = read_all(store, &[SegmentRead { partition, from, end }]);
    assert_eq!(answers.len(), 1, "one read has one answer");
    answers.remove(0)
}

/// An owner that believes every answer.
#[derive(Clone)]
pub(super) struct Owner {
    pub(super) fence: Fence,
    pub(super) acknowledged: [Option<CommitKey>; 2],
    last: u64,
}

impl Owner {
    /// Takes the slot, whoever has it.
    pub(super) fn of(store: &mut dyn Store, slot: Slot, token: u128) -> Owner {
        let seen = watch(store, slot).epoch;
        let epoch = Epoch(seen.0 + 1);
        assert_eq!(take(store, slot, seen, Token(token)), StoreReply::Taken(epoch));
        Owner { fence: Fence { slot, epoch, token: Token(token) }, acknowledged: [None, None], last: 0 }
    }

    /// The place of this owner's commit `number`.
    pub(super) fn key(&self, number: u64) -> CommitKey {
        CommitKey { epoch: self.fence.epoch, number: CommitNo(number) }
    }

    /// The next commit, not sent yet.
    pub(super) fn next_commit(&mut self, writes: Vec<Write>) -> Commit {
        self.last += 1;
        Commit {
            fence: self.fence,
            number: CommitNo(self.last),
            time: Timestamp::from_micros(self.last as i64),
            acknowledged: self.acknowledged,
            writes,
        }
    }

    /// Sends the next commit, and notes it as acknowledged when it is.
    pub(super) fn try_commit(&mut self, store: &mut dyn Store, writes: Vec<Write>) -> StoreReply {
        let commit = self.next_commit(writes);
        let key = self.key(self.last);
        let reply = ask(store, StoreRequest::Commit(commit));
        if reply == StoreReply::Committed {
            self.acknowledged = [Some(key), self.acknowledged[0]];
        }
        reply
    }

    /// Sends the next commit, which has to happen.
    pub(super) fn commit(&mut self, store: &mut dyn Store, writes: Vec<Write>) {
        assert_eq!(self.try_commit(store, writes), StoreReply::Committed);
    }

    pub(super) fn renew(&self, store: &mut dyn Store) -> StoreReply {
        ask(store, StoreRequest::Renew { fence: self.fence, acknowledged: self.acknowledged })
    }

    /// Raises the own epoch and asks about commits; goes on under the raised one.
    pub(super) fn settle(&mut self, store: &mut dyn Store, token: u128, unknown: &[CommitKey]) -> Vec<bool> {
        let token = Token(token);
        let request = StoreRequest::Settle { fence: self.fence, token, unknown: unknown.to_vec() };
        let raised = Epoch(self.fence.epoch.0 + 1);
        match ask(store, request) {
            StoreReply::Settled { epoch, committed } => {
                assert_eq!(epoch, raised, "a settling raises the epoch by one");
                self.fence = Fence { epoch, token, ..self.fence };
                self.last = 0;
                committed
            }
            other => panic!("a settling is answered {other:?}"),
        }
    }
}
