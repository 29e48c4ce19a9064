//! The promises, one file each, judged by the history alone.
//!
//! `shadow` is what the store holds, told from its commits; `open` are the operations under way. A law is a function of
//! both and of one record; it notes what must not be under its own name. Nothing here knows the core or its constants.
//!
//! **A new promise** is a file with such functions, called from `Ledger::record` below.

mod answer;
mod append;
mod content;
mod cursor;
mod dead;
mod empty;
mod open;
mod phase;
mod settle;
mod shadow;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

use crate::history::{Answer, Checker, Event, Findings, Operation, Phase, Record, Terms};
use open::Opened;
use shadow::Shadow;

/// Every checker.
pub fn all(terms: &Terms) -> Vec<Box<dyn Checker>> {
    let mut all: Vec<Box<dyn Checker>> = vec![Box::new(content::Content::new(terms))];
    if terms.commit_log {
        all.push(Box::new(Ledger::new(terms)));
    }
    all
}

/// The laws that need the store's commits.
struct Ledger {
    shadow: Shadow,
    open: Opened,
    phase: phase::Phases,
}

impl Ledger {
    fn new(terms: &Terms) -> Self {
        Ledger { shadow: Shadow::new(terms), open: Opened::default(), phase: phase::Phases::default() }
    }
}

impl Ledger {
    /// Since when nothing has ended that a pop's group may have held.
    fn quiet_since(&self, op: crate::history::OpNo) -> crate::history::At {
        match self.open.call(op).map(|call| &call.operation) {
            Some(Operation::Pop(pop)) => self.open.quiet_since(pop.group),
            _ => 0,
        }
    }
}

impl Checker for Ledger {
    fn name(&self) -> &'static str {
        "ledger"
    }

    fn record(&mut self, place: u32, record: &Record, findings: &mut Findings) {
        self.shadow.at(place, record.at);
        let tenant = self.shadow.tenant_of(record.client);
        match &record.event {
            Event::Invoke(operation) => {
                self.phase.begin(operation);
                self.open.begin(record, place, tenant, operation);
            }
            Event::Commit(commit) => {
                append::law(&self.shadow, &self.open, commit, place, findings);
                cursor::law(&self.shadow, &self.open, commit, place, findings);
                dead::law(&self.shadow, commit, place, findings);
                self.shadow.apply(commit, place, record.at);
                self.shadow.keep(commit, place, record.at);
            }
            Event::Ok(answer) => {
                let quiet = self.quiet_since(record.op);
                let Some(call) = self.open.end(record.op, record.at) else { return };
                if let Answer::Popped(delivery) = answer {
                    self.phase.popped(&call, delivery);
                }
                answer::law(&self.shadow, &self.open, &call, answer, place, findings);
                empty::law(&self.shadow, &self.open, &call, answer, (place, quiet), findings);
            }
            Event::Fail(_) => {
                let Some(call) = self.open.end(record.op, record.at) else { return };
                answer::refused(&self.shadow, &self.open, &call, place, findings);
                self.phase.refused(&call, place, findings);
            }
            Event::Unknown => {
                self.phase.unknown(self.open.call(record.op), place, findings);
                // A read without an answer matters to nobody.
                if self.open.call(record.op).is_some_and(|call| !call.writes()) {
                    self.open.end(record.op, record.at);
                } else {
                    self.open.doubt(record.op);
                }
            }
            Event::Fault(fault) => self.shadow.fault(fault),
            Event::Lost { last } => self.shadow.lose(*last, place),
            Event::Phase(phase) => {
                self.phase.enter(*phase, &self.shadow, &self.open, place, findings);
                if *phase == Phase::Settled {
                    self.open.settle();
                }
            }
            Event::Owner(_) => {}
        }
        if self.open.rewinds() {
            self.shadow.disturb(place);
        }
    }

    fn finish(&mut self, findings: &mut Findings) {
        self.phase.finish(&self.open, findings);
    }
}
