//! Group commit without a timer (design.md 4.4): while commits are in flight, decisions gather in the one being built.
//!
//! Memory runs ahead of the store by exactly what the open commits hold, and each knows how to take its part back. What
//! an open commit writes is closed to every other decision until it is settled; only pushes to a partition may follow
//! each other into one commit. A reply leaves only after the commit it depends on is durable.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::num::NonZeroU8;
use smallvec::SmallVec;

use super::admin::Exclusive;
use super::calls::Pending;
use super::retention::{OpenCursors, Trim};
use super::tables::{GroupIx, LaneIx, PartitionIx, QueueIx};
use super::timers::Alarm;
use super::{Broker, Output, Waiting, Work};
use crate::command::RequestId;
use crate::error::Rejection;
use crate::limits::{MAX_COMMIT_BYTES, MAX_COMMIT_WRITES, MAX_COMMITS_IN_FLIGHT, OUTCOME_WAIT};
use crate::name::{DeadLetterId, MessageId, PartitionId};
use crate::options::{Labels, QueueOptions};
use crate::record::{Cursor, DeadLetterHead, SubscriptionRecord};
use crate::reply::{AckError, AckOutcome, PushOutcome, Reply};
use crate::rules::settle;
use crate::store::{Commit, CommitKey, CommitNo, Epoch, StoreCall, StoreReply, StoreRequest, Write};
use crate::time::{Moment, Timestamp};

/// One of the few commits that are open at once: the one being built and those in flight.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Seat(NonZeroU8);

impl Seat {
    // Counted from 1, so that an `Option` of it is one byte in a million rows.
    fn nth(n: usize) -> Self {
        Seat(NonZeroU8::MIN.saturating_add(n as u8))
    }

    fn place(self) -> usize {
        usize::from(self.0.get()) - 1
    }
}

const SEATS: usize = MAX_COMMITS_IN_FLIGHT + 1;

/// A change of memory that an open commit brings, with what it takes to keep it or to take it back.
pub enum Change {
    /// A queue was made.
    NewQueue(QueueIx),
    /// A partition was made.
    NewPartition(PartitionIx),
    /// Messages were appended from offset `from` on.
    Appended {
        /// Where.
        partition: PartitionIx,
        /// The next offset before.
        from: u64,
        /// One past the last appended.
        end: u64,
        /// Payload bytes.
        bytes: u64,
    },
    /// A cursor was moved.
    Cursor {
        /// Whose.
        lane: LaneIx,
        /// What it was.
        before: Cursor,
        /// Whether that was stored.
        stored: bool,
    },
    /// A cursor goes; its lane stays, at the start its subscription implies, or goes too.
    DropCursor {
        /// Whose.
        lane: LaneIx,
    },
    /// A group registers.
    Subscribe(GroupIx, Box<SubscriptionRecord>),
    /// A group's registration goes.
    Unsubscribe(GroupIx),
    /// A queue gets new options, and the revision they are written under.
    Configure(QueueIx, Box<(QueueOptions, Labels, u64)>),
    /// A queue ends.
    EndQueue(QueueIx),
    /// A dead letter is filed.
    DeadLetter(PartitionIx, Box<DeadLetterHead>),
    /// A dead letter goes.
    DropDeadLetter(DeadLetterId),
    /// Retention moves a partition's watermarks.
    Trim(Box<Trim>),
    /// Unused partitions of a queue go.
    DropPartitions(QueueIx, Vec<PartitionIx>),
    /// A counter goes up.
    Count(Count),
}

/// What is counted once it is durable.
#[derive(Clone, Copy)]
pub enum Count {
    /// A message was dropped.
    Dropped,
    /// A transaction was carried out.
    Transaction,
}

