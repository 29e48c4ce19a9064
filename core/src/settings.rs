//! What a broker is told at its start.

use compact_str::CompactString;

use crate::record::StartFrom;
use crate::seal::Keys;
use crate::store::Slot;
use crate::time::Span;

/// Settings of one broker; none changes while it runs.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// The slot it takes.
    pub slot: Slot,
    /// Its name in the slot's row, for people.
    pub owner: CompactString,
    /// Whoever asks sends requests on to the slot's owner: while that is not this broker they are refused at once with
    /// `NotOwner`, and so is what waits or is parked when the slot goes. Without, they wait here for the slot.
    pub sends_on: bool,
    /// `QUEEN_HOTLIST`: which rule of `windowBuffer` holds (OPT-12 with it, OPT-13 without).
    pub hot_list: bool,
    /// `QUEEN_HOTLIST_WINDOW_BATCH`: messages that end a window early (OPT-12).
    pub window_batch: u64,
    /// `DEFAULT_SUBSCRIPTION_MODE`: where a group starts that does not say.
    pub default_start: StartFrom,
    /// `QUEEN_DEDUP_CACHE_MB`: bytes of memory that the hashes and commit times of logs may take (OPT-27).
    pub dedup_cache_bytes: u64,
    /// `QUEEN_CACHE_REFRESH_INTERVAL_MS`: how often the owner looks for options changed in the store itself (CFG-9).
    pub refresh: Span,
    /// `RETENTION_INTERVAL`: how long after the start of a retention cycle the next one starts (OPT-14).
    pub retention_interval: Span,
    /// `RETENTION_BATCH_SIZE`: rows of segments that one step of retention deletes at most (OPT-17); at least 1.
    pub retention_batch: u32,
    /// `PARTITION_CLEANUP_DAYS`: how long after its last message an empty partition is removed; none keeps it for ever
    /// (`QUEEN_PARTITION_CLEANUP_ENABLED`).
    pub partition_idle: Option<Span>,
    /// `METRICS_RETENTION_DAYS`: how long it is remembered what retention deleted.
    pub history_age: Span,
    /// `TIDEGATE_REQUIRE_LEASE`: refuse acks that name no lease.
    pub require_lease: bool,
    /// What payloads are sealed with and opened by (OPT-22).
    pub keys: Keys,
    /// `QUEEN_TENANCY_HEADER`: several tenants share this broker. Then a partition that is not known is answered like
    /// another tenant's, so that nobody learns which ids exist.
    pub tenants: bool,
}

/// What an operator has switched off for a while; outside the slots, the same for all of them (design.md 4.8).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Maintenance {
    /// Pushes are refused.
    pub push: bool,
    /// Pops are answered empty at once.
    pub pop: bool,
}

/// One of an operator's switches, on or off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Switch {
    /// Push maintenance.
    Push(bool),
    /// Pop maintenance.
    Pop(bool),
}

impl Maintenance {
    /// The same after a switch was set.
    pub fn after(self, switch: Switch) -> Self {
        match switch {
            Switch::Push(push) => Maintenance { push, ..self },
            Switch::Pop(pop) => Maintenance { pop, ..self },
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            slot: Slot(0),
            owner: CompactString::const_new("tidegate"),
            sends_on: false,
            hot_list: true,
            window_batch: 100,
            default_start: StartFrom::All,
            dedup_cache_bytes: 512 * 1_024 * 1_024,
            refresh: Span::from_secs(60),
            retention_interval: Span::from_secs(5),
            retention_batch: 1_000,
            partition_idle: Some(Span::from_days(30)),
            history_age: Span::from_days(90),
            require_lease: false,
            keys: Keys::default(),
            tenants: false,
        }
    }
}
