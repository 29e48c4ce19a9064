//! The machine around the rules: which records are in memory, what waits, what goes into the next commit, what wakes
//! when. It knows no rule of its own.
//!
//! Fed with requests, store answers and ticks, each with the time; polled for replies and store requests. One broker is
//! one slot (design.md 3).

mod ack;
mod activity;
mod admin;
mod calls;
mod commit;
mod counters;
mod dead_letters;
mod depth;
mod histogram;
mod inspect;
mod lanes;
mod listing;
mod loads;
mod planted;
mod pop;
mod push;
mod ready;
mod refresh;
mod retention;
mod seals;
mod slot;
mod tables;
mod timers;
mod traces;
mod transaction;
mod waiters;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;
use slab::Slab;

use crate::command::{Command, RequestId};
use crate::error::Rejection;
use crate::limits::{HOLD, OUTCOME_WAIT};
use crate::name::{QueueName, TenantId};
use crate::record::{RetentionRule, Tally};
use crate::reply::Reply;
use crate::settings::{Maintenance, Settings};
use crate::store::{StoreAnswer, StoreCall, StoreReply, StoreRequest};
use crate::time::{Moment, Now, Span};
use ack::AckPart;
use admin::Exclusive;
use calls::{Call, Pending};
use commit::Commits;
pub use counters::Counters;
use dead_letters::Replay;
pub use histogram::Histogram;
use loads::{Facts, Loads};
use pop::{PendingDelivery, PopCall};
use push::PushPart;
use retention::Retention;
use slot::Ownership;
pub use slot::Standing;
use tables::Tables;
use timers::Timers;
use transaction::TransactionWork;
use waiters::Waiters;

/// What the core wants done.
#[derive(Clone, PartialEq, Debug)]
pub enum Output {
    /// Tell the client.
    Reply(RequestId, Reply),
    /// Ask the store.
    Store(StoreCall, StoreRequest),
    /// Tell the operator.
    Notice(Notice),
}

/// What an operator may want to read about.
#[derive(Clone, PartialEq, Debug)]
pub enum Notice {
    /// A retention cycle deleted messages from a queue.
    Deleted {
        /// Whose queue.
        tenant: TenantId,
        /// The queue.
        queue: QueueName,
        /// By which rule.
        rule: RetentionRule,
        /// How many.
        tally: Tally,
    },
}

/// A decision that is to be made, now or when what it needs is durable.
enum Work {
    /// The items of a push for one partition.
    Push(Box<PushPart>),
    /// The items of an ack for one partition and lease.
    Ack(Box<AckPart>),
    /// A pop; its call is in `pops`.
    Pop(RequestId),
    /// A lease extension.
    Extend(Box<ack::Extension>),
    /// A lease whose answer could not be written.
    GiveBack(crate::name::LeaseId),
    /// A transaction.
    Transaction(Box<TransactionWork>),
    /// A dead letter on its way back.
    Replay(Box<Replay>),
    /// A trace to write.
    Trace(RequestId, TenantId, Box<crate::command::NewTrace>),
    /// Dead letters to remove.
    DropDeadLetters(RequestId, TenantId, Box<crate::command::Address>),
    /// A change that goes alone into its commit.
    Exclusive(Box<Exclusive>),
    /// A question about what is in memory.
    Query(RequestId, TenantId, Box<Command>),
    /// A step of the retention cycle of that number, and what was read for it.
    Retention(u64, Option<Box<retention::Read>>),
    /// The removal of unused partitions, alone in its commit.
    CleanUp(u64),
}

/// Work that waits, and since when.
struct Waiting {
    since: Moment,
    work: Work,
    /// What was found out for it.
    facts: Facts,
}

impl Waiting {
    fn new(since: Moment, work: Work) -> Self {
        Waiting { since, work, facts: Facts::default() }
    }
}

