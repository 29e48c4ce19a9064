//! From a seed to a world and its steps.
//!
//! Each seed first draws which operations and faults exist at all, and how often (swarm): a fifth of the operations are
//! off, three of ten seeds have no fault. Pauses are drawn where rules have their edges.

use crate::history::Micros;
use crate::list::List;
use crate::random::{Purpose, Random};
use crate::setup::{Setup, Wishes};
use crate::step::{Class, Kind, MAX_ARGUMENTS, ROWS, Row, Step};

/// The list of a seed.
pub fn list(seed: u64, steps: usize, wishes: &Wishes) -> List {
    let mut random = Random::new(seed, Purpose::Schedule);
    let mut setup = setup(&mut random);
    setup.seed = seed as i64;
    wishes.apply(&mut setup);
    let setup = setup.clamped();
    let swarm = Swarm::draw(&mut random, &setup);
    let steps = (0..steps).map(|_| swarm.step(&mut random)).collect();
    List { setup, steps }
}

fn setup(random: &mut Random) -> Setup {
    let mut setup = Setup {
        brokers: *random.pick(&[1, 1, 1, 1, 1, 1, 1, 2, 2, 3]),
        tenants: *random.pick(&[1, 1, 1, 2]),
        queues: *random.pick(&[1, 1, 2]),
        lanes: *random.pick(&[1, 1, 2, 3, 4]),
        groups: *random.pick(&[0, 1, 1, 2, 3]),
        clients: *random.pick(&[1, 2, 3, 4]),
        store_latency: *random.pick(&[-1, -1, 0, 0, 300, 5_000]),
        net_latency: *random.pick(&[0, 0, 0, 200, 2_000]),
        jitter: 0,
        // Rare beats change when things are noticed and nothing else, and make a run much shorter.
        beat: *random.pick(&[500, 1_500, 1_500, 1_500]),
        lossy: i64::from(random.chance(1, 8)),
        lease: *random.pick(&[0, 1, 2, 2, 5, 5, 10]),
        retries: *random.pick(&[0, 1, 1, 2, 3]),
        dead_letters: i64::from(!random.chance(1, 5)),
        delay: *random.pick(&[0, 0, 0, 0, 1, 3]),
        window: *random.pick(&[0, 0, 0, 0, 1, 2]),
        dedup: *random.pick(&[0, 1, 2, 5, 20, 60]),
        min_pop_wait: *random.pick(&[0, 0, 0, 0, 100, 1_000]),
        hot_list: i64::from(!random.chance(1, 4)),
        window_batch: *random.pick(&[1, 3, 3, 10]),
        require_lease: i64::from(random.chance(1, 10)),
        default_new: i64::from(random.chance(1, 5)),
        dedup_cache_bytes: *random.pick(&[0, 2_000, 1_000_000, 1_000_000]),
        configured: i64::from(!random.chance(1, 5)),
        ..Setup::default()
    };
    if setup.store_latency > 0 || setup.net_latency > 0 {
        setup.jitter = *random.pick(&[0, 0, 1_000, 20_000]);
    }
    setup
}

/// What exists in one seed.
struct Swarm {
    operations: Vec<(&'static Row, u32)>,
    untils: Vec<(&'static Row, u32)>,
    faults: Vec<(&'static Row, u32)>,
    /// Of a hundred steps, how many are faults, and how many go on to an edge.
    fault_rate: u64,
    until_rate: u64,
    lengths: Vec<Micros>,
    scale: Micros,
}

impl Swarm {
    fn draw(random: &mut Random, setup: &Setup) -> Self {
        let mut of = |class: Class, off: u64| {
            let rows = ROWS.iter().filter(|row| row.class == class && possible(row.kind, setup));
            let mut chosen: Vec<(&'static Row, u32)> = Vec::new();
            for row in rows {
                let busy = matches!(row.kind, Kind::Push | Kind::Pop | Kind::Ack);
                let weight = row.weight * (1 + random.below(3) as u32);
                if busy || !random.chance(off, 100) {
                    chosen.push((row, weight));
                }
            }
            chosen
        };
        let (operations, untils, faults) = (of(Class::Operation, 20), of(Class::Until, 20), of(Class::Fault, 60));
        let calm = random.chance(30, 100) || faults.is_empty();
        Swarm {
            operations,
            until_rate: if untils.is_empty() { 0 } else { *random.pick(&[2, 5, 10]) },
            untils,
            fault_rate: if calm { 0 } else { *random.pick(&[1, 3, 8]) },
            faults,
            lengths: setup.lengths(),
            scale: *random.pick(&[100, 10_000, 300_000, 3_000_000]),
        }
    }

    fn step(&self, random: &mut Random) -> Step {
        let hundred = random.below(100);
        let rows = match hundred {
            at if at < self.fault_rate => &self.faults,
            at if at < self.fault_rate + self.until_rate => &self.untils,
            _ => &self.operations,
        };
        let sum: u32 = rows.iter().map(|(_, weight)| weight).sum();
        let mut at = random.below(u64::from(sum)) as u32;
        let mut chosen = rows[0].0;
        for (row, weight) in rows {
            if at < *weight {
                chosen = row;
                break;
            }
            at -= weight;
        }
        let mut arguments = [0; MAX_ARGUMENTS];
        for (place, (name, end)) in arguments.iter_mut().zip(chosen.arguments) {
            *place = random.below(u64::from(*end)) as u16;
            // The newest is what is most often meant.
            if *name == "nth" && random.chance(1, 2) {
                *place = 0;
            }
        }
        Step { delay: self.delay(random), kind: chosen.kind, arguments }
    }

    fn delay(&self, random: &mut Random) -> Micros {
        match random.below(24) {
            0..10 => 0,
            10..18 => random.below(self.scale as u64) as Micros,
            18..22 => random.below(1_000) as Micros,
            _ => {
                let length = *random.pick(&self.lengths);
                let length = if random.chance(1, 2) { length } else { length / 2 };
                (length + random.below(3) as Micros - 1).max(0)
            }
        }
    }
}

/// Whether a kind of step can do anything in this world.
fn possible(kind: Kind, setup: &Setup) -> bool {
    match kind {
        Kind::SuffixLost => setup.lossy != 0,
        Kind::CutFromBroker | Kind::HeartbeatLost => setup.brokers > 1,
        Kind::UntilDelay => setup.delay > 0,
        Kind::UntilWindow => setup.window > 0,
        Kind::UntilDedup => setup.dedup > 0,
        _ => true,
    }
}
