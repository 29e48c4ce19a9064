//! Push: what is stored, what is a duplicate, what comes back.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::world::{World, accepted, ids, micros, refused};

behaviour!(
    two_items_are_queued_under_ids_of_their_own,
    an_answer_lists_items_in_request_order,
    a_repeat_inside_a_request_is_a_duplicate,
    a_repeat_in_a_later_request_is_a_duplicate,
    the_window_ends_when_it_says,
    a_changed_window_holds_for_the_next_push,
    the_new_items_of_a_mixed_request_land_in_order,
    the_same_id_elsewhere_is_another_message,
    a_repeat_after_a_restart_is_a_duplicate,
    a_first_push_creates_the_queue_with_labels_from_its_name,
    a_body_without_what_it_needs_is_refused,
    an_item_may_leave_out_partition_and_id,
    an_empty_transaction_id_is_an_id,
    a_plain_push_carries_no_trace,
    payloads_come_back_byte_for_byte,
    sixty_four_clients_push_one_id,
    simultaneous_batches_keep_one_of_each_id,
    ids_too_long_are_refused_alike,
    one_bad_item_refuses_the_request,
    the_longest_id_is_an_id,
    commit_times_never_go_back,
    commits_of_one_request_share_a_time,
    a_hash_outlives_a_short_window_for_acks,
    a_hash_lives_as_long_as_the_dedup_window,
    a_hash_lives_as_long_as_completed_retention,
);

fn statuses(results: &[Value]) -> Vec<&str> {
    results.iter().map(|result| result["status"].as_str().expect("a text")).collect()
}

// check: 1
async fn two_items_are_queued_under_ids_of_their_own(world: World) {
    let results =
        world.push(json!([{"queue": "q", "payload": 1}, {"queue": "q", "payload": 2}])).await.expect(201).list();
    assert_eq!(statuses(&results), ["queued", "queued"]);
    let mut seen = BTreeSet::new();
    for (index, result) in results.iter().enumerate() {
        let keys: Vec<&String> = result.as_object().expect("an object").keys().collect();
        assert_eq!(keys, ["index", "message_id", "queueName", "status", "transaction_id"]);
        assert_eq!(result["index"], index);
        assert_eq!(result["queueName"], "q");
        let id: Uuid = result["message_id"].as_str().expect("a text").parse().expect("a UUID");
        assert_eq!(id.get_version_num(), 7);
        assert_eq!(result["transaction_id"], result["message_id"], "an item without an id is known by its message's");
        assert!(seen.insert(id));
    }
}

async fn an_answer_lists_items_in_request_order(world: World) {
    let places = [("q", "p"), ("r", "p"), ("q", "s"), ("q", "p"), ("r", "p")];
    let item = |(n, (queue, partition)): (usize, &(&str, &str))| json!({"queue": queue, "partition": partition, "transactionId": n.to_string(), "payload": n});
    let items: Vec<Value> = places.iter().enumerate().map(item).collect();
    let results = world.push(items.into()).await.expect(201).list();
    for (n, (queue, _)) in places.iter().enumerate() {
        assert_eq!(results[n]["index"], n);
        assert_eq!(results[n]["transaction_id"], n.to_string());
        assert_eq!(results[n]["queueName"], *queue);
    }
    assert_eq!(world.pop_partition("q", "p", "").await.ids(), ["0", "3"]);
    assert_eq!(world.pop_partition("r", "p", "").await.ids(), ["1", "4"]);
    assert_eq!(world.pop_partition("q", "s", "").await.ids(), ["2"]);
}

// check: 2
// scn: 16
async fn a_repeat_inside_a_request_is_a_duplicate(world: World) {
    world.configure("off", json!({"dedupWindowSeconds": 0})).await;
    for queue in ["on", "off"] {
        let item = |id: &str| json!({"queue": queue, "transactionId": id, "payload": id});
        let results = world.push(json!([item("x1"), item("x1"), item("x2")])).await.expect(201).list();
        assert_eq!(statuses(&results), ["queued", "duplicate", "queued"], "{queue}");
        assert_eq!(results[0]["message_id"], results[1]["message_id"]);
        assert_eq!(world.pop(queue, "").await.ids(), ["x1", "x2"]);
    }
    // When the first of the pair is a duplicate itself, both name the stored message.
    let stored = world.push(json!([{"queue": "on", "transactionId": "x1", "payload": 0}])).await.list();
    let item = json!({"queue": "on", "transactionId": "x1", "payload": 0});
    let results = world.push(json!([item, item])).await.expect(201).list();
    assert_eq!(statuses(&results), ["duplicate", "duplicate"]);
    assert_eq!(results[0]["message_id"], stored[0]["message_id"]);
    assert_eq!(results[1]["message_id"], stored[0]["message_id"]);
}

