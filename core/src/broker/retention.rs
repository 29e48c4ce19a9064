//! Retention: a cycle each `RETENTION_INTERVAL` in which the slot's owner moves the watermarks of what is old, in steps,
//! and has the store remove what lies below (design.md 4.14).
//!
//! A step looks at a bounded number of partitions, by the time of their oldest segment, which memory holds as a whole
//! second; the store is asked only about those that have something old. What it says is decided by `rules::retention`
//! into the commit that is being built, so pushes and pops go on beside it (OPT-17). Groups count as far as they are
//! durably: a cursor that an open commit moves counts as it was.

mod cleanup;
mod preview;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::ops::Bound;

use super::calls::Pending;
use super::commit::{Change, Done};
use super::tables::{LaneIx, PartitionIx, QueueIx, TrimmedRow};
use super::timers::Alarm;
use super::{Broker, Notice, Output, Work};
use crate::limits::{MAX_HISTORY_AGE_CHECK, MAX_STEP_PARTITIONS, MAX_TRIM_PARTITIONS, RETENTION_PAUSE};
use crate::name::{PartitionId, QueueName, TenantId};
use crate::record::{HistoryRecord, PartitionRecord, RetentionRule, Tally};
use crate::rules::retention::{self, Boundary, Consumption, Cutoffs};
use crate::rules::start::{self, Start};
use crate::store::{Extent, ExtentRead, StoreReply, StoreRequest, Write};
use crate::time::{Moment, Timestamp};
pub(super) use preview::Preview;

/// By queue, how much each rule deleted, in the order of `RetentionRule::ALL`.
pub type Deleted = BTreeMap<(TenantId, QueueName), [Tally; 3]>;

/// Where the cycle stands.
#[derive(Default)]
pub struct Retention {
    /// Numbers the ownerships: what was begun under an earlier one ends.
    number: u64,
    phase: Phase,
    /// When the running cycle began.
    started: Moment,
    /// Partitions that have something old, and what is still to be looked at.
    found: VecDeque<Found>,
    /// Partitions that nobody seems to use any more.
    idle: Vec<PartitionId>,
    /// What the running cycle deleted.
    sums: Deleted,
    /// What was deleted since the broker's start.
    deleted: Deleted,
    /// Partitions below whose watermarks rows are to be removed.
    untrimmed: BTreeSet<PartitionId>,
    /// Those of which that failed: they are tried again in the next cycle.
    failed: Vec<PartitionId>,
    /// When unused partitions were last removed.
    cleaned: Option<Moment>,
    /// When history was last looked at, and what goes of it.
    aged: Option<Moment>,
    old_history: Option<Timestamp>,
}

#[derive(Default, Clone, PartialEq, Eq)]
enum Phase {
    /// Between two cycles.
    #[default]
    Resting,
    /// Going through the partitions: the next one's queue, and its place there.
    Sweeping(Option<(TenantId, QueueName, usize)>),
    /// All partitions were looked at.
    Ending,
}

#[derive(Clone, Copy)]
struct Found {
    partition: PartitionId,
    messages: bool,
    hashes: bool,
}

/// A watermark that moves.
pub struct Trim {
    partition: PartitionIx,
    boundary: Boundary,
}

/// Extents that were read for the cycle: the reads, and as much as the store gave of each.
pub struct Read(Vec<ExtentRead>, Vec<Vec<Extent>>);

/// What a look at a partition found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    Nothing,
    Old { messages: bool, hashes: bool },
    Unused,
}

impl Retention {
    /// The slot is not ours any more.
    pub(super) fn leave(&mut self) {
        let deleted = core::mem::take(&mut self.deleted);
        *self = Retention { number: self.number + 1, deleted, ..Retention::default() };
    }

    /// What was deleted since the broker's start.
    pub(super) fn deleted(&self) -> &Deleted {
        &self.deleted
    }

    /// Rows below a partition's watermarks are to be removed.
    pub(super) fn note_untrimmed(&mut self, partition: PartitionId) {
        self.untrimmed.insert(partition);
    }

    /// A queue is gone; so is what was counted of it.
    pub(super) fn forget_queue(&mut self, tenant: TenantId, name: &QueueName) {
        self.deleted.remove(&(tenant, name.clone()));
    }

