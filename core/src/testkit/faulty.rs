//! A store that misbehaves on command: it fences, fails, is slow, loses requests, answers and commits, and carries out
//! late what it said it knew nothing of.
//!
//! Nothing is random here. A test says what happens to each request, by `submit_with` or by a script, moves time on and
//! collects answers with `poll`; the same calls give the same answers.

use alloc::collections::{BTreeMap, VecDeque};

use super::Store;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::{StoreAnswer, StoreCall, StoreReply, StoreRequest};
use crate::time::{Span, Timestamp};

/// What happens to one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Nothing: it takes the usual time.
    None,
    /// It is refused as if another owner had the slot; the store never sees it.
    Fenced,
    /// It is refused; the store never sees it.
    Failed(StoreErrorKind),
    /// The store never sees it, and the caller cannot know: `Unknown`.
    RequestLost,
    /// The store carries it out, and the caller cannot know: `Unknown`.
    AnswerLost,
    /// The caller is told `Unknown`, and the request reaches the store this much later, unless it is fenced by then.
    Late(Span),
    /// It reaches the store after `request`, and its answer leaves `answer` after that.
    Slow {
        /// On the way there.
        request: Span,
        /// On the way back.
        answer: Span,
    },
    /// It reaches the store when the test calls `deliver_held`.
    Held,
    /// The store loses its last commits, as many as are said and remembered, and then gets the request.
    SuffixLost(usize),
}

/// A request without what it carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestKind {
    /// `StoreRequest::Watch`
    Watch,
    /// `StoreRequest::Take`
    Take,
    /// `StoreRequest::Renew`
    Renew,
    /// `StoreRequest::Release`
    Release,
    /// `StoreRequest::Commit`
    Commit,
    /// `StoreRequest::Settle`
    Settle,
    /// `StoreRequest::Load`, of queues, logs, extents and history too
    Load,
    /// `StoreRequest::Read`
    Read,
    /// `StoreRequest::ReadDeadLetters`
    ReadDeadLetters,
    /// `StoreRequest::ReadTraces`, `ReadTraceNames` or `ReadActivity`
    ReadOperations,
    /// `StoreRequest::Trim`, of logs and of history too
    Trim,
    /// `StoreRequest::Ping`
    Ping,
}

impl RequestKind {
    /// The kind of a request.
    pub fn of(request: &StoreRequest) -> Self {
        match request {
            StoreRequest::Watch(_) => RequestKind::Watch,
            StoreRequest::Take { .. } => RequestKind::Take,
            StoreRequest::Renew { .. } => RequestKind::Renew,
            StoreRequest::Release(_) => RequestKind::Release,
            StoreRequest::Commit(_) => RequestKind::Commit,
            StoreRequest::Settle { .. } => RequestKind::Settle,
            StoreRequest::Load { .. } | StoreRequest::LoadQueues { .. } | StoreRequest::LoadLogs(_) => {
                RequestKind::Load
            }
            StoreRequest::Read(_) => RequestKind::Read,
            StoreRequest::ReadDeadLetters(_) => RequestKind::ReadDeadLetters,
            StoreRequest::ReadTraces { .. }
            | StoreRequest::ReadTraceNames { .. }
            | StoreRequest::ReadActivity { .. } => RequestKind::ReadOperations,
            StoreRequest::LoadExtents { .. } | StoreRequest::LoadHistory { .. } => RequestKind::Load,
            StoreRequest::Trim { .. } | StoreRequest::TrimLogs { .. } | StoreRequest::TrimHistory { .. } => {
                RequestKind::Trim
            }
            StoreRequest::Ping => RequestKind::Ping,
        }
    }
}

/// Something under way, due at a time.
#[derive(Clone, Debug)]
enum Event {
    /// A request reaches the store; without a call, nobody waits for the answer.
    Arrival(Option<StoreCall>, StoreRequest, Arrival),
    /// An answer reaches the caller.
    Answer(StoreAnswer),
}

/// What happens once a request is there.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    /// Commits that the store loses first.
    lose: usize,
    /// How long the answer takes.
    answer: Span,
    /// Whether the answer says nothing.
    unknown: bool,
}

