//! Names: every text is a name, however it is spelled on the wire, and none is taken for another.

use serde_json::{Value, json};

use crate::world::{World, accepted, at, encode, item};

behaviour!(
    escapes_in_a_name_mean_what_they_mean,
    the_empty_queue_is_a_queue,
    odd_names_are_reached_by_their_encoded_paths,
    a_slash_stays_inside_its_segment,
    a_name_has_a_limit_and_no_nul,
    routes_are_not_shadowed_by_names,
    a_deleted_queue_is_gone_with_all_it_held,
    listings_show_every_queue,
);

// scn: 28
async fn escapes_in_a_name_mean_what_they_mean(world: World) {
    let spellings = [
        (r"a\u0026b", "a&b"),
        (r"a\/b", "a/b"),
        (r#"a\"b"#, "a\"b"),
        (r"\ud83d\ude00", "😀"),
        (r"caf\u00e9", "café"),
        (r"tab\t\\", "tab\t\\"),
        (r"\u0041", "A"),
    ];
    for (escaped, plain) in spellings {
        let configure = format!(r#"{{"queue":"{escaped}","options":{{"leaseTime":7}}}}"#);
        let configured = world.post_text("/api/v1/configure", &configure).await.expect(200).json();
        assert_eq!(configured["queue"], plain);
        let push = format!(
            r#"{{"items":[{{"queue":"{escaped}","partition":"{escaped}","transactionId":"{escaped}","payload":"{escaped}"}}]}}"#
        );
        let pushed = world.post_text("/api/v1/push", &push).await.expect(201).list();
        assert_eq!((&pushed[0]["queueName"], &pushed[0]["transaction_id"]), (&json!(plain), &json!(plain)));
        let again = world
            .push(json!([{"queue": plain, "partition": plain, "transactionId": plain, "payload": 0}]))
            .await
            .list();
        assert_eq!(again[0]["status"], "duplicate", "{plain} is the same queue, partition and id in plain spelling");
        let popped = world.pop_partition(plain, plain, &format!("consumerGroup={}", encode(plain))).await;
        assert_eq!(popped.ids(), [plain]);
        assert_eq!(popped.messages()[0]["partition"], plain);
        assert!(popped.text.contains(&format!(r#""data":"{escaped}""#)), "the payload keeps its spelling");
        let transaction = format!(
            r#"{{"operations":[{{"type":"ack","transactionId":"{escaped}","partitionId":"{}","consumerGroup":"{escaped}","leaseId":"{}"}},
                {{"type":"push","queue":"{escaped}","partition":"{escaped}","transactionId":"next","payload":0}}]}}"#,
            popped.partition_id(),
            popped.lease()
        );
        let done = world.post_text("/api/v1/transaction", &transaction).await.expect(200).json();
        assert_eq!(done["success"], true, "{done}");
        let next = world.pop(plain, &format!("consumerGroup={}", encode(plain))).await;
        assert_eq!(next.ids(), ["next"]);
        let ack = format!(
            r#"{{"transactionId":"n\u0065xt","partitionId":"{}","consumerGroup":"{escaped}","leaseId":"{}","status":"\u006fk"}}"#,
            next.partition_id(),
            next.lease()
        );
        accepted(&world.post_text("/api/v1/ack", &ack).await.expect(200).list()[0]);
    }
    assert_eq!(world.queue_names().await.len(), spellings.len());
}

// req: CFG-4
// scn: 29
async fn the_empty_queue_is_a_queue(world: World) {
    world.configure("", json!({"leaseTime": 5})).await;
    world.put("", &["x1", "x2"]).await;
    assert_eq!(world.get("/api/v1/pop/queue/?batch=1").await.expect(200).json()["messages"][0]["transactionId"], "x1");
    world.sleep(5).await;
    let popped = world.pop_partition("", "Default", "batch=1").await;
    assert_eq!(popped.ids(), ["x1"]);
    accepted(&world.ack(popped.message("x1"), "completed").await);
    let listed = world.get("/api/v1/resources/queues").await.expect(200).json();
    let row =
        listed["queues"].as_array().expect("an array").iter().find(|row| row["name"] == "").expect("listed").clone();
    assert_eq!(row["messages"]["total"], 2);
    assert_eq!(world.queue("").await["totals"]["pending"], 1);
    let deleted = world.delete("/api/v1/resources/queues/").await.expect(200).json();
    assert_eq!(deleted, json!({"deleted": true, "queue": "", "existed": true}));
    assert_eq!(world.queue_names().await, Vec::<String>::new());
    assert!(world.pop_partition("", "Default", "").await.is_empty());
}

// scn: 30
async fn odd_names_are_reached_by_their_encoded_paths(world: World) {
    let names = [
        "a/b",
        "a+b",
        "a b",
        "a%2Fb",
        "..",
        ".",
        "a?b",
        "a#b",
        "%",
        "a",
        "b",
        "a&b=c",
        "😀",
        "é",
        "queue",
        "partition",
    ];
    for queue in names {
        for partition in names {
            let id = format!("{queue} {partition}");
            world
                .push(json!([{"queue": queue, "partition": partition, "transactionId": id, "payload": 0}]))
                .await
                .expect(201);
        }
    }
    let mut sorted = names.map(str::to_owned).to_vec();
    sorted.sort();
    assert_eq!(world.queue_names().await, sorted);
    for queue in names {
        for partition in names {
            let popped = world.pop_partition(queue, partition, "").await;
            assert_eq!(popped.ids(), [format!("{queue} {partition}")]);
            assert_eq!((&popped.body["queue"], &popped.body["partition"]), (&json!(queue), &json!(partition)));
        }
        let all = world.pop(queue, "consumerGroup=g&partitions=0").await;
        assert_eq!(all.messages().len(), names.len());
        assert!(all.ids().iter().all(|id| id.starts_with(&format!("{queue} "))));
        let detail = world.queue(queue).await;
        assert_eq!(
            (&detail["name"], detail["partitions"].as_array().map(Vec::len)),
            (&json!(queue), Some(names.len()))
        );
        // Seek and group routes reach it too.
        let sought = world.seek("g/h", queue, json!({"toEnd": true})).await.expect(200).json();
        assert_eq!((&sought["consumerGroup"], &sought["queueName"]), (&json!("g/h"), &json!(queue)));
    }
    for queue in names {
        let deleted = world.delete(&format!("/api/v1/resources/queues/{}", encode(queue))).await.expect(200).json();
        assert_eq!((&deleted["existed"], &deleted["queue"]), (&json!(true), &json!(queue)));
    }
    assert_eq!(world.queue_names().await, Vec::<String>::new());
}

async fn a_slash_stays_inside_its_segment(world: World) {
    world.put_in("a/b", "c/d", &["x"]).await;
    for path in ["/api/v1/pop/queue/a%2Fb", "/api/v1/pop/queue/a%2fb/partition/c%2Fd"] {
        let popped = world.get(&format!("{path}?consumerGroup={}", path.len())).await.expect(200).json();
        assert_eq!(popped["messages"][0]["transactionId"], "x");
    }
    world.get("/api/v1/pop/queue/a/b").await.error(404);
    // A plus is a plus in a path; in a query it is a space, as in every form.
    world.put("a+b", &["y"]).await;
    let popped = world.get("/api/v1/pop/queue/a+b?consumerGroup=c+d").await.expect(200).json();
    assert_eq!((&popped["queue"], &popped["consumerGroup"]), (&json!("a+b"), &json!("c d")));
}

async fn a_name_has_a_limit_and_no_nul(world: World) {
    // 1,024 bytes of UTF-8, however few characters they are.
    let (longest, long) = ("é".repeat(512), "é".repeat(512) + "x");
    world.put_in(&longest, &longest, &["x"]).await;
    let popped = world.pop_partition(&longest, &longest, &format!("consumerGroup={}", encode(&longest))).await;
    assert_eq!(popped.ids(), ["x"]);
    let ack = at(item(&popped.messages()[0], "ok"), "consumerGroup", longest.as_str());
    accepted(&world.ack_item(ack).await);
    for bad in [long.as_str(), "nul\u{0}", "\u{0}"] {
        let expected = if bad.contains('\u{0}') { "U+0000" } else { "1024" };
        for (field, item) in [
            ("queue", json!({"queue": bad, "payload": 0})),
            ("partition", json!({"queue": "q", "partition": bad, "payload": 0})),
        ] {
            let error = world.push(json!([item])).await.error(400).replace(',', "");
            assert!(error.contains(field) && error.contains(expected), "{error}");
        }
        let encoded = encode(bad);
        for (field, path) in [
            ("queue", format!("/api/v1/pop/queue/{encoded}")),
            ("queue", format!("/api/v1/resources/queues/{encoded}")),
            ("partition", format!("/api/v1/pop/queue/q/partition/{encoded}")),
            ("consumerGroup", format!("/api/v1/pop/queue/q?consumerGroup={encoded}")),
        ] {
            let error = world.get(&path).await.error(400).replace(',', "");
            assert!(error.contains(field) && error.contains(expected), "{field}: {error}");
        }
        let error = world.post("/api/v1/configure", json!({"queue": bad})).await.error(400).replace(',', "");
        assert!(error.contains("queue") && error.contains(expected), "{error}");
        let error = world.post("/api/v1/ack", json!({"consumerGroup": bad})).await.error(400).replace(',', "");
        assert!(error.contains("consumerGroup") && error.contains(expected), "{error}");
    }
    assert_eq!(world.queue_names().await, [longest]);
}

async fn routes_are_not_shadowed_by_names(world: World) {
    world.put("q", &["x"]).await;
    world.pop("q", "consumerGroup=lagging").await;
    assert_eq!(world.get("/api/v1/consumer-groups/lagging").await.expect(200).json(), json!([]));
    // Where a name is expected, the word is a name.
    world.put("queue", &["y"]).await;
    assert_eq!(world.pop("queue", "").await.ids(), ["y"]);
}

// check: 49
async fn a_deleted_queue_is_gone_with_all_it_held(world: World) {
    let first = world.post("/api/v1/configure", json!({"queue": "q", "leaseTime": 7})).await.expect(200).json();
    world.put("q", &["x", "y"]).await;
    let popped = world.pop("q", "consumerGroup=g&subscriptionMode=all").await;
    accepted(&world.ack(popped.message("x"), "dlq").await);
    let held = world.pop("q", "consumerGroup=g").await;
    let path = "/api/v1/resources/queues/q";
    assert_eq!(world.delete(path).await.expect(200).json(), json!({"deleted": true, "queue": "q", "existed": true}));
    let again =
        json!({"deleted": false, "queue": "q", "existed": false, "message": "Queue not found, nothing was deleted"});
    assert_eq!(world.delete(path).await.expect(200).json(), again);
    assert_eq!(world.get(path).await.error(404), "Queue not found");
    assert!(world.dead_letters("q").await.is_empty());
    assert_eq!(world.get("/api/v1/consumer-groups").await.expect(200).json(), json!([]));
    assert_eq!(world.ack(held.message("y"), "completed").await["success"], false);
    world.find(popped.partition_id(), "y").await.error(404);
    world.restart().await;
    assert_eq!(world.queue_names().await, Vec::<String>::new());
    // What comes later is a fresh queue: no duplicate of what is gone, no old cursor, options or ids.
    assert_eq!(world.push_ids("q", &["x", "y"]).await, ["queued", "queued"]);
    let popped = world.pop("q", "consumerGroup=g").await;
    assert_eq!(popped.ids(), ["x", "y"]);
    assert_ne!(popped.partition_id(), held.partition_id());
    assert_ne!(world.queue("q").await["id"], first["queueId"]);
    let found = world.find(popped.partition_id(), "x").await.expect(200).json();
    assert_eq!(found["queueConfig"]["leaseTime"], 60);
}

async fn listings_show_every_queue(world: World) {
    world.configure("first", json!({"namespace": "n", "task": "t"})).await;
    world.sleep(1).await;
    world.put_in("second", "a", &["x1", "x2"]).await;
    world.put_in("second", "b", &["y"]).await;
    let body = world.get("/api/v1/resources/queues?limit=1&namespace=none").await.expect(200).json();
    let rows = body["queues"].as_array().expect("an array");
    let names: Vec<&Value> = rows.iter().map(|row| &row["name"]).collect();
    assert_eq!(names, ["second", "first"], "newest first, and no parameter is read");
    for row in rows {
        let keys: Vec<&String> = row.as_object().expect("an object").keys().collect();
        assert_eq!(
            keys,
            ["createdAt", "id", "messages", "name", "namespace", "partitions", "retainedBytes", "segments", "task"]
        );
        assert_eq!(row["createdAt"].as_str().map(str::len), Some("2026-01-01T00:00:00.000Z".len()));
    }
    assert_eq!(rows[0]["partitions"], 2);
    assert_eq!(rows[0]["segments"], json!({"segments": 2, "messages": 3}));
    assert_eq!(rows[0]["messages"], json!({"total": 3, "pending": 3, "processing": 0}));
    assert!(rows[0]["retainedBytes"].as_u64().is_some_and(|bytes| bytes > 0));
    assert_eq!(rows[1]["messages"], json!({"total": 0, "pending": 0, "processing": 0}));

    // In detail, with a batch out and one completed.
    let popped = world.pop_partition("second", "a", "batch=1").await;
    let body = world.get("/api/v1/resources/queues").await.expect(200).json();
    assert_eq!(body["queues"][0]["messages"], json!({"total": 3, "pending": 2, "processing": 1}));
    let detail = world.queue("second").await;
    let counts = json!({"total": 3, "pending": 3, "processing": 1, "completed": 0, "failed": null, "deadLetter": 0});
    assert_eq!(detail["totals"], counts);
    let partitions = detail["partitions"].as_array().expect("an array");
    let names: Vec<&Value> = partitions.iter().map(|partition| &partition["name"]).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(partitions[0]["id"], popped.body["partitionId"]);
    for key in ["createdAt", "oldestMessage", "newestMessage"] {
        assert!(partitions[0][key].is_string(), "{key}");
    }
    accepted(&world.ack(popped.message("x1"), "completed").await);
    let detail = world.queue("second").await;
    let expected = json!({"total": 2, "pending": 1, "processing": 0, "completed": 1, "failed": null, "deadLetter": 0});
    assert_eq!(detail["partitions"][0]["stats"], expected);
}