/// Whom to tell what, once a commit is settled.
pub enum Done {
    /// A part of a push.
    Push(usize, SmallVec<[(u32, PushOutcome); 1]>),
    /// A part of an ack.
    Ack(usize, Vec<(u32, AckOutcome)>),
    /// A pop whose claims were written.
    Pop(u64),
    /// A pop that can go on once this is durable, and since when it waits.
    PopAgain(RequestId, Moment),
    /// Anything whose answer is known.
    Reply(RequestId, Box<Reply>),
    /// A step of a longer change; the next one follows.
    Step(Box<Exclusive>),
    /// A step of the retention cycle of that number; the next one follows.
    Retention(u64),
}

/// A commit that is open.
pub struct Draft {
    number: Option<CommitNo>,
    call: Option<StoreCall>,
    overdue: Option<Moment>,
    pub(super) writes: Vec<Write>,
    bytes: usize,
    changes: Vec<Change>,
    done: Vec<Done>,
    waiting: VecDeque<Waiting>,
    exclusive: bool,
    /// It takes no more: what comes next is too large to join it.
    closed: bool,
    /// Its answer was lost.
    unknown: bool,
}

/// The open commits of the slot.
#[derive(Default)]
pub struct Commits {
    seats: [Option<Draft>; SEATS],
    building: Option<Seat>,
    last_number: u64,
    /// The last two acknowledged, newest first.
    pub(super) acknowledged: [Option<CommitKey>; 2],
    /// The epoch of what is in flight, while its outcome is being settled.
    pub(super) sent_under: Option<Epoch>,
}

impl Commits {
    /// Whether nothing is open.
    pub(super) fn idle(&self) -> bool {
        self.seats.iter().all(Option::is_none)
    }

    /// Whether an exclusive change is open: nothing else may start.
    pub(super) fn exclusive(&self) -> bool {
        self.seats.iter().flatten().any(|draft| draft.exclusive)
    }

    /// Whether the commit being built takes no more.
    pub(super) fn full(&self) -> bool {
        self.built().is_some_and(|draft| {
            draft.closed || draft.bytes >= MAX_COMMIT_BYTES || draft.writes.len() >= MAX_COMMIT_WRITES
        })
    }

    fn built(&self) -> Option<&Draft> {
        self.building.and_then(|seat| self.seats[seat.place()].as_ref())
    }

    /// Whether something that weighs this much has to leave the commit being built to others.
    pub(super) fn overflows(&self, bytes: usize) -> bool {
        self.built().is_some_and(|draft| draft.bytes > 0 && draft.bytes + bytes > MAX_COMMIT_BYTES)
    }

    /// Lets nothing more join the commit being built.
    pub(super) fn close(&mut self) {
        self.draft().1.closed = true;
    }

    /// The id and, where one was given, the transaction id of a message in the commit being built.
    pub(super) fn in_building(&self, partition: PartitionId, offset: u64) -> Option<(MessageId, Option<&str>)> {
        let segment = self.built()?.writes.iter().rev().find_map(|write| match write {
            Write::Append(segment) if segment.partition == partition && segment.start <= offset => Some(segment),
            _ => None,
        })?;
        let place = u32::try_from(offset - segment.start).ok()?;
        let message = segment.messages.get(place as usize)?;
        Some((segment.base.nth(place), message.transaction.as_ref().map(|id| id.as_str())))
    }

    /// The commit being built, if one is.
    pub(super) fn building(&self) -> Option<Seat> {
        self.building
    }

    /// An open commit to wait for: the youngest.
    pub(super) fn youngest(&self) -> Option<Seat> {
        self.building.or_else(|| self.in_flight().max_by_key(|(_, draft)| draft.number).map(|(seat, _)| seat))
    }

    /// The commit that must be waited for before something it writes may be read, when more may join the one being
    /// built.
    pub(super) fn blocks(&self, writer: Option<Seat>) -> Option<Seat> {
        writer.filter(|seat| Some(*seat) != self.building)
    }

    fn in_flight(&self) -> impl Iterator<Item = (Seat, &Draft)> {
        self.seats
            .iter()
            .zip(0..)
            .filter_map(|(draft, n)| draft.as_ref().map(|draft| (Seat::nth(n), draft)))
            .filter(|(_, draft)| draft.number.is_some())
    }

