//! Records to write: different for each number, equal for the same.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;
use bytes::Bytes;
use uuid::Uuid;

use crate::message::{NewMessage, StoredMessage, hash_of};
use crate::name::{
    DeadLetterId, GroupName, LeaseId, MessageId, PartitionId, PartitionName, QueueId, QueueName, TenantId, TraceId,
    TransactionHash, TransactionId,
};
use crate::options::{Labels, QueueOptions};
use crate::record::{
    Cursor, CursorRecord, DeadLetterHead, DeadLetterRecord, Lease, NewSegment, PartitionRecord, QueueRecord,
    SegmentHead, StartFrom, SubscriptionRecord, Trimmed,
};
use crate::store::{LogTail, Write};
use crate::time::Timestamp;

/// An id that looks like a random one.
fn uuid(kind: u8, number: u64) -> Uuid {
    let mixed = TransactionHash::of(&format!("{kind}/{number}")).0;
    uuid::Builder::from_random_bytes(mixed.to_be_bytes()).into_uuid()
}

/// An id that follows the one with the number before it.
fn rising_uuid(kind: u8, number: u64) -> Uuid {
    Uuid::from_u128(0x0199_0000_0000_7000_8000_0000_0000_0000 | u128::from(kind) << 48 | u128::from(number) << 8)
}

pub(super) fn time(micros: i64) -> Timestamp {
    Timestamp::from_micros(1_700_000_000_000_000 + micros)
}

pub(super) fn tenant(number: u64) -> TenantId {
    TenantId(uuid(1, number))
}

pub(super) fn queue_id(number: u64) -> QueueId {
    QueueId(uuid(2, number))
}

pub(super) fn partition_id(number: u64) -> PartitionId {
    PartitionId(uuid(3, number))
}

pub(super) fn group(text: &str) -> GroupName {
    GroupName::new(text).unwrap_or_else(|error| panic!("a group's name {error}"))
}

pub(super) fn queue(number: u64) -> QueueRecord {
    let name = format!("queue.{number}");
    QueueRecord {
        id: queue_id(number),
        tenant: tenant(0),
        name: QueueName::new(&name).unwrap_or_else(|error| panic!("a queue's name {error}")),
        labels: Labels::derived(&name),
        options: QueueOptions { priority: -7, window_buffer: i64::from(i32::MAX), ..QueueOptions::implicit() },
        created: time(number as i64),
        revision: number,
    }
}

pub(super) fn partition(number: u64, queue: u64) -> PartitionRecord {
    PartitionRecord {
        id: partition_id(number),
        queue: queue_id(queue),
        name: PartitionName::new(&format!("partition {number}"))
            .unwrap_or_else(|error| panic!("a partition's name {error}")),
        created: time(number as i64),
        log_start: 0,
        trimmed: Trimmed::default(),
    }
}

/// A message with a payload that tells which it is, and nothing else.
pub(super) fn message(number: u64) -> NewMessage {
    let payload = Bytes::from(format!("{{\"n\":{number}}}").into_bytes());
    NewMessage { transaction: None, payload, trace: None, producer: None }
}

pub(super) fn transaction(text: &str) -> TransactionId {
    TransactionId::new(text).unwrap_or_else(|error| panic!("a transaction id {error}"))
}

/// Messages for partition `number` from offset `start` on.
pub(super) fn segment(number: u64, start: u64, messages: Vec<NewMessage>) -> NewSegment {
    let base = MessageId(rising_uuid(4, number << 24 | start));
    let hashes = messages.iter().zip(0u32..).map(|(message, n)| hash_of(message, base.nth(n))).collect();
    let bytes: usize = messages.iter().map(|message| message.payload.len()).sum();
    let total = 1_000 * start + bytes as u64;
    NewSegment { partition: partition_id(number), start, created: time(start as i64), base, messages, hashes, total }
}

/// `count` messages of `message`'s kind.
pub(super) fn plain_segment(number: u64, start: u64, count: u64) -> NewSegment {
    segment(number, start, (start..start + count).map(message).collect())
}

pub(super) fn head_of(segment: &NewSegment) -> SegmentHead {
    SegmentHead {
        partition: segment.partition,
        start: segment.start,
        created: segment.created,
        base: segment.base,
        total: segment.total,
        hashes: segment.hashes.clone(),
    }
}

/// Where a log ends whose last segment is `segment`.
pub(super) fn tail_of(segment: &NewSegment) -> LogTail {
    let next = segment.start + segment.messages.len() as u64;
    LogTail { next, last: Some(segment.created), total: segment.total, untrimmed: false }
}

pub(super) fn stored(message: &NewMessage) -> StoredMessage {
    StoredMessage {
        transaction: message.transaction.clone().map(TransactionId::into_text),
        payload: message.payload.clone(),
        trace: message.trace,
        producer: message.producer.clone(),
    }
}

pub(super) fn trace(number: u64) -> TraceId {
    TraceId(uuid(5, number))
}

pub(super) fn cursor(partition: u64, group_name: &str, next: u64) -> CursorRecord {
    let cursor = Cursor { next, retries: 0, consumed: next, lease: None };
    CursorRecord { partition: partition_id(partition), group: group(group_name), cursor }
}

pub(super) fn leased_cursor(partition: u64, group_name: &str) -> CursorRecord {
    let lease = Lease { id: LeaseId(uuid(6, partition)), expires: time(-1), end: u64::MAX >> 1 };
    let cursor = Cursor { next: 1, retries: u32::MAX >> 1, consumed: u64::MAX >> 1, lease: Some(lease) };
    CursorRecord { partition: partition_id(partition), group: group(group_name), cursor }
}

pub(super) fn subscription(queue: u64, group_name: &str, start: StartFrom) -> SubscriptionRecord {
    SubscriptionRecord {
        queue: queue_id(queue),
        group: group(group_name),
        start,
        registered: time(queue as i64),
        changed: None,
    }
}

pub(super) fn dead_letter_id(number: u64) -> DeadLetterId {
    DeadLetterId(rising_uuid(7, number))
}

pub(super) fn dead_letter(number: u64, partition: u64) -> DeadLetterRecord {
    let message = NewMessage {
        transaction: Some(transaction("order\u{0}17")),
        trace: Some(trace(number)),
        producer: Some("billing".into()),
        ..message(number)
    };
    let id = MessageId(rising_uuid(4, number));
    let head = DeadLetterHead {
        id: dead_letter_id(number),
        partition: partition_id(partition),
        group: group("workers"),
        offset: number,
        message: id,
        hash: hash_of(&message, id),
        retries: 3,
        failed: time(number as i64 + 9),
        created: time(number as i64),
    };
    DeadLetterRecord { head, message: Some(stored(&message)), error: "it does not add up: 1 ≠ 2".into() }
}

/// The writes of a queue with one partition of the same number.
pub(super) fn queue_with_partition(number: u64) -> Vec<Write> {
    [Write::Queue(Box::new(queue(number))), Write::Partition(partition(number, number))].into()
}
