//! What each kind of step does: its symbols become names and ids here, at the moment it happens.

use std::collections::VecDeque;

use compact_str::CompactString;
use tidegate_core::command::{self, Address, Command, PopScope, SeekTarget};
use tidegate_core::options::Labels;
use tidegate_core::record::StartFrom;
use tidegate_core::time::{Span, Timestamp};

use super::names::{namespace_text, options_of};
use super::store::{EPOCH, Fate, On};
use super::{Coming, NOBODY, World, answers};
use crate::history::{
    AckItem, Answer, ClientNo, DeadLetter, Delivered, Event, Fault, GroupNo, HostNo, Item, Key, LaneNo, LeaseNo,
    Micros, OpNo, Operation, Part, PartitionNo, Pop, Proof, QueueNo, Scope, Stamp, Start, Status, Target, TenantNo,
    TextNo,
};
use crate::step::{Kind, Step};

/// Batches, operations and dead letters that a client remembers.
const MEMORY: usize = 8;

/// A client: what it was given, and what it did.
pub struct Client {
    pub tenant: TenantNo,
    batches: VecDeque<Batch>,
    operations: VecDeque<u32>,
    dead: VecDeque<DeadLetter>,
    /// The broker it speaks to.
    host: u8,
}

/// A delivery.
#[derive(Clone)]
struct Batch {
    group: GroupNo,
    lease: Option<LeaseNo>,
    messages: Vec<Delivered>,
    expires: Stamp,
}

impl Client {
    pub fn new(tenant: TenantNo) -> Self {
        Client { tenant, batches: VecDeque::new(), operations: VecDeque::new(), dead: VecDeque::new(), host: 0 }
    }
}

fn remember<T>(list: &mut VecDeque<T>, thing: T) {
    list.push_front(thing);
    list.truncate(MEMORY);
}

impl World {
    /// Before the first step: brokers start, and queues get their options.
    pub(super) fn begin(&mut self) {
        self.calls.push(super::entry::Call::none());
        self.phase(crate::history::Phase::Storm);
        for (number, client) in self.clients.iter_mut().enumerate() {
            client.host = (number % self.hosts.len()) as u8;
        }
        // The first broker takes its slots at once; a fleet needs a few heartbeats.
        let start = if self.hosts.len() > 1 { 3_000_000 } else { 0 };
        self.advance(start);
        if self.setup.configured != 0 {
            for queue in 0..self.names.queue_count() {
                let queue = QueueNo(queue);
                let client = self.client_of(self.names.tenant_of_queue(queue));
                self.configure(client, queue, 0);
            }
            self.advance(self.now + 2 * (self.setup.net_latency + self.store_delay_most()) + self.setup.jitter);
        }
    }

    fn client_of(&self, tenant: TenantNo) -> ClientNo {
        let first = self.clients.iter().skip(1).position(|client| client.tenant == tenant);
        ClientNo(first.map_or(1, |at| at as u16 + 1))
    }

    /// The client that drains a tenant.
    pub(super) fn drainer(&self, tenant: TenantNo) -> ClientNo {
        ClientNo(self.setup.clients as u16 + 1 + tenant.0)
    }