/// A wrapper around a store. A clone goes its own way from there.
#[derive(Clone, Debug)]
pub struct Faulty<S> {
    inner: S,
    script: VecDeque<(Option<RequestKind>, Fault)>,
    outage: Option<StoreErrorKind>,
    latency: (Span, Span),
    clock_offset: Span,
    remembered: usize,
    /// The store before each of its last commits, newest last.
    snapshots: VecDeque<S>,
    /// By due time, then in order of submission.
    events: BTreeMap<(Timestamp, u64), Event>,
    next_number: u64,
    held: VecDeque<(StoreCall, StoreRequest)>,
    answers: VecDeque<StoreAnswer>,
}

impl<S: Store + Clone> Faulty<S> {
    /// A store without faults that takes no time.
    pub fn new(inner: S) -> Self {
        Faulty {
            inner,
            script: VecDeque::new(),
            outage: None,
            latency: (Span::ZERO, Span::ZERO),
            clock_offset: Span::ZERO,
            remembered: 0,
            snapshots: VecDeque::new(),
            events: BTreeMap::new(),
            next_number: 0,
            held: VecDeque::new(),
            answers: VecDeque::new(),
        }
    }

    /// Remembers the store before each of the last `commits` commits, so that they can be lost. Each costs a clone.
    pub fn remembering(mut self, commits: usize) -> Self {
        self.remembered = commits;
        self
    }

    /// The store behind the faults.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// The store behind the faults, for a second owner or for what no fault can do.
    pub fn inner_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The next submitted request of a kind, or the next one at all, meets this fault. Scripted faults are met in the
    /// order in which they were scripted, each once.
    pub fn script(&mut self, kind: Option<RequestKind>, fault: Fault) {
        self.script.push_back((kind, fault));
    }

    /// How many scripted faults no request has met yet.
    pub fn scripted(&self) -> usize {
        self.script.len()
    }

    /// From now on every submitted request is refused with this kind; with none, the outage is over.
    pub fn set_outage(&mut self, outage: Option<StoreErrorKind>) {
        self.outage = outage;
    }

    /// How long requests and answers are on their way when no fault says otherwise.
    pub fn set_latency(&mut self, request: Span, answer: Span) {
        self.latency = (request, answer);
    }

    /// Steps the store's own clock: it differs from the test's by this much.
    pub fn set_clock_offset(&mut self, offset: Span) {
        self.clock_offset = offset;
    }

    /// Loses the last commits, with all that happened since, as many as are remembered; says how many.
    pub fn lose_suffix(&mut self, commits: usize) -> usize {
        let lost = commits.min(self.snapshots.len());
        for _ in 0..lost {
            if let Some(snapshot) = self.snapshots.pop_back() {
                self.inner = snapshot;
            }
        }
        lost
    }

    /// The caller is gone: it gets no answer any more. Its requests that are under way still reach the store.
    pub fn abandon(&mut self) {
        self.answers.clear();
        self.events.retain(|_, event| match event {
            Event::Arrival(call, ..) => {
                *call = None;
                true
            }
            Event::Answer(_) => false,
        });
        self.held.clear();
    }

    /// Takes a request; it meets the outage, or the first scripted fault that fits.
    pub fn submit(&mut self, now: Timestamp, call: StoreCall, request: StoreRequest) {
        let fault = match self.outage {
            Some(kind) => Fault::Failed(kind),
            None => self.next_fault(RequestKind::of(&request)),
        };
        self.submit_with(now, call, request, fault);
    }

    /// Takes a request that meets this fault, whatever else was said.
    pub fn submit_with(&mut self, now: Timestamp, call: StoreCall, request: StoreRequest, fault: Fault) {
        let (there, back) = self.latency;
        let usual = Arrival { lose: 0, answer: back, unknown: false };
        let refused_at = now.plus(there).plus(back);
        match fault {
            Fault::None => self.schedule_arrival(now.plus(there), Some(call), request, usual),
            Fault::Fenced => self.schedule_answer(refused_at, call, StoreReply::Fenced),
            Fault::Failed(kind) => {
                let error = StoreError { kind, text: "the test says so".into() };
                self.schedule_answer(refused_at, call, StoreReply::Failed(error));
            }
            Fault::RequestLost => self.schedule_answer(refused_at, call, StoreReply::Unknown),
            Fault::AnswerLost => {
                self.schedule_arrival(now.plus(there), Some(call), request, Arrival { unknown: true, ..usual });
            }
            Fault::Late(by) => {
                self.schedule_answer(refused_at, call, StoreReply::Unknown);
                self.schedule_arrival(now.plus(there).plus(by), None, request, usual);
            }
            Fault::Slow { request: there, answer } => {
                self.schedule_arrival(now.plus(there), Some(call), request, Arrival { answer, ..usual });
            }
            Fault::Held => self.held.push_back((call, request)),
            Fault::SuffixLost(lose) => {
                self.schedule_arrival(now.plus(there), Some(call), request, Arrival { lose, ..usual });
            }
        }
    }

