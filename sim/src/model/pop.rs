//! Sections 6 and 7: first contact, what is deliverable when, claims, long polls.

use std::ops::Range;

use tidegate_core::command::{Pop, PopScope, RequestId};
use tidegate_core::name::{GroupName, LeaseId, PartitionName, TenantId};
use tidegate_core::record::StartFrom;
use tidegate_core::reply::{Delivery, Reply};
use tidegate_core::time::{Span, Timestamp};

use super::{
    Cursor, Lease, Model, Partition, Queue, QueueKey, Registration, Verdict, Waiting, expect, secs, unexpected,
};

/// What a group may take of a partition at `now`: empty when it is leased, delayed or held back by a window. None where the
/// group stands nowhere.
pub(super) fn available(
    queue: &Queue,
    partition: &Partition,
    group: &GroupName,
    window_batch: u64,
    now: Timestamp,
) -> Option<Range<usize>> {
    let cursor = queue.standing(group, partition)?;
    let (first, end) = (cursor.next, partition.log.len());
    if first >= end || cursor.lease.is_some_and(|lease| lease.lives(now)) {
        return Some(0..0);
    }
    let (delay, window) = (queue.options.delayed_processing, queue.options.window_buffer);
    let due = |at: usize| delay == 0 || partition.log[at].created.plus(secs(delay)) <= now;
    let due = (first..end).take_while(|at| due(*at)).last().map_or(first, |last| last + 1);
    // A window is counted from the first message that waits; enough of them end it early, but not a delay.
    let early = delay == 0 && (end - first) as u64 >= window_batch;
    let open = window == 0 || early || partition.log[first].created.plus(secs(window)) <= now;
    Some(if open { first..due } else { 0..0 })
}

impl Model {
    /// Judges what a pop was told at once; none means that it waits.
    pub fn popped(
        &mut self,
        now: Timestamp,
        request: RequestId,
        tenant: TenantId,
        pop: &Pop,
        reply: Option<&Reply>,
    ) -> Verdict {
        let deadline = now.plus(pop.wait.unwrap_or_default());
        self.waiting.insert(request, Waiting { tenant, pop: pop.clone(), deadline, some_since: None });
        self.serve(now, request, reply)
    }

    /// What a pop does before it looks for messages (6.5).
    pub fn contact(&mut self, now: Timestamp, tenant: TenantId, pop: &Pop) {
        let start = if pop.group.is_queue_mode() { StartFrom::All } else { pop.start.unwrap_or(StartFrom::All) };
        match &pop.scope {
            PopScope::Queue(name) => {
                let queue = self.queue_for_push(now, &(tenant, name.clone()));
                if !queue.groups.contains_key(&pop.group) {
                    let registered = now.max(queue.latest.next());
                    (queue.latest, queue.registered) = (registered, registered);
                    queue.groups.insert(pop.group.clone(), Registration { start, registered });
                }
            }
            PopScope::Partition(name, partition) => {
                let Some(queue) = self.queues.get_mut(&(tenant, name.clone())) else { return };
                let registered = queue.groups.contains_key(&pop.group);
                let Some(row) = queue.partitions.get_mut(partition) else { return };
                if !registered && !row.cursors.contains_key(&pop.group) {
                    let next = match start {
                        StartFrom::All => 0,
                        StartFrom::New => row.log.len(),
                        StartFrom::Time(time) => row.first_at(time),
                    };
                    row.cursors.insert(pop.group.clone(), Cursor { next, ..Cursor::default() });
                }
            }
            PopScope::Labels(_) => {}
        }
        self.refresh(now);
    }

    /// The partitions a pop may take from now, with how many messages each has for it, and since when.
    fn candidates(&self, now: Timestamp, tenant: TenantId, pop: &Pop) -> Vec<(PartitionName, usize, u64)> {
        let (PopScope::Queue(name) | PopScope::Partition(name, _)) = &pop.scope else { return Vec::new() };
        let Some(queue) = self.queues.get(&(tenant, name.clone())) else { return Vec::new() };
        let wanted = |name: &PartitionName| !matches!(&pop.scope, PopScope::Partition(_, only) if only != name);
        let partitions = queue.partitions.iter().filter(|(name, _)| wanted(name));
        let some = partitions.filter_map(|(name, partition)| {
            let some = available(queue, partition, &pop.group, self.window_batch, now)?;
            (!some.is_empty())
                .then(|| (name.clone(), some.len(), partition.ready.get(&pop.group).copied().unwrap_or(0)))
        });
        some.collect()
    }

