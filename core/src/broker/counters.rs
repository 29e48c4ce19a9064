//! What a broker counts. The shell exports it; nothing here decides anything.

use alloc::sync::Arc;

use super::histogram::{AGES, Histogram, SIZES};
use super::retention::Deleted;
use crate::activity::ActivityRow;

/// Monotone counts and a few gauges, since the broker's start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Writes of each commit.
    pub commit_sizes: Histogram,
    /// Milliseconds from a message's commit to its delivery.
    pub delivery_ages: Histogram,
    /// Activity of the busiest queues in the last minute that was written down.
    pub minute: Arc<[ActivityRow]>,
    /// Push requests.
    pub push_requests: u64,
    /// Messages stored by pushes and transactions.
    pub push_messages: u64,
    /// Items that were duplicates.
    pub push_duplicates: u64,
    /// Pop requests.
    pub pop_requests: u64,
    /// Pops of one partition.
    pub pop_targeted: u64,
    /// Pops of any partition, discovery included.
    pub pop_wildcard: u64,
    /// Pops that were answered empty.
    pub pop_empty: u64,
    /// Messages delivered.
    pub pop_messages: u64,
    /// Ack requests, batches counted once.
    pub ack_requests: u64,
    /// Ack items that succeeded.
    pub ack_messages: u64,
    /// Ack items that were refused.
    pub ack_refused: u64,
    /// Transactions carried out.
    pub transactions: u64,
    /// Transactions rolled back.
    pub transactions_rolled_back: u64,
    /// Dead letters filed.
    pub dead_lettered: u64,
    /// Payloads sealed for queues with `encryptionEnabled`.
    pub sealed: u64,
    /// Sealed payloads opened for a client.
    pub opened: u64,
    /// Payloads with the form of an envelope that no key opened; they were given as stored.
    pub unopened: u64,
    /// Messages dropped because their retries were exhausted and dead-lettering is off.
    pub dropped: u64,
    /// Pops held back for a fuller batch (OPT-21).
    pub fill_waits: u64,
    /// Microseconds they were held, in total (OPT-21).
    pub fill_wait_micros: u64,
    /// Leases given back because their answer could not be written.
    pub given_back: u64,
    /// Commits sent to the store.
    pub commits: u64,
    /// Writes in them.
    pub commit_writes: u64,
    /// Commits that the store certainly did not carry out.
    pub commits_failed: u64,
    /// Commits refused because another owner had the slot.
    pub commits_fenced: u64,
    /// Commits whose outcome was unknown and has been settled.
    pub unknown_settled: u64,
    /// Times the slot was taken.
    pub slots_taken: u64,
    /// Times the slot was lost to another owner.
    pub slots_lost: u64,
    /// Times an acknowledged commit was missing in the store.
    pub suffixes_lost: u64,
    /// Logs of which all that was asked for was loaded.
    pub logs_loaded: u64,
    /// Logs put out of memory to keep to the budget (OPT-27).
    pub logs_evicted: u64,
    /// Scans of logs that do not fit into memory.
    pub logs_probed: u64,
    /// Deleted by retention since the start, by queue and rule, of queues that are still there.
    pub retention: Deleted,
    /// Partitions removed because nobody used them any more.
    pub partitions_cleaned: u64,
    /// Gauge: bytes of memory that logs take, those of one message not counted.
    pub log_bytes: u64,
    /// Gauge: long polls parked now.
    pub parked: u64,
    /// Gauge: dead letters now.
    pub dead_letters: u64,
    /// Gauge: partitions in memory now.
    pub partitions: u64,
    /// Gauge: queues in memory now.
    pub queues: u64,
}

