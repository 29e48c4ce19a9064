//! Transactions: pushes and acks in one commit, all or nothing (10).

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

use super::ack::StoredMessages;
use super::commit::{Change, Count, Done, Seat};
use super::loads::{Need, Needs};
use super::push::Twin;
use super::tables::{LaneIx, PartitionIx};
use super::{Broker, Waiting, Work};
use crate::command::{AckItem, LeaseProof, Operation, RequestId, Transaction};
use crate::log::{Question, half};
use crate::name::{GroupName, MessageId, PartitionId, PartitionName, QueueName, TenantId, TransactionHash};
use crate::reply::{AckError, OperationOutcome, Reply, RolledBack};
use crate::rules::dedup;
use crate::rules::settle::{self, Decision};
use crate::seal::Key;
use crate::time::Moment;

/// A transaction and what was read for it.
pub struct TransactionWork {
    pub(super) request: RequestId,
    tenant: TenantId,
    transaction: Transaction,
    pub(super) read: StoredMessages,
}

/// What has to be read first.
enum Missing {
    /// A message.
    Message(PartitionId, u64),
    /// More of a log.
    Log(Need),
}

/// The acks of one partition and group.
struct AckGroup {
    partition: PartitionIx,
    lane: LaneIx,
    /// Positions among the operations.
    at: Vec<usize>,
    decision: Decision,
}

impl Broker {
    pub(super) fn transaction_request(&mut self, request: RequestId, tenant: TenantId, transaction: Transaction) {
        if transaction.operations.is_empty() && transaction.required_leases.is_empty() {
            return self.reply(request, Reply::Transacted(Ok(Vec::new())));
        }
        let read = StoredMessages::new();
        self.admit(Work::Transaction(Box::new(TransactionWork { request, tenant, transaction, read })));
    }

    /// Decides everything first and touches nothing; only when nothing stands against it is it carried out.
    pub(super) fn run_transaction(&mut self, since: Moment, work: Box<TransactionWork>) {
        if let Some(seat) = self.transaction_blocked(&work) {
            return self.wait(seat, Waiting::new(since, Work::Transaction(work)));
        }
        let needs = self.transaction_needs(&work);
        if !needs.is_empty() {
            return self.suspend(Waiting::new(since, Work::Transaction(work)), needs);
        }
        let (groups, unread) = match self.decide_acks(&work).and_then(|groups| {
            self.check_required_leases(&work.transaction.required_leases, &groups)?;
            Ok((groups, self.check_pushes(&work)?))
        }) {
            Ok((_, Some(Missing::Log(need)))) => {
                return self.suspend(Waiting::new(since, Work::Transaction(work)), vec![need]);
            }
            Ok((groups, Some(Missing::Message(partition, offset)))) => (groups, Some((partition, offset))),
            Ok((groups, None)) => (groups, None),
            Err(rolled_back) => {
                self.counters.transactions_rolled_back += 1;
                return self.reply(work.request, Reply::Transacted(Err(rolled_back)));
            }
        };
        if let Some((partition, offset)) = unread {
            return self.read_messages(since, Work::Transaction(work), partition, &[offset]);
        }
        for group in &groups {
            if let Some(offset) = self.letter_needed(group.partition, &group.decision, &work.read) {
                let partition = self.tables.partition(group.partition).id;
                return self.read_messages(since, Work::Transaction(work), partition, &[offset]);
            }
        }
        let sealing = work.transaction.operations.iter().map(|operation| match operation {
            Operation::Push { queue, .. } => self.sealing_of(work.tenant, queue),
            Operation::Ack { .. } => Ok(None),
        });
        match sealing.collect() {
            Ok(keys) => self.carry_out(*work, groups, keys),
            Err(rejection) => self.reply(work.request, Reply::Refused(rejection)),
        }
    }

