//! Situations that broke other brokers, each made on purpose: over Postgres, with the built binary.
//!
//! The numbers of rounds are a tenth of what `TIDEGATE_FULL=1` does.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::brokers::Broker;
use crate::check::{Rules, check};
use crate::history::{Ack, Answer, Delivered, Event, Item, Lane, Pop, Pushed, Status};
use crate::random::Random;
use crate::recorder::Recorder;
use crate::run::seed;
use crate::session::Session;
use crate::store::Store;

/// One broker on Postgres, and one client.
struct Stage {
    store: Store,
    broker: Broker,
    recorder: Arc<Recorder>,
    random: Random,
}

fn rounds(full: u64) -> u64 {
    if std::env::var_os("TIDEGATE_FULL").is_some_and(|value| value == "1") { full } else { full / 10 }
}

impl Stage {
    fn set() -> Self {
        let mut store = Store::start();
        let broker = Broker::start(&store.url(), true);
        Self { store, broker, recorder: Arc::new(Recorder::new()), random: Random::new(seed()) }
    }

    fn client(&mut self) -> Session {
        Session::new(1, self.recorder.clone(), &[self.broker.address], self.random.child())
    }

    fn restart(&mut self) {
        self.broker.kill();
        self.broker.resume();
        self.broker.wait_until_it_serves();
    }
}

fn item(queue: &str, id: impl Into<String>) -> Item {
    Item { lane: Lane::new(queue, "p"), id: id.into(), payload: "{\"n\": 1.0}".into() }
}

fn pop(queue: &str, group: &str, lease_seconds: u32) -> Pop {
    Pop { queue: queue.into(), partition: Some("p".into()), group: group.into(), lease_seconds }
}

/// Pushes until it is certain.
fn push(client: &mut Session, items: &[Item]) -> Vec<Pushed> {
    patiently(|| match client.push(items) {
        Event::Ok(Answer::Pushed(answers)) => Some(answers),
        _ => None,
    })
}

/// Pops, for as long as it takes, until something comes.
fn take(client: &mut Session, pop: &Pop, batch: u64) -> (String, Vec<Delivered>) {
    patiently(|| match client.pop(pop, batch, 1, Some(500)) {
        Event::Ok(Answer::Popped { lease, messages }) => Some((lease, messages)),
        _ => None,
    })
}

fn patiently<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(done) = attempt() {
            return done;
        }
        assert!(start.elapsed() < Duration::from_secs(40), "it does not recover");
        thread::sleep(Duration::from_millis(20));
    }
}

