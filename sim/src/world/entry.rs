//! A request's way: from its client to a broker, from there to the owner of its slot, and the answer's way back. What the
//! HTTP transport does in production, done by events; it holds, forwards and gives up by the same rules.

use tidegate_core::broker::Standing;
use tidegate_core::command::{Command, RequestId};
use tidegate_core::error::Rejection;
use tidegate_core::reply::{Delivery, Reply};
use tidegate_core::time::Span;

use super::{Coming, GIVEN_UP, PATIENCE, World, answers};
use crate::history::{At, ClientNo, Event, Fault, Micros, OpNo, Operation, OperationKind, TenantNo};
use crate::trace::{Arrow, Party};

/// How long a request waits for its slot to have an owner.
const HOLD: Micros = 2_000_000;
/// From one look at what is held to the next.
const RETRY: Micros = 50_000;

/// An operation on its way.
pub struct Call {
    pub client: ClientNo,
    pub tenant: TenantNo,
    /// The broker that the client spoke to.
    pub host: u8,
    pub kind: OperationKind,
    command: Command,
    /// What the client would do again.
    pub operation: Operation,
    pub open: bool,
    /// It ended well.
    pub answered: bool,
    /// The client waits no longer for it.
    left: bool,
    invoked: At,
    arrived: At,
    wait: Micros,
    attempt: u8,
    /// Sent to this broker's process, for this attempt.
    sent_to: Option<(u8, u32)>,
}

/// What happens to the next request or answer.
#[derive(Default)]
pub struct Armed {
    pub lose_request: bool,
    pub refuse_answer: bool,
    pub vanish_answer: bool,
    pub duplicate: Option<Micros>,
}

impl Call {
    /// Operation 0, which nobody asked for: a record that belongs to none says 0.
    pub fn none() -> Self {
        Call {
            client: ClientNo(0),
            tenant: TenantNo(0),
            host: 0,
            kind: OperationKind::ListGroups,
            command: Command::Probe,
            operation: Operation::ListGroups { group: None },
            open: false,
            answered: false,
            left: true,
            invoked: 0,
            arrived: 0,
            wait: 0,
            attempt: 0,
            sent_to: None,
        }
    }

    /// The same once more.
    pub fn again(&self) -> (Operation, Command) {
        (self.operation.clone(), self.command.clone())
    }

    /// Whether a lost answer does no harm: it is sent again.
    fn is_harmless(&self) -> bool {
        match &self.command {
            Command::Pop(pop) => !pop.auto_ack,
            Command::ListQueues
            | Command::DescribeQueue { .. }
            | Command::ListGroups { .. }
            | Command::FindMessage(_)
            | Command::ListDeadLetters { .. }
            | Command::Probe => true,
            _ => false,
        }
    }

    fn patience(&self) -> Micros {
        if self.kind == OperationKind::Pop { HOLD.max(self.wait) } else { HOLD }
    }

    fn request_id(&self, call: u32) -> RequestId {
        RequestId(u64::from(call) << 8 | u64::from(self.attempt))
    }
}

impl World {
    /// A client sends; what the network does to it is drawn here. Returns the operation's number.
    pub(super) fn send(&mut self, client: ClientNo, host: u8, operation: Operation, command: Command) -> u32 {
        let host = host % self.hosts.len() as u8;
        let call = self.new_call(client, host, operation, command);
        self.record(client, host, OpNo(call), Event::Invoke(self.calls[call as usize].operation.clone()));
        self.open.push(call);
        if !self.patience_set {
            self.patience_set = true;
            self.later(PATIENCE / 2, Coming::Patience);
        }
        if let Some(by) = self.armed.duplicate.take() {
            // The network's copy is an operation of nobody's, whose outcome nobody hears.
            let original = &self.calls[call as usize];
            let (operation, command) = (original.operation.clone(), original.command.clone());
            let copy = self.new_call(client, host, operation, command);
            self.calls[copy as usize].open = false;
            self.record(client, host, OpNo(copy), Event::Invoke(self.calls[copy as usize].operation.clone()));
            self.fault(client, host, OpNo(call), Fault::Duplicated(by));
            let delay = self.net_delay() + by;
            self.later(delay, Coming::Request { call: copy });
        }
        let lost = std::mem::take(&mut self.armed.lose_request);
        let delay = self.net_delay();
        self.arrow(Party::Client(client.0), Party::Broker(host), delay, call, lost);
        if lost {
            self.fault(client, host, OpNo(call), Fault::LostOnTheWay);
        } else {
            self.later(delay, Coming::Request { call });
        }
        call
    }

