//! Section 4: duplicates and commit times.

use std::collections::BTreeMap;

use compact_str::CompactString;
use tidegate_core::command::Push;
use tidegate_core::message::NewMessage;
use tidegate_core::name::{MessageId, PartitionName, TenantId};
use tidegate_core::reply::{PushOutcome, Reply};
use tidegate_core::time::Timestamp;

use super::{Message, Model, Partition, QueueKey, Verdict, Wrong, expect, secs, unexpected};

impl Model {
    pub(super) fn push(&mut self, now: Timestamp, tenant: TenantId, push: &Push, reply: &Reply) -> Verdict {
        let Reply::Pushed(outcomes) = reply else { return Err(unexpected(reply)) };
        for group in &push.groups {
            let key = (tenant, group.queue.clone());
            let told: Vec<PushOutcome> = group.items.iter().map(|(at, _)| outcomes[*at as usize]).collect();
            if self.lenient && told.iter().all(|outcome| matches!(outcome, PushOutcome::Failed(_))) {
                if let Some(queue) = self.queues.get_mut(&key) {
                    queue.latest = queue.latest.max(now).max(queue.registered.next());
                }
                continue;
            }
            if told.iter().any(|outcome| matches!(outcome, PushOutcome::Failed(_))) {
                return Err(format!("half of a push failed: {told:?}"));
            }
            let mut mine: BTreeMap<CompactString, MessageId> = BTreeMap::new();
            for ((_, item), told) in group.items.iter().zip(told) {
                let text = item.transaction.as_ref().map(|id| CompactString::from(id.as_str()));
                let twin = text.as_ref().and_then(|text| mine.get(text).copied());
                match twin.or_else(|| self.twin(now, &key, &group.partition, item)) {
                    Some(original) => expect("a repeated push", &PushOutcome::Duplicate(original), &told)?,
                    None => {
                        let PushOutcome::Queued(id) = told else {
                            return Err(format!("a first push of {text:?}: must be queued, is {told:?}"));
                        };
                        self.append(now, &key, &group.partition, item, id)?;
                        mine.extend(text.map(|text| (text, id)));
                    }
                }
            }
        }
        Ok(())
    }

    /// The message that makes an id a duplicate: it is one while created ≥ now − window (OPT-24).
    pub(super) fn twin(
        &self,
        now: Timestamp,
        key: &QueueKey,
        partition: &PartitionName,
        item: &NewMessage,
    ) -> Option<MessageId> {
        let queue = self.queues.get(key)?;
        let window = queue.options.dedup_window_seconds;
        let since = now.minus(secs(window));
        let log = &queue.partitions.get(partition)?.log;
        let twin = log.iter().find(|message| message.created >= since && message.is(item.transaction.as_ref()));
        twin.filter(|_| window > 0).map(|message| message.id)
    }

    /// Appends a message under the id it was told. Commit times never go back and follow every registration (OPT-11).
    pub(super) fn append(
        &mut self,
        now: Timestamp,
        key: &QueueKey,
        partition: &PartitionName,
        item: &NewMessage,
        id: MessageId,
    ) -> Result<(), Wrong> {
        if !self.ids.insert(id) {
            return Err(format!("message id {id} is given twice"));
        }
        let queue = self.queue_for_push(now, key);
        let row = queue.partitions.entry(partition.clone()).or_insert_with(|| Partition {
            log: Vec::new(),
            cursors: Default::default(),
            dead: Vec::new(),
            ready: Default::default(),
        });
        let last = row.log.last().map_or(Timestamp::MIN, |message| message.created);
        let created = now.max(last).max(queue.registered.next());
        queue.latest = queue.latest.max(created);
        let transaction = item.transaction.as_ref().map(|id| CompactString::from(id.as_str()));
        row.log.push(Message { id, transaction, payload: item.payload.clone(), created });
        Ok(())
    }
}
