//! Which partitions of a group have something to give: each lane stands in exactly one place, and moves when its
//! cursor, its partition, its queue's options or the time change. Nothing is ever scanned for.

use super::Broker;
use super::tables::{LaneIx, PartitionIx, Place, QueueIx};
use crate::rules::visibility::{self, Standing, WindowRule};

impl Broker {
    pub(super) fn window_rule(&self) -> WindowRule {
        WindowRule { hot_list: self.settings.hot_list, batch: self.settings.window_batch }
    }

    /// Puts a lane where it belongs now.
    pub(super) fn place(&mut self, lane: LaneIx) {
        let row = self.tables.lane(lane);
        let (before, group) = (row.place(), row.group);
        let standing = if row.writer.is_some() {
            Standing::Empty
        } else {
            let options = &self.tables.queue(self.tables.partition(row.partition).queue).record.options;
            let durable = self.durable(row.partition);
            // A lane that needs more of its log than is in memory passes for ready; a pop that looks at it asks.
            visibility::standing(&row.cursor(), durable, options, self.window_rule(), self.now.store)
        };
        match (before, standing) {
            (Place::Idle, Standing::Empty) => return,
            (Place::Ready(_), Standing::Ready) => {}
            (_, standing) => {
                self.unplace(lane);
                let after = match standing {
                    Standing::Empty => Place::Idle,
                    Standing::Ready => self.tables.make_ready(lane),
                    Standing::DueAt(at) => {
                        self.timers.set_lane(at, lane);
                        Place::Timed(at)
                    }
                };
                self.tables.lane_mut(lane).set_place(after);
            }
        }
        if standing == Standing::Ready && self.tables.group(group).has_waiters() {
            self.awake().insert(group);
        }
    }

    /// Takes a lane out of its place.
    pub(super) fn unplace(&mut self, lane: LaneIx) {
        let row = self.tables.lane_mut(lane);
        let (place, group) = (row.place(), row.group);
        row.set_place(Place::Idle);
        match place {
            Place::Idle => {}
            Place::Ready(seq) => {
                self.tables.group_mut(group).ready.remove(&seq);
            }
            Place::Timed(at) => self.timers.clear_lane(at, lane),
        }
    }

    /// Places every lane of a partition.
    pub(super) fn place_partition(&mut self, partition: PartitionIx) {
        let mut next = self.tables.lanes_of(partition).next();
        while let Some(lane) = next {
            self.place(lane);
            next = self.tables.lane(lane).sibling();
        }
    }

    /// Places every lane of a queue: an option changed.
    pub(super) fn place_queue(&mut self, queue: QueueIx) {
        for at in 0..self.tables.queue(queue).partitions.len() {
            self.place_partition(self.tables.queue(queue).partitions[at]);
        }
    }
}
