//! A commit that contradicts what is stored is refused with a text and leaves no trace, whatever came before it in the
//! commit.

use bytes::Bytes;
use tidegate_core::error::StoreErrorKind;
use tidegate_core::message::{NewMessage, hash_of};
use tidegate_core::name::{
    DeadLetterId, GroupName, LeaseId, MessageId, PartitionId, PartitionName, QueueId, QueueName, TenantId,
};
use tidegate_core::options::{Labels, QueueOptions};
use tidegate_core::record::{
    Cursor, CursorRecord, DeadLetterHead, DeadLetterRecord, Lease, NewSegment, PartitionRecord, QueueRecord, StartFrom,
    SubscriptionRecord, Trimmed,
};
use tidegate_core::store::{Commit, CommitNo, Epoch, Fence, SegmentRead, Slot, StoreReply, StoreRequest, Token, Write};
use tidegate_core::time::Timestamp;
use tidegate_store_memory::MemoryStore;
use uuid::Uuid;

const FENCE: Fence = Fence { slot: Slot(0), epoch: Epoch(1), token: Token(7) };

fn time(micros: u64) -> Timestamp {
    Timestamp::from_micros(micros as i64)
}

fn queue(number: u128) -> Box<QueueRecord> {
    Box::new(QueueRecord {
        id: QueueId(Uuid::from_u128(number)),
        tenant: TenantId::DEFAULT,
        name: QueueName::new(&format!("queue {number}")).expect("a valid name"),
        labels: Labels::default(),
        options: QueueOptions::implicit(),
        created: time(0),
        revision: 0,
    })
}

fn partition(number: u128, queue: u128, log_start: u64) -> PartitionRecord {
    PartitionRecord {
        id: PartitionId(Uuid::from_u128(number)),
        queue: QueueId(Uuid::from_u128(queue)),
        name: PartitionName::new(&format!("partition {number}")).expect("a valid name"),
        created: time(0),
        log_start,
        trimmed: Trimmed::default(),
    }
}

fn segment(partition: u128, start: u64, count: u32) -> NewSegment {
    let base = MessageId(Uuid::from_u128(u128::from(start) << 32));
    let message = |n: u32| {
        let payload = Bytes::from(format!("{start}+{n}"));
        NewMessage { transaction: None, payload, trace: None, producer: None }
    };
    let messages: Vec<NewMessage> = (0..count).map(message).collect();
    let hashes = (0u32..).zip(&messages).map(|(n, message)| hash_of(message, base.nth(n))).collect();
    NewSegment {
        partition: PartitionId(Uuid::from_u128(partition)),
        start,
        created: time(start),
        base,
        messages,
        hashes,
        total: start,
    }
}

fn group(text: &str) -> GroupName {
    GroupName::new(text).expect("a valid name")
}

fn cursor(partition: u128, name: &str, next: u64) -> Write {
    let lease = Lease { id: LeaseId(Uuid::from_u128(next.into())), expires: time(next), end: next + 1 };
    let cursor = Cursor { next, retries: 1, consumed: next, lease: Some(lease) };
    Write::Cursor(CursorRecord { partition: PartitionId(Uuid::from_u128(partition)), group: group(name), cursor })
}

fn drop_cursor(partition: u128, name: &str) -> Write {
    Write::DropCursor { partition: PartitionId(Uuid::from_u128(partition)), group: group(name) }
}

fn subscription(queue: u128, name: &str, start: StartFrom) -> Write {
    let queue = QueueId(Uuid::from_u128(queue));
    Write::Subscription(SubscriptionRecord { queue, group: group(name), start, registered: time(1), changed: None })
}

fn dead_letter(number: u128, partition: u128) -> Write {
    let head = DeadLetterHead {
        id: DeadLetterId(Uuid::from_u128(number)),
        partition: PartitionId(Uuid::from_u128(partition)),
        group: group("workers"),
        offset: 1,
        message: MessageId(Uuid::from_u128(1)),
        hash: MessageId(Uuid::from_u128(1)).as_transaction_hash(),
        retries: 3,
        failed: time(2),
        created: time(1),
    };
    Write::DeadLetter(Box::new(DeadLetterRecord { head, message: None, error: "boom".into() }))
}

