//! The naive model: the rules of the wire page once more, as lists and maps. Nothing here is fast, nothing is loaded lazily,
//! and no rule or limit of the core is used, so that both can only agree by being right.
//!
//! It is told each command with the core's answer, and says whether that is the right one. What the core is free to choose
//! (ids, which of several ready partitions) it takes from the answer.

mod ack;
mod admin;
mod pop;
mod push;
mod transaction;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use compact_str::CompactString;
use tidegate_core::command::{Command, Operation, Pop, PopScope, RequestId};
use tidegate_core::name::{
    DeadLetterId, GroupName, LeaseId, MessageId, PartitionId, PartitionName, QueueName, TenantId, TransactionId,
};
use tidegate_core::options::{Labels, QueueOptions};
use tidegate_core::record::StartFrom;
use tidegate_core::reply::Reply;
use tidegate_core::time::{Span, Timestamp};

/// Why an answer is wrong.
pub type Wrong = String;
/// Whether an answer is right.
pub type Verdict = Result<(), Wrong>;

/// A queue's tenant and name.
pub type QueueKey = (TenantId, QueueName);

/// What the broker must look like to its clients.
#[derive(Clone, Debug)]
pub struct Model {
    /// Messages that end a window early (OPT-12).
    window_batch: u64,
    queues: BTreeMap<QueueKey, Queue>,
    /// Where partitions are, as far as clients were told their ids.
    homes: BTreeMap<PartitionId, (QueueKey, PartitionName)>,
    /// Long polls, by order of arrival.
    waiting: BTreeMap<RequestId, Waiting>,
    /// Every id that was given out, with what it named.
    ids: BTreeSet<MessageId>,
    leases: BTreeSet<LeaseId>,
    /// Counts the moments at which lanes became ready.
    turn: u64,
    /// Decisions may have been lost because of a fault.
    lenient: bool,
    /// The broker has not always been this one.
    restarted: bool,
}

#[derive(Clone, Debug)]
struct Queue {
    options: QueueOptions,
    labels: Labels,
    partitions: BTreeMap<PartitionName, Partition>,
    groups: BTreeMap<GroupName, Registration>,
    /// The latest time given out on it.
    latest: Timestamp,
    /// The latest registration.
    registered: Timestamp,
    /// It has held messages back at some time.
    held: bool,
}

#[derive(Clone, Copy, Debug)]
struct Registration {
    start: StartFrom,
    registered: Timestamp,
}

#[derive(Clone, Debug)]
struct Partition {
    log: Vec<Message>,
    cursors: BTreeMap<GroupName, Cursor>,
    dead: Vec<Dead>,
    /// Since which turn a group may take from it.
    ready: BTreeMap<GroupName, u64>,
}

#[derive(Clone, PartialEq, Debug)]
struct Message {
    id: MessageId,
    transaction: Option<CompactString>,
    payload: Bytes,
    created: Timestamp,
}

#[derive(Clone, Default, PartialEq, Debug)]
struct Cursor {
    next: usize,
    retries: u32,
    consumed: u64,
    lease: Option<Lease>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Lease {
    id: LeaseId,
    expires: Timestamp,
    end: usize,
}

#[derive(Clone, Debug)]
struct Dead {
    id: Option<DeadLetterId>,
    group: GroupName,
    offset: usize,
    message: Message,
    retries: u32,
    failed: Timestamp,
    error: CompactString,
}

#[derive(Clone, Debug)]
struct Waiting {
    tenant: TenantId,
    pop: Pop,
    deadline: Timestamp,
    /// Since when there has been something, but less than it wants (OPT-20).
    some_since: Option<Timestamp>,
}

impl Message {
    /// The text it is acked by.
    fn text(&self) -> CompactString {
        self.transaction.clone().unwrap_or_else(|| self.id.to_text())
    }

    fn is(&self, id: Option<&TransactionId>) -> bool {
        id.is_some_and(|id| self.text() == id.as_str())
    }
}

impl Lease {
    /// A lease lives while now < expiry.
    fn lives(&self, now: Timestamp) -> bool {
        now < self.expires
    }
}

impl Partition {
    /// Offset of the first message committed at or after a time; behind the last where there is none.
    fn first_at(&self, time: Timestamp) -> usize {
        self.log.iter().position(|message| message.created >= time).unwrap_or(self.log.len())
    }
}

impl Queue {
    fn new(now: Timestamp, options: QueueOptions, labels: Labels) -> Self {
        let (partitions, groups) = (BTreeMap::new(), BTreeMap::new());
        Queue { options, labels, partitions, groups, latest: now, registered: Timestamp::MIN, held: false }
    }

