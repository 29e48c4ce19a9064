//! Several brokers in one process, for tests: a store that they share, and the membership that goes with it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use compact_str::CompactString;
use tidegate_core::error::{StoreError, StoreErrorKind};
use tidegate_core::fleet::{FleetView, Member, Probed, SLOTS, Seen};
use tidegate_core::settings::{Maintenance, Switch};
use tidegate_core::store::{Slot, StoreReply, StoreRequest};
use tidegate_core::time::Timestamp;

use crate::{Answer, Clock, Membership, MembershipError, Probe, Store};

type Call = Box<dyn FnMut(Timestamp, StoreRequest) -> StoreReply + Send>;

/// What the brokers of a test share; cheap to clone.
#[derive(Clone)]
pub struct Hub {
    state: Arc<Mutex<State>>,
}

struct State {
    call: Call,
    /// The store's clock.
    clock: Clock,
    brokers: BTreeMap<CompactString, Seen>,
    /// Brokers that cannot reach the store.
    cut: BTreeSet<CompactString>,
    /// What operators have switched off.
    maintenance: Maintenance,
    /// Who answers under an address.
    listening: BTreeMap<CompactString, CompactString>,
}

impl Hub {
    /// A hub around a store, whose time is `clock`'s wall time.
    pub fn new(clock: Clock, call: impl FnMut(Timestamp, StoreRequest) -> StoreReply + Send + 'static) -> Self {
        let state = State {
            call: Box::new(call),
            clock,
            brokers: BTreeMap::new(),
            cut: BTreeSet::new(),
            maintenance: Maintenance::default(),
            listening: BTreeMap::new(),
        };
        Hub { state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store as the broker of the process `name` sees it.
    pub fn store(&self, name: &str) -> HubStore {
        HubStore { hub: self.clone(), name: name.into() }
    }

    /// The membership of the process `name`, which listens at `address`.
    pub fn membership(&self, name: &str) -> HubMembership {
        HubMembership { hub: self.clone(), name: name.into() }
    }

    /// Cuts a process off the store, or connects it again.
    pub fn cut(&self, name: &str, cut: bool) {
        let mut state = self.state();
        if cut {
            state.cut.insert(name.into());
        } else {
            state.cut.remove(name);
        }
    }

    /// The process is gone: its control connection is closed and nobody listens at its address. The test stops it.
    pub fn ended(&self, name: &str) {
        self.cut(name, true);
        let mut state = self.state();
        for seen in state.brokers.values_mut().filter(|seen| seen.member.host == name) {
            seen.session = false;
        }
        state.listening.retain(|_, by| by != name);
    }

    /// Requests straight to the store.
    pub fn ask(&self, request: StoreRequest) -> StoreReply {
        let mut state = self.state();
        let now = state.clock.wall();
        (state.call)(now, request)
    }

    /// The owner's incarnation of each slot.
    pub fn owners(&self) -> Vec<Option<CompactString>> {
        let owner = |slot| match self.ask(StoreRequest::Watch(Slot(slot))) {
            StoreReply::Watched(view) => view.owner,
            _ => None,
        };
        (0..SLOTS as u8).map(owner).collect()
    }

    /// How many slots an incarnation owns.
    pub fn owned_by(&self, incarnation: &str) -> usize {
        self.owners().iter().flatten().filter(|owner| *owner == incarnation).count()
    }
}

impl Probe for Hub {
    async fn probe(&self, address: &str) -> Probed {
        match self.state().listening.get(address) {
            Some(incarnation) => Probed::Answered(incarnation.clone()),
            None => Probed::Refused,
        }
    }
}

/// A process's view of the shared store.
pub struct HubStore {
    hub: Hub,
    name: CompactString,
}

impl Store for HubStore {
    fn call(&mut self, request: StoreRequest) -> Answer {
        let mut state = self.hub.state();
        let time = state.clock.wall();
        if state.cut.contains(&self.name) {
            let error = StoreError { kind: StoreErrorKind::Unavailable, text: "cut off".into() };
            return Answer::Now(time, StoreReply::Failed(error));
        }
        let dead = |state: &State, owner: &str| state.brokers.get(owner).is_some_and(|seen| seen.dead);
        let request = match request {
            StoreRequest::Take { slot, owner, .. } if dead(&state, &owner) => StoreRequest::Watch(slot),
            other => other,
        };
        let mut reply = (state.call)(time, request);
        if let StoreReply::Watched(view) = &mut reply {
            view.gone = view.owner.as_ref().is_some_and(|owner| dead(&state, owner));
        }
        Answer::Now(time, reply)
    }
}

/// A process's heartbeats. `Member.host` is the process's name.
pub struct HubMembership {
    hub: Hub,
    name: CompactString,
}

impl HubMembership {
    fn reach(&self) -> Result<MutexGuard<'_, State>, MembershipError> {
        let state = self.hub.state();
        if state.cut.contains(&self.name) { Err(MembershipError::Lost("cut off".into())) } else { Ok(state) }
    }
}

impl Membership for HubMembership {
    async fn beat(&mut self, me: &Member) -> Result<FleetView, MembershipError> {
        let brokers = {
            let mut state = self.reach()?;
            state.listening.insert(me.address.clone(), me.incarnation.clone());
            let fresh = Seen { member: me.clone(), beat: 0, session: true, dead: false };
            let mine = state.brokers.entry(me.incarnation.clone()).or_insert(fresh);
            if mine.dead {
                return Err(MembershipError::Buried);
            }
            mine.beat += 1;
            mine.session = true;
            mine.member = me.clone();
            state.brokers.values().cloned().collect()
        };
        let maintenance = self.hub.state().maintenance;
        Ok(FleetView { brokers, owners: self.hub.owners(), revision: 0, maintenance })
    }

    async fn bury(&mut self, incarnation: &str, beat: u64) -> Result<bool, MembershipError> {
        let mut state = self.reach()?;
        let Some(seen) = state.brokers.get_mut(incarnation) else { return Ok(true) };
        seen.dead |= seen.beat == beat;
        Ok(seen.dead)
    }

    async fn switch(&mut self, switch: Switch) -> Result<Maintenance, MembershipError> {
        let mut state = self.reach()?;
        state.maintenance = state.maintenance.after(switch);
        Ok(state.maintenance)
    }

    async fn leave(&mut self, incarnation: &str) -> Result<(), MembershipError> {
        self.reach()?.brokers.remove(incarnation);
        Ok(())
    }
}
