//! A monotonic clock as the core's `Moment`s: tokio's, or one that was handed in.

use std::time::Duration;

use tidegate_core::time::{Moment, Span, Timestamp};
use tokio::time::Instant;

/// Monotonic time since its start, and a wall time that goes with it.
///
/// The wall time is told once and then advances at monotonic speed, so a step of the host's clock changes nothing. In
/// tests with tokio's paused time both are virtual.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
    wall: Timestamp,
    /// Reads another monotonic clock, and what it showed at the origin.
    source: Option<(fn() -> Duration, Duration)>,
}

impl Clock {
    /// A clock whose first moment is now, at which the wall shows `wall`.
    pub fn starting_at(wall: Timestamp) -> Self {
        Clock { origin: Instant::now(), wall, source: None }
    }

    /// The same over another monotonic clock: one that runs on while the machine is suspended, since an owner must not
    /// believe that it still owns what it owned before it slept.
    pub fn reading(source: fn() -> Duration, wall: Timestamp) -> Self {
        Clock { origin: Instant::now(), wall, source: Some((source, source())) }
    }

    fn elapsed(&self) -> Duration {
        match self.source {
            Some((read, origin)) => read().saturating_sub(origin),
            None => self.origin.elapsed(),
        }
    }

    /// Now, as monotonic time.
    pub fn moment(&self) -> Moment {
        Moment::from_micros(u64::try_from(self.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    /// Now, as wall time.
    pub fn wall(&self) -> Timestamp {
        self.wall.plus(Span::from_micros(i64::try_from(self.moment().as_micros()).unwrap_or(i64::MAX)))
    }

    /// The instant to sleep until so that `moment` has come; none when it lies beyond what an instant can hold.
    pub(crate) fn instant(&self, moment: Moment) -> Option<Instant> {
        let moment = Duration::from_micros(moment.as_micros());
        match self.source {
            Some(_) => Instant::now().checked_add(moment.saturating_sub(self.elapsed())),
            None => self.origin.checked_add(moment),
        }
    }
}