/// One slot's state machine.
pub struct Broker {
    settings: Settings,
    entropy: ChaCha20Rng,
    now: Now,
    /// How far store time runs ahead of the store's clock, which stepped back between two owners.
    ahead: Span,
    tables: Tables,
    timers: Timers,
    loads: Loads,
    /// What was found out for the work that runs.
    facts: Facts,
    ownership: Ownership,
    commits: Commits,
    /// Work that waits for the slot, for room in the commit being built, or for an exclusive change.
    backlog: VecDeque<Waiting>,
    /// The exclusive change, or the question, that waits for everything that is open.
    barrier: Option<Waiting>,
    pops: BTreeMap<RequestId, Box<PopCall>>,
    waiters: Waiters,
    /// Claims on their way to a client, by number; numbers are not used again, for a late read may still name one.
    deliveries: BTreeMap<u64, PendingDelivery>,
    last_delivery: u64,
    /// Requests that are answered once all their parts are.
    calls: Slab<Call>,
    /// What each request to the store was for.
    pending: BTreeMap<StoreCall, Pending>,
    store_calls: u64,
    /// Ended queues whose rows are still to be trimmed.
    trims: VecDeque<crate::name::QueueId>,
    trimming: bool,
    retention: Retention,
    /// Numbers the ownerships under which the queues are looked at.
    refreshes: u64,
    /// Numbers the ownerships under which minutes are written down.
    minutes: u64,
    outputs: VecDeque<Output>,
    draining: bool,
    maintenance: Maintenance,
    counters: Counters,
}

impl Broker {
    /// A broker that owns nothing yet: poll it, and it asks for its slot. `entropy` is 32 bytes from the operating
    /// system, or from a simulation's seed; it makes every id.
    pub fn new(settings: Settings, entropy: [u8; 32]) -> Self {
        Broker {
            settings,
            entropy: ChaCha20Rng::from_seed(entropy),
            now: Now::default(),
            ahead: Span::ZERO,
            tables: Tables::default(),
            timers: Timers::default(),
            loads: Loads::default(),
            facts: Facts::default(),
            ownership: Ownership::default(),
            commits: Commits::default(),
            backlog: VecDeque::new(),
            barrier: None,
            pops: BTreeMap::new(),
            waiters: Waiters::default(),
            deliveries: BTreeMap::new(),
            last_delivery: 0,
            calls: Slab::new(),
            pending: BTreeMap::new(),
            store_calls: 0,
            trims: VecDeque::new(),
            trimming: false,
            retention: Retention::default(),
            refreshes: 0,
            minutes: 0,
            outputs: VecDeque::new(),
            draining: false,
            maintenance: Maintenance::default(),
            counters: Counters::default(),
        }
    }

    /// A client asks. Exactly one `Reply` follows, unless the client is `gone` first.
    pub fn request(&mut self, now: Now, id: RequestId, tenant: TenantId, command: Command) {
        self.enter(now);
        if self.draining {
            return self.reply(id, Reply::Refused(Rejection::Draining));
        }
        if self.sends_on() && !matches!(command, Command::Probe) {
            return self.reply(id, Reply::Refused(Rejection::NotOwner));
        }
        match command {
            Command::Push(_) if self.maintenance.push => self.reply(id, Reply::Refused(Rejection::Maintenance)),
            Command::Pop(_) if self.maintenance.pop => self.reply(id, Reply::Popped(None)),
            Command::Push(push) => self.push_request(id, tenant, push),
            Command::Pop(pop) => self.pop_request(id, tenant, pop),
            Command::Ack(ack) => self.ack_request(id, tenant, ack),
            Command::Extend { lease, length } => {
                self.admit(Work::Extend(Box::new(ack::Extension { request: id, tenant, lease, length })));
            }
            Command::Transaction(transaction) => self.transaction_request(id, tenant, transaction),
            Command::Configure { queue, options, labels } => {
                self.admit(Exclusive::configure(id, tenant, queue, options, labels));
            }
            Command::DeleteQueue { queue } => self.admit(Exclusive::delete_queue(id, tenant, queue)),
            Command::ChangeSubscription { group, since } => {
                self.admit(Exclusive::change_subscription(id, tenant, group, since));
            }
            Command::Seek { group, queue, partition, target } => {
                self.admit(Exclusive::seek(id, tenant, group, queue, partition, target));
            }
            Command::DeleteGroup { group, queue, metadata } => {
                self.admit(Exclusive::delete_group(id, tenant, group, queue, metadata));
            }
            Command::Replay { address, group } => {
                self.admit(Work::Replay(Box::new(Replay::at(id, tenant, address, group))));
            }
            Command::ReplayRow(row) => self.admit(Work::Replay(Box::new(Replay::row(id, tenant, row)))),
            Command::PurgeDeadLetters { queue, group } => {
                self.admit(Exclusive::purge_dead_letters(id, tenant, queue, group));
            }
            Command::Trace(trace) => self.admit(Work::Trace(id, tenant, trace)),
            Command::DropDeadLetters(address) => self.admit(Work::DropDeadLetters(id, tenant, Box::new(address))),
            Command::Probe => {
                self.ask(StoreRequest::Ping, Pending::Probe(id));
            }
            Command::ListHistory { since, until } => {
                let slot = self.settings.slot;
                self.ask(StoreRequest::LoadHistory { slot, tenant, since, until }, Pending::History(id));
            }
            Command::ListQueues
            | Command::PreviewRetention { .. }
            | Command::DescribeQueue { .. }
            | Command::ListGroups { .. }
            | Command::FindMessage(_)
            | Command::ListMessages(_)
            | Command::QueueDepth { .. }
            | Command::ReadTraces(_)
            | Command::ReadTraceNames { .. }
            | Command::ReadActivity { .. }
            | Command::ListDeadLetters { .. } => self.admit(Work::Query(id, tenant, Box::new(command))),
        }
    }

