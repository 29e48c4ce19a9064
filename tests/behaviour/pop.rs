//! Pop: the three routes, what a batch looks like, long polls.

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::world::{World, accepted, at, encode, ids, item, micros, took};

behaviour!(
    an_unknown_queue_gives_nothing,
    the_body_has_its_keys_in_order,
    a_leased_batch_is_hidden_from_its_group_alone,
    one_call_takes_several_partitions,
    a_call_takes_one_partition_unless_told,
    a_batch_of_nothing_is_a_batch_of_one,
    a_call_that_says_nothing_takes_two_hundred,
    a_parameter_of_the_wrong_type_is_refused,
    an_expired_batch_comes_again,
    expiry_charges_nothing_ever,
    auto_ack_takes_no_lease,
    discovery_needs_a_label_and_matches_it_exactly,
    a_namespace_changes_for_the_next_discovery,
    a_task_changes_for_the_next_discovery,
    discovery_leases_by_each_queues_own_time,
    a_long_poll_ends_with_nothing_or_with_a_push,
    a_long_poll_of_one_partition_and_of_labels_is_woken,
    a_long_poll_waits_thirty_seconds_unless_told,
    a_lease_counts_from_the_answer,
    waiters_are_served_in_order_of_coming,
    partitions_are_served_in_order_of_becoming_ready,
    a_group_of_no_name_is_a_group,
    a_redelivered_batch_is_cut_anew,
);

// check: 10
async fn an_unknown_queue_gives_nothing(world: World) {
    assert!(world.pop_partition("one.task", "Default", "").await.is_empty());
    assert_eq!(world.queue_names().await, Vec::<String>::new());
    assert!(world.discover("namespace=any").await.is_empty());
    assert_eq!(world.queue_names().await, Vec::<String>::new());
    assert!(world.pop("any.task.rest", "").await.is_empty());
    assert_eq!(world.queue_names().await, ["any.task.rest"]);
    let detail = world.queue("any.task.rest").await;
    assert_eq!((&detail["namespace"], &detail["task"]), (&json!("any"), &json!("task")));
    world.put("any.task.rest", &["x"]).await;
    let popped = world.pop("any.task.rest", "").await;
    let found = world.find(popped.partition_id(), "x").await.expect(200).json();
    assert_eq!(found["queueConfig"]["leaseTime"], 60);
    world.sleep_ms(59_999).await;
    assert!(world.pop("any.task.rest", "").await.is_empty());
    world.sleep_ms(1).await;
    assert_eq!(world.pop("any.task.rest", "").await.ids(), ["x"]);
}

#[track_caller]
fn in_order(text: &str, keys: &[&str]) {
    let place = |key: &&str| text.find(&format!("\"{key}\":")).unwrap_or_else(|| panic!("no {key} in {text}"));
    let places: Vec<usize> = keys.iter().map(place).collect();
    assert!(places.is_sorted(), "{keys:?} are not in this order in {text}");
}

