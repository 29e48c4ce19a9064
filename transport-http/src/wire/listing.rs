//! Messages as listed. (queen-http.md 14.1)

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use tidegate_core::name::TransactionHash;
use tidegate_core::reply::{MessagePage, MessageRow, MessageStatus};
use tidegate_core::time::{Span, Timestamp};

use crate::time;
use crate::wire::json;

/// The names of the statuses that a listing can be filtered by.
pub(crate) fn statuses() -> [&'static str; 4] {
    STATUSES.map(status_name)
}

/// The status of that name.
pub(crate) fn status(name: &str) -> Option<MessageStatus> {
    STATUSES.into_iter().find(|status| status_name(*status) == name)
}

const STATUSES: [MessageStatus; 4] =
    [MessageStatus::Pending, MessageStatus::Processing, MessageStatus::Completed, MessageStatus::DeadLetter];

/// The name of a status.
pub(crate) fn status_name(status: MessageStatus) -> &'static str {
    match status {
        MessageStatus::Pending => "pending",
        MessageStatus::Processing => "processing",
        MessageStatus::Completed => "completed",
        MessageStatus::DeadLetter => "dead_letter",
    }
}

/// The end of the minute that a time lies in: until there a listing goes.
pub(crate) fn end_of_minute(time: Timestamp) -> Timestamp {
    const MINUTE: i64 = 60_000_000;
    Timestamp::from_micros(time.as_micros().div_euclid(MINUTE).saturating_mul(MINUTE)).plus(Span::from_secs(60))
}

/// A page.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Page<'a> {
    messages: Vec<Row<'a>>,
    mode: Mode,
    /// Of this page.
    total: usize,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Mode {
    has_queue_mode: bool,
    bus_groups_count: u64,
    r#type: &'static str,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Row<'a> {
    id: String,
    transaction_id: &'a str,
    txn_hash: String,
    partition_id: String,
    queue_path: String,
    queue: &'a str,
    partition: &'a str,
    namespace: &'a str,
    task: &'a str,
    status: &'static str,
    queue_status: &'static str,
    bus_status: BusStatus,
    trace_id: Option<String>,
    producer_sub: Option<&'a str>,
    queue_priority: i64,
    payload_available: bool,
    segment: Segment,
    created_at: String,
    lease_expires_at: Option<String>,
    #[schemars(with = "serde_json::Value")]
    data: Option<&'a RawValue>,
    #[schemars(with = "serde_json::Value")]
    payload: Option<&'a RawValue>,
    is_encrypted: bool,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct BusStatus {
    consumed_by: u64,
    total_groups: u64,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Segment {
    /// Offset of the segment's first message.
    seq: u64,
    frame_idx: u64,
}

impl<'a> Page<'a> {
    pub(crate) fn new(page: &'a MessagePage) -> Self {
        let r#type = match (page.queue_mode, page.bus_groups > 0) {
            (true, true) => "hybrid",
            (true, false) => "queue",
            (false, true) => "bus",
            (false, false) => "none",
        };
        Page {
            messages: page.rows.iter().map(row).collect(),
            mode: Mode { has_queue_mode: page.queue_mode, bus_groups_count: page.bus_groups, r#type },
            total: page.rows.len(),
        }
    }
}

fn row(row: &MessageRow) -> Row<'_> {
    let payload = json::raw(Some(&row.payload));
    Row {
        id: row.id.to_string(),
        transaction_id: &row.transaction,
        txn_hash: format!("{:032x}", TransactionHash::of(&row.transaction).0),
        partition_id: row.partition.to_string(),
        queue_path: format!("{}/{}", row.queue, row.partition_name),
        queue: row.queue.as_str(),
        partition: row.partition_name.as_str(),
        namespace: &row.labels.namespace,
        task: &row.labels.task,
        status: status_name(row.status),
        queue_status: status_name(row.status),
        bus_status: BusStatus { consumed_by: row.consumed_by, total_groups: row.bus_groups },
        trace_id: row.trace.map(|trace| trace.to_string()),
        producer_sub: row.producer.as_deref(),
        queue_priority: row.priority,
        payload_available: true,
        segment: Segment { seq: row.segment, frame_idx: row.offset - row.segment },
        created_at: time::millis(row.created),
        lease_expires_at: row.lease_expires.map(time::millis),
        data: payload,
        payload,
        is_encrypted: row.encrypted,
    }
}