// check: 3
// req: OPT-24
async fn a_repeat_in_a_later_request_is_a_duplicate(world: World) {
    world.configure("off", json!({"dedupWindowSeconds": 0})).await;
    world.configure("left-out", json!({"retryLimit": 1})).await;
    for (queue, expected) in [("pushed", "duplicate"), ("left-out", "duplicate"), ("off", "queued")] {
        let item = |payload: &str| json!([{"queue": queue, "transactionId": "x", "payload": payload}]);
        let first = world.push(item("first")).await.expect(201).list();
        let second = world.push(item("second")).await.expect(201).list();
        assert_eq!(second[0]["status"], expected, "{queue}");
        let one_id = first[0]["message_id"] == second[0]["message_id"];
        assert_eq!(one_id, expected == "duplicate", "{queue}");
        let payloads: Vec<Value> = world.pop(queue, "").await.messages().iter().map(|m| m["data"].clone()).collect();
        let stored: &[Value] = if one_id { &[json!("first")] } else { &[json!("first"), json!("second")] };
        assert_eq!(payloads, stored, "{queue}");
    }
}

// req: OPT-24
async fn the_window_ends_when_it_says(world: World) {
    world.configure("q", json!({"dedupWindowSeconds": 5})).await;
    world.put("q", &["x"]).await;
    world.sleep(5).await;
    // An id is a duplicate while created ≥ now − W.
    assert_eq!(world.push_ids("q", &["x"]).await, ["duplicate"]);
    world.sleep_ms(1).await;
    assert_eq!(world.push_ids("q", &["x"]).await, ["queued"]);
    assert_eq!(world.push_ids("q", &["x"]).await, ["duplicate"], "the newer one counts now");
    assert_eq!(world.pop("q", "").await.ids(), ["x", "x"]);

    world.put("hour", &["x"]).await;
    world.sleep(3_600).await;
    assert_eq!(world.push_ids("hour", &["x"]).await, ["duplicate"]);
    world.sleep_ms(1).await;
    assert_eq!(world.push_ids("hour", &["x"]).await, ["queued"]);
}

async fn a_changed_window_holds_for_the_next_push(world: World) {
    world.put("q", &["x"]).await;
    world.sleep(10).await;
    world.configure("q", json!({"dedupWindowSeconds": 5})).await;
    assert_eq!(world.push_ids("q", &["x"]).await, ["queued"], "narrowed");
    world.sleep(10).await;
    assert_eq!(world.push_ids("q", &["x"]).await, ["queued"]);
    world.sleep(10).await;
    // Back in scope: its hash is kept for 900 s whatever the window.
    world.configure("q", json!({"dedupWindowSeconds": 15})).await;
    assert_eq!(world.push_ids("q", &["x"]).await, ["duplicate"], "widened");
}

// check: 4
async fn the_new_items_of_a_mixed_request_land_in_order(world: World) {
    world.put("q", &["old"]).await;
    assert_eq!(world.pop("q", "autoAck=true").await.ids(), ["old"]);
    assert_eq!(world.push_ids("q", &["new1", "old", "new2"]).await, ["queued", "duplicate", "queued"]);
    assert_eq!(world.pop("q", "").await.ids(), ["new1", "new2"]);
}

// check: 5
async fn the_same_id_elsewhere_is_another_message(world: World) {
    for (queue, partition) in [("q", "Default"), ("q", "other"), ("r", "Default")] {
        assert_eq!(world.push_ids_to(queue, partition, &["x"]).await, ["queued"]);
        assert_eq!(world.push_ids_to(queue, partition, &["x"]).await, ["duplicate"]);
    }
}

async fn a_repeat_after_a_restart_is_a_duplicate(world: World) {
    let push =
        async || world.push(json!([{"queue": "q", "transactionId": "x", "payload": 0}])).await.expect(201).list();
    let first = push().await;
    world.restart().await;
    let second = push().await;
    assert_eq!(second[0]["status"], "duplicate");
    assert_eq!(second[0]["message_id"], first[0]["message_id"]);
}

