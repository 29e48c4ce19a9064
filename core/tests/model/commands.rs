//! What a case does, symbolically: "ack the second message of the delivery before last as failed". Every step makes
//! sense in every state (a reference to nothing points at something that does not exist), so that proptest may drop
//! any of them while it shrinks.

use std::fmt;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use tidegate_core::command::AckStatus;

/// A whole case.
#[derive(Clone)]
pub struct Script {
    pub setup: Setup,
    pub steps: Vec<Step>,
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?}", self.setup)?;
        for (n, step) in self.steps.iter().enumerate() {
            writeln!(f, "  {n:>3}. {step:?}")?;
        }
        Ok(())
    }
}

/// The broker's settings.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub seed: u64,
    pub hot_list: bool,
    pub window_batch: u64,
    pub new_by_default: bool,
    pub require_lease: bool,
    /// Bytes that logs may take in memory; none for plenty.
    pub budget: Option<u16>,
}

/// One of two tenants; nearly everything happens in the first.
pub type Tenant = u8;
/// The place of a queue, partition or group in the harness's short lists.
pub type Place = u8;

/// One step.
#[derive(Clone, Debug)]
pub enum Step {
    /// A client asks, and has its answer (or is parked) before the next step.
    Ask(Tenant, Ask),
    /// Clients ask while the store keeps its answers back; then it answers, in this order.
    Together(Vec<Ask>, u8),
    /// Time passes.
    Wait(Wait),
    /// A parked client leaves.
    Leave(u8),
    /// The next delivery under a lease cannot be written to its client.
    BreakNext,
    /// The store misbehaves the next time it is asked for this.
    Fault(On, Fate),
    /// The store is away.
    Outage { ms: u32 },
    /// A stranger takes the slot and keeps it this long; then gives it back, or just stops.
    Steal { ms: u32, release: bool },
    /// The broker dies, and a new one starts over the same store.
    Restart,
    /// The broker shuts down in good order, and a new one starts.
    Drain,
}

/// How time passes.
#[derive(Clone, Copy, Debug)]
pub enum Wait {
    Micros(u32),
    Millis(u32),
    /// To the nth time from now at which something changes by itself, or a microsecond beside it.
    Edge(u8, i8),
    /// To the deadline of the nth parked call, or a microsecond beside it.
    Deadline(u8, i8),
    Hours(u32),
}

/// What a client asks.
#[derive(Clone, Debug)]
pub enum Ask {
    Push(Vec<Item>),
    Pop(Take),
    Ack { of: u8, group: Option<Place>, marks: Vec<Mark> },
    Extend { of: u8, by: Proof, ms: u32 },
    Transaction { of: u8, pushes: Vec<Item>, marks: Vec<Mark>, require: Option<Proof> },
    Configure(Place, Knobs),
    DeleteQueue(Place),
    ListQueues,
    DescribeQueue(Place),
    ListGroups(Option<Place>),
    ChangeSubscription(Place, When),
    Seek { group: Place, queue: Place, partition: Option<Place>, to: Option<When> },
    DeleteGroup { group: Place, queue: Option<Place>, metadata: bool },
    Find(Address),
    DropDead(Address),
    Replay(Address, Option<Place>),
    ListDead { queue: Option<Place>, group: Option<Place>, limit: u8, skip: u8 },
    Probe,
}

/// A message to push.
#[derive(Clone, Copy)]
pub struct Item {
    pub queue: Place,
    pub partition: Place,
    pub id: Id,
}

impl fmt::Debug for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "q{}/p{}", self.queue, self.partition)?;
        match self.id {
            Id::None => Ok(()),
            Id::Small(n) => write!(f, "#{n}"),
            Id::OfMessage(n) => write!(f, "#message{n}"),
        }
    }
}

/// A transaction id.
#[derive(Clone, Copy, Debug)]
pub enum Id {
    None,
    /// One of a few.
    Small(u8),
    /// The text of a stored message's id.
    OfMessage(u8),
}

/// A pop.
#[derive(Clone, Copy, Debug)]
pub struct Take {
    pub from: From,
    pub group: Place,
    pub batch: u8,
    pub cap: Option<u8>,
    pub auto_ack: bool,
    pub wait_ms: Option<u32>,
    pub lease_secs: Option<u8>,
    pub start: Option<Start>,
}

/// A pop's route.
#[derive(Clone, Copy, Debug)]
pub enum From {
    Queue(Place),
    Partition(Place, Place),
    Labels(Option<u8>, Option<u8>),
}

/// Where a new group starts.
#[derive(Clone, Copy, Debug)]
pub enum Start {
    All,
    New,
    Time(When),
}

