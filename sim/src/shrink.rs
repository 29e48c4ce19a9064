//! Makes a failing list as short as it can be and still fail in the same way.
//!
//! Chunks of steps are left out, each tried twice: once with its pauses given to the step behind it, once without, for
//! half of all failures that depend on time vanish otherwise. Then pauses and numbers are made smaller.

use std::time::{Duration, Instant};

use crate::list::List;
use crate::night;
use crate::step::Step;

/// Runs of one reduction at most.
const MAX_RUNS: u32 = 3_000;
/// Time that one reduction takes at most.
const MAX_TIME: Duration = Duration::from_secs(10);

/// A shorter list that fails by the same checker.
pub fn shrink(list: &List) -> List {
    match night::judge(list, false).violations.first() {
        Some(violation) => shrink_while(list, |list| {
            night::judge(list, false).violations.first().is_some_and(|found| found.checker == violation.checker)
        }),
        None => list.clone(),
    }
}

/// A shorter list of which `fails` still holds.
pub fn shrink_while(list: &List, fails: impl FnMut(&List) -> bool) -> List {
    let mut shrinking = Shrinking { best: list.clone(), fails, runs: 0, until: Instant::now() + MAX_TIME };
    loop {
        let before = shrinking.best.clone();
        shrinking.leave_out();
        shrinking.simplify_world();
        shrinking.simplify_steps();
        if shrinking.best == before || shrinking.over() {
            return shrinking.best;
        }
    }
}

struct Shrinking<F> {
    best: List,
    fails: F,
    runs: u32,
    until: Instant,
}

impl<F: FnMut(&List) -> bool> Shrinking<F> {
    fn over(&self) -> bool {
        self.runs >= MAX_RUNS || Instant::now() >= self.until
    }

    /// Keeps a candidate if it still fails.
    fn try_out(&mut self, candidate: List) -> bool {
        if self.over() || candidate == self.best {
            return false;
        }
        self.runs += 1;
        let fails = (self.fails)(&candidate);
        if fails {
            self.best = candidate;
        }
        fails
    }

    fn leave_out(&mut self) {
        let mut chunk = self.best.steps.len().div_ceil(2).max(1);
        loop {
            let mut at = 0;
            while at < self.best.steps.len() {
                let end = (at + chunk).min(self.best.steps.len());
                if !(self.without(at, end, true) || self.without(at, end, false)) {
                    at = end;
                }
                if self.over() {
                    return;
                }
            }
            if chunk == 1 {
                return;
            }
            chunk = chunk.div_ceil(2);
        }
    }

    fn without(&mut self, from: usize, end: usize, carry: bool) -> bool {
        let mut candidate = self.best.clone();
        let pauses: i64 = candidate.steps.drain(from..end).map(|step| step.delay).sum();
        if carry {
            if pauses == 0 {
                // The same as without.
                return false;
            }
            if let Some(next) = candidate.steps.get_mut(from) {
                next.delay += pauses;
            }
        }
        self.try_out(candidate)
    }

    /// Fields of the world go to what is usual.
    fn simplify_world(&mut self) {
        let usual = crate::setup::Setup::default().fields();
        for (name, value) in usual {
            let mut candidate = self.best.clone();
            candidate.setup.set(name, value);
            candidate.setup = candidate.setup.clamped();
            self.try_out(candidate);
        }
    }

    fn simplify_steps(&mut self) {
        for at in 0..self.best.steps.len() {
            self.change(at, |step| step.delay = 0);
            for argument in 0..self.best.steps[at].kind.row().arguments.len() {
                if self.best.steps[at].arguments[argument] != 0 && !self.change(at, |step| step.arguments[argument] = 0)
                {
                    self.change(at, |step| step.arguments[argument] = 1);
                }
            }
        }
    }

    fn change(&mut self, at: usize, change: impl FnOnce(&mut Step)) -> bool {
        let mut candidate = self.best.clone();
        change(&mut candidate.steps[at]);
        self.try_out(candidate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::Kind;

    #[test]
    fn what_matters_stays_and_its_pause_is_kept() {
        let mut list = crate::draw::list(3, 60, &crate::setup::Wishes::default());
        list.steps.insert(20, Step::new(0, Kind::Crash, &[2, 7]));
        list.steps.insert(40, Step::new(0, Kind::Pause, &[1]));
        // Fails when a pause comes half a second or more after a crash.
        let fails = |list: &List| {
            let crash = list.steps.iter().position(|step| step.kind == Kind::Crash);
            let after = crash.map(|at| &list.steps[at + 1..]).unwrap_or_default();
            let pause = after.iter().position(|step| step.kind == Kind::Pause);
            pause.is_some_and(|at| after[..=at].iter().map(|step| step.delay).sum::<i64>() >= 500_000)
        };
        list.steps[30].delay = 600_000;
        assert!(fails(&list));
        let short = shrink_while(&list, fails);
        assert_eq!(short.steps.len(), 2, "{short}");
        assert!(fails(&short));
    }
}
