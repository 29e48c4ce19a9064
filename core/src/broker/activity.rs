//! What happens on each queue, counted in memory and written down once a minute. (queen-http.md 19)
//!
//! A minute whose commit fails, or whose owner loses the slot, is lost: these are figures for people.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::Broker;
use super::calls::{Fetch, Pending};
use super::tables::QueueIx;
use super::timers::Alarm;
use crate::activity::{Activity, ActivityRow};
use crate::command::{Command, RequestId};
use crate::error::Rejection;
use crate::limits::{MAX_ACTIVITY_DROPPED, MAX_ACTIVITY_QUEUES, MAX_LABELLED_QUEUES};
use crate::name::TenantId;
use crate::reply::{ActivityReport, Reply};
use crate::store::{StoreReply, StoreRequest, Write};
use crate::time::{Span, Timestamp};

const MINUTE: Span = Span::from_secs(60);
const HOUR: i64 = 3_600;
/// How far back a report goes that does not say.
const REPORTED: Span = Span::from_secs(HOUR);

impl Broker {
    /// Notes something that happened on a queue.
    pub(super) fn count(&mut self, queue: QueueIx, note: impl FnOnce(&mut Activity)) {
        note(&mut self.tables.queue_mut(queue).activity);
    }

    /// The slot is loaded: from now on each minute is written down when it is over.
    pub(super) fn start_minutes(&mut self) {
        self.minutes += 1;
        self.next_minute();
    }

    fn next_minute(&mut self) {
        let left = floor(self.now.store, MINUTE).plus(MINUTE).since(self.now.store);
        self.timers.set(self.now.monotonic.plus(left), Alarm::Minute(self.minutes));
    }

    /// A minute is over.
    pub(super) fn minute_over(&mut self, number: u64) {
        if number != self.minutes || self.draining || !self.owned() {
            return;
        }
        if self.usable() && !self.commits.exclusive() && !self.commits.full() {
            self.write_minute();
        }
        self.next_minute();
    }

    fn write_minute(&mut self) {
        // The alarm comes at its end, a little late at most.
        let start = floor(self.now.store.minus(Span::from_secs(1)), MINUTE);
        let mut dead: BTreeMap<QueueIx, u64> = BTreeMap::new();
        for letter in self.tables.dead.values() {
            *dead.entry(self.tables.partition(letter.partition).queue).or_default() += 1;
        }
        let mut rows = Vec::new();
        for queue in self.tables.all_queues() {
            let parked = self.parked_at(queue);
            let row = self.tables.queue_mut(queue);
            let mut activity = core::mem::take(&mut row.activity);
            (activity.parked, activity.partitions) = (parked, row.partitions.len() as u64);
            activity.dead_letters = dead.get(&queue).copied().unwrap_or(0);
            if !activity.is_empty() {
                let (tenant, queue) = (row.record.tenant, row.record.name.clone());
                rows.push(ActivityRow { start, tenant, queue, activity });
            }
        }
        if rows.len() > MAX_ACTIVITY_QUEUES.min(MAX_LABELLED_QUEUES) {
            rows.sort_by_key(|row| Reverse(row.activity.push_messages.saturating_add(row.activity.pop_messages)));
            rows.truncate(MAX_ACTIVITY_QUEUES);
        }
        self.counters.minute = rows.iter().take(MAX_LABELLED_QUEUES).cloned().collect();
        if rows.is_empty() {
            return;
        }
        let before = self.now.store.minus(self.settings.history_age);
        let (_, draft) = self.commits.draft();
        for row in rows {
            draft.write(Write::Activity(Box::new(row)));
        }
        draft.write(Write::DropActivity { before, limit: MAX_ACTIVITY_DROPPED });
    }

    fn parked_at(&self, queue: QueueIx) -> u64 {
        let groups = self.tables.queue(queue).groups.values().map(|group| self.tables.group(*group));
        let parked = groups.map(|group| {
            group.waiters.len() + group.partition_waiters.values().map(|waiters| waiters.len()).sum::<usize>()
        });
        parked.sum::<usize>() as u64
    }

    /// Asks the store what happened, or for traces.
    pub(super) fn fetch(&mut self, request: RequestId, tenant: TenantId, command: Command) {
        let slot = self.settings.slot;
        let (ask, report) = match command {
            Command::ReadTraces(of) => (StoreRequest::ReadTraces { slot, tenant, of }, None),
            Command::ReadTraceNames { limit, offset } => {
                (StoreRequest::ReadTraceNames { slot, tenant, limit, offset }, None)
            }
            Command::ReadActivity { queue, from, until, bucket } => {
                let until = until.unwrap_or(self.now.store);
                let from = from.unwrap_or_else(|| until.minus(REPORTED)).min(until);
                let bucket = bucket.unwrap_or_else(|| bucket_for(until.since(from)));
                let report = ActivityReport { from, until, bucket, rows: Vec::new() };
                let from = floor(from, bucket);
                (StoreRequest::ReadActivity { slot, tenant, queue, from, until, bucket }, Some(Box::new(report)))
            }
            _ => return self.reply(request, Reply::Refused(Rejection::StoreUnavailable)),
        };
        self.ask(ask, Pending::Fetch(Fetch { request, report }));
    }

    /// The store told.
    pub(super) fn fetched(&mut self, Fetch { request, report }: Fetch, reply: StoreReply) {
        let reply = match (reply, report) {
            (StoreReply::Traces { rows, total }, None) => Reply::Traces(rows, total),
            (StoreReply::TraceNames { rows, total }, None) => Reply::TraceNames(rows, total),
            (StoreReply::Activity(rows), Some(report)) => Reply::Activity(ActivityReport { rows, ..*report }),
            _ => Reply::Refused(Rejection::StoreUnavailable),
        };
        self.reply(request, reply);
    }
}

/// The start of the bucket that a time lies in.
fn floor(time: Timestamp, bucket: Span) -> Timestamp {
    let length = bucket.as_micros().max(1);
    Timestamp::from_micros(time.as_micros().div_euclid(length).saturating_mul(length))
}

/// How long buckets are, by the length of the whole (16.2).
fn bucket_for(whole: Span) -> Span {
    let minutes = match whole.as_secs() {
        secs if secs <= HOUR => 1,
        secs if secs <= 6 * HOUR => 5,
        secs if secs <= 24 * HOUR => 15,
        secs if secs <= 7 * 24 * HOUR => 60,
        _ => 360,
    };
    Span::from_secs(minutes * 60)
}
