//! Questions about what is: answered from memory while no commit is open, so from what is durable.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::calls::Pending;
use super::loads::{Need, Needs};
use super::tables::{LaneIx, PartitionIx, QueueIx};
use super::{Broker, Waiting, Work};
use crate::command::{Address, Command, RequestId};
use crate::error::Rejection;
use crate::log::{Question, half};
use crate::message::{SegmentSlice, transaction_text};
use crate::name::{GroupName, QueueName, TenantId};
use crate::reply::{
    Counts, GroupStanding, MessageDetail, MessageGroup, MessageStatus, PartitionDetail, QueueDetail, QueueSummary,
    Reply,
};
use crate::store::{SegmentRead, StoreReply, StoreRequest};
use crate::time::{Moment, Span, Timestamp};

/// A message that is being looked for.
pub struct Find {
    request: RequestId,
    tenant: TenantId,
    address: Address,
    offset: u64,
}

impl Broker {
    pub(super) fn run_query(&mut self, since: Moment, request: RequestId, tenant: TenantId, command: Command) {
        let needs = self.query_needs(tenant, &command);
        if !needs.is_empty() {
            let work = Work::Query(request, tenant, Box::new(command));
            return self.suspend(Waiting::new(since, work), needs);
        }
        let reply = match command {
            Command::ListQueues => Reply::Queues(self.list_queues(tenant)),
            Command::DescribeQueue { queue } => Reply::Queue(self.describe_queue(tenant, &queue)),
            Command::ListGroups { group } => Reply::Groups(self.list_groups(tenant, group.as_ref())),
            Command::ListDeadLetters { queue, group, limit, offset } => {
                return self.list_dead_letters(request, tenant, queue, group, (limit, offset));
            }
            Command::FindMessage(address) => return self.find_message(request, tenant, address),
            Command::ReadTraces(_) | Command::ReadTraceNames { .. } | Command::ReadActivity { .. } => {
                return self.fetch(request, tenant, command);
            }
            Command::ListMessages(filter) => return self.list_messages(request, tenant, &filter),
            Command::QueueDepth { queue } => Reply::Depth(self.queue_depth(tenant, &queue)),
            Command::PreviewRetention { queue } => return self.preview_retention(request, tenant, queue),
            _ => Reply::Refused(Rejection::StoreUnavailable),
        };
        self.reply(request, reply);
    }

    /// What has to be known before a question can be answered: where groups start, when messages were committed, where
    /// a hash stands.
    fn query_needs(&mut self, tenant: TenantId, command: &Command) -> Needs {
        let queues: Vec<QueueIx> = match command {
            Command::ListQueues | Command::ListGroups { .. } => self.tables.queues_of(tenant).collect(),
            Command::DescribeQueue { queue } | Command::QueueDepth { queue } => {
                self.tables.find_queue(tenant, queue).into_iter().collect()
            }
            Command::ListMessages(filter) => self.queues_listed(tenant, filter),
            Command::FindMessage(address) => {
                let partition = self.tables.partition_by_id(address.partition);
                let partition = partition.filter(|ix| self.tables.tenant_of(*ix) == tenant);
                partition.map(|partition| self.tables.partition(partition).queue).into_iter().collect()
            }
            _ => Vec::new(),
        };
        let mut needs = self.resolve_lanes(&queues);
        if !needs.is_empty() {
            return needs;
        }
        match command {
            Command::DescribeQueue { .. } => {
                for ix in queues.iter().flat_map(|queue| self.durable_partitions(*queue)) {
                    let partition = self.tables.partition(ix);
                    if partition.log_start < partition.end {
                        needs.extend(self.known_time(ix, partition.log_start).err());
                    }
                }
            }
            Command::ListGroups { group } => {
                for ix in queues.iter().flat_map(|queue| self.durable_partitions(*queue)) {
                    for lane in self.tables.lanes_of(ix).filter(|lane| self.is_of(*lane, group.as_ref())) {
                        let partition = self.tables.partition(ix);
                        let first = self.tables.lane(lane).cursor().next.max(partition.log_start);
                        if first < partition.end {
                            needs.extend(self.known_time(ix, first).err());
                        }
                    }
                }
            }
            Command::QueueDepth { .. } => needs.extend(self.depth_needs(&queues)),
            Command::ListMessages(filter) => needs.extend(self.listing_needs(&queues, filter)),
            Command::FindMessage(address) => {
                let hash = half(address.transaction.hash());
                let ix = self.tables.partition_by_id(address.partition).filter(|_| !queues.is_empty());
                if let Some(ix) = ix.filter(|ix| !self.view(*ix).tells_hash(hash, Timestamp::MIN)) {
                    needs.push(Need::Scan(ix, Question::hashes(Timestamp::MIN, [hash])));
                }
            }
            _ => {}
        }
        needs
    }