    /// The commits in flight.
    pub(super) fn numbers(&self) -> Vec<CommitNo> {
        self.in_flight().filter_map(|(_, draft)| draft.number).collect()
    }

    /// The commit being built, opened when there is none.
    pub(super) fn draft(&mut self) -> (Seat, &mut Draft) {
        let seat = match self.building {
            Some(seat) => seat,
            // There is one seat more than commits may be in flight.
            None => Seat::nth(self.seats.iter().position(Option::is_none).unwrap_or(SEATS - 1)),
        };
        self.building = Some(seat);
        let draft = self.seats[seat.place()].get_or_insert_with(|| Draft {
            number: None,
            call: None,
            overdue: None,
            writes: Vec::new(),
            bytes: 0,
            changes: Vec::new(),
            done: Vec::new(),
            waiting: VecDeque::new(),
            exclusive: false,
            closed: false,
            unknown: false,
        });
        (seat, draft)
    }

    /// The commit being built, opened only if something is to be written.
    pub(super) fn draft_if(&mut self, wanted: bool) -> Option<(Seat, &mut Draft)> {
        wanted.then(|| self.draft())
    }

    /// Where the cursors durably are that open commits write. Each is closed to all others, so it is there once.
    pub(super) fn open_cursors(&self) -> OpenCursors {
        let changes = self.seats.iter().flatten().flat_map(|draft| &draft.changes);
        let cursors = changes.filter_map(|change| match change {
            Change::Cursor { lane, before, stored } => Some((*lane, (before.next, *stored))),
            _ => None,
        });
        cursors.collect()
    }

    /// Makes the commit being built exclusive.
    pub(super) fn make_exclusive(&mut self) {
        self.draft().1.exclusive = true;
    }

    /// All waiting work, by commit.
    pub(super) fn take_waiting(&mut self) -> Vec<(Option<Seat>, VecDeque<Waiting>)> {
        let seats = self.seats.iter_mut().zip(0..);
        seats
            .filter_map(|(draft, n)| {
                draft.as_mut().map(|draft| (Some(Seat::nth(n)), core::mem::take(&mut draft.waiting)))
            })
            .collect()
    }

    /// Puts waiting work back.
    pub(super) fn put_waiting(&mut self, seat: Seat, list: VecDeque<Waiting>) {
        if let Some(draft) = &mut self.seats[seat.place()] {
            draft.waiting = list;
        }
    }

    /// Forgets the numbers: the next epoch starts at 1.
    pub(super) fn restart(&mut self) {
        self.last_number = 0;
        self.sent_under = None;
    }
}

impl Draft {
    /// Adds a write.
    pub(super) fn write(&mut self, write: Write) {
        self.writes.push(write);
    }

    /// Adds what it means for memory.
    pub(super) fn change(&mut self, change: Change) {
        self.changes.push(change);
    }

    /// Adds whom to tell.
    pub(super) fn tell(&mut self, done: Done) {
        self.done.push(done);
    }

    /// Notes a message appended at `from`; messages of one partition that follow each other are one change.
    pub(super) fn grow_append(&mut self, partition: PartitionIx, from: u64, bytes: u64) {
        if let Some(Change::Appended { partition: last, end, bytes: sum, .. }) = self.changes.last_mut()
            && *last == partition
            && *end == from
        {
            *end += 1;
            *sum += bytes;
        } else {
            self.change(Change::Appended { partition, from, end: from + 1, bytes });
        }
    }

    /// Adds to its weight.
    pub(super) fn weigh(&mut self, bytes: usize) {
        self.bytes += bytes;
    }
}

/// How a commit ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Durable,
    Not(Rejection),
}

impl Broker {
    /// Lets work wait for a commit.
    pub(super) fn wait(&mut self, seat: Seat, waiting: Waiting) {
        let waiting = Waiting { facts: core::mem::take(&mut self.facts), ..waiting };
        match &mut self.commits.seats[seat.place()] {
            Some(draft) => draft.waiting.push_back(waiting),
            None => self.backlog.push_back(waiting),
        }
    }

