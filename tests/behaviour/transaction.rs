//! Transactions: pushes and acks, all or nothing.

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::world::{Batch, World, accepted, at, ids, item, refused, took};

behaviour!(
    pushes_and_acks_happen_together,
    the_answer_lists_operations_in_order,
    a_ghost_ack_rolls_everything_back,
    a_stored_push_id_rolls_everything_back,
    a_repeat_inside_is_stored_once,
    a_trace_comes_back,
    a_payload_keeps_its_bytes,
    a_payload_may_be_called_data,
    acks_decide_as_on_their_own_route,
    a_required_lease_must_live_and_cover_an_ack,
    an_expired_lease_rolls_everything_back,
    an_unknown_partition_rolls_everything_back,
    one_bad_operation_of_each_kind_changes_nothing,
    an_unusable_body_is_refused,
    nothing_to_do_is_a_success,
    waiting_consumers_are_woken,
    several_partitions_and_groups_in_one,
    a_stale_ack_is_reported_as_success,
);

async fn transact(world: &World, operations: Value) -> Value {
    let body = world.post("/api/v1/transaction", json!({"operations": operations})).await.expect(200).json();
    let id: uuid::Uuid = body["transactionId"].as_str().expect("a text").parse().expect("a UUID");
    assert!(!id.is_nil());
    body
}

fn push(queue: &str, id: &str) -> Value {
    json!({"type": "push", "queue": queue, "transactionId": id, "payload": id})
}

fn ack(message: &Value, status: &str) -> Value {
    let ack = at(item(message, status), "type", "ack");
    at(ack, "consumerGroup", message["consumerGroup"].clone())
}

#[track_caller]
fn rolled_back(body: &Value, why: &str) {
    assert_eq!((&body["success"], &body["results"]), (&json!(false), &json!([])), "{body}");
    let error = body["error"].as_str().expect("a text");
    assert!(error.contains(why), "{error:?} does not say {why:?}");
}

#[track_caller]
fn done(body: &Value) -> &Vec<Value> {
    assert_eq!(body["success"], true, "{body}");
    body["results"].as_array().expect("an array")
}

/// A queue `in` with one message out.
async fn one_out(world: &World) -> Batch {
    world.put("in", &["x"]).await;
    let popped = world.pop("in", "consumerGroup=g").await;
    assert_eq!(popped.ids(), ["x"]);
    popped
}

/// Asserts that nothing of a transaction happened: `x` is still out and can be acked, and `out` has no message.
async fn nothing_happened(world: &World, popped: &Batch) {
    assert!(world.pop("out", "consumerGroup=look").await.is_empty());
    assert!(world.pop("in", "consumerGroup=g").await.is_empty());
    accepted(&world.ack(popped.message("x"), "retry").await);
}

// check: 43
async fn pushes_and_acks_happen_together(world: World) {
    let popped = one_out(&world).await;
    let body = transact(&world, json!([ack(popped.message("x"), "completed"), push("out", "y")])).await;
    done(&body);
    assert_eq!(world.pop("out", "").await.ids(), ["y"]);
    world.sleep(3_600).await;
    assert!(world.pop("in", "consumerGroup=g").await.is_empty());
}