fn configure(client: &mut Session, queue: &str, options: &str) {
    let body = format!(r#"{{"queue":"{queue}","options":{options}}}"#);
    patiently(|| client.post("/api/v1/configure", &body).filter(|response| response.status == 200));
}

/// Everything of a lane, read by a group of its own that completes it as it goes, until nothing comes any more.
fn read_all(client: &mut Session, queue: &str, group: &str) -> Vec<String> {
    let mut ids = Vec::new();
    let pop = pop(queue, group, 30);
    loop {
        let popped = patiently(|| match client.pop(&pop, 1_000, 1, Some(1_500)) {
            Event::Ok(Answer::Empty) => Some(None),
            Event::Ok(Answer::Popped { lease, messages }) => Some(Some((lease, messages))),
            _ => None,
        });
        let Some((lease, messages)) = popped else { return ids };
        complete(client, queue, group, &lease, &messages);
        ids.extend(messages.into_iter().map(|message| message.id));
    }
}

fn complete(client: &mut Session, queue: &str, group: &str, lease: &str, messages: &[Delivered]) {
    let ack = ack(queue, group, lease, messages, Status::Completed);
    patiently(|| matches!(client.ack(&ack), Event::Ok(Answer::Acked(_))).then_some(()));
}

fn ack(queue: &str, group: &str, lease: &str, messages: &[Delivered], status: Status) -> Ack {
    let items = messages.iter().map(|message| (message.id.clone(), status)).collect();
    Ack { lane: Lane::new(queue, "p"), group: group.into(), lease: lease.into(), items }
}

/// scn: 4
#[test]
fn a_batch_whose_client_and_broker_died_comes_again_when_its_lease_ends() {
    let mut stage = Stage::set();
    let mut client = stage.client();
    push(&mut client, &[item("q", "a")]);
    let pop = pop("q", "g", 3);
    let asked = Instant::now();
    let (lease, _) = take(&mut client, &pop, 1);
    let taken = Instant::now();
    stage.restart();
    let (again, messages) = take(&mut client, &pop, 1);
    assert_eq!(messages[0].id, "a");
    assert_ne!(lease, again);
    assert!(asked.elapsed() >= Duration::from_millis(2_900), "after {:?}: the lease was not kept", asked.elapsed());
    assert!(taken.elapsed() <= Duration::from_millis(4_000), "after {:?}", taken.elapsed());
}

/// scn: 10
#[test]
fn a_restarted_broker_knows_how_often_a_message_failed() {
    let mut stage = Stage::set();
    let mut client = stage.client();
    configure(&mut client, "q", r#"{"retryLimit":1}"#);
    push(&mut client, &[item("q", "a"), item("q", "b")]);
    for round in 0..2 {
        let (lease, messages) = take(&mut client, &pop("q", "g", 60), 1);
        assert_eq!(messages[0].id, "a", "round {round}");
        let answer = client.ack(&ack("q", "g", &lease, &messages, Status::Failed));
        assert!(matches!(answer, Event::Ok(Answer::Acked(results)) if results == [Ok(())]));
        stage.restart();
    }
    // The second failure used the budget up: `a` is a dead letter, and `b` is next.
    assert_eq!(take(&mut client, &pop("q", "g", 60), 1).1[0].id, "b");
}

/// scn: 15
#[test]
fn an_id_whose_push_was_refused_is_no_duplicate() {
    let mut stage = Stage::set();
    let mut client = stage.client();
    push(&mut client, &[item("q", "first")]);
    for round in 0..3 {
        let items = [item("q", format!("a{round}"))];
        stage.store.cluster.kill();
        let mut refused = false;
        for _ in 0..3 {
            let answer = client.push(&items);
            refused |= matches!(answer, Event::Fail(_));
            assert!(matches!(answer, Event::Fail(_) | Event::Unknown(_)), "{answer:?} without a database");
        }
        stage.store.cluster.start();
        assert!(refused, "no push was refused while the database was away");
        assert!(matches!(push(&mut client, &items)[..], [Pushed::Queued { .. }]), "round {round}");
        assert!(matches!(push(&mut client, &items)[..], [Pushed::Duplicate { .. }]), "round {round}");
    }
    assert_eq!(read_all(&mut client, "q", "g"), ["first", "a0", "a1", "a2"]);
}

/// scn: 33
#[test]
fn what_was_acknowledged_survives_a_kill_of_postgres() {
    let mut stage = Stage::set();
    let mut client = stage.client();
    let mut expected = Vec::new();
    for round in 0..rounds(200) {
        let items: Vec<Item> = (0..1 + round % 3).map(|n| item("q", format!("{round}-{n}"))).collect();
        push(&mut client, &items);
        stage.store.cluster.kill();
        stage.store.cluster.start();
        expected.extend(items.into_iter().map(|item| item.id));
    }
    assert_eq!(read_all(&mut client, "q", "g"), expected);
}

/// scn: 36
#[test]
fn a_restart_delivers_from_many_partitions_at_once_and_all_in_the_end() {
    let mut stage = Stage::set();
    let mut client = stage.client();
    let count = rounds(200_000);
    for start in (0..count).step_by(1_000) {
        let of_partition = |n: u64| Item { lane: Lane::new("q", &format!("p{n}")), ..item("q", format!("m{n}")) };
        push(&mut client, &(start..start + 1_000).map(of_partition).collect::<Vec<_>>());
    }
    stage.broker.kill();
    let started = Instant::now();
    stage.broker.resume();
    let any = Pop { partition: None, ..pop("q", "g", 600) };
    let mut seen = BTreeSet::new();
    let first = patiently(|| match client.pop(&any, 1, 1, Some(500)) {
        Event::Ok(Answer::Popped { messages, .. }) => Some(messages),
        _ => None,
    });
    seen.extend(first.into_iter().map(|message| message.id));
    let first = started.elapsed();
    assert!(first <= Duration::from_secs(3), "the first message came after {first:?}");
    while let Event::Ok(Answer::Popped { messages, .. }) = client.pop(&any, 1_000, 1_000, Some(2_000)) {
        seen.extend(messages.into_iter().map(|message| message.id));
    }
    assert_eq!(seen.len() as u64, count);
}

/// scn: 39
#[test]
fn a_transaction_with_a_bad_operation_does_nothing() {
    let mut stage = Stage::set();
    let mut client = stage.client();
    push(&mut client, &[item("q", "a"), item("out", "there")]);
    let (lease, messages) = take(&mut client, &pop("q", "g", 60), 1);
    let body = client.post("/api/v1/push", r#"{"items":[]}"#).expect("the broker answers").body;
    assert_eq!(body, "[]");
    let partition = client.partition_id(&messages[0].lane).to_owned();
    let good = format!(
        r#"{{"type":"ack","transactionId":"a","partitionId":"{partition}","consumerGroup":"g","leaseId":"{lease}"}},
           {{"type":"push","queue":"out","partition":"p","transactionId":"new","payload":1}}"#
    );
    let bad = [
        r#"{"type":"push","queue":"out","partition":"p","transactionId":"there","payload":1}"#.to_owned(),
        r#"{"type":"push","partition":"p","payload":1}"#.to_owned(),
        format!(r#"{{"type":"push","queue":"out","transactionId":"{}","payload":1}}"#, "x".repeat(70_000)),
        format!(r#"{{"type":"ack","transactionId":"ghost","partitionId":"{partition}","consumerGroup":"g","leaseId":"{lease}"}}"#),
        format!(r#"{{"type":"ack","transactionId":"a","partitionId":"{partition}","consumerGroup":"stranger","leaseId":"{lease}"}}"#),
        r#"{"type":"ack","transactionId":"a","partitionId":"00000000-0000-4000-8000-000000000000","consumerGroup":"g"}"#.to_owned(),
        r#"{"type":"ack","transactionId":"a","partitionId":"nonsense","consumerGroup":"g"}"#.to_owned(),
        r#"{"type":"delete"}"#.to_owned(),
        r#"7"#.to_owned(),
    ];
    for bad in &bad {
        for operations in [format!("{good},{bad}"), format!("{bad},{good}")] {
            let body = format!(r#"{{"operations":[{operations}]}}"#);
            let response = client.post("/api/v1/transaction", &body).expect("the broker answers");
            let answer: Value = serde_json::from_str(&response.body).expect("every answer is JSON");
            let refused = response.status == 400 || (response.status == 200 && answer["success"] == false);
            assert!(refused, "{} {answer} to {}", response.status, &bad[..bad.len().min(200)]);
        }
    }
    stage.restart();
    // Nothing was pushed, and the lease still stands: the ack of the good half did not happen.
    let ack = ack("q", "g", &lease, &messages, Status::Completed);
    let results = patiently(|| match client.ack(&ack) {
        Event::Ok(Answer::Acked(results)) => Some(results),
        _ => None,
    });
    assert_eq!(results, [Ok(())]);
    assert_eq!(read_all(&mut client, "out", "g"), ["there"]);
}

/// scn: 39
#[test]
fn a_transaction_in_whose_middle_the_broker_is_killed_is_done_whole_or_not_at_all() {
    let mut stage = Stage::set();
    let mut client = stage.client();
    let rounds = rounds(200);
    for round in 0..rounds {
        push(&mut client, &[item("q", format!("m{round}"))]);
    }
    for round in 0..rounds {
        let (lease, messages) = take(&mut client, &pop("q", "g", 1), 1);
        let ack = ack("q", "g", &lease, &messages, Status::Completed);
        let pushes = [
            item("out", format!("t{round}")),
            Item { lane: Lane::new("out2", "p"), ..item("out2", format!("t{round}")) },
        ];
        thread::scope(|scope| {
            let transaction = scope.spawn(|| client.transaction(&pushes, &ack));
            thread::sleep(Duration::from_micros(stage.random.below(8_000)));
            stage.broker.kill();
            stage.broker.resume();
            let _ = transaction.join().expect("clients do not panic");
        });
        stage.broker.wait_until_it_serves();
    }
    read_all(&mut client, "q", "g");
    for queue in ["q", "out", "out2"] {
        read_all(&mut client, queue, "reader");
    }
    let rules = Rules {
        reader: "reader".into(),
        groups: [("q".to_owned(), vec!["g".to_owned()])].into(),
        lease_slack: 300_000,
    };
    let violations = check(&stage.recorder.history(), &rules);
    assert!(violations.is_empty(), "{violations:#?}");
}
