//! The load of `tidegate-bench postgres`, in a process of its own: one thread a connection, requests written by hand.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection, Row};

use crate::{Failure, machine, report};

/// Messages of a request, unless it is told otherwise.
pub const BATCH: u64 = 100;
const PARTITIONS: u64 = 1_000;

/// Who is loaded.
pub enum Target {
    /// A broker.
    Tidegate(SocketAddr),
    /// A database with pgmq in it.
    Pgmq(String),
}

/// What is done.
#[derive(Clone, Copy)]
pub struct Work {
    what: What,
    round: u64,
    amount: u64,
    batch: u64,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum What {
    /// Push for so many milliseconds.
    Push,
    /// Push so many messages.
    Fill,
    /// Take and ack or delete until nothing is left.
    Drain,
}

impl Work {
    /// Pushes batches of so many for so long.
    pub fn push(round: u64, millis: u64, batch: u64) -> Self {
        Work { what: What::Push, round, amount: millis, batch }
    }

    /// Makes a backlog.
    pub fn fill(round: u64, messages: u64) -> Self {
        Work { what: What::Fill, round, amount: messages, batch: BATCH }
    }

    /// Drains it.
    pub fn drain(round: u64) -> Self {
        Work { what: What::Drain, round, amount: 0, batch: BATCH }
    }
}

/// What a load did.
pub struct Outcome {
    /// Messages pushed, or taken and done with.
    pub messages: f64,
    /// How long that took.
    pub seconds: f64,
    /// CPU seconds of the load's process.
    pub cpu: f64,
}

/// Starts the load in a process of its own and waits for its end.
pub fn start(target: &Target, work: Work, connections: u16) -> Result<Outcome, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("drive").arg("--what").arg(match work.what {
        What::Push => "push",
        What::Fill => "fill",
        What::Drain => "drain",
    });
    command.args(["--round", &work.round.to_string(), "--amount", &work.amount.to_string()]);
    command.args(["--connections", &connections.to_string(), "--batch", &work.batch.to_string()]);
    match target {
        Target::Tidegate(address) => command.args(["--tidegate", &address.to_string()]),
        Target::Pgmq(url) => command.args(["--pgmq", url]),
    };
    let output = command.output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    let told: Value = serde_json::from_slice(&output.stdout)?;
    let of = |name: &str| told[name].as_f64().ok_or("the load told nothing");
    Ok(Outcome { messages: of("messages")?, seconds: of("seconds")?, cpu: of("cpu_seconds")? })
}

/// The load generator of `postgres`.
#[derive(clap::Args)]
pub struct Arguments {
    /// The broker
    #[arg(long)]
    tidegate: Option<SocketAddr>,
    /// The database with pgmq
    #[arg(long)]
    pgmq: Option<String>,
    /// What to do
    #[arg(long)]
    what: What,
    /// Tells this round's queues from those of other rounds
    #[arg(long)]
    round: u64,
    /// Milliseconds to push, or messages to fill
    #[arg(long)]
    amount: u64,
    /// Connections
    #[arg(long)]
    connections: u64,
    /// Messages of a push
    #[arg(long)]
    batch: u64,
}

/// What a connection did: messages, and when the last of them was done with.
type Done = (u64, Instant);

/// Runs and prints one line of JSON.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let queue = match arguments.what {
        What::Push => format!("pushed_{}", arguments.round),
        What::Fill | What::Drain => format!("drained_{}", arguments.round),
    };
    let begun = Instant::now();
    let end = match arguments.what {
        What::Push => begun + Duration::from_millis(arguments.amount),
        What::Fill | What::Drain => begun + Duration::from_secs(600),
    };
    let left = AtomicU64::new(match arguments.what {
        What::Fill => arguments.amount / arguments.batch,
        What::Push | What::Drain => u64::MAX,
    });
    if let Some(url) = &arguments.pgmq {
        pgmq_queue(url, &queue)?;
    }
    let done: Result<Vec<Done>, Failure> = thread::scope(|scope| {
        let threads: Vec<_> = (0..arguments.connections)
            .map(|number| {
                let (queue, left) = (&queue, &left);
                scope.spawn(move || one(arguments, number, queue, end, left))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| "a connection's thread panicked")?).collect()
    });
    let done = done?;
    let messages: u64 = done.iter().map(|(count, _)| count).sum();
    let last = done.iter().map(|&(_, last)| last).max().unwrap_or(begun);
    let cpu = machine::process_cpu().as_secs_f64();
    report::json(&json!({ "messages": messages, "seconds": (last - begun).as_secs_f64(), "cpu_seconds": cpu }));
    Ok(())
}