    /// An operator switched something off or on again. Parked calls answer empty when pops go off.
    pub fn maintain(&mut self, now: Now, maintenance: Maintenance) {
        self.enter(now);
        self.maintenance = maintenance;
        if maintenance.pop {
            self.answer_parked(|| Reply::Popped(None));
        }
    }

    /// The client left. A parked call is forgotten and takes no lease; after its `Reply`, the answer could not be
    /// written, so what it leased is given back.
    pub fn gone(&mut self, now: Now, id: RequestId) {
        self.enter(now);
        self.pop_gone(id);
    }

    /// The client waits no longer, and may still read: a parked call is answered empty, one that is being decided goes on.
    pub fn stop_waiting(&mut self, now: Now, id: RequestId) {
        self.enter(now);
        self.pop_stop_waiting(id);
    }

    /// The answer was written: forget it.
    pub fn sent(&mut self, id: RequestId) {
        self.pop_sent(id);
    }

    /// The store answered.
    pub fn stored(&mut self, now: Now, answer: StoreAnswer) {
        self.enter(now);
        let Some(pending) = self.pending.remove(&answer.call) else { return };
        match pending {
            Pending::Commit(seat) => self.commit_answered(seat, answer.reply),
            Pending::Orphan(done) => self.orphan_answered(done, answer.reply),
            Pending::Delivery(key) => self.delivery_read(key, answer.reply),
            Pending::Prefetch(prefetch) => self.messages_read(*prefetch, answer.reply),
            Pending::Refresh(number) => self.queues_read(number, answer.reply),
            Pending::Logs(number) => self.logs_read(number, answer.reply),
            Pending::Find(find) => self.message_read(*find, answer.reply),
            Pending::FindDeadLetter(find, slices) => self.message_dead_letter_read(*find, slices, answer.reply),
            Pending::DeadLetters(id, tenant) => self.dead_letters_read(id, tenant, answer.reply),
            Pending::Listing(listing) => self.listing_read(*listing, answer.reply),
            Pending::Fetch(fetch) => self.fetched(fetch, answer.reply),
            Pending::ReplayRead(replay) => self.replay_read(*replay, answer.reply),
            Pending::Trim(queue) => self.trimmed(queue, answer.reply),
            Pending::TrimLogs(partitions) => self.logs_trimmed(partitions, &answer.reply),
            Pending::Extents(number, reads) => self.extents_read(number, reads, answer.reply),
            Pending::Preview(preview) => self.preview_read(preview, answer.reply),
            Pending::History(id) => {
                let reply = match answer.reply {
                    StoreReply::History(records) => Reply::History(records),
                    _ => Reply::Refused(Rejection::StoreUnavailable),
                };
                self.reply(id, reply);
            }
            Pending::Probe(id) => {
                let healthy = answer.reply == StoreReply::Pong;
                let refused = Reply::Refused(Rejection::StoreUnavailable);
                self.reply(id, if healthy { Reply::Healthy } else { refused });
            }
            Pending::Slot(asked) => self.slot_answered(asked, answer.reply),
        }
        self.serve();
    }