/// A store with a bit of everything.
fn furnished() -> MemoryStore {
    let mut store = MemoryStore::new();
    let take = StoreRequest::Take { slot: FENCE.slot, seen: Epoch(0), token: FENCE.token, owner: "test".into() };
    assert_eq!(store.call(time(0), take), StoreReply::Taken(FENCE.epoch));
    let writes = vec![
        Write::Queue(queue(1)),
        Write::Queue(queue(2)),
        Write::Partition(partition(1, 1, 0)),
        Write::Partition(partition(2, 2, 0)),
        Write::Append(segment(1, 0, 2)),
        Write::Append(segment(1, 2, 2)),
        Write::Append(segment(1, 4, 2)),
        cursor(1, "workers", 1),
        cursor(1, "others", 2),
        subscription(1, "workers", StartFrom::New),
        subscription(1, "others", StartFrom::New),
        dead_letter(1, 1),
        dead_letter(2, 2),
    ];
    assert_eq!(commit(&mut store, 1, writes), StoreReply::Committed);
    store
}

fn commit(store: &mut MemoryStore, number: u64, writes: Vec<Write>) -> StoreReply {
    let number = CommitNo(number);
    store.call(
        time(9),
        StoreRequest::Commit(Commit {
            fence: FENCE,
            number,
            time: Timestamp::EPOCH,
            acknowledged: [None, None],
            writes,
        }),
    )
}

/// All that can be seen of a store.
fn content(store: &MemoryStore) -> Vec<StoreReply> {
    let mut store = store.clone();
    let everything = |number| SegmentRead { partition: PartitionId(Uuid::from_u128(number)), from: 0, end: 99 };
    vec![
        store.call(time(0), StoreRequest::Load { slot: FENCE.slot, after: None }),
        store.call(time(0), StoreRequest::Read((0..5).map(everything).collect())),
        store.call(
            time(0),
            StoreRequest::ReadDeadLetters((0..5).map(|number| DeadLetterId(Uuid::from_u128(number))).collect()),
        ),
    ]
}

/// Every kind of write in every situation, each valid after those before it.
fn valid_writes() -> Vec<Write> {
    vec![
        Write::Queue(Box::new(QueueRecord { options: QueueOptions::configured(), ..*queue(1) })),
        Write::Queue(queue(3)),
        Write::Partition(partition(3, 3, 0)),
        Write::Partition(partition(4, 1, 5)),
        Write::Append(segment(4, 5, 3)),
        Write::Append(segment(1, 6, 1)),
        Write::Append(segment(1, 7, 1)),
        Write::Partition(partition(1, 1, 3)),
        Write::Partition(partition(1, 1, 8)),
        Write::Append(segment(1, 8, 1)),
        cursor(1, "workers", 8),
        cursor(1, "new", 3),
        cursor(1, "new", 4),
        drop_cursor(1, "new"),
        drop_cursor(1, "others"),
        cursor(1, "others", 5),
        drop_cursor(1, "workers"),
        drop_cursor(1, "nobody"),
        subscription(1, "workers", StartFrom::All),
        subscription(3, "workers", StartFrom::All),
        Write::DropSubscription { queue: QueueId(Uuid::from_u128(1)), group: group("others") },
        Write::DropSubscription { queue: QueueId(Uuid::from_u128(3)), group: group("workers") },
        dead_letter(3, 3),
        Write::DropDeadLetter(DeadLetterId(Uuid::from_u128(1))),
        Write::DropDeadLetter(DeadLetterId(Uuid::from_u128(3))),
        dead_letter(1, 4),
        Write::EndQueue(QueueId(Uuid::from_u128(2))),
        Write::EndQueue(QueueId(Uuid::from_u128(3))),
    ]
}

#[test]
fn a_refused_commit_leaves_no_trace_whatever_it_began() {
    let valid = valid_writes();
    for count in 0..=valid.len() {
        let mut store = furnished();
        let before = content(&store);
        let mut writes = valid[..count].to_vec();
        writes.push(Write::Append(segment(99, 0, 1)));
        assert!(matches!(commit(&mut store, 2, writes), StoreReply::Failed(_)));
        assert_eq!(content(&store), before, "after undoing {:?}", &valid[..count]);

        // Nor is there a trace that shows later.
        let mut untouched = furnished();
        for store in [&mut store, &mut untouched] {
            assert_eq!(commit(store, 2, valid[..count].to_vec()), StoreReply::Committed);
        }
        assert_eq!(content(&store), content(&untouched), "after {:?}", &valid[..count]);
    }
}

