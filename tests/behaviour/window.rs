//! `windowBuffer` with the hot list on and off, and `minPopWaitTime`.

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::world::{Batch, World, accepted, ids, took, took_between};

behaviour!(
    a_window_gathers_from_its_first_message,
    a_window_ends_early_at_a_hundred_on_every_route,
    the_hundred_are_those_that_wait_for_the_group,
    a_window_begins_with_the_first_message_that_waits,
    a_long_poll_is_answered_when_the_window_ends,
    a_restart_a_nack_and_an_expiry_change_no_window,
    a_delay_and_a_window_hold_together,
    a_changed_window_reaches_parked_calls,
    the_hundred_can_be_another_number,
    without_the_hot_list_a_partition_must_be_quiet,
    without_the_hot_list_nothing_is_early,
    without_the_hot_list_steady_pushes_starve,
    an_under_full_call_is_held_back,
    a_hold_ends_when_the_batch_is_full,
    a_hold_never_outlasts_the_calls_own_time,
    calls_that_ask_for_nothing_special_are_not_held,
    a_hold_works_on_every_route,
    discovery_holds_for_the_smallest_time,
    a_call_on_an_empty_queue_is_not_held,
    a_hold_counts_durable_messages,
    holds_cost_nothing_and_are_counted,
    the_hold_is_clamped,
);

/// A pop on each of the three routes; `n` is the namespace of `queue`.
async fn on_every_route(world: &World, queue: &str, query: &str) -> [Batch; 3] {
    let query = |route: &str| format!("{query}&consumerGroup={route}");
    [
        world.pop(queue, &query("queue")).await,
        world.pop_partition(queue, "Default", &query("partition")).await,
        world.discover(&format!("namespace=n&{}", query("labels"))).await,
    ]
}

// check: 24
// req: OPT-12
async fn a_window_gathers_from_its_first_message(world: World) {
    world.configure("q", json!({"windowBuffer": 2, "namespace": "n"})).await;
    world.put("q", &["x1"]).await;
    world.sleep_ms(1_000).await;
    // Later messages do not move the end.
    world.put("q", &["x2"]).await;
    world.sleep_ms(999).await;
    for popped in on_every_route(&world, "q", "batch=10").await {
        assert!(popped.is_empty());
    }
    world.sleep_ms(2).await;
    for popped in on_every_route(&world, "q", "batch=10").await {
        assert_eq!(popped.ids(), ["x1", "x2"]);
    }
}

// check: 25
// req: OPT-12
async fn a_window_ends_early_at_a_hundred_on_every_route(world: World) {
    world.configure("q", json!({"windowBuffer": 60, "namespace": "n"})).await;
    world.put("q", &ids("x", 60)).await;
    world.put("q", &ids("y", 39)).await;
    for popped in on_every_route(&world, "q", "batch=10").await {
        assert!(popped.is_empty(), "ninety-nine wait");
    }
    let begun = Instant::now();
    let parked = async |route: &str| match route {
        "queue" => world.pop("q", "wait=true&timeout=9000&consumerGroup=a").await,
        "partition" => world.pop_partition("q", "Default", "wait=true&timeout=9000&consumerGroup=b").await,
        _ => world.discover("namespace=n&wait=true&timeout=9000&consumerGroup=c").await,
    };
    let (a, b, c, ()) = tokio::join!(parked("queue"), parked("partition"), parked("labels"), async {
        world.sleep(1).await;
        world.put("q", &["z"]).await;
    });
    took(begun, 1_000);
    for popped in [a, b, c] {
        assert_eq!(popped.messages().len(), 100);
    }
    for popped in on_every_route(&world, "q", "batch=1000").await {
        assert_eq!(popped.messages().len(), 100);
    }
}

// req: OPT-12
async fn the_hundred_are_those_that_wait_for_the_group(world: World) {
    world.configure("q", json!({"windowBuffer": 60})).await;
    world.put("q", &ids("x", 100)).await;
    assert_eq!(world.pop("q", "consumerGroup=g&batch=50&autoAck=true").await.messages().len(), 50);
    // Fifty wait for this group now, and a hundred for every other.
    assert!(world.pop("q", "consumerGroup=g").await.is_empty());
    assert_eq!(world.pop("q", "consumerGroup=h&batch=1000").await.messages().len(), 100);
    world.put("q", &ids("y", 49)).await;
    assert!(world.pop("q", "consumerGroup=g").await.is_empty());
    world.put("q", &["z"]).await;
    assert_eq!(world.pop("q", "consumerGroup=g&batch=1000").await.messages().len(), 100);
    // Another partition has a count of its own.
    world.put_in("q", "other", &ids("o", 99)).await;
    assert!(world.pop_partition("q", "other", "consumerGroup=i").await.is_empty());
}

