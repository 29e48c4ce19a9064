//! What memory holds of a partition's log: where its segments start, when they were committed, and eight bytes of the
//! hash of every transaction id. Payloads, ids and whole hashes stay in the store.
//!
//! A log is resident from some offset on; what is older is in the store alone, and may be put in front again page by
//! page. `covers` says from when on nothing is missing. A hash costs at most 24 bytes, everything included (OPT-27):
//! eight for itself, up to eight for its segment, and a place in the table that finds it. One million partitions of one
//! message each have to fit too, so the first message stands in line.

mod block;
mod sketch;
mod table;
mod view;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::ops::Range;

use crate::name::TransactionHash;
use crate::record::SegmentHead;
use crate::time::Timestamp;
use block::Block;
pub use sketch::{Hit, Question, Sketch};
use table::Table;
pub use view::LogView;

/// Up to this many hashes are scanned; beyond, a table finds them.
const SCANNED_HASHES: u64 = 16;

/// What is kept of a hash, and compared: half of it. A hit is checked against the stored transaction id, or is the
/// caller's own message.
pub fn half(hash: TransactionHash) -> u64 {
    hash.0 as u64
}

/// The log of one partition, up to the last message, durable or not.
#[derive(Debug)]
pub struct Log {
    next: u64,
    /// No message that is not resident was committed later than this.
    before: Timestamp,
    resident: Resident,
}

#[derive(Debug)]
enum Resident {
    Nothing,
    /// The last message.
    One(Timestamp, u64),
    Many(Box<Body>),
}

#[derive(Debug)]
struct Body {
    /// Oldest first, without gaps; never empty.
    blocks: VecDeque<Block>,
    /// Bytes of all blocks but the last.
    closed: usize,
    table: Option<Table>,
    /// When the log was last used, as its keeper counts.
    used: u64,
    /// Bytes that its keeper has counted.
    charged: usize,
}

impl Default for Log {
    fn default() -> Self {
        Log { next: 0, before: Timestamp::MIN, resident: Resident::Nothing }
    }
}

impl Log {
    /// A log of which nothing is resident: its next offset, and the commit time of its last message.
    pub fn cold(next: u64, last: Option<Timestamp>) -> Self {
        Log { next, before: last.unwrap_or(Timestamp::MIN), resident: Resident::Nothing }
    }

    /// The next offset.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The first resident offset; the next offset where nothing is resident.
    pub fn first(&self) -> u64 {
        match &self.resident {
            Resident::Nothing => self.next,
            Resident::One(..) => self.next - 1,
            Resident::Many(body) => body.blocks.front().map_or(self.next, |block| block.start),
        }
    }

    /// Whether every message committed at or after `time` is resident.
    pub fn covers(&self, time: Timestamp) -> bool {
        self.before < time || self.first() == 0
    }

    /// Commit time of the last message; none before the first.
    pub fn last(&self) -> Option<Timestamp> {
        match &self.resident {
            Resident::Nothing => Some(self.before).filter(|_| self.next > 0),
            Resident::One(created, _) => Some(*created),
            Resident::Many(body) => body.blocks.back().map(Block::last),
        }
    }

    /// Appends a message, as the first of a segment or to the last one; answers its offset.
    pub fn append(&mut self, created: Timestamp, hash: TransactionHash, opens: bool) -> u64 {
        let (offset, hash) = (self.next, half(hash));
        self.next += 1;
        match &mut self.resident {
            Resident::Nothing => self.resident = Resident::One(created, hash),
            Resident::One(first, lone) => {
                let mut body = Body::of(Block::starting(offset - 1, *first, *lone, 4));
                body.append(offset, created, hash, opens);
                self.resident = Resident::Many(Box::new(body));
            }
            Resident::Many(body) => body.append(offset, created, hash, opens),
        }
        offset
    }

    /// Forgets everything from offset `next` on: a commit did not happen.
    pub fn truncate(&mut self, next: u64) {
        match &mut self.resident {
            Resident::Nothing => {}
            Resident::One(..) => {
                if next < self.next {
                    self.resident = Resident::Nothing;
                }
            }
            Resident::Many(body) => {
                body.truncate(next);
                if body.blocks.is_empty() {
                    self.resident = Resident::Nothing;
                }
            }
        }
        self.next = self.next.min(next);
    }

