//! Numbers for names, and hashes that are the same in every run.

use std::hash::Hash;

use hashbrown::HashMap;

/// Gives out small numbers for large keys, in order of first sight.
#[derive(Clone, Debug)]
pub struct Interner<K> {
    numbers: HashMap<K, u32, Spread>,
    keys: Vec<K>,
}

impl<K> Default for Interner<K> {
    fn default() -> Self {
        Interner { numbers: HashMap::default(), keys: Vec::new() }
    }
}

impl<K: Hash + Eq + Clone> Interner<K> {
    /// The key's number: the one it has, or the next.
    pub fn of(&mut self, key: &K) -> u32 {
        if let Some(number) = self.numbers.get(key) {
            return *number;
        }
        let number = self.keys.len() as u32;
        self.numbers.insert(key.clone(), number);
        self.keys.push(key.clone());
        number
    }

    /// The key's number, if it was seen.
    pub fn find(&self, key: &K) -> Option<u32> {
        self.numbers.get(key).copied()
    }

    /// The key behind a number.
    pub fn key(&self, number: u32) -> Option<&K> {
        self.keys.get(number as usize)
    }

    /// How many numbers were given out; the next one is this.
    pub fn len(&self) -> u32 {
        self.keys.len() as u32
    }

    /// Whether none was given out.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

/// Hashes of maps that nobody iterates: fast, and the same in every run.
#[derive(Clone, Copy, Default, Debug)]
pub struct Spread;

impl std::hash::BuildHasher for Spread {
    type Hasher = Folded;

    fn build_hasher(&self) -> Folded {
        Folded(0)
    }
}

/// What `Spread` builds: a multiplication for each word that is hashed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Folded(u64);

impl std::hash::Hasher for Folded {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            self.write_u64(word.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)));
        }
        for byte in words.remainder() {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, word: u64) {
        // 2^64 divided by the golden ratio, both halves of the product: the map looks at the top and the bottom bits.
        let product = u128::from(self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        self.0 = (product >> 64) as u64 ^ product as u64;
    }

    fn write_u128(&mut self, word: u128) {
        self.write_u64(word as u64);
        self.write_u64((word >> 64) as u64);
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_u16(&mut self, word: u16) {
        self.write_u64(u64::from(word));
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}
