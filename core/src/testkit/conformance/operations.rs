//! Traces and activity: kept, found, merged, dropped.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use bytes::Bytes;
use compact_str::CompactString;
use uuid::Uuid;

use super::Store;
use super::owner::{Owner, SLOT, ask};
use super::samples::{partition, queue_with_partition};
use crate::activity::{Activity, ActivityRow};
use crate::name::{GroupName, PartitionId, PartitionName, QueueName, TenantId};
use crate::record::TraceRecord;
use crate::store::{StoreReply, StoreRequest, TraceName, TracesOf, Write};
use crate::time::{Span, Timestamp};

const TENANT: TenantId = TenantId::DEFAULT;
const OTHER: TenantId = TenantId(Uuid::from_u128(9));

fn at(secs: i64) -> Timestamp {
    Timestamp::from_micros(1_767_225_600_000_000).plus(Span::from_secs(secs))
}

/// The `n`th trace: every other one is of message `a\0b`, named `even`, all are named `all`.
fn trace(n: u8, tenant: TenantId) -> TraceRecord {
    let text = |text: &str| CompactString::new(text);
    let names = if n.is_multiple_of(2) { vec![text("all"), text("even")] } else { vec![text("all")] };
    TraceRecord {
        id: Uuid::from_u128(u128::from(n) << 64 | tenant.0.as_u128()),
        tenant,
        partition: partition(1, 1).id,
        transaction: text(if n.is_multiple_of(2) { "a\0b" } else { "odd" }),
        queue: QueueName::new("é \"q\"").expect("a name"),
        partition_name: PartitionName::new("p").expect("a name"),
        group: GroupName::queue_mode(),
        event: text("info"),
        data: Bytes::from_static(b"{\"b\": 1.0, \"a\":\"\\u0000\"}"),
        names,
        created: at(n.into()),
    }
}

fn begin(store: &mut dyn Store) -> Owner {
    let mut owner = Owner::of(store, SLOT, 1);
    owner.commit(store, queue_with_partition(1));
    for n in 1..=4 {
        owner.commit(store, vec![Write::Trace(Box::new(trace(n, TENANT)))]);
    }
    owner.commit(store, vec![Write::Trace(Box::new(trace(5, OTHER)))]);
    owner
}

fn traces(store: &mut dyn Store, tenant: TenantId, of: TracesOf) -> (Vec<TraceRecord>, u64) {
    match ask(store, StoreRequest::ReadTraces { slot: SLOT, tenant, of }) {
        StoreReply::Traces { rows, total } => (rows, total),
        other => panic!("a read of traces is answered {other:?}"),
    }
}

fn named(name: &str, limit: u64, offset: u64) -> TracesOf {
    TracesOf::Name { name: name.into(), limit, offset }
}

pub(super) fn traces_are_found_by_message(store: &mut dyn Store) {
    begin(store);
    let of = |transaction: &str| TracesOf::Message(partition(1, 1).id, transaction.into());
    assert_eq!(traces(store, TENANT, of("a\0b")), (vec![trace(2, TENANT), trace(4, TENANT)], 2));
    assert_eq!(traces(store, TENANT, of("nope")), (vec![], 0));
    assert_eq!(traces(store, OTHER, of("a\0b")), (vec![], 0));
    let elsewhere = TracesOf::Message(PartitionId(Uuid::from_u128(77)), "odd".into());
    assert_eq!(traces(store, TENANT, elsewhere), (vec![], 0));
}

pub(super) fn traces_are_found_by_name_newest_first(store: &mut dyn Store) {
    begin(store);
    assert_eq!(traces(store, TENANT, named("even", 9, 0)), (vec![trace(4, TENANT), trace(2, TENANT)], 2));
    assert_eq!(traces(store, TENANT, named("all", 2, 1)), (vec![trace(3, TENANT), trace(2, TENANT)], 4));
    assert_eq!(traces(store, TENANT, named("all", 2, 9)), (vec![], 4));
    assert_eq!(traces(store, TENANT, named("all", u64::MAX, 0)).0.len(), 4);
    assert_eq!(traces(store, OTHER, named("all", 9, 0)), (vec![trace(5, OTHER)], 1));
}

