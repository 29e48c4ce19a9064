//! Traces. (queen-http.md 18)

use hyper::StatusCode;
use tidegate_core::command::Command;
use tidegate_core::name::TransactionId;
use tidegate_core::reply::Reply;
use tidegate_core::store::TracesOf;

use super::{Exchange, Outcome, in_path, serialized, unexpected};
use crate::error::Failure;
use crate::wire::ack::partition_id;
use crate::wire::traces as wire;

/// Rows of a page where the query does not say.
const DEFAULT_TRACES: u64 = 100;
const DEFAULT_NAMES: u64 = 50;

pub(super) async fn write(mut exchange: Exchange<'_>) -> Outcome {
    let body = exchange.body().await?;
    let trace = wire::read(&body)?
        .map_err(|error| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, &format!("trace failed: {error}")))?;
    match exchange.ask(Command::Trace(Box::new(trace))).await? {
        Reply::Traced(Some(id)) => {
            serialized(StatusCode::CREATED, &wire::Traced { success: true, trace_id: id.to_string() })
        }
        Reply::Traced(None) => Err(Failure::not_found("Partition not found")),
        other => Err(unexpected(&other)),
    }
}

pub(super) async fn of_message(exchange: Exchange<'_>) -> Outcome {
    let partition = partition_id(exchange.parameters.at(0))
        .map_err(|error| Failure::bad_request(format!("path segment partitionId: {error}")))?;
    let transaction = TransactionId::new(exchange.parameters.at(1)).map_err(|error| in_path("transactionId", error))?;
    match exchange.ask(Command::ReadTraces(TracesOf::Message(partition, transaction.into_text()))).await? {
        Reply::Traces(traces, _) => serialized(StatusCode::OK, &wire::OfMessage::new(&traces)),
        other => Err(unexpected(&other)),
    }
}

pub(super) async fn of_name(exchange: Exchange<'_>) -> Outcome {
    let name = exchange.queue(0).map_err(|_| Failure::bad_request("path segment name is no name of a trace"))?;
    let limit = exchange.query.number_or("limit", DEFAULT_TRACES)?;
    let offset = exchange.query.number_or("offset", 0)?;
    let of = TracesOf::Name { name: name.as_str().into(), limit, offset };
    match exchange.ask(Command::ReadTraces(of)).await? {
        Reply::Traces(traces, total) => serialized(StatusCode::OK, &wire::OfName::new(&traces, total, limit, offset)),
        other => Err(unexpected(&other)),
    }
}

pub(super) async fn names(exchange: Exchange<'_>) -> Outcome {
    let limit = exchange.query.number_or("limit", DEFAULT_NAMES)?;
    let offset = exchange.query.number_or("offset", 0)?;
    match exchange.ask(Command::ReadTraceNames { limit, offset }).await? {
        Reply::TraceNames(names, total) => {
            serialized(StatusCode::OK, &wire::AllNames::new(&names, total, limit, offset))
        }
        other => Err(unexpected(&other)),
    }
}
