//! The port's conformance suite over a real Postgres.

use tidegate_core::store::{Slot, StoreReply, StoreRequest};
use tidegate_core::testkit::Store;
use tidegate_core::testkit::conformance::PROMISES;
use tidegate_core::time::Timestamp;
use tidegate_driver::{Answer, Store as _};
use tidegate_store_postgres::fixture::Cluster;
use tidegate_store_postgres::{PgSettings, PgStore};
use tokio::runtime::Runtime;

/// A store that waits for each answer.
struct Waiting<'a> {
    runtime: &'a Runtime,
    store: PgStore,
}

impl Store for Waiting<'_> {
    fn call(&mut self, _now: Timestamp, request: StoreRequest) -> StoreReply {
        let _inside = self.runtime.enter();
        match self.store.call(request) {
            Answer::Now(_, reply) => reply,
            Answer::Later(reply) => self.runtime.block_on(reply).1,
        }
    }
}

fn keeps_every_promise(cache_bytes: usize) {
    let cluster = Cluster::shared();
    let runtime = Runtime::new().expect("a runtime");
    let url = cluster.database();
    let name = url.split('?').next().and_then(|url| url.rsplit('/').next()).expect("a database").to_owned();
    for promise in PROMISES {
        let settings = PgSettings { cache_bytes, pool_size: 8, ..PgSettings::new(&url) };
        let store = runtime.block_on(PgStore::open(settings, Slot(0))).expect("a store");
        cluster.sql(
            &name,
            "TRUNCATE queen.traces, queen.trace_names, queen.activity, queen.queues, queen.hashes, queen.retention_history, \
             queen.partitions, queen.segments, queen.cursors, queen.subscriptions, queen.dead_letters, queen.commits; \
             UPDATE queen.slots SET epoch = 0, token = NULL, owner = NULL, beat = 0; \
             UPDATE queen.fences SET epoch = 0, token = NULL",
        );
        eprintln!("{}", promise.name);
        (promise.check)(&mut Waiting { runtime: &runtime, store });
    }
}

#[test]
fn without_a_cache_it_keeps_every_promise() {
    keeps_every_promise(0);
}

#[test]
fn with_a_cache_it_keeps_every_promise() {
    keeps_every_promise(64 << 20);
}
