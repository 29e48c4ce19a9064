//! Consumer groups: where they stand, subscriptions, seeks. (queen-http.md 13)
//!
//! The core reports one standing per (group, queue, partition) in that order; what a route sums up is summed here.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidegate_core::command::SeekTarget;
use tidegate_core::name::excerpt;
use tidegate_core::reply::GroupStanding;
use tidegate_core::time::Span;

use crate::body::{Object, Text, parse};
use crate::error::Failure;
use crate::time;

/// Seconds of lag from which a group counts as lagging.
const LAGGING_SECONDS: i64 = 300;

/// A row per (group, queue).
#[derive(JsonSchema, Serialize, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row<'a> {
    name: &'a str,
    topics: [&'a str; 1],
    queue_name: &'a str,
    /// Cursors, not processes: nobody knows those.
    members: u64,
    partition_cursors: u64,
    partitions_with_lag: u64,
    total_lag: u64,
    max_time_lag: i64,
    state: &'static str,
    storage: &'static str,
    subscription_mode: Option<&'a str>,
    subscription_timestamp: Option<&'a str>,
    subscription_created_at: Option<&'a str>,
}

/// The bare array of all groups.
pub(crate) fn rows(standings: &[GroupStanding]) -> Vec<Row<'_>> {
    let same = |a: &GroupStanding, b: &GroupStanding| a.group == b.group && a.queue == b.queue;
    standings.chunk_by(same).filter_map(row).collect()
}

fn row(standings: &[GroupStanding]) -> Option<Row<'_>> {
    let first = standings.first()?;
    let count = standings.len() as u64;
    let max_time_lag = standings.iter().map(|standing| standing.time_lag.as_secs()).max().unwrap_or(0);
    let state = if max_time_lag > LAGGING_SECONDS {
        "Lagging"
    } else if standings.iter().any(|standing| standing.consumed > 0) {
        "Stable"
    } else {
        "Dead"
    };
    Some(Row {
        name: first.group.as_str(),
        topics: [first.queue.as_str()],
        queue_name: first.queue.as_str(),
        members: count,
        partition_cursors: count,
        partitions_with_lag: standings.iter().filter(|standing| standing.lag > 0).count() as u64,
        total_lag: standings.iter().map(|standing| standing.lag).sum(),
        max_time_lag,
        state,
        storage: "segments",
        subscription_mode: None,
        subscription_timestamp: None,
        subscription_created_at: None,
    })
}

/// A partition a group is behind on. This route alone speaks snake case.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Lagging<'a> {
    consumer_group: &'a str,
    queue_name: &'a str,
    partition_name: &'a str,
    partition_id: String,
    worker_id: Option<String>,
    offset_lag: u64,
    time_lag_seconds: i64,
    lag_hours: f64,
    oldest_unconsumed_at: Option<String>,
    last_consumed_at: Option<String>,
}

/// The bare array of what lags by more than `threshold`, biggest first. Only stored cursors with something left to
/// consume are listed.
pub(crate) fn lagging<'a>(standings: &'a [GroupStanding], threshold: Span) -> Vec<Lagging<'a>> {
    let behind = |standing: &&GroupStanding| {
        standing.stored && standing.oldest_unconsumed.is_some() && standing.time_lag > threshold
    };
    let mut listed: Vec<&GroupStanding> = standings.iter().filter(behind).collect();
    listed.sort_by_key(|standing| std::cmp::Reverse(standing.time_lag));
    let row = |standing: &'a GroupStanding| {
        let seconds = standing.time_lag.as_secs();
        Lagging {
            consumer_group: standing.group.as_str(),
            queue_name: standing.queue.as_str(),
            partition_name: standing.partition_name.as_str(),
            partition_id: standing.partition.to_string(),
            worker_id: standing.lease.map(|lease| lease.to_string()),
            offset_lag: standing.lag,
            time_lag_seconds: seconds,
            // Two decimals.
            lag_hours: (seconds as f64 / 36.0).round() / 100.0,
            oldest_unconsumed_at: standing.oldest_unconsumed.map(time::millis),
            last_consumed_at: None,
        }
    };
    listed.into_iter().map(row).collect()
}

/// What one group does on one queue.
#[derive(JsonSchema, Serialize)]
pub(crate) struct OnQueue<'a> {
    partitions: Vec<OnPartition<'a>>,
}

