//! Logs that are not in memory: after a restart, under a small budget, after a change behind the owner's back.

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::world::World;

behaviour!(
    a_small_budget_changes_no_answer,
    a_window_widened_after_a_restart_takes_old_ids_back,
    one_of_many_simultaneous_pushes_is_stored_after_a_restart,
    options_changed_in_the_store_are_picked_up,
);

fn ids(n: std::ops::Range<usize>) -> Vec<String> {
    n.map(|n| format!("id {n}")).collect()
}

// req: OPT-27
async fn a_small_budget_changes_no_answer(world: World) {
    let all = ids(0..120);
    for budget in [u64::MAX, 0, 4_000] {
        world.restart_with(|settings| settings.dedup_cache_bytes = budget).await;
        let queue = format!("with {budget}");
        for partition in ["a", "b", "c"] {
            assert!(world.push_ids_to(&queue, partition, &all).await.iter().all(|status| status == "queued"));
        }
        for partition in ["c", "a", "b"] {
            assert!(world.push_ids_to(&queue, partition, &all).await.iter().all(|status| status == "duplicate"));
        }
        world.restart().await;
        for partition in ["b", "c", "a"] {
            assert!(world.push_ids_to(&queue, partition, &all).await.iter().all(|status| status == "duplicate"));
        }
        for _ in 0..3 {
            let batch = world.pop(&queue, "batch=120&partitions=1").await;
            assert_eq!(batch.ids(), all);
            let last = batch.messages().last().expect("a message").clone();
            assert_eq!(world.ack(&last, "completed").await["success"], true);
        }
        assert_eq!(world.pop(&queue, "batch=120").await.messages().len(), 0);
    }
}

// req: OPT-28
async fn a_window_widened_after_a_restart_takes_old_ids_back(world: World) {
    for budget in [u64::MAX, 0] {
        world.restart_with(|settings| settings.dedup_cache_bytes = budget).await;
        let queue = format!("with {budget}");
        world.configure(&queue, json!({"dedupWindowSeconds": 5})).await;
        world.put(&queue, &["x", "y"]).await;
        world.sleep(20).await;
        assert_eq!(world.push_ids(&queue, &["z"]).await, ["queued"]);
        world.restart().await;
        assert_eq!(world.push_ids(&queue, &["z"]).await, ["duplicate"]);
        world.configure(&queue, json!({"dedupWindowSeconds": 600})).await;
        assert_eq!(world.push_ids(&queue, &["x", "new", "y"]).await, ["duplicate", "queued", "duplicate"]);
    }
}

// req: OPT-25
async fn one_of_many_simultaneous_pushes_is_stored_after_a_restart(world: World) {
    world.put("q", &ids(0..30)).await;
    world.restart().await;
    world.faults().set_latency_ms(5);
    let mut pushes = JoinSet::new();
    for n in 0..32 {
        let world = world.clone();
        pushes.spawn(async move {
            world.push(json!([{"queue": "q", "transactionId": "new", "payload": n}])).await.expect(201).list()
        });
    }
    let results: Vec<Value> = pushes.join_all().await.into_iter().flatten().collect();
    assert_eq!(results.iter().filter(|result| result["status"] == "queued").count(), 1);
    assert_eq!(results.iter().filter(|result| result["status"] == "duplicate").count(), 31);
}

// req: CFG-9, OPT-10
async fn options_changed_in_the_store_are_picked_up(world: World) {
    world.configure("q", json!({"delayedProcessing": 3_600})).await;
    world.put("q", &["x"]).await;
    world.sleep(1).await;
    assert_eq!(world.pop("q", "").await.messages().len(), 0);
    world.change_in_store("q", |record| record.options.delayed_processing = 0);
    // The interval is 60 s; a parked pop need not ask again.
    let popped = world.pop("q", "wait=true&timeout=60000").await;
    assert_eq!(popped.ids(), ["x"]);
}
