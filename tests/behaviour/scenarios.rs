//! Situations that broke other brokers, as far as they are about load, races and clocks. The others stand with their
//! topics.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::world::{World, accepted, full, refused, took, took_between};

behaviour!(
    an_ack_and_a_pop_race_for_the_end_of_a_lease,
    a_stuck_partition_hides_no_other,
    the_one_ready_partition_of_many_is_found_at_once,
    every_group_sees_every_message_once_in_order,
    a_clock_that_steps_back_changes_nothing,
    a_new_owner_starts_no_earlier_than_the_last_write,
    a_clock_that_jumps_ahead_ends_things_early_at_most,
    a_thousand_parked_calls_are_each_woken,
    parked_calls_hold_up_no_push,
);

// scn: 1
async fn an_ack_and_a_pop_race_for_the_end_of_a_lease(world: World) {
    world.configure("q", json!({"retryLimit": 0})).await;
    let mut acked = 0;
    let mut redelivered = 0;
    for round in 0..1_000u64 {
        let id = format!("x{round}");
        world.put("q", &[&id]).await;
        let first = world.pop("q", "leaseSeconds=1").await;
        assert_eq!(first.ids(), [&id]);
        // The acks come at 0.990 … 1.009 s, the pop at exactly 1.000 s.
        let ack = async {
            world.sleep_ms(990 + round % 20).await;
            world.ack(first.message(&id), "completed").await
        };
        let pop = async {
            world.sleep_ms(1_000).await;
            world.pop("q", "leaseSeconds=1").await
        };
        let (ack, second) = tokio::join!(ack, pop);
        if ack["success"] == true {
            acked += 1;
            assert!(round % 20 < 10, "the lease was over");
            assert!(second.is_empty(), "acked and redelivered");
        } else {
            redelivered += 1;
            refused(&ack, "invalid or expired lease");
            assert!(round % 20 >= 10, "the lease was alive");
            assert_eq!(second.ids(), [&id], "neither acked nor redelivered");
            accepted(&world.ack(second.message(&id), "completed").await);
        }
    }
    assert_eq!((acked, redelivered), (500, 500));
    world.sleep(60).await;
    assert!(world.pop("q", "").await.is_empty());
    assert!(world.dead_letters("q").await.is_empty());
    assert_eq!(world.queue("q").await["totals"]["completed"], 1_000);
}

// scn: 13
async fn a_stuck_partition_hides_no_other(world: World) {
    let payload = "x".repeat(10);
    for _ in 0..40 {
        let items: Vec<Value> =
            (0..5_000).map(|_| json!({"queue": "q", "partition": "A", "payload": payload})).collect();
        world.push(items.into()).await.expect(201);
    }
    let stuck = world.pop("q", "leaseSeconds=3600&batch=1").await;
    assert_eq!(stuck.body["partition"], "A");
    assert_eq!(world.queue("q").await["totals"]["pending"], 200_000);
    world.put_in("q", "B", &["b"]).await;
    let (virtual_time, real_time) = (Instant::now(), std::time::Instant::now());
    let popped = world.pop("q", "").await;
    took(virtual_time, 0);
    assert_eq!(popped.ids(), ["b"]);
    assert!(
        real_time.elapsed().as_millis() < 500,
        "found by looking at two hundred thousand: {:?}",
        real_time.elapsed()
    );
    // A parked call hears of B as well.
    accepted(&world.ack(popped.message("b"), "completed").await);
    let begun = Instant::now();
    let (popped, ()) = tokio::join!(world.pop("q", "wait=true&timeout=10000"), async {
        world.sleep(1).await;
        world.put_in("q", "B", &["b2"]).await;
    });
    took(begun, 1_000);
    assert_eq!(popped.ids(), ["b2"]);
}

async fn the_one_ready_partition_of_many_is_found_at_once(world: World) {
    let partitions = if full() { 200_000 } else { 50_000 };
    for begin in (0..partitions).step_by(5_000) {
        let items: Vec<Value> =
            (begin..begin + 5_000).map(|n| json!({"queue": "q", "partition": n.to_string(), "payload": n})).collect();
        world.push(items.into()).await.expect(201);
    }
    let everything = world.pop("q", "consumerGroup=g&partitions=0&batch=1000000&autoAck=true").await;
    assert_eq!(everything.messages().len(), partitions);
    assert!(world.pop("q", "consumerGroup=g").await.is_empty());
    for n in [0, partitions / 2, partitions - 1] {
        world.put_in("q", &n.to_string(), &["x"]).await;
        let real_time = std::time::Instant::now();
        assert_eq!(world.pop("q", "consumerGroup=g&autoAck=true").await.ids(), ["x"]);
        assert!(world.pop("q", "consumerGroup=g").await.is_empty());
        assert!(real_time.elapsed().as_millis() < 200, "found by looking at all: {:?}", real_time.elapsed());
    }
}

