//! A dry run: what each rule would delete now. It reads what a cycle would read, and writes nothing.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::whole_reads;
use crate::broker::Broker;
use crate::broker::calls::Pending;
use crate::command::RequestId;
use crate::error::Rejection;
use crate::limits::{MAX_PREVIEW_EXTENTS, MAX_STEP_PARTITIONS};
use crate::name::{PartitionId, QueueId, QueueName, TenantId};
use crate::record::{RetentionRule, Tally};
use crate::reply::{Reply, RetentionPreview, RulePreview};
use crate::rules::retention::{self, Cutoffs};
use crate::store::{ExtentRead, StoreReply, StoreRequest};
use crate::time::Timestamp;

/// A dry run on its way.
pub struct Preview {
    request: RequestId,
    queue: QueueId,
    tenant: TenantId,
    name: QueueName,
    cutoffs: Cutoffs,
    sums: [(Tally, Option<Timestamp>); 3],
    /// Partitions still to be read, from which offset on, and which rules have not come to an end there.
    left: VecDeque<(PartitionId, u64, [bool; 3])>,
}

impl Broker {
    /// Begins a dry run; an unknown queue is told at once.
    pub(in crate::broker) fn preview_retention(&mut self, request: RequestId, tenant: TenantId, name: QueueName) {
        let found = self.tables.find_queue(tenant, &name).filter(|ix| self.tables.queue(*ix).fresh.is_none());
        let Some(ix) = found else { return self.reply(request, Reply::Retention(None)) };
        let row = self.tables.queue(ix);
        let cutoffs = Cutoffs::of(&row.record.options, self.now.store);
        let rules = RetentionRule::ALL.map(|rule| cutoffs.of_rule(rule).is_some());
        let latest = RetentionRule::ALL.into_iter().filter_map(|rule| cutoffs.of_rule(rule)).max();
        let has_old = |partition: &PartitionId| {
            let ix = self.tables.partition_by_id(*partition);
            ix.is_some_and(|ix| latest.is_some_and(|latest| self.oldest_known(ix) < latest))
        };
        let partitions = row.partitions.iter().map(|partition| self.tables.partition(*partition));
        let kept = partitions.filter(|row| !row.fresh && row.log_start < row.end);
        let left = kept.filter(|row| has_old(&row.id)).map(|row| (row.id, row.log_start, rules)).collect();
        let queue = row.record.id;
        let sums = [(Tally::default(), None); 3];
        self.read_preview(Box::new(Preview { request, queue, tenant, name, cutoffs, sums, left }));
    }

    fn read_preview(&mut self, preview: Box<Preview>) {
        if preview.left.is_empty() {
            return self.end_preview(*preview);
        }
        let first = preview.left.iter().take(MAX_STEP_PARTITIONS);
        let reads = first.map(|(partition, from, _)| ExtentRead { partition: *partition, from: *from, hashes: false });
        let request = StoreRequest::LoadExtents { reads: reads.collect(), limit: MAX_PREVIEW_EXTENTS };
        self.ask(request, Pending::Preview(preview));
    }

    /// Some of what a dry run looks at was read.
    pub(in crate::broker) fn preview_read(&mut self, mut preview: Box<Preview>, reply: StoreReply) {
        if self.refused_without_slot(preview.request) {
            return;
        }
        let StoreReply::Extents(lists) = reply else {
            return self.reply(preview.request, Reply::Refused(Rejection::StoreUnavailable));
        };
        let whole = whole_reads(&lists, MAX_PREVIEW_EXTENTS);
        let open = self.commits.open_cursors();
        let mut again = Vec::new();
        for (at, extents) in lists.iter().enumerate() {
            let Some((partition, from, mut on)) = preview.left.pop_front() else { break };
            let Some(ix) = self.tables.partition_by_id(partition) else { continue };
            let consumption = self.consumption(ix, &open);
            for (place, rule) in RetentionRule::ALL.into_iter().enumerate() {
                if !on[place] {
                    continue;
                }
                let (tally, goes_on) = retention::tally(rule, extents, &consumption, &preview.cutoffs);
                let (sum, oldest) = &mut preview.sums[place];
                sum.add(&tally);
                let first = extents.first().filter(|_| tally.segments > 0).map(|extent| extent.created);
                *oldest = oldest.iter().copied().chain(first).min();
                on[place] = goes_on;
            }
            if at >= whole && on.contains(&true) {
                again.push((partition, extents.last().map_or(from, |last| last.end), on));
            }
        }
        again.into_iter().rev().for_each(|it| preview.left.push_front(it));
        self.read_preview(preview);
    }

    fn end_preview(&mut self, preview: Preview) {
        let found = self.tables.find_queue(preview.tenant, &preview.name).map(|ix| &self.tables.queue(ix).record);
        let Some(record) = found.filter(|record| record.id == preview.queue) else {
            return self.reply(preview.request, Reply::Retention(None));
        };
        let options = record.options.clone();
        let rules = RetentionRule::ALL.into_iter().zip(preview.sums).map(|(rule, (tally, oldest))| RulePreview {
            rule,
            active: preview.cutoffs.of_rule(rule).is_some(),
            tally,
            oldest,
        });
        let report = RetentionPreview { queue: preview.name, options, rules: rules.collect() };
        self.reply(preview.request, Reply::Retention(Some(report)));
    }
}
