//! A world: brokers, their store, the network between them and their clients, on one queue of events.
//!
//! `act` says what each step does, `entry` takes requests to the broker that owns their slot and answers back, `host` is a
//! broker's process, `store` what they share, `answers` and `names` turn what is said into the history, `finish` ends a
//! run. Virtual time jumps from event to event.

mod act;
mod answers;
mod entry;
mod finish;
mod host;
mod names;
mod store;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::{Hash, Hasher};

use tidegate_core::reply::Reply;
use tidegate_core::store::{StoreAnswer, StoreCall, StoreReply, StoreRequest};
use tidegate_core::testkit::faulty::RequestKind;

use crate::counts::{Counts, FaultKind};
use crate::history::{
    At, Checker, ClientNo, Committed, Event, Fault, Findings, Folded, HostNo, LaneNo, Micros, OpNo, Owner, Phase,
    Record, Refusal, Stamp, Start, TenantNo, Terms, Violation,
};
use crate::list::List;
use crate::random::{Purpose, Random};
use crate::setup::Setup;
use crate::situations::Situations;
use crate::trace::Trace;
use entry::Call;
use host::Host;
use names::Names;
use store::{Effect, Fate, SimStore};

pub use store::EPOCH;

/// The client of what the network does by itself, and of what nobody does.
pub const NOBODY: ClientNo = ClientNo(0);
/// After a broker's connection was cut, when the other side gives it up.
const GIVEN_UP: Micros = 3_000_000;
/// What a client waits for an answer beyond its own wait.
const PATIENCE: Micros = 20_000_000;
/// Events of one run at most: one that has more goes round in circles.
const MAX_EVENTS: u64 = 500_000;

/// What is on its way.
enum Coming {
    /// A request reaches the store.
    ToStore(Box<ToStore>),
    /// The store's answer reaches a broker.
    FromStore { host: u8, life: u32, seat: u8, answer: StoreAnswer },
    /// A broker's deadline.
    Wake { host: u8, life: u32, seat: u8 },
    /// A heartbeat.
    Beat { host: u8, life: u32 },
    /// A client's request reaches a broker.
    Request { call: u32 },
    /// A request that another broker sent on.
    Forward { call: u32, attempt: u8, host: u8, life: u32 },
    /// The answer to one that was sent on; without a reply, nobody knows what became of it.
    Forwarded { call: u32, attempt: u8, reply: Option<Box<Reply>> },
    /// The owner is told that it was not: the other one does not own the slot either.
    Misdirected { call: u32, attempt: u8 },
    /// An answer reaches a client.
    Answer { call: u32, reply: Box<Reply> },
    /// The owner hears whether the client got its answer.
    Written { host: u8, life: u32, seat: u8, call: u32, attempt: u8, written: bool },
    /// The owner hears that the client left.
    Gone { host: u8, life: u32, seat: u8, call: u32, attempt: u8 },
    /// Held requests are looked at again.
    Retry { host: u8, life: u32 },
    /// Clients look whether they have waited long enough.
    Patience,
    /// A broker's process starts.
    Start { host: u8 },
    /// The network's slowness is over.
    Quick,
}

struct ToStore {
    host: u8,
    life: u32,
    seat: u8,
    call: StoreCall,
    request: StoreRequest,
    /// The answer says nothing.
    unknown: bool,
    /// Nobody hears the answer.
    silent: bool,
}

/// A whole run.
pub struct World {
    setup: Setup,
    now: At,
    number: u64,
    due: BinaryHeap<Reverse<(At, u64, u32)>>,
    coming: Vec<Option<Coming>>,
    free: Vec<u32>,
    hosts: Vec<Host>,
    /// Seats whose brokers have something to say.
    dirty: Vec<(u8, u8)>,
    store: SimStore,
    names: Names,
    network: Random,
    slow_store: Random,
    entropy: Random,
    calls: Vec<Call>,
    /// Calls whose clients wait.
    open: Vec<u32>,
    clients: Vec<act::Client>,
    patience_set: bool,
    /// Requests, forwards, answers and late commits that are on their way.
    under_way: u32,
    /// What the network adds to everything until `Coming::Quick`.
    slowness: Micros,
    armed: entry::Armed,
    /// Pushed transaction ids and commit times, newest last.
    pushed: Vec<(LaneNo, crate::history::TextNo)>,
    committed_at: Vec<Stamp>,
    /// By then every lease that was given has ended.
    leases_end: At,
    groups_used: Vec<bool>,
    /// A queue was deleted: the next of its name has options that nobody chose.
    recreated: bool,
    checkers: Vec<Box<dyn Checker>>,
    place: u32,
    hash: Folded,
    /// What was found so far.
    pub findings: Findings,
    /// What was counted so far.
    pub counts: Counts,
    trace: Option<Box<Trace>>,
}

