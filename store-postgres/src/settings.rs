//! How to reach the database, and how much to use of it.

use std::time::Duration;

/// What the store is told at its start.
#[derive(Clone)]
pub struct PgSettings {
    /// `postgres://user:password@host:port/database?sslmode=…&sslrootcert=…`; `host=/folder` names a socket's folder.
    pub url: String,
    /// Who this broker is, for its owners' rows and its connections' names.
    pub incarnation: uuid::Uuid,
    /// Connections at most, over all uses.
    pub pool_size: u32,
    /// How long a read or a load may take.
    pub statement_timeout: Duration,
    /// Bytes of recent messages kept in memory.
    pub cache_bytes: usize,
    /// Whether to bring the schema up to date, or only to check it.
    pub apply_schema: bool,
}

impl PgSettings {
    /// The usual settings for a database at `url`.
    pub fn new(url: impl Into<String>) -> Self {
        PgSettings {
            url: url.into(),
            incarnation: uuid::Uuid::nil(),
            pool_size: 20,
            statement_timeout: Duration::from_secs(30),
            cache_bytes: 256 << 20,
            apply_schema: true,
        }
    }
}
