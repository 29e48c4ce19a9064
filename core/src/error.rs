//! Why a command was not carried out, and why a store did not answer as hoped.

use alloc::string::String;

/// A command that changed nothing, or may have (`OutcomeUnknown` alone). Codes are stable; texts are free.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Rejection {
    /// The store cannot be reached or refused; certainly nothing was stored.
    #[error("the store is unavailable; nothing was stored")]
    StoreUnavailable,
    /// The store's answer was lost and could not be recovered in time.
    #[error("the store's answer was lost; the request may or may not have been carried out")]
    OutcomeUnknown,
    /// Another broker owns the slot, or nobody does; certainly not executed.
    #[error("no broker owns this tenant's slot right now; nothing was done")]
    NotOwner,
    /// Push maintenance is on; certainly nothing was stored.
    #[error("push maintenance is on; nothing was stored")]
    Maintenance,
    /// This broker is shutting down; certainly not executed.
    #[error("the broker is shutting down; nothing was done")]
    Draining,
    /// The queue's payloads are to be encrypted, and this broker has no key (OPT-23).
    #[error("the queue has encryptionEnabled and this broker has no QUEEN_ENCRYPTION_KEY; nothing was stored")]
    NoKey,
    /// A dead letter is sealed under a key that this broker has not. Moved, it could never be opened again.
    #[error("the dead letter is encrypted under a key that this broker does not have; it was left where it is")]
    ForeignKey,
}

impl Rejection {
    /// The word that programs read.
    pub const fn code(self) -> &'static str {
        match self {
            // To a client these are one: certainly nothing was done, and trying again is safe (36.11).
            Rejection::StoreUnavailable | Rejection::NotOwner | Rejection::Draining => "store_unavailable",
            Rejection::OutcomeUnknown => "outcome_unknown",
            Rejection::NoKey | Rejection::ForeignKey => "no_encryption_key",
            Rejection::Maintenance => "maintenance",
        }
    }
}

/// A request that the store certainly did not carry out.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text}")]
pub struct StoreError {
    /// For programs.
    pub kind: StoreErrorKind,
    /// For people, in the store's own words.
    pub text: String,
}

/// What is wrong with the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StoreErrorKind {
    /// Not reachable, starting up, out of connections, or too slow.
    Unavailable,
    /// Reachable, and cannot take writes: disk full, read-only standby.
    CannotWrite,
    /// What it holds cannot be read.
    Corrupt,
}
