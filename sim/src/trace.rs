//! A run for people: every line of its history, and every message between clients, brokers and the store.

use std::fmt::Write;

use crate::history::{At, Event, Record};

/// Who sends and receives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Party {
    /// A client.
    Client(u16),
    /// A broker.
    Broker(u8),
    /// The store.
    Store,
}

/// A message on its way.
#[derive(Clone, PartialEq, Debug)]
pub struct Arrow {
    /// From whom, and when.
    pub from: (Party, At),
    /// To whom, and when it is there.
    pub to: (Party, At),
    /// What it is.
    pub label: String,
    /// It never arrives.
    pub lost: bool,
}

/// What happened in a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Trace {
    /// Brokers of the world.
    pub brokers: u8,
    /// Clients of the world, nobody included.
    pub clients: u16,
    /// The history.
    pub records: Vec<Record>,
    /// Messages.
    pub arrows: Vec<Arrow>,
}

impl Trace {
    /// Of nothing yet.
    pub fn new(brokers: u8, clients: u16) -> Self {
        Trace { brokers, clients, records: Vec::new(), arrows: Vec::new() }
    }

    /// A line of the history.
    pub fn record(&mut self, record: Record) {
        self.records.push(record);
    }

    /// A message.
    pub fn arrow(&mut self, arrow: Arrow) {
        self.arrows.push(arrow);
    }

    /// The timeline: one line per event, messages included.
    pub fn text(&self) -> String {
        let records = self.records.iter().map(|record| (record.at, line(record)));
        let arrows = self.arrows.iter().map(|arrow| {
            let fate = if arrow.lost { "is lost".to_owned() } else { format!("there at{}", clock(arrow.to.1)) };
            (arrow.from.1, format!("    {} ~> {}  {}  {fate}", name(arrow.from.0), name(arrow.to.0), arrow.label))
        });
        let mut lines: Vec<(At, String)> = records.chain(arrows).collect();
        lines.sort_by_key(|(at, _)| *at);
        lines.iter().fold(String::new(), |mut text, (at, line)| {
            let _ = writeln!(text, "{} {line}", clock(*at));
            text
        })
    }
}

fn name(party: Party) -> String {
    match party {
        Party::Client(number) => format!("client {number}"),
        Party::Broker(number) => format!("broker {number}"),
        Party::Store => "store".to_owned(),
    }
}

/// A time as people read it: seconds and microseconds.
pub fn clock(at: At) -> String {
    format!("{:>6}.{:06}", at / 1_000_000, at % 1_000_000)
}

/// What a record says.
pub fn line(record: &Record) -> String {
    let (client, host, op) = (record.client.0, record.host.0, record.op.0);
    match &record.event {
        Event::Invoke(operation) => format!("client {client} -> broker {host}  #{op} {operation:?}"),
        Event::Ok(answer) => format!("client {client} <- broker {host}  #{op} {answer:?}"),
        Event::Fail(why) => format!("client {client} <- broker {host}  #{op} refused: {why:?}"),
        Event::Unknown => format!("client {client}    broker {host}  #{op} outcome unknown"),
        Event::Fault(fault) => format!("!! broker {host} client {client}: {fault:?}"),
        Event::Phase(phase) => format!("== {phase:?}"),
        Event::Commit(commit) => format!(
            "store: commit {} of slot {} (epoch {}, number {}) by broker {host}, decided {}: {:?}",
            commit.serial, commit.slot, commit.epoch, commit.number, commit.decided, commit.writes
        ),
        Event::Owner(owner) => {
            format!("store: slot {} {:?} by broker {host}, epoch {}", owner.slot, owner.change, owner.epoch)
        }
        Event::Lost { last } => format!("!! the store has lost every commit after {last}"),
    }
}
