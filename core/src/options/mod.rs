//! What a user may configure on a queue. The struct is here, one row per option in `table.rs`.

mod table;

use alloc::string::String;
use compact_str::CompactString;

use crate::time::Span;
pub use table::{Kind, OPTIONS, OptionSpec, OptionValue};

/// The resolved options of one queue: what `configure` echoes and every rule reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueOptions {
    /// Seconds a lease lives when the pop names none (OPT-3); 0 expires at once.
    pub lease_time: i64,
    /// Failed acks that redeliver before the next one dead-letters (OPT-6).
    pub retry_limit: i64,
    /// Milliseconds; shown only.
    pub retry_delay: i64,
    /// Shown only.
    pub priority: i64,
    /// Shown only: a push is never refused for it.
    pub max_size: i64,
    /// Seconds; shown only.
    pub ttl: i64,
    /// Dead-letter what exhausts its retries; ORed with the next (OPT-9).
    pub dead_letter_queue: bool,
    /// The other half of the OR (OPT-9).
    pub dlq_after_max_retries: bool,
    /// Seconds from commit to the first delivery (OPT-10).
    pub delayed_processing: i64,
    /// Seconds a partition gathers before it is delivered (OPT-12, OPT-13).
    pub window_buffer: i64,
    /// Gates the two retention windows (OPT-14).
    pub retention_enabled: bool,
    /// Seconds; older segments go, consumed or not (OPT-15).
    pub retention_seconds: i64,
    /// Seconds; older segments go once every group has them behind it (OPT-18).
    pub completed_retention_seconds: i64,
    /// Seconds; older segments go for everybody, whatever the gate says (OPT-19).
    pub max_wait_time_seconds: i64,
    /// Milliseconds an under-full long poll is held back (OPT-20).
    pub min_pop_wait_time: i64,
    /// Seal payloads at rest (OPT-22).
    pub encryption_enabled: bool,
    /// Seconds in which a repeated transaction id is a duplicate (OPT-24); 0 is off.
    pub dedup_window_seconds: i64,
}

impl QueueOptions {
    /// What a `configure` that names no option stores.
    pub fn configured() -> Self {
        QueueOptions {
            lease_time: 300,
            retry_limit: 3,
            retry_delay: 1_000,
            priority: 0,
            max_size: 0,
            ttl: 3_600,
            dead_letter_queue: true,
            dlq_after_max_retries: true,
            delayed_processing: 0,
            window_buffer: 0,
            retention_enabled: false,
            retention_seconds: 0,
            completed_retention_seconds: 0,
            max_wait_time_seconds: 0,
            min_pop_wait_time: 0,
            encryption_enabled: false,
            dedup_window_seconds: 3_600,
        }
    }

    /// What a queue has that was made by a push or a pop: the column defaults. Only the lease differs (CFG-8).
    pub fn implicit() -> Self {
        QueueOptions { lease_time: 60, ..Self::configured() }
    }

    /// The lease of a pop that asks for `requested` (OPT-3).
    pub fn lease(&self, requested: Option<Span>) -> Span {
        plant!(LeaseLengthIgnored => return Span::from_secs(self.lease_time));
        match requested {
            Some(span) if span.is_positive() => span,
            _ => Span::from_secs(self.lease_time),
        }
    }

    /// Whether an exhausted message is dead-lettered; else it is dropped (OPT-9).
    pub fn dead_letters(&self) -> bool {
        plant!(DeadLettersNeedBothFlags => return self.dead_letter_queue && self.dlq_after_max_retries);
        self.dead_letter_queue || self.dlq_after_max_retries
    }
}

/// Labels by which a discovery pop finds a queue.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Labels {
    /// First dimension (OPT-1).
    pub namespace: CompactString,
    /// Second dimension (OPT-2).
    pub task: CompactString,
}

impl Labels {
    /// What a queue that nobody configured gets from its name (CFG-6): `a.b.c` has namespace `a` and task `b`; a name
    /// without a dot is its own namespace.
    pub fn derived(queue: &str) -> Self {
        let mut parts = queue.splitn(3, '.');
        let namespace = parts.next().unwrap_or_default();
        Labels { namespace: namespace.into(), task: parts.next().unwrap_or_default().into() }
    }

    /// Whether a discovery pop for `wanted` takes from a queue with these labels: exact equality, an empty label asks
    /// for nothing.
    pub fn match_wanted(&self, wanted: &Labels) -> bool {
        let fits = |have: &CompactString, want: &CompactString| want.is_empty() || have == want;
        fits(&self.namespace, &wanted.namespace) && fits(&self.task, &wanted.task)
    }
}

/// An option's value as a client spelled it; the wire decides only which of these it is.
#[derive(Clone, PartialEq, Debug)]
pub enum RawValue<'a> {
    /// JSON null: the default.
    Null,
    /// `true` or `false`.
    Boolean(bool),
    /// The text of a JSON number.
    Number(&'a str),
    /// A JSON string.
    Text(&'a str),
    /// An array or an object.
    Other(&'a str),
}

/// An option was given a value it cannot take: the text names the option and what was expected.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct OptionError(pub String);
