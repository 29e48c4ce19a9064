//! The promises, one file each, judged by what clients sent and saw and by nothing else.
//!
//! What a partition holds is learnt as any client learns it: after the faults have stopped, a group of its own
//! ([`Rules::reader`]) reads everything. The other groups are held to that order, and the order to what was pushed.

pub mod content;
pub mod cursor;
pub mod delivery;
pub mod facts;
pub mod lease;
pub mod once;
pub mod order;
pub mod transaction;

#[cfg(test)]
pub mod testing;

use std::collections::BTreeMap;
use std::fmt;

use crate::history::History;
use facts::Facts;

/// What the run was meant to do.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The group that read everything at the end.
    pub reader: String,
    /// The groups that must have been given every message, by queue.
    pub groups: BTreeMap<String, Vec<String>>,
    /// How much earlier than promised a lease may end, in microseconds: the broker knows the store's time by its
    /// last answer only.
    pub lease_slack: u64,
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The promise: the name of its file.
    pub promise: &'static str,
    /// What contradicts it; numbers in brackets are places in the history.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.promise, self.what)
    }
}

/// What is said of each contradiction.
pub type Check = fn(&Facts<'_>) -> Vec<String>;

/// Everything that is wrong with a history.
pub fn check(history: &History, rules: &Rules) -> Vec<Violation> {
    let facts = Facts::gather(history, rules);
    let checks: [(&'static str, Check); 7] = [
        ("delivery", delivery::check),
        ("content", content::check),
        ("once", once::check),
        ("order", order::check),
        ("cursor", cursor::check),
        ("lease", lease::check),
        ("transaction", transaction::check),
    ];
    let named = |(promise, check): (_, Check)| {
        check(&facts).into_iter().map(move |what| Violation { promise, what }).collect::<Vec<_>>()
    };
    checks.into_iter().flat_map(named).collect()
}
