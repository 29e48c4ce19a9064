//! The simulator: a whole cluster, its clients and its faults, in one seed.

pub mod duel;
pub mod history;
pub mod marks;
pub mod model;
