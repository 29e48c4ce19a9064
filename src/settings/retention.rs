//! Variables of retention and of what is cleaned up in the background.

use tidegate_core::time::Span;

use super::read::{Environment, Wrong, boolean, integer};

/// How retention works, as far as it is one for all queues.
#[derive(Clone, PartialEq, Debug)]
pub struct Retention {
    /// How long after the start of a cycle the next one starts.
    pub interval: Span,
    /// Rows of segments that one step deletes at most.
    pub batch: u32,
    /// How long after its last message an empty partition is removed; none keeps it.
    pub partition_idle: Option<Span>,
    /// How long it is remembered what was deleted.
    pub history_age: Span,
}

impl Retention {
    pub(super) fn check(environment: &Environment) -> Result<Retention, Wrong> {
        let days = |name, default| {
            let days = integer(environment, name, 1, 36_500, "days")?.unwrap_or(default);
            Ok::<Span, Wrong>(Span::from_days(days))
        };
        let idle = days("PARTITION_CLEANUP_DAYS", 30)?;
        let batch = integer(environment, "RETENTION_BATCH_SIZE", 1, 100_000, "segments")?.unwrap_or(1_000);
        Ok(Retention {
            interval: integer(environment, "RETENTION_INTERVAL", 1, i64::from(i32::MAX), "milliseconds")?
                .map_or(Span::from_secs(5), Span::from_millis),
            batch: u32::try_from(batch).unwrap_or(1_000),
            partition_idle: boolean(environment, "QUEEN_PARTITION_CLEANUP_ENABLED")?.unwrap_or(true).then_some(idle),
            history_age: days("METRICS_RETENTION_DAYS", 90)?,
        })
    }
}
