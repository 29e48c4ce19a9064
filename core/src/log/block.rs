//! A few hundred messages of a log that lie side by side.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use crate::time::Timestamp;

/// A block with this many hashes takes no further segment.
const FULL: usize = 256;
/// Bits of a run's commit time, in microseconds since its block's: nearly nine years.
const TIME_BITS: u32 = 48;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;

/// Whole segments, at least one.
#[derive(Debug)]
pub(super) struct Block {
    /// Offset of its first message.
    pub start: u64,
    /// Commit time of its first segment.
    pub created: Timestamp,
    hashes: Vec<u64>,
    /// Each segment but the first: its place among the hashes (16 bits), and how much later than the first it was
    /// committed.
    runs: Vec<u64>,
}

impl Block {
    /// A block of one message, with room for some more.
    pub fn starting(start: u64, created: Timestamp, hash: u64, room: usize) -> Self {
        let mut hashes = Vec::with_capacity(room.clamp(1, FULL));
        hashes.push(hash);
        Block { start, created, hashes, runs: Vec::new() }
    }

    /// Blocks of segments that follow each other.
    pub fn several<'a>(
        mut start: u64,
        segments: impl Iterator<Item = (Timestamp, &'a [crate::name::TransactionHash])>,
    ) -> VecDeque<Block> {
        let mut blocks: VecDeque<Block> = VecDeque::new();
        for (created, hashes) in segments {
            let halves = hashes.iter().map(|hash| super::half(*hash));
            match blocks.back_mut() {
                Some(block) if block.takes(created) => {
                    block.open(created);
                    block.hashes.extend(halves);
                }
                last => {
                    last.into_iter().for_each(Block::close);
                    blocks.push_back(Block { start, created, hashes: halves.collect(), runs: Vec::new() });
                }
            }
            start += hashes.len() as u64;
        }
        blocks.back_mut().into_iter().for_each(Block::close);
        blocks
    }

    /// How many messages there are.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// One past its last offset.
    pub fn end(&self) -> u64 {
        self.start + self.hashes.len() as u64
    }

    /// The hashes, in order.
    pub fn hashes(&self) -> &[u64] {
        &self.hashes
    }

    /// The hash at an offset.
    pub fn hash(&self, offset: u64) -> Option<u64> {
        self.hashes.get(usize::try_from(offset.checked_sub(self.start)?).ok()?).copied()
    }

    /// Whether another segment has room here.
    pub fn takes(&self, created: Timestamp) -> bool {
        self.hashes.len() < FULL && created.since(self.created).as_micros() as u64 <= TIME_MASK
    }

    fn open(&mut self, created: Timestamp) {
        let later = created.since(self.created).as_micros().max(0) as u64;
        if self.runs.is_empty() && self.hashes.capacity() == FULL {
            self.runs.reserve_exact(8);
        }
        self.runs.push((self.hashes.len() as u64) << TIME_BITS | later);
    }

    /// Appends a message, as the first of a segment or to the last one.
    pub fn append(&mut self, created: Timestamp, hash: u64, opens: bool) {
        if opens {
            self.open(created);
        }
        self.hashes.push(hash);
    }

    /// Nothing more is appended.
    pub fn close(&mut self) {
        self.hashes.shrink_to_fit();
        self.runs.shrink_to_fit();
    }

    /// Drops what stands at `next` and behind; answers those hashes.
    pub fn truncate(&mut self, next: u64) -> Vec<u64> {
        let keep = usize::try_from(next.saturating_sub(self.start)).unwrap_or(usize::MAX).min(self.hashes.len());
        let cut = if keep < self.hashes.len() { self.hashes.split_off(keep) } else { vec![] };
        self.runs.truncate(self.runs.partition_point(|run| ((run >> TIME_BITS) as usize) < keep));
        cut
    }

    /// Commit time of its last segment.
    pub fn last(&self) -> Timestamp {
        self.runs.last().map_or(self.created, |run| self.time(*run))
    }

    fn time(&self, run: u64) -> Timestamp {
        self.created.plus(crate::time::Span::from_micros((run & TIME_MASK) as i64))
    }

    /// Start and commit time of the segment that holds an offset.
    pub fn run_of(&self, offset: u64) -> Option<(u64, Timestamp)> {
        let place = offset.checked_sub(self.start).filter(|place| *place < self.hashes.len() as u64)?;
        let behind = match self.runs.last() {
            Some(last) if last >> TIME_BITS <= place => self.runs.len(),
            _ => self.runs.partition_point(|run| run >> TIME_BITS <= place),
        };
        match behind.checked_sub(1).and_then(|at| self.runs.get(at)) {
            Some(run) => Some((self.start + (run >> TIME_BITS), self.time(*run))),
            None => Some((self.start, self.created)),
        }
    }

    /// Start of the first segment committed at or after `time`.
    pub fn first_since(&self, time: Timestamp) -> Option<u64> {
        if self.created >= time {
            return Some(self.start);
        }
        let at = self.runs.partition_point(|run| self.time(*run) < time);
        self.runs.get(at).map(|run| self.start + (run >> TIME_BITS))
    }

    /// Bytes on the heap.
    pub fn bytes(&self) -> usize {
        (self.hashes.capacity() + self.runs.capacity()) * size_of::<u64>()
    }
}
