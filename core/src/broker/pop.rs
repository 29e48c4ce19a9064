//! Pops: which partitions a call takes from, for how long, and what it is told.
//!
//! A pop claims by moving cursors in a commit and reads the messages meanwhile; it is answered when both are done.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use smallvec::SmallVec;

use super::calls::Pending;
use super::commit::{Change, Done, Seat};
use super::loads::{Need, Needs};
use super::tables::{GroupIx, LaneIx, PartitionIx, Place, QueueIx};
use super::timers::Alarm;
use super::waiters::Spot;
use super::{Broker, Waiting, Work};
use crate::command::{Pop, PopScope, RequestId};
use crate::error::Rejection;
use crate::limits::{MAX_LOGS_READ, OUTCOME_WAIT, STORE_RETRY};
use crate::log::Question;
use crate::message::SegmentSlice;
use crate::name::{LeaseId, PartitionId, PartitionName, QueueId, TenantId};
use crate::options::{Labels, QueueOptions};
use crate::record::{Cursor, StartFrom, SubscriptionRecord};
use crate::reply::{Claim, DeliveredMessage, Delivery, Reply};
use crate::rules::start::{self, Start};
use crate::rules::{ids, lease, visibility};
use crate::store::{SegmentRead, StoreReply, StoreRequest, Write};
use crate::time::{Moment, Span, Timestamp};

/// A pop from its arrival until its answer is written.
pub struct PopCall {
    pub(super) tenant: TenantId,
    pub(super) pop: Pop,
    /// Order of arrival.
    pub(super) seq: u64,
    /// When its wait ends; none for a pop that does not wait.
    pub(super) deadline: Option<Moment>,
    /// Since when it is held back for more messages, and when that is looked at again.
    hold: Option<(Moment, Moment)>,
    /// It has waited once for the cursors of its group to settle.
    patient: bool,
    pub(super) stage: Stage,
    /// Where it is parked.
    pub(super) spots: SmallVec<[Spot; 1]>,
}

impl PopCall {
    /// Forgets that it is held back.
    pub(super) fn clear_hold(&mut self, timers: &mut super::timers::Timers) {
        if let Some((_, until)) = self.hold.take() {
            timers.clear(until, Alarm::Hold(self.seq));
        }
    }
}

/// Where a pop is on its way.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Among work that waits.
    Queued,
    /// Its client left before it could be decided.
    Left,
    /// Parked until something becomes ready.
    Parked,
    /// Its claims are being written and its messages read.
    Delivering(u64),
    /// Answered under this lease; the answer is not yet written.
    Answered(LeaseId),
}

/// Claims on their way to a client.
pub struct PendingDelivery {
    request: RequestId,
    lease: Option<LeaseId>,
    claims: SmallVec<[(QueueId, PartitionId, PartitionName); 1]>,
    reads: Vec<SegmentRead>,
    /// When a read that fails is no longer repeated.
    give_up: Moment,
    segments: Option<Result<Vec<Vec<SegmentSlice>>, Rejection>>,
    committed: bool,
    abandoned: bool,
}

/// What trying to serve a pop came to.
enum Attempt {
    /// It took something.
    Claimed,
    /// A commit has to be settled first.
    After(Seat),
    /// It wrote what it needs to the commit being built; it is told how that ends.
    Wrote,
    /// More of some logs has to be known first.
    Needs(Needs),
    /// There is something, but less than it wants: hold it until then.
    Hold(Moment),
    /// There is nothing.
    Nothing,
}

/// Why a pop cannot be decided yet.
enum Blocked {
    By(Seat),
    Wrote,
    Needs(Needs),
}

/// The lanes a pop may take from.
enum Reach {
    Lane(LaneIx),
    Groups(SmallVec<[GroupIx; 1]>),
}

impl Broker {
    pub(super) fn pop_request(&mut self, request: RequestId, tenant: TenantId, pop: Pop) {
        self.counters.pop_requests += 1;
        match pop.scope {
            PopScope::Partition(..) => self.counters.pop_targeted += 1,
            PopScope::Queue(_) | PopScope::Labels(_) => self.counters.pop_wildcard += 1,
        }
        let deadline = pop.wait.filter(|wait| wait.is_positive()).map(|wait| self.now.monotonic.plus(wait));
        let seq = self.waiters.next_seq();
        let (hold, patient, stage, spots) = (None, false, Stage::Queued, SmallVec::new());
        let call = Box::new(PopCall { tenant, pop, seq, deadline, hold, patient, stage, spots });
        self.pops.insert(request, call);
        self.admit(Work::Pop(request));
    }