/// One settled message of a delivery.
#[derive(Clone, Copy)]
pub struct Mark {
    pub message: u8,
    pub status: AckStatus,
    pub proof: Proof,
    pub reason: bool,
}

impl fmt::Debug for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:?}", self.message, self.status)?;
        if self.proof != Proof::Own {
            write!(f, " by {:?}", self.proof)?;
        }
        if self.reason { write!(f, " why") } else { Ok(()) }
    }
}

/// Which lease an ack shows.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Proof {
    /// That of its delivery.
    Own,
    /// None.
    Nothing,
    /// A text that never was a lease.
    Foreign,
    /// That of another recent delivery.
    Other(u8),
}

/// A point in time.
#[derive(Clone, Copy, Debug)]
pub enum When {
    Epoch,
    Ago(u32),
    Now,
    Ahead(u32),
    /// The commit time of a stored message, or a microsecond beside it.
    Commit(u8, i8),
}

/// A message's address.
#[derive(Clone, Copy, Debug)]
pub enum Address {
    Delivered(u8, u8),
    Stored(u8),
    Dead(u8),
    Nowhere,
}

/// The options that rules read.
#[derive(Clone, Copy)]
pub struct Knobs {
    pub labels: Option<(u8, u8)>,
    pub lease: u8,
    pub retries: u8,
    pub dead_letters: (bool, bool),
    pub delay: u8,
    pub window: u8,
    pub fill_ms: u32,
    pub dedup: u32,
    pub completed: u32,
}

impl fmt::Debug for Knobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Knobs { labels, lease, retries, dead_letters, delay, window, fill_ms, dedup, completed } = self;
        write!(f, "lease {lease} retries {retries} dlq {dead_letters:?} delay {delay} window {window} ")?;
        write!(f, "fill {fill_ms} dedup {dedup} completed {completed} labels {labels:?}")
    }
}

/// Which request to the store a fault waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum On {
    Commit,
    Renew,
    Settle,
    Read,
    Take,
    Load,
}

/// What then happens to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It certainly did not happen.
    Fail,
    /// It happened, and the answer is lost.
    LostAfter,
    /// It did not happen, and the answer is lost.
    LostBefore,
    /// The answer is lost, and then it happens.
    LostAndLate { ms: u32 },
    /// It happens, and the answer takes its time.
    SlowAnswer { ms: u32 },
    /// It takes its time, and then happens.
    SlowRequest { ms: u32 },
    /// The store says that acknowledged commits are missing.
    SuffixLost,
}

/// How much of what a strategy makes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Weather {
    /// The store does what it should.
    Fair,
    /// Everything happens.
    Foul,
}

pub fn scripts(weather: Weather, scenes: std::ops::Range<usize>) -> impl Strategy<Value = Script> {
    let scene = prop_oneof![5 => step(weather).prop_map(|step| vec![step]), 1 => work()];
    (setups(), vec(scene, scenes)).prop_map(|(setup, scenes)| Script { setup, steps: scenes.concat() })
}

/// A consumer that stays with one partition and settles what it gets: retries and partial completions add up only there.
fn work() -> impl Strategy<Value = Vec<Step>> {
    let from = prop_oneof![Just(From::Partition(0, 0)), (place(), place()).prop_map(|(q, p)| From::Partition(q, p))];
    (from, 1u8..4, vec(vec(mark(), 1..3), 1..3)).prop_map(|(from, batch, acks)| {
        let take = Take {
            from,
            group: 0,
            batch,
            cap: None,
            auto_ack: false,
            wait_ms: None,
            lease_secs: Some(3),
            start: Some(Start::All),
        };
        let mut steps = vec![Step::Ask(0, Ask::Pop(take))];
        steps.extend(acks.into_iter().map(|marks| Step::Ask(0, Ask::Ack { of: 0, group: None, marks })));
        steps
    })
}

fn setups() -> impl Strategy<Value = Setup> {
    let often_true = prop::bool::weighted(0.75);
    let seldom = || prop::bool::weighted(0.15);
    let batch = prop_oneof![2 => 2u64..5, 1 => Just(100u64)];
    (any::<u64>(), often_true, batch, seldom(), seldom()).prop_map(
        |(seed, hot_list, window_batch, new_by_default, require_lease)| Setup {
            seed,
            hot_list,
            window_batch,
            new_by_default,
            require_lease,
            budget: match seed % 6 {
                0..3 => None,
                3 => Some(0),
                _ => Some(200 + (seed / 6 % 1_800) as u16),
            },
        },
    )
}

