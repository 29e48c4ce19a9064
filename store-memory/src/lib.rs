//! The store port in memory: what a real store promises, without one. For local use, tests and simulation.
//!
//! `ownership` says who may write, `apply` writes, `load` and `tables` read, `trim` removes, `packed` holds messages.
//! Nothing happens in the background and nothing depends on a clock or on chance: the same requests give the same
//! answers. A commit cannot fail for lack of space; one that contradicts what is stored changes nothing.

mod apply;
mod groups;
mod load;
mod operations;
mod ownership;
mod packed;
mod tables;
mod trim;

use std::collections::BTreeMap;

use tidegate_core::message::SegmentSlice;
use tidegate_core::store::{
    Commit, CommitKey, Extent, ExtentRead, Fence, LoadPosition, LogPage, LogRead, SegmentRead, Slot, StoreReply,
    StoreRequest, Token,
};
use tidegate_core::time::Timestamp;

use crate::apply::corrupt;
use crate::ownership::Ownership;
use crate::tables::Tables;

/// A store in memory. A clone is an independent store with the same content; it shares the messages' bytes.
#[derive(Clone, Default)]
pub struct MemoryStore {
    slots: BTreeMap<Slot, SlotStore>,
}

/// One slot: its owner and its rows.
#[derive(Clone, Default)]
struct SlotStore {
    ownership: Ownership,
    tables: Tables,
    /// The latest time of any commit.
    latest: Option<Timestamp>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Carries out a request. The time is the caller's to put into the answer; the store itself writes none down.
    pub fn call(&mut self, _now: Timestamp, request: StoreRequest) -> StoreReply {
        match request {
            StoreRequest::Watch(slot) => StoreReply::Watched(self.slot(slot).ownership.view()),
            StoreRequest::Take { slot, seen, token, owner } => {
                let ownership = &mut self.slot(slot).ownership;
                match ownership.take(seen, token, owner) {
                    Some(epoch) => StoreReply::Taken(epoch),
                    None => StoreReply::Watched(ownership.view()),
                }
            }
            StoreRequest::Renew { fence, acknowledged } => self.fenced(&fence, |slot| slot.renew(&acknowledged)),
            StoreRequest::Release(fence) => self.fenced(&fence, |slot| {
                slot.ownership.release();
                StoreReply::Released
            }),
            StoreRequest::Commit(commit) => {
                let fence = commit.fence;
                self.fenced(&fence, |slot| slot.commit(commit))
            }
            StoreRequest::Settle { fence, token, unknown } => self.fenced(&fence, |slot| slot.settle(token, &unknown)),
            StoreRequest::Load { slot, after } => self.slot(slot).load(after),
            StoreRequest::LoadQueues { slot, after } => {
                let (queues, next) = self.slot(slot).tables.load_queue_records(after);
                StoreReply::Queues { queues, next }
            }
            StoreRequest::LoadLogs(reads) => StoreReply::Logs(reads.iter().map(|read| self.load_log(read)).collect()),
            StoreRequest::Read(reads) => StoreReply::Segments(reads.iter().map(|read| self.read(read)).collect()),
            StoreRequest::ReadDeadLetters(ids) => {
                let find = |id| self.slots.values().find_map(|slot| slot.tables.dead_letter(id)).cloned();
                StoreReply::DeadLetters(ids.into_iter().map(find).collect())
            }
            StoreRequest::ReadTraces { slot, tenant, of } => self.slot(slot).tables.operations.read_traces(tenant, of),
            StoreRequest::ReadTraceNames { slot, tenant, limit, offset } => {
                self.slot(slot).tables.operations.read_trace_names(tenant, limit, offset)
            }
            StoreRequest::ReadActivity { slot, tenant, queue, from, until, bucket } => {
                self.slot(slot).tables.operations.read_activity(tenant, queue, (from, until), bucket)
            }
            StoreRequest::Trim { fence, queue, limit } => self.fenced(&fence, |slot| {
                slot.tables.trim(queue, limit).map_or_else(StoreReply::Failed, |more| StoreReply::Trimmed { more })
            }),
            StoreRequest::LoadExtents { reads, limit } => StoreReply::Extents(self.load_extents(&reads, limit)),
            StoreRequest::TrimLogs { fence, partitions, limit } => {
                self.fenced(&fence, |slot| StoreReply::Trimmed { more: slot.tables.trim_logs(&partitions, limit) })
            }
            StoreRequest::LoadHistory { slot, tenant, since, until } => {
                StoreReply::History(self.slot(slot).tables.load_history(tenant, since, until))
            }
            StoreRequest::TrimHistory { fence, before, limit } => {
                self.fenced(&fence, |slot| StoreReply::Trimmed { more: slot.tables.trim_history(before, limit) })
            }
            StoreRequest::Ping => StoreReply::Pong,
        }
    }