    /// Where a group stands on a partition: at its cursor, else where its registration says, else nowhere.
    fn standing(&self, group: &GroupName, partition: &Partition) -> Option<Cursor> {
        partition.cursors.get(group).cloned().or_else(|| {
            let record = self.groups.get(group)?;
            let next = match record.start {
                StartFrom::All => 0,
                StartFrom::New => partition.first_at(record.registered),
                StartFrom::Time(time) => partition.first_at(time),
            };
            Some(Cursor { next, ..Cursor::default() })
        })
    }
}

impl Model {
    /// A model of an empty broker.
    pub fn new(window_batch: u64) -> Self {
        Model {
            window_batch,
            queues: BTreeMap::new(),
            homes: BTreeMap::new(),
            waiting: BTreeMap::new(),
            ids: BTreeSet::new(),
            leases: BTreeSet::new(),
            turn: 0,
            lenient: false,
            restarted: false,
        }
    }

    /// Judges the answer to a command that is not a pop, decided at `now`, and goes on from it.
    pub fn judge(&mut self, now: Timestamp, tenant: TenantId, command: &Command, reply: &Reply) -> Verdict {
        match command {
            Command::Push(push) => self.push(now, tenant, push, reply)?,
            Command::Ack(ack) => self.ack(now, tenant, ack, reply)?,
            Command::Extend { lease, length } => self.extend(now, tenant, *lease, *length, reply)?,
            Command::Transaction(transaction) => self.transaction(now, tenant, transaction, reply)?,
            Command::Configure { queue, options, labels } => {
                let key = (tenant, queue.clone());
                let row = self.queues.entry(key).or_insert_with(|| Queue::new(now, options.clone(), labels.clone()));
                (row.options, row.labels) = (options.clone(), labels.clone());
                row.held |= options.delayed_processing > 0 || options.window_buffer > 0;
                let is =
                    matches!(reply, Reply::Configured { options: o, labels: l, .. } if o == options && l == labels);
                expect("the echo of a configuration", &true, &is)?;
            }
            Command::DeleteQueue { queue } => self.delete_queue(tenant, queue, reply)?,
            Command::Seek { group, queue, partition, target } => {
                self.seek(tenant, group, queue, partition.as_ref(), *target, reply)?;
            }
            Command::DeleteGroup { group, queue, metadata } => {
                self.delete_group(tenant, group, queue.as_ref(), *metadata, reply)?;
            }
            Command::Replay { address, group } => self.replay(now, tenant, address, group.as_ref(), reply)?,
            Command::DropDeadLetters(address) => self.drop_dead_letters(tenant, address, reply)?,
            Command::ListDeadLetters { .. } => self.list_dead_letters(tenant, reply)?,
            Command::ListGroups { .. } => self.list_groups(now, tenant, reply)?,
            other => return Err(format!("the model does not know {other:?}")),
        }
        self.refresh(now);
        Ok(())
    }

    fn queue_for_push(&mut self, now: Timestamp, key: &QueueKey) -> &mut Queue {
        self.queues.entry(key.clone()).or_insert_with(|| {
            let mut parts = key.1.as_str().splitn(3, '.').map(CompactString::from);
            let namespace = parts.next().unwrap_or_default();
            let labels = Labels { namespace, task: parts.next().unwrap_or_default() };
            Queue::new(now, implicit(), labels)
        })
    }

    /// A partition that a client named by its id.
    fn home(&self, id: PartitionId) -> Option<(&QueueKey, &Queue, &Partition)> {
        let (key, name) = self.homes.get(&id)?;
        let queue = self.queues.get(key)?;
        Some((key, queue, queue.partitions.get(name)?))
    }

    fn home_mut(&mut self, id: PartitionId) -> Option<&mut Partition> {
        let (key, name) = self.homes.get(&id)?;
        self.queues.get_mut(key)?.partitions.get_mut(name)
    }

    /// The name of the partition that holds a message; what its id is, once it is told.
    fn learn_home(&mut self, id: PartitionId, first: MessageId) -> Result<(QueueKey, PartitionName), Wrong> {
        let holds = |partition: &Partition| partition.log.iter().any(|message| message.id == first);
        let found = self.queues.iter().find_map(|(key, queue)| {
            let name = queue.partitions.iter().find(|(_, partition)| holds(partition))?.0;
            Some((key.clone(), name.clone()))
        });
        let home = found.ok_or_else(|| format!("message {first} was never pushed, or its queue is gone"))?;
        let known = self.homes.entry(id).or_insert_with(|| home.clone());
        expect("the partition of a message", known, &home)?;
        Ok(home)
    }

