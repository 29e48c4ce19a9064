//! Long polls: parked where the thing they wait for will happen, woken in order of arrival.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use smallvec::SmallVec;

use super::Broker;
use super::pop::{PopCall, Stage};
use super::tables::{GroupIx, PartitionIx, Place, QueueIx, Tables};
use crate::command::{PopScope, RequestId};
use crate::error::Rejection;
use crate::name::{PartitionName, QueueName, TenantId};
use crate::reply::Reply;

/// Where a parked pop is found by what wakes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Spot {
    /// Any lane of a group.
    Group(GroupIx),
    /// One lane.
    Partition(GroupIx, PartitionIx),
    /// A queue or partition that does not exist yet.
    Stranger(TenantId, QueueName, Option<PartitionName>),
    /// Any queue of the tenant that gets fitting labels.
    Discovery(TenantId),
}

/// A queue that does not exist yet, or a partition of one.
type StrangerKey = (TenantId, QueueName, Option<PartitionName>);

/// All parked pops.
#[derive(Default)]
pub struct Waiters {
    last_seq: u64,
    /// By order of arrival.
    pub parked: BTreeMap<u64, RequestId>,
    strangers: BTreeMap<StrangerKey, BTreeSet<u64>>,
    discovery: BTreeMap<TenantId, BTreeSet<u64>>,
    /// Groups with lanes that changed.
    pub awake: BTreeSet<GroupIx>,
}

impl Waiters {
    /// How many pops are parked.
    pub fn len(&self) -> usize {
        self.parked.len()
    }

    /// The next place in the order of arrival.
    pub fn next_seq(&mut self) -> u64 {
        self.last_seq += 1;
        self.last_seq
    }

    /// Adds a parked pop to a spot.
    pub fn add(&mut self, tables: &mut Tables, spot: &Spot, seq: u64) {
        match spot {
            Spot::Group(group) => {
                tables.group_mut(*group).waiters.insert(seq);
            }
            Spot::Partition(group, partition) => {
                tables.group_mut(*group).partition_waiters.entry(*partition).or_default().insert(seq);
            }
            Spot::Stranger(tenant, queue, partition) => {
                let key = (*tenant, queue.clone(), partition.clone());
                self.strangers.entry(key).or_default().insert(seq);
            }
            Spot::Discovery(tenant) => {
                self.discovery.entry(*tenant).or_default().insert(seq);
            }
        }
    }

    /// Takes a parked pop out of a spot.
    pub fn remove(&mut self, tables: &mut Tables, spot: &Spot, seq: u64) {
        match spot {
            Spot::Group(group) => {
                tables.group_mut(*group).waiters.remove(&seq);
            }
            Spot::Partition(group, partition) => {
                let waiters = &mut tables.group_mut(*group).partition_waiters;
                if let Some(set) = waiters.get_mut(partition) {
                    set.remove(&seq);
                    if set.is_empty() {
                        waiters.remove(partition);
                    }
                }
            }
            Spot::Stranger(tenant, queue, partition) => {
                let key = (*tenant, queue.clone(), partition.clone());
                if let Some(set) = self.strangers.get_mut(&key) {
                    set.remove(&seq);
                    if set.is_empty() {
                        self.strangers.remove(&key);
                    }
                }
            }
            Spot::Discovery(tenant) => {
                if let Some(set) = self.discovery.get_mut(tenant) {
                    set.remove(&seq);
                    if set.is_empty() {
                        self.discovery.remove(tenant);
                    }
                }
            }
        }
    }
}

impl Broker {
    /// Where a pop that found nothing is parked.
    pub(super) fn spots_for(&mut self, call: &PopCall) -> SmallVec<[Spot; 1]> {
        let mut spots = SmallVec::new();
        match &call.pop.scope {
            PopScope::Queue(name) => match self.tables.find_queue(call.tenant, name) {
                Some(queue) => spots.push(Spot::Group(self.tables.group_of(queue, &call.pop.group))),
                None => spots.push(Spot::Stranger(call.tenant, name.clone(), None)),
            },
            PopScope::Partition(name, partition) => {
                let queue = self.tables.find_queue(call.tenant, name);
                let found = queue.and_then(|queue| Some((queue, self.tables.find_partition(queue, partition)?)));
                match found.filter(|(_, partition)| !self.tables.partition(*partition).fresh) {
                    Some((queue, partition)) => {
                        spots.push(Spot::Partition(self.tables.group_of(queue, &call.pop.group), partition));
                    }
                    None => spots.push(Spot::Stranger(call.tenant, name.clone(), Some(partition.clone()))),
                }
            }
            PopScope::Labels(labels) => {
                spots.push(Spot::Discovery(call.tenant));
                let queues: Vec<QueueIx> = self.tables.queues_of(call.tenant).collect();
                for queue in queues {
                    if self.tables.queue(queue).record.labels.match_wanted(labels) {
                        spots.push(Spot::Group(self.tables.group_of(queue, &call.pop.group)));
                    }
                }
            }
        }
        spots
    }

