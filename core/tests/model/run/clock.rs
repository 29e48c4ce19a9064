//! How time passes: from deadline to deadline, or in leaps.

use tidegate_core::command::Command;
use tidegate_core::time::Moment;

use super::super::commands::Wait;
use super::super::spec::Wrong;
use super::slot::LAPSE;
use super::{Call, PATIENCE, Run, moment};

/// How long a broker in trouble is walked with before the clock leaps.
const RECOVERY: u64 = 10_000_000;
/// Steps of the clock up to this length go from deadline to deadline; longer ones leap like a suspended machine.
const STRIDE: u64 = 5_000_000;

impl Run {
    pub(super) fn note_instant(&mut self) {
        let now = self.now().store;
        for call in self.calls.values_mut() {
            if call.instants.last() != Some(&now) {
                call.instants.push(now);
            }
        }
    }

    pub(super) fn tick(&mut self) -> Result<(), Wrong> {
        self.pump()?;
        let mut ticks = 0;
        while self.broker.deadline().is_some_and(|deadline| deadline.as_micros() <= self.at) {
            ticks += 1;
            if ticks > 50 {
                return Err(format!("the deadline stands still at {:?}", self.broker.deadline()));
            }
            self.note_instant();
            let now = self.now();
            self.broker.tick(now);
            self.pump()?;
        }
        self.judge()
    }

    /// Lets time pass up to a moment.
    pub(super) fn advance(&mut self, to: u64) -> Result<(), Wrong> {
        let mut walked = 0;
        loop {
            // After trouble the broker gets some time to recover before the clock leaps.
            let leaping = to - self.at > STRIDE && (walked > RECOVERY || !self.troubled());
            let mut next = to;
            let waits = self.calls.values().any(|call| call.deadline.is_some());
            let mut stop = |moment: Option<u64>| {
                if let Some(moment) = moment.filter(|&moment| moment > self.at) {
                    next = next.min(moment);
                }
            };
            stop(self.store.next().map(moment));
            stop(self.stranger.as_ref().map(|stranger| stranger.until.min(stranger.beat)));
            for call in self.calls.values() {
                stop(call.deadline);
            }
            if waits {
                for state in &self.states {
                    for edge in state.edges(self.clock.at(Moment::from_micros(self.at))) {
                        stop(Some(moment(edge)));
                    }
                }
                for call in self.calls.values() {
                    stop(self.hold_ends(call));
                }
            }
            if !leaping {
                stop(self.broker.deadline().map(Moment::as_micros));
            }
            walked += next - self.at;
            if next >= self.proven + LAPSE {
                // Like a machine that was suspended: what comes due meanwhile finds a broker that must renew first.
                self.calls.values_mut().for_each(|call| call.excused = true);
            }
            self.at = next;
            self.stranger_acts();
            self.tick()?;
            if self.at >= to {
                return Ok(());
            }
        }
    }

    /// When a held pop must be served with what there is.
    pub(super) fn hold_ends(&self, call: &Call) -> Option<u64> {
        let Command::Pop(pop) = &call.command else { return None };
        let hold = self.states.first()?.fill_wait(call.tenant, pop)?;
        Some(call.hold.since? + hold)
    }

    pub(super) fn wait(&mut self, wait: Wait) -> Result<(), Wrong> {
        let beside = |moment: u64, by: i8| moment.saturating_add_signed(i64::from(by)).max(self.at);
        let to = match wait {
            Wait::Micros(us) => self.at + u64::from(us),
            Wait::Millis(ms) => self.at + u64::from(ms) * 1_000,
            Wait::Hours(hours) => self.at + u64::from(hours) * 3_600_000_000,
            Wait::Edge(n, by) => {
                let edges = self.states[0].edges(self.now().store);
                match edges.get(usize::from(n) % edges.len().max(1)) {
                    Some(edge) => beside(moment(*edge), by),
                    None => self.at,
                }
            }
            Wait::Deadline(n, by) => {
                let deadlines: Vec<u64> = self.calls.values().filter_map(|call| call.deadline).collect();
                match deadlines.get(usize::from(n) % deadlines.len().max(1)) {
                    Some(&deadline) => beside(deadline, by),
                    None => self.at,
                }
            }
        };
        self.advance(to)
    }

    /// Lets time pass until something holds.
    pub(super) fn until(&mut self, what: &str, mut done: impl FnMut(&mut Run) -> bool) -> Result<(), Wrong> {
        let end = self.at + PATIENCE;
        while !done(self) {
            if self.at >= end {
                return Err(format!("{what}, and still not after {} s", PATIENCE / 1_000_000));
            }
            let mut next = end.min(self.at + 1_000_000);
            let arrivals = [self.store.next().map(moment), self.broker.deadline().map(Moment::as_micros)];
            for moment in arrivals.into_iter().flatten().filter(|&moment| moment > self.at) {
                next = next.min(moment);
            }
            self.advance(next)?;
        }
        Ok(())
    }
}
