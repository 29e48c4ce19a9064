//! One broker over one memory store that misbehaves on command, pumped by hand.
#![allow(dead_code)]

use bytes::Bytes;
use compact_str::CompactString;
use tidegate_core::broker::{Broker, Notice, Output};
use tidegate_core::command::*;
use tidegate_core::message::NewMessage;
use tidegate_core::name::*;
use tidegate_core::reply::*;
use tidegate_core::settings::Settings;
use tidegate_core::store::{Fence, Slot, StoreReply, StoreRequest, Token};
use tidegate_core::testkit::faulty::Faulty;
use tidegate_core::time::*;
use tidegate_store_memory::MemoryStore;

pub struct World {
    pub broker: Broker,
    pub store: Faulty<MemoryStore>,
    pub now: Now,
    pub replies: Vec<(RequestId, Reply)>,
    pub notices: Vec<Notice>,
    /// Logs of which a page was asked for.
    pub logs_asked: usize,
    /// The owner's fence, as it was last used.
    pub fence: Option<Fence>,
    settings: Settings,
    last: u64,
}

impl World {
    pub fn new() -> Self {
        Self::with(Settings::default())
    }

    pub fn with(settings: Settings) -> Self {
        let now = Now { monotonic: Moment::from_micros(1), store: Timestamp::from_micros(1_700_000_000_000_000) };
        let broker = Broker::new(settings.clone(), [7; 32]);
        let store = Faulty::new(MemoryStore::default()).remembering(4);
        let (replies, notices, logs_asked, fence, last) = (Vec::new(), Vec::new(), 0, None, 0);
        let mut world = World { broker, store, now, replies, notices, logs_asked, fence, settings, last };
        world.pump();
        world
    }

    /// The broker dies with everything it knows; another one takes the slot once its silence is long enough.
    pub fn restart(&mut self) {
        self.store.abandon();
        self.broker = Broker::new(self.settings.clone(), [8; 32]);
        self.pump();
        self.advance(Span::from_secs(5));
        self.logs_asked = 0;
    }

    /// Lets time pass, and everything happen on its way at its own time.
    pub fn advance(&mut self, span: Span) {
        let end = self.now.monotonic.plus(span);
        while self.now.monotonic < end {
            let mut next = end;
            if let Some(deadline) = self.broker.deadline() {
                next = next.min(deadline.max(self.now.monotonic.plus(Span::from_micros(1))));
            }
            if let Some(event) = self.store.next_event() {
                let wait = event.since(self.now.store).max(Span::from_micros(1));
                next = next.min(self.now.monotonic.plus(wait));
            }
            let step = next.since(self.now.monotonic);
            self.now = Now { monotonic: next, store: self.now.store.plus(step) };
            self.broker.tick(self.now);
            self.pump();
        }
    }

    /// Everything that happens without time passing.
    pub fn pump(&mut self) {
        loop {
            let mut quiet = true;
            while let Some(output) = self.broker.poll() {
                quiet = false;
                match output {
                    Output::Reply(id, reply) => self.replies.push((id, reply)),
                    Output::Notice(notice) => self.notices.push(notice),
                    Output::Store(call, request) => {
                        match &request {
                            StoreRequest::LoadLogs(reads) => self.logs_asked += reads.len(),
                            StoreRequest::Renew { fence, .. } => self.fence = Some(*fence),
                            _ => {}
                        }
                        self.store.submit(self.now.store, call, request);
                    }
                }
            }
            while let Some(answer) = self.store.poll(self.now.store) {
                quiet = false;
                self.broker.stored(self.now, answer);
            }
            if quiet {
                return;
            }
        }
    }

    /// A second broker's take of the slot, whoever has it.
    pub fn take_by_stranger(&mut self) {
        let slot = Slot(0);
        let now = self.now.store;
        let StoreReply::Watched(view) = self.store.inner_mut().call(now, StoreRequest::Watch(slot)) else { panic!() };
        let owner = CompactString::const_new("stranger");
        let take = StoreRequest::Take { slot, seen: view.epoch, token: Token(99), owner };
        assert!(matches!(self.store.inner_mut().call(now, take), StoreReply::Taken(_)));
    }

    pub fn start(&mut self, command: Command) -> RequestId {
        self.last += 1;
        let id = RequestId(self.last);
        self.broker.request(self.now, id, TenantId::DEFAULT, command);
        self.pump();
        id
    }

    pub fn answer(&mut self, id: RequestId) -> Option<Reply> {
        let at = self.replies.iter().position(|(other, _)| *other == id)?;
        self.broker.sent(id);
        Some(self.replies.remove(at).1)
    }

    /// A call over a store that takes its time.
    pub fn call_slowly(&mut self, command: Command) -> Reply {
        let id = self.start(command);
        self.advance(Span::from_secs(1));
        self.answer(id).expect("no answer")
    }

    pub fn call(&mut self, command: Command) -> Reply {
        let id = self.start(command);
        self.answer(id).expect("no answer")
    }
}

pub fn pushed(reply: &Reply) -> &[PushOutcome] {
    match reply {
        Reply::Pushed(outcomes) => outcomes,
        other => panic!("not pushed: {other:?}"),
    }
}

pub fn queued(reply: &Reply) -> bool {
    pushed(reply).iter().all(|outcome| matches!(outcome, PushOutcome::Queued(_)))
}

pub fn delivered(reply: Reply) -> Delivery {
    match reply {
        Reply::Popped(Some(delivery)) => delivery,
        other => panic!("nothing delivered: {other:?}"),
    }
}

/// Payloads in the order of delivery.
pub fn payloads(delivery: &Delivery) -> Vec<String> {
    let messages = delivery.claims.iter().flat_map(|claim| &claim.messages);
    messages.map(|it| String::from_utf8(it.message.payload.to_vec()).unwrap()).collect()
}

pub fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

pub fn push(q: &str, partition: &str, items: &[(&str, &'static [u8])]) -> Command {
    let items = items.iter().map(|(id, payload)| {
        let message = NewMessage {
            transaction: Some(TransactionId::new(id).unwrap()),
            payload: Bytes::from_static(payload),
            trace: None,
            producer: None,
        };
        (queue(q), PartitionName::new(partition).unwrap(), message)
    });
    Command::Push(Push::new(items))
}

pub fn pop(q: &str, batch: u32) -> Command {
    Command::Pop(Pop {
        scope: PopScope::Queue(queue(q)),
        group: GroupName::queue_mode(),
        batch,
        partitions: Some(1),
        auto_ack: false,
        wait: None,
        lease: None,
        start: None,
    })
}

pub fn long_pop(q: &str, batch: u32, wait: Span) -> Command {
    let Command::Pop(pop) = pop(q, batch) else { unreachable!() };
    Command::Pop(Pop { wait: Some(wait), ..pop })
}

pub fn ack(delivery: &Delivery, status: AckStatus) -> Command {
    let lease = delivery.lease.map_or(LeaseProof::None, LeaseProof::Lease);
    let items = delivery.claims.iter().flat_map(|claim| {
        claim.messages.iter().map(move |message| AckItem {
            partition: claim.partition,
            transaction: Some(
                TransactionId::new(&tidegate_core::message::transaction_text(
                    message.message.transaction.as_ref(),
                    message.id,
                ))
                .unwrap(),
            ),
            status,
            lease,
            error: None,
        })
    });
    Command::Ack(Ack { group: GroupName::queue_mode(), items: items.collect() })
}
