//! Traces, and what happened in each minute.

use compact_str::CompactString;
use serde_json::{Value, json};
use sqlx::Row;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use tidegate_core::activity::{Activity, ActivityRow};
use tidegate_core::limits::{MAX_ACTIVITY_READ, MAX_TRACES_READ};
use tidegate_core::name::{GroupName, PartitionId, PartitionName, QueueName, TenantId};
use tidegate_core::record::TraceRecord;
use tidegate_core::store::{Slot, StoreReply, TraceName, TracesOf, Write};
use tidegate_core::time::{Span, Timestamp};

use crate::error::{Failure, corrupt, repeat};
use crate::ownership::slot_number;
use crate::rows;
use crate::store::Inner;

/// The writes of a commit that are about operations.
#[derive(Default)]
pub(crate) struct Operations<'a> {
    traces: Vec<&'a TraceRecord>,
    activity: Vec<&'a ActivityRow>,
    dropped: Option<(Timestamp, u32)>,
}

type Query<'q> = sqlx::query::Query<'q, sqlx::Postgres, sqlx::postgres::PgArguments>;

impl<'a> Operations<'a> {
    /// Takes a write, if it is about operations.
    pub(crate) fn take(&mut self, write: &'a Write) {
        match write {
            Write::Trace(trace) => self.traces.push(trace),
            Write::Activity(row) => self.activity.push(row),
            Write::DropActivity { before, limit } => self.dropped = Some((*before, *limit)),
            _ => {}
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.traces.is_empty() && self.activity.is_empty() && self.dropped.is_none()
    }

    /// The last parameters of `commit_operations.sql`.
    pub(crate) fn bind<'q>(&self, query: Query<'q>) -> Query<'q> {
        let traces: Vec<Value> = self
            .traces
            .iter()
            .map(|trace| {
                json!({
                    "id": trace.id.to_string(),
                    "tenant": trace.tenant.to_string(),
                    "partition": trace.partition.to_string(),
                    "transaction": hex(trace.transaction.as_bytes()),
                    "queue": trace.queue.as_str(),
                    "partition_name": trace.partition_name.as_str(),
                    "consumer_group": trace.group.as_str(),
                    "event": trace.event.as_str(),
                    "data": hex(&trace.data),
                    "names": trace.names.iter().map(CompactString::as_str).collect::<Vec<_>>(),
                    "created": trace.created.as_micros(),
                })
            })
            .collect();
        let mut minutes: Vec<((Timestamp, TenantId, &QueueName), Activity)> = Vec::new();
        for row in &self.activity {
            let key = (row.start, row.tenant, &row.queue);
            // A statement sets a row once.
            match minutes.iter_mut().find(|(of, _)| *of == key) {
                Some((_, activity)) => activity.merge(&row.activity),
                None => minutes.push((key, row.activity)),
            }
        }
        let minutes: Vec<Value> = minutes
            .into_iter()
            .map(|((start, tenant, queue), activity)| {
                json!({
                    "start": start.as_micros(),
                    "tenant": tenant.to_string(),
                    "queue": queue.as_str(),
                    "counts": activity.to_counts(),
                })
            })
            .collect();
        let (before, limit) = self.dropped.unwrap_or((Timestamp::MIN, 0));
        query
            .bind(Json(traces))
            .bind(Json(minutes))
            .bind(Activity::MAXIMA as i32)
            .bind(before.as_micros())
            .bind(i64::from(limit))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}

fn trace(row: &PgRow, tenant: TenantId) -> Result<TraceRecord, Failure> {
    let text = |at: usize| -> Result<&str, Failure> { Ok(row.try_get(at)?) };
    let transaction = std::str::from_utf8(row.try_get(2)?).map_err(corrupt)?;
    Ok(TraceRecord {
        id: row.try_get(0)?,
        tenant,
        partition: PartitionId(row.try_get(1)?),
        transaction: CompactString::new(transaction),
        queue: QueueName::new(text(3)?).map_err(corrupt)?,
        partition_name: PartitionName::new(text(4)?).map_err(corrupt)?,
        group: GroupName::new(text(5)?).map_err(corrupt)?,
        event: CompactString::new(text(6)?),
        data: row.try_get::<Vec<u8>, _>(7)?.into(),
        names: row.try_get::<Vec<String>, _>(8)?.into_iter().map(CompactString::from).collect(),
        created: rows::time(row, 9)?,
    })
}

