//! The store as the driver sees it.

use std::pin::Pin;

use tidegate_core::store::{StoreReply, StoreRequest};
use tidegate_core::time::Timestamp;

use crate::Clock;

/// What a store answers, with its own time.
pub enum Answer {
    /// At once: a store in memory.
    Now(Timestamp, StoreReply),
    /// When it has come over the wire. The future is dropped unfinished when the broker's task ends.
    Later(Pin<Box<dyn Future<Output = (Timestamp, StoreReply)> + Send>>),
}

/// Carries out the core's requests. Requests that are in flight together may be carried out in any order.
pub trait Store: Send + 'static {
    /// Starts `request`; must not block.
    fn call(&mut self, request: StoreRequest) -> Answer;
}

/// A store that answers at once and has no time of its own: it is given the clock's.
pub struct Immediate<F> {
    clock: Clock,
    call: F,
}

impl<F> Immediate<F>
where
    F: FnMut(Timestamp, StoreRequest) -> StoreReply + Send + 'static,
{
    /// Asks `call` with the clock's wall time.
    pub fn new(clock: Clock, call: F) -> Self {
        Immediate { clock, call }
    }
}

impl<F> Store for Immediate<F>
where
    F: FnMut(Timestamp, StoreRequest) -> StoreReply + Send + 'static,
{
    fn call(&mut self, request: StoreRequest) -> Answer {
        let time = self.clock.wall();
        Answer::Now(time, (self.call)(time, request))
    }
}
