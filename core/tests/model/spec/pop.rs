//! Sections 6 and 7: first contact, where a group starts, what is deliverable when, and what a claim does.

use tidegate_core::command::{Pop, PopScope};
use tidegate_core::name::{GroupName, LeaseId, MessageId, PartitionId, QueueName, TenantId};
use tidegate_core::record::StartFrom;
use tidegate_core::reply::{Delivery, Reply};
use tidegate_core::time::{Span, Timestamp};

use super::super::peek::Peek;
use super::{Cursor, Lease, Message, Model, Partition, Queue, Quirk, Registration, Wrong, learn, same, unexpected};

/// A pop's lease, and the messages that it took of each partition.
type Taken = (Option<LeaseId>, Vec<(PartitionId, Vec<MessageId>)>);

/// A claim, whether it was told or only seen in what was to be written.
struct Claimed {
    q: usize,
    p: usize,
    end: u64,
    expires: Option<Timestamp>,
}

impl Model {
    pub(super) fn pop(
        &mut self,
        now: Timestamp,
        tenant: TenantId,
        pop: &Pop,
        reply: Option<&Reply>,
        peek: &Peek<'_>,
    ) -> Result<Taken, Wrong> {
        let (lease, claims) = match reply {
            Some(Reply::Popped(Some(delivery))) => {
                (delivery.lease, self.told_claims(now, tenant, pop, delivery, peek)?)
            }
            Some(Reply::Popped(None)) => {
                let deliverable: u64 = self.deliverable(now, tenant, pop).iter().sum();
                if deliverable > 0 && !peek.late() {
                    return Err(format!("{deliverable} messages are deliverable to a pop that got none"));
                }
                return Ok((None, Vec::new()));
            }
            Some(other) => return Err(unexpected(other)),
            None => self.seen_claims(tenant, pop, peek),
        };
        if lease.is_none() != (pop.auto_ack || claims.is_empty()) {
            return Err("a lease goes with every pop but those that commit on delivery".to_owned());
        }
        self.check_extent(now, tenant, pop, &claims, peek.late())?;
        let mut taken = Vec::new();
        for claim in claims {
            let queue = &self.queues[claim.q];
            let first = self.first(queue, &queue.partitions[claim.p], pop);
            let wanted = match pop.lease {
                Some(asked) if asked > Span::ZERO => asked,
                _ => Span::from_secs(queue.options.lease_time),
            };
            let partition = &mut self.queues[claim.q].partitions[claim.p];
            let messages = &partition.messages[first as usize..claim.end as usize];
            taken.push((
                partition.id.ok_or("a partition without an id".to_owned())?,
                messages.iter().map(|message| message.id).collect(),
            ));
            let cursor = partition.cursors.entry(pop.group.clone()).or_default();
            match lease {
                Some(id) => {
                    let expires = now.plus(wanted);
                    if let Some(written) = claim.expires {
                        same("the expiry of the lease", &expires, &written)?;
                    }
                    cursor.next = first;
                    cursor.lease = Some(Lease { id, expires, end: claim.end });
                }
                None => {
                    cursor.consumed += claim.end - first;
                    cursor.next = claim.end;
                    cursor.lease = None;
                }
            }
        }
        Ok((lease, taken))
    }

