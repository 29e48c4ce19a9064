//! Owning the slot: taking it, loading what it holds, keeping it, losing it (design.md 4.1 to 4.6).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use compact_str::CompactString;
use rand_core::Rng;

use super::calls::Pending;
use super::tables::{QueueIx, Tables};
use super::{Broker, Waiting, Work};
use crate::error::Rejection;
use crate::limits::{MAX_TRIM_SEGMENTS, OWNERSHIP, RENEW_INTERVAL, STORE_RETRY, TAKEOVER};
use crate::log::Log;
use crate::name::{PartitionId, QueueId};
use crate::record::{CursorRecord, SubscriptionRecord};
use crate::reply::Reply;
use crate::store::{
    CommitKey, CommitNo, Epoch, Fence, LoadPosition, Record, SlotView, StoreReply, StoreRequest, Token,
};
use crate::time::{Moment, Now, Timestamp};

/// What the store was asked about the slot.
pub enum Asked {
    /// Who owns it.
    Watch,
    /// To take it.
    Take(Token, Moment),
    /// To renew it.
    Renew(Fence, Moment),
    /// For a page of what it holds.
    Load,
    /// To raise the own epoch and tell which commits are there.
    Settle(Token, Vec<CommitNo>, Moment),
    /// Whether a raise of unknown outcome took place.
    Look(Token, Vec<CommitNo>),
    /// To give it up.
    Release(Fence),
}

/// How a broker stands to its slot, for whoever has to know where requests belong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It is not ours.
    Elsewhere,
    /// It is ours, or will be as soon as it is loaded.
    Ours,
    /// It is ours and being handed over.
    Leaving,
}

/// How this broker stands to its slot.
#[derive(Default)]
pub struct Ownership {
    state: State,
    fence: Option<Fence>,
    /// Until when memory may be trusted, since the renewal was *sent*.
    valid_until: Moment,
    /// Renewals sent earlier prove nothing any more.
    trusted_from: Moment,
    /// The slot is not to be taken, even when it is free.
    shy: bool,
    /// The slot is to be given up as soon as what was begun is finished.
    leaving: bool,
    /// A take whose outcome is unknown: the slot is ours if it carries this token.
    attempted: Option<Token>,
    /// The token under which the slot was lost: as long as it is there, nobody else has taken it.
    dropped: Option<Token>,
    /// Another owner's epoch and counter, and since when they stand still.
    observed: Option<(Epoch, u64, Moment)>,
    /// Queues by id, while loading.
    loading: BTreeMap<QueueId, QueueIx>,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not ours; nothing asked.
    #[default]
    Vacant,
    /// Not ours; asked who owns it, or to take it.
    Asking,
    /// Ours; reading what it holds. Whether a page is asked for, and from where.
    Loading(bool, Option<LoadPosition>),
    /// Ours.
    Owned,
    /// Ours; finding out what became of a commit.
    Settling,
    /// Being given up.
    Releasing,
    /// Given up for good.
    Released,
}

/// Whether a request to the store may still be under way when the slot is given up: none that has to do with its content,
/// and no renewal, which would be told that the slot is another's.
fn may_outlive_the_slot(pending: &Pending) -> bool {
    match pending {
        Pending::Slot(asked) => !matches!(asked, Asked::Renew(..)),
        Pending::Probe(_) => true,
        _ => false,
    }
}

impl Ownership {
    /// Under which fence commits may be sent.
    pub fn sending(&self) -> Option<Fence> {
        self.fence.filter(|_| self.state == State::Owned)
    }

    /// Whether an unknown outcome is being settled.
    pub fn settling(&self) -> bool {
        self.state == State::Settling
    }

    /// The epoch of the fence.
    pub fn epoch(&self) -> Option<Epoch> {
        self.fence.map(|fence| fence.epoch)
    }

    /// Memory is another's by now: nothing may be decided from it.
    pub fn distrust(&mut self) {
        self.valid_until = Moment::default();
    }

    /// The store confirmed the slot to what was sent at `sent`.
    fn trust(&mut self, sent: Moment) {
        if sent >= self.trusted_from {
            self.valid_until = self.valid_until.max(sent.plus(OWNERSHIP));
        }
    }

