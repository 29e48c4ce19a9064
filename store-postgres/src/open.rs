//! The first contact with the database, and what people are told when it fails.

use std::io::ErrorKind;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{ConnectOptions, PgConnection};
use tidegate_core::store::Slot;
use uuid::Uuid;

use crate::PgSettings;

/// Why the store cannot be used. The text says what to do, and holds no password.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL does not parse.
    #[error("the store's URL cannot be read: {0}; expected postgres://user:password@host:port/database")]
    Url(String),
    /// No connection.
    #[error("cannot connect to Postgres at {place}: {why}")]
    Connect {
        /// Host, port, user and database.
        place: String,
        /// What Postgres or the system said.
        why: String,
    },
    /// The schema could not be read or changed.
    #[error("cannot use the schema \"queen\": {0}; the database's user needs the right to create it")]
    Schema(String),
    /// There is a schema of that name that nothing of ours made.
    #[error("the schema \"queen\" in this database was made by something else; use another database")]
    Strange,
    /// A later version has been here.
    #[error("the schema \"queen\" has version {found}, this broker knows versions up to {known}; use a newer tidegate")]
    Newer {
        /// In the database.
        found: i64,
        /// The newest of this program.
        known: i64,
    },
    /// QUEEN_APPLY_SCHEMA is off.
    #[error("the schema \"queen\" is missing or old and QUEEN_APPLY_SCHEMA is off; start one broker with it on")]
    Missing,
}

impl OpenError {
    pub(crate) fn schema(error: sqlx::Error) -> Self {
        OpenError::Schema(said(&error))
    }
}

/// What the database said, without how this program came to ask.
fn said(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Database(reported) => reported.message().to_owned(),
        other => other.to_string(),
    }
}

/// Connections by use.
pub(crate) struct Pools {
    /// Commits and raises: short, with timeouts of a second.
    pub(crate) writes: PgPool,
    /// Loads and reads.
    pub(crate) reads: PgPool,
    /// Renewals and watches, which need not be durable: losing one is like not having sent it.
    pub(crate) control: PgPool,
}

/// The name of a broker's connections.
pub(crate) fn application_name(incarnation: Uuid) -> String {
    format!("tidegate {incarnation}")
}

pub(crate) fn options(settings: &PgSettings) -> Result<PgConnectOptions, OpenError> {
    let url = &settings.url;
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        return Err(OpenError::Url("it does not begin with postgres://".to_owned()));
    }
    let options = PgConnectOptions::from_str(url).map_err(|error| OpenError::Url(error.to_string()))?;
    Ok(options.log_statements(tracing::log::LevelFilter::Off))
}

pub(crate) fn place(options: &PgConnectOptions) -> String {
    let host =
        options.get_socket().map_or_else(|| options.get_host().to_owned(), |folder| folder.display().to_string());
    let database = options.get_database().unwrap_or(options.get_username());
    format!("{host}, port {}, database {database}, user {}", options.get_port(), options.get_username())
}

/// How long a request waits for a connection before it fails: its caller is told to come again.
const ACQUIRE: Duration = Duration::from_secs(2);

/// What every session tells the planner: each statement is written for an index and a limit. Statistics that say "three
/// rows" of a partition that has a million since would let it read all of them and sort. And each is planned once: planning
/// anew for the arrays at hand finds the same plan, and took a third of the server's time in a drain.
pub const PLANNER: [(&str, &str); 4] = [
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("jit", "off"),
    ("plan_cache_mode", "force_generic_plan"),
];

pub(crate) fn pools(options: &PgConnectOptions, settings: &PgSettings, incarnation: Uuid) -> Pools {
    let named = options.clone().application_name(&application_name(incarnation)).options(PLANNER);
    let pool = |most: u32, options: PgConnectOptions| {
        PgPoolOptions::new()
            .max_connections(most)
            .min_connections(1)
            .acquire_timeout(ACQUIRE)
            .test_before_acquire(false)
            .connect_lazy_with(options)
    };
    let writes = (settings.pool_size.saturating_sub(2) / 2).max(2);
    let reads = settings.pool_size.saturating_sub(writes + 2).max(2);
    let timeout = settings.statement_timeout.as_millis().to_string();
    Pools {
        writes: pool(
            writes,
            named.clone().options([
                ("statement_timeout", "1000"),
                ("idle_in_transaction_session_timeout", "1000"),
                ("synchronous_commit", "on"),
            ]),
        ),
        reads: pool(reads, named.clone().options([("statement_timeout", timeout.as_str())])),
        control: pool(2, named.options([("statement_timeout", "1000"), ("synchronous_commit", "off")])),
    }
}

/// How long a start waits for a database that is starting up too, or that nobody has started yet.
const PATIENCE: Duration = Duration::from_secs(30);

/// The first connection. What only time can mend is waited for; what a person has to mend is said at once.
async fn connect(options: &PgConnectOptions) -> Result<PgConnection, OpenError> {
    let failed = |why: String| OpenError::Connect { place: place(options), why };
    let begun = Instant::now();
    let mut told = String::new();
    loop {
        let error = match tokio::time::timeout(PATIENCE, options.connect()).await {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(error)) => error,
            Err(_) => return Err(failed(format!("no answer within {} s", PATIENCE.as_secs()))),
        };
        let code = error.as_database_error().and_then(|reported| reported.code()).unwrap_or_default().into_owned();
        let passes = match &error {
            // Starting up, shutting down, too many connections.
            sqlx::Error::Database(_) => code.starts_with("57P0") || code == "53300",
            sqlx::Error::Io(error) => is_cut(error.kind()) || error.kind() == ErrorKind::ConnectionRefused,
            _ => false,
        };
        let why = said(&error);
        if !passes || begun.elapsed() > PATIENCE {
            return Err(failed(why));
        }
        if why != told {
            let (place, most) = (place(options), PATIENCE.as_secs());
            tracing::warn!(place, why, "waiting for Postgres, {most} s at most");
            told = why;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Whether somebody was there and went away.
fn is_cut(kind: ErrorKind) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, TimedOut, UnexpectedEof};
    matches!(kind, BrokenPipe | ConnectionAborted | ConnectionReset | TimedOut | UnexpectedEof)
}

/// Connects once, brings the schema up to date, and makes the pools.
pub(crate) async fn open(
    settings: &PgSettings,
    default_slot: Slot,
) -> Result<(PgConnectOptions, Arc<Pools>), OpenError> {
    let options = options(settings)?;
    let mut connection = connect(&options).await?;
    crate::migrate::migrate(&mut connection, settings.apply_schema, default_slot).await?;
    crate::migrate::close(connection).await;
    let pools = Arc::new(pools(&options, settings, settings.incarnation));
    Ok((options, pools))
}
