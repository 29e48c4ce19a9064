//! Analytics. (queen-http.md 19)

use hyper::StatusCode;
use tidegate_core::command::Command;
use tidegate_core::reply::Reply;

use super::status::activity;
use super::{Exchange, Outcome, serialized, unexpected};
use crate::metrics::Reading;
use crate::wire::analytics as wire;

/// How this process is called in series by process.
fn hostname(exchange: &Exchange<'_>) -> String {
    match exchange.shared.slots.incarnation() {
        name if name.is_empty() => "tidegate".to_owned(),
        name => name.into(),
    }
}

pub(super) async fn queue_lag(exchange: Exchange<'_>) -> Outcome {
    let report = activity(&exchange, exchange.queue_filter()?, None).await?;
    serialized(StatusCode::OK, &wire::queue_lag(&report))
}

pub(super) async fn queue_ops(exchange: Exchange<'_>) -> Outcome {
    let report = activity(&exchange, exchange.queue_filter()?, None).await?;
    serialized(StatusCode::OK, &wire::QueueOps::new(&report))
}

pub(super) async fn parked(exchange: Exchange<'_>) -> Outcome {
    let report = activity(&exchange, exchange.queue_filter()?, None).await?;
    serialized(StatusCode::OK, &wire::ParkedReplicas::new(&report, &hostname(&exchange)))
}

pub(super) async fn retention(exchange: Exchange<'_>) -> Outcome {
    let queue = exchange.queue_filter()?;
    let report = activity(&exchange, queue.clone(), None).await?;
    match exchange.ask(Command::ListHistory { since: report.from, until: report.until }).await? {
        Reply::History(history) => serialized(StatusCode::OK, &wire::Retention::new(&report, &history, queue.as_ref())),
        other => Err(unexpected(&other)),
    }
}

pub(super) async fn system(exchange: Exchange<'_>) -> Outcome {
    let report = activity(&exchange, None, None).await?;
    let reading = Reading::take(exchange.shared).await;
    serialized(StatusCode::OK, &wire::SystemMetrics::new(&report, &reading, &hostname(&exchange)))
}

pub(super) async fn worker(exchange: Exchange<'_>) -> Outcome {
    let report = activity(&exchange, exchange.queue_filter()?, None).await?;
    serialized(StatusCode::OK, &wire::WorkerMetrics::new(&report, &hostname(&exchange)))
}

pub(super) async fn postgres(exchange: Exchange<'_>) -> Outcome {
    let report = activity(&exchange, None, None).await?;
    serialized(StatusCode::OK, &wire::PostgresStats::new(&report))
}
