//! Postgres as a store that answers on the spot: the test's thread waits for each answer, so that virtual time stands
//! still meanwhile.

use std::sync::LazyLock;
use std::sync::mpsc::sync_channel;

use tidegate_core::fleet::slot_of;
use tidegate_core::name::TenantId;
use tidegate_core::store::{StoreReply, StoreRequest};
use tidegate_driver::{Answer, Store};
use tidegate_store_postgres::fixture::Cluster;
use tidegate_store_postgres::{PgSettings, PgStore};
use tokio::runtime::{Builder, Runtime};

/// Where the connections of all tests live.
static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime"));

/// Waits for a future that runs on the other runtime.
fn wait<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
    let (sender, receiver) = sync_channel(1);
    RUNTIME.spawn(async move {
        let _ = sender.send(future.await);
    });
    receiver.recv().expect("the other runtime answers")
}

/// A store in a database of its own.
pub(super) fn open() -> impl FnMut(StoreRequest) -> StoreReply + Send {
    // A cache would hide what the statements do.
    let settings = PgSettings { pool_size: 6, cache_bytes: 0, ..PgSettings::new(Cluster::shared().database()) };
    let mut store = wait(PgStore::open(settings, slot_of(TenantId::DEFAULT))).expect("a store");
    move |request| {
        let _inside = RUNTIME.enter();
        match store.call(request) {
            Answer::Now(_, reply) => reply,
            Answer::Later(reply) => wait(reply).1,
        }
    }
}