    /// Serves the waiters of every group whose lanes changed.
    pub(super) fn serve(&mut self) {
        if !self.usable() {
            return;
        }
        while let Some(group) = self.waiters.awake.pop_first() {
            if self.closed_to_claims() {
                self.waiters.awake.insert(group);
                return;
            }
            self.serve_partitions(group);
            self.serve_group(group);
        }
    }

    /// Whether a parked pop may claim nothing now: the commit being built is full, or an exclusive change is open or waits.
    fn closed_to_claims(&self) -> bool {
        self.commits.full() || self.commits.exclusive() || self.barrier.is_some()
    }

    fn serve_group(&mut self, group: GroupIx) {
        let mut after = 0;
        while let Some(row) = self.tables.find_group(group) {
            if row.ready.is_empty() {
                break;
            }
            let mut waiting = row.waiters.range(after..);
            let first = if plant!(NewestWaiterFirst) { waiting.next_back() } else { waiting.next() };
            let Some(seq) = first.copied() else { break };
            after = seq + 1;
            self.serve_seq(seq);
        }
    }

    fn serve_partitions(&mut self, group: GroupIx) {
        let Some(row) = self.tables.find_group(group) else { return };
        let ready: Vec<u64> = row
            .partition_waiters
            .iter()
            .filter(|(partition, _)| {
                let lane = self.tables.find_lane(**partition, group);
                lane.is_some_and(|lane| matches!(self.tables.lane(lane).place(), Place::Ready(_)))
            })
            .flat_map(|(_, waiters)| waiters.iter().copied())
            .collect();
        for seq in ready {
            self.serve_seq(seq);
        }
    }

    fn serve_seq(&mut self, seq: u64) -> bool {
        let Some(request) = self.waiters.parked.get(&seq).copied() else { return false };
        self.serve_parked(request)
    }

    /// A long poll's time is up.
    pub(super) fn wait_over(&mut self, seq: u64) {
        plant!(WaitNeverEnds => return);
        let usable = self.usable();
        self.end_wait(seq, |_| if usable { Reply::Popped(None) } else { Reply::Refused(Rejection::NotOwner) });
    }

    /// A held pop takes what there is.
    pub(super) fn hold_over(&mut self, seq: u64) {
        if !self.usable() {
            return;
        }
        if !self.closed_to_claims() {
            self.serve_seq(seq);
            return;
        }
        // Its turn comes with its group's, as soon as claims may be made again.
        let call = self.waiters.parked.get(&seq).and_then(|request| self.pops.get(request));
        let spots = call.map(|call| call.spots.clone()).unwrap_or_default();
        for spot in spots {
            if let Spot::Group(group) | Spot::Partition(group, _) = spot {
                self.waiters.awake.insert(group);
            }
        }
    }

    /// Ends a parked pop with an answer that holds no messages. A held one is given what there is, unless an exclusive
    /// change goes on, which nobody may write beside.
    fn end_wait(&mut self, seq: u64, reply: impl FnOnce(&PopCall) -> Reply) {
        if self.usable() && !self.closed_to_claims() && self.serve_seq(seq) {
            return;
        }
        let Some(request) = self.waiters.parked.get(&seq).copied() else { return };
        let Some(mut call) = self.pops.remove(&request) else { return };
        self.unpark(&mut call);
        self.tidy_after(&call);
        self.count_empty(&call);
        let reply = reply(&call);
        self.reply(request, reply);
    }

    /// Answers every parked pop, whatever there is.
    pub(super) fn answer_parked(&mut self, reply: impl Fn() -> Reply) {
        let parked: Vec<u64> = self.waiters.parked.keys().copied().collect();
        for seq in parked {
            let Some(request) = self.waiters.parked.get(&seq).copied() else { continue };
            let Some(mut call) = self.pops.remove(&request) else { continue };
            self.unpark(&mut call);
            self.reply(request, reply());
        }
    }

    /// Lets parked pops be decided from scratch: what they wait for came into being or changed.
    fn restart_parked(&mut self, seqs: Vec<u64>) {
        for seq in seqs {
            let Some(request) = self.waiters.parked.get(&seq).copied() else { continue };
            let Some(mut call) = self.pops.remove(&request) else { continue };
            self.unpark(&mut call);
            self.pops.insert(request, call);
            // Not at once: the commit that brought this may have more to bring.
            self.restart_pop(request);
        }
    }

