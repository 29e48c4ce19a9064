//! Who owns the slot, whether all is well with the store, and how brokers come and go.

use std::fmt::Write as _;

use tidegate_core::broker::Broker;
use tidegate_core::command::Command;
use tidegate_core::name::TenantId;
use tidegate_core::record::StartFrom;
use tidegate_core::settings::Settings;
use tidegate_core::store::{Fence, Slot, StoreCall, StoreReply, StoreRequest, Token};
use tidegate_core::time::Span;

use super::super::commands::Setup;
use super::super::spec::Wrong;
use super::Run;

/// How long after something went wrong an answer may still say so.
const AFTERMATH: Span = Span::from_millis(300);
/// An owner that was silent this long, and half a second before, may not answer from memory.
pub(super) const LAPSE: u64 = 2_400_000;

/// Another broker that took the slot.
pub(super) struct Stranger {
    fence: Fence,
    pub(super) until: u64,
    pub(super) beat: u64,
    release: bool,
}

/// A new broker; each has other entropy.
pub(super) fn broker(setup: Setup, nth: u64) -> Broker {
    let mut entropy = [0; 32];
    entropy[..8].copy_from_slice(&setup.seed.to_le_bytes());
    entropy[8..16].copy_from_slice(&nth.to_le_bytes());
    let settings = Settings {
        hot_list: setup.hot_list,
        window_batch: setup.window_batch,
        default_start: if setup.new_by_default { StartFrom::New } else { StartFrom::All },
        require_lease: setup.require_lease,
        dedup_cache_bytes: setup.budget.map_or(Settings::default().dedup_cache_bytes, u64::from),
        ..Settings::default()
    };
    Broker::new(settings, entropy)
}

impl Run {
    /// Whether an answer at this moment may rightly say that something is wrong with the store or the slot.
    pub(super) fn troubled(&mut self) -> bool {
        self.went_wrong() || self.loading || self.unsure || self.at >= self.proven + LAPSE || !self.owns()
    }

    /// Whether the store misbehaves or did so just now.
    pub(super) fn went_wrong(&self) -> bool {
        let now = self.store_time();
        let recently = self.store.last_wrong.is_some_and(|wrong| now < wrong.plus(AFTERMATH));
        recently || self.store.troubled(now)
    }

    pub(super) fn owns(&mut self) -> bool {
        let time = self.store_time();
        match self.store.stranger(time, StoreRequest::Watch(Slot(0))) {
            StoreReply::Watched(view) => view.owner.is_some() && view.token == self.token && self.token.is_some(),
            _ => false,
        }
    }

    /// Whether nothing is on its way between the broker and the store.
    pub(super) fn at_rest(&mut self) -> bool {
        !self.store.owes() && !self.troubled()
    }

    /// Learns from the store's answers whether the broker has the slot.
    pub(super) fn heed(&mut self, call: StoreCall, reply: &StoreReply) {
        self.log.heed(call, reply);
        let routine = matches!(
            reply,
            StoreReply::Committed
                | StoreReply::Renewed
                | StoreReply::Segments(_)
                | StoreReply::DeadLetters(_)
                | StoreReply::Pong
        );
        if !routine {
            let told: String = format!("{reply:?}").chars().take(60).collect();
            let _ = writeln!(self.trace, "       +{:.6} s the store says {told}", self.at as f64 / 1e6);
        }
        let sent = self.proofs.remove(&call);
        if let (Some(sent), StoreReply::Taken(_) | StoreReply::Renewed | StoreReply::Settled { .. }) = (sent, reply) {
            self.proven = self.proven.max(sent);
        }
        match reply {
            StoreReply::Taken(_) => {
                self.token = self.takes.get(&call).copied();
                self.loading = true;
                self.unsure = false;
            }
            StoreReply::Settled { .. } => {
                self.token = self.takes.get(&call).copied();
                self.unsure = false;
            }
            // A take or settling whose answer was lost is found by its token, if the broker still remembers it.
            StoreReply::Watched(view) if self.takes.values().any(|token| Some(*token) == view.token) => {
                self.unsure |= self.token != view.token;
                self.token = view.token;
            }
            StoreReply::SuffixLost => {
                self.loading = true;
                self.loads.clear();
            }
            StoreReply::Page { next: None, .. } if self.loads.contains(&call) => {
                self.loading = false;
                self.unsure = false;
            }
            _ => {}
        }
    }

