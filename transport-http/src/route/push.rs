//! Push. (queen-http.md 4)

use hyper::StatusCode;
use tidegate_core::command::Command;
use tidegate_core::reply::Reply;

use super::{Exchange, Outcome, json, unexpected};
use crate::wire::push as wire;

pub(super) async fn push(mut exchange: Exchange<'_>) -> Outcome {
    let body = exchange.body().await?;
    let items = wire::items(&body)?;
    if items.is_empty() {
        // Nothing that a broker could decide.
        return Ok(json(StatusCode::CREATED, b"[]".to_vec()));
    }
    let command = wire::command(&items, &body, exchange.caller.subject.as_ref())?;
    match exchange.ask(Command::Push(command)).await? {
        Reply::Pushed(outcomes) => Ok(json(StatusCode::CREATED, wire::answer(&items, &outcomes))),
        other => Err(unexpected(&other)),
    }
}
