//! A store that fails, loses answers, is away or slow, and a broker that dies: what clients are told, and what is so.

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::world::{Answer, QUEUE_MODE, World, accepted, ids, item, took_between};

behaviour!(
    a_push_that_failed_can_be_sent_again,
    a_lost_answer_is_found_out,
    a_lost_commit_is_found_out,
    a_transaction_never_lies_about_what_it_did,
    an_ack_that_failed_changed_nothing,
    a_lost_answer_to_an_ack_is_found_out,
    a_pop_is_never_an_empty_queue_while_the_store_is_away,
    a_parked_call_is_not_told_that_nothing_is_there,
    a_broker_outlives_its_stores_absence,
    health_is_a_round_trip,
    a_slow_store_changes_no_answer,
    a_killed_brokers_lease_ends_on_time,
    a_killed_broker_loses_nothing_it_acknowledged,
);

async fn push(world: &World, queue: &str, id: &str) -> Answer {
    world.push(json!([{"queue": queue, "transactionId": id, "payload": id}])).await
}

#[track_caller]
fn unavailable(answer: &Answer) {
    answer.error(503);
    assert_eq!(answer.json()["code"], "store_unavailable", "{}", answer.text());
}

// scn: 15
async fn a_push_that_failed_can_be_sent_again(world: World) {
    world.put("q", &["first"]).await;
    world.faults().fail_commits(1);
    unavailable(&push(&world, "q", "x").await);
    assert_eq!(push(&world, "q", "x").await.expect(201).list()[0]["status"], "queued", "not called duplicate");
    // Also when it would have made the queue, and with others of its id waiting behind it.
    world.faults().fail_commits(1);
    unavailable(&push(&world, "fresh", "x").await);
    assert_eq!(world.queue_names().await, ["q"]);
    world.faults().set_latency_ms(5);
    world.faults().fail_commits(1);
    let (one, two) = tokio::join!(push(&world, "fresh", "y"), push(&world, "fresh", "y"));
    let stored = [&one, &two].iter().filter(|answer| answer.status == 201).count();
    assert!(stored <= 1, "{} {}", one.text(), two.text());
    let again = push(&world, "fresh", "y").await.expect(201).list();
    assert_eq!(again[0]["status"], if stored == 1 { "duplicate" } else { "queued" });
    assert_eq!(world.pop("fresh", "").await.ids(), ["y"]);
    assert_eq!(world.pop("q", "").await.ids(), ["first", "x"]);
}

/// Sends until the outcome is certain, as a client with an id of its own does.
async fn push_for_sure(world: &World, queue: &str, id: &str) {
    for _ in 0..100 {
        let answer = push(world, queue, id).await;
        if answer.status == 201 {
            return;
        }
        answer.error(503);
        world.sleep_ms(100).await;
    }
    panic!("never stored");
}

async fn a_lost_answer_is_found_out(world: World) {
    for n in 0..5 {
        world.faults().lose_answers(1);
        let answer = push(&world, "q", &format!("x{n}")).await;
        if answer.status != 201 {
            assert_eq!(answer.json()["code"], "outcome_unknown");
        }
        push_for_sure(&world, "q", &format!("x{n}")).await;
    }
    assert_eq!(world.pop("q", "").await.ids(), ["x0", "x1", "x2", "x3", "x4"], "each exactly once");
}

async fn a_lost_commit_is_found_out(world: World) {
    for n in 0..5 {
        world.faults().lose_commits(1);
        let answer = push(&world, "q", &format!("x{n}")).await;
        if answer.status != 201 {
            answer.error(503);
            assert!(
                ["outcome_unknown", "store_unavailable"].contains(&answer.json()["code"].as_str().expect("a code"))
            );
        }
        push_for_sure(&world, "q", &format!("x{n}")).await;
    }
    assert_eq!(world.pop("q", "").await.ids(), ["x0", "x1", "x2", "x3", "x4"], "each exactly once");
}

