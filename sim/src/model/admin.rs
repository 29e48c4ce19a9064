//! Sections 11 to 15: deleting, seeking, dead letters, and the listing that shows where everybody stands.

use tidegate_core::command::{Address, PopScope, SeekTarget};
use tidegate_core::message::NewMessage;
use tidegate_core::name::{GroupName, PartitionName, QueueName, TenantId};
use tidegate_core::reply::Reply;
use tidegate_core::time::Timestamp;

use super::{Model, Partition, Verdict, expect, unexpected};

impl Model {
    pub(super) fn delete_queue(&mut self, tenant: TenantId, name: &QueueName, reply: &Reply) -> Verdict {
        let existed = self.queues.remove(&(tenant, name.clone())).is_some();
        self.homes.retain(|_, (key, _)| !(key.0 == tenant && key.1 == *name));
        expect("the answer to a deletion", &Reply::QueueDeleted { existed }, reply)
    }

    /// The pops that must be answered empty because their queue is about to go.
    pub fn released_by_deletion(&self, tenant: TenantId, name: &QueueName) -> Vec<tidegate_core::command::RequestId> {
        let Some(queue) = self.queues.get(&(tenant, name.clone())) else { return Vec::new() };
        let waits = |scope: &PopScope| match scope {
            PopScope::Queue(of) => of == name,
            PopScope::Partition(of, partition) => of == name && queue.partitions.contains_key(partition),
            PopScope::Labels(_) => false,
        };
        let of = self.waiting.iter().filter(|(_, waiting)| waiting.tenant == tenant && waits(&waiting.pop.scope));
        of.map(|(request, _)| *request).collect()
    }

    /// Forgets a pop that waited.
    pub fn released(&mut self, request: tidegate_core::command::RequestId) {
        self.waiting.remove(&request);
    }

    pub(super) fn seek(
        &mut self,
        tenant: TenantId,
        group: &GroupName,
        queue: &QueueName,
        only: Option<&PartitionName>,
        target: SeekTarget,
        reply: &Reply,
    ) -> Verdict {
        let mut moved = 0;
        if let Some(queue) = self.queues.get_mut(&(tenant, queue.clone())) {
            for (_, partition) in queue.partitions.iter_mut().filter(|(name, _)| only.is_none_or(|only| only == *name))
            {
                let next = match target {
                    SeekTarget::End => partition.log.len(),
                    SeekTarget::Time(time) => partition.first_at(time),
                };
                let cursor = partition.cursors.entry(group.clone()).or_default();
                (cursor.next, cursor.retries, cursor.lease) = (next, 0, None);
                partition.ready.remove(group);
                moved += 1;
            }
        }
        expect("the answer to a seek", &Reply::Sought((moved > 0).then_some(moved)), reply)
    }

    pub(super) fn delete_group(
        &mut self,
        tenant: TenantId,
        group: &GroupName,
        only: Option<&QueueName>,
        metadata: bool,
        reply: &Reply,
    ) -> Verdict {
        let (mut partitions, mut removed) = (0, false);
        let of = |key: &super::QueueKey| key.0 == tenant && only.is_none_or(|only| *only == key.1);
        for (_, queue) in self.queues.iter_mut().filter(|(key, _)| of(key)) {
            let implied = queue.groups.contains_key(group);
            for partition in queue.partitions.values_mut() {
                partitions += u64::from(partition.cursors.remove(group).is_some() || implied);
                partition.ready.remove(group);
            }
            removed |= metadata && queue.groups.remove(group).is_some();
        }
        expect("the answer to a group's deletion", &Reply::GroupDeleted { partitions, metadata: removed }, reply)
    }

    fn of_tenant(&self, tenant: TenantId, address: &Address) -> bool {
        self.home(address.partition).is_some_and(|(key, ..)| key.0 == tenant)
    }

    pub(super) fn drop_dead_letters(&mut self, tenant: TenantId, address: &Address, reply: &Reply) -> Verdict {
        let mut dropped = 0;
        if self.of_tenant(tenant, address)
            && let Some(partition) = self.home_mut(address.partition)
        {
            let before = partition.dead.len();
            partition.dead.retain(|dead| !dead.message.is(Some(&address.transaction)));
            dropped = before - partition.dead.len();
        }
        expect("the answer to dropped dead letters", &Reply::DeadLettersDropped(dropped as u64), reply)
    }

