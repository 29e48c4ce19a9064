//! Dead letters as listed. (queen-http.md 15)

use serde::Serialize;
use serde_json::value::RawValue;
use tidegate_core::reply::DeadLetterRow;

use crate::time;
use crate::wire::json;

/// A page.
#[derive(Serialize)]
pub(crate) struct Page<'a> {
    messages: Vec<Row<'a>>,
    pagination: Pagination,
    /// Of this page.
    total: usize,
}

#[derive(Serialize)]
struct Pagination {
    limit: usize,
    offset: usize,
}

#[derive(Serialize)]
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