#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct OnPartition<'a> {
    partition: &'a str,
    worker_id: Option<String>,
    last_consumed_at: Option<String>,
    total_consumed: u64,
    offset_lag: u64,
    time_lag_seconds: i64,
    lease_active: bool,
}

/// One group: its queues by name.
pub(crate) fn detail(standings: &[GroupStanding]) -> BTreeMap<&str, OnQueue<'_>> {
    let mut queues = BTreeMap::new();
    for standing in standings {
        let queue = queues.entry(standing.queue.as_str()).or_insert(OnQueue { partitions: Vec::new() });
        queue.partitions.push(OnPartition {
            partition: standing.partition_name.as_str(),
            worker_id: standing.lease.map(|lease| lease.to_string()),
            last_consumed_at: None,
            total_consumed: standing.consumed,
            offset_lag: standing.lag,
            time_lag_seconds: standing.time_lag.as_secs(),
            lease_active: standing.lease_active,
        });
    }
    queues
}

#[derive(JsonSchema, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SubscriptionBody<'b> {
    #[serde(borrow)]
    #[schemars(extend("format" = "date-time"))]
    subscription_timestamp: Option<Text<'b>>,
}

/// The timestamp of a subscription's change, as sent.
pub(crate) fn subscription_timestamp(body: &[u8]) -> Result<String, Failure> {
    let Object(body) = parse::<Object<SubscriptionBody>>(body)?;
    let text = body.subscription_timestamp.filter(|text| !text.is_empty());
    text.map(|text| text.0.into_owned()).ok_or_else(|| Failure::bad_request("subscriptionTimestamp is required"))
}

/// A subscription's change.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SubscriptionChanged<'a> {
    pub(crate) success: bool,
    pub(crate) consumer_group: &'a str,
    pub(crate) new_timestamp: &'a str,
    pub(crate) rows_updated: u64,
}

#[derive(JsonSchema, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SeekBody<'b> {
    to_end: Option<bool>,
    #[serde(borrow)]
    #[schemars(extend("format" = "date-time"))]
    timestamp: Option<Text<'b>>,
}

/// Where a seek goes, or the text of a timestamp that is none.
pub(crate) fn seek_target(body: &[u8]) -> Result<Result<SeekTarget, String>, Failure> {
    let Object(body) = parse::<Object<SeekBody>>(body)?;
    let timestamp = body.timestamp.filter(|text| !text.is_empty());
    match (body.to_end, timestamp) {
        (Some(true), _) => Ok(Ok(SeekTarget::End)),
        (_, Some(text)) => {
            Ok(time::parse(&text).map(SeekTarget::Time).ok_or_else(|| bad_timestamp("timestamp", &text)))
        }
        (_, None) => Err(Failure::bad_request("Must specify toEnd=true or a timestamp")),
    }
}

/// The text for a timestamp that is none.
pub(crate) fn bad_timestamp(field: &str, text: &str) -> String {
    format!("{field} must be {}, got {:?}", time::ACCEPTED, excerpt(text))
}

/// A seek of a whole queue.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SoughtQueue<'a> {
    pub(crate) success: bool,
    pub(crate) consumer_group: &'a str,
    pub(crate) queue_name: &'a str,
    pub(crate) seek_to_end: bool,
    pub(crate) target_timestamp: Option<String>,
    pub(crate) partitions_updated: u64,
}

/// A seek of a queue that has nothing to seek on.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NoSuchQueue<'a> {
    pub(crate) success: bool,
    pub(crate) error: &'static str,
    pub(crate) consumer_group: &'a str,
    pub(crate) queue_name: &'a str,
    pub(crate) partitions_updated: u64,
}

/// A seek of one partition.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SoughtPartition<'a> {
    pub(crate) success: bool,
    pub(crate) consumer_group: &'a str,
    pub(crate) queue_name: &'a str,
    pub(crate) partition_name: &'a str,
    pub(crate) seek_to_end: bool,
    pub(crate) target_timestamp: Option<String>,
    pub(crate) updated: bool,
}

/// A seek of a partition that does not exist.
#[derive(JsonSchema, Serialize)]
pub(crate) struct NoSuchPartition {
    pub(crate) success: bool,
    pub(crate) error: &'static str,
}

