//! Traces: written in camel case, read in snake case. (queen-http.md 18)

use bytes::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidegate_core::command::NewTrace;
use tidegate_core::limits::MAX_TRACE_NAMES;
use tidegate_core::name::{GroupName, NameError, QueueName, TransactionId};
use tidegate_core::record::TraceRecord;
use tidegate_core::store::TraceName;

use super::status::Pagination;
use crate::body::{Object, Text, parse, present};
use crate::error::Failure;
use crate::time;
use crate::wire::ack::partition_id;
use crate::wire::{json, payload};

/// A trace as clients send it.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TraceBody<'b> {
    #[serde(borrow)]
    #[schemars(with = "String", required)]
    transaction_id: Option<Text<'b>>,
    #[serde(borrow)]
    #[schemars(with = "uuid::Uuid", required)]
    partition_id: Option<Text<'b>>,
    #[serde(borrow, default, deserialize_with = "present")]
    #[schemars(with = "serde_json::Value", required)]
    data: Option<&'b RawValue>,
    #[serde(borrow)]
    #[schemars(with = "Option<String>")]
    consumer_group: Option<Text<'b>>,
    #[serde(borrow)]
    #[schemars(with = "Option<String>")]
    event_type: Option<Text<'b>>,
    #[serde(borrow)]
    #[schemars(with = "Option<Names>")]
    trace_names: Option<&'b RawValue>,
}

/// One name or several.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum Names {
    One(String),
    Several(Vec<String>),
}

/// Reads a trace; its partition id apart, for a malformed one is answered otherwise.
pub(crate) fn read(body: &Bytes) -> Result<Result<NewTrace, String>, Failure> {
    let Object(fields) = parse::<Object<TraceBody>>(body)?;
    let given = |text: Option<Text<'_>>| text.map(|text| text.0.into_owned()).filter(|text| !text.is_empty());
    let (Some(transaction), Some(partition)) = (given(fields.transaction_id), given(fields.partition_id)) else {
        return Err(Failure::bad_request("transactionId and partitionId are required"));
    };
    let data = fields.data.ok_or_else(|| Failure::bad_request("data is required"))?;
    let group = match fields.consumer_group.as_deref() {
        Some(name) => GroupName::new(name).map_err(|error| Failure::bad_name("consumerGroup", error))?,
        None => GroupName::queue_mode(),
    };
    let names = match fields.trace_names.map(RawValue::get).filter(|raw| *raw != "null") {
        None => Vec::new(),
        Some(raw) => match serde_json::from_str(raw) {
            Ok(Names::One(name)) => vec![name],
            Ok(Names::Several(names)) => names,
            Err(_) => return Err(Failure::bad_body("traceNames must be a string or an array of strings")),
        },
    };
    if names.len() > MAX_TRACE_NAMES {
        let count = names.len();
        return Err(Failure::bad_body(format!("traceNames has {count} names, at most {MAX_TRACE_NAMES} are allowed")));
    }
    for name in &names {
        label("traceNames", name)?;
    }
    let event = fields.event_type.as_deref().unwrap_or("info");
    label("eventType", event)?;
    let transaction = TransactionId::new(&transaction).map_err(|error| Failure::bad_name("transactionId", error))?;
    let data = payload::slice(data, body, || "data".to_owned())?;
    Ok(partition_id(&partition).map(|partition| NewTrace {
        partition,
        transaction,
        group,
        event: event.into(),
        data,
        names: names.into_iter().map(Into::into).collect(),
    }))
}

/// What is said of a trace is like a name: limited, and without U+0000.
fn label(field: &str, text: &str) -> Result<(), Failure> {
    QueueName::new(text).map(drop).map_err(|error: NameError| Failure::bad_name(field, error))
}

/// It is written.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Traced {
    pub(crate) success: bool,
    pub(crate) trace_id: String,
}

/// A message's traces, oldest first.
#[derive(Serialize, JsonSchema)]
pub(crate) struct OfMessage<'a> {
    traces: Vec<Row<'a>>,
}

#[derive(Serialize, JsonSchema)]
struct Row<'a> {
    id: String,
    event_type: &'a str,
    #[schemars(with = "serde_json::Value")]
    data: Option<&'a RawValue>,
    consumer_group: &'a str,
    worker_id: &'static str,
    created_at: String,
    trace_names: Vec<&'a str>,
}

fn row(trace: &TraceRecord) -> Row<'_> {
    Row {
        id: trace.id.to_string(),
        event_type: &trace.event,
        data: json::raw(Some(&trace.data)),
        consumer_group: trace.group.as_str(),
        worker_id: "seg-rust",
        created_at: time::micros(trace.created),
        trace_names: trace.names.iter().map(|name| name.as_str()).collect(),
    }
}

impl<'a> OfMessage<'a> {
    pub(crate) fn new(traces: &'a [TraceRecord]) -> Self {
        OfMessage { traces: traces.iter().map(row).collect() }
    }
}

/// A name's traces, newest first.
#[derive(Serialize, JsonSchema)]
pub(crate) struct OfName<'a> {
    traces: Vec<NamedRow<'a>>,
    /// Of all pages.
    total: u64,
    pagination: Pagination,
}

#[derive(Serialize, JsonSchema)]
struct NamedRow<'a> {
    #[serde(flatten)]
    trace: Row<'a>,
    transaction_id: &'a str,
    partition_id: String,
    queue_name: &'a str,
    partition_name: &'a str,
    message_payload: Option<String>,
}

impl<'a> OfName<'a> {
    pub(crate) fn new(traces: &'a [TraceRecord], total: u64, limit: u64, offset: u64) -> Self {
        let row = |trace: &'a TraceRecord| NamedRow {
            trace: row(trace),
            transaction_id: &trace.transaction,
            partition_id: trace.partition.to_string(),
            queue_name: trace.queue.as_str(),
            partition_name: trace.partition_name.as_str(),
            message_payload: None,
        };
        OfName { traces: traces.iter().map(row).collect(), total, pagination: Pagination { limit, offset } }
    }
}

/// The names there are.
#[derive(Serialize, JsonSchema)]
pub(crate) struct AllNames<'a> {
    trace_names: Vec<NameRow<'a>>,
    /// Of all pages.
    total: u64,
    pagination: Pagination,
}

#[derive(Serialize, JsonSchema)]
struct NameRow<'a> {
    trace_name: &'a str,
    trace_count: u64,
    message_count: u64,
    last_seen: String,
}

impl<'a> AllNames<'a> {
    pub(crate) fn new(names: &'a [TraceName], total: u64, limit: u64, offset: u64) -> Self {
        let row = |name: &'a TraceName| NameRow {
            trace_name: &name.name,
            trace_count: name.traces,
            message_count: name.messages,
            last_seen: time::micros(name.last),
        };
        AllNames { trace_names: names.iter().map(row).collect(), total, pagination: Pagination { limit, offset } }
    }
}
