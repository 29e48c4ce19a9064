//! From a seed to a list of steps.

// Fields mean what their names say; what they count is said where it is not plain.
#![allow(missing_docs)]

use tidegate_core::command::AckStatus;
use tidegate_core::options::QueueOptions;

/// When a step happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delay {
    /// So many microseconds after the step before.
    Micros(i64),
    /// Beside the nth of the next times at which an answer changes by itself: so many microseconds after it.
    Edge(u8, i8),
}

impl Delay {
    /// How long it is for certain.
    pub fn micros(self) -> i64 {
        match self {
            Delay::Micros(micros) => micros,
            Delay::Edge(..) => 0,
        }
    }

    /// The same, and so much later.
    pub fn later(self, micros: i64) -> Self {
        match self {
            Delay::Micros(own) => Delay::Micros(own + micros),
            edge => edge,
        }
    }
}

/// What a client, an operator or fate does.
#[derive(Clone, PartialEq, Debug)]
pub enum Op {
    /// Each item is a partition and perhaps one of few transaction ids.
    Push {
        tenant: u8,
        queue: u8,
        items: Vec<(u8, Option<u8>)>,
    },
    Pop {
        tenant: u8,
        queue: u8,
        partition: Option<u8>,
        group: u8,
        batch: u8,
        cap: Option<u8>,
        auto_ack: bool,
        wait: i64,
        lease: i64,
        start: Start,
        fate: Fate,
    },
    /// The client of the nth pop that waits leaves.
    Leave(u8),
    /// Items are places in the nth newest delivery.
    Ack {
        nth: u8,
        items: Vec<(u8, AckStatus)>,
        proof: Proof,
        group: Option<u8>,
        tenant: u8,
    },
    Extend {
        nth: u8,
        length: i64,
        tenant: u8,
    },
    Transaction {
        nth: u8,
        acks: Vec<(u8, AckStatus)>,
        proof: Proof,
        pushes: Vec<(u8, u8, Option<u8>)>,
        required: Option<u8>,
        unknown: bool,
    },
    Configure {
        tenant: u8,
        queue: u8,
        options: u8,
    },
    DeleteQueue {
        tenant: u8,
        queue: u8,
    },
    DeleteGroup {
        tenant: u8,
        group: u8,
        queue: Option<u8>,
        metadata: bool,
    },
    /// To the end, or to the commit time of the nth newest message plus so much.
    Seek {
        tenant: u8,
        group: u8,
        queue: u8,
        partition: Option<u8>,
        to: Option<(u8, i8)>,
    },
    Replay {
        nth: u8,
        item: u8,
        own_group: bool,
        tenant: u8,
    },
    DropDead {
        nth: u8,
        item: u8,
        tenant: u8,
    },
    /// Where everybody stands.
    Show {
        tenant: u8,
    },
    /// What becomes of the next step's first commit.
    Fault(Fault),
    /// Another broker takes the slot, and leaves it.
    Steal,
    /// The broker ends without a word; another one begins.
    Restart,
}

/// Where a new group starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    Default,
    All,
    New,
    /// At the commit time of the nth newest message.
    Time(u8),
}

/// What becomes of a pop's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Received,
    /// The client was gone when it was written.
    Unsent,
    /// The client left before it was there.
    Abandoned,
}

/// What an ack says of its lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proof {
    Own,
    None,
    Foreign,
    /// The lease of the nth newest delivery.
    Other(u8),
}

/// What the store does with a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    Fails,
    AnswerLost,
    RequestLost,
}

/// A step.
#[derive(Clone, PartialEq, Debug)]
pub struct Step {
    pub delay: Delay,
    pub op: Op,
}

/// A whole run.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// For the ids that the core makes.
    pub seed: u64,
    /// The configurations that `Configure` chooses from.
    pub options: Vec<QueueOptions>,
    /// Messages that end a window early.
    pub window_batch: u64,
    pub steps: Vec<Step>,
}

/// SplitMix64: small, and the same everywhere for ever.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    fn small(&mut self, n: u64) -> u8 {
        self.below(n) as u8
    }

    /// Once in n times.
    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// Kinds of operations with how often they come.
const WEIGHTS: [u64; 16] = [26, 26, 2, 20, 5, 6, 4, 1, 2, 7, 3, 2, 6, 4, 1, 2];

impl Plan {
    /// The list of a seed.
    pub fn random(seed: u64, length: usize) -> Self {
        let mut random = Random::new(seed);
        let r = &mut random;
        let mut options = Vec::new();
        for _ in 0..3 {
            options.push(some_options(r));
        }
        // Swarm: some kinds do not exist in this run; without pushes and pops there is nothing to see.
        let mut weights = WEIGHTS;
        for (kind, weight) in weights.iter_mut().enumerate() {
            if kind > 1 && r.one_in(5) {
                *weight = 0;
            }
        }
        let calm = r.one_in(3);
        if calm {
            weights[13..].fill(0);
        }
        let mut plan = Plan { seed, options, window_batch: 2 + r.below(2), steps: Vec::new() };
        for queue in 0..2 {
            let op = Op::Configure { tenant: 0, queue, options: queue };
            plan.steps.push(Step { delay: Delay::Micros(1), op });
        }
        let scale = r.pick(&[10, 1_000, 100_000, 3_000_000]);
        while plan.steps.len() < length {
            let delay = match r.below(6) {
                0 => Delay::Micros(0),
                1..4 => Delay::Edge(r.small(4), r.pick(&[-1, 0, 1, 0])),
                _ => Delay::Micros(r.below(scale) as i64),
            };
            let op = some_op(r, &weights);
            plan.steps.push(Step { delay, op });
        }
        plan
    }
}

