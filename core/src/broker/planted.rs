//! Wrong things that take more than a line (`plant`): nothing here does anything in a build without the feature `plants`.

use alloc::vec::Vec;

use super::Broker;
use super::tables::{LaneIx, QueueIx};
use crate::record::{Cursor, Lease};

impl Broker {
    /// After a cursor's change is durable: what it made deliverable wakes nobody.
    pub(super) fn lose_wakes_of_cursor(&mut self, lane: LaneIx, before: &Cursor) {
        plant!(WakeLostOnAck => self.lose_wake_if(lane, |after| before.lease.is_some() && after.next > before.next));
        plant!(WakeLostOnNack => self.lose_wake_if(lane, |after| {
            before.lease.is_some() && after.lease.is_none() && after.next == before.next
        }));
        plant!(WakeLostOnSeek => self.lose_wake_if(lane, |after| after.next < before.next));
    }

    /// After a lane's time came: it wakes nobody.
    pub(super) fn lose_wakes_of_timer(&mut self, lane: LaneIx) {
        plant!(WakeLostOnLeaseEnd => self.lose_wake_if(lane, |cursor| cursor.lease.is_some()));
        plant!(WakeLostOnDue => self.lose_wake_if(lane, |cursor| cursor.lease.is_none()));
    }

    fn lose_wake_if(&mut self, lane: LaneIx, lost: impl FnOnce(&Cursor) -> bool) {
        let row = self.tables.lane(lane);
        let (group, cursor) = (row.group, row.cursor());
        if lost(&cursor) {
            self.waiters.awake.remove(&group);
        }
    }

    /// Moves every other group of the partition to where `lane` is.
    pub(super) fn move_others_along(&mut self, lane: LaneIx) {
        let next = self.tables.lane(lane).cursor().next;
        let others: Vec<LaneIx> = self.tables.lanes_of(self.tables.lane(lane).partition).collect();
        for other in others {
            let row = self.tables.lane(other);
            let cursor = row.cursor();
            if row.writer.is_none() && row.stored && cursor.next < next {
                self.write_cursor(other, Cursor { next, ..cursor });
            }
        }
    }

    /// Gives every lease on a queue the length that its options have now.
    pub(super) fn shorten_leases(&mut self, queue: QueueIx) {
        let length = self.tables.queue(queue).record.options.lease(None);
        let expires = self.now.store.plus(length);
        for at in 0..self.tables.queue(queue).partitions.len() {
            let lanes: Vec<LaneIx> = self.tables.lanes_of(self.tables.queue(queue).partitions[at]).collect();
            for lane in lanes {
                let cursor = self.tables.lane(lane).cursor();
                if let Some(lease) = cursor.lease.filter(|lease| lease.lives(self.now.store)) {
                    self.tables.set_cursor(lane, Cursor { lease: Some(Lease { expires, ..lease }), ..cursor });
                    self.place(lane);
                }
            }
        }
    }
}
