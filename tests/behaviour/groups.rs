//! Consumer groups: what is shown of them, seek, delete.

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::world::{QUEUE_MODE, World, accepted, encode, ids, refused, took};

behaviour!(
    a_seek_to_the_start_gives_everything_again,
    a_seek_to_the_end_gives_nothing,
    a_seek_to_a_time_finds_its_segment,
    a_seek_of_one_partition_moves_it_alone,
    a_seek_that_says_nothing_usable_is_refused,
    a_seek_of_nothing_is_not_found,
    a_seek_ends_the_lease,
    a_seek_wakes_parked_calls,
    a_seek_of_a_group_that_never_popped_places_it,
    a_deleted_group_replays_from_the_start,
    a_group_deleted_on_one_queue_stays_on_the_others,
    a_deleted_group_that_keeps_its_record_skips_its_backlog,
    a_deleted_group_can_start_otherwise,
    a_deletion_of_nothing_is_a_success,
    the_list_shows_every_group_and_queue,
    the_lagging_are_listed_biggest_first,
    the_detail_shows_every_partition,
);

const BEGINNING: &str = "1970-01-01T00:00:00Z";

// check: 47
async fn a_seek_to_the_start_gives_everything_again(world: World) {
    world.put_in("q", "a", &ids("a", 3)).await;
    world.put_in("q", "b", &ids("b", 2)).await;
    assert_eq!(world.pop("q", "consumerGroup=g&partitions=0&autoAck=true").await.messages().len(), 5);
    assert!(world.pop("q", "consumerGroup=g").await.is_empty());
    let answer = world.seek("g", "q", json!({"timestamp": BEGINNING})).await.expect(200).json();
    let expected = json!({
        "success": true, "consumerGroup": "g", "queueName": "q", "seekToEnd": false,
        "targetTimestamp": "1970-01-01T00:00:00.000Z", "partitionsUpdated": 2,
    });
    assert_eq!(answer, expected);
    let begun = Instant::now();
    assert_eq!(world.pop_partition("q", "a", "consumerGroup=g").await.ids(), ["a1", "a2", "a3"]);
    assert_eq!(world.pop("q", "consumerGroup=g").await.ids(), ["b1", "b2"]);
    took(begun, 0);
    // Only this group was moved.
    assert_eq!(world.pop("q", "consumerGroup=h&partitions=0&autoAck=true").await.messages().len(), 5);
    world.seek("g", "q", json!({"timestamp": BEGINNING})).await.expect(200);
    assert!(world.pop("q", "consumerGroup=h").await.is_empty());
    // It outlives a restart.
    world.restart().await;
    assert_eq!(world.pop("q", "consumerGroup=g&partitions=0").await.messages().len(), 5);
}

// check: 47
async fn a_seek_to_the_end_gives_nothing(world: World) {
    world.put("q", &ids("x", 3)).await;
    world.pop("q", "consumerGroup=g&batch=1&autoAck=true").await;
    // The end wins over a time.
    let answer = world.seek("g", "q", json!({"toEnd": true, "timestamp": BEGINNING})).await.expect(200).json();
    let expected = json!({
        "success": true, "consumerGroup": "g", "queueName": "q", "seekToEnd": true, "targetTimestamp": null,
        "partitionsUpdated": 1,
    });
    assert_eq!(answer, expected);
    assert!(world.pop("q", "consumerGroup=g").await.is_empty());
    world.put("q", &["x4"]).await;
    assert_eq!(world.pop("q", "consumerGroup=g").await.ids(), ["x4"]);
}