    /// Whether the slot was dropped, because what was loaded is worthless, and is still under our own token.
    fn still_ours(&self, view: &SlotView) -> bool {
        self.dropped.is_some() && self.dropped == view.token
    }

    /// Whether the slot is to be given up as soon as what was begun is finished.
    pub fn leaving(&self) -> bool {
        self.leaving
    }

    /// Whether the slot is given up for good.
    pub fn over(&self) -> bool {
        self.state == State::Released
    }
}

impl Broker {
    /// Whether the slot is ours and loaded.
    pub(super) fn owned(&self) -> bool {
        matches!(self.ownership.state, State::Owned | State::Settling)
    }

    /// Whether decisions may be made from memory.
    pub(super) fn usable(&self) -> bool {
        self.owned() && (self.now.monotonic < self.ownership.valid_until || plant!(TrustsForever))
    }

    /// How this broker stands to its slot.
    pub fn slot_standing(&self) -> Standing {
        match self.ownership.state {
            State::Vacant | State::Asking | State::Released => Standing::Elsewhere,
            State::Releasing => Standing::Leaving,
            State::Loading(..) | State::Owned | State::Settling if self.ownership.leaving => Standing::Leaving,
            State::Loading(..) | State::Owned | State::Settling => Standing::Ours,
        }
    }

    /// Whether requests are refused at once, for whoever asked to send them on.
    pub(super) fn sends_on(&self) -> bool {
        self.settings.sends_on && self.slot_standing() != Standing::Ours
    }

    /// Says whether the slot is to be taken when it can be had, which is so from the start. An owned slot is kept.
    pub fn contend(&mut self, now: Now, contend: bool) {
        self.enter(now);
        self.ownership.shy = !contend;
        self.ownership.leaving &= !contend;
        if self.ownership.state == State::Vacant {
            self.timers.slot = None;
            self.ownership.observed = None;
        }
    }

    /// Gives the slot to whoever wants it: finishes what was begun, refuses all else with `NotOwner`, releases. It is
    /// not taken again until `contend`.
    pub fn hand_over(&mut self, now: Now) {
        self.enter(now);
        self.ownership.shy = true;
        self.ownership.leaving = true;
    }

    /// The control connection is lost: nothing is answered from memory until a renewal sent from now on succeeds.
    pub fn distrust(&mut self, now: Now) {
        self.enter(now);
        self.ownership.trusted_from = self.now.monotonic;
        self.ownership.distrust();
        match self.ownership.state {
            State::Loading(..) | State::Owned | State::Settling => self.renew(),
            State::Vacant | State::Asking | State::Releasing | State::Released => {}
        }
    }

    /// This process was declared dead and goes on under another name. What it owned is lost.
    pub fn rename(&mut self, now: Now, owner: CompactString) {
        self.enter(now);
        self.settings.owner = owner;
        match self.ownership.state {
            State::Loading(..) | State::Owned | State::Settling | State::Releasing => self.lose_slot(),
            State::Vacant | State::Asking | State::Released => {}
        }
        // Whoever finds the old token finds it under a dead name.
        self.ownership.dropped = None;
    }

    /// Asks for the slot when nobody has been asked yet.
    pub(super) fn start_taking(&mut self) {
        let idle = self.ownership.state == State::Vacant && self.timers.slot.is_none();
        if idle && !self.draining && !self.ownership.shy {
            self.watch();
        }
    }

    fn watch(&mut self) {
        self.ownership.state = State::Asking;
        self.ask(StoreRequest::Watch(self.settings.slot), Pending::Slot(Asked::Watch));
    }

    fn token(&mut self) -> Token {
        let mut bytes = [0; 16];
        self.entropy.fill_bytes(&mut bytes);
        Token(u128::from_le_bytes(bytes))
    }

    /// The slot's alarm: a renewal is due, or a retry.
    pub(super) fn slot_alarm(&mut self) {
        match self.ownership.state {
            State::Vacant if !self.draining && !self.ownership.shy => self.watch(),
            State::Vacant | State::Asking | State::Released => {}
            State::Loading(asked, position) => {
                self.renew();
                if !asked {
                    self.load(position);
                }
            }
            State::Owned | State::Settling => self.renew(),
            State::Releasing => self.release(),
        }
    }

