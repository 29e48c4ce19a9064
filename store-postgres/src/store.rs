//! The store as the driver holds it: each request becomes a future over the pools.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use sqlx::postgres::PgConnectOptions;
use tidegate_core::store::{Slot, StoreReply, StoreRequest};
use tidegate_core::time::{Span, Timestamp};
use tidegate_driver::{Answer, Store};
use uuid::Uuid;

use crate::cache::Cache;
use crate::commit::Lanes;
use crate::open::{OpenError, Pools, open, pools};
use crate::settings::PgSettings;

/// The store port over Postgres. A clone shares connections and cache.
#[derive(Clone)]
pub struct PgStore {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) settings: PgSettings,
    pub(crate) options: PgConnectOptions,
    pools: Mutex<Arc<Pools>>,
    pub(crate) cache: Mutex<Cache>,
    pub(crate) lanes: Lanes,
    heard: Mutex<(Timestamp, Instant)>,
    hits: AtomicU64,
    misses: AtomicU64,
}

/// What a store has to tell of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Figures {
    /// Connections that are open.
    pub connections: u64,
    /// Those that nobody uses now.
    pub idle: u64,
    /// Reads of messages that memory could answer.
    pub hits: u64,
    /// Those that it could not.
    pub misses: u64,
    /// Bytes of messages in memory.
    pub cached: u64,
}

/// Locks what no code can leave broken: values are replaced whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PgStore {
    /// Connects and brings the schema up to date. `default_slot` is the slot of the default tenant.
    pub async fn open(settings: PgSettings, default_slot: Slot) -> Result<PgStore, OpenError> {
        let (options, pools) = open(&settings, default_slot).await?;
        let time = sqlx::query_scalar::<_, i64>("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
            .fetch_one(&pools.reads)
            .await
            .map_err(OpenError::schema)?;
        let inner = Inner {
            cache: Mutex::new(Cache::new(settings.cache_bytes)),
            settings,
            options,
            pools: Mutex::new(pools),
            lanes: Lanes::default(),
            heard: Mutex::new((Timestamp::from_micros(time), Instant::now())),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        };
        Ok(PgStore { inner: Arc::new(inner) })
    }

    /// What there is to tell of connections and cache.
    pub fn figures(&self) -> Figures {
        let pools = self.inner.pools();
        let pools = [&pools.writes, &pools.reads, &pools.control];
        Figures {
            connections: pools.iter().map(|pool| u64::from(pool.size())).sum(),
            idle: pools.iter().map(|pool| pool.num_idle() as u64).sum(),
            hits: self.inner.hits.load(Relaxed),
            misses: self.inner.misses.load(Relaxed),
            cached: lock(&self.inner.cache).used() as u64,
        }
    }

    /// The store's time now, reckoned from its last answer.
    pub fn time(&self) -> Timestamp {
        self.inner.time()
    }
}

impl Inner {
    pub(crate) fn pools(&self) -> Arc<Pools> {
        Arc::clone(&lock(&self.pools))
    }

    /// New connections under another name; the old ones end when nobody uses them any more.
    pub(crate) fn rename(&self, incarnation: Uuid) {
        *lock(&self.pools) = Arc::new(pools(&self.options, &self.settings, incarnation));
    }

    pub(crate) fn time(&self) -> Timestamp {
        let (time, at) = *lock(&self.heard);
        time.plus(Span::from_micros(i64::try_from(at.elapsed().as_micros()).unwrap_or(i64::MAX)))
    }

    /// Notes the store's time in an answer.
    pub(crate) fn hear(&self, micros: i64) -> Timestamp {
        let time = Timestamp::from_micros(micros);
        *lock(&self.heard) = (time, Instant::now());
        time
    }

    async fn carry_out(self: Arc<Self>, request: StoreRequest) -> StoreReply {
        match request {
            StoreRequest::Watch(slot) => self.watch(slot).await,
            StoreRequest::Take { slot, seen, token, owner } => self.take(slot, seen, token, owner).await,
            StoreRequest::Renew { fence, acknowledged } => self.renew(fence, acknowledged).await,
            StoreRequest::Release(fence) => self.release(fence).await,
            StoreRequest::Commit(commit) => self.commit(commit).await,
            StoreRequest::Settle { fence, token, unknown } => self.settle(fence, token, unknown).await,
            StoreRequest::Load { slot, after } => self.load(slot, after).await,
            StoreRequest::LoadQueues { slot, after } => self.load_queues(slot, after).await,
            StoreRequest::LoadLogs(reads) => self.load_logs(reads).await,
            StoreRequest::Read(reads) => self.read(reads).await,
            StoreRequest::ReadDeadLetters(ids) => self.read_dead_letters(ids).await,
            StoreRequest::ReadTraces { tenant, of, .. } => self.read_traces(tenant, of).await,
            StoreRequest::ReadTraceNames { tenant, limit, offset, .. } => {
                self.read_trace_names(tenant, limit, offset).await
            }
            StoreRequest::ReadActivity { slot, tenant, queue, from, until, bucket } => {
                self.read_activity(slot, tenant, queue, (from, until), bucket).await
            }
            StoreRequest::Trim { fence, queue, limit } => self.trim(fence, queue, limit).await,
            StoreRequest::LoadExtents { reads, limit } => self.load_extents(reads, limit).await,
            StoreRequest::TrimLogs { fence, partitions, limit } => self.trim_logs(fence, partitions, limit).await,
            StoreRequest::LoadHistory { slot, tenant, since, until } => {
                self.load_history(slot, tenant, since, until).await
            }
            StoreRequest::TrimHistory { fence, before, limit } => self.trim_history(fence, before, limit).await,
            StoreRequest::Ping => self.ping().await,
        }
    }
}

impl Store for PgStore {
    fn call(&mut self, request: StoreRequest) -> Answer {
        if let StoreRequest::Read(reads) = &request {
            let mut cache = lock(&self.inner.cache);
            let found = cache.read_all(reads);
            let counter = if found.is_some() { &self.inner.hits } else { &self.inner.misses };
            counter.fetch_add(reads.len() as u64, Relaxed);
            if let Some(found) = found {
                return Answer::Now(self.inner.time(), StoreReply::Segments(found));
            }
        }
        let inner = Arc::clone(&self.inner);
        Answer::Later(Box::pin(async move {
            let reply = Arc::clone(&inner).carry_out(request).await;
            (inner.time(), reply)
        }))
    }
}
