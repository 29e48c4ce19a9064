//! What a message that was not completed costs, and when it stops coming back (OPT-6 to OPT-9).

use crate::options::QueueOptions;

/// What becomes of the lowest message of a call that was not completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It comes again, and the budget is `retries` now.
    Redeliver {
        /// Failed acks charged.
        retries: u32,
    },
    /// It goes to the dead letters.
    DeadLetter,
    /// It is dropped.
    Drop,
}

/// A failed ack with `retries` already charged: limit N redelivers N times, the next one ends the message. The limit is
/// read now, so a changed one holds for the next failed ack (OPT-8).
pub fn failed(options: &QueueOptions, retries: u32) -> Verdict {
    let mut limit = options.retry_limit;
    plant!(RetryLimitShort => limit = limit.saturating_sub(1));
    plant!(RetryLimitLong => limit = limit.saturating_add(1));
    plant!(FailureUncharged => return Verdict::Redeliver { retries });
    if i64::from(retries) < limit {
        Verdict::Redeliver { retries: retries.saturating_add(1) }
    } else if options.dead_letters() || plant!(DroppedIsFiled) {
        Verdict::DeadLetter
    } else {
        Verdict::Drop
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_redelivers_and_the_next_failure_ends() {
        // req: OPT-6, OPT-9
        let options = QueueOptions { retry_limit: 2, ..QueueOptions::configured() };
        assert_eq!(failed(&options, 0), Verdict::Redeliver { retries: 1 });
        assert_eq!(failed(&options, 1), Verdict::Redeliver { retries: 2 });
        assert_eq!(failed(&options, 2), Verdict::DeadLetter);
        let one_flag = QueueOptions { dead_letter_queue: false, ..options.clone() };
        assert_eq!(failed(&one_flag, 2), Verdict::DeadLetter);
        let neither = QueueOptions { dlq_after_max_retries: false, ..one_flag };
        assert_eq!(failed(&neither, 2), Verdict::Drop);
    }
}
