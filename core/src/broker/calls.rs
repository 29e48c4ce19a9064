//! Requests in parts: a push is one decision per partition, an ack one per partition and lease; the client is answered
//! once all are made.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::Broker;
use super::ack::Prefetch;
use super::commit::{Done, Seat};
use super::dead_letters::Replay;
use super::inspect::Find;
use super::listing::Listing;
use super::retention::Preview;
use super::slot::Asked;
use crate::command::RequestId;
use crate::error::Rejection;
use crate::message::SegmentSlice;
use crate::name::{PartitionId, QueueId, TenantId};
use crate::reply::{AckError, AckOutcome, ActivityReport, PushOutcome, Reply};
use crate::store::ExtentRead;

/// What a request to the store was for.
pub enum Pending {
    /// A commit.
    Commit(Seat),
    /// A commit of an epoch that was lost; its callers still want to know.
    Orphan(Vec<Done>),
    /// The messages of a pop.
    Delivery(u64),
    /// Messages that a decision needs.
    Prefetch(Box<Prefetch>),
    /// Logs that decisions need, or times of messages.
    Logs(u64),
    /// The queues' records.
    Refresh(u64),
    /// A message somebody asked for.
    Find(Box<Find>),
    /// The error text of its dead letter.
    FindDeadLetter(Box<Find>, Vec<SegmentSlice>),
    /// A page of dead letters.
    DeadLetters(RequestId, TenantId),
    /// A page of messages.
    Listing(Box<Listing>),
    /// Traces, or what happened.
    Fetch(Fetch),
    /// A dead letter that is to be replayed.
    ReplayRead(Box<Replay>),
    /// Rows of an ended queue.
    Trim(QueueId),
    /// Rows below the watermarks of partitions; history, where there are none.
    TrimLogs(Vec<PartitionId>),
    /// The oldest segments of partitions, for the retention cycle of that number.
    Extents(u64, Vec<ExtentRead>),
    /// The same, for a dry run.
    Preview(Box<Preview>),
    /// What retention deleted.
    History(RequestId),
    /// A health check.
    Probe(RequestId),
    /// The slot.
    Slot(Asked),
}

/// A question that the store answers alone.
pub struct Fetch {
    pub(super) request: RequestId,
    /// What was asked of activity; its rows are still to come.
    pub(super) report: Option<Box<ActivityReport>>,
}

/// A request whose parts are decided one by one.
pub struct Call {
    request: RequestId,
    parts: usize,
    outcomes: Outcomes,
}

/// What is known so far, by position in the request.
pub enum Outcomes {
    /// Of a push.
    Push(Vec<PushOutcome>),
    /// Of an ack.
    Ack(Vec<AckOutcome>),
}

impl Broker {
    /// Opens a call of `parts` parts.
    pub(super) fn open_call(&mut self, request: RequestId, parts: usize, outcomes: Outcomes) -> usize {
        self.calls.insert(Call { request, parts, outcomes })
    }

    /// Notes the outcomes of one part of a push.
    pub(super) fn push_part_done(&mut self, call: usize, part: impl IntoIterator<Item = (u32, PushOutcome)>) {
        let Some(row) = self.calls.get_mut(call) else { return };
        if let Outcomes::Push(outcomes) = &mut row.outcomes {
            for (at, outcome) in part {
                outcomes[at as usize] = outcome;
            }
        }
        self.part_done(call);
    }

    /// Notes the outcomes of one part of an ack.
    pub(super) fn ack_part_done(&mut self, call: usize, part: impl IntoIterator<Item = (u32, AckOutcome)>) {
        let Some(row) = self.calls.get_mut(call) else { return };
        if let Outcomes::Ack(outcomes) = &mut row.outcomes {
            for (at, outcome) in part {
                outcomes[at as usize] = outcome;
            }
        }
        self.part_done(call);
    }

    fn part_done(&mut self, call: usize) {
        let Some(row) = self.calls.get_mut(call) else { return };
        row.parts -= 1;
        if row.parts > 0 {
            return;
        }
        let Call { request, outcomes, .. } = self.calls.remove(call);
        let reply = match outcomes {
            Outcomes::Push(outcomes) => match nothing_pushed(&outcomes) {
                Some(rejection) => Reply::Refused(rejection),
                None => Reply::Pushed(outcomes),
            },
            Outcomes::Ack(outcomes) => match nothing_acked(&outcomes) {
                Some(rejection) => Reply::Refused(rejection),
                None => {
                    let refused = outcomes.iter().filter(|outcome| outcome.error.is_some()).count() as u64;
                    self.counters.ack_refused += refused;
                    self.counters.ack_messages += outcomes.len() as u64 - refused;
                    Reply::Acked(outcomes)
                }
            },
        };
        self.reply(request, reply);
    }
}

/// A push of which nothing was stored is refused as a whole; unknown outcomes weigh more than certain ones.
fn nothing_pushed(outcomes: &[PushOutcome]) -> Option<Rejection> {
    let mut worst = None;
    for outcome in outcomes {
        match outcome {
            PushOutcome::Queued(_) | PushOutcome::Duplicate(_) => return None,
            PushOutcome::Failed(Rejection::OutcomeUnknown) => worst = Some(Rejection::OutcomeUnknown),
            PushOutcome::Failed(rejection) => worst = worst.or(Some(*rejection)),
        }
    }
    worst
}

/// An ack of which nothing was decided is refused as a whole.
fn nothing_acked(outcomes: &[AckOutcome]) -> Option<Rejection> {
    let mut worst = None;
    for outcome in outcomes {
        match outcome.error {
            Some(AckError::OutcomeUnknown) => worst = Some(Rejection::OutcomeUnknown),
            Some(AckError::NotOwner) => worst = worst.or(Some(Rejection::NotOwner)),
            Some(AckError::StoreUnavailable) => worst = worst.or(Some(Rejection::StoreUnavailable)),
            _ => return None,
        }
    }
    worst
}
