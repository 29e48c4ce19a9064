//! Who owns a slot, and which commits it has seen.

use compact_str::CompactString;
use tidegate_core::store::{CommitKey, Epoch, Fence, SlotView, Token};

/// A slot's row.
#[derive(Clone, Default)]
pub(crate) struct Ownership {
    epoch: Epoch,
    token: Option<Token>,
    owner: Option<CompactString>,
    beat: u64,
    pub(crate) commits: CommitLog,
}

impl Ownership {
    /// The row as everybody may see it.
    pub(crate) fn view(&self) -> SlotView {
        SlotView { epoch: self.epoch, token: self.token, owner: self.owner.clone(), beat: self.beat, gone: false }
    }

    /// Whether `fence` is the owner's. A slot without an owner has no token, so nobody's is.
    pub(crate) fn admits(&self, fence: &Fence) -> bool {
        self.epoch == fence.epoch && self.token == Some(fence.token)
    }

    /// A new owner, unless the epoch is no longer `seen`.
    pub(crate) fn take(&mut self, seen: Epoch, token: Token, owner: CompactString) -> Option<Epoch> {
        if self.epoch != seen {
            return None;
        }
        self.owner = Some(owner);
        Some(self.raise(token))
    }

    /// Shuts out every request under the epoch until now.
    pub(crate) fn raise(&mut self, token: Token) -> Epoch {
        self.epoch = Epoch(self.epoch.0.saturating_add(1));
        self.token = Some(token);
        self.epoch
    }

    /// A sign of life.
    pub(crate) fn renew(&mut self) {
        self.beat = self.beat.wrapping_add(1);
    }

    /// No owner from now on; the epoch stays, so that it is never given twice.
    pub(crate) fn release(&mut self) {
        self.token = None;
        self.owner = None;
    }
}

/// The commits that happened, as runs of neighbouring numbers: a row per number would grow for ever or have to be
/// forgotten, and a commit whose answer was lost may be asked for long after later ones were acknowledged.
#[derive(Clone, Default)]
pub(crate) struct CommitLog {
    /// In order, with gaps between the runs of an epoch.
    runs: Vec<Run>,
}

#[derive(Clone, Copy)]
struct Run {
    epoch: Epoch,
    first: u64,
    last: u64,
}

impl CommitLog {
    /// Whether the commit happened.
    pub(crate) fn holds(&self, key: CommitKey) -> bool {
        self.run_before(key).is_some_and(|at| self.runs[at].epoch == key.epoch && key.number.0 <= self.runs[at].last)
    }

    /// Notes a commit.
    pub(crate) fn note(&mut self, key: CommitKey) {
        let number = key.number.0;
        let before = self.run_before(key);
        let after = before.map_or(0, |at| at + 1);
        let joins_before =
            before.filter(|at| self.runs[*at].epoch == key.epoch && self.runs[*at].last.checked_add(1) == Some(number));
        let joins_after =
            self.runs.get(after).is_some_and(|run| run.epoch == key.epoch && number.checked_add(1) == Some(run.first));
        match (joins_before, joins_after) {
            (Some(at), false) => self.runs[at].last = number,
            (Some(at), true) => {
                self.runs[at].last = self.runs[after].last;
                self.runs.remove(after);
            }
            (None, true) => self.runs[after].first = number,
            (None, false) => self.runs.insert(after, Run { epoch: key.epoch, first: number, last: number }),
        }
    }

    /// Whether every commit acknowledged is there. Nothing is forgotten: an epoch is a run or two, and a slow commit may
    /// name an epoch that quick ones have left behind.
    pub(crate) fn confirm(&self, acknowledged: &[Option<CommitKey>; 2]) -> bool {
        acknowledged.iter().flatten().all(|key| self.holds(*key))
    }

    /// The last run that starts at or before the key.
    fn run_before(&self, key: CommitKey) -> Option<usize> {
        self.runs.partition_point(|run| (run.epoch, run.first) <= (key.epoch, key.number.0)).checked_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::store::CommitNo;

    use super::*;

    fn key(epoch: u64, number: u64) -> CommitKey {
        CommitKey { epoch: Epoch(epoch), number: CommitNo(number) }
    }

    #[test]
    fn runs_join_in_any_order() {
        let numbers = [5, 1, 3, 2, 9, 4];
        let mut log = CommitLog::default();
        for (place, number) in numbers.into_iter().enumerate() {
            log.note(key(2, number));
            for asked in 0..11 {
                assert_eq!(log.holds(key(2, asked)), numbers[..=place].contains(&asked), "{asked} after {number}");
            }
        }
        assert_eq!(log.runs.len(), 2);
        assert!(!log.holds(key(1, 3)) && !log.holds(key(3, 3)));
    }

    #[test]
    fn what_was_committed_stays_known() {
        let mut log = CommitLog::default();
        for epoch in 1..4 {
            log.note(key(epoch, 1));
        }
        assert!(!log.confirm(&[Some(key(3, 2)), Some(key(3, 1))]));
        assert!(log.confirm(&[Some(key(3, 1)), None]) && log.holds(key(1, 1)));
        assert!(log.confirm(&[Some(key(3, 1)), Some(key(2, 1))]));
        assert!(log.confirm(&[Some(key(2, 1)), Some(key(1, 1))]), "named by a commit that was overtaken");
    }
}
