//! Every reason anything wakes, in order.

use alloc::collections::BTreeSet;

use super::Broker;
use super::tables::LaneIx;
use crate::store::CommitNo;
use crate::time::{Moment, Now, Timestamp};

/// A reason to wake at a monotonic moment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Alarm {
    /// A long poll's wait runs out.
    Wait(u64),
    /// A held pop has waited long enough for more messages.
    Hold(u64),
    /// The messages of a pop that committed on delivery are asked for again.
    Read(u64),
    /// A request for logs that failed is made again.
    Logs(u64),
    /// The queues' records are looked at.
    Refresh(u64),
    /// A minute is over: what happened in it is written down.
    Minute(u64),
    /// Retention goes on, or begins a cycle.
    Retention(u64),
    /// A commit's callers have waited long enough for its outcome.
    Overdue(CommitNo),
}

/// Everything that waits for a time.
#[derive(Default)]
pub struct Timers {
    /// Leases that expire, delays and windows that become due: store time.
    lanes: BTreeSet<(Timestamp, LaneIx)>,
    alarms: BTreeSet<(Moment, Alarm)>,
    /// When the slot wants attention: a renewal, a retry, a look at its owner.
    pub slot: Option<Moment>,
    /// When waiting work may have waited too long.
    sweep: Option<Moment>,
}

impl Timers {
    /// Wakes `lane` at store time `at`.
    pub fn set_lane(&mut self, at: Timestamp, lane: LaneIx) {
        self.lanes.insert((at, lane));
    }

    /// Forgets that wake-up.
    pub fn clear_lane(&mut self, at: Timestamp, lane: LaneIx) {
        self.lanes.remove(&(at, lane));
    }

    /// Forgets all lanes.
    pub fn clear_lanes(&mut self) {
        self.lanes.clear();
    }

    /// Sets an alarm.
    pub fn set(&mut self, at: Moment, alarm: Alarm) {
        self.alarms.insert((at, alarm));
    }

    /// Forgets an alarm.
    pub fn clear(&mut self, at: Moment, alarm: Alarm) {
        self.alarms.remove(&(at, alarm));
    }

    /// Looks for stale work at `at`, if not earlier.
    pub fn set_sweep(&mut self, at: Moment) {
        self.sweep = Some(self.sweep.map_or(at, |earlier| earlier.min(at)));
    }

    /// The earliest of all, in monotonic time.
    pub fn deadline(&self, now: Now) -> Option<Moment> {
        plant!(DeadlineForgetsLanes => return [self.alarms.first().map(|(at, _)| *at), self.slot, self.sweep].into_iter().flatten().min());
        let lane = self.lanes.first().map(|(at, _)| now.monotonic.plus(at.since(now.store)));
        let alarm = self.alarms.first().map(|(at, _)| *at);
        [lane, alarm, self.slot, self.sweep].into_iter().flatten().min()
    }
}

impl Broker {
    /// Runs all that is due: lanes first, so that a message which becomes due with the end of a wait is still given.
    pub(super) fn run_timers(&mut self) {
        let now = self.now;
        while let Some(&(at, lane)) = self.timers.lanes.first() {
            if at > now.store {
                break;
            }
            self.place(lane);
            self.lose_wakes_of_timer(lane);
        }
        self.serve();
        while let Some(&(at, alarm)) = self.timers.alarms.first() {
            if at > now.monotonic {
                break;
            }
            self.timers.alarms.remove(&(at, alarm));
            match alarm {
                Alarm::Wait(seq) => self.wait_over(seq),
                Alarm::Hold(seq) => self.hold_over(seq),
                Alarm::Read(delivery) => self.read_delivery(delivery),
                Alarm::Refresh(number) => self.refresh(number),
                Alarm::Minute(number) => self.minute_over(number),
                Alarm::Retention(number) => self.retention_due(number),
                Alarm::Logs(number) => self.retry_logs(number),
                Alarm::Overdue(number) => self.commit_overdue(number),
            }
        }
        if self.timers.slot.is_some_and(|at| at <= now.monotonic) {
            self.timers.slot = None;
            self.slot_alarm();
        }
        if self.timers.sweep.is_some_and(|at| at <= now.monotonic) {
            self.timers.sweep = None;
            self.sweep();
        }
    }
}
