//! The store that all brokers of a world share, and everything that can go wrong with it.

use std::collections::{BTreeMap, VecDeque};

use compact_str::CompactString;
use tidegate_core::fleet::{FleetView, Member, SLOTS, Seen};
use tidegate_core::store::{Slot, StoreReply, StoreRequest};
use tidegate_core::testkit::faulty::RequestKind;
use tidegate_core::time::Timestamp;
use tidegate_store_memory::MemoryStore;

use crate::history::{At, Micros, OwnerChange, Stamp};

/// Store time when a run begins: 2026-01-01.
pub const EPOCH: Stamp = 1_767_225_600_000_000;
/// Commits that can be lost.
const REMEMBERED: usize = 8;

/// What happens to the next request of a kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Carried out, and the answer is lost.
    AnswerLost,
    /// Never carried out, and the broker cannot know.
    RequestLost,
    /// Refused as another owner's.
    Fenced,
    /// Refused.
    Failed,
    /// Carried out late.
    Stalled(Micros),
    /// Answered as unknown, and carried out later.
    Late(Micros),
}

/// Which requests a fate waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum On {
    /// Commits.
    Commit,
    /// Renewals.
    Renew,
    /// Takes, settlings, releases.
    Ownership,
    /// Loads.
    Load,
    /// Reads.
    Read,
}

impl On {
    /// By a step's number.
    pub fn of(number: u16) -> On {
        match number % 8 {
            0..4 => On::Commit,
            4 => On::Renew,
            5 => On::Ownership,
            6 => On::Load,
            _ => On::Read,
        }
    }

    fn fits(self, kind: RequestKind) -> bool {
        match self {
            On::Commit => kind == RequestKind::Commit,
            On::Renew => kind == RequestKind::Renew,
            On::Ownership => matches!(kind, RequestKind::Take | RequestKind::Settle | RequestKind::Release),
            On::Load => matches!(kind, RequestKind::Load | RequestKind::Watch),
            On::Read => matches!(kind, RequestKind::Read | RequestKind::ReadDeadLetters | RequestKind::Trim),
        }
    }
}

/// What a request did to the store, beside its answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Nothing that the history tells.
    None,
    /// A commit; its number among all of the store.
    Commit(u64),
    /// A slot's owner changed.
    Owner(Slot, u64, OwnerChange),
}

/// The store.
pub struct SimStore {
    inner: MemoryStore,
    /// Commits so far.
    serial: u64,
    remembers: bool,
    /// The store before each of its last commits.
    before: VecDeque<(MemoryStore, u64)>,
    /// How far its clock is from true time.
    pub clock_offset: Micros,
    /// Nothing is carried out before this.
    pub out_until: At,
    armed: Vec<(On, Fate)>,
    members: BTreeMap<CompactString, Seen>,
    /// Slots of a fleet that no tenant of this world is in: only their owners matter.
    pub idle_owners: [Option<CompactString>; SLOTS],
    slots: Vec<Slot>,
}

impl SimStore {
    /// An empty store for these slots.
    pub fn new(slots: Vec<Slot>, remembers: bool) -> Self {
        SimStore {
            inner: MemoryStore::new(),
            serial: 0,
            remembers,
            before: VecDeque::new(),
            clock_offset: 0,
            out_until: 0,
            armed: Vec::new(),
            members: BTreeMap::new(),
            idle_owners: [const { None }; SLOTS],
            slots,
        }
    }

    /// Its clock.
    pub fn time(&self, at: At) -> Timestamp {
        Timestamp::from_micros(EPOCH + at + self.clock_offset)
    }

    /// The next request that fits meets this fate.
    pub fn arm(&mut self, on: On, fate: Fate) {
        if self.armed.len() < 4 {
            self.armed.push((on, fate));
        }
    }

    /// The fate of a request, if one waits for it.
    pub fn fate(&mut self, kind: RequestKind) -> Option<Fate> {
        if self.armed.is_empty() {
            return None;
        }
        let at = self.armed.iter().position(|(on, _)| on.fits(kind))?;
        Some(self.armed.remove(at).1)
    }

    /// No more faults; what is on its way stays so.
    pub fn heal(&mut self) {
        self.armed.clear();
        self.out_until = 0;
    }

