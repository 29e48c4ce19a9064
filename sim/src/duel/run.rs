//! The run itself.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use tidegate_core::broker::{Broker, Output};
use tidegate_core::command::{
    Ack, AckItem, AckStatus, Address, Command, LeaseProof, Operation, Pop, PopScope, Push, RequestId, SeekTarget,
    Transaction,
};
use tidegate_core::error::{StoreError, StoreErrorKind};
use tidegate_core::message::{NewMessage, transaction_text};
use tidegate_core::name::{GroupName, LeaseId, PartitionId, PartitionName, QueueName, TenantId, TransactionId};
use tidegate_core::options::Labels;
use tidegate_core::record::StartFrom;
use tidegate_core::reply::Reply;
use tidegate_core::settings::Settings;
use tidegate_core::store::{Slot, StoreAnswer, StoreReply, StoreRequest, Token};
use tidegate_core::time::{Moment, Now, Span, Timestamp};
use uuid::Uuid;

use super::plan::{Delay, Fate, Fault, Op, Plan, Proof, Random, Start, Step};
use crate::model::Model;

/// Store time when the run begins.
const BEGIN: i64 = 1_700_000_000_000_000;
/// A run that asks this often for one answer does not come to rest.
const MOST_OUTPUTS: usize = 5_000;
/// How long an answer may take when the slot has to be taken anew.
const LONGEST_ANSWER: i64 = 15_000_000;

/// What was wrong, and at which step.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which step of the list.
    pub step: usize,
    /// In words.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}: {}", self.step, self.what)
    }
}

/// A batch that some client has received.
struct Batch {
    tenant: TenantId,
    group: GroupName,
    lease: Option<LeaseId>,
    messages: Vec<(PartitionId, TransactionId)>,
}

/// One run.
pub struct Duel<S> {
    plan: Plan,
    store: S,
    broker: Broker,
    model: Model,
    random: Random,
    /// Microseconds since the run began.
    now: i64,
    requests: u64,
    pushed: u64,
    fault: Option<Fault>,
    /// A commit was refused or lost, or the slot, since the step began.
    disturbed: bool,
    replies: Vec<(RequestId, Reply)>,
    pops: BTreeMap<RequestId, (TenantId, Pop)>,
    batches: Vec<Batch>,
    /// Commit times that were seen, newest last.
    times: Vec<Timestamp>,
    slots_taken: u64,
    /// A broker that has not read every log may have to, before it decides.
    cold: bool,
}

type Outcome = Result<(), String>;

fn tenant(n: u8) -> TenantId {
    TenantId(Uuid::from_u128(1 + u128::from(n)))
}

fn queue(n: u8) -> QueueName {
    QueueName::new(["alpha", "beta.work"][usize::from(n) % 2]).unwrap_or_else(|_| unreachable!())
}

fn partition(n: u8) -> PartitionName {
    PartitionName::new(["p0", "p1", "p2"][usize::from(n) % 3]).unwrap_or_else(|_| unreachable!())
}

fn group(n: u8) -> GroupName {
    match n % 3 {
        0 => GroupName::queue_mode(),
        n => GroupName::new(["", "g1", "g2"][usize::from(n)]).unwrap_or_else(|_| unreachable!()),
    }
}

impl<S: FnMut(Timestamp, StoreRequest) -> StoreReply> Duel<S> {
    /// A run that has not begun. The store must hold nothing.
    pub fn new(plan: &Plan, store: S) -> Self {
        let mut random = Random::new(plan.seed ^ 0x5eed);
        let broker = broker(plan, &mut random);
        Duel {
            plan: plan.clone(),
            store,
            broker,
            model: Model::new(plan.window_batch),
            random,
            now: 0,
            requests: 0,
            pushed: 0,
            fault: None,
            disturbed: false,
            replies: Vec::new(),
            pops: BTreeMap::new(),
            batches: Vec::new(),
            times: Vec::new(),
            slots_taken: 0,
            cold: false,
        }
    }

    /// Runs the list to its end, or to the first wrong answer.
    pub fn run(mut self, steps: &[Step]) -> Result<(), Failure> {
        let mut at = 0;
        let outcome = self.settle().and_then(|()| {
            for step in steps {
                self.step(step)?;
                at += 1;
            }
            self.finish()
        });
        outcome.map_err(|what| Failure { step: at, what })
    }