    /// Until when a pop that waits for its slot or the store is kept.
    pub(super) fn pop_patience(&self, request: RequestId, since: Moment, patience: Span) -> Moment {
        let deadline = self.pops.get(&request).and_then(|call| call.deadline);
        deadline.unwrap_or_else(|| since.plus(patience))
    }

    pub(super) fn refuse_pop(&mut self, request: RequestId, rejection: Rejection) {
        if let Some(call) = self.pops.remove(&request)
            && call.stage != Stage::Left
        {
            self.reply(request, Reply::Refused(rejection));
        }
    }

    /// Serves a pop that just arrived or has waited for a commit; parks it, or answers empty, when there is nothing.
    pub(super) fn run_pop(&mut self, since: Moment, request: RequestId) {
        let Some(mut call) = self.pops.remove(&request) else { return };
        if call.stage == Stage::Left {
            return;
        }
        match self.attempt(request, &mut call) {
            Attempt::Claimed => {
                self.pops.insert(request, call);
            }
            Attempt::After(seat) => {
                self.pops.insert(request, call);
                self.wait(seat, Waiting::new(since, Work::Pop(request)));
            }
            Attempt::Wrote => {
                self.pops.insert(request, call);
                self.commits.draft().1.tell(Done::PopAgain(request, since));
            }
            Attempt::Needs(needs) => {
                self.pops.insert(request, call);
                self.suspend(Waiting::new(since, Work::Pop(request)), needs);
            }
            Attempt::Hold(_) | Attempt::Nothing => self.park(request, call),
        }
    }

    /// Serves a parked pop if it can be. Answers whether it took something.
    pub(super) fn serve_parked(&mut self, request: RequestId) -> bool {
        let Some(mut call) = self.pops.remove(&request) else { return false };
        let attempt = self.attempt(request, &mut call);
        let claimed = matches!(attempt, Attempt::Claimed);
        match attempt {
            Attempt::Claimed if plant!(WaiterServedTwice) => {}
            Attempt::Claimed => self.unpark(&mut call),
            Attempt::Hold(until) => self.timers.set(until, Alarm::Hold(call.seq)),
            Attempt::Nothing => {}
            Attempt::After(seat) => {
                self.unpark(&mut call);
                call.stage = Stage::Queued;
                let since = self.now.monotonic;
                self.wait(seat, Waiting::new(since, Work::Pop(request)));
            }
            Attempt::Needs(needs) => {
                self.unpark(&mut call);
                call.stage = Stage::Queued;
                self.pops.insert(request, call);
                self.suspend(Waiting::new(self.now.monotonic, Work::Pop(request)), needs);
                return false;
            }
            Attempt::Wrote => {
                self.unpark(&mut call);
                call.stage = Stage::Queued;
                let since = self.now.monotonic;
                self.commits.draft().1.tell(Done::PopAgain(request, since));
            }
        }
        self.pops.insert(request, call);
        claimed
    }

    /// Parks a pop; one that does not wait, or has waited long enough, is answered empty.
    fn park(&mut self, request: RequestId, mut call: Box<PopCall>) {
        let Some(deadline) =
            call.deadline.filter(|at| *at > self.now.monotonic && !self.draining && !self.maintenance.pop)
        else {
            self.end_hold(&mut call);
            self.count_empty(&call);
            return self.reply(request, Reply::Popped(None));
        };
        call.stage = Stage::Parked;
        call.spots = self.spots_for(&call);
        for spot in &call.spots {
            self.waiters.add(&mut self.tables, spot, call.seq);
        }
        self.waiters.parked.insert(call.seq, request);
        self.timers.set(deadline, Alarm::Wait(call.seq));
        if let Some((_, until)) = call.hold {
            self.timers.set(until, Alarm::Hold(call.seq));
        }
        self.pops.insert(request, call);
    }

    /// Takes a parked pop out of every list.
    pub(super) fn unpark(&mut self, call: &mut PopCall) {
        for spot in core::mem::take(&mut call.spots) {
            self.waiters.remove(&mut self.tables, &spot, call.seq);
        }
        self.waiters.parked.remove(&call.seq);
        if let Some(deadline) = call.deadline {
            self.timers.clear(deadline, Alarm::Wait(call.seq));
        }
        if let Some((_, until)) = call.hold {
            self.timers.clear(until, Alarm::Hold(call.seq));
        }
    }

