//! The proof that the crash test finds what it is there for: three violations, planted one at a time in a broker that was
//! built with the feature `plants`.
//!
//! `cargo test --features plants --test crash plants`. In such a build the variable `TIDEGATE_PLANT` decides, so that the other
//! tests are not touched.

use std::path::Path;
use std::time::Duration;

use crate::brokers::Broker;
use crate::faults::{self, Mix};
use crate::run::{Run, seed};
use crate::store::Store;

/// How many storms may pass before a plant must have been found.
const STORMS: u64 = 6;
const FAULTS: u64 = 25;

struct Plant {
    /// What `TIDEGATE_PLANT` calls it.
    name: &'static str,
    brokers: usize,
    /// What it takes to make it show.
    mix: Mix,
}

const NONE: Mix = Mix { kill_broker: 0, kill_postgres: 0, cut: 0, cut_all: 0, stall: 0, freeze: 0 };

/// A broker that answers before it commits: what was answered is gone when the broker is killed.
const REPLY_EARLY: Plant = Plant { name: "reply-early", brokers: 1, mix: Mix { kill_broker: 1, ..NONE } };
/// A commit of an owner that lost its slot goes through.
const SKIP_FENCE: Plant = Plant { name: "skip-fence", brokers: 2, mix: Mix { freeze: 1, stall: 3, ..NONE } };
/// A commit whose answer was lost is said not to have happened. The broker believes itself until it reads what is stored.
const SKIP_SETTLE: Plant = Plant { name: "skip-settle", brokers: 1, mix: Mix { cut: 4, kill_broker: 1, ..NONE } };

fn is_found(plant: &Plant) {
    let seed = seed();
    for storm in 0..STORMS {
        let mut store = Store::start();
        let mut run = Run::new(seed + storm);
        for _ in 0..plant.brokers {
            let program = Path::new(env!("CARGO_BIN_EXE_tidegate"));
            let environment = [("TIDEGATE_PLANT", plant.name)];
            run.add_broker(Broker::start_program(program, &store.url(), plant.brokers == 1, &environment));
        }
        run.start_clients();
        let mut random = run.random.child();
        for _ in 0..FAULTS {
            run.work(random.between(20, 100), Duration::from_millis(800));
            faults::strike(&mut run, &store, plant.mix, &mut random);
        }
        store.proxies.iter().for_each(crate::proxy::Proxy::heal);
        let violations = run.verdict();
        run.summary();
        if let Some(first) = violations.iter().find(|violation| violation.promise != "drain") {
            eprintln!("{} shows in {} violations, the first: {first}", plant.name, violations.len());
            return;
        }
    }
    panic!("nothing gave {} away in {STORMS} storms; TIDEGATE_CRASH_SEED={seed}", plant.name);
}

#[test]
fn an_answer_before_the_commit_is_found() {
    is_found(&REPLY_EARLY);
}

#[test]
fn a_commit_of_an_owner_that_lost_its_slot_is_found() {
    is_found(&SKIP_FENCE);
}

#[test]
fn a_guess_about_a_commit_of_unknown_outcome_is_found() {
    is_found(&SKIP_SETTLE);
}
