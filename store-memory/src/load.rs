//! Loading a slot page by page: queues, then subscriptions, then each partition with its cursors, then dead letters. So every record comes after what it refers to.
//!
//! Positions are places in the tables. They hold as long as nothing is written, which is so: a load is an owner's first
//! act, and nobody else may write.

use std::ops::Bound;

use tidegate_core::limits::{MAX_PAGE_HASHES, MAX_PAGE_HEADS, MAX_PAGE_RECORDS};
use tidegate_core::name::{DeadLetterId, QueueId, TenantId};
use tidegate_core::record::{HistoryRecord, QueueRecord, SegmentHead};
use tidegate_core::store::{Extent, ExtentRead, LoadPosition, LogPage, LogRead, LogTail, Record};
use tidegate_core::time::Timestamp;
use uuid::Uuid;

use crate::tables::{HistoryKey, PartitionIndex, PartitionRow, QueueRow, SegmentRow, Tables, TrimmedRow};

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
            let stopped = self.load_partition(index as PartitionIndex, row, given, page);
            if let Some(number) = stopped {
                return Some(LoadPosition { kind: PARTITIONS, key: index, number });
            }
        }
        None
    }

    /// Skips the `given` first records of a partition; says how many are given when the page is full before the end.
    fn load_partition(&self, index: PartitionIndex, row: &PartitionRow, given: u64, page: &mut Page) -> Option<u64> {
        let queue = self.queue(row.queue).filter(|queue| !queue.ended)?;
        for place in given as usize..1 + row.cursors.len() {
            if page.is_full() {
                return Some(place as u64);
            }
            page.push(match place.checked_sub(1) {
                None => Record::Partition(row.to_record(queue.record.id, self.trimmed(index)), self.tail(index, row)),
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
        let index = self.live_partition(read.partition)?;
        let row = self.partition(index)?;
        let mut page = LogPage::default();
        let mut hashes = 0;
        let end = row.segments.partition_point(|segment| segment.start < read.before);
        let segments = row.segments[..end].iter().rev().map(|segment| segment.head(row.id));
        // What lies below the messages outlived its own.
        let kept = self.trimmed.get(&index).into_iter().flat_map(|row| row.heads.iter().rev());
        let kept = kept.skip_while(|head| head.start >= read.before).cloned();
        for head in segments.chain(kept).take_while(|head| head.created >= read.since) {
            if page.segments.len() >= MAX_PAGE_HEADS || hashes >= MAX_PAGE_HASHES {
                page.more = true;
                break;
            }
            hashes += head.hashes.len();
            page.segments.push(head);
        }
        Some(page)
    }
}

impl Tables {
    /// Extents for each read, as many as the limit lets through.
    pub(crate) fn load_extents(&self, read: &ExtentRead, limit: usize) -> Option<Vec<Extent>> {
        let index = self.live_partition(read.partition)?;
        if read.hashes {
            let heads = self.trimmed.get(&index).into_iter().flat_map(|row| &row.heads);
            let wanted = heads.skip_while(|head| head.start < read.from).take(limit);
            let extent = |head: &SegmentHead| {
                let end = head.start + head.hashes.len() as u64;
                Extent { start: head.start, end, created: head.created, total: head.total }
            };
            return Some(wanted.map(extent).collect());
        }
        let segments = &self.partition(index)?.segments;
        let first = segments.partition_point(|segment| segment.start < read.from);
        let extent = |segment: &SegmentRow| {
            let SegmentRow { start, created, total, .. } = *segment;
            Extent { start, end: segment.end(), created, total }
        };
        Some(segments[first..].iter().take(limit).map(extent).collect())
    }

    /// A tenant's history from a minute on up to another.
    pub(crate) fn load_history(&self, tenant: TenantId, since: Timestamp, until: Timestamp) -> Vec<HistoryRecord> {
        let wanted = |key: &&HistoryKey| key.0 == tenant && (since..until).contains(&key.2);
        let mut records: Vec<HistoryRecord> = self
            .history
            .iter()
            .filter(|(key, _)| wanted(key))
            .map(|((tenant, queue, minute, rule), (tally, events))| HistoryRecord {
                tenant: *tenant,
                queue: queue.clone(),
                minute: *minute,
                rule: *rule,
                tally: *tally,
                events: *events,
            })
            .collect();
        records.sort_by(|a, b| (a.minute, &a.queue, a.rule).cmp(&(b.minute, &b.queue, b.rule)));
        records
    }

    fn tail(&self, index: PartitionIndex, row: &PartitionRow) -> LogTail {
        let trimmed = self.trimmed.get(&index);
        let last = row.segments.last().map(|last| (Some(last.created), last.total));
        let (last, total) = last.unwrap_or_else(|| trimmed.map_or((None, 0), |it| (it.trimmed.last, it.trimmed.bytes)));
        let old = row.segments.first().is_some_and(|first| first.end() <= row.log_start);
        let untrimmed = old || trimmed.is_some_and(TrimmedRow::has_old_head);
        LogTail { next: row.next_offset(), last, total, untrimmed }
    }
}

/// The rows from a position on, each with its place.
fn rows_from<'a, T>(rows: &'a [Option<T>], at: &LoadPosition) -> impl Iterator<Item = (u128, &'a T)> {
    let from = usize::try_from(at.key).unwrap_or(usize::MAX);
    rows.iter().enumerate().skip(from).filter_map(|(index, row)| Some((index as u128, row.as_ref()?)))
}
