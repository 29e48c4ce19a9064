//! Chance: a stream of its own for each purpose, so that one draw more in one of them moves nothing in the others.

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

/// What a stream is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Purpose {
    /// Which world, which steps.
    Schedule = 1,
    /// How long messages take.
    Network = 2,
    /// How long the store takes.
    Store = 3,
    /// The brokers' own entropy.
    Brokers = 4,
}

/// A stream of chance.
#[derive(Clone, Debug)]
pub struct Random(ChaCha8Rng);

impl Random {
    /// The stream of a seed for one purpose.
    pub fn new(seed: u64, purpose: Purpose) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(purpose as u64);
        Random(random)
    }

    /// Any number.
    pub fn word(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `end`; 0 when that is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        // The bias of a 64-bit product over the small ends used here is nothing.
        ((u128::from(self.0.next_u64()) * u128::from(end)) >> 64) as u64
    }

    /// Whether the `part` of `whole` cases occurs.
    pub fn chance(&mut self, part: u64, whole: u64) -> bool {
        self.below(whole) < part
    }

    /// One of several.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }

    /// 32 bytes.
    pub fn bytes(&mut self) -> [u8; 32] {
        let mut bytes = [0; 32];
        self.0.fill_bytes(&mut bytes);
        bytes
    }
}