    /// Every held request reaches the store now, in the order in which they were submitted.
    pub fn deliver_held(&mut self, now: Timestamp) {
        let arrival = Arrival { lose: 0, answer: self.latency.1, unknown: false };
        while let Some((call, request)) = self.held.pop_front() {
            self.schedule_arrival(now, Some(call), request, arrival);
        }
    }

    /// The next answer that is there by `now`. What is due reaches the store first, each at its own time.
    pub fn poll(&mut self, now: Timestamp) -> Option<StoreAnswer> {
        self.run_until(now);
        self.answers.pop_front()
    }

    /// When something next happens by itself; held requests do not.
    pub fn next_event(&self) -> Option<Timestamp> {
        self.events.first_key_value().map(|((due, _), _)| *due)
    }

    fn next_fault(&mut self, kind: RequestKind) -> Fault {
        let met = self.script.iter().position(|(wanted, _)| wanted.is_none_or(|wanted| wanted == kind));
        met.and_then(|at| self.script.remove(at)).map_or(Fault::None, |(_, fault)| fault)
    }

    fn schedule_arrival(&mut self, due: Timestamp, call: Option<StoreCall>, request: StoreRequest, arrival: Arrival) {
        let number = self.number();
        self.events.insert((due, number), Event::Arrival(call, request, arrival));
    }

    fn schedule_answer(&mut self, due: Timestamp, call: StoreCall, reply: StoreReply) {
        let (time, number) = (due.plus(self.clock_offset), self.number());
        self.events.insert((due, number), Event::Answer(StoreAnswer { call, time, reply }));
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    fn run_until(&mut self, now: Timestamp) {
        while let Some(entry) = self.events.first_entry()
            && entry.key().0 <= now
        {
            let ((due, number), event) = entry.remove_entry();
            match event {
                Event::Answer(answer) => self.answers.push_back(answer),
                Event::Arrival(call, request, arrival) => {
                    self.lose_suffix(arrival.lose);
                    let time = due.plus(self.clock_offset);
                    let reply = self.carry_out(time, request);
                    if let Some(call) = call {
                        let reply = if arrival.unknown { StoreReply::Unknown } else { reply };
                        let answer = Event::Answer(StoreAnswer { call, time, reply });
                        self.events.insert((due.plus(arrival.answer), number), answer);
                    }
                }
            }
        }
    }

    fn carry_out(&mut self, time: Timestamp, request: StoreRequest) -> StoreReply {
        let commits = self.remembered > 0 && RequestKind::of(&request) == RequestKind::Commit;
        let snapshot = commits.then(|| self.inner.clone());
        let reply = self.inner.call(time, request);
        if reply == StoreReply::Committed {
            self.snapshots.extend(snapshot);
            while self.snapshots.len() > self.remembered {
                self.snapshots.pop_front();
            }
        }
        reply
    }
}

/// For a caller that cannot wait: what is not answered at once is `Unknown`, and what was under way stays so.
impl<S: Store + Clone> Store for Faulty<S> {
    fn call(&mut self, now: Timestamp, request: StoreRequest) -> StoreReply {
        const CALL: StoreCall = StoreCall(u64::MAX);
        self.submit(now, CALL, request);
        self.run_until(now);
        let answered = self.answers.iter().position(|answer| answer.call == CALL);
        if let Some(answer) = answered.and_then(|at| self.answers.remove(at)) {
            return answer.reply;
        }
        self.events.retain(|_, event| match event {
            Event::Arrival(call, ..) => {
                if *call == Some(CALL) {
                    *call = None;
                }
                true
            }
            Event::Answer(answer) => answer.call != CALL,
        });
        StoreReply::Unknown
    }
}
