//! Acks and lease extensions: one decision per partition and lease, made by `rules::settle`.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use smallvec::SmallVec;

use super::calls::{Outcomes, Pending};
use super::commit::{Change, Count, Done};
use super::loads::Need;
use super::tables::{LaneIx, PartitionIx};
use super::{Broker, Waiting, Work};
use crate::command::{Ack, AckItem, LeaseProof, RequestId};
use crate::error::Rejection;
use crate::log::Question;
use crate::message::{SegmentSlice, transaction_text};
use crate::name::{DeadLetterId, GroupName, MessageId, PartitionId, TenantId, TransactionHash};
use crate::record::{DeadLetterHead, DeadLetterRecord};
use crate::reply::{AckError, Reply};
use crate::rules::settle::{self, Decision, Exhausted};
use crate::rules::{ids, lease};
use crate::store::{SegmentRead, StoreReply, StoreRequest, Write};
use crate::time::{Moment, Span};

/// The items of one ack for one partition and lease.
pub struct AckPart {
    call: usize,
    tenant: TenantId,
    group: GroupName,
    items: Vec<(u32, AckItem)>,
    letters: StoredMessages,
}

/// Messages read because a decision needs them, by partition and offset. None where retention was quicker.
pub type StoredMessages = SmallVec<[(PartitionId, u64, Option<SegmentSlice>); 1]>;

/// Messages that are being read, and the work that is decided anew once they are there.
pub struct Prefetch {
    waiting: Waiting,
    partition: PartitionId,
    offsets: SmallVec<[u64; 4]>,
}

/// A lease extension.
pub struct Extension {
    pub(super) request: RequestId,
    pub(super) tenant: TenantId,
    pub(super) lease: LeaseProof,
    pub(super) length: Span,
}

impl Broker {
    pub(super) fn ack_request(&mut self, request: RequestId, tenant: TenantId, ack: Ack) {
        self.counters.ack_requests += 1;
        if ack.items.is_empty() {
            return self.reply(request, Reply::Acked(Vec::new()));
        }
        let items = ack.items.len();
        let mut parts: BTreeMap<(PartitionId, LeaseProof), Vec<(u32, AckItem)>> = BTreeMap::new();
        for (at, item) in (0u32..).zip(ack.items) {
            parts.entry((item.partition, item.lease)).or_default().push((at, item));
        }
        let outcomes = Outcomes::Ack(vec![settle::failed(AckError::StoreUnavailable); items]);
        let call = self.open_call(request, parts.len(), outcomes);
        for items in parts.into_values() {
            let part = AckPart { call, tenant, group: ack.group.clone(), items, letters: StoredMessages::new() };
            self.admit(Work::Ack(Box::new(part)));
        }
    }

    pub(super) fn refuse_ack(&mut self, part: AckPart, rejection: Rejection) {
        let error = super::commit::ack_error(rejection);
        self.ack_part_done(part.call, part.items.into_iter().map(|(at, _)| (at, settle::failed(error))));
    }

