//! Flags and environment, checked into one `Settings` value. A value that does not parse names its flag or variable and
//! what was expected; nothing is started then.

mod foreign;
mod postgres;
mod read;
mod retention;
mod security;

use clap::{Args, Parser, Subcommand};
use tidegate_core::record::StartFrom;
use tidegate_core::seal::Keys;
use tidegate_core::time::Span;
use tracing_subscriber::filter::LevelFilter;

pub use postgres::Postgres;
pub use read::{Environment, Wrong};
use read::{boolean, integer, one_of};
pub use retention::Retention;
pub use security::Tokens;

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
    /// Simulate brokers, clients and faults, and check every promise, until stopped.
    #[command(after_help = NIGHTS)]
    Sim(SimFlags),
}

/// Flags of `sim`.
#[derive(Args, Default)]
pub struct SimFlags {
    /// `nightly`: each seed twice, with a table of what met what; what was not met fails it too.
    pub mode: Option<SimMode>,
    /// Run this seed alone.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// The first of many seeds [default: drawn from the clock].
    #[arg(long, value_name = "N")]
    pub first: Option<u64>,
    /// How many seeds [default: no end].
    #[arg(long, value_name = "N")]
    pub seeds: Option<u64>,
    /// How long, such as 60s, 10m or 8h [default: no end].
    #[arg(long = "for", value_name = "TIME")]
    pub duration: Option<String>,
    /// Steps of a seed [default: 200].
    #[arg(long, value_name = "N")]
    pub steps: Option<usize>,
    /// A TOML file that describes brokers, queues and rules; what it leaves out is drawn.
    #[arg(long, value_name = "FILE")]
    pub world: Option<std::path::PathBuf>,
    /// Replay a list of steps instead of a seed.
    #[arg(long, value_name = "FILE")]
    pub list: Option<std::path::PathBuf>,
    /// Write what happens, a line for each event.
    #[arg(long)]
    pub trace: bool,
    /// Write what happens as a space-time diagram into this file.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<std::path::PathBuf>,
}

/// What `sim` is asked for beside its usual work.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq)]
pub enum SimMode {
    /// Each seed twice, and everything that can happen must happen.
    Nightly,
}

const NIGHTS: &str = "\
Examples:
  tidegate sim --for 60s                       a minute of nights
  tidegate sim --world sim/worlds/two.toml     your own brokers and rules
  tidegate sim --seed 7 --trace                what happens in one of them
  tidegate sim --seed 7 --svg seven.svg        the same as a diagram
The exit status is 1 when a promise was broken.";

