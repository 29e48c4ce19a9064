//! How deep a queue is, for each of its groups: what is taken, what waits, and what for.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::Broker;
use super::loads::{Need, Needs};
use super::tables::{PartitionIx, QueueIx};
use crate::log::Question;
use crate::name::{GroupName, QueueName, TenantId};
use crate::reply::{GroupDepth, QueueDepth};
use crate::time::{Span, Timestamp};

impl Broker {
    /// Commit times: of what may still be delayed, and of the first message that each group has not committed.
    pub(super) fn depth_needs(&self, queues: &[QueueIx]) -> Needs {
        let mut needs = Needs::new();
        for queue in queues {
            for ix in self.durable_partitions(*queue) {
                let partition = self.tables.partition(ix);
                let range = partition.log_start..partition.end;
                if range.is_empty() {
                    continue;
                }
                if let Some(due) = self.delayed_after(*queue)
                    && !self.view(ix).tells_times(range.clone(), due.next())
                {
                    needs.push(Need::Of(ix, Question::times(due.next(), range.start, range.end)));
                }
                let starts = self.tables.lanes_of(ix).map(|lane| self.tables.lane(lane).cursor().next);
                for first in starts.chain([range.start]).map(|next| next.max(range.start)) {
                    if first < range.end {
                        needs.extend(self.known_time(ix, first).err());
                    }
                }
            }
        }
        needs
    }

    /// What was committed later than this is delayed; none where the queue delays nothing.
    fn delayed_after(&self, queue: QueueIx) -> Option<Timestamp> {
        let delay = Span::from_secs(self.tables.queue(queue).record.options.delayed_processing);
        delay.is_positive().then(|| self.now.store.minus(delay))
    }

    pub(super) fn queue_depth(&self, tenant: TenantId, name: &QueueName) -> Option<QueueDepth> {
        let queue = self.tables.find_queue(tenant, name).filter(|queue| self.tables.queue(*queue).fresh.is_none())?;
        let mut groups: BTreeMap<GroupName, GroupDepth> = BTreeMap::new();
        for group in self.tables.queue(queue).groups.values() {
            let group = self.tables.group(*group);
            // Somebody who waits for a first message is no group yet.
            if group.subscription.is_some() || group.lanes > 0 {
                groups.insert(group.name.clone(), GroupDepth::of(group.name.clone()));
            }
        }
        let mut depth = QueueDepth { total: 0, delayed: 0, dead: 0, oldest: None, groups: Vec::new() };
        for ix in self.durable_partitions(queue) {
            let partition = self.tables.partition(ix);
            let range = partition.log_start..partition.end;
            let due = self.delayed_after(queue).map_or(range.end, |due| self.view(ix).end_at(range.clone(), due));
            depth.total += range.end - range.start;
            depth.delayed += range.end - due;
            depth.oldest = depth.oldest.max(self.age(ix, range.start));
            for dead in self.tables.dead_of(ix) {
                depth.dead += 1;
                let group = &dead.head.group;
                groups.entry(group.clone()).or_insert_with(|| GroupDepth::of(group.clone())).dead += 1;
            }
            for lane in self.tables.lanes_of(ix) {
                let row = self.tables.lane(lane);
                let cursor = row.cursor();
                let Some(group) = groups.get_mut(&self.tables.group(row.group).name) else { continue };
                let first = cursor.next.max(range.start);
                let lease = cursor.lease.filter(|lease| lease.lives(self.now.store));
                let free = lease.map_or(first, |lease| lease.end.clamp(first, range.end.max(first)));
                group.leased += free - first;
                group.pending += due.saturating_sub(free);
                group.delayed += range.end.saturating_sub(free.max(due));
                group.oldest = group.oldest.max(self.age(ix, first));
            }
        }
        depth.groups = groups.into_values().collect();
        Some(depth)
    }

    /// The age of a message; none where it is not there.
    fn age(&self, ix: PartitionIx, offset: u64) -> Option<Span> {
        let there = offset < self.tables.partition(ix).end;
        let created = there.then(|| self.time_of(ix, offset)).flatten()?;
        Some(self.now.store.since(created).max(Span::ZERO))
    }
}

impl GroupDepth {
    fn of(group: GroupName) -> Self {
        GroupDepth { group, pending: 0, leased: 0, delayed: 0, dead: 0, oldest: None }
    }
}
