//! The log against a plain list of what was appended: found, dropped, loaded again, and weighed.

use super::*;
use crate::name::{MessageId, PartitionId};
use alloc::vec::Vec;
use uuid::Uuid;

fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

fn log_of(hashes: &[u64], per_run: usize) -> Log {
    let mut log = Log::default();
    for (n, hash) in hashes.iter().enumerate() {
        let created = at((n / per_run * per_run) as i64);
        assert_eq!(log.append(created, wide(*hash), n % per_run == 0), n as u64);
    }
    log
}

/// Spread like a real hash, so that the table is tried as it is used.
fn mixed(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ n.rotate_left(29)
}

fn wide(hash: u64) -> TransactionHash {
    TransactionHash(u128::from(hash))
}

fn heads(hashes: &[u64], per_run: usize) -> Vec<SegmentHead> {
    let runs = hashes.chunks(per_run).zip(0u64..).map(|(chunk, n)| SegmentHead {
        partition: PartitionId(Uuid::nil()),
        start: n * per_run as u64,
        created: at((n * per_run as u64) as i64),
        base: MessageId(Uuid::nil()),
        total: 0,
        hashes: chunk.iter().map(|hash| wide(*hash)).collect(),
    });
    let mut heads: Vec<_> = runs.collect();
    heads.reverse();
    heads
}

#[test]
fn finds_the_lowest_of_equal_hashes_scanned_or_by_table() {
    for size in [1usize, 2, 5, 17, 1_000] {
        let half = size.div_ceil(2) as u64;
        let hashes: Vec<u64> = (0..size as u64).map(|n| mixed(n % half)).collect();
        let log = log_of(&hashes, 3);
        for n in 0..half {
            let again = Some(n + half).filter(|again| *again < size as u64);
            assert_eq!(log.lowest(mixed(n), |_, _| true), Some(n));
            assert_eq!(log.lowest(mixed(n), |offset, _| offset > n), again);
            let later = at((n / 3 * 3) as i64 + 1);
            assert_eq!(log.lowest(mixed(n), |_, created| created >= later), again.filter(|again| again / 3 > n / 3));
            for end in [n + half, n + half + 1, n + half + 100] {
                assert_eq!(log.lowest_in(n + 1..end, mixed(n), |_, _| true), again.filter(|again| *again < end));
                assert_eq!(log.lowest_in(0..end, mixed(n), |_, _| true), Some(n));
            }
        }
        assert_eq!(log.lowest(1, |_, _| true), None);
        assert_eq!(log.lowest_in(3..3, mixed(0), |_, _| true), None);
    }
}

#[test]
fn truncating_forgets_hashes_runs_and_offsets() {
    for size in [1u64, 2, 5, 100, 2_000] {
        for keep in [0, 1, 2, size / 2, size].into_iter().filter(|keep| *keep <= size) {
            // Every other hash is an old one.
            let hashes: Vec<u64> = (0..size).map(|n| mixed(n - n % 2)).collect();
            let mut log = log_of(&hashes, 2);
            log.truncate(keep);
            assert_eq!(log.next(), keep);
            assert_eq!(log.last(), keep.checked_sub(1).map(|last| at((last / 2 * 2) as i64)));
            for n in 0..size {
                let there = (n - n % 2 < keep).then_some(n - n % 2);
                assert_eq!(log.lowest(hashes[n as usize], |_, _| true), there, "{n} of {size}, {keep} kept");
            }
            assert_eq!(log.append(at(9_000), wide(1), true), keep);
            assert_eq!(log.segment_of(keep), Some((keep, at(9_000))));
            assert_eq!(log.lowest(1, |_, _| true), Some(keep));
        }
    }
}

#[test]
fn a_cold_log_goes_back_to_what_it_was_when_its_first_commit_fails() {
    let mut log = Log::cold(7, Some(at(3)));
    log.append(at(9), wide(1), true);
    log.append(at(9), wide(2), false);
    assert_eq!((log.first(), log.last(), log.covers(at(4)), log.covers(at(3))), (7, Some(at(9)), true, false));
    log.truncate(7);
    assert_eq!((log.next(), log.last(), log.covers(at(4)), log.covers(at(3))), (7, Some(at(3)), true, false));
}

