//! Ack: what one decision does to a cursor, a lease and a batch.

use serde_json::{Value, json};

use crate::world::{Batch, QUEUE_MODE, World, accepted, at, ids, item, refused};

behaviour!(
    the_answer_has_its_keys,
    completing_the_last_completes_the_batch,
    completing_the_middle_completes_what_is_before,
    a_failed_item_clamps_its_call,
    a_retry_item_clamps_its_call_and_charges_nothing,
    a_failed_first_item_advances_nothing,
    a_status_nobody_knows_is_a_failure,
    the_worst_status_of_a_message_counts,
    a_lease_must_be_the_right_one,
    an_ack_without_a_lease_is_not_checked,
    a_lease_can_be_required,
    an_unknown_id_harms_nobody,
    an_id_above_the_batch_is_unresolved,
    an_id_that_stands_twice_is_its_lowest_in_the_batch,
    a_second_ack_meets_a_released_lease,
    a_second_ack_below_a_live_cursor_is_nothing_to_do,
    a_failure_below_the_cursor_is_refused,
    a_batch_over_two_partitions_is_two_decisions,
    two_leases_of_one_partition_are_two_decisions,
    an_ack_moves_only_its_own_group,
    an_unknown_partition_or_group_is_an_items_error,
    a_lease_less_ack_without_a_batch_charges_nothing,
    an_empty_batch_is_an_empty_answer,
    an_ack_outlives_a_restart,
    a_late_ack_of_an_expired_lease_is_refused,
    a_late_failure_of_a_given_back_lease_is_refused,
    parallel_acks_and_pops_of_one_message,
);

/// Five messages, all out under one lease.
async fn five(world: &World, query: &str) -> Batch {
    world.put("q", &ids("x", 5)).await;
    let popped = world.pop("q", query).await;
    assert_eq!(popped.ids(), ids("x", 5));
    popped
}

/// One call with these statuses for the first messages of a batch.
async fn settle(world: &World, popped: &Batch, statuses: &[&str]) -> Vec<Value> {
    let items: Vec<Value> =
        popped.messages().iter().zip(statuses).map(|(message, status)| item(message, status)).collect();
    world.ack_batch(QUEUE_MODE, items).await
}

/// The failed acks charged so far, as the next dead letter shows them.
async fn charged(world: &World, queue: &str) -> Value {
    // Later than any other, so that its row is the newest.
    world.sleep_ms(1).await;
    let popped = world.pop(queue, "batch=1").await;
    accepted(&world.ack(&popped.messages()[0], "dlq").await);
    world.dead_letters(queue).await[0]["retryCount"].clone()
}

async fn the_answer_has_its_keys(world: World) {
    let popped = five(&world, "").await;
    let results = settle(&world, &popped, &["completed", "completed"]).await;
    for (index, result) in results.iter().enumerate() {
        let expected = json!({
            "index": index, "transactionId": format!("x{}", index + 1), "success": true, "error": null,
            "leaseReleased": false, "dlq": false, "noop": false,
        });
        assert_eq!(*result, expected);
    }
    let last = world.ack(popped.message("x5"), "completed").await;
    let expected = json!({
        "index": 0, "transactionId": "x5", "success": true, "error": null, "leaseReleased": true, "dlq": false, "noop": false,
    });
    assert_eq!(last, expected);
}

// check: 27
async fn completing_the_last_completes_the_batch(world: World) {
    let popped = five(&world, "leaseSeconds=1").await;
    let result = world.ack(popped.message("x5"), "completed").await;
    accepted(&result);
    assert_eq!(result["leaseReleased"], true);
    world.sleep(10).await;
    assert!(world.pop("q", "").await.is_empty());
    assert_eq!(world.queue("q").await["totals"]["pending"], 0);
}

