//! One message by its address. (queen-http.md 14)

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use tidegate_core::reply::{MessageDetail, MessageGroup, PushOutcome, Replayed};

use crate::time;
use crate::wire::listing::status_name;
use crate::wire::{json, push};

/// What `GET` of a message's address shows.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Detail<'a> {
    id: String,
    transaction_id: &'a str,
    #[schemars(with = "serde_json::Value")]
    data: Option<&'a RawValue>,
    #[schemars(with = "serde_json::Value")]
    payload: Option<&'a RawValue>,
    trace_id: Option<String>,
    producer_sub: Option<&'a str>,
    created_at: String,
    partition_id: String,
    partition: &'a str,
    queue: &'a str,
    queue_path: String,
    namespace: &'a str,
    task: &'a str,
    is_encrypted: bool,
    status: &'static str,
    error_message: Option<&'a str>,
    retry_count: u32,
    /// Queue mode's.
    lease_expires_at: Option<String>,
    queue_config: QueueConfig,
    mode: Mode,
    consumer_groups: Vec<Group<'a>>,
}

#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct QueueConfig {
    lease_time: i64,
    retry_limit: i64,
    retry_delay: i64,
    ttl: i64,
    priority: i64,
}

#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct Mode {
    has_queue_mode: bool,
    bus_groups_count: usize,
    r#type: &'static str,
}

#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct Group<'a> {
    name: &'a str,
    group: &'a str,
    consumed: bool,
    lease_expires_at: Option<String>,
}

impl<'a> Detail<'a> {
    pub(crate) fn new(message: &'a MessageDetail) -> Self {
        let payload = json::raw(message.payload.as_ref());
        let queue_mode = message.groups.iter().find(|group| group.group.is_queue_mode());
        let bus_groups = message.groups.len() - usize::from(queue_mode.is_some());
        let (error, retries) = match &message.dead_letter {
            Some((error, retries)) => (Some(error.as_str()), *retries),
            None => (None, 0),
        };
        Detail {
            id: message.id.to_string(),
            transaction_id: &message.transaction,
            data: payload,
            payload,
            trace_id: message.trace.map(|trace| trace.to_string()),
            producer_sub: message.producer.as_deref(),
            created_at: time::micros(message.created),
            partition_id: message.partition.to_string(),
            partition: message.partition_name.as_str(),
            queue: message.queue.as_str(),
            queue_path: format!("{}/{}", message.queue, message.partition_name),
            namespace: &message.labels.namespace,
            task: &message.labels.task,
            is_encrypted: message.encrypted,
            status: status_name(message.status),
            error_message: error,
            retry_count: retries,
            lease_expires_at: queue_mode.and_then(|group| group.lease_expires).map(time::micros),
            queue_config: QueueConfig {
                lease_time: message.options.lease_time,
                retry_limit: message.options.retry_limit,
                retry_delay: message.options.retry_delay,
                ttl: message.options.ttl,
                priority: message.options.priority,
            },
            mode: Mode {
                has_queue_mode: queue_mode.is_some(),
                bus_groups_count: bus_groups,
                r#type: if bus_groups > 0 { "bus" } else { "queue" },
            },
            consumer_groups: message.groups.iter().map(group).collect(),
        }
    }
}

fn group(group: &MessageGroup) -> Group<'_> {
    Group {
        name: group.group.as_str(),
        group: group.group.as_str(),
        consumed: group.consumed,
        lease_expires_at: group.lease_expires.map(time::micros),
    }
}

/// What deleting an address's dead letters says, and what replaying one says where there is none.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AtAddress<'a> {
    success: bool,
    partition_id: &'a str,
    transaction_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'static str>,
    message: &'static str,
}

impl<'a> AtAddress<'a> {
    pub(crate) fn deleted(partition_id: &'a str, transaction_id: &'a str) -> Self {
        let message = "Message deleted successfully";
        AtAddress { success: true, partition_id, transaction_id, error: None, message }
    }

