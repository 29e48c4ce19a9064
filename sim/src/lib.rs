//! The simulator: a whole cluster, its clients and its faults, in one seed.
//!
//! Read in this order: `history` (what clients send and see, the one format that everything is judged by), `setup` and
//! `step` (what a world is made of and what happens in it), `draw` (from a seed to both), `world` (the run), `list` (a run
//! written down), `marks` and `counts` (what was met).

pub mod check;
pub mod counts;
pub mod draw;
pub mod history;
pub mod list;
pub mod marks;
pub mod night;
pub mod random;
pub mod report;
pub mod setup;
pub mod shrink;
pub mod situations;
pub mod step;
pub mod svg;
pub mod trace;
pub mod world;