async fn the_answer_lists_operations_in_order(world: World) {
    let popped = one_out(&world).await;
    let bundle = json!({"type": "push", "items": [
        {"queue": "out", "transactionId": "b1", "payload": 1},
        {"queue": "out", "partition": "p", "payload": 2},
    ]});
    let body = transact(&world, json!([push("out", "a"), bundle, ack(popped.message("x"), "completed")])).await;
    let results = done(&body);
    assert_eq!(results.len(), 4, "a bundle of two gives two results");
    for (index, (result, kind)) in results.iter().zip(["push", "push", "push", "ack"]).enumerate() {
        assert_eq!(
            (&result["index"], &result["type"], &result["success"]),
            (&json!(index), &json!(kind), &json!(true))
        );
    }
    let pushed = |result: &Value| (result["transactionId"].clone(), result["queueName"].clone());
    assert_eq!(pushed(&results[0]), (json!("a"), json!("out")));
    assert_eq!(pushed(&results[1]), (json!("b1"), json!("out")));
    assert_eq!(results[2]["transactionId"], results[2]["messageId"], "no id given");
    assert!(results[0].get("duplicate").is_none());
    assert_eq!(
        (&results[3]["transactionId"], &results[3]["error"], &results[3]["dlq"]),
        (&json!("x"), &Value::Null, &json!(false))
    );
    let stored = world.pop_partition("out", "Default", "").await;
    assert_eq!(stored.ids(), ["a", "b1"], "operation order is offset order");
    assert_eq!(stored.message("a")["id"], results[0]["messageId"]);
    assert_eq!(world.pop_partition("out", "p", "").await.messages().len(), 1);
}

// check: 43
async fn a_ghost_ack_rolls_everything_back(world: World) {
    let popped = one_out(&world).await;
    let ghost = at(ack(popped.message("x"), "completed"), "transactionId", "ghost");
    let body = transact(&world, json!([push("out", "y"), ack(popped.message("x"), "completed"), ghost])).await;
    rolled_back(&body, "QTXN ack references unknown transactionId; transaction rolled back");
    nothing_happened(&world, &popped).await;
}

