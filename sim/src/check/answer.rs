//! Answers tell the truth about what is stored (S1, S3, S9, S14, S15, S21, S24, S26, S29).

use super::open::{Call, Opened};
use super::settle;
use super::shadow::Shadow;
use crate::history::{
    AckError, AckItem, Acked, Answer, DeadLetter, Delivery, Findings, GroupNo, Item, Key, MessageNo, Operation, Part,
    PartDone, PartitionNo, Pop, Proof, Pushed, QueueNo, Standing, Status,
};

const SECOND: i64 = 1_000_000;

/// What is wrong, and by which name.
type Verdict = Result<(), (&'static str, String)>;

pub fn law(shadow: &Shadow, open: &Opened, call: &Call, answer: &Answer, place: u32, findings: &mut Findings) {
    // What was told while the store forgot it is nobody's lie.
    if shadow.lost > call.place {
        return;
    }
    let case = Case { shadow, open, call };
    let verdict = match (&call.operation, answer) {
        (Operation::Push { items }, Answer::Pushed(told)) => case.pushed(items, told),
        (Operation::Pop(pop), Answer::Popped(delivery)) => case.popped(pop, delivery),
        (Operation::Ack { group, items }, Answer::Acked(told)) => case.acked(*group, items, told),
        (Operation::Extend { lease, .. }, Answer::Extended { renewed, earliest }) => {
            case.extended(*lease, *renewed, *earliest)
        }
        (Operation::Transaction { parts, .. }, Answer::Transacted(told)) => case.transacted(parts, told),
        (Operation::Transaction { .. }, Answer::RolledBack(_)) => case.undone("a transaction that was rolled back"),
        (Operation::Configure { queue, options }, Answer::Configured { .. }) => case.configured(*queue, options),
        (Operation::DeleteQueue { queue }, Answer::QueueDeleted { existed: true }) => case.deleted(*queue),
        (Operation::DeleteGroup { group, queue, metadata }, Answer::GroupDeleted { .. }) => {
            case.forgotten(*group, *queue, *metadata)
        }
        (Operation::ListDeadLetters { queue, group, limit, offset: 0 }, Answer::DeadLetters(rows)) => {
            case.dead_letters(*queue, *group, *limit as usize, rows)
        }
        (Operation::DropDeadLetters { partition, key }, Answer::DeadLettersDropped(count)) => {
            case.dropped(*partition, *key, *count)
        }
        (Operation::Replay { partition, key, group }, Answer::Replayed(Some(message))) => {
            case.replayed(*partition, *key, *group, *message)
        }
        (Operation::ListGroups { .. }, Answer::Groups(rows)) => case.groups(rows),
        _ => Ok(()),
    };
    if let Err((name, what)) = verdict {
        findings.violate(name, place, || what);
    }
}

/// An operation that was refused has had no effect.
pub fn refused(shadow: &Shadow, open: &Opened, call: &Call, place: u32, findings: &mut Findings) {
    if shadow.lost > call.place {
        return;
    }
    if let Err((name, what)) = (Case { shadow, open, call }).undone("an operation that was refused") {
        findings.violate(name, place, || what);
    }
}

struct Case<'a> {
    shadow: &'a Shadow,
    open: &'a Opened,
    call: &'a Call,
}