    /// Sends the commit that is built, if one may go.
    pub(super) fn send_commit(&mut self) -> bool {
        let Some(seat) = self.commits.building else { return false };
        let in_flight = self.commits.in_flight().count();
        let Some(fence) = self.ownership.sending() else { return false };
        if in_flight >= MAX_COMMITS_IN_FLIGHT {
            return false;
        }
        self.commits.building = None;
        self.commits.last_number += 1;
        let number = CommitNo(self.commits.last_number);
        let mut acknowledged = self.commits.acknowledged;
        plant!(LostSuffixUnnoticed => acknowledged = [None, None]);
        let overdue = self.now.monotonic.plus(OUTCOME_WAIT);
        let Some(draft) = &mut self.commits.seats[seat.place()] else { return false };
        let writes = core::mem::take(&mut draft.writes);
        draft.number = Some(number);
        draft.overdue = Some(overdue);
        self.counters.commits += 1;
        self.counters.commit_writes += writes.len() as u64;
        self.counters.commit_sizes.note(writes.len() as u64, 1);
        self.timers.set(overdue, Alarm::Overdue(number));
        let commit = Commit { fence, number, time: self.now.store, acknowledged, writes };
        let call = self.ask(StoreRequest::Commit(commit), Pending::Commit(seat));
        if let Some(draft) = &mut self.commits.seats[seat.place()] {
            draft.call = Some(call);
        }
        true
    }

    /// The store answered a commit.
    pub(super) fn commit_answered(&mut self, seat: Seat, reply: StoreReply) {
        match reply {
            StoreReply::Committed => self.settle_commit(seat, Fate::Durable),
            StoreReply::Failed(_) if plant!(FailedTakenForDurable) => self.settle_commit(seat, Fate::Durable),
            StoreReply::Failed(_) => self.settle_commit(seat, Fate::Not(Rejection::StoreUnavailable)),
            // While a settling runs, its own raise of the epoch fences what was in flight: the slot need not be lost, and
            // this commit certainly did not happen.
            StoreReply::Fenced if self.ownership.settling() => {
                self.settle_commit(seat, Fate::Not(Rejection::StoreUnavailable));
            }
            StoreReply::Fenced => {
                self.counters.commits_fenced += 1;
                self.ownership.distrust();
                self.settle_commit(seat, Fate::Not(Rejection::NotOwner));
                self.lose_slot();
            }
            StoreReply::SuffixLost => {
                self.counters.suffixes_lost += 1;
                self.ownership.distrust();
                self.settle_commit(seat, Fate::Not(Rejection::StoreUnavailable));
                self.lose_slot();
            }
            _ if plant!(UnknownTakenForFailed) => self.settle_commit(seat, Fate::Not(Rejection::StoreUnavailable)),
            _ if plant!(UnknownTakenForDurable) => self.settle_commit(seat, Fate::Durable),
            // Anything else is no answer to a commit: treat it as lost.
            _ => {
                if let Some(draft) = &mut self.commits.seats[seat.place()] {
                    draft.unknown = true;
                }
                self.settle_unknown();
            }
        }
    }

    /// A settling told which of the commits in flight are there.
    pub(super) fn settled(&mut self, numbers: &[CommitNo], committed: &[bool], epoch: Epoch) {
        for (number, committed) in numbers.iter().zip(committed) {
            let found = self.commits.in_flight().find(|(_, draft)| draft.number == Some(*number));
            let Some((seat, call)) = found.map(|(seat, draft)| (seat, draft.call)) else { continue };
            if let Some(call) = call {
                self.pending.remove(&call);
            }
            self.counters.unknown_settled += 1;
            let fate = if *committed != plant!(SettlingMisread) {
                Fate::Durable
            } else {
                Fate::Not(Rejection::StoreUnavailable)
            };
            self.settle_commit_of(seat, fate, Some(epoch));
        }
    }

    /// Keeps what a commit brought, or takes it back; tells everybody; lets what waited for it go on.
    fn settle_commit(&mut self, seat: Seat, fate: Fate) {
        self.settle_commit_of(seat, fate, self.ownership.epoch());
    }