// check: 11
async fn the_body_has_its_keys_in_order(world: World) {
    world
        .push(json!([{"queue": "q", "payload": 0}, {"queue": "q", "transactionId": "x", "payload": 1}]))
        .await
        .expect(201);
    let popped = world.pop("q", "consumerGroup=g").await;
    let outer =
        ["success", "queue", "partition", "partitionId", "leaseId", "consumerGroup", "messages", "partitionsClaimed"];
    let (head, rest) = popped.text.split_once('[').expect("an array");
    let (inside, tail) = rest.rsplit_once(']').expect("an array");
    in_order(&format!("{head}{tail}"), &outer);
    let body = popped.body.as_object().expect("an object");
    assert_eq!(body.len(), outer.len(), "{body:?}");
    let inner = [
        "id",
        "transactionId",
        "traceId",
        "data",
        "producerSub",
        "createdAt",
        "partitionId",
        "partition",
        "leaseId",
        "consumerGroup",
    ];
    for text in inside.split("},{") {
        in_order(text, &inner);
    }
    for message in popped.messages() {
        assert_eq!(message.as_object().expect("an object").len(), inner.len(), "{message}");
        assert_eq!(message["traceId"], Value::Null);
        assert_eq!(message["producerSub"], Value::Null);
        assert_eq!(message["partition"], "Default");
        assert_eq!(message["partitionId"], popped.body["partitionId"]);
        assert_eq!(message["leaseId"], popped.body["leaseId"]);
        assert_eq!(message["consumerGroup"], "g");
        let created = message["createdAt"].as_str().expect("a text");
        assert_eq!(created.len(), "2026-01-01T00:00:00.000000Z".len(), "{created}");
        micros(&message["createdAt"]);
    }
    assert_eq!(popped.messages()[0]["createdAt"], popped.messages()[1]["createdAt"]);
    assert_eq!(popped.body["success"], true);
    assert_eq!(popped.body["queue"], "q");
    assert_eq!(popped.body["partition"], "Default");
    assert_eq!(popped.body["consumerGroup"], "g");
    assert_eq!(popped.body["partitionsClaimed"], 1);
    let lease: uuid::Uuid = popped.lease().parse().expect("a UUID");
    assert_eq!(lease.get_version_num(), 7);
    let partition: uuid::Uuid = popped.partition_id().parse().expect("a UUID");
    assert_eq!(partition.get_version_num(), 4);
    assert_eq!(world.pop("q", "").await.body["consumerGroup"], "__QUEUE_MODE__");
}

// check: 12
// req: OPT-4
async fn a_leased_batch_is_hidden_from_its_group_alone(world: World) {
    world.put("q", &ids("x", 3)).await;
    assert_eq!(world.pop("q", "consumerGroup=g&batch=2").await.ids(), ["x1", "x2"]);
    // The whole partition is leased: nothing may overtake the batch, on no route.
    assert!(world.pop("q", "consumerGroup=g").await.is_empty());
    assert!(world.pop_partition("q", "Default", "consumerGroup=g").await.is_empty());
    assert!(world.discover("namespace=q&consumerGroup=g").await.is_empty());
    assert!(world.pop("q", "consumerGroup=g&autoAck=true").await.is_empty());
    assert_eq!(world.pop("q", "consumerGroup=h").await.ids(), ["x1", "x2", "x3"]);
    assert_eq!(world.pop("q", "").await.ids(), ["x1", "x2", "x3"]);
    world.put_in("q", "other", &["y"]).await;
    assert_eq!(world.pop("q", "consumerGroup=g").await.ids(), ["y"], "another partition is free");
    world.sleep_ms(59_999).await;
    assert!(world.pop("q", "consumerGroup=g").await.is_empty());
    world.sleep_ms(1).await;
    assert_eq!(world.pop_partition("q", "Default", "consumerGroup=g").await.ids(), ["x1", "x2", "x3"]);
}

// check: 13
async fn one_call_takes_several_partitions(world: World) {
    for partition in ["a", "b", "c"] {
        world.put_in("q", partition, &[format!("{partition}1"), format!("{partition}2")]).await;
    }
    let popped = world.pop("q", "batch=5&partitions=3").await;
    assert_eq!(popped.messages().len(), 5);
    assert_eq!(popped.body["partitionsClaimed"], 3);
    let field = |name: &str| {
        let mut values: Vec<Value> = popped.messages().iter().map(|message| message[name].clone()).collect();
        values.dedup();
        values
    };
    let partitions = field("partitionId");
    assert_eq!(partitions.len(), 3, "each partition's messages stand together");
    assert_eq!(partitions[0], popped.body["partitionId"], "the first one is named on top");
    assert_eq!(field("leaseId"), [popped.body["leaseId"].clone()]);
    for partition in field("partition") {
        let of = |message: &&Value| message["partition"] == partition;
        let ids: Vec<&str> =
            popped.messages().iter().filter(of).map(|m| m["transactionId"].as_str().expect("a text")).collect();
        assert!(ids.is_sorted(), "{ids:?}");
    }
    assert!(world.pop("q", "partitions=3").await.is_empty(), "all three are leased, the one cut short too");
}

