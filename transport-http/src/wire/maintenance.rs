//! Switching pushes or pops off for a while. (queen-http.md 17)

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::body::{Object, Text, parse};
use crate::error::Failure;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct SwitchBody {
    enabled: Option<bool>,
}

/// Whether a body switches on or off.
pub(crate) fn enabled(body: &[u8]) -> Result<bool, Failure> {
    let Object(body) = parse::<Object<SwitchBody>>(body)?;
    body.enabled.ok_or_else(|| Failure::bad_request("enabled (boolean) is required"))
}

/// How push maintenance stands. Nothing is buffered: while it is on, pushes are refused.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PushSwitched {
    maintenance_mode: bool,
    buffered_messages: u64,
    buffer_healthy: bool,
    message: &'static str,
}

impl PushSwitched {
    pub(crate) fn new(on: bool) -> Self {
        let message = match on {
            true => "Maintenance mode ENABLED. All PUSHes are refused with 503.",
            false => "Maintenance mode DISABLED. Normal operation resumed.",
        };
        PushSwitched { maintenance_mode: on, buffered_messages: 0, buffer_healthy: true, message }
    }
}

/// Both switches, and a buffer that is always empty.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Both {
    pub(crate) maintenance_mode: bool,
    pub(crate) pop_maintenance_mode: bool,
    pub(crate) buffered_messages: u64,
    pub(crate) buffer_healthy: bool,
    pub(crate) buffer_stats: BufferStats,
}

#[derive(Serialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BufferStats {
    pub(crate) pending_count: u64,
    pub(crate) failed_count: u64,
    pub(crate) db_healthy: bool,
    pub(crate) failed_files: FailedFiles,
}

#[derive(Serialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FailedFiles {
    count: u64,
    total_bytes: u64,
    #[serde(rename = "totalMB")]
    total_mb: u64,
    failover_count: u64,
    qos0_count: u64,
}

impl Both {
    pub(crate) fn new(push: bool, pop: bool) -> Self {
        Both {
            maintenance_mode: push,
            pop_maintenance_mode: pop,
            buffered_messages: 0,
            buffer_healthy: true,
            buffer_stats: BufferStats { db_healthy: true, ..BufferStats::default() },
        }
    }
}

/// How pop maintenance stands.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Pops {
    pub(crate) pop_maintenance_mode: bool,
    pub(crate) message: &'static str,
}

/// What brokers share by other means than a mesh of their own.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SharedState {
    pub(crate) enabled: bool,
    pub(crate) reason: &'static str,
    pub(crate) maintenance_mode: bool,
    pub(crate) pop_maintenance_mode: bool,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct NotifyBody<'b> {
    #[serde(borrow)]
    #[schemars(with = "String")]
    queue: Option<Text<'b>>,
    #[serde(borrow)]
    #[schemars(with = "Option<String>")]
    partition: Option<Text<'b>>,
}

/// Reads what somebody says was pushed.
pub(crate) fn notify(body: &[u8]) -> Result<(), Failure> {
    use tidegate_core::name::{PartitionName, QueueName};
    let Object(body) = parse::<Object<NotifyBody>>(body)?;
    let queue = body.queue.ok_or_else(|| Failure::bad_request("queue is required"))?;
    QueueName::new(&queue).map_err(|error| Failure::bad_name("queue", error))?;
    if let Some(partition) = body.partition {
        PartitionName::new(&partition).map_err(|error| Failure::bad_name("partition", error))?;
    }
    Ok(())
}

/// It was heard.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Heard {
    pub(crate) status: &'static str,
}

/// Counters of a mesh that there is none of.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Mesh {
    pub(crate) enabled: bool,
    pub(crate) peers: Vec<String>,
}
