//! Loading a slot page by page: queues, then subscriptions, then each partition with its cursors, then dead letters. So every record comes after what it refers to.
//!
//! Positions are places in the tables. They hold as long as nothing is written, which is so: a load is an owner's first
//! act, and nobody else may write.

use std::ops::Bound;

use tidegate_core::limits::{MAX_PAGE_HASHES, MAX_PAGE_HEADS, MAX_PAGE_RECORDS};
use tidegate_core::name::{DeadLetterId, QueueId};
use tidegate_core::record::QueueRecord;
use tidegate_core::store::{LoadPosition, LogPage, LogRead, LogTail, Record};
use uuid::Uuid;

use crate::tables::{PartitionRow, QueueRow, Tables};

const QUEUES: u8 = 0;
const SUBSCRIPTIONS: u8 = 1;
const PARTITIONS: u8 = 2;
const DEAD_LETTERS: u8 = 3;

/// A page in the making.
#[derive(Default)]
struct Page {
    records: Vec<Record>,
}

impl Page {
    fn is_full(&self) -> bool {
        self.records.len() >= MAX_PAGE_RECORDS
    }

    fn push(&mut self, record: Record) {
        self.records.push(record);
    }
}

impl Tables {
    /// The page after `after`. A position says what comes next.
    pub(crate) fn load(&self, after: Option<LoadPosition>) -> (Vec<Record>, Option<LoadPosition>) {
        let mut at = after.unwrap_or(LoadPosition { kind: QUEUES, key: 0, number: 0 });
        let mut page = Page::default();
        while at.kind <= DEAD_LETTERS {
            let stopped = match at.kind {
                QUEUES => self.load_queues(&at, &mut page),
                SUBSCRIPTIONS => self.load_subscriptions(&at, &mut page),
                PARTITIONS => self.load_partitions(&at, &mut page),
                _ => self.load_dead_letters(&at, &mut page),
            };
            if stopped.is_some() {
                return (page.records, stopped);
            }
            at = LoadPosition { kind: at.kind + 1, key: 0, number: 0 };
        }
        (page.records, None)
    }

    fn load_queues(&self, at: &LoadPosition, page: &mut Page) -> Option<LoadPosition> {
        for (index, row) in rows_from(&self.queues, at) {
            if page.is_full() {
                return Some(LoadPosition { kind: QUEUES, key: index, number: 0 });
            }
            page.push(match row.ended {
                false => Record::Queue(row.record.clone()),
                true => Record::Ended(row.record.id),
            });
        }
        None
    }

    fn load_subscriptions(&self, at: &LoadPosition, page: &mut Page) -> Option<LoadPosition> {
        let live = |(_, row): &(u128, &QueueRow)| !row.ended;
        for (index, row) in rows_from(&self.queues, at).filter(live) {
            let given = if index == at.key { at.number } else { 0 };
            for (number, record) in (0u64..).zip(row.subscriptions.values()).skip(given as usize) {
                if page.is_full() {
                    return Some(LoadPosition { kind: SUBSCRIPTIONS, key: index, number });
                }
                page.push(Record::Subscription(record.clone()));
            }
        }
        None
    }

    fn load_partitions(&self, at: &LoadPosition, page: &mut Page) -> Option<LoadPosition> {
        for (index, row) in rows_from(&self.partitions, at) {
            let given = if index == at.key { at.number } else { 0 };
            let stopped = self.load_partition(row, given, page);
            if let Some(number) = stopped {
                return Some(LoadPosition { kind: PARTITIONS, key: index, number });
            }
        }
        None
    }

    /// Skips the `given` first records of a partition; says how many are given when the page is full before the end.
    fn load_partition(&self, row: &PartitionRow, given: u64, page: &mut Page) -> Option<u64> {
        let queue = self.queue(row.queue).filter(|queue| !queue.ended)?;
        for place in given as usize..1 + row.cursors.len() {
            if page.is_full() {
                return Some(place as u64);
            }
            page.push(match place.checked_sub(1) {
                None => Record::Partition(row.to_record(queue.record.id), row.tail()),
                Some(at) => Record::Cursor(row.cursors[at].to_record(row.id, &self.groups)),
            });
        }
        None
    }

    fn load_dead_letters(&self, at: &LoadPosition, page: &mut Page) -> Option<LoadPosition> {
        let from = Bound::Included(DeadLetterId(Uuid::from_u128(at.key)));
        let rows = self.dead_letters.range((from, Bound::Unbounded));
        for (id, row) in rows.filter(|(_, row)| self.lives(row.queue)) {
            if page.is_full() {
                return Some(LoadPosition { kind: DEAD_LETTERS, key: id.0.as_u128(), number: 0 });
            }
            page.push(Record::DeadLetter(row.record.head.clone()));
        }
        None
    }
}

impl Tables {
    /// Queues with ids above `after`, and the last id given when there are more.
    pub(crate) fn load_queue_records(&self, after: Option<QueueId>) -> (Vec<QueueRecord>, Option<QueueId>) {
        let above = after.map_or(Bound::Unbounded, Bound::Excluded);
        let rows = self.queue_by_id.range((above, Bound::Unbounded)).filter_map(|(_, index)| self.queue(*index));
        let mut queues: Vec<_> =
            rows.filter(|row| !row.ended).take(MAX_PAGE_RECORDS + 1).map(|row| (*row.record).clone()).collect();
        let more = queues.len() > MAX_PAGE_RECORDS;
        queues.truncate(MAX_PAGE_RECORDS);
        let next = queues.last().map(|queue| queue.id).filter(|_| more);
        (queues, next)
    }

    /// A page of a partition's log; none when the partition is not here.
    pub(crate) fn load_log(&self, read: &LogRead) -> Option<LogPage> {
        let row = self.partition(self.live_partition(read.partition)?)?;
        let mut page = LogPage::default();
        let mut hashes = 0;
        let end = row.segments.partition_point(|segment| segment.start < read.before);
        for segment in row.segments[..end].iter().rev().take_while(|segment| segment.created >= read.since) {
            if page.segments.len() >= MAX_PAGE_HEADS || hashes >= MAX_PAGE_HASHES {
                page.more = true;
                break;
            }
            let head = segment.head(row.id);
            hashes += head.hashes.len();
            page.segments.push(head);
        }
        Some(page)
    }
}

impl PartitionRow {
    fn tail(&self) -> LogTail {
        let last = self.segments.last();
        LogTail {
            next: self.next_offset(),
            last: last.map(|segment| segment.created),
            total: last.map_or(0, |segment| segment.total),
        }
    }
}

/// The rows from a position on, each with its place.
fn rows_from<'a, T>(rows: &'a [Option<T>], at: &LoadPosition) -> impl Iterator<Item = (u128, &'a T)> {
    let from = usize::try_from(at.key).unwrap_or(usize::MAX);
    rows.iter().enumerate().skip(from).filter_map(|(index, row)| Some((index as u128, row.as_ref()?)))
}