    fn renew(&mut self) {
        let Some(fence) = self.ownership.fence else { return };
        let now = self.now.monotonic;
        self.timers.slot = Some(now.plus(RENEW_INTERVAL));
        let mut acknowledged = self.commits.acknowledged;
        plant!(LostSuffixUnnoticed => acknowledged = [None, None]);
        self.ask(StoreRequest::Renew { fence, acknowledged }, Pending::Slot(Asked::Renew(fence, now)));
    }

    fn load(&mut self, after: Option<LoadPosition>) {
        self.ownership.state = State::Loading(true, after);
        self.ask(StoreRequest::Load { slot: self.settings.slot, after }, Pending::Slot(Asked::Load));
    }

    fn release(&mut self) {
        let Some(fence) = self.ownership.fence else { return };
        self.ownership.state = State::Releasing;
        self.ask(StoreRequest::Release(fence), Pending::Slot(Asked::Release(fence)));
    }

    fn retry_later(&mut self) {
        let at = self.now.monotonic.plus(STORE_RETRY);
        self.timers.slot = Some(self.timers.slot.map_or(at, |earlier| earlier.min(at)));
    }

    /// The store answered a question about the slot.
    pub(super) fn slot_answered(&mut self, asked: Asked, reply: StoreReply) {
        match (asked, reply) {
            (Asked::Watch, StoreReply::Watched(view)) => self.watched(view),
            (Asked::Watch, _) => {
                // The owner may have tried in vain to renew for just as long: its silence starts anew.
                self.ownership.observed = None;
                self.vacate_and_retry();
            }
            (Asked::Take(token, sent), StoreReply::Taken(epoch)) => self.taken(token, epoch, sent),
            // Somebody was quicker, or the store refuses our name: looking again at once might go round for ever.
            (Asked::Take(..), StoreReply::Watched(_)) => self.vacate_and_retry(),
            (Asked::Take(token, _), reply) => {
                if reply == StoreReply::Unknown {
                    self.ownership.attempted = Some(token);
                }
                self.vacate_and_retry();
            }
            (Asked::Renew(fence, sent), reply) => self.renewed(fence, sent, &reply),
            (Asked::Load, reply) => self.page(reply),
            (Asked::Settle(token, numbers, sent), reply) => self.settle_answered(token, numbers, sent, reply),
            (Asked::Look(token, numbers), reply) => self.looked(token, numbers, reply),
            (Asked::Release(fence), reply) => self.released(fence, &reply),
        }
    }

    fn vacate_and_retry(&mut self) {
        if self.ownership.state == State::Asking {
            self.ownership.state = State::Vacant;
            self.retry_later();
        }
    }

    /// Takes the slot when nobody owns it, or its owner has been silent for long enough on our own clock.
    fn watched(&mut self, view: SlotView) {
        if self.ownership.state != State::Asking {
            return;
        }
        let now = self.now.monotonic;
        if let Some(token) = self.ownership.attempted.take()
            && view.token == Some(token)
        {
            return self.taken(token, view.epoch, now);
        }
        let since = match self.ownership.observed {
            Some((epoch, beat, since)) if (epoch, beat) == (view.epoch, view.beat) => since,
            _ => now,
        };
        self.ownership.observed = Some((view.epoch, view.beat, since));
        if self.draining || self.ownership.shy {
            self.ownership.state = State::Vacant;
        } else if view.owner.is_none() || view.gone || self.ownership.still_ours(&view) || now >= since.plus(TAKEOVER) {
            let token = self.token();
            let take = StoreRequest::Take {
                slot: self.settings.slot,
                seen: view.epoch,
                token,
                owner: self.settings.owner.clone(),
            };
            self.ask(take, Pending::Slot(Asked::Take(token, now)));
        } else {
            self.ownership.state = State::Vacant;
            self.timers.slot = Some(now.plus(RENEW_INTERVAL).min(since.plus(TAKEOVER)));
        }
    }

