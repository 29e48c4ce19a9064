//! Without faults everything is answered, and in the end everybody has been given everything (S1, L1, L4 to L7).

use super::open::{Call, Opened};
use super::shadow::Shadow;
use crate::history::{Findings, Phase};

/// The phase of the run.
#[derive(Default)]
pub struct Phases {
    now: Option<Phase>,
}

impl Phases {
    pub fn enter(&mut self, phase: Phase, shadow: &Shadow, open: &Opened, place: u32, findings: &mut Findings) {
        self.now = Some(phase);
        match phase {
            Phase::Settled => {
                if let Some(call) = open.iter().find(|call| !call.doubtful) {
                    findings.violate("answered", place, || format!("operation {} is never answered", call.op.0));
                }
            }
            Phase::Drained => drained(shadow, place, findings),
            Phase::Storm | Phase::Healed | Phase::Draining => {}
        }
    }

    fn calm(&self) -> bool {
        self.now.is_some_and(|phase| phase >= Phase::Settled)
    }

    pub fn refused(&self, call: &Call, place: u32, findings: &mut Findings) {
        if self.calm() {
            findings.violate("answered", place, || format!("operation {} is refused, and no fault is left", call.op.0));
        }
    }

    pub fn unknown(&self, call: Option<&Call>, place: u32, findings: &mut Findings) {
        if let Some(call) = call.filter(|_| self.calm()) {
            findings.violate("answered", place, || format!("the outcome of operation {} is unknown, and no fault is left", call.op.0));
        }
    }

    pub fn finish(&self, open: &Opened, findings: &mut Findings) {
        if self.now == Some(Phase::Drained)
            && let Some(call) = open.iter().next()
        {
            findings.violate("answered", u32::MAX, || format!("operation {} is never answered", call.op.0));
        }
    }
}

/// Every group that is registered, or has a cursor, stands at the end of every log.
fn drained(shadow: &Shadow, place: u32, findings: &mut Findings) {
    for queue in shadow.queues.iter().flatten().filter(|queue| !queue.ended) {
        for row in queue.partitions.iter().filter_map(|it| shadow.partition(*it)) {
            let stored = row.cursors.iter().map(|(group, cursor)| (*group, cursor.next));
            let implied = queue.subscriptions.iter().filter(|it| row.cursor(it.group).is_none());
            let implied = implied.filter_map(|it| Some((it.group, row.implied(it, shadow.terms.queue_mode)?)));
            for (group, next) in stored.chain(implied) {
                if next < row.end() {
                    findings.violate("drained", place, || {
                        format!("group {} stands at {next} of {} on lane {}, and nothing more comes", group.0, row.end(), row.lane.0)
                    });
                }
            }
        }
    }
}
