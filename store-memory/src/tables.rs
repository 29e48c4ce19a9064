//! What one slot holds, laid out so that a partition with a message and a cursor stays below 240 bytes: rows name
//! queues and groups by four-byte numbers, and a partition's first segment and first cursor lie in its own row.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hashbrown::HashTable;
use smallvec::SmallVec;
use tidegate_core::message::SegmentSlice;
use tidegate_core::name::{
    DeadLetterId, GroupName, MessageId, PartitionId, PartitionName, QueueId, QueueName, TenantId,
};
use tidegate_core::record::{
    Cursor, CursorRecord, DeadLetterRecord, Lease, PartitionRecord, QueueRecord, RetentionRule, SegmentHead,
    SubscriptionRecord, Tally, Trimmed,
};
use tidegate_core::store::SegmentRead;
use tidegate_core::time::Timestamp;

use crate::apply::Scratch;
use crate::groups::{GroupIndex, Groups};
use crate::operations::Operations;
use crate::packed::Packed;

/// A queue's place in `Tables::queues`.
pub(crate) type QueueIndex = u32;
/// A partition's place in `Tables::partitions`.
pub(crate) type PartitionIndex = u32;

/// No partition.
pub(crate) const NOWHERE: PartitionIndex = PartitionIndex::MAX;

/// The rows of one slot.
#[derive(Clone, Default)]
pub(crate) struct Tables {
    pub(crate) queues: Vec<Option<QueueRow>>,
    pub(crate) free_queues: Vec<QueueIndex>,
    pub(crate) queue_by_id: BTreeMap<QueueId, QueueIndex>,
    pub(crate) partitions: Vec<Option<PartitionRow>>,
    pub(crate) free_partitions: Vec<PartitionIndex>,
    pub(crate) partition_by_id: HashTable<PartitionIndex>,
    pub(crate) groups: Groups,
    pub(crate) dead_letters: BTreeMap<DeadLetterId, DeadLetterRow>,
    pub(crate) operations: Operations,
    /// What retention left of partitions it has deleted from; apart from their rows, which are many and small.
    pub(crate) trimmed: BTreeMap<PartitionIndex, TrimmedRow>,
    pub(crate) history: BTreeMap<HistoryKey, HistoryRow>,
    pub(crate) scratch: Scratch,
}

/// A queue, until its last row is trimmed.
#[derive(Clone)]
pub(crate) struct QueueRow {
    pub(crate) record: Box<QueueRecord>,
    pub(crate) ended: bool,
    pub(crate) subscriptions: BTreeMap<GroupName, SubscriptionRecord>,
    pub(crate) dead_letters: BTreeSet<DeadLetterId>,
    /// Its partitions as a list in order of creation, which trims go along; `NOWHERE` when there is none.
    pub(crate) first: PartitionIndex,
    pub(crate) last: PartitionIndex,
}

/// A partition with its segments and cursors.
#[derive(Clone)]
pub(crate) struct PartitionRow {
    pub(crate) id: PartitionId,
    pub(crate) name: PartitionName,
    pub(crate) created: Timestamp,
    pub(crate) log_start: u64,
    /// In offset order, without gaps.
    pub(crate) segments: SmallVec<[SegmentRow; 1]>,
    /// By group.
    pub(crate) cursors: SmallVec<[CursorRow; 1]>,
    pub(crate) queue: QueueIndex,
    /// The queue's next partition.
    pub(crate) next: PartitionIndex,
}

/// What is left of a partition's deleted messages.
#[derive(Clone, Default)]
pub(crate) struct TrimmedRow {
    pub(crate) trimmed: Trimmed,
    /// Heads whose messages are removed, in offset order.
    pub(crate) heads: VecDeque<SegmentHead>,
}

/// Whose queue, which one, in which minute, by which rule.
pub(crate) type HistoryKey = (TenantId, QueueName, Timestamp, RetentionRule);

/// How much was deleted, in how many commits.
pub(crate) type HistoryRow = (Tally, u64);

/// A segment.
#[derive(Clone)]
pub(crate) struct SegmentRow {
    pub(crate) start: u64,
    pub(crate) created: Timestamp,
    pub(crate) base: MessageId,
    pub(crate) total: u64,
    pub(crate) messages: Packed,
}

/// A cursor. Few are leased at any time.
#[derive(Clone)]
pub(crate) struct CursorRow {
    pub(crate) next: u64,
    pub(crate) consumed: u64,
    pub(crate) lease: Option<Box<Lease>>,
    pub(crate) retries: u32,
    pub(crate) group: GroupIndex,
}

/// A dead letter.
#[derive(Clone)]
pub(crate) struct DeadLetterRow {
    pub(crate) queue: QueueIndex,
    pub(crate) record: Box<DeadLetterRecord>,
}

