//! Listing messages, newest first: memory says which, the store has them. (queen-http.md 14.1)

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, BinaryHeap};
use alloc::vec::Vec;

use super::Broker;
use super::calls::Pending;
use super::loads::{Need, Needs};
use super::tables::{PartitionIx, QueueIx};
use crate::command::{MessageFilter, RequestId};
use crate::error::Rejection;
use crate::limits::{LISTED_AGE, MAX_LISTED_LOOKS};
use crate::log::Question;
use crate::message::{SegmentSlice, transaction_text};
use crate::name::{GroupName, PartitionId, TenantId};
use crate::reply::{MessagePage, MessageRow, MessageStatus, Reply};
use crate::store::{SegmentRead, StoreReply, StoreRequest};
use crate::time::Timestamp;

/// A page whose messages are being read.
pub struct Listing {
    request: RequestId,
    tenant: TenantId,
    /// Newest first.
    rows: Vec<(PartitionId, u64)>,
    queue_mode: bool,
    bus_groups: u64,
}

/// How queue mode and the named groups stand to one message.
struct Seen {
    status: MessageStatus,
    lease_expires: Option<Timestamp>,
    consumed_by: u64,
    bus_groups: u64,
}

impl Broker {
    /// The queues that a listing looks at.
    pub(super) fn queues_listed(&self, tenant: TenantId, filter: &MessageFilter) -> Vec<QueueIx> {
        let wanted = |queue: &QueueIx| {
            let record = &self.tables.queue(*queue).record;
            let label = |wanted: &str, is: &str| wanted.is_empty() || wanted == is;
            filter.queue.as_ref().is_none_or(|name| *name == record.name)
                && label(&filter.labels.namespace, &record.labels.namespace)
                && label(&filter.labels.task, &record.labels.task)
        };
        self.tables.queues_of(tenant).filter(wanted).collect()
    }

    /// The partitions that may hold a message the listing shows.
    fn partitions_listed(&self, queues: &[QueueIx], filter: &MessageFilter) -> Vec<PartitionIx> {
        let from = self.listed_from(filter);
        let wanted = |ix: &PartitionIx| {
            let partition = self.tables.partition(*ix);
            filter.partition.as_ref().is_none_or(|name| *name == partition.name)
                && partition.log_start < partition.end
                && partition.log.last_below(partition.end).is_some_and(|last| last >= from)
        };
        queues.iter().flat_map(|queue| self.durable_partitions(*queue)).filter(wanted).collect()
    }

    fn listed_from(&self, filter: &MessageFilter) -> Timestamp {
        filter.from.unwrap_or_else(|| self.now.store.minus(LISTED_AGE))
    }

    /// When the messages of these partitions were committed, as far back as the listing goes.
    pub(super) fn listing_needs(&self, queues: &[QueueIx], filter: &MessageFilter) -> Needs {
        let from = self.listed_from(filter);
        let need = |ix: PartitionIx| {
            let partition = self.tables.partition(ix);
            let range = partition.log_start..partition.end;
            let known = self.view(ix).tells_times(range.clone(), from);
            (!known).then(|| Need::Of(ix, Question::times(from, range.start, range.end)))
        };
        self.partitions_listed(queues, filter).into_iter().filter_map(need).collect()
    }

    /// Merges the partitions' messages from the newest back until the page is full.
    pub(super) fn list_messages(&mut self, request: RequestId, tenant: TenantId, filter: &MessageFilter) {
        let queues = self.queues_listed(tenant, filter);
        let from = self.listed_from(filter);
        let until = filter.until.unwrap_or(Timestamp::MAX);
        let mut newest = BinaryHeap::new();
        for ix in self.partitions_listed(&queues, filter) {
            let partition = self.tables.partition(ix);
            let range = partition.log_start..partition.end;
            let end = match until {
                Timestamp::MAX => range.end,
                _ => self.view(ix).end_at(range, Timestamp::from_micros(until.as_micros().saturating_sub(1))),
            };
            newest.extend(self.last_listed(ix, end, from));
        }
        let mut rows = Vec::new();
        let mut skipped = 0;
        for _ in 0..MAX_LISTED_LOOKS {
            if rows.len() >= filter.limit {
                break;
            }
            let Some((_, ix, offset)) = newest.pop() else { break };
            newest.extend(self.last_listed(ix, offset, from));
            if filter.status.is_some_and(|wanted| wanted != self.seen(ix, offset).status) {
                continue;
            }
            if skipped < filter.offset {
                skipped += 1;
            } else {
                rows.push((self.tables.partition(ix).id, offset));
            }
        }
        let groups: BTreeSet<&GroupName> =
            queues.iter().flat_map(|queue| self.tables.queue(*queue).groups.keys()).collect();
        let queue_mode = groups.iter().any(|group| group.is_queue_mode());
        let bus_groups = groups.len() as u64 - u64::from(queue_mode);
        if rows.is_empty() {
            let page = MessagePage { rows: Vec::new(), queue_mode, bus_groups };
            return self.reply(request, Reply::Messages(page));
        }
        let reads = rows.iter().map(|(partition, at)| SegmentRead { partition: *partition, from: *at, end: at + 1 });
        let reads = reads.collect();
        let listing = Listing { request, tenant, rows, queue_mode, bus_groups };
        self.ask(StoreRequest::Read(reads), Pending::Listing(Box::new(listing)));
    }