    /// A step of trimming that is due, if there is one, and of which partitions.
    pub(super) fn next_trim(
        &mut self,
        fence: crate::store::Fence,
        limit: u32,
    ) -> Option<(StoreRequest, Vec<PartitionId>)> {
        let partitions: Vec<PartitionId> = self.untrimmed.iter().take(MAX_TRIM_PARTITIONS).copied().collect();
        if !partitions.is_empty() {
            return Some((StoreRequest::TrimLogs { fence, partitions: partitions.clone(), limit }, partitions));
        }
        let before = self.old_history?;
        Some((StoreRequest::TrimHistory { fence, before, limit }, partitions))
    }

    /// A step of trimming was answered.
    pub(super) fn trim_answered(&mut self, partitions: Vec<PartitionId>, reply: &StoreReply) {
        let more = match reply {
            StoreReply::Trimmed { more } => *more,
            _ => {
                self.failed.extend_from_slice(&partitions);
                false
            }
        };
        match partitions.is_empty() {
            true if !more => self.old_history = None,
            false if !more => partitions.iter().for_each(|id| {
                self.untrimmed.remove(id);
            }),
            true | false => {}
        }
    }
}

impl Broker {
    /// The slot is loaded: cycles begin.
    pub(super) fn start_retention(&mut self) {
        self.retention.aged = Some(self.now.monotonic);
        let at = self.now.monotonic.plus(self.settings.retention_interval);
        self.timers.set(at, Alarm::Retention(self.retention.number));
    }

    /// A cycle is due, or its next step.
    pub(super) fn retention_due(&mut self, number: u64) {
        if number != self.retention.number || self.draining {
            return;
        }
        if self.retention.phase == Phase::Resting {
            self.retention.phase = Phase::Sweeping(None);
            self.retention.started = self.now.monotonic;
        }
        self.admit(Work::Retention(number, None));
    }

    /// The next step of the cycle: what was read is decided, or it is found out what to read.
    pub(super) fn run_retention(&mut self, number: u64, read: Option<Box<Read>>) {
        if number != self.retention.number {
            return;
        }
        if self.draining || self.ownership.leaving() {
            // The next owner goes on.
            return self.end_retention();
        }
        let wrote = read.is_some_and(|read| self.decide_retention(*read));
        if wrote {
            // The next step comes when this one is durable.
            return self.commits.draft().1.tell(Done::Retention(number));
        }
        if self.retention.found.is_empty() {
            self.sweep_partitions();
        }
        if !self.retention.found.is_empty() {
            return self.read_extents();
        }
        match self.retention.phase {
            Phase::Sweeping(_) => {
                // Whoever else wants something comes first.
                self.timers.set(self.now.monotonic.plus(RETENTION_PAUSE), Alarm::Retention(number));
            }
            Phase::Ending if self.clean_up_due() => self.admit(Work::CleanUp(number)),
            Phase::Ending | Phase::Resting => self.end_retention(),
        }
    }

    /// A step of the cycle was written, or was not.
    pub(super) fn retention_written(&mut self, number: u64, durable: bool) {
        if number == self.retention.number {
            match durable {
                true => self.admit(Work::Retention(number, None)),
                false => self.end_retention(),
            }
        }
    }

    /// A step of the cycle was not carried out: the next cycle makes up for it.
    pub(super) fn refuse_retention(&mut self, number: u64) {
        if number == self.retention.number {
            self.end_retention();
        }
    }

    /// Ends the cycle, tells what it deleted, and sets when the next one begins.
    fn end_retention(&mut self) {
        let now = self.now.monotonic;
        for ((tenant, queue), tallies) in core::mem::take(&mut self.retention.sums) {
            for (rule, tally) in RetentionRule::ALL.into_iter().zip(tallies).filter(|(_, tally)| tally.messages > 0) {
                let notice = Notice::Deleted { tenant, queue: queue.clone(), rule, tally };
                self.outputs.push_back(Output::Notice(notice));
            }
        }
        let state = &mut self.retention;
        (state.phase, state.idle) = (Phase::Resting, Vec::new());
        state.found.clear();
        state.untrimmed.extend(core::mem::take(&mut state.failed));
        if state.aged.is_none_or(|last| now >= last.plus(MAX_HISTORY_AGE_CHECK)) {
            state.aged = Some(now);
            state.old_history = Some(self.now.store.minus(self.settings.history_age));
        }
        let next = state.started.plus(self.settings.retention_interval).max(now.plus(RETENTION_PAUSE));
        self.timers.set(next, Alarm::Retention(self.retention.number));
    }