fn step(weather: Weather) -> BoxedStrategy<Step> {
    let tenant = || prop_oneof![14 => Just(0u8), 1 => Just(1u8)];
    let fair = prop_oneof![
        60 => (tenant(), ask()).prop_map(|(tenant, ask)| Step::Ask(tenant, ask)),
        5 => (vec(ask(), 2..4), any::<u8>()).prop_map(|(asks, order)| Step::Together(asks, order)),
        14 => wait().prop_map(Step::Wait),
        1 => any::<u8>().prop_map(Step::Leave),
        1 => Just(Step::BreakNext),
    ];
    if weather == Weather::Fair {
        return fair.boxed();
    }
    prop_oneof![
        80 => fair,
        6 => fault().prop_map(|(on, fate)| Step::Fault(on, fate)),
        1 => (1u32..6_000).prop_map(|ms| Step::Outage { ms }),
        1 => (0u32..5_000, any::<bool>()).prop_map(|(ms, release)| Step::Steal { ms, release }),
        1 => Just(Step::Restart),
        1 => Just(Step::Drain),
    ]
    .boxed()
}

fn fault() -> impl Strategy<Value = (On, Fate)> {
    let on = prop_oneof![
        8 => Just(On::Commit),
        1 => Just(On::Renew),
        2 => Just(On::Settle),
        2 => Just(On::Read),
        1 => Just(On::Take),
        1 => Just(On::Load),
    ];
    let ms = || prop_oneof![4 => 1u32..200, 1 => 200u32..4_000];
    let fate = prop_oneof![
        3 => Just(Fate::Fail),
        2 => Just(Fate::LostAfter),
        2 => Just(Fate::LostBefore),
        2 => ms().prop_map(|ms| Fate::LostAndLate { ms }),
        2 => ms().prop_map(|ms| Fate::SlowAnswer { ms }),
        2 => ms().prop_map(|ms| Fate::SlowRequest { ms }),
        1 => Just(Fate::SuffixLost),
    ];
    (on, fate)
}

fn wait() -> impl Strategy<Value = Wait> {
    prop_oneof![
        1 => (0u32..3).prop_map(Wait::Micros),
        4 => (1u32..3_000).prop_map(Wait::Millis),
        6 => (0u8..8, -1i8..2).prop_map(|(n, beside)| Wait::Edge(n, beside)),
        2 => (0u8..3, -1i8..2).prop_map(|(n, beside)| Wait::Deadline(n, beside)),
        1 => (1u32..30_000).prop_map(Wait::Hours),
    ]
}

fn place() -> impl Strategy<Value = Place> {
    prop_oneof![4 => Just(0u8), 2 => Just(1u8), 1 => Just(2u8)]
}

fn item() -> impl Strategy<Value = Item> {
    let id =
        prop_oneof![3 => Just(Id::None), 3 => (0u8..6).prop_map(Id::Small), 1 => any::<u8>().prop_map(Id::OfMessage)];
    (place(), place(), id).prop_map(|(queue, partition, id)| Item { queue, partition, id })
}

fn take() -> impl Strategy<Value = Take> {
    let from = prop_oneof![
        4 => place().prop_map(From::Queue),
        3 => (place(), place()).prop_map(|(queue, partition)| From::Partition(queue, partition)),
        1 => (option::of(0u8..3), option::of(0u8..3)).prop_map(|(namespace, task)| From::Labels(namespace, task)),
    ];
    let batch = prop_oneof![3 => 1u8..4, 1 => Just(50u8)];
    let cap = prop_oneof![2 => Just(Some(1u8)), 1 => Just(Some(2)), 1 => Just(None)];
    let wait = prop_oneof![3 => Just(None), 1 => (1u32..6_000).prop_map(Some)];
    let lease = prop_oneof![2 => Just(None), 3 => (0u8..4).prop_map(Some)];
    let start = prop_oneof![
        6 => Just(None),
        1 => Just(Some(Start::All)),
        1 => Just(Some(Start::New)),
        1 => when().prop_map(|when| Some(Start::Time(when))),
    ];
    (from, place(), batch, cap, prop::bool::weighted(0.2), wait, lease, start).prop_map(
        |(from, group, batch, cap, auto_ack, wait_ms, lease_secs, start)| Take {
            from,
            group,
            batch,
            cap,
            auto_ack,
            wait_ms,
            lease_secs,
            start,
        },
    )
}

fn proof() -> impl Strategy<Value = Proof> {
    prop_oneof![
        12 => Just(Proof::Own),
        2 => Just(Proof::Nothing),
        1 => Just(Proof::Foreign),
        1 => (0u8..4).prop_map(Proof::Other),
    ]
}

