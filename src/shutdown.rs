//! The end of a broker: signals, stop accepting, drain, a deadline.

use std::io;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::assemble::Running;

/// How long a shutdown may take; with what comes before and after it stays within five seconds.
const PATIENCE: Duration = Duration::from_millis(4_500);
/// What is kept of it for what comes after the slots are handed over.
const LAST_STEPS: Duration = Duration::from_millis(1_500);
/// How long leaving the fleet may take.
const FAREWELL: Duration = Duration::from_millis(300);
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
        ended = &mut running.brokers => {
            ended.context("a broker's task failed")?;
            bail!("the brokers' tasks ended by themselves");
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

/// Gives the slots to other brokers, if there are any, while it still serves. Then accepts nothing new, lets the broker answer what is parked and finish what runs, waits for the answers to be written.
async fn drain(running: Running) -> anyhow::Result<()> {
    let Running { stop, slots, brokers, http, joined, .. } = running;
    let deadline = tokio::time::Instant::now() + PATIENCE;
    if let Some(joined) = &joined {
        match tokio::time::timeout_at(deadline - LAST_STEPS, joined.retire()).await {
            Ok(true) => tracing::info!("the other brokers have the slots"),
            Ok(false) => tracing::info!("no other broker is there to take the slots"),
            Err(_) => tracing::warn!("not all slots could be handed over in time"),
        }
    }
    stop.cancel();
    slots.drain();
    match tokio::time::timeout_at(deadline, brokers).await {
        Ok(ended) => ended.context("a broker's task failed")?,
        Err(_) => bail!("commits were still running when the time to shut down was over"),
    }
    match tokio::time::timeout_at(deadline, http).await {
        Ok(ended) => ended.context("the HTTP listener failed")?,
        Err(_) => tracing::warn!("some connections did not close in time"),
    }
    if let Some(joined) = joined {
        // Whoever cannot say goodbye is found missing.
        let _ = tokio::time::timeout(FAREWELL, joined.leave()).await;
    }
    tracing::info!("stopped");
    Ok(())
}
