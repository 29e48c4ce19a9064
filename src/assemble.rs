//! From settings to a running broker: the only place that names a store and a transport together.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use tidegate_core::broker::Broker;
use tidegate_core::fleet::slot_of;
use tidegate_core::name::TenantId;
use tidegate_driver::{Clock, Handle, Immediate};
use tidegate_store_memory::MemoryStore;
use tidegate_store_postgres::PgStore;
use tidegate_transport_http::{HttpSettings, Service};
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::settings::{Postgres, Settings, Store};
use crate::system;

/// A broker that serves.
pub struct Running {
    /// Where it listens; the port is the real one.
    pub address: SocketAddr,
    /// The way to the broker.
    pub handle: Handle,
    /// The broker's task.
    pub broker: JoinHandle<()>,
    /// The accept loop and its connections.
    pub http: JoinHandle<()>,
    /// Stops the accept loop.
    pub stop: CancellationToken,
}

/// Starts everything.
pub async fn start(settings: &Settings) -> anyhow::Result<Running> {
    system::raise_open_files();
    if !settings.without_effect.is_empty() {
        let variables = settings.without_effect.join(", ");
        tracing::warn!(variables, "these environment variables have no effect in this version");
    }
    let listener =
        listen(settings.listen.as_str()).await.with_context(|| format!("cannot listen on {}", settings.listen))?;
    let address = listener.local_addr().context("cannot tell the port that is listened on")?;

    let entropy = || system::entropy().context("cannot read random bytes from /dev/urandom");
    let broker = Broker::new(broker_settings(settings), entropy()?);
    let clock = Clock::starting_at(system::wall());
    let (handle, broker) = match &settings.store {
        Store::Memory => {
            let mut store = MemoryStore::new();
            let store = Immediate::new(clock, move |now, request| store.call(now, request));
            tidegate_driver::spawn(broker, store, clock)
        }
        Store::Postgres(Postgres(settings)) => {
            let store = PgStore::open(settings.clone(), slot_of(TenantId::DEFAULT)).await?;
            tidegate_driver::spawn(broker, store, clock)
        }
    };

    let stop = CancellationToken::new();
    let service = Service::new(handle.clone(), http_settings(settings, entropy()?));
    let http = tokio::spawn(tidegate_transport_http::serve(listener, service, stop.clone()));
    tracing::info!(version = env!("CARGO_PKG_VERSION"), %address, store = settings.store.name(), "serving");
    Ok(Running { address, handle, broker, http, stop })
}

/// Listens on the first address that can be had. Clients that come by the thousand, each to park a pop, must not be
/// turned away by a short queue: the system cuts the length to what it allows.
async fn listen(address: &str) -> std::io::Result<TcpListener> {
    const QUEUE: u32 = 4_096;
    let mut failure = std::io::Error::from(std::io::ErrorKind::AddrNotAvailable);
    for address in tokio::net::lookup_host(address).await? {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // A restart must not wait for the connections of the last run to be forgotten.
        socket.set_reuseaddr(true)?;
        match socket.bind(address).and_then(|()| socket.listen(QUEUE)) {
            Ok(listener) => return Ok(listener),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn broker_settings(settings: &Settings) -> tidegate_core::settings::Settings {
    tidegate_core::settings::Settings {
        hot_list: settings.hot_list,
        window_batch: settings.window_batch,
        default_start: settings.default_start,
        require_lease: settings.require_lease,
        slot: slot_of(TenantId::DEFAULT),
        ..Default::default()
    }
}

fn http_settings(settings: &Settings, entropy: [u8; 32]) -> HttpSettings {
    HttpSettings {
        max_body_bytes: settings.max_body_bytes,
        default_timeout: settings.default_timeout,
        mint: Arc::new(system::minting(entropy)),
        ..HttpSettings::default()
    }
}
