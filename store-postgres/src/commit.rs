//! Commits: a list of writes becomes columns, and one call.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use compact_str::CompactString;
use serde_json::{Map, Value};
use sqlx::Row;
use sqlx::types::Json;
use tidegate_core::name::{DeadLetterId, GroupName, PartitionId, QueueId};
use tidegate_core::options::{Labels, OPTIONS, OptionValue, QueueOptions};
use tidegate_core::record::{
    CursorRecord, DeadLetterRecord, HistoryRecord, NewSegment, PartitionRecord, QueueRecord, StartFrom,
    SubscriptionRecord, Trimmed,
};
use tidegate_core::store::{Commit, Slot, StoreReply, Write};
use uuid::Uuid;

use crate::error::Failure;
use crate::operations::Operations;
use crate::ownership::{columns, slot_number, token};
use crate::pack::{pack, pack_dead};
use crate::store::{Inner, lock};

/// How often a commit that surely did not happen is tried again before its callers hear of it.
const ATTEMPTS: usize = 4;
/// Commits of the running epoch that are remembered: far more than can be in flight within a statement's timeout.
const REMEMBERED: u64 = 10_000;
/// How long commits of earlier epochs are remembered, in microseconds.
const REMEMBERED_EPOCHS: i64 = 3_600_000_000;
/// How often old commits are forgotten.
const PRUNE_EVERY: Duration = Duration::from_secs(5);

/// Which fence rows are in use, and what was forgotten when, by slot.
#[derive(Default)]
pub(crate) struct Lanes(Mutex<BTreeMap<Slot, Lane>>);

#[derive(Default)]
struct Lane {
    busy: [bool; 2],
    epoch: u64,
    forgotten: u64,
    last: Option<Instant>,
}

impl Lanes {
    /// A lane that no commit of ours holds, if there is one.
    fn enter(&self, slot: Slot, number: u64) -> i16 {
        let mut lanes = lock(&self.0);
        let busy = &mut lanes.entry(slot).or_default().busy;
        let lane = busy.iter().position(|busy| !busy).unwrap_or(number as usize % 2);
        busy[lane] = true;
        lane as i16
    }

    fn leave(&self, slot: Slot, lane: i16) {
        if let Some(busy) = lock(&self.0).get_mut(&slot).and_then(|it| it.busy.get_mut(lane as usize)) {
            *busy = false;
        }
    }

    /// The numbers to forget now, if it is time.
    fn forget(&self, slot: Slot, epoch: u64, number: u64) -> Option<(u64, u64)> {
        let mut lanes = lock(&self.0);
        let lane = lanes.entry(slot).or_default();
        if lane.epoch != epoch {
            (lane.epoch, lane.forgotten) = (epoch, 0);
        }
        if lane.last.is_some_and(|last| last.elapsed() < PRUNE_EVERY) {
            return None;
        }
        lane.last = Some(Instant::now());
        let until = number.saturating_sub(REMEMBERED);
        let from = lane.forgotten;
        lane.forgotten = until.max(from);
        Some((from, until))
    }
}

