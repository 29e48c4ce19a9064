//! The retry budget: what charges it, what it leads to, what resets it.

use serde_json::{Value, json};

use crate::world::{Batch, QUEUE_MODE, World, accepted, ids, item};

behaviour!(
    the_fourth_failure_of_three_dead_letters,
    no_budget_dead_letters_at_once,
    both_flags_off_drop,
    one_flag_is_enough_to_dead_letter,
    a_dead_letter_status_asks_no_budget,
    the_budget_belongs_to_the_cursor,
    groups_and_partitions_have_budgets_of_their_own,
    a_completed_batch_resets_the_counter,
    a_partial_completion_resets_nothing,
    an_implicit_completion_resets_nothing_by_itself,
    a_dead_letter_resets_the_counter,
    a_drop_resets_the_counter,
    a_seek_resets_the_counter,
    a_lower_limit_holds_for_the_next_failure,
    a_higher_limit_holds_for_the_next_failure,
    flags_change_for_the_next_exhaustion,
    the_reason_is_the_failed_items,
    the_counter_outlives_a_restart,
    two_of_three_and_the_next_starts_anew,
    only_the_poison_is_dead_lettered,
    a_client_that_dies_at_the_poison_dead_letters_nothing,
    a_dropped_message_is_counted_and_gone,
    one_failure_of_a_hundred_lets_nothing_overtake,
);

/// Pops one message and fails it; gives the ack's result.
async fn fail(world: &World, queue: &str, id: &str) -> Value {
    let popped = world.pop(queue, "batch=1").await;
    assert_eq!(popped.ids(), [id]);
    let result = world.ack(popped.message(id), "failed").await;
    accepted(&result);
    assert_eq!(result["leaseReleased"], true);
    result
}

/// Fails a message `times` times, of which none may be the last.
async fn fail_in_vain(world: &World, queue: &str, id: &str, times: usize) {
    for _ in 0..times {
        let result = fail(world, queue, id).await;
        assert_eq!(result["dlq"], false);
        assert_ne!(result["dropped"], true);
    }
}

/// Fails a message once more, which dead-letters it.
async fn fail_for_good(world: &World, queue: &str, id: &str) {
    assert_eq!(fail(world, queue, id).await["dlq"], true);
    assert!(world.dead_letters(queue).await.iter().any(|row| row["transactionId"] == id));
}

// check: 30
// req: OPT-6
async fn the_fourth_failure_of_three_dead_letters(world: World) {
    world.put("q", &["x1", "x2"]).await;
    fail_in_vain(&world, "q", "x1", 3).await;
    assert!(world.dead_letters("q").await.is_empty());
    let popped = world.pop("q", "").await;
    let items = vec![
        json!({
            "transactionId": "x1", "partitionId": popped.partition_id(), "leaseId": popped.lease(), "status": "failed",
            "error": "the fourth",
        }),
        item(popped.message("x2"), "ok"),
    ];
    let results = world.ack_batch(QUEUE_MODE, items).await;
    accepted(&results[0]);
    assert_eq!((&results[0]["dlq"], &results[1]["dlq"]), (&json!(true), &json!(false)), "only the dead one says so");
    let dead = world.dead_letters("q").await;
    assert_eq!(dead.len(), 1);
    assert_eq!(
        (&dead[0]["transactionId"], &dead[0]["errorMessage"], &dead[0]["retryCount"]),
        (&json!("x1"), &json!("the fourth"), &json!(3))
    );
    assert_eq!(world.pop("q", "").await.ids(), ["x2"], "the next message");
}

// check: 31
// req: OPT-6
async fn no_budget_dead_letters_at_once(world: World) {
    world.configure("q", json!({"retryLimit": 0})).await;
    world.put("q", &["x"]).await;
    fail_for_good(&world, "q", "x").await;
    assert_eq!(world.dead_letters("q").await[0]["retryCount"], 0);
    assert!(world.pop("q", "").await.is_empty());
}