    fn settle_commit_of(&mut self, seat: Seat, fate: Fate, epoch: Option<Epoch>) {
        let Some(draft) = self.commits.seats[seat.place()].take() else { return };
        if let (Some(number), Some(overdue)) = (draft.number, draft.overdue) {
            self.timers.clear(overdue, Alarm::Overdue(number));
            if let (Fate::Durable, Some(epoch)) = (fate, epoch) {
                let newest = self.commits.acknowledged[0];
                self.commits.acknowledged = [Some(CommitKey { epoch, number }), newest];
            }
        }
        match fate {
            Fate::Durable => {
                for change in draft.changes {
                    self.keep(change);
                }
            }
            Fate::Not(_) => {
                self.counters.commits_failed += 1;
                for change in draft.changes.into_iter().rev() {
                    self.take_back(change);
                }
            }
        }
        for done in draft.done {
            self.tell(done, fate);
        }
        for waiting in draft.waiting {
            self.admit_since(waiting);
        }
    }

    /// The callers of a commit have waited long enough; the commit itself goes on being settled.
    pub(super) fn commit_overdue(&mut self, number: CommitNo) {
        let draft = self.commits.seats.iter_mut().flatten().find(|draft| draft.number == Some(number));
        let Some(draft) = draft else { return };
        draft.overdue = None;
        let rejection = if plant!(OverdueSaysFailed) { Rejection::StoreUnavailable } else { Rejection::OutcomeUnknown };
        for done in core::mem::take(&mut draft.done) {
            self.tell(done, Fate::Not(rejection));
        }
        self.timers.set_sweep(self.now.monotonic);
    }

    /// Drops every open commit because the slot is lost: those in flight may still be answered, the rest never left.
    /// Answers the work that waited.
    pub(super) fn abandon_commits(&mut self) -> Vec<Waiting> {
        let mut waiting = Vec::new();
        self.commits.building = None;
        for seat in 0..SEATS {
            let Some(mut draft) = self.commits.seats[seat].take() else { continue };
            waiting.extend(core::mem::take(&mut draft.waiting));
            if let (Some(number), Some(overdue)) = (draft.number, draft.overdue) {
                self.timers.clear(overdue, Alarm::Overdue(number));
            }
            match draft.call.filter(|_| !draft.unknown) {
                Some(call) => {
                    self.pending.insert(call, Pending::Orphan(draft.done));
                }
                None => {
                    let unknown = draft.number.is_some();
                    let rejection = if unknown { Rejection::OutcomeUnknown } else { Rejection::NotOwner };
                    for done in draft.done {
                        self.tell(done, Fate::Not(rejection));
                    }
                }
            }
        }
        self.commits.restart();
        self.commits.acknowledged = [None, None];
        waiting
    }

    /// A commit of a lost epoch was answered: its callers are told the truth, memory is another's by now.
    pub(super) fn orphan_answered(&mut self, done: Vec<Done>, reply: StoreReply) {
        let fate = match reply {
            _ if plant!(OrphanSaysRefused) => Fate::Not(Rejection::NotOwner),
            StoreReply::Committed => Fate::Durable,
            StoreReply::Fenced | StoreReply::SuffixLost => Fate::Not(Rejection::NotOwner),
            StoreReply::Failed(_) => Fate::Not(Rejection::StoreUnavailable),
            _ => Fate::Not(Rejection::OutcomeUnknown),
        };
        for done in done {
            self.tell(done, fate);
        }
    }

