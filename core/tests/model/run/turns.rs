//! In which order ready partitions are served: in that of becoming ready, and a partition that was claimed goes to the
//! end (design.md 4.13). What becomes ready between two looks of the harness is tied, and whatever another rule may put
//! anywhere in the order is not judged.

use std::collections::BTreeMap;

use tidegate_core::command::{Command, Pop, PopScope};
use tidegate_core::name::{GroupName, PartitionName, QueueName, TenantId};
use tidegate_core::record::StartFrom;
use tidegate_core::reply::Delivery;
use tidegate_core::time::Timestamp;

use super::super::spec::{Model, Wrong};
use super::Call;

/// A partition as a group sees it.
type Lane = (TenantId, QueueName, PartitionName, GroupName);

/// Since which look each ready lane is ready; none where its place is not judged.
#[derive(Default)]
pub struct Turns {
    ready: BTreeMap<Lane, Option<u64>>,
    looks: u64,
}

impl Turns {
    /// Looks which lanes are ready.
    pub fn look(&mut self, state: &Model, now: Timestamp) {
        self.looks += 1;
        let mut ready = BTreeMap::new();
        for queue in &state.queues {
            for partition in &queue.partitions {
                for group in queue.records.keys() {
                    let pop = probe(&queue.name, &partition.name, group);
                    if state.deliverable(now, queue.tenant, &pop).is_empty() {
                        continue;
                    }
                    let lane = (queue.tenant, queue.name.clone(), partition.name.clone(), group.clone());
                    let since = self.ready.get(&lane).copied().unwrap_or(Some(self.looks));
                    ready.insert(lane, since);
                }
            }
        }
        self.ready = ready;
    }

    /// Judges a lone claim of any partition of a queue.
    pub fn check(&self, call: &Call, delivery: &Delivery) -> Result<(), Wrong> {
        let Command::Pop(Pop { scope: PopScope::Queue(queue), group, .. }) = &call.command else { return Ok(()) };
        let since = |name: &PartitionName| {
            self.ready.get(&(call.tenant, queue.clone(), name.clone(), group.clone())).copied().flatten()
        };
        let mut latest = 0;
        for claim in &delivery.claims {
            let Some(since) = since(&claim.name) else { continue };
            if since < latest {
                return Err(format!("{} was ready before what was claimed before it", claim.name));
            }
            latest = since;
        }
        let claimed = |name: &PartitionName| delivery.claims.iter().any(|claim| claim.name == *name);
        for ((tenant, name, partition, whose), since) in &self.ready {
            let passed_over = (*tenant, name, whose) == (call.tenant, queue, group) && !claimed(partition);
            if passed_over && since.is_some_and(|since| since < latest) {
                return Err(format!("{partition} was ready longer than what was claimed"));
            }
        }
        Ok(())
    }

    /// Takes into account what a command did to the order.
    pub fn after(&mut self, call: &Call, delivery: Option<&Delivery>) {
        match &call.command {
            Command::Push(_) | Command::FindMessage(_) | Command::Probe => {}
            Command::ListQueues | Command::DescribeQueue { .. } | Command::ListGroups { .. } => {}
            Command::ListDeadLetters { .. } | Command::DropDeadLetters(_) => {}
            Command::Pop(pop) => {
                let claims = delivery.map_or(&[][..], |delivery| &delivery.claims);
                let from = |queue: &QueueName| match &pop.scope {
                    PopScope::Queue(name) | PopScope::Partition(name, _) => name == queue,
                    PopScope::Labels(_) => true,
                };
                let claimed = |(tenant, queue, partition, group): &Lane| {
                    let of_pop = *tenant == call.tenant && *group == pop.group && from(queue);
                    of_pop && claims.iter().any(|claim| claim.name == *partition)
                };
                let any = matches!(pop.scope, PopScope::Queue(_)) && !call.parked && !call.beside_others;
                if any {
                    self.ready.retain(|lane, _| !claimed(lane));
                } else {
                    self.ready.iter_mut().filter(|(lane, _)| claimed(lane)).for_each(|(_, since)| *since = None);
                }
            }
            _ => self.forget(),
        }
    }

    /// From here on nobody knows the order of what is ready now.
    pub fn forget(&mut self) {
        self.ready.values_mut().for_each(|since| *since = None);
    }
}

/// A pop that sees what a group that is registered may have of a partition.
fn probe(queue: &QueueName, partition: &PartitionName, group: &GroupName) -> Pop {
    Pop {
        scope: PopScope::Partition(queue.clone(), partition.clone()),
        group: group.clone(),
        batch: 1,
        partitions: None,
        auto_ack: false,
        wait: None,
        lease: None,
        start: Some(StartFrom::All),
    }
}
