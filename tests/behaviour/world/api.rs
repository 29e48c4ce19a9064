//! The calls of Queen's API as tests make them.

use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};

use super::{Answer, World};

/// The group of whoever names none.
pub const QUEUE_MODE: &str = "__QUEUE_MODE__";

/// What a pop gave.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The whole body; null when there was none.
    pub body: Value,
    /// The body as it came, for byte-exact checks.
    pub text: String,
}

impl Batch {
    fn of(answer: &Answer) -> Batch {
        match answer.status {
            204 => {
                assert!(answer.body.is_empty(), "a 204 has no body");
                Batch { body: Value::Null, text: String::new() }
            }
            200 => Batch { body: answer.json(), text: answer.text().to_owned() },
            other => panic!("a pop answered {other}: {}", answer.text()),
        }
    }

    /// Whether the answer was 204.
    pub fn is_empty(&self) -> bool {
        self.body.is_null()
    }

    /// The messages in order; none for a 204.
    pub fn messages(&self) -> &[Value] {
        self.body["messages"].as_array().map_or(&[], Vec::as_slice)
    }

    /// The messages' transaction ids in order.
    pub fn ids(&self) -> Vec<&str> {
        self.messages().iter().map(|message| message["transactionId"].as_str().expect("a text")).collect()
    }

    /// The message with this transaction id.
    #[track_caller]
    pub fn message(&self, id: &str) -> &Value {
        let found = self.messages().iter().find(|message| message["transactionId"] == id);
        found.unwrap_or_else(|| panic!("{id} is not among {:?}", self.ids()))
    }

    /// The call's lease id.
    #[track_caller]
    pub fn lease(&self) -> &str {
        self.body["leaseId"].as_str().unwrap_or_else(|| panic!("no lease in {}", self.body))
    }

    /// The id of the first partition.
    #[track_caller]
    pub fn partition_id(&self) -> &str {
        self.body["partitionId"].as_str().unwrap_or_else(|| panic!("no partition id in {}", self.body))
    }

    /// The messages as items of an ack, all with one status.
    pub fn items(&self, status: &str) -> Vec<Value> {
        self.messages().iter().map(|message| item(message, status)).collect()
    }
}

/// A delivered message as an item of an ack, with its lease.
pub fn item(message: &Value, status: &str) -> Value {
    json!({
        "transactionId": message["transactionId"],
        "partitionId": message["partitionId"],
        "leaseId": message["leaseId"],
        "status": status,
    })
}

/// A value with one field set.
pub fn at(mut value: Value, key: &str, field: impl Into<Value>) -> Value {
    value[key] = field.into();
    value
}

/// `x1`, `x2`, … up to `count`, for the prefix `x`.
pub fn ids(prefix: &str, count: usize) -> Vec<String> {
    (1..=count).map(|n| format!("{prefix}{n}")).collect()
}

/// A name as one segment of a path: everything but letters and digits is escaped, so `.` and `..` stay names.
pub fn encode(name: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    name.bytes().map(escape).collect()
}

/// Microseconds since the world began of a time on the wire, with three decimals or six.
#[track_caller]
pub fn micros(time: &Value) -> i64 {
    let text = time.as_str().unwrap_or_else(|| panic!("not a time: {time}"));
    let parse = || {
        let rest = text.strip_prefix("2026-01-")?.strip_suffix('Z')?;
        let (day, rest) = rest.split_once('T')?;
        let (clock, fraction) = rest.split_once('.')?;
        let mut parts = clock.split(':').map(|part| part.parse::<i64>().ok());
        let (hours, minutes, seconds) = (parts.next()??, parts.next()??, parts.next()??);
        let scale = match fraction.len() {
            3 => 1_000,
            6 => 1,
            _ => return None,
        };
        let days = day.parse::<i64>().ok()? - 1;
        let seconds = ((days * 24 + hours) * 60 + minutes) * 60 + seconds;
        Some(seconds * 1_000_000 + fraction.parse::<i64>().ok()? * scale)
    };
    parse().unwrap_or_else(|| panic!("not a time of January 2026 in UTC: {text}"))
}

impl World {
    /// One call over a kept-alive connection of its own. Dropped before it ends, it hangs up.
    pub async fn call(&self, method: Method, path: &str, body: impl Into<Bytes>) -> Answer {
        let (start, mut client) = self.idle_client().await;
        let described = format!("{method} {path}");
        let answer = client.try_call_with(method, path, &self.headers, body).await;
        let answer = answer.unwrap_or_else(|error| panic!("{described}: {error}"));
        self.give_back(start, client);
        answer
    }

    /// A GET.
    pub async fn get(&self, path: &str) -> Answer {
        self.call(Method::GET, path, "").await
    }

    /// A DELETE.
    pub async fn delete(&self, path: &str) -> Answer {
        self.call(Method::DELETE, path, "").await
    }

