//! Hand-made histories for the checkers' own tests: one lane `q/p` and, for what transactions push, `out/p`.
//!
//! A message's payload is its id in quotes and the broker's name for it is `m-` and its id.

use std::collections::BTreeMap;

use super::facts::Facts;
use super::{Check, Rules, Violation, check};
use crate::history::{Ack, Answer, Delivered, Event, History, Item, Lane, Operation, Pop, Pushed, Record, Status};

pub struct Story {
    history: History,
    rules: Rules,
    now: u64,
    calls: u64,
}

pub fn item(queue: &str, id: &str) -> Item {
    Item { lane: Lane::new(queue, "p"), id: id.into(), payload: format!("\"{id}\"") }
}

pub fn message(queue: &str, id: &str) -> Delivered {
    Delivered { lane: Lane::new(queue, "p"), id: id.into(), message: format!("m-{id}"), payload: format!("\"{id}\"") }
}

pub fn pop(queue: &str, group: &str) -> Operation {
    Operation::Pop(Pop { queue: queue.into(), partition: None, group: group.into(), lease_seconds: 2 })
}

pub fn ack(lease: &str, items: &[(&str, Status)]) -> Ack {
    let items = items.iter().map(|&(id, status)| (id.to_owned(), status)).collect();
    Ack { lane: Lane::new("q", "p"), group: "g".into(), lease: lease.into(), items }
}

pub fn completed<'a>(ids: &[&'a str]) -> Vec<(&'a str, Status)> {
    ids.iter().map(|&id| (id, Status::Completed)).collect()
}

pub fn unknown() -> Event {
    Event::Unknown("the connection died".into())
}

pub fn popped(queue: &str, lease: &str, ids: &[&str]) -> Event {
    let messages = ids.iter().map(|id| message(queue, id)).collect();
    Event::Ok(Answer::Popped { lease: lease.into(), messages })
}

impl Story {
    /// Group `g` must be given all of `q`.
    pub fn new() -> Self {
        let groups = BTreeMap::from([("q".to_owned(), vec!["g".to_owned()])]);
        let rules = Rules { reader: "reader".into(), groups, lease_slack: 100_000 };
        Self { history: History::default(), rules, now: 0, calls: 0 }
    }

    pub fn wait(&mut self, milliseconds: u64) -> &mut Self {
        self.now += milliseconds * 1_000;
        self
    }

    pub fn invoke(&mut self, operation: Operation) -> u64 {
        self.calls += 1;
        self.record(self.calls, Event::Invoke(operation));
        self.calls
    }

    /// Ends a call, a millisecond later.
    pub fn record(&mut self, call: u64, event: Event) -> &mut Self {
        self.now += 1_000;
        self.history.records.push(Record { at: self.now, client: 1, call, event });
        self
    }

    pub fn call(&mut self, operation: Operation, event: Event) -> &mut Self {
        let call = self.invoke(operation);
        self.record(call, event)
    }

    /// Pushes into `q` in one call and is told that all are queued.
    pub fn queued(&mut self, ids: &[&str]) -> &mut Self {
        let items = ids.iter().map(|id| item("q", id)).collect();
        let answers = ids.iter().map(|id| Pushed::Queued { message: format!("m-{id}") }).collect();
        self.call(Operation::Push { items }, Event::Ok(Answer::Pushed(answers)))
    }

    /// One push into `q`.
    pub fn push(&mut self, id: &str, event: Event) -> &mut Self {
        self.call(Operation::Push { items: vec![item("q", id)] }, event)
    }

    pub fn pop(&mut self, lease: &str, ids: &[&str]) -> &mut Self {
        self.call(pop("q", "g"), popped("q", lease, ids))
    }

    pub fn read(&mut self, queue: &str, ids: &[&str]) -> &mut Self {
        self.call(pop(queue, "reader"), popped(queue, "R", ids))
    }

    /// Completes, and is told so.
    pub fn ack(&mut self, lease: &str, ids: &[&str]) -> &mut Self {
        let answers = Event::Ok(Answer::Acked(vec![Ok(()); ids.len()]));
        self.call(Operation::Ack(ack(lease, &completed(ids))), answers)
    }

    /// Completes with lease and ids, and pushes into `out`.
    pub fn transaction(&mut self, lease: &str, ids: &[&str], pushes: &[&str], event: Event) -> &mut Self {
        let pushes = pushes.iter().map(|id| item("out", id)).collect();
        self.call(Operation::Transaction { pushes, ack: ack(lease, &completed(ids)) }, event)
    }

    /// What one checker says.
    pub fn judge(&self, checker: Check) -> Vec<String> {
        checker(&Facts::gather(&self.history, &self.rules))
    }

    /// What all checkers say.
    pub fn judge_all(&self) -> Vec<Violation> {
        check(&self.history, &self.rules)
    }
}

mod tests {
    use super::*;

    #[test]
    fn a_plain_run_is_accepted_by_all() {
        let mut story = Story::new();
        story.queued(&["a", "b", "c"]).pop("L1", &["a", "b"]).ack("L1", &["a", "b"]);
        story.pop("L2", &["c"]).transaction("L2", &["c"], &["t"], Event::Ok(Answer::Done));
        story.read("q", &["a", "b", "c"]).read("out", &["t"]);
        assert_eq!(story.judge_all(), []);
    }

    #[test]
    fn an_empty_history_is_accepted_by_all() {
        assert_eq!(Story::new().judge_all(), []);
    }
}