    /// Tries to claim for a pop.
    fn attempt(&mut self, request: RequestId, call: &mut PopCall) -> Attempt {
        let reach = match self.reach(call) {
            Ok(Some(reach)) => reach,
            Ok(None) => return Attempt::Nothing,
            Err(Blocked::By(seat)) => return Attempt::After(seat),
            Err(Blocked::Wrote) => return Attempt::Wrote,
            Err(Blocked::Needs(needs)) => return Attempt::Needs(needs),
        };
        let needs = self.pop_needs(call, &reach);
        if !needs.is_empty() {
            return Attempt::Needs(needs);
        }
        if let Some(until) = self.fill_wait(call, &reach) {
            return Attempt::Hold(until);
        }
        if self.claim(request, call, &reach) {
            self.end_hold(call);
            return Attempt::Claimed;
        }
        match reach {
            Reach::Lane(lane) => match self.tables.lane(lane).writer {
                Some(seat) => Attempt::After(seat),
                None => Attempt::Nothing,
            },
            // A cursor that is being written may turn out to leave something: look once more before saying "empty".
            Reach::Groups(groups) => {
                let busy = groups.iter().any(|group| self.tables.group(*group).busy > 0);
                match self.commits.youngest().filter(|_| busy && !call.patient && call.stage == Stage::Queued) {
                    Some(seat) => {
                        call.patient = true;
                        Attempt::After(seat)
                    }
                    None => Attempt::Nothing,
                }
            }
        }
    }

    /// The lanes a pop may take from: none where nothing exists, or a commit that must be settled first. First contact
    /// of a group writes what it needs to.
    fn reach(&mut self, call: &PopCall) -> Result<Option<Reach>, Blocked> {
        let start = call.pop.start.unwrap_or(self.settings.default_start);
        match &call.pop.scope {
            PopScope::Partition(queue, partition) => self.lane_for_pop(call, queue, partition, start),
            PopScope::Queue(name) => {
                let queue = match self.tables.find_queue(call.tenant, name) {
                    Some(queue) => queue,
                    // The empty name is never made by a pop (6.5).
                    None if name.as_str().is_empty() => return Ok(None),
                    None => {
                        let labels = Labels::derived(name.as_str());
                        self.make_queue(call.tenant, name, QueueOptions::implicit(), labels)
                    }
                };
                let group = self.registered(queue, call, start)?;
                Ok(Some(Reach::Groups(SmallVec::from_slice(&[group]))))
            }
            PopScope::Labels(labels) => {
                let mut blocked = None;
                let mut groups = SmallVec::new();
                let queues: Vec<QueueIx> = self
                    .tables
                    .queues_of(call.tenant)
                    .filter(|queue| self.tables.queue(*queue).record.labels.match_wanted(labels))
                    .collect();
                for queue in queues {
                    match self.registered(queue, call, start) {
                        Ok(group) => groups.push(group),
                        Err(Blocked::By(seat)) => blocked = blocked.or(Some(Blocked::By(seat))),
                        Err(other) => blocked = Some(other),
                    }
                }
                blocked.map_or(Ok(Some(Reach::Groups(groups))), Err)
            }
        }
    }

    fn lane_for_pop(
        &mut self,
        call: &PopCall,
        queue: &crate::name::QueueName,
        partition: &PartitionName,
        start: StartFrom,
    ) -> Result<Option<Reach>, Blocked> {
        let Some(queue) = self.tables.find_queue(call.tenant, queue) else { return Ok(None) };
        let Some(partition) = self.tables.find_partition(queue, partition) else { return Ok(None) };
        if self.tables.partition(partition).fresh {
            return Ok(None);
        }
        let group = self.tables.group_of(queue, &call.pop.group);
        if let Some(seat) = self.tables.group(group).writer {
            return Err(Blocked::By(seat));
        }
        let lane = match self.tables.find_lane(partition, group) {
            Some(lane) => lane,
            None => {
                let start = if call.pop.group.is_queue_mode() { StartFrom::All } else { start };
                let next = self.resolve(start::requested(start), partition).map_err(|question| {
                    self.tables.tidy_group(group);
                    Blocked::Needs(vec![Need::Of(partition, question)])
                })?;
                self.tables.add_lane(partition, group, Cursor { next, ..Cursor::default() }, false)
            }
        };
        let row = self.tables.lane(lane);
        if !row.stored && row.writer.is_none() && self.tables.group(group).subscription.is_none() {
            // Without a record the start is known only now: it is written even when the pop answers empty.
            let cursor = row.cursor();
            self.write_cursor(lane, cursor);
            return Err(Blocked::Wrote);
        }
        match self.tables.lane(lane).writer {
            Some(seat) => Err(Blocked::By(seat)),
            None => Ok(Some(Reach::Lane(lane))),
        }
    }

