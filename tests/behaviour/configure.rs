//! Configure: what is accepted, what is echoed, what is replaced.

use serde_json::{Value, json};
use tidegate_core::options::{Kind, OPTIONS};

use crate::world::{World, ids};

behaviour!(
    a_configure_replaces_everything,
    the_echo_has_seventeen_options,
    the_answer_tells_all,
    options_stand_in_an_object_or_at_the_top,
    labels_stand_in_options_or_at_the_top,
    only_the_queue_is_required,
    numbers_and_booleans_have_several_spellings,
    a_bad_value_is_refused_and_changes_nothing,
    a_lease_time_of_each_kind,
    a_new_value_holds_for_the_next_decision,
    a_configure_touches_no_message,
    options_outlive_a_restart,
);

/// What a configure without options echoes.
fn defaults() -> Value {
    json!({
        "leaseTime": 300, "retryLimit": 3, "retryDelay": 1000, "priority": 0, "maxSize": 0, "ttl": 3600,
        "deadLetterQueue": true, "dlqAfterMaxRetries": true, "delayedProcessing": 0, "windowBuffer": 0,
        "retentionEnabled": false, "retentionSeconds": 0, "completedRetentionSeconds": 0, "maxWaitTimeSeconds": 0,
        "minPopWaitTime": 0, "encryptionEnabled": false, "dedupWindowSeconds": 3600,
    })
}

/// A value for each option that is not its default. Encryption stays off: without a key it refuses pushes.
fn others() -> Value {
    json!({
        "leaseTime": 11, "retryLimit": 12, "retryDelay": 13, "priority": 14, "maxSize": 15, "ttl": 16,
        "deadLetterQueue": false, "dlqAfterMaxRetries": false, "delayedProcessing": 17, "windowBuffer": 18,
        "retentionEnabled": true, "retentionSeconds": 19, "completedRetentionSeconds": 20, "maxWaitTimeSeconds": 21,
        "minPopWaitTime": 22, "encryptionEnabled": false, "dedupWindowSeconds": 23,
    })
}

/// The options of a queue as they are stored, seen by configuring nothing else: there is no route that shows them all.
async fn effective_lease(world: &World, queue: &str) -> Value {
    world.put(queue, &["probe"]).await;
    let popped = world.pop(queue, "consumerGroup=probe").await;
    world.find(popped.partition_id(), "probe").await.expect(200).json()["queueConfig"].clone()
}

// check: 45
// req: CFG-1
async fn a_configure_replaces_everything(world: World) {
    let mut all = others();
    all["namespace"] = json!("n");
    all["task"] = json!("t");
    let echoed = world.configure("q", all).await;
    assert_eq!(echoed, others());
    assert_eq!(world.queue("q").await["namespace"], "n");
    // Each option left out goes back to its default, one at a time.
    for option in &OPTIONS {
        let mut but_one = others();
        but_one.as_object_mut().expect("an object").remove(option.name);
        let mut expected = others();
        expected[option.name] = defaults()[option.name].clone();
        assert_eq!(world.configure("q", but_one).await, expected, "without {}", option.name);
    }
    world.configure("q", others()).await;
    assert_eq!(world.configure("q", json!({"retryLimit": 7})).await["leaseTime"], 300);
    assert_eq!(world.configure("q", json!({})).await, defaults());
    let detail = world.queue("q").await;
    assert_eq!((&detail["namespace"], &detail["task"]), (&json!(""), &json!("")));
}

// check: 45
// req: CFG-5
async fn the_echo_has_seventeen_options(world: World) {
    let echoed = world.configure("q", json!({"unknownOption": 1, "mode": "merge"})).await;
    assert_eq!(echoed, defaults(), "what nobody knows is ignored");
    assert_eq!(echoed.as_object().expect("an object").len(), 17);
    assert_eq!(world.configure("q", json!({"leaseTime": "120"})).await["leaseTime"], 120);
}

