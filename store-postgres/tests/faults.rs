//! What the store says when the database misbehaves: certainly not, or nobody knows, never a guess.

use std::time::{Duration, Instant};

use compact_str::CompactString;
use sqlx::{Connection, Executor, PgConnection};
use tidegate_core::error::StoreErrorKind;
use tidegate_core::store::{Commit, CommitKey, CommitNo, Epoch, Fence, Slot, StoreReply, StoreRequest, Token};
use tidegate_core::time::Timestamp;
use tidegate_driver::{Answer, Store};
use tidegate_store_postgres::fixture::Cluster;
use tidegate_store_postgres::{PgSettings, PgStore};
use uuid::Uuid;

const SLOT: Slot = Slot(3);

/// A store in a database of its own, and the way around it.
struct World {
    url: String,
    store: PgStore,
}

impl World {
    async fn start() -> World {
        let url = tokio::task::spawn_blocking(|| Cluster::shared().database()).await.expect("a database");
        World { store: open(&url, Uuid::nil()).await, url }
    }

    async fn ask(&mut self, request: StoreRequest) -> StoreReply {
        ask(&mut self.store, request).await
    }

    /// A session beside the store's.
    async fn session(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.expect("a session")
    }
}

async fn open(url: &str, incarnation: Uuid) -> PgStore {
    let settings = PgSettings { pool_size: 8, incarnation, ..PgSettings::new(url) };
    PgStore::open(settings, SLOT).await.expect("a store")
}

async fn ask(store: &mut PgStore, request: StoreRequest) -> StoreReply {
    match store.call(request) {
        Answer::Now(_, reply) => reply,
        Answer::Later(reply) => reply.await.1,
    }
}

fn take(seen: u64, token: u128, owner: &str) -> StoreRequest {
    StoreRequest::Take { slot: SLOT, seen: Epoch(seen), token: Token(token), owner: CompactString::new(owner) }
}

fn fence(epoch: u64, token: u128) -> Fence {
    Fence { slot: SLOT, epoch: Epoch(epoch), token: Token(token) }
}

fn commit(fence: Fence, number: u64) -> StoreRequest {
    let (number, time) = (CommitNo(number), Timestamp::EPOCH);
    StoreRequest::Commit(Commit { fence, number, time, acknowledged: [None, None], writes: vec![] })
}

fn settle(fence: Fence, token: u128, number: u64) -> StoreRequest {
    let unknown = vec![CommitKey { epoch: fence.epoch, number: CommitNo(number) }];
    StoreRequest::Settle { fence, token: Token(token), unknown }
}

fn failed(reply: &StoreReply, kind: StoreErrorKind) -> bool {
    matches!(reply, StoreReply::Failed(error) if error.kind == kind)
}

const LOCK: &str = "BEGIN; SELECT FROM queen.fences WHERE slot = 3 FOR NO KEY UPDATE";

#[tokio::test]
async fn a_database_that_became_read_only_cannot_write_until_it_can() {
    let mut world = World::start().await;
    assert_eq!(world.ask(take(0, 1, "a")).await, StoreReply::Taken(Epoch(1)));
    let mut session = world.session().await;
    let set = |value| {
        format!(
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = {value}', current_database()); END $$"
        )
    };
    for (value, writes) in [("on", false), ("off", true)] {
        session.execute(sqlx::AssertSqlSafe(set(value))).await.expect("it is set");
        session.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'tidegate%' AND datname = current_database()").await.expect("ended");
        session.execute("SET default_transaction_read_only = off").await.expect("set");
        // Connections of before the change are found dead first, which leaves the outcome open.
        let mut number = if writes { 100 } else { 1 };
        let reply = loop {
            number += 1;
            match world.ask(commit(fence(1, 1), number)).await {
                StoreReply::Unknown => {}
                reply => break reply,
            }
        };
        match writes {
            true => assert_eq!(reply, StoreReply::Committed),
            false => assert!(failed(&reply, StoreErrorKind::CannotWrite), "{reply:?}"),
        }
    }
}