async fn a_call_takes_one_partition_unless_told(world: World) {
    for partition in ["a", "b", "c"] {
        world.put_in("q", partition, &[partition]).await;
    }
    assert_eq!(world.pop("q", "consumerGroup=1").await.body["partitionsClaimed"], 1);
    assert_eq!(world.pop("q", "consumerGroup=2&partitions=2").await.body["partitionsClaimed"], 2);
    for (group, uncapped) in [(3, "0"), (4, "-1")] {
        let popped = world.pop("q", &format!("consumerGroup={group}&partitions={uncapped}")).await;
        assert_eq!(popped.body["partitionsClaimed"], 3);
    }
    assert_eq!(world.pop_partition("q", "a", "consumerGroup=5&partitions=3").await.ids(), ["a"]);
    let discovered = world.discover("namespace=q&consumerGroup=6&partitions=0").await;
    assert_eq!(discovered.body["partitionsClaimed"], 3);
}

// check: 14
async fn a_batch_of_nothing_is_a_batch_of_one(world: World) {
    world.put("q", &ids("x", 3)).await;
    for (group, batch) in [("a", "0"), ("b", "-3"), ("c", "1")] {
        assert_eq!(world.pop("q", &format!("consumerGroup={group}&batch={batch}")).await.ids(), ["x1"]);
    }
}

async fn a_call_that_says_nothing_takes_two_hundred(world: World) {
    world.put("q", &ids("x", 250)).await;
    assert_eq!(world.pop("q", "consumerGroup=a").await.messages().len(), 200);
    assert_eq!(world.pop("q", "consumerGroup=b&batch=2147483647").await.messages().len(), 250);
}

// check: 14
async fn a_parameter_of_the_wrong_type_is_refused(world: World) {
    world.put("q", &["x"]).await;
    let bad = [
        ("batch", "abc"),
        ("batch", "1.5"),
        ("batch", "99999999999"),
        ("batch", ""),
        ("wait", "1"),
        ("wait", "TRUE"),
        ("autoAck", "yes"),
        ("timeout", "-5"),
        ("timeout", "1s"),
        ("partitions", "all"),
        ("leaseSeconds", "1m"),
    ];
    for (name, value) in bad {
        for path in ["/api/v1/pop/queue/q", "/api/v1/pop/queue/q/partition/Default", "/api/v1/pop"] {
            let error = world.get(&format!("{path}?namespace=q&{name}={value}")).await.error(400);
            assert!(error.contains(name), "{path} {name}={value}: {error}");
        }
    }
    for name in ["batch", "consumerGroup"] {
        let error = world.get(&format!("/api/v1/pop/queue/q?{name}=1&{name}=1")).await.error(400);
        assert!(error.contains(name), "{error}");
    }
    assert_eq!(world.pop("q", "unknown=1&unknown=2").await.ids(), ["x"], "what is not known is ignored");
}

// check: 15
// req: OPT-5
async fn an_expired_batch_comes_again(world: World) {
    world.configure("q", json!({"retryLimit": 1})).await;
    world.put("q", &ids("x", 3)).await;
    for _ in 0..10 {
        assert_eq!(world.pop("q", "leaseSeconds=1").await.ids(), ["x1", "x2", "x3"]);
        world.sleep_ms(999).await;
        assert!(world.pop("q", "leaseSeconds=1").await.is_empty());
        world.sleep_ms(1).await;
    }
    // The counter is not charged: the whole budget of one is still there.
    let popped = world.pop("q", "").await;
    let failed = world.ack(popped.message("x1"), "failed").await;
    assert_eq!(failed["dlq"], false);
    let popped = world.pop("q", "").await;
    assert_eq!(popped.ids(), ["x1", "x2", "x3"]);
    let failed = world.ack(popped.message("x1"), "failed").await;
    assert_eq!(failed["dlq"], true);
    let dead = world.dead_letters("q").await;
    assert_eq!(dead[0]["retryCount"], 1);
}