impl Tables {
    pub(crate) fn queue(&self, index: QueueIndex) -> Option<&QueueRow> {
        self.queues.get(index as usize)?.as_ref()
    }

    pub(crate) fn queue_mut(&mut self, index: QueueIndex) -> Option<&mut QueueRow> {
        self.queues.get_mut(index as usize)?.as_mut()
    }

    pub(crate) fn partition(&self, index: PartitionIndex) -> Option<&PartitionRow> {
        self.partitions.get(index as usize)?.as_ref()
    }

    pub(crate) fn partition_mut(&mut self, index: PartitionIndex) -> Option<&mut PartitionRow> {
        self.partitions.get_mut(index as usize)?.as_mut()
    }

    /// The queue of that id, unless it has ended.
    pub(crate) fn live_queue(&self, id: QueueId) -> Option<QueueIndex> {
        self.queue_by_id.get(&id).copied().filter(|index| self.lives(*index))
    }

    /// Whether the queue is there and has not ended.
    pub(crate) fn lives(&self, queue: QueueIndex) -> bool {
        self.queue(queue).is_some_and(|queue| !queue.ended)
    }

    /// The partition of that id, whether or not its queue has ended.
    pub(crate) fn find_partition(&self, id: PartitionId) -> Option<PartitionIndex> {
        let is_it = |index: &PartitionIndex| self.partition(*index).is_some_and(|partition| partition.id == id);
        self.partition_by_id.find(hash(id), is_it).copied()
    }

    /// The partition of that id, unless its queue has ended.
    pub(crate) fn live_partition(&self, id: PartitionId) -> Option<PartitionIndex> {
        self.find_partition(id).filter(|index| self.partition(*index).is_some_and(|row| self.lives(row.queue)))
    }

    /// The messages that a read asks for; none when the partition is not here.
    pub(crate) fn read(&self, read: &SegmentRead) -> Option<Vec<SegmentSlice>> {
        Some(self.partition(self.live_partition(read.partition)?)?.read(read.from, read.end))
    }

    /// The dead letter of that id, unless its queue has ended.
    pub(crate) fn dead_letter(&self, id: DeadLetterId) -> Option<&DeadLetterRecord> {
        self.dead_letters.get(&id).filter(|row| self.lives(row.queue)).map(|row| &*row.record)
    }

    /// Puts a queue in a free place.
    pub(crate) fn insert_queue(&mut self, record: Box<QueueRecord>) -> QueueIndex {
        let index = self.free_queues.pop().unwrap_or(self.queues.len() as QueueIndex);
        self.queue_by_id.insert(record.id, index);
        let row = QueueRow {
            record,
            ended: false,
            subscriptions: BTreeMap::new(),
            dead_letters: BTreeSet::new(),
            first: NOWHERE,
            last: NOWHERE,
        };
        put(&mut self.queues, index, row);
        index
    }

    /// Removes a queue that has no partition.
    pub(crate) fn remove_queue(&mut self, index: QueueIndex) {
        if let Some(row) = self.queues.get_mut(index as usize).and_then(Option::take) {
            self.queue_by_id.remove(&row.record.id);
            self.free_queues.push(index);
        }
    }

    /// Puts a partition in a free place and at the end of its queue's list.
    pub(crate) fn insert_partition(&mut self, queue: QueueIndex, record: PartitionRecord) -> PartitionIndex {
        let index = self.free_partitions.pop().unwrap_or(self.partitions.len() as PartitionIndex);
        let last = self.queue_mut(queue).map_or(NOWHERE, |row| {
            if row.first == NOWHERE {
                row.first = index;
            }
            std::mem::replace(&mut row.last, index)
        });
        if let Some(last) = self.partition_mut(last) {
            last.next = index;
        }
        let PartitionRecord { id, queue: _, name, created, log_start, trimmed } = record;
        self.set_trimmed(index, trimmed);
        let (segments, cursors) = (SmallVec::new(), SmallVec::new());
        self.put_partition(
            index,
            PartitionRow { id, name, created, log_start, segments, cursors, queue, next: NOWHERE },
        );
        index
    }

    /// Puts a row in its place, and makes it known by its id.
    pub(crate) fn put_partition(&mut self, index: PartitionIndex, row: PartitionRow) {
        let id = row.id;
        put(&mut self.partitions, index, row);
        let hash_at = |at: &PartitionIndex| {
            self.partitions.get(*at as usize).and_then(Option::as_ref).map_or(0, |row| hash(row.id))
        };
        self.partition_by_id.insert_unique(hash(id), index, hash_at);
    }

