//! Runs a script against the core and the model side by side.
//!
//! The harness keeps the set of all model states that the answers so far allow: one, as a rule; more after an outcome
//! that nobody knows. Each answer must be right in at least one of them, and the others are dropped.

mod ask;
mod clients;
mod clock;
mod finish;
mod judge;
mod slot;
mod turns;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use bytes::Bytes;
use tidegate_core::broker::{Broker, Output};
use tidegate_core::command::{Command, Pop, RequestId};
use tidegate_core::name::{GroupName, LeaseId, MessageId, PartitionId, PartitionName, QueueName, TenantId};
use tidegate_core::record::StartFrom;
use tidegate_core::reply::Reply;
use tidegate_core::store::{StoreCall, StoreRequest, Token};
use tidegate_core::time::{Moment, Now, Span, StoreClock, Timestamp};

use super::commands::{Script, Setup, Step};
use super::faults::Faults;
use super::peek::{Log, Mark};
use super::spec::{Model, Quirk, Rules, Wrong};

/// Store time at the harness's moment zero.
const DAWN: i64 = 1_700_000_000_000_000;
/// An answer takes no longer than this, whatever the store does: holding, the wait for an outcome, and some retries.
const PATIENCE: u64 = 30_000_000;

/// A call that was not answered yet.
#[derive(Clone)]
pub struct Call {
    /// After how many rounds of answers it was sent.
    pub after: u64,
    pub id: RequestId,
    pub tenant: TenantId,
    pub command: Command,
    /// Moment and store time of its arrival.
    /// Store time of its arrival.
    pub asked: Timestamp,
    /// Every store time at which it may have been decided.
    pub instants: Vec<Timestamp>,
    pub mark: Mark,
    /// When a long poll runs out.
    pub deadline: Option<u64>,
    /// It was seen unanswered with the store at rest.
    pub parked: bool,
    /// The store or the slot was in trouble while it ran.
    pub excused: bool,
    /// Something else was on its way to or from the store while it ran.
    pub beside_others: bool,
    /// A queue that it takes from was deleted while it ran.
    pub bereft: bool,
    pub hold: Hold,
    /// Up to where the log was searched for its first contact.
    pub contact: Mark,
}

/// How long an under-full long poll has been held back.
#[derive(Clone, Copy, Default, Debug)]
pub struct Hold {
    pub since: Option<u64>,
    /// Messages were there and went: nobody says from when the hold counts.
    pub loose: bool,
}

/// A delivery that a client may ack.
#[derive(Clone, Debug)]
pub struct Delivered {
    pub group: GroupName,
    pub lease: Option<LeaseId>,
    pub messages: Vec<(PartitionId, String)>,
}

/// A message whose push was acknowledged.
#[derive(Clone, Debug)]
pub struct Kept {
    /// After how many rounds of answers it was asked for.
    pub after: u64,
    /// In which round it was answered.
    pub round: u64,
    pub tenant: TenantId,
    pub queue: QueueName,
    pub partition: PartitionName,
    pub id: MessageId,
    /// Nobody can say whether its queue was deleted after it was pushed.
    pub doubtful: bool,
}

/// One run of a script.
pub struct Run {
    setup: Setup,
    rules: Rules,
    broker: Broker,
    brokers: u64,
    store: Faults,
    clock: StoreClock,
    at: u64,
    states: Vec<Model>,
    calls: BTreeMap<RequestId, Call>,
    replies: Vec<(Call, Reply)>,
    next_call: u64,
    log: Log,
    takes: BTreeMap<StoreCall, Token>,
    /// When each request that may prove ownership was sent, and the last that did.
    proofs: BTreeMap<StoreCall, u64>,
    proven: u64,
    token: Option<Token>,
    loading: bool,
    /// The slot carries a token of the broker that it may have forgotten.
    unsure: bool,
    /// Pages asked for since the slot was last taken or lost.
    loads: BTreeSet<StoreCall>,
    stranger: Option<slot::Stranger>,
    draining: bool,
    /// Groups of pops that were just answered.
    rivals: Vec<(TenantId, GroupName)>,
    /// Queues that are just being deleted.
    deleting: Vec<(TenantId, QueueName)>,
    break_next: bool,
    deliveries: Vec<Delivered>,
    pushed: BTreeSet<Bytes>,
    kept: Vec<Kept>,
    ids: BTreeSet<MessageId>,
    leases: BTreeSet<LeaseId>,
    round: u64,
    turns: turns::Turns,
    payloads: u64,
    trace: String,
}

