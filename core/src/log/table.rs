//! Finds offsets by hash: open addressing in four bytes a place, grown by a quarter, with nothing ever taken out.
//!
//! A place holds the low bits of an offset, as many as tell the offsets in memory apart, and in what is left over some
//! bits of the hash. The hashes themselves stand in the log, so a place that points nowhere any more does no harm: it is
//! seen when it is followed, and goes when the table is built anew.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use core::ops::Range;

use super::block::Block;

/// Places in the smallest table.
const LEAST: usize = 32;

#[derive(Debug)]
pub(super) struct Table {
    /// 0 is empty.
    places: Box<[u32]>,
    /// Places that are not empty.
    taken: usize,
    /// Low bits of a place that are an offset's.
    bits: u32,
    /// Offsets, in order, of hashes that stand in a place already with another offset: equal hashes would make a table
    /// slow.
    repeats: BTreeMap<u64, VecDeque<u64>>,
    /// Something could not be put in.
    crowded: bool,
}

impl Table {
    /// A table with room for `count` hashes, from offset `first` on, and a quarter more.
    pub fn for_hashes(count: u64) -> Self {
        let places = usize::try_from(count).unwrap_or(usize::MAX / 64) / 16 * 25 + LEAST;
        let bits = (count.saturating_mul(2) + LEAST as u64).ilog2() + 1;
        let places = vec![0; places].into_boxed_slice();
        Table { places, taken: 0, bits: bits.min(31), repeats: BTreeMap::new(), crowded: false }
    }

    /// Whether `more` hashes can be put in, when the offsets in use are `range`.
    pub fn has_room(&self, range: Range<u64>, more: usize) -> bool {
        self.taken + more <= self.places.len() / 5 * 4 && range.end - range.start <= 1 << self.bits && !self.crowded
    }

    /// Whether something could not be put in, so that it has to be built anew.
    pub fn is_crowded(&self) -> bool {
        self.crowded
    }

    /// Bytes on the heap, those of repeats by estimate.
    pub fn bytes(&self) -> usize {
        let repeated: usize = self.repeats.values().map(VecDeque::capacity).sum();
        self.places.len() * size_of::<u32>() + (repeated + self.repeats.len() * 6) * size_of::<u64>()
    }

    /// Whether some hash stands at several offsets.
    pub fn has_repeats(&self) -> bool {
        !self.repeats.is_empty()
    }

    fn home(&self, hash: u64) -> usize {
        (((hash >> 32) * self.places.len() as u64) >> 32) as usize
    }

    fn tag(&self, hash: u64) -> u32 {
        (hash as u32).checked_shr(self.bits).unwrap_or(0).max(1) << self.bits
    }

    fn mask(&self) -> u64 {
        (1 << self.bits) - 1
    }

    /// The offset, at or above `first`, that a place with fitting tag means.
    fn offset(&self, place: u32, first: u64) -> u64 {
        first + (u64::from(place).wrapping_sub(first) & self.mask())
    }

    /// Puts in a hash that stands in the blocks at `offset`.
    pub fn insert(&mut self, blocks: &VecDeque<Block>, hash: u64, offset: u64) {
        let (tag, mask) = (self.tag(hash), self.mask());
        let first = blocks.front().map_or(offset, |block| block.start);
        let mut at = self.home(hash);
        loop {
            let place = self.places[at];
            if place == 0 {
                self.places[at] = tag | (offset & mask) as u32;
                self.taken += 1;
                return;
            }
            if place & !(mask as u32) == tag {
                let other = self.offset(place, first);
                if other == offset {
                    return;
                }
                if hash_at(blocks, other) == Some(hash) {
                    let offsets = self.repeats.entry(hash).or_default();
                    if let Err(at) = offsets.binary_search(&offset) {
                        offsets.insert(at, offset);
                    }
                    return;
                }
            }
            at = if at + 1 == self.places.len() { 0 } else { at + 1 };
        }
    }

    /// Offsets between `first` and `next` that may have this hash.
    pub fn each(&self, hash: u64, first: u64, next: u64, mut seen: impl FnMut(u64)) {
        let (tag, mask) = (self.tag(hash), self.mask());
        let mut at = self.home(hash);
        while self.places[at] != 0 {
            let place = self.places[at];
            if place & !(mask as u32) == tag {
                let offset = self.offset(place, first);
                if offset < next {
                    seen(offset);
                }
            }
            at = if at + 1 == self.places.len() { 0 } else { at + 1 };
        }
        if !self.repeats.is_empty()
            && let Some(offsets) = self.repeats.get(&hash)
        {
            offsets.iter().copied().filter(|offset| (first..next).contains(offset)).for_each(seen);
        }
    }

    /// The hash no longer stands at `offset`, which is in no block any more: if it stands elsewhere, one place points
    /// there.
    pub fn forget(&mut self, blocks: &VecDeque<Block>, hash: u64, offset: u64) {
        let Some(offsets) = self.repeats.get_mut(&hash) else { return };
        let successor = match offsets.binary_search(&offset) {
            Ok(at) => {
                offsets.remove(at);
                None
            }
            Err(_) => offsets.pop_back(),
        };
        if offsets.is_empty() {
            self.repeats.remove(&hash);
        }
        match successor {
            Some(successor) if self.taken < self.places.len() / 10 * 9 => self.insert(blocks, hash, successor),
            Some(_) => self.crowded = true,
            None => {}
        }
    }
}

fn hash_at(blocks: &VecDeque<Block>, offset: u64) -> Option<u64> {
    if let Some(last) = blocks.back().filter(|last| last.start <= offset) {
        return last.hash(offset);
    }
    blocks.get(blocks.partition_point(|block| block.start <= offset).checked_sub(1)?)?.hash(offset)
}