    /// Carries a request out.
    pub fn call(&mut self, at: At, request: StoreRequest) -> (StoreReply, Effect) {
        let time = self.time(at);
        let request = match request {
            StoreRequest::Take { slot, owner, .. } if self.is_dead(&owner) => StoreRequest::Watch(slot),
            other => other,
        };
        let (slot, change) = match &request {
            StoreRequest::Commit(_) => {
                if self.remembers {
                    self.before.push_back((self.inner.clone(), self.serial));
                    if self.before.len() > REMEMBERED {
                        self.before.pop_front();
                    }
                }
                (None, None)
            }
            StoreRequest::Take { slot, .. } => (Some(*slot), Some(OwnerChange::Taken)),
            StoreRequest::Settle { fence, .. } => (Some(fence.slot), Some(OwnerChange::Raised)),
            StoreRequest::Release(fence) => (Some(fence.slot), Some(OwnerChange::Released)),
            _ => (None, None),
        };
        let commits = matches!(request, StoreRequest::Commit(_));
        let mut reply = self.inner.call(time, request);
        if let StoreReply::Watched(view) = &mut reply {
            view.gone = view.owner.as_ref().is_some_and(|owner| self.is_dead(owner));
        }
        let effect = match (&reply, slot, change) {
            (StoreReply::Committed, ..) => {
                self.serial += 1;
                Effect::Commit(self.serial)
            }
            (StoreReply::Taken(epoch), Some(slot), Some(change)) => Effect::Owner(slot, epoch.0, change),
            (StoreReply::Settled { epoch, .. }, Some(slot), Some(change)) => Effect::Owner(slot, epoch.0, change),
            (StoreReply::Released, Some(slot), Some(change)) => Effect::Owner(slot, 0, change),
            _ => Effect::None,
        };
        if commits && reply != StoreReply::Committed && self.remembers {
            self.before.pop_back();
        }
        (reply, effect)
    }

    /// Loses the last commits, as many as are remembered; the serial of the last that is left, if any was lost.
    pub fn lose(&mut self, commits: usize) -> Option<u64> {
        let mut last = None;
        for _ in 0..commits {
            let Some((store, serial)) = self.before.pop_back() else { break };
            (self.inner, self.serial) = (store, serial);
            last = Some(serial);
        }
        last
    }

    fn is_dead(&self, incarnation: &str) -> bool {
        self.members.get(incarnation).is_some_and(|seen| seen.dead)
    }

    /// A heartbeat: the fleet, or none when the broker was buried.
    pub fn beat(&mut self, at: At, me: &Member) -> Option<FleetView> {
        let fresh = Seen { member: me.clone(), beat: 0, session: true, dead: false };
        let mine = self.members.entry(me.incarnation.clone()).or_insert(fresh);
        if mine.dead {
            return None;
        }
        mine.beat += 1;
        mine.session = true;
        mine.member = me.clone();
        let mut owners = self.idle_owners.to_vec();
        let time = self.time(at);
        for slot in self.slots.clone() {
            if let StoreReply::Watched(view) = self.inner.call(time, StoreRequest::Watch(slot)) {
                owners[usize::from(slot.0)] = view.owner;
            }
        }
        Some(FleetView { brokers: self.members.values().cloned().collect(), owners, ..FleetView::default() })
    }

    /// Declares a broker dead, if its beat is still `beat`; whether it is dead now.
    pub fn bury(&mut self, incarnation: &str, beat: u64) -> bool {
        let Some(seen) = self.members.get_mut(incarnation) else { return true };
        seen.dead |= seen.beat == beat;
        let dead = seen.dead;
        if dead {
            self.idle_owners.iter_mut().for_each(|owner| {
                owner.take_if(|owner| owner == incarnation);
            });
        }
        dead
    }

    /// The connection of a broker is gone.
    pub fn session_lost(&mut self, incarnation: &str) {
        if let Some(seen) = self.members.get_mut(incarnation) {
            seen.session = false;
        }
    }

    /// A broker says good-bye.
    pub fn leave(&mut self, incarnation: &str) {
        self.members.remove(incarnation);
    }
}
