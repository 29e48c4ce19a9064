//! `tidegate-bench options`: what encryption, tokens and metrics cost, beside the plain broker in the same minutes.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper_util::rt::TokioIo;
use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::json;
use tidegate_core::command::Command;
use tidegate_core::name::{QueueName, TenantId};
use tidegate_core::options::{Labels, QueueOptions};
use tidegate_core::reply::Reply;
use tidegate_core::seal::{Key, Keys};
use tidegate_core::settings::Settings;
use tidegate_transport_http::{Authenticator, HttpSettings, Service, TokenKeys, TokenRules, serve};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::Failure;
use crate::http::{Measured, Turns, broker, load};
use crate::machine::Machine;
use crate::report::{self, Range, thousands};

/// The share of the plain rate that is kept with everything on.
const BAR: f64 = 0.7;
/// The queue that the load pushes to.
const QUEUE: &str = "bench";
/// What the tokens are signed with.
const SECRET: &str = "a secret of at least thirty-two bytes";

/// Single-message pushes with encryption, HS256 tokens and metrics on, beside the same broker without.
///
/// One process serves both over the memory store, another loads them in turn, as `tidegate-bench http` does. Where the
/// options are on, the metrics are read ten times a second.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Arguments {
    #[command(flatten)]
    turns: Turns,
    /// End with one line of JSON
    #[arg(long)]
    json: bool,
}

/// Serves both, loads both, compares.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let machine = Machine::here();
    machine.print();
    let turns = &arguments.turns;
    turns.announce("options");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let rounds = runtime.block_on(compare(turns))?;
    let ratio = Range::of(rounds.iter().map(|(plain, full)| full.rate / plain.rate));
    let verdict = if ratio.median >= BAR { "met" } else { "MISSED" };
    let (plain, full) = rounds.iter().map(|(plain, full)| (plain.rate, full.rate)).unzip::<_, _, Vec<_>, Vec<_>>();
    for (name, rates) in [("plain", plain.clone()), ("all on", full.clone())] {
        let range = Range::of(rates);
        report::line(&format!(
            "           {name:<8} {} requests/s (min {}, max {})",
            thousands(range.median),
            thousands(range.min),
            thousands(range.max)
        ));
    }
    report::line(&format!(
        "           ratio all on/plain, round by round: median {:.3} (min {:.3}, max {:.3})",
        ratio.median, ratio.min, ratio.max
    ));
    report::line(&format!("           bar: {BAR}: {verdict}"));
    if arguments.json {
        report::json(&json!({
            "benchmark": "options", "machine": machine.json(), "connections": turns.connections,
            "rounds": turns.rounds, "seconds_each": turns.seconds,
            "plain": plain, "all_on": full,
            "ratio": { "min": ratio.min, "median": ratio.median, "max": ratio.max },
            "bar": BAR, "met": ratio.median >= BAR,
        }));
    }
    Ok(())
}

async fn compare(turns: &Turns) -> Result<Vec<(Measured, Measured)>, Failure> {
    let stop = CancellationToken::new();
    let mut addresses = Vec::new();
    for on in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        addresses.push(listener.local_addr()?);
        tokio::spawn(serve(listener, service(on).await?, stop.clone()));
    }
    let metrics = addresses[1];
    tokio::spawn(async move { read_metrics(&metrics.to_string()).await });
    let key = EncodingKey::from_secret(SECRET.as_bytes())?;
    let token = encode(&Header::default(), &json!({"role": "write-only", "sub": "bench"}), &key)?;
    let millis = turns.millis();
    let mut rounds = Vec::new();
    for number in 0..turns.rounds {
        let plain = load(turns.connections, millis, addresses[0], number * 2, true, &[]).await?;
        let full = load(turns.connections, millis, addresses[1], number * 2 + 1, true, &["--token", &token]).await?;
        rounds.push((plain, full));
    }
    stop.cancel();
    Ok(rounds)
}

/// The product over the memory store, plain or with everything on.
async fn service(on: bool) -> Result<Service, Failure> {
    let keys = Keys { current: on.then(|| Key::new([7; 32])), previous: Vec::new() };
    let (handle, clock) = broker(Settings { keys, ..Settings::default() })?;
    let options = QueueOptions { encryption_enabled: on, ..QueueOptions::implicit() };
    let queue = QueueName::new(QUEUE)?;
    let configure = Command::Configure { queue, options, labels: Labels::default() };
    let Reply::Configured { .. } = handle.call(TenantId::DEFAULT, configure).await.0 else {
        return Err("the queue cannot be configured".into());
    };
    let authenticator = match on {
        true => Some(Arc::new(Authenticator::new(
            TokenRules::default(),
            TokenKeys::default().with_secret(SECRET)?,
            move || clock.wall(),
        ))),
        false => None,
    };
    Ok(Service::new(handle, HttpSettings { authenticator, ..HttpSettings::default() }))
}

/// Reads the metrics ten times a second for as long as they are served.
async fn read_metrics(address: &str) -> Result<(), Failure> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    loop {
        let request = Request::get("/metrics/prometheus").header("host", address).body(Empty::<Bytes>::new())?;
        sender.send_request(request).await?.into_body().collect().await?;
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}
