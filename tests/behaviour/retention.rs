//! What retention deletes, when, and what consumers and operators see of it.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate_core::time::Span;

use crate::world::{World, accepted, ids, item};

behaviour!(
    without_a_rule_nothing_is_ever_deleted,
    whole_segments_go_when_all_of_them_is_past,
    a_cursor_in_a_deleted_range_goes_on_behind_it,
    deletion_goes_in_steps_and_pushes_go_on,
    what_some_group_has_still_to_read_is_kept,
    a_group_counts_where_it_stands_or_would_start,
    max_wait_takes_leased_batches_too,
    acks_and_repeats_of_deleted_messages_are_resolved_for_a_while,
    a_dead_letter_of_a_deleted_message_has_no_payload,
    seeks_and_new_groups_start_at_what_is_left,
    a_dry_run_tells_and_changes_nothing,
    an_empty_partition_that_nobody_uses_is_removed,
    a_crash_between_the_steps_leaves_nothing_behind,
);

/// Longer than a cycle.
const CYCLE: u64 = 6;

async fn total(world: &World, queue: &str) -> i64 {
    world.queue(queue).await["totals"]["total"].as_i64().expect("a number")
}

async fn metric(world: &World, line: &str) -> String {
    let text = world.get("/metrics/prometheus").await.expect(200).text().to_owned();
    let found = text.lines().find_map(|printed| printed.strip_prefix(line));
    found.unwrap_or("nothing").trim().to_owned()
}

/// Takes everything that waits for a group, and acks it.
async fn consume(world: &World, queue: &str, group: &str) -> Vec<String> {
    let mut taken = Vec::new();
    loop {
        let batch = world.pop(queue, &format!("consumerGroup={group}&batch=1000&subscriptionMode=all")).await;
        if batch.is_empty() {
            return taken;
        }
        taken.extend(batch.ids().iter().map(|id| (*id).to_owned()));
        world.ack_batch(group, batch.items("completed")).await.iter().for_each(accepted);
    }
}

// req: OPT-14
async fn without_a_rule_nothing_is_ever_deleted(world: World) {
    world.put("q", &["a", "b"]).await;
    world.configure("q", json!({"retentionSeconds": 10, "completedRetentionSeconds": 10})).await;
    world.configure("gated", json!({"retentionEnabled": true})).await;
    world.put("gated", &["a"]).await;
    consume(&world, "q", "g").await;
    world.sleep(600).await;
    assert_eq!((total(&world, "q").await, total(&world, "gated").await), (2, 1));
    // Turned on, the next cycle deletes.
    world.configure("q", json!({"retentionEnabled": true, "retentionSeconds": 10})).await;
    world.sleep(CYCLE).await;
    assert_eq!(total(&world, "q").await, 0);
    world.put("q", &["c"]).await;
    // Turned off, it stops, and nothing comes back.
    world.configure("q", json!({"retentionSeconds": 10})).await;
    world.sleep(600).await;
    assert_eq!(total(&world, "q").await, 1);
    assert_eq!(consume(&world, "q", "late").await, ["c"]);
}

// req: OPT-15
async fn whole_segments_go_when_all_of_them_is_past(world: World) {
    world.configure("q", json!({"retentionEnabled": true, "retentionSeconds": 60})).await;
    for n in 0..4 {
        world.put("q", &[format!("a{n}"), format!("b{n}")]).await;
        world.sleep(20).await;
    }
    // At 80 s: the one of second 0 is past, a cycle later than its minute at most.
    assert_eq!(total(&world, "q").await, 6);
    let before = world.queue("q").await["retainedBytes"].as_i64().expect("a number");
    // One batch is out, one was never read: both go.
    let batch = world.pop("q", "batch=2&leaseSeconds=600").await;
    assert_eq!(batch.ids(), ["a1", "b1"]);
    world.configure("q", json!({"retentionEnabled": true, "retentionSeconds": 30})).await;
    world.sleep(CYCLE).await;
    assert_eq!(total(&world, "q").await, 2, "a lowered window holds from the next cycle");
    let after = world.queue("q").await["retainedBytes"].as_i64().expect("a number");
    assert_eq!(after * 3, before, "payload bytes are those that are left");
    world.sleep(30 + CYCLE).await;
    assert_eq!((total(&world, "q").await, world.queue("q").await["retainedBytes"].clone()), (0, json!(0)));
    // The lease stays, its ack works, and the log goes on where it was.
    let mut item = item(batch.message("b1"), "completed");
    item["leaseId"] = json!(batch.lease());
    accepted(&world.ack_item(item).await);
    world.restart().await;
    world.put("q", &["new"]).await;
    assert_eq!(world.pop("q", "").await.ids(), ["new"]);
}