    fn new_call(&mut self, client: ClientNo, host: u8, operation: Operation, command: Command) -> u32 {
        let wait = match &command {
            Command::Pop(pop) => pop.wait.map_or(0, Span::as_micros),
            _ => 0,
        };
        let tenant = self.clients[client.index()].tenant;
        self.calls.push(Call {
            client,
            tenant,
            host,
            kind: operation.kind(),
            command,
            operation,
            open: true,
            answered: false,
            left: false,
            invoked: self.now,
            arrived: self.now,
            wait,
            attempt: 0,
            sent_to: None,
        });
        (self.calls.len() - 1) as u32
    }

    fn seat_of(&self, call: u32) -> u8 {
        self.calls[call as usize].tenant.0 as u8
    }

    pub(super) fn request_arrived(&mut self, call: u32) {
        let host = usize::from(self.calls[call as usize].host);
        self.calls[call as usize].arrived = self.now;
        if self.hosts[host].cut_from_clients > self.now {
            // It vanishes; the client will wait in vain.
            return;
        }
        if !self.hosts[host].up {
            return self.not_sent(call);
        }
        self.dispatch(call);
    }

    /// Takes a request to where its slot is, as far as this broker knows.
    fn dispatch(&mut self, call: u32) {
        let seat = self.seat_of(call);
        let host = self.calls[call as usize].host;
        let place = &self.hosts[usize::from(host)];
        let here = !place.is_fleet() || place.seats[usize::from(seat)].broker.slot_standing() == Standing::Ours;
        if here {
            return self.give(call, host);
        }
        let Some(peer) = place.peers[usize::from(seat)] else { return self.hold(call) };
        let attempt = self.next_attempt(call);
        let life = self.hosts[usize::from(peer)].life;
        self.calls[call as usize].sent_to = Some((peer, life));
        let delay = self.net_delay();
        let cut = self.cut(host, peer);
        self.arrow(Party::Broker(host), Party::Broker(peer), delay, call, cut);
        if cut {
            // What was written is unread; nobody knows that.
            self.later(GIVEN_UP, Coming::Forwarded { call, attempt, reply: None });
        } else if !self.hosts[usize::from(peer)].up {
            self.hold(call);
        } else {
            self.later(delay, Coming::Forward { call, attempt, host: peer, life });
        }
    }

    fn next_attempt(&mut self, call: u32) -> u8 {
        let call = &mut self.calls[call as usize];
        call.attempt = call.attempt.wrapping_add(1);
        call.attempt
    }

    fn cut(&self, one: u8, other: u8) -> bool {
        self.hosts[usize::from(one)].cut_from[usize::from(other)] > self.now
    }

    /// A broker's core gets a request.
    fn give(&mut self, call: u32, host: u8) {
        let seat = self.seat_of(call);
        if host == self.calls[call as usize].host {
            self.next_attempt(call);
            self.calls[call as usize].sent_to = Some((host, self.hosts[usize::from(host)].life));
        }
        let given = &self.calls[call as usize];
        let id = given.request_id(call);
        let tenant = self.names.tenants[given.tenant.index()];
        let mut command = given.command.clone();
        if let Command::Pop(pop) = &mut command
            && let Some(wait) = pop.wait
        {
            let left = (wait.as_micros() - (self.now - given.arrived)).max(0);
            pop.wait = Some(Span::from_micros(left));
        }
        self.feed(host, seat, |broker, now| broker.request(now, id, tenant, command));
    }

    /// Keeps a request that was certainly not carried out until somebody owns its slot.
    fn hold(&mut self, call: u32) {
        let held = &mut self.calls[call as usize];
        held.sent_to = None;
        if held.left {
            return;
        }
        if self.now - held.arrived >= held.patience() {
            return self.tell(call, Reply::Refused(Rejection::NotOwner), None);
        }
        let host = held.host;
        if self.hosts[usize::from(host)].up {
            self.hosts[usize::from(host)].held.push(call);
            self.retry_soon(host, RETRY);
        }
    }

    pub(super) fn retry_soon(&mut self, host: u8, after: Micros) {
        let place = &mut self.hosts[usize::from(host)];
        if !place.retry_set {
            place.retry_set = true;
            let life = place.life;
            self.later(after, Coming::Retry { host, life });
        }
    }

    pub(super) fn retry_held(&mut self, host: u8) {
        for call in std::mem::take(&mut self.hosts[usize::from(host)].held) {
            if self.now - self.calls[call as usize].arrived >= self.calls[call as usize].patience() {
                self.tell(call, Reply::Refused(Rejection::NotOwner), None);
            } else if !self.calls[call as usize].left {
                self.dispatch(call);
            }
        }
    }

