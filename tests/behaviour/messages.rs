//! One message by its address: detail, deletion, replay of a dead letter.

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::world::{Answer, World, accepted, encode, ids, item};

behaviour!(
    the_detail_tells_all_about_a_message,
    the_status_is_that_of_all_groups,
    only_dead_letters_can_be_deleted,
    a_replay_moves_a_dead_letter_to_the_tail,
    only_dead_letters_can_be_replayed,
    a_replay_takes_one_groups_row,
    parallel_replays_move_it_once,
    an_unknown_message_is_not_found,
);

async fn replay(world: &World, partition: &str, id: &str, query: &str) -> Answer {
    world.post_text(&format!("/api/v1/messages/{partition}/{}/retry{query}", encode(id)), "").await
}

/// A queue with one message that is a dead letter of each group; gives the partition's id.
async fn dead(world: &World, queue: &str, id: &str, groups: &[&str]) -> String {
    world.push(json!([{"queue": queue, "transactionId": id, "payload": {"n": 1}}])).await.expect(201);
    let mut partition = String::new();
    for group in groups {
        let popped = world.pop(queue, &format!("consumerGroup={group}&batch=1")).await;
        let mut failed = item(popped.message(id), "dlq");
        failed["error"] = json!(format!("failed by {group}"));
        accepted(&world.ack_batch(group, vec![failed]).await[0]);
        partition = popped.partition_id().to_owned();
        world.sleep(1).await;
    }
    partition
}

async fn the_detail_tells_all_about_a_message(world: World) {
    let options = json!({"namespace": "n", "task": "t", "leaseTime": 7, "retryLimit": 2, "retryDelay": 3, "ttl": 4, "priority": 5});
    world.configure("q", options).await;
    world
        .push(json!([{"queue": "q", "partition": "p", "transactionId": "a/b", "payload": {"n": 1}}]))
        .await
        .expect(201);
    let popped = world.pop("q", "").await;
    let message = popped.message("a/b");
    let detail = world.find(popped.partition_id(), "a/b").await.expect(200).json();
    let keys: Vec<&String> = detail.as_object().expect("an object").keys().collect();
    let expected = [
        "consumerGroups",
        "createdAt",
        "data",
        "errorMessage",
        "id",
        "isEncrypted",
        "leaseExpiresAt",
        "mode",
        "namespace",
        "partition",
        "partitionId",
        "payload",
        "producerSub",
        "queue",
        "queueConfig",
        "queuePath",
        "retryCount",
        "status",
        "task",
        "traceId",
        "transactionId",
    ];
    assert_eq!(keys, expected);
    for key in ["id", "transactionId", "partitionId", "partition", "createdAt", "traceId", "producerSub", "data"] {
        assert_eq!(detail[key], message[key], "{key}");
    }
    assert_eq!(
        (&detail["payload"], &detail["queue"], &detail["queuePath"]),
        (&json!({"n": 1}), &json!("q"), &json!("q/p"))
    );
    assert_eq!(
        (&detail["namespace"], &detail["task"], &detail["isEncrypted"]),
        (&json!("n"), &json!("t"), &json!(false))
    );
    assert_eq!((&detail["errorMessage"], &detail["retryCount"]), (&Value::Null, &json!(0)));
    assert_eq!(
        detail["queueConfig"],
        json!({"leaseTime": 7, "retryLimit": 2, "retryDelay": 3, "ttl": 4, "priority": 5})
    );
    assert_eq!(detail["mode"], json!({"hasQueueMode": true, "busGroupsCount": 0, "type": "queue"}));
    let group = &detail["consumerGroups"][0];
    assert_eq!(
        (&group["name"], &group["group"], &group["consumed"]),
        (&json!("__QUEUE_MODE__"), &json!("__QUEUE_MODE__"), &json!(false))
    );
    assert_eq!(group["leaseExpiresAt"], detail["leaseExpiresAt"]);
    assert!(detail["leaseExpiresAt"].as_str().is_some_and(|time| time.ends_with('Z')));
}

async fn the_status_is_that_of_all_groups(world: World) {
    world.put("q", &ids("x", 2)).await;
    let partition = world.queue("q").await["partitions"][0]["id"].as_str().expect("a text").to_owned();
    let status = async || world.find(&partition, "x1").await.expect(200).json()["status"].clone();
    assert_eq!(status().await, "pending");
    let g = world.pop("q", "consumerGroup=g&batch=1").await;
    assert_eq!(status().await, "processing");
    accepted(&world.ack(g.message("x1"), "completed").await);
    assert_eq!(status().await, "completed");
    world.pop("q", "consumerGroup=h&batch=1").await;
    assert_eq!(status().await, "processing", "another group has it out");
    world.sleep(60).await;
    assert_eq!(status().await, "pending", "another group has not passed it");
    let h = world.pop("q", "consumerGroup=h&batch=1").await;
    accepted(&world.ack(h.message("x1"), "dlq").await);
    let detail = world.find(&partition, "x1").await.expect(200).json();
    assert_eq!((&detail["status"], &detail["errorMessage"]), (&json!("dead_letter"), &json!("Retries exhausted")));
    let consumed: Vec<(&Value, &Value)> = detail["consumerGroups"]
        .as_array()
        .expect("an array")
        .iter()
        .map(|group| (&group["name"], &group["consumed"]))
        .collect();
    assert_eq!(consumed, [(&json!("g"), &json!(true)), (&json!("h"), &json!(true))]);
    assert_eq!(detail["mode"], json!({"hasQueueMode": false, "busGroupsCount": 2, "type": "bus"}));
}

