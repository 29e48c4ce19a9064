//! One row per option: name, type, bounds, documentation, and how to reach its field. Defaults come from
//! `QueueOptions::configured`, so they are written once.

use alloc::format;

use super::{OptionError, QueueOptions, RawValue};
use crate::name::excerpt;

/// What an option's value may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A whole number.
    Integer {
        /// The least value.
        min: i64,
        /// The greatest value.
        max: i64,
        /// Out of bounds: move to the nearest bound instead of refusing.
        clamp: bool,
    },
    /// true or false.
    Boolean,
}

/// A resolved value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OptionValue {
    /// Of an integer option.
    Integer(i64),
    /// Of a boolean option.
    Boolean(bool),
}

/// The field of an option, by type.
#[derive(Clone, Copy, Debug)]
enum Field {
    Integer(fn(&mut QueueOptions) -> &mut i64),
    Boolean(fn(&mut QueueOptions) -> &mut bool),
}

/// One option.
#[derive(Clone, Copy, Debug)]
pub struct OptionSpec {
    /// Its key on the wire.
    pub name: &'static str,
    /// What it accepts.
    pub kind: Kind,
    /// The unit of an integer: `s`, `ms` or nothing.
    pub unit: &'static str,
    /// Whether a rule reads it; false means stored and shown only.
    pub enforced: bool,
    /// What it does, in a sentence.
    pub help: &'static str,
    field: Field,
}

const fn integer(
    name: &'static str,
    unit: &'static str,
    enforced: bool,
    help: &'static str,
    field: fn(&mut QueueOptions) -> &mut i64,
) -> OptionSpec {
    let kind = Kind::Integer { min: 0, max: i32::MAX as i64, clamp: false };
    OptionSpec { name, kind, unit, enforced, help, field: Field::Integer(field) }
}

const fn boolean(
    name: &'static str,
    enforced: bool,
    help: &'static str,
    field: fn(&mut QueueOptions) -> &mut bool,
) -> OptionSpec {
    OptionSpec { name, kind: Kind::Boolean, unit: "", enforced, help, field: Field::Boolean(field) }
}

/// Every option, in the order in which `configure` echoes them.
pub const OPTIONS: [OptionSpec; 17] = [
    integer("leaseTime", "s", true, "How long a popped batch stays leased when the pop names no lease.", |o| {
        &mut o.lease_time
    }),
    integer("retryLimit", "", true, "Failed acks that redeliver before the next one dead-letters or drops.", |o| {
        &mut o.retry_limit
    }),
    integer("retryDelay", "ms", false, "Stored and shown; nothing enforces it.", |o| &mut o.retry_delay),
    OptionSpec {
        kind: Kind::Integer { min: i32::MIN as i64, max: i32::MAX as i64, clamp: false },
        ..integer("priority", "", false, "Stored and shown; nothing enforces it.", |o| &mut o.priority)
    },
    integer("maxSize", "", false, "Stored and shown; a push is never refused for it.", |o| &mut o.max_size),
    integer("ttl", "s", false, "Stored and shown; nothing enforces it.", |o| &mut o.ttl),
    boolean("deadLetterQueue", true, "Dead-letter what exhausts its retries; either flag is enough.", |o| {
        &mut o.dead_letter_queue
    }),
    boolean("dlqAfterMaxRetries", true, "Dead-letter what exhausts its retries; either flag is enough.", |o| {
        &mut o.dlq_after_max_retries
    }),
    integer("delayedProcessing", "s", true, "A message is delivered no earlier than this after its commit.", |o| {
        &mut o.delayed_processing
    }),
    integer("windowBuffer", "s", true, "A partition gathers messages this long before it delivers them.", |o| {
        &mut o.window_buffer
    }),
    boolean("retentionEnabled", false, "Stored and shown; retention is not part of this version.", |o| {
        &mut o.retention_enabled
    }),
    integer("retentionSeconds", "s", false, "Stored and shown; retention is not part of this version.", |o| {
        &mut o.retention_seconds
    }),
    integer(
        "completedRetentionSeconds",
        "s",
        true,
        "Lengthens how long an ack can be resolved; retention itself is not part of this version.",
        |o| &mut o.completed_retention_seconds,
    ),
    integer("maxWaitTimeSeconds", "s", false, "Stored and shown; retention is not part of this version.", |o| {
        &mut o.max_wait_time_seconds
    }),
    OptionSpec {
        kind: Kind::Integer { min: 0, max: 60_000, clamp: true },
        ..integer("minPopWaitTime", "ms", true, "How long an under-full long poll is held back for more.", |o| {
            &mut o.min_pop_wait_time
        })
    },
    boolean(
        "encryptionEnabled",
        false,
        "Payloads are stored encrypted under QUEEN_ENCRYPTION_KEY; without it pushes are refused.",
        |o| &mut o.encryption_enabled,
    ),
    integer("dedupWindowSeconds", "s", true, "A repeated transaction id within it is a duplicate; 0 is off.", |o| {
        &mut o.dedup_window_seconds
    }),
];

