//! Rows to records: the only place that knows the order of columns.

use compact_str::CompactString;
use sqlx::Row;
use sqlx::postgres::PgRow;
use tidegate_core::name::{
    DeadLetterId, GroupName, LeaseId, MessageId, PartitionId, PartitionName, QueueId, QueueName, TenantId,
    TransactionHash,
};
use tidegate_core::options::{Labels, QueueOptions};
use tidegate_core::record::{
    Cursor, CursorRecord, DeadLetterHead, HistoryRecord, Lease, PartitionRecord, QueueRecord, RetentionRule,
    SegmentHead, StartFrom, SubscriptionRecord, Tally, Trimmed,
};
use tidegate_core::store::{Extent, LogTail};
use tidegate_core::time::Timestamp;
use uuid::Uuid;

use crate::error::{Failure, corrupt};

pub(crate) fn time(row: &PgRow, at: usize) -> Result<Timestamp, Failure> {
    Ok(Timestamp::from_micros(row.try_get(at)?))
}

pub(crate) fn number(row: &PgRow, at: usize) -> Result<u64, Failure> {
    Ok(row.try_get::<i64, _>(at)? as u64)
}

fn group(row: &PgRow, at: usize) -> Result<GroupName, Failure> {
    GroupName::new(row.try_get(at)?).map_err(corrupt)
}

/// Whether the queue has ended, and the queue. Columns of `load_queues.sql`.
pub(crate) fn queue(row: &PgRow) -> Result<(bool, QueueRecord), Failure> {
    let whole = |at: usize| -> Result<i64, Failure> { Ok(row.try_get::<i32, _>(at)?.into()) };
    let text = |at: usize| -> Result<CompactString, Failure> { Ok(CompactString::new(row.try_get::<&str, _>(at)?)) };
    let record = QueueRecord {
        id: QueueId(row.try_get(0)?),
        tenant: TenantId(row.try_get(1)?),
        name: QueueName::new(row.try_get(2)?).map_err(corrupt)?,
        labels: Labels { namespace: text(4)?, task: text(5)? },
        options: QueueOptions {
            lease_time: whole(6)?,
            retry_limit: whole(7)?,
            retry_delay: whole(8)?,
            priority: whole(9)?,
            max_size: whole(10)?,
            ttl: whole(11)?,
            dead_letter_queue: row.try_get(12)?,
            dlq_after_max_retries: row.try_get(13)?,
            delayed_processing: whole(14)?,
            window_buffer: whole(15)?,
            retention_enabled: row.try_get(16)?,
            retention_seconds: whole(17)?,
            completed_retention_seconds: whole(18)?,
            max_wait_time_seconds: whole(19)?,
            min_pop_wait_time: whole(20)?,
            encryption_enabled: row.try_get(21)?,
            dedup_window_seconds: whole(22)?,
        },
        created: time(row, 24)?,
        revision: number(row, 23)?,
    };
    Ok((row.try_get(3)?, record))
}

/// Columns of `load_subscriptions.sql`.
pub(crate) fn subscription(row: &PgRow) -> Result<SubscriptionRecord, Failure> {
    let start = match (row.try_get::<&str, _>(2)?, row.try_get::<Option<i64>, _>(3)?) {
        ("a", _) => StartFrom::All,
        ("n", _) => StartFrom::New,
        ("t", Some(time)) => StartFrom::Time(Timestamp::from_micros(time)),
        (other, _) => return Err(corrupt(format!("a subscription starts at {other:?}"))),
    };
    Ok(SubscriptionRecord {
        queue: QueueId(row.try_get(0)?),
        group: group(row, 1)?,
        start,
        registered: time(row, 4)?,
        changed: row.try_get::<Option<i64>, _>(5)?.map(Timestamp::from_micros),
    })
}

