//! The async loop between the core, a store and the clock. It moves values and knows no rule.
//!
//! One task owns the `Broker` and the store (`task`), so nothing in here is locked. Transports hold a `Handle`, send it
//! a `Command` and await a `Call` (`handle`). Time comes from a `Clock` (`clock`), the store is anything that implements
//! `Store` (`store`).
//!
//! A process has a broker for each slot (`slots`). With others on the same store it takes part in `join`, over any
//! `Membership` (`membership`).
//!
//! Absent on purpose: anything about the meaning of a queue, and any clock but tokio's, so that tests can pause it.

mod clock;
mod handle;
mod join;
mod membership;
mod slots;
mod standings;
mod store;
mod task;
#[cfg(feature = "testkit")]
pub mod testkit;

use tidegate_core::broker::Broker;
use tokio::task::JoinHandle;

pub use clock::Clock;
pub use handle::{Call, Handle, Receipt};
pub use join::{JoinError, Joined, Probe, join};
pub use membership::{Membership, MembershipError};
pub use slots::{Peer, Place, Slots, spawn_slots};
pub use store::{Answer, Immediate, Store};

/// Starts the task that owns `broker` and `store`; call it inside a tokio runtime.
///
/// The task ends once it was told to drain, or once nobody holds a handle, a call or a receipt any more, and the broker
/// has finished what was in flight.
pub fn spawn(broker: Broker, store: impl Store, clock: Clock) -> (Handle, JoinHandle<()>) {
    let (inputs, queue) = tokio::sync::mpsc::unbounded_channel();
    let task = tokio::spawn(task::Task::new(broker, store, clock, queue).run());
    (Handle::new(inputs), task)
}
