//! Transactions. A rolled-back one is a 200 that says so. (queen-http.md 10)

use hyper::StatusCode;
use tidegate_core::command::Command;
use tidegate_core::reply::Reply;

use super::{Exchange, Outcome, serialized, unexpected};
use crate::error::Failure;
use crate::wire::transaction::{self as wire, Answer, Unfit};

pub(super) async fn transaction(mut exchange: Exchange<'_>) -> Outcome {
    let body = exchange.body().await?;
    let id = (exchange.shared.settings.mint)();
    let (command, echoes) = match wire::command(&body, exchange.caller.subject.as_ref()) {
        Ok(read) => read,
        Err(Unfit::Body(failure)) => return Err(failure),
        Err(Unfit::Shape(error)) => {
            return Err(Failure::with_body(StatusCode::BAD_REQUEST, &Answer::failed(id, error)));
        }
        Err(Unfit::RolledBack(error)) => return serialized(StatusCode::OK, &Answer::failed(id, &error)),
    };
    match exchange.ask(Command::Transaction(command)).await? {
        Reply::Transacted(Ok(outcomes)) => serialized(StatusCode::OK, &Answer::done(id, &echoes, &outcomes)),
        Reply::Transacted(Err(why)) => serialized(StatusCode::OK, &Answer::failed(id, &wire::reason(&why))),
        other => Err(unexpected(&other)),
    }
}
