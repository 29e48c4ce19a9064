//! `tidegate-bench postgres`: Tidegate over Postgres beside pgmq on the same server, in turns.

use serde_json::{Value, json};

use crate::broker::Broker;
use crate::drive::{BATCH, Target, Work};
use crate::machine::Machine;
use crate::report::{self, Range, thousands};
use crate::server::Server;
use crate::{Failure, machine};

/// How much faster than pgmq a push has to be.
const PUSH_BAR: f64 = 1.0;
/// How much faster than pgmq a backlog has to drain.
const DRAIN_BAR: f64 = 3.0;
/// Connections that pgmq is tried with: it is measured with what is best for it.
const TRIED: [u16; 3] = [8, 16, 64];
/// Connections that push single messages.
const SINGLE: u16 = 32;

/// Pushes in batches of 100, and drains a backlog with batches of 100, over Postgres: Tidegate and pgmq in turns.
///
/// Starts a Postgres of its own (shared_buffers = 1 GB, max_wal_size = 4 GB, the rest as it comes: every acknowledged
/// message is synced) with a database for each, and the `tidegate` beside this program. The backlog is drained after a
/// restart of both, pgmq's after a restart of Postgres. pgmq's SQL comes from its own program (`cargo install pgmq
/// --features cli`). The exit code does not depend on the figures.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Arguments {
    /// An empty database on a server that stands, instead of one of our own; nothing is restarted
    #[arg(long, value_name = "postgres://…")]
    store: Option<String>,
    /// A database on that server with pgmq in it
    #[arg(long, value_name = "postgres://…", requires = "store")]
    pgmq: Option<String>,
    /// pgmq's program, which installs its SQL
    #[arg(long, default_value = "pgmq-cli", conflicts_with = "store")]
    installer: String,
    /// Measure Tidegate only
    #[arg(long)]
    alone: bool,
    /// Connections that push
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    producers: u16,
    /// Connections that drain
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    consumers: u16,
    /// Messages to drain, from 1,000 partitions
    #[arg(long, default_value_t = 500_000)]
    backlog: u64,
    /// How long each push of a round takes, in milliseconds
    #[arg(long, default_value_t = 4_000)]
    millis: u64,
    /// How often they take turns
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,
}

/// One measurement: messages a second, and what each took.
struct Figure {
    rate: f64,
    /// CPU seconds of Postgres, of the broker and of the load for a million messages.
    postgres_cpu: f64,
    broker_cpu: f64,
    load_cpu: f64,
    messages: f64,
    /// Bytes of WAL a message.
    wal: f64,
}

fn measure(
    server: &Server,
    broker: Option<&Broker>,
    target: &Target,
    work: Work,
    connections: u16,
) -> Result<Figure, Failure> {
    let broker_cpu = || broker.map_or(0.0, |broker| machine::cpu_of(broker.process()));
    let (before, own) = (server.used()?, broker_cpu());
    let outcome = crate::drive::start(target, work, connections)?;
    let (after, own) = (server.used()?, broker_cpu() - own);
    let of_a_million = |seconds: f64| seconds / outcome.messages * 1e6;
    Ok(Figure {
        rate: outcome.messages / outcome.seconds,
        postgres_cpu: of_a_million(after.cpu - before.cpu),
        broker_cpu: of_a_million(own),
        load_cpu: of_a_million(outcome.cpu),
        messages: outcome.messages,
        wal: (after.wal - before.wal) / outcome.messages,
    })
}

/// All that was measured, round by round.
#[derive(Default)]
struct Rounds {
    push: Pair,
    drain: Pair,
    single: Vec<Figure>,
}

/// One job done by both.
#[derive(Default)]
struct Pair {
    tidegate: Vec<Figure>,
    pgmq: Vec<Figure>,
}

/// Measures and compares.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let here = Machine::here();
    here.print();
    let server = match &arguments.store {
        Some(store) => Server::standing(store.clone(), arguments.pgmq.clone())?,
        None => Server::private((!arguments.alone).then_some(arguments.installer.as_str()))?,
    };
    let pgmq = server.pgmq.clone().filter(|_| !arguments.alone).map(Target::Pgmq);
    let pgmq_producers = match &pgmq {
        Some(target) => best(&server, target)?,
        None => 0,
    };
    let mut rounds = Rounds::default();
    for round in 0..arguments.rounds {
        drains(arguments, &server, pgmq.as_ref(), round, &mut rounds)?;
        pushes(arguments, &server, pgmq.as_ref(), (round, pgmq_producers), &mut rounds)?;
    }
    let title = format!("push, batches of {BATCH}, {} connections (pgmq: {pgmq_producers})", arguments.producers);
    let push = print(&title, &rounds.push, Some(PUSH_BAR));
    let title = format!("drain {}, batches of {BATCH}, {} connections", arguments.backlog, arguments.consumers);
    let drain = print(&title, &rounds.drain, Some(DRAIN_BAR));
    let single = Pair { tidegate: rounds.single, pgmq: Vec::new() };
    let single = print(&format!("push, single messages, {SINGLE} connections"), &single, None);
    report::json(&json!({
        "benchmark": "postgres", "machine": here.json(), "rounds": arguments.rounds, "backlog": arguments.backlog,
        "producers": arguments.producers, "pgmq_producers": pgmq_producers, "consumers": arguments.consumers,
        "push": push, "drain": drain, "single": single,
    }));
    Ok(())
}

