//! A broker in this process, its store, and everything a test does with them.

mod api;
mod client;
mod postgres;
mod store;

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_core::broker::Broker;
use tidegate_core::name::PartitionId;
use tidegate_core::record::QueueRecord;
use tidegate_core::settings::Settings;
use tidegate_core::store::{Commit, CommitNo, ExtentRead, Record, SegmentRead, StoreReply, StoreRequest, Write};
use tidegate_core::time::Timestamp;
use tidegate_driver::{Clock, Handle};
use tidegate_transport_http::{HttpSettings, Service};
use tokio::io::DuplexStream;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use api::{Batch, QUEUE_MODE, accepted, at, encode, ids, item, micros, refused};
pub use client::{Answer, Client};
pub use store::{Backend, Faults};

/// Wall time at the start of every world: 2026-01-01T00:00:00Z.
const BEGIN: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);
/// Bytes a connection buffers in each direction.
const PIPE: usize = 1 << 20;

/// One broker over one store. Cheap to clone: tasks of a test share it.
#[derive(Clone)]
pub struct World {
    inner: Arc<Inner>,
    /// What each call says in its head.
    headers: Vec<(&'static str, String)>,
}

struct Inner {
    clock: Clock,
    store: store::Shared,
    faults: Arc<Faults>,
    starts: AtomicU8,
    running: Mutex<Option<Running>>,
    /// Connections that wait for the next call, with the start of the broker they lead to.
    idle: Mutex<Vec<(u8, Client)>>,
    http: Mutex<HttpSettings>,
}

/// What ends with the broker; the store does not.
struct Running {
    settings: Settings,
    handle: Handle,
    task: JoinHandle<()>,
    service: Service,
    shutdown: CancellationToken,
}

impl World {
    /// A broker with default settings over an empty store.
    pub async fn start(backend: Backend) -> World {
        let inner = Inner {
            clock: Clock::starting_at(BEGIN),
            store: backend.open(),
            faults: Arc::default(),
            starts: AtomicU8::new(0),
            running: Mutex::new(None),
            idle: Mutex::default(),
            http: Mutex::default(),
        };
        let world = World { inner: Arc::new(inner), headers: Vec::new() };
        world.run(Settings::default());
        world
    }

    /// Shuts the broker down in good order and starts another over the same store.
    pub async fn restart(&self) {
        self.restart_with(|_| ()).await;
    }

    /// As `restart`, with other settings from then on.
    pub async fn restart_with(&self, change: impl FnOnce(&mut Settings)) {
        let mut settings = self.stop().await;
        change(&mut settings);
        self.run(settings);
    }

    /// As `restart_with`, with other settings of its HTTP as well.
    pub async fn restart_http(&self, change: impl FnOnce(&mut Settings, &mut HttpSettings)) {
        let mut settings = self.stop().await;
        change(&mut settings, &mut self.inner.http.lock().unwrap());
        self.run(settings);
    }

    /// The same world for a caller whose calls all have this header.
    pub fn with_header(&self, name: &'static str, value: impl Into<String>) -> World {
        let mut headers = self.headers.clone();
        headers.push((name, value.into()));
        World { inner: Arc::clone(&self.inner), headers }
    }

    /// The time of the host's clock.
    pub fn wall(&self) -> impl Fn() -> Timestamp + Send + Sync + 'static {
        let clock = self.inner.clock;
        move || clock.wall()
    }

    /// The payloads of a partition as they are stored.
    pub fn stored(&self, partition: &str) -> Vec<String> {
        let partition = PartitionId(partition.parse().expect("a partition's id"));
        let mut store = self.inner.store.lock().expect("no test panicked inside the store");
        let read = StoreRequest::Read(vec![SegmentRead { partition, from: 0, end: 1_000 }]);
        let StoreReply::Segments(lists) = store(self.inner.clock.wall(), read) else { panic!("no segments") };
        let messages = lists.into_iter().flatten().flat_map(|slice| slice.messages);
        messages.map(|message| String::from_utf8(message.payload.to_vec()).expect("JSON")).collect()
    }

    /// Shuts the broker down in good order; gives the settings it had.
    pub async fn stop(&self) -> Settings {
        let running = self.take_running();
        running.shutdown.cancel();
        running.handle.drain();
        running.task.await.expect("the broker's task ends");
        running.settings
    }

    /// Kills the broker where it stands and starts another over the same store, which has to wait until the dead one's
    /// ownership has run out; returns when it serves.
    pub async fn crash(&self) {
        let running = self.take_running();
        running.task.abort();
        assert!(running.task.await.expect_err("aborted").is_cancelled());
        self.run(running.settings);
        while self.get("/api/v1/resources/queues").await.status != 200 {
            self.sleep_ms(50).await;
        }
    }

    fn take_running(&self) -> Running {
        self.inner.idle.lock().unwrap().clear();
        self.inner.running.lock().unwrap().take().expect("a broker runs")
    }

    fn run(&self, settings: Settings) {
        // No two starts may draw the same ids.
        let entropy = [self.inner.starts.fetch_add(1, Ordering::Relaxed); 32];
        let broker = Broker::new(settings.clone(), entropy);
        let store = store::Port::new(self.inner.clock, self.inner.store.clone(), self.inner.faults.clone());
        let (handle, task) = tidegate_driver::spawn(broker, store, self.inner.clock);
        let service = Service::new(handle.clone(), self.inner.http.lock().unwrap().clone());
        let running = Running { settings, handle, task, service, shutdown: CancellationToken::new() };
        *self.inner.running.lock().unwrap() = Some(running);
    }