    /// Does a step.
    pub(super) fn step(&mut self, step: &Step) {
        self.counts.steps += 1;
        self.advance(self.now + step.delay.max(0));
        let a = &step.arguments;
        let client = ClientNo(1 + a[0] % self.setup.clients as u16);
        let tenant = self.clients[client.index()].tenant;
        let lane = |world: &World, at: usize| world.names.lane_of_tenant(tenant, a[at]);
        let group = |world: &World, number: u16| GroupNo(number % world.names.group_count());
        let host = (a[0] % self.hosts.len() as u16) as u8;
        match step.kind {
            Kind::Push => self.push_step(client, lane(self, 1), a[2], a[3], a[4]),
            Kind::Pop => {
                let lane = lane(self, 1);
                let scope = match a[2] % 5 {
                    0..3 => Scope::Queue(self.names.queue_of_lane(lane)),
                    3 => Scope::Lane(lane),
                    _ => Scope::Namespace(self.names.namespace_of_queue(self.names.queue_of_lane(lane))),
                };
                let pop = Pop {
                    scope,
                    group: group(self, a[3]),
                    batch: [1, 2, 3, 10, 100, 4][usize::from(a[4] % 6)],
                    partitions: [1, 1, 0, 2][usize::from(a[7] % 4)],
                    auto_ack: a[7] % 16 == 15,
                    wait: if a[5] % 8 < 3 { 0 } else { self.setup.length(a[5] * 5) },
                    lease: if a[6] % 5 < 3 { 0 } else { self.setup.length(a[6] * 4 - 12).max(1) },
                    start: match a[7] / 4 % 4 {
                        1 => Start::All,
                        2 => Start::New,
                        3 if a[7] % 2 == 1 => Start::Time(EPOCH + self.now - self.setup.length(a[4])),
                        _ => Start::Default,
                    },
                };
                self.pop(client, pop);
            }
            Kind::Ack => self.ack_step(client, a[1], a[2], a[3], a[4], a[5]),
            Kind::Extend => {
                let lease = self.batch(client, a[1]).map_or(Proof::Foreign, lease_of);
                let length = self.setup.length(a[2]);
                self.leases_end = self.leases_end.max(self.now + length);
                let proof = answers::proof(&self.names, lease);
                let command = Command::Extend { lease: proof, length: Span::from_micros(length) };
                self.act(client, Operation::Extend { lease, length }, command);
            }
            Kind::Transaction => self.transaction_step(client, a),
            Kind::Repeat => self.repeat(client, a[1]),
            Kind::Configure => {
                let lane = lane(self, 1);
                self.configure(client, self.names.queue_of_lane(lane), a[2]);
            }
            Kind::DeleteQueue => {
                let lane = lane(self, 1);
                let queue = self.names.queue_of_lane(lane);
                // Whoever makes it again makes it with a minute's lease.
                self.recreated = true;
                let command = Command::DeleteQueue { queue: self.names.queue_name(queue) };
                self.act(client, Operation::DeleteQueue { queue }, command);
            }
            Kind::Seek => {
                let (lane, group) = (lane(self, 1), group(self, a[2]));
                let queue = self.names.queue_of_lane(lane);
                let target = match a[4] % 4 {
                    0 => Target::End,
                    1 => Target::Time(0),
                    2 => Target::Time(self.committed_at.last().copied().unwrap_or(EPOCH)),
                    _ => Target::Time(EPOCH + self.now - self.setup.length(a[4])),
                };
                let only = a[3] % 2 == 1;
                let command = Command::Seek {
                    group: self.names.group_name(group),
                    queue: self.names.queue_name(queue),
                    partition: only.then(|| self.names.partition_name(lane)),
                    target: match target {
                        Target::End => SeekTarget::End,
                        Target::Time(time) => SeekTarget::Time(Timestamp::from_micros(time)),
                    },
                };
                self.act(client, Operation::Seek { group, queue, lane: only.then_some(lane), target }, command);
            }
            Kind::DeleteGroup => {
                let (lane, group) = (lane(self, 1), group(self, a[2]));
                let queue = (a[3].is_multiple_of(2)).then(|| self.names.queue_of_lane(lane));
                let metadata = (a[3] / 2).is_multiple_of(2);
                let command = Command::DeleteGroup {
                    group: self.names.group_name(group),
                    queue: queue.map(|queue| self.names.queue_name(queue)),
                    metadata,
                };
                self.act(client, Operation::DeleteGroup { group, queue, metadata }, command);
            }
            Kind::ChangeSubscription => {
                let group = group(self, a[1]);
                let since = EPOCH + self.now - if a[2].is_multiple_of(8) { 0 } else { self.setup.length(a[2]) };
                let command = Command::ChangeSubscription {
                    group: self.names.group_name(group),
                    since: Timestamp::from_micros(since),
                };
                self.act(client, Operation::ChangeSubscription { group, since }, command);
            }
            Kind::FindMessage => {
                let Some((partition, key)) = self.some_message(client, a[1]) else { return };
                let command = Command::FindMessage(self.address(partition, key));
                self.act(client, Operation::FindMessage { partition, key }, command);
            }
            Kind::ListDeadLetters => {
                let (lane, group) = (lane(self, 1), group(self, a[2]));
                let queue = (a[3].is_multiple_of(2)).then(|| self.names.queue_of_lane(lane));
                let group = (a[3] / 2 % 2 == 1).then_some(group);
                let (limit, offset) = [(100, 0), (2, 0), (2, 1), (1, 2)][usize::from(a[4] % 4)];
                self.list_dead_letters(client, queue, group, limit, offset);
            }
            Kind::DropDeadLetters => {
                let Some((partition, key)) = self.some_dead(client, a[1]) else { return };
                let command = Command::DropDeadLetters(self.address(partition, key));
                self.act(client, Operation::DropDeadLetters { partition, key }, command);
            }
            Kind::Replay => {
                let Some((partition, key)) = self.some_dead(client, a[1]) else { return };
                let group = (!a[2].is_multiple_of(4)).then(|| group(self, a[2]));
                let name = group.map(|group| self.names.group_name(group));
                let command = Command::Replay { address: self.address(partition, key), group: name };
                self.act(client, Operation::Replay { partition, key, group }, command);
            }
            Kind::DescribeQueue => {
                let lane = lane(self, 1);
                self.describe(client, self.names.queue_of_lane(lane));
            }
            Kind::ListGroups => {
                let group = (!a[1].is_multiple_of(4)).then(|| group(self, a[1]));
                self.list_groups(client, group);
            }

            Kind::UntilLease => {
                let newest = self.clients.iter().flat_map(|client| &client.batches).map(|batch| batch.expires);
                let mut ends: Vec<Stamp> = newest.filter(|at| *at > EPOCH + self.now).collect();
                ends.sort_unstable();
                let end = ends.get(usize::from(a[0]) % ends.len().max(1)).copied();
                self.until(end, a[1]);
            }
            Kind::UntilDelay => self.until_after(a[0], self.setup.delay * 1_000_000, a[1]),
            Kind::UntilWindow => self.until_after(a[0], self.setup.window * 1_000_000, a[1]),
            Kind::UntilDedup => self.until_after(a[0], self.setup.dedup * 1_000_000, a[1]),

            Kind::AnswerLost => self.store.arm(On::of(a[0]), Fate::AnswerLost),
            Kind::RequestLost => self.store.arm(On::of(a[0]), Fate::RequestLost),
            Kind::Fenced => self.store.arm(On::of(a[0]), Fate::Fenced),
            Kind::Failed => self.store.arm(On::of(a[0]), Fate::Failed),
            Kind::Stalled => self.store.arm(On::of(a[0]), Fate::Stalled(self.setup.length(a[1]).min(30_000_000))),
            Kind::Late => self.store.arm(On::of(a[0]), Fate::Late(self.setup.length(a[1]).min(30_000_000))),
            Kind::SuffixLost => {
                let count = 1 + usize::from(a[0] % 5);
                if let Some(last) = self.store.lose(count) {
                    self.fault(NOBODY, 0, OpNo(0), Fault::SuffixLost(count as u32));
                    self.record(NOBODY, 0, OpNo(0), Event::Lost { last });
                }
            }
            Kind::Outage => {
                let length = self.short(a[0]);
                self.store.out_until = self.store.out_until.max(self.now + length);
                self.fault(NOBODY, 0, OpNo(0), Fault::Outage(length));
            }
            Kind::CutFromStore => {
                let length = self.short(a[1]);
                self.hosts[usize::from(host)].cut_from_store = self.now + length;
                self.fault(NOBODY, host, OpNo(0), Fault::CutFromStore(length));
            }
            Kind::CutFromBroker => {
                let other = (a[1] % self.hosts.len() as u16) as u8;
                let length = self.short(a[2]);
                if other != host {
                    self.hosts[usize::from(host)].cut_from[usize::from(other)] = self.now + length;
                    self.hosts[usize::from(other)].cut_from[usize::from(host)] = self.now + length;
                    self.fault(NOBODY, host, OpNo(0), Fault::CutFromBroker(HostNo(u16::from(other)), length));
                }
            }
            Kind::CutFromClients => {
                let length = self.short(a[1]);
                self.hosts[usize::from(host)].cut_from_clients = self.now + length;
                self.fault(NOBODY, host, OpNo(0), Fault::CutFromClients(length));
            }
            Kind::Crash => {
                if self.hosts[usize::from(host)].up {
                    self.fault(NOBODY, host, OpNo(0), Fault::Crash);
                    let length = self.short(a[1]);
                    self.stop_host(host, length);
                }
            }
            Kind::Pause => {
                let length = self.short(a[1]);
                if self.hosts[usize::from(host)].up {
                    self.hosts[usize::from(host)].paused_until = self.now + length;
                    self.fault(NOBODY, host, OpNo(0), Fault::Pause(length));
                }
            }
            Kind::Shutdown => {
                let place = &self.hosts[usize::from(host)];
                if place.up && !place.stopping && place.paused_until <= self.now {
                    self.fault(NOBODY, host, OpNo(0), Fault::Shutdown);
                    let length = self.short(a[1]);
                    self.shut_down(host, length);
                }
            }
            Kind::HeartbeatLost => {
                self.hosts[usize::from(host)].beat_lost = true;
                self.fault(NOBODY, host, OpNo(0), Fault::HeartbeatLost);
            }
            Kind::StoreClockJump => {
                let by = if a[0].is_multiple_of(2) { self.setup.length(a[1]) } else { -self.setup.length(a[1]) };
                self.store.clock_offset += by;
                self.fault(NOBODY, 0, OpNo(0), Fault::StoreClockJump(by));
            }
            Kind::Drift => {
                let millionths = [10, -10, 100, -100, 1_000, -1_000, 10_000, -10_000][usize::from(a[1] % 8)];
                self.hosts[usize::from(host)].drift(self.now, millionths);
                self.fault(NOBODY, host, OpNo(0), Fault::Drift(millionths as i32));
            }
            Kind::Slow => {
                let length = self.short(a[0]);
                self.slowness = length;
                self.fault(NOBODY, 0, OpNo(0), Fault::Slow(length));
                self.later(length, Coming::Quick);
            }
            Kind::LostOnTheWay => self.armed.lose_request = true,
            Kind::AnswerRefused => self.armed.refuse_answer = true,
            Kind::AnswerVanished => self.armed.vanish_answer = true,
            Kind::Duplicated => self.armed.duplicate = Some(self.setup.length(a[0])),
            Kind::ClientLeft => {
                let mine = |call: &&u32| self.calls[**call as usize].client == client;
                let nth = self.open.iter().rev().filter(mine).nth(usize::from(a[1])).copied();
                if let Some(call) = nth {
                    self.fault(client, self.calls[call as usize].host, OpNo(call), Fault::ClientLeft);
                    self.leave(call);
                }
            }
            Kind::ClientCrash => {
                let mine = |call: &&u32| self.calls[**call as usize].client == client;
                let calls: Vec<u32> = self.open.iter().filter(mine).copied().collect();
                self.fault(NOBODY, self.clients[client.index()].host, OpNo(0), Fault::ClientCrash);
                for call in calls {
                    self.leave(call);
                }
                let known = &mut self.clients[client.index()];
                known.batches.clear();
                known.operations.clear();
                // It comes back at another door.
                known.host = known.host.wrapping_add(1) % self.hosts.len() as u8;
            }
        }
    }

