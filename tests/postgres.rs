//! What is there only over Postgres: options in columns, changed by a function, and a database that cannot write.

#[path = "common/binary.rs"]
mod binary;

use std::time::{Duration, Instant};

use binary::Broker;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tidegate_store_postgres::fixture::Cluster;

/// A broker over a database of its own, and a way to both.
struct World {
    broker: Broker,
    database: String,
    http: Client<HttpConnector, Full<Bytes>>,
}

impl World {
    fn start(environment: &[(&str, &str)]) -> Self {
        let url = Cluster::shared().database();
        let database = url.split('?').next().and_then(|url| url.rsplit('/').next()).expect("a database").to_owned();
        let broker = Broker::start_with(&["--store", &url], environment);
        World { broker, database, http: Client::builder(TokioExecutor::new()).build_http() }
    }

    fn sql(&self, statement: &str) -> String {
        Cluster::shared().sql(&self.database, statement).trim().to_owned()
    }

    async fn call(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let request = Request::builder().method(method).uri(format!("{}{path}", self.broker.url()));
        let answer = self.http.request(request.body(Full::new(body)).expect("a request")).await.expect("an answer");
        let status = answer.status().as_u16();
        let text = answer.into_body().collect().await.expect("a body").to_bytes();
        (status, serde_json::from_slice(&text).unwrap_or(Value::Null))
    }

    async fn push(&self, queue: &str, id: &str) -> (u16, Value) {
        let items = json!([{ "queue": queue, "payload": { "id": id }, "transactionId": id }]);
        self.call("POST", "/api/v1/push", Some(json!({ "items": items }))).await
    }

    async fn pop(&self, queue: &str, wait_ms: u32) -> Vec<String> {
        let path = format!("/api/v1/pop/queue/{queue}?autoAck=true&batch=10&wait={}&timeout={wait_ms}", wait_ms > 0);
        match self.call("GET", &path, None).await {
            (200, body) => body["messages"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|message| message["transactionId"].as_str().expect("an id").to_owned())
                .collect(),
            (204, _) => vec![],
            other => panic!("{other:?}"),
        }
    }
}

const OPTIONS: &str = "namespace, task, lease_time, retry_limit, retry_delay, priority, max_size, ttl, dead_letter_queue, \
    dlq_after_max_retries, delayed_processing, window_buffer, retention_enabled, retention_seconds, \
    completed_retention_seconds, max_wait_time_seconds, min_pop_wait_time, encryption_enabled, dedup_window_seconds";

#[tokio::test]
async fn one_row_holds_every_option_resolved() {
    // req: CFG-7
    let world = World::start(&[]);
    assert_eq!(world.push("orders.eu.late", "1").await.0, 201);
    let row = |name: &str| world.sql(&format!("SELECT {OPTIONS} FROM queen.queues WHERE name = '{name}'"));
    assert_eq!(row("orders.eu.late"), "orders|eu|60|3|1000|0|0|3600|t|t|0|0|f|0|0|0|0|f|3600");
    let defaults = world.sql(
        "SELECT string_agg(column_default, '|' ORDER BY ordinal_position) FROM information_schema.columns \
         WHERE table_schema = 'queen' AND table_name = 'queues' AND column_name NOT IN ('ended', 'revision', 'created_at')",
    );
    assert_eq!(defaults, "''::text|''::text|60|3|1000|0|0|3600|true|true|0|0|false|0|0|0|0|false|3600");

    let options = json!({ "namespace": "n", "task": "t", "leaseTime": "7", "retryLimit": 1, "retryDelay": 2, "priority": -3,
        "maxSize": 4, "ttl": 5, "deadLetterQueue": false, "dlqAfterMaxRetries": "no", "delayedProcessing": 6,
        "windowBuffer": 8, "retentionEnabled": true, "retentionSeconds": 9, "completedRetentionSeconds": 10,
        "maxWaitTimeSeconds": 11, "minPopWaitTime": 99_999, "dedupWindowSeconds": 0 });
    for queue in ["orders.eu.late", "made.by.configure"] {
        let body = json!({ "queue": queue, "options": options });
        assert_eq!(world.call("POST", "/api/v1/configure", Some(body)).await.0, 200);
        assert_eq!(row(queue), "n|t|7|1|2|-3|4|5|f|f|6|8|t|9|10|11|60000|f|0");
        assert_eq!(world.call("POST", "/api/v1/configure", Some(json!({ "queue": queue }))).await.0, 200);
        assert_eq!(row(queue), "||300|3|1000|0|0|3600|t|t|0|0|f|0|0|0|0|f|3600", "what is left out is a default again");
    }
}

