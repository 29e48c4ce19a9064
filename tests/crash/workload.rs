//! What the clients do: producers push into `orders`, one group completes them, another turns them into `results` by
//! transactions. All of them try again, forget, come late and nack now and then, as real clients do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::check::Rules;
use crate::history::{Ack, Answer, Delivered, Event, Item, Lane, Pop, Pushed, Status};
use crate::random::Random;
use crate::session::Session;

pub const QUEUES: [&str; 2] = ["orders", "results"];
const PARTITIONS: u64 = 6;
const READER: &str = "reader";
/// Short, because a batch whose answer was lost comes again only after it.
const LEASE_SECONDS: u32 = 1;
/// How long the queue may stay silent before it counts as drained: longer than any lease that may still run.
const SILENCE_MS: u64 = 2_500;
/// How long draining may take in all.
const DRAIN: Duration = Duration::from_secs(90);

pub fn rules() -> Rules {
    let groups = BTreeMap::from([
        ("orders".to_owned(), vec!["billing".to_owned(), "worker".to_owned()]),
        ("results".to_owned(), vec!["billing".to_owned()]),
    ]);
    Rules { reader: READER.into(), groups, lease_slack: 300_000 }
}

/// Queues that dead-letter nothing by themselves: the workload says when.
pub fn configure(session: &mut Session) {
    for queue in QUEUES {
        let body = format!(r#"{{"queue":"{queue}","options":{{"retryLimit":1000000,"leaseTime":2}}}}"#);
        let deadline = Instant::now() + Duration::from_secs(30);
        while session.post("/api/v1/configure", &body).is_none_or(|response| response.status != 200) {
            assert!(Instant::now() < deadline, "the queue {queue} cannot be configured");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// A client that works until it is told to stop.
pub type Work = fn(&mut Session, &mut Random, &AtomicBool);

/// Five clients of every sort, on 2 busy cores.
pub const CLIENTS: [Work; 8] = [produce, produce, produce, bill, bill, work, work, bill_results];

pub fn start(work: Work, mut session: Session, mut random: Random, stop: &Arc<AtomicBool>) -> thread::JoinHandle<()> {
    let stop = stop.clone();
    thread::spawn(move || work(&mut session, &mut random, &stop))
}

fn produce(session: &mut Session, random: &mut Random, stop: &AtomicBool) {
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let items: Vec<Item> = (0..random.between(1, 6))
            .map(|_| {
                number += 1;
                // Now and then an id comes twice in one call.
                let number = if random.percent(3) { number - 1 } else { number };
                let lane = Lane::new("orders", &format!("p{}", random.below(PARTITIONS)));
                Item { lane, id: format!("o-{}-{number}", session.client), payload: payload(random) }
            })
            .collect();
        let items = without_contradictions(items);
        // Mostly until it is certain; some give up, and one in ten makes sure once more.
        let gives_up = random.percent(10);
        loop {
            let certain = match session.push(&items) {
                Event::Ok(Answer::Pushed(answers)) => !answers.contains(&Pushed::Failed),
                _ => false,
            };
            if (certain && !random.percent(10)) || gives_up || (stop.load(Ordering::Relaxed) && random.percent(50)) {
                break;
            }
            pause(random, if certain { 2 } else { 30 });
        }
        pause(random, 15);
    }
}

/// An id that is in a call twice is so with one payload: which of two would be stored is not what is tested.
fn without_contradictions(items: Vec<Item>) -> Vec<Item> {
    let mut first: BTreeMap<(Lane, String), String> = BTreeMap::new();
    let same = |item: Item| {
        let payload = first.entry((item.lane.clone(), item.id.clone())).or_insert(item.payload.clone()).clone();
        Item { payload, ..item }
    };
    items.into_iter().map(same).collect()
}

/// JSON whose spelling a parser would change.
fn payload(random: &mut Random) -> String {
    let most = if random.percent(3) { 2_000 } else { 12 };
    let filler = "\\u00e9/é".repeat(random.below(most) as usize);
    format!(r#"{{ "z":{}.10, "a":1e400,"filler":"{filler}" }}"#, random.below(1_000_000))
}

fn bill(session: &mut Session, random: &mut Random, stop: &AtomicBool) {
    consume(session, random, stop, "orders", "billing");
}

fn bill_results(session: &mut Session, random: &mut Random, stop: &AtomicBool) {
    consume(session, random, stop, "results", "billing");
}

fn consume(session: &mut Session, random: &mut Random, stop: &AtomicBool, queue: &str, group: &str) {
    while !stop.load(Ordering::Relaxed) {
        for (lane, lease, messages) in take(session, random, queue, group) {
            for part in acks(random, &messages) {
                let ack = Ack { lane: lane.clone(), group: group.to_owned(), lease: lease.clone(), items: part };
                settle(random, || session.ack(&ack));
            }
        }
    }
}

fn work(session: &mut Session, random: &mut Random, stop: &AtomicBool) {
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        for (lane, lease, messages) in take(session, random, "orders", "worker") {
            if random.percent(4) {
                // Forgets it: the lease runs out.
                continue;
            }
            let items = messages.iter().map(|message| (message.id.clone(), Status::Completed)).collect();
            let ack = Ack { lane: lane.clone(), group: "worker".into(), lease, items };
            let pushes: Vec<Item> = (0..random.between(1, 3))
                .map(|_| {
                    number += 1;
                    let partition = format!("p{}", random.below(PARTITIONS));
                    let lane = Lane::new("results", &partition);
                    Item { lane, id: format!("r-{}-{number}", session.client), payload: payload(random) }
                })
                .collect();
            settle(random, || session.transaction(&pushes, &ack));
        }
    }
}

type Taken = Vec<(Lane, String, Vec<Delivered>)>;

/// Pops, and sorts what came by lane.
fn take(session: &mut Session, random: &mut Random, queue: &str, group: &str) -> Taken {
    let partition = random.percent(25).then(|| format!("p{}", random.below(PARTITIONS)));
    let pop = Pop { queue: queue.into(), partition, group: group.into(), lease_seconds: LEASE_SECONDS };
    let wait = random.percent(50).then_some(300);
    let (batch, partitions) = (random.between(1, 20), random.between(1, 3));
    match session.pop(&pop, batch, partitions, wait) {
        Event::Ok(Answer::Popped { lease, messages }) => by_lane(lease, messages),
        Event::Ok(_) => {
            pause(random, 20);
            Vec::new()
        }
        _ => {
            pause(random, 30);
            Vec::new()
        }
    }
}

fn by_lane(lease: String, messages: Vec<Delivered>) -> Taken {
    let mut lanes: BTreeMap<Lane, Vec<Delivered>> = BTreeMap::new();
    messages.into_iter().for_each(|message| lanes.entry(message.lane.clone()).or_default().push(message));
    lanes.into_iter().map(|(lane, messages)| (lane, lease.clone(), messages)).collect()
}

/// What is said of a batch, in which calls.
fn acks(random: &mut Random, messages: &[Delivered]) -> Vec<Vec<(String, Status)>> {
    let say = |messages: &[Delivered], status| messages.iter().map(|m| (m.id.clone(), status)).collect::<Vec<_>>();
    let middle = random.below(messages.len() as u64) as usize;
    match random.below(100) {
        0..4 => Vec::new(),
        4..10 => {
            // Too late for its lease.
            thread::sleep(Duration::from_millis(u64::from(LEASE_SECONDS) * 1_000 + 50));
            vec![say(messages, Status::Completed)]
        }
        10..18 => vec![say(&messages[..middle], Status::Completed), say(&messages[middle..], Status::Completed)],
        18..26 => {
            let mut items = say(messages, Status::Completed);
            items[middle].1 = *random.pick(&[Status::Failed, Status::Retry, Status::Dlq]);
            vec![items]
        }
        _ => vec![say(messages, Status::Completed)],
    }
    .into_iter()
    .filter(|items| !items.is_empty())
    .collect()
}

/// Tries until there is an answer, but not for ever.
fn settle(random: &mut Random, mut attempt: impl FnMut() -> Event) {
    for _ in 0..20 {
        if matches!(attempt(), Event::Ok(_)) && !random.percent(5) {
            return;
        }
        pause(random, 40);
    }
}

fn pause(random: &mut Random, at_most: u64) {
    thread::sleep(Duration::from_millis(random.below(at_most + 1)));
}

/// After the faults: every group takes and completes what is left, and the reader everything. A client per lane and group;
/// returns what cannot be drained.
pub fn drain(session: impl Fn() -> Session) -> Vec<String> {
    let mut threads = Vec::new();
    for (queue, groups) in rules().groups {
        for group in groups.iter().map(String::as_str).chain([READER]) {
            for partition in 0..PARTITIONS {
                let lane = Lane::new(&queue, &format!("p{partition}"));
                let (mut session, group) = (session(), group.to_owned());
                threads.push(thread::spawn(move || drain_lane(&mut session, &lane, &group)));
            }
        }
    }
    threads.into_iter().filter_map(|thread| thread.join().expect("draining does not panic")).collect()
}

fn drain_lane(session: &mut Session, lane: &Lane, group: &str) -> Option<String> {
    let start = Instant::now();
    let partition = Some(lane.partition.clone());
    let pop = Pop { queue: lane.queue.clone(), partition, group: group.to_owned(), lease_seconds: 10 };
    while start.elapsed() < DRAIN {
        match session.pop(&pop, 500, 1, Some(SILENCE_MS)) {
            Event::Ok(Answer::Empty) => return None,
            Event::Ok(Answer::Popped { lease, messages }) => {
                let items = messages.iter().map(|message| (message.id.clone(), Status::Completed)).collect();
                let ack = Ack { lane: lane.clone(), group: group.to_owned(), lease, items };
                while !matches!(session.ack(&ack), Event::Ok(_)) && start.elapsed() < DRAIN {
                    thread::sleep(Duration::from_millis(50));
                }
            }
            _ => thread::sleep(Duration::from_millis(50)),
        }
    }
    Some(format!("{lane} {group}: not drained after {} s", DRAIN.as_secs()))
}
