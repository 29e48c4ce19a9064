//! Single messages and the way back from the dead letters. (queen-http.md 14)

use compact_str::CompactString;
use hyper::StatusCode;
use tidegate_core::command::{Address, Command, MessageFilter};
use tidegate_core::name::{PartitionName, QueueName, TransactionId};
use tidegate_core::options::Labels;
use tidegate_core::reply::Reply;

use super::{Exchange, Outcome, in_path, in_query, json, serialized, unexpected};
use crate::error::Failure;
use crate::query::unexpected as unexpected_text;
use crate::wire::ack::partition_id;
use crate::wire::groups::bad_timestamp;
use crate::wire::listing;
use crate::wire::messages as wire;

/// Rows of a page where the query does not say, and at most.
const DEFAULT_LIMIT: usize = 200;
const MAX_LIMIT: usize = 1_000;

/// The address in the path. A malformed partition id is answered as the route's contract has it.
fn address(exchange: &Exchange<'_>, malformed: impl FnOnce(String) -> Failure) -> Result<Address, Failure> {
    let transaction = TransactionId::new(exchange.parameters.at(1));
    Ok(Address {
        partition: partition_id(exchange.parameters.at(0)).map_err(malformed)?,
        transaction: transaction.map_err(|error| in_path("transactionId", error))?,
    })
}

fn failed(what: &str, error: &str) -> Failure {
    Failure::new(StatusCode::INTERNAL_SERVER_ERROR, &format!("{what}: {error}"))
}

/// A page of messages, newest first.
pub(super) async fn list(exchange: Exchange<'_>) -> Outcome {
    let query = &exchange.query;
    let partition = query.filter("partition")?;
    let partition = partition.map(|name| PartitionName::new(&name).map_err(|error| in_query("partition", error)));
    let label = |names: [&str; 2]| -> Result<CompactString, Failure> {
        for name in names {
            if let Some(text) = query.filter(name)? {
                return QueueName::new(&text).map(|_| text.into()).map_err(|error| in_query(name, error));
            }
        }
        Ok(CompactString::default())
    };
    let status =
        match query.filter("status")? {
            None => None,
            Some(text) => Some(listing::status(&text).ok_or_else(|| {
                unexpected_text("status", &format!("one of {}", listing::statuses().join(", ")), &text)
            })?),
        };
    let time = |name| match query.filter(name)? {
        None => Ok(None),
        Some(text) => match crate::time::parse(&text) {
            Some(time) => Ok(Some(time)),
            None => Err(failed("list failed", &bad_timestamp(name, &text))),
        },
    };
    let filter = MessageFilter {
        queue: exchange.queue_filter()?,
        partition: partition.transpose()?,
        labels: Labels { namespace: label(["namespace", "ns"])?, task: label(["task", "task"])? },
        status,
        from: time("from")?,
        until: time("to")?.map(listing::end_of_minute),
        limit: query.number_or("limit", DEFAULT_LIMIT)?.min(MAX_LIMIT),
        offset: query.number_or("offset", 0)?,
    };
    match exchange.ask(Command::ListMessages(Box::new(filter))).await? {
        Reply::Messages(page) => serialized(StatusCode::OK, &listing::Page::new(&page)),
        other => Err(unexpected(&other)),
    }
}

pub(super) async fn find(exchange: Exchange<'_>) -> Outcome {
    let address = address(&exchange, |error| failed("resolve failed", &error))?;
    match exchange.ask(Command::FindMessage(address)).await? {
        Reply::Message(Some(message)) => serialized(StatusCode::OK, &wire::Detail::new(&message)),
        Reply::Message(None) => Err(Failure::not_found("Message not found")),
        other => Err(unexpected(&other)),
    }
}

pub(super) async fn drop_dead_letters(exchange: Exchange<'_>) -> Outcome {
    let address = address(&exchange, |error| failed("delete failed", &error))?;
    let (partition, transaction) = (exchange.parameters.at(0), exchange.parameters.at(1));
    match exchange.ask(Command::DropDeadLetters(address)).await? {
        Reply::DeadLettersDropped(0) => {
            let body = wire::AtAddress::nothing_to_delete(partition, transaction);
            Err(Failure::with_body(StatusCode::NOT_FOUND, &body))
        }
        Reply::DeadLettersDropped(_) => serialized(StatusCode::OK, &wire::AtAddress::deleted(partition, transaction)),
        other => Err(unexpected(&other)),
    }
}

pub(super) async fn replay(mut exchange: Exchange<'_>) -> Outcome {
    // Says nothing, but clients send one.
    exchange.body().await?;
    let address = address(&exchange, |error| Failure::bad_request(format!("path segment partitionId: {error}")))?;
    match exchange.ask(Command::Replay { address, group: exchange.group_filter()? }).await? {
        Reply::Replayed(Some(replayed)) => Ok(json(StatusCode::OK, wire::replayed(&replayed))),
        Reply::Replayed(None) => {
            let (partition, transaction) = (exchange.parameters.at(0), exchange.parameters.at(1));
            let body = wire::AtAddress::nothing_to_replay(partition, transaction);
            Err(Failure::with_body(StatusCode::NOT_FOUND, &body))
        }
        other => Err(unexpected(&other)),
    }
}
