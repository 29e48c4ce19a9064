//! Queen's official Rust client, unchanged, against the built broker.
//!
//! These tests wait in real time, so each waits as little as its rule allows.

#[path = "common/binary.rs"]
mod binary;

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use binary::{Broker, Store};
use queen_mq::{
    AckStatus, Cancel, Config, Error, Message, PushItem, PushStatus, Queen, QueueBuilder, QueueOptions, SeekRequest,
    StopReason, SubscriptionMode, TxnPushItem,
};
use serde_json::{Value, json};

/// A broker of its own for each test, and a client that fails at once where the broker does.
fn start(store: Store) -> (Broker, Queen) {
    let broker = Broker::over(store);
    let queen = Queen::connect(Config::new(broker.url()).retry_attempts(1)).expect("a valid configuration");
    (broker, queen)
}

fn numbers(messages: &[Message]) -> Vec<u64> {
    messages.iter().map(|message| message.data["n"].as_u64().expect("a number")).collect()
}

async fn push_numbers(lane: QueueBuilder, numbers: std::ops::Range<u64>) {
    let results = lane.push_many(numbers.map(|n| json!({"n": n}))).await.unwrap();
    assert!(results.iter().all(|result| result.status == PushStatus::Queued), "{results:?}");
}

/// A pop that parks until there is something.
fn waiting(lane: QueueBuilder) -> QueueBuilder {
    lane.wait(true).poll_timeout(Duration::from_secs(10))
}

/// A pop that looks once.
fn looking(lane: QueueBuilder) -> QueueBuilder {
    lane.wait(false)
}

async fn create_and_configure_echo_every_option(store: Store) {
    let (_broker, queen) = start(store);
    let orders = || queen.queue("orders.eu");
    let created = orders().create().await.unwrap();
    assert_eq!(created["configured"], true);
    assert_eq!(created["queue"], "orders.eu");
    assert_eq!(created["options"].as_object().expect("an object").len(), 17);

    let options = QueueOptions { retry_limit: Some(7), lease_time: Some(11), ..Default::default() };
    let configured = orders().configure(options).await.unwrap();
    assert_eq!(configured["queueId"], created["queueId"]);
    assert_eq!(configured["options"]["retryLimit"], 7);
    assert_eq!(configured["options"]["leaseTime"], 11);

    // Not a patch: what the next call leaves out is the default again.
    let options = QueueOptions { namespace: Some("shop".into()), ..Default::default() };
    let configured = orders().configure(options).await.unwrap();
    assert_eq!(configured["namespace"], "shop");
    assert_eq!(configured["options"]["retryLimit"], 3);
    assert_eq!(configured["options"]["leaseTime"], 300);
}

async fn a_pushed_message_comes_back_as_it_was(store: Store) {
    let (_broker, queen) = start(store);
    let item = PushItem::new("orders", json!({"total": 19.99})).partition("customer-42").transaction_id("order-7");
    let pushed = queen.queue("orders").push_items(vec![item]).await.unwrap();
    assert_eq!(pushed.len(), 1);
    assert_eq!((pushed[0].index, pushed[0].status), (0, PushStatus::Queued));
    assert_eq!((&*pushed[0].transaction_id, &*pushed[0].queue_name), ("order-7", "orders"));

    let messages = looking(queen.queue("orders").partition("customer-42")).pop().await.unwrap();
    let [message] = &messages[..] else { panic!("one message expected: {messages:?}") };
    assert_eq!(message.id, pushed[0].message_id);
    assert_eq!(message.transaction_id, "order-7");
    assert_eq!(message.partition, "customer-42");
    assert_eq!(message.data, json!({"total": 19.99}));
    assert_eq!(message.consumer_group, "__QUEUE_MODE__");
    assert!(message.is_leased() && message.trace_id.is_none() && message.producer_sub.is_none());

    let acked = queen.ack(message).await.unwrap();
    assert!(acked.success && acked.lease_released && !acked.dlq && !acked.noop, "{acked:?}");
    assert!(looking(queen.queue("orders").partition("customer-42")).pop().await.unwrap().is_empty());
}