// check: 43
async fn a_stored_push_id_rolls_everything_back(world: World) {
    let popped = one_out(&world).await;
    world.put_in("other", "p", &["old"]).await;
    let old = at(push("other", "old"), "partition", "p");
    let body = transact(&world, json!([push("out", "y"), ack(popped.message("x"), "completed"), old])).await;
    rolled_back(&body, r#"QDUP duplicate messages in queue "other" partition "p"; transaction rolled back"#);
    nothing_happened(&world, &popped).await;
    assert_eq!(world.pop("other", "").await.messages().len(), 1);
    // With the window off there is no such thing as a stored id.
    world.configure("other", json!({"dedupWindowSeconds": 0})).await;
    done(&transact(&world, json!([at(push("other", "old"), "partition", "p")])).await);
}

// check: 43
async fn a_repeat_inside_is_stored_once(world: World) {
    let elsewhere = at(push("out", "y"), "partition", "p");
    let body = transact(&world, json!([push("out", "y"), push("out", "y"), elsewhere])).await;
    let results = done(&body);
    assert_eq!(results[1]["duplicate"], true);
    assert_eq!(results[1]["messageId"], results[0]["messageId"]);
    assert!(results[0].get("duplicate").is_none() && results[2].get("duplicate").is_none());
    assert_eq!(world.pop_partition("out", "Default", "").await.ids(), ["y"]);
    assert_eq!(world.pop_partition("out", "p", "").await.ids(), ["y"]);
}

// check: 44
async fn a_trace_comes_back(world: World) {
    let trace = "0198c0de-0000-7000-8000-000000000001";
    let with = |id: &str, trace: Value| at(push("out", id), "traceId", trace);
    let operations =
        json!([with("a", trace.into()), with("b", "no uuid".into()), with("c", Value::Null), push("out", "d")]);
    done(&transact(&world, operations).await);
    let popped = world.pop("out", "").await;
    assert_eq!(popped.ids(), ["a", "b", "c", "d"]);
    let traces: Vec<&Value> = popped.messages().iter().map(|message| &message["traceId"]).collect();
    assert_eq!(
        traces,
        [&json!(trace), &Value::Null, &Value::Null, &Value::Null],
        "what is no UUID is silently dropped"
    );
    let detail = world.find(popped.partition_id(), "a").await.expect(200).json();
    assert_eq!(detail["traceId"], trace);
}

async fn a_payload_keeps_its_bytes(world: World) {
    let payload = r#"{"b":1, "a":9007199254740993, "c":1.0,	"n":"\u0000\ud800"}"#;
    let body = format!(r#"{{"operations":[{{"type":"push","queue":"q","payload":{payload}}}]}}"#);
    world.post_text("/api/v1/transaction", &body).await.expect(200);
    let popped = world.get("/api/v1/pop/queue/q").await.expect(200);
    assert!(popped.text().contains(payload), "{}", popped.text());
}

async fn a_payload_may_be_called_data(world: World) {
    let operations = json!([
        {"type": "push", "queue": "q", "data": 1},
        {"type": "push", "queue": "q", "data": 1, "payload": 2},
        {"type": "push", "queue": "q"},
        {"type": "push", "queue": "q", "payload": null},
        {"type": "push", "queue": "q", "payload": 3, "transactionId": ""},
        {"type": "push", "queue": "q", "payload": 4, "transactionId": ""},
    ]);
    let body = transact(&world, operations).await;
    for result in done(&body) {
        assert_eq!(result["transactionId"], result["messageId"], "an empty id is no id here");
        assert!(result.get("duplicate").is_none());
    }
    let popped = world.pop("q", "").await;
    let data: Vec<&Value> = popped.messages().iter().map(|message| &message["data"]).collect();
    assert_eq!(data, [&json!(1), &json!(2), &json!({}), &Value::Null, &json!(3), &json!(4)]);
    assert!(popped.messages().iter().all(|message| message["partition"] == "Default"));
}

async fn acks_decide_as_on_their_own_route(world: World) {
    world.configure("in", json!({"retryLimit": 1})).await;
    world.put("in", &ids("x", 4)).await;
    // A retry, a failure within the budget, one beyond it, a dead letter by status.
    for (round, (status, dead)) in [("retry", false), ("failed", false), ("failed", true)].into_iter().enumerate() {
        let popped = world.pop("in", "").await;
        assert_eq!(popped.ids(), ["x1", "x2", "x3", "x4"]);
        let failed = at(ack(popped.message("x1"), status), "error", "why");
        let body = transact(&world, json!([failed, push("out", &format!("y{round}"))])).await;
        assert_eq!(done(&body)[0]["dlq"], dead);
    }
    let rows = world.dead_letters("in").await;
    assert_eq!((rows.len(), &rows[0]["transactionId"], &rows[0]["errorMessage"]), (1, &json!("x1"), &json!("why")));
    let popped = world.pop("in", "").await;
    assert_eq!(popped.ids(), ["x2", "x3", "x4"]);
    let body = transact(
        &world,
        json!([ack(popped.message("x2"), "ok"), ack(popped.message("x3"), "dlq"), ack(popped.message("x4"), "ok")]),
    )
    .await;
    let dead: Vec<&Value> = done(&body).iter().map(|result| &result["dlq"]).collect();
    assert_eq!(dead, [false, true, false]);
    assert_eq!(world.dead_letters("in").await.len(), 2);
    assert_eq!(world.pop("in", "").await.ids(), ["x4"]);
    assert_eq!(world.pop("out", "").await.ids(), ["y0", "y1", "y2"]);
}

async fn a_required_lease_must_live_and_cover_an_ack(world: World) {
    let transact = async |lease: &str, message: &Value| {
        // The 1.0.6 Python client names the lease here alone.
        let bare = at(ack(message, "completed"), "leaseId", Value::Null);
        let body = json!({"operations": [bare, push("out", "y")], "requiredLeases": [lease]});
        world.post("/api/v1/transaction", body).await.expect(200).json()
    };
    world.put("in", &["x"]).await;
    let stale = world.pop("in", "consumerGroup=g&leaseSeconds=1").await;
    world.sleep(1).await;
    rolled_back(&transact(stale.lease(), stale.message("x")).await, "lease");
    let live = world.pop("in", "consumerGroup=g").await;
    // While somebody else holds the partition the stale lease is refused all the more.
    let body = transact(stale.lease(), stale.message("x")).await;
    rolled_back(&body, "lease");
    rolled_back(&body, "rolled back");
    rolled_back(&transact("nonsense", live.message("x")).await, "lease");
    // A live lease that covers no partition acked here is none.
    world.put("elsewhere", &["z"]).await;
    let elsewhere = world.pop("elsewhere", "consumerGroup=g").await;
    rolled_back(&transact(elsewhere.lease(), live.message("x")).await, "lease");
    // Nor do good leases on the acks themselves make up for a bad one that is required.
    for bad in [stale.lease(), elsewhere.lease(), "nonsense"] {
        let operations = json!([ack(live.message("x"), "completed"), push("out", "y")]);
        let body = json!({"operations": operations, "requiredLeases": [live.lease(), bad]});
        rolled_back(&world.post("/api/v1/transaction", body).await.expect(200).json(), "lease");
    }
    nothing_happened(&world, &live).await;
    let live = world.pop("in", "consumerGroup=g").await;
    done(&transact(live.lease(), live.message("x")).await);
    assert_eq!(world.pop("out", "").await.ids(), ["y"]);
    assert_eq!(world.queue("in").await["totals"]["pending"], 0);
}

async fn an_expired_lease_rolls_everything_back(world: World) {
    world.put("in", &["x"]).await;
    let popped = world.pop("in", "consumerGroup=g&leaseSeconds=1").await;
    world.sleep(1).await;
    let body = transact(&world, json!([push("out", "y"), ack(popped.message("x"), "completed")])).await;
    let partition = popped.partition_id();
    rolled_back(
        &body,
        &format!(
            r#"QTXN ack failed for partition {partition} group "g": invalid or expired lease; transaction rolled back"#
        ),
    );
    assert!(world.pop("out", "").await.is_empty());
    let nobody = at(ack(popped.message("x"), "completed"), "consumerGroup", "nobody");
    let body = transact(&world, json!([push("out", "y"), nobody])).await;
    rolled_back(
        &body,
        &format!(
            r#"QTXN ack failed for partition {partition} group "nobody": consumer not found; transaction rolled back"#
        ),
    );
    assert_eq!(world.pop("in", "consumerGroup=g").await.ids(), ["x"]);
}

async fn an_unknown_partition_rolls_everything_back(world: World) {
    let popped = one_out(&world).await;
    let unknown = "0198c0de-0000-4000-8000-000000000001";
    let foreign = at(ack(popped.message("x"), "completed"), "partitionId", unknown);
    let body = transact(&world, json!([push("out", "y"), ack(popped.message("x"), "completed"), foreign])).await;
    rolled_back(&body, &format!("QTXN ack references partition {unknown} not owned by this tenant"));
    nothing_happened(&world, &popped).await;
}

async fn one_bad_operation_of_each_kind_changes_nothing(world: World) {
    world.put("stored", &["old"]).await;
    world.put("in", &["x"]).await;
    let expired = world.pop("in", "consumerGroup=g&leaseSeconds=1").await;
    world.sleep(1).await;
    let popped = world.pop("in", "consumerGroup=g").await;
    let good = ack(popped.message("x"), "completed");
    let bad = [
        push("stored", "old"),
        at(good.clone(), "transactionId", "ghost"),
        at(good.clone(), "partitionId", "0198c0de-0000-4000-8000-000000000001"),
        at(good.clone(), "consumerGroup", "nobody"),
    ];
    for bad in bad {
        // First, last and in the middle.
        for place in 0..3 {
            let mut operations = vec![push("out", "y"), good.clone()];
            operations.insert(place, bad.clone());
            let body = transact(&world, operations.into()).await;
            assert_eq!(body["success"], false, "{bad}");
        }
    }
    // The first lease an ack group names is the group's.
    for bad in [ack(expired.message("x"), "completed"), at(good.clone(), "leaseId", "nonsense")] {
        for operations in [json!([push("out", "y"), bad, good]), json!([bad, push("out", "y")])] {
            rolled_back(&transact(&world, operations).await, "lease");
        }
    }
    assert!(!world.queue_names().await.contains(&"out".to_owned()), "no queue was created either");
    nothing_happened(&world, &popped).await;
}

async fn an_unusable_body_is_refused(world: World) {
    let error = world.post_text("/api/v1/transaction", "nonsense").await.error(400);
    assert!(error.starts_with("bad body: "), "{error}");
    for body in [json!({}), json!({"operations": null}), json!({"operations": {}}), json!({"operations": "x"})] {
        let answer = world.post("/api/v1/transaction", body.clone()).await.expect(400).json();
        assert_eq!((&answer["success"], &answer["results"]), (&json!(false), &json!([])), "{body}");
        assert_eq!(answer["error"], "transaction requires an operations array", "{body}");
        assert!(answer["transactionId"].is_string());
    }
    let other = json!({"operations": [push("out", "y"), {"type": "delete", "queue": "out"}]});
    let answer = world.post("/api/v1/transaction", other).await.expect(400).json();
    assert_eq!(answer["error"], "segments transaction supports only push and ack operations");
    let nameless = json!({"operations": [push("out", "y"), {"type": "push", "payload": 0}]});
    let error = world.post("/api/v1/transaction", nameless).await.error(400);
    assert!(error.contains("queue"), "{error}");
    assert_eq!(world.queue_names().await, Vec::<String>::new());
}

async fn nothing_to_do_is_a_success(world: World) {
    let body = transact(&world, json!([])).await;
    assert_eq!(done(&body), &Vec::<Value>::new());
}

async fn waiting_consumers_are_woken(world: World) {
    let popped = one_out(&world).await;
    let begun = Instant::now();
    let (out, ()) = tokio::join!(world.pop("out", "wait=true&timeout=10000"), async {
        world.sleep(1).await;
        done(&transact(&world, json!([ack(popped.message("x"), "completed"), push("out", "y")])).await);
    });
    took(begun, 1_000);
    assert_eq!(out.ids(), ["y"]);
}

async fn several_partitions_and_groups_in_one(world: World) {
    for partition in ["a", "b"] {
        world.put_in("in", partition, &[format!("{partition}1"), format!("{partition}2")]).await;
    }
    let mine = world.pop("in", "partitions=2&consumerGroup=g").await;
    let theirs = world.pop_partition("in", "a", "consumerGroup=h").await;
    let mut operations: Vec<Value> = mine.messages().iter().map(|message| ack(message, "completed")).collect();
    operations.insert(1, ack(theirs.message("a1"), "completed"));
    operations.insert(3, push("out", "y"));
    done(&transact(&world, operations.into()).await);
    world.sleep(3_600).await;
    assert!(world.pop("in", "partitions=2&consumerGroup=g").await.is_empty());
    assert_eq!(world.pop_partition("in", "a", "consumerGroup=h").await.ids(), ["a2"]);
    assert_eq!(world.pop("out", "").await.ids(), ["y"]);
}

async fn a_stale_ack_is_reported_as_success(world: World) {
    world.put("in", &ids("x", 4)).await;
    let popped = world.pop("in", "batch=3").await;
    accepted(&world.ack(popped.message("x2"), "completed").await);
    // Behind the cursor, and not delivered yet: neither moves anything.
    let ahead = at(ack(popped.message("x1"), "completed"), "transactionId", "x4");
    let stale = [ack(popped.message("x1"), "completed"), ack(popped.message("x1"), "failed"), ahead];
    let body = transact(&world, stale.into_iter().collect()).await;
    assert!(done(&body).iter().all(|result| result["success"] == true));
    assert!(world.pop("in", "").await.is_empty(), "x3 is still out");
    let body =
        transact(&world, json!([ack(popped.message("x1"), "completed"), ack(popped.message("x3"), "completed")])).await;
    assert_eq!(done(&body).len(), 2);
    refused(&world.ack(popped.message("x3"), "completed").await, "invalid or expired lease");
    assert_eq!(world.pop("in", "").await.ids(), ["x4"]);
}
