//! Loading what a slot holds, page by page: queues, subscriptions, partitions, cursors, dead letters; and logs.

use sqlx::Row;
use tidegate_core::limits::{MAX_PAGE_HASHES, MAX_PAGE_HEADS, MAX_PAGE_RECORDS};
use tidegate_core::name::QueueId;
use tidegate_core::store::{LoadPosition, LogPage, LogRead, Record, Slot, StoreReply};
use tidegate_core::time::Timestamp;
use uuid::Uuid;

use crate::error::{Failure, corrupt, repeat};
use crate::ownership::slot_number;
use crate::rows;
use crate::store::Inner;

const QUEUES: u8 = 0;
const SUBSCRIPTIONS: u8 = 1;
const PARTITIONS: u8 = 2;
const CURSORS: u8 = 3;
const DEAD_LETTERS: u8 = 4;

const PAGE: i64 = MAX_PAGE_RECORDS as i64;

impl Inner {
    pub(crate) async fn load(&self, slot: Slot, after: Option<LoadPosition>) -> StoreReply {
        match repeat(|| self.page(slot, after)).await {
            Ok((records, next, latest)) => StoreReply::Page { records, next, latest },
            Err(failure) => failure.of_read(),
        }
    }

    /// The first kind from a position on that has something, and where to go on.
    async fn page(
        &self,
        slot: Slot,
        after: Option<LoadPosition>,
    ) -> Result<(Vec<Record>, Option<LoadPosition>, Option<Timestamp>), Failure> {
        let pool = self.pools();
        let row = sqlx::query(
            "SELECT (SELECT max(time) FROM queen.commits WHERE slot = $1), \
             EXISTS (SELECT FROM queen.queues WHERE slot = $1 AND ended)",
        )
        .bind(slot_number(slot))
        .fetch_one(&pool.reads)
        .await?;
        let latest = row.try_get::<Option<i64>, _>(0)?.map(Timestamp::from_micros);
        let any_ended: bool = row.try_get(1)?;
        let mut at = after.unwrap_or(LoadPosition { kind: QUEUES, key: 0, number: 0 });
        while at.kind <= DEAD_LETTERS {
            let (records, last) = self.kind(slot, &at, any_ended).await?;
            let next_kind = LoadPosition { kind: at.kind + 1, key: 0, number: 0 };
            let next = match last {
                Some(last) if records.len() == MAX_PAGE_RECORDS => last,
                _ => next_kind,
            };
            if !records.is_empty() {
                return Ok((records, (next.kind <= DEAD_LETTERS).then_some(next), latest));
            }
            at = next_kind;
        }
        Ok((Vec::new(), None, latest))
    }

    /// A page of one kind, and the position after it.
    async fn kind(
        &self,
        slot: Slot,
        at: &LoadPosition,
        any_ended: bool,
    ) -> Result<(Vec<Record>, Option<LoadPosition>), Failure> {
        let pools = self.pools();
        let (pool, key) = (&pools.reads, Uuid::from_u128(at.key));
        let query = sqlx::query(match at.kind {
            QUEUES => include_str!("../sql/load_queues.sql"),
            SUBSCRIPTIONS => include_str!("../sql/load_subscriptions.sql"),
            PARTITIONS => include_str!("../sql/load_partitions.sql"),
            CURSORS => include_str!("../sql/load_cursors.sql"),
            _ => include_str!("../sql/load_dead_letters.sql"),
        })
        .bind(slot_number(slot))
        .bind(key);
        let rows = match at.kind {
            QUEUES => query.bind(PAGE),
            SUBSCRIPTIONS => query.bind(at.number as i64).bind(PAGE),
            CURSORS => query.bind(at.number as i64).bind(PAGE).bind(any_ended),
            _ => query.bind(PAGE).bind(any_ended),
        }
        .fetch_all(pool)
        .await?;
        let records = rows.iter().map(|row| {
            Ok(match at.kind {
                QUEUES => match rows::queue(row)? {
                    (false, record) => Record::Queue(Box::new(record)),
                    (true, record) => Record::Ended(record.id),
                },
                SUBSCRIPTIONS => Record::Subscription(rows::subscription(row)?),
                PARTITIONS => {
                    let (record, tail) = rows::partition(row)?;
                    Record::Partition(record, tail)
                }
                CURSORS => Record::Cursor(rows::cursor(row)?),
                _ => Record::DeadLetter(rows::dead_letter(row)?),
            })
        });
        let records = records.collect::<Result<Vec<_>, Failure>>()?;
        // Of kinds whose key is not unique, how many of the last key were given.
        let keys = rows.iter().rev().map(|row| row.try_get::<Uuid, _>(0));
        let last = match rows.last().map(|row| row.try_get::<Uuid, _>(0)).transpose()? {
            Some(last) => {
                let given = keys.take_while(|key| key.as_ref().is_ok_and(|key| *key == last)).count() as u64;
                let before = if last.as_u128() == at.key { at.number } else { 0 };
                Some(LoadPosition { kind: at.kind, key: last.as_u128(), number: before + given })
            }
            None => None,
        };
        Ok((records, last))
    }

