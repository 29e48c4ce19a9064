//! Runs seeds without building the broker: `cargo run -p tidegate-sim --profile sim --example seeds -- FIRST COUNT [twice]`,
//! `-- seed N` for what is wrong with one, or `-- list FILE` for what happens in a list.
#![allow(clippy::print_stdout)]

use std::time::Instant;

use tidegate_sim::night::{STEPS, Sum};
use tidegate_sim::setup::Wishes;

/// The allocator of `tidegate sim`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    if let Some(seed) = std::env::args().skip_while(|word| word != "seed").nth(1).and_then(|text| text.parse().ok()) {
        tidegate_sim::night::quiet_panics();
        let list = tidegate_sim::draw::list(seed, STEPS, &Wishes::default());
        println!("{}", tidegate_sim::report::failure(&list, &format!("seeds seed {seed}")));
        return;
    }
    if let Some(path) = std::env::args().skip_while(|word| word != "list").nth(1) {
        let list =
            tidegate_sim::list::parse(&std::fs::read_to_string(path).expect("the list is readable")).expect("a list");
        let verdict = tidegate_sim::night::judge(&list, true);
        println!("{}", verdict.trace.map(|trace| trace.text()).unwrap_or_default());
        verdict.violations.iter().for_each(|found| println!("{}: {}", found.checker, found.what));
        return;
    }
    let mut arguments = std::env::args().skip(1);
    let mut number = |otherwise| arguments.next().and_then(|text| text.parse().ok()).unwrap_or(otherwise);
    let (first, count): (u64, u64) = (number(0), number(1_000));
    let twice = arguments.next().is_some();
    let started = Instant::now();
    let mut sum = Sum::default();
    for seed in first..first + count {
        sum.run(seed, STEPS, &Wishes::default(), twice);
    }
    let seconds = started.elapsed().as_secs_f64();
    println!("{}", sum.line());
    println!("events {}, commits {}, {} simulated s", sum.counts.events, sum.counts.commits, sum.lasted / 1_000_000);
    println!(
        "{:.0} operations a second ({:.0} % push, pop, ack), {:.0} seeds a minute",
        sum.counts.operations() as f64 / seconds,
        100.0 * sum.counts.busy_operations() as f64 / sum.counts.operations() as f64,
        sum.seeds as f64 / seconds * 60.0
    );
    for (seed, violation) in sum.failures.iter().take(20) {
        println!("seed {seed}: {}: {}", violation.checker, violation.what);
    }
    println!("{} differ", sum.differing.len());
    println!("{}", sum.counts.matrix(1));
    sum.marks.unreached().for_each(|text| println!("never: {text}"));
}
