//! The broker over a store that misbehaves on command: group commit, fencing, unknown outcomes, slots.

mod support;

use support::*;
use tidegate_core::broker::Broker;
use tidegate_core::command::*;
use tidegate_core::error::{Rejection, StoreErrorKind};
use tidegate_core::name::{GroupName, PartitionName, TransactionHash, TransactionId};
use tidegate_core::reply::*;
use tidegate_core::settings::Settings;
use tidegate_core::testkit::faulty::{Fault, RequestKind};
use tidegate_core::time::*;

const SECOND: Span = Span::from_secs(1);
const SLOW: Fault = Fault::Slow { request: Span::from_millis(5), answer: Span::from_millis(5) };

fn fault_next_commit(world: &mut World, fault: Fault) {
    world.store.script(Some(RequestKind::Commit), fault);
}

#[test]
fn a_message_goes_from_push_to_pop_to_ack() {
    let mut world = World::new();
    assert!(queued(&world.call(push("q", "p", &[("a", b"1"), ("b", b"2")]))));
    let again = world.call(push("q", "p", &[("a", b"1")]));
    assert!(matches!(pushed(&again), [PushOutcome::Duplicate(_)]));
    let delivery = delivered(world.call(pop("q", 10)));
    assert_eq!(payloads(&delivery), ["1", "2"]);
    assert_eq!(world.call(pop("q", 10)), Reply::Popped(None));
    let Reply::Acked(outcomes) = world.call(ack(&delivery, AckStatus::Completed)) else { panic!() };
    assert!(outcomes.iter().all(|outcome| outcome.error.is_none()));
    assert_eq!(world.call(pop("q", 10)), Reply::Popped(None));
}

#[test]
fn what_a_commit_in_flight_writes_waits_and_goes_together_in_the_next() {
    // req: OPT-25
    let mut world = World::new();
    world.call(push("q", "p", &[("0", b"0")]));
    world.store.set_latency(Span::from_millis(5), Span::from_millis(5));
    let before = world.broker.counters().commits;
    let ids: Vec<RequestId> = (0..10).map(|_| world.start(push("q", "p", &[("x", b"1")]))).collect();
    world.advance(Span::from_micros(9_999));
    assert!(ids.iter().all(|id| world.answer(*id).is_none()), "nothing is decided before the first is durable");
    world.advance(Span::from_micros(1));
    assert!(queued(&world.answer(ids[0]).unwrap()));
    world.advance(Span::from_millis(10));
    let twins: Vec<Reply> = ids.iter().filter_map(|id| world.answer(*id)).collect();
    assert_eq!(twins.len(), 9, "the others are duplicates of a durable message, whose id was read to be sure");
    assert!(twins.iter().all(|twin| matches!(pushed(twin), [PushOutcome::Duplicate(_)])));
    assert_eq!(world.broker.counters().commits, before + 1, "and duplicates write nothing");

    let ids: Vec<RequestId> = (0..10)
        .map(|n| world.start(push("q", "p", &[(["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"][n], b"1")])))
        .collect();
    world.advance(Span::from_millis(20));
    assert!(ids.iter().all(|id| queued(&world.answer(*id).unwrap())));
    assert_eq!(world.broker.counters().commits, before + 3, "one alone, nine together");
}

#[test]
fn ids_that_only_share_a_hash_are_no_duplicates() {
    // scn: 18
    let mut world = World::new();
    let forged = |text: &str| {
        let Command::Push(mut push) = push("q", "p", &[("", b"1")]) else { unreachable!() };
        push.groups[0].items[0].1.transaction = Some(TransactionId::with_hash(text, TransactionHash(7)));
        Command::Push(push)
    };
    assert!(queued(&world.call(forged("mine"))));
    assert!(queued(&world.call(forged("a stranger's"))));
    let twin = world.call(forged("mine"));
    assert!(matches!(pushed(&twin), [PushOutcome::Duplicate(_)]));
    // In one commit, before anything of it is stored.
    world.store.set_latency(Span::from_millis(1), Span::from_millis(1));
    world.start(push("q", "p", &[("busy", b"0")]));
    let ids = [forged("x"), forged("y"), forged("x")].map(|command| world.start(command));
    world.advance(SECOND);
    let answers = ids.map(|id| world.answer(id).unwrap());
    assert!(queued(&answers[0]) && queued(&answers[1]));
    assert!(matches!(pushed(&answers[2]), [PushOutcome::Duplicate(_)]));
    assert_eq!(payloads(&delivered(world.call_slowly(pop("q", 9)))).len(), 5);
}

