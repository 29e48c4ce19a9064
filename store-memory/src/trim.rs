//! Removing the rows of an ended queue, a bounded number at a time.

use tidegate_core::error::StoreError;
use tidegate_core::name::QueueId;

use crate::apply::corrupt;
use crate::tables::{NOWHERE, QueueIndex, Tables};

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

#[cfg(test)]
mod tests {
    use tidegate_core::name::{GroupName, PartitionId, PartitionName, QueueName, TenantId};
    use tidegate_core::options::{Labels, QueueOptions};
    use tidegate_core::record::{Cursor, CursorRecord, PartitionRecord, QueueRecord};
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
            Write::Partition(PartitionRecord { id, queue, name, created, log_start: 0 })
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
