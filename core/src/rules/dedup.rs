//! When a stored hash makes a pushed id a duplicate, and how long hashes resolve acks.

use crate::limits::MIN_HASH_AGE;
use crate::options::QueueOptions;
use crate::time::{Span, Timestamp};

/// Whether an id stored at `created` still forbids itself: it does while created ≥ now − window; a window of 0 never
/// does (OPT-24).
pub fn is_duplicate(options: &QueueOptions, created: Timestamp, now: Timestamp) -> bool {
    forbids_since(options, now).is_some_and(|since| created >= since)
}

/// The commit time from which on an id forbids itself; none while deduplication is off.
pub fn forbids_since(options: &QueueOptions, now: Timestamp) -> Option<Timestamp> {
    let mut window = Span::from_secs(options.dedup_window_seconds);
    plant!(DedupOff => return None);
    plant!(DedupOffStillForbids => window = window.max(Span::from_secs(10)));
    plant!(DedupForgetsEarly => window = Span::from_micros(window.as_micros() / 2));
    plant!(DedupForgetsLate => window = window.plus(window));
    plant!(DedupForgetsAtEdge => window = window.plus(Span::from_micros(-1)));
    plant!(DedupForgetsPastEdge => window = window.plus(Span::from_micros(1)));
    window.is_positive().then(|| now.minus(window))
}

/// The commit time from which on a hash still resolves acks (OPT-26).
pub fn resolves_since(options: &QueueOptions, now: Timestamp) -> Timestamp {
    plant!(HashesForgottenEarly => return now.minus(Span::from_secs(options.dedup_window_seconds)));
    let kept = Span::from_secs(options.dedup_window_seconds)
        .max(Span::from_secs(options.completed_retention_seconds))
        .max(MIN_HASH_AGE);
    now.minus(kept)
}

/// The commit time before which nothing of a log is asked for as a rule: no id forbids itself, no ack is resolved, no
/// delay or window holds.
pub fn needed_since(options: &QueueOptions, now: Timestamp) -> Timestamp {
    let delay = Span::from_secs(options.delayed_processing.max(options.window_buffer));
    resolves_since(options, now).min(now.minus(delay))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_edge_of_the_window_is_inside() {
        // req: OPT-24
        let options = QueueOptions { dedup_window_seconds: 10, ..QueueOptions::configured() };
        let created = Timestamp::from_micros(5);
        let edge = created.plus(Span::from_secs(10));
        assert!(is_duplicate(&options, created, edge));
        assert!(!is_duplicate(&options, created, edge.next()));
        let off = QueueOptions { dedup_window_seconds: 0, ..options };
        assert!(!is_duplicate(&off, created, created));
    }

    #[test]
    fn acks_resolve_for_the_longest_of_three_spans() {
        // req: OPT-26
        let now = Timestamp::from_micros(10_000_000_000);
        let kept = |dedup, completed| {
            let options = QueueOptions {
                dedup_window_seconds: dedup,
                completed_retention_seconds: completed,
                ..QueueOptions::configured()
            };
            now.since(resolves_since(&options, now)).as_secs()
        };
        assert_eq!(kept(0, 0), 900);
        assert_eq!(kept(901, 0), 901);
        assert_eq!(kept(901, 902), 902);
    }
}
