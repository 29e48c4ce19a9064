//! The core's answers are the naive model's, call by call.

use tidegate_sim::duel::{self, Plan};

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
