//! Nothing acknowledged is lost: what a push was told is stored is there at the end, and every group was given it.

use std::collections::BTreeSet;

use super::facts::Facts;

pub fn check(facts: &Facts<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    for ((lane, id), attempts) in &facts.attempts {
        let Some(certain) = attempts.iter().find(|attempt| attempt.is_certain()) else { continue };
        if !facts.holds(certain.item) {
            wrong.push(format!("{lane} {id}: acknowledged [{}], and gone", certain.call.answered));
        }
    }
    for ((lane, group), batches) in &facts.batches {
        for batch in batches {
            for message in &batch.messages {
                if facts.logs.get(lane).is_none_or(|log| log.place_of(message).is_none()) {
                    wrong.push(format!(
                        "{lane} {}: {group} was given it [{}], and it is gone",
                        message.id, batch.call.answered
                    ));
                }
            }
        }
    }
    for (lane, log) in &facts.logs {
        for group in facts.rules.groups.get(&lane.queue).into_iter().flatten() {
            let batches = facts.batches.get(&(*lane, group.as_str())).into_iter().flatten();
            let given: BTreeSet<&str> =
                batches.flat_map(|batch| &batch.messages).map(|message| message.message.as_str()).collect();
            for message in log.entries.iter().filter(|message| !given.contains(message.message.as_str())) {
                wrong.push(format!("{lane} {}: {group} was never given it", message.id));
            }
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Story, unknown};
    use super::check;
    use crate::history::{Answer, Event};

    #[test]
    fn an_acknowledged_push_that_is_gone_is_found() {
        let mut story = Story::new();
        story.queued(&["a", "b"]).pop("L", &["a"]).read("q", &["a"]);
        assert_eq!(story.judge(check).len(), 1);
    }

    #[test]
    fn a_transaction_that_was_answered_and_is_gone_is_found() {
        let mut story = Story::new();
        story
            .queued(&["a"])
            .pop("L", &["a"])
            .transaction("L", &["a"], &["t"], Event::Ok(Answer::Done))
            .read("q", &["a"]);
        assert_eq!(story.judge(check).len(), 1);
    }

    #[test]
    fn a_message_that_one_group_was_not_given_is_found() {
        let mut story = Story::new();
        story.queued(&["a", "b"]).pop("L", &["a"]).read("q", &["a", "b"]);
        assert_eq!(story.judge(check).len(), 1);
    }

    #[test]
    fn a_delivered_message_that_is_gone_is_found() {
        let mut story = Story::new();
        story.push("a", unknown()).pop("L", &["a"]);
        assert_eq!(story.judge(check).len(), 1);
    }

    #[test]
    fn a_push_of_unknown_outcome_may_be_gone() {
        let mut story = Story::new();
        story.push("a", unknown()).push("b", unknown()).pop("L", &["b"]).read("q", &["b"]);
        assert_eq!(story.judge(check), [""; 0]);
    }

    #[test]
    fn a_message_may_be_given_more_than_once() {
        let mut story = Story::new();
        story.queued(&["a"]).pop("L", &["a"]).pop("M", &["a"]).read("q", &["a"]).read("q", &["a"]);
        assert_eq!(story.judge(check), [""; 0]);
    }
}
