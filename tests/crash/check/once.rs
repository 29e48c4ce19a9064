//! A transaction id is accepted once in its window, which is longer than any run: however often a client tries.

use std::collections::BTreeMap;

use super::facts::Facts;
use crate::history::{Answer, Outcome, Pushed};

pub fn check(facts: &Facts<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (lane, log) in &facts.logs {
        let mut count: BTreeMap<&str, usize> = BTreeMap::new();
        log.entries.iter().for_each(|message| *count.entry(&message.id).or_default() += 1);
        for (id, count) in count.into_iter().filter(|(_, count)| *count > 1) {
            wrong.push(format!("{lane} {id}: stored {count} times"));
        }
    }
    for ((lane, id), attempts) in &facts.attempts {
        let accepted = attempts.iter().filter(|attempt| {
            let done = attempt.transaction && matches!(attempt.call.outcome, Outcome::Ok(Answer::Done));
            done || matches!(attempt.answer, Some(Pushed::Queued { .. }))
        });
        let accepted: Vec<usize> = accepted.map(|attempt| attempt.call.answered).collect();
        if accepted.len() > 1 {
            wrong.push(format!("{lane} {id}: accepted as new more than once {accepted:?}"));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Story, message, pop, unknown};
    use super::check;
    use crate::history::{Answer, Event, Pushed};

    #[test]
    fn an_id_that_is_queued_twice_is_found() {
        let mut story = Story::new();
        story.queued(&["a"]).queued(&["a"]).read("q", &["a"]);
        assert_eq!(story.judge(check).len(), 1);
    }

    #[test]
    fn an_id_that_is_stored_twice_is_found_though_no_push_was_answered() {
        let mut second = message("q", "a");
        second.message = "m-again".into();
        let messages = vec![message("q", "a"), second];
        let mut story = Story::new();
        story.push("a", unknown()).push("a", unknown());
        story.call(pop("q", "reader"), Event::Ok(Answer::Popped { lease: "R".into(), messages }));
        assert_eq!(story.judge(check).len(), 1);
    }

    #[test]
    fn a_transaction_that_is_done_twice_is_found() {
        let mut story = Story::new();
        let done = || Event::Ok(Answer::Done);
        story.queued(&["a"]).transaction("L", &["a"], &["t"], done()).transaction("L", &["a"], &["t"], done());
        assert_eq!(story.judge(check).len(), 1);
    }

    #[test]
    fn an_id_that_is_a_duplicate_afterwards_and_is_delivered_again_is_accepted() {
        let mut story = Story::new();
        let duplicate = Event::Ok(Answer::Pushed(vec![Pushed::Duplicate { message: "m-a".into() }]));
        story.push("a", unknown()).queued(&["a"]).push("a", duplicate).read("q", &["a"]).read("q", &["a"]);
        assert_eq!(story.judge(check), [""; 0]);
    }
}
