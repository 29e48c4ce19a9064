//! The list of dead letters.

use serde_json::{Value, json};

use crate::world::{World, accepted, item, micros};

behaviour!(
    a_row_tells_all_about_a_dead_letter,
    rows_are_filtered_and_paged_newest_first,
    a_parameter_that_does_not_parse_is_the_default,
    rows_outlive_a_restart_and_the_cursor,
);

/// Dead-letters one message of a queue for a group, a second after the last.
async fn bury(world: &World, queue: &str, group: &str, id: &str) {
    world.sleep(1).await;
    world.put(queue, &[id]).await;
    let popped = world.pop(queue, &format!("consumerGroup={group}&subscriptionMode=all")).await;
    accepted(&world.ack(popped.message(id), "dlq").await);
    let rest = world.pop(queue, &format!("consumerGroup={group}")).await;
    assert!(rest.is_empty());
}

async fn list(world: &World, query: &str) -> Vec<String> {
    let body = world.get(&format!("/api/v1/dlq?{query}")).await.expect(200).json();
    let rows = body["messages"].as_array().expect("an array");
    assert_eq!(body["total"], rows.len(), "the length of the page");
    rows.iter().map(|row| row["transactionId"].as_str().expect("a text").to_owned()).collect()
}

async fn a_row_tells_all_about_a_dead_letter(world: World) {
    world.put("q", &["x"]).await;
    world.sleep(5).await;
    let popped = world.pop("q", "consumerGroup=g").await;
    let mut failed = item(popped.message("x"), "dlq");
    failed["error"] = json!("why");
    accepted(&world.ack_batch("g", vec![failed]).await[0]);
    let body = world.get("/api/v1/dlq").await.expect(200).json();
    assert_eq!((&body["pagination"], &body["total"]), (&json!({"limit": 100, "offset": 0}), &json!(1)));
    let row = &body["messages"][0];
    let keys: Vec<&String> = row.as_object().expect("an object").keys().collect();
    let expected = [
        "consumerGroup",
        "createdAt",
        "data",
        "errorMessage",
        "failedAt",
        "id",
        "partition",
        "partitionId",
        "producerSub",
        "queue",
        "retryCount",
        "transactionId",
    ];
    assert_eq!(keys, expected);
    assert_eq!((&row["transactionId"], &row["partitionId"]), (&json!("x"), &popped.body["partitionId"]));
    assert_eq!(
        (&row["queue"], &row["partition"], &row["consumerGroup"]),
        (&json!("q"), &json!("Default"), &json!("g"))
    );
    assert_eq!((&row["errorMessage"], &row["retryCount"], &row["data"]), (&json!("why"), &json!(0), &json!("x")));
    assert_eq!(row["producerSub"], Value::Null);
    assert_eq!(row["failedAt"].as_str().map(str::len), Some("2026-01-01T00:00:00.000Z".len()));
    assert!((5_000_000..5_010_000).contains(&micros(&row["failedAt"])), "{row}");
}

async fn rows_are_filtered_and_paged_newest_first(world: World) {
    for (queue, group, id) in [("q", "g", "1"), ("r", "g", "2"), ("q", "h", "3"), ("q", "g", "4")] {
        // The other group has the earlier ones out of its way.
        if id == "3" {
            world.pop("q", "consumerGroup=h&autoAck=true").await;
        }
        if id == "4" {
            world.pop("q", "consumerGroup=g&autoAck=true").await;
        }
        bury(&world, queue, group, id).await;
    }
    let cases: [(&str, &[&str]); 11] = [
        ("", &["4", "3", "2", "1"]),
        ("queue=q", &["4", "3", "1"]),
        ("consumerGroup=g", &["4", "2", "1"]),
        ("queue=q&consumerGroup=g", &["4", "1"]),
        ("queue=&consumerGroup=", &["4", "3", "2", "1"]),
        ("queue=nope", &[]),
        ("limit=2", &["4", "3"]),
        ("limit=2&offset=2", &["2", "1"]),
        ("offset=3", &["1"]),
        ("offset=9", &[]),
        ("partition=nope&from=x&to=y", &["4", "3", "2", "1"]),
    ];
    for (query, expected) in cases {
        assert_eq!(list(&world, query).await, expected, "{query}");
    }
    let body = world.get("/api/v1/dlq?limit=2&offset=1").await.expect(200).json();
    assert_eq!(body["pagination"], json!({"limit": 2, "offset": 1}));
}

async fn a_parameter_that_does_not_parse_is_the_default(world: World) {
    bury(&world, "q", "g", "x").await;
    for query in ["limit=abc", "offset=abc", "limit=", "offset=1.5", "limit=99999999999999999999"] {
        assert_eq!(list(&world, query).await, ["x"], "{query}");
    }
}

async fn rows_outlive_a_restart_and_the_cursor(world: World) {
    bury(&world, "q", "g", "x").await;
    world.restart().await;
    world.delete("/api/v1/consumer-groups/g").await.expect(200);
    world.seek("g", "q", json!({"toEnd": true})).await.expect(200);
    let before = world.dead_letters("q").await;
    assert_eq!((before.len(), &before[0]["data"]), (1, &json!("x")));
    world.crash().await;
    assert_eq!(world.dead_letters("q").await, before);
}
