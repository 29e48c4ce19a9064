//! The Postgres that is measured on: one of our own, or one that stands already on this machine.

use std::process::Command;

use sqlx::{Connection, Executor, PgConnection, Row};
use tidegate_store_postgres::fixture::Cluster;

use crate::{Failure, machine};

/// The settings of design.md's measurements; the rest as it comes. What is acknowledged is synced.
const SETTINGS: [&str; 4] = ["shared_buffers=1GB", "max_wal_size=4GB", "synchronous_commit=on", "fsync=on"];

/// A server with a database for the broker, and perhaps one with pgmq in it.
pub struct Server {
    own: Option<Cluster>,
    runtime: tokio::runtime::Runtime,
    /// The broker's database.
    pub store: String,
    /// The database with pgmq.
    pub pgmq: Option<String>,
}

impl Server {
    /// A server of our own, gone with this value. `installer` is pgmq's program, which brings its SQL.
    pub fn private(installer: Option<&str>) -> Result<Self, Failure> {
        let cluster = Cluster::private(&SETTINGS);
        let store = cluster.database();
        let pgmq = installer.map(|program| -> Result<String, Failure> {
            let url = cluster.database();
            let output = Command::new(program).args(["install", "-d", &url, "install-from-embedded"]).output();
            let output = output.map_err(|error| format!("{program}: {error}; `cargo install pgmq --features cli`"))?;
            if !output.status.success() {
                return Err(format!("{program} failed: {}", String::from_utf8_lossy(&output.stderr)).into());
            }
            Ok(url)
        });
        let pgmq = pgmq.transpose()?;
        Ok(Server { own: Some(cluster), runtime: runtime()?, store, pgmq })
    }

    /// A server that stands. It is not restarted.
    pub fn standing(store: String, pgmq: Option<String>) -> Result<Self, Failure> {
        Ok(Server { own: None, runtime: runtime()?, store, pgmq })
    }

    /// Ends the server in good order and starts it anew, with nothing in its buffers.
    pub fn restart(&self) {
        if let Some(cluster) = &self.own {
            cluster.stop_fast();
            cluster.start();
        }
    }

    /// Sees to it that what the last load left to be tidied is not paid by the next.
    pub fn rest(&self) -> Result<(), Failure> {
        for url in [Some(&self.store), self.pgmq.as_ref()].into_iter().flatten() {
            self.run(url, "VACUUM")?;
        }
        self.run(&self.store, "CHECKPOINT")
    }

    /// Runs a statement.
    pub fn run(&self, url: &str, statement: &'static str) -> Result<(), Failure> {
        self.runtime.block_on(async {
            let mut connection = PgConnection::connect(url).await?;
            connection.execute(statement).await?;
            Ok(())
        })
    }

    /// CPU seconds of the server's processes, and bytes of WAL, so far. Nobody else's server is counted.
    pub fn used(&self) -> Result<Used, Failure> {
        let question = "SELECT pg_backend_pid(), (pg_current_wal_lsn() - '0/0'::pg_lsn)::float8";
        self.runtime.block_on(async {
            let mut connection = PgConnection::connect(&self.store).await?;
            let row = connection.fetch_one(question).await?;
            let session = u32::try_from(row.try_get::<i32, _>(0)?)?;
            let head = machine::parent_of(session).ok_or("the server's processes cannot be seen from here")?;
            Ok(Used { cpu: machine::cpu_of_family(head), wal: row.try_get(1)? })
        })
    }
}

/// What the server used.
pub struct Used {
    /// Seconds.
    pub cpu: f64,
    /// Bytes.
    pub wal: f64,
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}