async fn a_transaction_never_lies_about_what_it_did(world: World) {
    world.put("in", &ids("x", 3)).await;
    for (n, fault) in ["failed", "answer lost", "commit lost"].into_iter().enumerate() {
        let popped = world.pop("in", "batch=1&leaseSeconds=5").await;
        let id = format!("y{n}");
        let mut ack = item(&popped.messages()[0], "completed");
        ack["type"] = json!("ack");
        let body = json!({"operations": [ack, {"type": "push", "queue": "out", "transactionId": id, "payload": 0}]});
        match fault {
            "failed" => world.faults().fail_commits(1),
            "answer lost" => world.faults().lose_answers(1),
            _ => world.faults().lose_commits(1),
        }
        let answer = world.post("/api/v1/transaction", body).await;
        let out = world.pop("out", "autoAck=true").await;
        world.sleep(5).await;
        let left = world.queue("in").await["totals"]["pending"].as_i64().expect("a number");
        let happened = out.ids() == [id.as_str()];
        assert!(happened || out.is_empty());
        assert_eq!(left == 2 - i64::try_from(n).expect("small"), happened, "both halves or neither: {fault}");
        match answer.status {
            200 => assert_eq!(answer.json()["success"], happened, "{fault}: {}", answer.text()),
            503 => {
                assert!(!answer.error(503).contains("rolled back"), "{fault}");
                let certain = answer.json()["code"] == "store_unavailable";
                assert!(!(certain && happened), "{fault}: {}", answer.text());
            }
            other => panic!("{fault}: {other} {}", answer.text()),
        }
        if !happened {
            // Out of the way for the next round.
            let popped = world.pop("in", "batch=1").await;
            accepted(&world.ack(&popped.messages()[0], "completed").await);
        }
    }
}

async fn an_ack_that_failed_changed_nothing(world: World) {
    world.put("q", &ids("x", 2)).await;
    let popped = world.pop("q", "leaseSeconds=10").await;
    world.faults().fail_commits(1);
    let body = json!({"consumerGroup": QUEUE_MODE, "acknowledgments": popped.items("completed")});
    let answer = world.post("/api/v1/ack/batch", body).await;
    unavailable(&answer);
    assert!(world.pop("q", "").await.is_empty(), "still leased");
    for result in world.ack_batch(QUEUE_MODE, popped.items("completed")).await {
        accepted(&result);
    }
    world.sleep(60).await;
    assert!(world.pop("q", "").await.is_empty());
}

async fn a_lost_answer_to_an_ack_is_found_out(world: World) {
    world.put("q", &ids("x", 2)).await;
    let popped = world.pop("q", "leaseSeconds=100").await;
    world.faults().lose_answers(1);
    let body = json!({"consumerGroup": QUEUE_MODE, "acknowledgments": popped.items("completed")});
    let answer = world.post("/api/v1/ack/batch", body).await;
    match answer.status {
        200 => assert!(answer.list().iter().all(|result| result["success"] == true), "{}", answer.text()),
        _ => assert_eq!((answer.status, &answer.json()["code"]), (503, &json!("outcome_unknown"))),
    }
    world.sleep(200).await;
    assert!(world.pop("q", "").await.is_empty(), "it was carried out");
}

async fn a_pop_is_never_an_empty_queue_while_the_store_is_away(world: World) {
    world.put("q", &["x"]).await;
    world.faults().set_away(true);
    // Whoever owns the slot for a moment longer cannot lease either; afterwards nobody does.
    for pause in [0, 5, 60] {
        world.sleep(pause).await;
        for path in [
            "/api/v1/pop/queue/q",
            "/api/v1/pop/queue/q?autoAck=true",
            "/api/v1/pop/queue/q/partition/Default",
            "/api/v1/pop?namespace=q",
            "/api/v1/pop/queue/q?wait=true&timeout=10000",
        ] {
            let begun = Instant::now();
            let answer = world.get(path).await;
            answer.error(503);
            let after: u64 = answer.header("retry-after").expect("Retry-After").parse().expect("seconds");
            assert!((1..=60).contains(&after), "{after}");
            took_between(begun, 0, 10_010);
        }
    }
    world.faults().set_away(false);
    assert_eq!(world.pop("q", "wait=true&timeout=10000").await.ids(), ["x"]);
}

async fn a_parked_call_is_not_told_that_nothing_is_there(world: World) {
    world.put("q", &["x"]).await;
    let held = world.pop("q", "leaseSeconds=5").await;
    assert_eq!(held.ids(), ["x"]);
    let (parked, ()) = tokio::join!(world.get("/api/v1/pop/queue/q?wait=true&timeout=20000"), async {
        world.sleep(1).await;
        world.faults().set_away(true);
    });
    parked.error(503);
    world.faults().set_away(false);
    // Back in time, and a parked call notices nothing.
    world.sleep(10).await;
    let held = world.pop("q", "wait=true&timeout=10000&leaseSeconds=5").await;
    assert_eq!(held.ids(), ["x"]);
    let (parked, ()) = tokio::join!(world.pop("q", "wait=true&timeout=20000"), async {
        world.faults().set_away(true);
        world.sleep_ms(500).await;
        world.faults().set_away(false);
    });
    assert_eq!(parked.ids(), ["x"]);
}

