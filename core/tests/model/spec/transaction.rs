//! Section 10: pushes and acks, all or nothing.

use tidegate_core::command::{AckItem, LeaseProof, Operation, Transaction};
use tidegate_core::message::NewMessage;
use tidegate_core::name::{GroupName, MessageId, PartitionId, TenantId};
use tidegate_core::reply::{AckError, OperationOutcome, PushOutcome, Reply, RolledBack};
use tidegate_core::time::Timestamp;

use super::super::peek::Peek;
use super::ack::Verdict;
use super::push::stored_as;
use super::{Model, Wrong, same, unexpected};

/// A partition, a group, and the acks of both with their places among the acks.
type AckGroup<'a> = (PartitionId, &'a GroupName, Vec<(usize, &'a AckItem)>);

impl Model {
    pub(super) fn transaction(
        &mut self,
        now: Timestamp,
        tenant: TenantId,
        transaction: &Transaction,
        reply: Option<&Reply>,
        peek: &Peek<'_>,
    ) -> Result<(), Wrong> {
        let told = match reply {
            Some(Reply::Transacted(told)) => Some(told),
            Some(other) => return Err(unexpected(other)),
            None => None,
        };
        let mut reasons = self.duplicates(now, tenant, transaction);
        reasons.extend(self.lapsed_leases(now, tenant, transaction));
        let mut after = self.clone();
        let verdicts = after.decide_acks(now, tenant, transaction, &mut reasons, peek);
        // Acks that name no lease where others do: the page lets whoever holds the partition stand for them, and calls
        // that a trap. Refusing them unless that lease is a required one is the safe reading.
        if let Some(Err(reason)) = told
            && self.unprotected(transaction).contains(reason)
        {
            return Ok(());
        }
        if !reasons.is_empty() {
            return match told {
                Some(Err(reason)) if reasons.contains(reason) => Ok(()),
                Some(other) => Err(format!("must roll back for one of {reasons:?}, is {other:?}")),
                None => Ok(()),
            };
        }
        let outcomes = match told {
            Some(Ok(outcomes)) => Some(outcomes),
            Some(Err(reason)) => return Err(format!("rolled back without a reason: {reason:?}")),
            None => None,
        };
        if let Some(outcomes) = outcomes {
            same("the number of outcomes", &transaction.operations.len(), &outcomes.len())?;
        }
        super::ack::check_dates(now, &verdicts)?;
        after.carry_out(now, tenant, transaction, &verdicts, outcomes.map(Vec::as_slice), peek)?;
        *self = after;
        Ok(())
    }

    /// Pushes whose ids are in the log already.
    fn duplicates(&self, now: Timestamp, tenant: TenantId, transaction: &Transaction) -> Vec<RolledBack> {
        let mut reasons = Vec::new();
        for operation in &transaction.operations {
            if let Operation::Push { queue, partition, message } = operation
                && self.original(now, tenant, queue, partition, message).is_some()
            {
                reasons.push(RolledBack::Duplicate { queue: queue.clone(), partition: partition.clone() });
            }
        }
        reasons
    }

    /// Required leases that do not live or cover nothing that is acked.
    fn lapsed_leases(&self, now: Timestamp, tenant: TenantId, transaction: &Transaction) -> Option<RolledBack> {
        let covers = |proof: &LeaseProof| {
            transaction.operations.iter().any(|operation| {
                let Operation::Ack { group, item } = operation else { return false };
                let Some((q, p)) = self.locate(item.partition) else { return false };
                let cursor = self.queues[q].partitions[p].cursors.get(group);
                let lease = cursor.and_then(|cursor| cursor.lease.as_ref());
                let asked = lease.is_some_and(|lease| LeaseProof::Lease(lease.id) == *proof);
                self.queues[q].tenant == tenant && asked && self.lives(lease, now)
            })
        };
        (!transaction.required_leases.iter().all(covers)).then_some(RolledBack::RequiredLease)
    }

    /// What may be said of groups of acks without a lease of their own that no required lease protects.
    fn unprotected(&self, transaction: &Transaction) -> Vec<RolledBack> {
        let acks = || {
            transaction.operations.iter().filter_map(|operation| match operation {
                Operation::Ack { group, item } => Some((group, item)),
                Operation::Push { .. } => None,
            })
        };
        let required = &transaction.required_leases;
        let any_proof = !required.is_empty() || acks().any(|(_, item)| item.lease != LeaseProof::None);
        let alone = |group: &GroupName, item: &AckItem| {
            let own = acks()
                .any(|(other, one)| other == group && one.partition == item.partition && one.lease != LeaseProof::None);
            let held = self.locate(item.partition).and_then(|(q, p)| {
                let cursor = self.queues[q].partitions[p].cursors.get(group)?;
                Some(LeaseProof::Lease(cursor.lease.as_ref()?.id))
            });
            let protected = held.is_some_and(|held| required.is_empty() || required.contains(&held));
            any_proof && !own && !protected
        };
        let failed = |(group, item): (&GroupName, &AckItem)| RolledBack::AckFailed {
            partition: item.partition,
            group: group.clone(),
            error: AckError::InvalidLease,
        };
        acks().filter(|(group, item)| alone(group, item)).map(failed).collect()
    }

    /// Decides every group of acks on this state, and gives a verdict for each ack in the order of operations.
    fn decide_acks(
        &mut self,
        now: Timestamp,
        tenant: TenantId,
        transaction: &Transaction,
        reasons: &mut Vec<RolledBack>,
        peek: &Peek<'_>,
    ) -> Vec<Verdict> {
        let mut groups: Vec<AckGroup<'_>> = Vec::new();
        let acks = transaction.operations.iter().filter_map(|operation| match operation {
            Operation::Ack { group, item } => Some((group, item)),
            Operation::Push { .. } => None,
        });
        let mut any_proof = !transaction.required_leases.is_empty();
        let mut count = 0;
        for (place, (group, item)) in acks.enumerate() {
            count += 1;
            any_proof |= item.lease != LeaseProof::None;
            match groups.iter_mut().find(|(p, g, _)| *p == item.partition && *g == group) {
                Some((_, _, items)) => items.push((place, item)),
                None => groups.push((item.partition, group, vec![(place, item)])),
            }
        }
        let mut verdicts = vec![Verdict::default(); count];
        for (partition, group, items) in groups {
            let place = self.locate(partition);
            let Some((q, p)) = place.filter(|&(q, _)| self.queues[q].tenant == tenant) else {
                reasons.push(RolledBack::ForeignPartition(partition));
                continue;
            };
            let given = items.iter().map(|(_, item)| item.lease).find(|&lease| lease != LeaseProof::None);
            let held = self.queues[q].partitions[p].cursors.get(group).and_then(|cursor| cursor.lease.as_ref());
            let proof = match (given, held, transaction.required_leases.as_slice()) {
                (Some(given), _, _) => given,
                (None, Some(held), _) if any_proof => LeaseProof::Lease(held.id),
                (None, None, [required]) => *required,
                (None, _, _) => LeaseProof::None,
            };
            let plain: Vec<&AckItem> = items.iter().map(|&(_, item)| item).collect();
            match self.settle(now, tenant, group, partition, proof, &plain, peek) {
                Ok(decided) => {
                    for ((place, _), verdict) in items.iter().zip(decided) {
                        if verdict.unknown {
                            reasons.push(RolledBack::UnknownTransaction);
                        }
                        verdicts[*place] = verdict;
                    }
                }
                Err(errors) => {
                    let failed = |error: AckError| RolledBack::AckFailed { partition, group: group.clone(), error };
                    reasons.extend(errors.into_iter().map(failed));
                    // The ids of a group that is refused may be looked up first, and be unknown.
                    let known = |item: &AckItem| {
                        let partition = &self.queues[q].partitions[p];
                        let since = now.minus(super::ack_age(&self.queues[q].options));
                        let text = item.transaction.as_ref().map(|id| id.as_str().to_owned());
                        let mut kept = partition.messages.iter().filter(|message| message.created >= since);
                        kept.any(|message| Some(message.transaction_text()) == text)
                    };
                    if !plain.iter().all(|item| known(item)) {
                        reasons.push(RolledBack::UnknownTransaction);
                    }
                }
            }
        }
        verdicts
    }

    /// Appends what is pushed, and compares every outcome.
    fn carry_out(
        &mut self,
        now: Timestamp,
        tenant: TenantId,
        transaction: &Transaction,
        verdicts: &[Verdict],
        told: Option<&[OperationOutcome]>,
        peek: &Peek<'_>,
    ) -> Result<(), Wrong> {
        let mut pushed: Vec<(usize, &NewMessage, MessageId)> = Vec::new();
        let mut acks = verdicts.iter();
        for (n, operation) in transaction.operations.iter().enumerate() {
            let is = told.map(|told| told[n]);
            let must = match operation {
                Operation::Ack { .. } => {
                    let verdict = acks.next().ok_or("an ack too many".to_owned())?;
                    let mut dead_lettered = verdict.outcome.dead_lettered;
                    if let Some(OperationOutcome::Acked { dead_lettered: is }) = is.filter(|_| verdict.twin) {
                        dead_lettered = is;
                    }
                    OperationOutcome::Acked { dead_lettered }
                }
                Operation::Push { queue, partition, message } => {
                    let twin = pushed.iter().find(|(at, earlier, _)| {
                        let Operation::Push { queue: q, partition: p, .. } = &transaction.operations[*at] else {
                            return false;
                        };
                        let one_id = message.transaction.is_some() && message.transaction == earlier.transaction;
                        one_id && q == queue && p == partition
                    });
                    if let Some(&(_, _, id)) = twin {
                        OperationOutcome::Pushed { id, duplicate: true }
                    } else {
                        let queued = match is {
                            Some(OperationOutcome::Pushed { id, .. }) => Some(PushOutcome::Queued(id)),
                            Some(other) => return Err(format!("must be pushed, is {other:?}")),
                            None => None,
                        };
                        let (stored, home) = stored_as(queued, message, peek)?;
                        let id = stored.id;
                        self.append(now, tenant, queue, partition, home, vec![stored], peek)?;
                        pushed.push((n, message, id));
                        OperationOutcome::Pushed { id, duplicate: false }
                    }
                }
            };
            same(&format!("the outcome of operation {n}"), &must, is.as_ref().unwrap_or(&must))?;
        }
        Ok(())
    }
}
