//! What tests of several crates share: the store port's conformance suite, and a store that misbehaves on command.

pub mod conformance;
pub mod faulty;

use crate::store::{StoreReply, StoreRequest};
use crate::time::Timestamp;

/// A store that answers on the spot. `now` is its own time.
pub trait Store {
    /// Carries out one request.
    fn call(&mut self, now: Timestamp, request: StoreRequest) -> StoreReply;
}

impl<S: Store + ?Sized> Store for alloc::boxed::Box<S> {
    fn call(&mut self, now: Timestamp, request: StoreRequest) -> StoreReply {
        (**self).call(now, request)
    }
}