/// Runs a whole script; the error is the trace up to the first wrong answer.
pub fn run(script: &Script, quirk: Quirk) -> Result<(), String> {
    let mut run = Run::new(script.setup, quirk);
    let outcome = run.script(&script.steps);
    outcome.map_err(|wrong| format!("{}\nWRONG: {wrong}\n", run.trace))
}

impl Run {
    fn new(setup: Setup, quirk: Quirk) -> Self {
        let rules = Rules {
            hot_list: setup.hot_list,
            window_batch: setup.window_batch,
            default_start: if setup.new_by_default { StartFrom::New } else { StartFrom::All },
            require_lease: setup.require_lease,
            quirk,
        };
        Run {
            broker: slot::broker(setup, 0),
            setup,
            states: vec![Model::new(rules.clone())],
            rules,
            brokers: 0,
            store: Faults::new(),
            clock: StoreClock::new(Timestamp::from_micros(DAWN), Moment::from_micros(0)),
            at: 0,
            calls: BTreeMap::new(),
            replies: Vec::new(),
            next_call: 1,
            log: Log::default(),
            takes: BTreeMap::new(),
            proofs: BTreeMap::new(),
            proven: 0,
            token: None,
            loading: true,
            unsure: false,
            loads: BTreeSet::new(),
            stranger: None,
            draining: false,
            rivals: Vec::new(),
            deleting: Vec::new(),
            break_next: false,
            deliveries: Vec::new(),
            pushed: BTreeSet::new(),
            kept: Vec::new(),
            ids: BTreeSet::new(),
            leases: BTreeSet::new(),
            round: 0,
            turns: turns::Turns::default(),
            payloads: 0,
            trace: String::new(),
        }
    }

    fn script(&mut self, steps: &[Step]) -> Result<(), Wrong> {
        self.tick()?;
        self.recover()?;
        for (n, step) in steps.iter().enumerate() {
            let _ = writeln!(self.trace, "{n:>3}. +{:.6} s {step:?}", self.at as f64 / 1e6);
            self.step(step)?;
            self.narrow()?;
            if self.states.len() > 1 {
                let _ = writeln!(self.trace, "       {} states are possible", self.states.len());
            }
        }
        let _ = writeln!(self.trace, "the end. +{:.6} s", self.at as f64 / 1e6);
        self.finish()
    }

    fn step(&mut self, step: &Step) -> Result<(), Wrong> {
        match step {
            Step::Ask(tenant, ask) => self.ask(*tenant, ask),
            Step::Together(asks, order) => self.together(asks, *order),
            Step::Wait(wait) => self.wait(*wait),
            Step::Leave(which) => {
                let ids: Vec<RequestId> = self.calls.keys().copied().collect();
                match ids.get(usize::from(*which) % ids.len().max(1)) {
                    Some(&id) => self.leave(id),
                    None => Ok(()),
                }
            }
            Step::BreakNext => {
                self.break_next = true;
                Ok(())
            }
            Step::Fault(on, fate) => {
                self.store.arm(*on, *fate);
                Ok(())
            }
            Step::Outage { ms } => {
                self.store.be_away(self.store_time().plus(Span::from_millis(i64::from(*ms))));
                Ok(())
            }
            Step::Steal { ms, release } => self.steal(*ms, *release),
            Step::Restart => self.restart(),
            Step::Drain => self.drain(),
        }
    }