// req: OPT-16, scn: 26
async fn a_cursor_in_a_deleted_range_goes_on_behind_it(world: World) {
    for hundred in 0..5 {
        world.put("q", &ids(&format!("old{hundred}-"), 100)).await;
    }
    let first = world.pop("q", "consumerGroup=g&batch=10&subscriptionMode=all").await;
    world.ack_batch("g", first.items("completed")).await.iter().for_each(accepted);
    let out = world.pop("q", "consumerGroup=g&batch=10&leaseSeconds=40").await;
    assert_eq!(out.messages().len(), 10);
    world.sleep(30).await;
    world.put("q", &["m501", "m502"]).await;
    world.configure("q", json!({"maxWaitTimeSeconds": 20})).await;
    world.sleep(CYCLE + 5).await;
    assert_eq!(total(&world, "q").await, 2);
    let group = world.group("g").await;
    assert_eq!(group["q"]["partitions"][0]["offsetLag"], json!(2), "{group}");
    for restarted in [false, true] {
        if restarted {
            world.crash().await;
        }
        let next = world.pop("q", "consumerGroup=g&batch=1&leaseSeconds=1").await;
        assert_eq!(next.ids(), ["m501"], "no error, no replay");
        world.sleep(1).await;
    }
    // A parked pop is served too.
    consume(&world, "q", "g").await;
    let parked = world.pop("q", "consumerGroup=g&wait=true&timeout=60000");
    let (batch, ()) = tokio::join!(parked, async {
        world.sleep(40).await;
        world.put("q", &["m503"]).await;
    });
    assert_eq!(batch.ids(), ["m503"]);
}

// req: OPT-17
async fn deletion_goes_in_steps_and_pushes_go_on(world: World) {
    world
        .restart_with(|settings| {
            settings.retention_batch = 10;
            settings.retention_interval = Span::from_secs(60);
        })
        .await;
    for n in 0..95 {
        world.put_in("q", if n % 3 == 0 { "one" } else { "two" }, &[format!("{n}")]).await;
    }
    world.sleep(70).await;
    world.configure("q", json!({"maxWaitTimeSeconds": 60})).await;
    world.faults().set_latency_ms(200);
    let mut totals = vec![total(&world, "q").await];
    let mut pushed = 0;
    while totals.last() != Some(&0) && totals.len() < 1_000 {
        let begun = tokio::time::Instant::now();
        world.put_in("other", "p", &[format!("{pushed}")]).await;
        assert!(begun.elapsed() < Duration::from_secs(2), "a push waits for a step at most");
        pushed += 1;
        totals.push(total(&world, "q").await);
    }
    let steps: Vec<i64> = totals.windows(2).map(|pair| pair[0] - pair[1]).filter(|step| *step > 0).collect();
    assert_eq!(steps.iter().sum::<i64>(), 95, "{totals:?}");
    assert!(steps.len() >= 5, "pushes and looks go between the steps: {steps:?}");
    world.faults().set_latency_ms(0);
    assert_eq!(consume(&world, "other", "g").await.len(), pushed);
}

