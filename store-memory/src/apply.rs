//! A commit's writes onto the tables, all or nothing: each write leaves behind how to undo it, and the first one that
//! contradicts what is stored undoes those before it.

use bytes::Bytes;
use tidegate_core::activity::Activity;
use tidegate_core::error::{StoreError, StoreErrorKind};
use tidegate_core::name::{DeadLetterId, GroupName, PartitionId, QueueId};
use tidegate_core::record::{
    CursorRecord, DeadLetterRecord, HistoryRecord, NewSegment, PartitionRecord, QueueRecord, SubscriptionRecord,
};
use tidegate_core::store::Write;

use crate::groups::GroupIndex;
use crate::operations::MinuteKey;
use crate::packed::Packed;
use crate::tables::{
    CursorRow, DeadLetterRow, HistoryKey, HistoryRow, NOWHERE, PartitionIndex, PartitionRow, QueueIndex, QueueRow,
    SegmentRow, Tables, TrimmedRow,
};

/// Above this size the buffer that segments are built in is not kept: one huge message must not cost its size for ever.
const MOST_SCRATCH_BYTES: usize = 1024 * 1024;

/// Buffers that live only during one commit, kept for the next.
#[derive(Clone, Default)]
pub(crate) struct Scratch {
    undo: Vec<Undo>,
    /// Groups of dropped cursors, which are given up when nothing can bring the cursors back.
    dropped: Vec<GroupIndex>,
    /// Places of dropped partitions, which are free for others when nothing can bring the partitions back.
    freed: Vec<PartitionIndex>,
    segment: Vec<u8>,
}

/// A dropped partition, the one before it in its queue's list, and what was left of its messages.
#[derive(Clone)]
struct DroppedPartition {
    index: PartitionIndex,
    before: PartitionIndex,
    row: PartitionRow,
    trimmed: Option<TrimmedRow>,
}

/// How to take a write back.
#[derive(Clone)]
enum Undo {
    NewQueue(QueueIndex),
    Queue(QueueIndex, Box<QueueRecord>),
    EndQueue(QueueIndex),
    /// With the queue's last partition before it.
    NewPartition(PartitionIndex, PartitionIndex),
    Partition(PartitionIndex, PartitionRecord),
    /// With what else there was of it, and its place in its queue's list.
    DropPartition(Box<DroppedPartition>),
    History(HistoryKey, Option<HistoryRow>),
    Append(PartitionIndex),
    NewCursor(PartitionIndex, GroupIndex),
    Cursor(PartitionIndex, CursorRow),
    Subscription(QueueIndex, GroupName, Option<SubscriptionRecord>),
    DeadLetter(DeadLetterId, Option<DeadLetterRow>),
    Trace(uuid::Uuid),
    Activity(MinuteKey, Option<Activity>),
}

impl Tables {
    /// Applies all writes or none.
    pub(crate) fn apply(&mut self, writes: Vec<Write>) -> Result<(), StoreError> {
        let done = writes.into_iter().try_for_each(|write| self.write(write));
        match done {
            Ok(()) => {
                self.scratch.undo.clear();
                while let Some(group) = self.scratch.dropped.pop() {
                    self.groups.leave(group);
                }
                self.free_partitions.append(&mut self.scratch.freed);
            }
            Err(_) => {
                self.scratch.dropped.clear();
                self.scratch.freed.clear();
                while let Some(undo) = self.scratch.undo.pop() {
                    self.undo(undo);
                }
            }
        }
        if self.scratch.segment.capacity() > MOST_SCRATCH_BYTES {
            self.scratch.segment = Vec::new();
        }
        done
    }

    fn write(&mut self, write: Write) -> Result<(), StoreError> {
        let undo = match write {
            Write::Queue(record) => Some(self.set_queue(record)?),
            Write::EndQueue(id) => Some(self.end_queue(id)?),
            Write::Partition(record) => Some(self.set_partition(record)?),
            Write::Append(segment) => Some(self.append(segment)?),
            Write::Cursor(record) => Some(self.set_cursor(record)?),
            Write::DropCursor { partition, group } => self.drop_cursor(partition, &group),
            Write::Subscription(record) => Some(self.set_subscription(record)?),
            Write::DropSubscription { queue, group } => self.drop_subscription(queue, group),
            Write::DeadLetter(record) => Some(self.file_dead_letter(record)?),
            Write::DropDeadLetter(id) => self.drop_dead_letter(id),
            Write::Trace(trace) => {
                let id = trace.id;
                if !self.operations.keep_trace(*trace) {
                    return Err(corrupt(format!("trace {id} is there already")));
                }
                Some(Undo::Trace(id))
            }
            Write::Activity(row) => {
                let (key, old) = self.operations.keep_minute(*row);
                Some(Undo::Activity(key, old))
            }
            Write::DropActivity { before, limit } => {
                let dropped = self.operations.drop_minutes(before, limit);
                let undo = dropped.into_iter().map(|(key, old)| Undo::Activity(key, Some(old)));
                self.scratch.undo.extend(undo);
                None
            }
            Write::DropPartition(id) => Some(self.drop_partition(id)?),
            Write::History(record) => Some(self.add_history(record)),
        };
        self.scratch.undo.extend(undo);
        Ok(())
    }

