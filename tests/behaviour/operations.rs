//! What an operator sees and steers: messages, depth, dead letters of a queue, maintenance, status, traces, analytics.

use hyper::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::world::{World, accepted, encode, ids, item, took};

behaviour!(
    messages_are_listed_newest_first,
    messages_are_filtered_by_where_and_what_they_are,
    a_listing_goes_back_an_hour_and_survives_a_restart,
    depth_tells_what_waits_and_what_for,
    a_dead_letter_is_replayed_by_its_id,
    dead_letters_of_a_queue_are_purged,
    push_maintenance_refuses_pushes_and_nothing_else,
    pop_maintenance_answers_empty_at_once,
    an_overview_adds_everything_up,
    status_tells_of_queues,
    traces_are_written_and_found,
    traces_that_make_no_sense_are_refused,
    analytics_tell_of_each_minute,
    analytics_are_kept_for_a_while,
    metrics_tell_of_ages_sizes_and_queues,
    routes_of_later_versions_do_not_exist,
);

async fn listed(world: &World, query: &str) -> Vec<String> {
    let body = world.get(&format!("/api/v1/messages?{query}")).await.expect(200).json();
    let rows = body["messages"].as_array().expect("an array");
    assert_eq!(body["total"], rows.len(), "the length of the page");
    rows.iter().map(|row| row["transactionId"].as_str().expect("a text").to_owned()).collect()
}

async fn messages_are_listed_newest_first(world: World) {
    for (partition, id) in [("a", "1"), ("b", "2"), ("a", "3")] {
        world.put_in("q", partition, &[id]).await;
        world.sleep(1).await;
    }
    assert_eq!(listed(&world, "").await, ["3", "2", "1"]);
    assert_eq!(listed(&world, "limit=1&offset=1").await, ["2"]);
    assert_eq!(listed(&world, "limit=0").await, [""; 0]);
    assert_eq!(listed(&world, "offset=3").await, [""; 0]);
    assert_eq!(listed(&world, "limit=x&offset=y").await.len(), 3, "what does not parse is the default");
    let popped = world.pop_partition("q", "b", "").await;
    world.pop_partition("q", "b", "consumerGroup=g&autoAck=true").await;
    let body = world.get("/api/v1/messages?partition=b").await.expect(200).json();
    assert_eq!(body["mode"], json!({"hasQueueMode": true, "busGroupsCount": 1, "type": "hybrid"}));
    let row = &body["messages"][0];
    let keys: Vec<&String> = row.as_object().expect("an object").keys().collect();
    let expected = [
        "busStatus",
        "createdAt",
        "data",
        "id",
        "isEncrypted",
        "leaseExpiresAt",
        "namespace",
        "partition",
        "partitionId",
        "payload",
        "payloadAvailable",
        "producerSub",
        "queue",
        "queuePath",
        "queuePriority",
        "queueStatus",
        "segment",
        "status",
        "task",
        "traceId",
        "transactionId",
        "txnHash",
    ];
    assert_eq!(keys, expected);
    assert_eq!((&row["status"], &row["queuePath"], &row["data"]), (&json!("processing"), &json!("q/b"), &json!("2")));
    assert_eq!(row["busStatus"], json!({"consumedBy": 1, "totalGroups": 1}));
    assert_eq!(row["partitionId"], popped.body["partitionId"]);
    assert_eq!(row["txnHash"].as_str().map(str::len), Some(32));
    assert!(row["leaseExpiresAt"].is_string());
}