    pub(super) fn run_ack(&mut self, since: Moment, part: Box<AckPart>) {
        let Some((_, first)) = part.items.first() else { return };
        let (address, proof) = (first.partition, first.lease);
        let refuse = |broker: &mut Self, part: AckPart, error| {
            let outcomes = part.items.into_iter().map(|(at, _)| (at, settle::failed(error)));
            broker.ack_part_done(part.call, outcomes);
        };
        let Some(partition) = self.tables.partition_by_id(address) else {
            // Which ids exist is no other tenant's business.
            let error = if self.settings.tenants { AckError::ForeignPartition } else { AckError::ConsumerNotFound };
            return refuse(self, *part, error);
        };
        if self.tables.tenant_of(partition) != part.tenant && !plant!(AckOfAnyTenant) {
            return refuse(self, *part, AckError::ForeignPartition);
        }
        let Some(lane) = self.tables.find_lane_by_name(partition, &part.group) else {
            return refuse(self, *part, AckError::ConsumerNotFound);
        };
        if let Some(seat) = self.tables.lane(lane).writer {
            return self.wait(seat, Waiting::new(since, Work::Ack(part)));
        }
        if !self.tables.lane(lane).stored {
            return refuse(self, *part, AckError::ConsumerNotFound);
        }
        let items: Vec<&AckItem> = part.items.iter().map(|(_, item)| item).collect();
        let decision = match self.decide_ack(lane, &items, proof) {
            Ok(decision) => decision,
            Err(question) => {
                let need = Need::Of(partition, question);
                return self.suspend(Waiting::new(since, Work::Ack(part)), vec![need]);
            }
        };
        if let Some(offset) = self.letter_needed(partition, &decision, &part.letters) {
            return self.read_messages(since, Work::Ack(part), address, &[offset]);
        }
        let AckPart { call, items, letters, .. } = *part;
        let outcomes: Vec<_> = items.iter().map(|(at, _)| *at).zip(decision.outcomes.iter().cloned()).collect();
        let refused = decision.outcomes.iter().filter(|outcome| outcome.error.is_some()).count() as u64;
        let done = outcomes.len() as u64 - refused;
        self.count(self.tables.partition(partition).queue, |activity| {
            activity.ack_requests += 1;
            activity.ack_success += done;
            activity.ack_failed += refused;
        });
        if self.apply_decision(lane, decision, letters) && !plant!(AckAnsweredEarly) {
            self.commits.draft().1.tell(Done::Ack(call, outcomes));
        } else {
            self.ack_part_done(call, outcomes);
        }
    }

    /// The decision on a lane, by the rules, or what has to be known of its log first.
    pub(super) fn decide_ack(&self, lane: LaneIx, items: &[&AckItem], proof: LeaseProof) -> Result<Decision, Question> {
        let row = self.tables.lane(lane);
        let partition = self.tables.partition(row.partition);
        let options = &self.tables.queue(partition.queue).record.options;
        let require = self.settings.require_lease;
        settle::decide(&row.cursor(), self.durable(row.partition), items, proof, options, require, self.now.store)
    }

    /// The offset of a message that must be read before the decision can be carried out.
    pub(super) fn letter_needed(
        &self,
        partition: PartitionIx,
        decision: &Decision,
        letters: &StoredMessages,
    ) -> Option<u64> {
        let offset = decision.dead_letter.as_ref()?.offset;
        let row = self.tables.partition(partition);
        let read = letters.iter().any(|(id, at, _)| (*id, *at) == (row.id, offset));
        (!read && offset >= row.log_start).then_some(offset)
    }

    /// Reads single messages of a partition; the work is decided anew once they are there.
    pub(super) fn read_messages(&mut self, since: Moment, work: Work, partition: PartitionId, offsets: &[u64]) {
        let reads = offsets.iter().map(|at| SegmentRead { partition, from: *at, end: at + 1 }).collect();
        let waiting = Waiting { since, work, facts: core::mem::take(&mut self.facts) };
        let prefetch = Prefetch { waiting, partition, offsets: SmallVec::from_slice(offsets) };
        self.ask(StoreRequest::Read(reads), Pending::Prefetch(Box::new(prefetch)));
    }

    /// Messages that work needs were read, or could not be.
    pub(super) fn messages_read(&mut self, prefetch: Prefetch, reply: StoreReply) {
        let Prefetch { mut waiting, partition, offsets } = prefetch;
        let StoreReply::Segments(lists) = reply else {
            self.loads.unpin(waiting.facts);
            return self.refuse(waiting.work, Rejection::StoreUnavailable);
        };
        let read = offsets.into_iter().zip(lists).map(|(at, slices)| (partition, at, slices.into_iter().next()));
        match &mut waiting.work {
            Work::Push(part) => part.twins.extend(read),
            Work::Ack(part) => part.letters.extend(read),
            Work::Transaction(work) => work.read.extend(read),
            _ => {}
        }
        self.admit_since(waiting);
    }

