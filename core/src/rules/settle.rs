//! The ack decision (8.4): one group of items, one cursor, one outcome.

use alloc::vec;
use alloc::vec::Vec;
use compact_str::CompactString;

use crate::command::{AckItem, AckStatus, LeaseProof};
use crate::log::{Question, half};
use crate::name::TransactionHash;
use crate::options::QueueOptions;
use crate::record::Cursor;
use crate::reply::{AckError, AckOutcome};
use crate::rules::dedup;
use crate::rules::retry::{self, Verdict};
use crate::rules::visibility::Durable;
use crate::time::Timestamp;

/// What a group of ack items does to its cursor.
#[derive(Clone, PartialEq, Debug)]
pub struct Decision {
    /// The cursor afterwards; equal to the one before when nothing changes.
    pub cursor: Cursor,
    /// One per item, in order.
    pub outcomes: Vec<AckOutcome>,
    /// Some id has no stored hash at all; a transaction rolls back for it, an ack only reports it.
    pub unknown: bool,
    /// The message that goes to the dead letters.
    pub dead_letter: Option<Exhausted>,
    /// A message is dropped: its retries are exhausted and dead-lettering is off.
    pub dropped: bool,
}

/// A message that does not come again.
#[derive(Clone, PartialEq, Debug)]
pub struct Exhausted {
    /// Its offset.
    pub offset: u64,
    /// Its hash, as the ack gave it.
    pub hash: TransactionHash,
    /// Failed acks charged before this one.
    pub retries: u32,
    /// Why (8.8).
    pub error: CompactString,
}

/// What an item's id stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// This offset of the delivered batch.
    Inside(u64),
    /// Only below the cursor.
    Below,
    /// Stored, but above the batch.
    Above,
    /// No kept hash.
    Unknown,
}

/// Decides the items of one (partition, lease) group at `now`; or asks what has to be known of the log first.
///
/// The lowest item that is not completed bounds its call: what lies above it does not count. Everything below the
/// highest completed item is completed with it.
pub fn decide(
    cursor: &Cursor,
    partition: Durable<'_>,
    items: &[&AckItem],
    proof: LeaseProof,
    options: &QueueOptions,
    require_lease: bool,
    now: Timestamp,
) -> Result<Decision, Question> {
    if let Some(error) = refusal(cursor, proof, require_lease, now) {
        return Ok(refuse(cursor, items.len(), error));
    }
    let mut places: Vec<Place> = Vec::with_capacity(items.len());
    for item in items {
        match place(item, cursor, partition, options, now) {
            Some(place) => places.push(place),
            None => {
                let hashes = items.iter().filter_map(|item| Some(half(item.transaction.as_ref()?.hash())));
                return Err(Question::hashes(dedup::resolves_since(options, now), hashes));
            }
        }
    }
    let inside = |at: usize| match places[at] {
        Place::Inside(offset) => Some(offset),
        Place::Below | Place::Above | Place::Unknown => None,
    };
    let mut signal: Option<(u64, AckStatus)> = None;
    for (at, item) in items.iter().enumerate() {
        if let Some(offset) = inside(at)
            && item.status != AckStatus::Completed
            && signal.is_none_or(|(lowest, kind)| {
                (offset, weight(item.status)) < (lowest, weight(kind)) || plant!(LastFailureCounts)
            })
        {
            signal = Some((offset, item.status));
        }
    }
    let completed = (0..items.len())
        .filter(|&at| items[at].status == AckStatus::Completed)
        .filter_map(inside)
        .filter(|&offset| signal.is_none_or(|(lowest, _)| offset < lowest || plant!(PartialAckPassesFailure)))
        .max();

    let mut after = cursor.clone();
    if let Some(offset) = completed {
        advance(&mut after, offset + 1);
        plant!(AckAdvancesTooFar => advance(&mut after, offset + 2));
        plant!(AckTakesWholeBatch => advance(&mut after, cursor.lease.map_or(0, |lease| lease.end)));
    }
    let mut dead_letter = None;
    let mut dropped = false;
    match (cursor.lease, signal) {
        // Nothing is out: there is no batch to redeliver and no budget to charge.
        (None, _) => {}
        (Some(lease), None) => {
            if after.next >= lease.end || plant!(PartialAckEndsLease) {
                after.lease = None;
                after.retries = 0;
                plant!(FullAckKeepsLease => after.lease = cursor.lease);
                plant!(AckKeepsRetries => after.retries = cursor.retries);
            }
        }
        (Some(_), Some((offset, kind))) => {
            after.lease = None;
            plant!(NackKeepsLease => after.lease = cursor.lease);
            let verdict = match kind {
                AckStatus::Retry if plant!(RetryStatusCharges) => retry::failed(options, cursor.retries),
                AckStatus::DeadLetter if plant!(DlqStatusCharged) => retry::failed(options, cursor.retries),
                AckStatus::Completed | AckStatus::Retry => Verdict::Redeliver { retries: cursor.retries },
                // Asked for by name: neither the budget nor the flags are consulted (8.6).
                AckStatus::DeadLetter => Verdict::DeadLetter,
                AckStatus::Failed => retry::failed(options, cursor.retries),
            };
            match verdict {
                Verdict::Redeliver { retries } => after.retries = retries,
                Verdict::DeadLetter => {
                    let error = reason(items, &places, offset);
                    let named = items.iter().zip(&places).find(|(_, place)| **place == Place::Inside(offset));
                    let hash = named.and_then(|(item, _)| Some(item.transaction.as_ref()?.hash()));
                    let hash = hash.unwrap_or(TransactionHash(0));
                    dead_letter = Some(Exhausted { offset, hash, retries: cursor.retries, error });
                }
                Verdict::Drop => dropped = true,
            }
            if dead_letter.is_some() || dropped {
                advance(&mut after, offset + 1 - u64::from(plant!(DeadLetterStays)));
                after.retries = 0;
                plant!(DeadLetterKeepsRetries => after.retries = cursor.retries);
                plant!(DeadLetterOfNeighbour => dead_letter.iter_mut().for_each(|it| it.offset = offset.saturating_sub(1)));
            }
        }
    }

    let released = cursor.lease.is_some() && after.lease.is_none();
    let outcomes = (0..items.len())
        .map(|at| {
            let done = items[at].status == AckStatus::Completed;
            let ended = !done && signal.is_some_and(|(offset, _)| places[at] == Place::Inside(offset));
            match places[at] {
                Place::Unknown | Place::Above => failed(AckError::Unresolvable),
                Place::Below if !done => failed(AckError::AlreadyCommitted),
                Place::Below | Place::Inside(_) => AckOutcome {
                    error: None,
                    lease_released: released,
                    dead_lettered: ended && dead_letter.is_some(),
                    dropped: ended && dropped,
                    noop: places[at] == Place::Below,
                },
            }
        })
        .collect();
    let unknown = places.contains(&Place::Unknown);
    Ok(Decision { cursor: after, outcomes, unknown, dead_letter, dropped })
}

