//! The rules: pure functions of records, a command and the time. One file per rule; none knows the broker.

pub mod dedup;
pub mod ids;
pub mod lease;
pub mod retention;
pub mod retry;
pub mod settle;
pub mod start;
pub mod visibility;
