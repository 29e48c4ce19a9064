//! Whether answers are right, and whether those that must have come have come.
//!
//! Not judged, because nobody promises it: what a listing shows while something else is on its way to the store; how
//! little a pop gets that runs beside other calls (a busy cursor is skipped, 6.4), or whether it is empty; in which
//! order the groups of one ack call are decided; from when a hold counts after its messages went to somebody else;
//! which refusal a call gets while the store or the slot is in trouble. Where an outcome is unknown
//! both states are kept until later answers say which is the right one.

use tidegate_core::command::{Command, Pop, PopScope};
use tidegate_core::reply::{PushOutcome, Reply};
use tidegate_core::time::Moment;

use super::super::spec::{Model, Told, Wrong};
use super::{Call, Run, distinct, instants};

/// More possible states than this means that the harness has lost the thread.
const MANY_STATES: usize = 256;
/// The part of a pop that comes before its claim.
const CONTACT: usize = usize::MAX;

impl Run {
    /// Judges the answers that came at this moment, and what they leave open.
    pub(super) fn judge(&mut self) -> Result<(), Wrong> {
        let troubled = self.troubled();
        for call in self.calls.values_mut() {
            call.excused |= troubled;
        }
        let mut replies = std::mem::take(&mut self.replies);
        // A queue's deletion ends the long polls on it.
        self.deleting.clear();
        for call in self.calls.values().chain(replies.iter().map(|(call, _)| call)) {
            if let Command::DeleteQueue { queue } = &call.command {
                self.deleting.push((call.tenant, queue.clone()));
            }
        }
        let alone = replies.len() == 1 && !self.store.owes();
        for call in self.calls.values_mut().chain(replies.iter_mut().map(|(call, _)| call)) {
            let Command::Pop(pop) = &call.command else { continue };
            call.bereft |= self.deleting.iter().any(|(tenant, name)| match &pop.scope {
                PopScope::Queue(queue) | PopScope::Partition(queue, _) => *tenant == call.tenant && name == queue,
                PopScope::Labels(_) => *tenant == call.tenant,
            });
        }
        for (call, reply) in &mut replies {
            call.excused |= troubled;
            call.beside_others |= !alone;
            self.trace_reply(call, reply);
            self.check_excuse(call, reply)?;
        }
        if !replies.is_empty() {
            self.round += 1;
            for (call, reply) in &replies {
                let delivery = match reply {
                    Reply::Popped(delivery) => delivery.as_ref(),
                    _ => None,
                };
                let judged = !call.excused && !call.parked && !call.beside_others && self.states.len() == 1;
                if let Some(delivery) = delivery.filter(|_| judged) {
                    self.turns.check(call, delivery)?;
                }
                self.turns.after(call, delivery);
            }
            self.explain_all(&replies)?;
            for (call, reply) in &replies {
                self.remember(call, reply)?;
            }
        }
        self.note_rivals(&replies);
        self.note_contacts()?;
        if troubled || self.states.len() > 1 {
            self.turns.forget();
        }
        self.turns.look(&self.states[0], self.now().store);
        self.check_overdue()?;
        self.note_holds();
        if self.states.len() > MANY_STATES {
            return Err("too many states are possible".to_owned());
        }
        for (call, reply) in &replies {
            self.deliver(call, reply)?;
        }
        Ok(())
    }

    fn trace_reply(&mut self, call: &Call, reply: &Reply) {
        use std::fmt::Write as _;
        let _ = writeln!(self.trace, "       +{:.6} s {:?} {:?}", self.at as f64 / 1e6, call.id, call.command);
        let _ = writeln!(self.trace, "            -> {reply:?}");
    }

    /// That something is wrong with the store or the slot may be said only when it is.
    fn check_excuse(&self, call: &Call, reply: &Reply) -> Result<(), Wrong> {
        let complains = match reply {
            Reply::Refused(_) => true,
            Reply::Pushed(outcomes) => outcomes.iter().any(|one| matches!(one, PushOutcome::Failed(_))),
            _ => false,
        };
        if complains && !call.excused && !self.draining {
            return Err(format!("the store is well and the slot owned, and yet {reply:?}"));
        }
        Ok(())
    }