#[test]
fn two_commits_are_in_flight_at_most() {
    let mut world = World::new();
    for partition in ["1", "2", "3", "4"] {
        world.call(push("q", partition, &[("0", b"0")]));
    }
    world.store.set_latency(Span::from_millis(5), Span::from_millis(5));
    let before = world.broker.counters().commits;
    let ids: Vec<RequestId> = ["1", "2", "3", "4"].map(|p| world.start(push("q", p, &[("1", b"1")]))).to_vec();
    assert_eq!(world.broker.counters().commits, before + 2);
    world.advance(Span::from_millis(10));
    assert!(world.answer(ids[0]).is_some() && world.answer(ids[1]).is_some());
    assert!(world.answer(ids[2]).is_none() && world.answer(ids[3]).is_none());
    assert_eq!(world.broker.counters().commits, before + 3, "what gathered goes in one");
}

#[test]
fn a_push_that_the_store_refused_is_stored_when_it_comes_again() {
    // scn: 15
    let mut world = World::new();
    for fault in [Fault::Failed(StoreErrorKind::Unavailable), Fault::Failed(StoreErrorKind::CannotWrite)] {
        for (queue, partition) in [("new", "p"), ("new", "p"), ("other", "p")] {
            fault_next_commit(&mut world, fault);
            let id = ["a", "b", "c"][usize::from(queue == "other")];
            let refused = world.call(push(queue, partition, &[(id, b"1")]));
            assert_eq!(refused, Reply::Refused(Rejection::StoreUnavailable));
        }
    }
    assert_eq!(world.call(Command::ListQueues), Reply::Queues(vec![]));
    assert!(queued(&world.call(push("new", "p", &[("a", b"1")]))));
    fault_next_commit(&mut world, Fault::Failed(StoreErrorKind::Unavailable));
    assert_eq!(world.call(push("new", "p", &[("b", b"2")])), Reply::Refused(Rejection::StoreUnavailable));
    assert!(queued(&world.call(push("new", "p", &[("b", b"2")]))));
    assert_eq!(payloads(&delivered(world.call(pop("new", 9)))), ["1", "2"]);
}

#[test]
fn a_refused_pop_or_ack_changes_nothing() {
    let mut world = World::new();
    world.call(push("q", "p", &[("a", b"1")]));
    world.call(pop("other", 1));
    let refused = Reply::Refused(Rejection::StoreUnavailable);
    fault_next_commit(&mut world, Fault::Failed(StoreErrorKind::Unavailable));
    assert_eq!(world.call(pop("q", 1)), refused, "its registration failed");
    let delivery = delivered(world.call(pop("q", 1)));
    fault_next_commit(&mut world, Fault::Failed(StoreErrorKind::Unavailable));
    assert_eq!(world.call(ack(&delivery, AckStatus::Failed)), refused);
    let Reply::Acked(outcomes) = world.call(ack(&delivery, AckStatus::Completed)) else { panic!() };
    assert_eq!(outcomes[0].error, None, "the lease still holds");
    world.call(push("q", "p", &[("b", b"2")]));
    fault_next_commit(&mut world, Fault::Failed(StoreErrorKind::Unavailable));
    assert_eq!(world.call(pop("q", 1)), refused);
    assert_eq!(payloads(&delivered(world.call(pop("q", 1)))), ["2"]);
}

