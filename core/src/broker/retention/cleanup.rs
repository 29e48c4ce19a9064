//! Partitions that nobody uses any more go, with their cursors (23.5): those without a message whose last one came long
//! ago, without a dead letter, a live lease or anybody who waits there.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::broker::Broker;
use crate::broker::commit::{Change, Done};
use crate::broker::tables::{GroupIx, LaneIx, PartitionIx, QueueIx};
use crate::limits::{CLEAN_UP_INTERVAL, MAX_STEP_PARTITIONS};
use crate::store::Write;

impl Broker {
    /// Whether unused partitions were found, and it is long enough since any were removed.
    pub(super) fn clean_up_due(&self) -> bool {
        let last = self.retention.cleaned;
        !self.retention.idle.is_empty() && last.is_none_or(|last| self.now.monotonic >= last.plus(CLEAN_UP_INTERVAL))
    }

    /// Whether a partition is of no use to anybody, as far as it is known without waiting for anything.
    pub(super) fn is_unused(&self, ix: PartitionIx) -> bool {
        let Some(age) = self.settings.partition_idle else { return false };
        let row = self.tables.partition(ix);
        let Some(kept) = self.tables.queue(row.queue).trimmed.get(&ix).map(|it| it.trimmed) else { return false };
        let quiet_since = row.log.last().max(kept.last).unwrap_or(row.created).max(row.created);
        row.log_start == row.end
            && row.log.next() == row.end
            && kept.hash_start == row.log_start
            && quiet_since < self.now.store.minus(age)
            && !self.retention.untrimmed.contains(&row.id)
            && self.tables.dead_count(ix) == 0
            && self.tables.lanes_of(ix).all(|lane| {
                let lane = self.tables.lane(lane);
                let leased = lane.lease().is_some_and(|lease| lease.lives(self.now.store));
                lane.writer.is_none() && !leased
            })
    }

    fn is_waited_at(&self, ix: PartitionIx) -> bool {
        let queue = self.tables.queue(self.tables.partition(ix).queue);
        queue.groups.values().any(|group| self.tables.group(*group).partition_waiters.contains_key(&ix))
    }

    /// Removes unused partitions with a commit of their own. Nothing is open, so nobody is about to use one.
    pub(in crate::broker) fn run_clean_up(&mut self, number: u64) {
        if number != self.retention.number {
            return;
        }
        self.retention.cleaned = Some(self.now.monotonic);
        let mut by_queue: BTreeMap<QueueIx, Vec<PartitionIx>> = BTreeMap::new();
        for id in core::mem::take(&mut self.retention.idle).into_iter().take(MAX_STEP_PARTITIONS) {
            let found = self.tables.partition_by_id(id);
            if let Some(ix) = found.filter(|ix| self.is_unused(*ix) && !self.is_waited_at(*ix)) {
                by_queue.entry(self.tables.partition(ix).queue).or_default().push(ix);
            }
        }
        if by_queue.is_empty() {
            return self.end_retention();
        }
        for (queue, partitions) in by_queue {
            let ids: Vec<_> = partitions.iter().map(|ix| self.tables.partition(*ix).id).collect();
            let (_, draft) = self.commits.draft();
            ids.into_iter().for_each(|id| draft.write(Write::DropPartition(id)));
            draft.change(Change::DropPartitions(queue, partitions));
        }
        self.commits.make_exclusive();
        self.commits.draft().1.tell(Done::Retention(number));
    }

    /// Partitions are gone: so is what memory held of them.
    pub(in crate::broker) fn keep_dropped(&mut self, queue: QueueIx, partitions: Vec<PartitionIx>) {
        self.counters.partitions_cleaned += partitions.len() as u64;
        for ix in &partitions {
            let lanes: Vec<LaneIx> = self.tables.lanes_of(*ix).collect();
            let groups: Vec<GroupIx> = lanes.iter().map(|lane| self.tables.lane(*lane).group).collect();
            for lane in lanes {
                self.unplace(lane);
                self.tables.remove_lane(lane);
            }
            groups.into_iter().for_each(|group| self.tables.tidy_group(group));
            self.forget_log(*ix);
        }
        self.tables.remove_partitions(queue, &partitions);
    }
}
