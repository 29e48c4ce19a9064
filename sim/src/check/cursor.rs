//! A cursor changes as its group's operations have it, and in no other way (S6 to S14, S19, S20, S23, S26).
//!
//! Every write is held against all operations that may still have an effect: one of them must come to exactly this.

use super::open::{Call, Opened};
use super::settle::{self, Settled};
use super::shadow::{Cursor, Partition, Queue, Shadow, let_go};
use crate::history::{Committed, Findings, GroupNo, Leased, Operation, PartitionNo, Proof, Stamp, Target, Written};

const SECOND: i64 = 1_000_000;

pub fn law(shadow: &Shadow, open: &Opened, commit: &Committed, place: u32, findings: &mut Findings) {
    for write in &commit.writes {
        match write {
            Written::Cursor { partition, group, next, retries, consumed, lease } => {
                let Some((row, queue)) = shadow.live(*partition) else { continue };
                let (next, retries, consumed, lease) = (*next, *retries, *consumed, *lease);
                let new = Settled { next, retries, consumed, lease, dead: dead_in(commit, *partition, *group) };
                let case = Case { shadow, open, commit, row, queue, partition: *partition, group: *group, new };
                if let Err((name, why)) = case.judge() {
                    findings.violate(name, place, || why);
                }
            }
            Written::DropCursor { partition, group } => {
                let Some((row, _)) = shadow.live(*partition) else { continue };
                let queue = shadow.queue_of(row.lane);
                let deletes = |call: &Call| {
                    matches!(&call.operation, Operation::DeleteGroup { group: of, queue: only, .. }
                        if of == group && only.is_none_or(|only| only == queue))
                };
                if !open.iter().any(deletes) {
                    findings.violate("cursor", place, || {
                        format!("group {} loses its cursor and nobody deletes it", group.0)
                    });
                }
            }
            _ => {}
        }
    }
}

/// The offset of the dead letter that a commit files for a group on a partition.
fn dead_in(commit: &Committed, partition: PartitionNo, group: GroupNo) -> Option<u64> {
    commit.writes.iter().find_map(|write| match write {
        Written::DeadLetter { partition: of, group: whose, offset, .. } if (*of, *whose) == (partition, group) => {
            Some(*offset)
        }
        _ => None,
    })
}

struct Case<'a> {
    shadow: &'a Shadow,
    open: &'a Opened,
    commit: &'a Committed,
    row: &'a Partition,
    queue: &'a Queue,
    partition: PartitionNo,
    group: GroupNo,
    new: Settled,
}