impl Default for Counters {
    fn default() -> Self {
        Counters {
            commit_sizes: Histogram::new(&SIZES),
            delivery_ages: Histogram::new(&AGES),
            partitions_cleaned: 0,
            sealed: 0,
            unopened: 0,
            opened: 0,
            retention: Default::default(),
            minute: Arc::default(),
            push_requests: 0,
            push_messages: 0,
            push_duplicates: 0,
            pop_requests: 0,
            pop_targeted: 0,
            pop_wildcard: 0,
            pop_empty: 0,
            pop_messages: 0,
            ack_requests: 0,
            ack_messages: 0,
            ack_refused: 0,
            transactions: 0,
            transactions_rolled_back: 0,
            dead_lettered: 0,
            dropped: 0,
            fill_waits: 0,
            fill_wait_micros: 0,
            given_back: 0,
            commits: 0,
            commit_writes: 0,
            commits_failed: 0,
            commits_fenced: 0,
            unknown_settled: 0,
            slots_taken: 0,
            slots_lost: 0,
            suffixes_lost: 0,
            logs_loaded: 0,
            logs_evicted: 0,
            logs_probed: 0,
            log_bytes: 0,
            parked: 0,
            dead_letters: 0,
            partitions: 0,
            queues: 0,
        }
    }
}

impl Counters {
    /// Adds what another broker of the same process has counted.
    pub fn add(&mut self, other: &Counters) {
        let Counters {
            commit_sizes,
            delivery_ages,
            minute,
            push_requests,
            push_messages,
            push_duplicates,
            pop_requests,
            pop_targeted,
            pop_wildcard,
            pop_empty,
            pop_messages,
            ack_requests,
            ack_messages,
            ack_refused,
            transactions,
            transactions_rolled_back,
            dead_lettered,
            sealed,
            opened,
            unopened,
            dropped,
            fill_waits,
            fill_wait_micros,
            given_back,
            commits,
            commit_writes,
            commits_failed,
            commits_fenced,
            unknown_settled,
            slots_taken,
            slots_lost,
            suffixes_lost,
            logs_loaded,
            logs_evicted,
            logs_probed,
            retention,
            partitions_cleaned,
            log_bytes,
            parked,
            dead_letters,
            partitions,
            queues,
        } = other;
        self.commit_sizes.add(commit_sizes);
        self.delivery_ages.add(delivery_ages);
        if !minute.is_empty() {
            self.minute = self.minute.iter().chain(minute.iter()).cloned().collect();
        }
        self.push_requests += push_requests;
        self.push_messages += push_messages;
        self.push_duplicates += push_duplicates;
        self.pop_requests += pop_requests;
        self.pop_targeted += pop_targeted;
        self.pop_wildcard += pop_wildcard;
        self.pop_empty += pop_empty;
        self.pop_messages += pop_messages;
        self.ack_requests += ack_requests;
        self.ack_messages += ack_messages;
        self.ack_refused += ack_refused;
        self.transactions += transactions;
        self.transactions_rolled_back += transactions_rolled_back;
        self.dead_lettered += dead_lettered;
        self.sealed += sealed;
        self.opened += opened;
        self.unopened += unopened;
        self.dropped += dropped;
        self.fill_waits += fill_waits;
        self.fill_wait_micros += fill_wait_micros;
        self.given_back += given_back;
        self.commits += commits;
        self.commit_writes += commit_writes;
        self.commits_failed += commits_failed;
        self.commits_fenced += commits_fenced;
        self.unknown_settled += unknown_settled;
        self.slots_taken += slots_taken;
        self.slots_lost += slots_lost;
        self.suffixes_lost += suffixes_lost;
        self.logs_loaded += logs_loaded;
        self.logs_evicted += logs_evicted;
        self.logs_probed += logs_probed;
        for (queue, tallies) in retention {
            let sums = self.retention.entry(queue.clone()).or_default();
            sums.iter_mut().zip(tallies).for_each(|(sum, tally)| sum.add(tally));
        }
        self.partitions_cleaned += partitions_cleaned;
        self.log_bytes += log_bytes;
        self.parked += parked;
        self.dead_letters += dead_letters;
        self.partitions += partitions;
        self.queues += queues;
    }
}