// req: OPT-12
async fn a_window_begins_with_the_first_message_that_waits(world: World) {
    world.configure("q", json!({"windowBuffer": 2})).await;
    world.put("q", &["x1"]).await;
    world.sleep(1).await;
    world.put("q", &["x2"]).await;
    world.sleep_ms(1_001).await;
    assert_eq!(world.pop("q", "consumerGroup=g&batch=1&autoAck=true").await.ids(), ["x1"]);
    assert!(world.pop("q", "consumerGroup=g").await.is_empty(), "x2 is the first that waits: its window ends at 3 s");
    world.sleep_ms(1_000).await;
    assert_eq!(world.pop("q", "consumerGroup=g&autoAck=true").await.ids(), ["x2"]);
    // Consumed messages open no window: the next begins with the next message.
    world.sleep(10).await;
    world.put("q", &["x3"]).await;
    world.sleep_ms(1_999).await;
    assert!(world.pop("q", "consumerGroup=g").await.is_empty());
    world.sleep_ms(2).await;
    assert_eq!(world.pop("q", "consumerGroup=g").await.ids(), ["x3"]);
}

// req: OPT-12
async fn a_long_poll_is_answered_when_the_window_ends(world: World) {
    world.configure("q", json!({"windowBuffer": 2, "namespace": "n"})).await;
    let begun = Instant::now();
    let (queue, partition, labels, ()) = tokio::join!(
        world.pop("q", "consumerGroup=a&wait=true&timeout=10000"),
        world.pop_partition("q", "Default", "consumerGroup=b&wait=true&timeout=10000"),
        world.discover("namespace=n&consumerGroup=c&wait=true&timeout=10000"),
        async {
            world.sleep(1).await;
            world.put("q", &["x1"]).await;
            world.sleep(1).await;
            world.put("q", &["x2"]).await;
        }
    );
    took(begun, 3_000);
    for popped in [queue, partition, labels] {
        assert_eq!(popped.ids(), ["x1", "x2"]);
    }
}

// req: OPT-12
async fn a_restart_a_nack_and_an_expiry_change_no_window(world: World) {
    world.configure("q", json!({"windowBuffer": 10})).await;
    let begun = Instant::now();
    world.put("q", &["x"]).await;
    world.sleep(3).await;
    world.restart().await;
    assert!(world.pop("q", "").await.is_empty());
    assert_eq!(world.pop("q", "wait=true&timeout=20000&leaseSeconds=1").await.ids(), ["x"]);
    took(begun, 10_000);
    // An expired and a failed delivery wait no second time.
    world.sleep(1).await;
    let popped = world.pop("q", "").await;
    assert_eq!(popped.ids(), ["x"]);
    accepted(&world.ack(popped.message("x"), "failed").await);
    let popped = world.pop("q", "").await;
    accepted(&world.ack(popped.message("x"), "retry").await);
    assert_eq!(world.pop("q", "").await.ids(), ["x"]);
    // A seek back neither.
    world.seek("__QUEUE_MODE__", "q", json!({"timestamp": "1970-01-01T00:00:00Z"})).await.expect(200);
    assert_eq!(world.pop("q", "").await.ids(), ["x"]);
}

// req: OPT-12
async fn a_delay_and_a_window_hold_together(world: World) {
    world.configure("late", json!({"delayedProcessing": 3, "windowBuffer": 1})).await;
    world.configure("wide", json!({"delayedProcessing": 1, "windowBuffer": 3})).await;
    for queue in ["late", "wide"] {
        // A hundred at once, and yet nothing is early.
        world.put(queue, &ids("x", 150)).await;
        let begun = Instant::now();
        world.sleep_ms(1_200).await;
        assert!(world.pop(queue, "").await.is_empty(), "{queue}");
        let popped = world.pop(queue, "wait=true&timeout=10000&batch=1000").await;
        took(begun, 3_000);
        assert_eq!(popped.messages().len(), 150, "{queue}");
    }
}