    fn taken(&mut self, token: Token, epoch: Epoch, sent: Moment) {
        self.counters.slots_taken += 1;
        self.ownership.fence = Some(Fence { slot: self.settings.slot, epoch, token });
        self.ownership.valid_until = Moment::default();
        self.ownership.trust(sent);
        self.ownership.observed = None;
        self.ownership.loading.clear();
        self.tables = Tables::default();
        self.timers.clear_lanes();
        self.commits.restart();
        self.commits.acknowledged = [None::<CommitKey>, None];
        self.timers.slot = Some(sent.plus(RENEW_INTERVAL));
        self.load(None);
    }

    fn renewed(&mut self, fence: Fence, sent: Moment, reply: &StoreReply) {
        if self.ownership.fence != Some(fence) {
            return;
        }
        match reply {
            StoreReply::Renewed => self.ownership.trust(sent),
            // A settling raises the epoch itself; its own answer tells whether somebody else did.
            StoreReply::Fenced if self.ownership.state != State::Settling => self.lose_slot(),
            StoreReply::SuffixLost => {
                self.counters.suffixes_lost += 1;
                self.lose_slot();
            }
            _ => {}
        }
    }

    /// A commit's answer was lost: nothing more is sent until the own epoch is raised, which shuts the late original
    /// out, and the store says which numbers are there.
    pub(super) fn settle_unknown(&mut self) {
        if self.ownership.state == State::Owned {
            self.ownership.state = State::Settling;
            let token = self.token();
            self.settle(token, self.commits.numbers());
        }
    }

    fn settle(&mut self, token: Token, numbers: Vec<CommitNo>) {
        let Some(fence) = self.ownership.fence else { return };
        // Numbers of the epoch in which the commits were sent: later raises change the fence, not them.
        let epoch = self.commits.sent_under.unwrap_or(fence.epoch);
        self.commits.sent_under = Some(epoch);
        let unknown = numbers.iter().map(|number| CommitKey { epoch, number: *number }).collect();
        let now = self.now.monotonic;
        self.ask(StoreRequest::Settle { fence, token, unknown }, Pending::Slot(Asked::Settle(token, numbers, now)));
    }

    fn settle_answered(&mut self, token: Token, numbers: Vec<CommitNo>, sent: Moment, reply: StoreReply) {
        if self.ownership.state != State::Settling {
            return;
        }
        match reply {
            StoreReply::Settled { epoch, committed } => {
                let key_epoch = self.commits.sent_under.take();
                self.ownership.fence = Some(Fence { slot: self.settings.slot, epoch, token });
                self.ownership.trust(sent);
                self.settled(&numbers, &committed, key_epoch.unwrap_or(epoch));
                self.commits.restart();
                self.ownership.state = State::Owned;
            }
            StoreReply::SuffixLost => {
                self.counters.suffixes_lost += 1;
                self.lose_slot();
            }
            // Whether the epoch was raised is seen by its token. A certain failure is asked about too: it costs one
            // round trip and gives the store time.
            _ => {
                let look = Asked::Look(token, numbers);
                self.ask(StoreRequest::Watch(self.settings.slot), Pending::Slot(look));
            }
        }
    }

    fn looked(&mut self, token: Token, numbers: Vec<CommitNo>, reply: StoreReply) {
        let (State::Settling, Some(fence)) = (self.ownership.state, self.ownership.fence) else { return };
        match reply {
            StoreReply::Watched(view) if view.token == Some(token) => {
                self.ownership.fence = Some(Fence { slot: fence.slot, epoch: view.epoch, token });
                let token = self.token();
                self.settle(token, numbers);
            }
            StoreReply::Watched(view) if view.token == Some(fence.token) => self.settle(token, numbers),
            StoreReply::Watched(_) => self.lose_slot(),
            _ => {
                let look = Asked::Look(token, numbers);
                self.ask(StoreRequest::Watch(self.settings.slot), Pending::Slot(look));
            }
        }
    }

