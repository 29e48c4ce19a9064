//! What memory holds of a partition's log: where its segments start, when they were committed, and the hash of every
//! transaction id. Payloads stay in the store.
//!
//! One million partitions of one message each have to fit in memory, so the first segment and the first hash stand in
//! line, and a lookup table appears only once a scan would cost more than it.

use alloc::boxed::Box;
use core::ops::Range;
use hashbrown::HashTable;
use smallvec::SmallVec;

use crate::name::{MessageId, TransactionHash};
use crate::time::Timestamp;

/// Up to this many hashes are scanned; beyond, a table finds them.
const SCANNED_HASHES: usize = 16;

/// One segment: its messages run from `start` to the next run's start.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Offset of its first message.
    pub start: u64,
    /// Commit time.
    pub created: Timestamp,
    /// Id of its first message.
    pub base: MessageId,
}

/// A hash in two halves: a `u128` would be padded to its alignment of 16.
type Halves = [u64; 2];

/// The log of one partition, from the first kept hash to the last message, durable or not.
#[derive(Default, Debug)]
pub struct Log {
    next: u64,
    runs: SmallVec<[Run; 1]>,
    hashes: SmallVec<[Halves; 1]>,
    /// Offsets (their low 32 bits) by hash; never iterated.
    table: Option<Box<HashTable<u32>>>,
}

fn halves(hash: TransactionHash) -> Halves {
    [(hash.0 >> 64) as u64, hash.0 as u64]
}

impl Log {
    /// The next offset.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The segments, oldest first.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The first offset whose hash is still known.
    fn hash_start(&self) -> u64 {
        self.next - self.hashes.len() as u64
    }

    /// An empty log whose first message will have offset `next`: what is older is not kept.
    pub fn starting_at(next: u64) -> Self {
        Log { next, ..Log::default() }
    }

    /// Starts a segment at the next offset.
    pub fn open(&mut self, created: Timestamp, base: MessageId) {
        self.runs.push(Run { start: self.next, created, base });
    }

    /// Appends a message to the last segment; answers its offset.
    pub fn append(&mut self, hash: TransactionHash) -> u64 {
        let offset = self.next;
        self.hashes.push(halves(hash));
        self.next += 1;
        let first = self.hash_start();
        if let Some(table) = &mut self.table {
            let hashes = &self.hashes;
            table.insert_unique(hash.0 as u64, offset as u32, |&low| hashes[place(first, low)][1]);
        } else if self.hashes.len() > SCANNED_HASHES {
            self.build_table();
        }
        offset
    }

    fn build_table(&mut self) {
        let first = self.hash_start();
        let mut table = HashTable::with_capacity(self.hashes.len() * 2);
        for (offset, hash) in (first..).zip(&self.hashes) {
            table.insert_unique(hash[1], offset as u32, |&low: &u32| self.hashes[place(first, low)][1]);
        }
        self.table = Some(Box::new(table));
    }

    /// Forgets everything from offset `next` on: a commit did not happen.
    pub fn truncate(&mut self, next: u64) {
        let first = self.hash_start();
        while self.next > next {
            let Some(hash) = self.hashes.pop() else { break };
            self.next -= 1;
            if let Some(table) = &mut self.table
                && let Ok(entry) = table.find_entry(hash[1], |&low| low == self.next as u32)
            {
                entry.remove();
            }
        }
        debug_assert_eq!(first, self.hash_start());
        while self.runs.last().is_some_and(|run| run.start >= next) {
            self.runs.pop();
        }
    }

    /// The lowest offset with `hash` for which `wanted` holds.
    pub fn lowest(&self, hash: TransactionHash, mut wanted: impl FnMut(u64) -> bool) -> Option<u64> {
        let first = self.hash_start();
        let hash = halves(hash);
        match &self.table {
            Some(table) => table
                .iter_hash(hash[1])
                .map(|&low| first + place(first, low) as u64)
                .filter(|&offset| self.hashes[(offset - first) as usize] == hash && wanted(offset))
                .min(),
            None => (first..).zip(&self.hashes).find(|&(offset, have)| *have == hash && wanted(offset)).map(|it| it.0),
        }
    }

    /// The lowest offset of `range` with `hash` for which `wanted` holds. A short range is scanned: its hashes lie side by
    /// side, the table's places all over memory.
    pub fn lowest_in(
        &self,
        range: Range<u64>,
        hash: TransactionHash,
        mut wanted: impl FnMut(u64) -> bool,
    ) -> Option<u64> {
        let start = self.hash_start();
        let range = range.start.max(start)..range.end.min(self.next);
        if range.end.saturating_sub(range.start) > SCANNED_HASHES as u64 {
            return self.lowest(hash, |offset| range.contains(&offset) && wanted(offset));
        }
        let hash = halves(hash);
        let mut offsets = range;
        offsets.find(|&offset| self.hashes[(offset - start) as usize] == hash && wanted(offset))
    }