    /// A length that a fault may last: what takes longer only makes a run longer.
    fn short(&self, number: u16) -> Micros {
        self.setup.length(number).min(12_000_000)
    }

    fn until(&mut self, stamp: Option<Stamp>, edge: u16) {
        let Some(stamp) = stamp else { return };
        let at = stamp - EPOCH - self.store.clock_offset + i64::from(edge % 3) - 1;
        if at > self.now && at < self.now + 100_000_000 {
            self.advance(at);
        }
    }

    fn until_after(&mut self, nth: u16, length: Micros, edge: u16) {
        let newest = self.committed_at.iter().rev().nth(usize::from(nth)).map(|at| at + length);
        self.until(newest, edge);
    }

    fn act(&mut self, client: ClientNo, operation: Operation, command: Command) -> u32 {
        let host = self.clients[client.index()].host;
        let call = self.send(client, host, operation, command);
        remember(&mut self.clients[client.index()].operations, call);
        call
    }

    // Operations.

    fn push_step(&mut self, client: ClientNo, lane: LaneNo, count: u16, text: u16, spread: u16) {
        let count = [1, 1, 2, 3, 5, 20][usize::from(count % 6)];
        let tenant = self.clients[client.index()].tenant;
        let mut items: Vec<Item> = Vec::with_capacity(count);
        for n in 0..count {
            let lane = match spread % 4 {
                0 => self.names.lane_of_tenant(tenant, lane.0 + n as u16),
                _ => lane,
            };
            let text = match (text % 8, n) {
                (0, _) => None,
                (4, 0) => self.older_text(lane, 0, true),
                (5, _) => self.older_text(lane, n, true),
                (6, 0) => self.older_text(lane, 0, false),
                (7, 1) => items[0].text,
                _ => Some(self.names.new_text()),
            };
            let payload = self.names.new_payload();
            items.push(Item { lane, text, payload });
        }
        self.push_items(client, items);
    }

