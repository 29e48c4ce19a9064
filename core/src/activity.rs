//! What happened on a queue in a stretch of time: counted by the slot's owner, written down once a minute, shown by the
//! analytics.

use alloc::vec::Vec;

use crate::name::{QueueName, TenantId};
use crate::time::Timestamp;

macro_rules! activity {
    (maxima { $($(#[$max_doc:meta])* $max:ident,)* } sums { $($(#[$sum_doc:meta])* $sum:ident,)* }) => {
        /// Counts of one stretch.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Activity {
            $($(#[$max_doc])* pub $max: u64,)*
            $($(#[$sum_doc])* pub $sum: u64,)*
        }

        impl Activity {
            /// How many of the counts are maxima; they come first.
            pub const MAXIMA: usize = [$(stringify!($max)),*].len();

            /// All counts. A store keeps them in this order, so a new one goes to the end.
            pub fn to_counts(self) -> Vec<u64> {
                [$(self.$max,)* $(self.$sum,)*].into()
            }

            /// Counts as they were stored; those that are missing are nothing.
            pub fn from_counts(counts: &[u64]) -> Self {
                let mut counts = counts.iter().copied();
                let mut next = move || counts.next().unwrap_or(0);
                Activity { $($max: next(),)* $($sum: next(),)* }
            }

            /// Takes another stretch in.
            pub fn merge(&mut self, other: &Activity) {
                $(self.$max = self.$max.max(other.$max);)*
                $(self.$sum = self.$sum.saturating_add(other.$sum);)*
            }
        }
    };
}

activity! {
    maxima {
        /// The longest lag of a delivered message: milliseconds from its commit to its delivery.
        lag_max_ms,
        /// Long polls that were parked when the minute was written down.
        parked,
        /// Partitions there were then.
        partitions,
        /// Dead letters there were then.
        dead_letters,
    }
    sums {
        /// Pushes; one over several partitions counts for each.
        push_requests,
        /// Messages stored.
        push_messages,
        /// Pops that were given something.
        pop_requests,
        /// Messages delivered.
        pop_messages,
        /// Pops that were answered empty.
        pop_empty,
        /// Acks; one over several partitions or leases counts for each.
        ack_requests,
        /// Messages acked as done, retried, or dead-lettered.
        ack_success,
        /// Ack items that were refused.
        ack_failed,
        /// Transactions that pushed to the queue.
        transactions,
        /// Partitions made.
        partitions_created,
        /// Partitions cleaned up.
        partitions_deleted,
        /// Messages that lag was measured of.
        lag_samples,
        /// Their lag in milliseconds, added up.
        lag_sum_ms,
    }
}

impl Activity {
    /// Whether nothing happened. Gauges alone are nothing.
    pub fn is_empty(&self) -> bool {
        self.parked == 0
            && self.dead_letters == 0
            && self.to_counts().iter().skip(Self::MAXIMA).all(|count| *count == 0)
    }
}

/// The activity of one queue from `start` on, for a minute where it is written, for a bucket where it is read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ActivityRow {
    /// When the stretch starts.
    pub start: Timestamp,
    /// The queue's tenant.
    pub tenant: TenantId,
    /// The queue.
    pub queue: QueueName,
    /// What happened.
    pub activity: Activity,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_survive_being_stored_and_merge() {
        let one = Activity { lag_max_ms: 5, push_messages: 2, transactions: 1, ..Activity::default() };
        let mut sum = Activity::from_counts(&one.to_counts());
        assert_eq!(sum, one);
        sum.merge(&Activity { lag_max_ms: 3, push_messages: 4, ..Activity::default() });
        assert_eq!((sum.lag_max_ms, sum.push_messages, sum.transactions), (5, 6, 1));
        assert_eq!(Activity::from_counts(&one.to_counts()[..Activity::MAXIMA]).push_messages, 0, "an older version's");
        assert!(Activity { partitions: 4, ..Activity::default() }.is_empty() && !one.is_empty());
    }
}
