//! Section 4: grouping, the layers of deduplication, commit times.

use tidegate_core::command::Push;
use tidegate_core::error::Rejection;
use tidegate_core::message::NewMessage;
use tidegate_core::name::{MessageId, PartitionId, PartitionName, QueueName, TenantId};
use tidegate_core::reply::{PushOutcome, Reply};
use tidegate_core::time::{Span, Timestamp};

use super::super::peek::Peek;
use super::{Message, Model, Quirk, Wrong, same, unexpected};

/// Items of one queue and partition with their places in the request.
pub(super) type Group<'a> = (&'a QueueName, &'a PartitionName, Vec<(usize, &'a NewMessage)>);

impl Model {
    /// Decides one group of a push.
    pub(super) fn push(
        &self,
        now: Timestamp,
        tenant: TenantId,
        push: &Push,
        part: usize,
        reply: Option<&Reply>,
        peek: &Peek<'_>,
    ) -> Result<Vec<Model>, Wrong> {
        let outcomes = match reply {
            Some(Reply::Pushed(outcomes)) => Some(outcomes),
            Some(other) => return Err(unexpected(other)),
            None => None,
        };
        let groups = grouped(push);
        if let Some(outcomes) = outcomes {
            let items: usize = groups.iter().map(|(_, _, items)| items.len()).sum();
            same("the number of outcomes", &items, &outcomes.len())?;
            let failed = |outcome: &PushOutcome| matches!(outcome, PushOutcome::Failed(_));
            if !outcomes.is_empty() && outcomes.iter().all(failed) {
                return Err("a push of which nothing was stored is refused as a whole".to_owned());
            }
        }
        let Some((queue, partition, items)) = groups.get(part) else { return Ok(vec![self.clone()]) };
        let told: Option<Vec<PushOutcome>> =
            outcomes.map(|outcomes| items.iter().map(|&(index, _)| outcomes[index]).collect());
        let mut after = self.clone();
        if let Some([PushOutcome::Failed(why), rest @ ..]) = told.as_deref() {
            if !rest.iter().all(|one| *one == PushOutcome::Failed(*why)) {
                return Err(format!("half a group failed: {told:?}"));
            }
            let mut states = vec![self.clone()];
            let unknown = *why == Rejection::OutcomeUnknown;
            if unknown && after.push_group(now, tenant, queue, partition, items, None, peek).is_ok() {
                states.push(after);
            }
            return Ok(states);
        }
        after.push_group(now, tenant, queue, partition, items, told.as_deref(), peek)?;
        Ok(vec![after])
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn push_group(
        &mut self,
        now: Timestamp,
        tenant: TenantId,
        queue: &QueueName,
        partition: &PartitionName,
        items: &[(usize, &NewMessage)],
        told: Option<&[PushOutcome]>,
        peek: &Peek<'_>,
    ) -> Result<Vec<PushOutcome>, Wrong> {
        // A push of nothing but duplicates finds its partition, so this creates nothing then.
        self.partition_or_new(now, tenant, queue, partition);
        let mut outcomes: Vec<PushOutcome> = Vec::new();
        let mut fresh: Vec<Message> = Vec::new();
        let mut home = None;
        for (n, (index, item)) in items.iter().enumerate() {
            let is = told.map(|told| told[n]);
            let earlier = items[..n].iter().position(|(_, other)| same_transaction(other, item));
            let outcome = if let Some(earlier) = earlier {
                let (PushOutcome::Queued(id) | PushOutcome::Duplicate(id)) = outcomes[earlier] else {
                    return Err("half a group failed".to_owned());
                };
                PushOutcome::Duplicate(id)
            } else if let Some(id) = self.original(now, tenant, queue, partition, item) {
                PushOutcome::Duplicate(id)
            } else {
                let (message, partition) =
                    stored_as(is, item, peek).map_err(|wrong| format!("item {index}: {wrong}"))?;
                home = Some(partition);
                let id = message.id;
                fresh.push(message);
                PushOutcome::Queued(id)
            };
            if let Some(is) = is {
                same(&format!("the outcome of item {index}"), &outcome, &is)?;
            }
            outcomes.push(outcome);
        }
        if let Some(home) = home {
            self.append(now, tenant, queue, partition, home, fresh, peek)?;
        }
        Ok(outcomes)
    }

    /// The message that an item repeats, when the log has it within the window.
    pub(super) fn original(
        &self,
        now: Timestamp,
        tenant: TenantId,
        queue: &QueueName,
        partition: &PartitionName,
        item: &NewMessage,
    ) -> Option<MessageId> {
        let wanted = item.transaction.as_ref()?.as_str();
        let queue = self.queue(tenant, queue)?;
        let partition = queue.partitions.iter().find(|one| one.name == *partition)?;
        let window = queue.options.dedup_window_seconds;
        let mut since = now.minus(Span::from_secs(window));
        if self.rules.quirk == Quirk::DuplicateEndsEarly {
            since = since.next();
        }
        let repeated = |message: &&Message| message.created >= since && message.transaction_text() == wanted;
        (window > 0).then(|| partition.messages.iter().find(repeated).map(|message| message.id)).flatten()
    }

    /// Appends messages that were written in one commit, where they were written.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn append(
        &mut self,
        now: Timestamp,
        tenant: TenantId,
        queue: &QueueName,
        partition: &PartitionName,
        home: PartitionId,
        messages: Vec<Message>,
        peek: &Peek<'_>,
    ) -> Result<(), Wrong> {
        let registered = self.queue(tenant, queue).map(|queue| queue.records.values().map(|one| one.registered));
        let registered = registered.and_then(|times| times.max());
        let partition = self.partition_or_new(now, tenant, queue, partition);
        super::learn("the partition's id", &mut partition.id, home)?;
        for message in messages {
            let created = message.created;
            let offset = peek.message(message.id).map(|written| written.offset);
            same("the offset of a message", &Some(partition.end()), &offset)?;
            if partition.messages.last().is_some_and(|last| last.created > created) {
                return Err(format!("commit times went backwards in {queue}/{}", partition.name));
            }
            let before = |registered: &Timestamp| peek.registered_before(*registered, message.id);
            if registered.filter(before).is_some_and(|registered| registered >= created) {
                return Err(format!("a group registered at {registered:?}, and the commit after it says {created:?}"));
            }
            // A registration pushes later commits a microsecond on; that is all that may come between.
            if created < now || created > now.plus(Span::from_millis(1)) {
                return Err(format!("decided at {now:?}, and the commit time is {created:?}"));
            }
            partition.messages.push(message);
        }
        Ok(())
    }
}

