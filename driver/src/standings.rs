//! How the brokers of this process stand to their slots: written by their tasks, read by everybody.

use std::sync::atomic::{AtomicU8, Ordering};

use tidegate_core::broker::Standing;
use tidegate_core::fleet::SLOTS;
use tidegate_core::store::Slot;
use tokio::sync::watch;

const ELSEWHERE: u8 = 0;
const OURS: u8 = 1;
const LEAVING: u8 = 2;

/// A standing per slot, and a number that goes up when one changes.
pub(crate) struct Standings {
    standings: [AtomicU8; SLOTS],
    changes: watch::Sender<u64>,
}

impl Default for Standings {
    fn default() -> Self {
        Standings { standings: Default::default(), changes: watch::Sender::new(0) }
    }
}

impl Standings {
    pub(crate) fn set(&self, slot: Slot, standing: Standing) {
        let code = match standing {
            Standing::Elsewhere => ELSEWHERE,
            Standing::Ours => OURS,
            Standing::Leaving => LEAVING,
        };
        let Some(place) = self.standings.get(usize::from(slot.0)) else { return };
        if place.load(Ordering::Relaxed) != code {
            place.store(code, Ordering::Release);
            self.changed();
        }
    }

    pub(crate) fn of(&self, slot: Slot) -> Standing {
        match self.standings.get(usize::from(slot.0)).map_or(ELSEWHERE, |place| place.load(Ordering::Acquire)) {
            OURS => Standing::Ours,
            LEAVING => Standing::Leaving,
            _ => Standing::Elsewhere,
        }
    }

    /// Tells everybody who waits that something is different now.
    pub(crate) fn changed(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}
