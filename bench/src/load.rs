//! The load of `tidegate-bench http`, in a process of its own: keep-alive connections that push one message after
//! another. Hand-written HTTP over plain sockets, so that it takes little of the CPU that it shares with the server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::payload::hex;
use crate::{Failure, machine, report};

/// Time for connections to open and caches to warm before the count starts.
const WARM_UP: Duration = Duration::from_millis(300);
/// Bytes of each payload.
const PAYLOAD: usize = 256;
/// Partitions that each connection pushes to in turn.
const PARTITIONS: u64 = 1_000;

/// The load generator of `http`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The server
    #[arg(long)]
    address: SocketAddr,
    /// Connections
    #[arg(long)]
    connections: u64,
    /// Milliseconds to measure
    #[arg(long)]
    millis: u64,
    /// Tells this run's ids from those of other runs
    #[arg(long)]
    run: u64,
    /// The token that each request carries
    #[arg(long)]
    token: Option<String>,
    /// Each answer must say that its message was queued
    #[arg(long)]
    expect_queued: bool,
}

/// Runs and prints one line of JSON.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(load(arguments))
}

async fn load(arguments: &Arguments) -> Result<(), Failure> {
    let start = Instant::now() + WARM_UP;
    let window = Arc::new(Window { start, end: start + Duration::from_millis(arguments.millis) });
    let mut connections = tokio::task::JoinSet::new();
    for number in 0..arguments.connections {
        let request = Request::new(arguments.run, number, arguments.address, arguments.token.as_deref());
        connections.spawn(connection(arguments.address, request, Arc::clone(&window), arguments.expect_queued));
    }
    let cpu_before = machine::process_cpu();
    let mut latencies = Vec::new();
    let mut all = 0;
    while let Some(done) = connections.join_next().await {
        let mut done = done??;
        latencies.append(&mut done.latencies);
        all += done.requests;
    }
    let cpu = machine::process_cpu().saturating_sub(cpu_before);
    latencies.sort_unstable();
    let at = |share: f64| latencies.get((latencies.len() as f64 * share) as usize).copied().unwrap_or(0);
    report::json(&json!({
        "requests": latencies.len(), "all_requests": all,
        "seconds": window.end.duration_since(window.start).as_secs_f64(),
        "p50_micros": at(0.5), "p99_micros": at(0.99), "load_cpu_seconds": cpu.as_secs_f64(),
    }));
    Ok(())
}

/// What is counted: requests that begin and end in it. The processor's time is told for all.
struct Window {
    start: Instant,
    end: Instant,
}

/// What one connection did.
struct Done {
    /// Of each counted request, in microseconds.
    latencies: Vec<u32>,
    /// Requests, counted or not.
    requests: u64,
}

/// Pushes until the window ends.
async fn connection(
    address: SocketAddr,
    mut request: Request,
    window: Arc<Window>,
    expect_queued: bool,
) -> Result<Done, Failure> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut latencies = Vec::with_capacity(16_384);
    let mut buffer = vec![0; 16 * 1_024];
    loop {
        let began = Instant::now();
        if began >= window.end {
            return Ok(Done { latencies, requests: request.count });
        }
        stream.write_all(request.next()).await?;
        let mut filled = 0;
        let answer = loop {
            let read = stream.read(&mut buffer[filled..]).await?;
            if read == 0 {
                return Err("the server closed a connection, or answered with more than 16 KiB".into());
            }
            filled += read;
            if let Some(answer) = Answer::parse(&buffer[..filled])? {
                break answer;
            }
        };
        if answer.status != 201 || (expect_queued && !contains(answer.body, b"\"queued\"")) {
            let text = String::from_utf8_lossy(&buffer[..filled]);
            return Err(format!("a push was answered {}: {text}", answer.status).into());
        }
        let ended = Instant::now();
        if began >= window.start && ended < window.end {
            latencies.push(u32::try_from(ended.duration_since(began).as_micros()).unwrap_or(u32::MAX));
        }
    }
}

