//! What the composition root decides about HTTP.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_core::time::Span;
use uuid::{Builder, Uuid};

use crate::auth::Authenticator;

/// Settings of the transport; none changes while it runs.
#[derive(Clone)]
pub struct HttpSettings {
    /// `QUEEN_MAX_BODY_BYTES`: a larger request body is answered 413.
    pub max_body_bytes: usize,
    /// `DEFAULT_TIMEOUT`: how long a pop with `wait=true` and without `timeout` waits.
    pub default_timeout: Span,
    /// Connections served at once; more wait in the kernel's queue.
    pub max_connections: usize,
    /// A connection without a request for this long (and at most twice this long) is closed. It also ends those that
    /// trickle a request's head. None keeps them for ever.
    pub idle_timeout: Option<Duration>,
    /// How long the next piece of a request body may take.
    pub body_timeout: Duration,
    /// How long connections may take to finish at shutdown before they are dropped.
    pub drain_timeout: Duration,
    /// Who checks tokens; without one everybody may do everything.
    pub authenticator: Option<Arc<Authenticator>>,
    /// `QUEEN_TENANCY_HEADER`: requests name their tenant.
    pub tenants: bool,
    /// What the store has to tell of itself.
    pub store_figures: Arc<dyn Fn() -> StoreFigures + Send + Sync>,
    /// Makes the ids that name a transaction's answer. The transport has no random source of its own.
    pub mint: Arc<dyn Fn() -> Uuid + Send + Sync>,
}

/// Figures of a store, for the metrics; one that has no connections or cache leaves them at nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StoreFigures {
    /// Connections that are open.
    pub pool_size: u64,
    /// Those that nobody uses now.
    pub pool_idle: u64,
    /// Reads of messages that memory could answer.
    pub cache_hits: u64,
    /// Those that it could not.
    pub cache_misses: u64,
    /// Bytes that it keeps for that.
    pub cache_bytes: u64,
}

impl Default for HttpSettings {
    fn default() -> Self {
        HttpSettings {
            max_body_bytes: 64 * 1024 * 1024,
            default_timeout: Span::from_secs(30),
            max_connections: 10_000,
            idle_timeout: Some(Duration::from_secs(75)),
            body_timeout: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(4),
            authenticator: None,
            tenants: false,
            store_figures: Arc::new(StoreFigures::default),
            mint: counting_mint(),
        }
    }
}

impl fmt::Debug for HttpSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpSettings")
            .field("max_body_bytes", &self.max_body_bytes)
            .field("default_timeout", &self.default_timeout)
            .field("max_connections", &self.max_connections)
            .field("idle_timeout", &self.idle_timeout)
            .field("body_timeout", &self.body_timeout)
            .field("drain_timeout", &self.drain_timeout)
            .field("authenticator", &self.authenticator)
            .field("tenants", &self.tenants)
            .finish_non_exhaustive()
    }
}

/// UUIDs v7 of 1970 that count up: the same in every run, which is what a test wants.
fn counting_mint() -> Arc<dyn Fn() -> Uuid + Send + Sync> {
    let next = AtomicU64::new(1);
    Arc::new(move || {
        let mut tail = [0; 10];
        tail[2..].copy_from_slice(&next.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        Builder::from_unix_timestamp_millis(0, &tail).into_uuid()
    })
}
