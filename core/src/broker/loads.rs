//! What a decision needs of partitions' logs and memory does not have (design.md 4.11): it is suspended, the store is
//! asked page by page, and it is decided anew.
//!
//! Two ways: pages are kept, so that the next decision finds them in memory; or, where a log does not fit into the
//! budget (OPT-27), they are looked through for what was asked and thrown away. What was found that way is the suspended
//! work's alone (`Facts`). Logs that somebody waits for stay; of the others the one used least recently goes first.

use alloc::collections::{BTreeMap, BTreeSet, BinaryHeap};
use alloc::vec::Vec;
use core::cmp::Reverse;
use smallvec::SmallVec;

use super::calls::Pending;
use super::tables::PartitionIx;
use super::timers::Alarm;
use super::{Broker, Waiting, Work};
use crate::error::Rejection;
use crate::limits::{MAX_LOGS_READ, MAX_TIMES_READ, OUTCOME_WAIT, STORE_RETRY};
use crate::log::{Log, LogView, Question, Sketch};
use crate::name::PartitionId;
use crate::rules::dedup;
use crate::rules::visibility::Durable;
use crate::store::{LogRead, SegmentRead, StoreReply, StoreRequest};
use crate::time::Timestamp;

/// Bytes of memory that a hash is reckoned to need (OPT-27).
const HASH_BYTES: u64 = 24;

/// What a decision needs before it can be made.
pub enum Need {
    /// The answer to a question about a log.
    Of(PartitionIx, Question),
    /// The same, but what is read for it is not kept.
    Scan(PartitionIx, Question),
    /// The same, from the store alone: what memory keeps of a hash is not enough.
    Whole(PartitionIx, Question),
    /// The commit time of one message.
    Time(PartitionIx, u64),
}

/// Several of them.
pub type Needs = Vec<Need>;

/// What was found out for one piece of work, and the logs that stay in memory until it is decided.
#[derive(Default)]
pub struct Facts {
    sketches: Vec<(PartitionId, Sketch)>,
    times: BTreeMap<(PartitionId, u64), Option<Timestamp>>,
    pins: SmallVec<[PartitionIx; 1]>,
}

/// Work that waits for logs.
struct Suspended {
    waiting: Waiting,
    /// Answers still to come.
    left: usize,
}

/// One thing that a request to the store asks.
enum Part {
    /// A page that is to be kept, and the work that waits for it.
    Page(PartitionIx, LogRead, SmallVec<[u64; 1]>),
    /// A page that is to be looked through for one piece of work.
    Look(u64, Question, LogRead),
    /// A commit time.
    Time(u64, SegmentRead),
}

/// Requests for logs under way, and the memory that logs take.
#[derive(Default)]
pub struct Loads {
    /// Numbers requests and suspended work; none is used again, for a late answer may still name one.
    last: u64,
    requests: BTreeMap<u64, Vec<Part>>,
    suspended: BTreeMap<u64, Suspended>,
    /// In which request the next page of a log is asked for.
    paging: BTreeMap<PartitionIx, u64>,
    /// Logs that did not fit.
    too_large: BTreeSet<PartitionIx>,
    /// How many pieces of work need a log to stay.
    pinned: BTreeMap<PartitionIx, u32>,
    /// Bytes of all logs that were counted.
    bytes: usize,
    uses: u64,
    /// Logs in memory by their last use, or an earlier one.
    order: BinaryHeap<Reverse<(u64, PartitionIx)>>,
}

impl Loads {
    /// Whether nothing waits for a log.
    pub fn idle(&self) -> bool {
        self.suspended.is_empty()
    }

    /// Bytes that the logs in memory take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Forgets everything, for the slot is lost; answers the work that waited.
    pub fn abandon(&mut self) -> Vec<Waiting> {
        let last = self.last;
        let suspended = core::mem::take(self).suspended;
        self.last = last;
        suspended.into_values().map(|work| Waiting::new(work.waiting.since, work.waiting.work)).collect()
    }

    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn pin(&mut self, facts: &mut Facts, partition: PartitionIx) {
        if !facts.pins.contains(&partition) {
            facts.pins.push(partition);
            *self.pinned.entry(partition).or_default() += 1;
        }
    }

    /// Lets go of the logs that a piece of work needed.
    pub fn unpin(&mut self, facts: Facts) {
        for partition in facts.pins {
            if let Some(count) = self.pinned.get_mut(&partition) {
                *count -= 1;
                if *count == 0 {
                    self.pinned.remove(&partition);
                }
            }
        }
    }
}

