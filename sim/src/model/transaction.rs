//! Section 10: pushes and acks, all or nothing.

use std::collections::BTreeMap;

use tidegate_core::command::{AckItem, LeaseProof, Operation, Transaction};
use tidegate_core::name::{GroupName, PartitionId, TenantId};
use tidegate_core::reply::{AckError, OperationOutcome, Reply};
use tidegate_core::time::Timestamp;

use super::{Model, Verdict, expect, unexpected};

impl Model {
    pub(super) fn transaction(
        &mut self,
        now: Timestamp,
        tenant: TenantId,
        transaction: &Transaction,
        reply: &Reply,
    ) -> Verdict {
        let Reply::Transacted(told) = reply else { return Err(unexpected(reply)) };
        let mut after = self.clone();
        match (after.carried_out(now, tenant, transaction, told.as_deref().unwrap_or(&[]))?, told) {
            (Ok(()), Ok(_)) => *self = after,
            (Ok(()), Err(why)) => return Err(format!("nothing stands against this transaction, not {why:?}")),
            (Err(why), Ok(_)) => return Err(format!("a transaction was carried out although {why}")),
            (Err(_), Err(_)) => {}
        }
        Ok(())
    }

    /// Carries it out; the inner error says why it must be rolled back.
    fn carried_out(
        &mut self,
        now: Timestamp,
        tenant: TenantId,
        transaction: &Transaction,
        told: &[OperationOutcome],
    ) -> Result<Result<(), String>, String> {
        let acks = |operation: &Operation| matches!(operation, Operation::Ack { .. });
        let required = &transaction.required_leases;
        let mut groups: BTreeMap<(PartitionId, &GroupName), Vec<(usize, &AckItem)>> = BTreeMap::new();
        for (at, operation) in transaction.operations.iter().enumerate() {
            if let Operation::Ack { group, item } = operation {
                groups.entry((item.partition, group)).or_default().push((at, item));
            }
        }
        let mut held = Vec::new();
        for (partition, group) in groups.keys() {
            let lease = self.home(*partition).and_then(|(_, _, row)| row.cursors.get(*group)?.lease);
            held.extend(lease.filter(|lease| lease.lives(now)).map(|lease| LeaseProof::Lease(lease.id)));
        }
        if !required.iter().all(|lease| held.contains(lease)) {
            return Ok(Err("a required lease is not live, or covers nothing that is acked".into()));
        }
        // A repeated id rolls back; one that is repeated inside the transaction does not.
        for operation in &transaction.operations {
            if let Operation::Push { queue, partition, message } = operation
                && self.twin(now, &(tenant, queue.clone()), partition, message).is_some()
            {
                return Ok(Err("an id that it pushes is stored already".into()));
            }
        }
        let any_lease =
            !required.is_empty() || groups.values().flatten().any(|(_, item)| item.lease != LeaseProof::None);
        for ((partition, group), items) in &groups {
            let named = items.iter().map(|(_, item)| item.lease).find(|lease| *lease != LeaseProof::None);
            let own = self.home(*partition).and_then(|(_, _, row)| row.cursors.get(*group)?.lease);
            let own = own.map(|lease| LeaseProof::Lease(lease.id));
            let implied =
                own.filter(|own| required.is_empty() || required.contains(own)).unwrap_or(LeaseProof::Foreign);
            let proof = named.unwrap_or(if any_lease { implied } else { LeaseProof::None });
            let plain: Vec<&AckItem> = items.iter().map(|(_, item)| *item).collect();
            match self.settle(now, tenant, group, *partition, proof, &plain) {
                Err(error) => return Ok(Err(format!("an ack is refused: {error}"))),
                Ok((_, true)) => return Ok(Err("it acks an unknown id".into())),
                Ok((outcomes, false)) => {
                    let stale = |error| matches!(error, AckError::Unresolvable | AckError::AlreadyCommitted);
                    if let Some(error) = outcomes.iter().filter_map(|it| it.error).find(|error| !stale(*error)) {
                        return Ok(Err(format!("an ack is refused: {error}")));
                    }
                    for ((at, _), outcome) in items.iter().zip(outcomes) {
                        if let Some(is) = told.get(*at) {
                            let must = OperationOutcome::Acked { dead_lettered: outcome.dead_lettered };
                            expect("an ack of a transaction", &must, is)?;
                        }
                    }
                }
            }
        }
        let mut pushed: Vec<(&Operation, OperationOutcome)> = Vec::new();
        for (operation, is) in transaction.operations.iter().zip(told).filter(|(operation, _)| !acks(operation)) {
            let Operation::Push { queue, partition, message } = operation else { continue };
            let twin = pushed.iter().find(|(earlier, _)| {
                matches!(earlier, Operation::Push { queue: q, partition: p, message: m }
                    if (q, p) == (queue, partition) && message.transaction.is_some() && m.transaction == message.transaction)
            });
            let OperationOutcome::Pushed { id, duplicate } = is else { return Err(format!("a push is told {is:?}")) };
            match twin {
                Some((_, OperationOutcome::Pushed { id: first, .. })) => {
                    expect("a repeated push of a transaction", &(*first, true), &(*id, *duplicate))?;
                }
                _ => {
                    expect("whether a push is a duplicate", &false, duplicate)?;
                    self.append(now, &(tenant, queue.clone()), partition, message, *id)?;
                    pushed.push((operation, *is));
                }
            }
        }
        Ok(Ok(()))
    }
}
