//! Sections 8 and 9: the decision on a group of acks, and the extension of leases.

use tidegate_core::command::{Ack, AckItem, AckStatus, LeaseProof};
use tidegate_core::name::{DeadLetterId, GroupName, PartitionId, TenantId};
use tidegate_core::reply::{AckError, AckOutcome, Reply};
use tidegate_core::time::{Span, Timestamp};

use super::super::peek::Peek;
use super::{Dead, Model, Quirk, Wrong, ack_age, same, unexpected};

/// What a decision says of one item.
#[derive(Clone, Debug, Default)]
pub(super) struct Verdict {
    pub outcome: AckOutcome,
    /// No stored hash of the whole partition says which message that is.
    pub unknown: bool,
    /// Another item of the same message decided; whether this one says so too is left open.
    pub twin: bool,
    /// The decision filed a dead letter that names another time.
    pub misdated: Option<Timestamp>,
}

impl Model {
    /// Decides one group of acks.
    pub(super) fn ack(
        &self,
        now: Timestamp,
        tenant: TenantId,
        ack: &Ack,
        part: usize,
        reply: Option<&Reply>,
        peek: &Peek<'_>,
    ) -> Result<Vec<Model>, Wrong> {
        let told = match reply {
            Some(Reply::Acked(told)) => Some(told),
            Some(other) => return Err(unexpected(other)),
            None => None,
        };
        if let Some(told) = told {
            same("the number of outcomes", &ack.items.len(), &told.len())?;
            let lost = |one: &AckOutcome| one.error.is_some_and(undecided);
            if !told.is_empty() && told.iter().all(lost) {
                return Err("an ack of which nothing was decided is refused as a whole".to_owned());
            }
        }
        let groups = grouped(ack);
        let Some((_, _, places)) = groups.get(part) else { return Ok(vec![self.clone()]) };
        let mut decided = self.clone();
        let first = told.and_then(|told| told[places[0]].error);
        if first.is_some_and(undecided) {
            for &place in places {
                same("the error of a group", &first, &told.and_then(|told| told[place].error))?;
            }
            let mut states = vec![self.clone()];
            if first == Some(AckError::OutcomeUnknown) && decided.ack_group(now, tenant, ack, part, None, peek).is_ok()
            {
                states.push(decided);
            }
            return Ok(states);
        }
        decided.ack_group(now, tenant, ack, part, told, peek)?;
        Ok(vec![decided])
    }

    /// One group's decision, compared with what was told of it.
    pub(super) fn ack_group(
        &mut self,
        now: Timestamp,
        tenant: TenantId,
        ack: &Ack,
        part: usize,
        told: Option<&Vec<AckOutcome>>,
        peek: &Peek<'_>,
    ) -> Result<Vec<AckOutcome>, Wrong> {
        let groups = grouped(ack);
        let (partition, lease, places) = groups.get(part).ok_or("no such group".to_owned())?;
        let items: Vec<&AckItem> = places.iter().map(|&place| &ack.items[place]).collect();
        let verdicts =
            self.settle(now, tenant, &ack.group, *partition, *lease, &items, peek).unwrap_or_else(|errors| {
                // Where several errors apply, the page does not say which is told.
                let first = told.and_then(|told| told[places[0]].error);
                let error = errors.iter().copied().find(|&error| Some(error) == first).unwrap_or(errors[0]);
                let outcome = AckOutcome { error: Some(error), ..AckOutcome::default() };
                items.iter().map(|_| Verdict { outcome: outcome.clone(), ..Verdict::default() }).collect()
            });
        check_dates(now, &verdicts)?;
        let mut outcomes = Vec::new();
        for (&place, verdict) in places.iter().zip(verdicts) {
            let mut must = verdict.outcome;
            if let Some(is) = told.map(|told| &told[place]) {
                if verdict.twin {
                    (must.dead_lettered, must.dropped) = (is.dead_lettered, is.dropped);
                }
                same(&format!("the outcome of ack {place}"), &must, is)?;
            }
            outcomes.push(must);
        }
        Ok(outcomes)
    }

