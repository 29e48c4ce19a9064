//! Configuring a queue. (queen-http.md 11)

use hyper::StatusCode;
use tidegate_core::command::Command;
use tidegate_core::reply::Reply;

use super::{Exchange, Outcome, serialized, unexpected};
use crate::wire::configure as wire;

pub(super) async fn configure(mut exchange: Exchange<'_>) -> Outcome {
    let body = exchange.body().await?;
    let wire::Configure { queue, options, labels } = wire::read(&body)?;
    match exchange.ask(Command::Configure { queue: queue.clone(), options, labels }).await? {
        Reply::Configured { id, labels, options } => {
            serialized(StatusCode::OK, &wire::Configured::new(&queue, id, &labels, &options))
        }
        other => Err(unexpected(&other)),
    }
}
