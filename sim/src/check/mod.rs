//! The promises, one file each, judged by the history alone.

use crate::history::{Checker, Terms};

/// Every checker.
pub fn all(_terms: &Terms) -> Vec<Box<dyn Checker>> {
    Vec::new()
}
