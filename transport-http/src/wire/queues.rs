//! Queues as listed and as described. (queen-http.md 12)

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use tidegate_core::reply::{Counts, PartitionDetail, QueueDetail, QueueSummary};

use crate::time;

/// `{"queues": […]}`.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Queues<'a> {
    queues: Vec<Row<'a>>,
}

#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row<'a> {
    id: String,
    name: &'a str,
    namespace: &'a str,
    task: &'a str,
    created_at: String,
    partitions: u64,
    retained_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    segments: Option<Segments>,
    messages: Messages,
}

#[derive(JsonSchema, Serialize)]
struct Segments {
    segments: u64,
    messages: u64,
}

#[derive(JsonSchema, Serialize)]
struct Messages {
    total: u64,
    pending: u64,
    processing: u64,
}

impl<'a> Queues<'a> {
    pub(crate) fn new(queues: &'a [QueueSummary]) -> Self {
        let row = |queue: &'a QueueSummary| Row {
            id: queue.id.to_string(),
            name: queue.name.as_str(),
            namespace: &queue.labels.namespace,
            task: &queue.labels.task,
            created_at: time::millis(queue.created),
            partitions: queue.partitions,
            retained_bytes: queue.retained_bytes,
            segments: segments(queue),
            messages: Messages {
                total: queue.counts.total,
                // Unlike in the detail, what is out is not pending as well (12.1).
                pending: queue.counts.pending.saturating_sub(queue.counts.processing),
                processing: queue.counts.processing,
            },
        };
        Queues { queues: queues.iter().map(row).collect() }
    }
}

/// How many segments there are is not known after a load; such rows lack the key (12.1).
fn segments(queue: &QueueSummary) -> Option<Segments> {
    Some(Segments { segments: queue.segments?, messages: queue.counts.total })
}

/// `{"namespaces": […]}`.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Namespaces<'a> {
    namespaces: Vec<Namespace<'a>>,
}

#[derive(JsonSchema, Serialize)]
struct Namespace<'a> {
    namespace: &'a str,
    #[serde(flatten)]
    sums: Sums,
}

/// `{"tasks": […]}`.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Tasks<'a> {
    tasks: Vec<Task<'a>>,
}

#[derive(JsonSchema, Serialize)]
struct Task<'a> {
    task: &'a str,
    #[serde(flatten)]
    sums: Sums,
}

/// What the queues of one label add up to.
#[derive(JsonSchema, Serialize, Default)]
struct Sums {
    queues: u64,
    partitions: u64,
    messages: Waiting,
}

#[derive(JsonSchema, Serialize, Default)]
struct Waiting {
    total: u64,
    pending: u64,
}

/// The namespaces in use, by name.
pub(crate) fn namespaces(queues: &[QueueSummary]) -> Namespaces<'_> {
    let sums = by_label(queues, |queue| &queue.labels.namespace);
    Namespaces { namespaces: sums.into_iter().map(|(namespace, sums)| Namespace { namespace, sums }).collect() }
}

/// The tasks in use, by name.
pub(crate) fn tasks(queues: &[QueueSummary]) -> Tasks<'_> {
    let sums = by_label(queues, |queue| &queue.labels.task);
    Tasks { tasks: sums.into_iter().map(|(task, sums)| Task { task, sums }).collect() }
}

/// An empty label is no label.
fn by_label(queues: &[QueueSummary], label: impl Fn(&QueueSummary) -> &str) -> BTreeMap<&str, Sums> {
    let mut labels: BTreeMap<&str, Sums> = BTreeMap::new();
    for queue in queues.iter().filter(|queue| !label(queue).is_empty()) {
        let sums = labels.entry(label(queue)).or_default();
        sums.queues += 1;
        sums.partitions += queue.partitions;
        sums.messages.total += queue.counts.total;
        sums.messages.pending += queue.counts.pending;
    }
    labels
}

/// One queue with its partitions.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Detail<'a> {
    id: String,
    name: &'a str,
    namespace: &'a str,
    task: &'a str,
    created_at: String,
    retained_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    segments: Option<Segments>,
    partitions: Vec<Partition<'a>>,
    totals: Stats,
}

#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct Partition<'a> {
    id: String,
    name: &'a str,
    created_at: String,
    stats: Stats,
    oldest_message: Option<String>,
    newest_message: Option<String>,
}

/// Message counts of a partition or of queues.
#[derive(JsonSchema, Serialize, Default)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Stats {
    total: u64,
    pending: u64,
    processing: u64,
    completed: u64,
    /// Nobody counts it: a failed message is pending again or a dead letter.
    failed: Option<u64>,
    dead_letter: u64,
}

impl From<Counts> for Stats {
    fn from(counts: Counts) -> Self {
        let Counts { total, pending, processing, completed, dead_letter } = counts;
        Stats { total, pending, processing, completed, failed: None, dead_letter }
    }
}

impl<'a> Detail<'a> {
    pub(crate) fn new(queue: &'a QueueDetail) -> Self {
        let partition = |partition: &'a PartitionDetail| Partition {
            id: partition.id.to_string(),
            name: partition.name.as_str(),
            created_at: time::millis(partition.created),
            stats: partition.counts.into(),
            oldest_message: partition.oldest.map(time::millis),
            newest_message: partition.newest.map(time::millis),
        };
        let summary = &queue.summary;
        Detail {
            id: summary.id.to_string(),
            name: summary.name.as_str(),
            namespace: &summary.labels.namespace,
            task: &summary.labels.task,
            created_at: time::millis(summary.created),
            retained_bytes: summary.retained_bytes,
            segments: segments(summary),
            partitions: queue.partitions.iter().map(partition).collect(),
            totals: summary.counts.into(),
        }
    }
}

/// Whether there was something to delete.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Deleted<'a> {
    deleted: bool,
    queue: &'a str,
    existed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'static str>,
}

impl<'a> Deleted<'a> {
    pub(crate) fn new(queue: &'a str, existed: bool) -> Self {
        let message = (!existed).then_some("Queue not found, nothing was deleted");
        Deleted { deleted: existed, queue, existed, message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::name::{QueueId, QueueName};
    use tidegate_core::options::Labels;
    use tidegate_core::time::Timestamp;
    use uuid::Uuid;

    #[test]
    fn labels_add_up() {
        let queue = |name: &str, total| QueueSummary {
            id: QueueId(Uuid::nil()),
            name: QueueName::new(name).expect("a name"),
            labels: Labels::derived(name),
            created: Timestamp::EPOCH,
            partitions: 2,
            retained_bytes: 0,
            segments: Some(1),
            counts: Counts { total, pending: 1, ..Counts::default() },
            options: tidegate_core::options::QueueOptions::implicit(),
        };
        let queues = [queue("b.x", 3), queue("a", 1), queue("b.y", 4)];
        assert_eq!(
            serde_json::to_string(&namespaces(&queues)).expect("it serializes"),
            concat!(
                r#"{"namespaces":[{"namespace":"a","queues":1,"partitions":2,"messages":{"total":1,"pending":1}},"#,
                r#"{"namespace":"b","queues":2,"partitions":4,"messages":{"total":7,"pending":2}}]}"#,
            )
        );
        let tasks = serde_json::to_string(&tasks(&queues)).expect("it serializes");
        assert!(tasks.starts_with(r#"{"tasks":[{"task":"x","queues":1"#) && tasks.contains(r#""task":"y""#), "{tasks}");
    }
}
