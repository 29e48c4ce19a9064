//! Acks. (queen-http.md 8)

use bytes::Bytes;
use hyper::StatusCode;
use tidegate_core::command::Command;
use tidegate_core::reply::Reply;

use super::{Exchange, Outcome, json, unexpected};
use crate::error::Failure;
use crate::wire::ack::{self as wire, Acks};

pub(super) async fn single(exchange: Exchange<'_>) -> Outcome {
    ack(exchange, wire::single).await
}

pub(super) async fn batch(exchange: Exchange<'_>) -> Outcome {
    ack(exchange, wire::batch).await
}

async fn ack(mut exchange: Exchange<'_>, read: for<'b> fn(&'b [u8]) -> Result<Acks<'b>, Failure>) -> Outcome {
    let body: Bytes = exchange.body().await?;
    let acks = read(&body)?;
    let (command, malformed) = acks.command()?;
    let outcomes = if command.items.is_empty() {
        // Nothing that a broker could decide.
        Vec::new()
    } else {
        match exchange.ask(Command::Ack(command)).await? {
            Reply::Acked(outcomes) => outcomes,
            other => return Err(unexpected(&other)),
        }
    };
    Ok(json(StatusCode::OK, acks.answer(outcomes, malformed)))
}