async fn messages_are_filtered_by_where_and_what_they_are(world: World) {
    world.configure("q", json!({"namespace": "n", "task": "t"})).await;
    world.put("q", &ids("x", 4)).await;
    world.put("r", &["y"]).await;
    let popped = world.pop("q", "batch=3").await;
    accepted(&world.ack(popped.message("x1"), "completed").await);
    accepted(&world.ack(popped.message("x2"), "dlq").await);
    world.pop("q", "batch=1").await;
    let cases: [(&str, &[&str]); 13] = [
        ("queue=q", &["x4", "x3", "x2", "x1"]),
        ("queue=r", &["y"]),
        ("queue=nope", &[]),
        ("partition=Default&queue=r", &["y"]),
        ("partition=nope", &[]),
        ("namespace=n", &["x4", "x3", "x2", "x1"]),
        ("ns=n&task=t", &["x4", "x3", "x2", "x1"]),
        ("task=nope", &[]),
        ("queue=q&status=completed", &["x1"]),
        ("queue=q&status=dead_letter", &["x2"]),
        ("queue=q&status=processing", &["x3"]),
        ("queue=q&status=pending", &["x4"]),
        ("queue=&status=", &["y", "x4", "x3", "x2", "x1"]),
    ];
    for (query, expected) in cases {
        assert_eq!(listed(&world, query).await, expected, "{query}");
    }
    let unknown = world.get("/api/v1/messages?status=done").await.error(400);
    assert!(unknown.contains("status must be one of pending, processing, completed, dead_letter"), "{unknown}");
    let wrong = world.get("/api/v1/messages?from=yesterday").await.error(500);
    assert!(wrong.starts_with("list failed: from must be a timestamp"), "{wrong}");
    assert!(world.get("/api/v1/messages?queue=%00").await.error(400).contains("queue"));
}

async fn a_listing_goes_back_an_hour_and_survives_a_restart(world: World) {
    world.put("q", &["old"]).await;
    world.sleep(3_000).await;
    world.put("q", &["new"]).await;
    world.restart().await;
    assert_eq!(listed(&world, "").await, ["new", "old"]);
    world.sleep(601).await;
    assert_eq!(listed(&world, "").await, ["new"]);
    assert_eq!(listed(&world, "from=2026-01-01T00:00:00Z").await, ["new", "old"]);
    // `to` means all of its minute.
    assert_eq!(listed(&world, "from=2026-01-01T00:00:00Z&to=2026-01-01T00:00:00Z").await, ["old"]);
    assert_eq!(listed(&world, "from=2026-01-01T00:00:00Z&to=2025-12-31T23:59:59Z").await, [""; 0]);
}

async fn depth(world: &World, queue: &str) -> Value {
    world.get(&format!("/api/v1/resources/queues/{}/depth", encode(queue))).await.expect(200).json()
}

async fn depth_tells_what_waits_and_what_for(world: World) {
    world.configure("q/1", json!({"delayedProcessing": 10})).await;
    let empty = json!({"queue": "q/1", "total": 0, "delayed": 0, "dead": 0, "oldestAgeSeconds": null, "groups": []});
    assert_eq!(depth(&world, "q/1").await, empty);
    world.put("q/1", &ids("x", 5)).await;
    world.sleep(20).await;
    let popped = world.pop("q/1", "consumerGroup=g&batch=3").await;
    accepted(&world.ack_batch("g", vec![item(popped.message("x1"), "dlq")]).await[0]);
    world.pop("q/1", "consumerGroup=g&batch=2").await;
    world.put("q/1", &["y"]).await;
    world.sleep(5).await;
    let expected = json!({
        "queue": "q/1", "total": 6, "delayed": 1, "dead": 1, "oldestAgeSeconds": 25,
        "groups": [{"group": "g", "pending": 2, "leased": 2, "delayed": 1, "dead": 1, "oldestAgeSeconds": 25}],
    });
    assert_eq!(depth(&world, "q/1").await, expected);
    world.restart().await;
    assert_eq!(depth(&world, "q/1").await, expected);
    world.sleep(6).await;
    let group = depth(&world, "q/1").await["groups"][0].clone();
    assert_eq!((&group["pending"], &group["delayed"]), (&json!(3), &json!(0)));
    for query in ["group=g", "consumerGroup=g"] {
        let rows = world.get(&format!("/api/v1/resources/queues/q%2F1/depth?{query}")).await.expect(200).json();
        assert_eq!(rows["groups"][0], group, "{query}");
    }
    let of_nobody = world.get("/api/v1/resources/queues/q%2F1/depth?group=h").await.expect(200).json();
    assert_eq!(of_nobody["groups"], json!([]));
    assert_eq!(world.get("/api/v1/resources/queues/nope/depth").await.error(404), "Queue not found");
}