fn same_transaction(a: &NewMessage, b: &NewMessage) -> bool {
    a.transaction.is_some() && a.transaction == b.transaction
}

/// What was written for an item: under the id that was told, else under the last one tried.
pub(super) fn stored_as(
    told: Option<PushOutcome>,
    item: &NewMessage,
    peek: &Peek<'_>,
) -> Result<(Message, PartitionId), Wrong> {
    let written = match told {
        Some(PushOutcome::Queued(id)) => {
            peek.message(id).ok_or(format!("queued as {id}, and that was never written"))?
        }
        Some(other) => return Err(format!("must be queued, is {other:?}")),
        None => peek.message_of(&item.payload).ok_or("never written".to_owned())?,
    };
    same("the payload written", &item.payload, &written.payload)?;
    let message = Message {
        id: written.id,
        created: written.created,
        transaction: item.transaction.as_ref().map(|id| id.as_str().into()),
        payload: item.payload.clone(),
        trace: item.trace,
        producer: item.producer.clone(),
    };
    Ok((message, written.partition))
}

pub(super) fn grouped(push: &Push) -> Vec<Group<'_>> {
    let mut items: Vec<(usize, &QueueName, &PartitionName, &NewMessage)> = Vec::new();
    for group in &push.groups {
        for (index, message) in &group.items {
            items.push((*index as usize, &group.queue, &group.partition, message));
        }
    }
    items.sort_by_key(|(index, ..)| *index);
    let mut groups: Vec<Group<'_>> = Vec::new();
    for (index, queue, partition, message) in items {
        match groups.iter_mut().find(|(q, p, _)| *q == queue && *p == partition) {
            Some((_, _, items)) => items.push((index, message)),
            None => groups.push((queue, partition, vec![(index, message)])),
        }
    }
    groups
}
