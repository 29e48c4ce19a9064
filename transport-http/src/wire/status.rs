//! How the broker and its queues do. (queen-http.md 12.4, 16)

use schemars::JsonSchema;
use serde::Serialize;
use tidegate_core::reply::{
    ActivityReport, Counts, GroupDepth, GroupStanding, PartitionDetail, QueueDepth, QueueDetail, QueueSummary,
};
use tidegate_core::time::{Span, Timestamp};

use crate::time;
use crate::wire::queues::Stats;

/// Which queues a listing shows; an empty text is no filter.
#[derive(Default)]
pub(crate) struct Wanted {
    pub(crate) queue: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) task: Option<String>,
}

impl Wanted {
    pub(crate) fn fits(&self, queue: &QueueSummary) -> bool {
        let fits = |wanted: &Option<String>, is: &str| wanted.as_ref().is_none_or(|wanted| wanted == is);
        fits(&self.queue, queue.name.as_str())
            && fits(&self.namespace, &queue.labels.namespace)
            && fits(&self.task, &queue.labels.task)
    }
}

fn sum<'a>(queues: impl Iterator<Item = &'a QueueSummary>) -> Counts {
    queues.fold(Counts::default(), |mut sum, queue| {
        sum += queue.counts;
        sum
    })
}

/// Average, median and extremes.
#[derive(Serialize, JsonSchema, Default)]
struct Spread {
    avg: f64,
    median: f64,
    min: u64,
    max: u64,
}

impl Spread {
    fn of(mut values: Vec<u64>) -> Self {
        values.sort_unstable();
        let (Some(&min), Some(&max)) = (values.first(), values.last()) else { return Spread::default() };
        let count = values.len();
        let avg = values.iter().map(|value| *value as f64).sum::<f64>() / count as f64;
        let median = (values[(count - 1) / 2] as f64 + values[count / 2] as f64) / 2.0;
        Spread { avg, median, min, max }
    }
}

#[derive(Serialize, JsonSchema)]
struct Lag {
    /// Seconds, over every group on every partition.
    time: Spread,
    /// Messages, likewise.
    offset: Spread,
}

/// Over the last five minutes that are over.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Throughput {
    ingested_per_second: f64,
    processed_per_second: f64,
}

/// Everything in a few numbers.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Overview {
    queues: u64,
    partitions: u64,
    namespaces: u64,
    tasks: u64,
    messages: Stats,
    lag: Lag,
    throughput: Throughput,
    timestamp: String,
    /// Seconds since these figures were computed: they always are anew.
    stats_age: i64,
}

/// How long the throughput of an overview is measured.
pub(crate) const OVERVIEW_SPAN: Span = Span::from_secs(300);

impl Overview {
    pub(crate) fn new(queues: &[QueueSummary], standings: &[GroupStanding], report: &ActivityReport) -> Self {
        let labels = |label: fn(&QueueSummary) -> &str| {
            let mut labels: Vec<&str> = queues.iter().map(label).filter(|label| !label.is_empty()).collect();
            labels.sort_unstable();
            labels.dedup();
            labels.len() as u64
        };
        let (mut ingested, mut processed) = (0, 0);
        for row in &report.rows {
            ingested += row.activity.push_messages;
            processed += row.activity.pop_messages;
        }
        let seconds = OVERVIEW_SPAN.as_secs() as f64;
        Overview {
            queues: queues.len() as u64,
            partitions: queues.iter().map(|queue| queue.partitions).sum(),
            namespaces: labels(|queue| &queue.labels.namespace),
            tasks: labels(|queue| &queue.labels.task),
            messages: sum(queues.iter()).into(),
            lag: Lag {
                time: Spread::of(standings.iter().map(|it| it.time_lag.as_secs().max(0).unsigned_abs()).collect()),
                offset: Spread::of(standings.iter().map(|standing| standing.lag).collect()),
            },
            throughput: Throughput {
                ingested_per_second: ingested as f64 / seconds,
                processed_per_second: processed as f64 / seconds,
            },
            timestamp: time::millis(report.until),
            stats_age: 0,
        }
    }
}

/// From when to when a report goes.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TimeRange {
    from: String,
    to: String,
}

impl TimeRange {
    pub(crate) fn of(report: &ActivityReport) -> Self {
        TimeRange { from: time::millis(report.from), to: time::millis(report.until) }
    }
}

/// Minutes of a bucket.
pub(crate) fn bucket_minutes(report: &ActivityReport) -> i64 {
    report.bucket.as_secs() / 60
}

