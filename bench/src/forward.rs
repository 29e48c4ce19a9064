//! `tidegate-bench forward`: single-message pushes to the broker that owns the slot, and through another one that forwards
//! them, in turns on the same database.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::Failure;
use crate::broker::Broker;
use crate::http;
use crate::machine::Machine;
use crate::report::{self, Range, thousands};
use crate::server::Server;

/// The share of the single-message push rate that forwarding may cost.
const BAR: f64 = 0.3;

/// Pushes to the owner of the slot, and through a broker that forwards to it.
///
/// Starts a Postgres of its own and two brokers on one database (the `tidegate` beside this program) and loads them in turn: keep-alive connections
/// that each push one message of 256 bytes after another. The exit code does not depend on the figures.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Arguments {
    /// An empty database on a server that stands, instead of one of our own
    #[arg(long, value_name = "postgres://…")]
    store: Option<String>,
    /// Keep-alive connections, each with one request at a time
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    connections: u16,
    /// How long each load of a round takes
    #[arg(long, default_value_t = 3_000)]
    millis: u64,
    /// How often they take turns
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    rounds: u64,
}

/// Whether it owns the slot: what is marked as forwarded is not sent on.
fn owns(address: SocketAddr) -> Result<bool, Failure> {
    let mut stream = TcpStream::connect(address)?;
    write!(
        stream,
        "GET /api/v1/resources/queues HTTP/1.1\r\nhost: x\r\ntidegate-forwarded: bench\r\nconnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.starts_with("HTTP/1.1 200"))
}

/// Starts, loads, compares.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    Machine::here().print();
    let server = match &arguments.store {
        Some(store) => Server::standing(store.clone(), None)?,
        None => Server::private(None)?,
    };
    let brokers = [Broker::start(&server.store)?, Broker::start(&server.store)?];
    // Until both know who owns what.
    std::thread::sleep(Duration::from_secs(8));
    let owner =
        brokers.iter().position(|broker| owns(broker.address).unwrap_or(false)).ok_or("nobody owns the slot")?;
    let (direct, entry) = (brokers[owner].address, brokers[1 - owner].address);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut rounds = Vec::new();
    for number in 0..arguments.rounds {
        let load = |address, run| http::load(arguments.connections, arguments.millis, address, run, true, &[]);
        rounds.push((runtime.block_on(load(direct, number * 2))?, runtime.block_on(load(entry, number * 2 + 1))?));
    }
    report::line(&format!(
        "forward    {} connections, {} rounds of {} ms on each",
        arguments.connections, arguments.rounds, arguments.millis
    ));
    let sides = [("direct", 0), ("forwarded", 1)];
    for (name, side) in sides {
        let of = |round: &(http::Measured, http::Measured)| {
            if side == 0 { (round.0.rate, round.0.p50, round.0.p99) } else { (round.1.rate, round.1.p50, round.1.p99) }
        };
        let rate = Range::of(rounds.iter().map(|round| of(round).0));
        let (p50, p99) =
            (Range::of(rounds.iter().map(|round| of(round).1)), Range::of(rounds.iter().map(|round| of(round).2)));
        report::line(&format!(
            "           {name:<10}{:>9} requests/s (min {}, max {}), p50 {} µs, p99 {} µs",
            thousands(rate.median),
            thousands(rate.min),
            thousands(rate.max),
            thousands(p50.median),
            thousands(p99.median)
        ));
    }
    let cost = Range::of(rounds.iter().map(|(direct, forwarded)| 1.0 - forwarded.rate / direct.rate));
    let verdict = if cost.median < BAR { "met" } else { "MISSED" };
    report::line(&format!(
        "           cost, round by round: median {:.3} (min {:.3}, max {:.3})",
        cost.median, cost.min, cost.max
    ));
    report::line(&format!("           bar: below {BAR}: {verdict}"));
    Ok(())
}
