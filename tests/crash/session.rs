//! One client: Queen's API as calls whose every outcome goes into the history.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;

use crate::history::{Ack, Answer, Delivered, Event, Item, Lane, Operation, Pop, Pushed};
use crate::http::{Broken, Connection, Response};
use crate::random::Random;
use crate::recorder::Recorder;

pub struct Session {
    pub client: u32,
    recorder: Arc<Recorder>,
    connections: Vec<Connection>,
    /// The broker that is asked; a client stays with one until it is let down.
    current: usize,
    random: Random,
    /// Lane to the id that an ack names it by.
    partitions: BTreeMap<Lane, String>,
}

impl Session {
    pub fn new(client: u32, recorder: Arc<Recorder>, brokers: &[SocketAddr], mut random: Random) -> Self {
        let connections = brokers.iter().copied().map(Connection::new).collect();
        let current = random.below(brokers.len() as u64) as usize;
        Self { client, recorder, connections, current, random, partitions: BTreeMap::new() }
    }

    pub fn push(&mut self, items: &[Item]) -> Event {
        let body = format!(r#"{{"items":[{}]}}"#, joined(items.iter().map(wire_item)));
        let operation = Operation::Push { items: items.to_vec() };
        self.call(operation, |http| http.post("/api/v1/push", &body), |response, _| pushed(&response.body))
    }

    pub fn pop(&mut self, pop: &Pop, batch: u64, partitions: u64, wait: Option<u64>) -> Event {
        let mut path = format!("/api/v1/pop/queue/{}", pop.queue);
        if let Some(partition) = &pop.partition {
            path += &format!("/partition/{partition}");
        }
        let (group, lease) = (&pop.group, pop.lease_seconds);
        path += &format!("?consumerGroup={group}&leaseSeconds={lease}&batch={batch}&partitions={partitions}");
        if let Some(wait) = wait {
            path += &format!("&wait=true&timeout={wait}");
        }
        let queue = pop.queue.clone();
        let read = |response: Response, partitions: &mut BTreeMap<Lane, String>| match response.status {
            204 => Some(Answer::Empty),
            _ => popped(&queue, &response.body, partitions),
        };
        self.call(Operation::Pop(pop.clone()), |http| http.get(&path), read)
    }

    pub fn ack(&mut self, ack: &Ack) -> Event {
        let items = joined(self.wire_acks(ack).into_iter());
        let body = format!(r#"{{"consumerGroup":"{}","acknowledgments":[{items}]}}"#, ack.group);
        let operation = Operation::Ack(ack.clone());
        self.call(operation, |http| http.post("/api/v1/ack/batch", &body), |response, _| acked(&response.body))
    }

    pub fn transaction(&mut self, pushes: &[Item], ack: &Ack) -> Event {
        let pushes_on_wire = pushes.iter().map(|item| format!(r#"{{"type":"push",{}"#, &wire_item(item)[1..]));
        let acks = self.wire_acks(ack).into_iter().map(|item| format!(r#"{{"type":"ack",{}"#, &item[1..]));
        let operations = joined(acks.chain(pushes_on_wire));
        let body = format!(r#"{{"operations":[{operations}],"requiredLeases":["{}"]}}"#, ack.lease);
        let operation = Operation::Transaction { pushes: pushes.to_vec(), ack: ack.clone() };
        self.call(operation, |http| http.post("/api/v1/transaction", &body), |response, _| done(&response.body))
    }

    /// One call with no place in the history: set-up.
    pub fn post(&mut self, path: &str, body: &str) -> Option<Response> {
        let response = self.connections[self.current].post(path, body).ok();
        if response.as_ref().is_none_or(|response| response.status == 503) {
            self.current = self.random.below(self.connections.len() as u64) as usize;
        }
        response
    }

    /// What acks name a lane by; it was seen in an answer.
    pub fn partition_id(&self, lane: &Lane) -> &str {
        &self.partitions[lane]
    }

    fn call(
        &mut self,
        operation: Operation,
        send: impl FnOnce(&mut Connection) -> Result<Response, Broken>,
        read: impl FnOnce(Response, &mut BTreeMap<Lane, String>) -> Option<Answer>,
    ) -> Event {
        let call = self.recorder.invoke(self.client, operation);
        let event = match send(&mut self.connections[self.current]) {
            Err(Broken::Unsent(error)) => Event::Fail(error.to_string()),
            Err(Broken::Sent(error)) => Event::Unknown(error.to_string()),
            Ok(response) if response.status == 503 => {
                let text = response.body;
                let body: Value = serde_json::from_str(&text).unwrap_or_default();
                match body["code"].as_str() {
                    Some("store_unavailable") => Event::Fail(text),
                    _ => Event::Unknown(text),
                }
            }
            Ok(response) => {
                let text = format!("{} {}", response.status, response.body);
                let success = (200..300).contains(&response.status);
                match success.then(|| read(response, &mut self.partitions)).flatten() {
                    Some(answer) => Event::Ok(answer),
                    None => Event::Unknown(format!("not an answer of this route: {text}")),
                }
            }
        };
        if !matches!(event, Event::Ok(_)) {
            self.current = self.random.below(self.connections.len() as u64) as usize;
        }
        self.recorder.end(self.client, call, event.clone());
        event
    }

    fn wire_acks(&self, ack: &Ack) -> Vec<String> {
        let (partition, group, lease) = (&self.partitions[&ack.lane], &ack.group, &ack.lease);
        let item = |(id, status): &(String, crate::history::Status)| {
            format!(
                r#"{{"transactionId":"{id}","partitionId":"{partition}","status":"{}","consumerGroup":"{group}","leaseId":"{lease}"}}"#,
                status.word()
            )
        };
        ack.items.iter().map(item).collect()
    }
}

fn joined(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(",")
}

/// Written by hand: the payload must go out byte for byte. Names and ids of a run need no escapes.
fn wire_item(item: &Item) -> String {
    let Item { lane: Lane { queue, partition }, id, payload } = item;
    format!(r#"{{"queue":"{queue}","partition":"{partition}","transactionId":"{id}","payload":{payload}}}"#)
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn pushed(body: &str) -> Option<Answer> {
    let body: Vec<Value> = serde_json::from_str(body).ok()?;
    let item = |item: &Value| {
        let message = text(&item["message_id"])?;
        match item["status"].as_str()? {
            "queued" => Some(Pushed::Queued { message }),
            "duplicate" => Some(Pushed::Duplicate { message }),
            "failed" => Some(Pushed::Failed),
            _ => None,
        }
    };
    Some(Answer::Pushed(body.iter().map(item).collect::<Option<_>>()?))
}

fn popped(queue: &str, body: &str, partitions: &mut BTreeMap<Lane, String>) -> Option<Answer> {
    let body: BTreeMap<String, &RawValue> = serde_json::from_str(body).ok()?;
    let lease: String = serde_json::from_str(body.get("leaseId")?.get()).ok()?;
    let raw: Vec<BTreeMap<String, &RawValue>> = serde_json::from_str(body.get("messages")?.get()).ok()?;
    let mut messages = Vec::new();
    for raw in &raw {
        let text = |key: &str| serde_json::from_str::<String>(raw.get(key)?.get()).ok();
        let lane = Lane::new(queue, &text("partition")?);
        partitions.insert(lane.clone(), text("partitionId")?);
        let payload = raw.get("data")?.get().to_owned();
        messages.push(Delivered { lane, id: text("transactionId")?, message: text("id")?, payload });
    }
    (!messages.is_empty()).then_some(Answer::Popped { lease, messages })
}

fn acked(body: &str) -> Option<Answer> {
    let body: Vec<Value> = serde_json::from_str(body).ok()?;
    let item = |item: &Value| match item["success"].as_bool()? {
        true => Some(Ok(())),
        false => Some(Err(text(&item["error"])?)),
    };
    Some(Answer::Acked(body.iter().map(item).collect::<Option<_>>()?))
}

fn done(body: &str) -> Option<Answer> {
    let body: Value = serde_json::from_str(body).ok()?;
    match body["success"].as_bool()? {
        true => Some(Answer::Done),
        false => Some(Answer::RolledBack(text(&body["error"])?)),
    }
}