#[test]
fn what_is_committed_on_delivery_is_read_until_it_is_there() {
    let mut world = World::new();
    world.call(push("q", "p", &[("a", b"1"), ("b", b"2")]));
    for _ in 0..3 {
        world.store.script(Some(RequestKind::Read), Fault::Failed(StoreErrorKind::Unavailable));
    }
    let Command::Pop(pop) = pop("q", 1) else { unreachable!() };
    let id = world.start(Command::Pop(Pop { auto_ack: true, ..pop.clone() }));
    assert_eq!(world.answer(id), None);
    world.advance(SECOND);
    assert_eq!(payloads(&delivered(world.answer(id).unwrap())), ["1"]);
    // A leased batch is given back instead.
    world.store.script(Some(RequestKind::Read), Fault::Failed(StoreErrorKind::Unavailable));
    assert_eq!(world.call(Command::Pop(pop.clone())), Reply::Refused(Rejection::StoreUnavailable));
    assert_eq!(payloads(&delivered(world.call(Command::Pop(pop)))), ["2"]);
}

#[test]
fn a_late_read_answers_nobody_else() {
    let mut world = World::new();
    world.call(push("q", "p", &[("a", b"wrong")]));
    world.call(push("r", "p", &[("a", b"right")]));
    world.call(pop("q2", 1));
    let lease = delivered(world.call(pop("q", 1)));
    world.call(ack(&lease, AckStatus::Retry));
    let lease = delivered(world.call(pop("r", 1)));
    world.call(ack(&lease, AckStatus::Retry));
    fault_next_commit(&mut world, Fault::Failed(StoreErrorKind::Unavailable));
    world.store.script(Some(RequestKind::Read), Fault::Slow { request: SECOND, answer: Span::ZERO });
    assert_eq!(world.call(pop("q", 1)), Reply::Refused(Rejection::StoreUnavailable));
    world.store.script(Some(RequestKind::Read), Fault::Slow { request: Span::from_secs(2), answer: Span::ZERO });
    let id = world.start(pop("r", 1));
    world.advance(Span::from_secs(3));
    assert_eq!(payloads(&delivered(world.answer(id).unwrap())), ["right"]);
}

#[test]
fn a_group_that_is_deleted_starts_anew_for_its_parked_pops() {
    let mut world = World::new();
    world.call(push("q", "p", &[("a", b"1")]));
    let Command::Pop(any) = long_pop("q", 1, Span::from_secs(30)) else { unreachable!() };
    let one = Pop { scope: PopScope::Partition(queue("q"), PartitionName::new("p").unwrap()), ..any.clone() };
    for scope in [Command::Pop(any), Command::Pop(one)] {
        let group = GroupName::new("g").unwrap();
        let Command::Pop(pop) = scope else { unreachable!() };
        let pop = Command::Pop(Pop { group: group.clone(), ..pop });
        let delivery = delivered(world.call(pop.clone()));
        let Command::Ack(ack) = ack(&delivery, AckStatus::Completed) else { unreachable!() };
        world.call(Command::Ack(Ack { group: group.clone(), ..ack }));
        let parked = world.start(pop);
        assert_eq!(world.answer(parked), None);
        world.call(Command::DeleteGroup { group: group.clone(), queue: None, metadata: true });
        assert_eq!(payloads(&delivered(world.answer(parked).unwrap())), ["1"]);
        world.call(Command::DeleteGroup { group, queue: None, metadata: true });
    }
}

#[test]
fn an_unknown_outcome_is_settled_and_never_guessed() {
    for (fault, stored) in [
        (Fault::AnswerLost, true),
        (Fault::RequestLost, false),
        // It arrives after the epoch was raised: fenced for good.
        (Fault::Late(Span::from_millis(50)), false),
    ] {
        let mut world = World::new();
        world.call(push("q", "p", &[("a", b"1")]));
        fault_next_commit(&mut world, fault);
        let reply = world.call(push("q", "p", &[("b", b"2")]));
        match stored {
            true => assert!(queued(&reply), "{fault:?}"),
            false => assert_eq!(reply, Reply::Refused(Rejection::StoreUnavailable), "{fault:?}"),
        }
        world.advance(SECOND);
        let again = world.call(push("q", "p", &[("b", b"2")]));
        assert_eq!(matches!(pushed(&again), [PushOutcome::Duplicate(_)]), stored, "{fault:?}");
        assert_eq!(payloads(&delivered(world.call(pop("q", 9)))), ["1", "2"], "{fault:?}");
        assert_eq!(world.broker.counters().slots_lost, 0, "a fence by the own raise is not a lost slot");
    }
}