/// A count as Postgres takes it.
fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl Inner {
    pub(crate) async fn read_traces(&self, tenant: TenantId, of: TracesOf) -> StoreReply {
        match repeat(|| self.traces(tenant, &of)).await {
            Ok((rows, total)) => StoreReply::Traces { rows, total },
            Err(failure) => failure.of_read(),
        }
    }

    async fn traces(&self, tenant: TenantId, of: &TracesOf) -> Result<(Vec<TraceRecord>, u64), Failure> {
        let pools = self.pools();
        let (found, total) = match of {
            TracesOf::Message(partition, transaction) => {
                let found = sqlx::query(include_str!("../sql/read_traces_of_message.sql"))
                    .bind(tenant.0)
                    .bind(partition.0)
                    .bind(transaction.as_bytes().to_vec())
                    .bind(number(MAX_TRACES_READ))
                    .fetch_all(&pools.reads)
                    .await?;
                let total = found.first().map_or(Ok(0), |row| rows::number(row, 10))?;
                (found, total)
            }
            TracesOf::Name { name, limit, offset } => {
                let found = sqlx::query(include_str!("../sql/read_traces_of_name.sql"))
                    .bind(tenant.0)
                    .bind(name.as_str().to_owned())
                    .bind(number(*limit))
                    .bind(number(*offset))
                    .fetch_all(&pools.reads)
                    .await?;
                let total = sqlx::query("SELECT count(*) FROM queen.trace_names WHERE tenant = $1 AND name = $2")
                    .bind(tenant.0)
                    .bind(name.as_str().to_owned())
                    .fetch_one(&pools.reads)
                    .await?;
                (found, rows::number(&total, 0)?)
            }
        };
        Ok((found.iter().map(|row| trace(row, tenant)).collect::<Result<_, _>>()?, total))
    }

    pub(crate) async fn read_trace_names(&self, tenant: TenantId, limit: u64, offset: u64) -> StoreReply {
        match repeat(|| self.trace_names(tenant, limit, offset)).await {
            Ok((rows, total)) => StoreReply::TraceNames { rows, total },
            Err(failure) => failure.of_read(),
        }
    }

    async fn trace_names(&self, tenant: TenantId, limit: u64, offset: u64) -> Result<(Vec<TraceName>, u64), Failure> {
        let pools = self.pools();
        let found = sqlx::query(include_str!("../sql/read_trace_names.sql"))
            .bind(tenant.0)
            .bind(number(limit))
            .bind(number(offset))
            .fetch_all(&pools.reads)
            .await?;
        let total = match found.first() {
            Some(row) => rows::number(row, 4)?,
            // The page is empty; that does not say that all are.
            None => {
                let all = "SELECT count(DISTINCT name) FROM queen.trace_names WHERE tenant = $1";
                rows::number(&sqlx::query(all).bind(tenant.0).fetch_one(&pools.reads).await?, 0)?
            }
        };
        let name = |row: &PgRow| {
            Ok(TraceName {
                name: CompactString::new(row.try_get::<&str, _>(0)?),
                traces: rows::number(row, 1)?,
                messages: rows::number(row, 2)?,
                last: rows::time(row, 3)?,
            })
        };
        Ok((found.iter().map(name).collect::<Result<_, Failure>>()?, total))
    }

    pub(crate) async fn read_activity(
        &self,
        slot: Slot,
        tenant: TenantId,
        queue: Option<QueueName>,
        (from, until): (Timestamp, Timestamp),
        bucket: Span,
    ) -> StoreReply {
        let read = || async {
            let found = sqlx::query(include_str!("../sql/read_activity.sql"))
                .bind(slot_number(slot))
                .bind(tenant.0)
                .bind(queue.as_ref().map(|queue| queue.as_str().to_owned()))
                .bind(from.as_micros())
                .bind(until.as_micros())
                .bind(bucket.as_micros().max(1))
                .bind(Activity::MAXIMA as i64)
                .bind(MAX_ACTIVITY_READ as i64)
                .fetch_all(&self.pools().reads)
                .await?;
            let row = |row: &PgRow| {
                let counts: Vec<u64> = row.try_get::<Vec<i64>, _>(2)?.into_iter().map(|count| count as u64).collect();
                Ok(ActivityRow {
                    start: rows::time(row, 0)?,
                    tenant,
                    queue: QueueName::new(row.try_get(1)?).map_err(corrupt)?,
                    activity: Activity::from_counts(&counts),
                })
            };
            found.iter().map(row).collect::<Result<Vec<_>, Failure>>()
        };
        match repeat(read).await {
            Ok(rows) => StoreReply::Activity(rows),
            Err(failure) => failure.of_read(),
        }
    }
}
