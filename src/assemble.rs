//! From settings to a running broker: the only place that names a store and a transport together.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tidegate_core::broker::Broker;
use tidegate_core::fleet::{Member, SLOTS, slot_of};
use tidegate_core::name::TenantId;
use tidegate_core::settings::Settings as CoreSettings;
use tidegate_core::store::Slot;
use tidegate_driver::{Clock, Immediate, JoinError, Joined, Slots, join, spawn_slots};
use tidegate_store_memory::MemoryStore;
use tidegate_store_postgres::{PgMembership, PgSettings, PgStore};
use tidegate_transport_http::{Authenticator, HttpSettings, Peers, Service, StoreFigures};
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::settings::{Postgres, Settings, Store, Tokens};
use crate::system;

/// What a store has to tell of itself.
type Figures = Arc<dyn Fn() -> StoreFigures + Send + Sync>;

/// A broker that serves.
pub struct Running {
    /// Where it listens; the port is the real one.
    pub address: SocketAddr,
    /// The way to the brokers, one a slot.
    pub slots: Slots,
    /// The brokers' tasks.
    pub brokers: JoinHandle<()>,
    /// The heartbeat, where other processes may use the same store.
    pub joined: Option<Joined>,
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

    let clock = Clock::reading(system::monotonic, system::wall());
    let mint = system::minting(entropy()?);
    let stop = CancellationToken::new();
    let authenticator = authenticator(settings)?;
    let serve = |slots: &Slots, figures: Figures| -> anyhow::Result<JoinHandle<()>> {
        let http = HttpSettings { authenticator, store_figures: figures, ..http_settings(settings, entropy()?) };
        let service = Service::new(slots.clone(), http);
        Ok(tokio::spawn(tidegate_transport_http::serve(listener, service, stop.clone())))
    };
    let (slots, brokers, http, joined) = match &settings.store {
        Store::Memory => {
            let seeds = seeds()?;
            let (slots, brokers) = spawn_slots(false, clock, |slot| {
                // Slots share nothing, so each has a store of its own.
                let mut store = MemoryStore::new();
                let store = Immediate::new(clock, move |now, request| store.call(now, request));
                (Broker::new(broker_settings(settings, slot), seeds[usize::from(slot.0)]), store)
            });
            let http = serve(&slots, Arc::new(StoreFigures::default))?;
            (slots, brokers, http, None)
        }
        Store::Postgres(Postgres(postgres)) => {
            let incarnation = mint();
            let postgres = PgSettings { incarnation, ..postgres.clone() };
            let store = PgStore::open(postgres, slot_of(TenantId::DEFAULT)).await?;
            let me = member(settings, address, incarnation);
            let seeds = seeds()?;
            let (slots, brokers) = spawn_slots(true, clock, |slot| {
                let owner = me.incarnation.clone();
                let settings = CoreSettings { owner, sends_on: true, ..broker_settings(settings, slot) };
                (Broker::new(settings, seeds[usize::from(slot.0)]), store.clone())
            });
            // Others that look at this address must find somebody from now on.
            let told = store.clone();
            let figures = move || {
                let figures = told.figures();
                StoreFigures {
                    pool_size: figures.connections,
                    pool_idle: figures.idle,
                    cache_hits: figures.hits,
                    cache_misses: figures.misses,
                    cache_bytes: figures.cached,
                }
            };
            let http = serve(&slots, Arc::new(figures))?;
            let mint = move || compact_str::format_compact!("{}", mint());
            let joined = join(slots.clone(), PgMembership::new(&store), Peers::default(), me, clock, mint).await;
            (slots, brokers, http, Some(joined.map_err(cannot_join)?))
        }
    };
    tracing::info!(version = env!("CARGO_PKG_VERSION"), %address, store = settings.store.name(), "serving");
    Ok(Running { address, slots, brokers, joined, http, stop })
}

fn entropy() -> anyhow::Result<[u8; 32]> {
    system::entropy().context("cannot read random bytes from /dev/urandom")
}

