//! Lanes come and go: with partitions, with subscriptions, with cursors.
//!
//! A group with a subscription has a lane on every durable partition of its queue; a group without one only where it
//! has a cursor.

use alloc::vec::Vec;

use super::Broker;
use super::loads::{Need, Needs};
use super::tables::{GroupIx, LaneIx, PartitionIx, QueueIx};
use crate::log::Question;
use crate::record::Cursor;
use crate::rules::start;

impl Broker {
    /// A new partition: each registered group starts where its record implies.
    pub(super) fn add_implied_lanes(&mut self, partition: PartitionIx) {
        let queue = self.tables.partition(partition).queue;
        let groups: Vec<GroupIx> = self.tables.queue(queue).groups.values().copied().collect();
        for group in groups {
            self.add_implied_lane(partition, group);
        }
    }

    /// A new registration: the group starts where its record implies on every partition it has no cursor on.
    pub(super) fn add_missing_lanes(&mut self, group: GroupIx) {
        let queue = self.tables.group(group).queue;
        for at in 0..self.tables.queue(queue).partitions.len() {
            let partition = self.tables.queue(queue).partitions[at];
            if !self.tables.partition(partition).fresh && self.tables.find_lane(partition, group).is_none() {
                self.add_implied_lane(partition, group);
            }
        }
    }

    fn add_implied_lane(&mut self, partition: PartitionIx, group: GroupIx) {
        if let Some(start) = self.implied_next(partition, group) {
            let lane = self.tables.add_lane(partition, group, Cursor::default(), false);
            self.set_implied(lane, start);
            self.place(lane);
        }
    }

    /// Where a registered group starts on a partition, or what has to be known of the log to tell.
    fn implied_next(&self, partition: PartitionIx, group: GroupIx) -> Option<Result<u64, Question>> {
        let subscription = self.tables.group(group).subscription.as_deref()?;
        let created = self.tables.partition(partition).created;
        Some(self.resolve(start::implied(subscription, created), partition))
    }

    /// Sets a lane to its implied start; one that is not found yet is looked for when somebody asks.
    fn set_implied(&mut self, lane: LaneIx, start: Result<u64, Question>) {
        let log_start = self.tables.partition(self.tables.lane(lane).partition).log_start;
        let next = start.as_ref().map_or(log_start, |next| *next);
        self.tables.set_cursor(lane, Cursor { next, ..Cursor::default() });
        if start.is_err() {
            self.tables.set_unresolved(lane);
        }
    }

    /// Finds a lane's implied start, if that is still open; or says what has to be known for it.
    pub(super) fn resolve_lane(&mut self, lane: LaneIx) -> Option<Need> {
        let row = self.tables.lane(lane);
        let (partition, group) = (row.partition, row.group);
        if !row.unresolved {
            return None;
        }
        match self.implied_next(partition, group) {
            Some(Err(question)) => Some(Need::Of(partition, question)),
            Some(Ok(next)) => {
                self.set_implied(lane, Ok(next));
                self.place(lane);
                None
            }
            None => None,
        }
    }

    /// Finds the implied starts of all lanes of some queues; what has to be known for it otherwise.
    pub(super) fn resolve_lanes(&mut self, queues: &[QueueIx]) -> Needs {
        let mut needs = Needs::new();
        for queue in queues {
            let groups: Vec<GroupIx> = self.tables.queue(*queue).groups.values().copied().collect();
            for group in groups {
                if self.tables.group(group).unresolved == 0 {
                    continue;
                }
                for at in 0..self.tables.queue(*queue).partitions.len() {
                    let lane = self.tables.find_lane(self.tables.queue(*queue).partitions[at], group);
                    needs.extend(lane.and_then(|lane| self.resolve_lane(lane)));
                }
            }
        }
        needs
    }

