//! Overview, status, depth. (queen-http.md 12.4, 16)

use hyper::{Response, StatusCode};
use tidegate_core::command::Command;
use tidegate_core::name::{GroupName, QueueName};
use tidegate_core::reply::{ActivityReport, Reply};
use tidegate_core::time::{Span, Timestamp};

use super::groups::standings;
use super::queues::{queue, queues};
use super::{Exchange, Outcome, in_query, serialized, unexpected};
use crate::error::Failure;
use crate::receipt::Body;
use crate::wire::status as wire;

/// Queues of a page where the query does not say.
const DEFAULT_LIMIT: u64 = 100;
/// How far back analytics of messages go where the query does not say.
const DAY: Span = Span::from_secs(86_400);

/// What happened, as the query wants to see it.
pub(super) async fn activity(
    exchange: &Exchange<'_>,
    queue: Option<QueueName>,
    bucket: Option<Span>,
) -> Result<ActivityReport, Failure> {
    let (from, until) = (exchange.time("from")?, exchange.time("to")?);
    report(exchange, queue, from, until, bucket).await
}

async fn report(
    exchange: &Exchange<'_>,
    queue: Option<QueueName>,
    from: Option<Timestamp>,
    until: Option<Timestamp>,
    bucket: Option<Span>,
) -> Result<ActivityReport, Failure> {
    match exchange.ask(Command::ReadActivity { queue, from, until, bucket }).await? {
        Reply::Activity(report) => Ok(report),
        other => Err(unexpected(&other)),
    }
}

fn wanted(exchange: &Exchange<'_>) -> Result<wire::Wanted, Failure> {
    let text = |name| Ok::<_, Failure>(exchange.query.filter(name)?.map(std::borrow::Cow::into_owned));
    Ok(wire::Wanted { queue: text("queue")?, namespace: text("namespace")?, task: text("task")? })
}

async fn overview_of(exchange: &Exchange<'_>) -> Result<(wire::Overview, Timestamp), Failure> {
    let (queues, standings) = (queues(exchange).await?, standings(exchange, None).await?);
    let recent = report(exchange, None, None, None, None).await?;
    let since = recent.until.plus(Span::from_micros(-wire::OVERVIEW_SPAN.as_micros()));
    let rows = recent.rows.into_iter().filter(|row| row.start >= since).collect();
    let recent = ActivityReport { rows, ..recent };
    Ok((wire::Overview::new(&queues, &standings, &recent), recent.until))
}

pub(super) async fn overview(exchange: Exchange<'_>) -> Outcome {
    serialized(StatusCode::OK, &overview_of(&exchange).await?.0)
}

pub(super) async fn refresh(mut exchange: Exchange<'_>) -> Outcome {
    // Says nothing, but clients send one.
    exchange.body().await?;
    let (overview, at) = overview_of(&exchange).await?;
    serialized(StatusCode::OK, &wire::Refreshed::new(&overview, at))
}

pub(super) async fn status(exchange: Exchange<'_>) -> Outcome {
    let wanted = wanted(&exchange)?;
    let report = activity(&exchange, exchange.queue_filter()?, None).await?;
    let (queues, standings) = (queues(&exchange).await?, standings(&exchange, None).await?);
    let queues: Vec<_> = queues.iter().filter(|queue| wanted.fits(queue)).collect();
    serialized(StatusCode::OK, &wire::Status::new(&queues, &standings, &report))
}

pub(super) async fn list(exchange: Exchange<'_>) -> Outcome {
    let wanted = wanted(&exchange)?;
    let limit = exchange.query.number_or("limit", DEFAULT_LIMIT)?;
    let offset = exchange.query.number_or("offset", 0)?;
    let queues = queues(&exchange).await?;
    let queues: Vec<_> = queues.iter().filter(|queue| wanted.fits(queue)).collect();
    serialized(StatusCode::OK, &wire::Queues::new(&queues, limit, offset))
}

pub(super) async fn describe(exchange: Exchange<'_>) -> Outcome {
    serialized(StatusCode::OK, &wire::Detail::new(&queue(&exchange).await?))
}

pub(super) async fn analytics(exchange: Exchange<'_>) -> Outcome {
    let wanted = wanted(&exchange)?;
    let (interval, minutes) = match exchange.query.text("interval")?.as_deref() {
        Some("minute") => ("minute", 1),
        Some("day") => ("day", 1_440),
        _ => ("hour", 60),
    };
    let (from, until) = (exchange.time("from")?, exchange.time("to")?);
    let now = report(&exchange, exchange.queue_filter()?, None, until, None).await?.until;
    let from = from.unwrap_or(now.plus(Span::from_micros(-DAY.as_micros())));
    let bucket = Some(Span::from_secs(minutes * 60));
    let report = report(&exchange, exchange.queue_filter()?, Some(from), Some(now), bucket).await?;
    let queues = queues(&exchange).await?;
    let queues: Vec<_> = queues.iter().filter(|queue| wanted.fits(queue)).collect();
    serialized(StatusCode::OK, &wire::Analytics::new(interval, &queues, &report))
}

pub(super) fn buffers() -> Result<Response<Body>, Failure> {
    serialized(StatusCode::OK, &wire::Buffers { pending: 0, failed: 0, db_healthy: true, worker: 0 })
}

pub(super) async fn depth(exchange: Exchange<'_>) -> Outcome {
    let queue = exchange.queue(0)?;
    // Clients call it by either name.
    let group = exchange.query.filter("group")?;
    let group = group.map(|name| GroupName::new(&name).map_err(|error| in_query("group", error))).transpose()?;
    let group = group.map_or_else(|| exchange.group_filter(), |group| Ok(Some(group)))?;
    match exchange.ask(Command::QueueDepth { queue: queue.clone() }).await? {
        Reply::Depth(Some(mut depth)) => {
            depth.groups.retain(|row| group.as_ref().is_none_or(|group| *group == row.group));
            serialized(StatusCode::OK, &wire::Depth::new(queue.as_str(), &depth))
        }
        Reply::Depth(None) => Err(Failure::not_found("Queue not found")),
        other => Err(unexpected(&other)),
    }
}