/// With how many connections pgmq takes most.
fn best(server: &Server, target: &Target) -> Result<u16, Failure> {
    let mut best = (0.0, TRIED[0]);
    for connections in TRIED {
        server.rest()?;
        let tried =
            measure(server, None, target, Work::push(u64::from(connections) + 1_000, 3_000, BATCH), connections)?;
        report::line(&format!("pgmq takes {} messages/s from {connections} connections", thousands(tried.rate)));
        if tried.rate > best.0 {
            best = (tried.rate, connections);
        }
    }
    Ok(best.1)
}

/// A backlog for each; what is drained was written before a restart.
fn drains(
    arguments: &Arguments,
    server: &Server,
    pgmq: Option<&Target>,
    round: u64,
    rounds: &mut Rounds,
) -> Result<(), Failure> {
    let (fill, drain) = (Work::fill(round, arguments.backlog), Work::drain(round));
    let broker = Broker::start(&server.store)?;
    crate::drive::start(&broker.target(), fill, 8)?;
    drop(broker);
    server.rest()?;
    server.restart();
    let broker = Broker::start(&server.store)?;
    rounds.drain.tidegate.push(measure(server, Some(&broker), &broker.target(), drain, arguments.consumers)?);
    drop(broker);
    if let Some(target) = pgmq {
        crate::drive::start(target, fill, 8)?;
        server.rest()?;
        server.restart();
        rounds.drain.pgmq.push(measure(server, None, target, drain, arguments.consumers)?);
    }
    let drained = [&rounds.drain.tidegate, &rounds.drain.pgmq].into_iter().filter_map(|figures| figures.last());
    for figure in drained {
        if figure.messages != (arguments.backlog / BATCH * BATCH) as f64 {
            return Err(format!("{} messages were drained of {}", figure.messages, arguments.backlog).into());
        }
    }
    Ok(())
}

/// Batches into each, and single messages into the broker.
fn pushes(
    arguments: &Arguments,
    server: &Server,
    pgmq: Option<&Target>,
    (round, pgmq_producers): (u64, u16),
    rounds: &mut Rounds,
) -> Result<(), Failure> {
    let push = Work::push(round, arguments.millis, BATCH);
    let broker = Broker::start(&server.store)?;
    server.rest()?;
    rounds.push.tidegate.push(measure(server, Some(&broker), &broker.target(), push, arguments.producers)?);
    if let Some(target) = pgmq {
        server.rest()?;
        rounds.push.pgmq.push(measure(server, None, target, push, pgmq_producers)?);
    }
    server.rest()?;
    // Queues of their own.
    let single = Work::push(round + 500, arguments.millis, 1);
    rounds.single.push(measure(server, Some(&broker), &broker.target(), single, SINGLE)?);
    Ok(())
}

fn print(title: &str, pair: &Pair, bar: Option<f64>) -> Value {
    report::line(title);
    report::line("                        messages/s                  CPU seconds a million messages    WAL bytes");
    report::line("                  min     median        max         Postgres   broker     load        a message");
    let mut told = json!({});
    for (name, figures) in [("tidegate", &pair.tidegate), ("pgmq", &pair.pgmq)] {
        if figures.is_empty() {
            continue;
        }
        let rate = Range::of(figures.iter().map(|figure| figure.rate));
        let median = |of: fn(&Figure) -> f64| Range::of(figures.iter().map(of)).median;
        let (postgres, broker) = (median(|figure| figure.postgres_cpu), median(|figure| figure.broker_cpu));
        let (load, wal) = (median(|figure| figure.load_cpu), median(|figure| figure.wal));
        report::line(&format!(
            "  {name:<9}{:>10} {:>10} {:>10}       {postgres:>8.2} {broker:>8.2} {load:>8.2}        {wal:>8.0}",
            thousands(rate.min),
            thousands(rate.median),
            thousands(rate.max),
        ));
        told[name] = json!({
            "messages_per_second": { "min": rate.min, "median": rate.median, "max": rate.max },
            "postgres_cpu_per_million": postgres, "broker_cpu_per_million": broker, "load_cpu_per_million": load,
            "wal_bytes": wal,
        });
    }
    if let Some(bar) = bar.filter(|_| !pair.pgmq.is_empty()) {
        let ratio = Range::of(pair.tidegate.iter().zip(&pair.pgmq).map(|(own, peer)| own.rate / peer.rate));
        let verdict = if ratio.median >= bar { "met" } else { "MISSED" };
        report::line(&format!(
            "  ratio, round by round: median {:.2} (min {:.2}, max {:.2}); bar: at least {bar}: {verdict}",
            ratio.median, ratio.min, ratio.max
        ));
        told["ratio"] = json!({ "min": ratio.min, "median": ratio.median, "max": ratio.max });
    }
    told
}