    /// The deadline came.
    pub fn tick(&mut self, now: Now) {
        self.enter(now);
    }

    /// Shutting down: parked calls answer empty, nothing new is taken, and the slot is released once nothing is in
    /// flight.
    pub fn drain(&mut self, now: Now) {
        self.enter(now);
        self.draining = true;
        self.answer_parked(|| Reply::Popped(None));
        if !self.owned() {
            for waiting in core::mem::take(&mut self.backlog) {
                self.refuse(waiting.work, Rejection::Draining);
            }
        }
    }

    /// Whether a drain is complete: the slot is released or was never taken.
    pub fn drained(&self) -> bool {
        self.draining && self.ownership.over() && self.outputs.is_empty()
    }

    /// When it next wants a tick.
    pub fn deadline(&self) -> Option<Moment> {
        self.timers.deadline(self.now)
    }

    /// What it wants done, until none.
    pub fn poll(&mut self) -> Option<Output> {
        if self.outputs.is_empty() {
            self.pump();
        }
        self.outputs.pop_front()
    }

    /// What it has counted so far.
    pub fn counters(&self) -> Counters {
        let (queues, partitions) = self.tables.sizes();
        Counters {
            parked: self.waiters.len() as u64,
            dead_letters: self.tables.dead.len() as u64,
            log_bytes: self.loads.bytes() as u64,
            partitions: partitions as u64,
            queues: queues as u64,
            retention: self.retention.deleted().clone(),
            ..self.counters.clone()
        }
    }

    /// Brings everything that time alone changes up to `now`, so that no input is judged by an older state.
    fn enter(&mut self, now: Now) {
        let store = now.store.plus(self.ahead);
        self.now = Now { monotonic: now.monotonic.max(self.now.monotonic), store: store.max(self.now.store) };
        self.run_timers();
        self.serve();
    }

    /// Starts what can start: sends the commit that is built, lets waiting work join the next.
    fn pump(&mut self) {
        self.start_taking();
        loop {
            self.serve();
            if let Some(waiting) = self.next_waiting() {
                self.run(waiting);
            } else if !self.send_commit() {
                break;
            }
        }
        self.keep_to_budget(&[]);
        self.continue_trimming();
        self.release_when_done();
    }

    /// The work whose turn it is, if any may run now.
    fn next_waiting(&mut self) -> Option<Waiting> {
        if !self.usable() || self.commits.exclusive() {
            return None;
        }
        if self.barrier.is_some() {
            return if self.commits.idle() { self.barrier.take() } else { None };
        }
        if self.commits.full() {
            return None;
        }
        self.backlog.pop_front()
    }

    /// Lets work run now, or behind what waits already.
    fn admit(&mut self, work: Work) {
        self.admit_since(Waiting::new(self.now.monotonic, work));
    }

    fn admit_since(&mut self, waiting: Waiting) {
        let open = self.usable() && self.barrier.is_none() && !self.commits.exclusive() && !self.commits.full();
        if open && self.backlog.is_empty() {
            self.run(waiting);
        } else {
            if !self.usable() {
                self.timers.set_sweep(self.now.monotonic);
            }
            self.backlog.push_back(waiting);
        }
    }

    fn run(&mut self, waiting: Waiting) {
        let since = waiting.since;
        let outer = core::mem::replace(&mut self.facts, waiting.facts);
        self.run_work(since, waiting.work);
        // What still waits has taken its facts along.
        let facts = core::mem::replace(&mut self.facts, outer);
        self.loads.unpin(facts);
    }