pub(super) fn names_of_traces_are_counted(store: &mut dyn Store) {
    begin(store);
    let names = |store: &mut dyn Store, limit, offset| match ask(
        store,
        StoreRequest::ReadTraceNames { slot: SLOT, tenant: TENANT, limit, offset },
    ) {
        StoreReply::TraceNames { rows, total } => (rows, total),
        other => panic!("a read of names is answered {other:?}"),
    };
    let all = TraceName { name: "all".into(), traces: 4, messages: 2, last: at(4) };
    let even = TraceName { name: "even".into(), traces: 2, messages: 1, last: at(4) };
    assert_eq!(names(store, 9, 0), (vec![all, even.clone()], 2));
    assert_eq!(names(store, 9, 1), (vec![even], 2));
    assert_eq!(names(store, 9, 2), (vec![], 2));
}

pub(super) fn traces_outlive_their_queue(store: &mut dyn Store) {
    let mut owner = begin(store);
    owner.commit(store, vec![Write::EndQueue(partition(1, 1).queue)]);
    assert_eq!(traces(store, TENANT, named("all", 9, 0)).1, 4);
}

fn minute(n: i64, queue: &str, messages: u64, lag: u64) -> Write {
    let activity = Activity { push_messages: messages, lag_max_ms: lag, transactions: 1, ..Activity::default() };
    let queue = QueueName::new(queue).expect("a name");
    Write::Activity(Box::new(ActivityRow { start: at(60 * n), tenant: TENANT, queue, activity }))
}

fn activity(
    store: &mut dyn Store,
    queue: Option<&str>,
    (from, until): (i64, i64),
    minutes: i64,
) -> Vec<(i64, u64, u64)> {
    let request = StoreRequest::ReadActivity {
        slot: SLOT,
        tenant: TENANT,
        queue: queue.map(|queue| QueueName::new(queue).expect("a name")),
        from: at(60 * from),
        until: at(60 * until),
        bucket: Span::from_secs(60 * minutes),
    };
    match ask(store, request) {
        StoreReply::Activity(rows) => rows
            .into_iter()
            .map(|row| (row.start.since(at(0)).as_secs() / 60, row.activity.push_messages, row.activity.lag_max_ms))
            .collect(),
        other => panic!("a read of activity is answered {other:?}"),
    }
}

pub(super) fn activity_is_merged_into_buckets(store: &mut dyn Store) {
    let mut owner = Owner::of(store, SLOT, 1);
    owner.commit(store, vec![minute(0, "a", 1, 5), minute(1, "a", 2, 9), minute(0, "b", 7, 0)]);
    owner.commit(store, vec![minute(1, "a", 10, 3), minute(7, "a", 4, 1)]);
    assert_eq!(activity(store, None, (0, 9), 1), [(0, 1, 5), (0, 7, 0), (1, 12, 9), (7, 4, 1)]);
    assert_eq!(activity(store, Some("a"), (0, 9), 5), [(0, 13, 9), (5, 4, 1)]);
    assert_eq!(activity(store, Some("a"), (1, 7), 1), [(1, 12, 9)], "from is in it, until is not");
    assert_eq!(activity(store, Some("nope"), (0, 9), 1), []);
}

pub(super) fn dropped_activity_goes_oldest_first(store: &mut dyn Store) {
    let mut owner = Owner::of(store, SLOT, 1);
    owner.commit(store, (0..4).map(|n| minute(n, "a", 1, 0)).collect());
    owner.commit(store, vec![Write::DropActivity { before: at(180), limit: 2 }]);
    assert_eq!(activity(store, None, (0, 9), 1), [(2, 1, 0), (3, 1, 0)]);
    owner.commit(store, vec![Write::DropActivity { before: at(180), limit: 2 }]);
    assert_eq!(activity(store, None, (0, 9), 1), [(3, 1, 0)]);
}
