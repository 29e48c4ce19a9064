//! Each law refuses what it is there for, at least two kinds of it, and accepts what only looks like it.

use super::testing::{OPTIONS, SECOND, Story, pop, push};
use crate::history::{
    AckError, Acked, Answer, Delivery, Event, GroupNo, LeaseNo, Leased, MessageNo, Operation, Options, PartitionNo,
    Phase, Proof, Pushed, QueueIdNo, Refusal, Status, Written,
};

fn sound(story: &Story) {
    assert_eq!(story.found(), [""; 0]);
}

fn wrong(story: &Story, name: &str) {
    assert!(story.found().contains(&name), "{:?}", story.found());
}

#[test]
fn what_is_pushed_given_and_acked_is_sound() {
    let mut story = Story::new();
    story.pushed(0, 0, None).pushed(1, 1, None).registered().given(1, 0, 2, 0);
    let op = story.invoke(Story::acks(1, &[(0, Status::Completed), (1, Status::Completed)]));
    story.commit(vec![Story::cursor(2, 0, 2, None)]).acked(op, 2);
    sound(&story);
}

#[test]
fn truth_refuses_what_is_told_and_not_stored() {
    let mut story = Story::new();
    let op = story.invoke(push(0, None));
    story.ok(op, Answer::Pushed(vec![Pushed::Queued(MessageNo(0))]));
    wrong(&story, "truth");
    let mut story = Story::new();
    story.pushed(0, 0, None).registered();
    let op = story.invoke(pop(1));
    story.delivered(op, 7, 0..1);
    wrong(&story, "truth");
    // Refused, and stored all the same.
    let mut story = Story::new();
    let op = story.invoke(push(0, None));
    let write = story.append(0, 0, None);
    story.commit(vec![write]).event(op, Event::Fail(Refusal::Unavailable));
    wrong(&story, "truth");
    // Of unknown outcome, and stored: nobody lied.
    let mut story = Story::new();
    let op = story.invoke(push(0, None));
    let write = story.append(0, 0, None);
    story.commit(vec![write]).event(op, Event::Unknown);
    sound(&story);
}

#[test]
fn append_refuses_gaps_and_what_nobody_pushed() {
    let mut story = Story::new();
    story.pushed(0, 1, None);
    wrong(&story, "append");
    let mut story = Story::new();
    let write = story.append(0, 0, None);
    story.commit(vec![write]);
    wrong(&story, "append");
    let mut story = Story::new();
    story.pushed(0, 0, None).pushed(0, 1, None);
    wrong(&story, "append");
}

#[test]
fn time_refuses_a_commit_before_the_last_and_at_a_registration() {
    let mut story = Story::new();
    story.later(5).pushed(0, 0, None).later(-1).pushed(1, 1, None);
    wrong(&story, "time");
    let mut story = Story::new();
    story.registered().later(-1).pushed(0, 0, None);
    wrong(&story, "time");
    let mut story = Story::new();
    story.pushed(0, 0, None).pushed(1, 1, None).later(1).registered().pushed(2, 2, None);
    sound(&story);
}

#[test]
fn registration_refuses_a_second_one_and_one_at_the_time_of_a_commit() {
    let mut story = Story::new();
    story.registered().registered();
    wrong(&story, "registration");
    let mut story = Story::new();
    story.later(1).pushed(0, 0, None).register();
    wrong(&story, "registration");
}

#[test]
fn dedup_ends_exactly_with_the_window() {
    let window = OPTIONS.dedup_window * SECOND;
    let mut story = Story::new();
    story.pushed(0, 0, Some(7)).later(window).pushed(1, 1, Some(7));
    wrong(&story, "dedup");
    let mut story = Story::new();
    story.pushed(0, 0, Some(7)).later(window + 1).pushed(1, 1, Some(7));
    sound(&story);
    let again = |after: i64, told: u32| {
        let mut story = Story::new();
        story.pushed(0, 0, Some(7)).later(after);
        let op = story.invoke(push(1, Some(7)));
        story.ok(op, Answer::Pushed(vec![Pushed::Duplicate(MessageNo(told))]));
        story
    };
    wrong(&again(window + 1, 0), "dedup");
    wrong(&again(1, 3), "truth");
    sound(&again(window, 0));
}

#[test]
fn two_leases_do_not_live_at_once() {
    let story = |after: i64, id: u32| {
        let mut story = Story::new();
        story.pushed(0, 0, None).registered().given(1, 0, 1, 0).later(after).given(id, 0, 1, 0);
        story
    };
    wrong(&story(10 * SECOND - 1, 2), "two-leases");
    wrong(&story(10 * SECOND, 1), "extension");
    sound(&story(10 * SECOND, 2));
}