/// The bytes of a push, of which only digits change.
struct Request {
    bytes: Vec<u8>,
    partition_at: usize,
    id_at: usize,
    payload_at: usize,
    count: u64,
    /// Above the bits of the count in an id.
    prefix: u64,
    number: u64,
}

impl Request {
    fn new(run: u64, number: u64, address: SocketAddr, token: Option<&str>) -> Self {
        let token = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
        let payload = r#"{"id":"0000000000000000","text":""#;
        let filler = "x".repeat(PAYLOAD - payload.len() - r#""}"#.len());
        let payload = format!(r#"{payload}{filler}"}}"#);
        let partition = r#"{"items":[{"queue":"bench","partition":""#;
        let id = r#"000","transactionId":""#;
        let body = format!(r#"{partition}{id}0000000000000000","payload":{payload}}}]}}"#);
        let head = format!(
            "POST /api/v1/push HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n{token}content-length: {}\r\n\r\n",
            body.len()
        );
        let partition_at = head.len() + partition.len();
        let id_at = partition_at + id.len();
        let payload_at = id_at + r#"0000000000000000","payload":{"id":""#.len();
        Request {
            bytes: (head + &body).into_bytes(),
            partition_at,
            id_at,
            payload_at,
            count: 0,
            prefix: run << 48 | number << 32,
            number,
        }
    }

    fn next(&mut self) -> &[u8] {
        self.count += 1;
        // Connections start apart, so that two seldom push to one partition at once.
        let partition = (self.count + self.number * 17) % PARTITIONS;
        let digits = [partition / 100, partition / 10 % 10, partition % 10];
        for (place, digit) in digits.into_iter().enumerate() {
            self.bytes[self.partition_at + place] = b'0' + digit as u8;
        }
        let id = hex(self.prefix | self.count);
        self.bytes[self.id_at..self.id_at + id.len()].copy_from_slice(&id);
        self.bytes[self.payload_at..self.payload_at + id.len()].copy_from_slice(&id);
        &self.bytes
    }
}

/// An answer that is all there.
#[derive(Debug, PartialEq)]
struct Answer<'a> {
    status: u16,
    body: &'a [u8],
}

impl<'a> Answer<'a> {
    /// None while bytes are missing.
    fn parse(bytes: &'a [u8]) -> Result<Option<Self>, Failure> {
        let Some(head_end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
        let head = std::str::from_utf8(&bytes[..head_end])?;
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).ok_or("no status line")?.parse()?;
        let length: usize = lines
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
            .ok_or("an answer without content-length")?
            .1
            .trim()
            .parse()?;
        let body = &bytes[head_end + 4..];
        Ok((body.len() >= length).then_some(Answer { status, body }))
    }
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::{Answer, PAYLOAD, Request};

    #[test]
    fn requests_are_json_of_one_length_and_differ() {
        let mut request = Request::new(3, 5, "127.0.0.1:1".parse().unwrap(), None);
        let mut bodies = Vec::new();
        for _ in 0..2 {
            let text = String::from_utf8(request.next().to_vec()).unwrap();
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            assert!(head.ends_with(&format!("content-length: {}", body.len())));
            let body: serde_json::Value = serde_json::from_str(body).unwrap();
            bodies.push(body["items"][0].clone());
        }
        assert_eq!(bodies[0]["payload"].to_string().len(), PAYLOAD);
        assert_eq!(bodies[0]["transactionId"], bodies[0]["payload"]["id"]);
        assert_eq!((&bodies[0]["partition"], &bodies[1]["partition"]), (&"086".into(), &"087".into()));
        assert_ne!(bodies[0]["transactionId"], bodies[1]["transactionId"]);
    }

    #[test]
    fn an_answer_is_whole_or_not_there() {
        let whole = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n[]";
        assert_eq!(Answer::parse(whole).unwrap(), Some(Answer { status: 201, body: b"[]" }));
        assert_eq!(Answer::parse(&whole[..whole.len() - 1]).unwrap(), None);
        assert_eq!(Answer::parse(&whole[..20]).unwrap(), None);
        assert!(Answer::parse(b"HTTP/1.1 201 Created\r\n\r\n").is_err());
    }
}