    /// Whether a pop that waits must be served now, and whether it may be.
    fn is_due(&mut self, now: Timestamp, request: RequestId) -> (bool, bool) {
        let Some(Waiting { tenant, pop, deadline, some_since }) = self.waiting.get(&request).cloned() else {
            return (false, false);
        };
        // Which partitions count against the cap is the core's choice: the fewest messages it may see.
        let mut counts: Vec<usize> = self.candidates(now, tenant, &pop).iter().map(|(_, count, _)| *count).collect();
        counts.sort_unstable();
        let count: usize = counts.iter().take(pop.partitions.map_or(usize::MAX, |cap| cap as usize)).sum();
        let (PopScope::Queue(name) | PopScope::Partition(name, _)) = &pop.scope else { return (false, false) };
        let queue = self.queues.get(&(tenant, name.clone()));
        let hold = queue.map_or(0, |queue| queue.options.min_pop_wait_time);
        let since = some_since.filter(|_| count > 0).or((count > 0).then_some(now));
        if let Some(waiting) = self.waiting.get_mut(&request) {
            waiting.some_since = since;
        }
        // Under a cap it looks at the partitions that were ready first, and is not woken when others take them.
        let full = count >= pop.batch as usize && pop.partitions.is_none();
        let held = hold > 0 && pop.batch > 1 && now < deadline && !full;
        let held = held && since.is_some_and(|since| now < since.plus(Span::from_millis(hold)));
        (count > 0 && !held, count > 0)
    }

    /// Judges what a pop that waits is told at `now`, if it is told anything.
    pub fn serve(&mut self, now: Timestamp, request: RequestId, reply: Option<&Reply>) -> Verdict {
        let Some(Waiting { tenant, pop, deadline, .. }) = self.waiting.get(&request).cloned() else {
            return reply.map_or(Ok(()), |reply| Err(format!("a pop that was answered is answered again: {reply:?}")));
        };
        self.contact(now, tenant, &pop);
        let (must, may) = self.is_due(now, request);
        match reply {
            None if must => return Err(format!("{pop:?} waits although there is something for it")),
            None if now >= deadline => return Err(format!("{pop:?} waits beyond its time")),
            None => return Ok(()),
            Some(Reply::Popped(None)) if must => return Err(format!("{pop:?} is told that there is nothing")),
            Some(Reply::Popped(None)) if now < deadline => return Err(format!("{pop:?} is answered before its time")),
            Some(Reply::Popped(None)) => {}
            Some(Reply::Popped(Some(_))) if !may => return Err(format!("nothing is there for {pop:?}: {reply:?}")),
            Some(Reply::Popped(Some(delivery))) => self.claim(now, tenant, &pop, delivery)?,
            Some(other) => return Err(unexpected(other)),
        }
        self.waiting.remove(&request);
        self.refresh(now);
        Ok(())
    }

