//! Sections 11 to 14: what changes a queue, a group or a dead letter.

use tidegate_core::command::{Address, SeekTarget};
use tidegate_core::name::{GroupName, PartitionName, QueueName, TenantId};
use tidegate_core::options::{Labels, QueueOptions};
use tidegate_core::reply::{Replayed, Reply};
use tidegate_core::time::Timestamp;

use super::super::peek::Peek;
use super::{Message, Model, Quirk, Wrong, learn, same, unexpected};

impl Model {
    pub(super) fn configure(
        &mut self,
        now: Timestamp,
        tenant: TenantId,
        name: &QueueName,
        options: &QueueOptions,
        labels: &Labels,
        reply: Option<&Reply>,
    ) -> Result<(), Wrong> {
        let queue = self.queue_or_new(now, tenant, name);
        queue.options = options.clone();
        queue.labels = labels.clone();
        match reply {
            Some(Reply::Configured { id, labels, options }) => {
                learn("the queue's id", &mut queue.id, *id)?;
                same("the labels", &queue.labels, labels)?;
                same("the options", &queue.options, options)
            }
            Some(other) => Err(unexpected(other)),
            None => Ok(()),
        }
    }

    pub(super) fn delete_queue(
        &mut self,
        tenant: TenantId,
        name: &QueueName,
        reply: Option<&Reply>,
    ) -> Result<(), Wrong> {
        let before = self.queues.len();
        self.queues.retain(|queue| queue.tenant != tenant || queue.name != *name);
        let must = Reply::QueueDeleted { existed: self.queues.len() < before };
        same("the answer to a deletion", &must, reply.unwrap_or(&must))
    }

    pub(super) fn change_subscription(
        &mut self,
        tenant: TenantId,
        group: &GroupName,
        since: Timestamp,
        reply: Option<&Reply>,
    ) -> Result<(), Wrong> {
        let mut records = 0;
        for queue in self.queues.iter_mut().filter(|queue| queue.tenant == tenant) {
            if let Some(record) = queue.records.get_mut(group) {
                record.changed = Some(since);
                records += 1;
            }
        }
        // Subscription settings never apply to queue mode; whether its record counts as changed is left open.
        if group.as_str() == "__QUEUE_MODE__" && matches!(reply, Some(Reply::SubscriptionChanged { records: 0 })) {
            records = 0;
        }
        let must = Reply::SubscriptionChanged { records };
        same("the answer to a changed subscription", &must, reply.unwrap_or(&must))
    }

    pub(super) fn seek(
        &mut self,
        tenant: TenantId,
        group: &GroupName,
        queue: &QueueName,
        only: Option<&PartitionName>,
        target: SeekTarget,
        reply: Option<&Reply>,
    ) -> Result<(), Wrong> {
        let mut moved = 0;
        let keeps_retries = self.rules.quirk == Quirk::SeekKeepsRetries;
        if let Some(queue) = self.queue_mut(tenant, queue) {
            let wanted =
                queue.partitions.iter_mut().filter(|partition| only.is_none_or(|only| partition.name == *only));
            for partition in wanted {
                let next = match target {
                    SeekTarget::End => partition.end(),
                    SeekTarget::Time(time) => partition.first_at(time),
                };
                let cursor = partition.cursors.entry(group.clone()).or_default();
                cursor.next = next;
                cursor.lease = None;
                if !keeps_retries {
                    cursor.retries = 0;
                }
                moved += 1;
            }
        }
        let must = Reply::Sought((moved > 0).then_some(moved));
        same("the answer to a seek", &must, reply.unwrap_or(&must))
    }

    pub(super) fn delete_group(
        &mut self,
        tenant: TenantId,
        group: &GroupName,
        only: Option<&QueueName>,
        metadata: bool,
        reply: Option<&Reply>,
    ) -> Result<(), Wrong> {
        let mut cursors = 0;
        let mut removed = false;
        for queue in self.queues.iter_mut().filter(|queue| queue.tenant == tenant) {
            if only.is_some_and(|only| queue.name != *only) {
                continue;
            }
            let implied = queue.records.contains_key(group);
            for partition in &mut queue.partitions {
                let stored = partition.cursors.remove(group).is_some();
                cursors += u64::from(stored || implied);
            }
            if metadata {
                removed |= queue.records.remove(group).is_some();
            }
        }
        let must = Reply::GroupDeleted { partitions: cursors, metadata: removed };
        same("the answer to a group's deletion", &must, reply.unwrap_or(&must))
    }

    pub(super) fn drop_dead_letters(
        &mut self,
        tenant: TenantId,
        address: &Address,
        reply: Option<&Reply>,
    ) -> Result<(), Wrong> {
        let mut dropped = 0;
        if let Some((q, p)) = self.locate(address.partition).filter(|&(q, _)| self.queues[q].tenant == tenant) {
            let dead = &mut self.queues[q].partitions[p].dead;
            let before = dead.len();
            dead.retain(|one| one.message.transaction_text() != address.transaction.as_str());
            dropped = (before - dead.len()) as u64;
        }
        let must = Reply::DeadLettersDropped(dropped);
        same("the answer to dropped dead letters", &must, reply.unwrap_or(&must))
    }

    /// Where the newest dead letter of an address stands.
    fn newest_dead(
        &self,
        tenant: TenantId,
        address: &Address,
        group: Option<&GroupName>,
    ) -> Option<(usize, usize, usize)> {
        let (q, p) = self.locate(address.partition).filter(|&(q, _)| self.queues[q].tenant == tenant)?;
        let dead = self.queues[q].partitions[p].dead.iter().enumerate();
        let fits = dead.filter(|(_, dead)| {
            let addressed = dead.message.transaction_text() == address.transaction.as_str();
            addressed && group.is_none_or(|group| dead.group == *group)
        });
        fits.max_by_key(|(_, dead)| (dead.failed, dead.id)).map(|(n, _)| (q, p, n))
    }

    pub(super) fn replay(
        &mut self,
        now: Timestamp,
        tenant: TenantId,
        address: &Address,
        group: Option<&GroupName>,
        reply: Option<&Reply>,
        peek: &Peek<'_>,
    ) -> Result<(), Wrong> {
        let told = match reply {
            Some(Reply::Replayed(told)) => Some(told),
            Some(other) => return Err(unexpected(other)),
            None => None,
        };
        let Some((q, p, n)) = self.newest_dead(tenant, address, group) else {
            return same("the answer to a replay", &None, told.unwrap_or(&None));
        };
        let queue = self.queues[q].name.clone();
        let dead = self.queues[q].partitions[p].dead.remove(n);
        let partition = self.queues[q].partitions[p].name.clone();
        let written = match told {
            Some(Some(Replayed { id, .. })) => peek.message(*id),
            Some(None) => return Err("there is a dead letter to replay".to_owned()),
            None => peek.message_of(&dead.message.payload),
        };
        let written = written.ok_or("replayed, and never written".to_owned())?;
        same("the payload written", &dead.message.payload, &written.payload)?;
        let must = Some(Replayed { queue: queue.clone(), partition: partition.clone(), id: written.id });
        same("the answer to a replay", &must, told.unwrap_or(&must))?;
        let fresh = Message { id: written.id, created: written.created, transaction: None, ..dead.message };
        self.append(now, tenant, &queue, &partition, written.partition, vec![fresh], peek)
    }
}