// req: CFG-5
async fn the_answer_tells_all(world: World) {
    let body = json!({"queue": "orders", "namespace": "shop", "options": {"task": "pay", "dedupWindowSeconds": 60}});
    let first = world.post("/api/v1/configure", body.clone()).await.expect(200).json();
    let mut options = defaults();
    options["dedupWindowSeconds"] = json!(60);
    let id: uuid::Uuid = first["queueId"].as_str().expect("a text").parse().expect("a UUID");
    let expected = json!({
        "configured": true, "queueId": id.to_string(), "partitionId": null, "queue": "orders", "namespace": "shop",
        "task": "pay", "storage": "segments", "options": options,
    });
    assert_eq!(first, expected);
    let detail = world.queue("orders").await;
    assert_eq!((&detail["id"], &detail["partitions"]), (&first["queueId"], &json!([])), "no partition is created");
    world.put("orders", &["x"]).await;
    let second = world.post("/api/v1/configure", body).await.expect(200).json();
    assert_eq!(second, expected, "the id is stable");
}

// req: CFG-2
async fn options_stand_in_an_object_or_at_the_top(world: World) {
    let configure = async |body: Value| world.post("/api/v1/configure", body).await.expect(200).json();
    let inside = configure(json!({"queue": "q", "options": {"leaseTime": 5}})).await;
    assert_eq!(inside["options"]["leaseTime"], 5);
    for options in [None, Some(Value::Null), Some(json!([])), Some(json!("x")), Some(json!(1))] {
        let mut body = json!({"queue": "q", "leaseTime": 6, "retryLimit": 7, "namespace": "n"});
        if let Some(options) = options {
            body["options"] = options;
        }
        let top = configure(body.clone()).await;
        assert_eq!((&top["options"]["leaseTime"], &top["options"]["retryLimit"]), (&json!(6), &json!(7)), "{body}");
        assert_eq!(top["namespace"], "n");
    }
    // With an object, extras at the top are no options, not even bad ones.
    let both = configure(json!({"queue": "q", "options": {"retryLimit": 8}, "leaseTime": 9, "ttl": "nonsense"})).await;
    let mut expected = defaults();
    expected["retryLimit"] = json!(8);
    assert_eq!(both["options"], expected);
    let empty = configure(json!({"queue": "q", "options": {}, "leaseTime": 9})).await;
    assert_eq!(empty["options"], defaults());
}

// req: CFG-3
async fn labels_stand_in_options_or_at_the_top(world: World) {
    let cases = [
        (json!({"options": {"namespace": "in", "task": "side"}}), "in", "side"),
        (json!({"options": {}, "namespace": "out", "task": "top"}), "out", "top"),
        (json!({"options": {"namespace": "in"}, "namespace": "out", "task": "top"}), "in", "top"),
        (json!({"options": {"task": "side"}, "namespace": "out", "task": "top"}), "out", "side"),
        (json!({"namespace": "out", "task": "top"}), "out", "top"),
        (json!({"namespace": null, "task": null, "options": {"leaseTime": 300}}), "", ""),
        (json!({}), "", ""),
    ];
    for (mut body, namespace, task) in cases {
        body["queue"] = json!("q");
        let answer = world.post("/api/v1/configure", body.clone()).await.expect(200).json();
        assert_eq!((&answer["namespace"], &answer["task"]), (&json!(namespace), &json!(task)), "{body}");
        let detail = world.queue("q").await;
        assert_eq!((&detail["namespace"], &detail["task"]), (&json!(namespace), &json!(task)), "{body}");
    }
}

