//! The rules of the wire page once more, as plainly as possible: lists of messages, maps of cursors, and arithmetic on
//! offsets. Nothing here is fast, nothing is loaded lazily, and no rule or limit of the core is used, so that both can
//! only agree by being right.
//!
//! A `Model` is one possible state of the broker. `apply` takes a command with the answer that the core gave, says
//! whether that is the right answer, and gives the states that are possible afterwards. What the core is free to choose
//! (ids, the order in which partitions are claimed, commit times within their bounds) is taken from the answer.

mod ack;
mod admin;
mod early;
mod listing;
mod pop;
mod push;
mod transaction;

pub use early::Early;

use std::collections::BTreeMap;

use bytes::Bytes;
use compact_str::CompactString;
use tidegate_core::command::{Command, Pop, RequestId};
use tidegate_core::error::Rejection;
use tidegate_core::message::StoredMessage;
use tidegate_core::name::{
    DeadLetterId, GroupName, LeaseId, MessageId, PartitionId, PartitionName, QueueId, QueueName, TenantId, TraceId,
};
use tidegate_core::options::{Labels, QueueOptions};
use tidegate_core::record::StartFrom;
use tidegate_core::reply::Reply;
use tidegate_core::time::{Span, Timestamp};

use super::peek::Peek;

/// Why an answer is wrong.
pub type Wrong = String;

/// A rule that is broken on purpose, so that a test can show that the harness notices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quirk {
    /// No rule is broken.
    None,
    /// A lease still lives at its very expiry.
    LeaseLivesAtExpiry,
    /// A delayed message is due a microsecond late.
    DelayOneLate,
    /// An id of exactly the window's age is no duplicate any more.
    DuplicateEndsEarly,
    /// One failed ack more redelivers.
    OneRetryMore,
    /// A partial completion resets the retry counter.
    PartialCompletionResets,
    /// A window opens a microsecond late.
    WindowOneLate,
    /// One message more is needed for an early release.
    EarlyReleaseOneMore,
    /// Acks are resolved however old their message is.
    AcksResolveForever,
    /// A retry is charged like a failure.
    RetryIsCharged,
    /// A seek keeps the retry counter.
    SeekKeepsRetries,
    /// What nobody knows the outcome of never happened.
    UnknownNeverHappens,
}

/// What is decided for a whole broker.
#[derive(Clone, PartialEq, Debug)]
pub struct Rules {
    pub hot_list: bool,
    pub window_batch: u64,
    pub default_start: StartFrom,
    pub require_lease: bool,
    pub quirk: Quirk,
}