async fn a_repeated_transaction_id_is_a_duplicate_of_the_first(store: Store) {
    let (_broker, queen) = start(store);
    let item = |id: &str| PushItem::new("orders", json!(id)).transaction_id(id);
    let first = queen.queue("orders").push_items(vec![item("a"), item("a")]).await.unwrap();
    assert_eq!((first[0].status, first[1].status), (PushStatus::Queued, PushStatus::Duplicate));
    assert_eq!(first[1].message_id, first[0].message_id);

    let second = queen.queue("orders").push_items(vec![item("b"), item("a"), item("c")]).await.unwrap();
    let statuses: Vec<_> = second.iter().map(|result| result.status).collect();
    assert_eq!(statuses, [PushStatus::Queued, PushStatus::Duplicate, PushStatus::Queued]);
    assert_eq!(second[1].message_id, first[0].message_id);

    let elsewhere = queen.queue("orders").push_items(vec![item("a").partition("other")]).await.unwrap();
    assert_eq!(elsewhere[0].status, PushStatus::Queued);

    let messages = looking(queen.queue("orders").batch(10).partitions(2)).pop().await.unwrap();
    let ids: Vec<_> = messages.iter().filter(|it| it.partition == "Default").map(|it| &*it.transaction_id).collect();
    assert_eq!((messages.len(), ids), (4, vec!["a", "b", "c"]));
}

async fn every_group_consumes_every_message_in_order(store: Store) {
    let (_broker, queen) = start(store);
    for lane in ["red", "green", "blue"] {
        push_numbers(queen.queue("lanes").partition(lane), 0..10).await;
    }
    for group in ["billing", "shipping"] {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = seen.clone();
        let summary = queen
            .queue("lanes")
            .group(group)
            .concurrency(4)
            .batch(4)
            .limit(30)
            .poll_timeout(Duration::from_millis(300))
            .consume(move |message| {
                log.lock().unwrap().push((message.partition.clone(), message.data["n"].as_u64()));
                async { Ok::<_, Infallible>(()) }
            })
            .await
            .unwrap();
        assert_eq!((summary.processed, summary.acked, summary.nacked), (30, 30, 0));
        assert_eq!(summary.stopped_by, StopReason::Limit);
        let seen = std::mem::take(&mut *seen.lock().unwrap());
        for lane in ["red", "green", "blue"] {
            let order: Vec<_> = seen.iter().filter(|(partition, _)| partition == lane).map(|(_, n)| *n).collect();
            assert_eq!(order, (0..10).map(Some).collect::<Vec<_>>(), "{group} {lane}");
        }
        assert!(looking(queen.queue("lanes").group(group)).pop().await.unwrap().is_empty());
    }
}

async fn a_consumer_that_fails_gets_the_message_again_and_then_the_rest(store: Store) {
    let (_broker, queen) = start(store);
    push_numbers(queen.queue("jobs"), 0..5).await;
    let attempts = Arc::new(Mutex::new(Vec::new()));
    let log = attempts.clone();
    let summary = queen
        .queue("jobs")
        .group("workers")
        .batch(5)
        .idle(Duration::from_millis(500))
        .poll_timeout(Duration::from_millis(200))
        .consume(move |message| {
            let n = message.data["n"].as_u64().expect("a number");
            let mut log = log.lock().unwrap();
            let first_failure = n == 2 && !log.contains(&2);
            log.push(n);
            async move { if first_failure { Err("not yet") } else { Ok(()) } }
        })
        .await
        .unwrap();
    assert_eq!(*attempts.lock().unwrap(), [0, 1, 2, 2, 3, 4]);
    assert_eq!((summary.acked, summary.nacked, summary.stopped_by), (5, 1, StopReason::Idle));
}