    pub(super) fn push_items(&mut self, client: ClientNo, items: Vec<Item>) -> u32 {
        for item in &items {
            if let Some(text) = item.text {
                self.pushed.push((item.lane, text));
            }
        }
        let push = command::Push::new(items.iter().map(|item| self.addressed(item)));
        self.act(client, Operation::Push { items }, Command::Push(push))
    }

    fn addressed(
        &self,
        item: &Item,
    ) -> (tidegate_core::name::QueueName, tidegate_core::name::PartitionName, tidegate_core::message::NewMessage) {
        let queue = self.names.queue_name(self.names.queue_of_lane(item.lane));
        (queue, self.names.partition_name(item.lane), self.names.message(item.text, item.payload))
    }

    /// A transaction id that was pushed before, to this lane or to any.
    fn older_text(&self, lane: LaneNo, nth: usize, same: bool) -> Option<TextNo> {
        let fits = |(of, _): &&(LaneNo, TextNo)| !same || *of == lane;
        self.pushed.iter().rev().take(64).filter(fits).nth(nth).map(|(_, text)| *text)
    }

    /// Asks for messages.
    pub(super) fn pop(&mut self, client: ClientNo, pop: Pop) -> u32 {
        let usual = if self.setup.configured == 0 { 60 } else { self.setup.lease.max(60 * i64::from(self.recreated)) };
        let lease = if pop.lease > 0 { pop.lease } else { usual * 1_000_000 };
        self.leases_end = self.leases_end.max(self.now + pop.wait + lease);
        self.note_group(client, &pop);
        let core = command::Pop {
            scope: match pop.scope {
                Scope::Queue(queue) => PopScope::Queue(self.names.queue_name(queue)),
                Scope::Lane(lane) => {
                    let queue = self.names.queue_name(self.names.queue_of_lane(lane));
                    PopScope::Partition(queue, self.names.partition_name(lane))
                }
                Scope::Namespace(namespace) => {
                    PopScope::Labels(Labels { namespace: namespace_text(namespace), task: CompactString::default() })
                }
            },
            group: self.names.group_name(pop.group),
            batch: pop.batch,
            partitions: (pop.partitions != 0).then_some(pop.partitions),
            auto_ack: pop.auto_ack,
            wait: (pop.wait > 0).then(|| Span::from_micros(pop.wait)),
            lease: (pop.lease > 0).then(|| Span::from_micros(pop.lease)),
            start: match pop.start {
                Start::Default => None,
                Start::All => Some(StartFrom::All),
                Start::New => Some(StartFrom::New),
                Start::Time(time) => Some(StartFrom::Time(Timestamp::from_micros(time))),
            },
        };
        self.act(client, Operation::Pop(pop), Command::Pop(core))
    }