/// Columns of `load_partitions.sql`.
pub(crate) fn partition(row: &PgRow) -> Result<(PartitionRecord, LogTail), Failure> {
    let record = PartitionRecord {
        id: PartitionId(row.try_get(0)?),
        queue: QueueId(row.try_get(1)?),
        name: PartitionName::new(row.try_get(2)?).map_err(corrupt)?,
        created: time(row, 3)?,
        log_start: number(row, 4)?,
        trimmed: Trimmed {
            hash_start: number(row, 8)?,
            bytes: number(row, 9)?,
            last: row.try_get::<Option<i64>, _>(10)?.map(Timestamp::from_micros),
        },
    };
    let untrimmed = row.try_get(11)?;
    let tail = match row.try_get::<Option<i64>, _>(5)? {
        Some(next) => LogTail { next: next as u64, last: Some(time(row, 6)?), total: number(row, 7)?, untrimmed },
        None => {
            let Trimmed { bytes, last, .. } = record.trimmed;
            LogTail { next: record.log_start, last, total: bytes, untrimmed }
        }
    };
    Ok((record, tail))
}

/// Columns of `load_extents.sql`, after the place.
pub(crate) fn extent(row: &PgRow) -> Result<Extent, Failure> {
    let start = number(row, 1)?;
    let end = start + row.try_get::<i32, _>(2)? as u64;
    Ok(Extent { start, end, created: time(row, 3)?, total: number(row, 4)? })
}

/// Columns of `load_history.sql`.
pub(crate) fn history(row: &PgRow, tenant: TenantId) -> Result<HistoryRecord, Failure> {
    let code: i16 = row.try_get(2)?;
    let rule = u8::try_from(code).ok().and_then(RetentionRule::of_code);
    Ok(HistoryRecord {
        tenant,
        queue: QueueName::new(row.try_get(1)?).map_err(corrupt)?,
        minute: time(row, 0)?,
        rule: rule.ok_or_else(|| corrupt(format!("no retention rule has the number {code}")))?,
        tally: Tally { segments: number(row, 3)?, messages: number(row, 4)?, unconsumed: number(row, 5)? },
        events: number(row, 6)?,
    })
}

/// Columns of `load_cursors.sql`.
pub(crate) fn cursor(row: &PgRow) -> Result<CursorRecord, Failure> {
    let lease = match row.try_get::<Option<Uuid>, _>(4)? {
        Some(id) => Some(Lease { id: LeaseId(id), expires: time(row, 5)?, end: number(row, 6)? }),
        None => None,
    };
    let retries = row.try_get::<i32, _>(7)? as u32;
    let cursor = Cursor { next: number(row, 2)?, consumed: number(row, 3)?, retries, lease };
    Ok(CursorRecord { partition: PartitionId(row.try_get(0)?), group: group(row, 1)?, cursor })
}

/// Columns of `load_dead_letters.sql`.
pub(crate) fn dead_letter(row: &PgRow) -> Result<DeadLetterHead, Failure> {
    Ok(DeadLetterHead {
        id: DeadLetterId(row.try_get(0)?),
        partition: PartitionId(row.try_get(1)?),
        group: group(row, 2)?,
        offset: number(row, 3)?,
        message: MessageId(row.try_get(4)?),
        hash: TransactionHash(row.try_get::<Uuid, _>(5)?.as_u128()),
        retries: row.try_get::<i32, _>(6)? as u32,
        failed: time(row, 7)?,
        created: time(row, 8)?,
    })
}

/// Columns of `load_logs.sql`, after the place.
pub(crate) fn head(row: &PgRow, partition: PartitionId) -> Result<SegmentHead, Failure> {
    let base = MessageId(row.try_get(5)?);
    let count = row.try_get::<i32, _>(4)? as u32;
    let hashes = match row.try_get::<Option<&[u8]>, _>(6)? {
        None => (0..count).map(|n| base.nth(n).as_transaction_hash()).collect(),
        Some(packed) => {
            let (hashes, rest) = packed.as_chunks::<16>();
            if !rest.is_empty() || hashes.len() != count as usize {
                return Err(corrupt("a segment has another number of hashes than of messages"));
            }
            hashes.iter().map(|hash| TransactionHash(u128::from_be_bytes(*hash))).collect()
        }
    };
    let (start, created, total) = (number(row, 1)?, time(row, 2)?, number(row, 3)?);
    Ok(SegmentHead { partition, start, created, base, total, hashes })
}
