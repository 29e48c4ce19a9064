//! From symbols to commands: what "the second message of the last delivery" is by now.

use bytes::Bytes;
use tidegate_core::command::{
    Ack, AckItem, Address, Command, LeaseProof, Operation, Pop, PopScope, Push, RequestId, SeekTarget, Transaction,
};
use tidegate_core::message::NewMessage;
use tidegate_core::name::{GroupName, PartitionId, PartitionName, QueueName, TenantId, TraceId, TransactionId};
use tidegate_core::options::{Labels, QueueOptions};
use tidegate_core::record::StartFrom;
use tidegate_core::time::{Span, Timestamp};
use uuid::Uuid;

use super::super::commands::{self, Ask, From, Id, Item, Knobs, Mark, Proof, Start, Take, When};
use super::super::spec::{Message, Wrong, defaults};
use super::{Delivered, PATIENCE, Run};

const QUEUES: [&str; 3] = ["a.b", "plain", "n.b.z"];
const PARTITIONS: [&str; 3] = ["Default", "p1", "p2"];
const GROUPS: [&str; 3] = ["g1", "__QUEUE_MODE__", "g2"];
const NAMESPACES: [&str; 3] = ["a", "plain", "n"];
const TASKS: [&str; 3] = ["b", "", "t"];

pub fn queue(place: u8) -> QueueName {
    QueueName::new(QUEUES[usize::from(place) % 3]).unwrap()
}

fn partition(place: u8) -> PartitionName {
    PartitionName::new(PARTITIONS[usize::from(place) % 3]).unwrap()
}

fn group(place: u8) -> GroupName {
    GroupName::new(GROUPS[usize::from(place) % 3]).unwrap()
}

pub fn tenant(number: u8) -> TenantId {
    TenantId(Uuid::from_u128(1 + u128::from(number)))
}

fn transaction_id(text: &str) -> TransactionId {
    TransactionId::new(text).unwrap()
}

impl Run {
    /// A client asks, and waits for its answer; a long poll may stay.
    pub(super) fn ask(&mut self, tenant_number: u8, ask: &Ask) -> Result<(), Wrong> {
        if !self.calls.is_empty() && self.store.owes() {
            // A parked call may be just about to be answered; what another is told then depends on it.
            self.until("the store must answer", |run| !run.store.owes())?;
        }
        let tenant = tenant(tenant_number);
        let command = self.command(tenant, ask);
        self.clear_the_way(tenant, &command)?;
        let id = self.send(tenant, command);
        self.tick()?;
        self.answered(id)
    }

    /// Clients ask at once, while the store keeps what it is asked to itself; then it answers in some order.
    pub(super) fn together(&mut self, asks: &[Ask], order: u8) -> Result<(), Wrong> {
        if !self.at_rest() {
            return asks.iter().try_for_each(|ask| self.ask(0, ask));
        }
        let tenant = tenant(0);
        let commands: Vec<Command> = asks.iter().map(|ask| self.command(tenant, ask)).collect();
        for command in &commands {
            self.clear_the_way(tenant, command)?;
        }
        self.store.holding = true;
        let mut ids = Vec::new();
        for command in commands {
            ids.push(self.send(tenant, command));
            self.pump()?;
        }
        let mut order = u32::from(order);
        let now = self.store_time();
        while self.store.let_go((order % 4) as u8, now) {
            order /= 2;
            self.pump()?;
        }
        self.store.holding = false;
        self.tick()?;
        ids.into_iter().try_for_each(|id| self.answered(id))
    }

    /// Lets time pass until a call is answered, unless it may be parked.
    pub(super) fn answered(&mut self, id: RequestId) -> Result<(), Wrong> {
        let asked = self.at;
        loop {
            let Some(call) = self.calls.get(&id) else { return Ok(()) };
            if call.deadline.is_some() {
                return Ok(());
            }
            if !call.excused {
                return Err(format!("no answer at once to {:?}", call.command));
            }
            if self.at > asked + PATIENCE {
                return Err(format!("no answer in {} s to {:?}", PATIENCE / 1_000_000, call.command));
            }
            let mut next = self.at + 1_000_000;
            let arrivals = [self.store.next().map(super::moment), self.broker.deadline().map(|at| at.as_micros())];
            for moment in arrivals.into_iter().flatten().filter(|&moment| moment > self.at) {
                next = next.min(moment);
            }
            self.advance(next)?;
        }
    }