/// One possible state.
#[derive(Clone, PartialEq, Debug)]
pub struct Model {
    pub rules: Rules,
    /// Sorted by tenant and name.
    pub queues: Vec<Queue>,
    /// Parts of calls that were decided, and whose calls are not answered yet: what they must be told.
    pub early: BTreeMap<(RequestId, usize), Early>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Queue {
    pub tenant: TenantId,
    pub name: QueueName,
    /// Told by the core when somebody asks.
    pub id: Option<QueueId>,
    pub created: Option<Timestamp>,
    pub made: Timestamp,
    pub labels: Labels,
    pub options: QueueOptions,
    /// Sorted by name.
    pub partitions: Vec<Partition>,
    pub records: BTreeMap<GroupName, Registration>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Registration {
    pub start: StartFrom,
    /// Later than every commit before it, earlier than every commit after it.
    pub registered: Timestamp,
    pub changed: Option<Timestamp>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Partition {
    pub name: PartitionName,
    pub id: Option<PartitionId>,
    pub created: Option<Timestamp>,
    pub made: Timestamp,
    pub messages: Vec<Message>,
    pub cursors: BTreeMap<GroupName, Cursor>,
    pub dead: Vec<Dead>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Message {
    pub id: MessageId,
    pub created: Timestamp,
    pub transaction: Option<CompactString>,
    pub payload: Bytes,
    pub trace: Option<TraceId>,
    pub producer: Option<CompactString>,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Cursor {
    pub next: u64,
    pub retries: u32,
    pub consumed: u64,
    pub lease: Option<Lease>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Lease {
    pub id: LeaseId,
    pub expires: Timestamp,
    pub end: u64,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Dead {
    pub id: DeadLetterId,
    pub group: GroupName,
    pub offset: u64,
    pub message: Message,
    pub retries: u32,
    pub failed: Timestamp,
    pub error: CompactString,
}

impl Message {
    /// The text it is acked by.
    pub fn transaction_text(&self) -> String {
        self.transaction.as_ref().map_or_else(|| self.id.to_string(), |text| text.to_string())
    }

    pub fn stored(&self) -> StoredMessage {
        StoredMessage {
            transaction: self.transaction.clone(),
            payload: self.payload.clone(),
            trace: self.trace,
            producer: self.producer.clone(),
        }
    }
}

impl Partition {
    pub fn end(&self) -> u64 {
        self.messages.len() as u64
    }

    /// Offset of the first message committed at or after a time; behind the last where there is none.
    pub fn first_at(&self, time: Timestamp) -> u64 {
        self.messages.iter().position(|message| message.created >= time).map_or(self.end(), |at| at as u64)
    }
}

impl Queue {
    /// Where a record says that a group starts on a partition.
    pub fn recorded_start(&self, group: &GroupName, record: &Registration, partition: &Partition) -> u64 {
        if group.as_str() == "__QUEUE_MODE__" {
            return 0;
        }
        let born_later = partition.messages.first().is_some_and(|first| first.created > record.registered);
        if let Some(time) = record.changed.filter(|_| born_later) {
            return partition.first_at(time);
        }
        match record.start {
            StartFrom::All => 0,
            StartFrom::New => partition.first_at(record.registered),
            StartFrom::Time(time) => partition.first_at(time),
        }
    }

    /// Where a group stands on a partition: at its cursor, else where its record says, else nowhere.
    pub fn standing(&self, group: &GroupName, partition: &Partition) -> Option<Cursor> {
        partition.cursors.get(group).cloned().or_else(|| {
            let record = self.records.get(group)?;
            Some(Cursor { next: self.recorded_start(group, record, partition), ..Cursor::default() })
        })
    }

    /// Every group that has a cursor on the partition or a record on the queue.
    pub fn groups_of(&self, partition: &Partition) -> Vec<(GroupName, Cursor)> {
        let mut names: Vec<&GroupName> = partition.cursors.keys().chain(self.records.keys()).collect();
        names.sort();
        names.dedup();
        names.into_iter().filter_map(|name| Some((name.clone(), self.standing(name, partition)?))).collect()
    }
}

/// What became of a command, as far as a client can tell.
pub enum Told<'a> {
    /// This was the answer.
    Reply(&'a Reply),
    /// It was carried out and nobody was told.
    Nothing,
}

impl Model {
    pub fn new(rules: Rules) -> Self {
        Model { rules, queues: Vec::new(), early: BTreeMap::new() }
    }

    /// Into how many decisions a command falls: each partition of a push and each group of acks stands alone.
    pub fn parts(command: &Command, told: &Told<'_>) -> usize {
        match (command, told) {
            (_, Told::Reply(Reply::Refused(Rejection::OutcomeUnknown)) | Told::Nothing)
            | (_, Told::Reply(Reply::Pushed(_) | Reply::Acked(_))) => match command {
                Command::Push(push) => push::grouped(push).len().max(1),
                Command::Ack(ack) => ack::grouped(ack).len().max(1),
                _ => 1,
            },
            _ => 1,
        }
    }

    /// The states after a command that was decided at `now`, its parts one after the other.
    pub fn apply(
        &self,
        now: Timestamp,
        tenant: TenantId,
        command: &Command,
        told: &Told<'_>,
        peek: &Peek<'_>,
    ) -> Result<Vec<Model>, Wrong> {
        let mut states = vec![self.clone()];
        for part in 0..Self::parts(command, told) {
            let mut next: Vec<Model> = Vec::new();
            for state in &states {
                for state in state.apply_part(now, tenant, command, part, told, peek)? {
                    if !next.contains(&state) {
                        next.push(state);
                    }
                }
            }
            states = next;
        }
        Ok(states)
    }

    /// The states after one part of a command that was decided at `now`: at least one, or the answer is wrong.
    pub fn apply_part(
        &self,
        now: Timestamp,
        tenant: TenantId,
        command: &Command,
        part: usize,
        told: &Told<'_>,
        peek: &Peek<'_>,
    ) -> Result<Vec<Model>, Wrong> {
        match told {
            Told::Reply(Reply::Refused(why)) => {
                let mut states = match command {
                    // A pop's first contact is a commit of its own, which may be there although the pop was refused.
                    Command::Pop(pop) => self.contacts(now, tenant, pop, peek),
                    _ => vec![self.clone()],
                };
                if *why == Rejection::OutcomeUnknown && self.rules.quirk != Quirk::UnknownNeverHappens {
                    states
                        .extend(self.apply_part(now, tenant, command, part, &Told::Nothing, peek).unwrap_or_default());
                } else if let Command::Pop(pop) = command
                    && !pop.auto_ack
                {
                    states.extend(self.taken_in_vain(now, tenant, pop, peek));
                }
                return if states.is_empty() { Err("its first contact is missing".to_owned()) } else { Ok(states) };
            }
            Told::Reply(_) | Told::Nothing => {}
        }
        let reply = match told {
            Told::Reply(reply) => Some(*reply),
            Told::Nothing => None,
        };
        let mut next = self.clone();
        match command {
            Command::Push(push) => return self.push(now, tenant, push, part, reply, peek),
            Command::Ack(ack) => return self.ack(now, tenant, ack, part, reply, peek),
            Command::Pop(pop) => {
                let mut states = Vec::new();
                let mut complaint = "its first contact is missing".to_owned();
                for mut state in self.contacts(now, tenant, pop, peek) {
                    match state.pop(now, tenant, pop, reply, peek) {
                        Ok(_) => states.push(state),
                        Err(wrong) => complaint = wrong,
                    }
                }
                return if states.is_empty() { Err(complaint) } else { Ok(states) };
            }
            Command::Extend { lease, length } => next.extend(now, tenant, *lease, *length, reply)?,
            Command::Transaction(transaction) => next.transaction(now, tenant, transaction, reply, peek)?,
            Command::Configure { queue, options, labels } => {
                next.configure(now, tenant, queue, options, labels, reply)?
            }
            Command::DeleteQueue { queue } => next.delete_queue(tenant, queue, reply)?,
            Command::ChangeSubscription { group, since } => next.change_subscription(tenant, group, *since, reply)?,
            Command::Seek { group, queue, partition, target } => {
                next.seek(tenant, group, queue, partition.as_ref(), *target, reply)?;
            }
            Command::DeleteGroup { group, queue, metadata } => {
                next.delete_group(tenant, group, queue.as_ref(), *metadata, reply)?;
            }
            Command::DropDeadLetters(address) => next.drop_dead_letters(tenant, address, reply)?,
            Command::Replay { address, group } => next.replay(now, tenant, address, group.as_ref(), reply, peek)?,
            Command::ListQueues => next.list_queues(now, tenant, reply)?,
            Command::DescribeQueue { queue } => next.describe_queue(now, tenant, queue, reply)?,
            Command::ListGroups { group } => next.list_groups(now, tenant, group.as_ref(), reply)?,
            Command::FindMessage(address) => next.find_message(now, tenant, address, reply)?,
            Command::ListDeadLetters { queue, group, limit, offset } => {
                next.list_dead_letters(tenant, queue.as_ref(), group.as_ref(), *limit, *offset, reply)?;
            }
            // The model does not ask these: tests of their own do.
            Command::ReplayRow(_)
            | Command::PurgeDeadLetters { .. }
            | Command::ListMessages(_)
            | Command::QueueDepth { .. }
            | Command::Trace(_)
            | Command::ReadTraces(_)
            | Command::ReadTraceNames { .. }
            | Command::ReadActivity { .. } => {}
            // The plans turn no retention on: there is nothing to tell.
            Command::PreviewRetention { .. } | Command::ListHistory { .. } => {}
            Command::Probe => same("the answer to a probe", &Reply::Healthy, reply.unwrap_or(&Reply::Healthy))?,
        }
        Ok(vec![next])
    }

    /// The states after a pop that claimed and could not read what it claimed: the lease was given back, or that
    /// failed as well and it runs out.
    fn taken_in_vain(&self, now: Timestamp, tenant: TenantId, pop: &Pop, peek: &Peek<'_>) -> Vec<Model> {
        let mut states = Vec::new();
        for before in self.contacts(now, tenant, pop, peek) {
            let mut taken = before.clone();
            if taken.pop(now, tenant, pop, None, peek).is_err() {
                continue;
            }
            let mut given_back = taken.clone();
            for (queue, before) in given_back.queues.iter_mut().zip(&before.queues) {
                for (partition, before) in queue.partitions.iter_mut().zip(&before.partitions) {
                    let Some(cursor) = partition.cursors.get_mut(&pop.group) else { continue };
                    if Some(&*cursor) != before.cursors.get(&pop.group) {
                        cursor.lease = None;
                    }
                }
            }
            states.extend([given_back, taken]);
        }
        states
    }

    pub fn queue(&self, tenant: TenantId, name: &QueueName) -> Option<&Queue> {
        self.queues.iter().find(|queue| queue.tenant == tenant && queue.name == *name)
    }

    pub fn queue_mut(&mut self, tenant: TenantId, name: &QueueName) -> Option<&mut Queue> {
        self.queues.iter_mut().find(|queue| queue.tenant == tenant && queue.name == *name)
    }

    /// The places of a partition: which queue, and which of its partitions.
    pub fn locate(&self, partition: PartitionId) -> Option<(usize, usize)> {
        self.queues
            .iter()
            .enumerate()
            .find_map(|(q, queue)| queue.partitions.iter().position(|one| one.id == Some(partition)).map(|p| (q, p)))
    }

    /// The queue of that name, made with the column defaults and labels from its name when there is none.
    pub fn queue_or_new(&mut self, now: Timestamp, tenant: TenantId, name: &QueueName) -> &mut Queue {
        let at = self.queues.binary_search_by(|queue| (queue.tenant, &queue.name).cmp(&(tenant, name)));
        let at = at.unwrap_or_else(|at| {
            let parts: Vec<&str> = name.as_str().split('.').collect();
            let label = |n: usize| CompactString::from(parts.get(n).copied().unwrap_or(""));
            let queue = Queue {
                tenant,
                name: name.clone(),
                id: None,
                created: None,
                made: now,
                labels: Labels { namespace: label(0), task: label(1) },
                options: defaults(60),
                partitions: Vec::new(),
                records: BTreeMap::new(),
            };
            self.queues.insert(at, queue);
            at
        });
        &mut self.queues[at]
    }

    /// The places of a partition, made when there is none.
    pub fn partition_or_new(
        &mut self,
        now: Timestamp,
        tenant: TenantId,
        queue: &QueueName,
        partition: &PartitionName,
    ) -> &mut Partition {
        let queue = self.queue_or_new(now, tenant, queue);
        let at = queue.partitions.binary_search_by(|one| one.name.cmp(partition));
        let at = at.unwrap_or_else(|at| {
            let partition = Partition {
                name: partition.clone(),
                id: None,
                created: None,
                made: now,
                messages: Vec::new(),
                cursors: BTreeMap::new(),
                dead: Vec::new(),
            };
            queue.partitions.insert(at, partition);
            at
        });
        &mut queue.partitions[at]
    }

    /// Whether a lease holds.
    pub fn lives(&self, lease: Option<&Lease>, now: Timestamp) -> bool {
        lease.is_some_and(|lease| match self.rules.quirk {
            Quirk::LeaseLivesAtExpiry => now <= lease.expires,
            _ => now < lease.expires,
        })
    }

    /// Every time after `now` at which some answer may change by itself, for steps of the clock that end beside it.
    pub fn edges(&self, now: Timestamp) -> Vec<Timestamp> {
        let mut edges = Vec::new();
        for queue in &self.queues {
            let options = &queue.options;
            let ages = [
                options.delayed_processing,
                options.window_buffer,
                options.dedup_window_seconds,
                ack_age(options).as_micros() / 1_000_000,
            ];
            for partition in &queue.partitions {
                for message in &partition.messages {
                    edges.extend(ages.iter().map(|&age| message.created.plus(Span::from_secs(age))));
                }
                edges.extend(partition.cursors.values().filter_map(|cursor| Some(cursor.lease.as_ref()?.expires)));
            }
        }
        edges.retain(|&edge| edge > now);
        edges.sort();
        edges.dedup();
        edges
    }
}

/// How long acks are resolved: the greatest of both options and a quarter of an hour.
pub fn ack_age(options: &QueueOptions) -> Span {
    Span::from_secs(options.dedup_window_seconds.max(options.completed_retention_seconds).max(900))
}

/// The column defaults, with the lease that differs between a configured queue and one made in passing.
pub fn defaults(lease_time: i64) -> QueueOptions {
    QueueOptions {
        lease_time,
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
pub fn same<T: PartialEq + std::fmt::Debug>(what: &str, must: &T, is: &T) -> Result<(), Wrong> {
    if must == is { Ok(()) } else { Err(format!("{what}: must be {must:?}, is {is:?}")) }
}

/// Learns a value that the core chose, or checks that it stayed what it was.
pub fn learn<T: PartialEq + Copy + std::fmt::Debug>(what: &str, known: &mut Option<T>, told: T) -> Result<(), Wrong> {
    match known {
        Some(known) => same(what, known, &told),
        None => {
            *known = Some(told);
            Ok(())
        }
    }
}

/// An answer of the wrong kind.
pub fn unexpected(reply: &Reply) -> Wrong {
    format!("this kind of answer does not belong to the command: {reply:?}")
}
