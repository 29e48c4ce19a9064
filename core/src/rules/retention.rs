//! What retention deletes: whole segments, from the old end of a partition's log only (23).
//!
//! A segment is old when created < cutoff. Two rules ask nothing else; the third leaves alone what some group has still
//! to commit. Hashes go by a clock of their own (OPT-26).

use crate::options::QueueOptions;
use crate::record::{RetentionRule, Tally, Trimmed};
use crate::rules::dedup;
use crate::store::Extent;
use crate::time::{Span, Timestamp};

/// The times before which a queue's segments and hashes are old.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cutoffs {
    by_rule: [Option<Timestamp>; 3],
    /// Hashes of older messages resolve nothing any more.
    pub hashes: Timestamp,
}

impl Cutoffs {
    /// A queue's cutoffs at `now`. The gate is for two of the three (OPT-14, OPT-19); a window of 0 is off.
    pub fn of(options: &QueueOptions, now: Timestamp) -> Self {
        let cutoff = |gate: bool, seconds: i64| (gate && seconds > 0).then(|| now.minus(Span::from_secs(seconds)));
        Cutoffs {
            by_rule: RetentionRule::ALL.map(|rule| match rule {
                RetentionRule::Age => cutoff(options.retention_enabled, options.retention_seconds),
                RetentionRule::Completed => cutoff(options.retention_enabled, options.completed_retention_seconds),
                RetentionRule::MaxWait => cutoff(true, options.max_wait_time_seconds),
            }),
            hashes: dedup::resolves_since(options, now),
        }
    }

    /// A rule's cutoff; none while it is off.
    pub fn of_rule(&self, rule: RetentionRule) -> Option<Timestamp> {
        self.by_rule[usize::from(rule.code())]
    }

    /// Whether any rule is on.
    pub fn any(&self) -> bool {
        self.by_rule.iter().any(Option::is_some)
    }

    /// The time before which segments go whoever consumed them.
    pub fn unconditional(&self) -> Option<Timestamp> {
        self.of_rule(RetentionRule::Age).max(self.of_rule(RetentionRule::MaxWait))
    }
}

/// How far the existing groups have come on a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Consumption {
    /// The lowest offset that some group has still to commit, of those whose place is known.
    lowest: Option<u64>,
    /// The earliest time at which some group starts whose place is not looked up yet.
    earliest: Option<Timestamp>,
    /// First offset that no group has committed.
    highest: u64,
}

impl Consumption {
    /// A group has committed everything below `next`.
    pub fn note_cursor(&mut self, next: u64) {
        self.lowest = Some(self.lowest.map_or(next, |lowest| lowest.min(next)));
        self.highest = self.highest.max(next);
    }

    /// A group starts at the first segment committed at or after `time`.
    pub fn note_start(&mut self, time: Timestamp) {
        self.earliest = Some(self.earliest.map_or(time, |earliest| earliest.min(time)));
    }

    /// Whether every existing group has the whole segment behind it; never where no group exists (OPT-18).
    pub fn is_past(&self, extent: &Extent) -> bool {
        (self.lowest.is_some() || self.earliest.is_some())
            && self.lowest.is_none_or(|lowest| extent.end <= lowest)
            && self.earliest.is_none_or(|earliest| extent.created < earliest)
    }

    /// Whether a group may have something behind it from offset `first` on, which was committed no earlier than `since`.
    pub fn may_be_past(&self, first: u64, since: Timestamp) -> bool {
        (self.lowest.is_some() || self.earliest.is_some())
            && self.lowest.is_none_or(|lowest| first < lowest)
            && self.earliest.is_none_or(|earliest| since < earliest)
    }

    fn tally(&self, extent: &Extent) -> Tally {
        let unconsumed = extent.end - self.highest.clamp(extent.start, extent.end);
        Tally { segments: 1, messages: extent.end - extent.start, unconsumed }
    }
}

/// Whether a rule lets go of a segment; it goes when all before it go too.
pub fn takes(rule: RetentionRule, extent: &Extent, consumption: &Consumption, cutoffs: &Cutoffs) -> bool {
    let old = cutoffs.of_rule(rule).is_some_and(|cutoff| extent.created < cutoff);
    match rule {
        RetentionRule::Age | RetentionRule::MaxWait => old,
        RetentionRule::Completed => old && consumption.is_past(extent),
    }
}

