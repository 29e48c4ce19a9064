//! Answers that are written by hand, as types: for the document alone. The tests of the document hold them to what is
//! written.

#![allow(dead_code, reason = "only the schemas are used")]

use schemars::JsonSchema;
use serde_json::Value;
use uuid::Uuid;

/// What every error looks like.
#[derive(JsonSchema)]
pub(crate) struct Error {
    /// What is wrong, for people.
    error: String,
    /// The same for programs, where they need to tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
}

/// Any JSON.
#[derive(JsonSchema)]
#[serde(transparent)]
pub(crate) struct Anything(Value);

/// What became of a pushed item.
#[derive(JsonSchema)]
pub(crate) struct PushResult {
    index: u64,
    message_id: Uuid,
    transaction_id: String,
    #[serde(rename = "queueName")]
    queue_name: String,
    status: PushStatus,
}

#[derive(JsonSchema)]
#[serde(rename_all = "lowercase")]
enum PushStatus {
    Queued,
    Duplicate,
    Failed,
}

/// Messages that were taken.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Popped {
    success: bool,
    queue: String,
    partition: String,
    partition_id: Uuid,
    /// Empty with autoAck.
    lease_id: String,
    consumer_group: String,
    messages: Vec<Message>,
    partitions_claimed: u64,
}

#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Message {
    id: Uuid,
    transaction_id: String,
    trace_id: Option<Uuid>,
    data: Value,
    producer_sub: Option<String>,
    created_at: String,
    partition_id: Uuid,
    partition: String,
    lease_id: String,
    consumer_group: String,
}

/// What became of an ack.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Acked {
    index: u64,
    transaction_id: String,
    success: bool,
    error: Option<String>,
    lease_released: bool,
    dlq: bool,
    noop: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped: Option<bool>,
}

/// Where a dead letter went.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Replayed {
    success: bool,
    queue: String,
    partition: String,
    replayed_as: PushResult,
    dlq_row_removed: bool,
}

/// The process lives.
#[derive(JsonSchema)]
pub(crate) struct Alive {
    status: String,
    engine: String,
}