async fn a_seek_to_a_time_finds_its_segment(world: World) {
    for id in ["x", "y", "z"] {
        world.put("q", &[format!("{id}1"), format!("{id}2")]).await;
        world.sleep(10).await;
    }
    let all = world.pop("q", "consumerGroup=g&autoAck=true").await;
    let time = all.message("y1")["createdAt"].clone();
    world.seek("g", "q", json!({"timestamp": time})).await.expect(200);
    assert_eq!(world.pop("q", "consumerGroup=g&autoAck=true").await.ids(), ["y1", "y2", "z1", "z2"]);
    world.seek("g", "q", json!({"timestamp": "2026-01-01T00:00:05Z"})).await.expect(200);
    assert_eq!(world.pop("q", "consumerGroup=g&autoAck=true").await.ids(), ["y1", "y2", "z1", "z2"]);
    // The same moment in another zone.
    world.seek("g", "q", json!({"timestamp": "2026-01-01T02:00:05+02:00"})).await.expect(200);
    assert_eq!(world.pop("q", "consumerGroup=g&autoAck=true").await.ids(), ["y1", "y2", "z1", "z2"]);
    world.seek("g", "q", json!({"timestamp": "2027-01-01T00:00:00Z"})).await.expect(200);
    assert!(world.pop("q", "consumerGroup=g").await.is_empty(), "a time to come is the end");
}

// check: 47
async fn a_seek_of_one_partition_moves_it_alone(world: World) {
    for partition in ["a/b", "c"] {
        world.put_in("q", partition, &[partition]).await;
    }
    world.pop("q", "consumerGroup=g&partitions=0&autoAck=true").await;
    let path = |partition: &str| format!("/api/v1/consumer-groups/g/queues/q/partitions/{}/seek", encode(partition));
    let answer = world.post(&path("a/b"), json!({"timestamp": BEGINNING})).await.expect(200).json();
    let expected = json!({
        "success": true, "consumerGroup": "g", "queueName": "q", "partitionName": "a/b", "seekToEnd": false,
        "targetTimestamp": "1970-01-01T00:00:00.000Z", "updated": true,
    });
    assert_eq!(answer, expected);
    // An empty body means the end here.
    let answer = world.post_text(&path("c"), "").await.expect(200).json();
    assert_eq!((&answer["seekToEnd"], &answer["targetTimestamp"]), (&json!(true), &Value::Null));
    assert_eq!(world.pop("q", "consumerGroup=g&partitions=0").await.ids(), ["a/b"]);
    let missing = world.post_text(&path("nope"), "").await.expect(404).json();
    assert_eq!(missing, json!({"success": false, "error": "Partition not found"}));
}

// check: 47
async fn a_seek_that_says_nothing_usable_is_refused(world: World) {
    world.put("q", &["x"]).await;
    world.pop("q", "consumerGroup=g&autoAck=true").await;
    let path = "/api/v1/consumer-groups/g/queues/q/seek";
    for body in ["", "nonsense", "{"] {
        let error = world.post_text(path, body).await.error(400);
        assert!(error.starts_with("bad body"), "{body}: {error}");
    }
    for body in [
        json!({"position": "earliest"}),
        json!({}),
        json!({"toEnd": false}),
        json!({"timestamp": ""}),
        json!({"timestamp": null}),
    ] {
        let error = world.post(path, body.clone()).await.error(400);
        assert_eq!(error, "Must specify toEnd=true or a timestamp", "{body}");
    }
    assert!(world.pop("q", "consumerGroup=g").await.is_empty(), "nothing moved");
}

// check: 47
async fn a_seek_of_nothing_is_not_found(world: World) {
    world.configure("empty", json!({})).await;
    for queue in ["nope", "empty"] {
        let answer = world.seek("g", queue, json!({"toEnd": true})).await.expect(404).json();
        let expected = json!({
            "success": false, "error": "Queue not found or has no partitions", "consumerGroup": "g", "queueName": queue,
            "partitionsUpdated": 0,
        });
        assert_eq!(answer, expected);
    }
    assert_eq!(world.queue_names().await, ["empty"]);
}