    /// Time goes on until every wait and lease is over, and everything is as it must be.
    fn finish(&mut self) -> Outcome {
        self.fault = None;
        self.disturbed = true;
        for _ in 0..3 {
            self.advance(self.now + 20_000_000)?;
            for tenant in 0..2 {
                self.show(tenant)?;
            }
        }
        if let Some(left) = self.model.waiting().first() {
            return Err(format!("pop {left:?} is never answered"));
        }
        Ok(())
    }

    fn time(&self) -> Timestamp {
        Timestamp::from_micros(BEGIN + self.now)
    }

    fn both(&self) -> Now {
        Now { monotonic: Moment::from_micros(self.now as u64), store: self.time() }
    }

    fn step(&mut self, step: &Step) -> Outcome {
        let to = match step.delay {
            Delay::Micros(micros) => self.now + micros,
            Delay::Edge(nth, off) => {
                let edges = self.model.edges(self.time());
                let near = edges.iter().take_while(|edge| edge.since(self.time()).as_micros() < 60_000_000);
                let near: Vec<_> = near.collect();
                match near.get(usize::from(nth) % near.len().max(1)) {
                    Some(edge) => edge.as_micros() - BEGIN + i64::from(off),
                    None => self.now + 1,
                }
            }
        };
        self.advance(to.max(self.now))?;
        let disturbs = matches!(step.op, Op::Fault(_) | Op::Steal | Op::Restart);
        self.act(&step.op)?;
        if !disturbs {
            self.fault = None;
            self.disturbed = false;
        }
        Ok(())
    }

    fn advance(&mut self, to: i64) -> Outcome {
        while self.now < to {
            let wake = self.model.next_wake(self.time()).map(|at| at.as_micros() - BEGIN);
            let tick = self.broker.deadline().map(|at| at.as_micros() as i64);
            let next = [wake, tick, Some(to)].into_iter().flatten().filter(|at| *at > self.now).min().unwrap_or(to);
            let next = if tick.is_some_and(|tick| tick <= self.now) { self.now } else { next.min(to) };
            self.now = next;
            self.model.refresh(self.time());
            if tick.is_some_and(|tick| tick <= next) {
                self.broker.tick(self.both());
                if self.broker.deadline().is_some_and(|at| at.as_micros() as i64 <= next)
                    && tick.is_some_and(|tick| tick < next)
                {
                    return Err("the broker wants a tick for a time that has passed".into());
                }
            }
            self.settle()?;
            self.judge_waiting()?;
        }
        Ok(())
    }

    /// Lets the broker and the store talk until they have nothing to say.
    fn settle(&mut self) -> Outcome {
        for _ in 0..MOST_OUTPUTS {
            match self.broker.poll() {
                None => {
                    let taken = self.broker.counters().slots_taken;
                    if taken != self.slots_taken {
                        self.slots_taken = taken;
                        self.model.forget_order();
                    }
                    return Ok(());
                }
                Some(Output::Reply(id, reply)) => self.replies.push((id, reply)),
                Some(Output::Notice(_)) => {}
                Some(Output::Store(call, request)) => {
                    let reply = self.answer(request);
                    let answer = StoreAnswer { call, time: self.time(), reply };
                    self.broker.stored(self.both(), answer);
                }
            }
        }
        Err("the broker does not come to rest".into())
    }

    fn answer(&mut self, request: StoreRequest) -> StoreReply {
        let now = self.time();
        if !matches!(request, StoreRequest::Commit(_)) {
            return (self.store)(now, request);
        }
        match self.fault.take() {
            None => {
                let reply = (self.store)(now, request);
                self.disturbed |= reply != StoreReply::Committed;
                reply
            }
            Some(fault) => {
                self.disturbed = true;
                match fault {
                    Fault::Fails => {
                        let text = "as the plan wants it".to_owned();
                        StoreReply::Failed(StoreError { kind: StoreErrorKind::Unavailable, text })
                    }
                    Fault::RequestLost => StoreReply::Unknown,
                    Fault::AnswerLost => {
                        (self.store)(now, request);
                        StoreReply::Unknown
                    }
                }
            }
        }
    }

    fn request(&mut self, tenant: TenantId, command: Command) -> RequestId {
        self.requests += 1;
        let id = RequestId(self.requests);
        self.broker.request(self.both(), id, tenant, command);
        id
    }