// check: 32
// req: OPT-6, OPT-9
async fn both_flags_off_drop(world: World) {
    world.configure("q", json!({"retryLimit": 1, "deadLetterQueue": false, "dlqAfterMaxRetries": false})).await;
    world.put("q", &["x1", "x2"]).await;
    fail_in_vain(&world, "q", "x1", 1).await;
    let result = fail(&world, "q", "x1").await;
    assert_eq!((&result["dlq"], &result["dropped"]), (&json!(false), &json!(true)));
    assert!(world.dead_letters("q").await.is_empty());
    assert_eq!(world.pop("q", "").await.ids(), ["x2"]);
}

// check: 32
// req: OPT-9
async fn one_flag_is_enough_to_dead_letter(world: World) {
    for (queue, options) in [
        ("a", json!({"retryLimit": 0, "deadLetterQueue": false, "dlqAfterMaxRetries": true})),
        ("b", json!({"retryLimit": 0, "deadLetterQueue": true, "dlqAfterMaxRetries": false})),
        ("c", json!({"retryLimit": 0, "deadLetterQueue": false})),
        ("d", json!({"retryLimit": 0, "dlqAfterMaxRetries": false})),
    ] {
        world.configure(queue, options).await;
        world.put(queue, &["x"]).await;
        fail_for_good(&world, queue, "x").await;
    }
}

// check: 33
async fn a_dead_letter_status_asks_no_budget(world: World) {
    // Also where exhausted messages are dropped: the client asked for it.
    world.configure("off", json!({"deadLetterQueue": false, "dlqAfterMaxRetries": false})).await;
    for queue in ["q", "off"] {
        world.put(queue, &["x1", "x2", "x3"]).await;
        let popped = world.pop(queue, "").await;
        let items =
            vec![item(popped.message("x1"), "ok"), item(popped.message("x2"), "dlq"), item(popped.message("x3"), "ok")];
        let results = world.ack_batch(QUEUE_MODE, items).await;
        let dead: Vec<&Value> = results.iter().map(|result| &result["dlq"]).collect();
        assert_eq!(dead, [false, true, false], "{queue}");
        let rows = world.dead_letters(queue).await;
        assert_eq!((rows.len(), &rows[0]["retryCount"], &rows[0]["transactionId"]), (1, &json!(0), &json!("x2")));
        assert_eq!(world.pop(queue, "").await.ids(), ["x3"], "{queue}");
    }
}

async fn the_budget_belongs_to_the_cursor(world: World) {
    world.configure("q", json!({"retryLimit": 2})).await;
    world.put("q", &ids("x", 3)).await;
    let popped = world.pop("q", "").await;
    accepted(&world.ack(popped.message("x1"), "failed").await);
    let popped = world.pop("q", "").await;
    // One call, two failures: one charge, and the lowest is the one that counts.
    let items = vec![
        item(popped.message("x3"), "failed"),
        item(popped.message("x1"), "ok"),
        item(popped.message("x2"), "failed"),
    ];
    for result in world.ack_batch(QUEUE_MODE, items).await {
        accepted(&result);
    }
    // The third failed ack of this cursor, though the first of x2 alone.
    fail_for_good(&world, "q", "x2").await;
    fail_in_vain(&world, "q", "x3", 2).await;
}

async fn groups_and_partitions_have_budgets_of_their_own(world: World) {
    world.configure("q", json!({"retryLimit": 1})).await;
    for partition in ["a", "b"] {
        world.put_in("q", partition, &["x"]).await;
    }
    for (partition, group) in [("a", "g"), ("a", "h"), ("b", "g"), ("b", "h")] {
        let popped = world.pop_partition("q", partition, &format!("consumerGroup={group}")).await;
        assert_eq!(world.ack(popped.message("x"), "failed").await["dlq"], false, "{partition} {group}");
    }
    for (partition, group) in [("b", "h"), ("a", "g"), ("b", "g"), ("a", "h")] {
        let popped = world.pop_partition("q", partition, &format!("consumerGroup={group}")).await;
        assert_eq!(world.ack(popped.message("x"), "failed").await["dlq"], true, "{partition} {group}");
    }
    assert_eq!(world.dead_letters("q").await.len(), 4);
}