    /// The states after what a pop does before it looks for messages, as far as it was seen to be written. None when
    /// it was written and could not have been in this state.
    pub fn contacts(&self, now: Timestamp, tenant: TenantId, pop: &Pop, peek: &Peek<'_>) -> Vec<Model> {
        let mut next = self.clone();
        let mut certain = false;
        match &pop.scope {
            PopScope::Partition(queue, partition) => {
                let Some(queue) = self.queue(tenant, queue) else { return vec![next] };
                let Some(partition) = queue.partitions.iter().find(|one| one.name == *partition) else {
                    return vec![next];
                };
                if queue.records.contains_key(&pop.group) || partition.cursors.contains_key(&pop.group) {
                    return vec![next];
                }
                let Some(id) = partition.id else { return vec![next] };
                let Some(sure) = peek.cursor(id, &pop.group) else { return vec![next] };
                let cursor = Cursor { next: self.first(queue, partition, pop), ..Cursor::default() };
                let (q, p) = self.locate(id).unwrap_or_default();
                next.queues[q].partitions[p].cursors.insert(pop.group.clone(), cursor);
                certain = sure;
            }
            PopScope::Queue(_) | PopScope::Labels(_) => {
                let mut names: Vec<QueueName> =
                    self.in_scope(tenant, pop).into_iter().map(|q| self.queues[q].name.clone()).collect();
                if let (PopScope::Queue(name), true) = (&pop.scope, names.is_empty()) {
                    names.push(name.clone());
                }
                for name in names {
                    if self.queue(tenant, &name).is_some_and(|queue| queue.records.contains_key(&pop.group)) {
                        continue;
                    }
                    let Some(contact) = peek.contact(tenant, &name, &pop.group) else { continue };
                    let queue = next.queue_or_new(now, tenant, &name);
                    let messages = queue.partitions.iter().flat_map(|one| &one.messages);
                    let before =
                        messages.map(|message| message.created).max().is_none_or(|last| last < contact.registered);
                    if !before || contact.start != self.effective_start(pop) {
                        return if contact.certain { Vec::new() } else { vec![self.clone()] };
                    }
                    let record = Registration { start: contact.start, registered: contact.registered, changed: None };
                    queue.records.insert(pop.group.clone(), record);
                    certain |= contact.certain;
                }
            }
        }
        if certain || next == *self { vec![next] } else { vec![self.clone(), next] }
    }

    /// Where a pop wants its group to start when it is new: the settings never apply to queue mode.
    fn effective_start(&self, pop: &Pop) -> StartFrom {
        if pop.group.as_str() == "__QUEUE_MODE__" {
            return StartFrom::All;
        }
        pop.start.unwrap_or(self.rules.default_start)
    }

    /// Whether a pop was answered or parked without the first contact that comes before.
    pub fn lacks_contact(&self, tenant: TenantId, pop: &Pop) -> bool {
        let queues = self.in_scope(tenant, pop);
        let unregistered = |&q: &usize| !self.queues[q].records.contains_key(&pop.group);
        match &pop.scope {
            PopScope::Partition(_, name) => queues.iter().filter(|q| unregistered(q)).any(|&q| {
                let partition = self.queues[q].partitions.iter().find(|one| one.name == *name);
                partition.is_some_and(|partition| !partition.cursors.contains_key(&pop.group))
            }),
            PopScope::Queue(_) => queues.is_empty() || queues.iter().any(unregistered),
            PopScope::Labels(_) => queues.iter().any(unregistered),
        }
    }

    /// Places of the queues that a pop may take from.
    pub fn in_scope(&self, tenant: TenantId, pop: &Pop) -> Vec<usize> {
        let fits = |queue: &Queue| match &pop.scope {
            PopScope::Queue(name) | PopScope::Partition(name, _) => queue.name == *name,
            PopScope::Labels(wanted) => {
                (wanted.namespace.is_empty() || wanted.namespace == queue.labels.namespace)
                    && (wanted.task.is_empty() || wanted.task == queue.labels.task)
            }
        };
        (0..self.queues.len()).filter(|&q| self.queues[q].tenant == tenant && fits(&self.queues[q])).collect()
    }

    /// Places of the partitions that a pop may take from.
    fn candidates(&self, tenant: TenantId, pop: &Pop) -> Vec<(usize, usize)> {
        let mut candidates = Vec::new();
        for q in self.in_scope(tenant, pop) {
            for (p, partition) in self.queues[q].partitions.iter().enumerate() {
                match &pop.scope {
                    PopScope::Partition(_, name) if partition.name != *name => {}
                    _ => candidates.push((q, p)),
                }
            }
        }
        candidates
    }

    /// How many partitions a pop may take from, whether they have something for it or not.
    pub fn partitions_in_scope(&self, tenant: TenantId, pop: &Pop) -> usize {
        self.candidates(tenant, pop).len()
    }

    /// For each partition that has something for a pop, how many messages.
    pub fn deliverable(&self, now: Timestamp, tenant: TenantId, pop: &Pop) -> Vec<u64> {
        let counts = self.candidates(tenant, pop).into_iter().map(|(q, p)| self.available(now, q, p, pop));
        counts.map(|(first, end)| end - first).filter(|&count| count > 0).collect()
    }

