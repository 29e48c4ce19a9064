//! The faulty store does what it is told, and nothing else: what the simulation believes about faults rests on it.

use tidegate_core::error::StoreErrorKind;
use tidegate_core::store::{
    Commit, CommitKey, CommitNo, Epoch, Fence, Slot, StoreAnswer, StoreCall, StoreReply, StoreRequest, Token,
};
use tidegate_core::testkit::conformance;
use tidegate_core::testkit::faulty::{Fault, Faulty, RequestKind};
use tidegate_core::time::{Span, Timestamp};
use tidegate_store_memory::MemoryStore;

const FENCE: Fence = Fence { slot: Slot(0), epoch: Epoch(1), token: Token(7) };

/// A store whose slot is taken under `FENCE`.
fn owned() -> Faulty<MemoryStore> {
    let mut store = Faulty::new(MemoryStore::new()).remembering(3);
    let take = StoreRequest::Take { slot: FENCE.slot, seen: Epoch(0), token: FENCE.token, owner: "test".into() };
    store.submit(at(0), StoreCall(0), take);
    assert_eq!(reply(&mut store, 0), Some((0, StoreReply::Taken(FENCE.epoch))));
    store
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::EPOCH.plus(Span::from_secs(seconds))
}

fn commit(number: u64) -> StoreRequest {
    let number = CommitNo(number);
    StoreRequest::Commit(Commit {
        fence: FENCE,
        number,
        time: Timestamp::EPOCH,
        acknowledged: [None, None],
        writes: vec![],
    })
}

/// The call and the reply of the next answer that is there after so many seconds.
fn reply(store: &mut Faulty<MemoryStore>, seconds: i64) -> Option<(u64, StoreReply)> {
    store.poll(at(seconds)).map(|answer| (answer.call.0, answer.reply))
}

/// Which of the first commits are in the store.
fn there<const N: usize>(store: &Faulty<MemoryStore>) -> [bool; N] {
    let unknown = (1..).take(N).map(|number| CommitKey { epoch: FENCE.epoch, number: CommitNo(number) }).collect();
    let settle = StoreRequest::Settle { fence: FENCE, token: Token(8), unknown };
    match store.inner().clone().call(at(0), settle) {
        StoreReply::Settled { committed, .. } => committed.try_into().expect("an answer for each"),
        other => panic!("a settling is answered {other:?}"),
    }
}

#[test]
fn without_faults_it_keeps_every_promise() {
    conformance::every_promise(&mut || Box::new(Faulty::new(MemoryStore::new())));
}

#[test]
fn refusals_leave_the_store_alone() {
    let mut store = owned();
    store.submit_with(at(1), StoreCall(1), commit(1), Fault::Fenced);
    store.submit_with(at(1), StoreCall(2), commit(2), Fault::Failed(StoreErrorKind::CannotWrite));
    store.submit_with(at(1), StoreCall(3), commit(3), Fault::RequestLost);
    assert_eq!(reply(&mut store, 1), Some((1, StoreReply::Fenced)));
    assert!(
        matches!(reply(&mut store, 1), Some((2, StoreReply::Failed(error))) if error.kind == StoreErrorKind::CannotWrite)
    );
    assert_eq!(reply(&mut store, 1), Some((3, StoreReply::Unknown)));
    assert_eq!((reply(&mut store, 99), there(&store)), (None, [false; 3]));
}

#[test]
fn a_lost_answer_is_of_a_commit_that_happened() {
    let mut store = owned();
    store.submit_with(at(1), StoreCall(1), commit(1), Fault::AnswerLost);
    assert_eq!((reply(&mut store, 1), there(&store)), (Some((1, StoreReply::Unknown)), [true]));
}

#[test]
fn a_late_commit_happens_after_its_answer_unless_the_fence_has_changed() {
    let mut store = owned();
    store.submit_with(at(1), StoreCall(1), commit(1), Fault::Late(Span::from_secs(4)));
    assert_eq!((reply(&mut store, 1), there(&store)), (Some((1, StoreReply::Unknown)), [false]));
    assert_eq!(store.next_event(), Some(at(5)));
    let mut settled = store.clone();
    assert_eq!((reply(&mut store, 5), there(&store)), (None, [true]));

    let unknown = vec![CommitKey { epoch: FENCE.epoch, number: CommitNo(1) }];
    settled.submit(
        at(2),
        StoreCall(2),
        StoreRequest::Settle { fence: FENCE, token: Token(8), unknown: unknown.clone() },
    );
    let answer = StoreReply::Settled { epoch: Epoch(2), committed: vec![false] };
    assert_eq!(reply(&mut settled, 9), Some((2, answer)));
    let raised = Fence { epoch: Epoch(2), token: Token(8), ..FENCE };
    settled.submit(at(9), StoreCall(3), StoreRequest::Settle { fence: raised, token: Token(9), unknown });
    let answer = StoreReply::Settled { epoch: Epoch(3), committed: vec![false] };
    assert_eq!(reply(&mut settled, 9), Some((3, answer)));
}