/// How a run ended.
pub struct Outcome {
    /// A hash over everything that happened, in order.
    pub hash: u64,
    /// What was found.
    pub findings: Findings,
    /// What was counted.
    pub counts: Counts,
    /// True time at the end.
    pub lasted: Micros,
    /// What happened, when that was asked for.
    pub trace: Option<Box<Trace>>,
}

/// Runs a list to its end.
pub fn run(list: &List, checkers: fn(&Terms) -> Vec<Box<dyn Checker>>, traced: bool) -> Outcome {
    let mut world = World::new(&list.setup, traced);
    let terms = world.terms();
    world.checkers = checkers(&terms);
    world.checkers.push(Box::new(Situations::new(&terms)));
    world.begin();
    for step in &list.steps {
        world.step(step);
        if !world.findings.violations.is_empty() {
            break;
        }
    }
    world.finish();
    Outcome {
        hash: world.hash.finish(),
        findings: world.findings,
        counts: world.counts,
        lasted: world.now,
        trace: world.trace,
    }
}

impl World {
    fn new(setup: &Setup, traced: bool) -> Self {
        let setup = setup.clone().clamped();
        let seed = setup.seed as u64;
        let names = Names::new(&setup);
        let tenants = names.tenants.len() as u16;
        let clients = (0..setup.clients as u16 + 1 + tenants)
            .map(|n| act::Client::new(TenantNo(client_tenant(n, &setup))))
            .collect();
        let mut world = World {
            now: 0,
            number: 0,
            due: BinaryHeap::new(),
            coming: Vec::new(),
            free: Vec::new(),
            hosts: Vec::new(),
            dirty: Vec::new(),
            store: SimStore::new(names.slots.clone(), setup.lossy != 0),
            groups_used: vec![false; usize::from(names.queue_count() * names.group_count())],
            names,
            network: Random::new(seed, Purpose::Network),
            slow_store: Random::new(seed, Purpose::Store),
            entropy: Random::new(seed, Purpose::Brokers),
            calls: Vec::new(),
            open: Vec::new(),
            clients,
            patience_set: false,
            under_way: 0,
            slowness: 0,
            armed: entry::Armed::default(),
            pushed: Vec::new(),
            committed_at: Vec::new(),
            leases_end: 0,
            recreated: false,
            checkers: Vec::new(),
            place: 0,
            hash: Folded::default(),
            findings: Findings::default(),
            counts: Counts::default(),
            trace: traced.then(|| Box::new(Trace::new(setup.brokers as u8, setup.clients as u16 + 1 + tenants))),
            setup,
        };
        for host in 0..world.setup.brokers as u8 {
            world.hosts.push(Host::down(host));
            world.start_host(host);
        }
        world
    }

    /// What checkers may rely on.
    fn terms(&self) -> Terms {
        let queues = self.names.queue_count();
        Terms {
            commit_log: true,
            lane_queue: (0..self.names.lane_count()).map(|lane| self.names.queue_of_lane(LaneNo(lane))).collect(),
            queue_tenant: (0..queues).map(|queue| self.names.tenant_of_queue(crate::history::QueueNo(queue))).collect(),
            client_tenant: self.clients.iter().map(|client| client.tenant).collect(),
            implicit: self.setup.implicit(0),
            queue_mode: Some(crate::history::GroupNo(0)),
            default_start: if self.setup.default_new != 0 { Start::New } else { Start::All },
            hot_list: self.setup.hot_list != 0,
            window_batch: self.setup.window_batch as u64,
            require_lease: self.setup.require_lease != 0,
            epoch: EPOCH,
            skew: self.store_delay_most() * 2 + 1,
            latency: self.setup.net_latency + self.setup.jitter,
        }
    }

