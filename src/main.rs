//! Tidegate: one command that parses settings, assembles a broker and runs it until it is told to stop.

mod assemble;
mod settings;
mod shutdown;
mod simulate;
mod system;
mod telemetry;

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use clap::{CommandFactory, Parser};

use settings::{Cli, Command, Environment, Settings};

/// Many small allocations on several threads: the system's allocator took a quarter of the time of the core.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let flags = match Cli::parse().command {
        Some(Command::Serve(flags)) => flags,
        Some(Command::Sim(flags)) => return simulate::run(&flags),
        None => {
            // Printing help fails only when nobody reads it.
            let _ = Cli::command().print_help();
            return ExitCode::SUCCESS;
        }
    };
    let settings = match Settings::check(flags, &Environment::of_process()) {
        Ok(settings) => settings,
        Err(wrong) => {
            eprintln!("tidegate: {wrong}");
            return ExitCode::FAILURE;
        }
    };
    telemetry::install(&settings);
    match serve(settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tidegate: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a broker until a signal stops it.
fn serve(settings: Settings) -> anyhow::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the runtime")?;
    let outcome = runtime.block_on(async {
        let signals = shutdown::Signals::listen().context("cannot listen for signals")?;
        let running = assemble::start(&settings).await?;
        announce(running.address);
        shutdown::run_until_told(running, signals).await
    });
    // What is left are connections that did not close in time; nothing waits for them any longer.
    runtime.shutdown_background();
    outcome
}

/// The one line on stdout: scripts wait for it and read the port from it.
fn announce(address: std::net::SocketAddr) {
    let mut stdout = std::io::stdout();
    // A closed stdout is no reason to stop: the log has the address too.
    let _ = writeln!(stdout, "listening on http://{address}").and_then(|()| stdout.flush());
}