/// A queue of limit 2 whose cursor has one message failed twice: `x1` of `x1`…`x4`.
async fn charged_twice(world: &World) {
    world.configure("q", json!({"retryLimit": 2})).await;
    world.put("q", &ids("x", 4)).await;
    fail_in_vain(world, "q", "x1", 2).await;
}

// req: OPT-6
async fn a_completed_batch_resets_the_counter(world: World) {
    charged_twice(&world).await;
    // By the whole batch with its lease, the usual way.
    let popped = world.pop("q", "batch=1").await;
    accepted(&world.ack(popped.message("x1"), "completed").await);
    fail_in_vain(&world, "q", "x2", 2).await;
    // By the last message of a batch.
    let popped = world.pop("q", "batch=2").await;
    accepted(&world.ack(popped.message("x3"), "completed").await);
    fail_in_vain(&world, "q", "x4", 2).await;
    // Without a lease.
    let popped = world.pop("q", "batch=1").await;
    accepted(&world.ack_item(json!({"transactionId": "x4", "partitionId": popped.partition_id()})).await);
    world.put("q", &["x5"]).await;
    fail_in_vain(&world, "q", "x5", 2).await;
    fail_for_good(&world, "q", "x5").await;
}

// req: OPT-6
async fn a_partial_completion_resets_nothing(world: World) {
    charged_twice(&world).await;
    let popped = world.pop("q", "batch=3").await;
    accepted(&world.ack(popped.message("x1"), "completed").await);
    accepted(&world.ack(popped.message("x2"), "completed").await);
    let result = world.ack(popped.message("x3"), "failed").await;
    assert_eq!(result["dlq"], true, "two charges are still there");
}

async fn an_implicit_completion_resets_nothing_by_itself(world: World) {
    charged_twice(&world).await;
    let popped = world.pop("q", "").await;
    // x1 is passed over by the cursor together with x2: a part of the batch.
    let results =
        world.ack_batch(QUEUE_MODE, vec![item(popped.message("x2"), "ok"), item(popped.message("x3"), "failed")]).await;
    assert_eq!((&results[0]["dlq"], &results[1]["dlq"]), (&json!(false), &json!(true)));
    assert_eq!(world.dead_letters("q").await[0]["transactionId"], "x3");
}

// req: OPT-6
async fn a_dead_letter_resets_the_counter(world: World) {
    charged_twice(&world).await;
    fail_for_good(&world, "q", "x1").await;
    fail_in_vain(&world, "q", "x2", 2).await;
    // By status too.
    let popped = world.pop("q", "batch=1").await;
    accepted(&world.ack(popped.message("x2"), "dlq").await);
    fail_in_vain(&world, "q", "x3", 2).await;
    fail_for_good(&world, "q", "x3").await;
}

// req: OPT-6
async fn a_drop_resets_the_counter(world: World) {
    world.configure("q", json!({"retryLimit": 2, "deadLetterQueue": false, "dlqAfterMaxRetries": false})).await;
    world.put("q", &ids("x", 2)).await;
    fail_in_vain(&world, "q", "x1", 2).await;
    assert_eq!(fail(&world, "q", "x1").await["dropped"], true);
    fail_in_vain(&world, "q", "x2", 2).await;
    assert_eq!(fail(&world, "q", "x2").await["dropped"], true);
}

// req: OPT-6
async fn a_seek_resets_the_counter(world: World) {
    charged_twice(&world).await;
    world.seek(QUEUE_MODE, "q", json!({"timestamp": "1970-01-01T00:00:00Z"})).await.expect(200);
    fail_in_vain(&world, "q", "x1", 2).await;
    fail_for_good(&world, "q", "x1").await;
}