    fn note_group(&mut self, client: ClientNo, pop: &Pop) {
        let groups = self.names.group_count();
        let mut note = |queue: QueueNo| self.groups_used[usize::from(queue.0 * groups + pop.group.0)] = true;
        match pop.scope {
            Scope::Queue(queue) => note(queue),
            Scope::Lane(lane) => note(self.names.queue_of_lane(lane)),
            Scope::Namespace(_) => {
                let tenant = self.clients[client.index()].tenant;
                (0..self.names.queue_count())
                    .map(QueueNo)
                    .filter(|queue| self.names.tenant_of_queue(*queue) == tenant)
                    .for_each(note);
            }
        }
    }

    fn batch(&self, client: ClientNo, nth: u16) -> Option<&Batch> {
        let batches = &self.clients[client.index()].batches;
        batches.get(usize::from(nth) % batches.len().max(1))
    }

    /// The newest delivery, which its client forgets.
    pub(super) fn take_newest(&mut self, client: ClientNo) -> Option<(Proof, Vec<Delivered>)> {
        let batch = self.clients[client.index()].batches.pop_front()?;
        Some((lease_of(&batch), batch.messages))
    }

    fn ack_step(&mut self, client: ClientNo, nth: u16, shape: u16, status: u16, proof: u16, group: u16) {
        let whose = if group % 8 == 6 { ClientNo(1 + client.0 % self.setup.clients as u16) } else { client };
        let Some(batch) = self.batch(whose, nth) else { return };
        let status = match status % 8 {
            0..4 => Status::Completed,
            4..6 => Status::Failed,
            6 => Status::Retry,
            _ => Status::DeadLetter,
        };
        let lease = match proof % 10 {
            0..7 => lease_of(batch),
            7 => Proof::None,
            8 => Proof::Foreign,
            _ => {
                let others = self.clients.iter().flat_map(|client| &client.batches);
                others.filter(|other| other.lease != batch.lease).map(lease_of).next().unwrap_or(Proof::Foreign)
            }
        };
        let group = if group % 8 == 7 { GroupNo((batch.group.0 + 1) % self.names.group_count()) } else { batch.group };
        let item =
            |message: &Delivered, status| AckItem { partition: message.partition, key: message.key, status, lease };
        let all = &batch.messages;
        let chosen: &[Delivered] = match shape % 7 {
            3 => &all[..1],
            4 if all.len() > 1 => &all[..all.len() - 1],
            5 => &all[all.len() - 1..],
            _ => all,
        };
        let mixed = shape % 7 == 6;
        let half = chosen.len() / 2;
        let items: Vec<AckItem> = chosen
            .iter()
            .enumerate()
            .map(|(n, message)| item(message, if mixed && n != half { Status::Completed } else { status }))
            .collect();
        self.ack(client, group, items);
    }

