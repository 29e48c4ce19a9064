//! Queues as resources. (queen-http.md 12)

use hyper::StatusCode;
use tidegate_core::command::Command;
use tidegate_core::reply::{QueueDetail, QueueSummary, Reply};

use super::{Exchange, Outcome, serialized, unexpected};
use crate::error::Failure;
use crate::wire::{queues as wire, retention};

pub(super) async fn queues(exchange: &Exchange<'_>) -> Result<Vec<QueueSummary>, Failure> {
    match exchange.ask(Command::ListQueues).await? {
        Reply::Queues(queues) => Ok(queues),
        other => Err(unexpected(&other)),
    }
}

/// The queue that the path names.
pub(super) async fn queue(exchange: &Exchange<'_>) -> Result<QueueDetail, Failure> {
    match exchange.ask(Command::DescribeQueue { queue: exchange.queue(0)? }).await? {
        Reply::Queue(Some(queue)) => Ok(queue),
        Reply::Queue(None) => Err(Failure::not_found("Queue not found")),
        other => Err(unexpected(&other)),
    }
}

pub(super) async fn list(exchange: Exchange<'_>) -> Outcome {
    serialized(StatusCode::OK, &wire::Queues::new(&queues(&exchange).await?))
}

pub(super) async fn list_namespaces(exchange: Exchange<'_>) -> Outcome {
    serialized(StatusCode::OK, &wire::namespaces(&queues(&exchange).await?))
}

pub(super) async fn list_tasks(exchange: Exchange<'_>) -> Outcome {
    serialized(StatusCode::OK, &wire::tasks(&queues(&exchange).await?))
}

pub(super) async fn describe(exchange: Exchange<'_>) -> Outcome {
    serialized(StatusCode::OK, &wire::Detail::new(&queue(&exchange).await?))
}

pub(super) async fn preview_retention(exchange: Exchange<'_>) -> Outcome {
    match exchange.ask(Command::PreviewRetention { queue: exchange.queue(0)? }).await? {
        Reply::Retention(Some(preview)) => serialized(StatusCode::OK, &retention::Preview::new(&preview)),
        Reply::Retention(None) => Err(Failure::not_found("Queue not found")),
        other => Err(unexpected(&other)),
    }
}

pub(super) async fn delete(exchange: Exchange<'_>) -> Outcome {
    let queue = exchange.queue(0)?;
    match exchange.ask(Command::DeleteQueue { queue: queue.clone() }).await? {
        Reply::QueueDeleted { existed } => serialized(StatusCode::OK, &wire::Deleted::new(queue.as_str(), existed)),
        other => Err(unexpected(&other)),
    }
}