    fn keep(&mut self, change: Change) {
        match change {
            Change::NewQueue(queue) => {
                self.tables.queue_mut(queue).fresh = None;
                self.wake_discovery(queue);
            }
            Change::NewPartition(partition) => {
                self.tables.partition_mut(partition).fresh = false;
                self.count(self.tables.partition(partition).queue, |activity| activity.partitions_created += 1);
                self.add_implied_lanes(partition);
                self.wake_strangers(partition);
            }
            Change::Appended { partition, from, end, bytes } => {
                let row = self.tables.partition_mut(partition);
                if from == row.log_start
                    && let Some((_, created)) = row.log.segment_of(from)
                {
                    row.oldest.set(created);
                }
                row.end = end;
                row.bytes += bytes;
                row.segments = row.segments.map(|count| count + row.open_segments);
                row.open_segments = 0;
                row.writer = None;
                row.open_write = 0;
                self.counters.push_messages += end - from;
                let queue = self.tables.partition(partition).queue;
                self.count(queue, |activity| activity.push_messages += end - from);
                self.age_log(partition);
                self.skip_before_start(partition);
                self.place_partition(partition);
                plant!(WakeLostOnPush => self.waiters.awake.clear());
            }
            Change::Cursor { lane, before, .. } => {
                self.tables.lane_mut(lane).stored = true;
                self.free_lane(lane);
                self.lose_wakes_of_cursor(lane, &before);
            }
            Change::DropCursor { lane } => {
                self.free_lane(lane);
                self.forget_cursor(lane);
            }
            Change::Subscribe(group, record) => {
                let row = self.tables.group_mut(group);
                row.subscription = Some(record);
                row.writer = None;
                self.add_missing_lanes(group);
                self.renew_implied_lanes(group);
            }
            Change::Unsubscribe(group) => {
                self.tables.group_mut(group).subscription = None;
                self.restart_waiters_of(group);
                self.drop_implied_lanes(group);
                self.tables.tidy_group(group);
            }
            Change::Configure(queue, new) => {
                let (options, labels, revision) = *new;
                self.reconfigure(queue, options, labels, revision);
            }
            Change::EndQueue(queue) => self.end_queue(queue),
            Change::Trim(trim) => self.keep_trim(*trim),
            Change::DropPartitions(queue, partitions) => self.keep_dropped(queue, partitions),
            Change::DeadLetter(partition, head) => {
                self.counters.dead_lettered += 1;
                self.tables.add_dead(partition, *head);
            }
            Change::DropDeadLetter(id) => self.tables.remove_dead(id),
            Change::Count(Count::Dropped) => self.counters.dropped += 1,
            Change::Count(Count::Transaction) => self.counters.transactions += 1,
        }
    }

    fn take_back(&mut self, change: Change) {
        match change {
            Change::NewQueue(queue) => self.tables.remove_queue(queue),
            Change::NewPartition(partition) => {
                self.forget_log(partition);
                self.tables.remove_partition(partition);
            }
            Change::Appended { partition, from, .. } => {
                self.change_log(partition, |log| {
                    if !plant!(FailedPushStays) {
                        log.truncate(from)
                    }
                });
                let row = self.tables.partition_mut(partition);
                row.writer = None;
                row.open_write = 0;
                row.open_segments = 0;
                self.clamp_lanes(partition);
            }
            Change::Cursor { lane, before, stored } => {
                self.tables.lane_mut(lane).stored = stored;
                if !plant!(FailedCursorStays) {
                    self.tables.set_cursor(lane, before);
                    self.return_to_implied(lane);
                }
                self.free_lane(lane);
                self.drop_lane_without_reason(lane);
            }
            Change::DropCursor { lane } => self.free_lane(lane),
            Change::Subscribe(group, _) => {
                self.tables.group_mut(group).writer = None;
                self.tables.tidy_group(group);
            }
            Change::DropDeadLetter(id) => {
                if let Some(dead) = self.tables.dead.get_mut(&id) {
                    dead.writer = None;
                }
            }
            Change::Unsubscribe(_)
            | Change::Configure(..)
            | Change::EndQueue(_)
            | Change::DeadLetter(..)
            | Change::Trim(_)
            | Change::DropPartitions(..)
            | Change::Count(_) => {}
        }
    }