#[test]
fn a_lease_id_is_given_once() {
    let story = |again: u32| {
        let mut story = Story::new();
        story.pushed(0, 0, None).registered().given(1, 0, 1, 0);
        let op = story.invoke(Story::acks(1, &[(0, Status::Retry)]));
        story.commit(vec![Story::cursor(0, 0, 0, None)]).acked(op, 1).later(1).given(again, 0, 1, 0);
        story
    };
    wrong(&story(1), "lease-ids");
    sound(&story(2));
}

#[test]
fn grant_refuses_a_lease_of_another_length_and_one_that_nobody_asked_for() {
    let story = |expires: i64, asked: bool| {
        let mut story = Story::new();
        story.pushed(0, 0, None).registered();
        let op = story.invoke(if asked { pop(1) } else { push(5, None) });
        let lease = Leased { lease: LeaseNo(1), expires: story.stamp() + expires, end: 1 };
        story.commit(vec![Story::cursor(0, 0, 0, Some(lease))]);
        if asked {
            story.delivered(op, 1, 0..1);
        }
        story
    };
    wrong(&story(10 * SECOND + 1, true), "grant");
    wrong(&story(10 * SECOND, false), "grant");
    sound(&story(10 * SECOND, true));
}

#[test]
fn an_ack_moves_the_cursor_as_far_as_it_says() {
    let story = |items: &[(u32, Status)], after: i64, to: Written| {
        let mut story = Story::new();
        for n in 0..3 {
            story.pushed(n, u64::from(n), None);
        }
        story.registered().given(1, 0, 3, 0).later(after);
        let op = story.invoke(Story::acks(1, items));
        story.commit(vec![to]).event(op, Event::Unknown);
        story
    };
    let lease = Some(Leased { lease: LeaseNo(1), expires: super::testing::EPOCH + 2 + 10 * SECOND, end: 3 });
    let (done, failed) = (Status::Completed, Status::Failed);
    sound(&story(&[(0, done)], 1, Story::cursor(1, 0, 1, lease)));
    wrong(&story(&[(0, done)], 1, Story::cursor(2, 0, 2, lease)), "cursor");
    wrong(&story(&[(0, done)], 1, Story::cursor(1, 0, 1, None)), "cursor");
    wrong(&story(&[(0, done)], 10 * SECOND, Story::cursor(1, 0, 1, lease)), "cursor");
    sound(&story(&[(0, done)], 10 * SECOND - 1, Story::cursor(1, 0, 1, lease)));
    sound(&story(&[(0, done), (1, failed), (2, done)], 1, Story::cursor(1, 1, 1, None)));
    wrong(&story(&[(0, done), (1, failed), (2, done)], 1, Story::cursor(3, 0, 3, None)), "cursor");
}

#[test]
fn retries_are_charged_by_failures_alone() {
    let mut story = Story::new();
    story.pushed(0, 0, None).registered().given(1, 0, 1, 0).later(10 * SECOND).given(2, 0, 1, 1);
    wrong(&story, "cursor");
    let charged = |status: Status, retries: u32| {
        let mut story = Story::new();
        story.pushed(0, 0, None).registered().given(1, 0, 1, 0);
        let op = story.invoke(Story::acks(1, &[(0, status)]));
        story.commit(vec![Story::cursor(0, retries, 0, None)]).acked(op, 1);
        story
    };
    wrong(&charged(Status::Retry, 1), "cursor");
    sound(&charged(Status::Retry, 0));
    sound(&charged(Status::Failed, 1));
}

#[test]
fn a_dead_letter_is_filed_once_with_the_step_over_its_message() {
    let filed = |writes: &[(u64, u32)], next: u64| {
        let mut story = Story::new();
        story.pushed(0, 0, None).pushed(1, 1, None).registered().given(1, 0, 2, 0);
        let op = story.invoke(Story::acks(1, &[(0, Status::DeadLetter)]));
        let mut all = vec![Story::cursor(next, 0, next, None)];
        for (n, (offset, message)) in (0u32..).zip(writes) {
            let (id, partition, group) = (crate::history::DeadLetterNo(n), PartitionNo(0), GroupNo(1));
            let message = MessageNo(*message);
            all.push(Written::DeadLetter { id, partition, group, offset: *offset, message, retries: 0 });
        }
        story.commit(all).event(op, Event::Unknown);
        story
    };
    sound(&filed(&[(0, 0)], 1));
    wrong(&filed(&[(0, 0), (0, 0)], 1), "dead-letter");
    wrong(&filed(&[(0, 1)], 1), "dead-letter");
    wrong(&filed(&[(0, 0)], 0), "dead-letter");
    wrong(&filed(&[], 1), "cursor");
}

