//! A lane has one order: that of the pushes where one was answered before the other began, the same for every group,
//! and a batch is a piece of it without gaps.

use std::collections::BTreeMap;

use super::facts::{Facts, Log};
use crate::history::Lane;

pub fn check(facts: &Facts<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (lane, log) in &facts.logs {
        later_pushes_lie_later(facts, lane, log, &mut wrong);
    }
    items_of_one_call_lie_in_its_order(facts, &mut wrong);
    for ((lane, group), batches) in &facts.batches {
        let Some(log) = facts.logs.get(lane) else { continue };
        for batch in batches {
            let places: Vec<usize> = batch.messages.iter().filter_map(|message| log.place_of(message)).collect();
            if places.windows(2).any(|pair| pair[1] != pair[0] + 1) {
                let ids: Vec<&str> = batch.messages.iter().map(|message| message.id.as_str()).collect();
                wrong.push(format!("{lane} {group}: not a piece of the lane: {ids:?} [{}]", batch.call.answered));
            }
        }
    }
    wrong
}

/// From the end of the lane to its start: what lies behind a message must not have been answered before this was sent.
fn later_pushes_lie_later(facts: &Facts<'_>, lane: &Lane, log: &Log<'_>, wrong: &mut Vec<String>) {
    let mut earliest_answer = (usize::MAX, "");
    for message in log.entries.iter().rev() {
        let Some(attempts) = facts.attempts.get(&(lane, message.id.as_str())) else { continue };
        let possible = attempts.iter().filter(|attempt| attempt.is_possible());
        let sent = possible.map(|attempt| attempt.call.invoked).min().unwrap_or(usize::MAX);
        if earliest_answer.0 < sent && sent != usize::MAX {
            let (answered, other) = earliest_answer;
            wrong.push(format!(
                "{lane} {}: sent [{sent}] after {other} was answered [{answered}], lies before it",
                message.id
            ));
        }
        let certain = attempts.iter().filter(|attempt| attempt.is_certain());
        let answered = certain.map(|attempt| attempt.call.answered).min().unwrap_or(usize::MAX);
        earliest_answer = earliest_answer.min((answered, &message.id));
    }
}

/// Items that were new in one call lie in the call's order. Those of an unknown outcome may have been stored by different
/// attempts, so that only ids with one possible attempt, or which this call was told it queued, are looked at.
fn items_of_one_call_lie_in_its_order(facts: &Facts<'_>, wrong: &mut Vec<String>) {
    // Where in the call, where in the lane, which.
    type Items<'a> = Vec<(usize, usize, &'a str)>;
    let mut by_call: BTreeMap<(usize, &Lane), Items<'_>> = BTreeMap::new();
    for ((lane, id), attempts) in &facts.attempts {
        let Some(place) = facts.logs.get(lane).and_then(|log| log.place_of_id(id)) else { continue };
        let mut possible = attempts.iter().filter(|attempt| attempt.is_possible());
        let (Some(only), None) = (possible.next(), possible.next()) else { continue };
        by_call.entry((only.call.invoked, lane)).or_default().push((only.index, place, id));
    }
    for ((invoked, lane), mut items) in by_call {
        items.sort_unstable();
        for pair in items.windows(2).filter(|pair| pair[0].1 > pair[1].1) {
            wrong.push(format!("{lane}: {} and {} of one call [{invoked}] changed places", pair[0].2, pair[1].2));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Story, item, unknown};
    use super::check;
    use crate::history::Operation;

    #[test]
    fn a_later_push_that_lies_earlier_is_found() {
        let mut story = Story::new();
        story.queued(&["a"]).queued(&["b"]).read("q", &["b", "a"]);
        assert_eq!(story.judge(check).len(), 1);
    }

    #[test]
    fn one_order_for_the_reader_and_another_for_a_group_is_found() {
        let mut story = Story::new();
        story.push("a", unknown()).push("b", unknown()).pop("L", &["b", "a"]).read("q", &["a", "b"]);
        assert_eq!(story.judge(check).len(), 1);
    }

    #[test]
    fn a_gap_in_a_batch_is_found() {
        let mut story = Story::new();
        story.queued(&["a", "b", "c"]).pop("L", &["a", "c"]).read("q", &["a", "b", "c"]);
        assert_eq!(story.judge(check).len(), 1);
    }

    #[test]
    fn items_of_one_call_that_changed_places_are_found() {
        let mut story = Story::new();
        let items = vec![item("q", "a"), item("q", "b")];
        story.call(Operation::Push { items }, unknown()).read("q", &["b", "a"]);
        assert_eq!(story.judge(check).len(), 1);
    }

    #[test]
    fn pushes_that_overlap_may_lie_in_any_order() {
        let mut story = Story::new();
        let first = story.invoke(Operation::Push { items: vec![item("q", "a")] });
        story.queued(&["b"]).record(first, unknown()).read("q", &["b", "a"]);
        assert_eq!(story.judge(check), [""; 0]);
    }

    #[test]
    fn an_attempt_of_unknown_outcome_may_have_been_the_one_that_stored() {
        let mut story = Story::new();
        story.push("b", unknown()).queued(&["a"]).queued(&["b"]).read("q", &["b", "a"]);
        assert_eq!(story.judge(check), [""; 0]);
    }
}
