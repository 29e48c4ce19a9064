//! The store port over Postgres.

#[cfg(feature = "fixture")]
pub mod fixture;
