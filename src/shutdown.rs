//! The end of a broker: signals, stop accepting, drain, a deadline.

use std::io;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::assemble::Running;

/// How long a shutdown may take; with what comes before and after it stays within five seconds.
const PATIENCE: Duration = Duration::from_millis(4_500);
/// What shells report for a process that an interrupt ended.
const INTERRUPTED: i32 = 130;

/// The signals that stop a broker.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// From now on SIGTERM and SIGINT are ours.
    pub fn listen() -> io::Result<Self> {
        Ok(Signals { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next one and tells its name.
    async fn next(&mut self) -> &'static str {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// Runs until the first signal and then shuts down; the second signal ends the process at once.
pub async fn run_until_told(mut running: Running, mut signals: Signals) -> anyhow::Result<()> {
    tokio::select! {
        biased;
        name = signals.next() => tracing::info!(signal = name, "shutting down"),
        ended = &mut running.broker => {
            ended.context("the broker's task failed")?;
            bail!("the broker's task ended by itself");
        }
        ended = &mut running.http => {
            ended.context("the HTTP listener failed")?;
            bail!("the HTTP listener ended by itself");
        }
    }
    tokio::select! {
        biased;
        name = signals.next() => {
            tracing::warn!(signal = name, "stopping at once");
            std::process::exit(INTERRUPTED);
        }
        outcome = drain(running) => outcome,
    }
}

/// Accepts nothing new, lets the broker answer what is parked and finish what runs, waits for the answers to be written.
async fn drain(running: Running) -> anyhow::Result<()> {
    let Running { stop, handle, broker, http, .. } = running;
    let deadline = tokio::time::Instant::now() + PATIENCE;
    stop.cancel();
    handle.drain();
    match tokio::time::timeout_at(deadline, broker).await {
        Ok(ended) => ended.context("the broker's task failed")?,
        Err(_) => bail!("commits were still running when the time to shut down was over"),
    }
    match tokio::time::timeout_at(deadline, http).await {
        Ok(ended) => ended.context("the HTTP listener failed")?,
        Err(_) => tracing::warn!("some connections did not close in time"),
    }
    tracing::info!("stopped");
    Ok(())
}
