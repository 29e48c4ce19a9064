//! Tidegate's core: every decision of the broker, as a pure, deterministic state machine.
//!
//! Read in this order: `command` and `reply` (what a client asks and is told), `record` (what is stored), `store` (the
//! port), `rules` (functions of records, a command and the time), `seal` (encrypted payloads), `broker` (the machine
//! around the rules), `fleet` (which broker should own which slot).
//!
//! Absent on purpose: clocks, threads, sockets, files, environment, a random source, maps with seeded hashes. The crate
//! is `no_std`, so most of these do not even compile; `clippy.toml` forbids the rest.
#![no_std]

extern crate alloc;

#[macro_use]
pub mod plant;

pub mod activity;
pub mod broker;
pub mod command;
pub mod error;
pub mod fleet;
pub mod limits;
pub mod log;
pub mod message;
pub mod name;
pub mod options;
pub mod record;
pub mod reply;
pub mod rules;
pub mod seal;
pub mod settings;
pub mod store;
#[cfg(feature = "testkit")]
pub mod testkit;
pub mod time;
