//! Pushes: one decision per partition; deduplication and the offset are one step (OPT-25).

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use smallvec::SmallVec;

use super::ack::StoredMessages;
use super::calls::Outcomes;
use super::commit::{Change, Done, Seat};
use super::loads::Need;
use super::seals::stored_weight;
use super::tables::{OPEN_WEIGHT_UNIT, PartitionIx, QueueIx};
use super::{Broker, Waiting, Work};
use crate::command::{Push, PushGroup, RequestId};
use crate::error::Rejection;
use crate::limits::{MAX_SEGMENT_BYTES, MAX_SEGMENT_MESSAGES};
use crate::log::{Question, half};
use crate::message::{NewMessage, hash_of, transaction_text};
use crate::name::{
    MessageId, PartitionId, PartitionName, QueueId, QueueName, TenantId, TransactionHash, TransactionId,
};
use crate::options::{Labels, QueueOptions};
use crate::record::{NewSegment, PartitionRecord, QueueRecord, Trimmed};
use crate::reply::{PushOutcome, Reply};
use crate::rules::{dedup, ids, start};
use crate::seal::Key;
use crate::store::Write;
use crate::time::{Moment, Timestamp};

/// The items of one push for one partition.
pub struct PushPart {
    call: usize,
    tenant: TenantId,
    group: PushGroup,
    /// Stored messages whose hashes are those of pushed ones.
    pub(super) twins: StoredMessages,
}

/// What has to be read first.
enum Missing {
    /// Messages of a partition, by offset.
    Messages(PartitionId, SmallVec<[u64; 4]>),
    /// More of its log.
    Log(Need),
}

/// Whether a stored message has a transaction id.
enum Sameness {
    /// It has; this is its own id.
    Of(MessageId),
    /// It has another one with the same hash.
    Other,
    /// It has to be read to tell.
    Unread,
    /// It is deleted, and its whole hash has to be read to tell.
    Untold,
}

/// Whether a message with a pushed message's transaction id is stored already.
pub enum Twin {
    /// None is.
    None,
    /// This one is.
    Of(MessageId),
    /// One with the same hash is, at this offset: its id has to be read, for a hash proves nothing.
    Read(u64),
    /// More of the log has to be known to tell.
    Log(Need),
}

impl Broker {
    pub(super) fn push_request(&mut self, request: RequestId, tenant: TenantId, push: Push) {
        self.counters.push_requests += 1;
        if push.groups.is_empty() {
            return self.reply(request, Reply::Pushed(Vec::new()));
        }
        let nothing = PushOutcome::Failed(Rejection::StoreUnavailable);
        let call = self.open_call(request, push.groups.len(), Outcomes::Push(vec![nothing; push.items]));
        for mut group in push.groups {
            plant!(BatchReversed => group.items.reverse());
            self.admit(Work::Push(Box::new(PushPart { call, tenant, group, twins: StoredMessages::new() })));
        }
    }

    pub(super) fn refuse_push(&mut self, part: PushPart, rejection: Rejection) {
        let failed = part.group.items.into_iter().map(|(at, _)| (at, PushOutcome::Failed(rejection)));
        self.push_part_done(part.call, failed);
    }