    /// Goes through the next partitions until enough have something old.
    fn sweep_partitions(&mut self) {
        let Phase::Sweeping(mut at) = core::mem::take(&mut self.retention.phase) else {
            return self.retention.phase = Phase::Ending;
        };
        let open = self.commits.open_cursors();
        let most = MAX_STEP_PARTITIONS.min(self.settings.retention_batch as usize);
        let (mut budget, mut found, mut idle) = (MAX_STEP_PARTITIONS, VecDeque::new(), Vec::new());
        self.retention.phase = loop {
            let Some((tenant, name, queue)) = self.queue_from(at.as_ref()) else { break Phase::Ending };
            let from = at.take().filter(|(_, last, _)| *last == name).map_or(0, |(_, _, place)| place);
            let row = self.tables.queue(queue);
            let cutoffs = Cutoffs::of(&row.record.options, self.now.store);
            let concerned = row.fresh.is_none() && (cutoffs.any() || !row.trimmed.is_empty());
            let mut place = if concerned { from } else { usize::MAX };
            budget = budget.saturating_sub(1);
            while let Some(partition) = row.partitions.get(place).filter(|_| budget > 0 && found.len() < most) {
                (place, budget) = (place + 1, budget - 1);
                let id = self.tables.partition(*partition).id;
                match self.look_at(*partition, &cutoffs, &open) {
                    Look::Nothing => {}
                    Look::Old { messages, hashes } => found.push_back(Found { partition: id, messages, hashes }),
                    Look::Unused => idle.push(id),
                }
            }
            at = Some((tenant, name, place));
            if budget == 0 || found.len() >= most {
                break Phase::Sweeping(at);
            }
        };
        self.retention.found = found;
        self.retention.idle.extend(idle);
    }

    /// The queue at a position that has partitions left there, or the next one.
    fn queue_from(&self, at: Option<&(TenantId, QueueName, usize)>) -> Option<(TenantId, QueueName, QueueIx)> {
        let first = at.map_or(Bound::Unbounded, |(tenant, ..)| Bound::Included(*tenant));
        for (tenant, queues) in self.tables.tenants.range((first, Bound::Unbounded)) {
            let of_tenant = at.filter(|(last, ..)| last == tenant);
            let from = of_tenant.map_or(Bound::Unbounded, |(_, name, place)| {
                let left = queues.get(name).is_some_and(|ix| *place < self.tables.queue(*ix).partitions.len());
                if left { Bound::Included(name) } else { Bound::Excluded(name) }
            });
            if let Some((name, queue)) = queues.range::<QueueName, _>((from, Bound::Unbounded)).next() {
                return Some((*tenant, name.clone(), *queue));
            }
        }
        None
    }

    /// Whether a partition has something that is old, as far as memory knows.
    fn look_at(&self, ix: PartitionIx, cutoffs: &Cutoffs, open: &OpenCursors) -> Look {
        let row = self.tables.partition(ix);
        if row.fresh {
            return Look::Nothing;
        }
        let trimmed = self.tables.queue(row.queue).trimmed.get(&ix);
        let messages = row.log_start < row.end && {
            let oldest = self.oldest_known(ix);
            let whoever = cutoffs.unconditional().is_some_and(|cutoff| oldest < cutoff);
            let completed = cutoffs.of_rule(RetentionRule::Completed).is_some_and(|cutoff| oldest < cutoff);
            whoever || (completed && self.consumption(ix, open).may_be_past(row.log_start, oldest))
        };
        let hashes = trimmed.is_some_and(|it| {
            it.trimmed.hash_start < row.log_start && it.oldest_hash.is_none_or(|oldest| oldest < cutoffs.hashes)
        });
        match messages || hashes {
            true => Look::Old { messages, hashes },
            false if trimmed.is_some() && self.is_unused(ix) => Look::Unused,
            false => Look::Nothing,
        }
    }