    /// Carries a transaction out; `keys` has one entry an operation.
    fn carry_out(&mut self, work: TransactionWork, groups: Vec<AckGroup>, keys: Vec<Option<Key>>) {
        let TransactionWork { request, tenant, transaction, read } = work;
        let mut acked: BTreeMap<usize, bool> = BTreeMap::new();
        for group in groups {
            for (at, outcome) in group.at.iter().zip(&group.decision.outcomes) {
                acked.insert(*at, outcome.dead_lettered);
            }
            plant!(TransactionAcksLost => continue);
            self.apply_decision(group.lane, group.decision, read.clone());
        }
        let mut outcomes = Vec::with_capacity(transaction.operations.len());
        let mut queues = BTreeSet::new();
        let mut pushed: BTreeMap<(QueueName, PartitionName, TransactionHash), MessageId> = BTreeMap::new();
        for ((at, operation), sealing) in transaction.operations.into_iter().enumerate().zip(keys) {
            outcomes.push(match operation {
                Operation::Ack { .. } => {
                    OperationOutcome::Acked { dead_lettered: acked.get(&at).copied().unwrap_or_default() }
                }
                Operation::Push { queue, partition, message } => {
                    let key = message.transaction.as_ref().map(|id| (queue.clone(), partition.clone(), id.hash()));
                    match key.as_ref().and_then(|key| pushed.get(key)) {
                        Some(twin) => OperationOutcome::Pushed { id: *twin, duplicate: true },
                        None if plant!(TransactionPushesLost) => OperationOutcome::Pushed {
                            id: MessageId(uuid::Uuid::from_u128(at as u128)),
                            duplicate: false,
                        },
                        None => {
                            let to = self.partition_for_push(tenant, &queue, &partition);
                            queues.insert(self.tables.partition(to).queue);
                            let id = self.append(to, message, 1, sealing.as_ref());
                            if let Some(key) = key {
                                pushed.insert(key, id);
                            }
                            OperationOutcome::Pushed { id, duplicate: false }
                        }
                    }
                }
            });
        }
        for queue in queues {
            self.count(queue, |activity| activity.transactions += 1);
        }
        let reply = Reply::Transacted(Ok(outcomes));
        match self.commits.building().filter(|_| !plant!(TransactionAnsweredEarly)) {
            Some(_) => {
                let (_, draft) = self.commits.draft();
                draft.change(Change::Count(Count::Transaction));
                draft.tell(Done::Reply(request, Box::new(reply)));
            }
            None => {
                self.counters.transactions += 1;
                self.reply(request, reply);
            }
        }
    }

    fn transaction_blocked(&self, work: &TransactionWork) -> Option<Seat> {
        work.transaction.operations.iter().find_map(|operation| match operation {
            Operation::Push { queue, partition, .. } => self.push_blocked(work.tenant, queue, partition),
            Operation::Ack { group, item } => {
                let partition = self.tables.partition_by_id(item.partition)?;
                self.tables.lane(self.tables.find_lane_by_name(partition, group)?).writer
            }
        })
    }

    /// What its pushes and acks have to know of logs, of all partitions at once.
    fn transaction_needs(&self, work: &TransactionWork) -> Needs {
        let mut asked: BTreeMap<(PartitionIx, bool), Vec<u64>> = BTreeMap::new();
        for operation in &work.transaction.operations {
            let (partition, transaction, ack) = match operation {
                Operation::Push { queue, partition, message } => {
                    let queue = self.tables.find_queue(work.tenant, queue);
                    let partition = queue.and_then(|queue| self.tables.find_partition(queue, partition));
                    (partition, message.transaction.as_ref(), false)
                }
                Operation::Ack { item, .. } => {
                    let partition = self.tables.partition_by_id(item.partition);
                    let own = partition.filter(|partition| self.tables.tenant_of(*partition) == work.tenant);
                    (own, item.transaction.as_ref(), true)
                }
            };
            if let (Some(partition), Some(transaction)) = (partition, transaction) {
                asked.entry((partition, ack)).or_default().push(half(transaction.hash()));
            }
        }
        let mut needs = Needs::new();
        for ((partition, ack), hashes) in asked {
            let options = &self.tables.queue(self.tables.partition(partition).queue).record.options;
            let since = match ack {
                true => Some(dedup::resolves_since(options, self.now.store)),
                false => dedup::forbids_since(options, self.now.store),
            };
            let view = self.view(partition);
            if let Some(since) = since.filter(|since| !hashes.iter().all(|hash| view.tells_hash(*hash, *since))) {
                needs.push(Need::Of(partition, Question::hashes(since, hashes)));
            }
        }
        needs
    }