    pub(super) fn replay(
        &mut self,
        now: Timestamp,
        tenant: TenantId,
        address: &Address,
        group: Option<&GroupName>,
        reply: &Reply,
    ) -> Verdict {
        let Reply::Replayed(told) = reply else { return Err(unexpected(reply)) };
        let home = self.homes.get(&address.partition).cloned().filter(|_| self.of_tenant(tenant, address));
        let wanted = |dead: &super::Dead| {
            dead.message.is(Some(&address.transaction)) && group.is_none_or(|group| *group == dead.group)
        };
        // Filed later, listed later: the last one is the newest.
        let newest = self.home_mut(address.partition).and_then(|row| Some((row.dead.iter().rposition(wanted)?, row)));
        let dead = newest.filter(|_| home.is_some()).map(|(at, row)| row.dead.remove(at));
        match (dead, told, home) {
            (Some(dead), Some(told), Some((key, partition))) => {
                expect("where a dead letter goes", &(&key.1, &partition), &(&told.queue, &told.partition))?;
                let payload = dead.message.payload;
                let message = NewMessage { transaction: None, payload, trace: None, producer: None };
                self.append(now, &key, &partition, &message, told.id)
            }
            (None, None, _) => Ok(()),
            (dead, told, _) => Err(format!("the answer to a replay: {dead:?} is there, told is {told:?}")),
        }
    }

    pub(super) fn list_dead_letters(&mut self, tenant: TenantId, reply: &Reply) -> Verdict {
        let Reply::DeadLetters(told) = reply else { return Err(unexpected(reply)) };
        let mut all = 0;
        for (key, queue) in self.queues.iter_mut().filter(|(key, _)| key.0 == tenant) {
            for (name, partition) in &mut queue.partitions {
                for dead in &mut partition.dead {
                    all += 1;
                    let same = |row: &&tidegate_core::reply::DeadLetterRow| {
                        let head = &row.head;
                        row.queue == key.1
                            && row.partition_name == *name
                            && (&head.group, head.offset as usize, head.failed)
                                == (&dead.group, dead.offset, dead.failed)
                            && dead.id.is_none_or(|id| id == row.id)
                    };
                    let row = told.iter().find(same).ok_or_else(|| format!("a dead letter is not listed: {dead:?}"))?;
                    dead.id = Some(row.id);
                    expect("a dead letter's message", &dead.message.id, &row.head.message)?;
                    expect("a dead letter's retries", &dead.retries, &row.head.retries)?;
                    expect("a dead letter's error", &dead.error, &row.error)?;
                    expect("a dead letter's payload", &Some(&dead.message.payload), &row.payload.as_ref())?;
                    expect("a dead letter's transaction id", &dead.message.text(), &row.transaction)?;
                }
            }
        }
        expect("the number of dead letters", &all, &told.len())?;
        let ordered = told.windows(2).all(|pair| pair[0].head.failed >= pair[1].head.failed);
        expect("whether dead letters are listed newest first", &true, &ordered)
    }

    /// Where every group stands on every partition.
    pub(super) fn list_groups(&self, now: Timestamp, tenant: TenantId, reply: &Reply) -> Verdict {
        let Reply::Groups(told) = reply else { return Err(unexpected(reply)) };
        let mut all = 0;
        for (key, queue) in self.queues.iter().filter(|(key, _)| key.0 == tenant) {
            for (name, partition) in &queue.partitions {
                let implied = queue.groups.keys().filter(|group| !partition.cursors.contains_key(*group));
                for group in partition.cursors.keys().chain(implied) {
                    all += 1;
                    let same = |row: &&tidegate_core::reply::GroupStanding| {
                        (&row.group, &row.queue, &row.partition_name) == (group, &key.1, name)
                    };
                    let row = told.iter().find(same).ok_or_else(|| format!("{group} is not listed on {name}"))?;
                    let Some(cursor) = queue.standing(group, partition) else { continue };
                    let what = |what: &str| format!("{what} of {group} on {name} of {}", key.1);
                    let lag = partition.log.len().saturating_sub(cursor.next) as u64;
                    expect(&what("the lag"), &lag, &row.lag)?;
                    expect(&what("the count of consumed messages"), &cursor.consumed, &row.consumed)?;
                    let lives = cursor.lease.is_some_and(|lease| lease.lives(now));
                    expect(&what("whether the lease lives"), &lives, &row.lease_active)?;
                    expect(&what("the lease"), &cursor.lease.map(|lease| lease.id), &row.lease)?;
                    expect(&what("whether a cursor is stored"), &partition.cursors.contains_key(group), &row.stored)?;
                    expect(&what("the oldest message"), &first_left(partition, cursor.next), &row.oldest_unconsumed)?;
                }
            }
        }
        expect("the number of rows", &all, &told.len())
    }
}

fn first_left(partition: &Partition, next: usize) -> Option<Timestamp> {
    partition.log.get(next).map(|message| message.created)
}
