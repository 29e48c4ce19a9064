//! Sections 8 and 9: acks, and the extension of leases.

use std::collections::BTreeMap;

use tidegate_core::command::{Ack, AckItem, AckStatus, LeaseProof};
use tidegate_core::name::{GroupName, PartitionId, TenantId};
use tidegate_core::reply::{AckError, AckOutcome, Reply};
use tidegate_core::time::{Span, Timestamp};

use super::{Dead, Model, Verdict, expect, secs, unexpected};

/// How long a stored hash resolves acks at least (OPT-26).
const LEAST_HASH_AGE: i64 = 900;

/// What a decision says of each item, and whether it names an id that nothing stored has.
pub(super) type Decided = Result<(Vec<AckOutcome>, bool), AckError>;

impl Model {
    pub(super) fn ack(&mut self, now: Timestamp, tenant: TenantId, ack: &Ack, reply: &Reply) -> Verdict {
        let Reply::Acked(told) = reply else { return Err(unexpected(reply)) };
        expect("the number of outcomes", &ack.items.len(), &told.len())?;
        let mut groups: BTreeMap<(PartitionId, LeaseProof), Vec<usize>> = BTreeMap::new();
        for (at, item) in ack.items.iter().enumerate() {
            groups.entry((item.partition, item.lease)).or_default().push(at);
        }
        for ((partition, proof), places) in groups {
            let items: Vec<&AckItem> = places.iter().map(|at| &ack.items[*at]).collect();
            let lost = |at: &usize| matches!(told[*at].error, Some(AckError::StoreUnavailable | AckError::NotOwner));
            if self.lenient && places.iter().all(lost) {
                continue;
            }
            let must = match self.settle(now, tenant, &ack.group, partition, proof, &items) {
                Ok((outcomes, _)) => outcomes,
                Err(error) => vec![AckOutcome { error: Some(error), ..AckOutcome::default() }; items.len()],
            };
            for (must, at) in must.iter().zip(places) {
                expect(&format!("the outcome of ack {at}"), must, &told[at])?;
            }
        }
        Ok(())
    }