    /// A group's row on a queue once its subscription is durable; the first contact writes it (6.5).
    fn registered(&mut self, queue: QueueIx, call: &PopCall, start: StartFrom) -> Result<GroupIx, Blocked> {
        let group = self.tables.group_of(queue, &call.pop.group);
        let row = self.tables.group(group);
        if let Some(seat) = row.writer {
            return Err(Blocked::By(seat));
        }
        if let Some(seat) = self.commits.blocks(self.tables.queue(queue).fresh) {
            return Err(Blocked::By(seat));
        }
        if row.subscription.is_some() {
            return Ok(group);
        }
        let (seat, _) = self.commits.draft();
        let queue_row = self.tables.queue_mut(queue);
        let mut registered = self.now.store.max(queue_row.latest.next());
        plant!(RegistrationNotLater => registered = self.now.store);
        queue_row.latest = registered;
        queue_row.registered = registered;
        let start = if call.pop.group.is_queue_mode() { StartFrom::All } else { start };
        let record = SubscriptionRecord {
            queue: queue_row.record.id,
            group: call.pop.group.clone(),
            start,
            registered,
            changed: None,
        };
        self.tables.group_mut(group).writer = Some(seat);
        let (_, draft) = self.commits.draft();
        draft.write(Write::Subscription(record.clone()));
        draft.change(Change::Subscribe(group, Box::new(record)));
        Err(Blocked::Wrote)
    }

    /// The offset that a start means on a partition; or what has to be known of its log to tell.
    pub(super) fn resolve(&self, start: Start, partition: PartitionIx) -> Result<u64, Question> {
        let row = self.tables.partition(partition);
        match start {
            Start::Beginning => Ok(row.log_start),
            Start::End => Ok(row.end),
            Start::Since(time) if time <= row.created => Ok(row.log_start),
            Start::Since(time) => {
                let found = self.view(partition).first_since(time);
                found.map(|first| first.max(row.log_start)).ok_or_else(|| Question::first(time))
            }
        }
    }

    /// What has to be known of logs before a pop can be decided: of the lanes that it would take from, in their order.
    fn pop_needs(&mut self, call: &PopCall, reach: &Reach) -> Needs {
        if let Reach::Lane(lane) = reach
            && let Some(need) = self.resolve_lane(*lane)
        {
            return vec![need];
        }
        // Most queues hold nothing back, and most lanes' starts are known.
        if !self.may_need_logs(reach) {
            return Needs::new();
        }
        loop {
            let lanes = self.first_lanes(call, reach);
            let (mut needs, mut passed_over) = (Needs::new(), false);
            let mut cap = call.pop.partitions.map_or(usize::MAX, |cap| cap as usize);
            let mut left = u64::from(call.pop.batch.max(1));
            for lane in lanes {
                if cap == 0 || left == 0 || needs.len() >= MAX_LOGS_READ {
                    return needs;
                }
                match self.lane_need(lane, left) {
                    Some(need) => needs.push(need),
                    None if matches!(self.tables.lane(lane).place(), Place::Ready(_)) => {
                        let (first, end) = self.batch_of(lane, left);
                        left -= end - first;
                        cap -= usize::from(end > first);
                    }
                    None => passed_over = true,
                }
            }
            // Lanes that only passed for ready made room for others behind them.
            if !needs.is_empty() || !passed_over {
                return needs;
            }
        }
    }

    /// Whether some queue in reach holds messages back, or some group's start is open.
    fn may_need_logs(&self, reach: &Reach) -> bool {
        let holds = |queue: QueueIx| {
            let options = &self.tables.queue(queue).record.options;
            options.delayed_processing > 0 || options.window_buffer > 0
        };
        match reach {
            Reach::Lane(lane) => holds(self.tables.partition(self.tables.lane(*lane).partition).queue),
            Reach::Groups(groups) => groups.iter().any(|group| {
                let row = self.tables.group(*group);
                row.unresolved > 0 || holds(row.queue)
            }),
        }
    }