#[tokio::test]
async fn a_commit_that_waits_too_long_certainly_did_not_happen() {
    let mut world = World::start().await;
    assert_eq!(world.ask(take(0, 1, "a")).await, StoreReply::Taken(Epoch(1)));
    let mut session = world.session().await;
    session.execute(LOCK).await.expect("locked");
    let begun = Instant::now();
    let reply = world.ask(commit(fence(1, 1), 1)).await;
    assert!(failed(&reply, StoreErrorKind::Unavailable), "{reply:?}");
    assert!(begun.elapsed() < Duration::from_secs(3));
    session.execute("ROLLBACK").await.expect("rolled back");
    assert_eq!(world.ask(commit(fence(1, 1), 2)).await, StoreReply::Committed);
    let settled = StoreReply::Settled { epoch: Epoch(2), committed: vec![false] };
    assert_eq!(world.ask(settle(fence(1, 1), 2, 1)).await, settled);
}

#[tokio::test]
async fn a_connection_that_dies_leaves_the_outcome_open_and_a_settling_tells() {
    let mut world = World::start().await;
    assert_eq!(world.ask(take(0, 1, "a")).await, StoreReply::Taken(Epoch(1)));
    let mut session = world.session().await;
    session.execute(LOCK).await.expect("locked");
    let mut store = world.store.clone();
    let waiting = tokio::spawn(async move { ask(&mut store, commit(fence(1, 1), 1)).await });
    let blocked = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
        WHERE application_name LIKE 'tidegate%' AND datname = current_database() AND wait_event_type = 'Lock'";
    let mut ended = 0;
    while ended == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        ended = session.execute(blocked).await.expect("asked").rows_affected();
    }
    assert_eq!(waiting.await.expect("an answer"), StoreReply::Unknown);
    session.execute("ROLLBACK").await.expect("rolled back");
    let settled = StoreReply::Settled { epoch: Epoch(2), committed: vec![false] };
    assert_eq!(world.ask(settle(fence(1, 1), 2, 1)).await, settled);
}

#[tokio::test]
async fn a_taker_ends_the_connections_of_a_frozen_owner() {
    let frozen = Uuid::from_u128(7);
    let mut world = World::start().await;
    world.store = open(&world.url, frozen).await;
    assert_eq!(world.ask(take(0, 1, &frozen.to_string())).await, StoreReply::Taken(Epoch(1)));
    // As a commit in several steps would, of an owner that was stopped in the middle.
    let mut held = world.session().await;
    let name = format!("SET application_name = 'tidegate {frozen}'");
    held.execute(sqlx::AssertSqlSafe(name)).await.expect("named");
    held.execute(LOCK).await.expect("locked");
    let mut successor = open(&world.url, Uuid::from_u128(8)).await;
    let begun = Instant::now();
    assert_eq!(ask(&mut successor, take(1, 2, "b")).await, StoreReply::Taken(Epoch(2)));
    assert!(begun.elapsed() < Duration::from_secs(2));
    assert!(held.execute("SELECT 1").await.is_err(), "the frozen owner's session is over");
    assert_eq!(ask(&mut successor, commit(fence(2, 2), 1)).await, StoreReply::Committed);
    // What the frozen owner does afterwards does not count. Its connections are gone.
    let reply = loop {
        match world.ask(commit(fence(1, 1), 1)).await {
            StoreReply::Unknown => {}
            reply => break reply,
        }
    };
    assert_eq!(reply, StoreReply::Fenced);
}

#[tokio::test]
async fn a_pool_that_is_used_up_refuses_and_recovers() {
    let mut world = World::start().await;
    assert_eq!(world.ask(take(0, 1, "a")).await, StoreReply::Taken(Epoch(1)));
    let mut session = world.session().await;
    session.execute(LOCK).await.expect("locked");
    let commits = (1..=12).map(|number| {
        let mut store = world.store.clone();
        tokio::spawn(async move { ask(&mut store, commit(fence(1, 1), number)).await })
    });
    for waiting in commits.collect::<Vec<_>>() {
        let reply = waiting.await.expect("an answer");
        assert!(failed(&reply, StoreErrorKind::Unavailable), "{reply:?}");
    }
    session.execute("ROLLBACK").await.expect("rolled back");
    assert_eq!(world.ask(commit(fence(1, 1), 20)).await, StoreReply::Committed);
}