    /// Explains the answers, if need be by parts of calls that are not answered yet.
    fn explain_all(&mut self, replies: &[(Call, Reply)]) -> Result<(), Wrong> {
        let wrong = match self.linearize(replies) {
            Ok(()) => return Ok(()),
            Err(wrong) => wrong,
        };
        let before = self.states.clone();
        for call in self.calls.values().filter(|call| call.excused) {
            let peek = self.log.since(call.mark).contacts_since(call.contact).some_time_ago();
            for part in 0..Model::parts(&call.command, &Told::Nothing) {
                let mut states = self.states.clone();
                for state in &self.states {
                    for time in instants(call, self.clock.at(Moment::from_micros(self.at))) {
                        let call = (call.id, call.tenant, &call.command);
                        states.extend(state.decide_early(time, call, part, &peek));
                    }
                }
                self.states = distinct(states);
            }
        }
        if self.states.len() == before.len() {
            return Err(wrong);
        }
        self.linearize(replies).map_err(|_| wrong)
    }

    /// Finds an order of decisions that explains the answers, from each possible state. Parts of one call may be
    /// decided in any order, and with other calls between them.
    fn linearize(&mut self, replies: &[(Call, Reply)]) -> Result<(), Wrong> {
        let mut decisions: Vec<(usize, usize)> = Vec::new();
        for (n, (call, reply)) in replies.iter().enumerate() {
            decisions.extend((0..Model::parts(&call.command, &Told::Reply(reply))).map(|part| (n, part)));
            // Others may come between a pop's first contact and its claim.
            if matches!(call.command, Command::Pop(_)) && replies.len() > 1 {
                decisions.push((n, CONTACT));
                // After a deletion beside it there is another first contact.
                if !self.deleting.is_empty() {
                    decisions.push((n, CONTACT));
                }
            }
        }
        // A long poll that stays may have had its first contact somewhere among them.
        let fresh = |(call, pop): &(&Call, &Pop)| self.log.since(call.contact).any_contact(&pop.group);
        let staying: Vec<&Call> = self.waiting().filter(fresh).map(|(call, _)| call).collect();
        decisions.extend((0..staying.len()).map(|n| (replies.len() + n, CONTACT)));
        let mut in_order = false;
        let mut reached: Vec<(u32, Model)> = self.states.iter().map(|state| (0, state.clone())).collect();
        if let ([(call, _)], true) = (replies, staying.is_empty()) {
            // The parts of a lone push touch different partitions, so that one order is as good as any.
            in_order = matches!(call.command, Command::Push(_));
        }
        let mut complaints = std::collections::BTreeSet::new();
        let mut furthest = 0;
        for _ in 0..decisions.len() {
            let mut next: Vec<(u32, Model)> = Vec::new();
            for (done, state) in &reached {
                for (bit, &(n, part)) in decisions.iter().enumerate().filter(|(bit, _)| done & (1 << bit) == 0) {
                    if in_order && bit != done.count_ones() as usize {
                        continue;
                    }
                    let call = replies.get(n).map_or_else(|| staying[n - replies.len()], |(call, _)| call);
                    if part == CONTACT {
                        let Command::Pop(pop) = &call.command else { continue };
                        let now = self.clock.at(Moment::from_micros(self.at));
                        let peek = self.log.since(call.contact);
                        for state in state.contacts(now, call.tenant, pop, &peek) {
                            let one = (done | 1 << bit, state);
                            if !next.contains(&one) {
                                next.push(one);
                            }
                        }
                        continue;
                    }
                    let uncontacted = decisions.iter().position(|one| *one == (n, CONTACT));
                    if uncontacted.is_some_and(|bit| done & (1 << bit) == 0) {
                        continue;
                    }
                    let reply = &replies[n].1;
                    let open = decisions.iter().enumerate().filter(|(other, _)| done & (1 << other) == 0);
                    let mut waiting: Vec<&Call> = open.filter_map(|(_, &(m, _))| Some(&replies.get(m)?.0)).collect();
                    waiting.retain(|other| other.id != call.id);
                    waiting.extend(self.calls.values());
                    match self.explain(state, call, part, reply, &waiting) {
                        Ok(states) => {
                            for state in states {
                                let one = (done | 1 << bit, state);
                                if !next.contains(&one) {
                                    next.push(one);
                                }
                            }
                        }
                        Err(wrong) => {
                            if done.count_ones() > furthest {
                                furthest = done.count_ones();
                                complaints.clear();
                            }
                            complaints.insert(format!("{:?} {:?}\n  {wrong}", call.id, call.command));
                        }
                    }
                }
            }
            reached = next;
        }
        let states: Vec<Model> = reached.into_iter().map(|(_, state)| state).collect();
        if states.is_empty() {
            let complaints: Vec<String> = complaints.into_iter().take(5).collect();
            return Err(complaints.join("\n"));
        }
        self.states = distinct(states);
        Ok(())
    }

