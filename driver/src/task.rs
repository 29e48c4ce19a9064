//! The loop: take what has arrived, let the broker decide, carry out what it wants, sleep until the next thing happens.

use std::collections::HashMap;
use std::future::poll_fn;
use std::hash::{BuildHasherDefault, Hasher};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::stream::{FuturesUnordered, Stream};
use tidegate_core::broker::{Broker, Notice, Output};
use tidegate_core::command::RequestId;
use tidegate_core::record::Tally;
use tidegate_core::reply::Reply;
use tidegate_core::store::{Slot, StoreAnswer, StoreCall, StoreReply, StoreRequest};
use tidegate_core::time::{Moment, Now, StoreClock};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Sleep;

use crate::handle::{Input, Order};
use crate::standings::Standings;
use crate::{Answer, Clock, Store};

/// Inputs taken before the broker is asked what it wants done: what arrives together is committed together.
const MAX_INPUTS_PER_TURN: usize = 256;

/// A store answer that is still on its way.
type Pending = Pin<Box<dyn Future<Output = StoreAnswer> + Send>>;

/// Replies owed, by request. Request ids count up, so they spread well enough without a real hash; nobody iterates it.
type Callers = HashMap<RequestId, oneshot::Sender<Reply>, BuildHasherDefault<CountingHasher>>;

/// The broker, its store, and everything between them.
pub(crate) struct Task<S> {
    broker: Broker,
    store: S,
    clock: Clock,
    store_clock: StoreClock,
    queue: mpsc::UnboundedReceiver<Input>,
    pending: FuturesUnordered<Pending>,
    callers: Callers,
    sleep: Pin<Box<Sleep>>,
    /// What `sleep` is set to; none once it fired.
    sleeping_until: Option<Moment>,
    draining: bool,
    standings: Option<(Arc<Standings>, Slot)>,
    /// Whether the store's last answer was a good one: only changes are logged.
    store_works: bool,
}

/// What one turn has to do.
#[derive(Default)]
struct Arrived {
    inputs: Vec<Input>,
    answers: Vec<StoreAnswer>,
    /// Nobody can send any more, and everything that was sent is in hand.
    closed: bool,
}

impl<S: Store> Task<S> {
    pub(crate) fn new(broker: Broker, store: S, clock: Clock, queue: mpsc::UnboundedReceiver<Input>) -> Self {
        Task {
            broker,
            store,
            clock,
            // Until the store has said its time once, nothing is known of it.
            store_clock: StoreClock::default(),
            queue,
            pending: FuturesUnordered::new(),
            callers: Callers::default(),
            sleep: Box::pin(tokio::time::sleep(std::time::Duration::ZERO)),
            sleeping_until: None,
            draining: false,
            standings: None,
            store_works: true,
        }
    }

    /// Lets others see how the broker stands to its slot.
    pub(crate) fn telling(self, standings: Arc<Standings>, slot: Slot) -> Self {
        Task { standings: Some((standings, slot)), ..self }
    }

    pub(crate) async fn run(mut self) {
        let mut arrived = Arrived { inputs: Vec::with_capacity(MAX_INPUTS_PER_TURN), ..Arrived::default() };
        let now = self.now();
        self.broker.tick(now);
        loop {
            self.carry_out();
            if let Some((standings, slot)) = &self.standings {
                standings.set(*slot, self.broker.slot_standing());
            }
            if self.finished() {
                if arrived.closed {
                    return;
                }
                // Whoever asks from now on is refused at once; what was sent before still gets the broker's answer.
                self.queue.close();
            }
            poll_fn(|cx| self.poll_arrivals(cx, &mut arrived)).await;
            self.take(&mut arrived);
        }
    }

    /// Both times, read now: after what they are read for was taken from its queue.
    fn now(&self) -> Now {
        self.store_clock.now(self.clock.moment())
    }

    /// Whether nothing is left to do and nothing will be.
    fn finished(&self) -> bool {
        self.draining && self.callers.is_empty() && self.pending.is_empty() && self.broker.drained()
    }

    /// Waits for something to do and takes all of it, so that no source can starve another.
    fn poll_arrivals(&mut self, cx: &mut Context<'_>, arrived: &mut Arrived) -> Poll<()> {
        while !self.pending.is_empty()
            && let Poll::Ready(Some(answer)) = Pin::new(&mut self.pending).poll_next(cx)
        {
            arrived.answers.push(answer);
        }
        if !arrived.closed
            && let Poll::Ready(0) = self.queue.poll_recv_many(cx, &mut arrived.inputs, MAX_INPUTS_PER_TURN)
        {
            arrived.closed = true;
            return Poll::Ready(());
        }
        if !arrived.inputs.is_empty() || !arrived.answers.is_empty() {
            return Poll::Ready(());
        }
        self.poll_deadline(cx)
    }

