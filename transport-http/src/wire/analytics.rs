//! What happened, in buckets of time. (queen-http.md 19)

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use tidegate_core::activity::{Activity, ActivityRow};
use tidegate_core::name::QueueName;
use tidegate_core::record::{HistoryRecord, RetentionRule};
use tidegate_core::reply::ActivityReport;
use tidegate_core::time::Timestamp;

use super::status::{TimeRange, bucket_minutes};
use crate::metrics::Reading;
use crate::time;

fn average_lag(activity: &Activity) -> Option<u64> {
    (activity.lag_samples > 0).then(|| activity.lag_sum_ms / activity.lag_samples)
}

fn max_lag(activity: &Activity) -> Option<u64> {
    (activity.lag_samples > 0).then_some(activity.lag_max_ms)
}

/// How long messages of a queue waited. Without a pop there is no lag.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct QueueLag<'a> {
    queue_name: &'a str,
    pop_count: u64,
    avg_lag_ms: Option<u64>,
    max_lag_ms: Option<u64>,
    bucket_minutes: i64,
    bucket_time: String,
}

/// Newest bucket first, then by queue.
pub(crate) fn queue_lag(report: &ActivityReport) -> Vec<QueueLag<'_>> {
    let mut rows: Vec<&ActivityRow> = report.rows.iter().collect();
    rows.sort_by(|a, b| b.start.cmp(&a.start).then_with(|| a.queue.cmp(&b.queue)));
    let row = |row: &'_ &ActivityRow| -> (String, Activity) { (time::millis(row.start), row.activity) };
    rows.iter()
        .map(|it| {
            let (bucket_time, activity) = row(it);
            QueueLag {
                queue_name: it.queue.as_str(),
                pop_count: activity.pop_messages,
                avg_lag_ms: average_lag(&activity),
                max_lag_ms: max_lag(&activity),
                bucket_minutes: bucket_minutes(report),
                bucket_time,
            }
        })
        .collect()
}

/// What was done on queues.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct QueueOps<'a> {
    time_range: TimeRange,
    bucket_minutes: i64,
    series: Vec<Operations<'a>>,
    queues: Vec<&'a str>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Operations<'a> {
    bucket: String,
    queue_name: &'a str,
    push_requests: u64,
    push_messages: u64,
    pop_messages: u64,
    pop_empty: u64,
    ack_requests: u64,
    ack_success: u64,
    ack_failed: u64,
    transactions: u64,
    partitions_created: u64,
    partitions_deleted: u64,
    partition_count: u64,
    avg_lag_ms: Option<u64>,
    max_lag_ms: Option<u64>,
    push_per_second: f64,
    pop_per_second: f64,
    ack_per_second: f64,
    empty_per_second: f64,
    parked_count: u64,
}

fn queue_names(report: &ActivityReport) -> Vec<&str> {
    let mut names: Vec<&str> = report.rows.iter().map(|row| row.queue.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

impl<'a> QueueOps<'a> {
    pub(crate) fn new(report: &'a ActivityReport) -> Self {
        let seconds = report.bucket.as_secs().max(1) as f64;
        let point = |row: &'a ActivityRow| {
            let it = &row.activity;
            Operations {
                bucket: time::millis(row.start),
                queue_name: row.queue.as_str(),
                push_requests: it.push_requests,
                push_messages: it.push_messages,
                pop_messages: it.pop_messages,
                pop_empty: it.pop_empty,
                ack_requests: it.ack_requests,
                ack_success: it.ack_success,
                ack_failed: it.ack_failed,
                transactions: it.transactions,
                partitions_created: it.partitions_created,
                partitions_deleted: it.partitions_deleted,
                partition_count: it.partitions,
                avg_lag_ms: average_lag(it),
                max_lag_ms: max_lag(it),
                push_per_second: it.push_messages as f64 / seconds,
                pop_per_second: it.pop_messages as f64 / seconds,
                ack_per_second: it.ack_success as f64 / seconds,
                empty_per_second: it.pop_empty as f64 / seconds,
                parked_count: it.parked,
            }
        };
        QueueOps {
            time_range: TimeRange::of(report),
            bucket_minutes: bucket_minutes(report),
            series: report.rows.iter().map(point).collect(),
            queues: queue_names(report),
        }
    }
}

/// A broker process.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Replica<'a> {
    hostname: &'a str,
    worker_id: u32,
}