    pub(super) fn forward_arrived(&mut self, call: u32, attempt: u8, host: u8, life: u32) {
        let entry = self.calls[call as usize].host;
        if self.cut(entry, host) {
            return self.later(GIVEN_UP, Coming::Forwarded { call, attempt, reply: None });
        }
        if !self.hosts[usize::from(host)].lives(life) {
            // Refused, or a reset before it was read.
            let delay = self.net_delay();
            return self.later(delay, Coming::Misdirected { call, attempt });
        }
        let seat = self.seat_of(call);
        let place = &self.hosts[usize::from(host)];
        if place.seats[usize::from(seat)].broker.slot_standing() != Standing::Ours {
            let delay = self.net_delay();
            return self.later(delay, Coming::Misdirected { call, attempt });
        }
        if self.calls[call as usize].attempt == attempt {
            self.give(call, host);
        }
    }

    /// A broker's core replied.
    pub(super) fn replied(&mut self, host: u8, seat: u8, id: RequestId, reply: Reply) {
        let (call, attempt) = ((id.0 >> 8) as u32, id.0 as u8);
        let Some(of) = self.calls.get(call as usize) else { return };
        if of.attempt != attempt {
            // Whoever forwarded it has given it up.
            return self.told_written(host, seat, call, attempt, false);
        }
        let refused = reply == Reply::Refused(Rejection::NotOwner);
        let entry = of.host;
        if entry == host {
            if refused && self.hosts[usize::from(host)].is_fleet() {
                return self.hold(call);
            }
            return self.tell(call, reply, Some((host, seat)));
        }
        let delay = self.net_delay();
        if self.cut(entry, host) {
            let life = self.hosts[usize::from(host)].life;
            self.later(GIVEN_UP, Coming::Written { host, life, seat, call, attempt, written: false });
            self.later(GIVEN_UP, Coming::Forwarded { call, attempt, reply: None });
        } else if refused {
            self.later(delay, Coming::Misdirected { call, attempt });
        } else {
            self.arrow(Party::Broker(host), Party::Broker(entry), delay, call, false);
            self.later(delay, Coming::Forwarded { call, attempt, reply: Some(Box::new(reply)) });
        }
    }

    pub(super) fn misdirected(&mut self, call: u32, attempt: u8) {
        let of = &self.calls[call as usize];
        if of.attempt == attempt && of.sent_to.is_some() {
            self.hold(call);
        }
    }

    pub(super) fn forward_answered(&mut self, call: u32, attempt: u8, reply: Option<Box<Reply>>) {
        let of = &self.calls[call as usize];
        if of.attempt != attempt || of.sent_to.is_none() || !self.hosts[usize::from(of.host)].up {
            return;
        }
        let (owner, _) = of.sent_to.unwrap_or_default();
        match reply {
            Some(reply) => {
                let seat = self.seat_of(call);
                self.tell(call, *reply, Some((owner, seat)));
            }
            None if of.is_harmless() => self.hold(call),
            None => self.tell(call, Reply::Refused(Rejection::OutcomeUnknown), None),
        }
    }

    /// The entry broker writes an answer; its owner, if it comes from one, hears how that went.
    fn tell(&mut self, call: u32, reply: Reply, owner: Option<(u8, u8)>) {
        let of = &self.calls[call as usize];
        let (host, client, attempt, left, open) = (of.host, of.client, of.attempt, of.left, of.open);
        self.calls[call as usize].sent_to = None;
        let refused = std::mem::take(&mut self.armed.refuse_answer);
        let vanishes = std::mem::take(&mut self.armed.vanish_answer);
        if refused {
            self.fault(client, host, OpNo(call), Fault::AnswerRefused);
        } else if vanishes {
            self.fault(client, host, OpNo(call), Fault::AnswerVanished);
        }
        let unreachable = self.hosts[usize::from(host)].cut_from_clients > self.now;
        let written = !left && !refused;
        if let Some((owner, seat)) = owner {
            let leased = matches!(&reply, Reply::Popped(Some(Delivery { lease: Some(_), .. })));
            if owner == host {
                self.told_written(owner, seat, call, attempt, written);
            } else if leased {
                let life = self.hosts[usize::from(owner)].life;
                let delay = self.net_delay();
                self.later(delay, Coming::Written { host: owner, life, seat, call, attempt, written });
            }
        }
        if !open {
            return;
        }
        if refused {
            return self.close(call, Event::Unknown);
        }
        let delay = self.net_delay();
        let lost = vanishes || unreachable || left;
        self.arrow(Party::Broker(host), Party::Client(client.0), delay, call, lost);
        if !lost {
            self.later(delay, Coming::Answer { call, reply: Box::new(reply) });
        }
    }

