//! The brokers on one database, as each heartbeat finds them.

use std::sync::Arc;
use std::time::Duration;

use compact_str::CompactString;
use sqlx::{ConnectOptions, Connection, PgConnection, Row};
use tidegate_core::fleet::{FleetView, Member, Seen};
use tidegate_core::settings::{Maintenance, Switch};
use tidegate_driver::{Membership, MembershipError};
use uuid::Uuid;

use crate::open::application_name;
use crate::store::{Inner, PgStore};

/// How long a heartbeat may take before its connection counts as lost.
const PATIENCE: Duration = Duration::from_secs(2);

/// Heartbeats over a control connection, which holds a lock for as long as it stands.
pub struct PgMembership {
    store: Arc<Inner>,
    session: Option<(Uuid, PgConnection)>,
}

impl PgMembership {
    /// The membership of the database that `store` is in.
    pub fn new(store: &PgStore) -> Self {
        PgMembership { store: Arc::clone(&store.inner), session: None }
    }

    /// The control connection under this incarnation.
    async fn session(&mut self, incarnation: Uuid) -> Result<&mut PgConnection, sqlx::Error> {
        if self.session.as_ref().is_none_or(|(of, _)| *of != incarnation) {
            if let Some((_, old)) = self.session.take() {
                // Another name for all connections, since the others go by it.
                self.store.rename(incarnation);
                let _ = old.close().await;
            }
            let options = self.store.options.clone().application_name(&application_name(incarnation));
            let mut connection =
                options.options([("statement_timeout", "2000"), ("synchronous_commit", "off")]).connect().await?;
            sqlx::query("SELECT pg_advisory_lock(queen.session_key_v1($1))")
                .bind(incarnation)
                .execute(&mut connection)
                .await?;
            self.session = Some((incarnation, connection));
        }
        match &mut self.session {
            Some((_, connection)) => Ok(connection),
            None => Err(sqlx::Error::PoolClosed),
        }
    }

    async fn try_beat(&mut self, incarnation: Uuid, me: &Member) -> Result<Option<FleetView>, sqlx::Error> {
        let connection = self.session(incarnation).await?;
        let counted = sqlx::query(include_str!("../sql/beat.sql"))
            .bind(incarnation)
            .bind(me.address.as_str())
            .bind(me.host.as_str())
            .bind(me.draining)
            .fetch_optional(&mut *connection)
            .await?;
        if counted.is_none() {
            return Ok(None);
        }
        let rows = sqlx::query(include_str!("../sql/brokers.sql")).fetch_all(&mut *connection).await?;
        let brokers = rows.iter().map(|row| {
            let member = Member {
                incarnation: compact_str::format_compact!("{}", row.try_get::<Uuid, _>(0)?),
                address: CompactString::new(row.try_get::<&str, _>(1)?),
                host: CompactString::new(row.try_get::<&str, _>(2)?),
                draining: row.try_get(3)?,
            };
            let beat = row.try_get::<i64, _>(4)? as u64;
            Ok(Seen { member, beat, dead: row.try_get(5)?, session: row.try_get(6)? })
        });
        let brokers = brokers.collect::<Result<Vec<_>, sqlx::Error>>()?;
        let owners = sqlx::query_scalar::<_, Option<String>>("SELECT owner FROM queen.slots ORDER BY slot")
            .fetch_all(&mut *connection)
            .await?;
        let owners = owners.into_iter().map(|owner| owner.map(CompactString::from)).collect();
        let row = sqlx::query("SELECT push, pop FROM queen.maintenance").fetch_one(&mut *connection).await?;
        let maintenance = Maintenance { push: row.try_get(0)?, pop: row.try_get(1)? };
        Ok(Some(FleetView { brokers, owners, revision: 0, maintenance }))
    }

    /// The answer, unless the connection failed or took too long: then it is not used again.
    async fn within<T>(
        &mut self,
        answer: Result<Result<T, sqlx::Error>, tokio::time::error::Elapsed>,
    ) -> Result<T, MembershipError> {
        let why = match answer {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {} s", PATIENCE.as_secs()),
        };
        self.session = None;
        Err(MembershipError::Lost(why))
    }
}

fn parse(incarnation: &str) -> Result<Uuid, MembershipError> {
    Uuid::parse_str(incarnation).map_err(|error| MembershipError::Lost(format!("no incarnation: {error}")))
}

impl Membership for PgMembership {
    async fn beat(&mut self, me: &Member) -> Result<FleetView, MembershipError> {
        let incarnation = parse(&me.incarnation)?;
        let answer = tokio::time::timeout(PATIENCE, self.try_beat(incarnation, me)).await;
        self.within(answer).await?.ok_or(MembershipError::Buried)
    }

    async fn bury(&mut self, incarnation: &str, beat: u64) -> Result<bool, MembershipError> {
        let incarnation = parse(incarnation)?;
        let asked = sqlx::query("UPDATE queen.brokers SET dead = true WHERE incarnation = $1 AND beat = $2")
            .bind(incarnation)
            .bind(beat as i64);
        let pools = self.store.pools();
        let answer = tokio::time::timeout(PATIENCE, asked.execute(&pools.control)).await;
        Ok(self.within(answer).await?.rows_affected() > 0)
    }

    async fn switch(&mut self, switch: Switch) -> Result<Maintenance, MembershipError> {
        let (push, pop) = match switch {
            Switch::Push(on) => (Some(on), None),
            Switch::Pop(on) => (None, Some(on)),
        };
        let asked = sqlx::query(
            "UPDATE queen.maintenance SET push = coalesce($1, push), pop = coalesce($2, pop) RETURNING push, pop",
        )
        .bind(push)
        .bind(pop);
        let pools = self.store.pools();
        let answer = tokio::time::timeout(PATIENCE, asked.fetch_one(&pools.control)).await;
        let row = match answer {
            Ok(Ok(row)) => row,
            // The control connection is another one: it is not to blame.
            Ok(Err(error)) => return Err(MembershipError::Lost(error.to_string())),
            Err(_) => return Err(MembershipError::Lost("the database took too long".to_owned())),
        };
        let read = |at: usize| row.try_get(at).map_err(|error| MembershipError::Lost(error.to_string()));
        Ok(Maintenance { push: read(0)?, pop: read(1)? })
    }

    async fn leave(&mut self, incarnation: &str) -> Result<(), MembershipError> {
        let incarnation = parse(incarnation)?;
        let pools = self.store.pools();
        let asked = sqlx::query("DELETE FROM queen.brokers WHERE incarnation = $1").bind(incarnation);
        let answer = tokio::time::timeout(PATIENCE, asked.execute(&pools.control)).await;
        self.within(answer).await?;
        if let Some((_, connection)) = self.session.take() {
            let _ = connection.close().await;
        }
        Ok(())
    }
}
