//! While a lease lives its lane is given to nobody else in the group, and a lease that another one followed counts no more.

use super::facts::{Batch, Decision, Facts, Log};

pub fn check(facts: &Facts<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (&(lane, group), batches) in &facts.batches {
        let Some(log) = facts.logs.get(lane) else { continue };
        let decisions = facts.acks.get(&(lane, group)).map_or(&[][..], Vec::as_slice);
        for (place, first) in batches.iter().enumerate() {
            for second in &batches[place + 1..] {
                let until = first.call.invoked_at + u64::from(first.pop.lease_seconds) * 1_000_000;
                if second.call.answered_at >= until.saturating_sub(facts.rules.lease_slack) {
                    break;
                }
                // Which of two pops that overlap was decided first is not known: both ways must be impossible.
                let overlap = second.call.invoked < first.call.answered;
                let breaks = breaks_into(facts, first, second, decisions, log);
                if breaks && (!overlap || breaks_into(facts, second, first, decisions, log)) {
                    let id = &second.messages[0].id;
                    let (one, other) = (first.call.answered, second.call.answered);
                    wrong.push(format!("{lane} {group}: two hold it at once, [{one}] and, from {id} on, [{other}]"));
                }
            }
        }
        for decision in decisions {
            if let Some(later) = follower(decision, batches) {
                let (ack, later) = (decision.call.answered, later.call.answered);
                wrong.push(format!("{lane} {group}: a lease is accepted [{ack}] that another one followed [{later}]"));
            }
        }
    }
    wrong
}

/// Whether `second`, had it been decided after `first`, took a lane that nobody had given up.
fn breaks_into(
    facts: &Facts<'_>,
    first: &Batch<'_>,
    second: &Batch<'_>,
    decisions: &[Decision<'_>],
    log: &Log<'_>,
) -> bool {
    let until = first.call.invoked_at + u64::from(first.pop.lease_seconds) * 1_000_000;
    let end = first.messages.last().and_then(|message| log.place_of(message)).map_or(0, |place| place + 1);
    let released = decisions.iter().any(|decision| {
        decision.ack.lease == first.lease
            && decision.call.invoked < second.call.answered
            && decision.is_possible(facts)
            && decision.may_release(end, log)
    });
    first.lease != second.lease && second.call.answered_at < until.saturating_sub(facts.rules.lease_slack) && !released
}

/// Of an ack that was accepted: a pop that surely came after its lease's and before the ack itself.
fn follower<'a, 'f>(decision: &Decision<'_>, batches: &'f [Batch<'a>]) -> Option<&'f Batch<'a>> {
    let own = batches.iter().position(|batch| decision.is_certain() && batch.lease == decision.ack.lease)?;
    let later = batches[own + 1..].iter().take_while(|batch| batch.call.answered < decision.call.invoked);
    let answered = batches[own].call.answered;
    later.filter(|batch| batch.lease != decision.ack.lease).find(|batch| batch.call.invoked > answered)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Story, ack, pop, popped, unknown};
    use super::check;
    use crate::history::{Answer, Event, Operation, Status};

    #[test]
    fn two_live_leases_on_one_lane_are_found() {
        let mut story = Story::new();
        story.queued(&["a"]).pop("L", &["a"]).wait(1_000).pop("M", &["a"]).read("q", &["a"]);
        assert_eq!(story.judge(check).len(), 1);
    }

    #[test]
    fn two_live_leases_of_pops_that_overlap_are_found() {
        let mut story = Story::new();
        story.queued(&["a"]);
        let (one, other) = (story.invoke(pop("q", "g")), story.invoke(pop("q", "g")));
        story.record(one, popped("q", "L", &["a"])).record(other, popped("q", "M", &["a"])).read("q", &["a"]);
        assert_eq!(story.judge(check).len(), 1);
    }

    #[test]
    fn a_partial_ack_keeps_the_lease() {
        let mut story = Story::new();
        story.queued(&["a", "b"]).pop("L", &["a", "b"]).ack("L", &["a"]).pop("M", &["b"]).read("q", &["a", "b"]);
        assert_eq!(story.judge(check).len(), 1);
    }

    #[test]
    fn a_lease_that_another_one_followed_is_found_when_it_counts() {
        let mut story = Story::new();
        story.queued(&["a"]).pop("L", &["a"]).wait(2_500).pop("M", &["a"]).ack("L", &["a"]).read("q", &["a"]);
        assert_eq!(story.judge(check).len(), 1);
    }

    #[test]
    fn a_lease_ends_with_its_time_or_its_batch() {
        let mut story = Story::new();
        story.queued(&["a", "b"]).pop("L", &["a"]).wait(1_950).pop("M", &["a"]).ack("M", &["a"]);
        story.pop("N", &["b"]).call(Operation::Ack(ack("N", &[("b", Status::Retry)])), unknown());
        story.pop("O", &["b"]).read("q", &["a", "b"]);
        assert_eq!(story.judge(check), [""; 0]);
    }

    #[test]
    fn a_refused_ack_of_an_old_lease_is_accepted() {
        let mut story = Story::new();
        let refused = Event::Ok(Answer::Acked(vec![Err("invalid or expired lease".into())]));
        story.queued(&["a"]).pop("L", &["a"]).wait(2_500).pop("M", &["a"]);
        story.call(Operation::Ack(ack("L", &[("a", Status::Completed)])), refused).read("q", &["a"]);
        assert_eq!(story.judge(check), [""; 0]);
    }
}
