//! How long a lease lives, and its extension.

use serde_json::{Value, json};

use crate::world::{Answer, World, accepted, ids, micros, refused};

behaviour!(
    a_pushed_queue_leases_sixty_seconds_and_a_configured_three_hundred,
    a_request_chooses_its_lease,
    a_granted_lease_keeps_its_expiry,
    a_lease_of_no_time_expires_at_once,
    an_extension_lengthens_and_never_shortens,
    an_extension_covers_every_partition_of_the_call,
    an_extension_of_nothing_extends_nothing,
    an_extension_understands_every_body,
    an_extended_batch_is_still_the_holders,
    an_extension_wakes_nobody_early,
);

async fn extend(world: &World, lease: &str, body: Value) -> Answer {
    world.post(&format!("/api/v1/lease/{lease}/extend"), body).await.expect(200)
}

/// Asserts that what was popped just now comes again after exactly this time, on every route.
async fn comes_again_after(world: &World, queue: &str, secs: u64) {
    world.sleep_ms(secs * 1_000 - 1).await;
    assert!(world.pop(queue, "").await.is_empty());
    assert!(world.pop_partition(queue, "Default", "").await.is_empty());
    world.sleep_ms(1).await;
    assert_eq!(world.pop(queue, "leaseSeconds=1").await.ids(), ["x"]);
    world.sleep(1).await;
}

// check: 46
// req: CFG-8, OPT-3
// scn: 37
async fn a_pushed_queue_leases_sixty_seconds_and_a_configured_three_hundred(world: World) {
    world.put("pushed", &["x"]).await;
    world.pop("pushed", "").await;
    comes_again_after(&world, "pushed", 60).await;
    world.pop_partition("pushed", "Default", "").await;
    comes_again_after(&world, "pushed", 60).await;

    world.configure("configured", json!({})).await;
    world.put("configured", &["x"]).await;
    world.pop("configured", "").await;
    comes_again_after(&world, "configured", 300).await;

    // Configured later, a pushed queue has the configured default.
    world.configure("pushed", json!({"retryLimit": 1})).await;
    world.pop("pushed", "").await;
    comes_again_after(&world, "pushed", 300).await;

    // A queue that a pop or a transaction made leases like a pushed one.
    assert!(world.pop("popped", "").await.is_empty());
    world.put("popped", &["x"]).await;
    world.pop("popped", "").await;
    comes_again_after(&world, "popped", 60).await;
    let operation = json!({"type": "push", "queue": "transacted", "transactionId": "x", "payload": 0});
    world.post("/api/v1/transaction", json!({"operations": [operation]})).await.expect(200);
    world.pop("transacted", "").await;
    comes_again_after(&world, "transacted", 60).await;
}

// req: OPT-3
async fn a_request_chooses_its_lease(world: World) {
    world.configure("q", json!({"leaseTime": 10})).await;
    world.put("q", &["x"]).await;
    for (query, secs) in
        [("leaseSeconds=3", 3), ("leaseSeconds=0", 10), ("leaseSeconds=-7", 10), ("leaseSeconds=100", 100), ("", 10)]
    {
        assert_eq!(world.pop("q", query).await.ids(), ["x"], "{query}");
        comes_again_after(&world, "q", secs).await;
        assert_eq!(world.pop_partition("q", "Default", query).await.ids(), ["x"], "{query}");
        comes_again_after(&world, "q", secs).await;
    }
}

// req: OPT-3, CFG-9
async fn a_granted_lease_keeps_its_expiry(world: World) {
    world.configure("q", json!({"leaseTime": 10})).await;
    world.put("q", &["x"]).await;
    world.pop("q", "").await;
    world.configure("q", json!({"leaseTime": 2})).await;
    comes_again_after(&world, "q", 10).await;
    world.pop("q", "").await;
    world.configure("q", json!({"leaseTime": 20})).await;
    comes_again_after(&world, "q", 2).await;
    world.pop("q", "").await;
    comes_again_after(&world, "q", 20).await;
}

// req: CFG-10
async fn a_lease_of_no_time_expires_at_once(world: World) {
    let options = world.configure("q", json!({"leaseTime": 0})).await;
    assert_eq!(options["leaseTime"], 0);
    world.put("q", &["x"]).await;
    let popped = world.pop("q", "").await;
    assert_eq!(popped.ids(), ["x"]);
    refused(&world.ack(popped.message("x"), "completed").await, "invalid or expired lease");
    assert_eq!(world.pop("q", "").await.ids(), ["x"], "another may have it in the same moment");
    assert_eq!(world.pop("q", "leaseSeconds=5").await.ids(), ["x"]);
    assert!(world.pop("q", "").await.is_empty(), "a lease of some time holds");
}