// req: OPT-18, scn: 25
async fn what_some_group_has_still_to_read_is_kept(world: World) {
    for queue in ["read", "unread"] {
        world.configure(queue, json!({"retentionEnabled": true, "completedRetentionSeconds": 1})).await;
    }
    // One group that read nothing; no group at all.
    assert!(world.pop("read", "consumerGroup=idle&subscriptionMode=all").await.is_empty());
    for queue in ["read", "unread"] {
        for hundred in 0..10 {
            world.put(queue, &ids(&format!("{hundred}-"), 100)).await;
        }
    }
    world.sleep(60).await;
    assert_eq!((total(&world, "read").await, total(&world, "unread").await), (1_000, 1_000));
    // Another group changes nothing for the one that lags.
    consume(&world, "read", "busy").await;
    consume(&world, "unread", "busy").await;
    world.sleep(CYCLE).await;
    assert_eq!((total(&world, "read").await, total(&world, "unread").await), (1_000, 0));
    // A live lease is what has still to be committed.
    let batch = world.pop("read", "consumerGroup=idle&batch=250").await;
    assert_eq!(batch.messages().len(), 250);
    world.sleep(CYCLE).await;
    assert_eq!(total(&world, "read").await, 1_000);
    world.ack_batch("idle", batch.items("completed")).await.iter().for_each(accepted);
    world.sleep(CYCLE).await;
    assert_eq!(total(&world, "read").await, 800, "whole segments");
    world.delete("/api/v1/consumer-groups/idle").await.expect(200);
    world.sleep(CYCLE).await;
    assert_eq!(total(&world, "read").await, 0, "a deleted group does not count");
}

// req: OPT-18
async fn a_group_counts_where_it_stands_or_would_start(world: World) {
    world.put("q", &["old"]).await;
    consume(&world, "q", "done").await;
    // Its record implies the end, and it never pops again: what is older does not wait for it, a restart or not.
    assert!(world.pop("q", "consumerGroup=new&subscriptionMode=new").await.is_empty());
    world.restart().await;
    world.configure("q", json!({"retentionEnabled": true, "completedRetentionSeconds": 1})).await;
    world.sleep(CYCLE).await;
    assert_eq!(total(&world, "q").await, 0);
    world.put("q", &["young"]).await;
    world.put_in("q", "other", &["young"]).await;
    assert_eq!(consume(&world, "q", "done").await.len(), 2);
    world.restart().await;
    world.sleep(CYCLE).await;
    assert_eq!(total(&world, "q").await, 2, "those are for the new group");
    assert_eq!(consume(&world, "q", "new").await.len(), 2);
    world.sleep(CYCLE).await;
    assert_eq!(total(&world, "q").await, 0);
}

// req: OPT-19
async fn max_wait_takes_leased_batches_too(world: World) {
    world.configure("q", json!({"maxWaitTimeSeconds": 10, "retryLimit": 0})).await;
    world.put("q", &["leased", "waiting"]).await;
    let batch = world.pop("q", "consumerGroup=g&batch=1&leaseSeconds=30&subscriptionMode=all").await;
    assert_eq!(batch.ids(), ["leased"]);
    world.sleep(8).await;
    assert_eq!(total(&world, "q").await, 2, "not before its time");
    world.sleep(CYCLE + 2).await;
    assert_eq!(total(&world, "q").await, 0);
    assert!(world.pop("q", "consumerGroup=g&batch=10").await.is_empty());
    world.sleep(30).await;
    assert!(world.pop("q", "consumerGroup=g&batch=10").await.is_empty(), "nothing comes again");
    assert!(world.dead_letters("q").await.is_empty(), "no dead-lettering, no notice");
    let deleted = metric(&world, "tidegate_retention_deleted_messages_total{queue=\"q\",rule=\"maxWaitTimeSeconds\"}");
    assert_eq!(deleted.await, "2");
    let unconsumed = "tidegate_retention_unconsumed_messages_total{queue=\"q\",rule=\"maxWaitTimeSeconds\"}";
    assert_eq!(metric(&world, unconsumed).await, "2");
}

