//! Several brokers over one store on paused time: who owns what, and how fast another serves.

use std::time::Duration;

use tidegate_core::broker::Broker;
use tidegate_core::command::{Command, Pop, PopScope, Push};
use tidegate_core::error::Rejection;
use tidegate_core::fleet::{Member, SLOTS, slot_of};
use tidegate_core::message::NewMessage;
use tidegate_core::name::{GroupName, PartitionName, QueueName, TenantId};
use tidegate_core::reply::Reply;
use tidegate_core::settings::Settings;
use tidegate_core::time::{Span, Timestamp};
use tidegate_driver::testkit::Hub;
use tidegate_driver::{Clock, JoinError, Joined, Place, Slots, join, spawn_slots};
use tidegate_store_memory::MemoryStore;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

const WALL: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

fn hub() -> Hub {
    let mut store = MemoryStore::new();
    Hub::new(Clock::starting_at(WALL), move |now, request| store.call(now, request))
}

struct Process {
    slots: Slots,
    joined: Joined,
    brokers: JoinHandle<()>,
}

fn member(name: &str) -> Member {
    let address = format!("http://10.0.0.1/{name}").into();
    Member { incarnation: name.into(), address, host: name.into(), draining: false }
}

async fn try_start(hub: &Hub, me: Member, wall: Timestamp) -> Result<Process, JoinError> {
    let clock = Clock::starting_at(wall);
    let name = me.host.clone();
    let (slots, brokers) = spawn_slots(true, clock, |slot| {
        let settings = Settings { slot, owner: me.incarnation.clone(), sends_on: true, ..Settings::default() };
        (Broker::new(settings, [slot.0; 32]), hub.store(&name))
    });
    let mut lives = 1;
    let mint = move || {
        lives += 1;
        format!("{name}-{lives}").into()
    };
    let joined = join(slots.clone(), hub.membership(&me.host), hub.clone(), me, clock, mint).await?;
    Ok(Process { slots, joined, brokers })
}

async fn start(hub: &Hub, name: &str) -> Process {
    try_start(hub, member(name), WALL).await.expect("it joins")
}

fn counts(hub: &Hub, names: &[&str]) -> Vec<usize> {
    names.iter().map(|name| hub.owned_by(name)).collect()
}

fn push() -> Command {
    let message = NewMessage { transaction: None, payload: "1".into(), trace: None, producer: None };
    let queue = QueueName::new("q").expect("a name");
    Command::Push(Push::new([(queue, PartitionName::new("p").expect("a name"), message)]))
}

fn long_pop() -> Command {
    Command::Pop(Pop {
        scope: PopScope::Queue(QueueName::new("empty").expect("a name")),
        group: GroupName::queue_mode(),
        batch: 1,
        partitions: Some(1),
        auto_ack: false,
        wait: Some(Span::from_secs(30)),
        lease: None,
        start: None,
    })
}

/// Whether a push to the tenant's owner, through any of the processes, is carried out now.
async fn served(processes: &[&Process]) -> bool {
    for process in processes {
        if let Place::Here(handle) = process.slots.place(TenantId::DEFAULT)
            && let Reply::Pushed(_) = handle.call(TenantId::DEFAULT, push()).await.0
        {
            return true;
        }
    }
    false
}

/// Time until the tenant is served by one of these.
async fn time_to_serve(processes: &[&Process]) -> Duration {
    let start = Instant::now();
    while !served(processes).await {
        assert!(start.elapsed() < Duration::from_secs(60), "nobody serves");
        sleep(Duration::from_millis(10)).await;
    }
    start.elapsed()
}