/// Takes one of the batches that are left.
fn take(left: &AtomicU64) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}

fn one(arguments: &Arguments, number: u64, queue: &str, end: Instant, left: &AtomicU64) -> Result<Done, Failure> {
    let batch = arguments.batch;
    match (&arguments.tidegate, &arguments.pgmq) {
        (Some(address), _) => {
            let mut connection = Connected::to(*address)?;
            match arguments.what {
                What::Drain => connection.drain(queue),
                What::Push | What::Fill => connection.push(queue, number, end, left, batch),
            }
        }
        (None, Some(url)) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let mut connection = PgConnection::connect(url).await?;
                match arguments.what {
                    What::Drain => pgmq_drain(&mut connection, queue).await,
                    What::Push | What::Fill => pgmq_push(&mut connection, queue, number, end, left, batch).await,
                }
            })
        }
        (None, None) => Err("expected --tidegate or --pgmq".into()),
    }
}

/// An event of 200 to 300 bytes, different for each number.
fn event(number: u64) -> String {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let kind = ["created", "paid", "packed", "shipped", "returned"][(mixed >> 20) as usize % 5];
    let city = ["Lisboa", "Kraków", "Malmö", "Gent", "Torino", "Cork", "Graz"][(mixed >> 30) as usize % 7];
    format!(
        "{{\"id\":\"{mixed:016x}{number:08x}\",\"type\":\"order.{kind}\",\"customer\":{{\"id\":{},\"city\":\"{city}\"}},\
         \"total\":{}.{:02},\"currency\":\"EUR\",\"lines\":[{{\"sku\":\"{:06X}\",\"n\":{}}},{{\"sku\":\"{:06X}\",\"n\":{}}}],\
         \"trace\":\"{:016x}\"}}",
        mixed >> 40,
        (mixed >> 12) % 900,
        mixed % 100,
        (mixed >> 8) & 0xff_ffff,
        mixed % 7 + 1,
        (mixed >> 33) & 0xff_ffff,
        mixed % 5 + 1,
        mixed.rotate_left(29) ^ number,
    )
}

/// What a consumer needs of a delivery.
#[derive(Deserialize)]
struct Delivery<'a> {
    #[serde(borrow)]
    messages: Vec<Ack<'a>>,
}

/// A delivered message, and its ack.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Ack<'a> {
    transaction_id: &'a str,
    partition_id: &'a str,
    lease_id: &'a str,
    #[serde(skip_deserializing, default = "completed")]
    status: &'static str,
}

fn completed() -> &'static str {
    "completed"
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Acks<'a> {
    consumer_group: &'a str,
    acknowledgments: Vec<Ack<'a>>,
}

/// A keep-alive connection to a broker.
pub struct Connected {
    stream: BufReader<TcpStream>,
    address: SocketAddr,
    body: Vec<u8>,
    line: String,
}