// req: OPT-5
async fn expiry_charges_nothing_ever(world: World) {
    // With no budget at all the first charge would dead-letter.
    world.configure("q", json!({"retryLimit": 0, "leaseTime": 1})).await;
    world.put("q", &["x"]).await;
    for _ in 0..50 {
        assert_eq!(world.pop("q", "").await.ids(), ["x"]);
        world.sleep(1).await;
    }
    assert!(world.dead_letters("q").await.is_empty());
}

// check: 16
async fn auto_ack_takes_no_lease(world: World) {
    world.put("q", &ids("x", 3)).await;
    let popped = world.pop("q", "autoAck=true&batch=2&leaseSeconds=1").await;
    assert_eq!(popped.ids(), ["x1", "x2"]);
    assert_eq!(popped.lease(), "");
    assert!(popped.messages().iter().all(|message| message["leaseId"] == ""));
    assert_eq!(world.pop("q", "autoAck=true").await.ids(), ["x3"], "the partition is free at once");
    world.sleep(3_600).await;
    assert!(world.pop("q", "").await.is_empty());
    // A failed ack without a batch out charges and redelivers nothing.
    let item = at(item(popped.message("x1"), "failed"), "leaseId", "");
    let result = world.ack_item(item).await;
    assert_eq!(result["success"], false);
    assert!(world.pop("q", "").await.is_empty());
}

// check: 20
// req: OPT-1, OPT-2
async fn discovery_needs_a_label_and_matches_it_exactly(world: World) {
    for query in ["", "?namespace=&task=", "?consumerGroup=g"] {
        let answer = world.get(&format!("/api/v1/pop{query}")).await.expect(400);
        assert_eq!(answer.json(), json!({"success": false, "error": "namespace or task is required", "messages": []}));
    }
    let queues = [
        ("q1", "orders", "pay"),
        ("q2", "orders", "ship"),
        ("q3", "orders2", "pay"),
        ("q4", "Orders", ""),
        ("q5", "", "pay"),
    ];
    for (queue, namespace, task) in queues {
        world.label(queue, namespace, task).await;
        world.put(queue, &[queue]).await;
    }
    let cases: [(&str, &[&str]); 8] = [
        ("namespace=orders", &["q1", "q2"]),
        ("namespace=orders&task=pay", &["q1"]),
        ("namespace=orders&task=", &["q1", "q2"]),
        ("task=pay", &["q1", "q3", "q5"]),
        ("namespace=Orders", &["q4"]),
        ("namespace=order", &[]),
        ("task=pay&namespace=orders2", &["q3"]),
        ("task=shi", &[]),
    ];
    for (n, (query, expected)) in cases.into_iter().enumerate() {
        let popped = world.discover(&format!("{query}&partitions=0&consumerGroup=g{n}")).await;
        let mut ids = popped.ids();
        ids.sort_unstable();
        assert_eq!(ids, expected, "{query}");
        if !expected.is_empty() {
            assert_eq!(popped.body["queue"], "", "{query}");
        }
    }
    // The listings show the labels.
    let listed = world.get("/api/v1/resources/queues").await.expect(200).json();
    for row in listed["queues"].as_array().expect("an array") {
        let (_, namespace, task) = queues.iter().find(|(queue, ..)| row["name"] == *queue).expect("known");
        assert_eq!((&row["namespace"], &row["task"]), (&json!(namespace), &json!(task)));
    }
    let spaces = world.get("/api/v1/resources/namespaces").await.expect(200).json();
    let names = |body: &Value, list: &str, key: &str| {
        let rows = body[list].as_array().expect("an array");
        let mut names: Vec<String> = rows.iter().map(|row| row[key].as_str().expect("a text").to_owned()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&spaces, "namespaces", "namespace"), ["Orders", "orders", "orders2"]);
    let tasks = world.get("/api/v1/resources/tasks").await.expect(200).json();
    assert_eq!(names(&tasks, "tasks", "task"), ["pay", "ship"]);
}

