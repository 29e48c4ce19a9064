//! What a scan of a log found that does not fit into memory: the answers to one question, and nothing else (OPT-27).

use alloc::vec::Vec;
use smallvec::SmallVec;

use super::half;
use crate::name::{MessageId, TransactionHash};
use crate::record::SegmentHead;
use crate::time::Timestamp;

/// What somebody wants to know of a partition's log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Question {
    /// Messages committed before this time do not matter,
    pub since: Timestamp,
    /// nor do those below this offset.
    pub from: u64,
    /// Where each of these hashes stands.
    pub hashes: SmallVec<[u64; 1]>,
    /// Commit times from `from` up to this offset; none when they do not matter.
    pub times_to: u64,
    /// Where the first message committed at or after `since` is.
    pub first: bool,
}

impl Question {
    /// Where hashes stand among messages committed at or after `since`.
    pub fn hashes(since: Timestamp, hashes: impl IntoIterator<Item = u64>) -> Self {
        Question { since, from: 0, hashes: hashes.into_iter().collect(), times_to: 0, first: false }
    }

    /// Where the first message committed at or after `since` is.
    pub fn first(since: Timestamp) -> Self {
        Question { since, from: 0, hashes: SmallVec::new(), times_to: 0, first: true }
    }

    /// Commit times of offsets, as far as they are not before `since`.
    pub fn times(since: Timestamp, from: u64, to: u64) -> Self {
        Question { since, from, hashes: SmallVec::new(), times_to: to, first: false }
    }
}

impl Question {
    /// Whether its answer is one to `other` too.
    pub fn answers(&self, other: &Question) -> bool {
        let as_old = if other.first { self.since == other.since } else { self.since <= other.since };
        as_old
            && self.from <= other.from
            && self.times_to >= other.times_to
            && self.first >= other.first
            && other.hashes.iter().all(|hash| self.hashes.contains(hash))
    }
}

/// A message with a hash that was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hit {
    /// Its whole hash.
    pub hash: TransactionHash,
    /// Its offset.
    pub offset: u64,
    /// When it was committed.
    pub created: Timestamp,
    /// Its id.
    pub id: MessageId,
}

/// The answer to a question about the messages below an offset, in the making or complete.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sketch {
    /// The question.
    pub question: Question,
    /// One past the last offset it speaks of.
    pub upto: u64,
    /// Offsets from here to `upto` were looked at.
    pub from: u64,
    /// Everything was looked at.
    pub complete: bool,
    /// Hashes that were looked at.
    pub seen: u64,
    /// What was found of the hashes asked for, newest segment first.
    hits: Vec<Hit>,
    /// Segments with the times asked for, newest first: start and commit time.
    runs: Vec<(u64, Timestamp)>,
    /// The lowest offset looked at that was not committed before the time asked for.
    first: Option<u64>,
}

impl Sketch {
    /// Nothing looked at yet.
    pub fn new(question: Question, upto: u64) -> Self {
        let (hits, runs) = (Vec::new(), Vec::new());
        Sketch { question, upto, from: upto, complete: false, seen: 0, hits, runs, first: None }
    }

    /// Looks at a page, newest segment first. Segments that do not join are left out.
    pub fn look(&mut self, heads: &[SegmentHead], more: bool) {
        let asked = &self.question;
        for head in heads.iter().filter(|head| head.start < self.upto) {
            let end = head.start + head.hashes.len() as u64;
            if head.start >= self.from {
                continue;
            }
            if end < self.from {
                return;
            }
            for ((offset, hash), n) in (head.start..self.upto).zip(&head.hashes).zip(0u32..) {
                if asked.hashes.contains(&half(*hash)) {
                    self.hits.push(Hit { hash: *hash, offset, created: head.created, id: head.base.nth(n) });
                }
            }
            if head.start < asked.times_to && end > asked.from {
                self.runs.push((head.start, head.created));
            }
            if head.created >= asked.since {
                self.first = Some(head.start);
            }
            self.seen += head.hashes.len() as u64;
            self.from = head.start;
        }
        self.complete = !more || self.from <= asked.from;
    }

    /// Whether it says where a hash stands among messages committed at or after `since`.
    pub fn tells_hash(&self, hash: u64, since: Timestamp) -> bool {
        self.complete && self.question.from == 0 && self.question.since <= since && self.question.hashes.contains(&hash)
    }

    /// Where a hash stands.
    pub fn each(&self, hash: u64, seen: impl FnMut(&Hit)) {
        self.hits.iter().filter(|hit| half(hit.hash) == hash).for_each(seen);
    }

    /// The message found at an offset.
    pub fn hit_at(&self, offset: u64) -> Option<&Hit> {
        self.hits.iter().find(|hit| hit.offset == offset)
    }

    /// The first offset committed at or after `time`, where that was asked: none when there is none below `upto`.
    pub fn first_since(&self, time: Timestamp) -> Option<Option<u64>> {
        (self.complete && self.question.first && self.question.since == time).then_some(self.first)
    }

    /// The commit time of an offset it was asked about; `Timestamp::MIN` stands for all that are before the question.
    pub fn created_of(&self, offset: u64) -> Option<Timestamp> {
        let asked = self.question.from..self.question.times_to.min(self.upto);
        if !self.complete || !asked.contains(&offset) {
            return None;
        }
        let run = self.runs.iter().find(|run| run.0 <= offset);
        Some(run.map_or(Timestamp::MIN, |run| run.1))
    }
}