    fn run_work(&mut self, since: Moment, work: Work) {
        match work {
            Work::Push(part) => self.run_push(since, part),
            Work::Ack(part) => self.run_ack(since, part),
            Work::Pop(id) => self.run_pop(since, id),
            Work::Extend(extension) => self.run_extend(since, extension),
            Work::GiveBack(lease) => self.run_give_back(since, lease),
            Work::Transaction(work) => self.run_transaction(since, work),
            Work::Replay(replay) => self.run_replay(since, replay),
            Work::Trace(id, tenant, trace) => self.run_trace(id, tenant, *trace),
            Work::DropDeadLetters(id, tenant, address) => self.run_drop_dead_letters(since, id, tenant, address),
            // Both rest on everything that is open: a question is answered by what is durable, an exclusive change goes
            // alone.
            work @ (Work::Query(..) | Work::Exclusive(_) | Work::CleanUp(_)) if !self.commits.idle() => {
                let waiting = Waiting { since, work, facts: core::mem::take(&mut self.facts) };
                match self.barrier {
                    None => self.barrier = Some(waiting),
                    Some(_) => self.backlog.push_back(waiting),
                }
            }
            Work::Query(id, tenant, command) => self.run_query(since, id, tenant, *command),
            Work::Exclusive(exclusive) => self.run_exclusive(since, exclusive),
            Work::Retention(number, read) => self.run_retention(number, read),
            Work::CleanUp(number) => self.run_clean_up(number),
        }
    }

    /// Refuses work that was certainly not carried out.
    fn refuse(&mut self, work: Work, rejection: Rejection) {
        match work {
            Work::Push(part) => self.refuse_push(*part, rejection),
            Work::Ack(part) => self.refuse_ack(*part, rejection),
            Work::Pop(id) => self.refuse_pop(id, rejection),
            Work::Extend(extension) => self.reply(extension.request, Reply::Refused(rejection)),
            Work::Transaction(work) => self.reply(work.request, Reply::Refused(rejection)),
            Work::Replay(replay) => self.reply(replay.request, Reply::Refused(rejection)),
            Work::DropDeadLetters(id, ..) | Work::Query(id, ..) | Work::Trace(id, ..) => {
                self.reply(id, Reply::Refused(rejection))
            }
            Work::Exclusive(exclusive) => self.reply(exclusive.request, Reply::Refused(rejection)),
            Work::Retention(number, _) | Work::CleanUp(number) => self.refuse_retention(number),
            Work::GiveBack(_) => {}
        }
    }

    /// Refuses what has waited too long for an owner or for the store, and says when to look again.
    fn sweep(&mut self) {
        let now = self.now.monotonic;
        let (patience, rejection) =
            if self.usable() { (OUTCOME_WAIT, Rejection::StoreUnavailable) } else { (HOLD, Rejection::NotOwner) };
        let mut again: Option<Moment> = None;
        let mut stale = VecDeque::new();
        let mut lists = self.commits.take_waiting();
        lists.push((None, core::mem::take(&mut self.backlog)));
        for (seat, list) in lists {
            let mut kept = VecDeque::new();
            for waiting in list {
                let until = match &waiting.work {
                    Work::Pop(id) => self.pop_patience(*id, waiting.since, patience),
                    _ => waiting.since.plus(patience),
                };
                if until <= now {
                    self.loads.unpin(waiting.facts);
                    stale.push_back(waiting.work);
                } else {
                    again = Some(again.map_or(until, |earliest| earliest.min(until)));
                    kept.push_back(waiting);
                }
            }
            match seat {
                Some(seat) => self.commits.put_waiting(seat, kept),
                None => self.backlog = kept,
            }
        }
        if let Some(waiting) = self.barrier.take_if(|waiting| waiting.since.plus(patience) <= now) {
            self.loads.unpin(waiting.facts);
            stale.push_back(waiting.work);
        }
        for work in stale {
            self.refuse(work, rejection);
        }
        if let Some(at) = again {
            self.timers.set_sweep(at);
        }
    }

    fn reply(&mut self, id: RequestId, reply: Reply) {
        self.outputs.push_back(Output::Reply(id, reply));
    }

    fn ask(&mut self, request: StoreRequest, pending: Pending) -> StoreCall {
        self.store_calls += 1;
        let call = StoreCall(self.store_calls);
        self.pending.insert(call, pending);
        self.outputs.push_back(Output::Store(call, request));
        call
    }

    /// Groups whose lanes changed; their waiters are looked at before anything else happens.
    fn awake(&mut self) -> &mut BTreeSet<tables::GroupIx> {
        &mut self.waiters.awake
    }
}
