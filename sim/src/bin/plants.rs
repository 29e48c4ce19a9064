//! Switches each plant on and says in how many seeds and how much time it is found, by which checker, and how many steps are
//! left of the list after shrinking. `cargo run -p tidegate-sim --profile sim --features plants --bin plants [NAME…]`
//!
//! A seed is both: a run of the core against the naive model, and a world. `none FIRST COUNT` runs seeds without a plant,
//! `trace SEED` shows a failing seed, reduced.
#![allow(clippy::print_stdout)]

use std::time::Instant;

use tidegate_core::plant::{self, Plant};
use tidegate_sim::duel::{self, Plan};
use tidegate_sim::night::{self, STEPS};
use tidegate_sim::setup::Wishes;
use tidegate_sim::{draw, shrink};

/// Seconds in which a plant must be found.
const WORST: f64 = 60.0;

/// Which half of a seed is looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Half {
    Both,
    Duel,
    World,
}

fn main() {
    let mut names: Vec<String> = std::env::args().skip(1).collect();
    let mut half = Half::Both;
    names.retain(|name| match name.as_str() {
        "duel" => {
            half = Half::Duel;
            false
        }
        "world" => {
            half = Half::World;
            false
        }
        _ => true,
    });
    std::panic::set_hook(Box::new(|_| {}));
    if names.first().is_some_and(|name| name == "none") {
        return without(&names, half);
    }
    if let Some(seed) = names.first().filter(|it| *it == "trace").and(names.get(1)).and_then(|text| text.parse().ok()) {
        let plan = Plan::random(seed, STEPS);
        if let Some(what) = duels(&plan).filter(|_| half != Half::World) {
            let small = duel::shrink(&plan, |plan| duels(plan).is_some());
            println!("{what}\n{small:#?}\n{:?}", duels(&small));
            return;
        }
        let list = shrink::shrink(&draw::list(seed, STEPS, &Wishes::default()));
        let verdict = night::judge(&list, true);
        println!("{list}\n{}", verdict.trace.map(|trace| trace.text()).unwrap_or_default());
        verdict.violations.iter().for_each(|it| println!("{it:?}"));
        return;
    }
    let (mut all, mut missed) = (Vec::new(), 0);
    println!("{:26} {:>6} {:>8}  steps  by", "plant", "seeds", "seconds");
    for plant in Plant::ALL.iter().filter(|it| names.is_empty() || names.iter().any(|name| name == it.name())) {
        plant::set(Some(*plant));
        let started = Instant::now();
        let mut seed = 0;
        let found = loop {
            let found = fails(seed, half);
            seed += 1;
            if found.is_some() || started.elapsed().as_secs_f64() > WORST {
                break found;
            }
        };
        let seconds = started.elapsed().as_secs_f64();
        match found {
            None => {
                missed += 1;
                println!("{:26} {seed:6} {seconds:8.2}         not found", plant.name());
            }
            Some((by, what)) => {
                all.push(seed);
                let steps = if by == "model" {
                    let plan = Plan::random(seed - 1, STEPS);
                    duel::shrink(&plan, |plan| duels(plan).is_some()).steps.len()
                } else {
                    shrink::shrink(&draw::list(seed - 1, STEPS, &Wishes::default())).steps.len()
                };
                let what: String = what.lines().next().unwrap_or_default().chars().take(100).collect();
                println!("{:26} {seed:6} {seconds:8.2}  {steps:5}  {by}: {what}", plant.name());
            }
        }
    }
    all.sort_unstable();
    println!("{} found, {missed} not; median {} seeds", all.len(), all.get(all.len() / 2).copied().unwrap_or(0));
}

fn without(names: &[String], half: Half) {
    let number = |at: usize, otherwise| names.get(at).and_then(|text| text.parse().ok()).unwrap_or(otherwise);
    let (first, count) = (number(1, 0), number(2, 1_000));
    let started = Instant::now();
    let mut failed = 0;
    for seed in first..first + count {
        if let Some((by, what)) = fails(seed, half) {
            failed += 1;
            println!("seed {seed}: {by}: {what}");
        }
    }
    println!("{count} seeds, {failed} failed, {:.1} s", started.elapsed().as_secs_f64());
}

fn fails(seed: u64, half: Half) -> Option<(&'static str, String)> {
    let duel = (half != Half::World).then(|| duels(&Plan::random(seed, STEPS))).flatten();
    duel.map(|what| ("model", what)).or_else(|| {
        let list = (half != Half::Duel).then(|| draw::list(seed, STEPS, &Wishes::default()))?;
        let violation = night::judge(&list, false).violations.into_iter().next()?;
        Some((violation.checker, violation.what))
    })
}

fn duels(plan: &Plan) -> Option<String> {
    match std::panic::catch_unwind(|| duel::over_memory(plan)) {
        Ok(Ok(())) => None,
        Ok(Err(failure)) => Some(failure.to_string()),
        Err(_) => Some("a panic".into()),
    }
}
