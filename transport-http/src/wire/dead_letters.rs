//! Dead letters as listed. (queen-http.md 15)

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidegate_core::reply::DeadLetterRow;

use crate::body::{Object, parse};
use crate::error::Failure;
use crate::time;
use crate::wire::json;

/// A page.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Page<'a> {
    messages: Vec<Row<'a>>,
    pagination: Pagination,
    /// Of this page.
    total: usize,
}

#[derive(JsonSchema, Serialize)]
struct Pagination {
    limit: usize,
    offset: usize,
}

#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row<'a> {
    id: String,
    transaction_id: &'a str,
    partition_id: String,
    queue: &'a str,
    partition: &'a str,
    consumer_group: &'a str,
    error_message: &'a str,
    retry_count: u32,
    #[schemars(with = "serde_json::Value")]
    data: Option<&'a RawValue>,
    /// Only sent where it is false: retention had removed the message before it was filed.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_available: Option<bool>,
    producer_sub: Option<&'a str>,
    /// Only sent where it is true: the payload is stored encrypted, and shown in plain text.
    #[serde(skip_serializing_if = "Option::is_none")]
    is_encrypted: Option<bool>,
    /// The message's, which sorts like its offset (36.16).
    created_at: String,
    failed_at: String,
}

/// Where a replayed row may be asked to go: nowhere but where it came from.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct ReplayBody<'b> {
    /// Not supported: a dead letter goes back to its own queue.
    #[serde(borrow)]
    #[schemars(with = "Option<()>")]
    queue: Option<&'b RawValue>,
    /// Not supported, likewise.
    #[serde(borrow)]
    #[schemars(with = "Option<()>")]
    partition: Option<&'b RawValue>,
}

/// Reads the body of a replay, which may be empty.
pub(crate) fn replay(body: &[u8]) -> Result<(), Failure> {
    if body.trim_ascii().is_empty() {
        return Ok(());
    }
    let Object(body) = parse::<Object<ReplayBody>>(body)?;
    for (field, given) in [("queue", body.queue), ("partition", body.partition)] {
        if given.is_some_and(|raw| raw.get() != "null") {
            return Err(Failure::bad_body(format!("{field}: a dead letter goes back to its own queue and partition")));
        }
    }
    Ok(())
}

/// How many rows were removed.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Purged<'a> {
    pub(crate) success: bool,
    pub(crate) queue: &'a str,
    pub(crate) consumer_group: Option<&'a str>,
    pub(crate) deleted: u64,
}

impl<'a> Page<'a> {
    pub(crate) fn new(rows: &'a [DeadLetterRow], limit: usize, offset: usize) -> Self {
        let messages: Vec<Row<'a>> = rows.iter().map(row).collect();
        Page { total: messages.len(), messages, pagination: Pagination { limit, offset } }
    }
}

fn row(row: &DeadLetterRow) -> Row<'_> {
    Row {
        id: row.id.to_string(),
        transaction_id: &row.transaction,
        partition_id: row.head.partition.to_string(),
        queue: row.queue.as_str(),
        partition: row.partition_name.as_str(),
        consumer_group: row.head.group.as_str(),
        error_message: &row.error,
        retry_count: row.head.retries,
        data: json::raw(row.payload.as_ref()),
        payload_available: row.payload.is_none().then_some(false),
        producer_sub: row.producer.as_deref(),
        is_encrypted: row.encrypted.then_some(true),
        created_at: time::micros(row.head.created),
        failed_at: time::millis(row.head.failed),
    }
}