/// The process that owns the tenant first, then the others.
fn by_ownership(processes: Vec<(&'static str, Process)>) -> Vec<(&'static str, Process)> {
    let (mut owner, others): (Vec<_>, Vec<_>) = processes
        .into_iter()
        .partition(|(_, process)| matches!(process.slots.place(TenantId::DEFAULT), Place::Here(_)));
    assert_eq!(owner.len(), 1, "one owner");
    owner.extend(others);
    owner
}

async fn three(hub: &Hub) -> Vec<(&'static str, Process)> {
    let mut processes = Vec::new();
    for name in ["a", "b", "c"] {
        processes.push((name, start(hub, name).await));
    }
    sleep(Duration::from_secs(30)).await;
    by_ownership(processes)
}

#[tokio::test(start_paused = true)]
async fn slots_spread_and_everybody_knows_where() {
    let hub = hub();
    let a = start(&hub, "a").await;
    sleep(Duration::from_millis(100)).await;
    assert_eq!(counts(&hub, &["a"]), [SLOTS], "alone, it takes everything at once");
    let b = start(&hub, "b").await;
    sleep(Duration::from_secs(15)).await;
    assert_eq!(counts(&hub, &["a", "b"]), [8, 8]);
    let c = start(&hub, "c").await;
    sleep(Duration::from_secs(15)).await;
    let mut spread = counts(&hub, &["a", "b", "c"]);
    spread.sort_unstable();
    assert_eq!((spread.iter().sum::<usize>(), spread[2]), (SLOTS, 6), "{spread:?}");
    let slot = usize::from(slot_of(TenantId::DEFAULT).0);
    let owner = hub.owners()[slot].clone().expect("an owner");
    for (name, process) in [("a", &a), ("b", &b), ("c", &c)] {
        match process.slots.place(TenantId::DEFAULT) {
            Place::Here(_) => assert_eq!(owner, name),
            Place::There(peer) => assert_eq!((peer.incarnation.clone(), name != owner), (owner.clone(), true)),
            Place::Nowhere => panic!("{name} knows of no owner"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn after_the_owners_process_ended_another_serves_within_two_seconds() {
    let hub = hub();
    let processes = three(&hub).await;
    hub.ended(processes[0].0);
    let took = time_to_serve(&[&processes[1].1, &processes[2].1]).await;
    assert!(took < Duration::from_secs(2), "{took:?}");
    sleep(Duration::from_secs(5)).await;
    assert_eq!(counts(&hub, &[processes[1].0, processes[2].0]), [8, 8]);
}

#[tokio::test(start_paused = true)]
async fn a_silent_owner_is_replaced_and_comes_back_with_nothing() {
    let hub = hub();
    let processes = three(&hub).await;
    let (name, frozen) = &processes[0];
    hub.cut(name, true);
    let took = time_to_serve(&[&processes[1].1, &processes[2].1]).await;
    assert!(took > Duration::from_secs(2) && took < Duration::from_secs(5), "{took:?}");
    let Place::Here(handle) = frozen.slots.place(TenantId::DEFAULT) else { panic!("it cannot know yet") };
    assert_eq!(handle.call(TenantId::DEFAULT, push()).await.0, Reply::Refused(Rejection::NotOwner));
    hub.cut(name, false);
    sleep(Duration::from_secs(20)).await;
    assert_eq!(hub.owned_by(name), 0);
    assert!(hub.owned_by(&format!("{name}-2")) >= 4, "{:?}", hub.owners());
    assert!(frozen.slots.incarnation().ends_with("-2"));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_was_away_for_all_changes_nothing() {
    let hub = hub();
    let processes = three(&hub).await;
    let before = hub.owners();
    for (name, _) in &processes {
        hub.cut(name, true);
    }
    sleep(Duration::from_secs(20)).await;
    hub.cut(processes[1].0, false);
    sleep(Duration::from_secs(1)).await;
    for (name, _) in &processes {
        hub.cut(name, false);
    }
    sleep(Duration::from_secs(10)).await;
    assert_eq!(hub.owners(), before);
    assert!(served(&[&processes[0].1]).await);
}

#[tokio::test(start_paused = true)]
async fn a_retiring_broker_hands_everything_over() {
    let hub = hub();
    let mut processes = three(&hub).await;
    let (name, retiring) = processes.remove(0);
    let Place::Here(handle) = retiring.slots.place(TenantId::DEFAULT) else { panic!("it owns the slot") };
    let parked = tokio::spawn(async move { handle.call(TenantId::DEFAULT, long_pop()).await.0 });
    sleep(Duration::from_millis(50)).await;
    let start = Instant::now();
    let others = [&processes[0].1, &processes[1].1];
    let (given, took) = tokio::join!(retiring.joined.retire(), time_to_serve(&others));
    assert!(given && took < Duration::from_millis(1_500), "{took:?}");
    assert!(start.elapsed() < Duration::from_secs(3));
    assert_eq!(parked.await.expect("no panic"), Reply::Refused(Rejection::NotOwner), "it is for the next owner");
    assert!(matches!(retiring.slots.place(TenantId::DEFAULT), Place::There(_)));
    assert_eq!(hub.owned_by(name), 0);
    retiring.joined.leave().await;
    retiring.slots.drain();
    retiring.brokers.await.expect("no panic");
}

#[tokio::test(start_paused = true)]
async fn the_last_broker_keeps_its_slots_until_it_is_shut_down() {
    let hub = hub();
    let alone = start(&hub, "a").await;
    sleep(Duration::from_secs(1)).await;
    assert!(!alone.joined.retire().await);
    assert!(served(&[&alone]).await);
    alone.slots.drain();
    alone.brokers.await.expect("no panic");
    assert_eq!(hub.owned_by("a"), 0);
}

#[tokio::test(start_paused = true)]
async fn nobody_compares_wall_clocks() {
    let hub = hub();
    let hour = Span::from_secs(3_600);
    let mut processes = Vec::new();
    for (name, wall) in [("a", WALL.plus(hour)), ("b", WALL), ("c", WALL.minus(hour))] {
        processes.push((name, try_start(&hub, member(name), wall).await.expect("it joins")));
    }
    sleep(Duration::from_secs(30)).await;
    let processes = by_ownership(processes);
    hub.ended(processes[0].0);
    let took = time_to_serve(&[&processes[1].1, &processes[2].1]).await;
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn an_address_belongs_to_one() {
    let hub = hub();
    let first = start(&hub, "a").await;
    let twin = || Member { incarnation: "twin".into(), host: "twin".into(), ..member("a") };
    match try_start(&hub, twin(), WALL).await {
        Err(JoinError::AddressTaken { address, incarnation }) => {
            assert_eq!((address, incarnation.as_str()), (member("a").address, "a"));
        }
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it joined"),
    }
    // What a killed predecessor left behind does not count.
    hub.ended("a");
    drop(first);
    let start = Instant::now();
    assert!(try_start(&hub, twin(), WALL).await.is_ok());
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}