    /// Where a parked client with a start of its own comes again after a deletion, the page does not say; it leaves.
    fn clear_the_way(&mut self, tenant: TenantId, command: &Command) -> Result<(), Wrong> {
        let deleted = match command {
            Command::DeleteQueue { .. } => None,
            Command::DeleteGroup { group, .. } => Some(group),
            _ => return Ok(()),
        };
        let from_now = |call: &super::Call| match &call.command {
            Command::Pop(pop) => {
                let start = pop.start.unwrap_or(self.rules.default_start);
                call.tenant == tenant && start != StartFrom::All && deleted.is_none_or(|group| *group == pop.group)
            }
            _ => false,
        };
        let leaving: Vec<RequestId> = self.calls.values().filter(|call| from_now(call)).map(|call| call.id).collect();
        leaving.into_iter().try_for_each(|id| self.leave(id))
    }

    fn command(&mut self, tenant: TenantId, ask: &Ask) -> Command {
        match ask {
            Ask::Push(items) => {
                let items: Vec<_> = items
                    .iter()
                    .map(|item| (queue(item.queue), partition(item.partition), self.message(item, None)))
                    .collect();
                Command::Push(Push::new(items))
            }
            Ask::Pop(take) => Command::Pop(self.pop(take)),
            Ask::Ack { of, group: other, marks } => {
                let delivered = self.delivered(*of);
                let items = marks.iter().map(|mark| self.ack_item(&delivered, mark)).collect();
                Command::Ack(Ack { group: other.map_or(delivered.group, group), items })
            }
            Ask::Extend { of, by, ms } => {
                let delivered = self.delivered(*of);
                Command::Extend { lease: self.proof(&delivered, *by), length: Span::from_millis(i64::from(*ms)) }
            }
            Ask::Transaction { of, pushes, marks, require } => self.transaction(*of, pushes, marks, *require),
            Ask::Configure(place, knobs) => {
                let (options, labels) = options(knobs);
                Command::Configure { queue: queue(*place), options, labels }
            }
            Ask::DeleteQueue(place) => Command::DeleteQueue { queue: queue(*place) },
            Ask::ListQueues => Command::ListQueues,
            Ask::DescribeQueue(place) => Command::DescribeQueue { queue: queue(*place) },
            Ask::ListGroups(place) => Command::ListGroups { group: place.map(group) },
            Ask::ChangeSubscription(place, when) => {
                Command::ChangeSubscription { group: group(*place), since: self.time(*when) }
            }
            Ask::Seek { group: whose, queue: place, partition: only, to } => Command::Seek {
                group: group(*whose),
                queue: queue(*place),
                partition: only.map(partition),
                target: to.map_or(SeekTarget::End, |when| SeekTarget::Time(self.time(when))),
            },
            Ask::DeleteGroup { group: place, queue: only, metadata } => {
                Command::DeleteGroup { group: group(*place), queue: only.map(queue), metadata: *metadata }
            }
            Ask::Find(address) => Command::FindMessage(self.address(tenant, *address)),
            Ask::DropDead(address) => Command::DropDeadLetters(self.address(tenant, *address)),
            Ask::Replay(address, place) => {
                Command::Replay { address: self.address(tenant, *address), group: place.map(group) }
            }
            Ask::ListDead { queue: only, group: whose, limit, skip } => Command::ListDeadLetters {
                queue: only.map(queue),
                group: whose.map(group),
                limit: usize::from(*limit),
                offset: usize::from(*skip),
            },
            Ask::Probe => Command::Probe,
        }
    }

