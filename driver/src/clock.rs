//! Tokio's monotonic clock as the core's `Moment`s.

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
}

impl Clock {
    /// A clock whose first moment is now, at which the wall shows `wall`.
    pub fn starting_at(wall: Timestamp) -> Self {
        Clock { origin: Instant::now(), wall }
    }

    /// Now, as monotonic time.
    pub fn moment(&self) -> Moment {
        Moment::from_micros(u64::try_from(self.origin.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    /// Now, as wall time.
    pub fn wall(&self) -> Timestamp {
        self.wall.plus(Span::from_micros(i64::try_from(self.moment().as_micros()).unwrap_or(i64::MAX)))
    }

    /// The instant to sleep until so that `moment` has come; none when it lies beyond what an instant can hold.
    pub(crate) fn instant(&self, moment: Moment) -> Option<Instant> {
        self.origin.checked_add(Duration::from_micros(moment.as_micros()))
    }
}
