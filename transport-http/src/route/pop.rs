//! Pop, by its three routes. (queen-http.md 6)

use bytes::Bytes;
use hyper::StatusCode;
use serde::Serialize;
use tidegate_core::command::{Command, PopScope};
use tidegate_core::name::QueueName;
use tidegate_core::options::Labels;
use tidegate_core::reply::Reply;
use tidegate_core::time::Span;

use super::{Exchange, JSON, Outcome, in_query, no_content, respond, unexpected};
use crate::error::Failure;
use crate::forward::left;
use crate::receipt::Body;
use crate::wire::pop as wire;

pub(super) async fn queue(exchange: Exchange<'_>) -> Outcome {
    let scope = PopScope::Queue(exchange.queue(0)?);
    pop(exchange, scope).await
}

pub(super) async fn partition(exchange: Exchange<'_>) -> Outcome {
    let scope = PopScope::Partition(exchange.queue(0)?, exchange.partition(1)?);
    pop(exchange, scope).await
}

/// Discovery: of every queue that has these labels.
pub(super) async fn labels(exchange: Exchange<'_>) -> Outcome {
    // A label is like a name: one that breaks the rules can match nothing and is a mistake.
    let label = |name| match exchange.query.filter(name)? {
        Some(text) => QueueName::new(&text).map(|_| text.into()).map_err(|error| in_query(name, error)),
        None => Ok(Default::default()),
    };
    let labels = Labels { namespace: label("namespace")?, task: label("task")? };
    if labels == Labels::default() {
        let body = NoLabel { success: false, error: "namespace or task is required", messages: [] };
        return Err(Failure::with_body(StatusCode::BAD_REQUEST, &body));
    }
    pop(exchange, PopScope::Labels(labels)).await
}

#[derive(Serialize)]
struct NoLabel {
    success: bool,
    error: &'static str,
    messages: [(); 0],
}

async fn pop(mut exchange: Exchange<'_>, scope: PopScope) -> Outcome {
    let mut pop = wire::command(scope, exchange.query, exchange.shared.settings.default_timeout)?;
    pop.wait = left(pop.wait, exchange.before.waited);
    let group = pop.group.clone();
    let waits = pop.wait.is_some_and(Span::is_positive);
    let waiting = waits.then(|| exchange.queue(0)).transpose()?.map(|queue| exchange.shared.parked.begin(queue));
    let (reply, receipt) = exchange.ask_with_receipt(Command::Pop(pop)).await?;
    drop(waiting);
    match reply {
        Reply::Popped(None) => Ok(no_content()),
        Reply::Popped(Some(delivery)) => {
            // The path's first parameter is the queue; discovery has none and shows the empty text.
            let body = Bytes::from(wire::answer(exchange.parameters.at(0), &group, &delivery));
            let body = Body::with_receipt(body, receipt, exchange.witness());
            Ok(respond(StatusCode::OK, JSON, body))
        }
        other => Err(unexpected(&other)),
    }
}