/// The answer's two fields about where a seek went.
pub(crate) fn target_fields(target: SeekTarget) -> (bool, Option<String>) {
    match target {
        SeekTarget::End => (true, None),
        SeekTarget::Time(at) => (false, Some(time::millis(at))),
    }
}

/// A group's deletion.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GroupDeleted<'a> {
    pub(crate) success: bool,
    pub(crate) consumer_group: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) queue_name: Option<&'a str>,
    pub(crate) deleted_partitions: u64,
    pub(crate) metadata_deleted: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::name::{GroupName, PartitionId, PartitionName, QueueName};
    use tidegate_core::time::Timestamp;
    use uuid::Uuid;

    fn standing(group: &str, queue: &str, partition: &str, lag: u64, seconds: i64) -> GroupStanding {
        GroupStanding {
            group: GroupName::new(group).expect("a name"),
            queue: QueueName::new(queue).expect("a name"),
            partition: PartitionId(Uuid::nil()),
            partition_name: PartitionName::new(partition).expect("a name"),
            lease: None,
            lease_active: false,
            consumed: 1,
            lag,
            oldest_unconsumed: (lag > 0).then_some(Timestamp::EPOCH),
            time_lag: Span::from_secs(seconds),
            stored: true,
        }
    }

    #[test]
    fn standings_are_summed_per_group_and_queue() {
        let standings = [
            standing("g", "a", "1", 3, 301),
            standing("g", "a", "2", 0, 0),
            standing("g", "b", "1", 1, 300),
            GroupStanding { consumed: 0, ..standing("h", "b", "1", 0, 0) },
        ];
        let rows = rows(&standings);
        let seen: Vec<_> =
            rows.iter().map(|r| (r.name, r.queue_name, r.members, r.partitions_with_lag, r.state)).collect();
        assert_eq!(seen, [("g", "a", 2, 1, "Lagging"), ("g", "b", 1, 1, "Stable"), ("h", "b", 1, 0, "Dead")]);
        let text = serde_json::to_string(&rows[0]).expect("it serializes");
        assert_eq!(
            text,
            concat!(
                r#"{"name":"g","topics":["a"],"queueName":"a","members":2,"partitionCursors":2,"partitionsWithLag":1,"#,
                r#""totalLag":3,"maxTimeLag":301,"state":"Lagging","storage":"segments","subscriptionMode":null,"#,
                r#""subscriptionTimestamp":null,"subscriptionCreatedAt":null}"#,
            )
        );
        let detail = serde_json::to_string(&detail(&standings[1..3])).expect("it serializes");
        assert!(detail.starts_with(r#"{"a":{"partitions":[{"partition":"2","workerId":null,"lastConsumedAt":null,"#));
    }

    #[test]
    fn lagging_is_strict_and_sorted() {
        let standings = [
            standing("g", "a", "1", 1, 3600),
            standing("g", "a", "2", 1, 3601),
            standing("g", "a", "3", 1, 7200),
            standing("g", "a", "4", 0, 9999),
            GroupStanding { stored: false, ..standing("g", "a", "5", 1, 9999) },
        ];
        let listed = lagging(&standings, Span::from_secs(3600));
        let seen: Vec<_> = listed.iter().map(|row| (row.partition_name, row.time_lag_seconds, row.lag_hours)).collect();
        assert_eq!(seen, [("3", 7200, 2.0), ("2", 3601, 1.0)]);
    }

    #[test]
    fn seeks_say_what_they_need() {
        let target = |body: &str| seek_target(body.as_bytes()).map_err(|failure| failure.text());
        assert_eq!(target(r#"{"toEnd":true,"timestamp":"garbage"}"#), Ok(Ok(SeekTarget::End)));
        assert_eq!(target(r#"{"toEnd":false,"timestamp":"1970-01-01"}"#), Ok(Ok(SeekTarget::Time(Timestamp::EPOCH))));
        assert!(target(r#"{"timestamp":"garbage"}"#).is_ok_and(|target| target.is_err()));
        for body in ["{}", r#"{"position":"earliest"}"#, r#"{"toEnd":false}"#, r#"{"timestamp":""}"#] {
            assert_eq!(target(body), Err("Must specify toEnd=true or a timestamp".into()), "{body}");
        }
        assert!(target("").is_err_and(|text| text.starts_with("bad body: ")));
        assert!(target(r#"{"toEnd":"yes"}"#).is_err_and(|text| text.starts_with("bad body: toEnd: ")));
    }
}