/// Entropy for each slot's broker.
fn seeds() -> anyhow::Result<Vec<[u8; 32]>> {
    (0..SLOTS).map(|_| entropy()).collect()
}

/// This broker as the others are told about it.
fn member(settings: &Settings, address: SocketAddr, incarnation: uuid::Uuid) -> Member {
    let incarnation = compact_str::format_compact!("{incarnation}");
    let address = settings.advertise.clone().unwrap_or_else(|| format!("http://{address}"));
    // A host that nobody else can name makes a loopback address prove nothing.
    let host = system::host().map_or_else(|| incarnation.clone(), Into::into);
    Member { incarnation, address: address.into(), host, draining: false }
}

fn cannot_join(error: JoinError) -> anyhow::Error {
    match error {
        JoinError::AddressTaken { address, incarnation } => anyhow::anyhow!(
            "another broker ({incarnation}) on the same database runs under the address {address}: give each its own with \
             --advertise"
        ),
        JoinError::Store(error) => anyhow::anyhow!("cannot register with the other brokers in the database: {error}"),
    }
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

/// How often a file with keys is looked at.
const KEYS_LOOK: Duration = Duration::from_secs(30);

/// Who checks tokens. Where their keys are in a file, it is looked at again and again: keys are rotated there.
fn authenticator(settings: &Settings) -> anyhow::Result<Option<Arc<Authenticator>>> {
    let Some(Tokens { rules, keys, set }) = settings.tokens.clone() else { return Ok(None) };
    let Some(path) = set else { return Ok(Some(Arc::new(Authenticator::new(rules, keys, system::wall)))) };
    let named = format!("the file {} (JWT_JWKS_FILE)", path.display());
    let read = || std::fs::read(&path).with_context(|| format!("cannot read {named}"));
    let mut seen = read()?;
    let all = keys.clone().with_set(&seen).map_err(|wrong| anyhow::anyhow!("{named} {wrong}"))?;
    if !all.suit(rules.algorithms) {
        anyhow::bail!("{named} holds no key for JWT_ALGORITHM");
    }
    let authenticator = Arc::new(Authenticator::new(rules, all, system::wall));
    let checking = Arc::downgrade(&authenticator);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(KEYS_LOOK).await;
            let Some(authenticator) = checking.upgrade() else { return };
            let text = match std::fs::read(&path) {
                Ok(text) if text == seen => continue,
                Ok(text) => text,
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "cannot read the keys of tokens; the known ones go on");
                    continue;
                }
            };
            match keys.clone().with_set(&text) {
                Ok(all) => {
                    tracing::info!(path = %path.display(), "the keys of tokens have changed");
                    authenticator.replace_keys(all);
                }
                Err(wrong) => {
                    tracing::warn!(path = %path.display(), error = %wrong, "no keys of tokens; the known ones go on");
                }
            }
            seen = text;
        }
    });
    Ok(Some(authenticator))
}

fn broker_settings(settings: &Settings, slot: Slot) -> CoreSettings {
    CoreSettings {
        hot_list: settings.hot_list,
        window_batch: settings.window_batch,
        default_start: settings.default_start,
        require_lease: settings.require_lease,
        dedup_cache_bytes: settings.dedup_cache_bytes,
        refresh: settings.refresh,
        retention_interval: settings.retention.interval,
        retention_batch: settings.retention.batch,
        partition_idle: settings.retention.partition_idle,
        history_age: settings.retention.history_age,
        keys: settings.keys.clone(),
        tenants: settings.tenants,
        slot,
        ..Default::default()
    }
}

fn http_settings(settings: &Settings, entropy: [u8; 32]) -> HttpSettings {
    HttpSettings {
        max_body_bytes: settings.max_body_bytes,
        default_timeout: settings.default_timeout,
        tenants: settings.tenants,
        mint: Arc::new(system::minting(entropy)),
        ..HttpSettings::default()
    }
}
