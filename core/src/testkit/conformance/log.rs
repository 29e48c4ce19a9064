//! Messages: appended, read back.

use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;

use super::Store;
use super::owner::{Owner, SLOT, ask, read, read_all};
use super::samples::{
    head_of, message, partition, partition_id, plain_segment, queue_with_partition, segment, stored, time, trace,
    transaction,
};
use crate::limits::{MAX_PAGE_HEADS, MAX_SEGMENT_BYTES, MAX_SEGMENT_MESSAGES, MAX_TRANSACTION_ID_BYTES};
use crate::message::{NewMessage, SegmentSlice};
use crate::name::PartitionId;
use crate::record::{NewSegment, PartitionRecord, SegmentHead};
use crate::store::{LogPage, LogRead, SegmentRead, StoreReply, StoreRequest, Write};
use crate::time::Timestamp;

/// An owner whose slot holds queue 1 with partition 1 and these segments.
fn begin(store: &mut dyn Store, segments: &[NewSegment]) -> Owner {
    let mut owner = Owner::of(store, SLOT, 1);
    owner.commit(store, queue_with_partition(1));
    for segment in segments {
        owner.commit(store, vec![Write::Append(segment.clone())]);
    }
    owner
}

/// Every way a message can be.
fn strange_messages() -> Vec<NewMessage> {
    let every_byte: Vec<u8> = (0..=255).collect();
    let payload = |bytes: Vec<u8>| NewMessage { payload: Bytes::from(bytes), ..message(0) };
    let named = |text: &str| NewMessage { transaction: Some(transaction(text)), ..message(1) };
    vec![
        payload(vec![]),
        payload(every_byte.clone()),
        payload(vec![0; 1_000]),
        payload(b" {\"a\" : 1.50, \"a\":\"\\u0000\\ud800\"}\n".to_vec()),
        named(""),
        named("\u{0}"),
        named("order-17"),
        named(&"ü\u{0}ÿ\u{10ffff}x".repeat(MAX_TRANSACTION_ID_BYTES / 10)),
        named(&"x".repeat(MAX_TRANSACTION_ID_BYTES)),
        NewMessage { trace: Some(trace(1)), ..message(2) },
        NewMessage { producer: Some("".into()), ..message(3) },
        NewMessage { producer: Some("a producer with a name beyond 24 bytes".into()), ..message(4) },
        NewMessage { trace: Some(trace(2)), producer: Some("p".into()), payload: Bytes::new(), ..named("all") },
        message(5),
    ]
}

/// A segment's messages from place `from` to place `end`, as a read gives them.
fn slice(segment: &NewSegment, from: usize, end: usize) -> SegmentSlice {
    SegmentSlice {
        start: segment.start + from as u64,
        created: segment.created,
        base: segment.base.nth(from as u32),
        messages: segment.messages[from..end].iter().map(stored).collect(),
    }
}

pub(super) fn messages_come_back_byte_for_byte(store: &mut dyn Store) {
    let messages = strange_messages();
    let count = messages.len();
    let together = segment(1, 0, messages.clone());
    let mut segments = vec![together];
    // And each alone: a store may pack one message in another way than many.
    segments.extend(messages.into_iter().zip(count as u64..).map(|(message, start)| segment(1, start, vec![message])));
    begin(store, &segments);
    let slices = read(store, partition_id(1), 0, 2 * count as u64);
    assert_eq!(slices.len(), segments.len());
    for (given, segment) in slices.iter().zip(&segments) {
        assert_eq!((given.start, given.created, given.base), (segment.start, segment.created, segment.base));
        assert_eq!(given.messages.len(), segment.messages.len());
        for (n, (given, written)) in given.messages.iter().zip(&segment.messages).enumerate() {
            assert!(*given == stored(written), "message {n} of the segment at {} differs", segment.start);
        }
    }
}

