//! Traces, and what happened in each minute. Neither belongs to a queue's incarnation: they outlive it.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use compact_str::CompactString;
use tidegate_core::activity::{Activity, ActivityRow};
use tidegate_core::limits::{MAX_ACTIVITY_READ, MAX_TRACES_READ};
use tidegate_core::name::{PartitionId, QueueName, TenantId};
use tidegate_core::record::TraceRecord;
use tidegate_core::store::{StoreReply, TraceName, TracesOf};
use tidegate_core::time::{Span, Timestamp};
use uuid::Uuid;

/// A minute of a queue.
pub(crate) type MinuteKey = (Timestamp, TenantId, QueueName);

/// The rows of one slot.
#[derive(Clone, Default)]
pub(crate) struct Operations {
    traces: BTreeMap<Uuid, TraceRecord>,
    by_message: BTreeMap<(TenantId, PartitionId, CompactString), BTreeSet<Uuid>>,
    by_name: BTreeMap<(TenantId, CompactString), BTreeSet<Uuid>>,
    activity: BTreeMap<MinuteKey, Activity>,
}

/// The address of the message that a trace is about.
fn address(trace: &TraceRecord) -> (TenantId, PartitionId, CompactString) {
    (trace.tenant, trace.partition, trace.transaction.clone())
}

impl Operations {
    /// Keeps a trace; false when there is one of that id.
    pub(crate) fn keep_trace(&mut self, mut trace: TraceRecord) -> bool {
        // A slice would keep its whole request.
        trace.data = Bytes::copy_from_slice(&trace.data);
        let Entry::Vacant(place) = self.traces.entry(trace.id) else { return false };
        self.by_message.entry(address(&trace)).or_default().insert(trace.id);
        for name in &trace.names {
            self.by_name.entry((trace.tenant, name.clone())).or_default().insert(trace.id);
        }
        place.insert(trace);
        true
    }

    /// Takes a trace back.
    pub(crate) fn forget_trace(&mut self, id: Uuid) {
        let Some(trace) = self.traces.remove(&id) else { return };
        remove(&mut self.by_message, address(&trace), id);
        for name in &trace.names {
            remove(&mut self.by_name, (trace.tenant, name.clone()), id);
        }
    }

    /// Merges a minute in; gives its key, and what was there.
    pub(crate) fn keep_minute(&mut self, row: ActivityRow) -> (MinuteKey, Option<Activity>) {
        let key = (row.start, row.tenant, row.queue);
        let old = self.activity.get(&key).copied();
        self.activity.entry(key.clone()).or_default().merge(&row.activity);
        (key, old)
    }

    /// Removes the oldest minutes before a time.
    pub(crate) fn drop_minutes(&mut self, before: Timestamp, limit: u32) -> Vec<(MinuteKey, Activity)> {
        let mut dropped = Vec::new();
        while dropped.len() < limit as usize
            && let Some(first) = self.activity.first_entry().filter(|first| first.key().0 < before)
        {
            dropped.push(first.remove_entry());
        }
        dropped
    }

    /// Sets a minute to what it was.
    pub(crate) fn restore_minute(&mut self, key: MinuteKey, old: Option<Activity>) {
        match old {
            Some(old) => self.activity.insert(key, old),
            None => self.activity.remove(&key),
        };
    }

    pub(crate) fn read_traces(&self, tenant: TenantId, of: TracesOf) -> StoreReply {
        let none = BTreeSet::new();
        let all = |ids: &mut dyn Iterator<Item = &Uuid>| ids.filter_map(|id| self.traces.get(id)).cloned().collect();
        match of {
            TracesOf::Message(partition, transaction) => {
                let ids = self.by_message.get(&(tenant, partition, transaction)).unwrap_or(&none);
                let rows = all(&mut ids.iter().take(MAX_TRACES_READ as usize));
                StoreReply::Traces { rows, total: ids.len() as u64 }
            }
            TracesOf::Name { name, limit, offset } => {
                let ids = self.by_name.get(&(tenant, name)).unwrap_or(&none);
                let rows = all(&mut ids.iter().rev().skip(place(offset)).take(place(limit)));
                StoreReply::Traces { rows, total: ids.len() as u64 }
            }
        }
    }

    pub(crate) fn read_trace_names(&self, tenant: TenantId, limit: u64, offset: u64) -> StoreReply {
        let from = (tenant, CompactString::const_new(""));
        let mut rows: Vec<TraceName> = self
            .by_name
            .range(from..)
            .take_while(|((of, _), _)| *of == tenant)
            .filter_map(|((_, name), ids)| {
                let traces: Vec<&TraceRecord> = ids.iter().filter_map(|id| self.traces.get(id)).collect();
                let messages: BTreeSet<_> = traces.iter().map(|trace| (trace.partition, &trace.transaction)).collect();
                let last = traces.iter().map(|trace| trace.created).max()?;
                let (count, messages) = (traces.len() as u64, messages.len() as u64);
                Some(TraceName { name: name.clone(), traces: count, messages, last })
            })
            .collect();
        rows.sort_by(|a, b| b.last.cmp(&a.last).then_with(|| a.name.cmp(&b.name)));
        let total = rows.len() as u64;
        let rows = rows.into_iter().skip(place(offset)).take(place(limit)).collect();
        StoreReply::TraceNames { rows, total }
    }

    pub(crate) fn read_activity(
        &self,
        tenant: TenantId,
        queue: Option<QueueName>,
        (from, until): (Timestamp, Timestamp),
        bucket: Span,
    ) -> StoreReply {
        let length = bucket.as_micros().max(1);
        let mut buckets: BTreeMap<(Timestamp, QueueName), Activity> = BTreeMap::new();
        for ((start, of, name), activity) in &self.activity {
            let wanted = *of == tenant && queue.as_ref().is_none_or(|queue| queue == name);
            if wanted && (from..until).contains(start) {
                let start = Timestamp::from_micros(start.as_micros().div_euclid(length).saturating_mul(length));
                buckets.entry((start, name.clone())).or_default().merge(activity);
            }
        }
        let over = buckets.len().saturating_sub(MAX_ACTIVITY_READ);
        let row = |((start, queue), activity)| ActivityRow { start, tenant, queue, activity };
        StoreReply::Activity(buckets.into_iter().skip(over).map(row).collect())
    }
}

fn remove<K: Ord>(index: &mut BTreeMap<K, BTreeSet<Uuid>>, key: K, id: Uuid) {
    if let Entry::Occupied(mut ids) = index.entry(key) {
        ids.get_mut().remove(&id);
        if ids.get().is_empty() {
            ids.remove();
        }
    }
}

fn place(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