    fn store_delay_most(&self) -> Micros {
        self.setup.store_latency.max(0) + self.setup.jitter
    }

    // Time.

    /// Lets everything happen that is due by `until`, and goes there.
    fn advance(&mut self, until: At) {
        self.flush();
        while let Some(Reverse((at, _, _))) = self.due.peek()
            && *at <= until
        {
            let Some(Reverse((at, number, place))) = self.due.pop() else { break };
            let Some(coming) = self.coming[place as usize].take() else { continue };
            self.free.push(place);
            self.now = at;
            if self.goes_round() {
                return;
            }
            self.happen(number, coming);
            if self.due.peek().is_none_or(|Reverse((next, ..))| *next > at) {
                self.flush();
            }
        }
        self.now = self.now.max(until);
    }

    /// Counts an event; whether there are so many that the run goes round in circles.
    fn goes_round(&mut self) -> bool {
        self.counts.events += 1;
        let over = self.counts.events > MAX_EVENTS;
        if over {
            let place = self.place;
            self.findings.violate("livelock", place, || "something is done over and over".into());
        }
        over
    }

    /// Something will happen.
    fn later(&mut self, after: Micros, coming: Coming) {
        if matters(&coming) {
            self.under_way += 1;
        }
        let at = self.now + after.max(0);
        self.push(at, coming);
    }

    fn push(&mut self, at: At, coming: Coming) {
        let place = match self.free.pop() {
            Some(place) => place,
            None => {
                self.coming.push(None);
                (self.coming.len() - 1) as u32
            }
        };
        self.coming[place as usize] = Some(coming);
        self.number += 1;
        self.due.push(Reverse((at, self.number, place)));
    }

    fn happen(&mut self, number: u64, coming: Coming) {
        // A paused process does nothing, and then all of it.
        if let Some(host) = to_host(&coming, &self.calls)
            && self.hosts[usize::from(host)].paused_until > self.now
        {
            let at = self.hosts[usize::from(host)].paused_until;
            return self.push(at, coming);
        }
        self.hash.write_u64(number);
        if matters(&coming) {
            self.under_way -= 1;
        }
        match coming {
            Coming::ToStore(request) => self.reach_store(*request),
            Coming::FromStore { host, life, seat, answer } => {
                if self.hosts[usize::from(host)].lives(life) {
                    self.hear(host, seat, answer);
                }
            }
            Coming::Wake { host, life, seat } => self.wake(host, life, seat),
            Coming::Beat { host, life } => {
                if self.hosts[usize::from(host)].lives(life) {
                    self.beat(host);
                }
            }
            Coming::Request { call } => self.request_arrived(call),
            Coming::Forward { call, attempt, host, life } => self.forward_arrived(call, attempt, host, life),
            Coming::Forwarded { call, attempt, reply } => self.forward_answered(call, attempt, reply),
            Coming::Misdirected { call, attempt } => self.misdirected(call, attempt),
            Coming::Answer { call, reply } => self.answered(call, *reply),
            Coming::Written { host, life, seat, call, attempt, written } => {
                if self.hosts[usize::from(host)].lives(life) {
                    self.told_written(host, seat, call, attempt, written);
                }
            }
            Coming::Gone { host, life, seat, call, attempt } => {
                if self.hosts[usize::from(host)].lives(life) {
                    self.told_written(host, seat, call, attempt, false);
                }
            }
            Coming::Retry { host, life } => {
                if self.hosts[usize::from(host)].lives(life) {
                    self.hosts[usize::from(host)].retry_set = false;
                    self.retry_held(host);
                }
            }
            Coming::Patience => self.lose_patience(),
            Coming::Start { host } => {
                if !self.hosts[usize::from(host)].up {
                    self.fault(NOBODY, host, OpNo(0), Fault::Restart);
                    self.start_host(host);
                }
            }
            Coming::Quick => self.slowness = 0,
        }
    }

    // The history.

