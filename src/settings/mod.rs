//! Flags and environment, checked into one `Settings` value. A value that does not parse names its flag or variable and
//! what was expected; nothing is started then.

mod foreign;
mod postgres;
mod read;

use clap::{Args, Parser, Subcommand};
use tidegate_core::record::StartFrom;
use tidegate_core::time::Span;
use tracing_subscriber::filter::LevelFilter;

pub use postgres::Postgres;
pub use read::{Environment, Wrong};
use read::{boolean, integer, one_of};

/// A message broker with Queen's HTTP API: partitioned queues, consumer groups, leases, acks and transactions.
#[derive(Parser)]
#[command(name = "tidegate", version, about)]
pub struct Cli {
    /// What to do; help without one.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What the program can do.
#[derive(Subcommand)]
pub enum Command {
    /// Serve until SIGTERM or SIGINT.
    #[command(after_help = VARIABLES)]
    Serve(ServeFlags),
}

/// Flags of `serve`. They are texts here: what they may say is checked where the environment is, in the same words.
#[derive(Args, Default)]
pub struct ServeFlags {
    /// Where to listen, as host:port; port 0 takes a free one [default: 127.0.0.1:6632] [env: TIDEGATE_LISTEN, then
    /// PORT on 127.0.0.1].
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Where messages are kept: memory, or postgres://user:password@host:port/database [default: memory]
    /// [env: TIDEGATE_STORE].
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
    /// How logs look: auto (text, coloured on a terminal), text or json [default: auto] [env: TIDEGATE_LOG_FORMAT].
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// Megabytes of recent messages kept in memory over Postgres [default: 256] [env: TIDEGATE_CACHE_MB].
    #[arg(long, value_name = "MB")]
    cache_mb: Option<String>,
}

const VARIABLES: &str = "\
Environment variables:
  TIDEGATE_LISTEN, PORT        where to listen when --listen is not given
  TIDEGATE_STORE               the store when --store is not given
  TIDEGATE_LOG_FORMAT          how logs look when --log-format is not given
  TIDEGATE_REQUIRE_LEASE       refuse acks that name no lease [default: false]
  QUEEN_MAX_BODY_BYTES         larger request bodies are refused with 413 [default: 67108864]
  DEFAULT_TIMEOUT              milliseconds a long poll without a timeout waits [default: 30000]
  POP_DEFAULT_TIMEOUT_MS       the same, where DEFAULT_TIMEOUT is not set
  DEFAULT_SUBSCRIPTION_MODE    where a new consumer group starts: all or new [default: all]
  QUEEN_HOTLIST                release a windowBuffer early when enough messages wait [default: true]
  QUEEN_HOTLIST_WINDOW_BATCH   how many are enough [default: 100]
  PG_HOST, PG_PORT, PG_USER, PG_PASSWORD, PG_DATABASE (or PG_DB)
                               what the URL of a Postgres store leaves out
  DB_POOL_SIZE                 connections to Postgres at most [default: 20]
  QUEEN_STMT_TIMEOUT_MS        milliseconds a read may take in Postgres [default: 30000]
  QUEEN_APPLY_SCHEMA           bring the schema up to date at the start [default: true]
  LOG_LEVEL                    off, error, warn, info, debug or trace [default: info]";

/// Everything `serve` needs to know.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// Where to listen: a host and a port.
    pub listen: String,
    /// Where messages are kept.
    pub store: Store,
    /// A larger request body is refused.
    pub max_body_bytes: usize,
    /// How long a long poll waits that names no timeout.
    pub default_timeout: Span,
    /// Where a group starts that does not say.
    pub default_start: StartFrom,
    /// Which rule of `windowBuffer` holds.
    pub hot_list: bool,
    /// Messages that end a window early.
    pub window_batch: u64,
    /// Refuse acks that name no lease.
    pub require_lease: bool,
    /// The least important log that is written.
    pub log_level: LevelFilter,
    /// What logs look like.
    pub log_format: LogFormat,
    /// Variables that are set and mean nothing here, to be named once in the log.
    pub without_effect: Vec<String>,
}

/// The stores of this version.
#[derive(Clone, PartialEq, Debug)]
pub enum Store {
    /// Gone when the process ends.
    Memory,
    /// A database, which other brokers may use too.
    Postgres(Postgres),
}

impl Store {
    /// As `--store` spells it.
    pub fn name(&self) -> &'static str {
        match self {
            Store::Memory => "memory",
            Store::Postgres(_) => "postgres",
        }
    }
}

/// What logs look like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogFormat {
    /// Text, coloured on a terminal.
    Auto,
    /// Text, never coloured.
    Text,
    /// A JSON object a line.
    Json,
}