/// The last write to each record; appends in order. A statement sets a row once.
#[derive(Default)]
struct Writes<'a> {
    segments: Vec<&'a NewSegment>,
    cursors: BTreeMap<(PartitionId, &'a GroupName), Option<&'a CursorRecord>>,
    queues: BTreeMap<QueueId, &'a QueueRecord>,
    ended: Vec<QueueId>,
    partitions: BTreeMap<PartitionId, &'a PartitionRecord>,
    subscriptions: BTreeMap<(QueueId, &'a GroupName), Option<&'a SubscriptionRecord>>,
    /// Partitions that retention has deleted from.
    trimmed: BTreeMap<PartitionId, &'a PartitionRecord>,
    dropped: Vec<PartitionId>,
    history: Vec<&'a HistoryRecord>,
    dead: BTreeMap<DeadLetterId, Option<&'a DeadLetterRecord>>,
    operations: Operations<'a>,
}

impl<'a> Writes<'a> {
    fn of(writes: &'a [Write]) -> Self {
        let mut all = Writes::default();
        for write in writes {
            match write {
                Write::Queue(record) => {
                    all.queues.insert(record.id, record);
                }
                Write::EndQueue(queue) => all.ended.push(*queue),
                Write::Partition(record) => {
                    let new = record.log_start == 0 && record.trimmed == Trimmed::default();
                    if new { &mut all.partitions } else { &mut all.trimmed }.insert(record.id, record);
                }
                Write::Append(segment) => all.segments.push(segment),
                Write::Cursor(record) => {
                    all.cursors.insert((record.partition, &record.group), Some(record));
                }
                Write::DropCursor { partition, group } => {
                    all.cursors.insert((*partition, group), None);
                }
                Write::Subscription(record) => {
                    all.subscriptions.insert((record.queue, &record.group), Some(record));
                }
                Write::DropSubscription { queue, group } => {
                    all.subscriptions.insert((*queue, group), None);
                }
                Write::DeadLetter(record) => {
                    all.dead.insert(record.head.id, Some(record));
                }
                Write::DropDeadLetter(id) => {
                    all.dead.insert(*id, None);
                }
                Write::Trace(_) | Write::Activity(_) | Write::DropActivity { .. } => all.operations.take(write),
                Write::DropPartition(id) => all.dropped.push(*id),
                Write::History(record) => all.history.push(record),
            }
        }
        all
    }

    /// Whether it is messages and set cursors only.
    fn is_plain(&self) -> bool {
        self.queues.is_empty()
            && self.ended.is_empty()
            && self.partitions.is_empty()
            && self.subscriptions.is_empty()
            && self.dead.is_empty()
            && self.operations.is_empty()
            && self.trimmed.is_empty()
            && self.dropped.is_empty()
            && self.history.is_empty()
            && self.cursors.values().all(Option::is_some)
    }
}

/// The hashes of a segment as a column; none where they follow from the ids.
fn pack_hashes(segment: &NewSegment) -> Option<Vec<u8>> {
    let derived = (0u32..).zip(&segment.messages).zip(&segment.hashes).all(|((n, message), hash)| {
        message.transaction.is_none() && segment.base.nth(n).as_transaction_hash() == *hash
    });
    (!derived).then(|| segment.hashes.iter().flat_map(|hash| hash.0.to_be_bytes()).collect())
}

/// What `configure_queue_v1` is given; none for a queue as an implicit creation makes it.
fn options_of(record: &QueueRecord) -> Option<Json<Value>> {
    if record.revision == 0
        && record.options == QueueOptions::implicit()
        && record.labels == Labels::derived(record.name.as_str())
    {
        return None;
    }
    let mut options: Map<String, Value> = OPTIONS
        .iter()
        .map(|spec| {
            let value = match spec.get(&record.options) {
                OptionValue::Integer(number) => Value::from(number),
                OptionValue::Boolean(truth) => Value::from(truth),
            };
            (spec.name.to_owned(), value)
        })
        .collect();
    options.insert("namespace".to_owned(), record.labels.namespace.as_str().into());
    options.insert("task".to_owned(), record.labels.task.as_str().into());
    Some(Json(Value::Object(options)))
}

type Query<'q> = sqlx::query::Query<'q, sqlx::Postgres, sqlx::postgres::PgArguments>;

impl Inner {
    pub(crate) async fn commit(self: std::sync::Arc<Self>, commit: Commit) -> StoreReply {
        #[cfg(feature = "plants")]
        let commit = match crate::plants::answer_early(&self, commit) {
            Ok(reply) => return reply,
            Err(commit) => *commit,
        };
        self.commit_now(commit).await
    }

    pub(crate) async fn commit_now(self: std::sync::Arc<Self>, commit: Commit) -> StoreReply {
        let (fence, number) = (commit.fence, commit.number);
        let lane = self.lanes.enter(fence.slot, number.0);
        let mut attempt = 0;
        let reply = loop {
            attempt += 1;
            match self.try_commit(&commit, lane).await {
                Ok(status) => break self.status(status, StoreReply::Committed),
                Err(Failure::Again(_)) if attempt < ATTEMPTS => {}
                Err(failure) => break failure.of_write(),
            }
        };
        self.lanes.leave(fence.slot, lane);
        if reply == StoreReply::Committed {
            lock(&self.cache).note(commit.writes);
            if let Some(numbers) = self.lanes.forget(fence.slot, fence.epoch.0, number.0) {
                tokio::spawn(self.prune(fence.slot, fence.epoch.0, numbers));
            }
        }
        reply
    }

    async fn try_commit(&self, commit: &Commit, lane: i16) -> Result<i32, Failure> {
        let writes = Writes::of(&commit.writes);
        let plain = writes.is_plain();
        let operations = !writes.operations.is_empty();
        let mut query = sqlx::query(match (plain, operations) {
            (true, _) => include_str!("../sql/commit.sql"),
            (false, false) => include_str!("../sql/commit_records.sql"),
            (false, true) => include_str!("../sql/commit_operations.sql"),
        });
        let (epochs, numbers) = columns(commit.acknowledged.iter().flatten());
        query = query
            .bind(slot_number(commit.fence.slot))
            .bind(lane)
            .bind(commit.fence.epoch.0 as i64)
            .bind(token(commit.fence.token))
            .bind(epochs)
            .bind(numbers)
            .bind(commit.number.0 as i64)
            .bind(commit.time.as_micros());
        #[cfg(feature = "plants")]
        if crate::plants::planted(crate::plants::Plant::SkipFence) {
            crate::plants::forge_fence(self, commit.fence).await?;
        }
        query = bind_segments(query, &writes);
        query = bind_cursors(query, &writes);
        if !plain {
            query = bind_retention(bind_records(query, &writes), &writes);
        }
        if operations {
            query = writes.operations.bind(query);
        }
        let pools = self.pools();
        // Before the first statement nothing was asked.
        let mut connection = pools.writes.acquire().await.map_err(crate::error::while_connecting)?;
        let row = query.fetch_one(&mut *connection).await?;
        self.hear(row.try_get(1)?);
        Ok(row.try_get(0)?)
    }

    async fn prune(self: std::sync::Arc<Self>, slot: Slot, epoch: u64, (from, until): (u64, u64)) {
        let pools = self.pools();
        let numbers = sqlx::query(include_str!("../sql/prune.sql"))
            .bind(slot_number(slot))
            .bind(epoch as i64)
            .bind(from as i64)
            .bind(until as i64)
            .execute(&pools.reads)
            .await;
        let epochs = sqlx::query(include_str!("../sql/prune_epochs.sql"))
            .bind(slot_number(slot))
            .bind(epoch as i64)
            .bind(self.time().as_micros() - REMEMBERED_EPOCHS)
            .execute(&pools.reads)
            .await;
        if let Err(error) = numbers.and(epochs) {
            tracing::debug!(%error, "old commits are forgotten later");
        }
    }
}

fn bind_segments<'q>(query: Query<'q>, writes: &Writes<'_>) -> Query<'q> {
    let segments = &writes.segments;
    query
        .bind(segments.iter().map(|it| it.partition.0).collect::<Vec<_>>())
        .bind(segments.iter().map(|it| it.start as i64).collect::<Vec<_>>())
        .bind(segments.iter().map(|it| it.created.as_micros()).collect::<Vec<_>>())
        .bind(segments.iter().map(|it| it.total as i64).collect::<Vec<_>>())
        .bind(segments.iter().map(|it| it.messages.len() as i32).collect::<Vec<_>>())
        .bind(segments.iter().map(|it| it.base.0).collect::<Vec<_>>())
        .bind(segments.iter().map(|it| pack_hashes(it)).collect::<Vec<_>>())
        .bind(segments.iter().map(|it| pack(&it.messages)).collect::<Vec<_>>())
}

fn bind_cursors<'q>(query: Query<'q>, writes: &Writes<'_>) -> Query<'q> {
    let cursors: Vec<&CursorRecord> = writes.cursors.values().copied().flatten().collect();
    let lease = |it: &CursorRecord| it.cursor.lease;
    query
        .bind(cursors.iter().map(|it| it.partition.0).collect::<Vec<_>>())
        .bind(cursors.iter().map(|it| it.group.as_str().to_owned()).collect::<Vec<_>>())
        .bind(cursors.iter().map(|it| it.cursor.next as i64).collect::<Vec<_>>())
        .bind(cursors.iter().map(|it| it.cursor.consumed as i64).collect::<Vec<_>>())
        .bind(cursors.iter().map(|it| lease(it).map(|lease| lease.id.0)).collect::<Vec<_>>())
        .bind(cursors.iter().map(|it| lease(it).map(|lease| lease.expires.as_micros())).collect::<Vec<_>>())
        .bind(cursors.iter().map(|it| lease(it).map(|lease| lease.end as i64)).collect::<Vec<_>>())
        .bind(cursors.iter().map(|it| it.cursor.retries as i32).collect::<Vec<_>>())
}

fn bind_records<'q>(query: Query<'q>, writes: &Writes<'_>) -> Query<'q> {
    let queues: Vec<&QueueRecord> = writes.queues.values().copied().collect();
    let partitions: Vec<&PartitionRecord> = writes.partitions.values().copied().collect();
    let subscriptions: Vec<&SubscriptionRecord> = writes.subscriptions.values().copied().flatten().collect();
    let dropped_subscriptions: Vec<_> =
        writes.subscriptions.iter().filter(|(_, record)| record.is_none()).map(|(key, _)| *key).collect();
    let dropped_cursors: Vec<_> =
        writes.cursors.iter().filter(|(_, record)| record.is_none()).map(|(key, _)| *key).collect();
    let dead: Vec<&DeadLetterRecord> = writes.dead.values().copied().flatten().collect();
    let dropped_dead: Vec<Uuid> =
        writes.dead.iter().filter(|(_, record)| record.is_none()).map(|(id, _)| id.0).collect();
    let text = |text: &CompactString| text.as_str().to_owned();
    let start = |it: &SubscriptionRecord| match it.start {
        StartFrom::All => ("a".to_owned(), None),
        StartFrom::New => ("n".to_owned(), None),
        StartFrom::Time(time) => ("t".to_owned(), Some(time.as_micros())),
    };
    query
        .bind(writes.ended.iter().map(|id| id.0).collect::<Vec<_>>())
        .bind(queues.iter().map(|it| it.id.0).collect::<Vec<_>>())
        .bind(queues.iter().map(|it| it.tenant.0).collect::<Vec<_>>())
        .bind(queues.iter().map(|it| it.name.as_str().to_owned()).collect::<Vec<_>>())
        .bind(queues.iter().map(|it| text(&it.labels.namespace)).collect::<Vec<_>>())
        .bind(queues.iter().map(|it| text(&it.labels.task)).collect::<Vec<_>>())
        .bind(queues.iter().map(|it| it.created.as_micros()).collect::<Vec<_>>())
        .bind(queues.iter().map(|it| it.revision as i64).collect::<Vec<_>>())
        .bind(queues.iter().map(|it| options_of(it)).collect::<Vec<_>>())
        .bind(partitions.iter().map(|it| it.id.0).collect::<Vec<_>>())
        .bind(partitions.iter().map(|it| it.queue.0).collect::<Vec<_>>())
        .bind(partitions.iter().map(|it| it.name.as_str().to_owned()).collect::<Vec<_>>())
        .bind(partitions.iter().map(|it| it.created.as_micros()).collect::<Vec<_>>())
        .bind(partitions.iter().map(|it| it.log_start as i64).collect::<Vec<_>>())
        .bind(subscriptions.iter().map(|it| it.queue.0).collect::<Vec<_>>())
        .bind(subscriptions.iter().map(|it| it.group.as_str().to_owned()).collect::<Vec<_>>())
        .bind(subscriptions.iter().map(|it| start(it).0).collect::<Vec<_>>())
        .bind(subscriptions.iter().map(|it| start(it).1).collect::<Vec<_>>())
        .bind(subscriptions.iter().map(|it| it.registered.as_micros()).collect::<Vec<_>>())
        .bind(subscriptions.iter().map(|it| it.changed.map(|time| time.as_micros())).collect::<Vec<_>>())
        .bind(dropped_subscriptions.iter().map(|(queue, _)| queue.0).collect::<Vec<_>>())
        .bind(dropped_subscriptions.iter().map(|(_, group)| group.as_str().to_owned()).collect::<Vec<_>>())
        .bind(dropped_cursors.iter().map(|(partition, _)| partition.0).collect::<Vec<_>>())
        .bind(dropped_cursors.iter().map(|(_, group)| group.as_str().to_owned()).collect::<Vec<_>>())
        .bind(dead.iter().map(|it| it.head.id.0).collect::<Vec<_>>())
        .bind(dead.iter().map(|it| it.head.partition.0).collect::<Vec<_>>())
        .bind(dead.iter().map(|it| it.head.group.as_str().to_owned()).collect::<Vec<_>>())
        .bind(dead.iter().map(|it| it.head.offset as i64).collect::<Vec<_>>())
        .bind(dead.iter().map(|it| it.head.message.0).collect::<Vec<_>>())
        .bind(dead.iter().map(|it| Uuid::from_u128(it.head.hash.0)).collect::<Vec<_>>())
        .bind(dead.iter().map(|it| i64::from(it.head.retries)).collect::<Vec<_>>())
        .bind(dead.iter().map(|it| it.head.failed.as_micros()).collect::<Vec<_>>())
        .bind(dead.iter().map(|it| it.head.created.as_micros()).collect::<Vec<_>>())
        .bind(dead.iter().map(|it| pack_dead(it.message.as_ref(), &it.error)).collect::<Vec<_>>())
        .bind(dropped_dead)
}

fn bind_retention<'q>(query: Query<'q>, writes: &Writes<'_>) -> Query<'q> {
    let partitions: Vec<&PartitionRecord> = writes.trimmed.values().copied().collect();
    let history = &writes.history;
    query
        .bind(partitions.iter().map(|it| it.id.0).collect::<Vec<_>>())
        .bind(partitions.iter().map(|it| it.queue.0).collect::<Vec<_>>())
        .bind(partitions.iter().map(|it| it.name.as_str().to_owned()).collect::<Vec<_>>())
        .bind(partitions.iter().map(|it| it.created.as_micros()).collect::<Vec<_>>())
        .bind(partitions.iter().map(|it| it.log_start as i64).collect::<Vec<_>>())
        .bind(partitions.iter().map(|it| it.trimmed.hash_start as i64).collect::<Vec<_>>())
        .bind(partitions.iter().map(|it| it.trimmed.bytes as i64).collect::<Vec<_>>())
        .bind(partitions.iter().map(|it| it.trimmed.last.map(|time| time.as_micros())).collect::<Vec<_>>())
        .bind(writes.dropped.iter().map(|id| id.0).collect::<Vec<_>>())
        .bind(history.iter().map(|it| it.minute.as_micros()).collect::<Vec<_>>())
        .bind(history.iter().map(|it| it.tenant.0).collect::<Vec<_>>())
        .bind(history.iter().map(|it| it.queue.as_str().to_owned()).collect::<Vec<_>>())
        .bind(history.iter().map(|it| i32::from(it.rule.code())).collect::<Vec<_>>())
        .bind(history.iter().map(|it| it.tally.segments as i64).collect::<Vec<_>>())
        .bind(history.iter().map(|it| it.tally.messages as i64).collect::<Vec<_>>())
        .bind(history.iter().map(|it| it.tally.unconsumed as i64).collect::<Vec<_>>())
        .bind(history.iter().map(|it| it.events as i64).collect::<Vec<_>>())
}
