//! Long polls that are waiting, counted by queue for the metrics.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_core::name::QueueName;

/// The long polls open now. Discovery pops belong to no queue and count under the empty name, as their answers do.
#[derive(Default)]
pub(crate) struct Parked {
    by_queue: Mutex<BTreeMap<QueueName, u64>>,
}

impl Parked {
    /// Counts one until the guard is dropped.
    pub(crate) fn begin(&self, queue: QueueName) -> ParkedPop<'_> {
        *self.lock().entry(queue.clone()).or_default() += 1;
        ParkedPop { parked: self, queue }
    }

    /// A copy of the counts; queues without a waiting pop are not in it.
    pub(crate) fn by_queue(&self) -> BTreeMap<QueueName, u64> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<QueueName, u64>> {
        self.by_queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One long poll that is open.
pub(crate) struct ParkedPop<'p> {
    parked: &'p Parked,
    queue: QueueName,
}

impl Drop for ParkedPop<'_> {
    fn drop(&mut self) {
        let mut by_queue = self.parked.lock();
        if let Some(count) = by_queue.get_mut(&self.queue) {
            *count -= 1;
            if *count == 0 {
                by_queue.remove(&self.queue);
            }
        }
    }
}