    /// Decides a part: each item is stored, or is a duplicate of one that is (4.4).
    pub(super) fn run_push(&mut self, since: Moment, part: Box<PushPart>) {
        if let Some(seat) = self.push_blocked(part.tenant, &part.group.queue, &part.group.partition) {
            return self.wait(seat, Waiting::new(since, Work::Push(part)));
        }
        let key = match self.sealing_of(part.tenant, &part.group.queue) {
            Ok(key) => key,
            Err(rejection) => return self.refuse_push(*part, rejection),
        };
        let weight = part.group.items.iter().map(|(_, message)| stored_weight(message, key.as_ref())).sum();
        if self.commits.overflows(weight) {
            self.commits.close();
            let facts = core::mem::take(&mut self.facts);
            return self.backlog.push_front(Waiting { since, work: Work::Push(part), facts });
        }
        let stored = match self.stored_twins(&part) {
            Ok(stored) => stored,
            Err(Missing::Messages(partition, offsets)) => {
                return self.read_messages(since, Work::Push(part), partition, &offsets);
            }
            Err(Missing::Log(need)) => return self.suspend(Waiting::new(since, Work::Push(part)), vec![need]),
        };
        let PushPart { call, tenant, group, .. } = *part;
        let partition = self.partition_for_push(tenant, &group.queue, &group.partition);
        self.count(self.tables.partition(partition).queue, |activity| activity.push_requests += 1);
        let first = self.tables.partition(partition).log.next();
        let several = group.items.len() > 1;
        let mut outcomes: SmallVec<[(u32, PushOutcome); 1]> = SmallVec::with_capacity(group.items.len());
        let mut left = group.items.len();
        for ((at, message), twin) in group.items.into_iter().zip(stored) {
            left -= 1;
            let twin = twin.or_else(|| {
                if several && !plant!(TwinInRequestMissed) { self.twin_since(partition, first, &message) } else { None }
            });
            let outcome = match twin {
                Some(mut original) => {
                    self.counters.push_duplicates += 1;
                    plant!(DuplicateWrongId => original = original.nth(1));
                    plant!(DuplicateStored => _ = self.append(partition, message, left + 1, key.as_ref()));
                    PushOutcome::Duplicate(original)
                }
                None => PushOutcome::Queued(self.append(partition, message, left + 1, key.as_ref())),
            };
            outcomes.push((at, outcome));
        }
        let mut early = plant!(PushAnsweredEarly);
        plant!(DuplicateAnsweredEarly => early = outcomes.iter().all(|it| matches!(it.1, PushOutcome::Duplicate(_))));
        match self.tables.partition(partition).writer.and_then(|_| self.commits.building()).filter(|_| !early) {
            // A duplicate of a message in the commit being built is one only if that is carried out.
            Some(_) => self.commits.draft().1.tell(Done::Push(call, outcomes)),
            None => self.push_part_done(call, outcomes),
        }
    }

    /// For each item its twin among earlier pushes; or the offsets that have to be read to tell.
    fn stored_twins(&self, part: &PushPart) -> Result<SmallVec<[Option<MessageId>; 16]>, Missing> {
        let found = self.tables.find_queue(part.tenant, &part.group.queue).and_then(|queue| {
            match plant!(DedupAcrossPartitions) {
                true => self.tables.queue(queue).partitions.first().copied(),
                false => self.tables.find_partition(queue, &part.group.partition),
            }
        });
        let Some(partition) = found else { return Ok(part.group.items.iter().map(|_| None).collect()) };
        let mut unread = SmallVec::new();
        let mut twins = SmallVec::with_capacity(part.group.items.len());
        for (_, message) in &part.group.items {
            twins.push(match self.stored_twin(partition, message, &part.twins) {
                Twin::None => None,
                Twin::Of(id) => Some(id),
                Twin::Read(offset) => {
                    unread.push(offset);
                    None
                }
                // What is asked of the log is asked for all items at once.
                Twin::Log(Need::Of(ix, question)) => {
                    let ids = part.group.items.iter().filter_map(|(_, message)| message.transaction.as_ref());
                    let question = Question::hashes(question.since, ids.map(|id| half(id.hash())));
                    return Err(Missing::Log(Need::Of(ix, question)));
                }
                Twin::Log(need) => return Err(Missing::Log(need)),
            });
        }
        if unread.is_empty() { Ok(twins) } else { Err(Missing::Messages(self.tables.partition(partition).id, unread)) }
    }

    /// The commit a push to this partition has to wait for.
    pub(super) fn push_blocked(&self, tenant: TenantId, queue: &QueueName, partition: &PartitionName) -> Option<Seat> {
        let queue = self.tables.find_queue(tenant, queue)?;
        self.commits.blocks(self.tables.queue(queue).fresh).or_else(|| {
            let partition = self.tables.find_partition(queue, partition)?;
            self.commits.blocks(self.tables.partition(partition).writer)
        })
    }

    /// The partition a push goes to; it and its queue are made when missing (4.5).
    pub(super) fn partition_for_push(
        &mut self,
        tenant: TenantId,
        queue: &QueueName,
        partition: &PartitionName,
    ) -> PartitionIx {
        let queue = self.queue_for_push(tenant, queue);
        match self.tables.find_partition(queue, partition) {
            Some(partition) => partition,
            None => self.make_partition(queue, partition),
        }
    }

    fn queue_for_push(&mut self, tenant: TenantId, name: &QueueName) -> QueueIx {
        match self.tables.find_queue(tenant, name) {
            Some(queue) => queue,
            None => self.make_queue(tenant, name, QueueOptions::implicit(), Labels::derived(name.as_str())),
        }
    }