    /// The slot is another's, or what was loaded is worthless: everything in memory goes. Work that was certainly not
    /// carried out waits for the next owner; parked pops wait within their own wait. Where requests are sent on, both go
    /// back to whoever asked.
    pub(super) fn lose_slot(&mut self) {
        self.counters.slots_lost += 1;
        let dropped = self.ownership.fence.map(|fence| fence.token);
        self.leave_slot();
        self.ownership.dropped = dropped;
    }

    /// The slot is not ours any more: nothing of it stays in memory.
    fn leave_slot(&mut self) {
        let now = self.now.monotonic;
        self.retention.leave();
        let mut waiting: Vec<Waiting> = self.abandon_commits();
        waiting.extend(self.barrier.take());
        waiting.extend(core::mem::take(&mut self.backlog));
        for request in self.requeue_parked() {
            plant!(ParkedLostWithSlot => continue);
            waiting.push(Waiting::new(now, Work::Pop(request)));
        }
        waiting.extend(self.loads.abandon());
        if self.settings.sends_on {
            for waiting in waiting {
                self.refuse(waiting.work, Rejection::NotOwner);
            }
        } else {
            self.backlog = waiting.into_iter().map(|waiting| Waiting::new(now, waiting.work)).collect();
        }
        self.tables = Tables::default();
        self.timers.clear_lanes();
        self.timers.slot = None;
        self.timers.set_sweep(now);
        self.trims.clear();
        self.trimming = false;
        let Ownership { trusted_from, shy, .. } = self.ownership;
        let state = if self.draining { State::Released } else { State::Vacant };
        self.ownership = Ownership { state, trusted_from, shy, ..Ownership::default() };
    }

    /// The store answered a release.
    fn released(&mut self, fence: Fence, reply: &StoreReply) {
        if self.ownership.state != State::Releasing || self.ownership.fence != Some(fence) {
            return;
        }
        match reply {
            StoreReply::Released | StoreReply::Fenced => self.leave_slot(),
            _ => self.retry_later(),
        }
    }

    fn page(&mut self, reply: StoreReply) {
        let State::Loading(_, position) = self.ownership.state else { return };
        match reply {
            StoreReply::Page { records, next, latest } => {
                self.start_no_earlier_than(latest);
                for record in records {
                    self.absorb(record);
                }
                match next {
                    Some(next) => self.load(Some(next)),
                    None => self.loaded(),
                }
            }
            _ => {
                self.ownership.state = State::Loading(false, position);
                self.retry_later();
            }
        }
    }

    /// The store's own clock may have stepped back since the last owner wrote: store time goes on from there, at
    /// monotonic speed (design.md 5).
    fn start_no_earlier_than(&mut self, latest: Option<Timestamp>) {
        plant!(OwnerStartsEarlier => return);
        if let Some(behind) = latest.map(|latest| latest.since(self.now.store)).filter(|behind| behind.is_positive()) {
            self.ahead = self.ahead.plus(behind);
            self.now.store = self.now.store.plus(behind);
        }
    }

    /// Takes a loaded record in. What it refers to came before it.
    fn absorb(&mut self, record: Record) {
        match record {
            Record::Queue(record) => {
                let id = record.id;
                let queue = self.tables.add_queue(*record, None);
                self.ownership.loading.insert(id, queue);
            }
            Record::Ended(queue) => self.trims.push_back(queue),
            Record::Subscription(record) => self.absorb_subscription(record),
            Record::Partition(record, tail) => {
                if let Some(queue) = self.ownership.loading.get(&record.queue).copied() {
                    self.note_time(queue, tail.last.unwrap_or(record.created));
                    self.note_time(queue, record.created);
                    if tail.untrimmed {
                        self.retention.note_untrimmed(record.id);
                    }
                    let partition = self.tables.add_partition(queue, record, None);
                    let row = self.tables.partition_mut(partition);
                    row.log = Log::cold(tail.next, tail.last.filter(|_| !plant!(DedupForgetsOnRestart)));
                    (row.end, row.bytes) = (tail.next, tail.total);
                    row.segments = if tail.next == 0 { Some(0) } else { None };
                }
            }
            Record::Cursor(CursorRecord { partition, group, mut cursor }) => {
                plant!(LoadLosesCursors => return);
                plant!(LoadLosesLeases => cursor.lease = None);
                plant!(LoadLosesRetries => cursor.retries = 0);
                if let Some(partition) = self.tables.partition_by_id(partition) {
                    let queue = self.tables.partition(partition).queue;
                    let group = self.tables.group_of(queue, &group);
                    self.tables.add_lane(partition, group, cursor, true);
                }
            }
            Record::DeadLetter(_) if plant!(LoadLosesDeadLetters) => {}
            Record::DeadLetter(head) => {
                if let Some(partition) = self.tables.partition_by_id(head.partition) {
                    self.tables.add_dead(partition, head);
                }
            }
        }
    }