// req: OPT-12, CFG-9
async fn a_changed_window_reaches_parked_calls(world: World) {
    for (queue, before, after, expected) in [("down", 100, 5, 5_000), ("off", 100, 0, 2_000), ("up", 4, 9, 9_000)] {
        world.configure(queue, json!({"windowBuffer": before})).await;
        world.put(queue, &["x"]).await;
        let begun = Instant::now();
        let (popped, one, ()) = tokio::join!(
            world.pop(queue, "wait=true&timeout=60000"),
            world.pop_partition(queue, "Default", "wait=true&timeout=60000&consumerGroup=g"),
            async {
                world.sleep(2).await;
                world.configure(queue, json!({"windowBuffer": after})).await;
            }
        );
        took(begun, expected);
        assert_eq!((popped.ids(), one.ids()), (vec!["x"], vec!["x"]), "{queue}");
    }
}

async fn the_hundred_can_be_another_number(world: World) {
    world.restart_with(|settings| settings.window_batch = 3).await;
    world.configure("q", json!({"windowBuffer": 60})).await;
    world.put("q", &ids("x", 2)).await;
    assert!(world.pop("q", "").await.is_empty());
    world.put("q", &["x3"]).await;
    assert_eq!(world.pop("q", "").await.ids(), ids("x", 3));
}

// req: OPT-13
async fn without_the_hot_list_a_partition_must_be_quiet(world: World) {
    world.restart_with(|settings| settings.hot_list = false).await;
    world.configure("q", json!({"windowBuffer": 2, "namespace": "n"})).await;
    world.put("q", &["x1"]).await;
    world.sleep_ms(1_500).await;
    world.put("q", &["x2"]).await;
    world.sleep_ms(1_999).await;
    for popped in on_every_route(&world, "q", "").await {
        assert!(popped.is_empty(), "x1 is 3.5 s old, but the partition is not quiet");
    }
    // The window is that of the newest message, also when a group has it behind it.
    world.sleep_ms(2).await;
    for popped in on_every_route(&world, "q", "").await {
        assert_eq!(popped.ids(), ["x1", "x2"]);
    }
    // A long poll is answered when the quiet is long enough.
    let begun = Instant::now();
    let (popped, ()) = tokio::join!(world.pop_partition("q", "p", "wait=true&timeout=20000"), async {
        for id in ["a", "b", "c"] {
            world.sleep(1).await;
            world.put_in("q", "p", &[id]).await;
        }
    });
    took(begun, 5_000);
    assert_eq!(popped.ids(), ["a", "b", "c"]);
}

// req: OPT-13
async fn without_the_hot_list_nothing_is_early(world: World) {
    world.restart_with(|settings| settings.hot_list = false).await;
    world.configure("q", json!({"windowBuffer": 60, "namespace": "n"})).await;
    world.put("q", &ids("x", 500)).await;
    for popped in on_every_route(&world, "q", "").await {
        assert!(popped.is_empty());
    }
    let begun = Instant::now();
    assert_eq!(world.pop("q", "wait=true&timeout=100000&batch=1000").await.messages().len(), 500);
    took(begun, 60_000);
}

// req: OPT-13
async fn without_the_hot_list_steady_pushes_starve(world: World) {
    world.restart_with(|settings| settings.hot_list = false).await;
    world.configure("q", json!({"windowBuffer": 2})).await;
    for id in ids("x", 20) {
        world.put("q", &[id]).await;
        world.sleep_ms(1_900).await;
        assert!(world.pop("q", "").await.is_empty());
    }
    world.sleep_ms(101).await;
    assert_eq!(world.pop("q", "").await.messages().len(), 20);
}

