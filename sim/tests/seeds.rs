//! A seed is the whole input: the same one gives the same run, here and in another process.
#![allow(clippy::print_stdout)]

use std::process::Command;

use tidegate_sim::night::{self, STEPS, Sum};
use tidegate_sim::setup::Wishes;
use tidegate_sim::{draw, list};

/// Few in a debug build; the simulator's own profile runs more (`--profile sim`), `tidegate sim nightly` millions.
const SEEDS: u64 = 150;
/// Says to the test in another process which seeds to print the hashes of.
const HASHES: &str = "TIDEGATE_SIM_HASHES";

fn hashes(seeds: std::ops::Range<u64>) -> String {
    let hash = |seed| night::judge(&draw::list(seed, STEPS, &Wishes::default()), false).hash;
    seeds.map(|seed| format!("{seed}:{:016x} ", hash(seed))).collect()
}

#[test]
fn seeds_pass_and_repeat_themselves() {
    let mut sum = Sum::default();
    for seed in 0..SEEDS {
        sum.run(seed, STEPS, &Wishes::default(), true);
    }
    assert_eq!(sum.differing, [0u64; 0], "these seeds are not the same twice");
    assert!(sum.failures.is_empty(), "{:?}", sum.failures);
    assert!(sum.counts.operations() > 100 * SEEDS, "hardly anything happens: {}", sum.line());
}

#[test]
fn another_process_sees_the_same() {
    if std::env::var_os(HASHES).is_some() {
        println!("hashes {}", hashes(0..30));
        return;
    }
    let this = std::env::current_exe().expect("a test knows its own program");
    let other = Command::new(this)
        .args(["--exact", "another_process_sees_the_same", "--nocapture"])
        .env(HASHES, "1")
        .output()
        .expect("the test runs a second time");
    let said = String::from_utf8_lossy(&other.stdout);
    assert!(said.contains(&format!("hashes {}", hashes(0..30))), "another process says {said}");
}

#[test]
fn a_list_is_what_its_text_says() {
    for seed in 0..200 {
        let drawn = draw::list(seed, STEPS, &Wishes::default());
        assert_eq!(list::parse(&drawn.to_string()), Ok(drawn));
    }
}
