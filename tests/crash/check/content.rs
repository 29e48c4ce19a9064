//! A message is one that somebody pushed: byte for byte, not before it was sent, not after it was refused, and under the
//! id that its push was told.

use super::facts::Facts;
use crate::history::Pushed;

pub fn check(facts: &Facts<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    for ((lane, group), batches) in &facts.batches {
        for batch in batches {
            for message in &batch.messages {
                let attempts = facts.attempts.get(&(*lane, message.id.as_str()));
                let mut possible = attempts
                    .into_iter()
                    .flatten()
                    .filter(|attempt| attempt.is_possible() && attempt.call.invoked < batch.call.answered);
                if !possible.any(|attempt| attempt.item.payload == message.payload) {
                    wrong.push(format!(
                        "{lane} {}: {group} was given {} [{}], which nobody had pushed or which was refused",
                        message.id, message.payload, batch.call.answered
                    ));
                }
            }
        }
    }
    for ((lane, id), attempts) in &facts.attempts {
        let Some(log) = facts.logs.get(lane) else { continue };
        let Some(stored) = log.place_of_id(id).map(|place| log.entries[place]) else { continue };
        for attempt in attempts {
            if let Some(Pushed::Queued { message } | Pushed::Duplicate { message }) = attempt.answer
                && *message != stored.message
            {
                let answered = attempt.call.answered;
                wrong.push(format!("{lane} {id}: stored as {}, not as {message} [{answered}]", stored.message));
            }
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Story, item, message, pop, popped, unknown};
    use super::check;
    use crate::history::{Answer, Event, Operation, Pushed};

    fn refused() -> Event {
        Event::Fail("503 store_unavailable".into())
    }

    #[test]
    fn a_changed_payload_is_found() {
        let mut changed = message("q", "a");
        changed.payload = "\"A\"".into();
        let mut story = Story::new();
        let answer = Answer::Popped { lease: "L".into(), messages: vec![changed] };
        story.queued(&["a"]).call(pop("q", "g"), Event::Ok(answer));
        assert_eq!(story.judge(check).len(), 1);
    }

    #[test]
    fn a_message_that_nobody_pushed_is_found() {
        let mut story = Story::new();
        story.queued(&["a"]).pop("L", &["b"]);
        assert_eq!(story.judge(check).len(), 1);
    }

    #[test]
    fn a_message_whose_every_push_was_refused_is_found() {
        let mut story = Story::new();
        story.push("a", refused()).push("a", refused()).pop("L", &["a"]);
        assert_eq!(story.judge(check).len(), 1);
    }

    #[test]
    fn a_message_from_before_its_push_is_found() {
        let mut story = Story::new();
        story.pop("L", &["a"]).queued(&["a"]);
        assert_eq!(story.judge(check).len(), 1);
    }

    #[test]
    fn an_answer_with_another_messages_id_is_found() {
        let mut story = Story::new();
        let duplicate = Event::Ok(Answer::Pushed(vec![Pushed::Duplicate { message: "m-x".into() }]));
        story.push("a", unknown()).push("a", duplicate).read("q", &["a"]);
        assert_eq!(story.judge(check).len(), 1);
    }

    #[test]
    fn a_message_may_come_while_its_push_is_on_the_way_or_of_unknown_outcome() {
        let mut story = Story::new();
        let push = story.invoke(Operation::Push { items: vec![item("q", "a")] });
        story.pop("L", &["a"]).record(push, unknown()).push("a", refused()).read("q", &["a"]);
        assert_eq!(story.judge(check), [""; 0]);
    }

    #[test]
    fn the_id_of_an_earlier_attempt_is_accepted_for_a_duplicate() {
        let mut story = Story::new();
        let duplicate = Event::Ok(Answer::Pushed(vec![Pushed::Duplicate { message: "m-a".into() }]));
        story.push("a", unknown()).push("a", duplicate).call(pop("q", "reader"), popped("q", "R", &["a"]));
        assert_eq!(story.judge(check), [""; 0]);
    }
}