// check: 27
async fn completing_the_middle_completes_what_is_before(world: World) {
    let popped = five(&world, "leaseSeconds=1").await;
    let result = world.ack(popped.message("x3"), "completed").await;
    accepted(&result);
    assert_eq!(result["leaseReleased"], false, "the rest stays leased");
    assert!(world.pop("q", "").await.is_empty());
    world.sleep(1).await;
    let popped = world.pop("q", "").await;
    assert_eq!(popped.ids(), ["x4", "x5"]);
    // The rest can be acked later under its own lease.
    accepted(&world.ack(popped.message("x4"), "completed").await);
    let last = world.ack(popped.message("x5"), "success").await;
    accepted(&last);
    assert_eq!(last["leaseReleased"], true);
    assert!(world.pop("q", "").await.is_empty());
}

// check: 28
async fn a_failed_item_clamps_its_call(world: World) {
    let popped = five(&world, "").await;
    let results = settle(&world, &popped, &["ok", "failed", "ok", "ok", "ok"]).await;
    for result in &results {
        accepted(result);
        assert_eq!(result["leaseReleased"], true);
        assert_eq!(result["dlq"], false);
    }
    let popped = world.pop("q", "").await;
    assert_eq!(popped.ids(), ["x2", "x3", "x4", "x5"]);
    accepted(&world.ack(popped.message("x2"), "retry").await);
    assert_eq!(charged(&world, "q").await, 1, "one retry for the call");
}

// check: 29
// req: OPT-7
async fn a_retry_item_clamps_its_call_and_charges_nothing(world: World) {
    world.put("q", &ids("x", 3)).await;
    let popped = world.pop("q", "").await;
    let results = settle(&world, &popped, &["ok", "retry", "ok"]).await;
    for result in &results {
        accepted(result);
        assert_eq!(result["leaseReleased"], true);
    }
    // Any number of times.
    for _ in 0..20 {
        let popped = world.pop("q", "").await;
        assert_eq!(popped.ids(), ["x2", "x3"], "at once: the lease is released");
        accepted(&world.ack(popped.message("x2"), "retry").await);
    }
    assert!(world.dead_letters("q").await.is_empty());
    assert_eq!(charged(&world, "q").await, 0);
}

async fn a_failed_first_item_advances_nothing(world: World) {
    let popped = five(&world, "").await;
    settle(&world, &popped, &["failed", "completed", "completed", "completed", "completed"]).await;
    let popped = world.pop("q", "").await;
    assert_eq!(popped.ids(), ids("x", 5));
    // Two calls differ from one: the first releases the lease.
    accepted(&world.ack(popped.message("x1"), "failed").await);
    refused(&world.ack(popped.message("x2"), "completed").await, "invalid or expired lease");
    assert_eq!(world.pop("q", "").await.ids(), ids("x", 5));
}

// check: 34
async fn a_status_nobody_knows_is_a_failure(world: World) {
    world.configure("q", json!({"retryLimit": 0})).await;
    let failures = ["Completed", "COMPLETED", "", "done", "failed", "error", "Retry", " ok"];
    let good = [json!("completed"), json!("success"), json!("acked"), json!("ok"), Value::Null];
    for status in failures {
        world.put("q", &[format!("bad {status}")]).await;
        let popped = world.pop("q", "").await;
        let result = world.ack(&popped.messages()[0], status).await;
        accepted(&result);
        assert_eq!(result["dlq"], true, "{status:?} is a failure");
    }
    assert_eq!(world.dead_letters("q").await.len(), failures.len());
    for status in good {
        world.put("q", &[format!("good {status}")]).await;
        let popped = world.pop("q", "").await;
        let result = world.ack_item(at(item(&popped.messages()[0], ""), "status", status.clone())).await;
        accepted(&result);
        assert_eq!(result["dlq"], false, "{status} is no failure");
    }
    // A status left out completes.
    world.put("q", &["absent"]).await;
    let popped = world.pop("q", "").await;
    let mut absent = item(&popped.messages()[0], "");
    absent.as_object_mut().expect("an object").remove("status");
    accepted(&world.ack_item(absent).await);
    assert_eq!(world.dead_letters("q").await.len(), failures.len());
    assert!(world.pop("q", "").await.is_empty());
}