    pub(crate) async fn load_queues(&self, slot: Slot, after: Option<QueueId>) -> StoreReply {
        match repeat(|| self.queue_page(slot, after)).await {
            Ok((queues, next)) => StoreReply::Queues { queues, next },
            Err(failure) => failure.of_read(),
        }
    }

    async fn queue_page(
        &self,
        slot: Slot,
        after: Option<QueueId>,
    ) -> Result<(Vec<tidegate_core::record::QueueRecord>, Option<QueueId>), Failure> {
        let mut after = after.unwrap_or_default();
        loop {
            let rows = sqlx::query(include_str!("../sql/load_queues.sql"))
                .bind(slot_number(slot))
                .bind(after.0)
                .bind(PAGE)
                .fetch_all(&self.pools().reads)
                .await?;
            let all = rows.iter().map(rows::queue).collect::<Result<Vec<_>, _>>()?;
            let full = all.len() == MAX_PAGE_RECORDS;
            after = all.last().map_or(after, |(_, last)| last.id);
            let queues: Vec<_> = all.into_iter().filter(|(ended, _)| !ended).map(|(_, queue)| queue).collect();
            if !queues.is_empty() || !full {
                return Ok((queues, full.then_some(after)));
            }
        }
    }

    pub(crate) async fn load_logs(&self, reads: Vec<LogRead>) -> StoreReply {
        match repeat(|| self.log_pages(&reads)).await {
            Ok(pages) => StoreReply::Logs(pages),
            Err(failure) => failure.of_read(),
        }
    }

    async fn log_pages(&self, reads: &[LogRead]) -> Result<Vec<LogPage>, Failure> {
        let rows = sqlx::query(include_str!("../sql/load_logs.sql"))
            .bind(reads.iter().map(|read| read.partition.0).collect::<Vec<_>>())
            .bind(reads.iter().map(|read| read.before.min(i64::MAX as u64) as i64).collect::<Vec<_>>())
            .bind(reads.iter().map(|read| read.since.as_micros()).collect::<Vec<_>>())
            .bind(MAX_PAGE_HEADS as i64 + 1)
            .fetch_all(&self.pools().reads)
            .await?;
        let mut pages: Vec<LogPage> = reads.iter().map(|_| LogPage::default()).collect();
        let mut hashes = 0;
        let mut current = 0;
        for row in &rows {
            let place = row.try_get::<i64, _>(0)? as usize - 1;
            if place != current {
                (current, hashes) = (place, 0);
            }
            let (page, read) =
                pages.get_mut(place).zip(reads.get(place)).ok_or_else(|| corrupt("a log nobody asked for"))?;
            if page.more || page.segments.len() == MAX_PAGE_HEADS || hashes >= MAX_PAGE_HASHES {
                page.more = true;
                continue;
            }
            let head = rows::head(row, read.partition)?;
            hashes += head.hashes.len();
            page.segments.push(head);
        }
        Ok(pages)
    }
}
