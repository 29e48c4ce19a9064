//! Health, liveness, metrics. (queen-http.md 16)

use std::time::Duration;

use bytes::Bytes;
use hyper::header::{CACHE_CONTROL, HeaderValue};
use hyper::{Response, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;
use tidegate_core::command::Command;
use tidegate_core::reply::Reply;

use super::{Exchange, Outcome, json, respond, serialized};
use crate::error::Failure;
use crate::receipt::Body;
use crate::{metrics, openapi};

/// How long the store may take to answer before it counts as away.
const PROBE_TIME: Duration = Duration::from_secs(3);

#[derive(JsonSchema, Serialize)]
pub(crate) struct Health {
    status: &'static str,
    database: &'static str,
    engine: &'static str,
    /// The version of the API, which clients look at; not ours.
    version: &'static str,
}

/// The process lives; asks nobody.
pub(super) fn liveness() -> Response<Body> {
    json(StatusCode::OK, br#"{"status":"ok","engine":"segments-rust"}"#.to_vec())
}

/// What the API is.
pub(super) fn openapi() -> Response<Body> {
    respond(StatusCode::OK, super::JSON, openapi::document().into())
}

/// Which broker this is: others ask when they are not sure that it lives.
pub(super) fn who(exchange: &Exchange<'_>) -> Response<Body> {
    let name = exchange.shared.slots.incarnation();
    respond(StatusCode::OK, "text/plain", Bytes::copy_from_slice(name.as_bytes()).into())
}

/// The store answers.
pub(super) async fn health(exchange: Exchange<'_>) -> Outcome {
    let body = |status, database| Health { status, database, engine: "segments-rust", version: "1.0.0" };
    match tokio::time::timeout(PROBE_TIME, exchange.ask(Command::Probe)).await {
        Ok(Ok(Reply::Healthy)) => serialized(StatusCode::OK, &body("healthy", "connected")),
        _ => Err(Failure::with_body(StatusCode::SERVICE_UNAVAILABLE, &body("unhealthy", "disconnected"))),
    }
}

pub(super) async fn metrics_json(exchange: Exchange<'_>) -> Outcome {
    serialized(StatusCode::OK, &metrics::Summary::new(&metrics::Reading::take(exchange.shared).await))
}

pub(super) async fn metrics_text(exchange: Exchange<'_>) -> Outcome {
    let text = metrics::text(&metrics::Reading::take(exchange.shared).await);
    let mut response = respond(StatusCode::OK, metrics::TEXT, Bytes::from(text).into());
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}