    /// A time no later than that of a partition's first retained message.
    fn oldest_known(&self, ix: PartitionIx) -> Timestamp {
        let row = self.tables.partition(ix);
        let exact = row.log.segment_of(row.log_start).map(|(_, created)| created);
        exact.unwrap_or_else(|| row.oldest.earliest())
    }

    /// How far the existing groups have come on a partition, durably.
    fn consumption(&self, ix: PartitionIx, open: &OpenCursors) -> Consumption {
        let row = self.tables.partition(ix);
        let mut consumption = Consumption::default();
        for at in self.tables.lanes_of(ix) {
            let lane = self.tables.lane(at);
            let next = lane.cursor().next;
            let (next, stored) =
                open.get(&at).map_or((next, lane.stored), |(before, stored)| (next.min(*before), *stored));
            let subscription = self.tables.group(lane.group).subscription.as_deref();
            match subscription.map(|it| start::implied(it, row.created)) {
                Some(Start::Since(time)) if lane.unresolved => consumption.note_start(time),
                Some(_) => consumption.note_cursor(next),
                None if stored => consumption.note_cursor(next),
                // It is just being written: the group does not exist yet.
                None => {}
            }
        }
        consumption
    }

    /// Asks the store for the oldest segments of the partitions that were found.
    fn read_extents(&mut self) {
        let limit = self.settings.retention_batch;
        let mut reads = Vec::new();
        self.retention.found.retain(|found| {
            let Some(ix) = self.tables.partition_by_id(found.partition) else { return false };
            let row = self.tables.partition(ix);
            let trimmed = self.tables.queue(row.queue).trimmed.get(&ix);
            if let Some(it) = trimmed.filter(|_| found.hashes) {
                reads.push(ExtentRead { partition: row.id, from: it.trimmed.hash_start, hashes: true });
            }
            if found.messages {
                reads.push(ExtentRead { partition: row.id, from: row.log_start, hashes: false });
            }
            true
        });
        let request = StoreRequest::LoadExtents { reads: reads.clone(), limit };
        self.ask(request, Pending::Extents(self.retention.number, reads));
    }

    /// The store told what is oldest, or could not: then the next cycle asks again.
    pub(super) fn extents_read(&mut self, number: u64, reads: Vec<ExtentRead>, reply: StoreReply) {
        if number != self.retention.number {
            return;
        }
        match reply {
            StoreReply::Extents(lists) if lists.len() == reads.len() => {
                self.admit(Work::Retention(number, Some(Box::new(Read(reads, lists)))));
            }
            _ => self.end_retention(),
        }
    }

    /// Decides about the partitions that were read; whether any watermark moves.
    fn decide_retention(&mut self, Read(reads, lists): Read) -> bool {
        let whole = whole_reads(&lists, self.settings.retention_batch);
        let open = self.commits.open_cursors();
        let mut sums = Deleted::new();
        let mut wrote = false;
        let mut left = VecDeque::new();
        let mut at = 0;
        for mut found in core::mem::take(&mut self.retention.found) {
            let (mut hashes, mut segments): (&[Extent], &[Extent]) = (&[], &[]);
            let (mut all_hashes, mut all_segments, mut from) = (true, true, None);
            while let Some(read) = reads.get(at).filter(|read| read.partition == found.partition) {
                match read.hashes {
                    true => (hashes, all_hashes) = (&lists[at], at < whole),
                    false => (segments, all_segments, from) = (&lists[at], at < whole, Some(read.from)),
                }
                at += 1;
            }
            let Some(ix) = self.tables.partition_by_id(found.partition) else { continue };
            let row = self.tables.partition(ix);
            // What is not known to be durable here is too young.
            let durable = segments.partition_point(|extent| extent.end <= row.end);
            let queue = self.tables.queue(row.queue);
            let options = &queue.record.options;
            let cutoffs = Cutoffs::of(options, self.now.store);
            let trimmed = queue.trimmed.get(&ix).map(|it| it.trimmed).unwrap_or_default();
            let segments = if from == Some(row.log_start) { &segments[..durable] } else { &[] };
            let consumption = self.consumption(ix, &open);
            let boundary = retention::boundary(row.log_start, trimmed, segments, hashes, &consumption, &cutoffs);
            found.messages &= !all_segments && boundary.oldest.is_none();
            found.hashes &= !all_hashes && boundary.oldest_hash.is_none();
            if found.messages || found.hashes {
                left.push_back(found);
            }
            if (boundary.log_start, boundary.trimmed) != (row.log_start, trimmed) {
                self.move_watermarks(ix, boundary, &mut sums);
                wrote = true;
            } else {
                self.note_oldest(ix, &boundary);
            }
        }
        self.retention.found = left;
        let minute = Timestamp::from_micros(self.now.store.as_micros().div_euclid(MINUTE) * MINUTE);
        let (_, draft) = self.commits.draft_if(wrote).unzip();
        let Some(draft) = draft else { return false };
        for ((tenant, queue), tallies) in sums {
            for (rule, tally) in RetentionRule::ALL.into_iter().zip(tallies).filter(|(_, tally)| tally.segments > 0) {
                let record = HistoryRecord { tenant, queue: queue.clone(), minute, rule, tally, events: 1 };
                draft.write(Write::History(record));
            }
        }
        wrote
    }