    /// Settles messages.
    pub(super) fn ack(&mut self, client: ClientNo, group: GroupNo, items: Vec<AckItem>) -> u32 {
        let core = items.iter().map(|item| self.core_item(item)).collect();
        let command = Command::Ack(command::Ack { group: self.names.group_name(group), items: core });
        self.act(client, Operation::Ack { group, items }, command)
    }

    fn core_item(&self, item: &AckItem) -> command::AckItem {
        command::AckItem {
            partition: self.names.partition_id(item.partition),
            transaction: Some(self.names.key_id(item.key)),
            status: answers::status(item.status),
            lease: answers::proof(&self.names, item.lease),
            error: None,
        }
    }

    fn transaction_step(&mut self, client: ClientNo, a: &[u16]) {
        let tenant = self.clients[client.index()].tenant;
        let batch = self.batch(client, a[1]).cloned();
        let mut parts = Vec::new();
        let mut required = Vec::new();
        let pushes = [1, 0, 2, 3][usize::from(a[2] % 4)];
        for n in 0..pushes {
            let lane = self.names.lane_of_tenant(tenant, a[3] + n);
            let text = match (a[4] % 8, n) {
                (0, _) => None,
                (5, _) => self.older_text(lane, 0, true),
                (6, 1) => parts.iter().find_map(|part| match part {
                    Part::Push(item) => item.text,
                    Part::Ack(..) => None,
                }),
                _ => Some(self.names.new_text()),
            };
            if let Some(text) = text {
                self.pushed.push((lane, text));
            }
            let payload = self.names.new_payload();
            parts.push(Part::Push(Item { lane, text, payload }));
        }
        if let Some(batch) = batch {
            let status = [
                Status::Completed,
                Status::Completed,
                Status::Completed,
                Status::Failed,
                Status::DeadLetter,
                Status::Retry,
            ][usize::from(a[6] % 6)];
            let lease = lease_of(&batch);
            let take = if a[5] % 4 == 3 { 1 } else { batch.messages.len() };
            let acks = batch.messages.iter().take(take).map(|message| {
                let item = AckItem { partition: message.partition, key: message.key, status, lease };
                Part::Ack(batch.group, item)
            });
            parts.extend(acks);
            match a[7] % 8 {
                0 => required.push(lease),
                1 => required.push(Proof::Foreign),
                _ => {}
            }
            if a[5] % 4 == 2 {
                parts.reverse();
            }
        }
        if parts.is_empty() {
            return;
        }
        let operations = parts.iter().map(|part| match part {
            Part::Push(item) => {
                let (queue, partition, message) = self.addressed(item);
                command::Operation::Push { queue, partition, message }
            }
            Part::Ack(group, item) => {
                command::Operation::Ack { group: self.names.group_name(*group), item: self.core_item(item) }
            }
        });
        let operations = operations.collect();
        let required_leases = required.iter().map(|proof| answers::proof(&self.names, *proof)).collect();
        let command = Command::Transaction(command::Transaction { operations, required_leases });
        self.act(client, Operation::Transaction { parts, required }, command);
    }