    /// The ready lanes that a pop looks at first, in order.
    fn first_lanes(&self, call: &PopCall, reach: &Reach) -> Vec<LaneIx> {
        match reach {
            Reach::Lane(lane) => {
                let ready = matches!(self.tables.lane(*lane).place(), Place::Ready(_));
                ready.then_some(*lane).into_iter().collect()
            }
            Reach::Groups(groups) => {
                let wanted = call.pop.partitions.map_or(usize::MAX, |cap| cap as usize).min(call.pop.batch as usize);
                let count = wanted.saturating_add(MAX_LOGS_READ);
                let ready = groups.iter().flat_map(|group| self.tables.group(*group).ready.iter().take(count));
                let mut lanes: Vec<(u64, LaneIx)> = ready.map(|(seq, lane)| (*seq, *lane)).collect();
                lanes.sort_unstable();
                lanes.into_iter().take(count).map(|(_, lane)| lane).collect()
            }
        }
    }

    /// What has to be known of a ready lane's log; a lane of which enough is known is put where it belongs.
    fn lane_need(&mut self, lane: LaneIx, budget: u64) -> Option<Need> {
        if let Some(need) = self.resolve_lane(lane) {
            return Some(need);
        }
        let row = self.tables.lane(lane);
        let (partition, group) = (row.partition, row.group);
        let options = &self.tables.queue(self.tables.partition(partition).queue).record.options;
        let (durable, rule, now) = (self.durable(partition), self.window_rule(), self.now.store);
        if let Some(question) = visibility::unknown(&row.cursor(), durable, options, rule, budget, now) {
            return Some(Need::Of(partition, question));
        }
        // This very pop looks at it: nobody is to be woken.
        let woken = self.waiters.awake.contains(&group);
        self.place(lane);
        if !woken {
            self.waiters.awake.remove(&group);
        }
        None
    }

    /// Until when a pop is held back for more messages (OPT-20); none when it is to be served as it is.
    fn fill_wait(&mut self, call: &mut PopCall, reach: &Reach) -> Option<Moment> {
        let deadline = call.deadline?;
        let now = self.now.monotonic;
        let options = |queue: QueueIx| self.tables.queue(queue).record.options.min_pop_wait_time;
        let longest = match reach {
            Reach::Lane(lane) => options(self.tables.partition(self.tables.lane(*lane).partition).queue),
            Reach::Groups(groups) => {
                let each = groups.iter().map(|group| options(self.tables.group(*group).queue));
                each.filter(|wait| *wait > 0).min().unwrap_or(0)
            }
        };
        if longest <= 0 || call.pop.batch <= 1 || now >= deadline {
            return None;
        }
        let (waiting, more_at) = self.deliverable_now(call, reach);
        if waiting == 0 {
            self.end_hold(call);
            return None;
        }
        if waiting >= u64::from(call.pop.batch) && !plant!(FullBatchHeld) {
            return None;
        }
        let since = match call.hold {
            Some((since, wake)) => {
                self.timers.clear(wake, Alarm::Hold(call.seq));
                since
            }
            None => {
                self.counters.fill_waits += 1;
                now
            }
        };
        // Reckoned anew each time: a changed option holds at once, and a delay may let go of more.
        let until = since.plus(Span::from_millis(longest)).min(deadline);
        let more_at = more_at.map(|at| now.plus(at.since(self.now.store)));
        let wake = more_at.map_or(until, |at| until.min(at));
        call.hold = Some((since, wake));
        (now < until).then_some(wake)
    }

    fn end_hold(&mut self, call: &mut PopCall) {
        if let Some((since, until)) = call.hold.take() {
            self.timers.clear(until, Alarm::Hold(call.seq));
            self.counters.fill_wait_micros += self.now.monotonic.since(since).as_micros() as u64;
        }
    }

