//! What became of requests that belong to other brokers, counted for the metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one process; each only grows.
#[derive(Default, Debug)]
pub(crate) struct Forwards {
    /// Requests sent to the owner of their slot; each counts once.
    pub(crate) forwarded: Count,
    /// Requests that waited for an owner, wherever they were answered then; each counts once.
    pub(crate) held: Count,
    /// Times a request was sent that had been sent before.
    pub(crate) sent_again: Count,
    /// Requests answered `outcome_unknown` because the owner was lost with them in its hands.
    pub(crate) unknown: Count,
    /// Leased answers of owners that could not be written to the client, so that the lease was given back.
    pub(crate) given_back: Count,
}

/// A number that only grows.
#[derive(Default, Debug)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn up(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