async fn a_consumer_is_cancelled_while_it_waits(store: Store) {
    let (_broker, queen) = start(store);
    let cancel = Cancel::new();
    let lane = queen.queue("quiet").group("workers").poll_timeout(Duration::from_millis(300)).cancel(cancel.clone());
    let consumer = tokio::spawn(async move { lane.consume(|_| async { Ok::<_, Infallible>(()) }).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    cancel.cancel();
    let summary = tokio::time::timeout(Duration::from_secs(5), consumer).await.expect("in time").unwrap().unwrap();
    assert_eq!(summary.stopped_by, StopReason::Cancelled);
}

async fn acks_settle_a_batch_and_only_for_their_group(store: Store) {
    let (_broker, queen) = start(store);
    push_numbers(queen.queue("jobs"), 0..5).await;
    let batch = looking(queen.queue("jobs").group("a").batch(5)).pop().await.unwrap();
    assert_eq!(numbers(&batch), [0, 1, 2, 3, 4]);
    // Leased: nobody else of the group gets it, another group does.
    assert!(looking(queen.queue("jobs").group("a").batch(5)).pop().await.unwrap().is_empty());
    assert_eq!(looking(queen.queue("jobs").group("b").batch(5)).pop().await.unwrap().len(), 5);

    let partial = queen.ack(&batch[2]).await.unwrap();
    assert!(partial.success && !partial.lease_released, "{partial:?}");
    let again = queen.ack(&batch[1]).await.unwrap();
    assert!(again.success && again.noop, "{again:?}");
    let given_back = queen.ack_with(&batch[3], AckStatus::Retry, None).await.unwrap();
    assert!(given_back.success && given_back.lease_released, "{given_back:?}");
    let late = queen.ack(&batch[4]).await.unwrap();
    assert!(!late.success, "{late:?}");
    assert_eq!(late.error.as_deref(), Some("invalid or expired lease"));

    let rest = looking(queen.queue("jobs").group("a").batch(5)).pop().await.unwrap();
    assert_eq!(numbers(&rest), [3, 4]);
    let results = queen.ack_all(&rest).await.unwrap();
    assert!(results.iter().all(|result| result.success && result.lease_released), "{results:?}");
    assert!(looking(queen.queue("jobs").group("a").batch(5)).pop().await.unwrap().is_empty());
}

async fn an_exhausted_message_goes_to_the_dead_letters_and_back(store: Store) {
    let (_broker, queen) = start(store);
    let risky = || queen.queue("risky");
    risky().configure(QueueOptions { retry_limit: Some(1), ..Default::default() }).await.unwrap();
    push_numbers(risky(), 0..2).await;
    let pop = || async { looking(risky().group("g").batch(2)).pop().await.unwrap() };

    let first = queen.nack(&pop().await[0], "boom 1").await.unwrap();
    assert!(first.success && !first.dlq, "{first:?}");
    assert_eq!(risky().dlq(None, None).await.unwrap().total, 0);
    let batch = pop().await;
    let second = queen.nack(&batch[0], "boom 2").await.unwrap();
    assert!(second.success && second.dlq, "{second:?}");

    let dead = risky().group("g").dlq(Some(10), Some(0)).await.unwrap();
    assert_eq!((dead.total, dead.messages.len()), (1, 1));
    let row = serde_json::to_value(&dead.messages[0]).unwrap();
    assert_eq!(row["errorMessage"], "boom 2");
    assert_eq!(row["transactionId"], batch[0].transaction_id);
    assert_eq!(risky().group("another").dlq(None, None).await.unwrap().total, 0);

    // The next message is not held back by the dead one.
    let rest = pop().await;
    assert_eq!(numbers(&rest), [1]);
    queen.ack(&rest[0]).await.unwrap();

    let retried = queen.admin().retry_message(&batch[0].partition_id, &batch[0].transaction_id).await.unwrap();
    assert_eq!(retried["success"], true);
    assert_eq!(risky().dlq(None, None).await.unwrap().total, 0);
    let replayed = pop().await;
    assert_eq!(numbers(&replayed), [0]);
    assert_ne!(replayed[0].transaction_id, batch[0].transaction_id);
    assert!(queen.ack(&replayed[0]).await.unwrap().success);

    let again = queen.admin().retry_message(&batch[0].partition_id, &batch[0].transaction_id).await;
    assert_eq!(again.unwrap_err().status(), Some(404));
}

async fn status_dlq_does_not_wait_for_the_budget(store: Store) {
    let (_broker, queen) = start(store);
    push_numbers(queen.queue("risky"), 0..1).await;
    let batch = looking(queen.queue("risky").group("g")).pop().await.unwrap();
    let result = queen.ack_with(&batch[0], AckStatus::Dlq, Some("unreadable".into())).await.unwrap();
    assert!(result.success && result.dlq, "{result:?}");
    let admin = queen.admin();
    let (partition, transaction) = (&*batch[0].partition_id, &*batch[0].transaction_id);
    let detail = admin.message(partition, transaction).await.unwrap();
    assert_eq!((&detail["status"], &detail["errorMessage"]), (&json!("dead_letter"), &json!("unreadable")));
    assert_eq!(admin.delete_message(partition, transaction).await.unwrap()["success"], true);
    assert_eq!(admin.delete_message(partition, transaction).await.unwrap_err().status(), Some(404));
}

async fn a_renewed_lease_outlives_its_first_end(store: Store) {
    let (_broker, queen) = start(store);
    push_numbers(queen.queue("slow"), 0..1).await;
    push_numbers(queen.queue("slow.too"), 0..1).await;
    let renewed = looking(queen.queue("slow").group("g").lease_seconds(1)).pop().await.unwrap();
    let expired = looking(queen.queue("slow.too").group("g").lease_seconds(1)).pop().await.unwrap();
    assert!(queen.renew(&renewed[0], Some(30)).await.unwrap());
    let answer = queen.admin().renew_lease(&renewed[0].lease_id, Some(1)).await.unwrap();
    assert!(answer.success, "a live lease is extended");
    tokio::time::sleep(Duration::from_millis(1200)).await;

    assert!(looking(queen.queue("slow").group("g")).pop().await.unwrap().is_empty());
    assert!(queen.ack(&renewed[0]).await.unwrap().success);
    assert!(!queen.renew(&renewed[0], Some(30)).await.unwrap(), "a finished lease is not extended");

    assert!(!queen.renew(&expired[0], Some(30)).await.unwrap(), "an expired lease is not extended");
    let late = queen.ack(&expired[0]).await.unwrap();
    assert_eq!((late.success, late.error.as_deref()), (false, Some("invalid or expired lease")));
    let again = looking(queen.queue("slow.too").group("g")).pop().await.unwrap();
    assert_eq!(again[0].id, expired[0].id);
}

async fn a_transaction_does_all_or_nothing(store: Store) {
    let (_broker, queen) = start(store);
    push_numbers(queen.queue("input"), 0..2).await;
    let input = || looking(queen.queue("input").group("g").batch(1));
    let output = || looking(queen.queue("output").group("g").batch(10));
    let trace = "0190f5e0-7c1a-7000-8000-00000000abcd";

    let first = input().pop().await.unwrap();
    let item = TxnPushItem::new("output", json!({"n": 100})).transaction_id("out-1").partition("p").trace_id(trace);
    let done = queen.transaction().ack(&first[0]).push_item(item).unwrap().commit().await.unwrap();
    assert!(done.success && done.results.iter().all(|result| result.success), "{done:?}");
    let out = output().partition("p").pop().await.unwrap();
    assert_eq!((numbers(&out), &*out[0].transaction_id), (vec![100], "out-1"));
    assert_eq!(out[0].trace_id.as_deref(), Some(trace));

    // An id that is already there takes the ack back too.
    let second = input().pop().await.unwrap();
    assert_eq!(numbers(&second), [1]);
    let repeated = TxnPushItem::new("output", json!({"n": 101})).transaction_id("out-1").partition("p");
    let refused = queen.transaction().ack(&second[0]).push_item(repeated).unwrap().commit().await.unwrap_err();
    assert!(refused.to_string().contains("rolled back"), "{refused}");

    // So does an ack of a message that was never pushed.
    let mut ghost = second[0].clone();
    ghost.transaction_id = "never-pushed".into();
    let refused = queen.transaction().ack(&ghost).push("output", json!({"n": 102})).unwrap().commit().await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("unknown transactionId") && refused.contains("rolled back"), "{refused}");
    assert!(output().pop().await.unwrap().is_empty());

    let done = queen.transaction().ack(&second[0]).push("output", json!({"n": 103})).unwrap().commit().await.unwrap();
    assert!(done.success);
    assert!(input().pop().await.unwrap().is_empty());
    assert_eq!(numbers(&output().pop().await.unwrap()), [103]);
}

async fn a_transaction_under_an_expired_lease_does_nothing(store: Store) {
    let (_broker, queen) = start(store);
    push_numbers(queen.queue("input"), 0..1).await;
    let taken = looking(queen.queue("input").group("g").lease_seconds(1)).pop().await.unwrap();
    tokio::time::sleep(Duration::from_millis(1200)).await;
    let refused = queen.transaction().ack(&taken[0]).push("output", json!(1)).unwrap().commit().await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("lease") && refused.contains("rolled back"), "{refused}");
    assert!(looking(queen.queue("output").group("g")).pop().await.unwrap().is_empty());
    assert_eq!(looking(queen.queue("input").group("g")).pop().await.unwrap().len(), 1);
}