    fn message(&mut self, item: &Item, trace: Option<TraceId>) -> NewMessage {
        self.payloads += 1;
        let payload = Bytes::from(format!("\"m{}\"", self.payloads));
        self.pushed.insert(payload.clone());
        let transaction = match item.id {
            Id::None => None,
            Id::Small(n) => Some(transaction_id(&format!("id{n}"))),
            Id::OfMessage(n) => self.stored(n).map(|(_, message)| transaction_id(&message.id.to_string())),
        };
        NewMessage { transaction, payload, trace, producer: self.payloads.is_multiple_of(3).then(|| "producer".into()) }
    }

    /// The nth stored message, with its partition's id, in the likeliest state.
    fn stored(&self, n: u8) -> Option<(PartitionId, Message)> {
        let partitions = self.states[0].queues.iter().flat_map(|queue| &queue.partitions);
        let messages: Vec<(Option<PartitionId>, &Message)> =
            partitions.flat_map(|one| one.messages.iter().map(move |message| (one.id, message))).collect();
        let (partition, message) = messages.get(usize::from(n) % messages.len().max(1))?;
        Some(((*partition)?, (*message).clone()))
    }

    fn pop(&self, take: &Take) -> Pop {
        let scope = match take.from {
            From::Queue(place) => PopScope::Queue(queue(place)),
            From::Partition(place, part) => PopScope::Partition(queue(place), partition(part)),
            From::Labels(namespace, task) => {
                let (namespace, task) = match (namespace, task.filter(|task| task % 3 != 1)) {
                    (None, None) => (Some(0), None),
                    labels => labels,
                };
                let label = |names: [&str; 3], place: Option<u8>| {
                    place.map_or("", |place| names[usize::from(place) % 3]).into()
                };
                PopScope::Labels(Labels { namespace: label(NAMESPACES, namespace), task: label(TASKS, task) })
            }
        };
        let wait = take.wait_ms.map(|ms| Span::from_millis(i64::from(ms)));
        let mut start = take.start.map(|start| match start {
            Start::All => StartFrom::All,
            Start::New => StartFrom::New,
            Start::Time(when) => StartFrom::Time(self.time(when)),
        });
        // A group that parks where it is not registered at once: the page does not say from when it counts as new.
        if wait.is_some() && !matches!(scope, PopScope::Queue(_)) {
            start = Some(StartFrom::All);
        }
        Pop {
            scope,
            group: group(take.group),
            batch: u32::from(take.batch),
            partitions: take.cap.map(u32::from),
            auto_ack: take.auto_ack,
            wait,
            lease: take.lease_secs.map(|secs| Span::from_secs(i64::from(secs))),
            start,
        }
    }

    /// A recent delivery; one of a message that does not exist when there was none.
    fn delivered(&self, of: u8) -> Delivered {
        let recent = self.deliveries.len().checked_sub(1 + usize::from(of));
        let recent = recent.or_else(|| self.deliveries.len().checked_sub(1));
        recent.map_or_else(
            || Delivered { group: group(0), lease: None, messages: vec![(PartitionId(Uuid::nil()), "ghost".into())] },
            |place| self.deliveries[place].clone(),
        )
    }

    fn proof(&self, delivered: &Delivered, proof: Proof) -> LeaseProof {
        let own = |delivered: &Delivered| delivered.lease.map_or(LeaseProof::None, LeaseProof::Lease);
        match proof {
            Proof::Own => own(delivered),
            Proof::Nothing => LeaseProof::None,
            Proof::Foreign => LeaseProof::Foreign,
            Proof::Other(of) => own(&self.delivered(of)),
        }
    }

    fn ack_item(&self, delivered: &Delivered, mark: &Mark) -> AckItem {
        let place = usize::from(mark.message);
        // One past the end of the delivery means a message that was never pushed.
        let (partition, text) = if place == delivered.messages.len() {
            (delivered.messages[0].0, "ghost".to_owned())
        } else {
            delivered.messages[place % delivered.messages.len()].clone()
        };
        AckItem {
            partition,
            transaction: Some(transaction_id(&text)),
            status: mark.status,
            lease: self.proof(delivered, mark.proof),
            error: mark.reason.then(|| format!("because of {place}").into()),
        }
    }

