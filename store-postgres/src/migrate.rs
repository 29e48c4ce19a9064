//! Bringing the schema up to date, safely when several brokers start together.

use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::{Connection, PgConnection, Row, SqlStr};
use std::borrow::Cow;
use tidegate_core::name::TenantId;
use tidegate_core::store::Slot;

use crate::OpenError;

/// Every migration, oldest first. One that has landed is never edited.
const MIGRATIONS: &[(i64, &str, &str)] = &[
    (1, "tables", include_str!("../migrations/0001_tables.sql")),
    (2, "configure", include_str!("../migrations/0002_configure.sql")),
    (3, "ownership", include_str!("../migrations/0003_ownership.sql")),
    (4, "commit", include_str!("../migrations/0004_commit.sql")),
    (5, "trim", include_str!("../migrations/0005_trim.sql")),
    (6, "retention", include_str!("../migrations/0006_retention.sql")),
    (8, "operations", include_str!("../migrations/0008_operations.sql")),
];

/// Whoever migrates holds this advisory lock: "tidegate" in ASCII.
const LOCK: i64 = 0x7469_6465_6761_7465;

/// Sees to it that the schema is the one this version knows; with `apply` by changing it.
pub(crate) async fn migrate(connection: &mut PgConnection, apply: bool, default_slot: Slot) -> Result<(), OpenError> {
    sqlx::query("SELECT pg_advisory_lock($1)").bind(LOCK).execute(&mut *connection).await.map_err(OpenError::schema)?;
    let done = locked(connection, apply, default_slot).await;
    // The lock ends with the session in any case.
    let _ = sqlx::query("SELECT pg_advisory_unlock($1)").bind(LOCK).execute(&mut *connection).await;
    done
}

async fn locked(connection: &mut PgConnection, apply: bool, default_slot: Slot) -> Result<(), OpenError> {
    let newest = MIGRATIONS.last().map_or(0, |(version, ..)| *version);
    match found(connection).await? {
        Found::Nothing if !apply => return Err(OpenError::Missing),
        Found::Strange => return Err(OpenError::Strange),
        Found::Version(version) if version > newest => return Err(OpenError::Newer { found: version, known: newest }),
        Found::Version(version) if version == newest => return Ok(()),
        Found::Version(_) if !apply => return Err(OpenError::Missing),
        Found::Nothing => {
            sqlx::query("CREATE SCHEMA IF NOT EXISTS queen")
                .execute(&mut *connection)
                .await
                .map_err(OpenError::schema)?;
        }
        Found::Version(_) => {}
    }
    let migration = |&(version, name, sql): &(i64, &'static str, &'static str)| {
        Migration::new(version, Cow::Borrowed(name), MigrationType::Simple, SqlStr::from_static(sql), false)
    };
    let mut migrator = Migrator::with_migrations(MIGRATIONS.iter().map(migration).collect());
    migrator.dangerous_set_table_name("queen.schema_migrations");
    migrator.set_locking(false);
    migrator.run_direct(None, connection, false).await.map_err(|error| OpenError::Schema(error.to_string()))?;
    sqlx::query("INSERT INTO queen.tenants (tenant, slot) VALUES ($1, $2) ON CONFLICT DO NOTHING")
        .bind(TenantId::DEFAULT.0)
        .bind(i16::from(default_slot.0))
        .execute(&mut *connection)
        .await
        .map_err(OpenError::schema)?;
    Ok(())
}

enum Found {
    /// No schema, or an empty one.
    Nothing,
    /// A schema that somebody else made.
    Strange,
    /// Ours.
    Version(i64),
}

async fn found(connection: &mut PgConnection) -> Result<Found, OpenError> {
    let row = sqlx::query(
        "SELECT to_regclass('queen.schema_migrations') IS NOT NULL, \
         EXISTS (SELECT FROM pg_class WHERE relnamespace = to_regnamespace('queen'))",
    )
    .fetch_one(&mut *connection)
    .await
    .map_err(OpenError::schema)?;
    match (row.try_get(0).map_err(OpenError::schema)?, row.try_get(1).map_err(OpenError::schema)?) {
        (true, _) => {
            let row = sqlx::query("SELECT coalesce(max(version), 0) FROM queen.schema_migrations")
                .fetch_one(&mut *connection)
                .await
                .map_err(OpenError::schema)?;
            Ok(Found::Version(row.try_get(0).map_err(OpenError::schema)?))
        }
        (false, true) => Ok(Found::Strange),
        (false, false) => Ok(Found::Nothing),
    }
}

/// Closes a connection that was only needed at the start.
pub(crate) async fn close(connection: PgConnection) {
    let _ = connection.close().await;
}
