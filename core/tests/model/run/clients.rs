//! What clients keep of their answers: what the end of a case compares, and what later steps refer to.

use tidegate_core::command::{Command, Operation};
use tidegate_core::name::{MessageId, PartitionName, QueueName};
use tidegate_core::reply::{OperationOutcome, PushOutcome, Reply};

use super::super::spec::{Model, Wrong};
use super::{Call, Delivered, Kept, Run, distinct};

impl Run {
    /// Keeps what later steps and the end of the case need of an answer.
    pub(super) fn remember(&mut self, call: &Call, reply: &Reply) -> Result<(), Wrong> {
        match (&call.command, reply) {
            (Command::Push(push), Reply::Pushed(outcomes)) => {
                for group in &push.groups {
                    for (index, _) in &group.items {
                        if let PushOutcome::Queued(id) = outcomes[*index as usize] {
                            self.keep(call, &group.queue, &group.partition, id)?;
                        }
                    }
                }
            }
            (Command::Transaction(transaction), Reply::Transacted(Ok(outcomes))) => {
                for (operation, outcome) in transaction.operations.iter().zip(outcomes) {
                    let Operation::Push { queue, partition, .. } = operation else { continue };
                    if let OperationOutcome::Pushed { id, duplicate: false } = outcome {
                        self.keep(call, queue, partition, *id)?;
                    }
                }
            }
            (Command::Replay { .. }, Reply::Replayed(Some(replayed))) => {
                self.keep(call, &replayed.queue, &replayed.partition, replayed.id)?;
            }
            (Command::DeleteQueue { queue }, reply) => {
                let mine = |kept: &Kept| kept.tenant == call.tenant && kept.queue == *queue;
                match reply {
                    Reply::QueueDeleted { existed: true } => {
                        let round = self.round;
                        self.kept.retain(|kept| !mine(kept) || kept.round == round);
                        self.kept.iter_mut().filter(|kept| mine(kept)).for_each(|kept| kept.doubtful = true);
                    }
                    Reply::QueueDeleted { existed: false } => {}
                    _ => self.kept.iter_mut().filter(|kept| mine(kept)).for_each(|kept| kept.doubtful = true),
                }
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) fn keep(
        &mut self,
        call: &Call,
        queue: &QueueName,
        partition: &PartitionName,
        id: MessageId,
    ) -> Result<(), Wrong> {
        if id.0.get_version_num() != 7 {
            return Err(format!("{id} is no UUID of version 7"));
        }
        if !self.ids.insert(id) {
            return Err(format!("{id} was given out twice"));
        }
        self.kept.push(Kept {
            after: call.after,
            round: self.round,
            tenant: call.tenant,
            queue: queue.clone(),
            partition: partition.clone(),
            id,
            doubtful: self.deleting.iter().any(|(tenant, name)| *tenant == call.tenant && name == queue),
        });
        Ok(())
    }

    /// Brings a delivery to its client, or finds the client gone.
    pub(super) fn deliver(&mut self, call: &Call, reply: &Reply) -> Result<(), Wrong> {
        let (Command::Pop(pop), Reply::Popped(Some(delivery))) = (&call.command, reply) else { return Ok(()) };
        let mut messages = Vec::new();
        for claim in &delivery.claims {
            for message in &claim.messages {
                let text = message.message.transaction.clone().map_or(message.id.to_string(), |text| text.to_string());
                messages.push((claim.partition, text));
            }
        }
        self.deliveries.push(Delivered { group: pop.group.clone(), lease: delivery.lease, messages });
        let Some(lease) = delivery.lease else { return Ok(()) };
        if lease.0.get_version_num() != 7 || !self.leases.insert(lease) {
            return Err(format!("lease {lease} is no new UUID of version 7"));
        }
        if !std::mem::take(&mut self.break_next) {
            self.broker.sent(call.id);
            return Ok(());
        }
        let now = self.now();
        let lives = |state: &Model| {
            let partitions = state.queues.iter().flat_map(|queue| &queue.partitions);
            let held = partitions.filter_map(|one| one.cursors.get(&pop.group)?.lease.as_ref());
            held.filter(|held| held.id == lease).all(|held| now.store < held.expires)
        };
        let mut sure = self.at_rest() && self.states.iter().all(lives);
        self.broker.gone(now, call.id);
        self.pump()?;
        sure &= self.at_rest();
        let mut states: Vec<Model> = if sure { Vec::new() } else { self.states.clone() };
        for state in &self.states {
            let mut state = state.clone();
            state.give_back(&pop.group, lease);
            states.push(state);
        }
        self.states = distinct(states);
        self.judge()
    }
}
