//! The simulator: worlds, faults, histories and checkers on virtual time.

pub mod duel;
pub mod model;