    /// One decision on one cursor, as section 8.4 counts its steps.
    pub(super) fn settle(
        &mut self,
        now: Timestamp,
        tenant: TenantId,
        group: &GroupName,
        partition: PartitionId,
        proof: LeaseProof,
        items: &[&AckItem],
    ) -> Decided {
        let Some((key, queue, row)) = self.home(partition) else { return Err(AckError::ConsumerNotFound) };
        if key.0 != tenant {
            return Err(AckError::ForeignPartition);
        }
        let options = queue.options.clone();
        let Some(cursor) = row.cursors.get(group).cloned() else { return Err(AckError::ConsumerNotFound) };
        let held = match proof {
            LeaseProof::None => true,
            LeaseProof::Foreign => false,
            LeaseProof::Lease(id) => cursor.lease.is_some_and(|lease| lease.id == id && lease.lives(now)),
        };
        if !held {
            return Err(AckError::InvalidLease);
        }
        let age = options.dedup_window_seconds.max(options.completed_retention_seconds).max(LEAST_HASH_AGE);
        let since = now.minus(secs(age));
        let end = cursor.lease.map_or(row.log.len(), |lease| lease.end);
        let found: Vec<Vec<usize>> = items
            .iter()
            .map(|item| {
                let kept = |at: &usize| row.log[*at].created >= since && row.log[*at].is(item.transaction.as_ref());
                (0..row.log.len()).filter(kept).collect()
            })
            .collect();
        let inside: Vec<Option<usize>> =
            found.iter().map(|found| found.iter().copied().find(|at| (cursor.next..end).contains(at))).collect();

        // The lowest item that is not completed bounds the call; at one message the graver status counts.
        let failures = items.iter().zip(&inside).filter(|(item, _)| item.status != AckStatus::Completed);
        let signal = failures
            .filter_map(|(item, at)| Some(((*at)?, grave(item.status), item.status)))
            .min_by_key(|it| (it.0, it.1));
        let completed = items.iter().zip(&inside).filter(|(item, _)| item.status == AckStatus::Completed);
        let completed =
            completed.filter_map(|(_, at)| *at).filter(|at| signal.is_none_or(|signal| *at < signal.0)).max();

        let mut after = cursor.clone();
        let mut pass = |next: usize| {
            after.consumed += next.saturating_sub(after.next) as u64;
            after.next = after.next.max(next);
        };
        completed.into_iter().for_each(|at| pass(at + 1));
        let exhausted = i64::from(cursor.retries) >= options.retry_limit;
        let filing = options.dead_letter_queue || options.dlq_after_max_retries;
        let (mut dead, mut dropped) = (None, None);
        match signal.filter(|_| cursor.lease.is_some()) {
            Some((at, _, AckStatus::DeadLetter)) => dead = Some(at),
            Some((at, _, AckStatus::Failed)) if exhausted && filing => dead = Some(at),
            Some((at, _, AckStatus::Failed)) if exhausted => dropped = Some(at),
            _ => {}
        }
        let over = dead.or(dropped);
        over.into_iter().for_each(|at| pass(at + 1));
        if let Some(lease) = cursor.lease {
            match signal {
                _ if over.is_some() => (after.lease, after.retries) = (None, 0),
                Some((_, _, status)) => {
                    after.lease = None;
                    after.retries += u32::from(status == AckStatus::Failed);
                }
                None if after.next >= lease.end => (after.lease, after.retries) = (None, 0),
                None => {}
            }
        }
        let released = cursor.lease.is_some() && after.lease.is_none();
        let outcome = |n: usize| {
            let (done, at) = (items[n].status == AckStatus::Completed, inside[n]);
            let below = found[n].iter().any(|at| *at < cursor.next);
            let refused = |error| AckOutcome { error: Some(error), ..AckOutcome::default() };
            let signals = !done && at.is_some();
            match at {
                None if !below => refused(AckError::Unresolvable),
                None if !done => refused(AckError::AlreadyCommitted),
                _ => AckOutcome {
                    error: None,
                    lease_released: released,
                    dead_lettered: signals && dead.is_some() && dead == at,
                    dropped: signals && dropped.is_some() && dropped == at,
                    noop: done && at.is_none(),
                },
            }
        };
        let outcomes = (0..items.len()).map(outcome).collect();
        let unknown = found.iter().any(Vec::is_empty);
        let letter = dead.map(|at| {
            let fails = |item: &&&AckItem| item.status != AckStatus::Completed;
            let own = items.iter().zip(&inside).filter(|(_, place)| **place == Some(at)).map(|(item, _)| item);
            let reason = own.filter(fails).find_map(|item| item.error.clone());
            let reason = reason.or_else(|| items.iter().filter(fails).find_map(|item| item.error.clone()));
            Dead {
                id: None,
                group: group.clone(),
                offset: at,
                message: row.log[at].clone(),
                retries: cursor.retries,
                failed: now,
                error: reason.unwrap_or_else(|| "Retries exhausted".into()),
            }
        });
        if let Some(row) = self.home_mut(partition) {
            if after != cursor {
                row.ready.remove(group);
            }
            row.cursors.insert(group.clone(), after);
            row.dead.extend(letter);
        }
        Ok((outcomes, unknown))
    }

    pub(super) fn extend(
        &mut self,
        now: Timestamp,
        tenant: TenantId,
        proof: LeaseProof,
        length: Span,
        reply: &Reply,
    ) -> Verdict {
        let (mut renewed, mut earliest): (u32, Option<Timestamp>) = (0, None);
        for (_, queue) in self.queues.iter_mut().filter(|(key, _)| key.0 == tenant) {
            for cursor in queue.partitions.values_mut().flat_map(|partition| partition.cursors.values_mut()) {
                let Some(lease) = &mut cursor.lease else { continue };
                if LeaseProof::Lease(lease.id) == proof && lease.lives(now) {
                    lease.expires = lease.expires.max(now.plus(length));
                    renewed += 1;
                    earliest = Some(earliest.map_or(lease.expires, |first| first.min(lease.expires)));
                }
            }
        }
        expect("the answer to an extension", &Reply::Extended { renewed, earliest }, reply)
    }
}

/// The graver first.
fn grave(status: AckStatus) -> u8 {
    match status {
        AckStatus::DeadLetter => 0,
        AckStatus::Failed => 1,
        AckStatus::Retry => 2,
        AckStatus::Completed => 3,
    }
}