    /// The last message below `end`, with its commit time in front, unless it is older than `from`.
    fn last_listed(&self, ix: PartitionIx, end: u64, from: Timestamp) -> Option<(Timestamp, PartitionIx, u64)> {
        let start = self.tables.partition(ix).log_start;
        let offset = end.checked_sub(1).filter(|offset| *offset >= start)?;
        let created = self.view(ix).created_of(offset).filter(|created| *created >= from)?;
        Some((created, ix, offset))
    }

    /// The messages of a page were read; what retention removed meanwhile is left out.
    pub(super) fn listing_read(&mut self, listing: Listing, reply: StoreReply) {
        if self.refused_without_slot(listing.request) {
            return;
        }
        let StoreReply::Segments(lists) = reply else {
            return self.reply(listing.request, Reply::Refused(Rejection::StoreUnavailable));
        };
        let Listing { request, tenant, rows, queue_mode, bus_groups } = listing;
        let mut shown = Vec::with_capacity(rows.len());
        for ((id, offset), slices) in rows.into_iter().zip(lists) {
            shown.extend(self.listed_row(tenant, id, offset, slices));
        }
        let page = MessagePage { rows: shown, queue_mode, bus_groups };
        self.reply(request, Reply::Messages(page));
    }

    /// A row of a page; none where the message is gone, or another tenant's.
    fn listed_row(
        &mut self,
        tenant: TenantId,
        id: PartitionId,
        offset: u64,
        slices: Vec<SegmentSlice>,
    ) -> Option<MessageRow> {
        let slice = slices.into_iter().next()?;
        let message = slice.messages.into_iter().next()?;
        let ix = self.tables.partition_by_id(id).filter(|ix| self.tables.tenant_of(*ix) == tenant)?;
        let queue_id = self.tables.queue(self.tables.partition(ix).queue).record.id;
        let (payload, encrypted) = self.opened(queue_id, id, slice.base, message.payload);
        let partition = self.tables.partition(ix);
        let queue = &self.tables.queue(partition.queue).record;
        let Seen { status, lease_expires, consumed_by, bus_groups } = self.seen(ix, offset);
        Some(MessageRow {
            id: slice.base,
            transaction: transaction_text(message.transaction.as_ref(), slice.base),
            payload,
            encrypted,
            trace: message.trace,
            producer: message.producer,
            created: slice.created,
            partition: id,
            partition_name: partition.name.clone(),
            queue: queue.name.clone(),
            labels: queue.labels.clone(),
            priority: queue.options.priority,
            offset,
            segment: partition.log.segment_of(offset).map_or(offset, |(start, _)| start),
            status,
            lease_expires,
            consumed_by,
            bus_groups,
        })
    }

    fn seen(&self, ix: PartitionIx, offset: u64) -> Seen {
        let mut seen = Seen { status: MessageStatus::Pending, lease_expires: None, consumed_by: 0, bus_groups: 0 };
        for lane in self.tables.lanes_of(ix) {
            let row = self.tables.lane(lane);
            let cursor = row.cursor();
            if !self.tables.group(row.group).name.is_queue_mode() {
                seen.bus_groups += 1;
                seen.consumed_by += u64::from(offset < cursor.next);
            } else if offset < cursor.next {
                seen.status = MessageStatus::Completed;
            } else if let Some(lease) = cursor.lease.filter(|it| it.lives(self.now.store) && offset < it.end) {
                seen.status = MessageStatus::Processing;
                seen.lease_expires = Some(lease.expires);
            }
        }
        if self.tables.dead_of(ix).any(|dead| dead.head.offset == offset) {
            seen.status = MessageStatus::DeadLetter;
        }
        seen
    }
}