/// What was done in a bucket.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Point {
    timestamp: String,
    ingested: u64,
    processed: u64,
    ingested_per_second: f64,
    processed_per_second: f64,
    avg_lag_ms: Option<u64>,
    max_lag_ms: Option<u64>,
}

#[derive(Serialize, JsonSchema)]
struct Total {
    total: u64,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Leases {
    /// Leases that live, one per group and partition.
    active: u64,
    partitions_with_leases: u64,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Errors {
    acks_refused: u64,
}

/// What `/api/v1/status` shows.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status {
    time_range: TimeRange,
    bucket_minutes: i64,
    point_count: usize,
    throughput: Vec<Point>,
    queues: Total,
    messages: Stats,
    leases: Leases,
    dead_letter_queue: Total,
    workers: Vec<String>,
    errors: Errors,
    stats_age: i64,
}

impl Status {
    pub(crate) fn new(queues: &[&QueueSummary], standings: &[GroupStanding], report: &ActivityReport) -> Self {
        let known = |name: &tidegate_core::name::QueueName| queues.iter().any(|queue| queue.name == *name);
        let seconds = report.bucket.as_secs().max(1) as f64;
        let mut throughput: Vec<Point> = Vec::new();
        let mut refused = 0;
        for bucket in report.rows.chunk_by(|a, b| a.start == b.start) {
            let mut all = tidegate_core::activity::Activity::default();
            for row in bucket.iter().filter(|row| known(&row.queue)) {
                all.merge(&row.activity);
            }
            refused += all.ack_failed;
            let Some(first) = bucket.first() else { continue };
            let lag = (all.lag_samples > 0).then(|| all.lag_sum_ms / all.lag_samples);
            throughput.push(Point {
                timestamp: time::millis(first.start),
                ingested: all.push_messages,
                processed: all.pop_messages,
                ingested_per_second: all.push_messages as f64 / seconds,
                processed_per_second: all.pop_messages as f64 / seconds,
                avg_lag_ms: lag,
                max_lag_ms: lag.map(|_| all.lag_max_ms),
            });
        }
        let leased: Vec<_> = standings.iter().filter(|it| it.lease_active && known(&it.queue)).collect();
        let mut partitions: Vec<_> = leased.iter().map(|standing| standing.partition).collect();
        partitions.sort_unstable();
        partitions.dedup();
        let counts = sum(queues.iter().copied());
        Status {
            time_range: TimeRange::of(report),
            bucket_minutes: bucket_minutes(report),
            point_count: throughput.len(),
            throughput,
            queues: Total { total: queues.len() as u64 },
            messages: counts.into(),
            leases: Leases { active: leased.len() as u64, partitions_with_leases: partitions.len() as u64 },
            dead_letter_queue: Total { total: counts.dead_letter },
            workers: Vec::new(),
            errors: Errors { acks_refused: refused },
            stats_age: 0,
        }
    }
}

/// A page of queues.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Queues<'a> {
    queues: Vec<QueueRow<'a>>,
    pagination: Pagination,
}

/// Which part of a list it is.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Pagination {
    pub(crate) limit: u64,
    pub(crate) offset: u64,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct QueueRow<'a> {
    id: String,
    name: &'a str,
    namespace: &'a str,
    task: &'a str,
    created_at: String,
    partitions: u64,
    messages: Stats,
}

impl<'a> Queues<'a> {
    pub(crate) fn new(queues: &[&'a QueueSummary], limit: u64, offset: u64) -> Self {
        let place = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let row = |queue: &&'a QueueSummary| QueueRow {
            id: queue.id.to_string(),
            name: queue.name.as_str(),
            namespace: &queue.labels.namespace,
            task: &queue.labels.task,
            created_at: time::millis(queue.created),
            partitions: queue.partitions,
            messages: queue.counts.into(),
        };
        let queues = queues.iter().skip(place(offset)).take(place(limit)).map(row).collect();
        Queues { queues, pagination: Pagination { limit, offset } }
    }
}

/// One queue in full.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Detail<'a> {
    queue: QueueInfo<'a>,
    partitions: Vec<Partition<'a>>,
    totals: Totals,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct QueueInfo<'a> {
    id: String,
    name: &'a str,
    namespace: &'a str,
    task: &'a str,
    priority: i64,
    created_at: String,
    config: Config,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Config {
    lease_time: i64,
    retry_limit: i64,
    retry_delay: i64,
    ttl: i64,
    /// The option `maxSize`, under the name that this route has always had.
    max_queue_size: i64,
    dead_letter_queue: bool,
}