    /// A client does again what it did.
    fn repeat(&mut self, client: ClientNo, nth: u16) {
        let operations = &self.clients[client.index()].operations;
        let Some(call) = operations.get(usize::from(nth) % operations.len().max(1)).copied() else { return };
        let (operation, command) = self.calls[call as usize].again();
        self.act(client, operation, command);
    }

    fn configure(&mut self, client: ClientNo, queue: QueueNo, variant: u16) {
        let options = self.setup.options(u64::from(variant), self.names.namespace_of_queue(queue));
        let (core, labels) = options_of(&options);
        let command = Command::Configure { queue: self.names.queue_name(queue), options: core, labels };
        self.act(client, Operation::Configure { queue, options: Box::new(options) }, command);
    }

    fn address(&self, partition: PartitionNo, key: Key) -> Address {
        Address { partition: self.names.partition_id(partition), transaction: self.names.key_id(key) }
    }

    fn some_message(&self, client: ClientNo, nth: u16) -> Option<(PartitionNo, Key)> {
        let messages = self.clients[client.index()].batches.iter().flat_map(|batch| &batch.messages);
        messages.map(|message| (message.partition, message.key)).nth(usize::from(nth))
    }

    fn some_dead(&self, client: ClientNo, nth: u16) -> Option<(PartitionNo, Key)> {
        let dead = &self.clients[client.index()].dead;
        let listed = dead.get(usize::from(nth) % dead.len().max(1)).map(|letter| (letter.partition, letter.key));
        listed.or_else(|| self.some_message(client, nth))
    }

    /// Lists dead letters.
    pub(super) fn list_dead_letters(
        &mut self,
        client: ClientNo,
        queue: Option<QueueNo>,
        group: Option<GroupNo>,
        limit: u32,
        offset: u32,
    ) -> u32 {
        let command = Command::ListDeadLetters {
            queue: queue.map(|queue| self.names.queue_name(queue)),
            group: group.map(|group| self.names.group_name(group)),
            limit: limit as usize,
            offset: offset as usize,
        };
        self.act(client, Operation::ListDeadLetters { queue, group, limit, offset }, command)
    }

    /// Describes a queue.
    pub(super) fn describe(&mut self, client: ClientNo, queue: QueueNo) -> u32 {
        let command = Command::DescribeQueue { queue: self.names.queue_name(queue) };
        self.act(client, Operation::DescribeQueue { queue }, command)
    }

    /// Lists where groups stand.
    pub(super) fn list_groups(&mut self, client: ClientNo, group: Option<GroupNo>) -> u32 {
        let command = Command::ListGroups { group: group.map(|group| self.names.group_name(group)) };
        self.act(client, Operation::ListGroups { group }, command)
    }

    /// What a client keeps in mind of an answer.
    pub(super) fn learn(&mut self, call: u32, answer: &Answer) {
        let of = &self.calls[call as usize];
        let (client, now) = (of.client.index(), self.now);
        match (answer, &of.operation) {
            (Answer::Popped(delivery), Operation::Pop(pop)) if !delivery.messages.is_empty() => {
                let lease = if pop.lease > 0 { pop.lease } else { self.setup.lease * 1_000_000 };
                let batch = Batch {
                    group: pop.group,
                    lease: delivery.lease,
                    messages: delivery.messages.clone(),
                    expires: self.store.time(now).as_micros() + lease,
                };
                remember(&mut self.clients[client].batches, batch);
            }
            (Answer::DeadLetters(rows), _) => {
                for row in rows.iter().rev() {
                    remember(&mut self.clients[client].dead, *row);
                }
            }
            _ => {}
        }
    }
}

fn lease_of(batch: &Batch) -> Proof {
    batch.lease.map_or(Proof::None, Proof::Lease)
}
