//! Dead letters by their own ids, and all of a queue. (queen-http.md 15, 31)

use hyper::StatusCode;
use tidegate_core::command::Command;
use tidegate_core::name::DeadLetterId;
use tidegate_core::reply::Reply;
use uuid::Uuid;

use super::{Exchange, Outcome, json, serialized, unexpected};
use crate::error::Failure;
use crate::wire::dead_letters as wire;
use crate::wire::messages::replayed;

/// Rows of a page where the query does not say.
const DEFAULT_LIMIT: usize = 100;

pub(super) async fn list(exchange: Exchange<'_>) -> Outcome {
    let queue = exchange.queue_filter()?;
    let limit = exchange.query.number_or("limit", DEFAULT_LIMIT)?;
    let offset = exchange.query.number_or("offset", 0)?;
    match exchange.ask(Command::ListDeadLetters { queue, group: exchange.group_filter()?, limit, offset }).await? {
        Reply::DeadLetters(rows) => serialized(StatusCode::OK, &wire::Page::new(&rows, limit, offset)),
        other => Err(unexpected(&other)),
    }
}

/// Moves one row back to its own queue and partition.
pub(super) async fn replay(mut exchange: Exchange<'_>) -> Outcome {
    let body = exchange.body().await?;
    wire::replay(&body)?;
    let text = exchange.parameters.at(0);
    let id = Uuid::try_parse(text).map(DeadLetterId).map_err(|_| {
        Failure::bad_request(format!("path segment id must be a UUID, got {:?}", tidegate_core::name::excerpt(text)))
    })?;
    match exchange.ask(Command::ReplayRow(id)).await? {
        Reply::Replayed(Some(moved)) => Ok(json(StatusCode::OK, replayed(&moved))),
        Reply::Replayed(None) => Err(Failure::not_found("Dead letter not found")),
        other => Err(unexpected(&other)),
    }
}

/// Removes all rows of a queue, or those of one group.
pub(super) async fn purge(exchange: Exchange<'_>) -> Outcome {
    let queue = exchange.queue_filter()?.ok_or_else(|| Failure::bad_request("queue is required"))?;
    let group = exchange.group_filter()?;
    match exchange.ask(Command::PurgeDeadLetters { queue: queue.clone(), group: group.clone() }).await? {
        Reply::DeadLettersDropped(deleted) => serialized(
            StatusCode::OK,
            &wire::Purged {
                success: true,
                queue: queue.as_str(),
                consumer_group: group.as_ref().map(|group| group.as_str()),
                deleted,
            },
        ),
        other => Err(unexpected(&other)),
    }
}
