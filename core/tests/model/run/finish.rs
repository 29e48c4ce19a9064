//! The end of every case: what memory says is what the store says, and nothing was lost or invented.

use std::collections::BTreeMap;

use tidegate_core::command::{Command, Pop, PopScope, RequestId};
use tidegate_core::name::{GroupName, MessageId, PartitionName, QueueName, TenantId};
use tidegate_core::record::StartFrom;
use tidegate_core::reply::Reply;
use tidegate_core::time::Timestamp;

use super::super::spec::Wrong;
use super::ask::tenant;
use super::{Kept, Run};

/// With more possible states than this it pays to ask which is the right one.
const FEW_STATES: usize = 6;

/// What a drain found, partition by partition.
type Found = BTreeMap<(TenantId, QueueName, PartitionName), Vec<(MessageId, Timestamp)>>;

impl Run {
    pub(super) fn finish(&mut self) -> Result<(), Wrong> {
        self.store.calm();
        if let Some(stranger) = &mut self.stranger {
            stranger.until = self.at;
        }
        self.stranger_acts();
        let parked: Vec<RequestId> = self.calls.keys().copied().collect();
        for id in parked {
            self.leave(id)?;
        }
        self.recover()?;
        self.list_everything()?;
        // Whoever takes the slot next sees what the store has.
        self.steal(0, self.setup.seed.is_multiple_of(2))?;
        let next = self.at + 1;
        self.advance(next)?;
        self.recover()?;
        self.list_everything()?;
        self.drain_everything()
    }

    /// Lists what there is when many states are possible, so that few are.
    pub(super) fn narrow(&mut self) -> Result<(), Wrong> {
        if self.states.len() > FEW_STATES && self.at_rest() { self.list_everything() } else { Ok(()) }
    }

    /// Every listing, each compared with the model.
    fn list_everything(&mut self) -> Result<(), Wrong> {
        for number in 0..2 {
            let tenant = tenant(number);
            let mut commands = vec![
                Command::ListQueues,
                Command::ListGroups { group: None },
                Command::ListDeadLetters { queue: None, group: None, limit: 1_000, offset: 0 },
            ];
            let queues = self.states[0].queues.iter().filter(|queue| queue.tenant == tenant);
            commands.extend(queues.map(|queue| Command::DescribeQueue { queue: queue.name.clone() }));
            for command in commands {
                self.must_answer(tenant, command)?;
            }
        }
        Ok(())
    }

    fn must_answer(&mut self, tenant: TenantId, command: Command) -> Result<(), Wrong> {
        let id = self.send(tenant, command);
        self.tick()?;
        self.answered(id)
    }

    /// A group that nobody has seen pops everything.
    fn drain_everything(&mut self) -> Result<(), Wrong> {
        let an_hour = self.at + 3_600_000_000;
        self.advance(an_hour)?;
        let queues: Vec<(TenantId, QueueName)> =
            self.states[0].queues.iter().map(|queue| (queue.tenant, queue.name.clone())).collect();
        let mut found = Found::new();
        for (tenant, queue) in queues {
            loop {
                let pop = Pop {
                    scope: PopScope::Queue(queue.clone()),
                    group: GroupName::new("drain").map_err(|error| error.to_string())?,
                    batch: 7,
                    partitions: None,
                    auto_ack: true,
                    wait: None,
                    lease: None,
                    start: Some(StartFrom::All),
                };
                self.send(tenant, Command::Pop(pop));
                self.pump()?;
                let Some((_, Reply::Popped(popped))) = self.replies.last().cloned() else {
                    return Err("the drain was not answered".to_owned());
                };
                self.tick()?;
                let Some(delivery) = popped else { break };
                for claim in delivery.claims {
                    for message in claim.messages {
                        if !self.pushed.contains(&message.message.payload) {
                            return Err(format!("nobody ever pushed {:?}", message.message));
                        }
                        let lane = found.entry((tenant, queue.clone(), claim.name.clone())).or_default();
                        lane.push((message.id, message.created));
                    }
                }
            }
        }
        self.compare(&found)
    }

    /// Every acknowledged message is there once, in order, and commit times never went backwards.
    fn compare(&self, found: &Found) -> Result<(), Wrong> {
        let mut places: BTreeMap<MessageId, usize> = BTreeMap::new();
        for lane in found.values() {
            for (place, (id, _)) in lane.iter().enumerate() {
                if places.insert(*id, place).is_some() {
                    return Err(format!("{id} is there twice"));
                }
            }
            if lane.windows(2).any(|pair| pair[0].1 > pair[1].1) {
                return Err("commit times went backwards".to_owned());
            }
        }
        for kept in &self.kept {
            let Some(&place) = places.get(&kept.id) else {
                if kept.doubtful {
                    continue;
                }
                return Err(format!("{} was acknowledged and is lost", kept.id));
            };
            // Calls that were under way together may be stored in either order.
            let lane = |other: &&Kept| {
                (other.tenant, &other.queue, &other.partition) == (kept.tenant, &kept.queue, &kept.partition)
            };
            let mut before = self.kept.iter().filter(lane).filter(|other| other.round <= kept.after);
            if before.any(|other| places.get(&other.id).is_some_and(|&there| there >= place)) {
                return Err(format!("{} overtook what was acknowledged before it", kept.id));
            }
        }
        Ok(())
    }
}
