//! Sections 12 to 15: what the reading routes show, all of it computed anew.

use tidegate_core::command::Address;
use tidegate_core::name::{GroupName, QueueName, TenantId};
use tidegate_core::record::DeadLetterHead;
use tidegate_core::reply::{
    Counts, DeadLetterRow, GroupStanding, MessageDetail, MessageGroup, MessageStatus, PartitionDetail, QueueDetail,
    QueueSummary, Reply,
};
use tidegate_core::time::{Span, Timestamp};

use super::{Dead, Model, Partition, Queue, Wrong, learn, same, unexpected};

impl Model {
    fn counts(&self, now: Timestamp, queue: &Queue, partition: &Partition) -> Counts {
        let groups = queue.groups_of(partition);
        let total = partition.end();
        let slowest = groups.iter().map(|(_, cursor)| cursor.next).min().unwrap_or(0);
        let pending = total - slowest.min(total);
        let out = groups.iter().filter(|(_, cursor)| self.lives(cursor.lease.as_ref(), now));
        let out: u64 = out.map(|(_, cursor)| cursor.lease.as_ref().map_or(0, |lease| lease.end - cursor.next)).sum();
        let dead_letter = partition.dead.len() as u64;
        Counts {
            total,
            pending,
            processing: out.min(pending),
            completed: total.saturating_sub(pending).saturating_sub(dead_letter),
            dead_letter,
        }
    }

    /// Checks a summary, and learns what only the core knows.
    fn check_summary(&mut self, now: Timestamp, q: usize, is: &QueueSummary) -> Result<(), Wrong> {
        let queue = &self.queues[q];
        let mut counts = Counts::default();
        for partition in &queue.partitions {
            let one = self.counts(now, queue, partition);
            counts.total += one.total;
            counts.pending += one.pending;
            counts.processing += one.processing;
            counts.completed += one.completed;
            counts.dead_letter += one.dead_letter;
        }
        let bytes: usize = queue.partitions.iter().flat_map(|one| &one.messages).map(|one| one.payload.len()).sum();
        // Messages of one commit may or may not share a segment; messages of several cannot.
        let times = |one: &Partition| {
            let mut times: Vec<Timestamp> = one.messages.iter().map(|message| message.created).collect();
            times.dedup();
            times.len() as u64
        };
        let least: u64 = queue.partitions.iter().map(times).sum();
        if is.segments.is_some_and(|count| count < least || count > counts.total) {
            return Err(format!("{:?} segments of {}, at least {least} are needed", is.segments, queue.name));
        }
        let must = QueueSummary {
            id: is.id,
            name: queue.name.clone(),
            labels: queue.labels.clone(),
            created: is.created,
            partitions: queue.partitions.len() as u64,
            retained_bytes: bytes as u64,
            segments: is.segments,
            counts,
            options: queue.options.clone(),
        };
        same("a queue's summary", &must, is)?;
        let queue = &mut self.queues[q];
        learn("the queue's id", &mut queue.id, is.id)?;
        learn("the queue's birth", &mut queue.created, is.created)?;
        born_at("queue", queue.made, is.created)
    }

    pub(super) fn list_queues(&mut self, now: Timestamp, tenant: TenantId, reply: Option<&Reply>) -> Result<(), Wrong> {
        let told = match reply {
            Some(Reply::Queues(told)) => told,
            Some(other) => return Err(unexpected(other)),
            None => return Ok(()),
        };
        let mine: Vec<usize> = (0..self.queues.len()).filter(|&q| self.queues[q].tenant == tenant).collect();
        same("the number of queues", &mine.len(), &told.len())?;
        for q in mine {
            let row = told.iter().find(|row| row.name == self.queues[q].name);
            self.check_summary(now, q, row.ok_or(format!("{} is not listed", self.queues[q].name))?)?;
        }
        let newest_first = told.windows(2).all(|pair| pair[0].created >= pair[1].created);
        if newest_first { Ok(()) } else { Err("queues are listed newest first".to_owned()) }
    }

