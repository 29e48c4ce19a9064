//! What the hot statements touch does not grow with the backlog: each is looked at after more runs than Postgres needs
//! to settle on a generic plan.

use std::fmt::Write;

use tidegate_core::store::Slot;
use tidegate_store_postgres::fixture::Cluster;
use tidegate_store_postgres::{PLANNER, PgSettings, PgStore};

const PARTITIONS: u32 = 1_000;
/// Postgres decides on a generic plan after five.
const RUNS: usize = 8;
/// What a larger backlog may cost: a level more in the indexes that a statement descends.
const MOST_MORE: i64 = 4;

/// A statement as the store sends it, the types of its parameters, and its `n`th arguments.
struct Statement {
    name: &'static str,
    types: &'static str,
    text: &'static str,
    arguments: Box<dyn Fn(usize, u32) -> String>,
}

const COMMIT: &str = include_str!("../sql/commit.sql");
const COMMIT_TYPES: &str = "smallint, smallint, bigint, uuid, bigint[], bigint[], bigint, bigint, uuid[], bigint[], \
    bigint[], bigint[], integer[], uuid[], bytea[], bytea[], uuid[], text[], bigint[], bigint[], uuid[], bigint[], \
    bigint[], integer[]";
const TOKEN: &str = "'00000000-0000-0000-0000-000000000007'";
const NO_SEGMENTS: &str = "'{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}'";
const NO_CURSORS: &str = "'{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}'";

fn partition(number: usize) -> String {
    format!("'00000000-0000-4000-8000-{number:012}'")
}

/// A commit's arguments, numbered differently by each statement.
fn commit(number: usize, segments: &str, cursors: &str) -> String {
    format!("0, {}, 1, {TOKEN}, '{{}}', '{{}}', {number}, {number}, {segments}, {cursors}", number % 2)
}

fn cursor(number: usize, next: u32, lease: &str) -> String {
    let p = partition(number);
    let (lease, expires, end) = if lease.is_empty() { ("NULL", "NULL", "NULL") } else { (lease, "5", "9") };
    format!(
        "ARRAY[{p}]::uuid[], ARRAY['workers'], ARRAY[{next}]::bigint[], ARRAY[{next}]::bigint[], ARRAY[{lease}]::uuid[], \
         ARRAY[{expires}]::bigint[], ARRAY[{end}]::bigint[], ARRAY[0]"
    )
}

fn statements() -> Vec<Statement> {
    let push = |n: usize, messages: u32| {
        let p = partition(n);
        let segment = format!(
            "ARRAY[{p}]::uuid[], ARRAY[{messages}]::bigint[], ARRAY[99]::bigint[], ARRAY[1]::bigint[], ARRAY[1], \
             ARRAY[{p}]::uuid[], ARRAY[NULL]::bytea[], ARRAY['\\x00']::bytea[]"
        );
        commit(1_000 + n, &segment, NO_CURSORS)
    };
    let read = |n: usize, messages: u32| {
        let from = messages / 2;
        format!("ARRAY[{}]::uuid[], ARRAY[{from}]::bigint[], ARRAY[{}]::bigint[]", partition(n), from + 1)
    };
    let log = |n: usize, _: u32| {
        format!("ARRAY[{}]::uuid[], ARRAY[{}]::bigint[], ARRAY[90]::bigint[], 1001", partition(n), i64::MAX)
    };
    let oldest = |n: usize, messages: u32| {
        format!("ARRAY[{}]::uuid[], ARRAY[{}]::bigint[], ARRAY[false], 1", partition(n), messages / 2)
    };
    // Each partition's first segment lies below its log start.
    let trim = |n: usize, _: u32| format!("0, 1, {TOKEN}, ARRAY[{}]::uuid[], 10", partition(n));
    let pop = |n: usize, messages: u32| commit(2_000 + n, NO_SEGMENTS, &cursor(n, messages / 2, TOKEN));
    let ack = |n: usize, messages: u32| commit(3_000 + n, NO_SEGMENTS, &cursor(n, messages / 2 + 1, ""));
    vec![
        Statement { name: "push", types: COMMIT_TYPES, text: COMMIT, arguments: Box::new(push) },
        Statement {
            name: "the read of a pop",
            types: "uuid[], bigint[], bigint[]",
            text: include_str!("../sql/read.sql"),
            arguments: Box::new(read),
        },
        Statement { name: "the lease of a pop", types: COMMIT_TYPES, text: COMMIT, arguments: Box::new(pop) },
        Statement { name: "ack", types: COMMIT_TYPES, text: COMMIT, arguments: Box::new(ack) },
        Statement {
            name: "the load of a log",
            types: "uuid[], bigint[], bigint[], bigint",
            text: include_str!("../sql/load_logs.sql"),
            arguments: Box::new(log),
        },
        Statement {
            name: "the look at what is oldest",
            types: "uuid[], bigint[], boolean[], bigint",
            text: include_str!("../sql/load_extents.sql"),
            arguments: Box::new(oldest),
        },
        Statement {
            name: "a trim of one segment",
            types: "smallint, bigint, uuid, uuid[], integer",
            text: "SELECT queen.trim_logs_v1($1, $2, $3, $4, $5)",
            arguments: Box::new(trim),
        },
    ]
}