    /// Changes a queue's record in the store, as its own function would, without the owner's knowledge.
    pub fn change_in_store(&self, queue: &str, change: impl FnOnce(&mut QueueRecord)) {
        let mut store = self.inner.store.lock().expect("no test panicked inside the store");
        let now = self.inner.clock.wall();
        let fence = self.inner.faults.fence();
        let list = StoreRequest::LoadQueues { slot: fence.slot, after: None };
        let StoreReply::Queues { queues, .. } = store(now, list) else { panic!("no queues") };
        let mut record = queues.into_iter().find(|it| it.name.as_str() == queue).expect("the queue");
        record.revision += 1;
        change(&mut record);
        // A number that the owner will not come to.
        let number = CommitNo((1 << 40) + now.as_micros().unsigned_abs() % (1 << 40));
        let writes = vec![Write::Queue(Box::new(record))];
        let commit = Commit { fence, number, time: now, acknowledged: [None, None], writes };
        assert_eq!(store(now, StoreRequest::Commit(commit)), StoreReply::Committed);
    }

    /// How many partitions have rows below their watermarks, as the store itself tells.
    pub fn rows_below_watermarks(&self) -> usize {
        let mut store = self.inner.store.lock().expect("no test panicked inside the store");
        let slot = self.inner.faults.fence().slot;
        let StoreReply::Page { records, .. } = store(self.inner.clock.wall(), StoreRequest::Load { slot, after: None })
        else {
            panic!("no page")
        };
        let mut after = records;
        after.retain(|record| matches!(record, Record::Partition(_, tail) if tail.untrimmed));
        after.len()
    }

    /// How many segments of a queue's partition have left their hashes behind, as the store itself tells.
    pub async fn kept_hashes(&self, queue: &str) -> usize {
        let queue = self.queue(queue).await;
        let partition = queue["partitions"][0]["id"].as_str().and_then(|id| id.parse().ok()).map(PartitionId);
        let reads = vec![ExtentRead { partition: partition.expect("a partition"), from: 0, hashes: true }];
        let mut store = self.inner.store.lock().expect("no test panicked inside the store");
        match store(self.inner.clock.wall(), StoreRequest::LoadExtents { reads, limit: 1_000 }) {
            StoreReply::Extents(lists) => lists.iter().map(Vec::len).sum(),
            other => panic!("no extents: {other:?}"),
        }
    }

    /// Tells the broker to shut down and goes on at once; the world cannot be used for new connections afterwards.
    pub fn begin_shutdown(&self) {
        let running = self.inner.running.lock().unwrap();
        let running = running.as_ref().expect("a broker runs");
        running.handle.drain();
        running.shutdown.cancel();
    }

    /// Waits until the broker that was told to shut down has ended.
    pub async fn ended(&self) {
        let running = self.take_running();
        running.task.await.expect("the broker's task ends");
    }

    /// The client's end of a new connection, to write raw bytes to.
    pub fn connect(&self) -> DuplexStream {
        let (client, server) = tokio::io::duplex(PIPE);
        let running = self.inner.running.lock().unwrap();
        let running = running.as_ref().expect("a broker runs");
        let (service, shutdown) = (running.service.clone(), running.shutdown.clone());
        tokio::spawn(async move { service.serve_connection(server, shutdown).await });
        client
    }

    /// A new HTTP/1.1 connection.
    pub async fn client(&self) -> Client {
        Client::over(self.connect()).await
    }

    /// What is done to the store and to its clock.
    pub fn faults(&self) -> &Faults {
        &self.inner.faults
    }

    /// Lets time pass.
    pub async fn sleep_ms(&self, millis: u64) {
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }

    /// Lets time pass.
    pub async fn sleep(&self, secs: u64) {
        tokio::time::sleep(Duration::from_secs(secs)).await;
    }

    /// Microseconds of virtual time since the world began.
    pub fn now(&self) -> i64 {
        i64::try_from(self.inner.clock.moment().as_micros()).expect("tests are short")
    }

    async fn idle_client(&self) -> (u8, Client) {
        let start = self.inner.starts.load(Ordering::Relaxed);
        let idle = self.inner.idle.lock().unwrap().pop();
        match idle {
            Some((of, client)) if of == start && client.is_open() => (of, client),
            _ => (start, self.client().await),
        }
    }

    fn give_back(&self, start: u8, client: Client) {
        self.inner.idle.lock().unwrap().push((start, client));
    }
}

/// Whether sizes are the full ones of the scenario page; else they fit into the time of every change.
pub fn full() -> bool {
    std::env::var_os("TIDEGATE_FULL").is_some_and(|value| value == "1")
}

/// Asserts that virtual time since `begun` is `millis`. The two milliseconds on top are tokio's timer and commit times
/// that are a microsecond ahead of the clock because they must not repeat.
#[track_caller]
pub fn took(begun: Instant, millis: u64) {
    took_between(begun, millis, millis + 2);
}

/// Asserts that virtual time since `begun` lies within these bounds, in milliseconds.
#[track_caller]
pub fn took_between(begun: Instant, least: u64, most: u64) {
    let elapsed = begun.elapsed().as_millis();
    let fits = (u128::from(least)..=u128::from(most)).contains(&elapsed);
    assert!(fits, "took {elapsed} ms, expected {least} to {most}");
}