    /// Makes a queue with the commit being built.
    pub(super) fn make_queue(
        &mut self,
        tenant: TenantId,
        name: &QueueName,
        options: QueueOptions,
        labels: Labels,
    ) -> QueueIx {
        let id = QueueId(ids::random(&mut self.entropy));
        let record =
            QueueRecord { id, tenant, name: name.clone(), labels, options, created: self.now.store, revision: 0 };
        let (seat, draft) = self.commits.draft();
        draft.write(Write::Queue(Box::new(record.clone())));
        let queue = self.tables.add_queue(record, Some(seat));
        self.commits.draft().1.change(Change::NewQueue(queue));
        queue
    }

    fn make_partition(&mut self, queue: QueueIx, name: &PartitionName) -> PartitionIx {
        let id = PartitionId(ids::random(&mut self.entropy));
        let row = self.tables.queue(queue);
        let created = start::commit_time(self.now.store, None, row.registered);
        let record = PartitionRecord {
            id,
            queue: row.record.id,
            name: name.clone(),
            created,
            log_start: 0,
            trimmed: Trimmed::default(),
        };
        let (seat, draft) = self.commits.draft();
        draft.write(Write::Partition(record.clone()));
        let partition = self.tables.add_partition(queue, record, Some(seat));
        self.commits.draft().1.change(Change::NewPartition(partition));
        self.note_time(queue, created);
        partition
    }

    /// The oldest message in the queue's window that has this one's transaction id (4.4, layers 2 and 3). A hash finds
    /// it; its id decides, for as long as its segment exists, and the whole hash after that.
    pub(super) fn stored_twin(&self, ix: PartitionIx, message: &NewMessage, read: &StoredMessages) -> Twin {
        let Some(transaction) = &message.transaction else { return Twin::None };
        let row = self.tables.partition(ix);
        let options = &self.tables.queue(row.queue).record.options;
        let Some(since) = dedup::forbids_since(options, self.now.store) else { return Twin::None };
        let (view, hash) = (self.view(ix), half(transaction.hash()));
        if !view.tells_hash(hash, since) {
            return Twin::Log(Need::Of(ix, Question::hashes(since, [hash])));
        }
        let (mut unread, mut untold, mut twin) = (None, false, None);
        view.lowest(hash, |offset, created| {
            if created < since {
                return false;
            }
            match self.same_transaction(ix, offset, transaction, read) {
                Sameness::Of(id) => {
                    twin = Some(id);
                    true
                }
                Sameness::Other => false,
                Sameness::Unread => {
                    unread = Some(unread.map_or(offset, |lowest: u64| lowest.min(offset)));
                    false
                }
                Sameness::Untold => {
                    untold = true;
                    false
                }
            }
        });
        match (unread, twin) {
            _ if untold => Twin::Log(Need::Whole(ix, Question::hashes(since, [hash]))),
            (Some(offset), _) => Twin::Read(offset),
            (None, Some(id)) => Twin::Of(id),
            (None, None) => Twin::None,
        }
    }

    /// Whether the message at `offset` has this very transaction id.
    fn same_transaction(
        &self,
        ix: PartitionIx,
        offset: u64,
        transaction: &TransactionId,
        read: &StoredMessages,
    ) -> Sameness {
        let row = self.tables.partition(ix);
        if offset >= row.end {
            return match self.commits.in_building(row.id, offset) {
                Some((id, given)) if given.is_none_or(|given| given == transaction.as_str()) => Sameness::Of(id),
                Some(_) | None => Sameness::Other,
            };
        }
        if offset < row.log_start {
            // Retention has deleted it: what is left is its hash.
            return self.same_hash(row.id, offset, transaction.hash());
        }
        let stored = read.iter().find(|(partition, at, _)| (*partition, *at) == (row.id, offset));
        match stored {
            None => Sameness::Unread,
            Some((_, _, slice)) => match slice.as_ref().and_then(|slice| Some((slice.base, slice.messages.first()?))) {
                Some((id, message)) if transaction_text(message.transaction.as_ref(), id) == transaction.as_str() => {
                    Sameness::Of(id)
                }
                Some(_) => Sameness::Other,
                // Retention was quicker.
                None => self.same_hash(row.id, offset, transaction.hash()),
            },
        }
    }

    /// Whether a deleted message has this very hash, as the store kept it.
    fn same_hash(&self, partition: PartitionId, offset: u64, hash: TransactionHash) -> Sameness {
        match self.sketches(partition).find_map(|sketch| sketch.hit_at(offset)) {
            Some(hit) if hit.hash == hash => Sameness::Of(hit.id),
            Some(_) => Sameness::Other,
            // It was looked for and is gone.
            None if self.sketches(partition).any(|it| it.upto > offset && it.question.hashes.contains(&half(hash))) => {
                Sameness::Other
            }
            None => Sameness::Untold,
        }
    }