    /// Carries a decision out with the commit being built; false when it changes nothing.
    pub(super) fn apply_decision(&mut self, lane: LaneIx, decision: Decision, letters: StoredMessages) -> bool {
        if decision.cursor == self.tables.lane(lane).cursor() {
            return false;
        }
        if let Some(exhausted) = decision.dead_letter.filter(|_| !plant!(DeadLetterNotFiled)) {
            plant!(DeadLetterTwice => self.file_dead_letter(lane, exhausted.clone(), letters.clone()));
            self.file_dead_letter(lane, exhausted, letters);
        }
        if decision.dropped {
            self.commits.draft().1.change(Change::Count(Count::Dropped));
        }
        self.write_cursor(lane, decision.cursor);
        plant!(AckMovesOtherGroups => self.move_others_along(lane));
        true
    }

    fn file_dead_letter(&mut self, lane: LaneIx, exhausted: Exhausted, letters: StoredMessages) {
        let row = self.tables.lane(lane);
        let (partition_ix, offset) = (row.partition, exhausted.offset);
        let partition = self.tables.partition(partition_ix);
        let slice = letters.into_iter().find(|(id, at, _)| (*id, *at) == (partition.id, offset)).and_then(|it| it.2);
        // Where retention was quicker, what is known of the message is what memory or a scan knows.
        let found = self.sketches(partition.id).find_map(|sketch| sketch.hit_at(offset));
        let known = (found.map(|hit| hit.id), self.view(partition_ix).created_of(offset).unwrap_or(self.now.store));
        let (id, created, message) = match slice {
            Some(slice) => (Some(slice.base), slice.created, slice.messages.into_iter().next()),
            None => (known.0, known.1, None),
        };
        let id = id.unwrap_or(MessageId(uuid::Uuid::nil()));
        let hash = match &message {
            Some(message) => TransactionHash::of(&transaction_text(message.transaction.as_ref(), id)),
            None => exhausted.hash,
        };
        let last = self.tables.last_dead;
        let head = DeadLetterHead {
            id: DeadLetterId(ids::ordered(self.now.store, last.0, &mut self.entropy)),
            partition: partition.id,
            group: self.tables.group(row.group).name.clone(),
            offset,
            message: id,
            hash,
            retries: exhausted.retries,
            failed: self.now.store,
            created,
        };
        self.tables.last_dead = head.id;
        let (_, draft) = self.commits.draft();
        draft.weigh(message.as_ref().map_or(0, |message| message.payload.len()));
        let record = DeadLetterRecord { head: head.clone(), message, error: exhausted.error };
        draft.write(Write::DeadLetter(Box::new(record)));
        draft.change(Change::DeadLetter(partition_ix, Box::new(head)));
    }

    /// Lengthens a lease on every partition it is live on (9).
    pub(super) fn run_extend(&mut self, since: Moment, extension: Box<Extension>) {
        let LeaseProof::Lease(id) = extension.lease else {
            return self.reply(extension.request, Reply::Extended { renewed: 0, earliest: None });
        };
        let tenant_of = |lane: &LaneIx| self.tables.tenant_of(self.tables.lane(*lane).partition);
        let own = |lane: &LaneIx| tenant_of(lane) == extension.tenant || plant!(ExtendOfAnyTenant);
        let leased = self.tables.leases.get(&id).into_iter().flatten().copied();
        let lanes: SmallVec<[LaneIx; 4]> = leased.filter(own).collect();
        if let Some(seat) = lanes.iter().find_map(|lane| self.tables.lane(*lane).writer) {
            return self.wait(seat, Waiting::new(since, Work::Extend(extension)));
        }
        let (mut renewed, mut earliest) = (0, None);
        for lane in lanes {
            let row = self.tables.lane(lane);
            let Some(cursor) = lease::extend(&row.cursor(), id, extension.length, self.now.store) else { continue };
            let Some(lease) = cursor.lease else { continue };
            renewed += 1;
            earliest = Some(earliest.map_or(lease.expires, |first: crate::time::Timestamp| first.min(lease.expires)));
            if Some(&lease) != row.lease() && !(renewed > 1 && plant!(ExtendFirstOnly)) {
                self.write_cursor(lane, cursor);
            }
        }
        let reply = Reply::Extended { renewed, earliest };
        match self.commits.building().filter(|_| renewed > 0 && !plant!(ExtendAnsweredEarly)) {
            Some(_) => self.commits.draft().1.tell(Done::Reply(extension.request, Box::new(reply))),
            None => self.reply(extension.request, reply),
        }
    }
}