    fn is_of(&self, lane: LaneIx, group: Option<&GroupName>) -> bool {
        group.is_none_or(|group| *group == self.tables.group(self.tables.lane(lane).group).name)
    }

    pub(super) fn time_of(&self, partition: PartitionIx, offset: u64) -> Option<Timestamp> {
        self.known_time(partition, offset).ok().flatten()
    }

    fn list_queues(&self, tenant: TenantId) -> Vec<QueueSummary> {
        let durable = |queue: &QueueIx| self.tables.queue(*queue).fresh.is_none();
        let mut queues: Vec<QueueSummary> =
            self.tables.queues_of(tenant).filter(durable).map(|queue| self.summary(queue)).collect();
        queues.sort_by(|a, b| b.created.cmp(&a.created).then_with(|| a.name.cmp(&b.name)));
        queues
    }

    pub(super) fn durable_partitions(&self, queue: QueueIx) -> impl Iterator<Item = PartitionIx> + '_ {
        let partitions = self.tables.queue(queue).partitions.iter().copied();
        partitions.filter(|partition| !self.tables.partition(*partition).fresh)
    }

    fn summary(&self, queue: QueueIx) -> QueueSummary {
        let record = &self.tables.queue(queue).record;
        let mut summary = QueueSummary {
            id: record.id,
            name: record.name.clone(),
            labels: record.labels.clone(),
            created: record.created,
            partitions: 0,
            retained_bytes: 0,
            segments: Some(0),
            counts: Counts::default(),
            options: record.options.clone(),
        };
        for ix in self.durable_partitions(queue) {
            let partition = self.tables.partition(ix);
            summary.partitions += 1;
            let deleted = self.tables.queue(queue).trimmed.get(&ix).map_or(0, |it| it.trimmed.bytes);
            summary.retained_bytes += partition.bytes.saturating_sub(deleted);
            let segments = summary.segments.zip(partition.segments);
            summary.segments = segments.map(|(sum, count)| sum + u64::from(count));
            summary.counts += self.counts(ix);
        }
        summary
    }

    /// The arithmetic of 12.2, on cursors alone.
    fn counts(&self, ix: PartitionIx) -> Counts {
        let partition = self.tables.partition(ix);
        let total = partition.end - partition.log_start;
        let lanes = || self.tables.lanes_of(ix).map(|lane| self.tables.lane(lane).cursor());
        let lowest = lanes().map(|cursor| cursor.next).min().unwrap_or(0).max(partition.log_start);
        let pending = partition.end.saturating_sub(lowest);
        let leased = |cursor: crate::record::Cursor| match cursor.lease {
            Some(lease) if lease.lives(self.now.store) => lease.end.saturating_sub(cursor.next),
            _ => 0,
        };
        let processing = lanes().map(leased).sum::<u64>().min(pending);
        let dead_letter = self.tables.dead_count(ix);
        let completed = total.saturating_sub(pending).saturating_sub(dead_letter);
        Counts { total, pending, processing, completed, dead_letter }
    }

    fn describe_queue(&self, tenant: TenantId, name: &QueueName) -> Option<QueueDetail> {
        let queue = self.tables.find_queue(tenant, name)?;
        if self.tables.queue(queue).fresh.is_some() {
            return None;
        }
        let mut partitions: Vec<PartitionDetail> = self
            .durable_partitions(queue)
            .map(|ix| {
                let partition = self.tables.partition(ix);
                let newest = partition.end.checked_sub(1).filter(|last| *last >= partition.log_start);
                PartitionDetail {
                    id: partition.id,
                    name: partition.name.clone(),
                    created: partition.created,
                    counts: self.counts(ix),
                    oldest: newest.and_then(|_| self.time_of(ix, partition.log_start)),
                    newest: newest.and_then(|last| self.time_of(ix, last)),
                    consumed: self.tables.lanes_of(ix).map(|lane| self.tables.lane(lane).cursor().consumed).sum(),
                }
            })
            .collect();
        partitions.sort_by(|a, b| a.name.cmp(&b.name));
        Some(QueueDetail { summary: self.summary(queue), partitions })
    }

    fn list_groups(&self, tenant: TenantId, only: Option<&GroupName>) -> Vec<GroupStanding> {
        let mut rows = Vec::new();
        for queue in self.tables.queues_of(tenant) {
            for partition in self.durable_partitions(queue) {
                for lane in self.tables.lanes_of(partition) {
                    if self.is_of(lane, only) {
                        rows.push(self.standing(lane));
                    }
                }
            }
        }
        rows.sort_by(|a, b| (&a.group, &a.queue, &a.partition_name).cmp(&(&b.group, &b.queue, &b.partition_name)));
        rows
    }

    fn standing(&self, lane: LaneIx) -> GroupStanding {
        let row = self.tables.lane(lane);
        let partition = self.tables.partition(row.partition);
        let cursor = row.cursor();
        let first = cursor.next.max(partition.log_start);
        let lag = partition.end.saturating_sub(first);
        let oldest = if lag > 0 { self.time_of(row.partition, first) } else { None };
        GroupStanding {
            group: self.tables.group(row.group).name.clone(),
            queue: self.tables.queue(partition.queue).record.name.clone(),
            partition: partition.id,
            partition_name: partition.name.clone(),
            lease: cursor.lease.map(|lease| lease.id),
            lease_active: cursor.lease.is_some_and(|lease| lease.lives(self.now.store)),
            consumed: cursor.consumed,
            lag,
            oldest_unconsumed: oldest,
            time_lag: oldest.map_or(Span::ZERO, |created| self.now.store.since(created).max(Span::ZERO)),
            stored: row.stored,
        }
    }

    fn find_message(&mut self, request: RequestId, tenant: TenantId, address: Address) {
        let found = self
            .tables
            .partition_by_id(address.partition)
            .filter(|partition| self.tables.tenant_of(*partition) == tenant)
            .and_then(|partition| {
                let row = self.tables.partition(partition);
                let durable = |offset, _| offset >= row.log_start && offset < row.end;
                self.view(partition).lowest(half(address.transaction.hash()), durable)
            });
        let Some(offset) = found else { return self.reply(request, Reply::Message(None)) };
        let read = SegmentRead { partition: address.partition, from: offset, end: offset + 1 };
        let find = Find { request, tenant, address, offset };
        self.ask(StoreRequest::Read(vec![read]), Pending::Find(Box::new(find)));
    }

    /// The message was read; the error text of its dead letter, if it has one, is read next.
    pub(super) fn message_read(&mut self, find: Find, reply: StoreReply) {
        if self.refused_without_slot(find.request) {
            return;
        }
        let StoreReply::Segments(lists) = reply else {
            return self.reply(find.request, Reply::Refused(Rejection::StoreUnavailable));
        };
        let slices: Vec<SegmentSlice> = lists.into_iter().flatten().collect();
        let dead = self.tables.partition_by_id(find.address.partition).and_then(|partition| {
            let dead = self.tables.dead_at(partition, find.address.transaction.hash());
            dead.max_by_key(|dead| (dead.head.failed, dead.head.id)).map(|dead| dead.head.id)
        });
        match dead {
            Some(id) => {
                let pending = Pending::FindDeadLetter(Box::new(find), slices);
                self.ask(StoreRequest::ReadDeadLetters(vec![id]), pending);
            }
            None => {
                let detail = self.message_detail(&find, slices, None);
                self.reply(find.request, Reply::Message(detail));
            }
        }
    }

    /// The dead letter of the message was read.
    pub(super) fn message_dead_letter_read(&mut self, find: Find, slices: Vec<SegmentSlice>, reply: StoreReply) {
        if self.refused_without_slot(find.request) {
            return;
        }
        let StoreReply::DeadLetters(rows) = reply else {
            return self.reply(find.request, Reply::Refused(Rejection::StoreUnavailable));
        };
        let dead = rows.into_iter().next().flatten().map(|record| (record.error, record.head.retries));
        let detail = self.message_detail(&find, slices, dead);
        self.reply(find.request, Reply::Message(detail));
    }

    /// Refuses a question whose answer was read while the slot was lost.
    pub(super) fn refused_without_slot(&mut self, request: RequestId) -> bool {
        if !self.usable() {
            self.reply(request, Reply::Refused(Rejection::NotOwner));
        }
        !self.usable()
    }

    fn message_detail(
        &mut self,
        find: &Find,
        slices: Vec<SegmentSlice>,
        dead_letter: Option<(compact_str::CompactString, u32)>,
    ) -> Option<MessageDetail> {
        let slice = slices.into_iter().next()?;
        let message = slice.messages.into_iter().next()?;
        let transaction = transaction_text(message.transaction.as_ref(), slice.base);
        if transaction != find.address.transaction.as_str() {
            return None;
        }
        let ix = self.tables.partition_by_id(find.address.partition)?;
        let queue = &self.tables.queue(self.tables.partition(ix).queue).record;
        if queue.tenant != find.tenant {
            return None;
        }
        let (payload, encrypted) = self.opened(queue.id, find.address.partition, slice.base, message.payload);
        let partition = self.tables.partition(ix);
        let queue = &self.tables.queue(partition.queue).record;
        let mut groups: Vec<MessageGroup> = self
            .tables
            .lanes_of(ix)
            .map(|lane| {
                let row = self.tables.lane(lane);
                let cursor = row.cursor();
                let covering = cursor
                    .lease
                    .filter(|lease| lease.lives(self.now.store) && (cursor.next..lease.end).contains(&find.offset));
                MessageGroup {
                    group: self.tables.group(row.group).name.clone(),
                    consumed: find.offset < cursor.next,
                    lease_expires: covering.map(|lease| lease.expires),
                }
            })
            .collect();
        groups.sort_by(|a, b| a.group.cmp(&b.group));
        let status = if dead_letter.is_some() { MessageStatus::DeadLetter } else { status_of(&groups) };
        Some(MessageDetail {
            id: slice.base,
            transaction,
            payload: Some(payload),
            encrypted,
            trace: message.trace,
            producer: message.producer,
            created: slice.created,
            partition: partition.id,
            partition_name: partition.name.clone(),
            queue: queue.name.clone(),
            labels: queue.labels.clone(),
            options: queue.options.clone(),
            status,
            dead_letter,
            groups,
        })
    }
}

/// Completed once every named group is past it; queue mode decides where there is no named group (14.2).
fn status_of(groups: &[MessageGroup]) -> MessageStatus {
    let named = groups.iter().any(|group| !group.group.is_queue_mode());
    let mut deciding = groups.iter().filter(|group| !named || !group.group.is_queue_mode()).peekable();
    if deciding.peek().is_some() && deciding.all(|group| group.consumed) {
        MessageStatus::Completed
    } else if groups.iter().any(|group| group.lease_expires.is_some()) {
        MessageStatus::Processing
    } else {
        MessageStatus::Pending
    }
}
