//! A group's cursor moves where somebody was told, or may yet be told, that it moved, and nowhere else; what was told
//! stays. A batch starts at the cursor, so that every batch shows where it was.

use std::collections::BTreeMap;

use super::facts::{Facts, Log};
use crate::history::Lane;

pub fn check(facts: &Facts<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    for &(lane, group) in facts.batches.keys() {
        if let Some(log) = facts.logs.get(lane) {
            of_lane(facts, lane, group, log, &mut wrong);
        }
    }
    wrong
}

fn of_lane(facts: &Facts<'_>, lane: &Lane, group: &str, log: &Log<'_>, wrong: &mut Vec<String>) {
    let decisions = || facts.acks.get(&(lane, group)).into_iter().flatten();
    let batches = &facts.batches[&(lane, group)];

    // Where the cursor can have been put, and when that was asked for first.
    let mut reachable: BTreeMap<usize, usize> = BTreeMap::from([(0, 0)]);
    for decision in decisions().filter(|decision| decision.is_possible(facts)) {
        let ends = decision.ends(log);
        for end in [ends.surely, ends.perhaps].into_iter().flatten() {
            let first = reachable.entry(end).or_insert(usize::MAX);
            *first = decision.call.invoked.min(*first);
        }
    }
    // From when on it was known to be at least where.
    let certain = decisions().filter(|decision| decision.is_certain());
    let acked = certain.filter_map(|decision| Some((decision.call.answered, decision.ends(log).surely?)));
    let start = |batch: &super::facts::Batch<'_>| log.place_of(batch.messages[0]);
    let shown = batches.iter().filter_map(|batch| Some((batch.call.answered, start(batch)?)));
    let mut known: Vec<(usize, usize)> = acked.chain(shown).collect();
    known.sort_unstable();
    let mut highest = 0;
    for (_, least) in &mut known {
        highest = highest.max(*least);
        *least = highest;
    }

    for batch in batches {
        let Some(start) = start(batch) else { continue };
        let (id, call) = (&batch.messages[0].id, &batch.call);
        if reachable.get(&start).is_none_or(|&asked| asked > call.answered) {
            let before = &log.entries[start.saturating_sub(1)].id;
            wrong.push(format!("{lane} {group}: starts at {id} [{}], nobody completed up to {before}", call.answered));
        }
        let before = known.partition_point(|(answered, _)| *answered < call.invoked);
        if let Some(&(_, least)) = known[..before].last()
            && start < least
        {
            let last = &log.entries[least - 1].id;
            wrong.push(format!(
                "{lane} {group}: starts at {id} again [{} to {}], {last} was completed",
                call.invoked, call.answered
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Story, ack, pop, popped, unknown};
    use super::check;
    use crate::history::{Answer, Event, Operation, Status};

    fn refused() -> Event {
        Event::Ok(Answer::Acked(vec![Err("invalid or expired lease".into())]))
    }

    #[test]
    fn a_message_that_is_skipped_is_found() {
        let mut story = Story::new();
        story.queued(&["a", "b"]).pop("L", &["b"]).read("q", &["a", "b"]);
        assert_eq!(story.judge(check).len(), 1);
    }

    #[test]
    fn a_message_that_is_completed_though_the_ack_was_refused_is_found() {
        let mut story = Story::new();
        story
            .queued(&["a", "b"])
            .pop("L", &["a"])
            .call(Operation::Ack(ack("L", &[("a", Status::Completed)])), refused());
        story.pop("M", &["b"]).read("q", &["a", "b"]);
        assert_eq!(story.judge(check).len(), 1);
    }

    #[test]
    fn a_cursor_beyond_what_was_completed_is_found() {
        let mut story = Story::new();
        story.queued(&["a", "b", "c"]).pop("L", &["a", "b"]).ack("L", &["a"]);
        story.pop("M", &["c"]).read("q", &["a", "b", "c"]);
        assert_eq!(story.judge(check).len(), 1);
    }

    #[test]
    fn a_delivery_after_a_completed_ack_is_found() {
        let mut story = Story::new();
        story.queued(&["a", "b"]).pop("L", &["a"]).ack("L", &["a"]).pop("M", &["a", "b"]).read("q", &["a", "b"]);
        assert_eq!(story.judge(check).len(), 1);
    }

    #[test]
    fn a_cursor_that_steps_back_is_found_though_no_ack_was_answered() {
        let mut story = Story::new();
        story.queued(&["a", "b"]).pop("L", &["a"]);
        story.call(Operation::Ack(ack("L", &[("a", Status::Completed)])), unknown());
        story.pop("M", &["b"]).pop("N", &["a"]).read("q", &["a", "b"]);
        assert_eq!(story.judge(check).len(), 1);
    }

    #[test]
    fn the_acks_of_a_transaction_whose_pushes_are_not_there_are_found() {
        let mut story = Story::new();
        story.queued(&["a", "b"]).pop("L", &["a"]).transaction("L", &["a"], &["t"], unknown());
        story.pop("M", &["b"]).read("q", &["a", "b"]);
        assert_eq!(story.judge(check).len(), 1);
    }

    #[test]
    fn a_message_may_come_again_while_its_ack_is_on_the_way_or_of_unknown_outcome() {
        let mut story = Story::new();
        story.queued(&["a", "b"]).pop("L", &["a"]);
        let late = story.invoke(Operation::Ack(ack("L", &[("a", Status::Completed)])));
        story.pop("M", &["a"]).record(late, unknown()).pop("N", &["a"]).pop("O", &["b"]).read("q", &["a", "b"]);
        assert_eq!(story.judge(check), [""; 0]);
    }

    #[test]
    fn a_delivery_that_began_before_the_ack_was_answered_is_accepted() {
        let mut story = Story::new();
        story.queued(&["a"]).pop("L", &["a"]);
        let overlapping = story.invoke(pop("q", "g"));
        story.ack("L", &["a"]).record(overlapping, popped("q", "M", &["a"])).read("q", &["a"]);
        assert_eq!(story.judge(check), [""; 0]);
    }

    #[test]
    fn what_lies_at_or_above_a_failed_item_of_the_same_call_comes_again() {
        let mut story = Story::new();
        let statuses = [("a", Status::Completed), ("b", Status::Failed), ("c", Status::Completed)];
        let accepted = Event::Ok(Answer::Acked(vec![Ok(()); 3]));
        story.queued(&["a", "b", "c"]).pop("L", &["a", "b", "c"]).call(Operation::Ack(ack("L", &statuses)), accepted);
        story.pop("M", &["b", "c"]).read("q", &["a", "b", "c"]);
        assert_eq!(story.judge(check), [""; 0]);
    }

    #[test]
    fn a_dead_letter_is_behind_the_cursor() {
        let mut story = Story::new();
        let accepted = Event::Ok(Answer::Acked(vec![Ok(())]));
        story.queued(&["a", "b"]).pop("L", &["a"]).call(Operation::Ack(ack("L", &[("a", Status::Dlq)])), accepted);
        story.pop("M", &["b"]).read("q", &["a", "b"]);
        assert_eq!(story.judge(check), [""; 0]);
    }
}
