//! The store port over Postgres: what production runs on.
//!
//! `open` connects and brings the schema up to date (`migrate`). `ownership` says who may write, `commit` writes (`pack`
//! says how messages lie in a column), `load` and `read` read, `cache` keeps what was written last in memory,
//! `membership` tells brokers of each other. `rows` is the only place that knows the order of columns, `error` the only
//! one that knows SQLSTATEs. The SQL is in `sql/` and `migrations/`.

mod cache;
mod commit;
mod error;
#[cfg(feature = "fixture")]
pub mod fixture;
mod load;
mod membership;
mod migrate;
mod open;
mod operations;
mod ownership;
mod pack;
#[cfg(feature = "plants")]
mod plants;
mod read;
mod retention;
mod rows;
mod settings;
mod store;

pub use membership::PgMembership;
pub use open::{OpenError, PLANNER};
pub use settings::PgSettings;
pub use store::{Figures, PgStore};