    fn absorb_subscription(&mut self, record: SubscriptionRecord) {
        plant!(LoadLosesSubscriptions => return);
        let Some(queue) = self.ownership.loading.get(&record.queue).copied() else { return };
        self.note_time(queue, record.registered);
        let row = self.tables.queue_mut(queue);
        row.registered = row.registered.max(record.registered);
        let group = self.tables.group_of(queue, &record.group);
        self.tables.group_mut(group).subscription = Some(alloc::boxed::Box::new(record));
    }

    /// All records are here: lanes that a subscription implies are made, and every lane is placed.
    fn loaded(&mut self) {
        for queue in core::mem::take(&mut self.ownership.loading).into_values() {
            let groups: Vec<_> = self.tables.queue(queue).groups.values().copied().collect();
            for group in groups {
                self.add_missing_lanes(group);
            }
            self.place_queue(queue);
        }
        self.ownership.state = State::Owned;
        self.start_refreshing();
        self.start_retention();
    }

    /// Removes rows of ended queues, and what lies below watermarks, a step at a time.
    pub(super) fn continue_trimming(&mut self) {
        let Some(fence) = self.ownership.sending() else { return };
        if self.trimming || !self.usable() || self.draining || self.ownership.leaving {
            return;
        }
        let (trim, pending) = match self.trims.front().copied() {
            Some(queue) => (StoreRequest::Trim { fence, queue, limit: MAX_TRIM_SEGMENTS }, Pending::Trim(queue)),
            None => match self.retention.next_trim(fence, self.settings.retention_batch) {
                Some((trim, partitions)) => (trim, Pending::TrimLogs(partitions)),
                None => return,
            },
        };
        self.trimming = true;
        self.ask(trim, pending);
    }

    /// A step of a trim below watermarks, or of history, was answered.
    pub(super) fn logs_trimmed(&mut self, partitions: Vec<PartitionId>, reply: &StoreReply) {
        self.trimming = false;
        self.retention.trim_answered(partitions, reply);
    }

    /// A step of a trim was answered. What failed is tried again by the next owner, or after the next deletion.
    pub(super) fn trimmed(&mut self, queue: QueueId, reply: StoreReply) {
        self.trimming = false;
        match reply {
            StoreReply::Trimmed { more: true } => {}
            StoreReply::Trimmed { more: false } | StoreReply::Failed(_) => self.trims.retain(|other| *other != queue),
            _ => {}
        }
    }

    /// Gives the slot up once nothing is in flight.
    pub(super) fn release_when_done(&mut self) {
        if !self.draining && !self.ownership.leaving {
            return;
        }
        if self.ownership.leaving && !self.draining {
            self.answer_parked(|| Reply::Refused(Rejection::NotOwner));
        }
        let quiet = self.commits.idle() && self.deliveries.is_empty() && self.backlog.is_empty();
        let quiet =
            quiet && self.loads.idle() && self.barrier.is_none() && self.pending.values().all(may_outlive_the_slot);
        match self.ownership.state {
            State::Vacant if self.draining => self.ownership.state = State::Released,
            State::Owned | State::Loading(..) if quiet || plant!(HandOverUnfinished) => self.release(),
            // A slot that was given up is left; one that is still being asked for is left when it was taken.
            State::Vacant => self.ownership.leaving = false,
            State::Asking
            | State::Loading(..)
            | State::Owned
            | State::Settling
            | State::Releasing
            | State::Released => {}
        }
    }
}