// scn: 14
async fn every_group_sees_every_message_once_in_order(world: World) {
    const PUSHERS: usize = 32;
    let each = if full() { 31_250 } else { 3_125 };
    let batch = if full() { 125 } else { 50 };
    let total = PUSHERS * each;
    world.faults().set_latency_ms(1);
    let mut pushers = JoinSet::new();
    for pusher in 0..PUSHERS {
        let world = world.clone();
        pushers.spawn(async move {
            for begin in (0..each).step_by(batch) {
                let item = |n: usize| json!({"queue": "q", "partition": "p", "payload": [pusher, n]});
                let items: Vec<Value> = (begin..(begin + batch).min(each)).map(item).collect();
                let results = world.push(items.into()).await.expect(201).list();
                assert!(results.iter().all(|result| result["status"] == "queued"));
            }
        });
    }
    let mut groups = JoinSet::new();
    for group in 0..4 {
        let world = world.clone();
        groups.spawn(async move {
            let mut seen: Vec<(usize, usize)> = Vec::with_capacity(total);
            while seen.len() < total {
                // Two by lease and ack, two at most once; different batches.
                let query = match group {
                    0 => "batch=100&wait=true&timeout=10000",
                    1 => "batch=777&wait=true&timeout=10000",
                    2 => "batch=100&wait=true&timeout=10000&autoAck=true",
                    _ => "batch=1000&wait=true&timeout=10000&autoAck=true",
                };
                let popped = world.pop("q", &format!("{query}&consumerGroup=g{group}")).await;
                assert!(!popped.is_empty(), "group {group} starves at {} of {total}", seen.len());
                let number = |value: &Value| usize::try_from(value.as_u64().expect("a number")).expect("small");
                seen.extend(popped.messages().iter().map(|m| (number(&m["data"][0]), number(&m["data"][1]))));
                if group < 2 {
                    accepted(&world.ack(popped.messages().last().expect("one"), "completed").await);
                }
            }
            assert!(world.pop("q", &format!("consumerGroup=g{group}")).await.is_empty());
            seen
        });
    }
    pushers.join_all().await;
    let seen = groups.join_all().await;
    assert!(seen.iter().all(|group| *group == seen[0]), "all groups see one order");
    let mut next: BTreeMap<usize, usize> = BTreeMap::new();
    for (pusher, n) in &seen[0] {
        let expected = next.entry(*pusher).or_default();
        assert_eq!(n, expected, "pusher {pusher}");
        *expected += 1;
    }
    assert_eq!((next.len(), next.values().sum::<usize>()), (PUSHERS, total));
}

/// Pops with a lease of 10 s and pushes with a delay of 5 s, steps the clock, and times both ends.
async fn ends_around(world: &World, step: i64, queue: &str) -> (u128, u128) {
    let delayed = format!("{queue}.delayed");
    world.configure(&delayed, json!({"delayedProcessing": 5})).await;
    world.put(queue, &["x"]).await;
    world.put(&delayed, &["y"]).await;
    let begun = Instant::now();
    assert_eq!(world.pop(queue, "leaseSeconds=10").await.ids(), ["x"]);
    world.sleep(1).await;
    world.faults().step_clock_secs(step);
    // Nothing but reading happens meanwhile; whatever the broker asks the store, it hears the stepped time.
    let delay = async {
        assert_eq!(world.pop(&delayed, "wait=true&timeout=60000").await.ids(), ["y"]);
        begun.elapsed().as_millis()
    };
    let lease = async {
        assert_eq!(world.pop(queue, "wait=true&timeout=60000").await.ids(), ["x"]);
        begun.elapsed().as_millis()
    };
    let traffic = async {
        for n in 0..20 {
            world.sleep_ms(450).await;
            world.put("traffic", &[format!("{queue}{n}")]).await;
        }
    };
    let (delay, lease, ()) = tokio::join!(delay, lease, traffic);
    (delay, lease)
}