#[test]
fn commits_go_on_after_a_settling() {
    let mut world = World::new();
    fault_next_commit(&mut world, Fault::AnswerLost);
    for id in ["a", "b", "c", "d"] {
        assert!(queued(&world.call(push("q", "p", &[(id, b"1")]))), "{id}");
    }
    world.advance(Span::from_secs(5));
    let counters = world.broker.counters();
    assert_eq!((counters.suffixes_lost, counters.slots_lost, counters.unknown_settled), (0, 0, 1));
}

#[test]
fn both_commits_in_flight_are_settled_by_one_raise() {
    let mut world = World::new();
    world.call(push("q", "1", &[("0", b"0")]));
    world.call(push("q", "2", &[("0", b"0")]));
    world.store.set_latency(Span::from_millis(1), Span::from_millis(1));
    fault_next_commit(&mut world, Fault::Late(Span::from_millis(9)));
    fault_next_commit(&mut world, Fault::Slow { request: Span::from_millis(9), answer: Span::from_millis(1) });
    let first = world.start(push("q", "1", &[("1", b"1")]));
    let second = world.start(push("q", "2", &[("1", b"1")]));
    world.advance(SECOND);
    let lost = Some(Reply::Refused(Rejection::StoreUnavailable));
    assert_eq!(world.answer(first), lost);
    assert_eq!(world.answer(second), lost, "the raise shut it out before it arrived");
    world.store.set_latency(Span::ZERO, Span::ZERO);
    assert!(queued(&world.call(push("q", "1", &[("1", b"1")]))));
    assert!(queued(&world.call(push("q", "2", &[("1", b"1")]))));
}

#[test]
fn a_commit_that_is_fenced_during_a_settling_is_answered() {
    let mut world = World::new();
    world.call(push("q", "1", &[("0", b"0")]));
    world.call(push("q", "2", &[("0", b"0")]));
    world.store.set_latency(Span::from_millis(1), Span::from_millis(1));
    world.take_by_stranger();
    fault_next_commit(&mut world, Fault::RequestLost);
    let first = world.start(push("q", "1", &[("1", b"1")]));
    let second = world.start(push("q", "2", &[("1", b"1")]));
    world.advance(SECOND);
    assert_eq!(world.answer(first), Some(Reply::Refused(Rejection::OutcomeUnknown)));
    assert!(matches!(world.answer(second), Some(Reply::Refused(_))), "fenced while the first was being settled");
}

#[test]
fn a_settling_whose_own_answers_are_lost_goes_on() {
    let mut world = World::new();
    world.call(push("q", "p", &[("a", b"1")]));
    fault_next_commit(&mut world, Fault::AnswerLost);
    world.store.script(Some(RequestKind::Settle), Fault::AnswerLost);
    world.store.script(Some(RequestKind::Settle), Fault::RequestLost);
    world.store.script(Some(RequestKind::Watch), Fault::RequestLost);
    assert!(queued(&world.call(push("q", "p", &[("b", b"2")]))));
    assert_eq!(world.broker.counters().slots_lost, 0);
    assert!(queued(&world.call(push("q", "p", &[("c", b"3")]))));
}

#[test]
fn a_settling_that_a_stranger_cut_short_does_not_mislead_the_next() {
    let mut world = World::new();
    fault_next_commit(&mut world, Fault::AnswerLost);
    world.store.script(Some(RequestKind::Settle), Fault::Held);
    let id = world.start(push("q", "p", &[("a", b"1")]));
    world.take_by_stranger();
    let now = world.now.store;
    world.store.deliver_held(now);
    world.pump();
    assert_eq!(world.answer(id), Some(Reply::Refused(Rejection::OutcomeUnknown)));
    world.advance(Span::from_secs(5));
    fault_next_commit(&mut world, Fault::AnswerLost);
    assert!(
        queued(&world.call(push("q", "p", &[("b", b"2")]))),
        "it is there, and the settling asks for its own epoch"
    );
    assert_eq!(payloads(&delivered(world.call(pop("q", 9)))), ["1", "2"]);
}