    fn take_reply(&mut self, id: RequestId) -> Option<Reply> {
        let at = self.replies.iter().position(|(of, _)| *of == id)?;
        Some(self.replies.remove(at).1)
    }

    /// Asks and waits for the answer; none when it was refused because of a fault.
    fn ask(&mut self, tenant: TenantId, command: &Command) -> Result<Option<Reply>, String> {
        let failing = !self.disturbed && self.fault.is_some();
        let id = self.request(tenant, command.clone());
        self.settle()?;
        let until = self.now + LONGEST_ANSWER;
        loop {
            match self.take_reply(id) {
                Some(Reply::Refused(_)) if self.disturbed => {
                    self.model.refused(self.time(), tenant, command, failing);
                    return Ok(None);
                }
                Some(Reply::Refused(why)) => return Err(format!("refused without a fault: {why}")),
                Some(reply) => return Ok(Some(reply)),
                None if !self.disturbed || self.now >= until => return Err(format!("no answer to {command:?}")),
                None => self.advance(self.now + 50_000)?,
            }
        }
    }

    /// Asks, and has the answer judged.
    fn call(&mut self, tenant: TenantId, command: Command) -> Outcome {
        let reply = self.ask(tenant, &command)?;
        if let Some(reply) = reply {
            self.model.set_lenient(self.disturbed);
            self.model
                .judge(self.time(), tenant, &command, &reply)
                .map_err(|wrong| format!("{wrong}\n  {command:?}"))?;
        }
        self.judge_waiting()
    }

    /// Judges what pops that wait were told, in the order in which they were told it, and that no other had to be told.
    fn judge_waiting(&mut self) -> Outcome {
        let now = self.time();
        let mut told: Vec<(RequestId, Reply)> = Vec::new();
        let mut kept = Vec::new();
        for (id, reply) in core::mem::take(&mut self.replies) {
            if self.pops.contains_key(&id) { told.push((id, reply)) } else { kept.push((id, reply)) }
        }
        if let Some((id, reply)) = kept.first() {
            return Err(format!("{id:?} is answered though nobody asks: {reply:?}"));
        }
        let served: Vec<RequestId> = told.iter().map(|(id, _)| *id).collect();
        for (id, reply) in told {
            self.first_in_first_out(id, &served, &reply)?;
            self.pop_told(id, reply)?;
        }
        if !self.disturbed {
            for id in self.model.waiting() {
                self.model.serve(now, id, None)?;
            }
        }
        Ok(())
    }

    /// Of pops that wait for the same the first to come is served first.
    fn first_in_first_out(&self, id: RequestId, served: &[RequestId], reply: &Reply) -> Outcome {
        let Some((tenant, pop)) = self.pops.get(&id).filter(|_| matches!(reply, Reply::Popped(Some(_)))) else {
            return Ok(());
        };
        let holds = self.plan.options.iter().any(|options| options.min_pop_wait_time > 0);
        let older = self.pops.iter().take_while(|(other, _)| **other < id).find(|(other, (of, it))| {
            let later = served.iter().position(|one| one == *other) > served.iter().position(|one| *one == id);
            let waits = self.model.waiting().contains(other) && (later || !served.contains(other));
            waits && of == tenant && it.scope == pop.scope && it.group == pop.group
        });
        match older {
            Some((older, _)) if !holds && !self.disturbed => {
                Err(format!("{older:?} waits longer than {id:?}, which is served"))
            }
            _ => Ok(()),
        }
    }

    fn pop_told(&mut self, id: RequestId, reply: Reply) -> Outcome {
        let now = self.time();
        match &reply {
            Reply::Refused(_) if self.disturbed => self.model.released(id),
            reply => self
                .model
                .serve(now, id, Some(reply))
                .map_err(|wrong| format!("{wrong}\n  {:?}", self.pops.get(&id)))?,
        }
        let Some((tenant, pop)) = self.pops.remove(&id) else { return Ok(()) };
        self.broker.sent(id);
        self.remember(tenant, &pop.group, reply);
        Ok(())
    }