    /// A partition came into being: pops that wait for it, or for its queue, look again.
    pub(super) fn wake_strangers(&mut self, partition: PartitionIx) {
        if self.waiters.parked.is_empty() || plant!(WakeLostOnBirth) {
            return;
        }
        let row = self.tables.partition(partition);
        let queue = &self.tables.queue(row.queue).record;
        let (tenant, name) = (queue.tenant, queue.name.clone());
        let mut seqs = Vec::new();
        for key in [(tenant, name.clone(), Some(row.name.clone())), (tenant, name, None)] {
            seqs.extend(self.waiters.strangers.get(&key).into_iter().flatten().copied());
        }
        self.restart_parked(seqs);
    }

    /// A queue came into being or got other labels: discovery pops it fits now, and did not before, look again.
    pub(super) fn wake_discovery(&mut self, queue: QueueIx) {
        let record = &self.tables.queue(queue).record;
        let Some(waiting) = self.waiters.discovery.get(&record.tenant) else { return };
        let groups = &self.tables.queue(queue).groups;
        let mut seqs = Vec::new();
        for seq in waiting {
            let Some(call) = self.waiters.parked.get(seq).and_then(|request| self.pops.get(request)) else { continue };
            let PopScope::Labels(labels) = &call.pop.scope else { continue };
            let fits = record.labels.match_wanted(labels);
            let group = groups.get(&call.pop.group).copied();
            let there = group.is_some_and(|group| self.tables.group(group).waiters.contains(seq));
            if fits != there {
                seqs.push(*seq);
            }
        }
        self.restart_parked(seqs);
    }

    /// A group without a registration lost its cursor on a partition: pops parked there start anew.
    pub(super) fn restart_waiters_at(&mut self, group: GroupIx, partition: PartitionIx) {
        let waiters = self.tables.find_group(group).and_then(|row| row.partition_waiters.get(&partition));
        let seqs: Vec<u64> = waiters.into_iter().flatten().copied().collect();
        self.restart_parked(seqs);
    }

    /// A group was deleted: its parked pops register it anew.
    pub(super) fn restart_waiters_of(&mut self, group: GroupIx) {
        let row = self.tables.group(group);
        let mut seqs: Vec<u64> = row.waiters.iter().copied().collect();
        seqs.extend(row.partition_waiters.values().flatten().copied());
        self.restart_parked(seqs);
    }

    /// A queue is about to end: pops parked on it alone are answered empty, discovery pops look again without it.
    pub(super) fn release_waiters_of(&mut self, queue: QueueIx) {
        let groups: Vec<GroupIx> = self.tables.queue(queue).groups.values().copied().collect();
        for group in groups {
            let row = self.tables.group(group);
            let mut seqs: Vec<u64> = row.waiters.iter().copied().collect();
            seqs.extend(row.partition_waiters.values().flatten().copied());
            for seq in seqs {
                let Some(request) = self.waiters.parked.get(&seq).copied() else { continue };
                let Some(call) = self.pops.get(&request) else { continue };
                if matches!(call.pop.scope, PopScope::Labels(_)) {
                    self.restart_parked(alloc::vec![seq]);
                } else if let Some(mut call) = self.pops.remove(&request) {
                    self.unpark(&mut call);
                    self.counters.pop_empty += 1;
                    self.reply(request, Reply::Popped(None));
                }
            }
        }
    }

    /// Every parked pop goes back among the work that waits: the slot is lost.
    pub(super) fn requeue_parked(&mut self) -> Vec<RequestId> {
        let parked = core::mem::take(&mut self.waiters.parked);
        self.waiters.strangers.clear();
        self.waiters.discovery.clear();
        self.waiters.awake.clear();
        for (seq, request) in &parked {
            if let Some(call) = self.pops.get_mut(request) {
                call.stage = Stage::Queued;
                call.spots.clear();
                if let Some(deadline) = call.deadline {
                    self.timers.clear(deadline, super::timers::Alarm::Wait(*seq));
                }
                call.clear_hold(&mut self.timers);
            }
        }
        parked.into_values().collect()
    }

    /// A group that only a parked pop needed goes with it.
    pub(super) fn tidy_after(&mut self, call: &PopCall) {
        let queue = match &call.pop.scope {
            PopScope::Queue(name) | PopScope::Partition(name, _) => self.tables.find_queue(call.tenant, name),
            PopScope::Labels(_) => None,
        };
        let group = queue.and_then(|queue| self.tables.queue(queue).groups.get(&call.pop.group).copied());
        if let Some(group) = group {
            self.tables.tidy_group(group);
        }
    }
}