    pub(super) fn describe_queue(
        &mut self,
        now: Timestamp,
        tenant: TenantId,
        name: &QueueName,
        reply: Option<&Reply>,
    ) -> Result<(), Wrong> {
        let told = match reply {
            Some(Reply::Queue(told)) => told.as_ref(),
            Some(other) => return Err(unexpected(other)),
            None => return Ok(()),
        };
        let place = self.queues.iter().position(|queue| queue.tenant == tenant && queue.name == *name);
        let Some(q) = place else {
            return same("a queue that does not exist", &None::<&QueueDetail>, &told);
        };
        let told = told.ok_or("there is such a queue".to_owned())?;
        self.check_summary(now, q, &told.summary)?;
        same("the number of partitions", &self.queues[q].partitions.len(), &told.partitions.len())?;
        let mut order: Vec<usize> = (0..told.partitions.len()).collect();
        order.sort_by_key(|&p| self.queues[q].partitions[p].name.clone());
        for (p, is) in order.into_iter().zip(&told.partitions) {
            let partition = &self.queues[q].partitions[p];
            let must = PartitionDetail {
                id: partition.id.unwrap_or(is.id),
                name: partition.name.clone(),
                created: is.created,
                counts: self.counts(now, &self.queues[q], partition),
                oldest: partition.messages.first().map(|message| message.created),
                newest: partition.messages.last().map(|message| message.created),
                consumed: is.consumed,
            };
            same("a partition's row", &must, is)?;
            let partition = &mut self.queues[q].partitions[p];
            learn("the partition's id", &mut partition.id, is.id)?;
            learn("the partition's birth", &mut partition.created, is.created)?;
            born_at("partition", partition.made, is.created)?;
        }
        Ok(())
    }

    pub(super) fn list_groups(
        &self,
        now: Timestamp,
        tenant: TenantId,
        only: Option<&GroupName>,
        reply: Option<&Reply>,
    ) -> Result<(), Wrong> {
        let told = match reply {
            Some(Reply::Groups(told)) => told,
            Some(other) => return Err(unexpected(other)),
            None => return Ok(()),
        };
        let mut rows: Vec<GroupStanding> = Vec::new();
        for queue in self.queues.iter().filter(|queue| queue.tenant == tenant) {
            for partition in &queue.partitions {
                for (group, cursor) in queue.groups_of(partition) {
                    if only.is_some_and(|only| group != *only) {
                        continue;
                    }
                    let oldest = partition.messages.get(cursor.next as usize).map(|message| message.created);
                    let age = oldest.map_or(Span::ZERO, |oldest| now.since(oldest).max(Span::ZERO));
                    rows.push(GroupStanding {
                        queue: queue.name.clone(),
                        partition: partition.id.ok_or("a partition without an id".to_owned())?,
                        partition_name: partition.name.clone(),
                        lease: cursor.lease.as_ref().map(|lease| lease.id),
                        lease_active: self.lives(cursor.lease.as_ref(), now),
                        consumed: cursor.consumed,
                        lag: partition.end() - cursor.next,
                        oldest_unconsumed: oldest,
                        time_lag: age,
                        stored: partition.cursors.contains_key(&group),
                        group,
                    });
                }
            }
        }
        rows.sort_by(|a, b| (&a.group, &a.queue, &a.partition_name).cmp(&(&b.group, &b.queue, &b.partition_name)));
        for (must, is) in rows.iter().zip(told) {
            same("a group's row", must, is)?;
        }
        same("the number of rows", &rows.len(), &told.len())
    }