/// Long polls that were parked.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ParkedReplicas<'a> {
    time_range: TimeRange,
    bucket_minutes: i64,
    series: Vec<Parked<'a>>,
    replicas: Vec<Replica<'a>>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Parked<'a> {
    bucket: String,
    queue_name: &'a str,
    hostname: &'a str,
    worker_id: u32,
    parked_count: u64,
}

impl<'a> ParkedReplicas<'a> {
    pub(crate) fn new(report: &'a ActivityReport, hostname: &'a str) -> Self {
        let parked = report.rows.iter().filter(|row| row.activity.parked > 0).map(|row| Parked {
            bucket: time::millis(row.start),
            queue_name: row.queue.as_str(),
            hostname,
            worker_id: 0,
            parked_count: row.activity.parked,
        });
        ParkedReplicas {
            time_range: TimeRange::of(report),
            bucket_minutes: bucket_minutes(report),
            series: parked.collect(),
            replicas: vec![Replica { hostname, worker_id: 0 }],
        }
    }
}

/// What retention deleted.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Retention {
    time_range: TimeRange,
    bucket_minutes: i64,
    series: Vec<Deleted>,
    totals: Totals,
}

#[derive(Serialize, JsonSchema)]
struct Deleted {
    bucket: String,
    #[serde(flatten)]
    totals: Totals,
}

#[derive(Serialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
struct Totals {
    retention_msgs: u64,
    completed_retention_msgs: u64,
    eviction_msgs: u64,
    total_msgs: u64,
    event_count: u64,
}

impl Totals {
    fn add(&mut self, record: &HistoryRecord) {
        let messages = record.tally.messages;
        match record.rule {
            RetentionRule::Age => self.retention_msgs += messages,
            RetentionRule::Completed => self.completed_retention_msgs += messages,
            RetentionRule::MaxWait => self.eviction_msgs += messages,
        }
        self.total_msgs += messages;
        self.event_count += record.events;
    }
}

fn merged<'a>(rows: impl Iterator<Item = &'a ActivityRow>) -> Activity {
    let mut sum = Activity::default();
    rows.for_each(|row| sum.merge(&row.activity));
    sum
}

impl Retention {
    pub(crate) fn new(report: &ActivityReport, history: &[HistoryRecord], queue: Option<&QueueName>) -> Self {
        let length = report.bucket.as_micros().max(1);
        let mut buckets: BTreeMap<i64, Totals> = BTreeMap::new();
        let mut totals = Totals::default();
        for record in history.iter().filter(|record| queue.is_none_or(|queue| *queue == record.queue)) {
            totals.add(record);
            buckets.entry(record.minute.as_micros().div_euclid(length)).or_default().add(record);
        }
        let point = |(bucket, totals): (i64, Totals)| Deleted {
            bucket: time::millis(Timestamp::from_micros(bucket.saturating_mul(length))),
            totals,
        };
        Retention {
            time_range: TimeRange::of(report),
            bucket_minutes: bucket_minutes(report),
            series: buckets.into_iter().map(point).collect(),
            totals,
        }
    }
}

/// A figure of a process; only its last value is kept, so all four are that.
#[derive(Serialize, JsonSchema)]
struct Leaf {
    avg: f64,
    min: f64,
    max: f64,
    last: f64,
}

impl From<f64> for Leaf {
    fn from(value: f64) -> Self {
        Leaf { avg: value, min: value, max: value, last: value }
    }
}

/// How this process does, now.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SystemMetrics<'a> {
    time_range: TimeRange,
    bucket_minutes: i64,
    point_count: u64,
    replicas: Vec<System<'a>>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct System<'a> {
    hostname: &'a str,
    worker_id: u32,
    time_series: Vec<SystemPoint>,
}

#[derive(Serialize, JsonSchema)]
struct SystemPoint {
    timestamp: String,
    metrics: Figures,
}

#[derive(Serialize, JsonSchema)]
struct Figures {
    cpu: Cpu,
    memory: MemoryFigures,
    database: Database,
    uptime_seconds: Leaf,
    shared_state: Disabled,
}

/// Microseconds of CPU since the process's start.
#[derive(Serialize, JsonSchema)]
struct Cpu {
    user_us: Leaf,
    system_us: Leaf,
}

#[derive(Serialize, JsonSchema)]
struct MemoryFigures {
    rss_bytes: Leaf,
}

#[derive(Serialize, JsonSchema)]
struct Database {
    pool_size: Leaf,
    pool_idle: Leaf,
    pool_active: Leaf,
}

#[derive(Serialize, JsonSchema)]
struct Disabled {
    enabled: bool,
}