    /// How long an under-full pop may be held back, in microseconds: the smallest positive value of its queues.
    pub fn fill_wait(&self, tenant: TenantId, pop: &Pop) -> Option<u64> {
        let values = self.in_scope(tenant, pop).into_iter().map(|q| self.queues[q].options.min_pop_wait_time);
        values.filter(|&value| value > 0).min().map(|ms| ms as u64 * 1_000)
    }

    /// Offset of the first message a group wants.
    fn first(&self, queue: &Queue, partition: &Partition, pop: &Pop) -> u64 {
        if let Some(cursor) = queue.standing(&pop.group, partition) {
            return cursor.next;
        }
        match self.effective_start(pop) {
            StartFrom::All => 0,
            StartFrom::New => partition.end(),
            StartFrom::Time(time) => partition.first_at(time),
        }
    }

    /// The offsets that a pop may have of a partition: first, and one past the last.
    fn available(&self, now: Timestamp, q: usize, p: usize, pop: &Pop) -> (u64, u64) {
        let queue = &self.queues[q];
        let partition = &queue.partitions[p];
        let options = &queue.options;
        let cursor = partition.cursors.get(&pop.group);
        let nothing = (0, 0);
        if self.lives(cursor.and_then(|cursor| cursor.lease.as_ref()), now) {
            return nothing;
        }
        let first = self.first(queue, partition, pop);
        let mut delay = Span::from_secs(options.delayed_processing);
        if self.rules.quirk == Quirk::DelayOneLate && delay > Span::ZERO {
            delay = Span::from_micros(delay.as_micros() + 1);
        }
        // Without a delay every message is due, also one whose commit time registrations pushed past now.
        let due = |message: &&Message| delay == Span::ZERO || message.created.plus(delay) <= now;
        let due = partition.messages.iter().filter(due).count() as u64;
        if first >= due {
            return nothing;
        }
        let mut window = Span::from_secs(options.window_buffer);
        if self.rules.quirk == Quirk::WindowOneLate && window > Span::ZERO {
            window = Span::from_micros(window.as_micros() + 1);
        }
        let mut waiting = partition.end() - first;
        if self.rules.quirk == Quirk::EarlyReleaseOneMore {
            waiting -= 1;
        }
        let open = if window == Span::ZERO {
            true
        } else if self.rules.hot_list {
            let early = delay == Span::ZERO && waiting >= self.rules.window_batch;
            early || partition.messages[first as usize].created.plus(window) <= now
        } else {
            partition.messages.last().is_some_and(|newest| newest.created.plus(window) <= now)
        };
        if open { (first, due) } else { nothing }
    }

    /// What was to be had, perhaps before the messages of this very moment were committed: they count for the window.
    fn available_then(&self, now: Timestamp, q: usize, p: usize, pop: &Pop, late: bool) -> (u64, u64) {
        let available = self.available(now, q, p, pop);
        if available.0 < available.1 || !late {
            return available;
        }
        let mut before = self.clone();
        before.queues[q].partitions[p].messages.retain(|message| message.created < now);
        before.available(now, q, p, pop)
    }

    /// Checks every message of a delivery and gives its claims.
    fn told_claims(
        &mut self,
        now: Timestamp,
        tenant: TenantId,
        pop: &Pop,
        delivery: &Delivery,
        peek: &Peek<'_>,
    ) -> Result<Vec<Claimed>, Wrong> {
        let mut claims = Vec::new();
        if delivery.claims.is_empty() {
            return Err("a delivery without a claim".to_owned());
        }
        let candidates = self.candidates(tenant, pop);
        for told in &delivery.claims {
            let Some((q, p)) = self.home(told.partition, told.messages.first().map(|message| message.id)) else {
                return Err(format!("no such message in partition {}", told.partition));
            };
            if !candidates.contains(&(q, p)) {
                return Err(format!("partition {} is outside the pop's scope", told.partition));
            }
            let (first, due) = self.available_then(now, q, p, pop, peek.late());
            let partition = &mut self.queues[q].partitions[p];
            learn("the partition's id", &mut partition.id, told.partition)?;
            same("the partition's name", &partition.name, &told.name)?;
            let end = first + told.messages.len() as u64;
            if told.messages.is_empty() || end > due {
                let count = told.messages.len();
                return Err(format!("{count} messages of {}, of which {first}..{due} are deliverable", told.name));
            }
            for (message, is) in partition.messages[first as usize..].iter().zip(&told.messages) {
                same("the message's id", &message.id, &is.id)?;
                same("the message's commit time", &message.created, &is.created)?;
                same("the message", &message.stored(), &is.message)?;
            }
            let expires = delivery.lease.and_then(|lease| peek.expiry(lease, told.partition));
            claims.push(Claimed { q, p, end, expires });
        }
        Ok(claims)
    }