    /// Puts older segments, newest first, in front of what is resident. `more`: whether the store has older ones that
    /// were committed at or after `since`. Segments that do not join are left out; answers whether any did, or nothing
    /// was missing.
    pub fn prepend(&mut self, heads: &[SegmentHead], since: Timestamp, more: bool) -> bool {
        let first = self.first();
        let fits = |head: &&SegmentHead| head.start < first;
        let mut end = first;
        let joining: VecDeque<&SegmentHead> = heads
            .iter()
            .filter(fits)
            .take_while(|head| {
                let joins = !head.hashes.is_empty() && head.start + head.hashes.len() as u64 == end;
                end = head.start;
                joins
            })
            .collect();
        let whole = joining.len() == heads.iter().filter(fits).count();
        if let Some(oldest) = joining.back() {
            self.before = if oldest.start == 0 { Timestamp::MIN } else { self.before.min(oldest.created) };
            let segments = joining.iter().rev().map(|head| (head.created, &head.hashes[..]));
            let blocks = Block::several(oldest.start, segments);
            self.put_in_front(blocks);
        }
        if whole && !more {
            self.before = self.before.min(Timestamp::from_micros(since.as_micros().saturating_sub(1)));
        }
        whole
    }

    fn put_in_front(&mut self, mut blocks: VecDeque<Block>) {
        let mut body = match core::mem::replace(&mut self.resident, Resident::Nothing) {
            Resident::Many(body) => body,
            Resident::One(created, lone) => Box::new(Body::of(Block::starting(self.next - 1, created, lone, 1))),
            Resident::Nothing => match blocks.pop_back() {
                Some(last) => Box::new(Body::of(last)),
                None => return,
            },
        };
        let mut added = 0;
        while let Some(block) = blocks.pop_back() {
            body.closed += block.bytes();
            added += block.len();
            body.blocks.push_front(block);
        }
        body.find_first(added);
        self.resident = Resident::Many(body);
    }

    /// Drops what was committed before `time`, in blocks; nothing from offset `keep` on.
    pub fn drop_before(&mut self, time: Timestamp, keep: u64) {
        let Resident::Many(body) = &mut self.resident else { return };
        while let Some(second) = body.blocks.get(1)
            && second.created < time
            && second.start <= keep
        {
            let Some(block) = body.blocks.pop_front() else { return };
            self.before = block.last();
            body.closed -= block.bytes();
            body.forget(&block);
        }
    }

    /// Drops everything.
    pub fn chill(&mut self) {
        *self = Log::cold(self.next, self.last());
    }

    /// Bytes on the heap.
    pub fn bytes(&self) -> usize {
        match &self.resident {
            Resident::Nothing | Resident::One(..) => 0,
            Resident::Many(body) => body.bytes(),
        }
    }

    /// Counts its bytes anew: what was counted before, and what is from now on.
    pub fn charge(&mut self) -> (usize, usize) {
        let bytes = self.bytes();
        match &mut self.resident {
            Resident::Nothing | Resident::One(..) => (0, 0),
            Resident::Many(body) => (core::mem::replace(&mut body.charged, bytes), bytes),
        }
    }

    /// Bytes that were counted, which no longer are.
    pub fn discharge(&mut self) -> usize {
        match &mut self.resident {
            Resident::Nothing | Resident::One(..) => 0,
            Resident::Many(body) => core::mem::take(&mut body.charged),
        }
    }

    /// When it was last used; none where it has nothing on the heap.
    pub fn used(&self) -> Option<u64> {
        match &self.resident {
            Resident::Nothing | Resident::One(..) => None,
            Resident::Many(body) => Some(body.used),
        }
    }

    /// Notes a use.
    pub fn touch(&mut self, use_number: u64) {
        if let Resident::Many(body) = &mut self.resident {
            body.used = use_number;
        }
    }

