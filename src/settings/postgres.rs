//! Where the database is: the store's URL, and `PG_*` variables for what it leaves out.

use std::time::Duration;

use tidegate_store_postgres::PgSettings;
use url::Url;

use super::read::{Environment, Given, Wrong, boolean, integer, whole};

/// How to reach Postgres. What is printed of it holds no password.
#[derive(Clone)]
pub struct Postgres(pub PgSettings);

impl std::fmt::Debug for Postgres {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Postgres(…)")
    }
}

impl PartialEq for Postgres {
    fn eq(&self, other: &Self) -> bool {
        self.0.url == other.0.url
    }
}

/// Checks the variables of the database even when the store is another: a typing error should not wait.
pub fn postgres(
    given: Option<&Given>,
    cache: Option<Given>,
    environment: &Environment,
) -> Result<Option<Postgres>, Wrong> {
    let port = integer(environment, "PG_PORT", 1, i64::from(u16::MAX), "a TCP port")?;
    let pool = integer(environment, "DB_POOL_SIZE", 6, 10_000, "connections")?;
    let timeout = integer(environment, "QUEEN_STMT_TIMEOUT_MS", 1, i64::from(i32::MAX), "milliseconds")?;
    let apply_schema = boolean(environment, "QUEEN_APPLY_SCHEMA")?;
    let cache = whole(cache, 0, 1 << 20, "megabytes")?;
    let Some(given) = given else { return Ok(None) };
    let unread = || {
        let text = "is no URL of a database, expected postgres://user:password@host:port/database";
        Wrong(format!("{} {text}", given.origin))
    };
    let mut url = Url::parse(&given.text).map_err(|_| unread())?;
    let text = |name| environment.get(name).map(|text| text.map(str::to_owned));
    if url.host_str().is_none_or(str::is_empty) {
        url.set_host(Some(&text("PG_HOST")?.unwrap_or_else(|| "localhost".to_owned()))).map_err(|_| unread())?;
    }
    if url.port().is_none() {
        url.set_port(Some(port.and_then(|port| u16::try_from(port).ok()).unwrap_or(5432))).map_err(|()| unread())?;
    }
    if url.username().is_empty() {
        url.set_username(&text("PG_USER")?.unwrap_or_else(|| "postgres".to_owned())).map_err(|()| unread())?;
    }
    if url.password().is_none()
        && let Some(password) = text("PG_PASSWORD")?
    {
        url.set_password(Some(&password)).map_err(|()| unread())?;
    }
    if url.path().trim_matches('/').is_empty() {
        let named = match text("PG_DATABASE")? {
            Some(name) => Some(name),
            None => text("PG_DB")?,
        };
        url.set_path(&named.unwrap_or_else(|| "postgres".to_owned()));
    }
    let defaults = PgSettings::new(url);
    Ok(Some(Postgres(PgSettings {
        pool_size: pool.and_then(|size| u32::try_from(size).ok()).unwrap_or(defaults.pool_size),
        statement_timeout: timeout.map_or(defaults.statement_timeout, |ms| Duration::from_millis(ms.unsigned_abs())),
        cache_bytes: cache.map_or(defaults.cache_bytes, |mb| usize::try_from(mb).unwrap_or(0) << 20),
        apply_schema: apply_schema.unwrap_or(true),
        ..defaults
    })))
}
