//! `tidegate-bench shapes`: the same commit written in several ways, straight into Postgres, in turns.

use std::time::{Duration, Instant};

use serde_json::json;
use sqlx::postgres::{PgArguments, PgConnectOptions};
use sqlx::query::Query;
use sqlx::types::Uuid;
use sqlx::{Connection, Executor, PgConnection, Postgres, Row};

use crate::Failure;
use crate::broker::Broker;
use crate::machine::Machine;
use crate::report::{self, Range, thousands};
use crate::server::Server;

/// Partitions that are written to, each in its turn.
const PARTITIONS: u64 = 1_000;
/// Connections, each behind a fence row of its own: as many as the broker has commits in flight.
const LANES: i16 = 2;
/// What a message adds to a packed body of many, and what a single one takes.
const PACKED: usize = 110;
const SINGLE: usize = 300;

/// The function that the store calls.
const FUNCTION: &str = "SELECT queen.commit_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, \
    $18, $19, $20, $21, $22, $23, $24)";
/// The fence, with the look for the last two acknowledged commits.
const FENCE: &str =
    "SELECT (EXISTS (SELECT FROM queen.commits c WHERE c.slot = $1 AND c.epoch = $5[1] AND c.number = $6[1]))
      AND (EXISTS (SELECT FROM queen.commits c WHERE c.slot = $1 AND c.epoch = $5[2] AND c.number = $6[2])) AS whole
    FROM queen.fences WHERE slot = $1 AND lane = $2 AND epoch = $3 AND token = $4 FOR NO KEY UPDATE";
const ON_CONFLICT: &str = "ON CONFLICT (slot, partition, consumer_group) DO UPDATE SET next = excluded.next,
    consumed = excluded.consumed, lease = excluded.lease, lease_expires = excluded.lease_expires,
    lease_end = excluded.lease_end, retries = excluded.retries";

/// What one commit costs Postgres, by the shape of its SQL.
///
/// Starts a Postgres of its own, and writes the same commits into it from two connections: by the function that the store
/// calls, by one statement of CTEs that select from the fence, and by BEGIN, statements, COMMIT in several round trips.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Arguments {
    /// How long each is run in a round, in milliseconds
    #[arg(long, default_value_t = 1_500)]
    millis: u64,
    /// How often they take turns
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,
}

#[derive(Clone, Copy)]
enum Shape {
    Function,
    Statement,
    Steps,
}

const SHAPES: [(&str, Shape); 3] =
    [("function", Shape::Function), ("statement", Shape::Statement), ("steps", Shape::Steps)];

/// What a commit holds.
#[derive(Clone, Copy)]
struct Load {
    name: &'static str,
    segments: usize,
    messages: usize,
    cursors: usize,
}

const LOADS: [Load; 4] = [
    Load { name: "1 segment of 1 message", segments: 1, messages: 1, cursors: 0 },
    Load { name: "64 segments of 1 message", segments: 64, messages: 1, cursors: 0 },
    Load { name: "64 segments of 100 messages", segments: 64, messages: 100, cursors: 0 },
    Load { name: "64 cursors", segments: 0, messages: 0, cursors: 64 },
];

/// The statements, made once.
struct Sql {
    statement: String,
    fence: String,
    segments: String,
    cursors: String,
}

const NUMBER: &str = "INSERT INTO queen.commits (slot, epoch, number, time)";
const SEGMENTS: &str =
    "INSERT INTO queen.segments (partition, start, created, total, count, base, hashes, body) SELECT s.* FROM";
const CURSORS: &str = "INSERT INTO queen.cursors (slot, partition, consumer_group, next, consumed, lease, lease_expires, \
    lease_end, retries) SELECT";

impl Sql {
    fn new() -> Self {
        let unnest_segments =
            |first: usize| unnest(first, &["uuid", "bigint", "bigint", "bigint", "int", "uuid", "bytea", "bytea"]);
        let unnest_cursors =
            |first: usize| unnest(first, &["uuid", "text", "bigint", "bigint", "uuid", "bigint", "bigint", "int"]);
        Sql {
            statement: format!(
                "WITH fence AS MATERIALIZED ({FENCE}), held AS MATERIALIZED (SELECT FROM fence WHERE whole),
                number AS ({NUMBER} SELECT $1, $3, $7, $8 FROM held),
                segments AS ({SEGMENTS} held, {} AS s),
                cursors AS ({CURSORS} $1, c.* FROM held, {} AS c {ON_CONFLICT})
                SELECT count(*) FROM held",
                unnest_segments(9),
                unnest_cursors(17)
            ),
            fence: FENCE.to_owned(),
            segments: format!("{SEGMENTS} {} AS s", unnest_segments(1)),
            cursors: format!("{CURSORS} $9, c.* FROM {} AS c {ON_CONFLICT}", unnest_cursors(1)),
        }
    }
}

