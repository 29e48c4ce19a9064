//! Lease extension. (queen-http.md 9)

use hyper::StatusCode;
use tidegate_core::command::{Command, LeaseProof};
use tidegate_core::reply::Reply;

use super::{Exchange, Outcome, serialized, unexpected};
use crate::wire::ack::lease_proof;
use crate::wire::lease as wire;

pub(super) async fn extend(mut exchange: Exchange<'_>) -> Outcome {
    let body = exchange.body().await?;
    // A lease has to be named here: the empty text is one that nobody has.
    let lease = match lease_proof(exchange.parameters.at(0)) {
        LeaseProof::None => LeaseProof::Foreign,
        proof => proof,
    };
    match exchange.ask(Command::Extend { lease, length: wire::length(&body) }).await? {
        Reply::Extended { renewed, earliest } => {
            serialized(StatusCode::OK, &wire::Extended::new(exchange.parameters.at(0), renewed, earliest))
        }
        other => Err(unexpected(&other)),
    }
}
