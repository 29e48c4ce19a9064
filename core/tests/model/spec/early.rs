//! Parts of calls that are decided while their calls are not answered yet: the store is slow with something else.

use tidegate_core::command::{Command, Pop, RequestId};
use tidegate_core::error::Rejection;
use tidegate_core::name::{LeaseId, MessageId, PartitionId, TenantId};
use tidegate_core::reply::{AckError, AckOutcome, PushOutcome, Reply};
use tidegate_core::time::Timestamp;

use super::super::peek::Peek;
use super::{Model, Wrong, ack, push, same};

/// What a part that was decided early is to be told.
#[derive(Clone, PartialEq, Debug)]
pub enum Early {
    Pushed(Vec<PushOutcome>),
    Acked(Vec<AckOutcome>),
    Popped(Option<LeaseId>, Vec<(PartitionId, Vec<MessageId>)>),
}

impl Model {
    /// The state after one part of a call that is not answered yet, if that part may have been decided.
    pub fn decide_early(
        &self,
        now: Timestamp,
        (id, tenant, command): (RequestId, TenantId, &Command),
        part: usize,
        peek: &Peek<'_>,
    ) -> Option<Model> {
        let mut next = self.clone();
        let told = match command {
            Command::Push(push) => {
                let groups = push::grouped(push);
                let (queue, partition, items) = groups.get(part)?;
                Early::Pushed(next.push_group(now, tenant, queue, partition, items, None, peek).ok()?)
            }
            Command::Ack(ack) => Early::Acked(next.ack_group(now, tenant, ack, part, None, peek).ok()?),
            Command::Pop(pop) => {
                next = next.contacts(now, tenant, pop, peek).pop()?;
                let (lease, claims) = next.pop(now, tenant, pop, None, peek).ok()?;
                if claims.is_empty() {
                    return None;
                }
                Early::Popped(lease, claims)
            }
            _ => return None,
        };
        next.early.insert((id, part), told).is_none().then_some(next)
    }

    /// A pop whose claims went with their queue before they could be read looks once more.
    pub fn forget_vanished(&mut self) {
        let mut early = std::mem::take(&mut self.early);
        early.retain(|_, early| match early {
            Early::Popped(_, claims) => claims.iter().any(|(partition, _)| self.locate(*partition).is_some()),
            Early::Pushed(_) | Early::Acked(_) => true,
        });
        self.early = early;
    }

    /// The states after a call of which parts were decided early went unanswered: what it leased may be given back.
    pub fn abandon_early(&self, id: RequestId, command: &Command) -> Option<Vec<Model>> {
        let mut next = self.clone();
        next.early.retain(|(call, _), _| *call != id);
        match (self.early.get(&(id, 0)), command) {
            (Some(Early::Popped(Some(lease), _)), Command::Pop(pop)) => {
                let mut given_back = next.clone();
                given_back.give_back(&pop.group, *lease);
                Some(vec![given_back, next])
            }
            (Some(Early::Popped(None, _)), _) => Some(vec![next]),
            _ => None,
        }
    }

    /// Whether what a pop claimed early is certainly in the store.
    pub fn surely_claimed(&self, id: RequestId, pop: &Pop, peek: &Peek<'_>) -> bool {
        match self.early.get(&(id, 0)) {
            Some(Early::Popped(_, claims)) => {
                claims.iter().all(|(partition, _)| peek.cursor(*partition, &pop.group) == Some(true))
            }
            _ => false,
        }
    }

    /// The states after the answer to a part that was decided early.
    pub fn answer_early(
        &self,
        id: RequestId,
        command: &Command,
        part: usize,
        reply: &Reply,
    ) -> Option<Result<Vec<Model>, Wrong>> {
        let early = self.early.get(&(id, part))?;
        let mut next = self.clone();
        next.early.remove(&(id, part));
        Some(match (early, command, reply) {
            (_, _, Reply::Refused(Rejection::OutcomeUnknown)) => Ok(vec![next]),
            (Early::Pushed(must), Command::Push(push), Reply::Pushed(told)) => {
                let groups = push::grouped(push);
                let is: Vec<PushOutcome> = groups[part].2.iter().map(|&(index, _)| told[index]).collect();
                let unknown = is.contains(&PushOutcome::Failed(Rejection::OutcomeUnknown));
                let right = if unknown { Ok(()) } else { same("the outcomes of a group", must, &is) };
                right.map(|()| vec![next])
            }
            (Early::Acked(must), Command::Ack(ack), Reply::Acked(told)) => {
                let places = &ack::grouped(ack)[part].2;
                let is: Vec<AckOutcome> = places.iter().map(|&place| told[place].clone()).collect();
                let unknown = is.iter().any(|one| one.error == Some(AckError::OutcomeUnknown));
                let right = if unknown { Ok(()) } else { same("the outcomes of a group", must, &is) };
                right.map(|()| vec![next])
            }
            (Early::Popped(lease, claims), _, Reply::Popped(Some(is))) => {
                let told: Vec<(PartitionId, Vec<MessageId>)> = is
                    .claims
                    .iter()
                    .map(|claim| (claim.partition, claim.messages.iter().map(|message| message.id).collect()))
                    .collect();
                // What went with its queue before it could be read is not delivered.
                let there = |partition: PartitionId| {
                    self.locate(partition).is_some() || told.iter().any(|one| one.0 == partition)
                };
                let must: Vec<_> = claims.iter().filter(|(partition, _)| there(*partition)).cloned().collect();
                same("what was claimed", &(*lease, must), &(is.lease, told)).map(|()| vec![next])
            }
            (Early::Popped(_, claims), _, Reply::Popped(None) | Reply::Refused(_))
                if claims.iter().all(|(partition, _)| self.locate(*partition).is_none()) =>
            {
                Ok(vec![next])
            }
            // What was claimed could not be read: it is given back, or that fails as well and the lease runs out.
            (Early::Popped(Some(lease), _), Command::Pop(pop), Reply::Popped(None) | Reply::Refused(_)) => {
                let mut given_back = next.clone();
                given_back.give_back(&pop.group, *lease);
                Ok(vec![given_back, next])
            }
            (_, _, reply) => Err(format!("it was carried out, and yet {reply:?}")),
        })
    }
}