    /// The segment that holds `offset`.
    pub fn run_of(&self, offset: u64) -> Option<&Run> {
        if offset >= self.next {
            return None;
        }
        // Consumers that keep up ask for the tail.
        if let Some(last) = self.runs.last().filter(|last| last.start <= offset) {
            return Some(last);
        }
        self.runs[..self.runs.partition_point(|run| run.start <= offset)].last()
    }

    /// Commit time of the message at `offset`.
    pub fn created_of(&self, offset: u64) -> Option<Timestamp> {
        self.run_of(offset).map(|run| run.created)
    }

    /// Id of the message at `offset`.
    pub fn id_of(&self, offset: u64) -> Option<MessageId> {
        self.run_of(offset).map(|run| run.base.nth((offset - run.start) as u32))
    }

    /// Hash of the message at `offset`.
    pub fn hash_of(&self, offset: u64) -> Option<TransactionHash> {
        let at = offset.checked_sub(self.hash_start())?;
        let hash = self.hashes.get(at as usize)?;
        Some(TransactionHash((u128::from(hash[0]) << 64) | u128::from(hash[1])))
    }

    /// The first offset committed at or after `time`; the next offset where there is none.
    pub fn first_since(&self, time: Timestamp) -> u64 {
        self.runs.get(self.runs.partition_point(|run| run.created < time)).map_or(self.next, |run| run.start)
    }

    /// One past the last offset committed at or before `time`.
    pub fn end_at(&self, time: Timestamp) -> u64 {
        self.runs.get(self.runs.partition_point(|run| run.created <= time)).map_or(self.next, |run| run.start)
    }
}

/// Where the hash of an offset, known by its low 32 bits, stands behind the first one.
fn place(first: u64, low: u32) -> usize {
    low.wrapping_sub(first as u32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use uuid::Uuid;

    fn log_of(hashes: &[u128], per_run: usize) -> Log {
        let mut log = Log::default();
        for (n, hash) in hashes.iter().enumerate() {
            if n % per_run == 0 {
                log.open(Timestamp::from_micros(n as i64), MessageId(Uuid::from_u128(1_000 * n as u128)));
            }
            assert_eq!(log.append(TransactionHash(*hash)), n as u64);
        }
        log
    }

    #[test]
    fn finds_the_lowest_of_equal_hashes_scanned_or_by_table() {
        for size in [5usize, 1_000] {
            let hashes: Vec<u128> = (0..size as u128).map(|n| n % (size as u128 / 2)).collect();
            let log = log_of(&hashes, 3);
            for n in 0..size as u64 / 2 {
                let hash = TransactionHash(u128::from(n));
                assert_eq!(log.lowest(hash, |_| true), Some(n));
                assert_eq!(log.lowest(hash, |offset| offset > n), Some(n + size as u64 / 2));
            }
            assert_eq!(log.lowest(TransactionHash(u128::MAX), |_| true), None);
            let twice = TransactionHash(1);
            let again = size as u64 / 2 + 1;
            for end in [again, again + 1, again + 100] {
                let found = (again < end.min(size as u64)).then_some(again);
                assert_eq!(log.lowest_in(2..end, twice, |_| true), found);
                assert_eq!(log.lowest_in(0..end, twice, |_| true), Some(1));
                assert_eq!(log.lowest_in(0..end, twice, |offset| offset > 1), found);
            }
            assert_eq!(log.lowest_in(3..3, twice, |_| true), None);
        }
    }

    #[test]
    fn truncating_forgets_hashes_runs_and_offsets() {
        for size in [5u64, 100] {
            let hashes: Vec<u128> = (0..u128::from(size)).collect();
            let mut log = log_of(&hashes, 2);
            log.truncate(2);
            assert_eq!((log.next(), log.runs().len()), (2, 1));
            assert_eq!(log.lowest(TransactionHash(1), |_| true), Some(1));
            assert_eq!(log.lowest(TransactionHash(2), |_| true), None);
            log.open(Timestamp::from_micros(9), MessageId(Uuid::nil()));
            assert_eq!(log.append(TransactionHash(2)), 2);
            assert_eq!(log.created_of(2), Some(Timestamp::from_micros(9)));
        }
    }

    #[test]
    fn times_and_offsets_meet_at_segment_borders() {
        let log = log_of(&[0, 1, 2, 3, 4, 5], 3);
        assert_eq!(log.first_since(Timestamp::from_micros(1)), 3);
        assert_eq!(log.first_since(Timestamp::from_micros(3)), 3);
        assert_eq!(log.first_since(Timestamp::from_micros(4)), 6);
        assert_eq!(log.end_at(Timestamp::from_micros(-1)), 0);
        assert_eq!(log.end_at(Timestamp::from_micros(2)), 3);
        assert_eq!(log.end_at(Timestamp::from_micros(3)), 6);
        assert_eq!(log.id_of(4), Some(MessageId(Uuid::from_u128(3_001))));
        assert_eq!(log.id_of(6), None);
    }
}
