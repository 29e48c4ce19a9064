//! What clients sent and what they saw: one append-only list, written while the run goes on and read by the checkers.
//!
//! Nothing in here knows HTTP, a runtime or the broker. Each call makes two records: one before anything is sent, one
//! when the client knows what became of it. Their places in the list are the only order that the checkers use: a record
//! that stands before another was written before it.

use std::fmt;

/// One partition of one queue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lane {
    pub queue: String,
    pub partition: String,
}

impl Lane {
    pub fn new(queue: &str, partition: &str) -> Self {
        Self { queue: queue.to_owned(), partition: partition.to_owned() }
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.queue, self.partition)
    }
}

/// A line of the history.
#[derive(Clone, Debug)]
pub struct Record {
    /// Microseconds since the run began, by the clock of the machine that the clients are on.
    pub at: u64,
    pub client: u32,
    /// Ties an answer to its call. A client that tries again makes a new call.
    pub call: u64,
    pub event: Event,
}

/// What a line says.
#[derive(Clone, Debug)]
pub enum Event {
    /// The client is about to send this.
    Invoke(Operation),
    /// It was answered.
    Ok(Answer),
    /// It was refused, and certainly had no effect.
    Fail(String),
    /// Nobody can tell whether it had an effect, or will have one.
    Unknown(String),
    /// What was done to the system; no call, for people who read the history.
    Fault(String),
}

/// What a client asked for.
#[derive(Clone, Debug)]
pub enum Operation {
    Push {
        items: Vec<Item>,
    },
    Pop(Pop),
    /// All items lie in one lane and belong to one batch, so that they are decided together.
    Ack(Ack),
    /// All or nothing.
    Transaction {
        pushes: Vec<Item>,
        ack: Ack,
    },
}

/// A message as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    pub lane: Lane,
    /// The transaction id, which the client chose.
    pub id: String,
    /// JSON text, byte for byte.
    pub payload: String,
}

#[derive(Clone, Debug)]
pub struct Pop {
    pub queue: String,
    /// Only this partition; else any.
    pub partition: Option<String>,
    pub group: String,
    pub lease_seconds: u32,
}

#[derive(Clone, Debug)]
pub struct Ack {
    pub lane: Lane,
    pub group: String,
    pub lease: String,
    /// Transaction ids and what is said of them.
    pub items: Vec<(String, Status)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Completed,
    Failed,
    Retry,
    Dlq,
}

impl Status {
    /// The word on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Status::Completed => "completed",
            Status::Failed => "failed",
            Status::Retry => "retry",
            Status::Dlq => "dlq",
        }
    }
}

/// What a client was told.
#[derive(Clone, Debug)]
pub enum Answer {
    /// One per item, in the order of the request.
    Pushed(Vec<Pushed>),
    /// Nothing was there.
    Empty,
    Popped {
        lease: String,
        messages: Vec<Delivered>,
    },
    /// One per item, in the order of the request: accepted, or why not.
    Acked(Vec<Result<(), String>>),
    /// The transaction is done, whole.
    Done,
    /// The transaction was refused and rolled back.
    RolledBack(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pushed {
    Queued { message: String },
    Duplicate { message: String },
    Failed,
}

/// A message as it was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    pub lane: Lane,
    pub id: String,
    /// The id that the broker gave it.
    pub message: String,
    pub payload: String,
}

/// The records of a run, in order.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub records: Vec<Record>,
}

/// A call with what became of it.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    pub operation: &'a Operation,
    /// Where its first record stands.
    pub invoked: usize,
    /// Where its second record stands; past the end when it was never answered.
    pub answered: usize,
    pub invoked_at: u64,
    pub answered_at: u64,
    pub outcome: Outcome<'a>,
}

#[derive(Clone, Copy, Debug)]
pub enum Outcome<'a> {
    Ok(&'a Answer),
    Fail,
    Unknown,
}

impl History {
    /// Every call in the order in which they were sent. One without a second record is of unknown outcome.
    pub fn calls(&self) -> Vec<Call<'_>> {
        let mut calls: Vec<Call<'_>> = Vec::new();
        let mut open = std::collections::BTreeMap::new();
        for (place, record) in self.records.iter().enumerate() {
            let outcome = match &record.event {
                Event::Invoke(operation) => {
                    open.insert(record.call, calls.len());
                    let (invoked, answered) = (place, usize::MAX);
                    let (invoked_at, answered_at) = (record.at, u64::MAX);
                    let outcome = Outcome::Unknown;
                    calls.push(Call { operation, invoked, answered, invoked_at, answered_at, outcome });
                    continue;
                }
                Event::Ok(answer) => Outcome::Ok(answer),
                Event::Fail(_) => Outcome::Fail,
                Event::Unknown(_) => Outcome::Unknown,
                Event::Fault(_) => continue,
            };
            let call = &mut calls[open.remove(&record.call).expect("a call is answered once, after it was made")];
            (call.answered, call.answered_at, call.outcome) = (place, record.at, outcome);
        }
        calls
    }
}

impl Call<'_> {
    /// Whether it may have had an effect. One of unknown outcome may have it at any time after it was sent.
    pub fn is_possible(&self) -> bool {
        !matches!(self.outcome, Outcome::Fail | Outcome::Ok(Answer::RolledBack(_)))
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Invoke(operation) => write!(f, "{operation:?}"),
            Event::Ok(Answer::RolledBack(why)) => write!(f, "rolled back: {why}"),
            Event::Ok(answer) => write!(f, "ok: {answer:?}"),
            Event::Fail(why) => write!(f, "failed: {why}"),
            Event::Unknown(why) => write!(f, "unknown: {why}"),
            Event::Fault(what) => write!(f, "-- {what}"),
        }
    }
}

impl fmt::Display for History {
    /// A line per record, for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, record) in self.records.iter().enumerate() {
            writeln!(f, "{place} {}us c{} #{} {}", record.at, record.client, record.call, record.event)?;
        }
        Ok(())
    }
}