async fn the_worst_status_of_a_message_counts(world: World) {
    let popped = five(&world, "").await;
    let x2 = popped.message("x2");
    let items =
        vec![item(popped.message("x1"), "ok"), item(x2, "ok"), item(x2, "retry"), item(x2, "failed"), item(x2, "dlq")];
    for result in world.ack_batch(QUEUE_MODE, items).await {
        accepted(&result);
    }
    assert_eq!(world.dead_letters("q").await[0]["transactionId"], "x2");
    let popped = world.pop("q", "").await;
    assert_eq!(popped.ids(), ["x3", "x4", "x5"]);
    let x3 = popped.message("x3");
    world.ack_batch(QUEUE_MODE, vec![item(x3, "retry"), item(x3, "failed"), item(x3, "ok")]).await;
    assert_eq!(charged(&world, "q").await, 1, "failed beats retry and ok");
}

// check: 35
async fn a_lease_must_be_the_right_one(world: World) {
    let popped = five(&world, "leaseSeconds=5").await;
    let wrong = ["0198c0de-0000-7000-8000-000000000001", "not a lease", &popped.lease().to_uppercase()[1..]];
    for lease in wrong {
        for status in ["completed", "failed", "dlq", "retry"] {
            let item = at(item(popped.message("x5"), status), "leaseId", lease);
            let result = world.ack_item(item).await;
            refused(&result, "invalid or expired lease");
            assert_eq!(
                (&result["leaseReleased"], &result["dlq"], &result["noop"]),
                (&json!(false), &json!(false), &json!(false))
            );
        }
    }
    assert!(world.pop("q", "").await.is_empty(), "nothing was released");
    world.sleep_ms(4_999).await;
    accepted(&world.ack(popped.message("x1"), "completed").await);
    world.sleep_ms(1).await;
    refused(&world.ack(popped.message("x5"), "completed").await, "invalid or expired lease");
    assert_eq!(world.pop("q", "").await.ids(), ["x2", "x3", "x4", "x5"]);
}

// check: 35
async fn an_ack_without_a_lease_is_not_checked(world: World) {
    for lease in [json!(""), Value::Null] {
        let queue = lease.to_string();
        world.put(&queue, &ids("x", 5)).await;
        let popped = world.pop(&queue, "leaseSeconds=1").await;
        let bare = |id: &str, status: &str| at(item(popped.message(id), status), "leaseId", lease.clone());
        accepted(&world.ack_item(bare("x1", "completed")).await);
        world.sleep(5).await;
        accepted(&world.ack_item(bare("x2", "completed")).await);
        // Another worker's live batch can be completed and released so.
        let other = world.pop(&queue, "").await;
        assert_eq!(other.ids(), ["x3", "x4", "x5"]);
        accepted(&world.ack_item(bare("x5", "completed")).await);
        refused(&world.ack(other.message("x3"), "completed").await, "invalid or expired lease");
        assert!(world.pop(&queue, "").await.is_empty());
    }
}

async fn a_lease_can_be_required(world: World) {
    world.restart_with(|settings| settings.require_lease = true).await;
    let popped = five(&world, "").await;
    for lease in [json!(""), Value::Null] {
        let bare = at(item(popped.message("x1"), "completed"), "leaseId", lease);
        let result = world.ack_item(bare).await;
        refused(&result, "leaseId");
    }
    assert!(world.pop("q", "").await.is_empty());
    accepted(&world.ack(popped.message("x5"), "completed").await);
}

// check: 36
async fn an_unknown_id_harms_nobody(world: World) {
    let popped = five(&world, "").await;
    for status in ["completed", "failed", "dlq"] {
        let ghost = at(item(popped.message("x1"), status), "transactionId", "never pushed");
        let result = world.ack_item(ghost).await;
        refused(
            &result,
            "unresolvable: transaction not in the ack window (hash purged or never pushed); if leased, the message redelivers",
        );
        assert_eq!(result["leaseReleased"], false);
    }
    assert!(world.pop("q", "").await.is_empty());
    // Beside good items too.
    let mut items = popped.items("completed");
    items.insert(2, at(item(popped.message("x1"), "completed"), "transactionId", "ghost"));
    let results = world.ack_batch(QUEUE_MODE, items).await;
    refused(&results[2], "unresolvable");
    for n in [0, 1, 3, 4, 5] {
        accepted(&results[n]);
    }
    assert!(world.dead_letters("q").await.is_empty());
    assert!(world.pop("q", "").await.is_empty());
    assert_eq!(world.queue("q").await["totals"]["completed"], 5);
}

