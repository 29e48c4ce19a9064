//! The store behind a connection that misbehaves when a script says so: the test kit's faulty store, told by symbols.

use std::collections::BTreeSet;

use tidegate_core::error::StoreErrorKind;
use tidegate_core::store::{StoreAnswer, StoreCall, StoreReply, StoreRequest};
use tidegate_core::testkit::Store;
use tidegate_core::testkit::faulty::{Fault, Faulty, RequestKind};
use tidegate_core::time::{Span, Timestamp};
use tidegate_store_memory::MemoryStore;

use super::commands::{Fate, On};

/// Segments in a page of a log.
const PAGE: usize = 2;

/// The store, its connection, and what is on its way.
pub struct Faults {
    store: Faulty<Doubter>,
    armed: Vec<(On, Fate)>,
    away_until: Timestamp,
    /// Commits and reads wait until they are let go.
    pub holding: bool,
    held: Vec<(StoreCall, StoreRequest)>,
    unanswered: BTreeSet<StoreCall>,
    /// When something last went wrong, so that answers that say so are believed.
    pub last_wrong: Option<Timestamp>,
}

/// A store that says once, when told to, that it lacks commits; it has them all.
#[derive(Clone, Default)]
struct Doubter {
    store: MemoryStore,
    doubts: bool,
}

impl Store for Doubter {
    fn call(&mut self, now: Timestamp, request: StoreRequest) -> StoreReply {
        let fenced = matches!(request, StoreRequest::Commit(_) | StoreRequest::Renew { .. });
        if fenced && std::mem::take(&mut self.doubts) {
            return StoreReply::SuffixLost;
        }
        let mut reply = self.store.call(now, request);
        // Small pages, so that a log takes several.
        if let StoreReply::Logs(pages) = &mut reply {
            for page in pages {
                page.more |= page.segments.len() > PAGE;
                page.segments.truncate(PAGE);
            }
        }
        reply
    }
}

impl Faults {
    pub fn new() -> Self {
        Faults {
            store: Faulty::new(Doubter::default()),
            armed: Vec::new(),
            away_until: Timestamp::MIN,
            holding: false,
            held: Vec::new(),
            unanswered: BTreeSet::new(),
            last_wrong: None,
        }
    }

    pub fn arm(&mut self, on: On, fate: Fate) {
        if self.armed.len() < 3 {
            self.armed.push((on, fate));
        }
    }

    pub fn be_away(&mut self, until: Timestamp) {
        self.away_until = self.away_until.max(until);
    }

    /// No more faults, but what is on its way stays so.
    pub fn calm(&mut self) {
        self.armed.clear();
        self.away_until = Timestamp::MIN;
        self.store.inner_mut().doubts = false;
    }

    /// The broker is gone: nobody hears the answers any more.
    pub fn forget(&mut self) {
        self.store.abandon();
        self.held.clear();
        self.unanswered.clear();
    }

    /// Asks the store behind the connection's back, as another broker would.
    pub fn stranger(&mut self, now: Timestamp, request: StoreRequest) -> StoreReply {
        self.store.inner_mut().store.call(now, request)
    }

    /// Takes a request.
    pub fn submit(&mut self, now: Timestamp, call: StoreCall, request: StoreRequest) {
        self.unanswered.insert(call);
        if now < self.away_until {
            self.last_wrong = Some(now);
            self.store.submit_with(now, call, request, Fault::Failed(StoreErrorKind::Unavailable));
            return;
        }
        let kind = RequestKind::of(&request);
        if self.holding && matches!(kind, RequestKind::Commit | RequestKind::Read | RequestKind::ReadDeadLetters) {
            self.held.push((call, request));
            return;
        }
        let fault = match self.armed.iter().position(|(on, _)| fits(*on, kind)) {
            None => Fault::None,
            Some(place) => {
                self.last_wrong = Some(now);
                self.fault(self.armed[place].1, kind)
            }
        };
        if let Some(place) = self.armed.iter().position(|(on, _)| fits(*on, kind)) {
            self.armed.remove(place);
        }
        self.store.submit_with(now, call, request, fault);
    }

    fn fault(&mut self, fate: Fate, kind: RequestKind) -> Fault {
        let span = |ms: u32| Span::from_millis(i64::from(ms));
        match fate {
            Fate::Fail => Fault::Failed(StoreErrorKind::Unavailable),
            Fate::LostAfter => Fault::AnswerLost,
            Fate::LostBefore => Fault::RequestLost,
            Fate::LostAndLate { ms } => Fault::Late(span(ms)),
            Fate::SlowAnswer { ms } => Fault::Slow { request: Span::ZERO, answer: span(ms) },
            Fate::SlowRequest { ms } => Fault::Slow { request: span(ms), answer: Span::ZERO },
            Fate::SuffixLost if matches!(kind, RequestKind::Commit | RequestKind::Renew) => {
                self.store.inner_mut().doubts = true;
                Fault::None
            }
            Fate::SuffixLost => Fault::Failed(StoreErrorKind::Corrupt),
        }
    }

    /// The next answer that has arrived.
    pub fn answer(&mut self, now: Timestamp) -> Option<StoreAnswer> {
        let answer = self.store.poll(now)?;
        self.unanswered.remove(&answer.call);
        Some(answer)
    }

    /// Lets one held request go, if there is one.
    pub fn let_go(&mut self, which: u8, now: Timestamp) -> bool {
        if self.held.is_empty() {
            return false;
        }
        let (call, request) = self.held.remove(usize::from(which) % self.held.len());
        self.store.submit_with(now, call, request, Fault::None);
        true
    }

    /// When the next thing on its way arrives.
    pub fn next(&self) -> Option<Timestamp> {
        self.store.next_event()
    }

    /// Whether the store may be misbehaving.
    pub fn troubled(&self, now: Timestamp) -> bool {
        now < self.away_until || self.store.next_event().is_some()
    }

    /// Whether an answer to the broker is on its way.
    pub fn owes(&self) -> bool {
        !self.unanswered.is_empty()
    }
}

fn fits(on: On, kind: RequestKind) -> bool {
    match on {
        On::Commit => kind == RequestKind::Commit,
        On::Renew => kind == RequestKind::Renew,
        On::Settle => kind == RequestKind::Settle,
        On::Read => matches!(kind, RequestKind::Read | RequestKind::ReadDeadLetters),
        On::Take => kind == RequestKind::Take,
        On::Load => kind == RequestKind::Load,
    }
}