/// What one rule alone would delete of segments, oldest first: how much, and whether it would go on behind them.
pub fn tally(rule: RetentionRule, extents: &[Extent], consumption: &Consumption, cutoffs: &Cutoffs) -> (Tally, bool) {
    let mut sum = Tally::default();
    let taken = extents.iter().take_while(|extent| takes(rule, extent, consumption, cutoffs));
    let count = taken.map(|extent| sum.add(&consumption.tally(extent))).count();
    (sum, count == extents.len())
}

/// Where a partition's watermarks go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Boundary {
    /// First offset that is kept.
    pub log_start: u64,
    /// What is left of what lies below.
    pub trimmed: Trimmed,
    /// How much each rule deletes, in the order of `RetentionRule::ALL`.
    pub tallies: [Tally; 3],
    /// Commit time of the first segment that is kept, where it was among those looked at.
    pub oldest: Option<Timestamp>,
    /// Commit time of the first hash that is kept of a deleted message, where it was among those looked at.
    pub oldest_hash: Option<Timestamp>,
}

/// Decides about a partition's oldest segments from its log start on, and about hashes that outlived their messages from
/// the hash start on: both oldest first, without gaps, and as many as were read.
pub fn boundary(
    log_start: u64,
    trimmed: Trimmed,
    segments: &[Extent],
    hashes: &[Extent],
    consumption: &Consumption,
    cutoffs: &Cutoffs,
) -> Boundary {
    let mut after = Boundary { log_start, trimmed, tallies: [Tally::default(); 3], oldest: None, oldest_hash: None };
    let deleted = segments.iter().take_while(|extent| {
        let rule = RetentionRule::ALL.into_iter().find(|rule| takes(*rule, extent, consumption, cutoffs));
        match rule {
            Some(rule) => after.tallies[usize::from(rule.code())].add(&consumption.tally(extent)),
            None => after.oldest = Some(extent.created),
        }
        rule.is_some()
    });
    let deleted: alloc::vec::Vec<&Extent> = deleted.collect();
    if let Some(last) = deleted.last() {
        after.log_start = last.end;
        after.trimmed.bytes = last.total;
        after.trimmed.last = Some(last.created);
    }
    // Deleted messages' hashes follow those that were kept before, once all of these are known.
    let known = trimmed.hash_start.max(hashes.last().map_or(0, |last| last.end)) >= log_start;
    let following = deleted.into_iter().filter(|_| known);
    if known && hashes.is_empty() {
        after.trimmed.hash_start = log_start;
    }
    for extent in hashes.iter().chain(following) {
        if extent.created >= cutoffs.hashes {
            after.oldest_hash = Some(extent.created);
            break;
        }
        after.trimmed.hash_start = extent.end;
    }
    after
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(1_000_000 * seconds)
    }

    /// Segments of ten messages, one committed each second from second 0 on.
    fn segments(count: u64) -> alloc::vec::Vec<Extent> {
        let extent = |n: u64| Extent { start: 10 * n, end: 10 * n + 10, created: at(n as i64), total: 100 * (n + 1) };
        (0..count).map(extent).collect()
    }

    fn options(change: impl FnOnce(&mut QueueOptions)) -> QueueOptions {
        let mut options = QueueOptions::configured();
        change(&mut options);
        options
    }

    fn all() -> Consumption {
        let mut consumption = Consumption::default();
        consumption.note_cursor(u64::MAX);
        consumption
    }

    fn deletes(options: &QueueOptions, now: i64, consumption: &Consumption) -> u64 {
        let cutoffs = Cutoffs::of(options, at(now));
        boundary(0, Trimmed::default(), &segments(20), &[], consumption, &cutoffs).log_start
    }

    #[test]
    fn each_rule_has_its_gate_and_an_edge_that_is_kept() {
        // req: OPT-14, OPT-15, OPT-18, OPT-19
        type Set = fn(&mut QueueOptions);
        let windows: [(&str, Set); 3] = [
            ("age", |it| it.retention_seconds = 5),
            ("completed", |it| it.completed_retention_seconds = 5),
            ("max wait", |it| it.max_wait_time_seconds = 5),
        ];
        for (name, set) in windows {
            for enabled in [false, true] {
                let options = options(|it| {
                    set(it);
                    it.retention_enabled = enabled;
                });
                let on = enabled || name == "max wait";
                for (now, expected) in [(0, 0), (5, 0), (6, 10), (10, 50), (1_000, 200)] {
                    let deleted = deletes(&options, now, &all());
                    assert_eq!(deleted, if on { expected } else { 0 }, "{name}, enabled {enabled}, at {now}");
                }
            }
        }
        assert_eq!(deletes(&options(|it| it.retention_enabled = true), 1_000, &all()), 0, "no window, no deletion");
    }

    #[test]
    fn completed_messages_go_up_to_the_slowest_group() {
        // req: OPT-18
        let options = options(|it| (it.retention_enabled, it.completed_retention_seconds) = (true, 1));
        let of = |cursors: &[u64], starts: &[i64]| {
            let mut consumption = Consumption::default();
            cursors.iter().for_each(|next| consumption.note_cursor(*next));
            starts.iter().for_each(|time| consumption.note_start(at(*time)));
            consumption
        };
        let cases: [(&[u64], &[i64], u64); 8] = [
            (&[], &[], 0),
            (&[0], &[], 0),
            (&[39], &[], 30),
            (&[40], &[], 40),
            (&[100, 40, 70], &[], 40),
            (&[], &[3], 30),
            (&[100], &[3], 30),
            (&[20], &[3], 20),
        ];
        for (cursors, starts, expected) in cases {
            assert_eq!(deletes(&options, 1_000, &of(cursors, starts)), expected, "{cursors:?} {starts:?}");
        }
    }

    #[test]
    fn what_nobody_consumed_is_counted_under_the_first_rule() {
        let options = options(|it| {
            (it.retention_enabled, it.retention_seconds, it.max_wait_time_seconds) = (true, 15, 10);
        });
        let mut consumption = Consumption::default();
        consumption.note_cursor(5);
        consumption.note_cursor(33);
        let cutoffs = Cutoffs::of(&options, at(20));
        let after = boundary(0, Trimmed::default(), &segments(20), &[], &consumption, &cutoffs);
        let tally = |segments, unconsumed| Tally { segments, messages: 10 * segments, unconsumed };
        assert_eq!(after.tallies, [tally(5, 17), Tally::default(), tally(5, 50)]);
        assert_eq!((after.log_start, after.trimmed.bytes, after.oldest), (100, 1_000, Some(at(10))));
        assert_eq!(after.trimmed.last, Some(at(9)));
    }

    #[test]
    fn hashes_outlive_their_messages_by_their_own_clock() {
        // req: OPT-26
        let options = options(|it| (it.max_wait_time_seconds, it.dedup_window_seconds) = (5, 0));
        let segments = segments(20);
        let none = Consumption::default();
        let first = boundary(0, Trimmed::default(), &segments, &[], &none, &Cutoffs::of(&options, at(12)));
        assert_eq!((first.log_start, first.trimmed.hash_start, first.oldest_hash), (70, 0, Some(at(0))));
        // Fifteen minutes after the third one's commit two are older.
        let later = Cutoffs::of(&options, at(902));
        let kept = &segments[..7];
        let second = boundary(70, first.trimmed, &segments[7..], kept, &none, &later);
        assert_eq!((second.log_start, second.trimmed.hash_start, second.oldest_hash), (200, 20, Some(at(2))));
        // Hashes that were not all read say nothing of those behind.
        let end = Cutoffs::of(&options, at(5_000));
        let part = boundary(70, first.trimmed, &segments[7..], &kept[..3], &none, &end);
        assert_eq!((part.log_start, part.trimmed.hash_start, part.oldest_hash), (200, 30, None));
        let whole = boundary(70, first.trimmed, &segments[7..], kept, &none, &end);
        assert_eq!(whole.trimmed.hash_start, 200);
        let unread = boundary(70, first.trimmed, &segments[7..], &[], &none, &end);
        assert_eq!(unread.trimmed.hash_start, 0);
    }
}