    /// The claims that were to be written for a pop that was never answered.
    fn seen_claims(&self, tenant: TenantId, pop: &Pop, peek: &Peek<'_>) -> (Option<LeaseId>, Vec<Claimed>) {
        let candidates = self.candidates(tenant, pop);
        let mut lease = None;
        let mut claims: Vec<Claimed> = Vec::new();
        for record in peek.cursors(&pop.group).rev() {
            let Some((q, p)) = self.locate(record.partition).filter(|place| candidates.contains(place)) else {
                continue;
            };
            let queue = &self.queues[q];
            let known = queue.standing(&pop.group, &queue.partitions[p]);
            let (end, expires) = match record.cursor.lease {
                Some(held) if !pop.auto_ack => {
                    let old = known.and_then(|cursor| cursor.lease).is_some_and(|known| known.id == held.id);
                    if old || !peek.is_new(held.id) || *lease.get_or_insert(held.id) != held.id {
                        continue;
                    }
                    (held.end, Some(held.expires))
                }
                None if pop.auto_ack && known.is_none_or(|cursor| record.cursor.next > cursor.next) => {
                    (record.cursor.next, None)
                }
                _ => continue,
            };
            if !claims.iter().any(|claim| (claim.q, claim.p) == (q, p)) {
                claims.push(Claimed { q, p, end, expires });
            }
        }
        claims.reverse();
        (lease, claims)
    }

    /// Checks that a pop got as much as it asked for or there was, and no more.
    fn check_extent(
        &self,
        now: Timestamp,
        tenant: TenantId,
        pop: &Pop,
        claims: &[Claimed],
        late: bool,
    ) -> Result<(), Wrong> {
        let mut budget = u64::from(pop.batch);
        let places: Vec<(usize, usize)> = claims.iter().map(|claim| (claim.q, claim.p)).collect();
        for (n, claim) in claims.iter().enumerate() {
            let (first, due) = self.available_then(now, claim.q, claim.p, pop, late);
            if places[..n].contains(&places[n]) || first == due {
                return Err(format!("{} was not to be had", self.queues[claim.q].partitions[claim.p].name));
            }
            let (most, taken) = (budget.min(due - first), claim.end.saturating_sub(first));
            if taken != most && (!late || taken == 0 || taken > most) {
                return Err(format!("{taken} messages claimed of {most}"));
            }
            budget -= taken;
        }
        let cap = match pop.scope {
            PopScope::Partition(..) => 1,
            PopScope::Queue(_) | PopScope::Labels(_) => pop.partitions.map_or(usize::MAX, |cap| cap as usize),
        };
        if claims.len() > cap {
            return Err(format!("{} partitions claimed, {cap} allowed", claims.len()));
        }
        if budget > 0 && claims.len() < cap && !late {
            for (q, p) in self.candidates(tenant, pop) {
                let (first, due) = self.available(now, q, p, pop);
                if due > first && !places.contains(&(q, p)) {
                    return Err(format!("{} was ready and not claimed", self.queues[q].partitions[p].name));
                }
            }
        }
        Ok(())
    }

    /// The places of a partition by its id, else by a message that it holds.
    fn home(&self, partition: PartitionId, message: Option<MessageId>) -> Option<(usize, usize)> {
        self.locate(partition).or_else(|| {
            self.queues.iter().enumerate().find_map(|(q, queue)| {
                let holds = |one: &Partition| one.messages.iter().any(|held| Some(held.id) == message);
                queue.partitions.iter().position(holds).map(|p| (q, p))
            })
        })
    }

    /// A client never got its answer: the leases of it are given back.
    pub fn give_back(&mut self, group: &GroupName, lease: LeaseId) {
        for queue in &mut self.queues {
            for partition in &mut queue.partitions {
                if let Some(cursor) = partition.cursors.get_mut(group)
                    && cursor.lease.as_ref().is_some_and(|held| held.id == lease)
                {
                    cursor.lease = None;
                }
            }
        }
    }
}