#[test]
fn times_and_offsets_meet_at_segment_borders() {
    let log = log_of(&[0, 1, 2, 3, 4, 5], 3);
    assert_eq!(log.first_since(at(1)), 3);
    assert_eq!(log.first_since(at(3)), 3);
    assert_eq!(log.first_since(at(4)), 6);
    assert_eq!(log.end_at(at(-1)), 0);
    assert_eq!(log.end_at(at(2)), 3);
    assert_eq!(log.end_at(at(3)), 6);
    assert_eq!(log.segment_of(4), Some((3, at(3))));
    assert_eq!(log.segment_of(6), None);
    let log = log_of(&(0..5_000).collect::<Vec<_>>(), 7);
    for n in 0..5_000 {
        assert_eq!(log.segment_of(n), Some((n / 7 * 7, at((n / 7 * 7) as i64))));
        assert_eq!(log.first_since(at(n as i64)), (n.div_ceil(7) * 7).min(5_000));
    }
}

#[test]
fn decades_between_two_messages_are_kept_apart() {
    // Found by the model: a commit time was cut to the bits that a block has for it.
    for pushed in [1, 2, 40] {
        let mut log = log_of(&(0..pushed).collect::<Vec<_>>(), 1);
        let late = at(1 << 55);
        assert_eq!(log.append(late, wide(77), true), pushed);
        assert_eq!((log.created_of(pushed), log.created_of(0)), (Some(late), Some(at(0))));
        assert_eq!(log.first_since(late), pushed);
        assert_eq!(log.lowest(77, |_, _| true), Some(pushed));
    }
}

#[test]
fn a_log_loaded_page_by_page_is_the_log_that_was_pushed() {
    for (size, per_run) in [(1usize, 1), (3, 1), (40, 3), (3_000, 1), (3_000, 100)] {
        let hashes: Vec<u64> = (0..size as u64).map(|n| mixed(n % (size as u64 * 3).div_ceil(4))).collect();
        let heads = heads(&hashes, per_run);
        for page in [1, 2, 7, 1_000] {
            let mut log = Log::cold(size as u64, Some(heads[0].created));
            // Something is pushed before anything is loaded.
            log.append(at(1 << 50), wide(1), true);
            let pages = heads.len().div_ceil(page);
            for (n, page) in heads.chunks(page).enumerate() {
                assert!(!log.covers(page[0].created));
                assert!(log.prepend(page, Timestamp::MIN, n + 1 < pages));
                // The same page once more changes nothing.
                let first = log.first();
                assert!(log.prepend(page, Timestamp::MIN, true));
                assert_eq!(log.first(), first);
            }
            assert!(log.covers(Timestamp::MIN) && log.first() == 0);
            let pushed = log_of(&hashes, per_run);
            for (n, hash) in hashes.iter().enumerate() {
                assert_eq!(log.lowest(*hash, |_, _| true), pushed.lowest(*hash, |_, _| true));
                assert_eq!(log.segment_of(n as u64), pushed.segment_of(n as u64));
            }
        }
    }
}

#[test]
fn pages_that_do_not_join_are_refused() {
    let heads = heads(&(0..40).collect::<Vec<_>>(), 2);
    let mut log = Log::cold(40, Some(heads[0].created));
    assert!(!log.prepend(&heads[3..5], Timestamp::MIN, false));
    assert_eq!((log.first(), log.covers(heads[0].created)), (40, false));
    assert!(log.prepend(&heads[..3], at(30), true) && log.prepend(&heads[3..5], at(30), false));
    assert_eq!(log.first(), 30);
    assert!(log.covers(at(30)) && !log.covers(at(29)));
}