    /// How many messages the pop would be given now, counted up to its batch; and when a delay next lets go of more in
    /// the partitions it would take from.
    fn deliverable_now(&self, call: &PopCall, reach: &Reach) -> (u64, Option<Timestamp>) {
        let mut lanes: Vec<(u64, LaneIx)> = Vec::new();
        match reach {
            Reach::Lane(lane) => match self.tables.lane(*lane).place() {
                Place::Ready(seq) => lanes.push((seq, *lane)),
                Place::Idle | Place::Timed(_) => {}
            },
            Reach::Groups(groups) => {
                for group in groups {
                    let first = self.tables.group(*group).ready.iter().take(call.pop.batch as usize);
                    lanes.extend(first.map(|(seq, lane)| (*seq, *lane)));
                }
                lanes.sort_unstable();
            }
        }
        let partitions = call.pop.partitions.map_or(usize::MAX, |cap| cap as usize);
        let (mut left, mut more_at) = (u64::from(call.pop.batch), None);
        for (_, lane) in lanes.into_iter().take(partitions) {
            let (first, end) = self.batch_of(lane, left);
            left -= end - first;
            if left == 0 {
                break;
            }
            let partition = self.tables.partition(self.tables.lane(lane).partition);
            if end < partition.end {
                let delay = self.tables.queue(partition.queue).record.options.delayed_processing;
                let due = self
                    .view(self.tables.lane(lane).partition)
                    .created_of(end)
                    .map(|created| created.plus(Span::from_secs(delay)));
                more_at = more_at.into_iter().chain(due).min();
            }
        }
        (u64::from(call.pop.batch) - left, more_at)
    }

    fn batch_of(&self, lane: LaneIx, budget: u64) -> (u64, u64) {
        let row = self.tables.lane(lane);
        let options = &self.tables.queue(self.tables.partition(row.partition).queue).record.options;
        visibility::deliverable(&row.cursor(), self.durable(row.partition), options, budget, self.now.store)
    }

    /// Claims ready lanes in order of becoming ready, until the batch is full or the cap on partitions is reached.
    fn claim(&mut self, request: RequestId, call: &mut PopCall, reach: &Reach) -> bool {
        let mut left = u64::from(call.pop.batch.max(1)) + u64::from(plant!(BatchTooLarge));
        let mut cap = match reach {
            Reach::Lane(_) => 1,
            Reach::Groups(_) if plant!(PartitionCapIgnored) => u32::MAX,
            Reach::Groups(_) => call.pop.partitions.unwrap_or(u32::MAX),
        };
        let mut id = None;
        let mut claims = SmallVec::new();
        let mut reads = Vec::new();
        while left > 0 && cap > 0 {
            let Some(lane) = self.first_ready(reach) else { break };
            let (first, end) = self.batch_of(lane, left);
            if end <= first {
                self.place(lane);
                if matches!(reach, Reach::Lane(_)) || self.first_ready(reach) == Some(lane) {
                    break;
                }
                continue;
            }
            let row = self.tables.lane(lane);
            let partition = self.tables.partition(row.partition);
            let cursor = if call.pop.auto_ack {
                lease::claim_for_good(&row.cursor(), first, end)
            } else {
                let now = self.now.store;
                let entropy = &mut self.entropy;
                let id = *id.get_or_insert_with(|| LeaseId(ids::sortable(now, entropy)));
                let options = &self.tables.queue(partition.queue).record.options;
                lease::claim(&row.cursor(), id, end, options.lease(call.pop.lease), now)
            };
            let queue = self.tables.queue(partition.queue).record.id;
            claims.push((queue, partition.id, partition.name.clone()));
            let from = first + u64::from(plant!(PopSkipsFirst) && end - first > 1);
            reads.push(SegmentRead { partition: partition.id, from, end });
            left -= end - first;
            cap -= 1;
            self.write_cursor(lane, cursor);
        }
        if claims.is_empty() {
            return false;
        }
        self.last_delivery += 1;
        let key = self.last_delivery;
        let delivery = PendingDelivery {
            request,
            lease: id,
            claims,
            reads,
            give_up: self.now.monotonic.plus(OUTCOME_WAIT),
            segments: None,
            committed: false,
            abandoned: false,
        };
        self.deliveries.insert(key, delivery);
        self.commits.draft().1.tell(Done::Pop(key));
        self.read_delivery(key);
        call.stage = Stage::Delivering(key);
        true
    }

    fn first_ready(&self, reach: &Reach) -> Option<LaneIx> {
        match reach {
            Reach::Lane(lane) => matches!(self.tables.lane(*lane).place(), Place::Ready(_)).then_some(*lane),
            Reach::Groups(groups) => {
                plant!(ReadyNewestFirst => return groups.iter().find_map(|it| self.tables.group(*it).ready.values().next_back().copied()));
                let firsts = groups.iter().filter_map(|group| self.tables.group(*group).ready.first_key_value());
                firsts.min_by_key(|(seq, _)| **seq).map(|(_, lane)| *lane)
            }
        }
    }