async fn a_seek_ends_the_lease(world: World) {
    world.put("q", &ids("x", 2)).await;
    let old = world.pop("q", "consumerGroup=g").await;
    world.seek("g", "q", json!({"timestamp": BEGINNING})).await.expect(200);
    refused(&world.ack(old.message("x1"), "completed").await, "invalid or expired lease");
    let new = world.pop("q", "consumerGroup=g").await;
    assert_eq!(new.ids(), ["x1", "x2"], "at once");
    refused(&world.ack(old.message("x1"), "completed").await, "invalid or expired lease");
    accepted(&world.ack(new.message("x2"), "completed").await);
}

async fn a_seek_wakes_parked_calls(world: World) {
    world.put("q", &ids("x", 3)).await;
    world.pop("q", "consumerGroup=g&autoAck=true").await;
    let begun = Instant::now();
    let (popped, ()) = tokio::join!(world.pop("q", "consumerGroup=g&wait=true&timeout=60000"), async {
        world.sleep(1).await;
        world.seek("g", "q", json!({"timestamp": BEGINNING})).await.expect(200);
    });
    took(begun, 1_000);
    assert_eq!(popped.ids(), ids("x", 3));
}

async fn a_seek_of_a_group_that_never_popped_places_it(world: World) {
    world.put_in("q", "a", &["old"]).await;
    let answer = world.seek("g", "q", json!({"toEnd": true})).await.expect(200).json();
    assert_eq!(answer["partitionsUpdated"], 1);
    assert!(world.pop("q", "consumerGroup=g").await.is_empty(), "its cursor stands at the end");
    world.put_in("q", "a", &["x"]).await;
    assert_eq!(world.pop("q", "consumerGroup=g").await.ids(), ["x"]);
    // No subscription record was written: the group's first pop decides about partitions it has no cursor for.
    world.put_in("r", "a", &["old"]).await;
    world.seek("g", "r", json!({"timestamp": BEGINNING})).await.expect(200);
    world.put_in("r", "b", &["old too"]).await;
    assert_eq!(world.pop("r", "consumerGroup=g&subscriptionMode=new&partitions=0").await.ids(), ["old"]);
}

// check: 48
async fn a_deleted_group_replays_from_the_start(world: World) {
    world.put_in("q", "a", &ids("a", 2)).await;
    world.put_in("r", "b", &ids("b", 2)).await;
    world.pop("q", "consumerGroup=g&autoAck=true").await;
    world.pop("r", "consumerGroup=g").await;
    world.pop("q", "consumerGroup=other&autoAck=true").await;
    let answer = world.delete("/api/v1/consumer-groups/g").await.expect(200).json();
    assert_eq!(answer, json!({"success": true, "consumerGroup": "g", "deletedPartitions": 2, "metadataDeleted": true}));
    let begun = Instant::now();
    assert_eq!(world.pop("q", "consumerGroup=g").await.ids(), ["a1", "a2"]);
    assert_eq!(world.pop("r", "consumerGroup=g").await.ids(), ["b1", "b2"], "its leases are gone as well");
    took(begun, 0);
    assert!(world.pop("q", "consumerGroup=other").await.is_empty());
    world.delete("/api/v1/consumer-groups/g").await.expect(200);
    assert_eq!(world.group("g").await, json!({}));
    world.restart().await;
    assert_eq!(world.group("g").await, json!({}));
}

async fn a_group_deleted_on_one_queue_stays_on_the_others(world: World) {
    for queue in ["q", "r"] {
        world.put(queue, &["x"]).await;
        world.pop(queue, "consumerGroup=g&autoAck=true").await;
    }
    let answer = world.delete("/api/v1/consumer-groups/g/queues/q?deleteMetadata=true").await.expect(200).json();
    let expected = json!({
        "success": true, "consumerGroup": "g", "queueName": "q", "deletedPartitions": 1, "metadataDeleted": true,
    });
    assert_eq!(answer, expected);
    assert_eq!(world.pop("q", "consumerGroup=g").await.ids(), ["x"]);
    assert!(world.pop("r", "consumerGroup=g").await.is_empty());
}

