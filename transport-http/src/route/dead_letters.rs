//! The list of dead letters. (queen-http.md 15)

use hyper::StatusCode;
use tidegate_core::command::Command;
use tidegate_core::name::QueueName;
use tidegate_core::reply::Reply;

use super::{Exchange, Outcome, in_query, serialized, unexpected};
use crate::wire::dead_letters as wire;

/// Rows of a page where the query does not say.
const DEFAULT_LIMIT: usize = 100;

pub(super) async fn list(exchange: Exchange<'_>) -> Outcome {
    let queue = exchange.query.filter("queue")?;
    let queue = queue.map(|name| QueueName::new(&name).map_err(|error| in_query("queue", error))).transpose()?;
    let limit = exchange.query.number_or("limit", DEFAULT_LIMIT)?;
    let offset = exchange.query.number_or("offset", 0)?;
    match exchange.ask(Command::ListDeadLetters { queue, group: exchange.group_filter()?, limit, offset }).await? {
        Reply::DeadLetters(rows) => serialized(StatusCode::OK, &wire::Page::new(&rows, limit, offset)),
        other => Err(unexpected(&other)),
    }
}