    /// Notes which lanes are ready at `now`. Call it at every time at which one may become so.
    pub fn refresh(&mut self, now: Timestamp) {
        self.turn += 1;
        let (turn, batch) = (self.turn, self.window_batch);
        for queue in self.queues.values_mut() {
            let mut ready = Vec::new();
            for (name, partition) in &queue.partitions {
                for group in partition.cursors.keys().chain(queue.groups.keys()) {
                    let some = pop::available(queue, partition, group, batch, now).is_some_and(|some| !some.is_empty());
                    ready.push((name.clone(), group.clone(), some));
                }
            }
            for (name, group, some) in ready {
                let Some(partition) = queue.partitions.get_mut(&name) else { continue };
                if some {
                    partition.ready.entry(group).or_insert(turn);
                } else {
                    partition.ready.remove(&group);
                }
            }
        }
    }

    /// A command was refused because of a fault. Nothing happened; but what memory had got ready before the commit failed
    /// has moved lanes to the tail, and times that were given out are not given out again.
    pub fn refused(&mut self, now: Timestamp, tenant: TenantId, command: &Command, failed: bool) {
        self.forget_order();
        let mut given = |name: &QueueName, register: Option<&GroupName>| {
            let Some(queue) = self.queues.get_mut(&(tenant, name.clone())).filter(|_| failed) else { return };
            match register {
                None => queue.latest = queue.latest.max(now).max(queue.registered.next()),
                Some(group) if queue.groups.contains_key(group) => {}
                Some(_) => {
                    queue.registered = now.max(queue.latest.next());
                    queue.latest = queue.registered;
                }
            }
        };
        match command {
            Command::Push(push) => push.groups.iter().for_each(|group| given(&group.queue, None)),
            Command::Transaction(transaction) => {
                for operation in &transaction.operations {
                    if let Operation::Push { queue, .. } = operation {
                        given(queue, None);
                    }
                }
            }
            Command::Pop(Pop { scope: PopScope::Queue(queue), group, .. }) => given(queue, Some(group)),
            _ => {}
        }
    }

    /// The broker is another one.
    pub fn restart(&mut self) {
        self.restarted = true;
    }

    /// Whether decisions may have been lost because of a fault.
    pub fn set_lenient(&mut self, lenient: bool) {
        self.lenient = lenient;
    }

    /// All order among lanes is forgotten: another owner lists them anew.
    pub fn forget_order(&mut self) {
        self.turn += 1;
        self.waiting.values_mut().for_each(|waiting| waiting.some_since = None);
        for partition in self.queues.values_mut().flat_map(|queue| queue.partitions.values_mut()) {
            partition.ready.values_mut().for_each(|turn| *turn = self.turn);
        }
    }

    /// Every time after `now` at which an answer may change by itself.
    pub fn edges(&self, now: Timestamp) -> Vec<Timestamp> {
        let mut edges: Vec<Timestamp> = self.waiting.values().map(|waiting| waiting.deadline).collect();
        for queue in self.queues.values() {
            let o = &queue.options;
            let ages = [o.delayed_processing, o.window_buffer, o.dedup_window_seconds];
            for partition in queue.partitions.values() {
                for message in &partition.log {
                    edges.extend(ages.iter().filter(|age| **age > 0).map(|age| message.created.plus(secs(*age))));
                }
                edges.extend(partition.cursors.values().filter_map(|cursor| Some(cursor.lease?.expires)));
            }
        }
        edges.retain(|edge| *edge > now);
        edges.sort_unstable();
        edges.dedup();
        edges
    }
}

fn secs(secs: i64) -> Span {
    Span::from_micros(secs * 1_000_000)
}

/// What a queue has that nobody configured (CFG-8).
fn implicit() -> QueueOptions {
    QueueOptions {
        lease_time: 60,
        retry_limit: 3,
        retry_delay: 1_000,
        priority: 0,
        max_size: 0,
        ttl: 3_600,
        dead_letter_queue: true,
        dlq_after_max_retries: true,
        delayed_processing: 0,
        window_buffer: 0,
        retention_enabled: false,
        retention_seconds: 0,
        completed_retention_seconds: 0,
        max_wait_time_seconds: 0,
        min_pop_wait_time: 0,
        encryption_enabled: false,
        dedup_window_seconds: 3_600,
    }
}

/// Compares what must be with what is.
fn expect<T: PartialEq + std::fmt::Debug>(what: &str, must: &T, is: &T) -> Verdict {
    if must == is { Ok(()) } else { Err(format!("{what}: must be {must:?}, is {is:?}")) }
}

fn unexpected(reply: &Reply) -> Wrong {
    format!("not an answer to this command: {reply:?}")
}