    fn remember(&mut self, tenant: TenantId, group: &GroupName, reply: Reply) {
        let Reply::Popped(Some(delivery)) = reply else { return };
        let mut messages = Vec::new();
        for claim in delivery.claims {
            for message in claim.messages {
                let text = transaction_text(message.message.transaction.as_ref(), message.id);
                messages.extend(TransactionId::new(&text).ok().map(|id| (claim.partition, id)));
                self.times.push(message.created);
            }
        }
        self.batches.push(Batch { tenant, group: group.clone(), lease: delivery.lease, messages });
    }

    fn batch(&self, nth: u8) -> Option<&Batch> {
        self.batches.len().checked_sub(1 + usize::from(nth)).and_then(|at| self.batches.get(at))
    }

    fn proof(&self, proof: Proof, own: Option<LeaseId>) -> LeaseProof {
        match proof {
            Proof::Own => own.map_or(LeaseProof::None, LeaseProof::Lease),
            Proof::None => LeaseProof::None,
            Proof::Foreign => LeaseProof::Foreign,
            Proof::Other(nth) => self.batch(nth).and_then(|it| it.lease).map_or(LeaseProof::Foreign, LeaseProof::Lease),
        }
    }

    fn message(&mut self, key: Option<u8>) -> NewMessage {
        self.pushed += 1;
        let transaction = key.and_then(|key| TransactionId::new(&format!("t{key}")).ok());
        let payload = Bytes::from(format!("{}", self.pushed));
        NewMessage { transaction, payload, trace: None, producer: None }
    }

    fn items(&self, batch: &Batch, items: &[(u8, AckStatus)], proof: LeaseProof) -> Vec<AckItem> {
        let mut seen = Vec::new();
        let item = |&(at, status): &(u8, AckStatus)| {
            let (partition, transaction) = batch.messages.get(usize::from(at))?;
            // Two verdicts on one message in one call leave open which of both says so.
            if seen.contains(&at) {
                return None;
            }
            seen.push(at);
            let error = (status != AckStatus::Completed && at % 2 == 0).then(|| format!("e{at}").into());
            Some(AckItem { partition: *partition, transaction: Some(transaction.clone()), status, lease: proof, error })
        };
        items.iter().filter_map(item).collect()
    }

    fn address(&self, nth: u8, item: u8) -> Option<(TenantId, GroupName, Address)> {
        let batch = self.batch(nth)?;
        let (partition, transaction) = batch.messages.get(usize::from(item))?.clone();
        Some((batch.tenant, batch.group.clone(), Address { partition, transaction }))
    }

    fn time_of(&self, nth: u8) -> Option<Timestamp> {
        self.times.len().checked_sub(1 + usize::from(nth)).map(|at| self.times[at])
    }

    fn show(&mut self, of: u8) -> Outcome {
        self.call(tenant(of), Command::ListGroups { group: None })?;
        self.call(tenant(of), Command::ListDeadLetters { queue: None, group: None, limit: 1_000, offset: 0 })
    }