// check: 6
// req: CFG-6
async fn a_first_push_creates_the_queue_with_labels_from_its_name(world: World) {
    let item = |queue: &str| json!({"queue": queue, "payload": 0});
    world.push(json!([item("a.b.c"), item("plain"), item("a."), item("x.y")])).await.expect(201);
    assert_eq!(world.queue_names().await, ["a.", "a.b.c", "plain", "x.y"]);
    let labels = [("a.b.c", "a", "b"), ("plain", "plain", ""), ("a.", "a", ""), ("x.y", "x", "y")];
    for (queue, namespace, task) in labels {
        let detail = world.queue(queue).await;
        assert_eq!((&detail["namespace"], &detail["task"]), (&json!(namespace), &json!(task)), "{queue}");
        let ids: Vec<Value> = world
            .discover(&format!("namespace={namespace}&task={task}&partitions=0&consumerGroup={queue}"))
            .await
            .messages()
            .to_vec();
        assert!(!ids.is_empty(), "{queue} is discovered by its derived labels");
    }
    // The column defaults: everything a configure without options gives, but for the lease.
    world.push(json!([{"queue": "r", "transactionId": "x", "payload": 0}])).await.expect(201);
    let popped = world.pop("r", "").await;
    let detail = world.find(popped.partition_id(), "x").await.expect(200).json();
    assert_eq!(
        detail["queueConfig"],
        json!({"leaseTime": 60, "retryLimit": 3, "retryDelay": 1000, "ttl": 3600, "priority": 0})
    );
    // A push never overwrites what a configure wrote.
    world.configure("n.t", json!({"namespace": "mine", "leaseTime": 7})).await;
    world.put("n.t", &["x"]).await;
    assert_eq!(world.queue("n.t").await["namespace"], "mine");
    world.pop("n.t", "").await;
    world.sleep(7).await;
    assert_eq!(world.pop("n.t", "").await.ids(), ["x"]);
}