pub(super) fn a_head_tells_bytes_and_hashes(store: &mut dyn Store) {
    let mut arbitrary = plain_segment(1, 40, 2);
    arbitrary.hashes.reverse();
    let strange = strange_messages();
    let after_strange = strange.len() as u64;
    let mut segments = vec![segment(1, 0, strange), plain_segment(1, after_strange, 1)];
    segments.push(plain_segment(1, after_strange + 1, 39 - after_strange));
    segments.push(arbitrary);
    begin(store, &segments);
    let heads = load_log(store, partition_id(1), time(i64::MIN / 2));
    assert_eq!(heads, segments.iter().rev().map(head_of).collect::<Vec<_>>());
}

pub(super) fn a_log_is_loaded_down_to_a_time(store: &mut dyn Store) {
    let segments: Vec<_> = (0..5).map(|n| plain_segment(1, 2 * n, 2)).collect();
    begin(store, &segments);
    for (since, oldest) in [(0, 0), (1, 1), (2, 1), (8, 4), (9, 5)] {
        let heads = load_log(store, partition_id(1), time(since));
        let expected: Vec<_> = segments[oldest..].iter().rev().map(head_of).collect();
        assert!(heads.starts_with(&expected), "down to {since}: {heads:?}");
    }
}

pub(super) fn a_log_in_pages_gives_each_head_once(store: &mut dyn Store) {
    let count = MAX_PAGE_HEADS as u64 + 10;
    let mut owner = begin(store, &[]);
    let segments: Vec<_> = (0..count).map(|n| plain_segment(1, n, 1)).collect();
    owner.commit(store, segments.iter().cloned().map(Write::Append).collect());
    let heads = load_log(store, partition_id(1), time(i64::MIN / 2));
    assert_eq!(heads, segments.iter().rev().map(head_of).collect::<Vec<_>>());
}

pub(super) fn several_logs_are_answered_in_order(store: &mut dyn Store) {
    let (first, second) = (plain_segment(1, 0, 3), plain_segment(2, 0, 2));
    let mut owner = begin(store, core::slice::from_ref(&first));
    owner.commit(store, vec![Write::Partition(partition(2, 1)), Write::Append(second.clone())]);
    let read = |number, before| LogRead { partition: partition_id(number), before, since: time(i64::MIN / 2) };
    let page = |segment: &NewSegment| LogPage { segments: vec![head_of(segment)], more: false };
    let asked = vec![read(2, u64::MAX), read(9, u64::MAX), read(1, u64::MAX), read(1, 0)];
    let expected = vec![page(&second), LogPage::default(), page(&first), LogPage::default()];
    assert_eq!(ask(store, StoreRequest::LoadLogs(asked)), StoreReply::Logs(expected));
    assert_eq!(ask(store, StoreRequest::LoadLogs(vec![])), StoreReply::Logs(vec![]));
}

/// A partition's heads down to `since`, newest first.
fn load_log(store: &mut dyn Store, partition: PartitionId, since: Timestamp) -> Vec<SegmentHead> {
    let mut heads: Vec<SegmentHead> = Vec::new();
    loop {
        let before = heads.last().map_or(u64::MAX, |head| head.start);
        match ask(store, StoreRequest::LoadLogs(vec![LogRead { partition, before, since }])) {
            StoreReply::Logs(mut pages) => {
                assert_eq!(pages.len(), 1, "one read has one answer");
                let LogPage { segments, more } = pages.remove(0);
                assert!(segments.len() <= MAX_PAGE_HEADS, "a page has {} heads", segments.len());
                assert!(!more || !segments.is_empty(), "a page has no head and is not the last");
                heads.extend(segments);
                if !more {
                    return heads;
                }
            }
            other => panic!("a load of logs is answered {other:?}"),
        }
    }
}

pub(super) fn a_read_takes_parts_of_segments(store: &mut dyn Store) {
    let segments = [plain_segment(1, 0, 3), segment(1, 3, strange_messages()), plain_segment(1, 17, 1)];
    assert_eq!(segments[1].messages.len(), 14);
    begin(store, &segments);
    let whole = |at: usize| slice(&segments[at], 0, segments[at].messages.len());
    let cases = [
        (0, 1, vec![slice(&segments[0], 0, 1)]),
        (1, 2, vec![slice(&segments[0], 1, 2)]),
        (2, 3, vec![slice(&segments[0], 2, 3)]),
        (0, 3, vec![whole(0)]),
        (2, 4, vec![slice(&segments[0], 2, 3), slice(&segments[1], 0, 1)]),
        (3, 17, vec![whole(1)]),
        (7, 12, vec![slice(&segments[1], 4, 9)]),
        (16, 18, vec![slice(&segments[1], 13, 14), whole(2)]),
        (1, 18, vec![slice(&segments[0], 1, 3), whole(1), whole(2)]),
    ];
    for (from, end, expected) in cases {
        assert!(read(store, partition_id(1), from, end) == expected, "the read of {from} to {end} differs");
    }
}