impl Connected {
    /// Connects.
    pub fn to(address: SocketAddr) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Connected {
            stream: BufReader::with_capacity(1 << 16, stream),
            address,
            body: Vec::new(),
            line: String::new(),
        })
    }

    /// Sends a request and reads its answer: the status, and the body in `self.body`.
    pub fn call(&mut self, method: &str, path: &str, body: &[u8]) -> Result<u16, Failure> {
        let mut request = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\n", self.address).into_bytes();
        write!(request, "content-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len())?;
        request.extend_from_slice(body);
        self.stream.get_mut().write_all(&request)?;
        let (mut status, mut length) = (0, 0);
        loop {
            self.line.clear();
            self.stream.read_line(&mut self.line)?;
            let line = self.line.trim_end();
            if line.is_empty() {
                break;
            }
            if let Some(rest) = line.strip_prefix("HTTP/1.1 ") {
                status = rest.get(..3).unwrap_or_default().parse()?;
            } else if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse()?;
            }
        }
        self.body.resize(length, 0);
        self.stream.read_exact(&mut self.body)?;
        Ok(status)
    }

    fn push(&mut self, queue: &str, number: u64, end: Instant, left: &AtomicU64, batch: u64) -> Result<Done, Failure> {
        let mut pushed = 0;
        while Instant::now() < end && take(left) {
            self.push_batch(queue, (number << 40) + pushed, batch)?;
            pushed += batch;
        }
        Ok((pushed, Instant::now()))
    }

    /// Pushes so many messages, the first of this number, to one partition.
    pub fn push_batch(&mut self, queue: &str, first: u64, batch: u64) -> Result<(), Failure> {
        let partition = ((first >> 40) * 131 + first / batch) % PARTITIONS;
        let mut body = String::with_capacity(40_000);
        body.push_str("{\"items\":[");
        for n in first..first + batch {
            if n > first {
                body.push(',');
            }
            body.push_str(&format!(
                "{{\"queue\":\"{queue}\",\"partition\":\"{partition}\",\"transactionId\":\"{n:x}\",\"payload\":{}}}",
                event(n)
            ));
        }
        body.push_str("]}");
        match self.call("POST", "/api/v1/push", body.as_bytes())? {
            201 if self.queued() == batch => Ok(()),
            201 => Err("a push was answered, but not all of it was queued".into()),
            status => Err(format!("a push is answered {status}").into()),
        }
    }

    /// How many messages the answer to a push says were stored.
    fn queued(&self) -> u64 {
        std::str::from_utf8(&self.body).map_or(0, |body| body.matches("\"status\":\"queued\"").count() as u64)
    }

    /// Takes a batch and acks it: how many messages; none when there are none.
    pub fn consume(&mut self, queue: &str) -> Result<Option<u64>, Failure> {
        let path = format!("/api/v1/pop/queue/{queue}?batch={BATCH}&consumerGroup=bench&partitions=1");
        match self.call("GET", &path, b"")? {
            200 => {}
            204 => return Ok(None),
            status => return Err(format!("a pop is answered {status}").into()),
        }
        let delivery: Delivery<'_> = serde_json::from_slice(&self.body)?;
        let acknowledgments = delivery.messages;
        let count = acknowledgments.len() as u64;
        let body = serde_json::to_vec(&Acks { consumer_group: "bench", acknowledgments })?;
        match self.call("POST", "/api/v1/ack/batch", &body)? {
            200 => Ok(Some(count)),
            status => Err(format!("an ack is answered {status}").into()),
        }
    }

    fn drain(&mut self, queue: &str) -> Result<Done, Failure> {
        let (mut done, mut idle, mut last) = (0, 0, Instant::now());
        while idle < 20 {
            match self.consume(queue)? {
                Some(count) => {
                    done += count;
                    (idle, last) = (0, Instant::now());
                }
                // Partitions may be under way in others' hands.
                None => {
                    idle += 1;
                    thread::sleep(Duration::from_millis(5));
                }
            }
        }
        Ok((done, last))
    }
}

fn pgmq_queue(url: &str, queue: &str) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut connection = PgConnection::connect(url).await?;
        sqlx::query("SELECT pgmq.create($1)").bind(queue).execute(&mut connection).await?;
        Ok(())
    })
}

async fn pgmq_push(
    connection: &mut PgConnection,
    queue: &str,
    number: u64,
    end: Instant,
    left: &AtomicU64,
    batch: u64,
) -> Result<Done, Failure> {
    let mut pushed = 0;
    while Instant::now() < end && take(left) {
        let first = (number << 40) + pushed;
        let events = (first..first + batch).map(|n| RawValue::from_string(event(n)).map(sqlx::types::Json));
        sqlx::query("SELECT pgmq.send_batch($1, $2::jsonb[])")
            .bind(queue)
            .bind(events.collect::<Result<Vec<_>, _>>()?)
            .execute(&mut *connection)
            .await?;
        pushed += batch;
    }
    Ok((pushed, Instant::now()))
}

async fn pgmq_drain(connection: &mut PgConnection, queue: &str) -> Result<Done, Failure> {
    let (mut done, mut last) = (0, Instant::now());
    loop {
        let rows = sqlx::query("SELECT msg_id, message::text FROM pgmq.read($1, 60, 100)")
            .bind(queue)
            .fetch_all(&mut *connection)
            .await?;
        if rows.is_empty() {
            return Ok((done, last));
        }
        let ids = rows.iter().map(|row| row.try_get::<i64, _>(0)).collect::<Result<Vec<_>, _>>()?;
        sqlx::query("SELECT count(*) FROM pgmq.delete($1, $2::bigint[])")
            .bind(queue)
            .bind(&ids)
            .execute(&mut *connection)
            .await?;
        done += ids.len() as u64;
        last = Instant::now();
    }
}
