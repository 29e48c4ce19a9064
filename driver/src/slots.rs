//! All slots of a process: a broker each, and for every tenant the place where its requests belong.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use compact_str::CompactString;
use tidegate_core::broker::{Broker, Counters, Standing};
use tidegate_core::fleet::{SLOTS, slot_of};
use tidegate_core::name::TenantId;
use tidegate_core::settings::{Maintenance, Switch};
use tidegate_core::store::Slot;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::handle::Order;
use crate::standings::Standings;
use crate::task::Task;
use crate::{Clock, Handle, MembershipError, Store};

/// Another broker that owns a slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Its incarnation.
    pub incarnation: CompactString,
    /// The URL under which it is reached, without a slash at the end.
    pub address: CompactString,
}

/// Where a tenant's requests belong.
#[derive(Clone)]
pub enum Place {
    /// To the broker behind this handle.
    Here(Handle),
    /// To another process.
    There(Arc<Peer>),
    /// Nobody is known to own the slot.
    Nowhere,
}

/// The way to every slot; cheap to clone.
#[derive(Clone)]
pub struct Slots {
    shared: Arc<Shared>,
}

struct Shared {
    /// By slot; a single one stands for all.
    handles: Vec<Handle>,
    standings: Arc<Standings>,
    /// Whether other brokers may own slots.
    fleet: bool,
    /// This broker's incarnation.
    me: RwLock<CompactString>,
    /// By slot, the other broker that owns it.
    peers: RwLock<[Option<Arc<Peer>>; SLOTS]>,
    /// Somebody wants to know more than the last heartbeat told.
    wanted: Notify,
    retiring: AtomicBool,
    maintenance: RwLock<Maintenance>,
    /// Who keeps the switches, where several processes share them.
    keeper: OnceLock<mpsc::UnboundedSender<Keep>>,
}

/// A switch that is to be set for every broker, and whom to tell how all of them stand then.
pub(crate) type Keep = (Switch, oneshot::Sender<Result<Maintenance, MembershipError>>);

impl From<Handle> for Slots {
    /// One broker that decides for every tenant, and no other process.
    fn from(handle: Handle) -> Self {
        Slots::new(vec![handle], Arc::default(), false)
    }
}

/// Starts a broker for each slot: one process that owns them all, or, as a `fleet`, one of several on the same store.
/// Then `join` tells which slots to take; the brokers' settings must say `sends_on`.
pub fn spawn_slots<S: Store>(
    fleet: bool,
    clock: Clock,
    mut make: impl FnMut(Slot) -> (Broker, S),
) -> (Slots, JoinHandle<()>) {
    let standings = Arc::new(Standings::default());
    let mut tasks = Vec::with_capacity(SLOTS);
    let mut handles = Vec::with_capacity(SLOTS);
    for slot in (0..SLOTS as u8).map(Slot) {
        let (broker, store) = make(slot);
        let (inputs, queue) = mpsc::unbounded_channel();
        let handle = Handle::new(inputs);
        if fleet {
            // First of all: it must not take what nobody gave it.
            handle.order(Order::Contend(false));
        }
        let task = Task::new(broker, store, clock, queue).telling(Arc::clone(&standings), slot);
        tasks.push(tokio::spawn(task.run()));
        handles.push(handle);
    }
    let all = tokio::spawn(async move {
        for task in tasks {
            // A panic in one is a panic of all: nobody can answer for its tenants.
            if let Err(error) = task.await {
                std::panic::resume_unwind(error.into_panic());
            }
        }
    });
    (Slots::new(handles, standings, fleet), all)
}

impl Slots {
    fn new(handles: Vec<Handle>, standings: Arc<Standings>, fleet: bool) -> Self {
        let shared = Shared {
            handles,
            standings,
            fleet,
            me: RwLock::default(),
            peers: RwLock::default(),
            wanted: Notify::new(),
            retiring: AtomicBool::new(false),
            maintenance: RwLock::default(),
            keeper: OnceLock::new(),
        };
        Slots { shared: Arc::new(shared) }
    }

    /// Where a tenant's requests belong.
    pub fn place(&self, tenant: TenantId) -> Place {
        let slot = slot_of(tenant);
        if !self.shared.fleet || self.standing(slot) == Standing::Ours {
            return Place::Here(self.handle(slot).clone());
        }
        let peers = self.shared.peers.read().unwrap_or_else(PoisonError::into_inner);
        match &peers[usize::from(slot.0)] {
            Some(peer) => Place::There(Arc::clone(peer)),
            None => Place::Nowhere,
        }
    }