/// Flags of `serve`. They are texts here: what they may say is checked where the environment is, in the same words.
#[derive(Args, Default)]
pub struct ServeFlags {
    /// Where to listen, as host:port; port 0 takes a free one [default: 127.0.0.1:6632] [env: TIDEGATE_LISTEN, then
    /// PORT on 127.0.0.1].
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// The URL under which other brokers on the same database reach this one [default: http:// and the address it listens
    /// on] [env: TIDEGATE_ADVERTISE].
    #[arg(long, value_name = "URL")]
    advertise: Option<String>,
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
  TIDEGATE_ADVERTISE           how other brokers reach this one when --advertise is not given
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
  QUEEN_DEDUP_CACHE_MB         megabytes for what finds duplicates; more is looked up in the store [default: 512]
  RETENTION_INTERVAL           milliseconds between two retention cycles [default: 5000]
  RETENTION_BATCH_SIZE         segments that one step of retention deletes at most [default: 1000]
  PARTITION_CLEANUP_DAYS       days until an empty partition that nobody uses is removed [default: 30]
  QUEEN_PARTITION_CLEANUP_ENABLED
                               whether it is removed at all [default: true]
  METRICS_RETENTION_DAYS       days that analytics go back, and what retention deleted [default: 90]
  QUEEN_CACHE_REFRESH_INTERVAL_MS
                               milliseconds until an option changed in the database holds [default: 60000]
  QUEEN_ENCRYPTION_KEY         64 hexadecimal characters: the key for queues with encryptionEnabled
  QUEEN_ENCRYPTION_KEY_PREVIOUS
                               former keys, with commas between them: what they sealed is still read
  QUEEN_TENANCY_HEADER         requests name their tenant in x-queen-tenant [default: false]
  JWT_ENABLED                  let nobody in without a token [default: false]
  JWT_ALGORITHM                HS256, HS384, HS512, RS256 (all RS), RS384, RS512, EdDSA or auto [default: HS256]
  JWT_SECRET                   what tokens of the HS algorithms are signed with
  JWT_PUBLIC_KEY               an RSA or Ed25519 public key in PEM
  JWT_JWKS_FILE                a file with a JSON Web Key Set; a changed one is read within 30 seconds
  JWT_ISSUER, JWT_AUDIENCE     what iss must be, and aud must have in it
  JWT_CLOCK_SKEW               seconds by which an issuer's clock may differ [default: 30]
  JWT_SKIP_PATHS               paths that need no token [default: /health,/metrics/prometheus,/metrics,/]
  LOG_LEVEL                    off, error, warn, info, debug or trace [default: info]";

/// Everything `serve` needs to know.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// Where to listen: a host and a port.
    pub listen: String,
    /// The URL under which other brokers reach this one; none for the address that is listened on.
    pub advertise: Option<String>,
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
    /// Memory for the logs that deduplication and acks look in.
    pub dedup_cache_bytes: u64,
    /// How often options that were changed in the database are looked for.
    pub refresh: Span,
    /// Retention, and what is cleaned up in the background.
    pub retention: Retention,
    /// What payloads are encrypted with.
    pub keys: Keys,
    /// How tokens are checked; none where everybody may do everything.
    pub tokens: Option<Tokens>,
    /// Requests name their tenant.
    pub tenants: bool,
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
        let tokens = security::tokens(environment)?;
        let millis = |name| integer(environment, name, 0, i64::from(i32::MAX), "milliseconds");
        let timeouts = [millis("DEFAULT_TIMEOUT")?, millis("POP_DEFAULT_TIMEOUT_MS")?];
        let listen = listen(flags.listen, environment)?;
        let advertise = advertise(flags.advertise, environment)?;
        let store = store(flags.store, flags.cache_mb, environment)?;
        // Other brokers cannot reach an address that means "everywhere".
        let everywhere = listen.parse::<std::net::SocketAddr>().is_ok_and(|address| address.ip().is_unspecified());
        if everywhere && advertise.is_none() && matches!(store, Store::Postgres(_)) {
            return Err(Wrong(format!(
                "--listen {listen} is no address at which other brokers on the same database could reach this one: name one \
                 with --advertise, such as http://10.0.0.5:6632"
            )));
        }
        Ok(Settings {
            listen,
            advertise,
            store,
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
            dedup_cache_bytes: integer(environment, "QUEEN_DEDUP_CACHE_MB", 1, 1 << 20, "megabytes")?
                .unwrap_or(512)
                .unsigned_abs()
                << 20,
            refresh: millis("QUEEN_CACHE_REFRESH_INTERVAL_MS")?.map_or(Span::from_secs(60), Span::from_millis),
            retention: Retention::check(environment)?,
            keys: security::encryption(environment)?,
            tenants: boolean(environment, "QUEEN_TENANCY_HEADER")?.unwrap_or(false),
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
            without_effect: foreign::without_effect(environment, tokens.is_some()),
            tokens,
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

/// `--advertise`, then `TIDEGATE_ADVERTISE`.
fn advertise(flag: Option<String>, environment: &Environment) -> Result<Option<String>, Wrong> {
    let Some(given) = environment.given(flag.map(|text| ("--advertise", text)), "TIDEGATE_ADVERTISE")? else {
        return Ok(None);
    };
    let usable = |url: &url::Url| {
        let bare = url.username().is_empty() && url.password().is_none();
        url.scheme() == "http" && bare && url.path() == "/" && url.query().is_none() && url.fragment().is_none()
    };
    match url::Url::parse(&given.text).ok().filter(usable) {
        Some(url) => Ok(Some(url.as_str().trim_end_matches('/').to_owned())),
        None => Err(given.wrong("an HTTP address without a path, such as http://10.0.0.5:6632")),
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