    pub(crate) fn nothing_to_delete(partition_id: &'a str, transaction_id: &'a str) -> Self {
        let message =
            "No dead-letter row for this address. Live messages live in immutable segments and cannot be deleted";
        AtAddress { success: false, partition_id, transaction_id, error: Some("Message not found"), message }
    }

    pub(crate) fn nothing_to_replay(partition_id: &'a str, transaction_id: &'a str) -> Self {
        let message = "No dead-letter row for this address. Only dead-lettered messages can be replayed";
        AtAddress { success: false, partition_id, transaction_id, error: Some("Message not found"), message }
    }
}

/// The answer to a replay.
pub(crate) fn replayed(replayed: &Replayed) -> Vec<u8> {
    let mut out = b"{\"success\":true,\"queue\":".to_vec();
    json::text(&mut out, replayed.queue.as_str());
    out.extend_from_slice(b",\"partition\":");
    json::text(&mut out, replayed.partition.as_str());
    out.extend_from_slice(b",\"replayedAs\":");
    push::result(&mut out, 0, None, replayed.queue.as_str(), PushOutcome::Queued(replayed.id));
    out.extend_from_slice(b",\"dlqRowRemoved\":true}");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use tidegate_core::name::{GroupName, MessageId, PartitionId, PartitionName, QueueName};
    use tidegate_core::options::{Labels, QueueOptions};
    use tidegate_core::reply::MessageStatus;
    use tidegate_core::time::Timestamp;
    use uuid::Uuid;

    #[test]
    fn the_detail_is_exact() {
        let group = |name: &str, expires| MessageGroup {
            group: GroupName::new(name).expect("a name"),
            consumed: false,
            lease_expires: expires,
        };
        let detail = MessageDetail {
            id: MessageId(Uuid::from_u128(1)),
            transaction: "t".into(),
            payload: Some(Bytes::from_static(b"{\"a\": 1.0}")),
            trace: None,
            encrypted: false,
            producer: None,
            created: Timestamp::from_micros(1),
            partition: PartitionId(Uuid::from_u128(2)),
            partition_name: PartitionName::new("p").expect("a name"),
            queue: QueueName::new("q").expect("a name"),
            labels: Labels::derived("q"),
            options: QueueOptions::configured(),
            status: MessageStatus::DeadLetter,
            dead_letter: Some(("bad".into(), 3)),
            groups: vec![group("__QUEUE_MODE__", Some(Timestamp::from_micros(2))), group("g", None)],
        };
        let zeros = "00000000-0000-0000-0000-00000000000";
        let expected = [
            &format!(
                r#"{{"id":"{zeros}1","transactionId":"t","data":{{"a": 1.0}},"payload":{{"a": 1.0}},"traceId":null,"#
            ),
            r#""producerSub":null,"createdAt":"1970-01-01T00:00:00.000001Z","#,
            &format!(
                r#""partitionId":"{zeros}2","partition":"p","queue":"q","queuePath":"q/p","namespace":"q","task":"","#
            ),
            r#""isEncrypted":false,"status":"dead_letter","errorMessage":"bad","retryCount":3,"#,
            r#""leaseExpiresAt":"1970-01-01T00:00:00.000002Z","#,
            r#""queueConfig":{"leaseTime":300,"retryLimit":3,"retryDelay":1000,"ttl":3600,"priority":0},"#,
            r#""mode":{"hasQueueMode":true,"busGroupsCount":1,"type":"bus"},"consumerGroups":["#,
            r#"{"name":"__QUEUE_MODE__","group":"__QUEUE_MODE__","consumed":false,"#,
            r#""leaseExpiresAt":"1970-01-01T00:00:00.000002Z"},"#,
            r#"{"name":"g","group":"g","consumed":false,"leaseExpiresAt":null}]}"#,
        ];
        assert_eq!(serde_json::to_string(&Detail::new(&detail)).expect("it serializes"), expected.concat());
    }
}
