//! The core's answers are the naive model's, call by call.

use tidegate_sim::duel::{self, Delay, Fate, Fault, Op, Plan, Start, Step};

/// Every seed, with restarts, stolen slots, failed commits and commits of unknown outcome. `TIDEGATE_DUEL_SEED` has one
/// again.
#[test]
fn the_core_answers_as_the_model_does() {
    let given = std::env::var("TIDEGATE_DUEL_SEED").ok().and_then(|text| text.parse().ok());
    for seed in given.map_or(0..100, |seed: u64| seed..seed + 1) {
        let plan = Plan::random(seed, 150);
        if let Err(failure) = duel::over_memory(&plan) {
            let small = duel::shrink(&plan, |plan| duel::over_memory(plan).is_err());
            let why = duel::over_memory(&small).err().map(|failure| failure.to_string());
            panic!("TIDEGATE_DUEL_SEED={seed} {failure}\nreduced: {why:?}\n{small:#?}");
        }
    }
}

/// A seek that was not stored left a group, whose start a new owner had not looked for yet, at the very beginning.
#[test]
fn a_seek_that_fails_leaves_a_group_at_its_implied_start() {
    let push = |count| Op::Push { tenant: 0, queue: 1, items: vec![(1, None); count] };
    let pop = Op::Pop {
        tenant: 0,
        queue: 1,
        partition: None,
        group: 2,
        batch: 10,
        cap: None,
        auto_ack: false,
        wait: 0,
        lease: 0,
        start: Start::New,
        fate: Fate::Received,
    };
    let seek = Op::Seek { tenant: 0, group: 2, queue: 1, partition: Some(1), to: Some((0, 0)) };
    let steps = [push(2), pop, push(1), Op::Restart, Op::Fault(Fault::RequestLost), seek, Op::Show { tenant: 0 }];
    let mut plan = Plan::random(487, 0);
    plan.steps = steps.into_iter().map(|op| Step { delay: Delay::Micros(1_000_000), op }).collect();
    duel::over_memory(&plan).unwrap_or_else(|failure| panic!("{failure}"));
}