    pub(super) fn find_message(
        &self,
        now: Timestamp,
        tenant: TenantId,
        address: &Address,
        reply: Option<&Reply>,
    ) -> Result<(), Wrong> {
        let told = match reply {
            Some(Reply::Message(told)) => told.as_ref(),
            Some(other) => return Err(unexpected(other)),
            None => return Ok(()),
        };
        let place = self.locate(address.partition).filter(|&(q, _)| self.queues[q].tenant == tenant);
        let Some((q, p)) = place else {
            return same("a message of an unknown partition", &None::<&MessageDetail>, &told);
        };
        let queue = &self.queues[q];
        let partition = &queue.partitions[p];
        let fits: Vec<usize> = (0..partition.messages.len())
            .filter(|&n| partition.messages[n].transaction_text() == address.transaction.as_str())
            .collect();
        let Some(is) = told else {
            // Past the age of hashes nobody promises that a message is found.
            let since = now.minus(super::ack_age(&queue.options));
            let kept = fits.iter().any(|&n| partition.messages[n].created >= since);
            return if kept { Err("there is such a message".to_owned()) } else { Ok(()) };
        };
        // With deduplication off several messages share an address; any of them will do.
        let n = fits.into_iter().find(|&n| partition.messages[n].id == is.id);
        let n = n.ok_or(format!("{} is not at this address", is.id))?;
        let message = &partition.messages[n];
        let offset = n as u64;
        let at_address =
            partition.dead.iter().filter(|dead| dead.message.transaction_text() == address.transaction.as_str());
        let dead = at_address.max_by_key(|dead| (dead.failed, dead.id));
        let groups = queue.groups_of(partition);
        let covers = |cursor: &super::Cursor| {
            let lease = cursor.lease.as_ref().filter(|lease| (cursor.next..lease.end).contains(&offset));
            lease.filter(|lease| self.lives(Some(lease), now)).map(|lease| lease.expires)
        };
        let bus: Vec<bool> = groups
            .iter()
            .filter(|(group, _)| group.as_str() != "__QUEUE_MODE__")
            .map(|(_, cursor)| cursor.next > offset)
            .collect();
        let all_past = |past: &[bool]| !past.is_empty() && past.iter().all(|&past| past);
        let every: Vec<bool> = groups.iter().map(|(_, cursor)| cursor.next > offset).collect();
        let completed = if bus.is_empty() { all_past(&every) } else { all_past(&bus) };
        let status = if dead.is_some() {
            MessageStatus::DeadLetter
        } else if completed {
            MessageStatus::Completed
        } else if groups.iter().any(|(_, cursor)| covers(cursor).is_some()) {
            MessageStatus::Processing
        } else {
            MessageStatus::Pending
        };
        let must = MessageDetail {
            encrypted: false,
            id: message.id,
            transaction: message.transaction_text().into(),
            payload: Some(message.payload.clone()),
            trace: message.trace,
            producer: message.producer.clone(),
            created: message.created,
            partition: address.partition,
            partition_name: partition.name.clone(),
            queue: queue.name.clone(),
            labels: queue.labels.clone(),
            options: queue.options.clone(),
            status,
            dead_letter: dead.map(|dead| (dead.error.clone(), dead.retries)),
            groups: groups
                .iter()
                .map(|(group, cursor)| MessageGroup {
                    group: group.clone(),
                    consumed: cursor.next > offset,
                    lease_expires: covers(cursor),
                })
                .collect(),
        };
        same("the message", &must, is)
    }

    pub(super) fn list_dead_letters(
        &self,
        tenant: TenantId,
        only_queue: Option<&QueueName>,
        only_group: Option<&GroupName>,
        limit: usize,
        offset: usize,
        reply: Option<&Reply>,
    ) -> Result<(), Wrong> {
        let told = match reply {
            Some(Reply::DeadLetters(told)) => told,
            Some(other) => return Err(unexpected(other)),
            None => return Ok(()),
        };
        let mut rows: Vec<(&Queue, &Partition, &Dead)> = Vec::new();
        for queue in self.queues.iter().filter(|queue| queue.tenant == tenant) {
            if only_queue.is_some_and(|only| queue.name != *only) {
                continue;
            }
            for partition in &queue.partitions {
                let fits = partition.dead.iter().filter(|dead| only_group.is_none_or(|only| dead.group == *only));
                rows.extend(fits.map(|dead| (queue, partition, dead)));
            }
        }
        // Ids are in the order of filing, within one time as well.
        rows.sort_by_key(|(_, _, dead)| (dead.failed, dead.id));
        let page: Vec<_> = rows.into_iter().rev().skip(offset).take(limit).collect();
        same("the number of dead letters on the page", &page.len(), &told.len())?;
        for ((queue, partition, dead), is) in page.into_iter().zip(told) {
            let message = &dead.message;
            let must = DeadLetterRow {
                encrypted: false,
                id: dead.id,
                queue: queue.name.clone(),
                partition_name: partition.name.clone(),
                head: DeadLetterHead {
                    id: dead.id,
                    partition: partition.id.unwrap_or(is.head.partition),
                    group: dead.group.clone(),
                    offset: dead.offset,
                    message: message.id,
                    hash: is.head.hash,
                    retries: dead.retries,
                    failed: dead.failed,
                    created: message.created,
                },
                transaction: message.transaction_text().into(),
                payload: Some(message.payload.clone()),
                producer: message.producer.clone(),
                error: dead.error.clone(),
            };
            same("a dead letter", &must, is)?;
        }
        Ok(())
    }
}

/// A time that was set when something was made: then, or as much later as registrations push commits on. Where the
/// store took its time, nobody saw when exactly it was made.
fn born_at(what: &str, made: Timestamp, created: Timestamp) -> Result<(), Wrong> {
    if created < made.minus(Span::from_secs(60)) || created > made.plus(Span::from_millis(1)) {
        return Err(format!("a {what} of {made:?} says that it was made at {created:?}"));
    }
    Ok(())
}