#[test]
fn callers_wait_ten_seconds_for_an_outcome_at_most() {
    let mut world = World::new();
    world.call(push("q", "p", &[("a", b"1")]));
    fault_next_commit(&mut world, Fault::Held);
    let push_id = world.start(push("q", "p", &[("b", b"2")]));
    let behind = world.start(push("q", "p", &[("c", b"3")]));
    world.advance(Span::from_micros(9_999_999));
    assert_eq!(world.answer(push_id), None);
    world.advance(Span::from_micros(1));
    assert_eq!(world.answer(push_id), Some(Reply::Refused(Rejection::OutcomeUnknown)));
    assert_eq!(world.answer(behind), Some(Reply::Refused(Rejection::StoreUnavailable)), "it was never sent");
    let now = world.now.store;
    world.store.deliver_held(now);
    world.pump();
    let again = world.call(push("q", "p", &[("b", b"2")]));
    assert!(matches!(pushed(&again), [PushOutcome::Duplicate(_)]), "what arrived late is known");
    assert!(queued(&world.call(push("q", "p", &[("c", b"3")]))));
}

#[test]
fn a_stranger_who_takes_the_slot_fences_everything() {
    let mut world = World::new();
    world.call(push("q", "p", &[("a", b"1")]));
    let delivery = delivered(world.call(pop("q", 1)));
    world.take_by_stranger();
    let fenced = world.start(push("q", "p", &[("b", b"2")]));
    let parked = world.start(long_pop("q", 1, Span::from_secs(30)));
    assert_eq!(world.answer(fenced), Some(Reply::Refused(Rejection::NotOwner)), "it was certainly not carried out");
    let held = world.start(push("q", "p", &[("c", b"3")]));
    world.advance(Span::from_micros(1_999_999));
    assert_eq!(world.answer(held), None);
    world.advance(Span::from_micros(1));
    assert_eq!(world.answer(held), Some(Reply::Refused(Rejection::NotOwner)));
    // The stranger never renews: after 3.5 s on our own clock the slot is ours again, reloaded.
    world.advance(Span::from_secs(2));
    assert_eq!(world.broker.counters().slots_taken, 2);
    assert!(queued(&world.call(push("q", "p", &[("c", b"3")]))));
    let Reply::Acked(outcomes) = world.call(ack(&delivery, AckStatus::Completed)) else { panic!() };
    assert_eq!(outcomes[0].error, None, "leases are stored");
    assert_eq!(payloads(&delivered(world.answer(parked).unwrap())), ["3"], "a parked pop waits within its own wait");
}

#[test]
fn memory_is_trusted_for_three_seconds_after_the_last_renewal_was_sent() {
    let mut world = World::new();
    world.call(push("q", "p", &[("a", b"1")]));
    world.store.set_outage(Some(StoreErrorKind::Unavailable));
    let start = world.now.monotonic;
    world.advance(Span::from_millis(2_900));
    assert_eq!(world.call(Command::DescribeQueue { queue: queue("none") }), Reply::Queue(None));
    world.advance(Span::from_millis(200));
    let late = world.start(Command::DescribeQueue { queue: queue("none") });
    let pop_id = world.start(pop("q", 1));
    assert_eq!(world.answer(late), None);
    world.advance(Span::from_secs(2));
    assert_eq!(world.answer(late), Some(Reply::Refused(Rejection::NotOwner)));
    assert_eq!(world.answer(pop_id), Some(Reply::Refused(Rejection::NotOwner)), "never an empty queue");
    world.store.set_outage(None);
    world.advance(SECOND);
    assert_eq!(world.call(Command::DescribeQueue { queue: queue("none") }), Reply::Queue(None));
    assert_eq!(world.broker.counters().slots_lost, 0, "the slot was never another's");
    assert!(world.now.monotonic.since(start) < Span::from_secs(7));
}

#[test]
fn a_lost_suffix_is_seen_counted_and_reloaded() {
    let mut world = World::new();
    world.call(push("q", "p", &[("a", b"1")]));
    world.call(push("q", "p", &[("b", b"2")]));
    fault_next_commit(&mut world, Fault::SuffixLost(1));
    let reply = world.call(push("q", "p", &[("c", b"3")]));
    assert_eq!(reply, Reply::Refused(Rejection::StoreUnavailable));
    world.pump();
    assert_eq!(world.broker.counters().suffixes_lost, 1);
    assert_eq!(world.broker.counters().slots_taken, 2, "nobody else has the slot: it is taken anew at once");
    assert!(queued(&world.call(push("q", "p", &[("b", b"2")]))), "its first copy is gone from the store");
    assert_eq!(payloads(&delivered(world.call(pop("q", 9)))), ["1", "2"]);
}

