//! Long polls: when they must be answered, when they may be, and what they do while they wait.

use tidegate_core::command::{Command, Pop, PopScope, RequestId};
use tidegate_core::name::LeaseId;
use tidegate_core::reply::Reply;
use tidegate_core::time::{Moment, Timestamp};

use super::super::spec::{Model, Told, Wrong};
use super::{Call, Hold, Run, distinct, instants};

/// A state in which a pop claimed, with what it claimed given back.
fn given_back(after: &Model, before: &Model, pop: &Pop) -> Model {
    let mut after = after.clone();
    let held = |model: &Model| -> Vec<LeaseId> {
        let partitions = model.queues.iter().flat_map(|queue| &queue.partitions);
        partitions.filter_map(|one| Some(one.cursors.get(&pop.group)?.lease.as_ref()?.id)).collect()
    };
    let old = held(before);
    for lease in held(&after) {
        if !old.contains(&lease) {
            after.give_back(&pop.group, lease);
        }
    }
    after
}

impl Run {
    /// A parked client goes away.
    pub(super) fn leave(&mut self, id: RequestId) -> Result<(), Wrong> {
        let Some(call) = self.calls.remove(&id) else { return Ok(()) };
        let in_flight = !self.at_rest();
        self.broker.gone(self.now(), id);
        if in_flight {
            self.orphan(&call);
        }
        self.tick()
    }

    /// Nobody will ever know what became of a call: it may have happened or not.
    pub(super) fn orphan(&mut self, call: &Call) {
        let peek = self.log.since(call.mark).contacts_since(call.contact).some_time_ago();
        let mut states = Vec::new();
        for state in &self.states {
            if let Some(abandoned) = state.abandon_early(call.id, &call.command) {
                states.extend(abandoned);
                continue;
            }
            states.push(state.clone());
            for &time in instants(call, self.now().store).iter() {
                let Ok(next) = state.apply(time, call.tenant, &call.command, &Told::Nothing, &peek) else { continue };
                for next in next {
                    if let (Command::Pop(pop), false) = (&call.command, states.contains(&next)) {
                        states.push(given_back(&next, state, pop));
                    }
                    states.push(next);
                }
            }
            if let Command::Pop(pop) = &call.command {
                states.extend(state.contacts(self.now().store, call.tenant, pop, &peek));
            }
        }
        self.states = distinct(states);
    }

    /// A long poll ended empty.
    pub(super) fn explain_timeout(
        &self,
        state: &Model,
        call: &Call,
        pop: &Pop,
        deadline: u64,
    ) -> Result<Vec<Model>, Wrong> {
        let now = self.clock.at(Moment::from_micros(self.at));
        let deleted = match &pop.scope {
            PopScope::Queue(queue) | PopScope::Partition(queue, _) => {
                self.deleting.iter().any(|(tenant, name)| *tenant == call.tenant && name == queue)
            }
            PopScope::Labels(_) => false,
        };
        if deleted && self.at < deadline {
            return Ok(state.contacts(now, call.tenant, pop, &self.log.since(call.contact)));
        }
        // What it had claimed and could not read yet went with its queue.
        let bereft = call.bereft && (call.excused || call.beside_others);
        if self.at < deadline && !self.draining && !bereft {
            return Err("a long poll ended empty before its time".to_owned());
        }
        let held = call.hold.since.is_some() && !call.hold.loose && !call.beside_others;
        let held = held && !call.excused && !self.draining;
        if held && !state.deliverable(now, call.tenant, pop).is_empty() {
            return Err("a held pop ended empty, and there are messages for it".to_owned());
        }
        let states = state.contacts(now, call.tenant, pop, &self.log.since(call.contact));
        if states.is_empty() { Err("its first contact is missing".to_owned()) } else { Ok(states) }
    }

    /// Whether a long poll may be served now: nobody waits before it, and its hold is over.
    pub(super) fn check_turn(&self, state: &Model, call: &Call, pop: &Pop, waiting: &[&Call]) -> Result<(), Wrong> {
        let now = self.clock.at(Moment::from_micros(self.at));
        if call.excused {
            return Ok(());
        }
        for other in waiting {
            let Command::Pop(rival) = &other.command else { continue };
            let first = call.parked && other.parked && other.id < call.id && !other.excused;
            let alike = other.tenant == call.tenant && rival.scope == pop.scope && rival.group == pop.group;
            let held = rival.batch > 1 && state.fill_wait(other.tenant, rival).is_some();
            let in_time = other.deadline.is_some_and(|deadline| self.at < deadline);
            if first && alike && !held && in_time && !state.deliverable(now, other.tenant, rival).is_empty() {
                return Err(format!("{:?} waited longer and was not served", other.id));
            }
        }
        let total: u64 = state.deliverable(now, call.tenant, pop).iter().sum();
        let Some(hold) = state.fill_wait(call.tenant, pop) else { return Ok(()) };
        let in_time = call.deadline.is_some_and(|deadline| self.at < deadline);
        let over = call.hold.since.is_some_and(|since| self.at >= since + hold);
        if pop.batch > 1 && total < u64::from(pop.batch) && in_time && !over && !call.hold.loose {
            return Err(format!("served with {total} of {}, and may wait {hold} µs for more", pop.batch));
        }
        Ok(())
    }

    /// Groups of pops that were just answered: parked pops of theirs may have tried in vain beside them.
    pub(super) fn note_rivals(&mut self, replies: &[(Call, Reply)]) {
        self.rivals.clear();
        for (call, reply) in replies {
            if let Command::Pop(pop) = &call.command {
                self.rivals.push((call.tenant, pop.group.clone()));
                let served = matches!(reply, Reply::Popped(Some(_)));
                for other in self.calls.values_mut().filter(|other| served && other.tenant == call.tenant) {
                    let alike = matches!(&other.command, Command::Pop(rival) if rival.group == pop.group);
                    other.hold.loose |= alike;
                }
            }
        }
    }