    /// Messages were appended: a group that starts at a time still to come passes over what is older than that.
    pub(super) fn skip_before_start(&mut self, partition: PartitionIx) {
        let mut next = self.tables.lanes_of(partition).next();
        while let Some(lane) = next {
            let row = self.tables.lane(lane);
            let (group, stored) = (row.group, row.stored || row.writer.is_some());
            next = row.sibling();
            let timed = |it: &crate::record::SubscriptionRecord| {
                it.changed.is_some() || matches!(it.start, crate::record::StartFrom::Time(_))
            };
            if stored || !self.tables.group(group).subscription.as_deref().is_some_and(timed) {
                continue;
            }
            if let Some(Ok(start)) = self.implied_next(partition, group)
                && (self.tables.lane(lane).unresolved || start > self.tables.lane(lane).cursor().next)
            {
                self.set_implied(lane, Ok(start));
            }
        }
    }

    /// A group's registration changed: lanes without a stored cursor start where the new record implies.
    pub(super) fn renew_implied_lanes(&mut self, group: GroupIx) {
        let queue = self.tables.group(group).queue;
        for at in 0..self.tables.queue(queue).partitions.len() {
            let partition = self.tables.queue(queue).partitions[at];
            let Some(lane) = self.tables.find_lane(partition, group) else { continue };
            let row = self.tables.lane(lane);
            if row.stored || row.writer.is_some() {
                continue;
            }
            let Some(start) = self.implied_next(partition, group) else { continue };
            if row.unresolved || start != Ok(row.cursor().next) {
                self.set_implied(lane, start);
                self.place(lane);
            }
        }
    }

    /// A group's registration ended: lanes without a stored cursor go.
    pub(super) fn drop_implied_lanes(&mut self, group: GroupIx) {
        let queue = self.tables.group(group).queue;
        for at in 0..self.tables.queue(queue).partitions.len() {
            let partition = self.tables.queue(queue).partitions[at];
            if let Some(lane) = self.tables.find_lane(partition, group) {
                self.drop_lane_without_reason(lane);
            }
        }
    }

    /// A stored cursor is gone: its lane is back at the implied start, or gone too.
    pub(super) fn forget_cursor(&mut self, lane: LaneIx) {
        let row = self.tables.lane_mut(lane);
        row.stored = false;
        let (partition, group) = (row.partition, row.group);
        match self.implied_next(partition, group) {
            Some(start) => {
                self.set_implied(lane, start);
                self.place(lane);
            }
            None => {
                self.drop_lane_without_reason(lane);
                self.restart_waiters_at(group, partition);
            }
        }
    }

    /// A lane is without a stored cursor again, for the one it was given did not come to be stored. Where its start was not
    /// known yet, what it had in its place is no start.
    pub(super) fn return_to_implied(&mut self, lane: LaneIx) {
        let row = self.tables.lane(lane);
        if row.stored {
            return;
        }
        if let Some(start) = self.implied_next(row.partition, row.group) {
            self.set_implied(lane, start);
        }
    }

    /// Removes a lane that stands for nothing: no stored cursor, no registration.
    pub(super) fn drop_lane_without_reason(&mut self, lane: LaneIx) {
        let row = self.tables.lane(lane);
        let group = row.group;
        if row.stored || row.writer.is_some() || self.tables.group(group).subscription.is_some() {
            return;
        }
        self.unplace(lane);
        self.tables.remove_lane(lane);
        self.tables.tidy_group(group);
    }

    /// Messages were taken back: nobody may stand behind the end.
    pub(super) fn clamp_lanes(&mut self, partition: PartitionIx) {
        let end = self.tables.partition(partition).log.next();
        let lanes: Vec<LaneIx> = self.tables.lanes_of(partition).collect();
        for lane in lanes {
            let cursor = self.tables.lane(lane).cursor();
            if cursor.next > end {
                self.tables.set_cursor(lane, Cursor { next: end, ..cursor });
            }
        }
    }

    /// A queue has ended: everything of it leaves memory, its rows leave the store in steps.
    pub(super) fn end_queue(&mut self, queue: QueueIx) {
        self.release_waiters_of(queue);
        for at in 0..self.tables.queue(queue).partitions.len() {
            let lanes: Vec<LaneIx> = self.tables.lanes_of(self.tables.queue(queue).partitions[at]).collect();
            for lane in lanes {
                self.unplace(lane);
            }
            self.forget_log(self.tables.queue(queue).partitions[at]);
        }
        let record = &self.tables.queue(queue).record;
        self.retention.forget_queue(record.tenant, &record.name);
        self.trims.push_back(record.id);
        self.tables.remove_queue(queue);
    }
}