#[test]
fn another_broker_takes_over_at_once_after_a_drain() {
    let mut world = World::new();
    world.call(push("q", "p", &[("a", b"1")]));
    let parked = world.start(long_pop("other", 1, Span::from_secs(30)));
    world.broker.drain(world.now);
    world.pump();
    assert_eq!(world.answer(parked), Some(Reply::Popped(None)));
    assert_eq!(world.call(pop("q", 1)), Reply::Refused(Rejection::Draining));
    assert!(world.broker.drained());
    world.broker = Broker::new(Settings::default(), [8; 32]);
    world.pump();
    assert_eq!(payloads(&delivered(world.call(pop("q", 1)))), ["1"]);
}

#[test]
fn a_running_commit_finishes_before_the_slot_is_released() {
    let mut world = World::new();
    fault_next_commit(&mut world, SLOW);
    let id = world.start(push("q", "p", &[("a", b"1")]));
    world.broker.drain(world.now);
    world.pump();
    assert!(!world.broker.drained());
    world.advance(Span::from_millis(10));
    assert!(queued(&world.answer(id).unwrap()));
    assert!(world.broker.drained());
}

#[test]
fn a_client_that_left_gets_no_lease() {
    // scn: 24
    let mut world = World::new();
    let parked = world.start(long_pop("q", 1, Span::from_secs(30)));
    let next = world.start(long_pop("q", 1, Span::from_secs(30)));
    world.broker.gone(world.now, parked);
    world.call(push("q", "p", &[("a", b"1")]));
    assert_eq!(world.answer(parked), None);
    assert_eq!(payloads(&delivered(world.answer(next).unwrap())), ["1"]);
    // Answered, but the answer could not be written: the lease ends at once.
    world.call(push("q", "p", &[("b", b"2")]));
    world.advance(Span::from_secs(61));
    let id = world.start(pop("q", 1));
    assert!(world.replies.iter().any(|(other, _)| *other == id));
    world.broker.gone(world.now, id);
    world.pump();
    assert_eq!(payloads(&delivered(world.call(pop("q", 1)))), ["1"]);
    assert_eq!(world.broker.counters().given_back, 1);
}

#[test]
fn a_client_that_waits_no_longer_is_given_what_is_decided_and_nothing_later() {
    let mut world = World::new();
    let parked = world.start(long_pop("q", 1, Span::from_secs(30)));
    world.broker.stop_waiting(world.now, parked);
    world.pump();
    assert_eq!(world.answer(parked), Some(Reply::Popped(None)));
    world.call(push("q", "p", &[("a", b"1"), ("b", b"2")]));
    world.store.set_latency(Span::from_millis(1), Span::from_millis(1));
    let deciding = world.start(long_pop("q", 1, Span::from_secs(30)));
    let behind = world.start(long_pop("q", 1, Span::from_secs(30)));
    for id in [deciding, behind] {
        world.broker.stop_waiting(world.now, id);
    }
    world.advance(Span::from_millis(10));
    assert_eq!(payloads(&delivered(world.answer(deciding).unwrap())), ["1"]);
    assert_eq!(world.answer(behind), Some(Reply::Popped(None)), "the rest is behind the first one's lease");
}

#[test]
fn deleted_queues_are_trimmed_in_steps() {
    let mut world = World::new();
    for n in 0..5_000u32 {
        let partition = format!("p{}", n % 7);
        world.call(push("q", &partition, &[(format!("{n}").as_str(), b"1")]));
    }
    assert_eq!(world.call(Command::DeleteQueue { queue: queue("q") }), Reply::QueueDeleted { existed: true });
    assert_eq!(world.call(Command::DeleteQueue { queue: queue("q") }), Reply::QueueDeleted { existed: false });
    assert_eq!(world.call(pop("q", 1)), Reply::Popped(None));
    assert!(queued(&world.call(push("q", "p0", &[("0", b"new")]))), "a fresh queue with a fresh window");
}