// req: OPT-8, CFG-9
// scn: 11
async fn a_lower_limit_holds_for_the_next_failure(world: World) {
    world.configure("q", json!({"retryLimit": 5})).await;
    world.put("q", &["x", "y"]).await;
    fail_in_vain(&world, "q", "x", 2).await;
    world.configure("q", json!({"retryLimit": 1})).await;
    assert!(world.dead_letters("q").await.is_empty(), "not at the configure");
    let popped = world.pop("q", "batch=1").await;
    assert_eq!(popped.ids(), ["x"]);
    accepted(&world.ack(popped.message("x"), "retry").await);
    assert!(world.dead_letters("q").await.is_empty(), "nor at a retry");
    fail_for_good(&world, "q", "x").await;
    assert_eq!(world.dead_letters("q").await[0]["retryCount"], 2, "the counter stood");
}

// req: OPT-8
async fn a_higher_limit_holds_for_the_next_failure(world: World) {
    world.configure("q", json!({"retryLimit": 1})).await;
    world.put("q", &["x"]).await;
    fail_in_vain(&world, "q", "x", 1).await;
    world.configure("q", json!({"retryLimit": 3})).await;
    fail_in_vain(&world, "q", "x", 2).await;
    fail_for_good(&world, "q", "x").await;
}

// req: OPT-9
async fn flags_change_for_the_next_exhaustion(world: World) {
    let flags = |on: bool| json!({"retryLimit": 0, "deadLetterQueue": on, "dlqAfterMaxRetries": on});
    world.configure("q", flags(true)).await;
    world.put("q", &ids("x", 3)).await;
    fail_for_good(&world, "q", "x1").await;
    world.configure("q", flags(false)).await;
    assert_eq!(fail(&world, "q", "x2").await["dropped"], true);
    assert_eq!(world.dead_letters("q").await.len(), 1, "what was filed stays");
    world.configure("q", flags(true)).await;
    fail_for_good(&world, "q", "x3").await;
    // Whatever the retention options say, a dead letter stays.
    let retention = json!({
        "retentionEnabled": true, "retentionSeconds": 1, "completedRetentionSeconds": 1, "maxWaitTimeSeconds": 1,
    });
    world.configure("q", retention).await;
    world.sleep(3_600).await;
    assert_eq!(world.dead_letters("q").await.len(), 2);
}

async fn the_reason_is_the_failed_items(world: World) {
    world.configure("q", json!({"retryLimit": 0})).await;
    // Status and error of each of two messages, and what the dead letter of the first says.
    let cases = [
        ([("failed", Some("mine")), ("failed", Some("other"))], "mine"),
        ([("failed", None), ("failed", Some("other"))], "other"),
        ([("failed", Some("")), ("failed", Some("other"))], "other"),
        ([("failed", None), ("ok", Some("not a failure"))], "Retries exhausted"),
        ([("failed", Some("with \u{0} inside")), ("ok", None)], "with \u{0} inside"),
    ];
    for (n, (statuses, expected)) in cases.into_iter().enumerate() {
        world.put("q", &[format!("{n}a"), format!("{n}b")]).await;
        let popped = world.pop("q", "").await;
        let with = |(message, (status, error)): (&Value, &(&str, Option<&str>))| {
            let mut item = item(message, status);
            item["error"] = json!(error);
            item
        };
        let items: Vec<Value> = popped.messages().iter().zip(&statuses).map(with).collect();
        world.ack_batch(QUEUE_MODE, items).await;
        let rows = world.dead_letters("q").await;
        let row = rows.iter().find(|row| row["transactionId"] == format!("{n}a")).expect("filed");
        assert_eq!(row["errorMessage"], expected);
        let popped = world.pop("q", "").await;
        accepted(&world.ack(&popped.messages()[0], "completed").await);
    }
}

// scn: 10
async fn the_counter_outlives_a_restart(world: World) {
    world.configure("q", json!({"retryLimit": 1})).await;
    world.put("q", &["x"]).await;
    fail_in_vain(&world, "q", "x", 1).await;
    world.restart().await;
    fail_for_good(&world, "q", "x").await;
    world.configure("r", json!({"retryLimit": 1})).await;
    world.put("r", &["x"]).await;
    fail_in_vain(&world, "r", "x", 1).await;
    world.crash().await;
    fail_for_good(&world, "r", "x").await;
}