    /// Takes a row from its place, which stays taken.
    pub(crate) fn take_partition(&mut self, index: PartitionIndex) -> Option<PartitionRow> {
        let row = self.partitions.get_mut(index as usize).and_then(Option::take)?;
        if let Ok(entry) = self.partition_by_id.find_entry(hash(row.id), |at| *at == index) {
            entry.remove();
        }
        Some(row)
    }

    /// Removes a partition that is in no list any more.
    pub(crate) fn remove_partition(&mut self, index: PartitionIndex) {
        if let Some(row) = self.take_partition(index) {
            row.cursors.iter().for_each(|cursor| self.groups.leave(cursor.group));
            self.trimmed.remove(&index);
            self.free_partitions.push(index);
        }
    }

    /// What retention left of a partition's deleted messages.
    pub(crate) fn trimmed(&self, index: PartitionIndex) -> Trimmed {
        self.trimmed.get(&index).map(|row| row.trimmed).unwrap_or_default()
    }

    /// Sets it.
    pub(crate) fn set_trimmed(&mut self, index: PartitionIndex, trimmed: Trimmed) {
        if trimmed != self.trimmed(index) {
            self.trimmed.entry(index).or_default().trimmed = trimmed;
        }
    }
}

impl PartitionRow {
    /// The offset that the next segment starts at. Segments that end at or before the log start are there until a trim.
    pub(crate) fn next_offset(&self) -> u64 {
        self.segments.last().map_or(self.log_start, SegmentRow::end)
    }

    pub(crate) fn to_record(&self, queue: QueueId, trimmed: Trimmed) -> PartitionRecord {
        let PartitionRow { id, created, log_start, .. } = *self;
        PartitionRecord { id, queue, name: self.name.clone(), created, log_start, trimmed }
    }

    fn read(&self, from: u64, end: u64) -> Vec<SegmentSlice> {
        let from = from.max(self.log_start);
        // By the starts, which lie side by side; an end lies with the segment's messages.
        let first = match self.segments.last() {
            // Consumers that keep up read the newest segment.
            Some(last) if last.start <= from => self.segments.len() - 1,
            _ => self.segments.partition_point(|segment| segment.start <= from).saturating_sub(1),
        };
        let wanted = self.segments[first..].iter().take_while(|segment| segment.start < end && from < end);
        let wanted = wanted.skip_while(|segment| segment.end() <= from);
        wanted.map(|segment| segment.slice(from, end)).collect()
    }

    /// Where the group's cursor is, or where it would go.
    pub(crate) fn find_cursor(&self, group: GroupIndex) -> Result<usize, usize> {
        self.cursors.binary_search_by_key(&group, |cursor| cursor.group)
    }
}

impl SegmentRow {
    /// One past its last offset.
    pub(crate) fn end(&self) -> u64 {
        self.start + self.messages.count()
    }

    pub(crate) fn head(&self, partition: PartitionId) -> SegmentHead {
        SegmentHead {
            partition,
            start: self.start,
            created: self.created,
            base: self.base,
            total: self.total,
            hashes: self.messages.hashes(self.base),
        }
    }

    /// What it has between two offsets, of which it has something.
    fn slice(&self, from: u64, end: u64) -> SegmentSlice {
        let skipped = from.saturating_sub(self.start);
        SegmentSlice {
            start: self.start + skipped,
            created: self.created,
            // A segment has less than 2^30 messages.
            base: self.base.nth(skipped as u32),
            messages: self.messages.read(skipped, end - self.start),
        }
    }
}

impl CursorRow {
    pub(crate) fn new(group: GroupIndex, cursor: Cursor) -> Self {
        let Cursor { next, retries, consumed, lease } = cursor;
        CursorRow { next, consumed, lease: lease.map(Box::new), retries, group }
    }

    pub(crate) fn to_record(&self, partition: PartitionId, groups: &Groups) -> CursorRecord {
        let CursorRow { next, consumed, retries, .. } = *self;
        let cursor = Cursor { next, retries, consumed, lease: self.lease.as_deref().copied() };
        CursorRecord { partition, group: groups.name(self.group).clone(), cursor }
    }
}

/// `index` is a place in `rows` or the next one.
fn put<T>(rows: &mut Vec<Option<T>>, index: u32, row: T) {
    match rows.get_mut(index as usize) {
        Some(place) => *place = Some(row),
        None => rows.push(Some(row)),
    }
}

/// Ids are random already; the multiplication carries what tests count up into the top bits, where the table looks.
fn hash(id: PartitionId) -> u64 {
    let (high, low) = id.0.as_u64_pair();
    (high.rotate_left(32) ^ low).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

// A million partitions: each byte here is a megabyte.
const _: () = assert!(size_of::<Option<PartitionRow>>() == 168);