/// A label moves from `old` to `new` while one of three messages is committed: nothing moves with it.
async fn relabelled(world: &World, label: &str) {
    world.configure("q", json!({label: "old"})).await;
    world.put("q", &ids("x", 3)).await;
    assert_eq!(world.discover(&format!("{label}=old&batch=1&autoAck=true")).await.ids(), ["x1"]);
    world.configure("q", json!({label: "new"})).await;
    assert!(world.discover(&format!("{label}=old")).await.is_empty());
    let popped = world.discover(&format!("{label}=new")).await;
    assert_eq!(popped.ids(), ["x2", "x3"]);
    // A lease is not moved either.
    world.configure("q", json!({label: "newer"})).await;
    assert!(world.discover(&format!("{label}=newer")).await.is_empty());
    for result in world.ack_batch("__QUEUE_MODE__", popped.items("completed")).await {
        accepted(&result);
    }
    world.put("q", &["x4"]).await;
    assert_eq!(world.discover(&format!("{label}=newer")).await.ids(), ["x4"]);
    // A configure without the label wipes it.
    world.configure("q", json!({})).await;
    world.sleep(600).await;
    assert!(world.discover(&format!("{label}=newer")).await.is_empty());
    assert_eq!(world.pop("q", "").await.ids(), ["x4"]);
}

// req: OPT-1
async fn a_namespace_changes_for_the_next_discovery(world: World) {
    relabelled(&world, "namespace").await;
}

// req: OPT-2
async fn a_task_changes_for_the_next_discovery(world: World) {
    relabelled(&world, "task").await;
}

async fn discovery_leases_by_each_queues_own_time(world: World) {
    world.configure("short", json!({"namespace": "n", "leaseTime": 5})).await;
    world.configure("long", json!({"namespace": "n", "leaseTime": 10})).await;
    world.put("short", &["s"]).await;
    world.put("long", &["l"]).await;
    let popped = world.discover("namespace=n&partitions=0").await;
    assert_eq!(popped.messages().len(), 2);
    assert_eq!(popped.messages()[0]["leaseId"], popped.messages()[1]["leaseId"], "one lease id for the call");
    world.sleep(5).await;
    assert_eq!(world.discover("namespace=n&partitions=0").await.ids(), ["s"]);
    world.sleep(5).await;
    let mut again = world.discover("namespace=n&partitions=0&leaseSeconds=1").await;
    assert_eq!(again.messages().len(), 2);
    world.sleep(1).await;
    again = world.discover("namespace=n&partitions=0").await;
    assert_eq!(again.messages().len(), 2, "the request's seconds win for both");
}

// check: 21
async fn a_long_poll_ends_with_nothing_or_with_a_push(world: World) {
    let begun = Instant::now();
    assert!(world.pop("q", "wait=true&timeout=1500").await.is_empty());
    took(begun, 1_500);
    let begun = Instant::now();
    let (popped, ()) = tokio::join!(world.pop("q", "wait=true&timeout=1500"), async {
        world.sleep_ms(1_000).await;
        world.put("q", &["x"]).await;
    });
    assert_eq!(popped.ids(), ["x"]);
    took(begun, 1_000);
    // Neither without `wait` nor without time is anything waited for.
    let begun = Instant::now();
    for query in ["timeout=1500", "wait=false&timeout=1500", "wait=true&timeout=0"] {
        assert!(world.pop("q", query).await.is_empty());
    }
    took(begun, 0);
}

