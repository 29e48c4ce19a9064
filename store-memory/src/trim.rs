//! Removing rows a bounded number at a time: of an ended queue, below partitions' watermarks, of old history.

use tidegate_core::error::StoreError;
use tidegate_core::name::{PartitionId, QueueId};
use tidegate_core::record::SegmentHead;
use tidegate_core::time::Timestamp;

use crate::apply::corrupt;
use crate::tables::{HistoryKey, NOWHERE, QueueIndex, Tables, TrimmedRow};

impl Tables {
    /// Removes up to `limit` segments of an ended queue, oldest first; says whether rows remain. A partition without a
    /// segment and a dead letter count like a segment, so that no step is long.
    pub(crate) fn trim(&mut self, id: QueueId, limit: u32) -> Result<bool, StoreError> {
        let Some(index) = self.queue_by_id.get(&id).copied() else {
            return Ok(false);
        };
        if self.lives(index) {
            return Err(corrupt(format!("queue {id} has not ended and is trimmed")));
        }
        let mut left = limit as usize;
        while left > 0 {
            let removed = self.trim_dead_letter(index) || self.trim_partition(index, &mut left);
            if !removed {
                self.remove_queue(index);
                return Ok(false);
            }
            left = left.saturating_sub(1);
        }
        Ok(true)
    }

    /// Removes up to `limit` rows below partitions' watermarks, oldest first; says whether any remain.
    pub(crate) fn trim_logs(&mut self, partitions: &[PartitionId], limit: u32) -> bool {
        let mut left = limit as usize;
        for index in partitions.iter().filter_map(|id| self.find_partition(*id)).collect::<Vec<_>>() {
            let hash_start = self.trimmed(index).hash_start;
            let Some(row) = self.partitions.get_mut(index as usize).and_then(Option::as_mut) else { continue };
            let old = row.segments.partition_point(|segment| segment.end() <= row.log_start);
            let id = row.id;
            let heads: Vec<SegmentHead> = row
                .segments
                .drain(..old.min(left))
                .filter(|segment| segment.end() > hash_start)
                .map(|segment| segment.head(id))
                .collect();
            let all = old <= left;
            left = left.saturating_sub(old);
            if !heads.is_empty() {
                self.trimmed.entry(index).or_default().heads.extend(heads);
            }
            if let Some(kept) = self.trimmed.get_mut(&index) {
                while left > 0 && kept.has_old_head() {
                    kept.heads.pop_front();
                    left -= 1;
                }
            }
            if !all || self.trimmed.get(&index).is_some_and(TrimmedRow::has_old_head) {
                return true;
            }
        }
        false
    }

    /// Removes up to `limit` rows of history before `before`; says whether any remain.
    pub(crate) fn trim_history(&mut self, before: Timestamp, limit: u32) -> bool {
        let old: Vec<HistoryKey> = self.history.keys().filter(|key| key.2 < before).cloned().collect();
        old.iter().take(limit as usize).for_each(|key| {
            self.history.remove(key);
        });
        old.len() > limit as usize
    }

    fn trim_dead_letter(&mut self, queue: QueueIndex) -> bool {
        let first = self.queue_mut(queue).and_then(|row| row.dead_letters.pop_first());
        if let Some(id) = first {
            self.dead_letters.remove(&id);
        }
        first.is_some()
    }

    /// Removes segments of the queue's first partition, and the partition when they were all of them. Leaves the last
    /// one to be counted by the caller.
    fn trim_partition(&mut self, queue: QueueIndex, left: &mut usize) -> bool {
        let first = self.queue(queue).map_or(NOWHERE, |row| row.first);
        let Some(row) = self.partition_mut(first) else {
            return false;
        };
        if row.segments.len() > *left {
            row.segments.drain(..*left);
            *left = 0;
            return true;
        }
        *left -= row.segments.len().saturating_sub(1);
        let next = row.next;
        self.remove_partition(first);
        if let Some(row) = self.queue_mut(queue) {
            row.first = next;
            if next == NOWHERE {
                row.last = NOWHERE;
            }
        }
        true
    }
}

impl TrimmedRow {
    /// Whether it keeps a head whose hashes are not to be kept any more.
    pub(crate) fn has_old_head(&self) -> bool {
        self.heads.front().is_some_and(|head| head.start + head.hashes.len() as u64 <= self.trimmed.hash_start)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::name::{GroupName, PartitionId, PartitionName, QueueName, TenantId};
    use tidegate_core::options::{Labels, QueueOptions};
    use tidegate_core::record::{Cursor, CursorRecord, PartitionRecord, QueueRecord, Trimmed};
    use tidegate_core::store::Write;
    use tidegate_core::time::Timestamp;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_trimmed_queue_leaves_nothing_in_any_table() {
        let id = QueueId(Uuid::from_u128(1));
        let created = Timestamp::EPOCH;
        let (tenant, labels, options) = (TenantId::DEFAULT, Labels::default(), QueueOptions::implicit());
        let name = QueueName::new("q").expect("a valid name");
        let partition = |number: u128, queue| {
            let name = PartitionName::new(&number.to_string()).expect("a valid name");
            let id = PartitionId(Uuid::from_u128(number));
            Write::Partition(PartitionRecord { id, queue, name, created, log_start: 0, trimmed: Trimmed::default() })
        };
        let group = |text| GroupName::new(text).expect("a valid name");
        let cursor = |number: u128, text| {
            let partition = PartitionId(Uuid::from_u128(number));
            Write::Cursor(CursorRecord { partition, group: group(text), cursor: Cursor::default() })
        };
        let mut first =
            vec![Write::Queue(Box::new(QueueRecord { id, tenant, name, labels, options, created, revision: 0 }))];
        first.extend((0..5).flat_map(|number| [partition(number, id), cursor(number, "a"), cursor(number, "b")]));
        let refused = vec![partition(5, id), cursor(5, "c"), partition(6, QueueId(Uuid::nil()))];
        let drop = Write::DropCursor { partition: PartitionId(Uuid::from_u128(7)), group: group("c") };
        let mut second: Vec<Write> = (5..10).flat_map(|number| [partition(number, id), cursor(number, "c")]).collect();
        second.extend([drop, Write::EndQueue(id)]);

        let mut tables = Tables::default();
        // The second time in the places of the first.
        for _ in 0..2 {
            assert_eq!(tables.apply(first.clone()), Ok(()));
            assert!(tables.apply(refused.clone()).is_err());
            assert_eq!(tables.apply(second.clone()), Ok(()));
            let steps = (1..).find(|_| tables.trim(id, 3) == Ok(false));
            assert_eq!(steps, Some(4), "ten partitions by three");
            assert!(tables.groups.is_empty() && tables.partition_by_id.is_empty() && tables.queue_by_id.is_empty());
            assert!(tables.queues.iter().all(Option::is_none) && tables.partitions.iter().all(Option::is_none));
            assert_eq!((tables.queues.len(), tables.partitions.len()), (1, 10));
        }
    }
}
