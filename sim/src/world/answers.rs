//! What a broker replied, in the history's words.

use tidegate_core::command::{AckStatus, LeaseProof};
use tidegate_core::error::Rejection;
use tidegate_core::reply::{self, PushOutcome, Reply};
use tidegate_core::time::Timestamp;

use super::names::{Names, payload_no};
use crate::history::{
    AckError, Acked, Answer, DeadLetter, Delivered, Delivery, Event, Found, PartDone, PartitionCounts, Proof, Pushed,
    Refusal, RolledBack, Standing, Status, TenantNo,
};

/// How an operation ended.
pub fn event(names: &mut Names, tenant: TenantNo, reply: Reply) -> Event {
    let answer = match reply {
        Reply::Refused(Rejection::OutcomeUnknown) => return Event::Unknown,
        // No step asks for any of these yet.
        Reply::Refused(_)
        | Reply::Healthy
        | Reply::Queues(_)
        | Reply::Retention(_)
        | Reply::History(_)
        | Reply::Messages(_)
        | Reply::Depth(_)
        | Reply::Traced(_)
        | Reply::Traces(..)
        | Reply::TraceNames(..)
        | Reply::Activity(_) => return Event::Fail(Refusal::Unavailable),
        Reply::Pushed(outcomes) => Answer::Pushed(outcomes.iter().map(|outcome| pushed(names, outcome)).collect()),
        Reply::Popped(None) => Answer::Popped(Delivery::default()),
        Reply::Popped(Some(delivery)) => Answer::Popped(popped(names, &delivery)),
        Reply::Acked(outcomes) => Answer::Acked(outcomes.iter().map(acked).collect()),
        Reply::Extended { renewed, earliest } => {
            Answer::Extended { renewed, earliest: earliest.map(Timestamp::as_micros) }
        }
        Reply::Transacted(Ok(outcomes)) => {
            let done = |outcome: &reply::OperationOutcome| match *outcome {
                reply::OperationOutcome::Pushed { id, duplicate } => {
                    PartDone::Pushed { message: names.message_no(id), duplicate }
                }
                reply::OperationOutcome::Acked { dead_lettered } => PartDone::Acked { dead_lettered },
            };
            Answer::Transacted(outcomes.iter().map(done).collect())
        }
        Reply::Transacted(Err(why)) => Answer::RolledBack(rolled_back(&why)),
        Reply::Configured { id, .. } => Answer::Configured { id: names.queue_id_no(id) },
        Reply::QueueDeleted { existed } => Answer::QueueDeleted { existed },
        Reply::Sought(cursors) => Answer::Sought(cursors),
        Reply::GroupDeleted { partitions, metadata } => Answer::GroupDeleted { cursors: partitions, metadata },
        Reply::SubscriptionChanged { records } => Answer::SubscriptionChanged(records),
        Reply::Message(detail) => Answer::Found(detail.map(|detail| Found {
            message: names.message_no(detail.id),
            payload: detail.payload.as_deref().map(payload_no),
            created: detail.created.as_micros(),
            dead_lettered: detail.dead_letter.is_some(),
        })),
        Reply::DeadLetters(rows) => {
            let row = |row: &reply::DeadLetterRow| {
                let message = names.message_no(row.head.message);
                let queue = names.queue(tenant, &row.queue);
                DeadLetter {
                    id: names.dead_letter_no(row.head.id),
                    partition: names.partition_no(row.head.partition),
                    lane: names.lane(queue, &row.partition_name),
                    group: names.group(&row.head.group),
                    message,
                    key: names.key(Some(&row.transaction), message),
                    payload: row.payload.as_deref().map(payload_no),
                    retries: row.head.retries,
                    failed: row.head.failed.as_micros(),
                }
            };
            Answer::DeadLetters(rows.iter().map(row).collect())
        }
        Reply::DeadLettersDropped(count) => Answer::DeadLettersDropped(count),
        Reply::Replayed(replayed) => Answer::Replayed(replayed.map(|replayed| names.message_no(replayed.id))),
        Reply::Queue(detail) => Answer::Described(detail.map(|detail| {
            let queue = names.queue(tenant, &detail.summary.name);
            let row = |row: &reply::PartitionDetail| PartitionCounts {
                lane: names.lane(queue, &row.name),
                partition: names.partition_no(row.id),
                total: row.counts.total,
                pending: row.counts.pending,
                processing: row.counts.processing,
                dead_letters: row.counts.dead_letter,
            };
            detail.partitions.iter().map(row).collect()
        })),
        Reply::Groups(rows) => {
            let row = |row: &reply::GroupStanding| {
                let queue = names.queue(tenant, &row.queue);
                Standing {
                    group: names.group(&row.group),
                    partition: names.partition_no(row.partition),
                    lane: names.lane(queue, &row.partition_name),
                    lease: row.lease.map(|lease| names.lease_no(lease)),
                    live: row.lease_active,
                    consumed: row.consumed,
                    lag: row.lag,
                }
            };
            Answer::Groups(rows.iter().map(row).collect())
        }
    };
    Event::Ok(answer)
}