async fn an_id_above_the_batch_is_unresolved(world: World) {
    world.put("q", &ids("x", 3)).await;
    let popped = world.pop("q", "batch=2").await;
    for lease in [json!(popped.lease()), Value::Null] {
        let above = at(at(item(popped.message("x1"), "completed"), "transactionId", "x3"), "leaseId", lease);
        refused(&world.ack_item(above).await, "unresolvable");
    }
    accepted(&world.ack(popped.message("x2"), "completed").await);
    assert_eq!(world.pop("q", "").await.ids(), ["x3"]);
}

async fn an_id_that_stands_twice_is_its_lowest_in_the_batch(world: World) {
    world.configure("q", json!({"dedupWindowSeconds": 0})).await;
    for id in ["x", "y", "x", "z"] {
        world.put("q", &[id]).await;
    }
    let popped = world.pop("q", "").await;
    assert_eq!(popped.ids(), ["x", "y", "x", "z"]);
    let x = &popped.messages()[0];
    accepted(&world.ack(x, "completed").await);
    // The first is committed now, so the same address means the second.
    let again = world.ack(x, "completed").await;
    accepted(&again);
    assert_eq!(again["noop"], false);
    let third = world.ack(x, "completed").await;
    accepted(&third);
    assert_eq!(third["noop"], true, "both are below the cursor");
    accepted(&world.ack(popped.message("z"), "retry").await);
    assert_eq!(world.pop("q", "").await.ids(), ["z"]);
}

// check: 37
async fn a_second_ack_meets_a_released_lease(world: World) {
    let popped = five(&world, "").await;
    for result in world.ack_batch(QUEUE_MODE, popped.items("completed")).await {
        accepted(&result);
    }
    for result in world.ack_batch(QUEUE_MODE, popped.items("completed")).await {
        refused(&result, "invalid or expired lease");
        assert_eq!(result["noop"], false);
    }
    // Without the lease it is nothing to do.
    let bare = at(item(popped.message("x1"), "completed"), "leaseId", Value::Null);
    let result = world.ack_item(bare).await;
    accepted(&result);
    assert_eq!(result["noop"], true);
}

// check: 37
async fn a_second_ack_below_a_live_cursor_is_nothing_to_do(world: World) {
    let popped = five(&world, "").await;
    accepted(&world.ack(popped.message("x3"), "completed").await);
    for id in ["x3", "x1", "x2"] {
        let result = world.ack(popped.message(id), "completed").await;
        accepted(&result);
        assert_eq!(result["noop"], true);
        assert_eq!(result["leaseReleased"], false);
    }
    let last = world.ack(popped.message("x5"), "completed").await;
    assert_eq!((&last["success"], &last["noop"]), (&json!(true), &json!(false)));
}

// check: 38
async fn a_failure_below_the_cursor_is_refused(world: World) {
    let popped = five(&world, "").await;
    accepted(&world.ack(popped.message("x2"), "completed").await);
    for status in ["failed", "retry", "dlq"] {
        let result = world.ack(popped.message("x1"), status).await;
        refused(&result, "already committed: the cursor moved past this message before this ack");
    }
    // The lease lives on and nothing is charged.
    accepted(&world.ack(popped.message("x3"), "retry").await);
    assert_eq!(world.pop("q", "batch=1").await.ids(), ["x3"]);
    assert!(world.dead_letters("q").await.is_empty());
}