    /// One decision per (partition, group). What an ack would only report as an error rolls back here, but for ids that
    /// are merely stale (10.2).
    fn decide_acks(&self, work: &TransactionWork) -> Result<Vec<AckGroup>, RolledBack> {
        let operations = &work.transaction.operations;
        let mut by_cursor: BTreeMap<(PartitionId, &GroupName), Vec<(usize, &AckItem)>> = BTreeMap::new();
        for (at, operation) in operations.iter().enumerate() {
            if let Operation::Ack { group, item } = operation {
                by_cursor.entry((item.partition, group)).or_default().push((at, item));
            }
        }
        let required = &work.transaction.required_leases;
        let any_lease =
            !required.is_empty() || by_cursor.values().flatten().any(|(_, item)| item.lease != LeaseProof::None);
        let mut groups = Vec::new();
        for ((partition_id, group), items) in by_cursor {
            let failed = |error| RolledBack::AckFailed { partition: partition_id, group: group.clone(), error };
            let partition = self
                .tables
                .partition_by_id(partition_id)
                .filter(|partition| self.tables.tenant_of(*partition) == work.tenant)
                .ok_or(RolledBack::ForeignPartition(partition_id))?;
            let lane = self
                .tables
                .find_lane_by_name(partition, group)
                .filter(|lane| self.tables.lane(*lane).stored)
                .ok_or_else(|| failed(AckError::ConsumerNotFound))?;
            let named = items.iter().map(|(_, item)| item.lease).find(|lease| *lease != LeaseProof::None);
            let proof = match named {
                Some(lease) => lease,
                None if any_lease => self.implied_lease(lane, required),
                None => LeaseProof::None,
            };
            let refs: Vec<&AckItem> = items.iter().map(|(_, item)| *item).collect();
            // What it needs of logs was seen to (`transaction_needs`).
            let decision = self.decide_ack(lane, &refs, proof).unwrap_or_else(|_| {
                settle::refuse(&self.tables.lane(lane).cursor(), refs.len(), AckError::StoreUnavailable)
            });
            if decision.unknown && !plant!(TransactionToleratesUnknown) {
                return Err(RolledBack::UnknownTransaction);
            }
            let refused = decision
                .outcomes
                .iter()
                .filter_map(|outcome| outcome.error)
                .find(|error| !matches!(error, AckError::Unresolvable | AckError::AlreadyCommitted));
            if let Some(error) = refused.filter(|_| !plant!(TransactionIgnoresRefusal)) {
                return Err(failed(error));
            }
            groups.push(AckGroup { partition, lane, at: items.iter().map(|(at, _)| *at).collect(), decision });
        }
        Ok(groups)
    }

    /// The lease that protects acks which name none while the transaction names some (10.3, 36.12): the cursor's own,
    /// if it is among the required ones.
    fn implied_lease(&self, lane: LaneIx, required: &[LeaseProof]) -> LeaseProof {
        match self.tables.lane(lane).lease() {
            Some(lease) if required.is_empty() || required.contains(&LeaseProof::Lease(lease.id)) => {
                LeaseProof::Lease(lease.id)
            }
            _ => LeaseProof::Foreign,
        }
    }

    fn check_required_leases(&self, required: &[LeaseProof], groups: &[AckGroup]) -> Result<(), RolledBack> {
        plant!(RequiredLeaseIgnored => return Ok(()));
        let covered = |proof: &LeaseProof| {
            groups.iter().any(|group| {
                let lease = self.tables.lane(group.lane).lease();
                lease.is_some_and(|lease| LeaseProof::Lease(lease.id) == *proof && lease.lives(self.now.store))
            })
        };
        if required.iter().all(covered) { Ok(()) } else { Err(RolledBack::RequiredLease) }
    }

    /// A pushed id that is already stored rolls everything back; one repeated inside the transaction does not. Answers
    /// a message that has to be read to tell.
    fn check_pushes(&self, work: &TransactionWork) -> Result<Option<Missing>, RolledBack> {
        for operation in &work.transaction.operations {
            let Operation::Push { queue, partition, message } = operation else { continue };
            let found = self
                .tables
                .find_queue(work.tenant, queue)
                .and_then(|queue| self.tables.find_partition(queue, partition));
            let Some(ix) = found else { continue };
            match self.stored_twin(ix, message, &work.read) {
                Twin::None => {}
                Twin::Of(_) if plant!(TransactionStoresDuplicate) => {}
                Twin::Of(_) => {
                    return Err(RolledBack::Duplicate { queue: queue.clone(), partition: partition.clone() });
                }
                Twin::Read(offset) => return Ok(Some(Missing::Message(self.tables.partition(ix).id, offset))),
                Twin::Log(need) => return Ok(Some(Missing::Log(need))),
            }
        }
        Ok(None)
    }
}