// check: 26
// req: OPT-20
async fn an_under_full_call_is_held_back(world: World) {
    world.configure("q", json!({"minPopWaitTime": 500})).await;
    world.put("q", &["x"]).await;
    let begun = Instant::now();
    let popped = world.pop("q", "wait=true&timeout=10000&batch=10").await;
    took(begun, 500);
    assert_eq!(popped.ids(), ["x"]);
    // What comes during the hold is in the batch.
    let begun = Instant::now();
    let (popped, ()) = tokio::join!(world.pop("q", "consumerGroup=g&wait=true&timeout=10000&batch=10"), async {
        world.sleep_ms(200).await;
        world.put("q", &["y"]).await;
    });
    took(begun, 500);
    assert_eq!(popped.ids(), ["x", "y"]);
}

// req: OPT-20
async fn a_hold_ends_when_the_batch_is_full(world: World) {
    world.configure("q", json!({"minPopWaitTime": 500})).await;
    world.put("q", &["x1"]).await;
    let begun = Instant::now();
    let (popped, ()) = tokio::join!(world.pop("q", "wait=true&timeout=10000&batch=3"), async {
        world.sleep_ms(100).await;
        world.put("q", &["x2"]).await;
        world.sleep_ms(100).await;
        world.put("q", &["x3"]).await;
    });
    took(begun, 200);
    assert_eq!(popped.ids(), ids("x", 3));
    // Enough from the start: not held at all.
    let begun = Instant::now();
    assert_eq!(world.pop("q", "consumerGroup=g&wait=true&timeout=10000&batch=3").await.ids(), ids("x", 3));
    assert_eq!(world.pop("q", "consumerGroup=h&wait=true&timeout=10000&batch=2").await.ids(), ids("x", 2));
    took(begun, 0);
}

// req: OPT-20
async fn a_hold_never_outlasts_the_calls_own_time(world: World) {
    world.configure("q", json!({"minPopWaitTime": 500})).await;
    world.put("q", &["x"]).await;
    let begun = Instant::now();
    let popped = world.pop("q", "wait=true&timeout=200&batch=10").await;
    took(begun, 200);
    assert_eq!(popped.ids(), ["x"], "what is there is given, not withheld");
}

// check: 26
// req: OPT-20
async fn calls_that_ask_for_nothing_special_are_not_held(world: World) {
    world.configure("q", json!({"minPopWaitTime": 500})).await;
    world.put("q", &["x"]).await;
    let begun = Instant::now();
    for (n, query) in
        ["batch=10", "wait=true&batch=1", "wait=true&timeout=0&batch=10", "wait=false&timeout=9000&batch=10"]
            .into_iter()
            .enumerate()
    {
        assert_eq!(world.pop("q", &format!("consumerGroup=g{n}&{query}")).await.ids(), ["x"], "{query}");
    }
    took(begun, 0);
    // Without the option nobody is held.
    world.put("r", &["x"]).await;
    assert_eq!(world.pop("r", "wait=true&timeout=9000&batch=10").await.ids(), ["x"]);
    took(begun, 0);
}

// req: OPT-20
async fn a_hold_works_on_every_route(world: World) {
    world.configure("q", json!({"minPopWaitTime": 500, "namespace": "n"})).await;
    world.put("q", &["x"]).await;
    let begun = Instant::now();
    for popped in on_every_route(&world, "q", "wait=true&timeout=10000&batch=10").await {
        assert_eq!(popped.ids(), ["x"]);
    }
    took_between(begun, 1_500, 1_506);
    let begun = Instant::now();
    for popped in on_every_route(&world, "q", "wait=true&timeout=10000&batch=1").await {
        assert!(popped.is_empty(), "leased now");
    }
    took_between(begun, 30_000, 30_010);
}

// req: OPT-20
async fn discovery_holds_for_the_smallest_time(world: World) {
    for (queue, hold) in [("a", 800), ("b", 300), ("c", 0)] {
        world.configure(queue, json!({"minPopWaitTime": hold, "namespace": "n"})).await;
    }
    world.configure("d", json!({"minPopWaitTime": 100, "namespace": "other"})).await;
    world.put("a", &["x"]).await;
    let begun = Instant::now();
    let popped = world.discover("namespace=n&wait=true&timeout=10000&batch=10&partitions=0").await;
    took(begun, 300);
    assert_eq!(popped.ids(), ["x"]);
    // Over all matching queues the messages are enough together.
    world.put("a", &["y"]).await;
    world.put("b", &["z"]).await;
    let begun = Instant::now();
    let popped = world.discover("namespace=n&wait=true&timeout=10000&batch=3&partitions=0&consumerGroup=g").await;
    took(begun, 0);
    assert_eq!(popped.messages().len(), 3);
}