    /// Writes a line of the history, and lets the checkers see it.
    fn record(&mut self, client: ClientNo, host: u8, op: OpNo, event: Event) {
        let record = Record { at: self.now, client, host: HostNo(u16::from(host)), op, event };
        record.hash(&mut self.hash);
        for checker in &mut self.checkers {
            checker.record(self.place, &record, &mut self.findings);
        }
        if let Some(trace) = &mut self.trace {
            trace.record(record);
        }
        self.place += 1;
    }

    /// Notes a fault, and which operations it may have met.
    fn fault(&mut self, client: ClientNo, host: u8, op: OpNo, fault: Fault) {
        let kind = FaultKind::of(&fault);
        if op.0 != 0 || client != NOBODY {
            if let Some(call) = self.calls.get(op.index()) {
                self.counts.met(kind, call.kind);
            }
        } else {
            for &call in &self.open {
                self.counts.met(kind, self.calls[call as usize].kind);
            }
        }
        self.counts.faults[kind as usize] += 1;
        self.record(client, host, op, Event::Fault(fault));
    }

    fn phase(&mut self, phase: Phase) {
        self.record(NOBODY, 0, OpNo(0), Event::Phase(phase));
    }

    // The store.

    /// A broker asks the store.
    fn ask_store(&mut self, host: u8, seat: u8, call: StoreCall, request: StoreRequest) {
        if self.goes_round() {
            return;
        }
        let life = self.hosts[usize::from(host)].life;
        let kind = RequestKind::of(&request);
        let cut = self.hosts[usize::from(host)].cut_from_store > self.now;
        let out = self.store.out_until > self.now;
        let fate = match (cut, out) {
            (true, _) => {
                // Whatever was sent vanished; the connection is given up, and what it carried is of unknown outcome.
                let answer = self.answer(call, StoreReply::Unknown);
                return self.later(GIVEN_UP / 2, Coming::FromStore { host, life, seat, answer });
            }
            (_, true) => Some(Fate::Failed),
            _ => self.store.fate(kind),
        };
        if self.setup.store_latency < 0 && fate.is_none() {
            let (reply, _) = self.carry_out(host, request);
            let answer = self.answer(call, reply);
            return self.hear(host, seat, answer);
        }
        let there = self.store_delay();
        let mut arrival = ToStore { host, life, seat, call, request, unknown: false, silent: false };
        let tell = |world: &mut World, fault: Fault| world.fault(NOBODY, host, OpNo(0), fault);
        let refused = match fate {
            None => None,
            Some(Fate::AnswerLost) => {
                tell(self, Fault::AnswerLost);
                arrival.unknown = true;
                None
            }
            Some(Fate::Stalled(by)) => {
                tell(self, Fault::Stalled(by));
                return self.later(there + by, Coming::ToStore(Box::new(arrival)));
            }
            Some(Fate::RequestLost) => {
                tell(self, Fault::RequestLost);
                Some(StoreReply::Unknown)
            }
            Some(Fate::Late(by)) => {
                tell(self, Fault::Late(by));
                let late = ToStore { request: arrival.request.clone(), silent: true, ..arrival };
                self.later(there + by, Coming::ToStore(Box::new(late)));
                Some(StoreReply::Unknown)
            }
            Some(Fate::Fenced) => {
                tell(self, Fault::Fenced);
                Some(StoreReply::Fenced)
            }
            Some(Fate::Failed) => {
                if !out {
                    tell(self, Fault::Failed);
                }
                Some(host::unavailable())
            }
        };
        match refused {
            Some(reply) => {
                // Even being refused takes a moment; whoever asks again at once would never let time go on.
                let back = (there + self.store_delay()).max(1_000);
                let answer = self.answer(call, reply);
                self.later(back, Coming::FromStore { host, life, seat, answer });
            }
            None => self.later(there, Coming::ToStore(Box::new(arrival))),
        }
    }

    fn answer(&self, call: StoreCall, reply: StoreReply) -> StoreAnswer {
        StoreAnswer { call, time: self.store.time(self.now), reply }
    }

    fn reach_store(&mut self, arrival: ToStore) {
        let ToStore { host, life, seat, call, request, unknown, silent } = arrival;
        let (reply, _) = self.carry_out(host, request);
        if silent {
            return;
        }
        let reply = if unknown { StoreReply::Unknown } else { reply };
        let answer = self.answer(call, reply);
        let back = self.store_delay();
        self.later(back, Coming::FromStore { host, life, seat, answer });
    }