    /// Sets a cursor in memory and in the commit being built, and closes it to everybody until that is settled.
    pub(super) fn write_cursor(&mut self, lane: LaneIx, cursor: Cursor) {
        let (seat, _) = self.commits.draft();
        let row = self.tables.lane(lane);
        let (partition, group, before, stored) = (row.partition, row.group, row.cursor(), row.stored);
        let record = crate::record::CursorRecord {
            partition: self.tables.partition(partition).id,
            group: self.tables.group(group).name.clone(),
            cursor: cursor.clone(),
        };
        self.tables.set_cursor(lane, cursor);
        self.close_lane(lane, seat);
        let (_, draft) = self.commits.draft();
        draft.write(Write::Cursor(record));
        draft.change(Change::Cursor { lane, before, stored });
    }

    /// Removes a stored cursor with the commit being built.
    pub(super) fn drop_cursor(&mut self, lane: LaneIx) {
        let (seat, _) = self.commits.draft();
        let row = self.tables.lane(lane);
        let partition = self.tables.partition(row.partition).id;
        let group = self.tables.group(row.group).name.clone();
        self.close_lane(lane, seat);
        let (_, draft) = self.commits.draft();
        draft.write(Write::DropCursor { partition, group });
        draft.change(Change::DropCursor { lane });
    }

    fn close_lane(&mut self, lane: LaneIx, seat: Seat) {
        self.unplace(lane);
        let row = self.tables.lane_mut(lane);
        row.writer = Some(seat);
        let group = row.group;
        self.tables.group_mut(group).busy += 1;
    }

    fn free_lane(&mut self, lane: LaneIx) {
        let row = self.tables.lane_mut(lane);
        row.writer = None;
        let group = row.group;
        self.tables.group_mut(group).busy -= 1;
        self.place(lane);
    }

    fn tell(&mut self, done: Done, fate: Fate) {
        match (done, fate) {
            (Done::Push(call, outcomes), Fate::Durable) => self.push_part_done(call, outcomes),
            (Done::Push(call, outcomes), Fate::Not(rejection)) => {
                let failed = outcomes.into_iter().map(|(at, _)| (at, PushOutcome::Failed(rejection)));
                self.push_part_done(call, failed);
            }
            (Done::Ack(call, outcomes), Fate::Durable) => self.ack_part_done(call, outcomes),
            (Done::Ack(call, outcomes), Fate::Not(rejection)) => {
                let error = ack_error(rejection);
                self.ack_part_done(call, outcomes.into_iter().map(|(at, _)| (at, settle::failed(error))));
            }
            (Done::Pop(delivery), Fate::Durable) => self.delivery_committed(delivery),
            (Done::Pop(delivery), Fate::Not(rejection)) => self.delivery_failed(delivery, rejection),
            (Done::PopAgain(request, since), Fate::Durable) => {
                self.admit_since(Waiting::new(since, Work::Pop(request)));
            }
            (Done::PopAgain(request, _), Fate::Not(rejection)) => self.refuse_pop(request, rejection),
            (Done::Reply(request, reply), Fate::Durable) => self.outputs.push_back(Output::Reply(request, *reply)),
            (Done::Reply(request, _), Fate::Not(rejection)) => self.reply(request, Reply::Refused(rejection)),
            (Done::Retention(number), fate) => self.retention_written(number, fate == Fate::Durable),
            (Done::Step(step), Fate::Durable) => self.admit(Work::Exclusive(step)),
            (Done::Step(step), Fate::Not(rejection)) => self.reply(step.request, Reply::Refused(rejection)),
        }
    }

    /// The latest time given out on a queue; the next registration is later.
    pub(super) fn note_time(&mut self, queue: QueueIx, time: Timestamp) {
        let row = self.tables.queue_mut(queue);
        row.latest = row.latest.max(time);
    }
}

/// What an ack item is told when its decision was not stored.
pub(super) fn ack_error(rejection: Rejection) -> AckError {
    match rejection {
        Rejection::OutcomeUnknown => AckError::OutcomeUnknown,
        Rejection::NotOwner => AckError::NotOwner,
        // No ack needs a key.
        Rejection::StoreUnavailable
        | Rejection::Draining
        | Rejection::Maintenance
        | Rejection::NoKey
        | Rejection::ForeignKey => AckError::StoreUnavailable,
    }
}
