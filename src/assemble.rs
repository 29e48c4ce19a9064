//! From settings to a running broker: the only place that names a store and a transport together.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use tidegate_core::broker::Broker;
use tidegate_driver::{Clock, Handle, Immediate};
use tidegate_store_memory::MemoryStore;
use tidegate_transport_http::{HttpSettings, Service};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::settings::{Settings, Store};
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
    let listener = TcpListener::bind(settings.listen.as_str())
        .await
        .with_context(|| format!("cannot listen on {}", settings.listen))?;
    let address = listener.local_addr().context("cannot tell the port that is listened on")?;

    let entropy = || system::entropy().context("cannot read random bytes from /dev/urandom");
    let broker = Broker::new(broker_settings(settings), entropy()?);
    let clock = Clock::starting_at(system::wall());
    let (handle, broker) = match settings.store {
        Store::Memory => {
            let mut store = MemoryStore::new();
            let store = Immediate::new(clock, move |now, request| store.call(now, request));
            tidegate_driver::spawn(broker, store, clock)
        }
    };

    let stop = CancellationToken::new();
    let service = Service::new(handle.clone(), http_settings(settings, entropy()?));
    let http = tokio::spawn(tidegate_transport_http::serve(listener, service, stop.clone()));
    tracing::info!(version = env!("CARGO_PKG_VERSION"), %address, store = settings.store.name(), "serving");
    Ok(Running { address, handle, broker, http, stop })
}

fn broker_settings(settings: &Settings) -> tidegate_core::settings::Settings {
    tidegate_core::settings::Settings {
        hot_list: settings.hot_list,
        window_batch: settings.window_batch,
        default_start: settings.default_start,
        require_lease: settings.require_lease,
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
