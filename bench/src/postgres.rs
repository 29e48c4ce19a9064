//! `tidegate-bench postgres`: Tidegate over Postgres beside pgmq on the same server, in turns.

use sqlx::{Connection, Executor, PgConnection, Row};

use crate::broker::Broker;
use crate::drive::{Target, Work};
use crate::machine::Machine;
use crate::report::{self, Range, thousands};
use crate::{Failure, machine};

/// How much faster than pgmq a backlog has to drain.
const DRAIN_BAR: f64 = 3.0;

/// Pushes in batches of 100, and drains a backlog with batches of 100, over Postgres: Tidegate and pgmq in turns.
///
/// Each has an empty database on the same server; pgmq's has its SQL installed (`cargo install pgmq --features cli`, then
/// `pgmq install URL`). Starts the `tidegate` beside this program. The server should run with shared_buffers = 1 GB,
/// max_wal_size = 4 GB, and the rest as it comes: every acknowledged message is synced. The exit code does not depend on
/// the figures.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Arguments {
    /// An empty database
    #[arg(long, env = "TIDEGATE_STORE", value_name = "postgres://…")]
    store: String,
    /// A database with pgmq in it; left out, only Tidegate is measured
    #[arg(long, value_name = "postgres://…")]
    pgmq: Option<String>,
    /// Connections that push
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    producers: u16,
    /// Connections that drain
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    consumers: u16,
    /// Messages to drain
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
    /// CPU seconds of Postgres and of the broker for a million messages.
    postgres_cpu: f64,
    broker_cpu: f64,
    /// Bytes of WAL a message.
    wal: f64,
}

/// The server as all its sessions see it.
struct Server {
    connection: PgConnection,
    runtime: tokio::runtime::Runtime,
}

impl Server {
    fn at(url: &str) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let connection = runtime.block_on(PgConnection::connect(url))?;
        Ok(Server { connection, runtime })
    }

    /// Sees to it that what the last load left to be tidied is not paid by the next.
    fn rest(&mut self) -> Result<(), Failure> {
        for statement in ["VACUUM", "CHECKPOINT"] {
            self.runtime.block_on(self.connection.execute(statement))?;
        }
        Ok(())
    }

    fn wal(&mut self) -> Result<f64, Failure> {
        let statement = "SELECT (pg_current_wal_lsn() - '0/0'::pg_lsn)::float8";
        Ok(self.runtime.block_on(self.connection.fetch_one(statement))?.try_get(0)?)
    }
}

fn measure(
    server: &mut Server,
    broker: Option<&Broker>,
    target: &Target,
    work: Work,
    connections: u16,
) -> Result<Figure, Failure> {
    let broker_cpu = || broker.map_or(0.0, |broker| machine::cpu_of(broker.process()));
    let (wal, postgres, own) = (server.wal()?, machine::cpu_of_name("postgres"), broker_cpu());
    let outcome = crate::drive::start(target, work, connections)?;
    let of_a_million = |seconds: f64| seconds / outcome.messages * 1e6;
    Ok(Figure {
        rate: outcome.messages / outcome.seconds,
        postgres_cpu: of_a_million(machine::cpu_of_name("postgres") - postgres),
        broker_cpu: of_a_million(broker_cpu() - own),
        wal: (server.wal()? - wal) / outcome.messages,
    })
}

/// Measures and compares.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    Machine::here().print();
    let mut server = Server::at(&arguments.store)?;
    let pgmq = arguments.pgmq.clone().map(Target::Pgmq);
    let (mut pushes, mut drains) = (Vec::new(), Vec::new());
    for round in 0..arguments.rounds {
        let (fill, drain) = (Work::fill(round, arguments.backlog), Work::drain(round));
        let broker = Broker::start(&arguments.store)?;
        measure(&mut server, Some(&broker), &broker.target(), fill, 8)?;
        drop(broker);
        server.rest()?;
        // What is drained was written before the start.
        let broker = Broker::start(&arguments.store)?;
        drains.push(measure(&mut server, Some(&broker), &broker.target(), drain, arguments.consumers)?);
        drop(broker);
        if let (Some(target), Some(url)) = (&pgmq, &arguments.pgmq) {
            measure(&mut server, None, target, fill, 8)?;
            Server::at(url)?.rest()?;
            drains.push(measure(&mut server, None, target, drain, arguments.consumers)?);
        }
    }
    for round in 0..arguments.rounds {
        let push = Work::push(round, arguments.millis);
        let broker = Broker::start(&arguments.store)?;
        server.rest()?;
        pushes.push(measure(&mut server, Some(&broker), &broker.target(), push, arguments.producers)?);
        drop(broker);
        if let Some(target) = &pgmq {
            server.rest()?;
            pushes.push(measure(&mut server, None, target, push, arguments.producers)?);
        }
    }
    let sides = if pgmq.is_some() { 2 } else { 1 };
    print(&format!("push, batches of 100, {} connections", arguments.producers), &pushes, sides, 1.0);
    print(
        &format!("drain {}, batches of 100, {} connections", arguments.backlog, arguments.consumers),
        &drains,
        sides,
        DRAIN_BAR,
    );
    Ok(())
}

fn print(title: &str, figures: &[Figure], sides: usize, bar: f64) {
    report::line(title);
    for (side, name) in ["tidegate", "pgmq"].into_iter().enumerate().take(sides) {
        let own = || figures.iter().skip(side).step_by(sides);
        let rate = Range::of(own().map(|figure| figure.rate));
        let median = |of: fn(&Figure) -> f64| Range::of(own().map(of)).median;
        report::line(&format!(
            "  {name:<10}{:>10} messages/s (min {}, max {}); a million: {:.1} s of Postgres, {:.1} s of the broker; {:.0} bytes of WAL each",
            thousands(rate.median),
            thousands(rate.min),
            thousands(rate.max),
            median(|figure| figure.postgres_cpu),
            median(|figure| figure.broker_cpu),
            median(|figure| figure.wal),
        ));
    }
    if sides == 2 {
        let ratio = Range::of(figures.chunks(2).filter_map(|pair| Some(pair.first()?.rate / pair.get(1)?.rate)));
        let verdict = if ratio.median >= bar { "met" } else { "MISSED" };
        report::line(&format!(
            "  ratio, round by round: median {:.2} (min {:.2}, max {:.2}); bar: at least {bar}: {verdict}",
            ratio.median, ratio.min, ratio.max
        ));
    }
}