async fn a_broker_outlives_its_stores_absence(world: World) {
    for absence in [1, 10, 3_600] {
        let queue = format!("q{absence}");
        world.put(&queue, &["x"]).await;
        let popped = world.pop(&queue, "leaseSeconds=5").await;
        world.faults().set_away(true);
        world.sleep(absence).await;
        unavailable_or_unowned(&push(&world, &queue, "y").await);
        world.faults().set_away(false);
        push_for_sure(&world, &queue, "y").await;
        world.sleep(5).await;
        let again = world.pop(&queue, "wait=true&timeout=10000").await;
        assert_eq!(again.ids(), ["x", "y"], "after {absence} s");
        assert_eq!(world.ack(popped.message("x"), "completed").await["success"], false);
        accepted(&world.ack(again.message("y"), "completed").await);
    }
}

#[track_caller]
fn unavailable_or_unowned(answer: &Answer) {
    answer.error(503);
    let code = answer.json()["code"].clone();
    assert!(code == "store_unavailable" || code == "outcome_unknown", "{code}");
}

async fn health_is_a_round_trip(world: World) {
    let healthy = json!({"status": "healthy", "database": "connected", "engine": "segments-rust", "version": "1.0.0"});
    assert_eq!(world.get("/health").await.expect(200).json(), healthy);
    world.faults().set_away(true);
    for pause in [0, 10] {
        world.sleep(pause).await;
        let body = world.get("/health").await.expect(503).json();
        assert_eq!((&body["status"], &body["database"]), (&json!("unhealthy"), &json!("disconnected")));
        assert_eq!(world.get("/status").await.expect(200).json(), json!({"status": "ok", "engine": "segments-rust"}));
        world.get("/metrics/prometheus").await.expect(200);
    }
    world.faults().set_away(false);
    world.sleep(10).await;
    assert_eq!(world.get("/health").await.expect(200).json(), healthy);
}

async fn a_slow_store_changes_no_answer(world: World) {
    world.faults().set_latency_ms(40);
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..20 {
        let world = world.clone();
        tasks.spawn(async move {
            for k in 0..5 {
                world.put_in("q", &format!("p{}", n % 4), &[format!("{n}-{k}")]).await;
            }
        });
    }
    let consumers: Vec<_> = (0..4)
        .map(|_| {
            let world = world.clone();
            tokio::spawn(async move {
                let mut seen: Vec<Value> = Vec::new();
                loop {
                    let popped = world.pop("q", "wait=true&timeout=2000&batch=7").await;
                    if popped.is_empty() {
                        return seen;
                    }
                    for result in world.ack_batch(QUEUE_MODE, popped.items("completed")).await {
                        accepted(&result);
                    }
                    seen.extend(popped.messages().iter().cloned());
                }
            })
        })
        .collect();
    tasks.join_all().await;
    let mut seen = Vec::new();
    for consumer in consumers {
        seen.extend(consumer.await.expect("no panic"));
    }
    let mut ids: Vec<&str> = seen.iter().map(|message| message["transactionId"].as_str().expect("a text")).collect();
    ids.sort_unstable();
    assert_eq!(ids.len(), 100);
    ids.dedup();
    assert_eq!(ids.len(), 100, "each exactly once");
}

// scn: 4
async fn a_killed_brokers_lease_ends_on_time(world: World) {
    world.put("q", &["x"]).await;
    let begun = Instant::now();
    assert_eq!(world.pop("q", "leaseSeconds=10").await.ids(), ["x"]);
    world.sleep(1).await;
    world.crash().await;
    assert!(world.pop("q", "").await.is_empty());
    let popped = world.pop("q", "wait=true&timeout=60000").await;
    assert_eq!(popped.ids(), ["x"]);
    took_between(begun, 10_000, 11_000);
}

async fn a_killed_broker_loses_nothing_it_acknowledged(world: World) {
    world.configure("q", json!({"leaseTime": 3_600})).await;
    for round in 0..10 {
        world.put("q", &[format!("{round}a"), format!("{round}b")]).await;
        let popped = world.pop("q", "batch=2").await;
        assert_eq!(popped.ids(), [format!("{round}a"), format!("{round}b")]);
        accepted(&world.ack(&popped.messages()[0], "completed").await);
        world.crash().await;
        assert_eq!(world.push_ids("q", &[format!("{round}a")]).await, ["duplicate"]);
        accepted(&world.ack(&popped.messages()[1], "completed").await);
    }
    assert!(world.pop("q", "").await.is_empty());
    assert_eq!(world.queue("q").await["totals"]["completed"], 20);
}