    /// One decision on one cursor, step by step as section 8.4 counts them.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn settle(
        &mut self,
        now: Timestamp,
        tenant: TenantId,
        group: &GroupName,
        partition: PartitionId,
        proof: LeaseProof,
        items: &[&AckItem],
        peek: &Peek<'_>,
    ) -> Result<Vec<Verdict>, Vec<AckError>> {
        let mut errors = Vec::new();
        if self.rules.require_lease && proof == LeaseProof::None {
            errors.push(AckError::LeaseRequired);
        }
        let place = self.locate(partition);
        match place {
            Some((q, _)) if self.queues[q].tenant != tenant => errors.push(AckError::ForeignPartition),
            Some((q, p)) if self.queues[q].partitions[p].cursors.contains_key(group) => {}
            _ => errors.push(AckError::ConsumerNotFound),
        }
        let Some((q, p)) = place.filter(|_| errors.is_empty()) else { return Err(errors) };
        let cursor = self.queues[q].partitions[p].cursors[group].clone();
        let held = match proof {
            LeaseProof::None => true,
            LeaseProof::Foreign => false,
            LeaseProof::Lease(id) => {
                cursor.lease.as_ref().is_some_and(|lease| lease.id == id) && self.lives(cursor.lease.as_ref(), now)
            }
        };
        if !held {
            return Err(vec![AckError::InvalidLease]);
        }

        let options = self.queues[q].options.clone();
        let partition = &mut self.queues[q].partitions[p];
        let kept_since = match self.rules.quirk {
            Quirk::AcksResolveForever => Timestamp::MIN,
            _ => now.minus(ack_age(&options)),
        };
        let span = cursor.next..cursor.lease.as_ref().map_or(partition.end(), |lease| lease.end);
        let occurrences = |item: &AckItem| -> Vec<u64> {
            let Some(wanted) = &item.transaction else { return Vec::new() };
            let kept = partition.messages.iter().zip(0u64..).filter(|(message, _)| message.created >= kept_since);
            kept.filter(|(message, _)| message.transaction_text() == wanted.as_str())
                .map(|(_, offset)| offset)
                .collect()
        };
        let found: Vec<Vec<u64>> = items.iter().map(|item| occurrences(item)).collect();
        let inside: Vec<Option<u64>> =
            found.iter().map(|found| found.iter().copied().find(|offset| span.contains(offset))).collect();
        let below: Vec<bool> = found.iter().map(|found| found.iter().any(|&offset| offset < cursor.next)).collect();

        let severity = |status: AckStatus| match status {
            AckStatus::DeadLetter => 3,
            AckStatus::Failed => 2,
            AckStatus::Retry => 1,
            AckStatus::Completed => 0,
        };
        let signal: Option<(u64, AckStatus)> = items
            .iter()
            .zip(&inside)
            .filter(|(item, _)| item.status != AckStatus::Completed)
            .filter_map(|(item, inside)| Some(((*inside)?, item.status)))
            .min_by_key(|&(offset, status)| (offset, -severity(status)));
        let completed = items.iter().zip(&inside).filter(|(item, _)| item.status == AckStatus::Completed);
        let last_completed = completed
            .filter_map(|(_, inside)| *inside)
            .filter(|&offset| signal.is_none_or(|(at, _)| offset < at))
            .max();

        let committed = last_completed.map_or(cursor.next, |offset| offset + 1);
        let mut after = cursor.clone();
        after.next = committed;
        after.consumed += committed - cursor.next;
        let (mut dead_lettered, mut dropped) = (None, None);
        if let Some(lease) = &cursor.lease {
            let mut limit = options.retry_limit;
            if self.rules.quirk == Quirk::OneRetryMore {
                limit += 1;
            }
            let exhausted = i64::from(cursor.retries) >= limit;
            match signal {
                Some((at, AckStatus::DeadLetter)) => dead_lettered = Some(at),
                Some((at, AckStatus::Failed))
                    if exhausted && (options.dead_letter_queue || options.dlq_after_max_retries) =>
                {
                    dead_lettered = Some(at);
                }
                Some((at, AckStatus::Failed)) if exhausted => dropped = Some(at),
                Some((_, AckStatus::Failed)) => {
                    after.retries += 1;
                    after.lease = None;
                }
                Some((_, AckStatus::Retry)) => {
                    after.retries += u32::from(self.rules.quirk == Quirk::RetryIsCharged);
                    after.lease = None;
                }
                Some((_, AckStatus::Completed)) => {}
                None if committed >= lease.end => {
                    after.lease = None;
                    after.retries = 0;
                }
                None => {
                    if self.rules.quirk == Quirk::PartialCompletionResets && committed > cursor.next {
                        after.retries = 0;
                    }
                }
            }
        }
        if let Some(at) = dead_lettered.or(dropped) {
            // What stands before the message and was not acked goes with it: the cursor has no other way past it.
            after.next = at + 1;
            after.consumed += after.next - committed;
            after.lease = None;
            after.retries = 0;
        }
        let mut misdated = None;
        if let Some(at) = dead_lettered {
            let fails = |item: &&&AckItem| item.status != AckStatus::Completed;
            let own = items.iter().zip(&inside).filter(|(_, inside)| **inside == Some(at)).map(|(item, _)| item);
            let reason = own.filter(fails).find_map(|item| item.error.clone());
            let reason = reason.or_else(|| items.iter().filter(fails).find_map(|item| item.error.clone()));
            let message = partition.messages[at as usize].clone();
            // An id that was never written makes the next listing wrong.
            let (id, failed) = peek.dead_letter(message.id, group).unwrap_or((DeadLetterId(message.id.0), now));
            misdated = Some(failed).filter(|failed| *failed != now);
            partition.dead.push(Dead {
                id,
                group: group.clone(),
                offset: at,
                message,
                retries: cursor.retries,
                failed,
                error: reason.unwrap_or_else(|| "Retries exhausted".into()),
            });
        }
        let released = cursor.lease.is_some() && after.lease.is_none();
        partition.cursors.insert(group.clone(), after);

        let verdict = |n: usize| {
            let mut outcome = AckOutcome::default();
            let mut twin = false;
            match inside[n] {
                Some(at) => {
                    outcome.lease_released = released;
                    outcome.dead_lettered = dead_lettered == Some(at);
                    outcome.dropped = dropped == Some(at);
                    twin = signal.is_some_and(|(place, kind)| place == at && kind != items[n].status);
                }
                None if below[n] && items[n].status == AckStatus::Completed => {
                    outcome.lease_released = released;
                    outcome.noop = true;
                }
                None if below[n] => outcome.error = Some(AckError::AlreadyCommitted),
                None => outcome.error = Some(AckError::Unresolvable),
            }
            Verdict { outcome, unknown: found[n].is_empty(), twin, misdated }
        };
        Ok((0..items.len()).map(verdict).collect())
    }

    pub(super) fn extend(
        &mut self,
        now: Timestamp,
        tenant: TenantId,
        proof: LeaseProof,
        length: Span,
        reply: Option<&Reply>,
    ) -> Result<(), Wrong> {
        let lives: Vec<(usize, usize, GroupName)> = self
            .queues
            .iter()
            .enumerate()
            .filter(|(_, queue)| queue.tenant == tenant)
            .flat_map(|(q, queue)| queue.partitions.iter().enumerate().map(move |(p, partition)| (q, p, partition)))
            .flat_map(|(q, p, partition)| partition.cursors.iter().map(move |(group, cursor)| (q, p, group, cursor)))
            .filter(|(_, _, _, cursor)| self.lives(cursor.lease.as_ref(), now))
            .filter(|(_, _, _, cursor)| cursor.lease.as_ref().is_some_and(|held| LeaseProof::Lease(held.id) == proof))
            .map(|(q, p, group, _)| (q, p, group.clone()))
            .collect();
        let mut earliest: Option<Timestamp> = None;
        for (q, p, group) in &lives {
            let cursor = self.queues[*q].partitions[*p].cursors.get_mut(group).unwrap();
            let lease = cursor.lease.as_mut().unwrap();
            lease.expires = lease.expires.max(now.plus(length));
            earliest = Some(earliest.map_or(lease.expires, |known| known.min(lease.expires)));
        }
        let must = Reply::Extended { renewed: lives.len() as u32, earliest };
        same("the answer to an extension", &must, reply.unwrap_or(&must))
    }
}

/// Checks that dead letters say when they were decided.
pub(super) fn check_dates(now: Timestamp, verdicts: &[Verdict]) -> Result<(), Wrong> {
    let misdated = verdicts.iter().find_map(|verdict| verdict.misdated);
    misdated.map_or(Ok(()), |failed| same("the time of a dead letter", &now, &failed))
}

/// A partition, a lease, and the places of the items that name both.
type Group = (PartitionId, LeaseProof, Vec<usize>);

/// The groups of a call, each one decision (8.3).
pub(super) fn grouped(ack: &Ack) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (index, item) in ack.items.iter().enumerate() {
        match groups.iter_mut().find(|(partition, lease, _)| *partition == item.partition && *lease == item.lease) {
            Some((_, _, places)) => places.push(index),
            None => groups.push((item.partition, item.lease, vec![index])),
        }
    }
    groups
}

/// Whether an item was not, or perhaps not, decided.
fn undecided(error: AckError) -> bool {
    matches!(error, AckError::StoreUnavailable | AckError::NotOwner | AckError::OutcomeUnknown)
}
