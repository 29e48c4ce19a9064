//! Tokens whose signature was checked: a client sends the same one with each request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::claims::Claims;

/// Tokens of one generation; twice as many are remembered at most.
const GENERATION: usize = 2_048;
/// Bytes of a token that is remembered.
const MAX_TOKEN_BYTES: usize = 4_096;

/// What good tokens say. Time is no part of it: whether a token is over is looked at each time.
#[derive(Default)]
pub(super) struct Remembered(Mutex<Generations>);

/// What was used since the young ones began stays when the old ones go.
#[derive(Default)]
struct Generations {
    young: HashMap<Box<str>, Arc<Claims>>,
    old: HashMap<Box<str>, Arc<Claims>>,
}

impl Generations {
    fn put(&mut self, token: Box<str>, claims: Arc<Claims>) {
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(token, claims);
    }
}

impl Remembered {
    pub(super) fn get(&self, token: &str) -> Option<Arc<Claims>> {
        let mut generations = self.lock();
        if let Some(claims) = generations.young.get(token) {
            return Some(Arc::clone(claims));
        }
        let (token, claims) = generations.old.remove_entry(token)?;
        generations.put(token, Arc::clone(&claims));
        Some(claims)
    }

    pub(super) fn put(&self, token: &str, claims: Arc<Claims>) {
        if token.len() <= MAX_TOKEN_BYTES {
            self.lock().put(token.into(), claims);
        }
    }

    pub(super) fn forget(&self) {
        *self.lock() = Generations::default();
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let generations = self.lock();
        generations.young.len() + generations.old.len()
    }

    fn lock(&self) -> MutexGuard<'_, Generations> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