/// One call that completes some and fails one.
async fn settle(world: &World, popped: &Batch, completed: &[&str], failed: &str) -> bool {
    let mut items: Vec<Value> = completed.iter().map(|id| item(popped.message(id), "ok")).collect();
    items.push(item(popped.message(failed), "failed"));
    let results = world.ack_batch(QUEUE_MODE, items).await;
    results.last().expect("one")["dlq"] == true
}

// req: OPT-6
// scn: 6
async fn two_of_three_and_the_next_starts_anew(world: World) {
    world.configure("q", json!({"retryLimit": 2})).await;
    world.put("q", &ids("x", 3)).await;
    let popped = world.pop("q", "batch=3").await;
    assert!(!settle(&world, &popped, &["x1"], "x2").await);
    for last in [false, true] {
        let popped = world.pop("q", "batch=3").await;
        assert_eq!(popped.ids(), ["x2", "x3"]);
        assert_eq!(settle(&world, &popped, &[], "x2").await, last, "at exactly the third failed ack");
    }
    fail_in_vain(&world, "q", "x3", 2).await;
    fail_for_good(&world, "q", "x3").await;
}

// scn: 7
async fn only_the_poison_is_dead_lettered(world: World) {
    world.put("q", &ids("x", 5)).await;
    let popped = world.pop("q", "batch=5").await;
    assert!(!settle(&world, &popped, &["x1", "x2"], "x3").await);
    for last in [false, false, true] {
        let popped = world.pop("q", "batch=5").await;
        assert_eq!(popped.ids(), ["x3", "x4", "x5"]);
        assert_eq!(settle(&world, &popped, &[], "x3").await, last);
    }
    let popped = world.pop("q", "batch=5").await;
    assert_eq!(popped.ids(), ["x4", "x5"]);
    for result in world.ack_batch(QUEUE_MODE, popped.items("completed")).await {
        accepted(&result);
    }
    let dead = world.dead_letters("q").await;
    assert_eq!((dead.len(), &dead[0]["transactionId"]), (1, &json!("x3")));
    let totals = world.queue("q").await["totals"].clone();
    assert_eq!((&totals["pending"], &totals["completed"], &totals["deadLetter"]), (&json!(0), &json!(4), &json!(1)));
}

// scn: 7
async fn a_client_that_dies_at_the_poison_dead_letters_nothing(world: World) {
    world.put("q", &ids("x", 5)).await;
    for round in 0..30 {
        let popped = world.pop("q", "batch=5&leaseSeconds=2").await;
        if round == 0 {
            accepted(&world.ack(popped.message("x2"), "completed").await);
        } else {
            assert_eq!(popped.ids(), ["x3", "x4", "x5"]);
        }
        world.sleep(2).await;
    }
    assert!(world.dead_letters("q").await.is_empty());
}

// req: OPT-9
// scn: 8
async fn a_dropped_message_is_counted_and_gone(world: World) {
    world.configure("q", json!({"retryLimit": 1, "deadLetterQueue": false, "dlqAfterMaxRetries": false})).await;
    world.put("q", &ids("x", 3)).await;
    for id in ids("x", 3) {
        fail_in_vain(&world, "q", &id, 1).await;
        let result = fail(&world, "q", &id).await;
        assert_eq!((&result["dlq"], &result["dropped"]), (&json!(false), &json!(true)));
    }
    assert!(world.pop("q", "").await.is_empty());
    assert!(world.dead_letters("q").await.is_empty());
    assert_eq!(world.queue("q").await["totals"]["pending"], 0);
    let standing = world.group(QUEUE_MODE).await;
    let partition = &standing["q"]["partitions"][0];
    assert_eq!((&partition["totalConsumed"], &partition["offsetLag"]), (&json!(3), &json!(0)));
}

// scn: 12
async fn one_failure_of_a_hundred_lets_nothing_overtake(world: World) {
    world.put("q", &ids("x", 100)).await;
    let popped = world.pop("q", "batch=10").await;
    accepted(&world.ack(popped.message("x3"), "failed").await);
    assert_eq!(world.pop("q", "batch=10").await.ids(), ids("x", 10));
    assert!(world.pop("q", "batch=10").await.is_empty());
}