// check: 39
async fn a_batch_over_two_partitions_is_two_decisions(world: World) {
    world.put_in("q", "a", &["a1", "a2"]).await;
    world.put_in("q", "b", &["b1", "b2"]).await;
    let popped = world.pop("q", "partitions=2&leaseSeconds=5").await;
    let spoil = |message: &Value| {
        let item = item(message, "completed");
        if message["partition"] == "b" { at(item, "leaseId", "0198c0de-0000-7000-8000-000000000001") } else { item }
    };
    let items: Vec<Value> = popped.messages().iter().map(spoil).collect();
    let results = world.ack_batch(QUEUE_MODE, items).await;
    for (message, result) in popped.messages().iter().zip(&results) {
        assert_eq!(result["transactionId"], message["transactionId"], "in request order");
        match message["partition"] == "a" {
            true => accepted(result),
            false => refused(result, "invalid or expired lease"),
        }
    }
    world.sleep(5).await;
    let again = world.pop("q", "partitions=2").await;
    assert_eq!(again.ids(), ["b1", "b2"]);
    // Items of both in turn keep their places, and an item's own group is ignored.
    world.put_in("q", "a", &["a3"]).await;
    let more = world.pop("q", "").await;
    let items = vec![
        item(again.message("b1"), "ok"),
        at(item(more.message("a3"), "ok"), "consumerGroup", "somebody"),
        item(again.message("b2"), "ok"),
    ];
    let results = world.ack_batch(QUEUE_MODE, items).await;
    for (n, id) in ["b1", "a3", "b2"].into_iter().enumerate() {
        accepted(&results[n]);
        assert_eq!((&results[n]["index"], &results[n]["transactionId"]), (&json!(n), &json!(id)));
    }
    assert!(world.pop("q", "partitions=0").await.is_empty());
}

async fn two_leases_of_one_partition_are_two_decisions(world: World) {
    let old = five(&world, "leaseSeconds=1").await;
    world.sleep(1).await;
    let new = world.pop("q", "").await;
    let items = vec![
        item(old.message("x1"), "failed"),
        item(new.message("x1"), "ok"),
        item(old.message("x2"), "ok"),
        item(new.message("x5"), "ok"),
    ];
    let results = world.ack_batch(QUEUE_MODE, items).await;
    refused(&results[0], "invalid or expired lease");
    accepted(&results[1]);
    refused(&results[2], "invalid or expired lease");
    accepted(&results[3]);
    assert!(world.pop("q", "").await.is_empty());
}

// check: 40
async fn an_ack_moves_only_its_own_group(world: World) {
    world.put("q", &ids("x", 2)).await;
    let one = world.pop("q", "consumerGroup=g1&leaseSeconds=1").await;
    let two = world.pop("q", "consumerGroup=g2&leaseSeconds=1").await;
    for result in world.ack_batch("g1", one.items("completed")).await {
        accepted(&result);
    }
    // The other's lease is not g2's.
    let results = world.ack_batch("g2", one.items("completed")).await;
    refused(&results[0], "invalid or expired lease");
    world.sleep(1).await;
    assert!(world.pop("q", "consumerGroup=g1").await.is_empty());
    assert_eq!(world.pop("q", "consumerGroup=g2").await.ids(), two.ids());
}

async fn an_unknown_partition_or_group_is_an_items_error(world: World) {
    let popped = five(&world, "").await;
    let x1 = item(popped.message("x1"), "completed");
    refused(&world.ack_item(at(x1.clone(), "consumerGroup", "nobody")).await, "consumer not found");
    let elsewhere = at(x1.clone(), "partitionId", "0198c0de-0000-4000-8000-000000000001");
    assert_eq!(world.ack_item(elsewhere).await["success"], false);
    for partition in [json!("nonsense"), json!(""), Value::Null] {
        let result = world.ack_item(at(x1.clone(), "partitionId", partition)).await;
        assert_eq!(result["success"], false, "{result}");
        assert!(result["error"].as_str().is_some_and(|error| !error.is_empty()), "{result}");
    }
    // An id left out is nobody's, and is echoed as an empty text.
    let result = world.ack_item(at(x1, "transactionId", Value::Null)).await;
    assert_eq!((&result["success"], &result["transactionId"]), (&json!(false), &json!("")));
    accepted(&world.ack(popped.message("x5"), "completed").await);
}