impl<'a> SystemMetrics<'a> {
    pub(crate) fn new(report: &ActivityReport, reading: &Reading, hostname: &'a str) -> Self {
        let (size, idle) = (reading.store.pool_size as f64, reading.store.pool_idle as f64);
        let metrics = Figures {
            cpu: Cpu { user_us: reading.user_micros.into(), system_us: reading.system_micros.into() },
            memory: MemoryFigures { rss_bytes: (reading.resident_bytes as f64).into() },
            database: Database {
                pool_size: size.into(),
                pool_idle: idle.into(),
                pool_active: (size - idle).max(0.0).into(),
            },
            uptime_seconds: reading.uptime_seconds.into(),
            shared_state: Disabled { enabled: false },
        };
        let point = SystemPoint { timestamp: time::millis(report.until), metrics };
        SystemMetrics {
            time_range: TimeRange::of(report),
            bucket_minutes: bucket_minutes(report),
            point_count: 1,
            replicas: vec![System { hostname, worker_id: 0, time_series: vec![point] }],
        }
    }
}

/// What the broker did, over all queues.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WorkerMetrics<'a> {
    time_range: TimeRange,
    bucket_minutes: i64,
    point_count: usize,
    time_series: Vec<WorkerPoint>,
    workers: Vec<Replica<'a>>,
    queues: Vec<QueueSum<'a>>,
    summary: Work,
}

#[derive(Serialize, JsonSchema)]
struct WorkerPoint {
    timestamp: String,
    #[serde(flatten)]
    work: Work,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct QueueSum<'a> {
    queue_name: &'a str,
    #[serde(flatten)]
    work: Work,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Work {
    push_requests: u64,
    push_messages: u64,
    pop_requests: u64,
    pop_messages: u64,
    pop_empty: u64,
    ack_requests: u64,
    ack_success: u64,
    ack_failed: u64,
    transactions: u64,
    avg_lag_ms: Option<u64>,
    max_lag_ms: Option<u64>,
}

impl From<&Activity> for Work {
    fn from(it: &Activity) -> Self {
        Work {
            push_requests: it.push_requests,
            push_messages: it.push_messages,
            pop_requests: it.pop_requests,
            pop_messages: it.pop_messages,
            pop_empty: it.pop_empty,
            ack_requests: it.ack_requests,
            ack_success: it.ack_success,
            ack_failed: it.ack_failed,
            transactions: it.transactions,
            avg_lag_ms: average_lag(it),
            max_lag_ms: max_lag(it),
        }
    }
}

impl<'a> WorkerMetrics<'a> {
    pub(crate) fn new(report: &'a ActivityReport, hostname: &'a str) -> Self {
        let buckets = report.rows.chunk_by(|a, b| a.start == b.start).filter_map(|bucket| {
            let timestamp = time::millis(bucket.first()?.start);
            Some(WorkerPoint { timestamp, work: (&merged(bucket.iter())).into() })
        });
        let time_series: Vec<WorkerPoint> = buckets.collect();
        let mut queues: BTreeMap<&str, Activity> = BTreeMap::new();
        for row in &report.rows {
            queues.entry(row.queue.as_str()).or_default().merge(&row.activity);
        }
        WorkerMetrics {
            time_range: TimeRange::of(report),
            bucket_minutes: bucket_minutes(report),
            point_count: time_series.len(),
            time_series,
            workers: vec![Replica { hostname, worker_id: 0 }],
            queues: queues.iter().map(|(queue_name, sum)| QueueSum { queue_name, work: sum.into() }).collect(),
            summary: (&merged(report.rows.iter())).into(),
        }
    }
}

/// What a database would tell of itself; its own tools tell it better, so the lists are empty.
#[derive(Serialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PostgresStats {
    timestamp: String,
    database: Nothing,
    database_cache: Nothing,
    cache_summary: Nothing,
    table_cache: Vec<Nothing>,
    index_cache: Vec<Nothing>,
    active_queries: Vec<Nothing>,
    table_sizes: Vec<Nothing>,
    dead_tuples: Vec<Nothing>,
    hot_updates: Vec<Nothing>,
    autovacuum_status: Vec<Nothing>,
    buffer_config: Nothing,
    buffer_usage: Vec<Nothing>,
}

/// An object without keys.
#[derive(Serialize, JsonSchema, Default)]
struct Nothing {}

impl PostgresStats {
    pub(crate) fn new(report: &ActivityReport) -> Self {
        PostgresStats { timestamp: time::millis(report.until), ..PostgresStats::default() }
    }
}
