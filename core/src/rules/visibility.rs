//! When a partition has something to give to a group: leases, delay and debounce in one place.

use crate::log::{LogView, Question};
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
    /// What is known of hashes and commit times.
    pub log: LogView<'a>,
    /// First retained offset.
    pub start: u64,
    /// One past the last durable message.
    pub end: u64,
}

/// Where a group stands on a partition at `now`.
///
/// A live lease hides its partition from the group (OPT-4) and nothing runs when it expires (OPT-5). `delayedProcessing`
/// and `windowBuffer` follow from what is stored alone, so a restart, a nack or an expiry changes neither. While too little
/// is known of the log (`unknown`), nothing but a lease holds messages back.
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
    let leased = cursor.lease.filter(|lease| lease.lives(now) && !plant!(LeaseHidesNothing)).map(|lease| lease.expires);
    let gathered = match unknown(cursor, partition, options, rule, 1, now) {
        None => gathered(first, partition, options, rule),
        Some(_) => Timestamp::MIN,
    };
    let due = leased.unwrap_or(Timestamp::MIN).max(gathered);
    if due <= now { Standing::Ready } else { Standing::DueAt(due) }
}

/// The time from which on commit times matter: what is older is let go by delay and window; none where none matters.
fn matters_since(
    first: u64,
    partition: Durable<'_>,
    options: &QueueOptions,
    rule: WindowRule,
    now: Timestamp,
) -> Option<Timestamp> {
    let delay = Span::from_secs(options.delayed_processing);
    let window = Span::from_secs(options.window_buffer);
    // Without the hot list the last message's time decides, which is always known.
    let by_first = rule.hot_list && window.is_positive();
    let early = by_first && !delay.is_positive() && partition.end - first >= rule.batch;
    let longest = delay.max(if by_first { window } else { Span::ZERO });
    (longest.is_positive() && !early).then(|| now.minus(longest).next())
}

/// What has to be known of the log before it can be said how the partition stands and what `budget` messages a pop may
/// take. Until then it passes for ready.
pub fn unknown(
    cursor: &Cursor,
    partition: Durable<'_>,
    options: &QueueOptions,
    rule: WindowRule,
    budget: u64,
    now: Timestamp,
) -> Option<Question> {
    let first = cursor.next.max(partition.start);
    if first >= partition.end {
        return None;
    }
    let since = matters_since(first, partition, options, rule, now)?;
    let to = first.saturating_add(budget).saturating_add(1).min(partition.end);
    (!partition.log.tells_times(first..to, since)).then(|| Question::times(since, first, to))
}

/// When delay and window let go of the messages from `first` on.
fn gathered(first: u64, partition: Durable<'_>, options: &QueueOptions, rule: WindowRule) -> Timestamp {
    let mut delay = Span::from_secs(options.delayed_processing);
    let mut window = Span::from_secs(options.window_buffer);
    plant!(DelayEarlyByOne => delay = delay.plus(Span::from_micros(-1)));
    plant!(DelayLateByOne => delay = delay.plus(Span::from_micros(i64::from(delay.is_positive()))));
    plant!(WindowIgnored => window = Span::ZERO);
    plant!(WindowEarlyByOne => window = window.plus(Span::from_micros(-1)));
    plant!(WindowLateByOne => window = window.plus(Span::from_micros(i64::from(window.is_positive()))));
    if !delay.is_positive() && !window.is_positive() {
        return Timestamp::MIN;
    }
    // What is not known is older than all that matters, or is asked about before anything is taken (`unknown`).
    let created = |offset| partition.log.created_of(offset).unwrap_or(Timestamp::MIN);
    let delayed = created(first).plus(delay);
    if !window.is_positive() {
        return delayed;
    }
    if !rule.hot_list {
        return delayed.max(partition.log.last_below(partition.end).unwrap_or(Timestamp::MIN).plus(window));
    }
    plant!(WindowBySilence => return delayed.max(partition.log.last_below(partition.end).unwrap_or(delayed).plus(window)));
    if !delay.is_positive() && partition.end - first >= rule.batch + u64::from(plant!(WindowBatchLate)) {
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
    let mut delay = Span::from_secs(options.delayed_processing);
    plant!(DelayIgnoredInBatch => delay = Span::ZERO);
    plant!(DelayEarlyByOne => delay = delay.plus(Span::from_micros(-1)));
    let end = partition.end.min(first.saturating_add(budget)).max(first);
    (first, if delay.is_positive() { partition.log.end_at(first..end, now.minus(delay)) } else { end })
}