// check: 7
async fn a_body_without_what_it_needs_is_refused(world: World) {
    let empty = world.push(json!([])).await.expect(201);
    assert_eq!(empty.text(), "[]");
    for body in
        ["{}", "[]", r#"{"items":{}}"#, r#"{"items":null}"#, r#"{"items":[{"queue":"q","data":1}]}"#, "nonsense", ""]
    {
        let error = world.post_text("/api/v1/push", body).await.error(400);
        assert!(error.starts_with("bad body: "), "{body}: {error}");
    }
    assert_eq!(world.queue_names().await, Vec::<String>::new());
    world.push(json!([{"queue": "q", "payload": null}])).await.expect(201);
    let popped = world.pop("q", "").await;
    assert!(popped.messages()[0].as_object().expect("an object").contains_key("data"));
    assert_eq!(popped.messages()[0]["data"], Value::Null);
}

async fn an_item_may_leave_out_partition_and_id(world: World) {
    let item = |partition: Value| json!({"queue": "q", "partition": partition, "transactionId": null, "payload": 0});
    world
        .push(json!([{"queue": "q", "payload": 0}, item(Value::Null), item("Default".into()), item("".into())]))
        .await
        .expect(201);
    let popped = world.pop("q", "partitions=0").await;
    let partitions: Vec<&str> = popped.messages().iter().map(|m| m["partition"].as_str().expect("a text")).collect();
    assert_eq!(partitions, ["Default", "Default", "Default", ""], "an empty name is a partition of its own");
    for message in popped.messages() {
        assert_eq!(message["transactionId"], message["id"]);
    }
}

async fn an_empty_transaction_id_is_an_id(world: World) {
    assert_eq!(world.push_ids("q", &["", ""]).await, ["queued", "duplicate"]);
    assert_eq!(world.push_ids("q", &[""]).await, ["duplicate"]);
    let popped = world.pop("q", "").await;
    assert_eq!(popped.ids(), [""]);
    accepted(&world.ack(&popped.messages()[0], "completed").await);
    assert!(world.pop("q", "").await.is_empty());
}

async fn a_plain_push_carries_no_trace(world: World) {
    let trace = "0198c0de-0000-7000-8000-000000000001";
    world
        .push(json!([{"queue": "q", "payload": 0, "traceId": trace, "producerSub": "me", "extra": 1}]))
        .await
        .expect(201);
    let popped = world.pop("q", "").await;
    assert_eq!(popped.messages()[0]["traceId"], Value::Null);
    assert_eq!(popped.messages()[0]["producerSub"], Value::Null);
}

// check: 8
// scn: 31
async fn payloads_come_back_byte_for_byte(world: World) {
    let payloads = [
        r#"{"b":1, "a":2}"#,
        r#"{"b":1, "a":9007199254740993, "c":1.0, "n":"\u0000"}"#,
        "{ \"spaced\" :\n\t[ 1 ,2 ]\r\n }",
        r#"{"same":1,"same":2}"#,
        r#""\ud83d\ude00 \/ \u0041 \ud800""#,
        "18446744073709551616",
        "1e400",
        "1E+2",
        "1.0",
        "-0",
        "0.10",
        "true",
        "null",
        r#""""#,
        "[]",
        "\"héllo \u{1F600} \u{7f}\"",
    ];
    for (n, payload) in payloads.iter().enumerate() {
        // Around the value there may be space that is not part of it.
        let body = format!(r#"{{"items":[{{"queue":"q","transactionId":"{n}","payload": {payload} }}]}}"#);
        world.post_text("/api/v1/push", &body).await.expect(201);
        // Not every parser takes every one of these values, so the answers are compared as text.
        let popped = world.get("/api/v1/pop/queue/q").await.expect(200);
        let expected = format!(r#""data":{payload},"producerSub""#);
        assert!(popped.text().contains(&expected), "{payload} is not in {}", popped.text());
        let partition = world.queue("q").await["partitions"][0]["id"].clone();
        world.sleep_ms(1).await;
        accepted(
            &world.ack_item(json!({"transactionId": n.to_string(), "partitionId": partition, "status": "dlq"})).await,
        );
        let found = world.find(partition.as_str().expect("a text"), &n.to_string()).await.expect(200);
        assert!(found.text().contains(&format!(r#""data":{payload}"#)), "message detail: {}", found.text());
        let dead = world.get("/api/v1/dlq?queue=q&limit=1").await.expect(200);
        assert!(dead.text().contains(&format!(r#""data":{payload}"#)), "dead letter: {}", dead.text());
    }
    // Large ones too, alone and beside small ones.
    let large = format!(r#"{{"z":"{}", "a":1.50}}"#, "é".repeat(300_000));
    let body = format!(r#"{{"items":[{{"queue":"large","payload":1}},{{"queue":"large","payload":{large}}}]}}"#);
    world.post_text("/api/v1/push", &body).await.expect(201);
    let popped = world.pop("large", "").await;
    assert_eq!(popped.messages().len(), 2);
    assert!(popped.text.contains(&large));
}

// req: OPT-25
// scn: 17
async fn sixty_four_clients_push_one_id(world: World) {
    for (queue, latency) in [("instant", 0), ("slow", 5)] {
        world.faults().set_latency_ms(latency);
        let mut pushes = JoinSet::new();
        for n in 0..64 {
            let world = world.clone();
            pushes.spawn(async move {
                world.push(json!([{"queue": queue, "transactionId": "x1", "payload": n}])).await.expect(201).list()
            });
        }
        let results: Vec<Value> = pushes.join_all().await.into_iter().flatten().collect();
        assert_eq!(results.len(), 64);
        assert_eq!(results.iter().filter(|result| result["status"] == "queued").count(), 1);
        assert_eq!(results.iter().filter(|result| result["status"] == "duplicate").count(), 63);
        let named: BTreeSet<&str> =
            results.iter().map(|result| result["message_id"].as_str().expect("a text")).collect();
        assert_eq!(named.len(), 1, "all answers name one message");
        let popped = world.pop(queue, "").await;
        assert_eq!(popped.messages().len(), 1);
        assert_eq!(popped.messages()[0]["id"], *named.first().expect("one"));
    }
}

// req: OPT-25
async fn simultaneous_batches_keep_one_of_each_id(world: World) {
    // Also with the window off nothing that was pushed in different requests is a duplicate, however it was grouped.
    world.configure("off", json!({"dedupWindowSeconds": 0})).await;
    world.faults().set_latency_ms(3);
    for (queue, stored) in [("on", 20), ("off", 200)] {
        let mut pushes = JoinSet::new();
        for n in 0..10 {
            let world = world.clone();
            pushes.spawn(async move {
                let mut wanted = ids("x", 20);
                wanted.rotate_left(n * 2);
                world.push_ids(queue, &wanted).await
            });
        }
        let statuses: Vec<String> = pushes.join_all().await.into_iter().flatten().collect();
        assert_eq!(statuses.iter().filter(|status| *status == "queued").count(), stored, "{queue}");
        let popped = world.pop(queue, "batch=1000").await;
        assert_eq!(popped.messages().len(), stored, "{queue}");
        assert_eq!(popped.ids().into_iter().collect::<BTreeSet<_>>().len(), 20);
    }
}

// scn: 18
async fn ids_too_long_are_refused_alike(world: World) {
    for last in ["a", "b"] {
        let id = "x".repeat(69_999) + last;
        let error = world.push(json!([{"queue": "q", "transactionId": id, "payload": 0}])).await.error(400);
        assert!(error.contains("transactionId") && error.contains("65535"), "{error}");
    }
    assert_eq!(world.queue_names().await, Vec::<String>::new());
}

// scn: 32
async fn one_bad_item_refuses_the_request(world: World) {
    let id = |n: usize| if n == 7 { "x".repeat(70_000) } else { n.to_string() };
    let items: Vec<Value> = (0..10).map(|n| json!({"queue": "q", "transactionId": id(n), "payload": n})).collect();
    let error = world.push(items.into()).await.error(400);
    assert!(error.contains('7') && error.contains("transactionId"), "{error}");
    assert!(error.len() < 1_000, "the id is not echoed");
    assert_eq!(world.queue_names().await, Vec::<String>::new(), "nothing is stored");
    assert!(world.pop("q", "").await.is_empty());
}

async fn the_longest_id_is_an_id(world: World) {
    for last in ["a", "b"] {
        let id = "x".repeat(65_534) + last;
        assert_eq!(world.push_ids("q", &[&id]).await, ["queued"]);
        assert_eq!(world.push_ids("q", &[&id]).await, ["duplicate"]);
        let popped = world.pop("q", "").await;
        assert_eq!(popped.ids(), [&id]);
        accepted(&world.ack(&popped.messages()[0], "completed").await);
    }
    assert!(world.pop("q", "").await.is_empty());
}

// req: OPT-11
async fn commit_times_never_go_back(world: World) {
    let mut times = Vec::new();
    for (n, step) in [0, 3_600, -7_200, 0, -86_400, 60].into_iter().enumerate() {
        world.faults().step_clock_secs(step);
        if n == 4 {
            // A new owner knows only what is stored.
            world.restart().await;
        }
        world.put("q", &[n.to_string()]).await;
        world.sleep_ms(10).await;
    }
    let popped = world.pop("q", "").await;
    assert_eq!(popped.ids(), ["0", "1", "2", "3", "4", "5"]);
    times.extend(popped.messages().iter().map(|message| message["createdAt"].as_str().expect("a text").to_owned()));
    assert!(times.is_sorted(), "{times:?}");
    // The texts sort like the offsets on the other routes too.
    let mut shown = Vec::new();
    for id in popped.ids() {
        let detail = world.find(popped.partition_id(), id).await.expect(200).json();
        shown.push(detail["createdAt"].as_str().expect("a text").to_owned());
    }
    assert!(shown.is_sorted(), "{shown:?}");
}

async fn commits_of_one_request_share_a_time(world: World) {
    world.put("q", &ids("x", 3)).await;
    world.sleep_ms(1_500).await;
    world.put("q", &["y"]).await;
    let popped = world.pop("q", "").await;
    let times: Vec<i64> = popped.messages().iter().map(|message| micros(&message["createdAt"])).collect();
    assert!(times[0] == times[1] && times[1] == times[2], "{times:?}");
    assert!((1_500_000..1_500_100).contains(&(times[3] - times[0])), "{times:?}");
}

/// Pops two partitions whose messages are acked while their hashes are kept and afterwards.
async fn hashes_are_kept(world: &World, options: Value, secs: u64) {
    world.configure("q", options).await;
    world.put_in("q", "before", &["x"]).await;
    world.put_in("q", "after", &["x"]).await;
    let before = world.pop_partition("q", "before", "leaseSeconds=100000").await;
    let lease = secs + 10;
    let after = world.pop_partition("q", "after", &format!("leaseSeconds={lease}")).await;
    world.sleep(secs - 1).await;
    accepted(&world.ack(before.message("x"), "completed").await);
    world.sleep(2).await;
    refused(&world.ack(after.message("x"), "completed").await, "unresolvable: transaction not in the ack window");
    // A message still leased comes again.
    world.sleep(8).await;
    assert!(world.pop_partition("q", "after", "").await.is_empty(), "still leased");
    world.sleep(1).await;
    assert_eq!(world.pop_partition("q", "after", "").await.ids(), ["x"]);
    assert!(world.pop_partition("q", "before", "").await.is_empty());
}

// req: OPT-26
async fn a_hash_outlives_a_short_window_for_acks(world: World) {
    hashes_are_kept(&world, json!({"dedupWindowSeconds": 0}), 900).await;
}

// req: OPT-26
async fn a_hash_lives_as_long_as_the_dedup_window(world: World) {
    hashes_are_kept(&world, json!({"dedupWindowSeconds": 2_000, "completedRetentionSeconds": 1_000}), 2_000).await;
}

// req: OPT-26
async fn a_hash_lives_as_long_as_completed_retention(world: World) {
    hashes_are_kept(&world, json!({"dedupWindowSeconds": 0, "completedRetentionSeconds": 3_000}), 3_000).await;
}