    /// The broker of this process for a tenant, whoever owns its slot.
    pub fn local(&self, tenant: TenantId) -> &Handle {
        self.handle(slot_of(tenant))
    }

    /// Whether requests may belong to other processes.
    pub fn is_fleet(&self) -> bool {
        self.shared.fleet
    }

    /// This broker's incarnation; empty outside a fleet.
    pub fn incarnation(&self) -> CompactString {
        self.shared.me.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes whenever a tenant's place may have.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.shared.standings.watch()
    }

    /// Asks for a heartbeat before its time: what is known of the owners turned out to be wrong.
    pub fn refresh(&self) {
        self.shared.wanted.notify_one();
    }

    /// Whether this broker is giving its slots away in order to stop.
    pub fn retiring(&self) -> bool {
        self.shared.retiring.load(Ordering::Relaxed)
    }

    /// What operators have switched off, as far as this process knows.
    pub fn maintenance(&self) -> Maintenance {
        *self.shared.maintenance.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets a switch: here at once, at every other broker with its next heartbeat.
    pub async fn switch(&self, switch: Switch) -> Result<Maintenance, MembershipError> {
        let maintenance = match self.shared.keeper.get() {
            Some(keeper) => {
                let (sender, answer) = oneshot::channel();
                // A heartbeat that has ended drops the question.
                let _ = keeper.send((switch, sender));
                answer.await.unwrap_or_else(|_| Err(MembershipError::Lost("this broker is stopping".to_owned())))?
            }
            None if self.shared.fleet => return Err(MembershipError::Lost("this broker is starting".to_owned())),
            None => self.maintenance().after(switch),
        };
        self.maintain(maintenance);
        Ok(maintenance)
    }

    /// Says what is switched off now.
    pub(crate) fn maintain(&self, maintenance: Maintenance) {
        let mut known = self.shared.maintenance.write().unwrap_or_else(PoisonError::into_inner);
        if *known != maintenance {
            *known = maintenance;
            tracing::info!(push = maintenance.push, pop = maintenance.pop, "maintenance changed");
            self.shared.handles.iter().for_each(|handle| handle.maintain(maintenance));
        }
    }

    /// Takes the switches' keeper; the first one stays.
    pub(crate) fn kept_by(&self, keeper: mpsc::UnboundedSender<Keep>) {
        let _ = self.shared.keeper.set(keeper);
    }

    /// What all brokers of this process have counted.
    pub async fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for handle in &self.shared.handles {
            sum.add(&handle.counters().await);
        }
        sum
    }

    /// Shuts all brokers down.
    pub fn drain(&self) {
        self.shared.handles.iter().for_each(Handle::drain);
    }

    pub(crate) fn handle(&self, slot: Slot) -> &Handle {
        let handles = &self.shared.handles;
        &handles[usize::from(slot.0) % handles.len()]
    }

    pub(crate) fn standing(&self, slot: Slot) -> Standing {
        self.shared.standings.of(slot)
    }

    pub(crate) fn order(&self, make: impl Fn() -> Order) {
        self.shared.handles.iter().for_each(|handle| handle.order(make()));
    }

    pub(crate) async fn wanted(&self) {
        self.shared.wanted.notified().await;
    }

    pub(crate) fn retire(&self) {
        self.shared.retiring.store(true, Ordering::Relaxed);
    }

    pub(crate) fn rename(&self, incarnation: CompactString) {
        *self.shared.me.write().unwrap_or_else(PoisonError::into_inner) = incarnation;
    }

    /// Says who else owns slots.
    pub(crate) fn publish(&self, mut peer_of: impl FnMut(Slot) -> Option<Peer>) {
        let mut peers = self.shared.peers.write().unwrap_or_else(PoisonError::into_inner);
        let mut changed = false;
        for (slot, known) in peers.iter_mut().enumerate() {
            let peer = peer_of(Slot(slot as u8));
            if known.as_deref() != peer.as_ref() {
                *known = peer.map(Arc::new);
                changed = true;
            }
        }
        drop(peers);
        if changed {
            self.shared.standings.changed();
        }
    }
}