// req: OPT-26
async fn acks_and_repeats_of_deleted_messages_are_resolved_for_a_while(world: World) {
    world.configure("q", json!({"maxWaitTimeSeconds": 10, "dedupWindowSeconds": 600})).await;
    let first = world.push(json!([{"queue": "q", "transactionId": "x", "payload": 1}])).await.expect(201).list();
    let batch = world.pop("q", "consumerGroup=g&leaseSeconds=2000&subscriptionMode=all").await;
    let second = world.pop("q", "consumerGroup=h&leaseSeconds=2000&subscriptionMode=all").await;
    let third = world.pop("q", "consumerGroup=i&leaseSeconds=2000&subscriptionMode=all").await;
    world.sleep(30).await;
    assert_eq!(total(&world, "q").await, 0);
    for restarted in [false, true] {
        if restarted {
            world.restart().await;
        }
        let again = world.push(json!([{"queue": "q", "transactionId": "x", "payload": 2}])).await.expect(201).list();
        assert_eq!((&again[0]["status"], &again[0]["messageId"]), (&json!("duplicate"), &first[0]["messageId"]));
    }
    accepted(&world.ack(batch.message("x"), "completed").await);
    world.sleep(800).await;
    world.restart().await;
    accepted(&world.ack(second.message("x"), "completed").await);
    world.sleep(100).await;
    let late = world.ack(third.message("x"), "completed").await;
    assert_eq!(late["success"], json!(false), "{late}");
    // Its id is free again, and so it was from ten minutes on.
    assert_eq!(world.push_ids("q", &["x"]).await, ["queued"]);
}

async fn a_dead_letter_of_a_deleted_message_has_no_payload(world: World) {
    world.configure("q", json!({"maxWaitTimeSeconds": 10})).await;
    world.put("q", &["x"]).await;
    let batch = world.pop("q", "consumerGroup=g&leaseSeconds=600&subscriptionMode=all").await;
    world.sleep(20).await;
    assert_eq!(total(&world, "q").await, 0);
    accepted(&world.ack(batch.message("x"), "dlq").await);
    let letters = world.dead_letters("q").await;
    assert_eq!((letters.len(), &letters[0]["data"]), (1, &Value::Null));
    world.sleep(600).await;
    assert_eq!(world.dead_letters("q").await.len(), 1, "no rule deletes dead letters");
}

// scn: 27
async fn seeks_and_new_groups_start_at_what_is_left(world: World) {
    world.put("q", &["a", "b"]).await;
    world.sleep(60).await;
    world.put("q", &["c", "d"]).await;
    assert_eq!(consume(&world, "q", "g").await, ["a", "b", "c", "d"]);
    world.configure("q", json!({"retentionEnabled": true, "retentionSeconds": 50})).await;
    world.sleep(CYCLE).await;
    let start = json!({"timestamp": "2020-01-01T00:00:00Z"});
    world.seek("g", "q", start).await.expect(200);
    assert_eq!(consume(&world, "q", "g").await, ["c", "d"]);
    world.delete("/api/v1/consumer-groups/g").await.expect(200);
    assert_eq!(consume(&world, "q", "g").await, ["c", "d"]);
    world.crash().await;
    assert_eq!(consume(&world, "q", "other").await, ["c", "d"]);
}

async fn a_dry_run_tells_and_changes_nothing(world: World) {
    let path = "/api/v1/resources/queues/q/retention";
    assert_eq!(world.get(path).await.error(404), "Queue not found");
    world.put("q", &["a", "b"]).await;
    world.put_in("q", "other", &["c"]).await;
    world.sleep(100).await;
    let oldest = world.queue("q").await["partitions"][0]["oldestMessage"].clone();
    world.put("q", &["d"]).await;
    let batch = world.pop_partition("q", "Default", "consumerGroup=g&batch=1&subscriptionMode=all").await;
    accepted(&world.ack(batch.message("a"), "completed").await);
    let rules = |world: World| async move {
        let body = world.get(path).await.expect(200).json();
        let rules = body["rules"].as_array().expect("an array").clone();
        (body, rules)
    };
    let (body, off) = rules(world.clone()).await;
    assert_eq!((&body["queue"], &body["retentionEnabled"]), (&json!("q"), &json!(false)));
    assert!(off.iter().all(|rule| rule["active"] == json!(false) && rule["messages"] == json!(0)), "{off:?}");
    // A cycle is five seconds away: the dry run sees what it will do.
    world.restart().await;
    let options = json!({"retentionEnabled": true, "retentionSeconds": 50, "completedRetentionSeconds": 50,
        "maxWaitTimeSeconds": 5000});
    world.configure("q", options).await;
    let (body, on) = rules(world.clone()).await;
    let rule = |rule: &str, seconds, segments, messages, unconsumed, oldest: &Value| {
        json!({"rule": rule, "seconds": seconds, "active": true, "segments": segments, "messages": messages,
            "unconsumed": unconsumed, "oldestMessage": oldest})
    };
    let expected = [
        rule("retentionSeconds", 50, 2, 3, 2, &oldest),
        rule("completedRetentionSeconds", 50, 0, 0, 0, &Value::Null),
        rule("maxWaitTimeSeconds", 5_000, 0, 0, 0, &Value::Null),
    ];
    assert_eq!(on, expected);
    assert_eq!(rules(world.clone()).await.0, body);
    assert_eq!(total(&world, "q").await, 4, "nothing has changed");
    world.sleep(CYCLE).await;
    assert_eq!(total(&world, "q").await, 1);
    let unconsumed = "tidegate_retention_unconsumed_messages_total{queue=\"q\",rule=\"retentionSeconds\"}";
    assert_eq!(metric(&world, unconsumed).await, "2");
}