// req: CFG-4
async fn only_the_queue_is_required(world: World) {
    world.post("/api/v1/configure", json!({"queue": "q"})).await.expect(200);
    let bodies = [
        json!({}),
        json!({"queue": null}),
        json!({"queue": 5}),
        json!({"queue": ["q"]}),
        json!({"queue": {"name": "q"}}),
        json!({"queue": true}),
        json!({"options": {"leaseTime": 5}}),
        json!({"options": {"queue": "q"}}),
    ];
    for body in bodies {
        assert_eq!(world.post("/api/v1/configure", body.clone()).await.error(400), "queue is required", "{body}");
    }
    assert_eq!(world.queue_names().await, ["q"], "nothing was made");
    assert_eq!(effective_lease(&world, "q").await["leaseTime"], 300, "and nothing changed");
    let empty =
        world.post("/api/v1/configure", json!({"queue": "", "options": {"leaseTime": 5}})).await.expect(200).json();
    assert_eq!(empty["queue"], "");
    assert_eq!(world.queue_names().await, ["", "q"]);
    assert_eq!(effective_lease(&world, "").await["leaseTime"], 5);
}

// req: CFG-10
async fn numbers_and_booleans_have_several_spellings(world: World) {
    for option in &OPTIONS {
        let set = async |value: Value| world.configure("q", json!({option.name: value})).await[option.name].clone();
        match option.kind {
            Kind::Integer { max, .. } => {
                for (value, stored) in
                    [(json!(7), 7), (json!("120"), 120), (json!("0"), 0), (json!(0), 0), (json!(max), max)]
                {
                    assert_eq!(set(value.clone()).await, stored, "{} {value}", option.name);
                }
            }
            Kind::Boolean => {
                for yes in [
                    json!(true),
                    json!(1),
                    json!("true"),
                    json!("yes"),
                    json!("on"),
                    json!("1"),
                    json!("t"),
                    json!("TRUE"),
                ] {
                    assert_eq!(set(yes.clone()).await, true, "{} {yes}", option.name);
                }
                for no in [
                    json!(false),
                    json!(0),
                    json!("false"),
                    json!("no"),
                    json!("off"),
                    json!("0"),
                    json!("f"),
                    json!("No"),
                ] {
                    assert_eq!(set(no.clone()).await, false, "{} {no}", option.name);
                }
            }
        }
        assert_eq!(set(Value::Null).await, defaults()[option.name], "null is the default");
    }
    assert_eq!(world.configure("q", json!({"priority": -5})).await["priority"], -5, "a priority may be negative");
}

// req: CFG-10
async fn a_bad_value_is_refused_and_changes_nothing(world: World) {
    let before = world.configure("q", others()).await;
    let mut tried = 0;
    for option in &OPTIONS {
        let mut bad = vec![json!("abc"), json!(1.5), json!({}), json!([1]), json!("1.5"), json!(""), json!(1e20)];
        match option.kind {
            Kind::Integer { clamp, min, .. } => {
                bad.extend([json!(true), json!("0x10"), json!("5s")]);
                if !clamp {
                    bad.extend([
                        json!(2_147_483_648i64),
                        json!(99_999_999_999_999_999i64),
                        json!("99999999999999999999999"),
                    ]);
                    if min == 0 {
                        bad.extend([json!(-1), json!("-1"), json!(-2_147_483_648i64)]);
                    }
                }
            }
            Kind::Boolean => bad.extend([json!(2), json!(-1), json!("maybe"), json!("2")]),
        }
        for value in bad {
            for body in [
                json!({"queue": "q", "options": {"leaseTime": 99, option.name: value}}),
                json!({"queue": "q", "retryLimit": 99, option.name: value}),
                json!({"queue": "fresh", "options": {option.name: value}}),
            ] {
                let error = world.post("/api/v1/configure", body.clone()).await.error(400);
                assert!(error.contains(option.name), "{body}: {error}");
                tried += 1;
            }
        }
    }
    assert!(tried > 300);
    assert_eq!(world.queue_names().await, ["q"], "no queue was created");
    // The stored row is as it was: with the delay and window away, everything else shows in what it does.
    let config = world.configure("probe", json!({})).await;
    assert_eq!(config, defaults());
    world.restart_with(|_| ()).await;
    world.put("q", &ids("x", 2)).await;
    let popped = world.pop("q", "wait=true&timeout=60000").await;
    let stored = world.find(popped.partition_id(), "x1").await.expect(200).json()["queueConfig"].clone();
    assert_eq!(
        stored,
        json!({"leaseTime": before["leaseTime"], "retryLimit": before["retryLimit"], "retryDelay": before["retryDelay"],
               "ttl": before["ttl"], "priority": before["priority"]})
    );
    for labels in [json!({"namespace": 5}), json!({"task": {}}), json!({"namespace": ["a"]}), json!({"task": true})] {
        let name = labels.as_object().expect("an object").keys().next().expect("one").clone();
        let error = world.post("/api/v1/configure", json!({"queue": "q", "options": labels})).await.error(400);
        assert!(error.contains(&name), "{error}");
    }
}