/// Dead-letters messages of a queue for a group.
async fn bury(world: &World, queue: &str, group: &str, ids: &[&str]) {
    for id in ids {
        world.put(queue, &[id]).await;
        let popped = world.pop(queue, &format!("consumerGroup={group}&subscriptionMode=all")).await;
        accepted(&world.ack(popped.message(id), "dlq").await);
    }
}

async fn a_dead_letter_is_replayed_by_its_id(world: World) {
    bury(&world, "q", "g", &["a", "b"]).await;
    let rows = world.dead_letters("q").await;
    let id = rows[1]["id"].as_str().expect("an id");
    assert_eq!(rows[1]["transactionId"], "a");
    let path = format!("/api/v1/dlq/{id}/replay");
    let elsewhere = world.post(&path, json!({"queue": "r"})).await.error(400);
    assert!(elsewhere.contains("queue: a dead letter goes back to its own queue"), "{elsewhere}");
    assert!(world.post_text(&path, "[").await.error(400).starts_with("bad body"));
    let moved = world.post_text(&path, "").await.expect(200).json();
    assert_eq!(
        (&moved["success"], &moved["queue"], &moved["partition"]),
        (&json!(true), &json!("q"), &json!("Default"))
    );
    assert_eq!(moved["replayedAs"]["status"], "queued");
    assert_eq!(world.pop("q", "consumerGroup=g").await.messages()[0]["data"], "a");
    assert_eq!(world.dead_letters("q").await.len(), 1);
    assert_eq!(world.post(&path, json!({"queue": null})).await.error(404), "Dead letter not found");
    assert!(world.post_text("/api/v1/dlq/x/replay", "").await.error(400).contains("path segment id must be a UUID"));
}

async fn dead_letters_of_a_queue_are_purged(world: World) {
    bury(&world, "q", "g", &["a", "b"]).await;
    world.pop("q", "consumerGroup=h&autoAck=true").await;
    bury(&world, "q", "h", &["c"]).await;
    bury(&world, "r", "g", &["d"]).await;
    assert_eq!(world.delete("/api/v1/dlq").await.error(400), "queue is required");
    assert_eq!(world.delete("/api/v1/dlq?queue=").await.error(400), "queue is required");
    let purged = world.delete("/api/v1/dlq?queue=q&consumerGroup=g").await.expect(200).json();
    assert_eq!(purged, json!({"success": true, "queue": "q", "consumerGroup": "g", "deleted": 2}));
    assert_eq!((world.dead_letters("q").await.len(), world.dead_letters("r").await.len()), (1, 1));
    let purged = world.delete("/api/v1/dlq?queue=q").await.expect(200).json();
    assert_eq!(purged, json!({"success": true, "queue": "q", "consumerGroup": null, "deleted": 1}));
    world.restart().await;
    assert_eq!((world.dead_letters("q").await.len(), world.dead_letters("r").await.len()), (0, 1));
    assert_eq!(world.delete("/api/v1/dlq?queue=nope").await.expect(200).json()["deleted"], 0);
}