    /// A POST of JSON.
    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.call(Method::POST, path, body.to_string()).await
    }

    /// A POST of text as it is.
    pub async fn post_text(&self, path: &str, body: &str) -> Answer {
        self.call(Method::POST, path, body.to_owned()).await
    }

    /// A push of these items.
    pub async fn push(&self, items: Value) -> Answer {
        self.post("/api/v1/push", json!({ "items": items })).await
    }

    /// The statuses of a push of these transaction ids to partition `Default`; each payload is its id.
    pub async fn push_ids(&self, queue: &str, ids: &[impl AsRef<str>]) -> Vec<String> {
        self.push_ids_to(queue, "Default", ids).await
    }

    /// As `push_ids`, to a partition.
    pub async fn push_ids_to(&self, queue: &str, partition: &str, ids: &[impl AsRef<str>]) -> Vec<String> {
        let item = |id: &str| json!({"queue": queue, "partition": partition, "transactionId": id, "payload": id});
        let items: Vec<Value> = ids.iter().map(|id| item(id.as_ref())).collect();
        let results = self.push(items.into()).await.expect(201).list();
        results.iter().map(|result| result["status"].as_str().expect("a status").to_owned()).collect()
    }

    /// Pushes ids that are all new to partition `Default`.
    pub async fn put(&self, queue: &str, ids: &[impl AsRef<str>]) {
        self.put_in(queue, "Default", ids).await;
    }

    /// Pushes ids that are all new to a partition.
    pub async fn put_in(&self, queue: &str, partition: &str, ids: &[impl AsRef<str>]) {
        let statuses = self.push_ids_to(queue, partition, ids).await;
        assert!(statuses.iter().all(|status| status == "queued"), "{statuses:?}");
    }

    /// A pop from any partition of a queue.
    pub async fn pop(&self, queue: &str, query: &str) -> Batch {
        Batch::of(&self.get(&format!("/api/v1/pop/queue/{}?{query}", encode(queue))).await)
    }

    /// A pop from one partition.
    pub async fn pop_partition(&self, queue: &str, partition: &str, query: &str) -> Batch {
        let (queue, partition) = (encode(queue), encode(partition));
        Batch::of(&self.get(&format!("/api/v1/pop/queue/{queue}/partition/{partition}?{query}")).await)
    }

    /// A pop by labels.
    pub async fn discover(&self, query: &str) -> Batch {
        Batch::of(&self.get(&format!("/api/v1/pop?{query}")).await)
    }

    /// A single ack of a delivered message, for the group it was delivered to.
    pub async fn ack(&self, message: &Value, status: &str) -> Value {
        self.ack_item(at(item(message, status), "consumerGroup", message["consumerGroup"].clone())).await
    }

    /// A single ack, spelled out.
    pub async fn ack_item(&self, item: Value) -> Value {
        let mut results = self.post("/api/v1/ack", item).await.expect(200).list();
        assert_eq!(results.len(), 1, "{results:?}");
        results.remove(0)
    }

    /// A batch of acks in one call.
    pub async fn ack_batch(&self, group: &str, items: impl Into<Value>) -> Vec<Value> {
        let body = json!({"consumerGroup": group, "acknowledgments": items.into()});
        self.post("/api/v1/ack/batch", body).await.expect(200).list()
    }

    /// Configures a queue; gives the resolved options.
    pub async fn configure(&self, queue: &str, options: Value) -> Value {
        let body = json!({"queue": queue, "options": options});
        self.post("/api/v1/configure", body).await.expect(200).json()["options"].clone()
    }

    /// Configures a queue that has labels.
    pub async fn label(&self, queue: &str, namespace: &str, task: &str) {
        self.configure(queue, json!({"namespace": namespace, "task": task})).await;
    }

    /// Everything about a queue that exists.
    pub async fn queue(&self, queue: &str) -> Value {
        self.get(&format!("/api/v1/resources/queues/{}", encode(queue))).await.expect(200).json()
    }

    /// The names of all queues, sorted.
    pub async fn queue_names(&self) -> Vec<String> {
        let body = self.get("/api/v1/resources/queues").await.expect(200).json();
        let rows = body["queues"].as_array().expect("an array");
        let mut names: Vec<String> = rows.iter().map(|row| row["name"].as_str().expect("a name").to_owned()).collect();
        names.sort();
        names
    }

    /// The dead letters of a queue, newest failure first.
    pub async fn dead_letters(&self, queue: &str) -> Vec<Value> {
        let body = self.get(&format!("/api/v1/dlq?queue={}", encode(queue))).await.expect(200).json();
        body["messages"].as_array().expect("an array").clone()
    }

    /// One message by its address.
    pub async fn find(&self, partition_id: &str, transaction_id: &str) -> Answer {
        self.get(&format!("/api/v1/messages/{partition_id}/{}", encode(transaction_id))).await
    }

    /// Moves a group's cursors on a queue.
    pub async fn seek(&self, group: &str, queue: &str, body: Value) -> Answer {
        self.post(&format!("/api/v1/consumer-groups/{}/queues/{}/seek", encode(group), encode(queue)), body).await
    }

    /// Where a group stands: its detail by queue.
    pub async fn group(&self, group: &str) -> Value {
        self.get(&format!("/api/v1/consumer-groups/{}", encode(group))).await.expect(200).json()
    }
}

/// Asserts that an item of an ack was accepted.
#[track_caller]
pub fn accepted(result: &Value) {
    assert_eq!(result["success"], true, "{result}");
    assert_eq!(result["error"], Value::Null, "{result}");
}

/// Asserts that an item of an ack was refused, with a text that says why.
#[track_caller]
pub fn refused(result: &Value, why: &str) {
    assert_eq!(result["success"], false, "{result}");
    let error = result["error"].as_str().unwrap_or_else(|| panic!("no error in {result}"));
    assert!(error.contains(why), "{error:?} does not say {why:?}");
}