    /// Sets the sleep only when it has to, and only when there is nothing else to do.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(deadline) = self.broker.deadline() else {
            return Poll::Pending;
        };
        if self.sleeping_until != Some(deadline) {
            // Tokio's timer is coarse: what is due already does not go through it.
            if deadline <= self.clock.moment() {
                return Poll::Ready(());
            }
            let Some(instant) = self.clock.instant(deadline) else {
                return Poll::Pending;
            };
            self.sleep.as_mut().reset(instant);
            self.sleeping_until = Some(deadline);
        }
        let woken = self.sleep.as_mut().poll(cx);
        if woken.is_ready() {
            self.sleeping_until = None;
        }
        woken
    }

    /// Gives the broker everything that arrived, store answers first: they free what inputs may be waiting for.
    fn take(&mut self, arrived: &mut Arrived) {
        for answer in arrived.answers.drain(..) {
            self.hear(answer);
        }
        for input in arrived.inputs.drain(..) {
            let now = self.store_clock.now(self.clock.moment());
            match input {
                Input::Request(id, tenant, command, caller) => {
                    self.callers.insert(id, caller);
                    self.broker.request(now, id, tenant, command);
                }
                Input::Gone(id) => {
                    self.callers.remove(&id);
                    self.broker.gone(now, id);
                }
                Input::StopWaiting(id) => self.broker.stop_waiting(now, id),
                Input::Sent(id) => self.broker.sent(id),
                Input::Counters(caller) => {
                    // Whoever asked may have left; then nobody misses the answer.
                    let _ = caller.send(self.broker.counters());
                }
                Input::Slot(Order::Contend(contend)) => self.broker.contend(now, contend),
                Input::Slot(Order::HandOver) => self.broker.hand_over(now),
                Input::Slot(Order::Distrust) => self.broker.distrust(now),
                Input::Slot(Order::Rename(name)) => self.broker.rename(now, name),
                Input::Maintain(maintenance) => self.broker.maintain(now, maintenance),
                Input::Drain => self.drain(now),
            }
        }
        let now = self.now();
        if arrived.closed {
            self.drain(now);
        }
        if self.broker.deadline().is_some_and(|deadline| deadline <= now.monotonic) {
            self.broker.tick(now);
        }
    }

    fn drain(&mut self, now: Now) {
        if !self.draining {
            self.draining = true;
            self.broker.drain(now);
        }
    }

    /// Carries out what the broker wants until it wants nothing. A store that answers at once is heard at once.
    fn carry_out(&mut self) {
        while let Some(output) = self.broker.poll() {
            match output {
                Output::Reply(id, reply) => {
                    if let Some(caller) = self.callers.remove(&id) {
                        // A caller that has left in this very moment says so itself: its `Call` sends `Gone`.
                        let _ = caller.send(reply);
                    }
                }
                Output::Store(call, request) => self.ask(call, request),
                Output::Notice(notice) => tell(&notice),
            }
        }
    }

    fn ask(&mut self, call: StoreCall, request: StoreRequest) {
        match self.store.call(request) {
            Answer::Now(time, reply) => self.hear(StoreAnswer { call, time, reply }),
            Answer::Later(answer) => self.pending.push(Box::pin(async move {
                let (time, reply) = answer.await;
                StoreAnswer { call, time, reply }
            })),
        }
    }

    fn hear(&mut self, answer: StoreAnswer) {
        self.log(&answer.reply);
        let moment = self.clock.moment();
        self.store_clock.observe(answer.time, moment);
        self.broker.stored(self.store_clock.now(moment), answer);
    }

    /// Tells the operator what the core cannot: it has no log.
    fn log(&mut self, reply: &StoreReply) {
        let slot = self.standings.as_ref().map(|(_, slot)| slot.0);
        let works = match reply {
            StoreReply::Failed(error) => {
                if self.store_works {
                    tracing::warn!(%error, "the store refused a request; trying again until it works");
                }
                false
            }
            StoreReply::Unknown => {
                if self.store_works {
                    tracing::warn!("an answer of the store was lost; finding out what happened");
                }
                false
            }
            StoreReply::Fenced => {
                tracing::warn!(slot, "a request was fenced: the slot was taken or settled meanwhile");
                true
            }
            StoreReply::SuffixLost => {
                tracing::error!(slot, "the store has lost acknowledged commits; loading everything anew");
                true
            }
            StoreReply::Taken(epoch) => {
                tracing::info!(slot, epoch = epoch.0, "the slot is ours");
                true
            }
            StoreReply::Released => {
                tracing::info!(slot, "the slot is released");
                true
            }
            StoreReply::Watched(_)
            | StoreReply::Renewed
            | StoreReply::Committed
            | StoreReply::Settled { .. }
            | StoreReply::Page { .. }
            | StoreReply::Queues { .. }
            | StoreReply::Logs(_)
            | StoreReply::Segments(_)
            | StoreReply::DeadLetters(_)
            | StoreReply::Traces { .. }
            | StoreReply::TraceNames { .. }
            | StoreReply::Activity(_)
            | StoreReply::Trimmed { .. }
            | StoreReply::Extents(_)
            | StoreReply::History(_)
            | StoreReply::Pong => true,
        };
        if works && !self.store_works {
            tracing::info!("the store works again");
        }
        self.store_works = works;
    }
}

/// Writes what the operator may want to read. What was deleted before anybody consumed it is worth a warning.
fn tell(notice: &Notice) {
    let Notice::Deleted { tenant, queue, rule, tally } = notice;
    let (tenant, queue, rule) = (tenant.0, queue.as_str(), rule.option());
    let Tally { segments, messages, unconsumed } = *tally;
    if unconsumed > 0 {
        tracing::warn!(
            %tenant, queue, rule, messages, segments, unconsumed, "retention deleted messages that nobody had consumed"
        );
    } else {
        tracing::debug!(%tenant, queue, rule, messages, segments, "retention deleted messages");
    }
}

/// Spreads numbers that count up, without the cost of a hash made against strangers: no client chooses a request id.
#[derive(Default)]
struct CountingHasher(u64);

impl Hasher for CountingHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // 2^64 divided by the golden ratio: the map looks at the top bits too.
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}