#[test]
fn slow_requests_and_answers_come_in_order_of_time() {
    let mut store = owned();
    store.set_latency(Span::from_secs(1), Span::from_secs(1));
    store.set_clock_offset(Span::from_secs(100));
    store.submit_with(at(0), StoreCall(1), commit(1), Fault::Slow { request: Span::from_secs(5), answer: Span::ZERO });
    store.submit_with(at(0), StoreCall(2), commit(2), Fault::Slow { request: Span::ZERO, answer: Span::from_secs(4) });
    store.submit(at(0), StoreCall(3), commit(3));
    assert_eq!(reply(&mut store, 1), None);
    assert_eq!(there(&store), [false, true, true]);
    let answer = |call, time| StoreAnswer { call: StoreCall(call), time: at(time), reply: StoreReply::Committed };
    assert_eq!(store.poll(at(9)), Some(answer(3, 101)));
    assert_eq!(store.poll(at(9)), Some(answer(2, 100)));
    assert_eq!(store.poll(at(9)), Some(answer(1, 105)));
    assert_eq!((store.poll(at(9)), store.next_event()), (None, None));
}

#[test]
fn a_held_request_waits_for_the_test() {
    let mut store = owned();
    store.script(Some(RequestKind::Commit), Fault::Held);
    store.submit(at(1), StoreCall(1), commit(1));
    store.submit(at(1), StoreCall(2), commit(2));
    assert_eq!((reply(&mut store, 50), reply(&mut store, 50)), (Some((2, StoreReply::Committed)), None));
    assert_eq!((there(&store), store.next_event()), ([false, true], None));
    store.deliver_held(at(60));
    assert_eq!((reply(&mut store, 60), there(&store)), (Some((1, StoreReply::Committed)), [true, true]));
}

#[test]
fn a_lost_suffix_takes_back_the_last_commits() {
    let mut store = owned();
    for number in 1..=5 {
        store.submit(at(1), StoreCall(number), commit(number));
        assert_eq!(reply(&mut store, 1), Some((number, StoreReply::Committed)));
    }
    let mut too_many = store.clone();
    assert_eq!((too_many.lose_suffix(9), there(&too_many)), (3, [true, true, false, false, false]));

    let acknowledged = [5, 4].map(|number| Some(CommitKey { epoch: FENCE.epoch, number: CommitNo(number) }));
    let renew = StoreRequest::Renew { fence: FENCE, acknowledged };
    store.submit_with(at(2), StoreCall(6), renew, Fault::SuffixLost(1));
    assert_eq!(reply(&mut store, 2), Some((6, StoreReply::SuffixLost)));
    assert_eq!(there(&store), [true, true, true, true, false]);
}

#[test]
fn scripted_faults_wait_for_their_kind_of_request() {
    let mut store = owned();
    store.script(Some(RequestKind::Commit), Fault::Fenced);
    store.script(None, Fault::RequestLost);
    store.submit(at(1), StoreCall(1), StoreRequest::Ping);
    store.submit(at(1), StoreCall(2), StoreRequest::Ping);
    assert_eq!(store.scripted(), 1);
    store.submit(at(1), StoreCall(3), commit(1));
    store.submit(at(1), StoreCall(4), commit(1));
    let replies = [StoreReply::Unknown, StoreReply::Pong, StoreReply::Fenced, StoreReply::Committed];
    for (call, expected) in (1..).zip(replies) {
        assert_eq!(reply(&mut store, 1), Some((call, expected)));
    }
}

#[test]
fn an_outage_refuses_everything_until_it_is_over() {
    let mut store = owned();
    store.set_outage(Some(StoreErrorKind::Unavailable));
    store.submit(at(1), StoreCall(1), StoreRequest::Watch(FENCE.slot));
    assert!(
        matches!(reply(&mut store, 1), Some((1, StoreReply::Failed(error))) if error.kind == StoreErrorKind::Unavailable)
    );
    store.set_outage(None);
    store.submit(at(1), StoreCall(2), StoreRequest::Ping);
    assert_eq!(reply(&mut store, 1), Some((2, StoreReply::Pong)));
}

#[test]
fn the_requests_of_a_caller_that_is_gone_still_arrive() {
    let mut store = owned();
    store.submit_with(at(1), StoreCall(1), commit(1), Fault::Slow { request: Span::from_secs(1), answer: Span::ZERO });
    store.submit_with(at(1), StoreCall(2), commit(2), Fault::Slow { request: Span::ZERO, answer: Span::from_secs(1) });
    assert_eq!(reply(&mut store, 1), None);
    store.abandon();
    assert_eq!((reply(&mut store, 9), there(&store)), (None, [true, true]));
}