impl OptionSpec {
    /// The option called `name`.
    pub fn find(name: &str) -> Option<&'static OptionSpec> {
        OPTIONS.iter().find(|spec| spec.name == name)
    }

    /// The option's value in `options`.
    pub fn get(&self, options: &QueueOptions) -> OptionValue {
        let mut copy = options.clone();
        match self.field {
            Field::Integer(field) => OptionValue::Integer(*field(&mut copy)),
            Field::Boolean(field) => OptionValue::Boolean(*field(&mut copy)),
        }
    }

    /// Stores what a client sent (CFG-10): digit strings and the usual spellings of a boolean are accepted, null means
    /// the default, everything else is an error that names the option.
    pub fn set(&self, options: &mut QueueOptions, raw: &RawValue<'_>) -> Result<(), OptionError> {
        if *raw == RawValue::Null {
            return Ok(());
        }
        match (self.field, self.kind) {
            (Field::Integer(field), Kind::Integer { min, max, clamp }) => {
                let value = self.whole_number(raw)?;
                if !clamp && !(min..=max).contains(&value) {
                    return Err(self.refuse(raw, &format!("a whole number from {min} to {max}")));
                }
                *field(options) = value.clamp(min, max);
            }
            (Field::Boolean(field), _) => *field(options) = self.truth(raw)?,
            (Field::Integer(_), Kind::Boolean) => {}
        }
        Ok(())
    }

    fn whole_number(&self, raw: &RawValue<'_>) -> Result<i64, OptionError> {
        let text = match raw {
            RawValue::Number(text) | RawValue::Text(text) => *text,
            RawValue::Null | RawValue::Boolean(_) | RawValue::Other(_) => "",
        };
        let digits = text.strip_prefix('-').unwrap_or(text);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(self.refuse(raw, "a whole number"));
        }
        // A number beyond 64 bits is out of any option's bounds: which bound is all that matters.
        Ok(text.parse().unwrap_or(if text.starts_with('-') { i64::MIN } else { i64::MAX }))
    }

    fn truth(&self, raw: &RawValue<'_>) -> Result<bool, OptionError> {
        let word = match raw {
            RawValue::Boolean(value) => return Ok(*value),
            RawValue::Number(text) | RawValue::Text(text) => *text,
            RawValue::Null | RawValue::Other(_) => "",
        };
        let says = |words: &[&str]| words.iter().any(|known| known.eq_ignore_ascii_case(word));
        if says(&["1", "t", "true", "y", "yes", "on"]) {
            Ok(true)
        } else if says(&["0", "f", "false", "n", "no", "off"]) {
            Ok(false)
        } else {
            Err(self.refuse(raw, "true or false"))
        }
    }

    fn refuse(&self, raw: &RawValue<'_>, expected: &str) -> OptionError {
        let given = match raw {
            RawValue::Null => "null".into(),
            RawValue::Boolean(value) => format!("{value}"),
            RawValue::Number(text) | RawValue::Other(text) => excerpt(text),
            RawValue::Text(text) => format!("{:?}", excerpt(text)),
        };
        OptionError(format!("option {} must be {expected}, got {given}", self.name))
    }
}