async fn a_new_group_skips_the_backlog_and_nothing_else(store: Store) {
    let (_broker, queen) = start(store);
    push_numbers(queen.queue("news"), 0..3).await;
    let fresh = || looking(queen.queue("news").group("fresh").subscription_mode(SubscriptionMode::New).batch(10));
    assert!(fresh().pop().await.unwrap().is_empty());
    push_numbers(queen.queue("news"), 3..5).await;
    push_numbers(queen.queue("news").partition("born-later"), 5..6).await;
    let mut got = numbers(&fresh().partitions(10).pop().await.unwrap());
    got.sort_unstable();
    assert_eq!(got, [3, 4, 5]);

    let all = looking(queen.queue("news").group("all").subscription_mode(SubscriptionMode::All).batch(10));
    assert_eq!(all.partitions(10).pop().await.unwrap().len(), 6);
    let now = looking(queen.queue("news").group("now").subscription_from("now").batch(10));
    assert!(now.pop().await.unwrap().is_empty());
    let early = looking(queen.queue("news").group("early").subscription_from("2020-01-01T00:00:00Z").batch(10));
    assert_eq!(early.partitions(10).pop().await.unwrap().len(), 6);
}

async fn a_seek_and_a_deleted_group_replay(store: Store) {
    let (_broker, queen) = start(store);
    let lane = || looking(queen.queue("news").group("g").batch(10));
    push_numbers(queen.queue("news"), 0..3).await;
    queen.ack_all(&lane().pop().await.unwrap()).await.unwrap();
    assert!(lane().pop().await.unwrap().is_empty());

    let to_1970 = SeekRequest { timestamp: Some("1970-01-01T00:00:00Z".into()), position: None };
    let sought = queen.admin().seek_consumer_group("g", "news", &to_1970).await.unwrap();
    assert_eq!((&sought["success"], &sought["partitionsUpdated"]), (&json!(true), &json!(1)));
    let replayed = lane().pop().await.unwrap();
    assert_eq!(numbers(&replayed), [0, 1, 2]);
    queen.ack_all(&replayed).await.unwrap();

    let deleted = queen.admin().delete_consumer_group("g", true).await.unwrap();
    assert_eq!(deleted["success"], true);
    assert_eq!(numbers(&lane().pop().await.unwrap()), [0, 1, 2]);

    let groups = queen.admin().list_consumer_groups().await.unwrap();
    assert_eq!(groups[0]["name"], "g");
    let detail = queen.admin().consumer_group("g").await.unwrap();
    assert_eq!(detail["news"]["partitions"][0]["leaseActive"], true);
}