async fn a_long_poll_of_one_partition_and_of_labels_is_woken(world: World) {
    // Also when the queue does not exist yet.
    let begun = Instant::now();
    let (one, labels, other, ()) = tokio::join!(
        world.pop_partition("a.b", "p", "wait=true&timeout=5000"),
        world.discover("namespace=a&wait=true&timeout=5000&consumerGroup=g"),
        world.pop_partition("a.b", "q", "wait=true&timeout=5000"),
        async {
            world.sleep(1).await;
            world.put_in("a.b", "p", &["x"]).await;
        }
    );
    assert_eq!(one.ids(), ["x"]);
    assert_eq!(labels.ids(), ["x"]);
    assert!(other.is_empty());
    took(begun, 5_000);
}

async fn a_long_poll_waits_thirty_seconds_unless_told(world: World) {
    let begun = Instant::now();
    assert!(world.pop("q", "wait=true").await.is_empty());
    took(begun, 30_000);
}

async fn a_lease_counts_from_the_answer(world: World) {
    let (popped, ()) = tokio::join!(world.pop("q", "wait=true&timeout=60000&leaseSeconds=10"), async {
        world.sleep(20).await;
        world.put("q", &["x"]).await;
    });
    assert_eq!(popped.ids(), ["x"]);
    world.sleep_ms(9_999).await;
    assert!(world.pop("q", "").await.is_empty());
    world.sleep_ms(1).await;
    assert_eq!(world.pop("q", "").await.ids(), ["x"]);
}

async fn waiters_are_served_in_order_of_coming(world: World) {
    let mut waiters = Vec::new();
    for _ in 0..5 {
        let world = world.clone();
        waiters.push(tokio::spawn(async move {
            let popped = world.pop("q", "wait=true&timeout=60000&autoAck=true&batch=1").await;
            popped.ids().first().map(|id| (*id).to_owned())
        }));
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    for id in ids("x", 5) {
        world.put("q", &[id]).await;
        world.sleep_ms(1).await;
    }
    for (waiter, id) in waiters.into_iter().zip(ids("x", 5)) {
        assert_eq!(waiter.await.expect("no panic"), Some(id));
    }
}

async fn partitions_are_served_in_order_of_becoming_ready(world: World) {
    world.pop("q", "").await;
    for partition in ["c", "a", "b"] {
        world.put_in("q", partition, &ids(partition, 2)).await;
    }
    let mut served = Vec::new();
    for _ in 0..6 {
        served.extend(world.pop("q", "batch=1&autoAck=true").await.ids().into_iter().map(str::to_owned));
    }
    assert_eq!(served, ["c1", "a1", "b1", "c2", "a2", "b2"], "a partition goes to the tail after a claim");
}

async fn a_group_of_no_name_is_a_group(world: World) {
    world.put("q", &["x"]).await;
    assert_eq!(world.pop("q", "consumerGroup=&autoAck=true").await.body["consumerGroup"], "");
    assert_eq!(world.pop("q", "").await.ids(), ["x"]);
    let odd = "a b/ü+😀";
    let popped = world.pop("q", &format!("consumerGroup={}", encode(odd))).await;
    assert_eq!(popped.body["consumerGroup"], odd);
}

async fn a_redelivered_batch_is_cut_anew(world: World) {
    world.put("q", &ids("x", 5)).await;
    assert_eq!(world.pop("q", "leaseSeconds=1&batch=3").await.messages().len(), 3);
    world.sleep(1).await;
    let larger = world.pop("q", "leaseSeconds=1&batch=5").await;
    assert_eq!(larger.ids(), ids("x", 5));
    world.sleep(1).await;
    let smaller = world.pop("q", "batch=2").await;
    assert_eq!(smaller.ids(), ["x1", "x2"]);
    // Completing it completes two, although five were out before.
    for result in world.ack_batch("__QUEUE_MODE__", smaller.items("completed")).await {
        accepted(&result);
    }
    assert_eq!(world.pop("q", "").await.ids(), ["x3", "x4", "x5"]);
}