    /// Asks for the messages of a pop.
    pub(super) fn read_delivery(&mut self, key: u64) {
        let Some(delivery) = self.deliveries.get(&key) else { return };
        let reads = delivery.reads.clone();
        self.ask(StoreRequest::Read(reads), Pending::Delivery(key));
    }

    /// The messages of a pop were read, or could not be. A lease is then given back; what is committed on delivery is
    /// asked for again, for nobody else of the group will get it.
    pub(super) fn delivery_read(&mut self, key: u64, reply: StoreReply) {
        let now = self.now.monotonic;
        let Some(delivery) = self.deliveries.get_mut(&key) else { return };
        delivery.segments = Some(match reply {
            StoreReply::Segments(segments) => Ok(segments),
            _ if delivery.lease.is_some() => Err(Rejection::StoreUnavailable),
            _ if now >= delivery.give_up || delivery.abandoned => Err(Rejection::OutcomeUnknown),
            _ => return self.timers.set(now.plus(STORE_RETRY), Alarm::Read(key)),
        });
        if delivery.committed || plant!(PopAnsweredEarly) {
            self.deliver(key);
        }
    }

    /// The claims of a pop are durable.
    pub(super) fn delivery_committed(&mut self, key: u64) {
        let Some(delivery) = self.deliveries.get_mut(&key) else { return };
        delivery.committed = true;
        if delivery.segments.is_some() {
            self.deliver(key);
        }
    }

    /// The claims of a pop were not made, or it is not known.
    pub(super) fn delivery_failed(&mut self, key: u64, rejection: Rejection) {
        let Some(delivery) = self.deliveries.remove(&key) else { return };
        if self.pops.remove(&delivery.request).is_some() {
            self.reply(delivery.request, Reply::Refused(rejection));
        }
    }

    /// Answers a pop whose claims are durable and whose messages are here, or gives its lease back.
    fn deliver(&mut self, key: u64) {
        let Some(delivery) = self.deliveries.remove(&key) else { return };
        let PendingDelivery { request, lease, claims, segments, abandoned, .. } = delivery;
        let filled = segments.unwrap_or(Err(Rejection::StoreUnavailable)).map(|lists| {
            let filled = claims.into_iter().zip(lists).map(|((queue, partition, name), slices)| {
                let mut messages: Vec<DeliveredMessage> = slices.into_iter().flat_map(messages_of).collect();
                if !abandoned && !self.settings.keys.is_empty() {
                    self.open_all(queue, partition, &mut messages);
                }
                Claim { partition, name, messages }
            });
            filled.filter(|claim: &Claim| !claim.messages.is_empty()).collect::<Vec<Claim>>()
        });
        let (claims, refused) = match filled {
            Ok(claims) => (claims, None),
            Err(rejection) => (Vec::new(), Some(rejection)),
        };
        if abandoned || claims.is_empty() {
            if let Some(lease) = lease {
                self.admit(Work::GiveBack(lease));
            }
            match refused {
                _ if abandoned => {}
                Some(rejection) => self.refuse_pop(request, rejection),
                // What was claimed has been deleted meanwhile: the call looks again.
                None => self.restart_pop(request),
            }
            return;
        }
        let count: usize = claims.iter().map(|claim| claim.messages.len()).sum();
        self.counters.pop_messages += count as u64;
        self.count_delivery(&claims);
        match (lease, self.pops.get_mut(&request)) {
            (Some(lease), Some(call)) => call.stage = Stage::Answered(lease),
            (None, _) | (_, None) => {
                self.pops.remove(&request);
            }
        }
        self.reply(request, Reply::Popped(Some(Delivery { lease, claims })));
    }