    fn claim(&mut self, now: Timestamp, tenant: TenantId, pop: &Pop, delivery: &Delivery) -> Verdict {
        let (PopScope::Queue(queue) | PopScope::Partition(queue, _)) = &pop.scope else { return Ok(()) };
        let key: QueueKey = (tenant, queue.clone());
        expect("whether a pop takes a lease", &!pop.auto_ack, &delivery.lease.is_some())?;
        if let Some(lease) = delivery.lease
            && !self.leases.insert(lease)
        {
            return Err(format!("lease {lease} is given twice"));
        }
        let mut candidates = self.candidates(now, tenant, pop);
        let mut left = pop.batch as usize;
        let mut cap = pop.partitions.map_or(usize::MAX, |cap| cap as usize);
        for claim in &delivery.claims {
            let first = claim.messages.first().ok_or("a claim without messages")?;
            let (home, name) = self.learn_home(claim.partition, first.id)?;
            expect("the queue of a claim", &key, &home)?;
            expect("the name of a partition", &name, &claim.name)?;
            let oldest = candidates.iter().map(|(_, _, turn)| *turn).min().unwrap_or(0);
            let at = candidates.iter().position(|(candidate, ..)| *candidate == name);
            let (_, count, turn) = candidates.remove(at.ok_or_else(|| format!("{name} has nothing to give"))?);
            let queue = &self.queues[&key];
            // With delays and windows a new owner may take a partition for ready before it has looked.
            let holds = queue.options.delayed_processing > 0 || queue.options.window_buffer > 0;
            let ordered = !(holds || self.restarted && queue.held);
            if turn > oldest && ordered {
                return Err(format!("{name} is taken before a partition that became ready earlier"));
            }
            let standing = queue.standing(&pop.group, &queue.partitions[&name]).unwrap_or_default();
            let next = standing.next;
            expect("the messages of a claim", &count.min(left), &claim.messages.len())?;
            for (message, is) in queue.partitions[&name].log[next..].iter().zip(&claim.messages) {
                expect("a message's id", &message.id, &is.id)?;
                expect("a message's commit time", &message.created, &is.created)?;
                expect("a message's payload", &message.payload, &is.message.payload)?;
                expect("a message's transaction id", &message.transaction, &is.message.transaction)?;
            }
            left -= claim.messages.len();
            cap = cap.checked_sub(1).ok_or("more partitions than asked for")?;
            let end = next + claim.messages.len();
            self.take(now, &key, &name, pop, standing, delivery.lease, end);
        }
        let more = left > 0 && cap > 0 && !candidates.is_empty();
        if more {
            Err(format!("{left} more messages were asked for, and there are some in {candidates:?}"))
        } else {
            Ok(())
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn take(
        &mut self,
        now: Timestamp,
        key: &QueueKey,
        name: &PartitionName,
        pop: &Pop,
        mut cursor: Cursor,
        lease: Option<LeaseId>,
        end: usize,
    ) {
        let Some(queue) = self.queues.get_mut(key) else { return };
        let length = pop.lease.filter(|asked| asked.is_positive()).unwrap_or(secs(queue.options.lease_time));
        let Some(partition) = queue.partitions.get_mut(name) else { return };
        match lease {
            Some(id) => cursor.lease = Some(Lease { id, expires: now.plus(length), end }),
            None => {
                cursor.consumed += (end - cursor.next) as u64;
                (cursor.next, cursor.lease) = (end, None);
            }
        }
        partition.cursors.insert(pop.group.clone(), cursor);
        partition.ready.remove(&pop.group);
    }

    /// A client left: its wait is over, or the lease of the answer it never got ends.
    pub fn gone(&mut self, now: Timestamp, request: RequestId, lease: Option<LeaseId>) {
        self.waiting.remove(&request);
        for queue in self.queues.values_mut() {
            for partition in queue.partitions.values_mut() {
                for cursor in partition.cursors.values_mut() {
                    cursor.lease = cursor.lease.filter(|held| Some(held.id) != lease);
                }
            }
        }
        self.refresh(now);
    }

    /// A client left before its pop of one partition was answered: what it had claimed is given back.
    pub fn abandoned(&mut self, now: Timestamp, tenant: TenantId, pop: &Pop) {
        self.contact(now, tenant, pop);
        let PopScope::Partition(queue, name) = &pop.scope else { return };
        if let Some(queue) = self.queues.get_mut(&(tenant, queue.clone()))
            && let Some(partition) = queue.partitions.get(name)
            && available(queue, partition, &pop.group, self.window_batch, now).is_some_and(|some| !some.is_empty())
            && let Some(cursor) = queue.standing(&pop.group, partition)
            && let Some(partition) = queue.partitions.get_mut(name)
        {
            partition.cursors.insert(pop.group.clone(), Cursor { lease: None, ..cursor });
            partition.ready.remove(&pop.group);
        }
        self.refresh(now);
    }

    /// The pops that wait, in order of arrival.
    pub fn waiting(&self) -> Vec<RequestId> {
        self.waiting.keys().copied().collect()
    }

    /// When something is to be told to a pop that waits, though nobody asks: the earliest such time after `now`.
    pub fn next_wake(&self, now: Timestamp) -> Option<Timestamp> {
        let mut times = Vec::new();
        for waiting in self.waiting.values() {
            times.push(waiting.deadline);
            let (PopScope::Queue(name) | PopScope::Partition(name, _)) = &waiting.pop.scope else { continue };
            let Some(queue) = self.queues.get(&(waiting.tenant, name.clone())) else { continue };
            times.extend(waiting.some_since.map(|at| at.plus(Span::from_millis(queue.options.min_pop_wait_time))));
        }
        // Every time at which a lane becomes ready is looked at, so that their order is known.
        for queue in self.queues.values() {
            let (delay, window) = (secs(queue.options.delayed_processing), secs(queue.options.window_buffer));
            for partition in queue.partitions.values() {
                times.extend(partition.cursors.values().filter_map(|cursor| Some(cursor.lease?.expires)));
                if delay.is_positive() || window.is_positive() {
                    let due = |created: Timestamp| [created.plus(delay), created.plus(window)];
                    times.extend(partition.log.iter().flat_map(|message| due(message.created)));
                }
            }
        }
        times.into_iter().filter(|at| *at > now).min()
    }
}
