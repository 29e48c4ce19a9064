//! Histories by hand, for the checkers' own tests: one tenant, one queue, lanes 0 and 1, groups 0 to 2, clients 0 and 1.

use super::all;
use crate::history::{
    AckItem, Acked, Answer, Appended, At, ClientNo, Committed, Delivered, Delivery, Event, Findings, GroupNo, HostNo,
    Item, Key, LaneNo, LeaseNo, Leased, MessageNo, OpNo, Operation, Options, PartitionNo, PayloadNo, Phase, Pop, Proof,
    Pushed, QueueIdNo, QueueNo, Record, Scope, Stamp, Start, Status, TenantNo, Terms, TextNo, Written,
};

/// Store time at the beginning.
pub const EPOCH: Stamp = 1_000_000_000;
pub const SECOND: i64 = 1_000_000;

pub const OPTIONS: Options = Options {
    lease_time: 10,
    retry_limit: 1,
    dead_letters: true,
    delayed_processing: 0,
    window_buffer: 0,
    retention_enabled: false,
    retention: 0,
    completed_retention: 0,
    max_wait_time: 0,
    min_pop_wait_millis: 0,
    encryption: false,
    dedup_window: 60,
    namespace: 0,
};

/// A history in the making. Commits are stored under the next serial and number, at the present time.
pub struct Story {
    records: Vec<Record>,
    now: At,
    serial: u64,
    ops: u32,
    options: Options,
}

impl Story {
    /// A queue with both partitions, as options have it.
    pub fn with(options: Options) -> Self {
        let mut story = Story { records: Vec::new(), now: 0, serial: 0, ops: 0, options };
        let queue = Written::Queue { id: QueueIdNo(0), queue: QueueNo(0), options: Box::new(options) };
        let partition = |n: u32| Written::Partition {
            partition: PartitionNo(n),
            queue: QueueIdNo(0),
            lane: LaneNo(n as u16),
            log_start: 0,
        };
        story.commit(vec![queue, partition(0), partition(1)]);
        story
    }

    pub fn new() -> Self {
        Self::with(OPTIONS)
    }

    pub fn later(&mut self, micros: i64) -> &mut Self {
        self.now += micros;
        self
    }

    pub fn stamp(&self) -> Stamp {
        EPOCH + self.now
    }

    pub fn event(&mut self, op: u32, event: Event) -> &mut Self {
        self.records.push(Record { at: self.now, client: ClientNo(0), host: HostNo(0), op: OpNo(op), event });
        self
    }

    pub fn invoke(&mut self, operation: Operation) -> u32 {
        self.ops += 1;
        self.event(self.ops, Event::Invoke(operation));
        self.ops
    }

    pub fn ok(&mut self, op: u32, answer: Answer) -> &mut Self {
        self.event(op, Event::Ok(answer))
    }

    pub fn commit(&mut self, writes: Vec<Written>) -> &mut Self {
        self.serial += 1;
        let (serial, decided) = (self.serial, self.stamp());
        self.event(0, Event::Commit(Box::new(Committed { serial, slot: 0, epoch: 1, number: serial, decided, writes })))
    }

    pub fn phase(&mut self, phase: Phase) -> &mut Self {
        self.event(0, Event::Phase(phase))
    }

    /// Message `n` is written at `start` of lane 0, with the content and perhaps the id of the same number.
    pub fn append(&self, n: u32, start: u64, text: Option<u32>) -> Written {
        let key = text.map_or(Key::Own(MessageNo(n)), |text| Key::Given(TextNo(text)));
        let message = Appended { message: MessageNo(n), key, payload: PayloadNo(n) };
        Written::Append { partition: PartitionNo(0), start, created: self.stamp(), messages: vec![message] }
    }

    /// Message `n` is pushed to lane 0 and stored at offset `start`.
    pub fn pushed(&mut self, n: u32, start: u64, text: Option<u32>) -> &mut Self {
        let op = self.invoke(push(n, text));
        let write = self.append(n, start, text);
        self.commit(vec![write]).ok(op, Answer::Pushed(vec![Pushed::Queued(MessageNo(n))]))
    }

