//! Where logs go and what they look like. Nothing else installs anything global.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::{Registry, fmt};

use crate::settings::{LogFormat, Settings};

/// Sends logs to stderr, as text or JSON; stdout is for the ready line alone.
pub fn install(settings: &Settings) {
    // Libraries speak up only when something is wrong: their debug logs are about frames, not about queues.
    let filter = Targets::new()
        .with_default(settings.log_level.min(LevelFilter::WARN))
        .with_target("tidegate", settings.log_level)
        // It warns of each dead connection that it throws away, many times in an outage; the driver says so once.
        .with_target("sqlx", settings.log_level.min(LevelFilter::ERROR));
    let lines = fmt::layer().with_writer(stderr);
    let lines: Box<dyn Layer<Registry> + Send + Sync> = match settings.log_format {
        LogFormat::Auto => lines.with_ansi(stderr().is_terminal()).with_filter(filter).boxed(),
        LogFormat::Text => lines.with_ansi(false).with_filter(filter).boxed(),
        LogFormat::Json => lines.json().with_filter(filter).boxed(),
    };
    if tracing::subscriber::set_global_default(Registry::default().with(lines)).is_err() {
        eprintln!("tidegate: another logger is installed already");
    }
}