// req: CFG-10
// scn: 38
async fn a_lease_time_of_each_kind(world: World) {
    assert_eq!(world.configure("q", json!({"leaseTime": "5"})).await["leaseTime"], 5);
    for body in [r#"5.5"#, "true", "1e20", "{}", "5.0", "5e0"] {
        let text = format!(r#"{{"queue":"q","options":{{"leaseTime":{body}}}}}"#);
        let error = world.post_text("/api/v1/configure", &text).await.error(400);
        assert!(error.contains("leaseTime"), "{body}: {error}");
    }
    assert_eq!(effective_lease(&world, "q").await["leaseTime"], 5);
    let error = world.post("/api/v1/configure", json!({"queue": "q", "dedupWindowSeconds": -1})).await.error(400);
    assert!(error.contains("dedupWindowSeconds"), "{error}");
}

// req: CFG-9
async fn a_new_value_holds_for_the_next_decision(world: World) {
    // leaseTime, retryLimit, flags, delay, window and hold have tests of their own; here all change in one call, back
    // and forth, and each next call is decided by it.
    world.put("q", &["x"]).await;
    for round in 0..5u64 {
        let lease = 10 + round;
        world.configure("q", json!({"leaseTime": lease, "retryLimit": 0, "delayedProcessing": 1_000})).await;
        assert!(world.pop("q", "").await.is_empty());
        world.configure("q", json!({"leaseTime": lease, "windowBuffer": 2_000})).await;
        assert!(world.pop("q", "").await.is_empty());
        world.configure("q", json!({"leaseTime": lease, "dedupWindowSeconds": 0})).await;
        assert_eq!(world.push_ids("dedup", &[format!("{round}")]).await, ["queued"]);
        assert_eq!(world.pop("q", "").await.ids(), ["x"]);
        world.sleep_ms(lease * 1_000 - 1).await;
        assert!(world.pop("q", "").await.is_empty());
        world.sleep_ms(1).await;
    }
    world.configure("q", json!({"dedupWindowSeconds": 0})).await;
    assert_eq!(world.push_ids("q", &["x"]).await, ["queued"]);
    world.configure("q", json!({})).await;
    assert_eq!(world.push_ids("q", &["x"]).await, ["duplicate"]);
}

async fn a_configure_touches_no_message(world: World) {
    world.put("q", &ids("x", 3)).await;
    let popped = world.pop("q", "batch=2").await;
    world.configure("q", others()).await;
    world.configure("q", json!({})).await;
    crate::world::accepted(&world.ack(popped.message("x2"), "completed").await);
    assert_eq!(world.pop("q", "").await.ids(), ["x3"]);
    assert_eq!(world.pop("q", "consumerGroup=g").await.ids(), ids("x", 3));
}

async fn options_outlive_a_restart(world: World) {
    let mut all = others();
    all["delayedProcessing"] = json!(0);
    all["windowBuffer"] = json!(0);
    world.configure("a.b", all).await;
    world.restart().await;
    assert_eq!(effective_lease(&world, "a.b").await["leaseTime"], 11);
    assert_eq!(world.queue("a.b").await["namespace"], "", "labels are stored, not derived anew");
}