async fn an_empty_partition_that_nobody_uses_is_removed(world: World) {
    world
        .restart_with(|settings| {
            settings.partition_idle = Some(Span::from_secs(2_000));
            settings.retention_interval = Span::from_secs(30);
        })
        .await;
    let options = json!({"maxWaitTimeSeconds": 10, "dedupWindowSeconds": 0});
    world.configure("q", options).await;
    for partition in ["unused", "leased", "dead", "busy"] {
        world.put_in("q", partition, &["x"]).await;
    }
    world.put_in("kept", "p", &["x"]).await;
    let dead = world.pop_partition("q", "dead", "consumerGroup=g&subscriptionMode=all").await;
    accepted(&world.ack(dead.message("x"), "dlq").await);
    let leased = world.pop_partition("q", "leased", "consumerGroup=g&leaseSeconds=9000&subscriptionMode=all").await;
    assert!(!leased.is_empty());
    assert!(!world.pop_partition("q", "unused", "consumerGroup=g&subscriptionMode=all").await.is_empty());
    world.sleep(1_000).await;
    world.put_in("q", "busy", &["y"]).await;
    let names = |world: World| async move {
        let queue = world.queue("q").await;
        let partitions = queue["partitions"].as_array().expect("an array").clone();
        partitions.iter().map(|it| it["name"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    world.sleep(900).await;
    assert_eq!(names(world.clone()).await, ["busy", "dead", "leased", "unused"]);
    world.sleep(300).await;
    assert_eq!(names(world.clone()).await, ["busy", "dead", "leased"]);
    assert_eq!(total(&world, "kept").await, 1, "without a rule nothing is empty");
    world.restart().await;
    assert_eq!(names(world.clone()).await, ["busy", "dead", "leased"]);
    // Its name starts afresh.
    world.put_in("q", "unused", &["x"]).await;
    assert_eq!(world.pop_partition("q", "unused", "consumerGroup=g&subscriptionMode=all").await.ids(), ["x"]);
}

async fn a_crash_between_the_steps_leaves_nothing_behind(world: World) {
    world.configure("q", json!({"maxWaitTimeSeconds": 10, "dedupWindowSeconds": 0})).await;
    for n in 0..20 {
        world.put("q", &[format!("{n}")]).await;
    }
    world.sleep(6).await;
    // Watermark and removal are some hundred milliseconds apart.
    world.faults().set_latency_ms(300);
    while total(&world, "q").await > 0 {
        world.sleep_ms(100).await;
    }
    world.faults().set_latency_ms(0);
    world.crash().await;
    world.put("q", &["new"]).await;
    world.sleep(2).await;
    assert_eq!(consume(&world, "q", "g").await, ["new"]);
    assert_eq!(world.rows_below_watermarks(), 0, "the next owner goes on with what is left");
    assert_eq!(world.kept_hashes("q").await, 20);
    // Hashes follow a quarter of an hour later.
    world.sleep(1_000).await;
    assert_eq!((world.rows_below_watermarks(), world.kept_hashes("q").await), (0, 0));
}