#[test]
fn what_contradicts_the_store_is_refused_with_a_text() {
    let unequal = NewSegment { hashes: vec![], ..segment(1, 6, 1) };
    let renamed = QueueRecord { name: QueueName::new("another").expect("a valid name"), ..*queue(1) };
    let cases = [
        ("queue 00000000-0000-0000-0000-000000000009 is not in this slot", Write::Partition(partition(9, 9, 0))),
        ("is not in this slot", Write::Append(segment(9, 0, 1))),
        ("is not in this slot", cursor(9, "workers", 1)),
        ("is not in this slot", subscription(9, "workers", StartFrom::All)),
        ("is not in this slot", dead_letter(9, 9)),
        ("is not in this slot", Write::EndQueue(QueueId(Uuid::from_u128(9)))),
        ("goes on at offset 6, a segment starts at 7", Write::Append(segment(1, 7, 1))),
        ("goes on at offset 6, a segment starts at 4", Write::Append(segment(1, 4, 1))),
        ("has a later commit time", Write::Append(NewSegment { created: time(3), ..segment(1, 6, 1) })),
        ("has 0 messages and 0 hashes", Write::Append(segment(1, 6, 0))),
        ("has 1 messages and 0 hashes", Write::Append(unequal)),
        ("has no offsets after 18446744073709551615", Write::Append(segment(3, u64::MAX, 1))),
        ("its log start is set to 7", Write::Partition(partition(1, 1, 7))),
        ("is set with another queue or name", Write::Partition(partition(1, 2, 0))),
        ("is set with another tenant or name", Write::Queue(Box::new(renamed))),
        ("is filed already", dead_letter(1, 1)),
    ];
    for (expected, write) in cases {
        let mut store = furnished();
        assert_eq!(commit(&mut store, 2, vec![Write::Partition(partition(3, 1, u64::MAX))]), StoreReply::Committed);
        let before = content(&store);
        match commit(&mut store, 3, vec![write.clone()]) {
            StoreReply::Failed(error) => {
                assert_eq!(error.kind, StoreErrorKind::Corrupt);
                assert!(error.text.contains(expected), "{} does not contain {expected}", error.text);
            }
            other => panic!("{write:?} is answered {other:?}"),
        }
        assert_eq!(content(&store), before);
    }
}

#[test]
fn what_has_ended_takes_no_more_writes() {
    let mut store = furnished();
    assert_eq!(commit(&mut store, 2, vec![Write::EndQueue(queue(1).id)]), StoreReply::Committed);
    let before = content(&store);
    let writes = [
        Write::Queue(queue(1)),
        Write::Partition(partition(1, 1, 0)),
        Write::Partition(partition(5, 1, 0)),
        Write::Append(segment(1, 6, 1)),
        cursor(1, "workers", 2),
        subscription(1, "workers", StartFrom::All),
        dead_letter(4, 1),
        Write::EndQueue(queue(1).id),
    ];
    for (number, write) in (3..).zip(writes) {
        assert!(matches!(commit(&mut store, number, vec![write.clone()]), StoreReply::Failed(_)), "{write:?}");
    }
    assert_eq!(content(&store), before);
}

#[test]
fn a_commit_number_is_used_once() {
    let mut store = furnished();
    assert!(matches!(commit(&mut store, 1, vec![]), StoreReply::Failed(_)));
    assert_eq!(commit(&mut store, 2, vec![]), StoreReply::Committed);
}

#[test]
fn a_live_queue_is_not_trimmed() {
    let mut store = furnished();
    let before = content(&store);
    let trim = StoreRequest::Trim { fence: FENCE, queue: queue(1).id, limit: 9 };
    assert!(matches!(store.call(time(0), trim), StoreReply::Failed(_)));
    assert_eq!(content(&store), before);
}

#[test]
fn clones_go_their_own_ways() {
    let store = furnished();
    let mut clone = store.clone();
    let before = content(&store);
    assert_eq!(commit(&mut clone, 2, valid_writes()), StoreReply::Committed);
    assert_eq!(content(&store), before);
    assert_ne!(content(&clone), before);
}
