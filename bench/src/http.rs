//! `tidegate-bench http`: single-message pushes over HTTP, beside a handler that does nothing, in the same minutes on the
//! same machine.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode};
use serde_json::{Value, json};
use tidegate_core::broker::Broker;
use tidegate_core::settings::Settings;
use tidegate_core::time::Timestamp;
use tidegate_driver::{Clock, Handle, Immediate};
use tidegate_store_memory::MemoryStore;
use tidegate_transport_http::accept::serve_with;
use tidegate_transport_http::{HttpSettings, Service, serve};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::Failure;
use crate::machine::{self, Machine};
use crate::report::{self, Range, thousands};

/// The share of an empty handler's request rate that the product promises to keep.
const BAR: f64 = 0.5;
/// What the empty handler answers: 100 bytes.
const FIXED: Bytes = Bytes::from_static(&[b'x'; 100]);

/// Single-message pushes through HTTP, beside an empty handler.
///
/// One process serves both on loopback with one runtime and one accept loop: an empty handler, which reads the whole
/// body and answers 201 with 100 fixed bytes, and the product over the memory store. Another process loads them in turn:
/// keep-alive connections that each push one message of 256 bytes after another, with ids of their own. The exit code
/// does not depend on the figures.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Arguments {
    #[command(flatten)]
    turns: Turns,
    /// Threads of the runtime; without it one for each core
    #[arg(long)]
    threads: Option<usize>,
    /// End with one line of JSON
    #[arg(long)]
    json: bool,
}

/// How two servers take turns under the same load.
#[derive(clap::Args)]
pub struct Turns {
    /// Keep-alive connections, each with one request at a time
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub connections: u16,
    /// How long each of the two is loaded, over all rounds
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub seconds: u64,
    /// How often they take turns
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub rounds: u64,
}

impl Turns {
    /// Says what is about to be done.
    pub fn announce(&self, benchmark: &str) {
        report::line(&format!(
            "{benchmark:<10} {} connections, single-message pushes of 256 bytes, {} rounds of {:.1} s on each",
            self.connections,
            self.rounds,
            self.seconds as f64 / self.rounds as f64,
        ));
    }

    /// How long one turn takes.
    pub fn millis(&self) -> u64 {
        (self.seconds * 1_000 / self.rounds).max(1)
    }
}

/// Serves both, loads both, compares.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let machine = Machine::here();
    machine.print();
    let turns = &arguments.turns;
    turns.announce("http");
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = arguments.threads {
        runtime.worker_threads(threads.max(1));
    }
    let rounds = runtime.enable_all().build()?.block_on(compare(turns))?;

    let ratio = Range::of(rounds.iter().map(|round| round.product.rate / round.empty.rate));
    let verdict = if ratio.median >= BAR { "met" } else { "MISSED" };
    report::line("                              requests/s                 latency, µs     server CPU");
    report::line("                      min    median       max           p50       p99    µs/request");
    let empty = Side::of("empty", rounds.iter().map(|round| &round.empty));
    let product = Side::of("product", rounds.iter().map(|round| &round.product));
    report::line(&format!(
        "           ratio product/empty, round by round: median {:.3} (min {:.3}, max {:.3})",
        ratio.median, ratio.min, ratio.max
    ));
    report::line(&format!("           bar: {BAR}: {verdict}"));
    if arguments.json {
        report::json(&json!({
            "benchmark": "http", "machine": machine.json(), "connections": turns.connections,
            "rounds": turns.rounds, "seconds_each": turns.seconds,
            "empty": empty.json(), "product": product.json(),
            "ratio": { "min": ratio.min, "median": ratio.median, "max": ratio.max },
            "bar": BAR, "met": ratio.median >= BAR,
        }));
    }
    Ok(())
}

/// Both, loaded one after the other.
struct Round {
    empty: Measured,
    product: Measured,
}

/// What one load saw.
pub struct Measured {
    /// Requests a second.
    pub rate: f64,
    /// Latency in microseconds, median.
    pub p50: f64,
    /// The same, 99th percentile.
    pub p99: f64,
    /// CPU time of the serving process for a request, in microseconds.
    cpu: f64,
}

/// One server over all rounds.
struct Side {
    rate: Range,
    p50: Range,
    p99: Range,
    cpu: Range,
}