fn unnest(first: usize, types: &[&str]) -> String {
    let columns: Vec<String> = types.iter().enumerate().map(|(n, name)| format!("${}::{name}[]", first + n)).collect();
    format!("unnest({})", columns.join(", "))
}

/// One of the two writers.
struct Writer {
    connection: PgConnection,
    lane: i16,
    /// The commits numbered last, and the bodies of all.
    last: [i64; 2],
    body: Vec<u8>,
}

const SLOT: i16 = 1;
const EPOCH: i64 = 1;
const TOKEN: Uuid = Uuid::from_u128(7);

type Bound<'q> = Query<'q, Postgres, PgArguments>;

impl Writer {
    async fn commit(&mut self, sql: &Sql, shape: Shape, load: Load, number: i64) -> Result<(), Failure> {
        let columns = Columns::of(load, number, &self.body);
        let (epochs, numbers) = (vec![EPOCH; 2], self.last.to_vec());
        match shape {
            Shape::Function | Shape::Statement => {
                let text = if matches!(shape, Shape::Function) { FUNCTION } else { sql.statement.as_str() };
                let query = sqlx::query(sqlx::AssertSqlSafe(text)).bind(SLOT).bind(self.lane).bind(EPOCH).bind(TOKEN);
                let query = query.bind(epochs).bind(numbers).bind(number).bind(0_i64);
                let row = self.connection.fetch_one(columns.bind_cursors(columns.bind_segments(query))).await?;
                let done = if matches!(shape, Shape::Function) {
                    row.try_get::<i32, _>(0)? == 0
                } else {
                    row.try_get::<i64, _>(0)? == 1
                };
                if !done {
                    return Err("a commit was fenced".into());
                }
            }
            Shape::Steps => {
                self.connection.execute("BEGIN").await?;
                let query = sqlx::query(sqlx::AssertSqlSafe(sql.fence.as_str()))
                    .bind(SLOT)
                    .bind(self.lane)
                    .bind(EPOCH)
                    .bind(TOKEN);
                let row = self.connection.fetch_one(query.bind(epochs).bind(numbers)).await?;
                if !row.try_get::<bool, _>(0)? {
                    return Err("a commit is missing".into());
                }
                let insert = "INSERT INTO queen.commits (slot, epoch, number, time) VALUES ($1, $2, $3, $4)";
                let query = sqlx::query(insert).bind(SLOT).bind(EPOCH).bind(number).bind(0_i64);
                self.connection.execute(query).await?;
                if load.segments > 0 {
                    let query = sqlx::query(sqlx::AssertSqlSafe(sql.segments.as_str()));
                    self.connection.execute(columns.bind_segments(query)).await?;
                }
                if load.cursors > 0 {
                    let query = sqlx::query(sqlx::AssertSqlSafe(sql.cursors.as_str()));
                    self.connection.execute(columns.bind_cursors(query).bind(SLOT)).await?;
                }
                self.connection.execute("COMMIT").await?;
            }
        }
        self.last = [self.last[1], number];
        Ok(())
    }

    /// Commits until the time is over: how many.
    async fn run(&mut self, sql: &Sql, shape: Shape, load: Load, first: i64, end: Instant) -> Result<i64, Failure> {
        let length = if load.messages > 1 { load.messages * PACKED } else { SINGLE };
        self.body = (0..length).map(|n| (n.wrapping_mul(2_654_435_761) >> 7) as u8).collect();
        let mut done = 0;
        while Instant::now() < end {
            self.commit(sql, shape, load, first + done * i64::from(LANES)).await?;
            done += 1;
        }
        Ok(done)
    }
}

/// A commit's columns, as the store sends them.
struct Columns {
    partitions: Vec<Uuid>,
    starts: Vec<i64>,
    counts: Vec<i32>,
    hashes: Vec<Option<Vec<u8>>>,
    bodies: Vec<Vec<u8>>,
    cursors: Vec<Uuid>,
    number: i64,
}