    /// The message from offset `first` on, in the commit being built, that has this one's transaction id (4.4, layer 1).
    fn twin_since(&self, partition: PartitionIx, first: u64, message: &NewMessage) -> Option<MessageId> {
        let transaction = message.transaction.as_ref()?;
        let row = self.tables.partition(partition);
        let mut twin = None;
        row.log.lowest_in(first..row.log.next(), half(transaction.hash()), |offset, _| {
            let found = self.commits.in_building(row.id, offset);
            twin = found.filter(|(_, id)| *id == Some(transaction.as_str())).map(|(id, _)| id);
            twin.is_some()
        });
        twin
    }

    /// Appends a message to the partition's open segment, sealed where its queue has it so (`sealing`); opens one where
    /// there is none, or it is full.
    pub(super) fn append(
        &mut self,
        partition: PartitionIx,
        message: NewMessage,
        left: usize,
        key: Option<&Key>,
    ) -> MessageId {
        let weight = stored_weight(&message, key);
        let base = self.open_segment(partition, weight, left);
        let message = match key {
            None => message,
            Some(key) => {
                let id = base.nth(self.open_count(partition));
                let Some(sealed) = self.seal(key, partition, id, message) else { return base };
                sealed
            }
        };
        let bytes = message.payload.len() as u64;
        let (_, draft) = self.commits.draft();
        draft.weigh(weight);
        let row = self.tables.partition_mut(partition);
        row.open_weight = row.open_weight.saturating_add(weight.div_ceil(OPEN_WEIGHT_UNIT).min(u16::MAX.into()) as u16);
        let at = row.open_write as usize - 1;
        let Some(Write::Append(segment)) = draft.writes.get_mut(at) else { return base };
        let id = base.nth(segment.messages.len() as u32);
        let hash = hash_of(&message, id);
        segment.total += bytes;
        segment.messages.push(message);
        segment.hashes.push(hash);
        let opens = segment.messages.len() == 1;
        let created = segment.created;
        let from = row.log.append(created, hash, opens);
        draft.grow_append(partition, from, bytes);
        id
    }

    /// Messages in the partition's open segment.
    fn open_count(&mut self, partition: PartitionIx) -> u32 {
        let at = self.tables.partition(partition).open_write as usize - 1;
        match self.commits.draft().1.writes.get(at) {
            Some(Write::Append(segment)) => segment.messages.len() as u32,
            _ => 0,
        }
    }

    /// Sees to it that the partition has an open segment with room for `weight` more bytes; answers its base id.
    fn open_segment(&mut self, partition: PartitionIx, weight: usize, left: usize) -> MessageId {
        let (seat, draft) = self.commits.draft();
        let row = self.tables.partition(partition);
        let queue = self.tables.queue(row.queue);
        if row.open_write > 0
            && let Some(Write::Append(open)) = draft.writes.get(row.open_write as usize - 1)
            && open.messages.len() < MAX_SEGMENT_MESSAGES
            && open.created > queue.registered
            && usize::from(row.open_weight) * OPEN_WEIGHT_UNIT + weight <= MAX_SEGMENT_BYTES
        {
            return open.base;
        }
        let last = row.log.last();
        let created = start::commit_time(self.now.store, last, queue.registered);
        let base = ids::segment_base(created, &mut self.entropy);
        let total = match row.open_write.checked_sub(1).and_then(|at| draft.writes.get(at as usize)) {
            Some(Write::Append(full)) => full.total,
            _ => row.bytes,
        };
        let room = left.min(MAX_SEGMENT_MESSAGES);
        self.start_segment(partition, seat, created, base, total, room);
        base
    }

    fn start_segment(
        &mut self,
        partition: PartitionIx,
        seat: Seat,
        created: Timestamp,
        base: MessageId,
        total: u64,
        room: usize,
    ) {
        let (_, draft) = self.commits.draft();
        let row = self.tables.partition_mut(partition);
        let segment = NewSegment {
            partition: row.id,
            start: row.log.next(),
            created,
            base,
            messages: Vec::with_capacity(room),
            hashes: Vec::<TransactionHash>::with_capacity(room),
            total,
        };
        draft.write(Write::Append(segment));
        row.open_write = draft.writes.len() as u32;
        row.open_weight = 0;
        row.writer = Some(seat);
        row.open_segments += 1;
        let queue = row.queue;
        self.note_time(queue, created);
    }
}