fn some_options(r: &mut Random) -> QueueOptions {
    QueueOptions {
        lease_time: r.pick(&[5, 10, 30]),
        retry_limit: r.pick(&[0, 1, 1, 2]),
        retry_delay: 1_000,
        priority: 0,
        max_size: 0,
        ttl: 3_600,
        dead_letter_queue: !r.one_in(3),
        dlq_after_max_retries: !r.one_in(3),
        delayed_processing: r.pick(&[0, 0, 0, 3]),
        window_buffer: r.pick(&[0, 0, 4]),
        retention_enabled: false,
        retention_seconds: 0,
        completed_retention_seconds: 0,
        max_wait_time_seconds: 0,
        min_pop_wait_time: r.pick(&[0, 0, 0, 0, 2_000]),
        encryption_enabled: false,
        dedup_window_seconds: r.pick(&[0, 6, 6, 20, 3_600]),
    }
}

fn some_status(r: &mut Random) -> AckStatus {
    r.pick(&[
        AckStatus::Completed,
        AckStatus::Completed,
        AckStatus::Completed,
        AckStatus::Failed,
        AckStatus::Failed,
        AckStatus::Retry,
        AckStatus::DeadLetter,
    ])
}

fn some_items(r: &mut Random) -> Vec<(u8, AckStatus)> {
    match r.below(3) {
        // All of a small batch, the same way.
        0 => {
            let status = some_status(r);
            (0..4).map(|at| (at, status)).collect()
        }
        _ => (0..1 + r.below(3)).map(|_| (r.small(4), some_status(r))).collect(),
    }
}

fn some_proof(r: &mut Random) -> Proof {
    match r.below(10) {
        0 => Proof::None,
        1 => Proof::Foreign,
        2 => Proof::Other(r.small(3)),
        _ => Proof::Own,
    }
}

fn some_op(r: &mut Random, weights: &[u64; 16]) -> Op {
    let mut at = r.below(weights.iter().sum());
    let mut kind = 0;
    while at >= weights[kind] {
        at -= weights[kind];
        kind += 1;
    }
    let tenant = u8::from(r.one_in(12));
    let queue = r.small(2);
    let group = r.small(3);
    let nth = r.pick(&[0, 0, 0, 1, 1, 2, 3]);
    let key = |r: &mut Random| (!r.one_in(3)).then(|| r.small(5));
    match kind {
        0 => {
            let count = r.pick(&[1, 1, 2, 3, 5]);
            let same = r.one_in(2).then(|| r.small(3));
            let items = (0..count).map(|_| (same.unwrap_or_else(|| r.small(3)), key(r))).collect();
            Op::Push { tenant, queue, items }
        }
        1 => {
            let fate = r.pick(&[
                Fate::Received,
                Fate::Received,
                Fate::Received,
                Fate::Received,
                Fate::Received,
                Fate::Unsent,
                Fate::Abandoned,
            ]);
            Op::Pop {
                tenant,
                queue,
                partition: r.one_in(3).then(|| r.small(3)),
                group,
                batch: r.pick(&[1, 1, 2, 3, 10]),
                cap: r.one_in(3).then(|| 1 + r.small(2)),
                auto_ack: r.one_in(6),
                wait: r.pick(&[0, 3_000_000, 12_000_000]),
                lease: r.pick(&[0, 0, 2_000_000, 7_000_000]),
                start: match r.below(6) {
                    0 => Start::New,
                    1 => Start::Time(r.small(4)),
                    2 => Start::All,
                    _ => Start::Default,
                },
                fate,
            }
        }
        2 => Op::Leave(nth),
        3 => Op::Ack {
            nth,
            items: some_items(r),
            proof: some_proof(r),
            group: r.one_in(12).then_some(group),
            tenant: u8::from(r.one_in(20)),
        },
        4 => Op::Extend { nth, length: r.pick(&[1, 1_000_000, 8_000_000, 40_000_000]), tenant: u8::from(r.one_in(8)) },
        5 => {
            let pushes = (0..r.below(3)).map(|_| (r.small(2), r.small(3), key(r))).collect();
            let acks = if r.one_in(4) { Vec::new() } else { some_items(r) };
            Op::Transaction {
                nth,
                acks,
                proof: some_proof(r),
                pushes,
                required: r.one_in(4).then(|| r.small(3)),
                unknown: r.one_in(10),
            }
        }
        6 => Op::Configure { tenant, queue, options: r.small(3) },
        7 => Op::DeleteQueue { tenant, queue },
        8 => Op::DeleteGroup { tenant, group, queue: r.one_in(2).then_some(queue), metadata: r.one_in(2) },
        9 => {
            let to = (!r.one_in(4)).then(|| (r.small(6), r.pick(&[-1, 0, 0, 1])));
            Op::Seek { tenant, group, queue, partition: r.one_in(2).then(|| r.small(3)), to }
        }
        10 => Op::Replay { nth, item: r.small(3), own_group: r.one_in(2), tenant: u8::from(r.one_in(6)) },
        11 => Op::DropDead { nth, item: r.small(3), tenant: u8::from(r.one_in(6)) },
        12 => Op::Show { tenant },
        13 => Op::Fault(r.pick(&[Fault::Fails, Fault::AnswerLost, Fault::RequestLost])),
        14 => Op::Steal,
        _ => Op::Restart,
    }
}