async fn a_deleted_group_that_keeps_its_record_skips_its_backlog(world: World) {
    world.put("q", &["old"]).await;
    assert!(world.pop("q", "consumerGroup=g&subscriptionMode=new").await.is_empty());
    world.put("q", &["x"]).await;
    assert_eq!(world.pop("q", "consumerGroup=g&autoAck=true").await.ids(), ["x"]);
    let answer = world.delete("/api/v1/consumer-groups/g?deleteMetadata=false").await.expect(200).json();
    assert_eq!(answer["metadataDeleted"], false);
    // The record stands: what it implies is replayed, not what is older.
    assert_eq!(world.pop("q", "consumerGroup=g&subscriptionMode=all").await.ids(), ["x"]);
}

async fn a_deleted_group_can_start_otherwise(world: World) {
    world.put("q", &["old"]).await;
    assert_eq!(world.pop("q", "consumerGroup=g").await.ids(), ["old"]);
    world.delete("/api/v1/consumer-groups/g").await.expect(200);
    assert!(world.pop("q", "consumerGroup=g&subscriptionMode=new").await.is_empty());
    world.put("q", &["x"]).await;
    assert_eq!(world.pop("q", "consumerGroup=g").await.ids(), ["x"]);
}

async fn a_deletion_of_nothing_is_a_success(world: World) {
    for path in ["/api/v1/consumer-groups/nobody", "/api/v1/consumer-groups/nobody/queues/nothing"] {
        let answer = world.delete(path).await.expect(200).json();
        assert_eq!((&answer["success"], &answer["deletedPartitions"]), (&json!(true), &json!(0)), "{path}");
    }
    assert_eq!(world.queue_names().await, Vec::<String>::new());
}

// check: 48
async fn the_list_shows_every_group_and_queue(world: World) {
    assert_eq!(world.get("/api/v1/consumer-groups").await.expect(200).text(), "[]");
    world.put_in("q", "a", &ids("a", 3)).await;
    world.put_in("q", "b", &ids("b", 2)).await;
    world.put("p", &["x"]).await;
    world.sleep(20).await;
    world.pop_partition("q", "a", "consumerGroup=g&batch=1&autoAck=true").await;
    world.pop_partition("q", "b", "consumerGroup=g&autoAck=true").await;
    world.pop("p", "").await;
    world.pop("p", "consumerGroup=g&autoAck=true").await;
    let rows = world.get("/api/v1/consumer-groups").await.expect(200).list();
    let names: Vec<(&Value, &Value)> = rows.iter().map(|row| (&row["name"], &row["queueName"])).collect();
    assert_eq!(names, [(&json!(QUEUE_MODE), &json!("p")), (&json!("g"), &json!("p")), (&json!("g"), &json!("q"))]);
    let expected = json!({
        "name": "g", "topics": ["q"], "queueName": "q", "members": 2, "partitionCursors": 2, "partitionsWithLag": 1,
        "totalLag": 2, "maxTimeLag": 20, "state": "Stable", "storage": "segments", "subscriptionMode": null,
        "subscriptionTimestamp": null, "subscriptionCreatedAt": null,
    });
    assert_eq!(at_whole_seconds(rows[2].clone()), expected);
    assert_eq!((&rows[0]["state"], &rows[0]["totalLag"]), (&json!("Dead"), &json!(1)), "nothing consumed yet");
    assert_eq!(
        (&rows[1]["state"], &rows[1]["totalLag"], &rows[1]["maxTimeLag"]),
        (&json!("Stable"), &json!(0), &json!(0))
    );
    world.sleep(281).await;
    let rows = world.get("/api/v1/consumer-groups").await.expect(200).list();
    assert_eq!((&rows[2]["state"], &rows[1]["state"]), (&json!("Lagging"), &json!("Stable")));
}