    fn set_queue(&mut self, record: Box<QueueRecord>) -> Result<Undo, StoreError> {
        let Some(index) = self.queue_by_id.get(&record.id).copied() else {
            return Ok(Undo::NewQueue(self.insert_queue(record)));
        };
        let row = self.queue_mut(index).filter(|row| !row.ended).ok_or_else(|| unknown_queue(record.id))?;
        if row.record.tenant != record.tenant || row.record.name != record.name {
            return Err(corrupt(format!("queue {} is set with another tenant or name", record.id)));
        }
        Ok(Undo::Queue(index, std::mem::replace(&mut row.record, record)))
    }

    fn end_queue(&mut self, id: QueueId) -> Result<Undo, StoreError> {
        let index = self.live_queue(id).ok_or_else(|| unknown_queue(id))?;
        self.queue_mut(index).ok_or_else(|| unknown_queue(id))?.ended = true;
        Ok(Undo::EndQueue(index))
    }

    fn set_partition(&mut self, record: PartitionRecord) -> Result<Undo, StoreError> {
        let queue = self.live_queue(record.queue).ok_or_else(|| unknown_queue(record.queue))?;
        let Some(index) = self.find_partition(record.id) else {
            let last = self.queue(queue).map_or(NOWHERE, |row| row.last);
            return Ok(Undo::NewPartition(self.insert_partition(queue, record), last));
        };
        let row = self.partition_mut(index).ok_or_else(|| unknown_partition(record.id))?;
        if row.queue != queue || row.name != record.name {
            return Err(corrupt(format!("partition {} is set with another queue or name", record.id)));
        }
        let (start, next) = (row.log_start, row.next_offset());
        if !(start..=next).contains(&record.log_start) {
            let text = format!(
                "partition {} has offsets {start} to {next}, its log start is set to {}",
                record.id, record.log_start
            );
            return Err(corrupt(text));
        }
        let trimmed = self.trimmed(index);
        let row = self.partition_mut(index).ok_or_else(|| unknown_partition(record.id))?;
        let old = row.to_record(record.queue, trimmed);
        (row.created, row.log_start) = (record.created, record.log_start);
        self.set_trimmed(index, record.trimmed);
        Ok(Undo::Partition(index, old))
    }

    /// Takes a partition out of its queue's list and out of the tables. What is left of its messages must lie below the
    /// log start.
    fn drop_partition(&mut self, id: PartitionId) -> Result<Undo, StoreError> {
        let index = self.live_partition(id).ok_or_else(|| unknown_partition(id))?;
        let row = self.partition(index).ok_or_else(|| unknown_partition(id))?;
        let (queue, next) = (row.queue, row.next);
        if row.next_offset() > row.log_start {
            return Err(corrupt(format!("partition {id} has messages and is dropped")));
        }
        let first = self.queue(queue).map_or(NOWHERE, |row| row.first);
        let mut before = NOWHERE;
        let mut at = first;
        while at != index && at != NOWHERE {
            before = at;
            at = self.partition(at).map_or(NOWHERE, |row| row.next);
        }
        self.change_partition(before, |row| row.next = next);
        self.change_queue(queue, |row| {
            if before == NOWHERE {
                row.first = next;
            }
            if next == NOWHERE {
                row.last = before;
            }
        });
        let trimmed = self.trimmed.remove(&index);
        let row = self.take_partition(index).ok_or_else(|| unknown_partition(id))?;
        self.scratch.freed.push(index);
        self.scratch.dropped.extend(row.cursors.iter().map(|cursor| cursor.group));
        Ok(Undo::DropPartition(Box::new(DroppedPartition { index, before, row, trimmed })))
    }

