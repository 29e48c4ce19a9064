//! What is done to a run: one random fault after another, each after some work got done.

use std::thread;
use std::time::Duration;

use crate::proxy::Cut;
use crate::random::Random;
use crate::run::Run;
use crate::store::Store;

/// Longer than the three seconds for which a broker owns a slot without renewing.
const LONGER_THAN_OWNERSHIP: std::ops::RangeInclusive<u64> = 3_300..=4_500;

/// How many processes are killed: a short run, or what `TIDEGATE_CRASH_KILLS` says.
pub fn kills(short: u64) -> u64 {
    let given = std::env::var("TIDEGATE_CRASH_KILLS").ok();
    given.map_or(short, |text| text.parse().expect("TIDEGATE_CRASH_KILLS is a whole number"))
}

/// What may happen, and how often, in parts of the sum.
#[derive(Clone, Copy)]
pub struct Mix {
    pub kill_broker: u64,
    pub kill_postgres: u64,
    /// A connection dies in the middle of a request.
    pub cut: u64,
    /// All connections of a broker die.
    pub cut_all: u64,
    /// What a broker sends to Postgres is held for a while, then arrives.
    pub stall: u64,
    /// SIGSTOP for longer than a broker owns its slots, then SIGCONT.
    pub freeze: u64,
}

/// One broker: freezing it only costs time.
pub const ONE: Mix = Mix { kill_broker: 35, kill_postgres: 10, cut: 45, cut_all: 6, stall: 4, freeze: 0 };
pub const SEVERAL: Mix = Mix { kill_broker: 40, kill_postgres: 8, cut: 38, cut_all: 5, stall: 5, freeze: 4 };

/// Strikes a broker or its way to Postgres; returns how many processes it killed.
type Fault = fn(&mut Run, &Store, usize, &mut Random) -> u64;

/// Until so many processes were killed.
pub fn storm(run: &mut Run, store: &Store, mix: Mix, kills: u64) {
    let mut random = run.random.child();
    let mut killed = 0;
    while killed < kills {
        let (count, at_most) = (random.between(1, 120), random.between(20, 1_200));
        run.work(count, Duration::from_millis(at_most));
        // Now and then all must be well again in between, or a run could spend its life in one long outage.
        if random.percent(4) {
            run.until_answered(200);
        }
        killed += strike(run, store, mix, &mut random);
    }
    store.proxies.iter().for_each(crate::proxy::Proxy::heal);
    run.recorder.fault("all is well again");
    run.until_answered(100);
}

/// One fault; how many processes it killed.
pub fn strike(run: &mut Run, store: &Store, mix: Mix, random: &mut Random) -> u64 {
    let who = random.below(run.brokers.len() as u64) as usize;
    let faults: [(u64, Fault); 6] = [
        (mix.kill_broker, kill_broker),
        (mix.kill_postgres, kill_postgres),
        (mix.cut, cut),
        (mix.cut_all, cut_all),
        (mix.stall, stall),
        (mix.freeze, freeze),
    ];
    let mut drawn = random.below(faults.iter().map(|(weight, _)| weight).sum());
    for (weight, fault) in faults {
        if drawn < weight {
            return fault(run, store, who, random);
        }
        drawn -= weight;
    }
    unreachable!("the weights were summed up")
}

fn kill_broker(run: &mut Run, _: &Store, who: usize, random: &mut Random) -> u64 {
    run.recorder.fault(format!("SIGKILL to broker {who}"));
    run.brokers[who].kill();
    thread::sleep(Duration::from_millis(random.below(60)));
    run.brokers[who].resume();
    if !random.percent(15) {
        // Else it may be killed again while it starts.
        run.brokers[who].wait_until_it_serves();
    }
    1
}

fn kill_postgres(run: &mut Run, store: &Store, _: usize, random: &mut Random) -> u64 {
    run.recorder.fault("SIGKILL to Postgres");
    let pause = if random.percent(20) { random.below(2_000) } else { random.below(100) };
    store.kill(Duration::from_millis(pause));
    run.recorder.fault("Postgres is back");
    1
}

fn cut(run: &mut Run, store: &Store, who: usize, random: &mut Random) -> u64 {
    // Requests of any size, or only such as carry data.
    let least = *random.pick(&[1, 150, 400]);
    let cut = match random.below(10) {
        0..6 => Cut::AfterRequest,
        6..8 => Cut::WithinRequest(random.below(600) as usize),
        _ => Cut::WithinAnswer(random.below(60) as usize),
    };
    run.recorder.fault(format!("the next request of broker {who} to Postgres: {cut:?}"));
    store.proxies[who].cut_next(least, cut);
    0
}

fn cut_all(run: &mut Run, store: &Store, who: usize, _: &mut Random) -> u64 {
    run.recorder.fault(format!("all connections of broker {who} to Postgres are closed"));
    store.proxies[who].cut_all();
    0
}

fn stall(run: &mut Run, store: &Store, who: usize, random: &mut Random) -> u64 {
    let long = if random.percent(30) { random.between(3_300, 4_500) } else { random.between(50, 1_500) };
    run.recorder.fault(format!("what broker {who} sends to Postgres is held for {long} ms"));
    store.proxies[who].stall();
    thread::sleep(Duration::from_millis(long));
    store.proxies[who].flow();
    0
}

fn freeze(run: &mut Run, _: &Store, who: usize, random: &mut Random) -> u64 {
    let long = random.between(*LONGER_THAN_OWNERSHIP.start(), *LONGER_THAN_OWNERSHIP.end());
    run.recorder.fault(format!("SIGSTOP to broker {who} for {long} ms"));
    run.brokers[who].freeze();
    thread::sleep(Duration::from_millis(long));
    run.recorder.fault(format!("SIGCONT to broker {who}"));
    run.brokers[who].thaw();
    0
}