// check: 50
async fn only_dead_letters_can_be_deleted(world: World) {
    let partition = dead(&world, "q", "x", &["g", "h"]).await;
    world.put("q", &["live"]).await;
    let path = |id: &str| format!("/api/v1/messages/{partition}/{id}");
    let missing = |id: &str| {
        json!({
            "success": false, "partitionId": partition, "transactionId": id, "error": "Message not found",
            "message": "No dead-letter row for this address. Live messages live in immutable segments and cannot be deleted",
        })
    };
    assert_eq!(world.delete(&path("live")).await.expect(404).json(), missing("live"));
    let deleted = json!({
        "success": true, "partitionId": partition, "transactionId": "x", "message": "Message deleted successfully",
    });
    assert_eq!(world.delete(&path("x")).await.expect(200).json(), deleted);
    assert!(world.dead_letters("q").await.is_empty(), "the rows of all groups");
    assert_eq!(world.delete(&path("x")).await.expect(404).json(), missing("x"));
    assert_eq!(world.pop("q", "consumerGroup=g").await.ids(), ["live"]);
}

async fn a_replay_moves_a_dead_letter_to_the_tail(world: World) {
    let partition = dead(&world, "q", "x", &["g"]).await;
    world.put("q", &["y"]).await;
    let answer = replay(&world, &partition, "x", "").await.expect(200).json();
    assert_eq!(
        (&answer["success"], &answer["queue"], &answer["partition"]),
        (&json!(true), &json!("q"), &json!("Default"))
    );
    assert_eq!(answer["dlqRowRemoved"], true);
    let replayed = &answer["replayedAs"];
    assert_eq!((&replayed["status"], &replayed["queueName"]), (&json!("queued"), &json!("q")));
    assert!(world.dead_letters("q").await.is_empty());
    let popped = world.pop("q", "consumerGroup=g").await;
    let fresh = replayed["transaction_id"].as_str().expect("a text");
    assert_eq!(popped.ids(), ["y", fresh]);
    assert_ne!(fresh, "x");
    assert_eq!(
        (&popped.message(fresh)["id"], &popped.message(fresh)["data"]),
        (&replayed["message_id"], &json!({"n": 1}))
    );
    // Every group sees it again, not only the one that failed it.
    assert_eq!(world.pop("q", "consumerGroup=other").await.ids(), ["x", "y", fresh]);
}

async fn only_dead_letters_can_be_replayed(world: World) {
    world.put("q", &["x"]).await;
    let partition = world.queue("q").await["partitions"][0]["id"].as_str().expect("a text").to_owned();
    for id in ["x", "ghost"] {
        let answer = replay(&world, &partition, id, "").await.expect(404).json();
        assert_eq!(answer["error"], "Message not found");
        assert_eq!(
            answer["message"],
            "No dead-letter row for this address. Only dead-lettered messages can be replayed"
        );
    }
    assert_eq!(world.pop("q", "").await.ids(), ["x"]);
}

async fn a_replay_takes_one_groups_row(world: World) {
    let partition = dead(&world, "q", "x", &["g", "h", "i"]).await;
    let left = async || -> Vec<Value> {
        world.dead_letters("q").await.iter().map(|row| row["consumerGroup"].clone()).collect()
    };
    replay(&world, &partition, "x", "?consumerGroup=g").await.expect(200);
    assert_eq!(left().await, ["i", "h"]);
    replay(&world, &partition, "x", "?consumerGroup=g").await.expect(404);
    // Without a group the newest failure moves.
    replay(&world, &partition, "x", "").await.expect(200);
    assert_eq!(left().await, ["h"]);
    assert_eq!(world.pop("q", "consumerGroup=look").await.messages().len(), 3, "the original and two copies");
}

// scn: 9
async fn parallel_replays_move_it_once(world: World) {
    for latency in [0, 5] {
        world.faults().set_latency_ms(latency);
        let queue = format!("q{latency}");
        // All of this happens inside the dedup window of the message's own id.
        let partition = dead(&world, &queue, "x", &["g"]).await;
        let mut replays = JoinSet::new();
        for _ in 0..10 {
            let (world, partition) = (world.clone(), partition.clone());
            replays.spawn(async move { replay(&world, &partition, "x", "").await.status });
        }
        let mut statuses = replays.join_all().await;
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 404, 404, 404, 404, 404, 404, 404, 404, 404]);
        let popped = world.pop(&queue, "consumerGroup=g").await;
        assert_eq!(popped.messages().len(), 1, "one copy, which the window did not swallow");
        assert!(world.dead_letters(&queue).await.is_empty());
    }
}

async fn an_unknown_message_is_not_found(world: World) {
    world.put("q", &["x"]).await;
    let partition = world.queue("q").await["partitions"][0]["id"].as_str().expect("a text").to_owned();
    assert_eq!(world.find(&partition, "ghost").await.error(404), "Message not found");
    assert_eq!(world.find("0198c0de-0000-4000-8000-000000000001", "x").await.error(404), "Message not found");
}