    pub(super) fn told_written(&mut self, host: u8, seat: u8, call: u32, attempt: u8, written: bool) {
        let id = RequestId(u64::from(call) << 8 | u64::from(attempt));
        self.feed(host, seat, |broker, now| if written { broker.sent(id) } else { broker.gone(now, id) });
    }

    pub(super) fn answered(&mut self, call: u32, reply: Reply) {
        if !self.calls[call as usize].open {
            return;
        }
        let tenant = self.calls[call as usize].tenant;
        let event = answers::event(&mut self.names, tenant, reply);
        self.close(call, event);
    }

    /// A client knows what became of its operation.
    pub(super) fn close(&mut self, call: u32, event: Event) {
        let of = &mut self.calls[call as usize];
        if !of.open {
            return;
        }
        of.open = false;
        let (client, host, kind) = (of.client, of.host, of.kind);
        if let Some(at) = self.open.iter().position(|open| *open == call) {
            self.open.swap_remove(at);
        }
        match &event {
            Event::Ok(answer) => {
                self.counts.answered[kind as usize] += 1;
                self.calls[call as usize].answered = true;
                self.learn(call, answer);
            }
            _ => self.counts.unanswered += 1,
        }
        self.record(client, host, OpNo(call), event);
    }

    /// A client leaves before it has its answer.
    pub(super) fn leave(&mut self, call: u32) {
        let of = &mut self.calls[call as usize];
        if !of.open {
            return;
        }
        of.left = true;
        let (host, attempt, sent_to) = (of.host, of.attempt, of.sent_to);
        self.close(call, Event::Unknown);
        let seat = self.seat_of(call);
        if let Some((owner, life)) = sent_to {
            let delay = self.net_delay() + if owner == host { 0 } else { self.net_delay() };
            if !self.cut(host, owner) || host == owner {
                self.later(delay, Coming::Gone { host: owner, life, seat, call, attempt });
            }
        }
    }

    /// Clients give up what takes too long.
    pub(super) fn lose_patience(&mut self) {
        let now = self.now;
        let calls = &self.calls;
        let late = |call: &u32| now - calls[*call as usize].invoked >= calls[*call as usize].wait + PATIENCE;
        let late: Vec<u32> = self.open.iter().copied().filter(late).collect();
        for call in late {
            self.leave(call);
        }
        self.patience_set = !self.open.is_empty();
        if self.patience_set {
            self.later(PATIENCE / 2, Coming::Patience);
        }
    }

    /// A process is gone: whoever spoke to it hears that.
    pub(super) fn connections_broken(&mut self, host: u8) {
        let mut clients = Vec::new();
        let mut forwards = Vec::new();
        for &call in &self.open {
            let of = &self.calls[call as usize];
            if of.host == host {
                clients.push(call);
            } else if of.sent_to.is_some_and(|(to, _)| to == host) {
                forwards.push((call, of.attempt));
            }
        }
        for call in clients {
            let attempt = self.calls[call as usize].attempt;
            let (seat, sent_to) = (self.seat_of(call), self.calls[call as usize].sent_to);
            self.calls[call as usize].left = true;
            // One that was still on its way there was never read.
            self.close(call, Event::Unknown);
            if let Some((owner, life)) = sent_to.filter(|(owner, _)| *owner != host) {
                let delay = self.net_delay();
                self.later(delay, Coming::Gone { host: owner, life, seat, call, attempt });
            }
        }
        for (call, attempt) in forwards {
            let delay = self.net_delay();
            self.later(delay, Coming::Forwarded { call, attempt, reply: None });
        }
    }

    fn arrow(&mut self, from: Party, to: Party, delay: Micros, call: u32, lost: bool) {
        let now = self.now;
        let calls = &self.calls;
        if let Some(trace) = &mut self.trace {
            let label = format!("#{call} {:?}", calls[call as usize].kind);
            trace.arrow(Arrow { from: (from, now), to: (to, now + delay), label, lost });
        }
    }

    /// Whether nobody waits and nothing that a client began is under way.
    pub(super) fn settled(&self) -> bool {
        self.open.is_empty() && self.under_way == 0 && self.hosts.iter().all(|host| host.held.is_empty())
    }
}
