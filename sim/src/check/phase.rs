//! Without faults everything is answered, and in the end everybody has been given everything (S1, L1, L4 to L7).

use super::open::{Call, Opened};
use super::shadow::Shadow;
use hashbrown::HashSet;

use crate::history::{Delivery, Findings, GroupNo, MessageNo, Operation, Phase, QueueNo, Scope, Spread};

/// The phase of the run.
#[derive(Default)]
pub struct Phases {
    now: Option<Phase>,
    /// When faults ended.
    healed: u32,
    /// Who reads to the end, and of what.
    drains: Vec<(QueueNo, GroupNo)>,
    /// What each of them was given on the way.
    given: HashSet<(GroupNo, MessageNo), Spread>,
}

impl Phases {
    pub fn enter(&mut self, phase: Phase, shadow: &Shadow, open: &Opened, place: u32, findings: &mut Findings) {
        self.now = Some(phase);
        match phase {
            Phase::Healed => self.healed = place,
            Phase::Settled => {
                if let Some(call) = open.iter().find(|call| !call.doubtful && call.place > self.healed) {
                    findings.violate("answered", place, || format!("operation {} is never answered", call.op.0));
                }
            }
            Phase::Drained => self.drained(shadow, place, findings),
            Phase::Storm | Phase::Draining => {}
        }
    }

    pub fn begin(&mut self, operation: &Operation) {
        if self.now == Some(Phase::Draining)
            && let Operation::Pop(pop) = operation
            && let Scope::Queue(queue) = pop.scope
            && !self.drains.contains(&(queue, pop.group))
        {
            self.drains.push((queue, pop.group));
        }
    }

    /// A pop was answered.
    pub fn popped(&mut self, call: &Call, delivery: &Delivery) {
        if self.now == Some(Phase::Draining)
            && let Operation::Pop(pop) = &call.operation
        {
            self.given.extend(delivery.messages.iter().map(|it| (pop.group, it.message)));
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
            findings.violate("answered", place, || {
                format!("the outcome of operation {} is unknown, and no fault is left", call.op.0)
            });
        }
    }

    pub fn finish(&self, open: &Opened, findings: &mut Findings) {
        if self.now == Some(Phase::Drained)
            && let Some(call) = open.iter().next()
        {
            findings.violate("answered", u32::MAX, || format!("operation {} is never answered", call.op.0));
        }
    }

    /// Every group that reads to the end stands at the end of every log.
    fn drained(&self, shadow: &Shadow, place: u32, findings: &mut Findings) {
        for queue in shadow.queues.iter().flatten().filter(|queue| !queue.ended) {
            for row in queue.partitions.iter().filter_map(|it| shadow.partition(*it)) {
                // Under a lease that lives nobody else is given anything.
                let free = |it: &&(GroupNo, super::shadow::Cursor)| {
                    it.1.lease.is_none_or(|it| it.expires < shadow.earliest(shadow.now))
                };
                let stored = row.cursors.iter().filter(free).map(|(group, cursor)| (*group, cursor.next));
                let implied = queue.subscriptions.iter().filter(|it| row.cursor(it.group).is_none());
                let implied = implied.filter_map(|it| Some((it.group, row.implied(it, shadow.terms.queue_mode)?)));
                for (group, next) in stored.chain(implied) {
                    if !self.drains.contains(&(queue.name, group)) {
                        continue;
                    }
                    // What cannot be acked any more, for its id is forgotten, comes again and again (OPT-26).
                    let left = row.log.get(next as usize..).unwrap_or_default();
                    if let Some(left) = left.iter().find(|it| !self.given.contains(&(group, it.message))) {
                        let (group, left, lane) = (group.0, left.message.0, row.lane.0);
                        findings.violate("drained", place, || {
                            format!("group {group} is not given message {left} on lane {lane}, and nothing more comes")
                        });
                    }
                }
            }
        }
    }
}
