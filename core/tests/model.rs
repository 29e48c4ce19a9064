//! A property test of the whole core: random commands, clocks and faults, and after each step a small model of the
//! same rules says what the answer must have been.
//!
//! `model/spec.rs` is the model, `model/commands.rs` makes the scripts, `model/run.rs` runs one against both, and
//! `model/run/judge.rs` says what is judged and what is not. `PROPTEST_CASES` and `PROPTEST_RNG_SEED` set size and seed.
//! A script that found a defect of the core goes into `model/found.rs`.

mod model {
    pub mod commands;
    pub mod faults;
    pub mod found;
    pub mod peek;
    pub mod run;
    pub mod spec;
}

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::test_runner::{Config, FileFailurePersistence, TestCaseError, TestError, TestRunner};

use model::commands::{Script, Step, Weather, scripts};
use model::found::found;
use model::run::run;
use model::spec::Quirk;

/// Steps that each property takes when nobody says otherwise.
const STEPS: u32 = 70_000;
/// Steps of a case, on average.
const STEPS_A_CASE: u32 = 170;

fn config() -> Config {
    let mut config = Config {
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct("tests/model/regressions.txt"))),
        max_shrink_iters: 20_000,
        ..Config::default()
    };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = STEPS / STEPS_A_CASE;
    }
    config
}

fn check(name: &str, weather: Weather) {
    let steps = AtomicU64::new(0);
    let mut runner = TestRunner::new(config());
    let scenes = 1..270;
    let outcome = runner.run(&scripts(weather, scenes), |script: Script| {
        steps.fetch_add(script.steps.len() as u64, Ordering::Relaxed);
        run(&script, Quirk::None).map_err(TestCaseError::fail)
    });
    // Straight to the terminal: how much was tried matters also when all went well.
    let _ = writeln!(std::io::stderr(), "{name}: {} steps", steps.load(Ordering::Relaxed));
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(_, script)) => {
            let (script, reason) = shorten(script, Quirk::None);
            panic!("{script:?}\n{reason}");
        }
        Err(TestError::Abort(reason)) => panic!("{reason}"),
    }
}

/// Drops every step that the failure does not need: proptest does not come back to steps that it could not drop before
/// it simplified others.
fn shorten(mut script: Script, quirk: Quirk) -> (Script, String) {
    let fails = |script: &Script| {
        let run = || run(script, quirk);
        std::panic::catch_unwind(run).unwrap_or_else(|_| Err("the core panicked".to_owned())).err()
    };
    let mut reason = fails(&script).unwrap_or_else(|| "it fails only sometimes".to_owned());
    let mut place = script.steps.len();
    while place > 0 {
        place -= 1;
        for shorter in shorter(&script, place) {
            if let Some(why) = fails(&shorter) {
                (script, reason) = (shorter, why);
                place = script.steps.len();
                break;
            }
        }
    }
    (script, reason)
}

/// The script without a step, or with one step for several.
fn shorter(script: &Script, place: usize) -> Vec<Script> {
    let mut scripts = vec![script.clone()];
    scripts[0].steps.remove(place);
    if let Step::Together(asks, order) = &script.steps[place] {
        for n in 0..asks.len() {
            let mut fewer = asks.clone();
            let alone = fewer.remove(n);
            for step in [Step::Ask(0, alone), Step::Together(fewer, *order)] {
                scripts.push(script.clone());
                scripts.last_mut().unwrap().steps[place] = step;
            }
        }
    }
    scripts
}

/// Every answer is the model's while the store does what it should.
// req: OPT-3, OPT-4, OPT-5, OPT-6, OPT-7, OPT-8, OPT-9, OPT-10, OPT-11, OPT-12, OPT-13, OPT-20, OPT-24, OPT-25, OPT-26, OPT-28
#[test]
fn the_core_answers_like_the_model() {
    check("fair weather", Weather::Fair);
}

/// Every answer is one that the model allows while the store fails, loses answers, and loses the slot to strangers.
#[test]
fn the_core_answers_like_the_model_in_foul_weather() {
    check("foul weather", Weather::Foul);
}

/// What went wrong once does not go wrong again.
#[test]
fn scripts_that_found_something_find_nothing_now() {
    for (wrong, script) in found() {
        if let Err(reason) = run(&script, Quirk::None) {
            panic!("again: {wrong}\n{reason}");
        }
    }
}

/// A model with a broken rule is refuted, and the script that does it is short.
fn refute(quirk: Quirk) -> Script {
    let weather = if quirk == Quirk::UnknownNeverHappens { Weather::Foul } else { Weather::Fair };
    let config = Config { cases: 2_000, failure_persistence: None, max_shrink_iters: 5_000, ..Config::default() };
    let mut runner =
        TestRunner::new_with_rng(config, proptest::test_runner::TestRng::deterministic_rng(Default::default()));
    match runner.run(&scripts(weather, 1..150), |script| run(&script, quirk).map_err(TestCaseError::fail)) {
        Err(TestError::Fail(_, script)) => shorten(script, quirk).0,
        other => panic!("{quirk:?} was not noticed: {other:?}"),
    }
}

fn notice(quirk: Quirk) {
    let script = refute(quirk);
    assert!(script.steps.len() <= 20, "{quirk:?} is refuted by a long script\n{script:?}");
}

macro_rules! broken_rules {
    ($($test:ident: $quirk:ident,)*) => {
        /// The harness notices when the model and the core do not follow the same rule.
        mod a_broken_rule_is_noticed {
            use super::{Quirk, notice};

            $(
                #[test]
                fn $test() {
                    notice(Quirk::$quirk);
                }
            )*
        }
    };
}

broken_rules! {
    a_lease_lives_at_its_expiry: LeaseLivesAtExpiry,
    a_delayed_message_is_due_late: DelayOneLate,
    an_id_is_forgotten_early: DuplicateEndsEarly,
    one_retry_more_is_granted: OneRetryMore,
    a_partial_completion_resets_the_retries: PartialCompletionResets,
    a_window_opens_late: WindowOneLate,
    an_early_release_needs_one_more: EarlyReleaseOneMore,
    acks_are_resolved_for_ever: AcksResolveForever,
    a_retry_is_charged: RetryIsCharged,
    a_seek_keeps_the_retries: SeekKeepsRetries,
    what_nobody_knows_never_happened: UnknownNeverHappens,
}