async fn a_lease_less_ack_without_a_batch_charges_nothing(world: World) {
    let popped = five(&world, "").await;
    let bare = |id: &str, status: &str| at(item(popped.message(id), status), "leaseId", Value::Null);
    accepted(&world.ack(popped.message("x1"), "retry").await);
    // Nothing is out now: a failure charges nothing, files nothing, and is a success.
    for status in ["failed", "dlq", "retry"] {
        accepted(&world.ack_item(bare("x1", status)).await);
    }
    assert!(world.dead_letters("q").await.is_empty());
    // What is completed before it still moves the cursor.
    for result in world.ack_batch(QUEUE_MODE, vec![bare("x1", "ok"), bare("x2", "ok"), bare("x3", "failed")]).await {
        accepted(&result);
    }
    assert_eq!(world.pop("q", "").await.ids(), ["x3", "x4", "x5"]);
}

async fn an_empty_batch_is_an_empty_answer(world: World) {
    for body in ["{}", r#"{"acknowledgments":[]}"#, r#"{"consumerGroup":null,"acknowledgments":[]}"#] {
        assert_eq!(world.post_text("/api/v1/ack/batch", body).await.expect(200).text(), "[]");
    }
}

async fn an_ack_outlives_a_restart(world: World) {
    let popped = five(&world, "").await;
    accepted(&world.ack(popped.message("x2"), "completed").await);
    world.restart().await;
    assert!(world.pop("q", "").await.is_empty(), "the lease is stored");
    accepted(&world.ack(popped.message("x3"), "completed").await);
    world.sleep(60).await;
    assert_eq!(world.pop("q", "").await.ids(), ["x4", "x5"]);
}

// scn: 2
async fn a_late_ack_of_an_expired_lease_is_refused(world: World) {
    world.configure("q", json!({"retryLimit": 0})).await;
    world.put("q", &["x"]).await;
    let first = world.pop("q", "leaseSeconds=1").await;
    world.sleep(1).await;
    let second = world.pop("q", "").await;
    accepted(&world.ack(second.message("x"), "completed").await);
    refused(&world.ack(first.message("x"), "failed").await, "invalid or expired lease");
    world.sleep(3_600).await;
    assert!(world.pop("q", "").await.is_empty(), "the message stays completed");
    // With a budget of none, a charge would have dead-lettered.
    assert!(world.dead_letters("q").await.is_empty());
    world.put("q", &["y"]).await;
    assert_eq!(charged(&world, "q").await, 0);
}

// scn: 3
async fn a_late_failure_of_a_given_back_lease_is_refused(world: World) {
    world.configure("q", json!({"retryLimit": 1})).await;
    world.put("q", &["x"]).await;
    let first = world.pop("q", "leaseSeconds=1").await;
    world.sleep(1).await;
    let second = world.pop("q", "").await;
    accepted(&world.ack(second.message("x"), "retry").await);
    refused(&world.ack(first.message("x"), "failed").await, "invalid or expired lease");
    assert_eq!(world.pop("q", "leaseSeconds=1").await.ids(), ["x"]);
    world.sleep(1).await;
    assert_eq!(charged(&world, "q").await, 0);
}

// scn: 5
async fn parallel_acks_and_pops_of_one_message(world: World) {
    for latency in [0, 5] {
        world.faults().set_latency_ms(latency);
        let queue = format!("q{latency}");
        world.put(&queue, &["x1", "x2"]).await;
        let popped = world.pop(&queue, "batch=1").await;
        let mut acks = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let (world, message) = (world.clone(), popped.message("x1").clone());
            acks.spawn(async move { world.ack(&message, "completed").await });
        }
        let results = acks.join_all().await;
        assert_eq!(results.iter().filter(|result| result["success"] == true).count(), 1, "{results:?}");
        for result in results.iter().filter(|result| result["success"] == false) {
            refused(result, "invalid or expired lease");
        }
        let mut pops = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let (world, queue) = (world.clone(), queue.clone());
            pops.spawn(async move { world.pop_partition(&queue, "Default", "batch=1").await });
        }
        let served: Vec<Batch> = pops.join_all().await.into_iter().filter(|popped| !popped.is_empty()).collect();
        assert_eq!(served.len(), 1, "one lease");
        assert_eq!(served[0].ids(), ["x2"]);
    }
}