fn mark() -> impl Strategy<Value = Mark> {
    let status = prop_oneof![
        5 => Just(AckStatus::Completed),
        4 => Just(AckStatus::Failed),
        1 => Just(AckStatus::Retry),
        1 => Just(AckStatus::DeadLetter),
    ];
    (prop_oneof![4 => 0u8..3, 1 => 3u8..6], status, proof(), any::<bool>())
        .prop_map(|(message, status, proof, reason)| Mark { message, status, proof, reason })
}

fn when() -> impl Strategy<Value = When> {
    prop_oneof![
        1 => Just(When::Epoch),
        1 => (1u32..5_000).prop_map(When::Ago),
        1 => Just(When::Now),
        1 => (1u32..5_000).prop_map(When::Ahead),
        3 => (any::<u8>(), -1i8..2).prop_map(|(n, beside)| When::Commit(n, beside)),
    ]
}

fn address() -> impl Strategy<Value = Address> {
    prop_oneof![
        2 => (0u8..4, 0u8..4).prop_map(|(of, message)| Address::Delivered(of, message)),
        1 => any::<u8>().prop_map(Address::Stored),
        4 => any::<u8>().prop_map(Address::Dead),
        1 => Just(Address::Nowhere),
    ]
}

fn knobs() -> impl Strategy<Value = Knobs> {
    let labels = option::of((0u8..3, 0u8..3));
    let lease = prop_oneof![1 => Just(0u8), 4 => 1u8..4, 1 => Just(60u8)];
    let window = prop_oneof![3 => Just(0u8), 1 => 1u8..4];
    let delay = prop_oneof![3 => Just(0u8), 1 => 1u8..4];
    let fill = prop_oneof![2 => Just(0u32), 1 => 1u32..2_000];
    let dedup = prop_oneof![1 => Just(0u32), 2 => 1u32..4, 2 => Just(3_600u32), 1 => Just(900u32)];
    let completed = prop_oneof![3 => Just(0u32), 1 => 900u32..1_000];
    (labels, lease, 0u8..4, any::<(bool, bool)>(), delay, window, fill, dedup, completed).prop_map(
        |(labels, lease, retries, dead_letters, delay, window, fill_ms, dedup, completed)| Knobs {
            labels,
            lease,
            retries,
            dead_letters,
            delay,
            window,
            fill_ms,
            dedup,
            completed,
        },
    )
}

fn ask() -> BoxedStrategy<Ask> {
    let maybe = || option::weighted(0.4, place());
    let recent = || prop_oneof![4 => Just(0u8), 1 => 1u8..6];
    prop_oneof![
        20 => vec(item(), 0..5).prop_map(Ask::Push),
        24 => take().prop_map(Ask::Pop),
        20 => (recent(), option::weighted(0.1, place()), vec(mark(), 0..4))
            .prop_map(|(of, group, marks)| Ask::Ack { of, group, marks }),
        3 => (recent(), proof(), 1u32..4_000).prop_map(|(of, by, ms)| Ask::Extend { of, by, ms }),
        5 => (recent(), vec(item(), 0..3), vec(mark(), 0..3), option::weighted(0.3, proof()))
            .prop_map(|(of, pushes, marks, require)| Ask::Transaction { of, pushes, marks, require }),
        3 => (place(), knobs()).prop_map(|(queue, knobs)| Ask::Configure(queue, knobs)),
        1 => place().prop_map(Ask::DeleteQueue),
        1 => Just(Ask::ListQueues),
        1 => place().prop_map(Ask::DescribeQueue),
        2 => option::weighted(0.3, place()).prop_map(Ask::ListGroups),
        1 => (place(), when()).prop_map(|(group, when)| Ask::ChangeSubscription(group, when)),
        2 => (place(), place(), maybe(), option::of(when()))
            .prop_map(|(group, queue, partition, to)| Ask::Seek { group, queue, partition, to }),
        1 => (place(), maybe(), any::<bool>())
            .prop_map(|(group, queue, metadata)| Ask::DeleteGroup { group, queue, metadata }),
        2 => address().prop_map(Ask::Find),
        1 => address().prop_map(Ask::DropDead),
        2 => (address(), option::weighted(0.2, place())).prop_map(|(address, group)| Ask::Replay(address, group)),
        1 => (maybe(), maybe(), 1u8..10, 0u8..3)
            .prop_map(|(queue, group, limit, skip)| Ask::ListDead { queue, group, limit, skip }),
        1 => Just(Ask::Probe),
    ]
    .boxed()
}