#[derive(Serialize, JsonSchema)]
struct Totals {
    messages: Stats,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Partition<'a> {
    id: String,
    name: &'a str,
    created_at: String,
    messages: Stats,
    stats: Stats,
    cursor: Cursor,
    last_activity: Option<String>,
    oldest_message: Option<String>,
    newest_message: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Cursor {
    total_consumed: u64,
    batches_consumed: u64,
}

impl<'a> Detail<'a> {
    pub(crate) fn new(queue: &'a QueueDetail) -> Self {
        let summary = &queue.summary;
        let options = &summary.options;
        let partition = |partition: &'a PartitionDetail| Partition {
            id: partition.id.to_string(),
            name: partition.name.as_str(),
            created_at: time::millis(partition.created),
            messages: partition.counts.into(),
            stats: partition.counts.into(),
            cursor: Cursor { total_consumed: partition.consumed, batches_consumed: 0 },
            last_activity: partition.newest.map(time::millis),
            oldest_message: partition.oldest.map(time::millis),
            newest_message: partition.newest.map(time::millis),
        };
        Detail {
            queue: QueueInfo {
                id: summary.id.to_string(),
                name: summary.name.as_str(),
                namespace: &summary.labels.namespace,
                task: &summary.labels.task,
                priority: options.priority,
                created_at: time::millis(summary.created),
                config: Config {
                    lease_time: options.lease_time,
                    retry_limit: options.retry_limit,
                    retry_delay: options.retry_delay,
                    ttl: options.ttl,
                    max_queue_size: options.max_size,
                    dead_letter_queue: options.dead_letter_queue,
                },
            },
            partitions: queue.partitions.iter().map(partition).collect(),
            totals: Totals { messages: summary.counts.into() },
        }
    }
}

/// Messages by the time they were pushed.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Analytics {
    data_points: Vec<DataPoint>,
    interval: &'static str,
    from: String,
    to: String,
}

#[derive(Serialize, JsonSchema)]
struct DataPoint {
    timestamp: String,
    messages: u64,
}

impl Analytics {
    pub(crate) fn new(interval: &'static str, queues: &[&QueueSummary], report: &ActivityReport) -> Self {
        let known = |name: &tidegate_core::name::QueueName| queues.iter().any(|queue| queue.name == *name);
        let points = report.rows.chunk_by(|a, b| a.start == b.start).filter_map(|bucket| {
            let messages = bucket.iter().filter(|row| known(&row.queue)).map(|row| row.activity.push_messages).sum();
            let timestamp = time::millis(bucket.first()?.start);
            (messages > 0).then_some(DataPoint { timestamp, messages })
        });
        let (from, to) = (time::millis(report.from), time::millis(report.until));
        Analytics { data_points: points.collect(), interval, from, to }
    }
}

/// What waits to be written: nothing does outside a commit.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Buffers {
    pub(crate) pending: u64,
    pub(crate) failed: u64,
    pub(crate) db_healthy: bool,
    pub(crate) worker: u64,
}

/// How deep a queue is. Ages are seconds, null where there is no message.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Depth<'a> {
    queue: &'a str,
    total: u64,
    delayed: u64,
    dead: u64,
    oldest_age_seconds: Option<i64>,
    groups: Vec<DepthOfGroup<'a>>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct DepthOfGroup<'a> {
    group: &'a str,
    pending: u64,
    leased: u64,
    delayed: u64,
    dead: u64,
    oldest_age_seconds: Option<i64>,
}

impl<'a> Depth<'a> {
    pub(crate) fn new(queue: &'a str, depth: &'a QueueDepth) -> Self {
        let group = |group: &'a GroupDepth| DepthOfGroup {
            group: group.group.as_str(),
            pending: group.pending,
            leased: group.leased,
            delayed: group.delayed,
            dead: group.dead,
            oldest_age_seconds: group.oldest.map(Span::as_secs),
        };
        Depth {
            queue,
            total: depth.total,
            delayed: depth.delayed,
            dead: depth.dead,
            oldest_age_seconds: depth.oldest.map(Span::as_secs),
            groups: depth.groups.iter().map(group).collect(),
        }
    }
}

/// What a refresh of the statistics found. They are always fresh, so it only counts.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Refreshed {
    engine: &'static str,
    queues_updated: u64,
    seg_partitions: u64,
    namespaces: u64,
    tasks: u64,
    system: bool,
    refreshed_at: String,
}

impl Refreshed {
    pub(crate) fn new(overview: &Overview, at: Timestamp) -> Self {
        Refreshed {
            engine: "segments",
            queues_updated: overview.queues,
            seg_partitions: overview.partitions,
            namespaces: overview.namespaces,
            tasks: overview.tasks,
            system: true,
            refreshed_at: time::millis(at),
        }
    }
}