type Verdict = Result<(), (&'static str, String)>;

impl Case<'_> {
    fn wrong(&self, name: &'static str, why: &str, old: &Cursor) -> Verdict {
        let (partition, group, new, decided) = (self.partition.0, self.group.0, &self.new, self.commit.decided);
        Err((name, format!("group {group} on partition {partition}: {why}: from {old:?} to {new:?} at {decided}")))
    }

    fn judge(&self) -> Verdict {
        let stored = self.row.cursor(self.group).copied();
        let old = match (stored, self.queue.subscription(self.group)) {
            (Some(cursor), _) => cursor,
            // A first contact that was decided before the registration, and came to the store after it.
            (None, Some(it)) if it.order > super::shadow::order(self.commit) => return Ok(()),
            (None, Some(subscription)) => match self.row.implied(subscription, self.shadow.terms.queue_mode) {
                Some(next) => Cursor { next, ..Cursor::default() },
                None => return Ok(()),
            },
            // First contact of a group without a registration: the pop says where it starts.
            (None, None) => {
                if self.new.lease.is_some() || self.callers().next().is_none() {
                    return self.wrong("cursor", "a first cursor that nobody asks for", &Cursor::default());
                }
                return Ok(());
            }
        };
        match (old.lease, self.new.lease) {
            (before, Some(lease)) if before.is_none_or(|before| before.lease != lease.lease) => {
                self.granted(&old, lease)
            }
            (Some(before), Some(lease)) if before.expires != lease.expires => self.extended(&old, before, lease),
            _ => self.moved(&old),
        }
    }

    /// Operations of the partition's tenant that may still have an effect.
    fn callers(&self) -> impl Iterator<Item = &Call> {
        let tenant = self.shadow.tenant_of_lane(self.row.lane);
        self.open.iter().filter(move |call| call.tenant == tenant)
    }

    fn granted(&self, old: &Cursor, lease: Leased) -> Verdict {
        let now = self.commit.decided;
        if old.lease.is_some_and(|held| now < held.expires) {
            return self.wrong("two-leases", "a lease is given while another lives", old);
        }
        if (self.new.next, self.new.retries, self.new.consumed) != (old.next, old.retries, old.consumed) {
            return self.wrong("cursor", "a delivery changes more than the lease", old);
        }
        if lease.end <= self.new.next || lease.end > self.row.end() {
            return self.wrong("cursor", "a batch that is not there", old);
        }
        if self
            .shadow
            .grants(lease.lease)
            .iter()
            .any(|grant| grant.order != super::shadow::order(self.commit) || grant.group != self.group)
        {
            return self.wrong("lease-ids", "a lease id is given twice", old);
        }
        let mut pops = self.callers().filter_map(|call| Some((call, call.pops(self.group)?)));
        let fits = |(call, pop): (&Call, &crate::history::Pop)| {
            let since = self.shadow.earliest(call.at);
            let mut lengths: Vec<i64> = self.queue.options_since(call.place).map(|it| it.lease_time * SECOND).collect();
            if pop.lease > 0 {
                lengths = vec![pop.lease];
            }
            let begun = |length: &i64| (since..=now).contains(&(lease.expires - length));
            !pop.auto_ack
                && self.shadow.reaches(pop, self.row)
                && lease.end - self.new.next <= u64::from(pop.batch)
                && lengths.iter().any(begun)
        };
        match pops.find(|it| fits(*it)).map(|(call, _)| call.place) {
            Some(since) => self.gathered(old, lease.end, since),
            None => self.wrong("grant", "no pop asks for this lease", old),
        }
    }

    /// Delay and window let go of what is delivered (S19, S20).
    fn gathered(&self, old: &Cursor, end: u64, place: u32) -> Verdict {
        let now = self.commit.decided;
        let free = |options| let_go(self.row, options, &self.shadow.terms, old.next, end, now);
        if self.queue.options_since(place).any(free) {
            return Ok(());
        }
        self.wrong("gathering", "delay or window hold it back", old)
    }

    fn extended(&self, old: &Cursor, before: Leased, lease: Leased) -> Verdict {
        let now = self.commit.decided;
        if lease.end != before.end
            || (self.new.next, self.new.retries, self.new.consumed) != (old.next, old.retries, old.consumed)
        {
            return self.wrong("extension", "more changes than the expiry", old);
        }
        if lease.expires < before.expires {
            return self.wrong("extension", "a lease is shortened", old);
        }
        let fits = |call: &Call| {
            let since = self.shadow.earliest(call.at);
            matches!(&call.operation, Operation::Extend { lease: Proof::Lease(of), length }
                if *of == lease.lease && (since..=now).contains(&(lease.expires - length)) && since < before.expires)
        };
        if self.callers().any(fits) { Ok(()) } else { self.wrong("extension", "nobody asks for it, or too late", old) }
    }

    fn moved(&self, old: &Cursor) -> Verdict {
        let new = self.new;
        let stays = (new.next, new.retries, new.consumed, new.dead) == (old.next, old.retries, old.consumed, None);
        // A client that never got its answer gives its lease back; a first contact writes the start that is implied.
        if stays && (new.lease.is_none() || new.lease == old.lease) {
            return Ok(());
        }
        if self.callers().any(|call| self.seeks(call) || self.acks(call, old)) {
            return Ok(());
        }
        if let Some(call) = self.callers().find(|call| self.takes(call, old)) {
            return self.gathered(old, new.next, call.place);
        }
        self.wrong("cursor", "no operation under way comes to this", old)
    }

    fn seeks(&self, call: &Call) -> bool {
        let Operation::Seek { group, queue, lane, target } = &call.operation else { return false };
        let next = match target {
            Target::End => self.row.end(),
            Target::Time(time) => self.row.first_at(*time),
        };
        let here = *queue == self.shadow.queue_of(self.row.lane) && lane.is_none_or(|lane| lane == self.row.lane);
        *group == self.group && here && (self.new.next, self.new.retries, self.new.lease) == (next, 0, None)
    }

    fn acks(&self, call: &Call, old: &Cursor) -> bool {
        let items = call.acks(self.partition, self.group);
        if items.is_empty() {
            return false;
        }
        let since = self.shadow.earliest(call.at);
        let times: [Stamp; 2] = [self.commit.decided, since.min(self.commit.decided)];
        let transaction = matches!(call.operation, Operation::Transaction { .. });
        let proofs = items.iter().map(|item| item.lease);
        let mut all = proofs.clone();
        let held = old.lease.map_or(Proof::None, |lease| Proof::Lease(lease.lease));
        // In a transaction one decision is made for all items of a cursor, under the lease that any of them names.
        let named = all.find(|proof| *proof != Proof::None).unwrap_or(Proof::None);
        let proofs: Vec<Proof> =
            if transaction { vec![named, if named == Proof::None { held } else { named }] } else { proofs.collect() };
        proofs.into_iter().any(|proof| {
            let items: Vec<_> = items.iter().filter(|item| transaction || item.lease == proof).copied().collect();
            self.queue.options_since(call.place).any(|options| {
                let comes_to =
                    |now: &Stamp| settle::decide(self.row, old, &items, proof, options, *now) == Some(self.new);
                times.iter().any(comes_to)
            })
        })
    }

    fn takes(&self, call: &Call, old: &Cursor) -> bool {
        let Some(pop) = call.pops(self.group).filter(|pop| pop.auto_ack && self.shadow.reaches(pop, self.row)) else {
            return false;
        };
        let new = self.new;
        let count = new.next.saturating_sub(old.next);
        let free = old.lease.is_none_or(|held| self.commit.decided >= held.expires);
        free && (1..=u64::from(pop.batch)).contains(&count)
            && new.next <= self.row.end()
            && (new.retries, new.consumed, new.lease, new.dead) == (old.retries, old.consumed + count, None, None)
    }
}