impl Broker {
    /// What is known of a partition's log.
    pub(super) fn view(&self, partition: PartitionIx) -> LogView<'_> {
        let row = self.tables.partition(partition);
        LogView::new(&row.log, row.id, &self.facts.sketches)
    }

    /// The durable part of a partition, as the rules ask about it.
    pub(super) fn durable(&self, partition: PartitionIx) -> Durable<'_> {
        let row = self.tables.partition(partition);
        Durable { log: self.view(partition), start: row.log_start, end: row.end }
    }

    /// What a scan found for the work at hand.
    pub(super) fn sketches(&self, partition: PartitionId) -> impl Iterator<Item = &Sketch> {
        self.facts.sketches.iter().filter(move |(of, sketch)| *of == partition && sketch.complete).map(|it| &it.1)
    }

    /// The commit time of a durable message, none where it is gone; or that it has to be read.
    pub(super) fn known_time(&self, partition: PartitionIx, offset: u64) -> Result<Option<Timestamp>, Need> {
        let row = self.tables.partition(partition);
        if offset + 1 == row.end {
            return Ok(row.log.last_below(row.end));
        }
        if let Some((_, created)) = row.log.segment_of(offset) {
            return Ok(Some(created));
        }
        self.facts.times.get(&(row.id, offset)).copied().ok_or(Need::Time(partition, offset))
    }

    /// Suspends work until the store has said what it needs.
    pub(super) fn suspend(&mut self, mut waiting: Waiting, needs: Needs) {
        let mut facts = core::mem::take(&mut self.facts);
        let work = self.loads.number();
        let (mut left, mut parts) = (0, Vec::new());
        let (mut logs, mut times) = (0, 0);
        for need in needs {
            match need {
                Need::Time(partition, offset) if times < MAX_TIMES_READ => {
                    times += 1;
                    let partition = self.tables.partition(partition).id;
                    parts.push(Part::Time(work, SegmentRead { partition, from: offset, end: offset + 1 }));
                }
                Need::Of(partition, question) if logs < MAX_LOGS_READ => {
                    logs += 1;
                    if self.loads.too_large.contains(&partition) {
                        parts.push(self.look(work, &mut facts, partition, question, false));
                        continue;
                    }
                    self.loads.pin(&mut facts, partition);
                    if let Some(number) = self.loads.paging.get(&partition) {
                        if join(self.loads.requests.get_mut(number), partition, work) {
                            left += 1;
                        }
                        continue;
                    }
                    let asked = parts.iter().any(|part| matches!(part, Part::Page(of, ..) if *of == partition));
                    if !asked {
                        let row = self.tables.partition(partition);
                        let read = LogRead { partition: row.id, before: row.log.first(), since: question.since };
                        parts.push(Part::Page(partition, read, SmallVec::from_slice(&[work])));
                    }
                }
                Need::Scan(partition, question) if logs < MAX_LOGS_READ => {
                    logs += 1;
                    parts.push(self.look(work, &mut facts, partition, question, false));
                }
                Need::Whole(partition, question) if logs < MAX_LOGS_READ => {
                    logs += 1;
                    parts.push(self.look(work, &mut facts, partition, question, true));
                }
                // In the next round.
                Need::Of(..) | Need::Scan(..) | Need::Whole(..) | Need::Time(..) => {}
            }
        }
        waiting.facts = facts;
        let (reads, pages): (Vec<Part>, Vec<Part>) = parts.into_iter().partition(|it| matches!(it, Part::Time(..)));
        left += reads.len() + pages.len();
        if left == 0 {
            // It asks for nothing: that would never be answered.
            self.loads.unpin(waiting.facts);
            return self.refuse(waiting.work, Rejection::StoreUnavailable);
        }
        self.loads.suspended.insert(work, Suspended { waiting, left });
        for parts in [reads, pages] {
            if !parts.is_empty() {
                let number = self.loads.number();
                for part in &parts {
                    if let Part::Page(partition, ..) = part {
                        self.loads.paging.insert(*partition, number);
                    }
                }
                self.loads.requests.insert(number, parts);
                self.ask_for_logs(number);
            }
        }
    }

    /// Goes on with a scan of a log, or starts one, below what is resident or from its end on.
    fn look(&mut self, work: u64, facts: &mut Facts, partition: PartitionIx, question: Question, whole: bool) -> Part {
        let row = self.tables.partition(partition);
        let (id, first, next) = (row.id, row.log.first(), row.log.next());
        let upto = if whole { next } else { first };
        // What was dropped from memory meanwhile left a gap.
        facts.sketches.retain(|(of, sketch)| *of != id || sketch.upto >= first);
        let begun = facts
            .sketches
            .iter()
            .find(|(of, it)| *of == id && !it.complete && it.upto >= upto && it.question.answers(&question))
            .map(|(_, sketch)| (sketch.question.clone(), sketch.from));
        let (question, before) = begun.unwrap_or_else(|| {
            self.counters.logs_probed += 1;
            facts.sketches.push((id, Sketch::new(question.clone(), upto)));
            (question, upto)
        });
        let read = LogRead { partition: id, before, since: question.since };
        Part::Look(work, question, read)
    }

    fn ask_for_logs(&mut self, number: u64) {
        let Some(parts) = self.loads.requests.get(&number) else { return };
        let (mut logs, mut times) = (Vec::new(), Vec::new());
        for part in parts {
            match part {
                Part::Page(_, read, _) | Part::Look(_, _, read) => logs.push(*read),
                Part::Time(_, read) => times.push(*read),
            }
        }
        let request = if times.is_empty() { StoreRequest::LoadLogs(logs) } else { StoreRequest::Read(times) };
        self.ask(request, Pending::Logs(number));
    }

    /// Pages of logs were read, or could not be: then they are asked for again, for as long as somebody waits.
    pub(super) fn logs_read(&mut self, number: u64, reply: StoreReply) {
        let Some(parts) = self.loads.requests.remove(&number) else { return };
        let mut told: Vec<u64> = Vec::new();
        match reply {
            StoreReply::Logs(pages) if pages.len() == parts.len() => {
                let mut kept = Vec::new();
                let mut contradicted = Vec::new();
                for (part, page) in parts.into_iter().zip(pages) {
                    match part {
                        Part::Page(partition, read, works) => {
                            self.loads.paging.remove(&partition);
                            self.counters.logs_loaded += u64::from(!page.more);
                            if self.tables.partition_by_id(read.partition) == Some(partition) {
                                let asked_for = self.tables.partition(partition).log.first() == read.before;
                                let mut joins = true;
                                self.change_log(partition, |log| {
                                    joins = log.prepend(&page.segments, read.since, page.more);
                                });
                                if asked_for && !joins {
                                    contradicted.push(Part::Page(partition, read, works));
                                    continue;
                                }
                                kept.push(partition);
                            }
                            told.extend(works);
                        }
                        Part::Look(work, question, read) => {
                            let suspended = self.loads.suspended.get_mut(&work);
                            let sketches = suspended.into_iter().flat_map(|it| &mut it.waiting.facts.sketches);
                            let asked = |it: &&mut (PartitionId, Sketch)| {
                                it.0 == read.partition && !it.1.complete && it.1.question == question
                            };
                            if let Some((_, sketch)) = { sketches }.find(asked) {
                                let before = sketch.from;
                                sketch.look(&page.segments, page.more);
                                if sketch.from == before && !sketch.complete {
                                    contradicted.push(Part::Look(work, question, read));
                                    continue;
                                }
                                let small = (sketch.seen * HASH_BYTES) < self.settings.dedup_cache_bytes / 2;
                                let whole = sketch.complete && sketch.question.from == 0;
                                let ix = self.tables.partition_by_id(read.partition);
                                if let Some(ix) = ix.filter(|_| whole && small) {
                                    self.loads.too_large.remove(&ix);
                                }
                            }
                            told.push(work);
                        }
                        Part::Time(work, _) => told.push(work),
                    }
                }
                self.keep_to_budget(&kept);
                self.doubt(contradicted);
            }
            StoreReply::Segments(lists) if lists.len() == parts.len() => {
                for (part, slices) in parts.into_iter().zip(lists) {
                    let (Part::Time(work, _) | Part::Look(work, ..)) = part else { continue };
                    if let (Some(suspended), Part::Time(_, read)) = (self.loads.suspended.get_mut(&work), &part) {
                        let created = slices.first().map(|slice| slice.created);
                        suspended.waiting.facts.times.insert((read.partition, read.from), created);
                    }
                    told.push(work);
                }
            }
            _ => {
                self.loads.requests.insert(number, parts);
                self.timers.set(self.now.monotonic.plus(STORE_RETRY), Alarm::Logs(number));
                return;
            }
        }
        for work in told {
            let Some(suspended) = self.loads.suspended.get_mut(&work) else { continue };
            suspended.left -= 1;
            if suspended.left == 0
                && let Some(suspended) = self.loads.suspended.remove(&work)
            {
                self.admit_since(suspended.waiting);
            }
        }
    }

    /// The store lacks what stands in memory: it has lost a suffix, as a renewal will say before long. Asking at once
    /// would go round until then.
    fn doubt(&mut self, parts: Vec<Part>) {
        if parts.is_empty() {
            return;
        }
        let number = self.loads.number();
        for part in &parts {
            if let Part::Page(partition, ..) = part {
                self.loads.paging.insert(*partition, number);
            }
        }
        self.loads.requests.insert(number, parts);
        self.timers.set(self.now.monotonic.plus(STORE_RETRY), Alarm::Logs(number));
    }

    /// A request for logs that failed is made again, without those who have waited long enough.
    pub(super) fn retry_logs(&mut self, number: u64) {
        let now = self.now.monotonic;
        let over: Vec<u64> = self
            .loads
            .suspended
            .iter()
            .filter(|(_, it)| {
                let since = it.waiting.since;
                let until = match &it.waiting.work {
                    Work::Pop(request) => self.pop_patience(*request, since, OUTCOME_WAIT),
                    _ => since.plus(OUTCOME_WAIT),
                };
                until <= now
            })
            .map(|(work, _)| *work)
            .collect();
        for work in over {
            if let Some(suspended) = self.loads.suspended.remove(&work) {
                self.loads.unpin(suspended.waiting.facts);
                self.refuse(suspended.waiting.work, Rejection::StoreUnavailable);
            }
        }
        self.ask_for_logs(number);
    }

    /// Changes a partition's log, and keeps count of what logs take.
    pub(super) fn change_log(&mut self, partition: PartitionIx, change: impl FnOnce(&mut Log)) {
        let Some(row) = self.tables.find_partition_row(partition) else { return };
        self.loads.bytes = self.loads.bytes.saturating_sub(row.log.discharge());
        change(&mut row.log);
        self.charge_log(partition);
    }

    /// A partition's log grew, or was used.
    pub(super) fn charge_log(&mut self, partition: PartitionIx) {
        let Some(row) = self.tables.find_partition_row(partition) else { return };
        let (before, after) = row.log.charge();
        self.loads.bytes = self.loads.bytes.saturating_sub(before) + after;
        self.loads.uses += 1;
        if row.log.used() == Some(0) {
            row.log.touch(self.loads.uses);
            self.loads.order.push(Reverse((self.loads.uses, partition)));
            self.tidy_order();
        }
        if let Some(row) = self.tables.find_partition_row(partition) {
            row.log.touch(self.loads.uses);
        }
    }

    /// Forgets entries of logs that are gone, once these may be the most.
    fn tidy_order(&mut self) {
        if self.loads.order.len() < 1_024 + 2 * self.tables.sizes().1 {
            return;
        }
        let mut seen = BTreeSet::new();
        let mut entries = core::mem::take(&mut self.loads.order).into_vec();
        entries.retain(|Reverse((_, partition))| {
            let used = self.tables.find_partition_row(*partition).and_then(|row| row.log.used());
            used.is_some() && seen.insert(*partition)
        });
        self.loads.order = entries.into();
    }

    /// Drops what no rule asks for any more as long as the options are what they are.
    pub(super) fn age_log(&mut self, partition: PartitionIx) {
        let row = self.tables.partition(partition);
        let time = dedup::needed_since(&self.tables.queue(row.queue).record.options, self.now.store);
        let row = self.tables.partition_mut(partition);
        row.log.drop_before(time, row.end);
        self.charge_log(partition);
    }

    /// Puts logs out of memory until the rest fits. `fresh` were just read: when all others are needed too, they are the
    /// ones that do not fit.
    pub(super) fn keep_to_budget(&mut self, fresh: &[PartitionIx]) {
        let budget = usize::try_from(self.settings.dedup_cache_bytes).unwrap_or(usize::MAX);
        let mut kept = Vec::new();
        while self.loads.bytes > budget
            && let Some(Reverse((used, partition))) = self.loads.order.pop()
        {
            let Some(row) = self.tables.find_partition_row(partition) else { continue };
            match row.log.used() {
                None => continue,
                Some(last) if last > used => self.loads.order.push(Reverse((last, partition))),
                Some(_) if row.writer.is_some() || self.loads.pinned.contains_key(&partition) => {
                    kept.push(Reverse((used, partition)));
                }
                Some(_) => {
                    self.counters.logs_evicted += 1;
                    self.change_log(partition, Log::chill);
                }
            }
        }
        self.loads.order.extend(kept);
        for partition in fresh {
            if self.loads.bytes <= budget {
                break;
            }
            let Some(row) = self.tables.find_partition_row(*partition) else { continue };
            let idle = row.writer.is_none();
            let end = row.end;
            self.loads.too_large.insert(*partition);
            self.counters.logs_evicted += 1;
            self.change_log(*partition, |log| if idle { log.chill() } else { log.drop_before(Timestamp::MAX, end) });
        }
    }

    /// A partition goes: its log takes no memory any more.
    pub(super) fn forget_log(&mut self, partition: PartitionIx) {
        self.change_log(partition, |log| *log = Log::default());
        self.loads.too_large.remove(&partition);
    }
}

/// Lets work wait for a page that is under way; false when it does so already.
fn join(parts: Option<&mut Vec<Part>>, partition: PartitionIx, work: u64) -> bool {
    for part in parts.into_iter().flatten() {
        if let Part::Page(of, _, works) = part
            && *of == partition
            && !works.contains(&work)
        {
            works.push(work);
            return true;
        }
    }
    false
}
