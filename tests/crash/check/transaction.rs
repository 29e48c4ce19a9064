//! A transaction is done whole or not at all: all its pushes are there or none, and once one of them was seen the
//! messages that it acked do not come again. (That acks without their pushes count for nothing is in `cursor`.)

use std::collections::BTreeMap;

use super::facts::{Decision, Facts};
use crate::history::{Answer, Item, Outcome};

pub fn check(facts: &Facts<'_>) -> Vec<String> {
    // Attempts are the same transaction when they push the same.
    let mut transactions: BTreeMap<(&str, &str), Vec<&Decision<'_>>> = BTreeMap::new();
    for decision in facts.acks.values().flatten() {
        if let Some(first) = decision.pushes.and_then(|pushes| pushes.first()) {
            transactions.entry((&first.lane.queue, &first.id)).or_default().push(decision);
        }
    }
    transactions.values().filter_map(|attempts| of_transaction(facts, attempts)).collect()
}

fn of_transaction(facts: &Facts<'_>, attempts: &[&Decision<'_>]) -> Option<String> {
    let pushes = attempts[0].pushes?;
    let (there, missing): (Vec<&Item>, Vec<&Item>) = pushes.iter().partition(|item| facts.holds(item));
    let first = there.first()?;
    if let Some(missing) = missing.first() {
        return Some(format!("{} is there, {} of the same transaction is not", first.id, missing.id));
    }
    let mut possible = attempts.iter().filter(|attempt| attempt.call.is_possible());
    let Some(attempt) = possible.next() else {
        return Some(format!("{} is there, and its transaction was refused [{}]", first.id, attempts[0].call.answered));
    };
    let done = attempts.iter().filter(|attempt| matches!(attempt.call.outcome, Outcome::Ok(Answer::Done)));
    let answered = done.map(|attempt| attempt.call.answered);
    let sights = there.iter().filter_map(|item| facts.sights.get(&(&item.lane, item.id.as_str())).copied());
    let seen = answered.chain(sights).min()?;

    let key = (&attempt.ack.lane, attempt.ack.group.as_str());
    let log = facts.logs.get(key.0)?;
    let end = attempt.ends(log).surely?;
    let later =
        facts.batches.get(&key)?.iter().find(|batch| {
            batch.call.invoked > seen && log.place_of(batch.messages[0]).is_some_and(|start| start < end)
        })?;
    let id = &later.messages[0].id;
    Some(format!("{} was seen [{seen}], and {id} came again though acked with it [{}]", first.id, later.call.invoked))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Story, unknown};
    use super::check;
    use crate::history::{Answer, Event};

    fn done() -> Event {
        Event::Ok(Answer::Done)
    }

    fn rolled_back(why: &str) -> Event {
        Event::Ok(Answer::RolledBack(why.into()))
    }

    #[test]
    fn one_push_without_the_other_is_found() {
        let mut story = Story::new();
        story.queued(&["a"]).pop("L", &["a"]).transaction("L", &["a"], &["t", "u"], unknown()).read("out", &["t"]);
        assert_eq!(story.judge(check).len(), 1);
    }

    #[test]
    fn pushes_without_acks_are_found() {
        let mut story = Story::new();
        story.queued(&["a"]).pop("L", &["a"]).transaction("L", &["a"], &["t"], unknown());
        story.read("out", &["t"]).pop("M", &["a"]).read("q", &["a"]);
        assert_eq!(story.judge(check).len(), 1);
    }

    #[test]
    fn an_answer_without_acks_is_found() {
        let mut story = Story::new();
        story.queued(&["a"]).pop("L", &["a"]).transaction("L", &["a"], &["t"], done());
        story.pop("M", &["a"]).read("q", &["a"]).read("out", &["t"]);
        assert_eq!(story.judge(check).len(), 1);
    }

    #[test]
    fn pushes_of_a_transaction_that_was_rolled_back_are_found() {
        let mut story = Story::new();
        story.queued(&["a"]).pop("L", &["a"]).transaction("L", &["a"], &["t"], rolled_back("lease"));
        story.read("out", &["t"]).read("q", &["a"]);
        assert_eq!(story.judge(check).len(), 1);
    }

    #[test]
    fn an_attempt_of_unknown_outcome_may_come_to_nothing() {
        let mut story = Story::new();
        story.queued(&["a"]).pop("L", &["a"]).transaction("L", &["a"], &["t", "u"], unknown());
        story.pop("M", &["a"]).read("q", &["a"]);
        assert_eq!(story.judge(check), [""; 0]);
    }

    #[test]
    fn a_message_may_come_again_before_anybody_saw_what_was_pushed() {
        let mut story = Story::new();
        story.queued(&["a"]).pop("L", &["a"]).transaction("L", &["a"], &["t"], unknown());
        story.pop("M", &["a"]).transaction("L", &["a"], &["t"], rolled_back("QDUP"));
        story.read("out", &["t"]).read("q", &["a"]);
        assert_eq!(story.judge(check), [""; 0]);
    }
}
