//! `delayedProcessing`: when a stored message may be delivered.

use serde_json::json;
use tokio::time::Instant;

use crate::world::{World, accepted, ids, took};

behaviour!(
    a_delayed_message_is_hidden_until_it_is_due,
    a_long_poll_is_answered_when_a_message_is_due,
    a_changed_delay_holds_for_stored_messages_in_both_directions,
    a_changed_delay_reaches_parked_calls,
    the_delay_hides_a_recent_tail,
    a_delay_outlives_a_restart,
    a_consumer_is_served_when_another_lets_go,
);

// check: 23
// req: OPT-10
async fn a_delayed_message_is_hidden_until_it_is_due(world: World) {
    world.configure("q", json!({"delayedProcessing": 2, "namespace": "n"})).await;
    world.put("q", &["x"]).await;
    world.sleep_ms(1_999).await;
    assert!(world.pop("q", "").await.is_empty());
    assert!(world.pop("q", "autoAck=true").await.is_empty());
    assert!(world.pop_partition("q", "Default", "").await.is_empty());
    assert!(world.discover("namespace=n").await.is_empty());
    world.sleep_ms(2).await;
    assert_eq!(world.pop("q", "consumerGroup=a").await.ids(), ["x"]);
    assert_eq!(world.pop_partition("q", "Default", "consumerGroup=b").await.ids(), ["x"]);
    assert_eq!(world.discover("namespace=n&consumerGroup=c").await.ids(), ["x"]);
}

// req: OPT-10
// scn: 19
async fn a_long_poll_is_answered_when_a_message_is_due(world: World) {
    world.configure("q", json!({"delayedProcessing": 2, "namespace": "n"})).await;
    world.put("q", &["x"]).await;
    let begun = Instant::now();
    let (queue, partition, labels) = tokio::join!(
        world.pop("q", "consumerGroup=a&wait=true&timeout=10000"),
        world.pop_partition("q", "Default", "consumerGroup=b&wait=true&timeout=10000"),
        world.discover("namespace=n&consumerGroup=c&wait=true&timeout=10000"),
    );
    took(begun, 2_000);
    for popped in [queue, partition, labels] {
        assert_eq!(popped.ids(), ["x"]);
    }
}

// check: 23
// req: OPT-10
async fn a_changed_delay_holds_for_stored_messages_in_both_directions(world: World) {
    world.configure("q", json!({"delayedProcessing": 100})).await;
    world.put("q", &["x"]).await;
    world.sleep(10).await;
    assert!(world.pop("q", "consumerGroup=a").await.is_empty());
    world.configure("q", json!({"delayedProcessing": 0})).await;
    assert_eq!(world.pop("q", "consumerGroup=b").await.ids(), ["x"]);
    world.configure("q", json!({"delayedProcessing": 20})).await;
    assert!(world.pop("q", "consumerGroup=c").await.is_empty(), "hidden again");
    assert!(world.pop_partition("q", "Default", "consumerGroup=d").await.is_empty());
    world.sleep_ms(9_999).await;
    assert!(world.pop("q", "consumerGroup=c").await.is_empty());
    world.sleep_ms(2).await;
    assert_eq!(world.pop("q", "consumerGroup=c").await.ids(), ["x"]);
}

// req: OPT-10, CFG-9
async fn a_changed_delay_reaches_parked_calls(world: World) {
    world.configure("q", json!({"delayedProcessing": 100})).await;
    world.put("q", &["x"]).await;
    let begun = Instant::now();
    let (queue, partition, ()) = tokio::join!(
        world.pop("q", "consumerGroup=a&wait=true&timeout=60000"),
        world.pop_partition("q", "Default", "consumerGroup=b&wait=true&timeout=60000"),
        async {
            world.sleep(5).await;
            world.configure("q", json!({"delayedProcessing": 0})).await;
        }
    );
    took(begun, 5_000);
    assert_eq!((queue.ids(), partition.ids()), (vec!["x"], vec!["x"]));

    // In the other direction: what was nearly due waits on.
    world.configure("r", json!({"delayedProcessing": 10})).await;
    world.put("r", &["x"]).await;
    let begun = Instant::now();
    let (popped, ()) = tokio::join!(world.pop("r", "wait=true&timeout=60000"), async {
        world.sleep(5).await;
        world.configure("r", json!({"delayedProcessing": 30})).await;
    });
    took(begun, 30_000);
    assert_eq!(popped.ids(), ["x"]);
}

// req: OPT-10
async fn the_delay_hides_a_recent_tail(world: World) {
    world.configure("q", json!({"delayedProcessing": 10})).await;
    for id in ids("x", 5) {
        world.put("q", &[id]).await;
        world.sleep(2).await;
    }
    // Ten seconds after the first: it alone is due.
    world.sleep_ms(1).await;
    assert_eq!(world.pop("q", "consumerGroup=a").await.ids(), ["x1"]);
    world.sleep(4).await;
    assert_eq!(world.pop("q", "consumerGroup=b").await.ids(), ["x1", "x2", "x3"]);
    // A group that has the first behind it waits for the second, not for the tail.
    let popped = world.pop("q", "consumerGroup=c&batch=3&autoAck=true").await;
    assert_eq!(popped.ids(), ["x1", "x2", "x3"]);
    let begun = Instant::now();
    assert_eq!(world.pop("q", "consumerGroup=c&wait=true&timeout=60000").await.ids(), ["x4"]);
    assert!(begun.elapsed().as_millis() <= 2_002);
}

async fn a_delay_outlives_a_restart(world: World) {
    world.configure("q", json!({"delayedProcessing": 5})).await;
    world.put("q", &["x"]).await;
    let begun = Instant::now();
    world.sleep(1).await;
    world.restart().await;
    assert_eq!(world.pop("q", "wait=true&timeout=10000").await.ids(), ["x"]);
    took(begun, 5_000);
}

// scn: 20
async fn a_consumer_is_served_when_another_lets_go(world: World) {
    for route in ["queue", "partition", "labels"] {
        let queue = format!("{route}.q");
        world.put(&queue, &ids("x", 3)).await;
        let wait = async || match route {
            "queue" => world.pop(&queue, "wait=true&timeout=10000&batch=1").await,
            "partition" => world.pop_partition(&queue, "Default", "wait=true&timeout=10000&batch=1").await,
            _ => world.discover(&format!("namespace={route}&wait=true&timeout=10000&batch=1")).await,
        };
        // At the end of a lease.
        assert_eq!(world.pop(&queue, "leaseSeconds=2").await.ids(), ids("x", 3));
        let begun = Instant::now();
        let mut held = wait().await;
        assert_eq!(held.ids(), ["x1"], "{route}");
        took(begun, 2_000);
        // At an ack of any kind that releases the lease.
        for (status, next) in [("retry", "x1"), ("failed", "x1"), ("completed", "x2"), ("dlq", "x3")] {
            let begun = Instant::now();
            let (waited, ()) = tokio::join!(wait(), async {
                world.sleep_ms(500).await;
                accepted(&world.ack(&held.messages()[0], status).await);
            });
            took(begun, 500);
            assert_eq!(waited.ids(), [next], "{route} {status}");
            held = waited;
        }
    }
}
