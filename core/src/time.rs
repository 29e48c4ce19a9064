//! Time as the core is given it: integers, never read from a clock.
//!
//! Two times exist (design.md 5). *Monotonic* time (`Moment`) measures waits, timeouts and how long a slot is owned.
//! *Store* time (`Timestamp`) is what is written down: commit times, lease expiries, delays. A `Now` carries both.

use core::fmt;

/// A length of time in microseconds. Arithmetic saturates, so no option a client can send wraps around.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Span(i64);

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);

    /// A span of `micros` microseconds.
    pub const fn from_micros(micros: i64) -> Self {
        Span(micros)
    }

    /// A span of `millis` milliseconds.
    pub const fn from_millis(millis: i64) -> Self {
        Span(millis.saturating_mul(1_000))
    }

    /// A span of `days` days.
    pub const fn from_days(days: i64) -> Self {
        Self::from_secs(days.saturating_mul(86_400))
    }

    /// A span of `secs` seconds.
    pub const fn from_secs(secs: i64) -> Self {
        Span(secs.saturating_mul(1_000_000))
    }

    /// The span in microseconds.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// The span in whole seconds, rounded towards zero.
    pub const fn as_secs(self) -> i64 {
        self.0 / 1_000_000
    }

    /// Both spans, one after the other.
    pub const fn plus(self, other: Span) -> Self {
        Span(self.0.saturating_add(other.0))
    }

    /// Whether the span is longer than nothing.
    pub const fn is_positive(self) -> bool {
        self.0 > 0
    }
}

/// A point in store time: microseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// 1970-01-01T00:00:00Z.
    pub const EPOCH: Timestamp = Timestamp(0);
    /// Before everything.
    pub const MIN: Timestamp = Timestamp(i64::MIN);
    /// After everything.
    pub const MAX: Timestamp = Timestamp(i64::MAX);

    /// The point `micros` microseconds after 1970.
    pub const fn from_micros(micros: i64) -> Self {
        Timestamp(micros)
    }

    /// Microseconds since 1970.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Whole milliseconds since 1970, never negative: what a version 7 UUID carries.
    pub const fn as_unix_millis(self) -> u64 {
        if self.0 < 0 { 0 } else { (self.0 / 1_000) as u64 }
    }

    /// The point `span` later.
    pub const fn plus(self, span: Span) -> Self {
        Timestamp(self.0.saturating_add(span.0))
    }

    /// The point `span` earlier.
    pub const fn minus(self, span: Span) -> Self {
        Timestamp(self.0.saturating_sub(span.0))
    }

    /// How much later this point is than `earlier`; negative when it is earlier.
    pub const fn since(self, earlier: Timestamp) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// The next representable point: what "strictly later" means here.
    pub const fn next(self) -> Self {
        Timestamp(self.0.saturating_add(1))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}µs", self.0)
    }
}

/// A point in monotonic time: microseconds since some moment of this process's life.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Moment(u64);

impl Moment {
    /// The moment `micros` microseconds after the clock's origin.
    pub const fn from_micros(micros: u64) -> Self {
        Moment(micros)
    }

    /// Microseconds since the clock's origin.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The moment `span` later; a negative span counts as nothing.
    pub const fn plus(self, span: Span) -> Self {
        Moment(self.0.saturating_add(if span.0 < 0 { 0 } else { span.0 as u64 }))
    }

    /// How long after `earlier` this is; nothing when it is not.
    pub const fn since(self, earlier: Moment) -> Span {
        let micros = self.0.saturating_sub(earlier.0);
        Span(if micros > i64::MAX as u64 { i64::MAX } else { micros as i64 })
    }
}

/// Both times of one input, read after the input was taken from its queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Now {
    /// For waits, timeouts and ownership.
    pub monotonic: Moment,
    /// For everything that is stored.
    pub store: Timestamp,
}

/// Store time between two answers of the store: the time in its last answer plus the monotonic time since.
///
/// It never steps back: when the store's own clock does, this one goes on at monotonic speed.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreClock {
    heard: Timestamp,
    heard_at: Moment,
}

impl StoreClock {
    /// A clock that starts at `time`.
    pub fn new(time: Timestamp, at: Moment) -> Self {
        StoreClock { heard: time, heard_at: at }
    }

    /// Takes the time in an answer of the store into account.
    pub fn observe(&mut self, time: Timestamp, at: Moment) {
        self.heard = time.max(self.at(at));
        self.heard_at = at;
    }

    /// Store time at monotonic `moment`.
    pub fn at(&self, moment: Moment) -> Timestamp {
        self.heard.plus(moment.since(self.heard_at))
    }

    /// Both times at monotonic `moment`.
    pub fn now(&self, moment: Moment) -> Now {
        Now { monotonic: moment, store: self.at(moment) }
    }
}