/// The row with its time lag cut to whole seconds, which is all that the page promises of it.
fn at_whole_seconds(mut row: Value) -> Value {
    let secs = row["maxTimeLag"].as_f64().expect("a number");
    row["maxTimeLag"] = json!(secs.floor() as i64);
    row
}

// check: 48
async fn the_lagging_are_listed_biggest_first(world: World) {
    world.put_in("q", "a", &ids("a", 2)).await;
    world.sleep(1_000).await;
    world.put_in("q", "b", &ids("b", 5)).await;
    world.sleep(3_000).await;
    let held = world.pop_partition("q", "a", "consumerGroup=g&leaseSeconds=100").await;
    world.pop_partition("q", "b", "consumerGroup=g&batch=1&autoAck=true").await;
    let rows = world.get("/api/v1/consumer-groups/lagging").await.expect(200).list();
    assert_eq!(rows.len(), 1, "{rows:?}: more than an hour");
    let keys: Vec<&String> = rows[0].as_object().expect("an object").keys().collect();
    let expected = [
        "consumer_group",
        "lag_hours",
        "last_consumed_at",
        "offset_lag",
        "oldest_unconsumed_at",
        "partition_id",
        "partition_name",
        "queue_name",
        "time_lag_seconds",
        "worker_id",
    ];
    assert_eq!(keys, expected);
    assert_eq!(
        (&rows[0]["consumer_group"], &rows[0]["queue_name"], &rows[0]["partition_name"]),
        (&json!("g"), &json!("q"), &json!("a"))
    );
    assert_eq!((&rows[0]["partition_id"], &rows[0]["worker_id"]), (&held.body["partitionId"], &json!(held.lease())));
    assert_eq!((&rows[0]["offset_lag"], &rows[0]["last_consumed_at"]), (&json!(2), &Value::Null));
    let rows = world.get("/api/v1/consumer-groups/lagging?minLagSeconds=2999").await.expect(200).list();
    let names: Vec<&Value> = rows.iter().map(|row| &row["partition_name"]).collect();
    assert_eq!(names, ["a", "b"]);
    assert!(world.get("/api/v1/consumer-groups/lagging?minLagSeconds=5000").await.expect(200).list().is_empty());
    // What does not parse is the default.
    assert_eq!(world.get("/api/v1/consumer-groups/lagging?minLagSeconds=abc").await.expect(200).list().len(), 1);
}

// check: 48
async fn the_detail_shows_every_partition(world: World) {
    assert_eq!(world.group("nobody").await, json!({}));
    world.put_in("q", "a", &ids("a", 3)).await;
    world.put_in("r", "b", &ids("b", 1)).await;
    world.sleep(10).await;
    world.pop("q", "consumerGroup=g&batch=2&autoAck=true").await;
    let held = world.pop("q", "consumerGroup=g").await;
    world.pop("r", "consumerGroup=g&autoAck=true").await;
    let detail = world.group("g").await;
    let partition = &detail["q"]["partitions"][0];
    let keys: Vec<&String> = partition.as_object().expect("an object").keys().collect();
    assert_eq!(
        keys,
        ["lastConsumedAt", "leaseActive", "offsetLag", "partition", "timeLagSeconds", "totalConsumed", "workerId"]
    );
    assert_eq!((&partition["partition"], &partition["workerId"]), (&json!("a"), &json!(held.lease())));
    assert_eq!((&partition["totalConsumed"], &partition["offsetLag"]), (&json!(2), &json!(1)));
    assert_eq!((&partition["leaseActive"], &partition["lastConsumedAt"]), (&json!(true), &Value::Null));
    assert_eq!(partition["timeLagSeconds"].as_f64().map(f64::floor), Some(10.0));
    let other = &detail["r"]["partitions"][0];
    assert_eq!((&other["offsetLag"], &other["leaseActive"]), (&json!(0), &json!(false)));
    assert_eq!(detail.as_object().map(serde_json::Map::len), Some(2));
}