// check: 41
async fn an_extension_lengthens_and_never_shortens(world: World) {
    world.put("q", &["x"]).await;
    let popped = world.pop("q", "leaseSeconds=10").await;
    let granted = world.now();
    world.sleep(5).await;
    let body = extend(&world, popped.lease(), json!({"seconds": 120})).await.json();
    assert_eq!(
        (&body["leaseId"], &body["success"], &body["renewed"]),
        (&json!(popped.lease()), &json!(true), &json!(1))
    );
    assert_eq!(body["newExpiresAt"], body["expiresAt"]);
    assert_eq!(body["newExpiresAt"], body["lease_expires_at"]);
    assert_eq!(body["expiresAt"].as_str().map(str::len), Some("2026-01-01T00:00:00.000000Z".len()));
    assert_eq!(micros(&body["expiresAt"]), granted + 125_000_000, "now plus 120 s");
    let shorter = extend(&world, popped.lease(), json!({"seconds": 1})).await.json();
    assert_eq!((&shorter["success"], &shorter["renewed"]), (&json!(true), &json!(1)));
    assert_eq!(shorter["expiresAt"], body["expiresAt"]);
    comes_again_after(&world, "q", 120).await;
}

// check: 41
async fn an_extension_covers_every_partition_of_the_call(world: World) {
    for partition in ["a", "b", "c"] {
        world.put_in("q", partition, &[partition]).await;
    }
    let popped = world.pop("q", "partitions=3&leaseSeconds=10").await;
    let body = extend(&world, popped.lease(), json!({"seconds": 30})).await.json();
    assert_eq!(body["renewed"], 3);
    world.sleep_ms(29_999).await;
    assert!(world.pop("q", "partitions=3").await.is_empty());
    // A partition that is settled is no longer the lease's.
    accepted(&world.ack(popped.message("b"), "completed").await);
    let body = extend(&world, popped.lease(), json!({"seconds": 5})).await.json();
    assert_eq!(body["renewed"], 2);
    world.sleep_ms(4_999).await;
    assert!(world.pop("q", "partitions=3").await.is_empty());
    world.sleep_ms(1).await;
    let again = world.pop("q", "partitions=3").await;
    assert_eq!(again.messages().len(), 2);
    // The lease ended with its time; the new holder's lives.
    let body = extend(&world, popped.lease(), json!({"seconds": 5})).await.json();
    assert_eq!(body["renewed"], 0);
}

// check: 42
async fn an_extension_of_nothing_extends_nothing(world: World) {
    let nothing = |lease: &str| {
        json!({
            "leaseId": lease, "success": false, "renewed": 0, "newExpiresAt": null, "expiresAt": null, "lease_expires_at": null,
        })
    };
    for lease in ["0198c0de-0000-7000-8000-000000000001", "nonsense", "00000000-0000-0000-0000-000000000000"] {
        assert_eq!(extend(&world, lease, json!({"seconds": 60})).await.json(), nothing(lease));
    }
    // An expired one, a released one.
    world.put("q", &["x"]).await;
    let expired = world.pop("q", "leaseSeconds=1").await;
    world.sleep(1).await;
    assert_eq!(extend(&world, expired.lease(), json!({"seconds": 60})).await.json(), nothing(expired.lease()));
    let released = world.pop("q", "").await;
    assert_eq!(released.ids(), ["x"], "nothing was extended");
    accepted(&world.ack(released.message("x"), "completed").await);
    assert_eq!(extend(&world, released.lease(), json!({"seconds": 60})).await.json(), nothing(released.lease()));
}

async fn an_extension_understands_every_body(world: World) {
    world.put("q", &["x"]).await;
    let bodies = [
        ("", 60),
        ("{}", 60),
        ("nonsense", 60),
        ("[]", 60),
        (r#"{"seconds":"90"}"#, 60),
        (r#"{"seconds":null}"#, 60),
        (r#"{"seconds":1.5}"#, 60),
        (r#"{"seconds":true}"#, 60),
        (r#"{"seconds":0}"#, 1),
        (r#"{"seconds":-100}"#, 1),
        (r#"{"seconds":90}"#, 90),
    ];
    for (body, secs) in bodies {
        let popped = world.pop("q", "leaseSeconds=1").await;
        assert_eq!(popped.ids(), ["x"], "{body}");
        let begun = world.now();
        let answer =
            world.post_text(&format!("/api/v1/lease/{}/extend", popped.lease()), body).await.expect(200).json();
        assert_eq!(answer["success"], true, "{body}");
        assert_eq!(micros(&answer["expiresAt"]), begun + secs * 1_000_000, "{body}");
        accepted(&world.ack(popped.message("x"), "retry").await);
    }
}

async fn an_extended_batch_is_still_the_holders(world: World) {
    world.put("q", &ids("x", 2)).await;
    let popped = world.pop("q", "leaseSeconds=2").await;
    for _ in 0..10 {
        world.sleep(1).await;
        extend(&world, popped.lease(), json!({"seconds": 2})).await;
    }
    assert!(world.pop("q", "").await.is_empty());
    world.restart().await;
    assert!(world.pop("q", "").await.is_empty(), "the extension is stored");
    accepted(&world.ack(popped.message("x2"), "completed").await);
    assert!(world.pop("q", "").await.is_empty());
}

async fn an_extension_wakes_nobody_early(world: World) {
    world.put("q", &["x"]).await;
    let popped = world.pop("q", "leaseSeconds=2").await;
    let begun = tokio::time::Instant::now();
    let (waited, ()) = tokio::join!(world.pop("q", "wait=true&timeout=60000"), async {
        world.sleep(1).await;
        extend(&world, popped.lease(), json!({"seconds": 10})).await;
    });
    crate::world::took(begun, 11_000);
    assert_eq!(waited.ids(), ["x"]);
}
