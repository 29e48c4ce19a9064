//! Consumer groups: reads, subscriptions, seeks, deletion. (queen-http.md 13)

use hyper::StatusCode;
use tidegate_core::command::{Command, SeekTarget};
use tidegate_core::name::{GroupName, QueueName};
use tidegate_core::reply::{GroupStanding, Reply};
use tidegate_core::time::Span;

use super::{Exchange, Outcome, serialized, unexpected};
use crate::error::Failure;
use crate::time;
use crate::wire::groups as wire;

/// Seconds of lag that `lagging` asks for where the query does not say.
const DEFAULT_MIN_LAG: i64 = 3_600;

pub(super) async fn standings(
    exchange: &Exchange<'_>,
    group: Option<GroupName>,
) -> Result<Vec<GroupStanding>, Failure> {
    match exchange.ask(Command::ListGroups { group }).await? {
        Reply::Groups(standings) => Ok(standings),
        other => Err(unexpected(&other)),
    }
}

pub(super) async fn list(exchange: Exchange<'_>) -> Outcome {
    serialized(StatusCode::OK, &wire::rows(&standings(&exchange, None).await?))
}

pub(super) async fn lagging(exchange: Exchange<'_>) -> Outcome {
    let threshold = Span::from_secs(exchange.query.number_or("minLagSeconds", DEFAULT_MIN_LAG)?);
    serialized(StatusCode::OK, &wire::lagging(&standings(&exchange, None).await?, threshold))
}

pub(super) async fn describe(exchange: Exchange<'_>) -> Outcome {
    let group = exchange.group(0)?;
    serialized(StatusCode::OK, &wire::detail(&standings(&exchange, Some(group)).await?))
}

pub(super) async fn change_subscription(mut exchange: Exchange<'_>) -> Outcome {
    let group = exchange.group(0)?;
    let body = exchange.body().await?;
    let text = wire::subscription_timestamp(&body)?;
    let Some(since) = time::parse(&text) else {
        return Err(unusable("subscription failed", &wire::bad_timestamp("subscriptionTimestamp", &text)));
    };
    match exchange.ask(Command::ChangeSubscription { group: group.clone(), since }).await? {
        Reply::SubscriptionChanged { records } => serialized(
            StatusCode::OK,
            &wire::SubscriptionChanged {
                success: true,
                consumer_group: group.as_str(),
                new_timestamp: &text,
                rows_updated: records,
            },
        ),
        other => Err(unexpected(&other)),
    }
}

/// A time that is none is answered 500 on these routes: so the wire's contract has it.
fn unusable(what: &str, why: &str) -> Failure {
    Failure::new(StatusCode::INTERNAL_SERVER_ERROR, &format!("{what}: {why}"))
}

fn seek_target(body: &[u8]) -> Result<SeekTarget, Failure> {
    wire::seek_target(body)?.map_err(|error| unusable("seek failed", &error))
}

pub(super) async fn seek_queue(mut exchange: Exchange<'_>) -> Outcome {
    let (group, queue) = (exchange.group(0)?, exchange.queue(1)?);
    let body = exchange.body().await?;
    let target = seek_target(&body)?;
    let command = Command::Seek { group: group.clone(), queue: queue.clone(), partition: None, target };
    let (consumer_group, queue_name) = (group.as_str(), queue.as_str());
    let (seek_to_end, target_timestamp) = wire::target_fields(target);
    match exchange.ask(command).await? {
        Reply::Sought(Some(partitions_updated)) => serialized(
            StatusCode::OK,
            &wire::SoughtQueue {
                success: true,
                consumer_group,
                queue_name,
                seek_to_end,
                target_timestamp,
                partitions_updated,
            },
        ),
        Reply::Sought(None) => Err(Failure::with_body(
            StatusCode::NOT_FOUND,
            &wire::NoSuchQueue {
                success: false,
                error: "Queue not found or has no partitions",
                consumer_group,
                queue_name,
                partitions_updated: 0,
            },
        )),
        other => Err(unexpected(&other)),
    }
}

pub(super) async fn seek_partition(mut exchange: Exchange<'_>) -> Outcome {
    let (group, queue, partition) = (exchange.group(0)?, exchange.queue(1)?, exchange.partition(2)?);
    let body = exchange.body().await?;
    // Here, and only here, no body means the end.
    let target = if body.trim_ascii().is_empty() { SeekTarget::End } else { seek_target(&body)? };
    let command =
        Command::Seek { group: group.clone(), queue: queue.clone(), partition: Some(partition.clone()), target };
    let (seek_to_end, target_timestamp) = wire::target_fields(target);
    match exchange.ask(command).await? {
        Reply::Sought(Some(_)) => serialized(
            StatusCode::OK,
            &wire::SoughtPartition {
                success: true,
                consumer_group: group.as_str(),
                queue_name: queue.as_str(),
                partition_name: partition.as_str(),
                seek_to_end,
                target_timestamp,
                updated: true,
            },
        ),
        Reply::Sought(None) => Err(Failure::with_body(
            StatusCode::NOT_FOUND,
            &wire::NoSuchPartition { success: false, error: "Partition not found" },
        )),
        other => Err(unexpected(&other)),
    }
}

pub(super) async fn delete(exchange: Exchange<'_>) -> Outcome {
    delete_group(exchange, None).await
}

pub(super) async fn delete_on_queue(exchange: Exchange<'_>) -> Outcome {
    let queue = exchange.queue(1)?;
    delete_group(exchange, Some(queue)).await
}

async fn delete_group(exchange: Exchange<'_>, queue: Option<QueueName>) -> Outcome {
    let group = exchange.group(0)?;
    let metadata = exchange.query.truth_or("deleteMetadata", true)?;
    match exchange.ask(Command::DeleteGroup { group: group.clone(), queue: queue.clone(), metadata }).await? {
        Reply::GroupDeleted { partitions, metadata } => serialized(
            StatusCode::OK,
            &wire::GroupDeleted {
                success: true,
                consumer_group: group.as_str(),
                queue_name: queue.as_ref().map(QueueName::as_str),
                deleted_partitions: partitions,
                metadata_deleted: metadata,
            },
        ),
        other => Err(unexpected(&other)),
    }
}