async fn a_parked_pop_is_woken_by_a_push(store: Store) {
    let (_broker, queen) = start(store);
    let pushed_at = Arc::new(Mutex::new(None));
    let (clock, producer) = (pushed_at.clone(), queen.clone());
    let push = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(500)).await;
        *clock.lock().unwrap() = Some(Instant::now());
        producer.queue("bell").partition("p").push(json!("ding")).await.unwrap();
    });
    let messages = waiting(queen.queue("bell").group("g")).pop().await.unwrap();
    let answered_at = Instant::now();
    push.await.unwrap();
    assert_eq!(messages.len(), 1);
    let pushed_at = pushed_at.lock().unwrap().expect("pushed before it was delivered");
    assert!(answered_at - pushed_at < Duration::from_secs(1), "{:?}", answered_at - pushed_at);

    let begun = Instant::now();
    let lane = queen.queue("bell").group("g").wait(true).poll_timeout(Duration::from_millis(400));
    assert!(lane.pop().await.unwrap().is_empty());
    assert!(begun.elapsed() >= Duration::from_millis(400), "{:?}", begun.elapsed());
}

async fn delayed_processing_holds_messages_back(store: Store) {
    let (_broker, queen) = start(store);
    let options = QueueOptions { delayed_processing: Some(2), ..Default::default() };
    queen.queue("later").configure(options).await.unwrap();
    push_numbers(queen.queue("later"), 0..3).await;
    let begun = Instant::now();
    assert!(looking(queen.queue("later").group("g").batch(10)).pop().await.unwrap().is_empty());
    let messages = waiting(queen.queue("later").group("g").batch(10)).pop().await.unwrap();
    assert_eq!(numbers(&messages), [0, 1, 2]);
    // Measured from after the push, so a little less than the delay itself.
    assert!(begun.elapsed() > Duration::from_millis(1800), "{:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}

async fn window_buffer_gathers_and_gives_early_when_full(store: Store) {
    let (_broker, queen) = start(store);
    let options = QueueOptions { window_buffer: Some(2), ..Default::default() };
    queen.queue("gathered").configure(options).await.unwrap();
    let lane = |partition| queen.queue("gathered").partition(partition);
    push_numbers(lane("few"), 0..2).await;
    let begun = Instant::now();
    push_numbers(lane("few"), 2..3).await;
    assert!(looking(lane("few").group("g").batch(10)).pop().await.unwrap().is_empty());
    push_numbers(lane("many"), 0..100).await;
    assert_eq!(looking(lane("many").group("g").batch(200)).pop().await.unwrap().len(), 100);
    assert!(begun.elapsed() < Duration::from_millis(1500), "too slow to tell: {:?}", begun.elapsed());

    let messages = waiting(queen.queue("gathered").group("g").batch(10)).pop().await.unwrap();
    assert_eq!(numbers(&messages), [0, 1, 2]);
    assert!(begun.elapsed() > Duration::from_millis(1800), "{:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}

async fn discovery_finds_queues_by_namespace_and_task(store: Store) {
    let (_broker, queen) = start(store);
    for (queue, namespace, task, n) in
        [("a", "shop", "mail", 0), ("b", "shop", "print", 1), ("c", "shopping", "mail", 2)]
    {
        let options = QueueOptions { namespace: Some(namespace.into()), task: Some(task.into()), ..Default::default() };
        queen.queue(queue).configure(options).await.unwrap();
        push_numbers(queen.queue(queue), n..n + 1).await;
    }
    // A queue made by a push takes its labels from its name.
    push_numbers(queen.queue("shop.mail.urgent"), 3..4).await;

    let discover = |group: &str| looking(queen.queue_opt(None).group(group).batch(10).partitions(10));
    let sorted = |messages: Vec<Message>| {
        let mut numbers = numbers(&messages);
        numbers.sort_unstable();
        numbers
    };
    assert_eq!(sorted(discover("g1").namespace("shop").pop().await.unwrap()), [0, 1, 3]);
    assert_eq!(sorted(discover("g2").task("mail").pop().await.unwrap()), [0, 2, 3]);
    let both = discover("g3").namespace("shop").task("mail").pop().await.unwrap();
    assert_eq!(sorted(both.clone()), [0, 3]);
    let results = queen.ack_all(&both).await.unwrap();
    assert!(results.iter().all(|result| result.success), "{results:?}");
    assert!(discover("g3").namespace("shop").task("mail").pop().await.unwrap().is_empty());
    assert!(discover("g4").namespace("sho").pop().await.unwrap().is_empty());

    let parked = {
        let lane = waiting(queen.queue_opt(None).namespace("shop").group("g1"));
        tokio::spawn(async move { lane.pop().await })
    };
    tokio::time::sleep(Duration::from_millis(200)).await;
    push_numbers(queen.queue("b").partition("late"), 9..10).await;
    assert_eq!(sorted(parked.await.unwrap().unwrap()), [9]);
}

async fn awkward_queue_names_work_on_every_route(store: Store) {
    let (_broker, queen) = start(store);
    for name in ["with space", "with/slash", "Grüße 🌊 наука", "with:colon", "100%+?#&=", "%2F"] {
        let created = queen.queue(name).create().await.unwrap();
        assert_eq!(created["queue"], name);
        push_numbers(queen.queue(name), 0..1).await;
        push_numbers(queen.queue(name).partition("p"), 1..2).await;
        let lane = looking(queen.queue(name).group("g é/").partition("p").batch(5));
        let one = lane.pop().await.unwrap();
        assert_eq!(numbers(&one), [1], "{name}");
        assert_eq!(one[0].consumer_group, "g é/");
        let any = looking(queen.queue(name).group("g é/").batch(5)).pop().await.unwrap();
        assert_eq!(numbers(&any), [0], "{name}");
        assert!(queen.ack(&any[0]).await.unwrap().success);
        assert_eq!(queen.admin().queue(name).await.unwrap()["name"], name);
        assert_eq!(queen.queue(name).delete().await.unwrap()["existed"], true, "{name}");
        assert_eq!(queen.queue(name).delete().await.unwrap()["existed"], false, "{name}");
    }
}

async fn awkward_partition_names_work_on_every_route(store: Store) {
    let (_broker, queen) = start(store);
    let long = "p".repeat(200);
    for (n, partition) in (0..).zip(["lane with space/and-slash", &long, "Ωmega 🚀", "a:b", "+"]) {
        push_numbers(queen.queue("lanes").partition(partition), n..n + 1).await;
        let one = looking(queen.queue("lanes").partition(partition).group("one")).pop().await.unwrap();
        assert_eq!((numbers(&one), &*one[0].partition), (vec![n], partition));
        let any = looking(queen.queue("lanes").group("any")).pop().await.unwrap();
        assert_eq!((numbers(&any), &*any[0].partition), (vec![n], partition));
        assert!(queen.ack(&any[0]).await.unwrap().success);
    }
}

async fn payloads_come_back_unchanged(store: Store) {
    let (_broker, queen) = start(store);
    // The client's own parser goes no deeper than 128 levels.
    let deep = (0..50).fold(json!("core"), |inner, level| json!({ "level": level, "inner": [inner] }));
    let payloads = vec![
        json!(null),
        json!(true),
        json!(0),
        json!(-1.5),
        json!(9_007_199_254_740_991_i64),
        json!(-9_007_199_254_740_991_i64),
        json!(u64::MAX),
        json!(""),
        json!("quote \" backslash \\ slash / newline \n tab \t nul \u{0} bell \u{7} \u{2028} ünïcödé 🌊"),
        json!([]),
        json!({}),
        json!([1, [2, [3, [null, {"a": {"": "empty key"}}]]]]),
        deep,
        json!({ "big": "x".repeat(512 * 1024) }),
    ];
    for payload in &payloads {
        let pushed = queen.queue("payloads").push(payload).await.unwrap();
        assert_eq!(pushed[0].status, PushStatus::Queued);
    }
    let messages = looking(queen.queue("payloads").batch(100)).pop().await.unwrap();
    let received: Vec<Value> = messages.iter().map(|message| message.data.clone()).collect();
    assert!(received == payloads, "some payload came back changed");
}

async fn one_pop_takes_several_partitions_under_one_lease(store: Store) {
    let (_broker, queen) = start(store);
    for lane in ["a", "b", "c"] {
        push_numbers(queen.queue("sparse").partition(lane), 0..2).await;
    }
    let batch = looking(queen.queue("sparse").group("g").batch(5).partitions(3)).pop().await.unwrap();
    assert_eq!(batch.len(), 5);
    assert!(batch.iter().all(|message| message.lease_id == batch[0].lease_id));
    let results = queen.ack_all(&batch).await.unwrap();
    assert!(results.iter().all(|result| result.success), "{results:?}");
    let rest = looking(queen.queue("sparse").group("g").batch(5).partitions(3)).pop().await.unwrap();
    assert_eq!(numbers(&rest), [1]);

    let at_once = queen.queue("sparse").group("h").batch(10).partitions(3).pop_auto_ack().await.unwrap();
    assert_eq!(at_once.len(), 6);
    assert!(at_once.iter().all(|message| !message.is_leased()));
    assert!(looking(queen.queue("sparse").group("h").partitions(3)).pop().await.unwrap().is_empty());
}

async fn what_is_not_served_is_told_apart_from_what_is_empty(store: Store) {
    let (_broker, queen) = start(store);
    assert_eq!(queen.admin().health().await.unwrap()["status"], "healthy");
    assert_eq!(queen.admin().queue("nowhere").await.unwrap_err().status(), Some(404));
    match queen.admin().partitions(&[]).await.unwrap_err() {
        Error::Http { status: 404, code: Some(_), .. } => {}
        other => panic!("a missing route carries a code: {other:?}"),
    }
    assert!(looking(queen.queue("nowhere").partition("p")).pop().await.unwrap().is_empty());
    push_numbers(queen.queue("somewhere.mail"), 0..3).await;
    let listed = queen.admin().list_queues(&[]).await.unwrap();
    assert_eq!(listed["queues"][0]["name"], "somewhere.mail");
    assert_eq!(listed["queues"][0]["messages"]["total"], 3);
}

async fn the_admin_reaches_what_operators_need(store: Store) {
    let (_broker, queen) = start(store);
    push_numbers(queen.queue("shop.mail"), 0..3).await;
    let taken = looking(queen.queue("shop.mail").group("g").batch(1)).pop().await.unwrap();
    let (partition, transaction) = (taken[0].partition_id.clone(), taken[0].transaction_id.clone());
    let admin = queen.admin();
    assert_eq!(admin.overview().await.unwrap()["messages"]["total"], 3);
    assert_eq!(admin.namespaces().await.unwrap()["namespaces"][0]["namespace"], "shop");
    assert_eq!(admin.tasks().await.unwrap()["tasks"][0]["task"], "mail");
    let depth = admin.queue_depth("shop.mail", Some("g")).await.unwrap();
    assert_eq!((&depth["groups"][0]["leased"], &depth["groups"][0]["pending"]), (&1.into(), &2.into()));
    let listed = admin.list_messages(&[("queue", "shop.mail".to_owned())]).await.unwrap();
    assert_eq!(listed["messages"].as_array().map(Vec::len), Some(3));
    assert_eq!(admin.message(&partition, &transaction).await.unwrap()["status"], "processing");
    assert_eq!(admin.status(&[]).await.unwrap()["queues"]["total"], 1);
    assert_eq!(admin.queue_stats(&[]).await.unwrap()["queues"][0]["name"], "shop.mail");
    assert_eq!(admin.queue_detail("shop.mail", &[]).await.unwrap()["totals"]["messages"]["total"], 3);
    assert!(admin.analytics(&[]).await.unwrap()["dataPoints"].is_array());
    assert!(admin.system_metrics(&[]).await.unwrap()["replicas"].is_array());
    assert!(admin.worker_metrics(&[]).await.unwrap()["timeSeries"].is_array());
    assert!(admin.postgres_stats().await.unwrap()["tableSizes"].is_array());
    assert_eq!(admin.refresh_consumer_stats().await.unwrap()["queuesUpdated"], 1);
    assert!(admin.trace_names(&[]).await.unwrap()["trace_names"].is_array());
    assert!(admin.traces_by_name("x", &[]).await.unwrap()["traces"].is_array());
    assert!(admin.traces_for_message(&partition, &transaction).await.unwrap()["traces"].is_array());
    assert_eq!(admin.set_pop_maintenance(true).await.unwrap().pop_maintenance_mode, Some(true));
    assert!(looking(queen.queue("shop.mail").group("h")).pop().await.unwrap().is_empty());
    assert_eq!(admin.set_pop_maintenance(false).await.unwrap().pop_maintenance_mode, Some(false));
    assert_eq!(admin.set_maintenance(true).await.unwrap().maintenance_mode, Some(true));
    assert_eq!(admin.maintenance().await.unwrap().maintenance_mode, Some(true));
    admin.set_maintenance(false).await.unwrap();
    push_numbers(queen.queue("shop.mail"), 3..4).await;
}

/// The one list of cases, run over every store.
macro_rules! cases {
    ($($case:ident),+ $(,)?) => {
        mod memory {
            $(
                #[tokio::test]
                async fn $case() {
                    super::$case(super::Store::Memory).await;
                }
            )+
        }

        mod postgres {
            $(
                #[tokio::test]
                async fn $case() {
                    super::$case(super::Store::Postgres).await;
                }
            )+
        }
    };
}

cases!(
    create_and_configure_echo_every_option,
    a_pushed_message_comes_back_as_it_was,
    a_repeated_transaction_id_is_a_duplicate_of_the_first,
    every_group_consumes_every_message_in_order,
    a_consumer_that_fails_gets_the_message_again_and_then_the_rest,
    a_consumer_is_cancelled_while_it_waits,
    acks_settle_a_batch_and_only_for_their_group,
    an_exhausted_message_goes_to_the_dead_letters_and_back,
    status_dlq_does_not_wait_for_the_budget,
    a_renewed_lease_outlives_its_first_end,
    a_transaction_does_all_or_nothing,
    a_transaction_under_an_expired_lease_does_nothing,
    a_new_group_skips_the_backlog_and_nothing_else,
    a_seek_and_a_deleted_group_replay,
    a_parked_pop_is_woken_by_a_push,
    delayed_processing_holds_messages_back,
    window_buffer_gathers_and_gives_early_when_full,
    discovery_finds_queues_by_namespace_and_task,
    awkward_queue_names_work_on_every_route,
    awkward_partition_names_work_on_every_route,
    payloads_come_back_unchanged,
    one_pop_takes_several_partitions_under_one_lease,
    what_is_not_served_is_told_apart_from_what_is_empty,
    the_admin_reaches_what_operators_need
);
