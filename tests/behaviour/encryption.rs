//! Payloads that are stored encrypted.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tidegate_core::seal::{Key, Keys};

use crate::world::{World, accepted, item};

behaviour!(
    sealed_and_plain_payloads_read_back_as_pushed,
    without_a_key_nothing_is_stored,
    a_key_can_be_rotated,
    dead_letters_keep_the_stored_form,
    a_replay_never_loses_what_it_cannot_open,
    envelopes_of_the_original_are_read,
    a_moved_envelope_stays_closed,
    duplicates_are_told_as_ever,
    no_two_messages_share_an_iv,
);

fn keys(current: u8, previous: &[u8]) -> Keys {
    let key = |n: u8| Key::new([n; 32]);
    Keys { current: Some(key(current)), previous: previous.iter().copied().map(key).collect() }
}

/// A broker with a key, and a queue whose payloads are encrypted.
async fn sealing(world: &World, queue: &str) {
    world.restart_with(|settings| settings.keys = keys(1, &[])).await;
    assert_eq!(world.configure(queue, json!({"encryptionEnabled": true})).await["encryptionEnabled"], true);
}

async fn partition_of(world: &World, queue: &str) -> String {
    world.queue(queue).await["partitions"][0]["id"].as_str().expect("an id").to_owned()
}

fn is_envelope(stored: &str) -> bool {
    let value: Value = serde_json::from_str(stored).expect("JSON");
    value["v"] == 2 && ["encrypted", "iv", "authTag"].iter().all(|key| value[key].is_string())
}

fn iv(stored: &str) -> String {
    serde_json::from_str::<Value>(stored).expect("JSON")["iv"].as_str().expect("an iv").to_owned()
}

async fn counted(world: &World, name: &str) -> u64 {
    let text = world.get("/metrics/prometheus").await.expect(200).text().to_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name}"))
}