pub(super) fn several_reads_are_answered_in_order(store: &mut dyn Store) {
    let (first, second) = (plain_segment(1, 0, 3), plain_segment(2, 0, 2));
    let mut owner = begin(store, core::slice::from_ref(&first));
    owner.commit(store, vec![Write::Partition(partition(2, 1)), Write::Append(second.clone())]);
    let want = |partition, from, end| SegmentRead { partition: partition_id(partition), from, end };
    let answers = read_all(store, &[want(2, 1, 9), want(9, 0, 1), want(1, 0, 2), want(2, 0, 1), want(1, 0, 2)]);
    let expected = [
        vec![slice(&second, 1, 2)],
        vec![],
        vec![slice(&first, 0, 2)],
        vec![slice(&second, 0, 1)],
        vec![slice(&first, 0, 2)],
    ];
    assert_eq!(answers, expected);
    assert_eq!(read_all(store, &[]), Vec::<Vec<SegmentSlice>>::new());
}

pub(super) fn a_read_of_what_is_not_there_is_empty(store: &mut dyn Store) {
    let only = plain_segment(1, 0, 3);
    begin(store, core::slice::from_ref(&only));
    for (from, end) in [(3, 9), (0, 0), (2, 2), (2, 1), (1 << 62, 1 << 62)] {
        assert_eq!(read(store, partition_id(1), from, end), vec![], "{from} to {end}");
    }
    assert_eq!(read(store, partition_id(1), 2, 1 << 62), vec![slice(&only, 2, 3)]);
    assert_eq!(read(store, partition_id(9), 0, 9), vec![]);
}

pub(super) fn a_read_leaves_out_what_is_deleted(store: &mut dyn Store) {
    let segments = [plain_segment(1, 0, 3), plain_segment(1, 3, 3), plain_segment(1, 6, 2)];
    let mut owner = begin(store, &segments);
    owner.commit(store, vec![Write::Partition(PartitionRecord { log_start: 4, ..partition(1, 1) })]);
    assert_eq!(read(store, partition_id(1), 0, 9), vec![slice(&segments[1], 1, 3), slice(&segments[2], 0, 2)]);
    assert_eq!(read(store, partition_id(1), 0, 5), vec![slice(&segments[1], 1, 2)]);
    assert_eq!(read(store, partition_id(1), 0, 4), vec![]);
    owner.commit(store, vec![Write::Partition(PartitionRecord { log_start: 8, ..partition(1, 1) })]);
    assert_eq!(read(store, partition_id(1), 0, 9), vec![]);
    let next = plain_segment(1, 8, 1);
    owner.commit(store, vec![Write::Append(next.clone())]);
    assert_eq!(read(store, partition_id(1), 0, 9), vec![slice(&next, 0, 1)]);
}

pub(super) fn a_full_segment_comes_back_whole(store: &mut dyn Store) {
    let large = NewMessage { payload: Bytes::from(vec![0xa5; 4 * MAX_SEGMENT_BYTES]), ..message(0) };
    let many = MAX_SEGMENT_MESSAGES as u64;
    let segments = [plain_segment(1, 0, many), segment(1, many, vec![large])];
    begin(store, &segments);
    let expected = [slice(&segments[0], 0, MAX_SEGMENT_MESSAGES), slice(&segments[1], 0, 1)];
    assert!(read(store, partition_id(1), 0, many + 1) == expected);
    assert!(
        read(store, partition_id(1), many - 1, many)
            == [slice(&segments[0], MAX_SEGMENT_MESSAGES - 1, MAX_SEGMENT_MESSAGES)]
    );
}