    fn act(&mut self, op: &Op) -> Outcome {
        match op {
            Op::Push { tenant: of, queue: q, items } => {
                let items: Vec<_> =
                    items.iter().map(|(p, key)| (queue(*q), partition(*p), self.message(*key))).collect();
                self.call(tenant(*of), Command::Push(Push::new(items)))
            }
            Op::Pop {
                tenant: of,
                queue: q,
                partition: p,
                group: g,
                batch,
                cap,
                auto_ack,
                wait,
                lease,
                start,
                fate,
            } => {
                let start = match start {
                    Start::Default => None,
                    Start::All => Some(StartFrom::All),
                    Start::New => Some(StartFrom::New),
                    Start::Time(nth) => self.time_of(*nth).map(StartFrom::Time),
                };
                let pop = Pop {
                    scope: match p {
                        Some(p) => PopScope::Partition(queue(*q), partition(*p)),
                        None => PopScope::Queue(queue(*q)),
                    },
                    group: group(*g),
                    batch: u32::from(*batch),
                    partitions: cap.map(u32::from),
                    auto_ack: *auto_ack && *fate != Fate::Abandoned,
                    wait: Some(Span::from_micros(if *fate == Fate::Abandoned { 0 } else { *wait })),
                    lease: Some(Span::from_micros(*lease)),
                    start,
                };
                self.pop(tenant(*of), pop, *fate)
            }
            Op::Leave(nth) => {
                let waiting = self.model.waiting();
                let Some(id) = waiting.get(usize::from(*nth)).copied() else { return Ok(()) };
                self.broker.gone(self.both(), id);
                self.pops.remove(&id);
                self.model.gone(self.time(), id, None);
                self.settle()?;
                self.judge_waiting()
            }
            Op::Ack { nth, items, proof, group: g, tenant: of } => {
                let Some(batch) = self.batch(*nth) else { return Ok(()) };
                let items = self.items(batch, items, self.proof(*proof, batch.lease));
                let ack = Ack { group: g.map_or_else(|| batch.group.clone(), group), items };
                let of = if *of == 0 { batch.tenant } else { other(batch.tenant) };
                if ack.items.is_empty() { Ok(()) } else { self.call(of, Command::Ack(ack)) }
            }
            Op::Extend { nth, length, tenant: of } => {
                let Some(batch) = self.batch(*nth) else { return Ok(()) };
                let lease = batch.lease.map_or(LeaseProof::Foreign, LeaseProof::Lease);
                let of = if *of == 0 { batch.tenant } else { other(batch.tenant) };
                self.call(of, Command::Extend { lease, length: Span::from_micros(*length) })
            }
            Op::Transaction { nth, acks, proof, pushes, required, unknown } => {
                let mut operations = Vec::new();
                let mut of = tenant(0);
                if let Some(batch) = self.batch(*nth) {
                    of = batch.tenant;
                    for mut item in self.items(batch, acks, self.proof(*proof, batch.lease)) {
                        if *unknown && operations.is_empty() {
                            item.transaction = TransactionId::new("nobody pushed this").ok();
                        }
                        operations.push(Operation::Ack { group: batch.group.clone(), item });
                    }
                }
                for (q, p, key) in pushes {
                    let message = self.message(*key);
                    operations.push(Operation::Push { queue: queue(*q), partition: partition(*p), message });
                }
                let required = required.and_then(|nth| self.batch(nth)?.lease).map(LeaseProof::Lease);
                let transaction = Transaction { operations, required_leases: required.into_iter().collect() };
                if transaction.operations.is_empty() {
                    return Ok(());
                }
                self.call(of, Command::Transaction(transaction))
            }
            Op::Configure { tenant: of, queue: q, options } => {
                let options = self.plan.options[usize::from(*options) % self.plan.options.len()].clone();
                self.call(tenant(*of), Command::Configure { queue: queue(*q), options, labels: Labels::default() })
            }
            Op::DeleteQueue { tenant: of, queue: q } => self.delete_queue(tenant(*of), queue(*q)),
            Op::DeleteGroup { tenant: of, group: g, queue: q, metadata } => {
                let command = Command::DeleteGroup { group: group(*g), queue: q.map(queue), metadata: *metadata };
                self.call(tenant(*of), command)
            }
            Op::Seek { tenant: of, group: g, queue: q, partition: p, to } => {
                let time = to.and_then(|(nth, off)| Some((self.time_of(nth)?, off)));
                let target = time
                    .map_or(SeekTarget::End, |(time, off)| SeekTarget::Time(time.plus(Span::from_micros(off.into()))));
                let (group, queue, partition) = (group(*g), queue(*q), p.map(partition));
                self.call(tenant(*of), Command::Seek { group, queue, partition, target })
            }
            Op::Replay { nth, item, own_group, tenant: of } => {
                let Some((own, group, address)) = self.address(*nth, *item) else { return Ok(()) };
                let of = if *of == 0 { own } else { other(own) };
                self.call(of, Command::Replay { address, group: own_group.then_some(group) })
            }
            Op::DropDead { nth, item, tenant: of } => {
                let Some((own, _, address)) = self.address(*nth, *item) else { return Ok(()) };
                self.call(if *of == 0 { own } else { other(own) }, Command::DropDeadLetters(address))
            }
            Op::Show { tenant } => self.show(*tenant),
            Op::Fault(fault) => {
                self.fault = Some(*fault);
                Ok(())
            }
            Op::Steal => {
                self.steal();
                Ok(())
            }
            Op::Restart => {
                self.steal();
                self.broker = broker(&self.plan, &mut self.random);
                self.slots_taken = 0;
                for id in self.model.waiting() {
                    self.model.released(id);
                }
                self.pops.clear();
                self.broker.tick(self.both());
                self.settle()?;
                self.disturbed = self.broker.counters().slots_taken == 0;
                Ok(())
            }
        }
    }