// scn: 22
async fn a_clock_that_steps_back_changes_nothing(world: World) {
    for (n, step) in [-3_600, -1, -86_400].into_iter().enumerate() {
        let (delay, lease) = ends_around(&world, step, &format!("q{n}")).await;
        assert!((5_000..=5_002).contains(&delay), "the delay ended after {delay} ms");
        assert!((10_000..=10_002).contains(&lease), "the lease ended after {lease} ms");
    }
}

async fn a_new_owner_starts_no_earlier_than_the_last_write(world: World) {
    world.put("q", &["x"]).await;
    let begun = Instant::now();
    world.pop("q", "leaseSeconds=10").await;
    world.faults().step_clock_secs(-3_600);
    world.restart().await;
    assert_eq!(world.pop("q", "wait=true&timeout=60000").await.ids(), ["x"]);
    took_between(begun, 9_000, 12_000);
}

async fn a_clock_that_jumps_ahead_ends_things_early_at_most(world: World) {
    let (delay, lease) = ends_around(&world, 3_600, "q").await;
    assert!((1_000..=5_002).contains(&delay), "the delay ended after {delay} ms");
    assert!((1_000..=10_002).contains(&lease), "the lease ended after {lease} ms");
    assert_eq!(world.pop("traffic", "batch=100").await.messages().len(), 20);
}

/// Numbers 0 to `count` − 1, shuffled the same way in every run.
fn shuffled(count: usize, seed: u64) -> Vec<usize> {
    let mut numbers: Vec<usize> = (0..count).collect();
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    for at in (1..count).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        numbers.swap(at, usize::try_from(state >> 33).expect("31 bits") % (at + 1));
    }
    numbers
}

// scn: 23
async fn a_thousand_parked_calls_are_each_woken(world: World) {
    const QUEUES: usize = 1_000;
    let rounds = if full() { 1_000 } else { 20 };
    for round in 0..rounds {
        let mut parked = JoinSet::new();
        for n in 0..QUEUES {
            let world = world.clone();
            parked.spawn(async move {
                let popped = world.pop(&format!("q{n}"), "wait=true&timeout=30000&autoAck=true").await;
                let answered = world.now();
                let pushed = popped.messages()[0]["data"].as_i64().expect("when it was pushed");
                assert_eq!(popped.messages()[0]["transactionId"], format!("{round}"));
                assert!(answered - pushed <= 100_000, "q{n} was woken after {} us", answered - pushed);
            });
        }
        world.sleep(1).await;
        for n in shuffled(QUEUES, round) {
            let item = json!({"queue": format!("q{n}"), "transactionId": format!("{round}"), "payload": world.now()});
            world.push(json!([item])).await.expect(201);
            if n % 10 == 0 {
                world.sleep_ms(1).await;
            }
        }
        parked.join_all().await;
    }
}

// scn: 35
async fn parked_calls_hold_up_no_push(world: World) {
    let mut parked = JoinSet::new();
    for n in 0..5_000 {
        let world = world.clone();
        // On their own queues, on one queue together, and by label.
        let path = match n % 3 {
            0 => format!("/api/v1/pop/queue/own{n}?wait=true&timeout=60000"),
            1 => "/api/v1/pop/queue/shared?wait=true&timeout=60000&autoAck=true&batch=1".to_owned(),
            _ => format!("/api/v1/pop?namespace=ns{n}&wait=true&timeout=60000"),
        };
        parked.spawn(async move { world.get(&path).await.status });
    }
    world.sleep(1).await;
    let mut times = Vec::new();
    for n in 0..100 {
        let (virtual_time, real_time) = (Instant::now(), std::time::Instant::now());
        world.put(if n % 2 == 0 { "elsewhere" } else { "shared" }, &[n.to_string()]).await;
        times.push(real_time.elapsed().as_millis());
        took(virtual_time, 0);
    }
    times.sort_unstable();
    // Real time, on a machine that does other things too: all but the odd one.
    assert!(times[95] < 50, "{times:?} ms");
    let statuses = parked.join_all().await;
    assert_eq!(
        statuses.iter().filter(|status| **status == 200).count(),
        50,
        "the pushes to the shared queue woke one each"
    );
    assert_eq!(world.pop("elsewhere", "").await.messages().len(), 50);
}