#[test]
fn delay_and_window_hold_messages_back() {
    let story = |options: Options, after: i64| {
        let mut story = Story::with(options);
        story.registered().pushed(0, 0, None).later(after).given(1, 0, 1, 0);
        story
    };
    let delayed = Options { delayed_processing: 3, ..OPTIONS };
    wrong(&story(delayed, 3 * SECOND - 1), "gathering");
    sound(&story(delayed, 3 * SECOND));
    let windowed = Options { window_buffer: 4, ..OPTIONS };
    wrong(&story(windowed, 4 * SECOND - 1), "gathering");
    sound(&story(windowed, 4 * SECOND));
}

#[test]
fn whoever_is_told_that_nothing_is_there_is_told_the_truth() {
    let story = |before: bool, wait: i64, lasted: i64| {
        let mut story = Story::new();
        story.later(100 * SECOND).registered();
        if before {
            story.pushed(0, 0, None);
        }
        story.later(10);
        let Operation::Pop(mut asked) = pop(1) else { return story };
        asked.wait = wait;
        let op = story.invoke(Operation::Pop(asked));
        if !before {
            story.pushed(0, 0, None);
        }
        story.later(lasted).ok(op, Answer::Popped(Delivery::default()));
        story
    };
    wrong(&story(true, 0, 5), "empty");
    wrong(&story(false, 20, 20), "empty");
    sound(&story(false, 0, 5));
    sound(&story(false, 20, 0));
}

#[test]
fn after_the_storm_everything_is_answered() {
    let mut story = Story::new();
    story.phase(Phase::Healed);
    story.invoke(push(0, None));
    story.phase(Phase::Settled);
    wrong(&story, "answered");
    let mut story = Story::new();
    story.phase(Phase::Healed).phase(Phase::Settled);
    let op = story.invoke(push(0, None));
    story.event(op, Event::Fail(Refusal::Unavailable));
    wrong(&story, "answered");
    let mut story = Story::new();
    story.invoke(push(0, None));
    story.phase(Phase::Healed).phase(Phase::Settled);
    sound(&story);
}

#[test]
fn in_the_end_everybody_has_been_given_everything() {
    let story = |given: bool| {
        let mut story = Story::new();
        story.pushed(0, 0, None).registered().phase(Phase::Healed).phase(Phase::Settled).phase(Phase::Draining);
        if given {
            story.given(1, 0, 1, 0);
        } else {
            let op = story.invoke(pop(1));
            story.ok(op, Answer::Popped(Delivery::default()));
        }
        story.phase(Phase::Drained);
        story
    };
    wrong(&story(false), "drained");
    sound(&story(true));
}

#[test]
fn a_live_lease_is_not_refused() {
    let refused = |after: i64, lease: u32| {
        let mut story = Story::new();
        story.pushed(0, 0, None).registered().given(1, 0, 1, 0).later(after);
        let op = story.invoke(Story::acks(lease, &[(0, Status::Completed)]));
        let error = Some(AckError::InvalidLease);
        story.ok(op, Answer::Acked(vec![Acked { error, ..Acked::default() }]));
        story
    };
    wrong(&refused(10 * SECOND - 1, 1), "lease");
    sound(&refused(10 * SECOND, 1));
    sound(&refused(1, 2));
}

#[test]
fn an_extension_lengthens_a_live_lease_by_what_is_asked() {
    let extended = |after: i64, length: i64, by: i64| {
        let mut story = Story::new();
        story.pushed(0, 0, None).registered().given(1, 0, 1, 0).later(after);
        let op = story.invoke(Operation::Extend { lease: Proof::Lease(LeaseNo(1)), length });
        let expires = story.stamp() + by;
        story.commit(vec![Story::cursor(0, 0, 0, Some(Leased { lease: LeaseNo(1), expires, end: 1 }))]);
        story.ok(op, Answer::Extended { renewed: 1, earliest: Some(expires) });
        story
    };
    sound(&extended(SECOND, 20 * SECOND, 20 * SECOND));
    wrong(&extended(SECOND, 20 * SECOND, 21 * SECOND), "extension");
    wrong(&extended(10 * SECOND, 20 * SECOND, 20 * SECOND), "extension");
    wrong(&extended(SECOND, 2 * SECOND, 2 * SECOND), "extension");
}

#[test]
fn a_deleted_group_has_nothing_left() {
    let deleted = |writes: Vec<Written>| {
        let mut story = Story::new();
        story.pushed(0, 0, None).registered().given(1, 0, 1, 0);
        let op = story.invoke(Operation::DeleteGroup { group: GroupNo(1), queue: None, metadata: true });
        story.commit(writes).ok(op, Answer::GroupDeleted { cursors: 2, metadata: true });
        story
    };
    let (partition, group, queue) = (PartitionNo(0), GroupNo(1), QueueIdNo(0));
    let cursor = || Written::DropCursor { partition, group };
    let registration = || Written::DropSubscription { queue, group };
    wrong(&deleted(vec![registration()]), "truth");
    wrong(&deleted(vec![cursor()]), "truth");
    sound(&deleted(vec![cursor(), registration()]));
}