    /// The lowest resident offset with `hash` for which `wanted`, given offset and commit time, holds.
    pub fn lowest(&self, hash: u64, mut wanted: impl FnMut(u64, Timestamp) -> bool) -> Option<u64> {
        match &self.resident {
            Resident::Nothing => None,
            Resident::One(created, lone) => {
                let offset = self.next - 1;
                (*lone == hash && wanted(offset, *created)).then_some(offset)
            }
            Resident::Many(body) => match &body.table {
                None => body.scan(self.first()..self.next, hash, &mut wanted),
                Some(table) => {
                    let mut lowest: Option<u64> = None;
                    table.each(hash, self.first(), self.next, |offset| {
                        if let Some((created, have)) = body.at(offset)
                            && have == hash
                            && lowest.is_none_or(|lowest| offset < lowest)
                            && wanted(offset, created)
                        {
                            lowest = Some(offset);
                        }
                    });
                    lowest
                }
            },
        }
    }

    /// The lowest resident offset of `range` with `hash` for which `wanted` holds. A short range is scanned: its hashes
    /// lie side by side, the table's places all over memory.
    pub fn lowest_in(
        &self,
        range: Range<u64>,
        hash: u64,
        mut wanted: impl FnMut(u64, Timestamp) -> bool,
    ) -> Option<u64> {
        let range = range.start.max(self.first())..range.end.min(self.next);
        match &self.resident {
            Resident::Many(body) if range.end.saturating_sub(range.start) <= SCANNED_HASHES => {
                body.scan(range, hash, &mut wanted)
            }
            _ => self.lowest(hash, |offset, created| range.contains(&offset) && wanted(offset, created)),
        }
    }

    /// Commit time of a resident message, and where its segment starts.
    pub fn segment_of(&self, offset: u64) -> Option<(u64, Timestamp)> {
        if offset < self.first() || offset >= self.next {
            return None;
        }
        match &self.resident {
            Resident::Nothing => None,
            Resident::One(created, _) => Some((offset, *created)),
            Resident::Many(body) => body.block_of(offset).and_then(|block| block.run_of(offset)),
        }
    }

    /// Commit time of the message at `offset`, where that is known.
    pub fn created_of(&self, offset: u64) -> Option<Timestamp> {
        if offset + 1 == self.next {
            return self.last();
        }
        self.segment_of(offset).map(|run| run.1)
    }

    /// Commit time of the last message below `end`, the durable end, behind which everything is resident.
    pub fn last_below(&self, end: u64) -> Option<Timestamp> {
        // Where nothing durable is resident, nothing was put in front either: `before` is exact.
        if end == self.first() { Some(self.before) } else { self.created_of(end.checked_sub(1)?) }
    }

    /// The first offset committed at or after `time`, which the log has to cover; the next offset where there is none.
    pub fn first_since(&self, time: Timestamp) -> u64 {
        match &self.resident {
            Resident::Nothing => self.next,
            Resident::One(created, _) => self.next - u64::from(*created >= time),
            Resident::Many(body) => {
                let at = body.blocks.partition_point(|block| block.last() < time);
                body.blocks.get(at).and_then(|block| block.first_since(time)).unwrap_or(self.next)
            }
        }
    }

    /// One past the last offset committed at or before `time`; the log has to cover what is later.
    pub fn end_at(&self, time: Timestamp) -> u64 {
        self.first_since(time.next())
    }
}

impl Body {
    fn of(block: Block) -> Self {
        let mut blocks = VecDeque::with_capacity(1);
        blocks.push_back(block);
        let mut body = Body { blocks, closed: 0, table: None, used: 0, charged: 0 };
        body.find_by_table();
        body
    }

    fn bytes(&self) -> usize {
        size_of::<Body>()
            + self.blocks.capacity() * size_of::<Block>()
            + self.closed
            + self.blocks.back().map_or(0, Block::bytes)
            + self.table.as_ref().map_or(0, Table::bytes)
    }

    fn len(&self) -> u64 {
        match (self.blocks.front(), self.blocks.back()) {
            (Some(first), Some(last)) => last.end() - first.start,
            _ => 0,
        }
    }

