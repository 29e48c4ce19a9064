//! Logs that are not in memory: not loaded yet, put out of it, or too large for it. The answers are the same.

mod support;

use support::*;
use tidegate_core::command::*;
use tidegate_core::name::*;
use tidegate_core::options::{Labels, QueueOptions};
use tidegate_core::reply::*;
use tidegate_core::settings::Settings;
use tidegate_core::store::{Commit, CommitNo, Slot, StoreReply, StoreRequest, Write};
use tidegate_core::testkit::faulty::{Fault, RequestKind};
use tidegate_core::time::*;

const P: &[u8] = b"1";

fn configure(q: &str, change: impl FnOnce(&mut QueueOptions)) -> Command {
    let mut options = QueueOptions::configured();
    change(&mut options);
    Command::Configure { queue: queue(q), options, labels: Labels::derived(q) }
}

fn ids(from: usize, to: usize) -> Vec<String> {
    (from..to).map(|n| format!("id {n}")).collect()
}

fn push_ids(world: &mut World, q: &str, partition: &str, ids: &[String]) -> Vec<PushOutcome> {
    let items: Vec<(&str, &'static [u8])> = ids.iter().map(|id| (id.as_str(), P)).collect();
    pushed(&world.call(push(q, partition, &items))).to_vec()
}

/// The ids under which items are stored, whether they were before or not.
fn stored(outcomes: &[PushOutcome]) -> Vec<MessageId> {
    let id = |outcome: &PushOutcome| match outcome {
        PushOutcome::Queued(id) | PushOutcome::Duplicate(id) => *id,
        PushOutcome::Failed(_) => panic!("{outcome:?}"),
    };
    outcomes.iter().map(id).collect()
}

fn all_duplicates(outcomes: &[PushOutcome]) -> bool {
    outcomes.iter().all(|outcome| matches!(outcome, PushOutcome::Duplicate(_)))
}

fn tiny(bytes: u64) -> Settings {
    Settings { dedup_cache_bytes: bytes, ..Settings::default() }
}

#[test]
fn a_take_and_a_first_pop_ask_for_no_log() {
    let mut world = World::new();
    for n in 0..500 {
        assert!(queued(&world.call(push("q", &format!("p{n}"), &[("x", P)]))));
    }
    world.restart();
    let delivery = delivered(world.call(pop("q", 1)));
    assert_eq!(payloads(&delivery).len(), 1);
    assert_eq!(world.logs_asked, 0, "neither the take nor the pop needs a log");
    // The ack needs the one log that holds its batch.
    let Reply::Acked(outcomes) = world.call(ack(&delivery, AckStatus::Completed)) else { panic!() };
    assert!(outcomes[0].error.is_none());
    assert_eq!(world.logs_asked, 1);
}

#[test]
fn a_repeat_after_a_restart_is_a_duplicate_of_the_first() {
    // req: OPT-24, OPT-25
    let mut world = World::new();
    let all = ids(0, 300);
    let first = stored(&push_ids(&mut world, "q", "p", &all));
    world.restart();
    // Two at once: one load serves both.
    let one = world.start(push("q", "p", &[("id 7", P), ("new", P)]));
    let two = world.start(push("q", "p", &[("new", P)]));
    let (one, two) = (world.answer(one).expect("an answer"), world.answer(two).expect("an answer"));
    assert_eq!(pushed(&one)[0], PushOutcome::Duplicate(first[7]));
    let PushOutcome::Queued(new) = pushed(&one)[1] else { panic!("{one:?}") };
    assert_eq!(pushed(&two)[0], PushOutcome::Duplicate(new));
    let again = push_ids(&mut world, "q", "p", &all);
    assert!(all_duplicates(&again));
    assert_eq!(stored(&again), first);
}

#[test]
fn the_same_answers_come_with_a_tiny_budget() {
    // req: OPT-27
    for budget in [0, 3_000, 1 << 30] {
        let mut world = World::with(tiny(budget));
        let all = ids(0, 400);
        let mut first = Vec::new();
        for partition in 0..4 {
            for part in all.chunks(7) {
                first.extend(stored(&push_ids(&mut world, "q", &format!("p{partition}"), part)));
            }
        }
        for restart in [false, true] {
            if restart {
                world.restart();
            }
            for partition in [3, 0, 2, 1] {
                let again = push_ids(&mut world, "q", &format!("p{partition}"), &all);
                assert!(all_duplicates(&again), "with {budget} bytes");
                assert_eq!(stored(&again), first[partition * 400..][..400]);
                let counters = world.broker.counters();
                assert!(counters.log_bytes <= budget, "{} bytes of {budget}", counters.log_bytes);
            }
        }
        // A batch is acked id by id, across what was evicted meanwhile.
        let delivery = delivered(world.call(pop("q", 50)));
        assert_eq!(payloads(&delivery).len(), 50);
        let Reply::Acked(outcomes) = world.call(ack(&delivery, AckStatus::Completed)) else { panic!() };
        assert!(outcomes.iter().all(|outcome| outcome.error.is_none()), "with {budget} bytes: {outcomes:?}");
        let counters = world.broker.counters();
        assert_eq!(counters.logs_evicted > 0, budget < 1 << 30);
        assert_eq!(counters.logs_probed > 0, budget < 1 << 30, "what does not fit alone is probed");
    }
}

#[test]
fn a_transaction_over_logs_that_do_not_fit_together_is_carried_out() {
    // req: OPT-27
    for budget in [0, 9_000, 1 << 30] {
        let mut world = World::with(tiny(budget));
        let all = ids(0, 200);
        for partition in 0..6 {
            push_ids(&mut world, "q", &format!("p{partition}"), &all);
        }
        world.restart();
        let operation = |partition: u32, id: &str| {
            let Command::Push(push) = push("q", &format!("p{partition}"), &[(id, P)]) else { unreachable!() };
            let group = push.groups.into_iter().next().unwrap();
            let (_, message) = group.items.into_iter().next().unwrap();
            Operation::Push { queue: group.queue, partition: group.partition, message }
        };
        let transaction =
            |operations: Vec<Operation>| Command::Transaction(Transaction { operations, required_leases: Vec::new() });
        let new = world.call(transaction((0..6).map(|n| operation(n, "new")).collect()));
        assert!(matches!(&new, Reply::Transacted(Ok(outcomes)) if outcomes.len() == 6), "with {budget} bytes: {new:?}");
        let old = world.call(transaction((0..6).map(|n| operation(n, if n == 5 { "id 3" } else { "x" })).collect()));
        assert!(matches!(&old, Reply::Transacted(Err(RolledBack::Duplicate { .. }))), "with {budget} bytes: {old:?}");
    }
}

#[test]
fn a_widened_window_takes_back_what_had_left_it() {
    // req: OPT-28
    for budget in [0, 3_000, 1 << 30] {
        let mut world = World::with(tiny(budget));
        world.call(configure("q", |options| options.dedup_window_seconds = 5));
        let old = ids(0, 30);
        let first = stored(&push_ids(&mut world, "q", "p", &old));
        world.advance(Span::from_secs(20));
        // Evicts what a small budget does not hold.
        for n in 0..20 {
            push_ids(&mut world, "q", &format!("other {n}"), &ids(0, 30));
        }
        assert!(!all_duplicates(&push_ids(&mut world, "q", "p", &ids(30, 31))));
        world.call(configure("q", |options| options.dedup_window_seconds = 600));
        let again = push_ids(&mut world, "q", "p", &old);
        assert!(all_duplicates(&again), "with {budget} bytes");
        assert_eq!(stored(&again), first);
    }
}

#[test]
fn a_delay_holds_after_a_restart() {
    // req: OPT-10
    for budget in [0, 1 << 30] {
        let mut world = World::with(tiny(budget));
        world.call(configure("q", |options| options.delayed_processing = 30));
        assert!(queued(&world.call(push("q", "p", &[("a", b"a"), ("b", b"b")]))));
        world.advance(Span::from_secs(10));
        assert!(queued(&world.call(push("q", "p", &[("c", b"c"), ("d", b"d")]))));
        world.restart();
        assert_eq!(world.call(pop("q", 10)), Reply::Popped(None), "fifteen seconds old");
        let parked = world.start(long_pop("q", 10, Span::from_secs(60)));
        world.advance(Span::from_secs(14));
        assert_eq!(world.answer(parked), None);
        world.advance(Span::from_secs(2));
        let delivery = delivered(world.answer(parked).expect("due"));
        assert_eq!(payloads(&delivery), ["a", "b"], "with {budget} bytes");
    }
}

#[test]
fn a_load_that_fails_is_made_again_and_one_for_a_lost_slot_is_forgotten() {
    let mut world = World::new();
    push_ids(&mut world, "q", "p", &ids(0, 50));
    world.restart();
    let kind = tidegate_core::error::StoreErrorKind::Unavailable;
    world.store.script(Some(RequestKind::Load), Fault::Failed(kind));
    let call = world.start(push("q", "p", &[("id 1", P)]));
    assert_eq!(world.answer(call), None);
    world.advance(Span::from_secs(1));
    assert!(all_duplicates(pushed(&world.answer(call).expect("an answer"))));

    world.restart();
    let slow = Span::from_secs(1);
    world.store.script(Some(RequestKind::Load), Fault::Slow { request: slow, answer: slow });
    let call = world.start(push("q", "p", &[("id 1", P)]));
    world.take_by_stranger();
    world.advance(Span::from_secs(3));
    let answer = world.answer(call).expect("held for two seconds at most");
    assert_eq!(answer, Reply::Refused(tidegate_core::error::Rejection::NotOwner));
}

#[test]
fn options_changed_in_the_store_hold_within_the_refresh_interval() {
    // req: CFG-9, OPT-10
    let mut world = World::with(Settings { refresh: Span::from_secs(10), ..Settings::default() });
    world.call(configure("q", |options| options.delayed_processing = 3_600));
    assert!(queued(&world.call(push("q", "p", &[("a", b"a")]))));
    let parked = world.start(long_pop("q", 1, Span::from_secs(60)));
    world.advance(Span::from_secs(1));

    let change = |world: &mut World, number: u64, revision: u64, delay: i64| {
        let now = world.now.store;
        let list = StoreRequest::LoadQueues { slot: Slot(0), after: None };
        let StoreReply::Queues { queues, .. } = world.store.inner_mut().call(now, list) else { panic!() };
        let mut record = queues[0].clone();
        (record.revision, record.options.delayed_processing) = (revision, delay);
        let commit = Commit {
            fence: world.fence.expect("the owner has renewed"),
            number: CommitNo(number),
            time: now,
            acknowledged: [None, None],
            writes: vec![Write::Queue(Box::new(record))],
        };
        let answer = world.store.inner_mut().call(now, StoreRequest::Commit(commit));
        assert_eq!(answer, StoreReply::Committed);
    };
    // A version that is not later may be older than what memory knows.
    change(&mut world, 1 << 40, 0, 0);
    world.advance(Span::from_secs(11));
    assert_eq!(world.answer(parked), None);
    change(&mut world, (1 << 40) + 1, 7, 0);
    world.advance(Span::from_secs(11));
    let delivery = delivered(world.answer(parked).expect("woken by the change"));
    assert_eq!(payloads(&delivery), ["a"]);
    // The next configure call goes on from there.
    world.call(configure("q", |options| options.delayed_processing = 0));
    let list = StoreRequest::LoadQueues { slot: Slot(0), after: None };
    let StoreReply::Queues { queues, .. } = world.store.inner_mut().call(world.now.store, list) else { panic!() };
    assert_eq!(queues[0].revision, 8);
}
