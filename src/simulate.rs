//! `tidegate sim`: nights of the simulator, for whoever wants to see what becomes of a promise in a bad one.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use tidegate_sim::list::{self, List};
use tidegate_sim::night::{self, STEPS, Sum, Verdict};
use tidegate_sim::setup::Wishes;
use tidegate_sim::{draw, report, svg};

use crate::settings::{SimFlags, SimMode};

/// Seeds of a nightly run that says nothing else.
const NIGHTLY_SEEDS: u64 = 10_000_000;
/// A cell of the table of faults and operations that was met less often fails a nightly run.
const LEAST: u64 = 100;
/// Failing seeds that are reduced and printed.
const SHOWN: usize = 3;

/// Runs what the flags ask for.
pub fn run(flags: &SimFlags) -> ExitCode {
    night::quiet_panics();
    let outcome = match (&flags.list, flags.seed) {
        (Some(path), _) => {
            read_list(path).and_then(|list| one(flags, &list, &format!("tidegate sim --list {}", path.display())))
        }
        (None, Some(seed)) => wishes(flags).and_then(|wishes| {
            let list = draw::list(seed, flags.steps.unwrap_or(STEPS), &wishes);
            one(flags, &list, &replay(flags, seed))
        }),
        (None, None) => many(flags),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("tidegate: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn say(text: &str) -> anyhow::Result<()> {
    io::stdout().write_all(text.as_bytes()).context("cannot write to the standard output")
}

fn wishes(flags: &SimFlags) -> anyhow::Result<Wishes> {
    let Some(path) = &flags.world else { return Ok(Wishes::default()) };
    let text = fs::read_to_string(path).with_context(|| format!("cannot read --world {}", path.display()))?;
    toml::from_str(&text).with_context(|| format!("--world {} does not describe a world", path.display()))
}

fn read_list(path: &std::path::Path) -> anyhow::Result<List> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read --list {}", path.display()))?;
    list::parse(&text).map_err(|wrong| anyhow!("--list {}: {wrong}", path.display()))
}

fn replay(flags: &SimFlags, seed: u64) -> String {
    let world = flags.world.as_ref().map(|path| format!(" --world {}", path.display())).unwrap_or_default();
    let steps = flags.steps.map(|steps| format!(" --steps {steps}")).unwrap_or_default();
    format!("tidegate sim --seed {seed}{world}{steps}")
}

/// One run, shown as asked; whether it is well.
fn one(flags: &SimFlags, list: &List, again: &str) -> anyhow::Result<bool> {
    let shown = flags.trace || flags.svg.is_some();
    let Verdict { hash, violations, marks, counts, lasted, trace } = night::judge(list, shown);
    if let Some(trace) = trace {
        if flags.trace {
            say(&format!("{list}\n{}", trace.text()))?;
        }
        if let Some(path) = &flags.svg {
            fs::write(path, svg::draw(&trace)).with_context(|| format!("cannot write --svg {}", path.display()))?;
        }
    }
    say(&format!(
        "hash {hash:016x}, {} steps, {} operations, {} events, {:.3} simulated seconds, {} situations\n",
        counts.steps,
        counts.operations(),
        counts.events,
        lasted as f64 / 1e6,
        marks.reached()
    ))?;
    if violations.is_empty() {
        return Ok(true);
    }
    for violation in violations.iter().skip(1) {
        say(&format!("also: {}: {}\n", violation.checker, violation.what))?;
    }
    say(&report::failure(list, again))?;
    Ok(false)
}

/// Seeds one after the other, with a line that lives.
fn many(flags: &SimFlags) -> anyhow::Result<bool> {
    if flags.trace || flags.svg.is_some() {
        bail!("--trace and --svg show one run: name it with --seed or --list");
    }
    let nightly = flags.mode == Some(SimMode::Nightly);
    let wishes = wishes(flags)?;
    let limit = flags.duration.as_deref().map(duration).transpose()?;
    let seeds = flags.seeds.or((nightly && limit.is_none()).then_some(NIGHTLY_SEEDS)).unwrap_or(u64::MAX);
    let steps = flags.steps.unwrap_or(STEPS);
    let first = flags.first.unwrap_or(crate::system::wall().as_micros().unsigned_abs());
    let terminal = io::stderr().is_terminal();
    let pause = if terminal { Duration::from_millis(200) } else { Duration::from_secs(10) };
    let (started, mut shown) = (Instant::now(), Instant::now());
    let mut sum = Sum::default();
    while sum.seeds < seeds && limit.is_none_or(|limit| started.elapsed() < limit) {
        let seed = first.wrapping_add(sum.seeds);
        let before = sum.failures.len();
        sum.run(seed, steps, &wishes, nightly);
        if sum.failures.len() > before && sum.failures.len() <= SHOWN {
            let list = draw::list(seed, steps, &wishes);
            say(&format!("\n{}", report::failure(&list, &replay(flags, seed))))?;
        }
        if shown.elapsed() >= pause {
            shown = Instant::now();
            let (begin, end) = if terminal { ("\r\x1b[K", "") } else { ("", "\n") };
            eprint!("{begin}{}{end}", sum.line());
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    say(&format!(
        "{}{}\nfirst seed {first}, {:.0} operations a second, {:.0} seeds a minute, {} seeds differ from themselves\n",
        if terminal { "\n" } else { "" },
        sum.line(),
        sum.counts.operations() as f64 / seconds,
        sum.seeds as f64 / seconds * 60.0,
        sum.differing.len(),
    ))?;
    let mut well = sum.failures.is_empty() && sum.differing.is_empty();
    if nightly {
        let matrix = sum.counts.matrix(LEAST);
        say(&format!("\n{matrix}\n"))?;
        for unreached in sum.marks.unreached() {
            well = false;
            say(&format!("never: {unreached}\n"))?;
        }
        well &= !matrix.contains("\nbelow ");
    }
    Ok(well)
}

/// A time such as `60s`, `10m` or `8h`.
fn duration(text: &str) -> anyhow::Result<Duration> {
    let units = [("s", 1), ("m", 60), ("h", 3_600)];
    let parsed = units.iter().find_map(|(unit, seconds)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        Some(Duration::from_secs(number.saturating_mul(*seconds)))
    });
    parsed.ok_or_else(|| anyhow!("--for {text:?} is no time such as 60s, 10m or 8h"))
}
