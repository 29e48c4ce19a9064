//! Many seeds: each is drawn, run and judged; a failing one is reduced and printed so that anybody can replay it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::counts::Counts;
use crate::history::{Findings, Micros, Violation};
use crate::list::List;
use crate::marks::Marks;
use crate::setup::Wishes;
use crate::trace::Trace;
use crate::{check, draw, world};

/// Steps of a seed.
pub const STEPS: usize = 200;

std::thread_local! {
    /// Where the last panic of this thread was.
    static PANICKED_AT: std::cell::RefCell<String> = const { std::cell::RefCell::new(String::new()) };
}

/// From now on a panic is not printed, but told by `judge`: a failing seed panics hundreds of times while it is reduced.
pub fn quiet_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        PANICKED_AT.with_borrow_mut(|at| *at = place);
    }));
}

/// How a run ended, whatever happened in it.
pub struct Verdict {
    /// A hash over everything that happened, in order.
    pub hash: u64,
    /// What is wrong, worst first; empty is well.
    pub violations: Vec<Violation>,
    /// Which situations occurred.
    pub marks: Marks,
    /// What was counted.
    pub counts: Counts,
    /// Simulated time.
    pub lasted: Micros,
    /// What happened, when that was asked for.
    pub trace: Option<Box<Trace>>,
}

/// Runs a list. A panic is a violation like any other.
pub fn judge(list: &List, traced: bool) -> Verdict {
    match catch_unwind(AssertUnwindSafe(|| world::run(list, check::all, traced))) {
        Ok(outcome) => {
            let Findings { violations, marks } = outcome.findings;
            let world::Outcome { hash, counts, lasted, trace, .. } = outcome;
            Verdict { hash, violations, marks, counts, lasted, trace }
        }
        Err(panic) => {
            let what = panic.downcast_ref::<String>().cloned();
            let what = what.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default();
            let what = format!("{what} {}", PANICKED_AT.with_borrow(Clone::clone));
            let violation = Violation { checker: "panic", place: 0, what };
            Verdict {
                hash: 0,
                violations: vec![violation],
                marks: Marks::default(),
                counts: Counts::default(),
                lasted: 0,
                trace: None,
            }
        }
    }
}

/// What many seeds came to.
#[derive(Clone, Default)]
pub struct Sum {
    /// Seeds that were run.
    pub seeds: u64,
    /// Simulated time of all of them.
    pub lasted: Micros,
    /// Situations.
    pub marks: Marks,
    /// Counts.
    pub counts: Counts,
    /// Seeds that failed, and of what.
    pub failures: Vec<(u64, Violation)>,
    /// Seeds whose second run was another one.
    pub differing: Vec<u64>,
}

impl Sum {
    /// Runs a seed, twice if that is asked for.
    pub fn run(&mut self, seed: u64, steps: usize, wishes: &Wishes, twice: bool) {
        let list = draw::list(seed, steps, wishes);
        let verdict = judge(&list, false);
        if twice && judge(&list, false).hash != verdict.hash {
            self.differing.push(seed);
        }
        self.seeds += 1;
        self.lasted += verdict.lasted;
        self.marks.add(&verdict.marks);
        self.counts.add(&verdict.counts);
        if let Some(violation) = verdict.violations.into_iter().next() {
            self.failures.push((seed, violation));
        }
    }

    /// One line for people.
    pub fn line(&self) -> String {
        let faults: u64 = self.counts.faults.iter().sum();
        format!(
            "{} seeds, {} steps, {} operations, {} simulated days, {} faults, {}/{} situations reached, {} failures",
            self.seeds,
            self.counts.steps,
            self.counts.operations(),
            self.lasted / 86_400_000_000,
            faults,
            self.marks.reached(),
            crate::marks::ALL.len(),
            self.failures.len(),
        )
    }
}
