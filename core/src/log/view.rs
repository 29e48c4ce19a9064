//! A partition's log as a decision sees it: what is resident, and what scans found for it.

use core::ops::Range;

use super::{Log, Sketch};
use crate::name::PartitionId;
use crate::time::Timestamp;

/// What is known of a partition's log.
#[derive(Clone, Copy)]
pub struct LogView<'a> {
    log: &'a Log,
    partition: PartitionId,
    sketches: &'a [(PartitionId, Sketch)],
}

impl<'a> LogView<'a> {
    /// A log, and what was found of any log.
    pub fn new(log: &'a Log, partition: PartitionId, sketches: &'a [(PartitionId, Sketch)]) -> Self {
        LogView { log, partition, sketches }
    }

    /// A log alone.
    pub fn of(log: &'a Log) -> Self {
        LogView { log, partition: PartitionId::default(), sketches: &[] }
    }

    /// Sketches that leave no gap below what is resident.
    fn sketches(&self) -> impl Iterator<Item = &'a Sketch> {
        let (partition, first) = (self.partition, self.log.first());
        self.sketches.iter().filter(move |(of, sketch)| *of == partition && sketch.upto >= first).map(|it| &it.1)
    }

    /// The first offset of which everything is known.
    pub fn first(&self) -> u64 {
        self.log.first()
    }

    /// Whether every message committed at or after `time` is known.
    pub fn covers(&self, time: Timestamp) -> bool {
        self.log.covers(time)
    }

    /// Whether it is known where a hash stands among messages committed at or after `since`.
    pub fn tells_hash(&self, hash: u64, since: Timestamp) -> bool {
        self.log.covers(since) || self.sketches().any(|sketch| sketch.tells_hash(hash, since))
    }

    /// What a scan found of a hash, if one looked for it.
    fn sketch_of(&self, hash: u64) -> Option<&'a Sketch> {
        self.sketches().find(|sketch| sketch.complete && sketch.question.hashes.contains(&hash))
    }

    /// The lowest offset known with `hash` for which `wanted`, given offset and commit time, holds.
    pub fn lowest(&self, hash: u64, mut wanted: impl FnMut(u64, Timestamp) -> bool) -> Option<u64> {
        let mut older: Option<u64> = None;
        if let Some(sketch) = self.sketch_of(hash) {
            sketch.each(hash, |hit| {
                if hit.offset < self.log.first()
                    && older.is_none_or(|older| hit.offset < older)
                    && wanted(hit.offset, hit.created)
                {
                    older = Some(hit.offset);
                }
            });
        }
        older.or_else(|| self.log.lowest(hash, wanted))
    }

    /// The lowest offset of `range` with `hash` for which `wanted` holds.
    pub fn lowest_in(
        &self,
        range: Range<u64>,
        hash: u64,
        mut wanted: impl FnMut(u64, Timestamp) -> bool,
    ) -> Option<u64> {
        if range.start >= self.log.first() || self.sketches.is_empty() {
            return self.log.lowest_in(range, hash, wanted);
        }
        self.lowest(hash, |offset, created| range.contains(&offset) && wanted(offset, created))
    }

    /// Commit time of the message at `offset`, where that is known. `Timestamp::MIN` stands for "long ago".
    pub fn created_of(&self, offset: u64) -> Option<Timestamp> {
        self.log.created_of(offset).or_else(|| self.sketches().find_map(|sketch| sketch.created_of(offset)))
    }

    /// Commit time of the last durable message, `end` being one past it.
    pub fn last_below(&self, end: u64) -> Option<Timestamp> {
        self.log.last_below(end)
    }

    /// The first offset committed at or after `time`; the next offset where there is none; nothing where it is not known.
    pub fn first_since(&self, time: Timestamp) -> Option<u64> {
        if self.log.covers(time) {
            return Some(self.log.first_since(time));
        }
        let found = self.sketches().find_map(|sketch| sketch.first_since(time))?;
        Some(found.unwrap_or_else(|| self.log.first_since(time)))
    }

    /// Whether the commit times of a range are known, or known to be before `since`.
    pub fn tells_times(&self, range: Range<u64>, since: Timestamp) -> bool {
        self.log.first() <= range.start
            || self.log.covers(since)
            || range.end <= range.start
            || (self.created_of(range.start).is_some() && self.created_of(range.end - 1).is_some())
    }

    /// One past the last offset of `range` committed at or before `time`, where its times are known.
    pub fn end_at(&self, range: Range<u64>, time: Timestamp) -> u64 {
        if self.log.first() <= range.start || self.log.covers(time.next()) {
            return self.log.end_at(time).clamp(range.start, range.end);
        }
        // Commit times never go backwards (OPT-11).
        let (mut low, mut high) = (range.start, range.end);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.created_of(middle).is_some_and(|created| created <= time) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}