// req: OPT-21
async fn a_call_on_an_empty_queue_is_not_held(world: World) {
    world.configure("q", json!({"minPopWaitTime": 500})).await;
    // With nothing at all the wait is the call's own.
    let begun = Instant::now();
    assert!(world.pop("q", "wait=true&timeout=2000&batch=10").await.is_empty());
    took(begun, 2_000);
    // A push wakes it, whose hold is then at most the option's.
    let begun = Instant::now();
    let (popped, ()) = tokio::join!(world.pop("q", "wait=true&timeout=9000&batch=10"), async {
        world.sleep_ms(3_000).await;
        world.put("q", &["x"]).await;
    });
    took_between(begun, 3_000, 3_502);
    assert_eq!(popped.ids(), ["x"]);
    let begun = Instant::now();
    let (popped, ()) =
        tokio::join!(world.pop("q", "consumerGroup=g&subscriptionMode=new&wait=true&timeout=9000&batch=2"), async {
            world.sleep_ms(3_000).await;
            world.put("q", &["y", "z"]).await;
        });
    took(begun, 3_000);
    assert_eq!(popped.ids(), ["y", "z"]);
}

// req: OPT-20
async fn a_hold_counts_durable_messages(world: World) {
    world.configure("q", json!({"minPopWaitTime": 500})).await;
    world.put("q", &["x"]).await;
    let begun = Instant::now();
    let (popped, ()) = tokio::join!(world.pop("q", "wait=true&timeout=9000&batch=2"), async {
        world.sleep_ms(100).await;
        world.faults().fail_commits(1);
        world.push(json!([{"queue": "q", "transactionId": "y", "payload": 0}])).await.error(503);
    });
    took(begun, 500);
    assert_eq!(popped.ids(), ["x"], "a push that failed does not fill the batch");
}

/// The value of a metric without labels.
async fn metric(world: &World, name: &str) -> f64 {
    let answer = world.get("/metrics/prometheus").await.expect(200);
    let line = answer.text().lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name}")).trim().parse().expect("a number")
}

// req: OPT-21
async fn holds_cost_nothing_and_are_counted(world: World) {
    world.configure("q", json!({"minPopWaitTime": 500})).await;
    world.put("q", &["x"]).await;
    assert_eq!(metric(&world, "queen_pop_fill_wait_total").await, 0.0);
    let mut held = JoinSet::new();
    for n in 0..200 {
        let world = world.clone();
        held.spawn(async move {
            let begun = Instant::now();
            let popped = world.pop("q", &format!("consumerGroup=g{n}&wait=true&timeout=9000&batch=10")).await;
            took(begun, 500);
            assert_eq!(popped.ids(), ["x"]);
        });
    }
    world.sleep_ms(100).await;
    let calls = world.faults().store_calls();
    world.sleep_ms(300).await;
    assert_eq!(world.faults().store_calls(), calls, "nothing is asked of the store while calls are held");
    let begun = Instant::now();
    world.put("r", &["y"]).await;
    assert_eq!(world.pop("r", "").await.ids(), ["y"]);
    took(begun, 0);
    held.join_all().await;
    assert_eq!(metric(&world, "queen_pop_fill_wait_total").await, 200.0);
    let micros = metric(&world, "queen_pop_fill_wait_microseconds_total").await;
    assert!((200.0 * 500_000.0..200.0 * 502_000.0).contains(&micros), "{micros}");
}

// req: OPT-20, CFG-10
async fn the_hold_is_clamped(world: World) {
    for (sent, stored) in
        [(json!(100_000), 60_000), (json!(-5), 0), (json!("70000"), 60_000), (Value::Null, 0), (json!(1_000), 1_000)]
    {
        let options = world.configure("q", json!({"minPopWaitTime": sent})).await;
        assert_eq!(options["minPopWaitTime"], stored, "{sent}");
    }
    world.configure("q", json!({"minPopWaitTime": 100_000})).await;
    world.put("q", &["x"]).await;
    let begun = Instant::now();
    assert_eq!(world.pop("q", "wait=true&timeout=90000&batch=2").await.ids(), ["x"]);
    took(begun, 60_000);
}