#[test]
fn what_is_old_is_dropped_in_blocks_and_equal_hashes_stay_known() {
    let size = 4_000u64;
    // Each hash stands twice, far apart.
    let mut log = log_of(&(0..size).map(|n| mixed(n % (size / 2))).collect::<Vec<_>>(), 1);
    let bytes = log.bytes();
    log.drop_before(at(2_000), size);
    assert!(log.first() > 1_600 && log.first() <= 2_000 && log.bytes() < bytes);
    assert!(log.covers(at(2_000)) && !log.covers(at(1_000)));
    for n in log.first()..size {
        let lowest = if n >= size / 2 && n - size / 2 >= log.first() { n - size / 2 } else { n };
        assert_eq!(log.lowest(mixed(n % (size / 2)), |_, _| true), Some(lowest));
    }
    // Nothing from `keep` on is dropped, however old.
    let first = log.first();
    log.drop_before(Timestamp::MAX, first);
    assert_eq!(log.first(), first);
}

/// The index of a partition, everything included, as long as it is used the way it is meant to be.
#[test]
fn a_hash_costs_at_most_24_bytes() {
    // req: OPT-27
    for per_run in [1usize, 100] {
        for size in [1usize, 100, 10_000, 1_000_000] {
            let mut log = Log::default();
            let mut worst = 0.0f64;
            for n in 0..size {
                log.append(at((n / per_run * 1_000) as i64), wide(mixed(n as u64)), n % per_run == 0);
                if n >= size / 2 {
                    worst = worst.max((log.bytes() + size_of::<Log>()) as f64 / (n + 1) as f64);
                }
            }
            if size >= 10_000 {
                assert!(worst <= 24.0, "{worst} bytes a hash, {size} in segments of {per_run}");
                // A window that moves along: as much is dropped as comes.
                for n in size..size + size / 2 {
                    log.append(at((n / per_run * 1_000) as i64), wide(mixed(n as u64)), n % per_run == 0);
                    log.drop_before(at(((n - size) / per_run * 1_000) as i64), u64::MAX);
                    let each = (log.bytes() + size_of::<Log>()) as f64 / size as f64;
                    assert!(each <= 24.0, "{each} bytes a hash, {size} in segments of {per_run}, in a moving window");
                }
            }
        }
    }
}

#[test]
fn a_hash_that_comes_again_and_again_does_not_slow_the_others() {
    // A client that pushes one id with deduplication off.
    let mut log = Log::default();
    for n in 0..200_000 {
        log.append(at(n), wide(7), true);
    }
    assert_eq!(log.lowest(7, |_, _| true), Some(0));
    log.append(at(1 << 40), wide(8), true);
    assert_eq!(log.lowest(8, |_, _| true), Some(200_000));
    log.drop_before(at(100_000), u64::MAX);
    assert_eq!(log.lowest(7, |_, _| true), Some(log.first()));
}

#[test]
fn a_sketch_tells_what_a_log_would() {
    let hashes: Vec<u64> = (0..300).map(|n| mixed(n % 100)).collect();
    let heads = heads(&hashes, 3);
    let log = log_of(&hashes, 3);
    let sketch = |question: Question| {
        let mut sketch = Sketch::new(question, 300);
        for (n, page) in heads.chunks(7).enumerate() {
            if !sketch.complete {
                sketch.look(page, n * 7 + 7 < heads.len());
            }
        }
        sketch
    };
    let asked = sketch(Question::hashes(at(30), [mixed(5), mixed(17)]));
    assert!(asked.tells_hash(mixed(5), at(30)) && !asked.tells_hash(mixed(5), at(29)) && !asked.tells_hash(1, at(30)));
    let mut found = Vec::new();
    asked.each(mixed(17), |hit| found.push((hit.offset, hit.created)));
    assert_eq!(found, [(217, at(216)), (117, at(117)), (17, at(15))]);
    let first = sketch(Question::first(at(31)));
    assert_eq!(first.first_since(at(31)), Some(Some(log.first_since(at(31)))));
    assert_eq!(first.first_since(at(32)), None);
    let times = sketch(Question::times(at(0), 100, 110));
    assert!(times.complete && times.from <= 100 && times.seen < 300, "it stops where nothing more was asked");
    for offset in 95..115 {
        let known = (100..110).contains(&offset).then(|| log.created_of(offset).unwrap());
        assert_eq!(times.created_of(offset), known);
    }
}