impl Case<'_> {
    /// Nothing of what it pushes came to be stored since it began.
    fn undone(&self, what: &str) -> Verdict {
        for item in self.call.pushes() {
            let stored = self.shadow.stored(item.payload).filter(|(_, at)| *at > self.call.place);
            // Somebody may have sent the same again.
            if let Some((message, _)) = stored.filter(|_| self.open.sent_once(item.payload)) {
                return Err(("truth", format!("{what} has stored message {}", message.0)));
            }
        }
        Ok(())
    }

    fn pushed(&self, items: &[Item], told: &[Pushed]) -> Verdict {
        let mut last: Vec<(crate::history::LaneNo, PartitionNo, u64)> = Vec::new();
        for (n, (item, told)) in items.iter().zip(told).enumerate() {
            let twin = item.text.is_some()
                && items[..n].iter().any(|other| (other.lane, other.text) == (item.lane, item.text));
            match told {
                Pushed::Queued(message) => {
                    if twin {
                        return Err((
                            "dedup",
                            format!("two messages of one push have the same id and are both stored: {}", message.0),
                        ));
                    }
                    let Some((row, partition, offset, stored)) = self.shadow.message(*message) else {
                        return Err(("truth", format!("message {} is said to be stored and is not", message.0)));
                    };
                    let key = item.text.map_or(Key::Own(*message), Key::Given);
                    if (row.lane, stored.payload, stored.key) != (item.lane, item.payload, key) {
                        return Err(("content", format!("message {} is not what was pushed under it", message.0)));
                    }
                    let before = last.iter_mut().find(|(lane, of, _)| (*lane, *of) == (item.lane, partition));
                    match before {
                        Some((_, _, before)) if *before >= offset => {
                            return Err((
                                "order",
                                format!("message {} of a push stands before one that came earlier in it", message.0),
                            ));
                        }
                        Some((_, _, before)) => *before = offset,
                        None => last.push((item.lane, partition, offset)),
                    }
                }
                Pushed::Duplicate(message) => self.duplicate(item, *message, twin)?,
                Pushed::Failed if self.open.sent_once(item.payload) && !twin => {
                    if let Some((message, at)) =
                        self.shadow.stored(item.payload).filter(|(_, at)| *at > self.call.place)
                    {
                        return Err((
                            "truth",
                            format!("an item that was refused is stored as message {} [{at}]", message.0),
                        ));
                    }
                }
                Pushed::Failed | Pushed::Unknown => {}
            }
        }
        Ok(())
    }

    fn duplicate(&self, item: &Item, message: MessageNo, twin: bool) -> Verdict {
        let Some(text) = item.text else {
            return Err(("dedup", format!("an item without an id is told to be a duplicate of {}", message.0)));
        };
        let Some((row, _, _, stored)) = self.shadow.message(message) else {
            return Err(("truth", format!("a duplicate of message {}, which is not stored", message.0)));
        };
        if row.lane != item.lane || stored.key != Key::Given(text) {
            return Err((
                "dedup",
                format!("a duplicate of message {}, which has another id or stands elsewhere", message.0),
            ));
        }
        if let Some((own, at)) = self.shadow.stored(item.payload)
            && at > self.call.place
            && own != message
            && self.open.sent_once(item.payload)
        {
            return Err(("dedup", format!("a duplicate of message {} is stored as message {}", message.0, own.0)));
        }
        let window = self.shadow.queue(row.queue).into_iter().flat_map(|queue| queue.options_since(self.call.place));
        let window = window.map(|options| options.dedup_window).max().unwrap_or(0) * SECOND;
        let since = self.shadow.earliest(self.call.at) - window;
        if !twin && stored.created < since {
            let over = since - stored.created;
            return Err((
                "dedup",
                format!("a duplicate of message {}, whose window ended {over} µs before", message.0),
            ));
        }
        Ok(())
    }

    fn popped(&self, pop: &Pop, delivery: &Delivery) -> Verdict {
        let Some(lease) = delivery.lease else { return self.taken(pop, delivery) };
        let grants = self.shadow.grants(lease);
        if grants.is_empty() {
            return Err(("truth", format!("lease {} is told and not stored", lease.0)));
        }
        if delivery.messages.len() > pop.batch as usize
            || (pop.partitions > 0 && grants.len() > pop.partitions as usize)
        {
            return Err(("grant", format!("lease {} covers more than was asked for", lease.0)));
        }
        for grant in grants {
            let Some((row, _)) = self.shadow.live(grant.partition) else { continue };
            let told = delivery.messages.iter().filter(|it| it.partition == grant.partition).map(|it| it.message);
            let stored = row.log.get(grant.first as usize..grant.end as usize).unwrap_or_default();
            if !told.eq(stored.iter().map(|it| it.message)) {
                return Err((
                    "delivery",
                    format!("lease {} covers {grant:?}, and other messages were delivered", lease.0),
                ));
            }
        }
        if delivery.messages.iter().any(|it| !grants.iter().any(|grant| grant.partition == it.partition)) {
            return Err(("delivery", format!("lease {} does not cover what was delivered", lease.0)));
        }
        Ok(())
    }

    /// What is committed on delivery is behind the cursor, without a gap.
    fn taken(&self, pop: &Pop, delivery: &Delivery) -> Verdict {
        let mut last: Option<(PartitionNo, u64)> = None;
        for told in &delivery.messages {
            let Some((row, partition, offset, _)) = self.shadow.message(told.message) else {
                return Err(("content", format!("message {} is delivered and not stored", told.message.0)));
            };
            if last.is_some_and(|(of, before)| of == partition && before + 1 != offset) {
                return Err(("delivery", format!("messages before {} are left out", told.message.0)));
            }
            last = Some((partition, offset));
            let behind = row.cursor(pop.group).is_none_or(|cursor| cursor.next > offset);
            if !behind && self.shadow.disturbed < self.call.place && self.shadow.live(partition).is_some() {
                return Err(("truth", format!("message {} is given for good and not committed", told.message.0)));
            }
        }
        if delivery.messages.len() > pop.batch as usize {
            return Err(("grant", "more messages than were asked for".into()));
        }
        Ok(())
    }

    fn acked(&self, group: GroupNo, items: &[AckItem], told: &[Acked]) -> Verdict {
        for (item, told) in items.iter().zip(told) {
            let Some((row, _)) = self.shadow.live(item.partition) else { continue };
            if self.shadow.tenant_of_lane(row.lane) != self.call.tenant {
                if told.error.is_none() {
                    return Err(("tenants", format!("another tenant acks on partition {}", item.partition.0)));
                }
                continue;
            }
            let Some(cursor) = row.cursor(group) else { continue };
            if self.shadow.disturbed >= self.call.place {
                continue;
            }
            match told.error {
                None if item.status == Status::Completed && !told.noop => {
                    let offset = settle::place(row, item.key, 0, row.end());
                    if offset.is_some_and(|offset| cursor.next <= offset) {
                        // A failure below it in the same call ends the batch before it.
                        let bounded = items
                            .iter()
                            .any(|other| other.partition == item.partition && other.status != Status::Completed);
                        if !bounded {
                            return Err((
                                "truth",
                                format!("an ack of {:?} is accepted, and the cursor is at {}", item.key, cursor.next),
                            ));
                        }
                    }
                }
                None if told.dead_lettered => {
                    let filed = |dead: &super::shadow::Dead| {
                        (dead.partition, dead.group, dead.key) == (item.partition, group, item.key)
                            && dead.place > self.call.place
                    };
                    if !self.shadow.dead.iter().flatten().any(filed) {
                        return Err(("dead-letter", format!("{:?} is said to be dead-lettered and is not", item.key)));
                    }
                }
                Some(AckError::InvalidLease | AckError::Unresolvable | AckError::ConsumerNotFound) => {
                    // The lease has not changed since before the call, lives beyond it, and covers the message.
                    let Some(lease) = cursor.lease.filter(|_| cursor.place < self.call.place) else { continue };
                    let covers = settle::place(row, item.key, cursor.next, lease.end).is_some();
                    if item.lease == Proof::Lease(lease.lease) && covers && self.shadow.latest() < lease.expires {
                        let left = lease.expires - self.shadow.latest();
                        return Err((
                            "lease",
                            format!("an ack is refused ({:?}) and its lease lives for {left} µs", told.error),
                        ));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn extended(&self, lease: Proof, renewed: u32, earliest: Option<i64>) -> Verdict {
        let (Proof::Lease(lease), Some(earliest)) = (lease, earliest) else { return Ok(()) };
        let mut live = 0;
        for grant in self.shadow.grants(lease) {
            let Some((row, _)) = self.shadow.live(grant.partition) else { continue };
            let held = row.cursor(grant.group).and_then(|cursor| Some((cursor, cursor.lease?)));
            let Some((cursor, held)) = held.filter(|(_, held)| held.lease == lease) else { continue };
            live += 1;
            if self.shadow.tenant_of_lane(row.lane) != self.call.tenant {
                return Err(("tenants", format!("another tenant extends lease {}", lease.0)));
            }
            // Of partitions whose lease had ended before, nothing is said.
            let was_live = cursor.place > self.call.place || held.expires > self.shadow.latest();
            if was_live && held.expires < earliest {
                return Err((
                    "truth",
                    format!("lease {} is said to live until {earliest} and ends at {}", lease.0, held.expires),
                ));
            }
        }
        let quiet = self.shadow.disturbed < self.call.place && self.open.iter().all(|call| !call.writes());
        if quiet && renewed > live {
            return Err((
                "truth",
                format!("lease {} is said to be extended on {renewed} partitions, it is on {live}", lease.0),
            ));
        }
        Ok(())
    }

    fn transacted(&self, parts: &[Part], told: &[PartDone]) -> Verdict {
        let mut order: Option<u64> = None;
        for (part, told) in parts.iter().zip(told) {
            if let (Part::Push(item), PartDone::Pushed { message, duplicate: false }) = (part, told) {
                let Some((row, _, _, stored)) = self.shadow.message(*message) else {
                    return Err(("transaction", format!("message {} of a transaction is not stored", message.0)));
                };
                if (row.lane, stored.payload) != (item.lane, item.payload) {
                    return Err(("content", format!("message {} is not what was pushed under it", message.0)));
                }
                if order.is_some_and(|order| order != stored.order) {
                    return Err(("transaction", "its pushes are in several commits".into()));
                }
                order = Some(stored.order);
            }
        }
        for part in parts {
            let Part::Ack(group, item) = part else { continue };
            let Some((row, _)) = self.shadow.live(item.partition) else { continue };
            let Some(cursor) = row.cursor(*group) else { continue };
            let bounded = parts.iter().any(|other| {
                matches!(other, Part::Ack(of, other) if of == group && other.partition == item.partition && other.status != Status::Completed)
            });
            let offset = settle::place(row, item.key, 0, row.end());
            let batch = cursor.lease.map_or(row.end(), |lease| lease.end);
            let undone = offset.is_some_and(|offset| cursor.next <= offset && offset < batch);
            // A batch that was given since may cover what this one did not.
            let unmoved = cursor.place < self.call.place && self.shadow.disturbed < self.call.place;
            if undone && item.status == Status::Completed && !bounded && unmoved {
                return Err(("transaction", format!("it acks {:?}, and the cursor is at {}", item.key, cursor.next)));
            }
        }
        Ok(())
    }

    fn configured(&self, queue: QueueNo, options: &crate::history::Options) -> Verdict {
        let others = self.open.iter().any(|call| {
            matches!(&call.operation, Operation::Configure { queue: of, .. } | Operation::DeleteQueue { queue: of } if *of == queue)
        });
        let is = self.shadow.live_queue(queue).filter(|_| !others && self.shadow.disturbed < self.call.place);
        if is.is_some_and(|is| is.options != *options && is.changed <= self.call.place) {
            return Err(("truth", format!("queue {} is configured and its options are not stored", queue.0)));
        }
        Ok(())
    }

    fn deleted(&self, queue: QueueNo) -> Verdict {
        match self.shadow.live_queue(queue) {
            Some(row) if row.born < self.call.place => {
                Err(("truth", format!("queue {} is deleted and still there", queue.0)))
            }
            _ => Ok(()),
        }
    }

    fn forgotten(&self, group: GroupNo, only: Option<QueueNo>, metadata: bool) -> Verdict {
        for queue in self
            .shadow
            .queues
            .iter()
            .flatten()
            .filter(|queue| !queue.ended && only.is_none_or(|only| only == queue.name))
        {
            let tenant = self.shadow.terms.queue_tenant.get(queue.name.index()).copied().unwrap_or_default();
            if tenant != self.call.tenant {
                continue;
            }
            let stored = queue.partitions.iter().filter_map(|it| self.shadow.partition(*it)?.cursor(group));
            if { stored }.any(|cursor| cursor.place < self.call.place) {
                return Err((
                    "truth",
                    format!("group {} is deleted on queue {} and has a cursor", group.0, queue.name.0),
                ));
            }
            let registered = queue.subscription(group).is_some_and(|it| it.place < self.call.place);
            if metadata && registered {
                return Err((
                    "truth",
                    format!("group {} is deleted on queue {} and registered", group.0, queue.name.0),
                ));
            }
        }
        Ok(())
    }

    fn dead_letters(
        &self,
        queue: Option<QueueNo>,
        group: Option<GroupNo>,
        limit: usize,
        rows: &[DeadLetter],
    ) -> Verdict {
        for row in rows {
            let dead = self.shadow.dead.get(row.id.index()).copied().flatten();
            let Some(dead) = dead.filter(|dead| dead.dropped.is_none_or(|at| at > self.call.place)) else {
                return Err(("dead-letter", format!("dead letter {} is listed and not there", row.id.0)));
            };
            if self.shadow.tenant_of_lane(row.lane) != self.call.tenant {
                return Err(("tenants", format!("dead letter {} is another tenant's", row.id.0)));
            }
            let stored = self.shadow.message(dead.message).map(|(.., stored)| stored.payload);
            let same = (dead.group, dead.message, dead.retries) == (row.group, row.message, row.retries);
            if !same || row.payload.is_some() && stored.is_some() && row.payload != stored {
                return Err(("dead-letter", format!("dead letter {} is listed as {row:?}, it is {dead:?}", row.id.0)));
            }
        }
        if rows.len() >= limit {
            return Ok(());
        }
        for (id, dead) in self.shadow.dead.iter().enumerate().filter_map(|(id, dead)| Some((id, (*dead)?))) {
            let Some((row, of)) = self.shadow.live(dead.partition) else { continue };
            let asked = queue.is_none_or(|queue| queue == of.name) && group.is_none_or(|group| group == dead.group);
            let mine = self.shadow.tenant_of_lane(row.lane) == self.call.tenant;
            let there = dead.place < self.call.place && dead.dropped.is_none();
            if asked && mine && there && !rows.iter().any(|row| row.id.index() == id) {
                return Err(("dead-letter", format!("dead letter {id} is not listed")));
            }
        }
        Ok(())
    }

    fn dropped(&self, partition: PartitionNo, key: Key, count: u64) -> Verdict {
        let Some((row, _)) = self.shadow.live(partition) else { return Ok(()) };
        if self.shadow.tenant_of_lane(row.lane) != self.call.tenant {
            return if count == 0 {
                Ok(())
            } else {
                Err(("tenants", "another tenant's dead letters are removed".into()))
            };
        }
        let left = |dead: &super::shadow::Dead| {
            (dead.partition, dead.key) == (partition, key) && dead.dropped.is_none() && dead.place < self.call.place
        };
        if self.shadow.dead.iter().flatten().any(left) {
            return Err(("dead-letter", format!("dead letters of {key:?} are removed and still there")));
        }
        Ok(())
    }

    fn replayed(&self, partition: PartitionNo, key: Key, group: Option<GroupNo>, message: MessageNo) -> Verdict {
        let Some((row, of, _, stored)) = self.shadow.message(message) else {
            return Err(("truth", format!("message {} is replayed and not stored", message.0)));
        };
        if of != partition || self.shadow.tenant_of_lane(row.lane) != self.call.tenant {
            return Err(("tenants", format!("message {} is replayed to another place", message.0)));
        }
        let gone = |dead: &super::shadow::Dead| {
            (dead.partition, dead.key) == (partition, key)
                && group.is_none_or(|group| group == dead.group)
                && dead.dropped.is_some_and(|at| at == stored.place)
        };
        if self.shadow.dead.iter().flatten().any(gone) {
            Ok(())
        } else {
            Err(("dead-letter", format!("message {} is replayed and its dead letter stays", message.0)))
        }
    }

    /// Where groups stand, when nothing else is under way: memory is what the store holds (S24).
    fn groups(&self, rows: &[Standing]) -> Verdict {
        if !self.open.quiet(self.call.at) || self.shadow.fault_at + 20 * SECOND > self.call.at {
            return Ok(());
        }
        for row in rows {
            let Some((partition, _)) = self.shadow.live(row.partition) else { continue };
            let Some(cursor) = partition.cursor(row.group).filter(|cursor| cursor.place < self.call.place) else {
                continue;
            };
            let lag = partition.end().saturating_sub(cursor.next);
            if (lag, cursor.consumed, cursor.lease.map(|lease| lease.lease)) != (row.lag, row.consumed, row.lease) {
                return Err((
                    "memory",
                    format!("group {} stands at {row:?}, stored is {cursor:?}, lag {lag}", row.group.0),
                ));
            }
        }
        Ok(())
    }
}