    fn append(&mut self, offset: u64, created: Timestamp, hash: u64, opens: bool) {
        match self.blocks.back_mut() {
            Some(block) if !opens || block.takes(created) => block.append(created, hash, opens),
            last => {
                let room = last.map_or(1, |last| {
                    let room = last.len();
                    last.close();
                    self.closed += last.bytes();
                    room
                });
                self.blocks.push_back(Block::starting(offset, created, hash, room));
            }
        }
        let first = self.blocks.front().map_or(offset, |block| block.start);
        match &mut self.table {
            Some(table) if table.has_room(first..offset + 1, 1) => table.insert(&self.blocks, hash, offset),
            _ => self.find_by_table(),
        }
    }

    /// The first `count` hashes are new: lets the table find them.
    fn find_first(&mut self, mut count: usize) {
        let range = self.blocks.front().map_or(0, |block| block.start)..self.blocks.back().map_or(0, Block::end);
        let Some(table) = self.table.as_mut().filter(|table| table.has_room(range, count)) else {
            return self.find_by_table();
        };
        for block in &self.blocks {
            for (offset, hash) in (block.start..).zip(block.hashes()).take(count) {
                table.insert(&self.blocks, *hash, offset);
            }
            count = count.saturating_sub(block.len());
            if count == 0 {
                break;
            }
        }
    }

    /// Builds the table anew where there are too many hashes to be scanned.
    fn find_by_table(&mut self) {
        self.table = None;
        if self.len() <= SCANNED_HASHES {
            return;
        }
        let mut table = Table::for_hashes(self.len());
        for block in &self.blocks {
            for (offset, hash) in (block.start..).zip(block.hashes()) {
                table.insert(&self.blocks, *hash, offset);
            }
        }
        self.table = Some(table);
    }

    /// The block was taken out: its hashes are no longer found, others that are equal to them are.
    fn forget(&mut self, block: &Block) {
        if let Some(table) = self.table.as_mut().filter(|table| table.has_repeats()) {
            for (offset, hash) in (block.start..).zip(block.hashes()) {
                table.forget(&self.blocks, *hash, offset);
            }
            if table.is_crowded() {
                self.find_by_table();
            }
        }
    }

    fn truncate(&mut self, next: u64) {
        while let Some(last) = self.blocks.back_mut() {
            let cut = last.truncate(next);
            let (from, rest) = (last.end(), last.len());
            if let Some(table) = self.table.as_mut().filter(|table| table.has_repeats()) {
                for (offset, hash) in (from..).zip(cut) {
                    table.forget(&self.blocks, hash, offset);
                }
            }
            if rest > 0 {
                break;
            }
            self.blocks.pop_back();
            if let Some(last) = self.blocks.back() {
                self.closed -= last.bytes();
            }
        }
        if self.table.as_ref().is_some_and(Table::is_crowded) {
            self.find_by_table();
        }
    }

    fn block_of(&self, offset: u64) -> Option<&Block> {
        // Consumers that keep up ask for the tail.
        if let Some(last) = self.blocks.back().filter(|last| last.start <= offset) {
            return Some(last);
        }
        self.blocks.get(self.blocks.partition_point(|block| block.start <= offset).checked_sub(1)?)
    }

    fn at(&self, offset: u64) -> Option<(Timestamp, u64)> {
        let block = self.block_of(offset)?;
        Some((block.run_of(offset)?.1, block.hash(offset)?))
    }

    fn scan(&self, range: Range<u64>, hash: u64, wanted: &mut impl FnMut(u64, Timestamp) -> bool) -> Option<u64> {
        let mut offset = range.start;
        while offset < range.end {
            let block = self.block_of(offset)?;
            let end = range.end.min(block.end());
            let from = (offset - block.start) as usize;
            for (at, _) in (offset..end).zip(&block.hashes()[from..]).filter(|(_, have)| **have == hash) {
                if wanted(at, block.run_of(at)?.1) {
                    return Some(at);
                }
            }
            offset = end.max(offset + 1);
        }
        None
    }
}

#[cfg(test)]
mod tests;