/// The plans of all statements over so many messages a partition, in segments of at most a hundred.
fn plans(messages: u32) -> Vec<(&'static str, String)> {
    let cluster = Cluster::shared();
    let url = cluster.database();
    let name = url.split('?').next().and_then(|url| url.rsplit('/').next()).expect("a database").to_owned();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    drop(
        runtime
            .block_on(PgStore::open(PgSettings { pool_size: 6, ..PgSettings::new(&url) }, Slot(0)))
            .expect("a store"),
    );
    let count = messages.min(100);
    let fill = format!(
        "UPDATE queen.fences SET epoch = 1, token = {TOKEN} WHERE slot = 0;
         INSERT INTO queen.queues (id, slot, tenant, name) VALUES ({q}, 0, {q}, 'q');
         CREATE TEMP TABLE p AS
            SELECT ('00000000-0000-4000-8000-' || lpad(n::text, 12, '0'))::uuid AS id, n FROM generate_series(0, {PARTITIONS} - 1) n;
         INSERT INTO queen.partitions SELECT id, 0, {q}, n::text, 0, {count} FROM p;
         INSERT INTO queen.segments SELECT id, start, start / {count}, start, {count}, id, NULL, decode(repeat('ab', 2000), 'hex')
            FROM p, generate_series(0, {messages} - {count}, {count}) start;
         INSERT INTO queen.cursors SELECT 0, id, 'workers', 0, 0, NULL, NULL, NULL, 0 FROM p;
         ANALYZE;",
        q = partition(999_999),
    );
    cluster.sql(&name, &fill);
    statements()
        .iter()
        .map(|statement| {
            let mut script = String::new();
            for (name, value) in PLANNER {
                let _ = writeln!(script, "SET {name} = {value};");
            }
            let _ = writeln!(script, "PREPARE it ({}) AS {};\n", statement.types, statement.text);
            for run in 0..RUNS {
                let _ = writeln!(script, "EXECUTE it ({});", (statement.arguments)(run, messages));
            }
            // The first pass over an index page may clean it: what counts is a run after that.
            let _ = write!(
                script,
                "EXPLAIN (ANALYZE, BUFFERS) EXECUTE it ({});",
                (statement.arguments)(RUNS + 100, messages)
            );
            let text = cluster.sql(&name, &script);
            (statement.name, text)
        })
        .collect()
}

/// Buffers that the whole statement touched: the first count in its plan is the topmost node's.
fn buffers(plan: &str) -> i64 {
    let line =
        plan.lines().find(|line| line.contains("Buffers: shared")).unwrap_or_else(|| panic!("no buffers in {plan}"));
    let of = |word: &str| {
        let at = line.find(word).map(|at| &line[at + word.len()..]);
        at.and_then(|rest| rest.split(' ').next()).and_then(|number| number.parse::<i64>().ok()).unwrap_or(0)
    };
    of("hit=") + of("read=")
}

#[test]
fn no_hot_statement_costs_more_when_a_million_messages_wait() {
    let few = plans(1);
    let many = plans(1_000);
    for ((name, small), (_, large)) in few.iter().zip(&many) {
        let (before, after) = (buffers(small), buffers(large));
        assert!(after <= before + MOST_MORE, "{name} touches {before} buffers, then {after}:\n{large}");
        assert!(!large.contains("Seq Scan"), "{name} reads a whole table:\n{large}");
    }
}
