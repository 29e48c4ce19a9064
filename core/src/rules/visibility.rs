//! When a partition has something to give to a group: leases, delay and debounce in one place.

use crate::log::Log;
use crate::options::QueueOptions;
use crate::record::Cursor;
use crate::time::{Span, Timestamp};

/// What is fixed for all queues of a broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowRule {
    /// `QUEEN_HOTLIST`: debounce by the first waiting message and its count; else by silence.
    pub hot_list: bool,
    /// Messages that end a window early.
    pub batch: u64,
}

/// How a partition stands for a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Nothing waits.
    Empty,
    /// What waits may be taken.
    Ready,
    /// Something waits and may be taken from this time on.
    DueAt(Timestamp),
}

/// The durable part of a partition, as far as visibility asks.
#[derive(Clone, Copy)]
pub struct Durable<'a> {
    /// Segments and their commit times.
    pub log: &'a Log,
    /// First retained offset.
    pub start: u64,
    /// One past the last durable message.
    pub end: u64,
}

/// Where a group stands on a partition at `now`.
///
/// A live lease hides its partition from the group (OPT-4) and nothing runs when it expires (OPT-5). `delayedProcessing`
/// and `windowBuffer` follow from what is stored alone, so a restart, a nack or an expiry changes neither.
pub fn standing(
    cursor: &Cursor,
    partition: Durable<'_>,
    options: &QueueOptions,
    rule: WindowRule,
    now: Timestamp,
) -> Standing {
    let first = cursor.next.max(partition.start);
    if first >= partition.end {
        return Standing::Empty;
    }
    let leased = cursor.lease.filter(|lease| lease.lives(now)).map(|lease| lease.expires);
    let due = leased.unwrap_or(Timestamp::MIN).max(gathered(first, partition, options, rule));
    if due <= now { Standing::Ready } else { Standing::DueAt(due) }
}

/// When delay and window let go of the messages from `first` on.
fn gathered(first: u64, partition: Durable<'_>, options: &QueueOptions, rule: WindowRule) -> Timestamp {
    let delay = Span::from_secs(options.delayed_processing);
    let window = Span::from_secs(options.window_buffer);
    if !delay.is_positive() && !window.is_positive() {
        return Timestamp::MIN;
    }
    let created = |offset| partition.log.created_of(offset).unwrap_or(Timestamp::MIN);
    let delayed = created(first).plus(delay);
    if !window.is_positive() {
        return delayed;
    }
    if !rule.hot_list {
        return delayed.max(created(partition.end - 1).plus(window));
    }
    if !delay.is_positive() && partition.end - first >= rule.batch {
        return Timestamp::MIN;
    }
    delayed.max(created(first).plus(window))
}

/// The messages a pop may take now: from the first wanted, at most `budget`, and no message younger than the delay.
pub fn deliverable(
    cursor: &Cursor,
    partition: Durable<'_>,
    options: &QueueOptions,
    budget: u64,
    now: Timestamp,
) -> (u64, u64) {
    let first = cursor.next.max(partition.start);
    let delay = Span::from_secs(options.delayed_processing);
    let due = if delay.is_positive() { partition.log.end_at(now.minus(delay)) } else { partition.end };
    (first, due.min(partition.end).min(first.saturating_add(budget)).max(first))
}
