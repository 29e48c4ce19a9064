//! Switches each plant on and says in how many seeds and how much time it is found, and how many steps are left of the list
//! after shrinking. `cargo run -p tidegate-sim --profile sim --features plants --bin plants [NAME…]`
#![allow(clippy::print_stdout)]

use std::time::Instant;

use tidegate_core::plant::{self, Plant};
use tidegate_sim::duel::{self, Plan};

fn main() {
    let names: Vec<String> = std::env::args().skip(1).collect();
    std::panic::set_hook(Box::new(|_| {}));
    for plant in Plant::ALL.iter().filter(|it| names.is_empty() || names.iter().any(|name| name == it.name())) {
        plant::set(Some(*plant));
        let start = Instant::now();
        let mut found = None;
        for seed in 0..20_000 {
            let plan = Plan::random(seed, 200);
            if let Some(why) = fails(&plan) {
                found = Some((seed + 1, start.elapsed().as_secs_f64(), why, plan));
                break;
            }
            if start.elapsed().as_secs() > 20 {
                break;
            }
        }
        match found {
            None => println!("{:28} NOT FOUND", plant.name()),
            Some((seeds, seconds, why, plan)) => {
                let small = duel::shrink(&plan, |plan| fails(plan).is_some());
                let why = why.lines().next().unwrap_or_default().chars().take(90).collect::<String>();
                println!("{:28} {seeds:6} {seconds:8.3} {:3}  {why}", plant.name(), small.steps.len());
            }
        }
    }
}

fn fails(plan: &Plan) -> Option<String> {
    match std::panic::catch_unwind(|| duel::over_memory(plan)) {
        Ok(Ok(())) => None,
        Ok(Err(failure)) => Some(failure.to_string()),
        Err(_) => Some("a panic".into()),
    }
}