    /// First contacts of calls that are parked: seen in what was to be written.
    pub(super) fn note_contacts(&mut self) -> Result<(), Wrong> {
        let now = self.clock.at(Moment::from_micros(self.at));
        self.states.iter_mut().for_each(Model::forget_vanished);
        let mut states = std::mem::take(&mut self.states);
        // Twice: one pop's first contact makes the queue that another one's labels match.
        for (call, pop) in self.waiting().chain(self.waiting()) {
            let peek = self.log.since(call.contact);
            states = states.iter().flat_map(|state| state.contacts(now, call.tenant, pop, &peek)).collect();
        }
        for (call, pop) in self.waiting().filter(|(call, _)| !call.parked && !call.excused) {
            states.retain(|state| !state.lacks_contact(call.tenant, pop));
        }
        if states.is_empty() {
            return Err("a call is parked, and its first contact is not written".to_owned());
        }
        for call in self.calls.values().filter(|call| call.excused) {
            if let Command::Pop(pop) = &call.command {
                states = self.note_claim(now, call, pop, states);
            }
        }
        self.states = distinct(states);
        if !self.store.owes() {
            let mark = self.log.mark();
            for call in self.calls.values_mut().filter(|call| call.deadline.is_some()) {
                call.contact = mark;
                call.parked = true;
            }
        }
        Ok(())
    }

    /// The long polls that are not answered.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (&Call, &Pop)> {
        self.calls.values().filter(|call| call.deadline.is_some()).filter_map(|call| match &call.command {
            Command::Pop(pop) => Some((call, pop)),
            _ => None,
        })
    }

    /// The states after what a pop claimed and cannot read yet.
    pub(super) fn note_claim(&self, now: Timestamp, call: &Call, pop: &Pop, states: Vec<Model>) -> Vec<Model> {
        let peek = self.log.since(call.contact);
        // When several of a group wait, nobody can say whose a claim is.
        let rivals = self.calls.values().filter(|other| match &other.command {
            Command::Pop(rival) => other.tenant == call.tenant && rival.group == pop.group,
            _ => false,
        });
        let answered = self.rivals.contains(&(call.tenant, pop.group.clone()));
        let alone = rivals.count() == 1 && !answered;
        let mut noted = Vec::new();
        for state in states {
            let early = state.decide_early(now, (call.id, call.tenant, &call.command), 0, &peek.some_time_ago());
            let early = early.filter(|early| early.surely_claimed(call.id, pop, &peek));
            if early.is_none() || !alone {
                noted.push(state);
            }
            noted.extend(early);
        }
        noted
    }

    /// Calls that must have been answered by now.
    pub(super) fn check_overdue(&mut self) -> Result<(), Wrong> {
        if !self.at_rest() || self.draining {
            return Ok(());
        }
        let mut overdue = String::new();
        let mut states = std::mem::take(&mut self.states);
        states.retain(|state| match self.calls.values().find_map(|call| self.overdue(state, call)) {
            Some(wrong) => {
                overdue = wrong;
                false
            }
            None => true,
        });
        if states.is_empty() {
            return Err(overdue);
        }
        self.states = states;
        Ok(())
    }

    pub(super) fn overdue(&self, state: &Model, call: &Call) -> Option<Wrong> {
        let deadline = call.deadline?;
        let Command::Pop(pop) = &call.command else { return None };
        let now = self.clock.at(Moment::from_micros(self.at));
        if self.at >= deadline {
            return Some(format!("{:?} must have been answered at its deadline", call.id));
        }
        let counts = state.deliverable(now, call.tenant, pop);
        if counts.is_empty() {
            return None;
        }
        let rivals = self.calls.values().filter(|other| other.id < call.id && other.tenant == call.tenant);
        let behind_held = rivals.into_iter().any(|other| match &other.command {
            Command::Pop(rival) => {
                rival.group == pop.group && rival.batch > 1 && state.fill_wait(other.tenant, rival).is_some()
            }
            _ => false,
        });
        if behind_held {
            return None;
        }
        // A pop that may not claim every partition counts those it would claim, which only the core knows.
        let cap = pop.partitions.map_or(usize::MAX, |cap| cap as usize);
        let choosy = state.partitions_in_scope(call.tenant, pop) > cap;
        let sure: u64 = if choosy { 0 } else { counts.iter().sum() };
        match state.fill_wait(call.tenant, pop) {
            Some(hold) if pop.batch > 1 && sure < u64::from(pop.batch) => {
                let over = call.hold.since.is_some_and(|since| self.at >= since + hold) && !call.hold.loose;
                over.then(|| format!("{:?} is held back longer than it may be", call.id))
            }
            _ => Some(format!("{:?} must have been served: {counts:?} messages are there for it", call.id)),
        }
    }

    pub(super) fn note_holds(&mut self) {
        let now = self.clock.at(Moment::from_micros(self.at));
        let states = &self.states;
        let at = self.at;
        for call in self.calls.values_mut() {
            let Command::Pop(pop) = &call.command else { continue };
            let (any, none) = states.iter().fold((false, false), |(any, none), state| {
                let there = !state.deliverable(now, call.tenant, pop).is_empty();
                let holds = pop.batch > 1 && state.fill_wait(call.tenant, pop).is_some();
                (any || (there && holds), none || !(there && holds))
            });
            let Hold { since, loose } = &mut call.hold;
            *loose |= none && (any || since.is_some());
            *loose |= call.excused || call.beside_others;
            if any {
                since.get_or_insert(at);
            } else {
                *since = None;
            }
        }
    }
}
