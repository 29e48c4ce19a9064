//! Single messages and the way back from the dead letters. (queen-http.md 14)

use hyper::StatusCode;
use tidegate_core::command::{Address, Command};
use tidegate_core::name::TransactionId;
use tidegate_core::reply::Reply;

use super::{Exchange, Outcome, in_path, json, serialized, unexpected};
use crate::error::Failure;
use crate::wire::ack::partition_id;
use crate::wire::messages as wire;

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
