//! What a figure was taken on, and what the system says about this process.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use crate::{Failure, report};

/// The machine and the compiler.
pub struct Machine {
    cores: usize,
    model: String,
    kernel: String,
    load: String,
}

impl Machine {
    /// This one, now.
    pub fn here() -> Self {
        let model = read("/proc/cpuinfo")
            .lines()
            .find_map(|line| line.strip_prefix("model name").and_then(|rest| rest.split_once(':')))
            .map_or_else(|| String::from("unknown CPU"), |(_, model)| model.trim().to_owned());
        let load = read("/proc/loadavg").split(' ').next().unwrap_or_default().to_owned();
        Machine {
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            model,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load,
        }
    }

    /// For people.
    pub fn print(&self) {
        let build = if cfg!(debug_assertions) { "DEBUG BUILD: the figures mean nothing" } else { "release build" };
        report::line(&format!(
            "machine    {} cores, {}, Linux {}, load {} at the start; {}, {build}",
            self.cores,
            self.model,
            self.kernel,
            self.load,
            env!("TIDEGATE_BENCH_RUSTC")
        ));
    }

    /// For programs.
    pub fn json(&self) -> Value {
        json!({
            "cores": self.cores, "cpu": self.model, "kernel": self.kernel, "load_at_start": self.load,
            "rustc": env!("TIDEGATE_BENCH_RUSTC"), "release": !cfg!(debug_assertions),
        })
    }
}

/// Binds this thread to one CPU, the last it may use, and says which.
pub fn pin() -> Result<usize, Failure> {
    let allowed = sched_getaffinity(None)?;
    let cpu = (0..CpuSet::MAX_CPU).rev().find(|&cpu| allowed.is_set(cpu)).ok_or("no CPU is allowed here")?;
    let mut one = CpuSet::new();
    one.set(cpu);
    sched_setaffinity(None, &one)?;
    Ok(cpu)
}

/// Sees to it that the allocator keeps the memory it was given, by starting this program anew with the setting that says
/// so: what is freed after a warm-up is then there for the run that counts.
pub fn keep_memory() -> Result<(), Failure> {
    const SETTING: &str = "MIMALLOC_PURGE_DELAY";
    if std::env::var_os(SETTING).is_some() {
        return Ok(());
    }
    let again = Command::new(std::env::current_exe()?).args(std::env::args_os().skip(1)).env(SETTING, "-1").exec();
    Err(again.into())
}

/// CPU time of this thread so far: what is left of wall time when neighbours take the core away.
pub fn thread_cpu() -> Duration {
    cpu(ClockId::ThreadCPUTime)
}

/// CPU time of all threads of this process so far.
pub fn process_cpu() -> Duration {
    cpu(ClockId::ProcessCPUTime)
}

fn cpu(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Bytes of this process that are in memory now.
pub fn resident() -> u64 {
    kibibytes("/proc/self/status", "VmRSS:").map_or(0, |kibibytes| kibibytes * 1_024)
}

/// Bytes that may still be taken without swapping.
pub fn available() -> u64 {
    kibibytes("/proc/meminfo", "MemAvailable:").map_or(u64::MAX, |kibibytes| kibibytes.saturating_mul(1_024))
}

/// The number behind `name` in a file of /proc.
fn kibibytes(file: &str, name: &str) -> Option<u64> {
    let text = read(file);
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// A file of /proc; empty where there is none.
fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// CPU seconds that a process has used, its threads included; 0 when it is gone.
pub fn cpu_of(process: u32) -> f64 {
    // Ticks of a hundredth of a second.
    stat_fields(process).iter().skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// CPU seconds of a process, of its children, and of those of them that have ended.
pub fn cpu_of_family(head: u32) -> f64 {
    let ended = stat_fields(head).iter().skip(13).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let family = numbers.filter(|&number| number == head || parent_of(number) == Some(head));
    family.map(cpu_of).sum::<f64>() + ended / 100.0
}

/// The number of a process's parent.
pub fn parent_of(process: u32) -> Option<u32> {
    stat_fields(process).get(1)?.parse().ok()
}

/// What stands behind the name in a process's line, which may hold anything: state, parent, and so on.
fn stat_fields(process: u32) -> Vec<String> {
    let stat = read(&format!("/proc/{process}/stat"));
    stat.rsplit(')').next().unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}