    fn add_history(&mut self, record: HistoryRecord) -> Undo {
        let HistoryRecord { tenant, queue, minute, rule, tally, events } = record;
        let key = (tenant, queue, minute, rule);
        let old = self.history.get(&key).copied();
        let row = self.history.entry(key.clone()).or_default();
        row.0.add(&tally);
        row.1 += events;
        Undo::History(key, old)
    }

    fn append(&mut self, segment: NewSegment) -> Result<Undo, StoreError> {
        let id = segment.partition;
        let index = self.live_partition(id).ok_or_else(|| unknown_partition(id))?;
        let row =
            self.partitions.get_mut(index as usize).and_then(Option::as_mut).ok_or_else(|| unknown_partition(id))?;
        let next = row.next_offset();
        if segment.start != next {
            let text = format!("partition {id} goes on at offset {next}, a segment starts at {}", segment.start);
            return Err(corrupt(text));
        }
        if row.segments.last().is_some_and(|last| segment.created < last.created) {
            return Err(corrupt(format!("partition {id} has a later commit time than the segment at {next}")));
        }
        let count = segment.messages.len();
        if count == 0 || count != segment.hashes.len() {
            let hashes = segment.hashes.len();
            return Err(corrupt(format!("the segment at {next} of {id} has {count} messages and {hashes} hashes")));
        }
        if next.checked_add(count as u64).is_none() {
            return Err(corrupt(format!("partition {id} has no offsets after {next} for {count} messages")));
        }
        let messages = Packed::pack(&segment, &mut self.scratch.segment)
            .ok_or_else(|| corrupt(format!("the segment at {next} of {id} is larger than 4 GiB")))?;
        row.segments.push(SegmentRow {
            start: next,
            created: segment.created,
            base: segment.base,
            total: segment.total,
            messages,
        });
        Ok(Undo::Append(index))
    }

    fn set_cursor(&mut self, record: CursorRecord) -> Result<Undo, StoreError> {
        let CursorRecord { partition, group, cursor } = record;
        let index = self.live_partition(partition).ok_or_else(|| unknown_partition(partition))?;
        let row = self
            .partitions
            .get_mut(index as usize)
            .and_then(Option::as_mut)
            .ok_or_else(|| unknown_partition(partition))?;
        if let Some(group) = self.groups.find(&group)
            && let Ok(at) = row.find_cursor(group)
        {
            let old = std::mem::replace(&mut row.cursors[at], CursorRow::new(group, cursor));
            return Ok(Undo::Cursor(index, old));
        }
        let group = self.groups.enter(group);
        row.put_cursor(CursorRow::new(group, cursor));
        Ok(Undo::NewCursor(index, group))
    }

    fn drop_cursor(&mut self, partition: PartitionId, group: &GroupName) -> Option<Undo> {
        let index = self.live_partition(partition)?;
        let group = self.groups.find(group)?;
        let row = self.partition_mut(index)?;
        let at = row.find_cursor(group).ok()?;
        let old = row.cursors.remove(at);
        self.scratch.dropped.push(group);
        Some(Undo::Cursor(index, old))
    }

    fn set_subscription(&mut self, record: SubscriptionRecord) -> Result<Undo, StoreError> {
        let index = self.live_queue(record.queue).ok_or_else(|| unknown_queue(record.queue))?;
        let row = self.queue_mut(index).ok_or_else(|| unknown_queue(record.queue))?;
        let group = record.group.clone();
        Ok(Undo::Subscription(index, group.clone(), row.subscriptions.insert(group, record)))
    }

    fn drop_subscription(&mut self, queue: QueueId, group: GroupName) -> Option<Undo> {
        let index = self.live_queue(queue)?;
        let old = self.queue_mut(index)?.subscriptions.remove(&group)?;
        Some(Undo::Subscription(index, group, Some(old)))
    }

    fn file_dead_letter(&mut self, mut record: Box<DeadLetterRecord>) -> Result<Undo, StoreError> {
        let (id, partition) = (record.head.id, record.head.partition);
        let index = self.live_partition(partition).ok_or_else(|| unknown_partition(partition))?;
        let queue = self.partition(index).map_or(QueueIndex::MAX, |row| row.queue);
        if self.dead_letters.contains_key(&id) {
            return Err(corrupt(format!("dead letter {id} is filed already")));
        }
        if let Some(message) = &mut record.message {
            // A slice would keep its whole segment or request.
            message.payload = Bytes::copy_from_slice(&message.payload);
        }
        let old = self.put_dead_letter(id, Some(DeadLetterRow { queue, record }));
        Ok(Undo::DeadLetter(id, old))
    }