#[tokio::test]
async fn options_changed_in_the_database_hold_after_the_refresh() {
    // req: CFG-9, OPT-10
    let world = World::start(&[("QUEEN_CACHE_REFRESH_INTERVAL_MS", "100")]);
    let configure = json!({ "queue": "q", "options": { "delayedProcessing": 600 } });
    assert_eq!(world.call("POST", "/api/v1/configure", Some(configure)).await.0, 200);
    assert_eq!(world.push("q", "late").await.0, 201);
    assert_eq!(world.pop("q", 0).await, Vec::<String>::new());
    let begun = Instant::now();
    let (popped, ()) = tokio::join!(world.pop("q", 10_000), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        world.sql("SELECT queen.configure_queue_v1('q', '{\"leaseTime\": 9}')");
    });
    assert_eq!(popped, ["late"], "a parked pop sees the change too");
    assert!(begun.elapsed() < Duration::from_secs(5));
    // A later configure through the broker wins over it.
    let configure = json!({ "queue": "q", "options": { "delayedProcessing": 600 } });
    assert_eq!(world.call("POST", "/api/v1/configure", Some(configure)).await.0, 200);
    assert_eq!(world.push("q", "later").await.0, 201);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(world.pop("q", 0).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_queue_that_the_function_makes_is_the_brokers() {
    // req: CFG-7, CFG-9
    let world = World::start(&[]);
    world.sql("SELECT queen.configure_queue_v1('made', '{\"leaseTime\": 9, \"namespace\": \"n\"}')");
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let (status, body) = world.call("GET", "/api/v1/resources/queues", None).await;
        if status == 200 && body.to_string().contains("\"made\"") {
            break;
        }
        assert!(Instant::now() < deadline, "the queue does not appear: {body}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(world.push("made", "1").await.0, 201);
    assert_eq!(world.pop("made", 0).await, ["1"]);
    assert_eq!(world.sql("SELECT count(*) FROM queen.queues"), "1");
}

#[tokio::test]
async fn the_function_refuses_what_the_broker_refuses() {
    // req: CFG-7, CFG-10
    let world = World::start(&[]);
    let refused = |options: &str| {
        world.sql(&format!(
            "DO $$ BEGIN PERFORM queen.configure_queue_v1('q', '{options}'); RAISE EXCEPTION 'taken'; \
             EXCEPTION WHEN invalid_parameter_value THEN NULL; END $$; SELECT count(*) FROM queen.queues"
        ))
    };
    for options in [
        r#"{"leaseTime": -1}"#,
        r#"{"leaseTime": 1.5}"#,
        r#"{"leaseTime": 1e20}"#,
        r#"{"leaseTime": "x"}"#,
        r#"{"leaseTime": true}"#,
        r#"{"deadLetterQueue": 1}"#,
        r#"{"namespace": 1}"#,
        r#"{"leaseTimes": 1}"#,
    ] {
        assert!(refused(options).ends_with('0'), "{options}");
    }
    world.sql(r#"SELECT queen.configure_queue_v1('q', '{"minPopWaitTime": 1e9, "priority": -5, "leaseTime": null}')"#);
    assert_eq!(world.sql("SELECT min_pop_wait_time, priority, lease_time FROM queen.queues"), "60000|-5|300");
}

#[tokio::test]
async fn a_full_disk_refuses_pushes_and_nothing_needs_a_restart() {
    // scn: 34
    let world = World::start(&[]);
    assert_eq!(world.push("q", "1").await.0, 201);
    assert_eq!(world.push("q", "2").await.0, 201);
    // Postgres says what it says when a segment finds no room.
    world.sql(
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         RAISE EXCEPTION 'could not extend file \"base/1/2\": No space left on device' USING ERRCODE = 'disk_full'; END $$; \
         CREATE TRIGGER full_disk BEFORE INSERT ON queen.segments EXECUTE FUNCTION full_disk()",
    );
    for _ in 0..3 {
        let (status, body) = world.push("q", "3").await;
        assert_eq!(status, 503, "{body}");
        assert_eq!(body["code"], "store_unavailable", "{body}");
        assert!(body["error"].is_string(), "{body}");
    }
    let (status, popped) = world.call("GET", "/api/v1/pop/queue/q?batch=1", None).await;
    assert_eq!(status, 200, "pops go on: {popped}");
    let message = &popped["messages"][0];
    let ack = json!({ "transactionId": message["transactionId"], "partitionId": message["partitionId"],
        "leaseId": message["leaseId"], "status": "completed" });
    let (status, acked) = world.call("POST", "/api/v1/ack", Some(ack)).await;
    assert_eq!((status, &acked[0]["success"]), (200, &Value::Bool(true)), "acks go on: {acked}");
    world.sql("DROP TRIGGER full_disk ON queen.segments");
    let (status, body) = world.push("q", "3").await;
    assert_eq!((status, body[0]["status"].as_str()), (201, Some("queued")), "{body}");
    assert_eq!(world.pop("q", 0).await, ["2", "3"]);
}
