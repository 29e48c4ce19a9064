//! Variables that mean something to Queen and nothing here. They are named once in the log.

use super::read::Environment;
use super::security::is_idle_token_variable;

/// Tuning of machinery that this broker does not have, or not yet.
const WITHOUT_EFFECT: &[&str] = &[
    "METRICS_FLUSH_MS",
    "QUEEN_ACK_FUSION",
    "QUEEN_ACK_REGISTRY",
    "QUEEN_ACK_REGISTRY_MB",
    "QUEEN_DEDUP_CACHE",
    "QUEEN_HOTLIST_RESEED_MS",
    "QUEEN_HOTLIST_SHARDS",
    "QUEEN_SERVER_ID",
    "RETENTION_PARALLELISM",
    "STATS_INTERVAL_MS",
];

/// Families of them.
const PREFIXES: &[&str] = &["FILE_BUFFER_", "POP_WAIT_", "QUEEN_MESH_", "QUEEN_SYNC_", "QUEEN_V2_", "REACTOR_"];

/// Our own: anything else that starts with `TIDEGATE_` is a typing error, or for another version.
const OURS: &[&str] = &[
    "TIDEGATE_ADVERTISE",
    "TIDEGATE_CACHE_MB",
    "TIDEGATE_LISTEN",
    "TIDEGATE_LOG_FORMAT",
    "TIDEGATE_REQUIRE_LEASE",
    "TIDEGATE_STORE",
];

/// The names of variables that are set and have no effect; those of tokens have one where `tokens` are checked.
pub fn without_effect(environment: &Environment, tokens: bool) -> Vec<String> {
    let ignored = |name: &&str| {
        WITHOUT_EFFECT.contains(name)
            || !tokens && is_idle_token_variable(name)
            || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
            || name.starts_with("TIDEGATE_") && !OURS.contains(name)
    };
    environment.names().filter(ignored).map(str::to_owned).collect()
}
