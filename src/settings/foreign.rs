//! Variables that mean something to Queen and nothing here. Most are named once in the log. Those that protect
//! something stop the start: a broker that ignores them would be open where its owner thinks it is closed.

use super::read::{Environment, Wrong, boolean};

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
const PREFIXES: &[&str] = &["FILE_BUFFER_", "JWT_", "POP_WAIT_", "QUEEN_MESH_", "QUEEN_SYNC_", "QUEEN_V2_", "REACTOR_"];

/// Our own: anything else that starts with `TIDEGATE_` is a typing error, or for another version.
const OURS: &[&str] = &[
    "TIDEGATE_ADVERTISE",
    "TIDEGATE_CACHE_MB",
    "TIDEGATE_LISTEN",
    "TIDEGATE_LOG_FORMAT",
    "TIDEGATE_REQUIRE_LEASE",
    "TIDEGATE_STORE",
];

/// Refuses what would silently leave messages unprotected. Values are never repeated: one of them is a key.
pub fn refuse_unprotected(environment: &Environment) -> Result<(), Wrong> {
    let refuse = |name: &str, what: &str| {
        Err(Wrong(format!("{name} is set, but this version cannot {what}: unset it to start without")))
    };
    if boolean(environment, "JWT_ENABLED")? == Some(true) {
        return refuse("JWT_ENABLED", "check tokens, and would let everybody in");
    }
    if boolean(environment, "QUEEN_TENANCY_HEADER")? == Some(true) {
        return refuse("QUEEN_TENANCY_HEADER", "keep tenants apart, and would put all of them into one");
    }
    if environment.get("QUEEN_ENCRYPTION_KEY")?.is_some() {
        return refuse("QUEEN_ENCRYPTION_KEY", "encrypt payloads, and would keep them in plain text");
    }
    Ok(())
}

/// The names of variables that are set and have no effect.
pub fn without_effect(environment: &Environment) -> Vec<String> {
    let ignored = |name: &&str| {
        WITHOUT_EFFECT.contains(name)
            || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
            || name.starts_with("TIDEGATE_") && !OURS.contains(name)
    };
    environment.names().filter(ignored).map(str::to_owned).collect()
}