    fn drop_dead_letter(&mut self, id: DeadLetterId) -> Option<Undo> {
        self.dead_letter(id)?;
        let old = self.put_dead_letter(id, None)?;
        Some(Undo::DeadLetter(id, Some(old)))
    }

    /// Sets or removes a dead letter; gives what was there.
    fn put_dead_letter(&mut self, id: DeadLetterId, row: Option<DeadLetterRow>) -> Option<DeadLetterRow> {
        let old = self.dead_letters.remove(&id);
        if let Some(queue) = old.as_ref().and_then(|old| self.queue_mut(old.queue)) {
            queue.dead_letters.remove(&id);
        }
        if let Some(row) = row {
            if let Some(queue) = self.queue_mut(row.queue) {
                queue.dead_letters.insert(id);
            }
            self.dead_letters.insert(id, row);
        }
        old
    }

    fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::NewQueue(index) => self.remove_queue(index),
            Undo::Queue(index, record) => self.change_queue(index, |row| row.record = record),
            Undo::EndQueue(index) => self.change_queue(index, |row| row.ended = false),
            Undo::NewPartition(index, last) => {
                if let Some(queue) = self.partition(index).map(|row| row.queue) {
                    self.change_queue(queue, |row| {
                        row.last = last;
                        if last == NOWHERE {
                            row.first = NOWHERE;
                        }
                    });
                }
                self.change_partition(last, |row| row.next = NOWHERE);
                self.remove_partition(index);
            }
            Undo::Partition(index, old) => {
                self.change_partition(index, |row| (row.created, row.log_start) = (old.created, old.log_start));
                self.set_trimmed(index, old.trimmed);
            }
            Undo::DropPartition(dropped) => {
                let DroppedPartition { index, before, row, trimmed } = *dropped;
                let (queue, next) = (row.queue, row.next);
                self.put_partition(index, row);
                self.trimmed.extend(trimmed.map(|trimmed| (index, trimmed)));
                self.change_partition(before, |row| row.next = index);
                self.change_queue(queue, |row| {
                    if before == NOWHERE {
                        row.first = index;
                    }
                    if next == NOWHERE {
                        row.last = index;
                    }
                });
            }
            Undo::History(key, old) => {
                match old {
                    Some(old) => self.history.insert(key, old),
                    None => self.history.remove(&key),
                };
            }
            Undo::Append(index) => self.change_partition(index, |row| {
                row.segments.pop();
            }),
            Undo::NewCursor(index, group) => {
                self.change_partition(index, |row| row.cursors.retain(|cursor| cursor.group != group));
                self.groups.leave(group);
            }
            Undo::Cursor(index, old) => self.change_partition(index, |row| row.put_cursor(old)),
            Undo::Subscription(index, group, old) => self.change_queue(index, |row| {
                match old {
                    Some(old) => row.subscriptions.insert(group, old),
                    None => row.subscriptions.remove(&group),
                };
            }),
            Undo::Trace(id) => self.operations.forget_trace(id),
            Undo::Activity(key, old) => self.operations.restore_minute(key, old),
            Undo::DeadLetter(id, old) => {
                self.put_dead_letter(id, old);
            }
        }
    }

    fn change_queue(&mut self, index: QueueIndex, change: impl FnOnce(&mut QueueRow)) {
        if let Some(row) = self.queue_mut(index) {
            change(row);
        }
    }

    fn change_partition(&mut self, index: PartitionIndex, change: impl FnOnce(&mut PartitionRow)) {
        if let Some(row) = self.partition_mut(index) {
            change(row);
        }
    }
}

impl PartitionRow {
    /// Sets a cursor.
    fn put_cursor(&mut self, row: CursorRow) {
        match self.find_cursor(row.group) {
            Ok(at) => self.cursors[at] = row,
            Err(at) => self.cursors.insert(at, row),
        }
    }
}

pub(crate) fn corrupt(text: String) -> StoreError {
    StoreError { kind: StoreErrorKind::Corrupt, text }
}

pub(crate) fn unknown_queue(id: QueueId) -> StoreError {
    corrupt(format!("queue {id} is not in this slot"))
}

fn unknown_partition(id: PartitionId) -> StoreError {
    corrupt(format!("partition {id} is not in this slot"))
}