    pub fn cursor(next: u64, retries: u32, consumed: u64, lease: Option<Leased>) -> Written {
        Written::Cursor { partition: PartitionNo(0), group: GroupNo(1), next, retries, consumed, lease }
    }

    pub fn lease(&self, n: u32, end: u64) -> Leased {
        Leased { lease: LeaseNo(n), expires: self.stamp() + self.options.lease_time * SECOND, end }
    }

    /// Group 1 registers for all that is there, after it.
    pub fn registered(&mut self) -> &mut Self {
        self.later(1).register()
    }

    /// Group 1 registers now.
    pub fn register(&mut self) -> &mut Self {
        let op = self.invoke(pop(10));
        let (queue, group, registered) = (QueueIdNo(0), GroupNo(1), self.stamp());
        self.commit(vec![Written::Subscription { queue, group, start: Start::All, registered, changed: None }]);
        self.ok(op, Answer::Popped(Delivery::default())).later(1)
    }

    /// Group 1 is given messages `from..end` of lane 0 under a lease of that number.
    pub fn given(&mut self, n: u32, from: u64, end: u64, retries: u32) -> &mut Self {
        let op = self.invoke(pop(10));
        let lease = self.lease(n, end);
        self.commit(vec![Self::cursor(from, retries, from, Some(lease))]);
        self.delivered(op, n, from..end)
    }

    /// The answer that names messages by their offsets, which are their numbers.
    pub fn delivered(&mut self, op: u32, n: u32, offsets: std::ops::Range<u64>) -> &mut Self {
        let message = |at: u64| Delivered {
            partition: PartitionNo(0),
            lane: LaneNo(0),
            message: MessageNo(at as u32),
            key: Key::Own(MessageNo(at as u32)),
            payload: PayloadNo(at as u32),
            created: 0,
        };
        let messages = offsets.map(message).collect();
        self.ok(op, Answer::Popped(Delivery { lease: Some(LeaseNo(n)), messages }))
    }

    pub fn acks(n: u32, items: &[(u32, Status)]) -> Operation {
        let item = |&(message, status): &(u32, Status)| AckItem {
            partition: PartitionNo(0),
            key: Key::Own(MessageNo(message)),
            status,
            lease: Proof::Lease(LeaseNo(n)),
        };
        Operation::Ack { group: GroupNo(1), items: items.iter().map(item).collect() }
    }

    pub fn acked(&mut self, op: u32, count: usize) -> &mut Self {
        self.ok(op, Answer::Acked(vec![Acked::default(); count]))
    }

    /// What all checkers find in it: their names.
    pub fn found(&self) -> Vec<&'static str> {
        let terms = Terms {
            commit_log: true,
            lane_queue: vec![QueueNo(0); 2],
            queue_tenant: vec![TenantNo(0)],
            client_tenant: vec![TenantNo(0); 2],
            implicit: self.options,
            queue_mode: Some(GroupNo(0)),
            default_start: Start::All,
            hot_list: true,
            window_batch: 3,
            require_lease: false,
            epoch: EPOCH,
            skew: 0,
            latency: 0,
        };
        let (mut findings, mut checkers) = (Findings::default(), all(&terms));
        for checker in &mut checkers {
            for (place, record) in (0u32..).zip(&self.records) {
                checker.record(place, record, &mut findings);
            }
            checker.finish(&mut findings);
        }
        findings.violations.iter().map(|violation| violation.checker).collect()
    }
}

pub fn push(n: u32, text: Option<u32>) -> Operation {
    let item = Item { lane: LaneNo(0), text: text.map(TextNo), payload: PayloadNo(n) };
    Operation::Push { items: vec![item] }
}

pub fn pop(batch: u32) -> Operation {
    Operation::Pop(Pop {
        scope: Scope::Queue(QueueNo(0)),
        group: GroupNo(1),
        batch,
        partitions: 0,
        auto_ack: false,
        wait: 0,
        lease: 0,
        start: Start::Default,
    })
}