    /// The store carries a request out, and the history tells what it did.
    fn carry_out(&mut self, host: u8, request: StoreRequest) -> (StoreReply, Effect) {
        let written = match &request {
            StoreRequest::Commit(commit) => {
                let writes = self.names.written(&commit.writes);
                Some((commit.fence, commit.number, commit.time, writes))
            }
            _ => None,
        };
        let (reply, effect) = self.store.call(self.now, request);
        match (effect, written) {
            (Effect::Commit(serial), Some((fence, number, time, writes))) => {
                for write in &writes {
                    if let crate::history::Written::Append { created, .. } = write {
                        self.committed_at.push(*created);
                    }
                }
                self.counts.commits += 1;
                let committed = Committed {
                    serial,
                    slot: fence.slot.0,
                    epoch: fence.epoch.0,
                    number: number.0,
                    decided: time.as_micros(),
                    writes,
                };
                self.record(NOBODY, host, OpNo(0), Event::Commit(Box::new(committed)));
            }
            (Effect::Owner(slot, epoch, change), _) => {
                self.record(NOBODY, host, OpNo(0), Event::Owner(Owner { slot: slot.0, epoch, change }));
            }
            _ => {}
        }
        (reply, effect)
    }

    fn store_delay(&mut self) -> Micros {
        let jitter = self.setup.jitter;
        let latency = self.setup.store_latency.max(0);
        if jitter == 0 { latency } else { latency + self.slow_store.below(jitter as u64 + 1) as Micros }
    }

    fn net_delay(&mut self) -> Micros {
        let jitter = self.setup.jitter;
        let latency = self.setup.net_latency + self.slowness;
        if jitter == 0 { latency } else { latency + self.network.below(jitter as u64 + 1) as Micros }
    }

    /// A client is refused before anything reached a broker.
    fn not_sent(&mut self, call: u32) {
        self.close(call, Event::Fail(Refusal::NotSent));
    }

    /// Notes something that is wrong with the run itself.
    fn wrong(&mut self, what: impl FnOnce() -> String) {
        let place = self.place;
        self.findings.violate("progress", place, what);
    }

    /// What failed the run, if anything.
    pub fn violations(&self) -> &[Violation] {
        &self.findings.violations
    }
}

/// The tenant of a client: clients are dealt out, and the last ones drain one tenant each.
fn client_tenant(client: u16, setup: &Setup) -> u16 {
    let (clients, tenants) = (setup.clients as u16 + 1, setup.tenants as u16);
    if client == 0 {
        0
    } else if client < clients {
        (client - 1) % tenants
    } else {
        (client - clients) % tenants
    }
}

/// Whether a run has not settled while this is on its way.
fn matters(coming: &Coming) -> bool {
    match coming {
        Coming::Request { .. }
        | Coming::Forward { .. }
        | Coming::Forwarded { .. }
        | Coming::Misdirected { .. }
        | Coming::Answer { .. }
        | Coming::Written { .. }
        | Coming::Gone { .. } => true,
        Coming::ToStore(request) => matches!(request.request, StoreRequest::Commit(_)),
        Coming::FromStore { .. }
        | Coming::Wake { .. }
        | Coming::Beat { .. }
        | Coming::Retry { .. }
        | Coming::Patience
        | Coming::Start { .. }
        | Coming::Quick => false,
    }
}

/// The process that something reaches.
fn to_host(coming: &Coming, calls: &[Call]) -> Option<u8> {
    match coming {
        Coming::FromStore { host, .. }
        | Coming::Wake { host, .. }
        | Coming::Beat { host, .. }
        | Coming::Forward { host, .. }
        | Coming::Written { host, .. }
        | Coming::Gone { host, .. }
        | Coming::Retry { host, .. } => Some(*host),
        Coming::Request { call } | Coming::Forwarded { call, .. } | Coming::Misdirected { call, .. } => {
            Some(calls[*call as usize].host)
        }
        Coming::ToStore(_) | Coming::Answer { .. } | Coming::Patience | Coming::Start { .. } | Coming::Quick => None,
    }
}