    /// Notes what was delivered, and how long it took from commit to delivery.
    fn count_delivery(&mut self, claims: &[Claim]) {
        let now = self.now.store;
        for claim in claims {
            let Some(partition) = self.tables.partition_by_id(claim.partition) else { continue };
            let queue = self.tables.partition(partition).queue;
            let row = &mut self.tables.queue_mut(queue).activity;
            row.pop_requests += 1;
            row.pop_messages += claim.messages.len() as u64;
            row.lag_samples += claim.messages.len() as u64;
            // The messages of a segment are of one age.
            for same in claim.messages.chunk_by(|a, b| a.created == b.created) {
                let Some(first) = same.first() else { continue };
                let lag = now.since(first.created).max(Span::ZERO).as_micros().unsigned_abs() / 1_000;
                row.lag_sum_ms += lag.saturating_mul(same.len() as u64);
                row.lag_max_ms = row.lag_max_ms.max(lag);
                self.counters.delivery_ages.note(lag, same.len() as u64);
            }
        }
    }

    /// Notes a pop that was answered empty.
    pub(super) fn count_empty(&mut self, call: &PopCall) {
        self.counters.pop_empty += 1;
        if let PopScope::Queue(name) | PopScope::Partition(name, _) = &call.pop.scope
            && let Some(queue) = self.tables.find_queue(call.tenant, name)
        {
            self.count(queue, |activity| activity.pop_empty += 1);
        }
    }

    fn open_all(&mut self, queue: QueueId, partition: PartitionId, messages: &mut [DeliveredMessage]) {
        for delivered in messages {
            let stored = core::mem::take(&mut delivered.message.payload);
            delivered.message.payload = self.opened(queue, partition, delivered.id, stored).0;
        }
    }

    /// Lets a pop be decided from scratch, behind what waits already; a drain answers it empty instead.
    pub(super) fn restart_pop(&mut self, request: RequestId) {
        if self.draining {
            if self.pops.remove(&request).is_some_and(|call| call.stage != Stage::Left) {
                self.reply(request, Reply::Popped(None));
            }
        } else if let Some(call) = self.pops.get_mut(&request) {
            call.stage = Stage::Queued;
            self.backlog.push_back(Waiting::new(self.now.monotonic, Work::Pop(request)));
        }
    }

    pub(super) fn pop_sent(&mut self, request: RequestId) {
        if self.pops.get(&request).is_some_and(|call| matches!(call.stage, Stage::Answered(_))) {
            self.pops.remove(&request);
        }
    }

    /// Ends the wait of a pop, and nothing else.
    pub(super) fn pop_stop_waiting(&mut self, request: RequestId) {
        let Some(call) = self.pops.get_mut(&request) else { return };
        match call.stage {
            Stage::Queued => call.deadline = None,
            Stage::Parked => {
                let seq = call.seq;
                self.wait_over(seq);
            }
            Stage::Left | Stage::Delivering(_) | Stage::Answered(_) => {}
        }
    }

    pub(super) fn pop_gone(&mut self, request: RequestId) {
        let Some(call) = self.pops.get_mut(&request) else { return };
        match call.stage {
            Stage::Left => {}
            Stage::Queued => call.stage = Stage::Left,
            Stage::Parked => {
                if let Some(mut call) = self.pops.remove(&request) {
                    self.unpark(&mut call);
                    self.end_hold(&mut call);
                    self.tidy_after(&call);
                }
            }
            Stage::Delivering(key) => {
                self.pops.remove(&request);
                if let Some(delivery) = self.deliveries.get_mut(&key) {
                    delivery.abandoned = !plant!(AbandonedKeepsLease);
                }
            }
            Stage::Answered(lease) => {
                self.pops.remove(&request);
                plant!(UnsentKeepsLease => return);
                self.admit(Work::GiveBack(lease));
            }
        }
    }

    /// A lease whose answer could not be written ends on every partition it still covers, charging nothing.
    pub(super) fn run_give_back(&mut self, since: Moment, id: LeaseId) {
        let Some(lanes) = self.tables.leases.get(&id).cloned() else { return };
        if let Some(seat) = lanes.iter().find_map(|lane| self.tables.lane(*lane).writer) {
            return self.wait(seat, Waiting::new(since, Work::GiveBack(id)));
        }
        self.counters.given_back += 1;
        for lane in lanes {
            if let Some(cursor) = lease::give_back(&self.tables.lane(lane).cursor(), id) {
                self.write_cursor(lane, cursor);
            }
        }
    }
}

fn messages_of(slice: SegmentSlice) -> impl Iterator<Item = DeliveredMessage> {
    let SegmentSlice { created, base, messages, .. } = slice;
    messages.into_iter().zip(0u32..).map(move |(message, n)| DeliveredMessage { id: base.nth(n), created, message })
}