    /// The states after one part of an answer, if it is right in this state.
    fn explain(
        &self,
        state: &Model,
        call: &Call,
        part: usize,
        reply: &Reply,
        waiting: &[&Call],
    ) -> Result<Vec<Model>, Wrong> {
        if let Some(answered) = state.answer_early(call.id, &call.command, part, reply) {
            return answered;
        }
        let now = self.clock.at(Moment::from_micros(self.at));
        if let (Command::Pop(pop), Some(deadline)) = (&call.command, call.deadline) {
            match reply {
                Reply::Popped(None) => return self.explain_timeout(state, call, pop, deadline),
                Reply::Popped(Some(_)) => self.check_turn(state, call, pop, waiting)?,
                _ => {}
            }
        }
        if let (Command::Pop(_), true, Reply::Popped(None)) = (&call.command, self.draining, reply) {
            return Ok(vec![state.clone()]);
        }
        if call.beside_others && is_question(&call.command) && !matches!(reply, Reply::Refused(_)) {
            return Ok(vec![state.clone()]);
        }
        let mut peek = self.log.since(call.mark).contacts_since(call.contact);
        // A cursor that another call is busy with is skipped and not waited for (6.4), and what is not committed yet is
        // not there: beside others a pop may get less than there is, or nothing.
        if (call.excused && call.parked) || call.beside_others {
            peek = peek.some_time_ago();
        }
        let refused = matches!(reply, Reply::Refused(_));
        let mut explained: Vec<Model> = Vec::new();
        let mut complaint = String::new();
        for time in instants(call, now) {
            match state.apply_part(time, call.tenant, &call.command, part, &Told::Reply(reply), &peek) {
                Ok(states) => explained.extend(states),
                Err(wrong) if complaint.is_empty() => complaint = wrong,
                Err(_) => {}
            }
            if !explained.is_empty() && !refused {
                break;
            }
        }
        if let (Command::Pop(pop), Reply::Popped(_), false, false) =
            (&call.command, reply, call.beside_others, explained.is_empty())
        {
            explained.retain(|state| !state.lacks_contact(call.tenant, pop));
            complaint = "answered, and its first contact is not written".to_owned();
        }
        if explained.is_empty() { Err(complaint) } else { Ok(distinct(explained)) }
    }
}

/// Whether a command only asks what is. Memory runs ahead of the store by the commits in flight, so what it is told
/// beside others is nothing that a model could know.
fn is_question(command: &Command) -> bool {
    matches!(
        command,
        Command::ListQueues
            | Command::DescribeQueue { .. }
            | Command::ListGroups { .. }
            | Command::FindMessage(_)
            | Command::ListDeadLetters { .. }
    )
}