// check: 9
async fn push_maintenance_refuses_pushes_and_nothing_else(world: World) {
    world.put("q", &["x"]).await;
    let path = "/api/v1/system/maintenance";
    for (body, error) in
        [("{}", "enabled (boolean) is required"), (r#"{"enabled":null}"#, "enabled (boolean) is required")]
    {
        assert_eq!(world.post_text(path, body).await.error(400), error);
    }
    for body in ["", "x", "[]", r#"{"enabled":"true"}"#, r#"{"enabled":1}"#] {
        assert!(world.post_text(path, body).await.error(400).starts_with("bad body"), "{body}");
    }
    let on = world.post(path, json!({"enabled": true})).await.expect(200).json();
    let message = "Maintenance mode ENABLED. All PUSHes are refused with 503.";
    let expected = json!({"maintenanceMode": true, "bufferedMessages": 0, "bufferHealthy": true, "message": message});
    assert_eq!(on, expected);
    let both = world.get(path).await.expect(200).json();
    assert_eq!((&both["maintenanceMode"], &both["popMaintenanceMode"]), (&json!(true), &json!(false)));
    let refused = world.push(json!([{"queue": "q", "payload": 1}])).await;
    assert_eq!(refused.error(503), "push maintenance is on; nothing was stored");
    assert_eq!((&refused.json()["code"], refused.header("retry-after")), (&json!("maintenance"), Some("1")));
    // Everything else goes on.
    let popped = world.pop("q", "").await;
    accepted(&world.ack(popped.message("x"), "completed").await);
    assert!(world.get("/metrics/prometheus").await.text().contains("\nqueen_maintenance_mode_enabled 1\n"));
    world.post(path, json!({"enabled": false})).await.expect(200);
    world.put("q", &["y"]).await;
    assert_eq!(world.pop("q", "").await.ids(), ["y"]);
}

// check: 22
async fn pop_maintenance_answers_empty_at_once(world: World) {
    world.put("other", &["x"]).await;
    let parked = {
        let world = world.clone();
        tokio::spawn(async move { world.pop("q", "wait=true&timeout=60000").await })
    };
    world.sleep(1).await;
    let begun = Instant::now();
    let path = "/api/v1/system/maintenance/pop";
    let on = world.post(path, json!({"enabled": true})).await.expect(200).json();
    assert_eq!(on["message"], "Pop maintenance mode ENABLED. All POP operations will return empty arrays.");
    assert!(parked.await.expect("no panic").is_empty(), "the parked one too");
    assert!(world.pop("other", "wait=true&timeout=60000").await.is_empty());
    took(begun, 0);
    let now = world.get(path).await.expect(200).json();
    assert_eq!(
        (&now["popMaintenanceMode"], &now["message"]),
        (&json!(true), &json!("Pop maintenance mode is ON. All POP operations return empty arrays."))
    );
    let shared = world.get("/api/v1/system/shared-state").await.expect(200).json();
    let expected = json!({
        "enabled": false, "reason": "single_node_segments_broker", "maintenance_mode": false, "pop_maintenance_mode": true,
    });
    assert_eq!(shared, expected);
    world.post(path, json!({"enabled": false})).await.expect(200);
    assert_eq!(world.pop("other", "").await.ids(), ["x"]);
}

async fn an_overview_adds_everything_up(world: World) {
    world.put("a.b", &ids("x", 3)).await;
    world.put("c", &ids("y", 2)).await;
    let popped = world.pop("a.b", "batch=1").await;
    accepted(&world.ack(popped.message("x1"), "completed").await);
    world.sleep(120).await;
    let overview = world.get("/api/v1/resources/overview").await.expect(200).json();
    assert_eq!((&overview["queues"], &overview["partitions"]), (&json!(2), &json!(2)));
    assert_eq!((&overview["namespaces"], &overview["tasks"]), (&json!(2), &json!(1)));
    let messages = json!({"total": 5, "pending": 4, "processing": 0, "completed": 1, "failed": null, "deadLetter": 0});
    assert_eq!(overview["messages"], messages);
    assert_eq!(overview["lag"]["offset"], json!({"avg": 2.0, "median": 2.0, "min": 2, "max": 2}));
    assert_eq!(overview["lag"]["time"]["max"], 120);
    let throughput = json!({"ingestedPerSecond": 5.0 / 300.0, "processedPerSecond": 1.0 / 300.0});
    assert_eq!(overview["throughput"], throughput);
    let refreshed = world.post("/api/v1/stats/refresh", json!({})).await.expect(200).json();
    assert_eq!((&refreshed["engine"], &refreshed["queuesUpdated"]), (&json!("segments"), &json!(2)));
}

async fn status_tells_of_queues(world: World) {
    world.configure("q", json!({"namespace": "n", "priority": 3, "maxSize": 9})).await;
    world.put("q", &ids("x", 2)).await;
    world.put("r", &["y"]).await;
    let popped = world.pop("q", "batch=1").await;
    accepted(&world.ack(popped.message("x1"), "completed").await);
    world.pop("q", "").await;
    world.sleep(60).await;
    let status = world.get("/api/v1/status").await.expect(200).json();
    assert_eq!((&status["bucketMinutes"], &status["pointCount"]), (&json!(1), &json!(1)));
    assert_eq!((&status["queues"], &status["messages"]["total"]), (&json!({"total": 2}), &json!(3)));
    assert_eq!(status["leases"], json!({"active": 1, "partitionsWithLeases": 1}));
    assert_eq!(status["throughput"][0]["ingested"], 3);
    for key in ["queues", "messages", "leases", "deadLetterQueue", "errors"] {
        assert!(status[key].is_object(), "{key}");
    }
    let of_one =
        world.get("/api/v1/status?namespace=n&from=2026-01-01&to=2026-01-02T00:00:00Z").await.expect(200).json();
    assert_eq!((&of_one["bucketMinutes"], &of_one["throughput"][0]["ingested"]), (&json!(15), &json!(2)));
    assert!(world.get("/api/v1/status?from=x").await.error(400).contains("query parameter from must be a timestamp"));

    let list = world.get("/api/v1/status/queues?limit=1&offset=1").await.expect(200).json();
    assert_eq!(list["pagination"], json!({"limit": 1, "offset": 1}));
    assert_eq!(list["queues"].as_array().map(Vec::len), Some(1));
    let of_namespace = world.get("/api/v1/status/queues?namespace=n").await.expect(200).json();
    assert_eq!((&of_namespace["queues"][0]["name"], &of_namespace["queues"][1]), (&json!("q"), &Value::Null));

    let detail = world.get("/api/v1/status/queues/q").await.expect(200).json();
    assert_eq!((&detail["queue"]["priority"], &detail["queue"]["config"]["maxQueueSize"]), (&json!(3), &json!(9)));
    let partition = &detail["partitions"][0];
    assert_eq!(partition["cursor"], json!({"totalConsumed": 1, "batchesConsumed": 0}));
    assert_eq!(partition["messages"]["failed"], Value::Null);
    assert_eq!(detail["totals"]["messages"]["total"], 2);
    assert_eq!(world.get("/api/v1/status/queues/nope").await.error(404), "Queue not found");

    let analytics = world.get("/api/v1/status/analytics?interval=minute").await.expect(200).json();
    assert_eq!((&analytics["interval"], &analytics["dataPoints"][0]["messages"]), (&json!("minute"), &json!(3)));
    assert_eq!(world.get("/api/v1/status/analytics?interval=x").await.expect(200).json()["interval"], "hour");
    let buffers = world.get("/api/v1/status/buffers").await.expect(200).json();
    assert_eq!(buffers, json!({"pending": 0, "failed": 0, "dbHealthy": true, "worker": 0}));
    assert_eq!(
        world.post("/internal/api/notify", json!({"queue": "q"})).await.expect(200).json(),
        json!({"status": "ok"})
    );
    assert_eq!(world.post("/internal/api/notify", json!({})).await.error(400), "queue is required");
    for path in ["/internal/api/shared-state/stats", "/internal/api/inter-instance/stats"] {
        assert_eq!(world.get(path).await.expect(200).json()["enabled"], false, "{path}");
    }
}

async fn trace(world: &World, fields: Value) -> Value {
    world.post("/api/v1/traces", fields).await.expect(201).json()
}

async fn traces_are_written_and_found(world: World) {
    world.put("q", &["a/b"]).await;
    let partition = world.pop("q", "").await.partition_id().to_owned();
    let data = r#"{"b": 1.0, "a":"\u0000"}"#;
    let body = format!(
        r#"{{"transactionId":"a/b","partitionId":"{partition}","data":{data},"consumerGroup":"g","eventType":"step","traceNames":["t","s","t"]}}"#
    );
    let written = world.post_text("/api/v1/traces", &body).await.expect(201).json();
    assert_eq!((&written["success"], written["traceId"].as_str().map(str::len)), (&json!(true), Some(36)));
    world.sleep(1).await;
    trace(&world, json!({"transactionId": "ghost", "partitionId": partition, "data": null, "traceNames": "t"})).await;
    // They survive a restart, and their queue.
    world.restart().await;
    world.delete("/api/v1/resources/queues/q").await.expect(200);
    let answer = world.get(&format!("/api/v1/traces/{partition}/a%2Fb")).await.expect(200);
    assert!(answer.text().contains(&format!("\"data\":{data},")), "byte for byte: {}", answer.text());
    let row = answer.json()["traces"][0].clone();
    assert_eq!((&row["event_type"], &row["consumer_group"]), (&json!("step"), &json!("g")));
    assert_eq!((&row["worker_id"], &row["trace_names"]), (&json!("seg-rust"), &json!(["s", "t"])));
    assert_eq!(row["created_at"].as_str().map(str::len), Some("2026-01-01T00:00:00.000000Z".len()));

    let named = world.get("/api/v1/traces/by-name/t?limit=1").await.expect(200).json();
    assert_eq!((&named["total"], &named["pagination"]), (&json!(2), &json!({"limit": 1, "offset": 0})));
    let row = &named["traces"][0];
    assert_eq!((&row["transaction_id"], &row["partition_id"]), (&json!("ghost"), &json!(partition)));
    assert_eq!((&row["queue_name"], &row["partition_name"]), (&json!("q"), &json!("Default")));
    assert_eq!(
        (&row["event_type"], &row["message_payload"], &row["data"]),
        (&json!("info"), &Value::Null, &Value::Null)
    );

    let names = world.get("/api/v1/traces/names").await.expect(200).json();
    assert_eq!(names["pagination"], json!({"limit": 50, "offset": 0}));
    let row = &names["trace_names"][0];
    assert_eq!((&row["trace_name"], &row["trace_count"], &row["message_count"]), (&json!("t"), &json!(2), &json!(2)));
    assert_eq!((&names["total"], &names["trace_names"][1]["trace_name"]), (&json!(2), &json!("s")));
    assert_eq!(world.get(&format!("/api/v1/traces/{partition}/nope")).await.expect(200).json(), json!({"traces": []}));
    let unknown = "/api/v1/traces/00000000-0000-4000-8000-000000000001/x";
    assert_eq!(world.get(unknown).await.expect(200).json(), json!({"traces": []}));
}

async fn traces_that_make_no_sense_are_refused(world: World) {
    world.put("q", &["x"]).await;
    let partition = world.pop("q", "").await.partition_id().to_owned();
    let good = json!({"transactionId": "x", "partitionId": partition, "data": 1});
    let with = |key: &str, value: Value| {
        let mut body = good.clone();
        body[key] = value;
        body
    };
    let long = "x".repeat(1_025);
    let many: Vec<String> = ids("n", 101);
    let cases = [
        (json!({}), 400, "transactionId and partitionId are required"),
        (with("transactionId", json!("")), 400, "transactionId and partitionId are required"),
        (with("partitionId", Value::Null), 400, "transactionId and partitionId are required"),
        (json!({"transactionId": "x", "partitionId": partition}), 400, "data is required"),
        (with("transactionId", json!(5)), 400, "bad body: transactionId"),
        (with("consumerGroup", json!([])), 400, "bad body: consumerGroup"),
        (with("consumerGroup", json!("a\u{0}")), 400, "consumerGroup contains U+0000"),
        (with("eventType", json!(long)), 400, "eventType is 1025 bytes long"),
        (with("traceNames", json!(5)), 400, "traceNames must be a string or an array of strings"),
        (with("traceNames", json!(["a", 5])), 400, "traceNames must be a string or an array of strings"),
        (with("traceNames", json!(["a\u{0}"])), 400, "traceNames contains U+0000"),
        (with("traceNames", json!(many)), 400, "traceNames has 101 names, at most 100"),
        (with("partitionId", json!("x")), 500, "trace failed: invalid input syntax for type uuid"),
        (with("partitionId", json!("00000000-0000-4000-8000-000000000001")), 404, "Partition not found"),
    ];
    for (body, status, expected) in cases {
        let error = world.post("/api/v1/traces", body.clone()).await.error(status);
        assert!(error.contains(expected), "{body}: {error}");
    }
    let none = world.get("/api/v1/traces/names").await.expect(200).json();
    assert_eq!((&none["total"], &none["trace_names"]), (&json!(0), &json!([])));
    assert!(world.get("/api/v1/traces/x/y").await.error(400).contains("partitionId"));
    assert!(world.get("/api/v1/traces/by-name/%00").await.error(400).contains("name"));
}

async fn analytics_tell_of_each_minute(world: World) {
    world.put("q", &ids("x", 3)).await;
    world.sleep(2).await;
    let popped = world.pop("q", "batch=2").await;
    accepted(&world.ack(popped.message("x1"), "completed").await);
    world.pop("r", "").await;
    world.sleep(60).await;
    world.put("q", &["y"]).await;
    world.sleep(60).await;
    // What was written down outlives its owner.
    world.restart().await;
    let lag = world.get("/api/v1/analytics/queue-lag?queue=q").await.expect(200).list();
    let rows: Vec<_> = lag.iter().map(|row| (&row["popCount"], &row["bucketTime"])).collect();
    let times = [json!("2026-01-01T00:01:00.000Z"), json!("2026-01-01T00:00:00.000Z")];
    assert_eq!(rows, [(&json!(0), &times[0]), (&json!(2), &times[1])]);
    assert_eq!(lag[0]["avgLagMs"], Value::Null, "without a pop there is no lag");
    // Commit times may be a microsecond ahead.
    assert!(lag[1]["avgLagMs"].as_u64().is_some_and(|lag| (1_999..=2_002).contains(&lag)), "{lag:?}");

    let ops = world.get("/api/v1/analytics/queue-ops").await.expect(200).json();
    assert_eq!((&ops["queues"], &ops["bucketMinutes"]), (&json!(["q", "r"]), &json!(1)));
    let first = &ops["series"][0];
    assert_eq!(
        (&first["queueName"], &first["pushMessages"], &first["popMessages"]),
        (&json!("q"), &json!(3), &json!(2))
    );
    assert_eq!(
        (&first["ackSuccess"], &first["partitionCount"], &first["partitionsCreated"]),
        (&json!(1), &json!(1), &json!(1))
    );
    assert_eq!((&ops["series"][1]["queueName"], &ops["series"][1]["popEmpty"]), (&json!("r"), &json!(1)));
    let hours = world.get("/api/v1/analytics/queue-ops?queue=q&from=2026-01-01&to=2026-01-09").await.expect(200).json();
    assert_eq!((&hours["bucketMinutes"], &hours["series"][0]["pushMessages"]), (&json!(360), &json!(4)));

    let worker = world.get("/api/v1/analytics/worker-metrics").await.expect(200).json();
    assert_eq!((&worker["summary"]["pushMessages"], &worker["pointCount"]), (&json!(4), &json!(2)));
    let retention = world.get("/api/v1/analytics/retention").await.expect(200).json();
    assert_eq!((&retention["series"], &retention["totals"]["totalMsgs"]), (&json!([]), &json!(0)));
    let parked = world.get("/api/v1/analytics/queue-parked-replicas").await.expect(200).json();
    assert_eq!((&parked["series"], &parked["replicas"][0]["workerId"]), (&json!([]), &json!(0)));
    let system = world.get("/api/v1/analytics/system-metrics").await.expect(200).json();
    let metrics = &system["replicas"][0]["timeSeries"][0]["metrics"];
    assert!(metrics["memory"]["rss_bytes"]["last"].as_f64().is_some_and(|bytes| bytes > 0.0), "{metrics}");
    let postgres = world.get("/api/v1/analytics/postgres-stats").await.expect(200).json();
    assert_eq!((&postgres["tableSizes"], postgres["database"].is_object()), (&json!([]), true));
    assert!(world.get("/api/v1/analytics/queue-ops?to=x").await.error(400).contains("query parameter to"));
}

async fn analytics_are_kept_for_a_while(world: World) {
    world.restart_with(|settings| settings.history_age = tidegate_core::time::Span::from_secs(180)).await;
    for n in 0..6 {
        world.put("q", &[format!("x{n}")]).await;
        world.sleep(60).await;
    }
    let lag = world.get("/api/v1/analytics/queue-ops").await.expect(200).json();
    let kept = lag["series"].as_array().expect("an array").len();
    assert!((3..=4).contains(&kept), "{kept} minutes");
}

async fn metrics_tell_of_ages_sizes_and_queues(world: World) {
    world.put("q\"1", &ids("x", 2)).await;
    world.sleep(2).await;
    let popped = world.pop("q\"1", "").await;
    let mut late = item(popped.message("x1"), "completed");
    late["leaseId"] = json!("00000000-0000-7000-8000-000000000001");
    world.ack_batch("__QUEUE_MODE__", vec![late]).await;
    world.sleep(60).await;
    let text = world.get("/metrics/prometheus").await.text().to_owned();
    for line in [
        "tidegate_delivery_age_seconds_bucket{le=\"1\"} 0",
        "tidegate_delivery_age_seconds_bucket{le=\"5\"} 2",
        "tidegate_delivery_age_seconds_count 2",
        "tidegate_request_seconds_count{op=\"push\"} 1",
        "tidegate_request_seconds_count{op=\"pop\"} 1",
        "tidegate_request_seconds_count{op=\"ack\"} 1",
        "tidegate_acks_refused_total 1",
        "queen_queue_push_messages_per_minute{queue=\"q\\\"1\"} 2",
        "queen_queue_ack_per_minute{queue=\"q\\\"1\",result=\"failed\"} 1",
        "queen_db_pool_size 0",
    ] {
        assert!(text.lines().any(|printed| printed == line), "{line} is not in\n{text}");
    }
    assert!(text.contains("# TYPE tidegate_commit_writes histogram\n"));
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').expect("a name and a value");
        assert!(value.parse::<f64>().is_ok() && !name.is_empty(), "{line}");
    }
}

async fn routes_of_later_versions_do_not_exist(world: World) {
    for (method, path) in [
        (Method::POST, "/streams/v1/queries"),
        (Method::POST, "/streams/v1/cycle"),
        (Method::POST, "/streams/v1/state/get"),
        (Method::GET, "/api/v1/kv/x"),
        (Method::POST, "/api/v1/timers"),
        (Method::GET, "/api/v1/resources/partitions"),
        (Method::DELETE, "/api/v1/queues/q/clear"),
    ] {
        let answer = world.call(method.clone(), path, "{}").await.expect(404);
        assert_eq!(answer.json(), json!({"error": "Not Found", "code": "no_such_route"}), "{method} {path}");
    }
}