impl Side {
    fn of<'a>(name: &str, rounds: impl Iterator<Item = &'a Measured> + Clone) -> Self {
        let side = Side {
            rate: Range::of(rounds.clone().map(|round| round.rate)),
            p50: Range::of(rounds.clone().map(|round| round.p50)),
            p99: Range::of(rounds.clone().map(|round| round.p99)),
            cpu: Range::of(rounds.map(|round| round.cpu)),
        };
        report::line(&format!(
            "           {name:<8}{:>9} {:>9} {:>9}     {:>9} {:>9}     {:>9.1}",
            thousands(side.rate.min),
            thousands(side.rate.median),
            thousands(side.rate.max),
            thousands(side.p50.median),
            thousands(side.p99.median),
            side.cpu.median,
        ));
        side
    }

    fn json(&self) -> Value {
        json!({
            "requests_per_second": { "min": self.rate.min, "median": self.rate.median, "max": self.rate.max },
            "p50_micros": self.p50.median, "p99_micros": self.p99.median, "cpu_micros_per_request": self.cpu.median,
        })
    }
}

async fn compare(turns: &Turns) -> Result<Vec<Round>, Failure> {
    let stop = CancellationToken::new();
    let settings = HttpSettings::default();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let empty = listener.local_addr()?;
    tokio::spawn({
        let (settings, stop) = (settings.clone(), stop.clone());
        async move { serve_with(listener, &settings, stop, |request, _| answer_fixed(request)).await }
    });
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let product = listener.local_addr()?;
    let (handle, _) = broker(Settings::default())?;
    tokio::spawn(serve(listener, Service::new(handle, settings), stop.clone()));

    let millis = turns.millis();
    let mut rounds = Vec::new();
    for number in 0..turns.rounds {
        let round = Round {
            empty: load(turns.connections, millis, empty, number * 2, false, &[]).await?,
            product: load(turns.connections, millis, product, number * 2 + 1, true, &[]).await?,
        };
        rounds.push(round);
    }
    stop.cancel();
    Ok(rounds)
}

/// A broker over the memory store, and its clock.
pub fn broker(settings: Settings) -> Result<(Handle, Clock), Failure> {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let clock = Clock::starting_at(Timestamp::from_micros(i64::try_from(wall.as_micros())?));
    let mut memory = MemoryStore::new();
    let store = Immediate::new(clock, move |now, request| memory.call(now, request));
    let (handle, _task) = tidegate_driver::spawn(Broker::new(settings, [7; 32]), store, clock);
    Ok((handle, clock))
}

/// The empty handler.
async fn answer_fixed(request: Request<Incoming>) -> Response<Full<Bytes>> {
    let whole = request.into_body().collect().await.map(|body| body.to_bytes());
    let mut response = Response::new(Full::new(FIXED));
    *response.status_mut() = if whole.is_ok() { StatusCode::CREATED } else { StatusCode::BAD_REQUEST };
    response
}

/// Loads one server from a process of its own, which gets `more` arguments too.
pub async fn load(
    connections: u16,
    millis: u64,
    address: SocketAddr,
    run: u64,
    queued: bool,
    more: &[&str],
) -> Result<Measured, Failure> {
    let mut command = std::process::Command::new(std::env::current_exe()?);
    command.arg("load").arg("--address").arg(address.to_string());
    command.arg("--connections").arg(connections.to_string());
    command.arg("--millis").arg(millis.to_string());
    command.arg("--run").arg(run.to_string());
    command.args(more);
    if queued {
        command.arg("--expect-queued");
    }
    let cpu_before = machine::process_cpu();
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    let cpu = machine::process_cpu().saturating_sub(cpu_before);
    if !output.status.success() {
        return Err(format!("the load on {address} failed: {}", output.status).into());
    }
    let told: Value = serde_json::from_slice(&output.stdout)?;
    let figure = |name: &str| told[name].as_f64().ok_or(format!("the load did not tell {name}"));
    Ok(Measured {
        rate: figure("requests")? / figure("seconds")?,
        p50: figure("p50_micros")?,
        p99: figure("p99_micros")?,
        cpu: cpu.as_secs_f64() * 1e6 / figure("all_requests")?.max(1.0),
    })
}
