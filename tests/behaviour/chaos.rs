//! Producers and consumers that go on whatever happens, while commits fail, answers get lost, the store goes away and
//! brokers die: nothing is lost, nothing acknowledged comes again, nothing overtakes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::world::World;

behaviour!(nothing_is_lost_or_done_twice_in_any_trouble);

const PARTITIONS: usize = 4;
const MESSAGES: usize = 120;
const GROUPS: [&str; 2] = ["g", "h"];

/// Random numbers that are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// What is known for certain of each group and partition.
#[derive(Default)]
struct Ledger {
    /// One past the last message whose completion was confirmed.
    committed: BTreeMap<(String, String), u64>,
    /// Messages that were seen.
    seen: BTreeSet<(String, String, u64)>,
}

/// Pushes 0, 1, 2, … to one partition, each until it is certainly stored.
async fn produce(world: World, partition: String, mut dice: Dice) {
    for n in 0..MESSAGES {
        let id = format!("{partition}-{n}");
        let item = json!({"queue": "q", "partition": partition, "transactionId": id, "payload": n});
        loop {
            let answer = world.push(json!([item])).await;
            match answer.status {
                201 => {
                    let status = answer.list()[0]["status"].clone();
                    assert!(status == "queued" || status == "duplicate", "{status}");
                    break;
                }
                503 => world.sleep_ms(50).await,
                other => panic!("{other}: {}", answer.text()),
            }
        }
        world.sleep_ms(dice.roll(30)).await;
    }
}

/// Takes batches and completes part of each, until nothing has come for a while after the last push.
async fn consume(world: World, group: &str, ledger: Arc<Mutex<Ledger>>, pushed: Arc<AtomicBool>, mut dice: Dice) {
    let path =
        format!("/api/v1/pop/queue/q?consumerGroup={group}&batch=7&partitions=2&leaseSeconds=2&wait=true&timeout=5000");
    loop {
        let over = pushed.load(Relaxed);
        let before = ledger.lock().unwrap().committed.clone();
        let answer = world.get(&path).await;
        match answer.status {
            204 if over => return,
            204 => continue,
            503 => {
                world.sleep_ms(100).await;
                continue;
            }
            _ => {}
        }
        let mut batches: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for message in answer.expect(200).json()["messages"].as_array().expect("an array") {
            batches.entry(message["partition"].as_str().expect("a text").to_owned()).or_default().push(message.clone());
        }
        for (partition, messages) in batches {
            let key = (group.to_owned(), partition.clone());
            let numbers: Vec<u64> =
                messages.iter().map(|message| message["data"].as_u64().expect("a number")).collect();
            assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "a gap in {partition}: {numbers:?}");
            let committed = before.get(&key).copied().unwrap_or_default();
            assert!(numbers[0] >= committed, "{partition} {}: completed and delivered again to {group}", numbers[0]);
            ledger.lock().unwrap().seen.extend(numbers.iter().map(|n| (key.0.clone(), partition.clone(), *n)));
            // Some die over their work, some do half of it, some fail it.
            let (count, status) = match dice.roll(8) {
                0 => continue,
                1 => (1, "retry"),
                2 => (messages.len().div_ceil(2), "completed"),
                _ => (messages.len(), "completed"),
            };
            world.sleep_ms(dice.roll(40)).await;
            let items: Vec<Value> =
                messages[..count].iter().map(|message| crate::world::item(message, status)).collect();
            let body = json!({"consumerGroup": group, "acknowledgments": items});
            let answer = world.post("/api/v1/ack/batch", body).await;
            let confirmed = answer.status == 200 && answer.list().iter().all(|result| result["success"] == true);
            if confirmed && status == "completed" {
                let mut ledger = ledger.lock().unwrap();
                let committed = ledger.committed.entry(key).or_default();
                *committed = (*committed).max(numbers[count - 1] + 1);
            }
        }
    }
}

async fn trouble(world: World, pushed: Arc<AtomicBool>, mut dice: Dice) {
    while !pushed.load(Relaxed) {
        world.sleep_ms(20 + dice.roll(300)).await;
        match dice.roll(10) {
            0 | 1 => world.faults().fail_commits(1 + u32::try_from(dice.roll(3)).expect("small")),
            2 | 3 => world.faults().lose_answers(1),
            4 | 5 => world.faults().lose_commits(1),
            6 => world.faults().set_latency_ms(dice.roll(3) * 10),
            7 => {
                world.faults().set_away(true);
                world.sleep_ms(100 + dice.roll(6) * 1_000).await;
                world.faults().set_away(false);
            }
            8 => world.crash().await,
            _ => world.restart().await,
        }
    }
    world.faults().fail_commits(0);
    world.faults().lose_answers(0);
    world.faults().lose_commits(0);
}

async fn nothing_is_lost_or_done_twice_in_any_trouble(world: World) {
    for seed in 1..=3 {
        let ledger = Arc::new(Mutex::new(Ledger::default()));
        let pushed = Arc::new(AtomicBool::new(false));
        let mut producers = JoinSet::new();
        for n in 0..PARTITIONS {
            producers.spawn(produce(world.clone(), format!("p{n}"), Dice(seed * 100 + n as u64)));
        }
        let mut rest = JoinSet::new();
        for group in GROUPS {
            for n in 0..3 {
                let (ledger, pushed) = (ledger.clone(), pushed.clone());
                rest.spawn(consume(world.clone(), group, ledger, pushed, Dice(seed * 1_000 + n)));
            }
        }
        rest.spawn(trouble(world.clone(), pushed.clone(), Dice(seed)));
        producers.join_all().await;
        pushed.store(true, Relaxed);
        rest.join_all().await;
        assert_eq!(ledger.lock().unwrap().seen.len(), GROUPS.len() * PARTITIONS * MESSAGES, "seed {seed}: lost");
        let detail = world.queue("q").await;
        assert_eq!(detail["totals"]["total"], PARTITIONS * MESSAGES, "seed {seed}: stored twice");
        assert_eq!(detail["totals"]["pending"], 0, "seed {seed}");
        world.delete("/api/v1/resources/queues/q").await.expect(200);
    }
}