    fn slot(&mut self, slot: Slot) -> &mut SlotStore {
        self.slots.entry(slot).or_default()
    }

    fn fenced(&mut self, fence: &Fence, act: impl FnOnce(&mut SlotStore) -> StoreReply) -> StoreReply {
        let slot = self.slot(fence.slot);
        if slot.ownership.admits(fence) { act(slot) } else { StoreReply::Fenced }
    }

    fn load_log(&self, read: &LogRead) -> LogPage {
        self.slots.values().find_map(|slot| slot.tables.load_log(read)).unwrap_or_default()
    }

    fn load_extents(&self, reads: &[ExtentRead], limit: u32) -> Vec<Vec<Extent>> {
        let mut left = limit as usize;
        let of = |read: &ExtentRead| {
            let found = self.slots.values().find_map(|slot| slot.tables.load_extents(read, left)).unwrap_or_default();
            left -= found.len();
            found
        };
        reads.iter().map(of).collect()
    }

    /// A read does not say its slot; partition ids are unique in all of them.
    fn read(&self, read: &SegmentRead) -> Vec<SegmentSlice> {
        self.slots.values().find_map(|slot| slot.tables.read(read)).unwrap_or_default()
    }
}

impl SlotStore {
    fn load(&self, after: Option<LoadPosition>) -> StoreReply {
        let (records, next) = self.tables.load(after);
        StoreReply::Page { records, next, latest: self.latest }
    }

    fn renew(&mut self, acknowledged: &[Option<CommitKey>; 2]) -> StoreReply {
        if !self.ownership.commits.confirm(acknowledged) {
            return StoreReply::SuffixLost;
        }
        self.ownership.renew();
        StoreReply::Renewed
    }

    fn commit(&mut self, commit: Commit) -> StoreReply {
        let Commit { fence, number, time, acknowledged, writes } = commit;
        let key = CommitKey { epoch: fence.epoch, number };
        if !self.ownership.commits.confirm(&acknowledged) {
            return StoreReply::SuffixLost;
        }
        if self.ownership.commits.holds(key) {
            return StoreReply::Failed(corrupt(format!(
                "commit {} of epoch {} is there already",
                number.0, fence.epoch.0
            )));
        }
        match self.tables.apply(writes) {
            Ok(()) => {
                self.ownership.commits.note(key);
                self.latest = self.latest.max(Some(time));
                StoreReply::Committed
            }
            Err(error) => StoreReply::Failed(error),
        }
    }

    fn settle(&mut self, token: Token, unknown: &[CommitKey]) -> StoreReply {
        let epoch = self.ownership.raise(token);
        let committed = unknown.iter().map(|key| self.ownership.commits.holds(*key)).collect();
        StoreReply::Settled { epoch, committed }
    }
}

#[cfg(feature = "testkit")]
impl tidegate_core::testkit::Store for MemoryStore {
    fn call(&mut self, now: Timestamp, request: StoreRequest) -> StoreReply {
        MemoryStore::call(self, now, request)
    }
}