/// Pushes payloads as they are written; their transaction ids are `prefix` and a number.
async fn push_raw(world: &World, queue: &str, prefix: &str, payloads: &[&str]) {
    let item = |(n, payload): (usize, &&str)| {
        format!(r#"{{"queue":"{queue}","transactionId":"{prefix}{n}","payload":{payload}}}"#)
    };
    let items: Vec<String> = payloads.iter().enumerate().map(item).collect();
    let body = format!(r#"{{"items":[{}]}}"#, items.join(","));
    world.post_text("/api/v1/push", &body).await.expect(201);
}

const PAYLOADS: &[&str] = &[
    "null",
    "\"\"",
    r#"{"b":1, "a":1.50,"a":18446744073709551616}"#,
    r#""\u0000 \/ é""#,
    "1.0",
    r#"{"encrypted":"x","iv":"y","authTag":"z"}"#,
];

async fn sealed_and_plain_payloads_read_back_as_pushed(world: World) {
    // req: OPT-22
    // check: 52
    sealing(&world, "q").await;
    push_raw(&world, "q", "sealed", PAYLOADS).await;
    world.configure("q", json!({"encryptionEnabled": false})).await;
    push_raw(&world, "q", "plain", PAYLOADS).await;
    world.configure("q", json!({"encryptionEnabled": true})).await;
    let big = format!("\"{}\"", "x".repeat(300_000));
    push_raw(&world, "q", "again", &[&big, "7"]).await;

    let partition = partition_of(&world, "q").await;
    let stored = world.stored(&partition);
    let sealed: Vec<bool> = stored.iter().map(|payload| is_envelope(payload)).collect();
    let count = PAYLOADS.len();
    assert_eq!(sealed, [vec![true; count], vec![false; count], vec![true; 2]].concat());
    assert!(stored[..count].iter().all(|payload| !payload.contains("18446744073709551616")));
    assert_eq!(stored[count..2 * count], *PAYLOADS);

    for round in ["first", "restarted", "crashed"] {
        let popped = world.pop("q", &format!("consumerGroup={round}&batch=100")).await;
        let given = [PAYLOADS, PAYLOADS, &[&big, "7"]].concat();
        assert_eq!(popped.messages().len(), given.len(), "{round}");
        for (payload, id) in given.iter().zip(popped.ids()) {
            let written = format!("\"transactionId\":\"{id}\",\"traceId\":null,\"data\":{payload},\"producerSub\"");
            assert!(popped.text.contains(&written), "{round}: {id}");
        }
        match round {
            "first" => world.restart().await,
            _ => world.crash().await,
        }
    }
    let detail = world.find(&partition, "sealed2").await.expect(200);
    assert!(detail.text().contains(&format!("\"data\":{},", PAYLOADS[2])), "{}", detail.text());
    assert_eq!(detail.json()["isEncrypted"], true);
    assert_eq!(world.find(&partition, "plain2").await.expect(200).json()["isEncrypted"], false);
    assert_eq!(counted(&world, "tidegate_payloads_opened_total").await, 1);

    // Transactions push as pushes do.
    let operations = json!([{"type": "push", "queue": "q", "partition": "t", "payload": {"in": "a transaction"}}]);
    let body = world.post("/api/v1/transaction", json!({"operations": operations})).await.expect(200).json();
    assert_eq!(body["success"], true, "{body}");
    let popped = world.pop_partition("q", "t", "").await;
    assert_eq!(popped.messages()[0]["data"], json!({"in": "a transaction"}));
    assert!(is_envelope(&world.stored(popped.partition_id())[0]));
}

async fn without_a_key_nothing_is_stored(world: World) {
    // req: OPT-23
    world.configure("q", json!({"encryptionEnabled": true})).await;
    let error = world.push(json!([{"queue": "q", "payload": 1}])).await.error(503);
    assert!(error.contains("encryptionEnabled") && error.contains("QUEEN_ENCRYPTION_KEY"), "{error}");
    // Groups for other queues are stored.
    let items = json!([{"queue": "q", "payload": 1}, {"queue": "other", "payload": 2}]);
    let statuses = world.push(items).await.expect(201).list();
    assert_eq!((&statuses[0]["status"], &statuses[1]["status"]), (&json!("failed"), &json!("queued")));
    let operations = json!([
        {"type": "push", "queue": "other", "payload": 3},
        {"type": "push", "queue": "q", "payload": 4},
    ]);
    world.post("/api/v1/transaction", json!({"operations": operations})).await.error(503);
    assert!(world.pop("q", "").await.is_empty());
    assert_eq!(world.pop("other", "batch=10").await.messages().len(), 1);
    // A key for reading only is no key to seal with.
    world.restart_with(|settings| settings.keys = Keys { current: None, ..keys(1, &[2]) }).await;
    world.push(json!([{"queue": "q", "payload": 1}])).await.error(503);
    world.restart_with(|settings| settings.keys = keys(1, &[])).await;
    world.put("q", &["x"]).await;
    assert!(world.stored(&partition_of(&world, "q").await).iter().all(|payload| is_envelope(payload)));
    // Turned off, it needs none.
    world.restart_with(|settings| settings.keys = Keys::default()).await;
    world.configure("q", json!({"encryptionEnabled": false})).await;
    world.put("q", &["y"]).await;
}

async fn a_key_can_be_rotated(world: World) {
    // req: OPT-22
    sealing(&world, "q").await;
    world.put("q", &["old"]).await;
    world.restart_with(|settings| settings.keys = keys(2, &[3, 1])).await;
    world.put("q", &["new"]).await;
    let data = async |group: &str| {
        let popped = world.pop("q", &format!("consumerGroup={group}")).await;
        popped.messages().iter().map(|message| message["data"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(data("both").await, ["old", "new"]);
    assert_eq!(counted(&world, "tidegate_payloads_unopened_total").await, 0);
    world.restart_with(|settings| settings.keys = keys(2, &[])).await;
    let seen = data("new").await;
    assert_eq!((seen[0]["v"].clone(), seen[1].clone()), (json!(2), json!("new")), "what does not open is as stored");
    assert_eq!(counted(&world, "tidegate_payloads_unopened_total").await, 1);
    world.restart_with(|settings| settings.keys = keys(4, &[2, 1])).await;
    assert_eq!(data("again").await, ["old", "new"]);
}

/// A dead letter of a sealed message in queue `q`; gives its partition.
async fn bury(world: &World) -> String {
    world.put("q", &["x"]).await;
    let popped = world.pop("q", "consumerGroup=g").await;
    accepted(&world.ack_batch("g", vec![item(popped.message("x"), "dlq")]).await[0]);
    popped.partition_id().to_owned()
}

async fn dead_letters_keep_the_stored_form(world: World) {
    sealing(&world, "q").await;
    let partition = bury(&world).await;
    let rows = world.dead_letters("q").await;
    assert_eq!((&rows[0]["data"], &rows[0]["isEncrypted"]), (&json!("x"), &json!(true)));
    // Without the key it is shown as it is stored.
    world.restart_with(|settings| settings.keys = Keys::default()).await;
    let rows = world.dead_letters("q").await;
    assert_eq!((&rows[0]["data"]["v"], &rows[0]["isEncrypted"]), (&json!(2), &Value::Null));
    // The way back is a push: sealed anew for its new place under today's key.
    world.restart_with(|settings| settings.keys = keys(2, &[1])).await;
    world.post_text(&format!("/api/v1/messages/{partition}/x/retry"), "").await.expect(200);
    let stored = world.stored(&partition);
    assert!(stored.len() == 2 && is_envelope(&stored[1]) && iv(&stored[0]) != iv(&stored[1]));
    world.restart_with(|settings| settings.keys = keys(2, &[])).await;
    let popped = world.pop("q", "consumerGroup=g").await;
    assert_eq!(popped.messages()[0]["data"], "x");
    assert!(world.dead_letters("q").await.is_empty());
}

async fn a_replay_never_loses_what_it_cannot_open(world: World) {
    sealing(&world, "q").await;
    let partition = bury(&world).await;
    let retry = format!("/api/v1/messages/{partition}/x/retry");
    for (lost, encrypts) in
        [(Keys::default(), true), (Keys::default(), false), (keys(2, &[]), true), (keys(2, &[]), false)]
    {
        world.restart_with(|settings| settings.keys = lost).await;
        world.configure("q", json!({"encryptionEnabled": encrypts})).await;
        world.post_text(&retry, "").await.error(503);
        assert_eq!(world.dead_letters("q").await.len(), 1);
    }
    // Opened and no longer encrypted, it goes back in plain text.
    world.restart_with(|settings| settings.keys = keys(1, &[])).await;
    world.post_text(&retry, "").await.expect(200);
    assert_eq!(world.stored(&partition)[1], "\"x\"");
}

async fn envelopes_of_the_original_are_read(world: World) {
    // req: OPT-22
    // Made elsewhere, under the key of the bytes 0 to 31.
    let envelope =
        r#"{"encrypted": "MzmxFB2MJLwEVSI=", "iv": "ZGVmZ2hpamtsbW5vcHFycw==", "authTag": "vk1q6Masa8p6JiLl4waS1g=="}"#;
    let key = || Key::new(std::array::from_fn(|n| n as u8));
    push_raw(&world, "q", "x", &[envelope]).await;
    let data =
        async |group: &str| world.pop("q", &format!("consumerGroup={group}")).await.messages()[0]["data"].clone();
    assert!(data("without").await["encrypted"].is_string());
    world.restart_with(|settings| settings.keys = Keys { current: Some(key()), previous: Vec::new() }).await;
    assert_eq!(data("with").await, json!({"order": 7}));
    world.restart_with(|settings| settings.keys = Keys { previous: vec![key()], ..keys(1, &[]) }).await;
    assert_eq!(data("former").await, json!({"order": 7}));
    world.restart_with(|settings| settings.keys = keys(1, &[])).await;
    assert!(data("other").await["encrypted"].is_string());
}

async fn a_moved_envelope_stays_closed(world: World) {
    sealing(&world, "q").await;
    push_raw(&world, "q", "x", &["\"secret\""]).await;
    let envelope = world.stored(&partition_of(&world, "q").await).remove(0);
    // Somebody who has seen what is stored pushes it elsewhere, to be told what is in it.
    for queue in ["q", "plain"] {
        if queue == "q" {
            world.configure("q", json!({"encryptionEnabled": false})).await;
        }
        push_raw(&world, queue, "thief", &[&envelope]).await;
        let popped = world.pop(queue, "batch=10").await;
        assert_eq!(popped.message("thief0")["data"], serde_json::from_str::<Value>(&envelope).expect("JSON"));
    }
    // Sealed itself, it comes back as pushed.
    world.configure("sealed", json!({"encryptionEnabled": true})).await;
    push_raw(&world, "sealed", "thief", &[&envelope]).await;
    assert!(world.pop("sealed", "").await.text.contains(&format!("\"data\":{envelope},")));
}

async fn duplicates_are_told_as_ever(world: World) {
    sealing(&world, "q").await;
    world.put("q", &["x", "y"]).await;
    assert_eq!(world.push_ids("q", &["x", "z", "y", "z"]).await, ["duplicate", "queued", "duplicate", "duplicate"]);
    assert_eq!(counted(&world, "tidegate_payloads_sealed_total").await, 3, "what is not stored is not sealed");
    assert_eq!(world.pop("q", "").await.ids(), ["x", "y", "z"]);
}

async fn no_two_messages_share_an_iv(world: World) {
    sealing(&world, "q").await;
    world.put("q", &["kept"]).await;
    // Refused, lost on the way there, lost on the way back: each time it is decided anew.
    world.faults().fail_commits(2);
    while world.push(json!([{"queue": "q", "transactionId": "a", "payload": 1}])).await.status != 201 {
        world.sleep_ms(10).await;
    }
    world.faults().lose_commits(1);
    while world.push(json!([{"queue": "q", "transactionId": "b", "payload": 1}])).await.status != 201 {
        world.sleep_ms(10).await;
    }
    world.faults().lose_answers(1);
    while world.push(json!([{"queue": "q", "transactionId": "c", "payload": 1}])).await.status != 201 {
        world.sleep_ms(10).await;
    }
    // Another broker takes the slot.
    world.crash().await;
    for n in 0..200 {
        world.push(json!([{"queue": "q", "transactionId": n.to_string(), "payload": 1}])).await.expect(201);
    }
    let sent = world.faults().sent();
    let ivs: BTreeSet<String> = sent.iter().map(|payload| iv(std::str::from_utf8(payload).expect("JSON"))).collect();
    assert!(sent.len() >= 206, "{}", sent.len());
    assert_eq!(ivs.len(), sent.len());
}
