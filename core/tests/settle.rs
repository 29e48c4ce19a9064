//! The ack decision (8.4) as a table: what is out, what is acked, where the cursor stands afterwards.

use tidegate_core::command::{AckItem, AckStatus, LeaseProof};
use tidegate_core::log::{Log, LogView};
use tidegate_core::name::{LeaseId, PartitionId, TransactionId};
use tidegate_core::options::QueueOptions;
use tidegate_core::record::{Cursor, Lease};
use tidegate_core::rules::settle::{Decision, decide};
use tidegate_core::rules::visibility::Durable;
use tidegate_core::time::{Span, Timestamp};
use uuid::Uuid;

const NOW: Timestamp = Timestamp::from_micros(1_000_000_000);
const LEASE: LeaseId = LeaseId(Uuid::from_u128(7));

/// Messages `0..10` with ids "0" to "9"; 2 to 6 are out under `LEASE`.
struct Case {
    retries: u32,
    options: QueueOptions,
    proof: LeaseProof,
    lease: Option<Lease>,
}

impl Case {
    fn new() -> Self {
        let lease = Lease { id: LEASE, expires: NOW.next(), end: 7 };
        Case { retries: 0, options: QueueOptions::configured(), proof: LeaseProof::Lease(LEASE), lease: Some(lease) }
    }

    fn decide(&self, acks: &[(&str, AckStatus)]) -> Decision {
        let mut log = Log::default();
        for n in 0..10 {
            log.append(NOW.minus(Span::from_secs(1)), TransactionId::new(&n.to_string()).unwrap().hash(), n == 0);
        }
        let cursor = Cursor { next: 2, retries: self.retries, consumed: 2, lease: self.lease };
        let items: Vec<AckItem> = acks
            .iter()
            .map(|(id, status)| AckItem {
                partition: PartitionId(Uuid::nil()),
                transaction: Some(TransactionId::new(id).unwrap()),
                status: *status,
                lease: self.proof,
                error: Some(format!("{id} went wrong").into()),
            })
            .collect();
        let items: Vec<&AckItem> = items.iter().collect();
        let partition = Durable { log: LogView::of(&log), start: 0, end: 10 };
        decide(&cursor, partition, &items, self.proof, &self.options, false, NOW).expect("the log is resident")
    }

    /// Next offset, whether the lease is kept, retries; and for each item `ok`, or what is special about it.
    fn check(&self, acks: &[(&str, AckStatus)], expected: (u64, bool, u32, &str)) {
        let decision = self.decide(acks);
        let words: Vec<String> = decision
            .outcomes
            .iter()
            .map(|outcome| match outcome.error {
                Some(error) => error.to_string().split([' ', ':']).next().unwrap_or_default().to_owned(),
                None if outcome.noop => "noop".into(),
                None if outcome.dead_lettered => "dead".into(),
                None if outcome.dropped => "dropped".into(),
                None => "ok".into(),
            })
            .collect();
        let after = &decision.cursor;
        let got = (after.next, after.lease.is_some(), after.retries, words.join(" "));
        assert_eq!((got.0, got.1, got.2, got.3.as_str()), expected, "{acks:?}");
        assert_eq!(after.consumed, after.next, "every offset passed is counted once");
        let released = after.lease.is_none() && self.lease.is_some();
        assert!(decision.outcomes.iter().all(|it| it.lease_released == (released && it.error.is_none())), "{acks:?}");
    }
}

use AckStatus::{Completed as OK, DeadLetter as DEAD, Failed as FAIL, Retry as RETRY};

#[test]
fn completions_carry_what_lies_before_them() {
    // req: OPT-6, OPT-7
    let case = Case { retries: 2, ..Case::new() };
    case.check(&[("6", OK)], (7, false, 0, "ok"));
    case.check(&[("4", OK)], (5, true, 2, "ok"));
    case.check(&[("2", OK), ("3", OK), ("4", OK), ("5", OK), ("6", OK)], (7, false, 0, "ok ok ok ok ok"));
    case.check(&[("1", OK), ("3", OK)], (4, true, 2, "noop ok"));
    case.check(&[("8", OK), ("nobody's", OK)], (2, true, 2, "unresolvable unresolvable"));
}

#[test]
fn the_lowest_failure_bounds_its_call() {
    // req: OPT-6, OPT-7
    let case = Case { retries: 1, ..Case::new() };
    case.check(&[("2", FAIL), ("3", OK), ("4", OK)], (2, false, 2, "ok ok ok"));
    case.check(&[("2", OK), ("3", FAIL), ("6", OK)], (3, false, 2, "ok ok ok"));
    case.check(&[("2", OK), ("3", RETRY), ("6", FAIL)], (3, false, 1, "ok ok ok"));
    case.check(&[("5", FAIL), ("4", RETRY)], (2, false, 1, "ok ok"));
    case.check(&[("3", RETRY), ("3", FAIL), ("3", OK)], (2, false, 2, "ok ok ok"));
    case.check(&[("0", FAIL)], (2, true, 1, "already"));
}

#[test]
fn an_exhausted_message_is_dead_lettered_or_dropped() {
    // req: OPT-6, OPT-8, OPT-9
    let case = Case { retries: 3, ..Case::new() };
    case.check(&[("3", FAIL), ("2", OK)], (4, false, 0, "dead ok"));
    let letter = case.decide(&[("3", FAIL), ("2", OK)]).dead_letter.expect("one");
    assert_eq!((letter.offset, letter.retries, letter.error.as_str()), (3, 3, "3 went wrong"));
    let off = QueueOptions { dead_letter_queue: false, dlq_after_max_retries: false, ..QueueOptions::configured() };
    let case = Case { options: off, ..case };
    case.check(&[("2", FAIL)], (3, false, 0, "dropped"));
    // Asked for by name, whatever the flags and the budget say.
    Case { retries: 0, ..case }.check(&[("2", DEAD), ("2", FAIL)], (3, false, 0, "dead dead"));
}

#[test]
fn a_named_lease_must_be_the_live_one_and_none_is_checked_against_nothing() {
    let expired = Lease { expires: NOW, ..Case::new().lease.unwrap() };
    let case = Case { lease: Some(expired), ..Case::new() };
    case.check(&[("6", OK)], (2, true, 0, "invalid"));
    Case { proof: LeaseProof::Foreign, ..Case::new() }.check(&[("6", FAIL)], (2, true, 0, "invalid"));
    let other = LeaseProof::Lease(LeaseId(Uuid::from_u128(8)));
    Case { proof: other, ..Case::new() }.check(&[("6", OK)], (2, true, 0, "invalid"));
    Case { proof: LeaseProof::None, lease: Some(expired), ..Case::new() }.check(&[("6", OK)], (7, false, 0, "ok"));
    // Nothing is out: only completions count, and whatever is asked says success.
    let idle = Case { proof: LeaseProof::None, lease: None, retries: 1, ..Case::new() };
    idle.check(&[("3", OK), ("5", FAIL)], (4, false, 1, "ok ok"));
    idle.check(&[("9", DEAD)], (2, false, 1, "ok"));
}