fn pushed(names: &mut Names, outcome: &PushOutcome) -> Pushed {
    match *outcome {
        PushOutcome::Queued(id) => Pushed::Queued(names.message_no(id)),
        PushOutcome::Duplicate(id) => Pushed::Duplicate(names.message_no(id)),
        PushOutcome::Failed(Rejection::OutcomeUnknown) => Pushed::Unknown,
        PushOutcome::Failed(_) => Pushed::Failed,
    }
}

fn popped(names: &mut Names, delivery: &reply::Delivery) -> Delivery {
    let mut messages = Vec::with_capacity(delivery.claims.iter().map(|claim| claim.messages.len()).sum());
    for claim in &delivery.claims {
        let partition = names.partition_no(claim.partition);
        let lane = names.lane(names.queue_of_partition(partition), &claim.name);
        for given in &claim.messages {
            let message = names.message_no(given.id);
            let (key, payload) = names.stored(&given.message, message);
            messages.push(Delivered { partition, lane, message, key, payload, created: given.created.as_micros() });
        }
    }
    Delivery { lease: delivery.lease.map(|lease| names.lease_no(lease)), messages }
}

fn acked(outcome: &reply::AckOutcome) -> Acked {
    Acked {
        error: outcome.error.map(ack_error),
        released: outcome.lease_released,
        dead_lettered: outcome.dead_lettered,
        dropped: outcome.dropped,
        noop: outcome.noop,
    }
}

fn ack_error(error: reply::AckError) -> AckError {
    match error {
        reply::AckError::ConsumerNotFound => AckError::ConsumerNotFound,
        reply::AckError::InvalidLease => AckError::InvalidLease,
        reply::AckError::LeaseRequired => AckError::LeaseRequired,
        reply::AckError::Unresolvable => AckError::Unresolvable,
        reply::AckError::AlreadyCommitted => AckError::AlreadyCommitted,
        reply::AckError::ForeignPartition => AckError::Foreign,
        reply::AckError::NotOwner | reply::AckError::StoreUnavailable => AckError::Unavailable,
        reply::AckError::OutcomeUnknown => AckError::Unknown,
    }
}

fn rolled_back(why: &reply::RolledBack) -> RolledBack {
    match why {
        reply::RolledBack::UnknownTransaction => RolledBack::UnknownMessage,
        reply::RolledBack::Duplicate { .. } => RolledBack::Duplicate,
        reply::RolledBack::AckFailed { error, .. } => RolledBack::Ack(ack_error(*error)),
        reply::RolledBack::ForeignPartition(_) => RolledBack::ForeignPartition,
        reply::RolledBack::RequiredLease => RolledBack::RequiredLease,
    }
}

/// What is said of a message, as a broker is told it.
pub fn status(status: Status) -> AckStatus {
    match status {
        Status::Completed => AckStatus::Completed,
        Status::Failed => AckStatus::Failed,
        Status::Retry => AckStatus::Retry,
        Status::DeadLetter => AckStatus::DeadLetter,
    }
}

/// What is said of a lease, as a broker is told it.
pub fn proof(names: &Names, proof: Proof) -> LeaseProof {
    match proof {
        Proof::None => LeaseProof::None,
        Proof::Lease(lease) => LeaseProof::Lease(names.lease_id(lease)),
        Proof::Foreign => LeaseProof::Foreign,
    }
}