    fn transaction(&mut self, of: u8, pushes: &[Item], marks: &[Mark], require: Option<Proof>) -> Command {
        let delivered = self.delivered(of);
        let acks: Vec<AckItem> = marks.iter().map(|mark| self.ack_item(&delivered, mark)).collect();
        let mut operations = Vec::new();
        let mut items = pushes.iter();
        for item in acks {
            operations.push(Operation::Ack { group: delivered.group.clone(), item });
            operations.extend(items.next().and_then(|item| self.transactional(item, marks, &delivered)));
        }
        for item in items {
            operations.extend(self.transactional(item, marks, &delivered));
        }
        let required_leases = require.map(|proof| self.proof(&delivered, proof));
        let required_leases = required_leases.filter(|proof| *proof != LeaseProof::None).into_iter().collect();
        Command::Transaction(Transaction { operations, required_leases })
    }

    /// A push in a transaction; none when it would give the id that another operation acks to a new message.
    fn transactional(&mut self, item: &Item, marks: &[Mark], delivered: &Delivered) -> Option<Operation> {
        let trace = (item.partition == 1).then(|| TraceId(Uuid::from_u128(7)));
        let message = self.message(item, trace);
        let text = message.transaction.as_ref().map(|id| id.as_str().to_owned());
        let acked = marks
            .iter()
            .any(|mark| self.ack_item(delivered, mark).transaction.map(|id| id.as_str().to_owned()) == text);
        let push = Operation::Push { queue: queue(item.queue), partition: partition(item.partition), message };
        (text.is_none() || !acked).then_some(push)
    }

    fn time(&self, when: When) -> Timestamp {
        let now = self.now().store;
        match when {
            When::Epoch => Timestamp::EPOCH,
            When::Ago(ms) => now.minus(Span::from_millis(i64::from(ms))),
            When::Now => now,
            When::Ahead(ms) => now.plus(Span::from_millis(i64::from(ms))),
            When::Commit(n, beside) => {
                let commit = self.stored(n).map_or(now, |(_, message)| message.created);
                commit.plus(Span::from_micros(i64::from(beside)))
            }
        }
    }

    fn address(&self, tenant: TenantId, address: commands::Address) -> Address {
        let found = match address {
            commands::Address::Delivered(of, message) => {
                let delivered = self.delivered(of);
                Some(delivered.messages[usize::from(message) % delivered.messages.len()].clone())
            }
            commands::Address::Stored(n) => {
                self.stored(n).map(|(partition, message)| (partition, message.transaction_text()))
            }
            commands::Address::Dead(n) => {
                let queues = self.states[0].queues.iter().filter(|queue| queue.tenant == tenant);
                let dead: Vec<(PartitionId, String)> = queues
                    .flat_map(|queue| &queue.partitions)
                    .flat_map(|one| one.dead.iter().filter_map(|dead| Some((one.id?, dead.message.transaction_text()))))
                    .collect();
                dead.get(usize::from(n) % dead.len().max(1)).cloned()
            }
            commands::Address::Nowhere => None,
        };
        let (partition, text) = found.unwrap_or((PartitionId(Uuid::nil()), "ghost".into()));
        Address { partition, transaction: transaction_id(&text) }
    }
}

fn options(knobs: &Knobs) -> (QueueOptions, Labels) {
    let options = QueueOptions {
        retry_limit: i64::from(knobs.retries),
        dead_letter_queue: knobs.dead_letters.0,
        dlq_after_max_retries: knobs.dead_letters.1,
        delayed_processing: i64::from(knobs.delay),
        window_buffer: i64::from(knobs.window),
        min_pop_wait_time: i64::from(knobs.fill_ms),
        dedup_window_seconds: i64::from(knobs.dedup),
        completed_retention_seconds: i64::from(knobs.completed),
        ..defaults(i64::from(knobs.lease))
    };
    let labels = knobs.labels.map_or_else(Labels::default, |(namespace, task)| Labels {
        namespace: NAMESPACES[usize::from(namespace) % 3].into(),
        task: TASKS[usize::from(task) % 3].into(),
    });
    (options, labels)
}