impl Columns {
    fn of(load: Load, number: i64, body: &[u8]) -> Self {
        // Neighbouring commits write to other partitions, as those in flight do.
        let partitions = |count: usize| {
            let first = number as u64 * count as u64;
            (first..)
                .take(count)
                .map(|n| Uuid::from_u128(u128::from((n % PARTITIONS + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 64))
                .collect::<Vec<_>>()
        };
        Columns {
            partitions: partitions(load.segments),
            starts: vec![number; load.segments],
            counts: vec![load.messages as i32; load.segments],
            hashes: vec![Some(vec![number as u8; 16 * load.messages]); load.segments],
            bodies: vec![body.to_vec(); load.segments],
            cursors: partitions(load.cursors),
            number,
        }
    }

    fn bind_segments<'q>(&self, query: Bound<'q>) -> Bound<'q> {
        let query = query.bind(self.partitions.clone()).bind(self.starts.clone()).bind(self.starts.clone());
        let query = query.bind(self.starts.clone()).bind(self.counts.clone()).bind(self.partitions.clone());
        query.bind(self.hashes.clone()).bind(self.bodies.clone())
    }

    fn bind_cursors<'q>(&self, query: Bound<'q>) -> Bound<'q> {
        let count = self.cursors.len();
        let numbers = || vec![self.number; count];
        let query = query.bind(self.cursors.clone()).bind(vec!["group".to_owned(); count]).bind(numbers());
        let query = query.bind(numbers()).bind(self.cursors.iter().copied().map(Some).collect::<Vec<_>>());
        query.bind(numbers()).bind(numbers()).bind(vec![0_i32; count])
    }
}

/// Commits a second, and CPU of Postgres for each in microseconds.
struct Figure {
    rate: f64,
    cpu: f64,
}

/// Measures all shapes in turns.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let here = Machine::here();
    here.print();
    let server = Server::private(None)?;
    // It makes the schema.
    drop(Broker::start(&server.store)?);
    server.run(
        &server.store,
        "UPDATE queen.fences SET epoch = 1, token = '00000000-0000-0000-0000-000000000007' WHERE slot = 1",
    )?;
    server.run(
        &server.store,
        "INSERT INTO queen.commits (slot, epoch, number, time) VALUES (1, 1, 0, 0), (1, 1, 1, 0)",
    )?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let sql = Sql::new();
    let mut writers = Vec::new();
    for lane in 0..LANES {
        let options: PgConnectOptions = server.store.parse()?;
        let options = options.options(tidegate_store_postgres::PLANNER);
        let connection = runtime.block_on(PgConnection::connect_with(&options))?;
        writers.push(Writer { connection, lane, last: [0, 1], body: Vec::new() });
    }
    let mut figures: Vec<Vec<Figure>> = (0..LOADS.len() * SHAPES.len()).map(|_| Vec::new()).collect();
    let mut next = 2;
    for round in 0..arguments.rounds as usize {
        for (place, load) in LOADS.iter().enumerate() {
            for turn in 0..SHAPES.len() {
                // Each begins once: what one leaves behind is the next one's burden.
                let which = (turn + round) % SHAPES.len();
                let before = server.used()?;
                let begun = Instant::now();
                let end = begun + Duration::from_millis(arguments.millis);
                let [one, other] = &mut writers[..] else { return Err("two writers".into()) };
                let (first, second) = runtime.block_on(async {
                    tokio::join!(
                        one.run(&sql, SHAPES[which].1, *load, next, end),
                        other.run(&sql, SHAPES[which].1, *load, next + 1, end)
                    )
                });
                let (first, second) = (first?, second?);
                let (seconds, done) = (begun.elapsed().as_secs_f64(), (first + second) as f64);
                let cpu = server.used()?.cpu - before.cpu;
                next += first.max(second) * i64::from(LANES) + i64::from(LANES);
                figures[place * SHAPES.len() + which].push(Figure { rate: done / seconds, cpu: cpu / done * 1e6 });
            }
        }
    }
    let mut told = Vec::new();
    report::line("                                           commits/s                  Postgres CPU, µs a commit");
    report::line("                                    min     median        max         min   median      max");
    for (place, load) in LOADS.iter().enumerate() {
        report::line(load.name);
        for (which, (name, _)) in SHAPES.iter().enumerate() {
            let own = &figures[place * SHAPES.len() + which];
            let rate = Range::of(own.iter().map(|figure| figure.rate));
            let cpu = Range::of(own.iter().map(|figure| figure.cpu));
            report::line(&format!(
                "  {name:<25}{:>10} {:>10} {:>10}    {:>8.0} {:>8.0} {:>8.0}",
                thousands(rate.min),
                thousands(rate.median),
                thousands(rate.max),
                cpu.min,
                cpu.median,
                cpu.max
            ));
            told.push(json!({
                "commit": load.name, "shape": name,
                "commits_per_second": { "min": rate.min, "median": rate.median, "max": rate.max },
                "postgres_cpu_micros": { "min": cpu.min, "median": cpu.median, "max": cpu.max },
            }));
        }
    }
    report::json(&json!({ "benchmark": "shapes", "machine": here.json(), "rounds": arguments.rounds, "shapes": told }));
    Ok(())
}