    fn note_oldest(&mut self, ix: PartitionIx, boundary: &Boundary) {
        let row = self.tables.partition_mut(ix);
        let queue = row.queue;
        if let Some(oldest) = boundary.oldest {
            row.oldest.set(oldest);
        }
        if let Some(it) = self.tables.queue_mut(queue).trimmed.get_mut(&ix) {
            it.oldest_hash = boundary.oldest_hash.or(it.oldest_hash);
        }
    }

    fn move_watermarks(&mut self, ix: PartitionIx, boundary: Boundary, sums: &mut Deleted) {
        let row = self.tables.partition(ix);
        let queue = &self.tables.queue(row.queue).record;
        let sum = sums.entry((queue.tenant, queue.name.clone())).or_default();
        sum.iter_mut().zip(&boundary.tallies).for_each(|(sum, tally)| sum.add(tally));
        let record = PartitionRecord {
            id: row.id,
            queue: queue.id,
            name: row.name.clone(),
            created: row.created,
            log_start: boundary.log_start,
            trimmed: boundary.trimmed,
        };
        let (_, draft) = self.commits.draft();
        draft.write(Write::Partition(record));
        draft.change(Change::Trim(Box::new(Trim { partition: ix, boundary })));
    }

    /// A partition's watermarks have moved.
    pub(super) fn keep_trim(&mut self, Trim { partition: ix, boundary }: Trim) {
        let row = self.tables.partition_mut(ix);
        let segments: u64 = boundary.tallies.iter().map(|tally| tally.segments).sum();
        row.segments = row.segments.map(|count| count.saturating_sub(u32::try_from(segments).unwrap_or(u32::MAX)));
        if segments > 0 {
            row.oldest.forget();
        }
        row.log_start = boundary.log_start;
        let (id, queue) = (row.id, row.queue);
        let row = self.tables.queue_mut(queue);
        let kept = TrimmedRow { trimmed: boundary.trimmed, oldest_hash: boundary.oldest_hash };
        row.trimmed.insert(ix, kept);
        let name = (row.record.tenant, row.record.name.clone());
        for sums in [&mut self.retention.sums, &mut self.retention.deleted] {
            let sum = sums.entry(name.clone()).or_default();
            sum.iter_mut().zip(&boundary.tallies).for_each(|(sum, tally)| sum.add(tally));
        }
        self.note_oldest(ix, &boundary);
        self.retention.untrimmed.insert(id);
        self.place_partition(ix);
    }
}

/// Of lanes whose cursor an open commit writes: where it durably is, and whether it is stored.
pub type OpenCursors = BTreeMap<LaneIx, (u64, bool)>;

/// Microseconds of a minute.
const MINUTE: i64 = 60_000_000;

/// How many of the first reads were given whole: all, or those before the one that ran into the limit.
fn whole_reads(lists: &[Vec<Extent>], limit: u32) -> usize {
    let given: usize = lists.iter().map(Vec::len).sum();
    match given < limit as usize {
        true => lists.len(),
        false => lists.iter().rposition(|list| !list.is_empty()).unwrap_or(0),
    }
}
