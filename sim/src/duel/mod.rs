//! The core against the naive model: one broker, one call at a time, a store that answers on the spot. Every answer must be
//! the model's, also after restarts, stolen slots, failed commits and commits of unknown outcome.
//!
//! A list of steps is the whole input. Its references are symbolic ("ack my second newest delivery"), so that steps may
//! be left out and the rest still means something.

mod plan;
mod run;

pub use plan::{Delay, Fate, Fault, Op, Plan, Proof, Start, Step};
pub use run::{Duel, Failure};

use tidegate_core::store::StoreRequest;
use tidegate_store_memory::MemoryStore;

/// Runs a list over a store in memory.
pub fn over_memory(plan: &Plan) -> Result<(), Failure> {
    let mut store = MemoryStore::new();
    Duel::new(plan, |now, request: StoreRequest| store.call(now, request)).run(&plan.steps)
}

/// The shortest list found that fails for the same reason, by leaving out steps, with and without their delays.
pub fn shrink(plan: &Plan, fails: impl Fn(&Plan) -> bool) -> Plan {
    let mut best = plan.clone();
    let mut chunk = best.steps.len().div_ceil(2).max(1);
    loop {
        let mut at = 0;
        let mut shrunk = false;
        while at < best.steps.len() {
            let end = (at + chunk).min(best.steps.len());
            let mut without = best.clone();
            without.steps.drain(at..end);
            let mut carrying = without.clone();
            if let Some(next) = carrying.steps.get_mut(at) {
                let left_out = best.steps[at..end].iter().map(|step| step.delay.micros()).sum::<i64>();
                next.delay = next.delay.later(left_out);
            }
            let smaller = [without, carrying].into_iter().find(|candidate| fails(candidate));
            match smaller {
                Some(smaller) => (best, shrunk) = (smaller, true),
                None => at = end,
            }
        }
        if chunk == 1 && !shrunk {
            return best;
        }
        chunk = if shrunk { chunk } else { chunk.div_ceil(2).max(1) }.min(best.steps.len().max(1));
    }
}