    fn now(&self) -> Now {
        self.clock.now(Moment::from_micros(self.at))
    }

    fn store_time(&self) -> Timestamp {
        Timestamp::from_micros(DAWN + self.at as i64)
    }

    /// Carries answers and requests between the broker and the store until neither has more to say.
    fn pump(&mut self) -> Result<(), Wrong> {
        for _ in 0..20_000 {
            if let Some(output) = self.broker.poll() {
                match output {
                    Output::Reply(id, reply) => {
                        let Some(call) = self.calls.remove(&id) else {
                            return Err(format!(
                                "an answer to {id:?}, which nobody asked or which was answered: {reply:?}"
                            ));
                        };
                        self.replies.push((call, reply));
                    }
                    Output::Store(call, request) => self.submit(call, request),
                    Output::Notice(_) => {}
                }
                continue;
            }
            let Some(answer) = self.store.answer(self.store_time()) else { return Ok(()) };
            self.heed(answer.call, &answer.reply);
            self.clock.observe(answer.time, Moment::from_micros(self.at));
            self.note_instant();
            self.broker.stored(self.now(), answer);
        }
        Err("broker and store talk without end".to_owned())
    }

    fn submit(&mut self, call: StoreCall, request: StoreRequest) {
        match &request {
            StoreRequest::Take { token, .. } | StoreRequest::Settle { token, .. } => {
                self.takes.insert(call, *token);
                self.proofs.insert(call, self.at);
            }
            StoreRequest::Load { .. } => {
                self.loading = true;
                self.loads.insert(call);
            }
            StoreRequest::Renew { .. } => {
                self.proofs.insert(call, self.at);
            }
            _ => {}
        }
        if let StoreRequest::Commit(commit) = &request {
            let writes: Vec<String> =
                commit.writes.iter().map(|write| format!("{write:?}").chars().take(90).collect()).collect();
            let _ = writeln!(self.trace, "       +{:.6} s to commit {}", self.at as f64 / 1e6, writes.join(", "));
        }
        self.log.note(call, &request);
        let time = self.store_time();
        self.store.submit(time, call, request);
    }

    /// Sends a command to the broker, without looking at what comes of it.
    fn send(&mut self, tenant: TenantId, command: Command) -> RequestId {
        let id = RequestId(self.next_call);
        self.next_call += 1;
        let deadline = match &command {
            Command::Pop(Pop { wait: Some(wait), .. }) if wait.is_positive() => Some(self.at + wait.as_micros() as u64),
            _ => None,
        };
        let now = self.now();
        let mark = self.log.mark();
        let excused = self.troubled();
        let call = Call {
            after: self.round,
            id,
            tenant,
            command: command.clone(),
            asked: now.store,
            instants: vec![now.store],
            mark,
            deadline,
            parked: false,
            excused,
            beside_others: self.store.owes() || self.store.holding,
            bereft: false,
            hold: Hold::default(),
            contact: mark,
        };
        self.calls.insert(id, call);
        self.broker.request(now, id, tenant, command);
        id
    }
}

/// Store times at which a call may have been decided, the likeliest first.
fn instants(call: &Call, now: Timestamp) -> Vec<Timestamp> {
    let mut instants = vec![now];
    if !call.parked {
        instants.push(call.asked);
    }
    if call.excused {
        instants.extend(call.instants.iter().rev().take(100));
        instants.push(call.asked);
    }
    let mut seen = BTreeSet::new();
    instants.retain(|&time| seen.insert(time));
    instants
}

fn distinct(states: Vec<Model>) -> Vec<Model> {
    let mut distinct: Vec<Model> = Vec::new();
    for state in states {
        if !distinct.contains(&state) {
            distinct.push(state);
        }
    }
    distinct
}

/// The harness's moment of a store time.
fn moment(time: Timestamp) -> u64 {
    u64::try_from(time.as_micros() - DAWN).unwrap_or(0)
}