    /// Lets the broker come to own its slot with everything loaded.
    pub(super) fn recover(&mut self) -> Result<(), Wrong> {
        self.until("the broker must get its slot", |run| run.at_rest())
    }

    /// Another broker takes the slot.
    pub(super) fn steal(&mut self, ms: u32, release: bool) -> Result<(), Wrong> {
        let time = self.store_time();
        let StoreReply::Watched(view) = self.store.stranger(time, StoreRequest::Watch(Slot(0))) else {
            return Ok(());
        };
        let token = Token(u128::from(self.at) << 64 | 0xdead);
        let take = StoreRequest::Take { slot: Slot(0), seen: view.epoch, token, owner: "stranger".into() };
        let StoreReply::Taken(epoch) = self.store.stranger(time, take) else { return Ok(()) };
        let fence = Fence { slot: Slot(0), epoch, token };
        self.stranger = Some(Stranger { fence, until: self.at + u64::from(ms) * 1_000, beat: self.at, release });
        for call in self.calls.values_mut() {
            call.excused = true;
        }
        self.stranger_acts();
        self.tick()
    }

    pub(super) fn stranger_acts(&mut self) {
        let time = self.store_time();
        let Some(stranger) = &mut self.stranger else { return };
        if self.at >= stranger.until {
            if stranger.release {
                let release = StoreRequest::Release(stranger.fence);
                self.store.stranger(time, release);
            }
            self.stranger = None;
        } else if self.at >= stranger.beat {
            stranger.beat = self.at + 400_000;
            let renew = StoreRequest::Renew { fence: stranger.fence, acknowledged: [None, None] };
            self.store.stranger(time, renew);
        }
    }

    /// The broker dies with everything it knows, and another one starts.
    pub(super) fn restart(&mut self) -> Result<(), Wrong> {
        let quiet = self.at_rest();
        for call in std::mem::take(&mut self.calls).into_values().filter(|call| !quiet || call.excused) {
            self.orphan(&call);
        }
        self.replace()
    }

    pub(super) fn replace(&mut self) -> Result<(), Wrong> {
        self.turns.forget();
        self.states.iter_mut().for_each(|state| state.early.clear());
        self.calls.clear();
        self.brokers += 1;
        self.broker = broker(self.setup, self.brokers);
        self.store.forget();
        self.takes.clear();
        self.proofs.clear();
        self.loads.clear();
        self.log.forget_calls();
        self.token = None;
        self.loading = true;
        self.unsure = false;
        self.draining = false;
        self.tick()
    }

    /// The broker shuts down in good order, and another one starts.
    pub(super) fn drain(&mut self) -> Result<(), Wrong> {
        self.draining = true;
        self.broker.drain(self.now());
        self.tick()?;
        let id = self.send(TenantId::DEFAULT, Command::ListQueues);
        self.tick()?;
        if self.calls.contains_key(&id) {
            return Err("a draining broker must refuse at once what is new".to_owned());
        }
        let calm = self.at_rest_while_draining();
        if calm && !self.broker.drained() {
            return Err("nothing is in flight, and the drain is not complete".to_owned());
        }
        if !calm {
            // With a store that misbehaves a drain may take long; the process is killed then.
            for _ in 0..5 {
                let next = self.at + 500_000;
                self.advance(next)?;
            }
        } else if !self.calls.is_empty() {
            return Err("a complete drain leaves calls unanswered".to_owned());
        }
        self.restart()
    }

    pub(super) fn at_rest_while_draining(&mut self) -> bool {
        !self.went_wrong() && !self.store.owes() && !self.loading && self.stranger.is_none()
    }
}