impl Settings {
    /// Checks everything that is set, the variables that a flag or another variable overrides included: a typing error
    /// should not wait for the day it takes effect.
    pub fn check(flags: ServeFlags, environment: &Environment) -> Result<Settings, Wrong> {
        foreign::refuse_unprotected(environment)?;
        let millis = |name| integer(environment, name, 0, i64::from(i32::MAX), "milliseconds");
        let timeouts = [millis("DEFAULT_TIMEOUT")?, millis("POP_DEFAULT_TIMEOUT_MS")?];
        Ok(Settings {
            listen: listen(flags.listen, environment)?,
            store: store(flags.store, flags.cache_mb, environment)?,
            max_body_bytes: integer(environment, "QUEEN_MAX_BODY_BYTES", 1, i64::MAX, "bytes")?
                .map_or(64 * 1_024 * 1_024, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
            default_timeout: timeouts.into_iter().flatten().next().map_or(Span::from_secs(30), Span::from_millis),
            default_start: one_of(
                environment.given(None, "DEFAULT_SUBSCRIPTION_MODE")?,
                &[
                    ("all", StartFrom::All),
                    ("from_beginning", StartFrom::All),
                    ("new", StartFrom::New),
                    ("new-only", StartFrom::New),
                ],
            )?
            .unwrap_or(StartFrom::All),
            hot_list: boolean(environment, "QUEEN_HOTLIST")?.unwrap_or(true),
            window_batch: integer(environment, "QUEEN_HOTLIST_WINDOW_BATCH", 1, i64::from(i32::MAX), "messages")?
                .map_or(100, i64::unsigned_abs),
            require_lease: boolean(environment, "TIDEGATE_REQUIRE_LEASE")?.unwrap_or(false),
            log_level: one_of(
                environment.given(None, "LOG_LEVEL")?,
                &[
                    ("off", LevelFilter::OFF),
                    ("error", LevelFilter::ERROR),
                    ("warn", LevelFilter::WARN),
                    ("info", LevelFilter::INFO),
                    ("debug", LevelFilter::DEBUG),
                    ("trace", LevelFilter::TRACE),
                ],
            )?
            .unwrap_or(LevelFilter::INFO),
            log_format: one_of(
                environment.given(flags.log_format.map(|text| ("--log-format", text)), "TIDEGATE_LOG_FORMAT")?,
                &[("auto", LogFormat::Auto), ("text", LogFormat::Text), ("json", LogFormat::Json)],
            )?
            .unwrap_or(LogFormat::Auto),
            without_effect: foreign::without_effect(environment),
        })
    }
}

/// `--listen`, then `TIDEGATE_LISTEN`, then `PORT` on the loopback address.
fn listen(flag: Option<String>, environment: &Environment) -> Result<String, Wrong> {
    let port = integer(environment, "PORT", 0, i64::from(u16::MAX), "a TCP port")?.unwrap_or(6632);
    let Some(given) = environment.given(flag.map(|text| ("--listen", text)), "TIDEGATE_LISTEN")? else {
        return Ok(format!("127.0.0.1:{port}"));
    };
    // An IPv6 address stands in brackets, so that a host name with a colon is a mistake.
    let valid = given.text.parse::<std::net::SocketAddr>().is_ok()
        || given.text.rsplit_once(':').is_some_and(|(host, port)| {
            !host.is_empty() && !host.contains([':', '/', '[', ']', ' ']) && port.parse::<u16>().is_ok()
        });
    match valid {
        true => Ok(given.text),
        false => Err(given.wrong("host:port, such as 127.0.0.1:6632, 0.0.0.0:6632 or [::1]:6632")),
    }
}

/// The text is never repeated in an error: a store's address may hold a password.
fn store(flag: Option<String>, cache_mb: Option<String>, environment: &Environment) -> Result<Store, Wrong> {
    let given = environment.given(flag.map(|text| ("--store", text)), "TIDEGATE_STORE")?;
    let cache = environment.given(cache_mb.map(|text| ("--cache-mb", text)), "TIDEGATE_CACHE_MB")?;
    let database = given.as_ref().filter(|given| given.text.starts_with("postgres"));
    match (postgres::postgres(database, cache, environment)?, given) {
        (Some(postgres), _) => Ok(Store::Postgres(postgres)),
        (None, None) => Ok(Store::Memory),
        (None, Some(given)) if given.text == "memory" => Ok(Store::Memory),
        (None, Some(given)) => {
            let expected = "expected memory or postgres://user:password@host:port/database";
            Err(Wrong(format!("{} names no store, {expected}", given.origin)))
        }
    }
}

#[cfg(test)]
mod tests;