/// A decision that changes nothing and refuses every item.
pub fn refuse(cursor: &Cursor, items: usize, error: AckError) -> Decision {
    let outcomes = vec![failed(error); items];
    Decision { cursor: cursor.clone(), outcomes, unknown: false, dead_letter: None, dropped: false }
}

/// The outcome of an item that was refused.
pub fn failed(error: AckError) -> AckOutcome {
    AckOutcome { error: Some(error), ..AckOutcome::default() }
}

/// A lease that is named must be the live one; an ack without one is checked against nothing (8.6).
fn refusal(cursor: &Cursor, proof: LeaseProof, require_lease: bool, now: Timestamp) -> Option<AckError> {
    plant!(ForeignProofAccepted => if proof == LeaseProof::Foreign { return None });
    match proof {
        LeaseProof::None => require_lease.then_some(AckError::LeaseRequired),
        LeaseProof::Foreign => Some(AckError::InvalidLease),
        LeaseProof::Lease(id) => {
            plant!(AnyLeaseAccepted => return None);
            plant!(ExpiredLeaseAccepted => return cursor.lease.is_none_or(|it| it.id != id).then_some(AckError::InvalidLease));
            let holds = cursor.lease.is_some_and(|lease| lease.id == id && lease.lives(now));
            (!holds).then_some(AckError::InvalidLease)
        }
    }
}

/// What an id stands for, by the stored hashes alone: the lowest occurrence inside the batch, else one below the cursor.
/// None where too little is known of the log.
fn place(
    item: &AckItem,
    cursor: &Cursor,
    partition: Durable<'_>,
    options: &QueueOptions,
    now: Timestamp,
) -> Option<Place> {
    let Some(transaction) = &item.transaction else { return Some(Place::Unknown) };
    let hash = half(transaction.hash());
    let kept_since = dedup::resolves_since(options, now);
    let end = cursor.lease.map_or(partition.end, |lease| lease.end);
    // What is acked was delivered, most often: the batch that is out is looked through first.
    let batch = cursor.next..end.min(partition.end);
    let known = partition.log.tells_hash(hash, kept_since);
    if (known || partition.log.first() <= batch.start)
        && let Some(offset) = partition.log.lowest_in(batch, hash, |_, created| created >= kept_since)
    {
        return Some(Place::Inside(offset));
    }
    if !known {
        return None;
    }
    let (mut below, mut above) = (false, false);
    partition.log.lowest(hash, |offset, created| {
        if created >= kept_since && offset < partition.end {
            below |= offset < cursor.next;
            above |= offset >= end;
        }
        false
    });
    Some(match (below, above) {
        (true, _) => Place::Below,
        (false, true) => Place::Above,
        (false, false) => Place::Unknown,
    })
}

/// At one offset the graver status counts.
fn weight(status: AckStatus) -> u8 {
    match status {
        AckStatus::DeadLetter => 0,
        AckStatus::Failed => 1,
        AckStatus::Retry => 2,
        AckStatus::Completed => 3,
    }
}

fn advance(cursor: &mut Cursor, next: u64) {
    cursor.consumed += next.saturating_sub(cursor.next);
    cursor.next = cursor.next.max(next);
}

/// The error text of a dead letter (8.8).
fn reason(items: &[&AckItem], places: &[Place], offset: u64) -> CompactString {
    let failures = || items.iter().zip(places).filter(|(item, _)| item.status != AckStatus::Completed);
    failures()
        .find_map(|(item, place)| item.error.as_ref().filter(|_| *place == Place::Inside(offset)))
        .or_else(|| failures().find_map(|(item, _)| item.error.as_ref()))
        .cloned()
        .unwrap_or_else(|| CompactString::const_new("Retries exhausted"))
}
