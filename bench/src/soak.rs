//! `tidegate-bench soak`: steady traffic over Postgres, and whether tables and indexes stay small under it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sqlx::{Connection, PgConnection, Row};

use crate::Failure;
use crate::broker::Broker;
use crate::drive::{BATCH, Connected};
use crate::machine::Machine;
use crate::report::{self, thousands};
use crate::server::Server;

/// Producers and as many consumers.
const CLIENTS: u64 = 4;
/// Where all of it goes.
const QUEUE: &str = "soak";
/// What is consumed goes after 10 seconds, what is not after 20; what resolves acks after a quarter of an hour, so that a
/// run of half an hour shows whether it levels off.
const OPTIONS: &[u8] = br#"{"queue":"soak","options":{"retentionEnabled":true,"retentionSeconds":20,
    "completedRetentionSeconds":10,"dedupWindowSeconds":0}}"#;
/// How often is looked.
const LOOK: Duration = Duration::from_secs(10);
/// Share of updates of a hot table that must stay on their page.
const HOT_BAR: f64 = 0.9;
/// What is updated again and again.
const HOT_TABLES: [&str; 5] = ["cursors", "slots", "brokers", "partitions", "retention_history"];
/// By how much the last third may exceed the middle one and still count as level.
const LEVEL: f64 = 1.15;

/// Pushes, pops and acks at a steady rate, in a queue with retention, and prints what Postgres holds.
///
/// Starts a Postgres of its own, with autovacuum as it comes, and the `tidegate` beside this program.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Arguments {
    /// An empty database on a server that stands, instead of one of our own
    #[arg(long, value_name = "postgres://…")]
    store: Option<String>,
    /// How long
    #[arg(long, default_value_t = 30)]
    minutes: u64,
    /// Messages a second, pushed in batches of 100
    #[arg(long, default_value_t = 20_000)]
    rate: u64,
}

/// What Postgres says of the schema.
struct Look {
    size: i64,
    indexes: i64,
    dead: i64,
    live: i64,
    /// For each hot table its updates, and those that stayed on their page.
    hot: [(i64, i64); HOT_TABLES.len()],
}

const QUESTION: &str = "SELECT relname::text, pg_table_size(relid), pg_indexes_size(relid), n_dead_tup, n_live_tup, n_tup_upd, \
    n_tup_hot_upd FROM pg_stat_user_tables WHERE schemaname = 'queen'";

async fn look(connection: &mut PgConnection) -> Result<Look, Failure> {
    let mut look = Look { size: 0, indexes: 0, dead: 0, live: 0, hot: [(0, 0); HOT_TABLES.len()] };
    for row in sqlx::query(QUESTION).fetch_all(connection).await? {
        look.size += row.try_get::<i64, _>(1)?;
        look.indexes += row.try_get::<i64, _>(2)?;
        look.dead += row.try_get::<i64, _>(3)?;
        look.live += row.try_get::<i64, _>(4)?;
        let name: String = row.try_get(0)?;
        if let Some(place) = HOT_TABLES.iter().position(|table| *table == name) {
            look.hot[place] = (row.try_get(5)?, row.try_get(6)?);
        }
    }
    Ok(look)
}

impl Look {
    /// For each hot table the share of its updates that stayed on their page.
    fn shares(&self) -> [f64; HOT_TABLES.len()] {
        self.hot.map(|(updates, hot)| if updates > 0 { hot as f64 / updates as f64 } else { 1.0 })
    }
}

/// Runs and prints a line a look.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    Machine::here().print();
    let server = match &arguments.store {
        Some(store) => Server::standing(store.clone(), None)?,
        None => Server::private(None)?,
    };
    let broker = Broker::start(&server.store)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut connection = runtime.block_on(PgConnection::connect(&server.store))?;
    let stop = AtomicBool::new(false);
    Connected::to(broker.address)?.call("POST", "/api/v1/configure", OPTIONS)?;
    let (pushed, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let begun = Instant::now();
    let end = begun + Duration::from_secs(arguments.minutes * 60);
    let mut looks = Vec::new();
    thread::scope(|scope| -> Result<(), Failure> {
        let clients: Vec<_> = (0..CLIENTS)
            .flat_map(|number| {
                let (stop, pushed, done) = (&stop, &pushed, &done);
                let address = broker.address;
                let pause = Duration::from_micros(1_000_000 * 100 * CLIENTS / arguments.rate.max(1));
                let producer = scope.spawn(move || -> Result<(), Failure> {
                    let mut connection = Connected::to(address)?;
                    let (mut next, mut batch) = (Instant::now(), 0);
                    while !stop.load(Ordering::Relaxed) {
                        connection.push_batch(QUEUE, (number << 40) + batch, BATCH)?;
                        pushed.fetch_add(100, Ordering::Relaxed);
                        batch += 100;
                        next += pause;
                        thread::sleep(next.saturating_duration_since(Instant::now()));
                    }
                    Ok(())
                });
                let consumer = scope.spawn(move || -> Result<(), Failure> {
                    let mut connection = Connected::to(address)?;
                    while !stop.load(Ordering::Relaxed) {
                        match connection.consume(QUEUE)? {
                            Some(count) => done.fetch_add(count, Ordering::Relaxed),
                            None => {
                                thread::sleep(Duration::from_millis(5));
                                0
                            }
                        };
                    }
                    Ok(())
                });
                [producer, consumer]
            })
            .collect();
        let outcome = (|| -> Result<(), Failure> {
            while Instant::now() < end {
                thread::sleep(LOOK.min(end.saturating_duration_since(Instant::now())));
                let seen = runtime.block_on(look(&mut connection))?;
                report::line(&format!(
                    "{:>5} s  pushed {:>12}  acked {:>12}  tables {:>7} kB  indexes {:>7} kB  dead {:>8} of {:>8} rows  HOT {}",
                    begun.elapsed().as_secs(),
                    thousands(pushed.load(Ordering::Relaxed) as f64),
                    thousands(done.load(Ordering::Relaxed) as f64),
                    seen.size / 1_024,
                    seen.indexes / 1_024,
                    seen.dead,
                    seen.live,
                    seen.shares().map(|share| format!("{share:.3}")).join(" "),
                ));
                looks.push(seen);
            }
            Ok(())
        })();
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().map_err(|_| "a client's thread panicked")??;
        }
        outcome
    })?;
    judge(&looks);
    Ok(())
}

/// Compares the last third with the one before it.
fn judge(looks: &[Look]) {
    let third = looks.len() / 3;
    let most = |looks: &[Look], of: fn(&Look) -> i64| looks.iter().map(of).max().unwrap_or(0).max(1) as f64;
    let verdict = |met: bool| if met { "met" } else { "MISSED" };
    if third > 0 {
        let (middle, last) = (&looks[third..2 * third], &looks[2 * third..]);
        let grown = |of: fn(&Look) -> i64| most(last, of) / most(middle, of);
        let grown = [grown(|look| look.size), grown(|look| look.indexes), grown(|look| look.dead)];
        report::line(&format!(
            "last third against the middle one, largest of each: tables {:.2}, indexes {:.2}, dead rows {:.2}; bar: at most {LEVEL}: {}",
            grown[0],
            grown[1],
            grown[2],
            verdict(grown.iter().all(|grown| *grown <= LEVEL))
        ));
    }
    for (table, share) in looks.last().into_iter().flat_map(|last| HOT_TABLES.into_iter().zip(last.shares())) {
        let verdict = verdict(share > HOT_BAR);
        report::line(&format!("HOT ratio of queen.{table} {share:.3}; bar: above {HOT_BAR}: {verdict}"));
    }
}