    fn pop(&mut self, tenant: TenantId, pop: Pop, fate: Fate) -> Outcome {
        // What it claimed must be known without an answer.
        let certain =
            !self.disturbed && self.fault.is_none() && matches!(pop.scope, PopScope::Partition(..)) && !self.cold;
        let fate = if fate == Fate::Abandoned && !certain { Fate::Received } else { fate };
        let failing = !self.disturbed && self.fault.is_some();
        let id = self.request(tenant, Command::Pop(pop.clone()));
        if fate == Fate::Abandoned {
            self.broker.gone(self.both(), id);
            self.settle()?;
            self.replies.retain(|(of, _)| *of != id);
            self.model.abandoned(self.time(), tenant, &pop);
            return self.judge_waiting();
        }
        self.settle()?;
        let reply = self.take_reply(id);
        let waits = pop.wait.is_some_and(Span::is_positive);
        match reply {
            Some(Reply::Refused(_)) if self.disturbed => {
                self.model.refused(self.time(), tenant, &Command::Pop(pop), failing);
                return self.judge_waiting();
            }
            None if !waits && self.disturbed => {
                // It waits for the slot, and is told something once that is taken.
                self.pops.insert(id, (tenant, pop));
                let until = self.now + LONGEST_ANSWER;
                while self.pops.contains_key(&id) {
                    self.advance(self.now + 50_000)?;
                    if self.now > until {
                        return Err("no answer to a pop".into());
                    }
                }
                return Ok(());
            }
            reply => {
                let judged = self.model.popped(self.time(), id, tenant, &pop, reply.as_ref());
                judged.map_err(|wrong| format!("{wrong}\n  {pop:?}"))?;
                let lease = reply.as_ref().and_then(lease_of);
                match reply {
                    None => {
                        self.pops.insert(id, (tenant, pop));
                    }
                    Some(_) if fate == Fate::Unsent => {
                        self.broker.gone(self.both(), id);
                        self.model.gone(self.time(), id, lease);
                        self.settle()?;
                    }
                    Some(reply) => {
                        self.broker.sent(id);
                        self.remember(tenant, &pop.group, reply);
                    }
                }
            }
        }
        self.judge_waiting()
    }

    fn delete_queue(&mut self, of: TenantId, name: QueueName) -> Outcome {
        let released = self.model.released_by_deletion(of, &name);
        let command = Command::DeleteQueue { queue: name };
        let reply = self.ask(of, &command)?;
        if let Some(reply) = reply {
            for id in released {
                match self.take_reply(id) {
                    Some(Reply::Popped(None)) => self.model.released(id),
                    Some(Reply::Refused(_)) if self.disturbed => self.model.released(id),
                    other => return Err(format!("a pop whose queue was deleted is told {other:?}")),
                }
                self.pops.remove(&id);
            }
            self.model.judge(self.time(), of, &command, &reply)?;
        }
        self.judge_waiting()
    }

    /// Another broker takes the slot and leaves it again.
    fn steal(&mut self) {
        self.cold = true;
        self.model.restart();
        self.disturbed = true;
        let (slot, now) = (Slot(0), self.time());
        if let StoreReply::Watched(view) = (self.store)(now, StoreRequest::Watch(slot)) {
            let token = Token(u128::from(self.random.next()));
            let take = StoreRequest::Take { slot, seen: view.epoch, token, owner: "thief".into() };
            if let StoreReply::Taken(epoch) = (self.store)(now, take) {
                let fence = tidegate_core::store::Fence { slot, epoch, token };
                (self.store)(now, StoreRequest::Release(fence));
            }
        }
    }
}

fn broker(plan: &Plan, random: &mut Random) -> Broker {
    let mut entropy = [0; 32];
    entropy.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&random.next().to_le_bytes()));
    let settings = Settings { window_batch: plan.window_batch, ..Settings::default() };
    Broker::new(settings, entropy)
}

fn other(tenant_id: TenantId) -> TenantId {
    if tenant_id == tenant(0) { tenant(1) } else { tenant(0) }
}

fn lease_of(reply: &Reply) -> Option<LeaseId> {
    match reply {
        Reply::Popped(Some(delivery)) => delivery.lease,
        _ => None,
    }
}
