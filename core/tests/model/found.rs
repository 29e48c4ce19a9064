//! Scripts that once found a defect, by what was wrong. They are checked first and for ever, whatever becomes of the
//! generators.

use tidegate_core::command::AckStatus;

use super::commands::{
    Ask, Fate, From, Id, Item, Knobs, Mark, On, Place, Proof, Script, Setup, Start, Step, Take, Wait, When,
};

fn item(queue: Place, partition: Place) -> Item {
    Item { queue, partition, id: Id::None }
}

fn push(items: &[Item]) -> Step {
    Step::Ask(0, Ask::Push(items.to_vec()))
}

/// A pop of one message.
fn take(from: From, group: Place) -> Take {
    Take { from, group, batch: 1, cap: Some(1), auto_ack: false, wait_ms: None, lease_secs: None, start: None }
}

fn pop(from: From, group: Place) -> Step {
    Step::Ask(0, Ask::Pop(take(from, group)))
}

fn long_poll(from: From, group: Place) -> Step {
    Step::Ask(0, Ask::Pop(Take { wait_ms: Some(5_000), ..take(from, group) }))
}

fn auto_ack(from: From, group: Place) -> Step {
    Step::Ask(0, Ask::Pop(Take { auto_ack: true, ..take(from, group) }))
}

fn ack(status: AckStatus) -> Step {
    let mark = Mark { message: 0, status, proof: Proof::Own, reason: false };
    Step::Ask(0, Ask::Ack { of: 0, group: None, marks: vec![mark] })
}

fn delete_group(group: Place, metadata: bool) -> Step {
    Step::Ask(0, Ask::DeleteGroup { group, queue: None, metadata })
}

fn configure(queue: Place, knobs: Knobs) -> Step {
    Step::Ask(0, Ask::Configure(queue, knobs))
}

const PLAIN: Knobs = Knobs {
    labels: None,
    lease: 1,
    retries: 3,
    dead_letters: (true, true),
    delay: 0,
    window: 0,
    fill_ms: 0,
    dedup: 3_600,
    completed: 0,
};

/// What was wrong, and the script that showed it.
pub fn found() -> Vec<(&'static str, Script)> {
    let setup =
        Setup { seed: 0, hot_list: true, window_batch: 3, new_by_default: false, require_lease: false, budget: None };
    let scripts = vec![
        (
            "a changed subscription moved the start of queue mode",
            vec![
                pop(From::Queue(1), 1),
                push(&[item(1, 0)]),
                Step::Ask(0, Ask::ChangeSubscription(1, When::Ahead(1_000))),
                pop(From::Queue(1), 1),
            ],
        ),
        (
            "deleting a group that only had a registration panicked",
            vec![pop(From::Queue(1), 0), push(&[item(1, 0)]), delete_group(0, true)],
        ),
        (
            "a start in the future was pinned in memory and another one after a reload",
            vec![
                push(&[item(1, 0)]),
                Step::Ask(0, Ask::Pop(Take { start: Some(Start::Time(When::Ahead(1))), ..take(From::Queue(1), 2) })),
                push(&[item(1, 0)]),
            ],
        ),
        (
            "an explicit dead-letter ack was dropped where exhausted messages are",
            vec![
                configure(0, Knobs { dead_letters: (false, false), ..PLAIN }),
                push(&[item(0, 0)]),
                pop(From::Queue(0), 0),
                ack(AckStatus::DeadLetter),
            ],
        ),
        (
            "a parked discovery pop missed a queue that another pop created",
            vec![long_poll(From::Labels(Some(0), None), 1), pop(From::Queue(0), 1), push(&[item(0, 0)])],
        ),
        (
            "a parked pop of one partition was not served when its group was deleted",
            vec![
                long_poll(From::Partition(0, 2), 0),
                long_poll(From::Partition(0, 2), 0),
                push(&[item(0, 2)]),
                delete_group(0, false),
            ],
        ),
        (
            "a pop that commits on delivery lost its messages when they could not be read",
            vec![push(&[item(0, 0)]), Step::Fault(On::Read, Fate::Fail), auto_ack(From::Queue(0), 0)],
        ),
        (
            "a commit that was there was called missing, because it was asked for under an old epoch",
            vec![
                Step::Fault(On::Commit, Fate::LostAfter),
                Step::Steal { ms: 0, release: false },
                push(&[item(0, 0)]),
                push(&[item(0, 0)]),
                Step::Fault(On::Commit, Fate::LostAfter),
                push(&[item(0, 0)]),
            ],
        ),
        (
            "a slow commit was told of a lost suffix, because later ones had made the store forget what it named",
            vec![
                pop(From::Queue(1), 0),
                push(&[item(0, 0)]),
                push(&[item(1, 0)]),
                Step::Fault(On::Commit, Fate::SlowAnswer { ms: 1 }),
                Step::Fault(On::Commit, Fate::LostBefore),
                pop(From::Queue(0), 0),
                configure(0, PLAIN),
                Step::Wait(Wait::Millis(400)),
                Step::Together(
                    vec![
                        Ask::Push(vec![item(0, 0)]),
                        Ask::Pop(take(From::Queue(1), 0)),
                        Ask::Pop(take(From::Queue(0), 0)),
                    ],
                    8,
                ),
            ],
        ),
        (
            "a late read answered another pop with messages of the wrong partition",
            vec![
                pop(From::Queue(0), 0),
                push(&[item(0, 0)]),
                push(&[item(0, 2)]),
                Step::Fault(On::Commit, Fate::LostBefore),
                Step::Fault(On::Read, Fate::SlowAnswer { ms: 1 }),
                Step::Fault(On::Read, Fate::Fail),
                pop(From::Partition(0, 2), 0),
                auto_ack(From::Queue(0), 0),
            ],
        ),
        (
            "a push went unanswered: its commit was fenced while another one's outcome was being settled",
            vec![
                push(&[item(0, 0), item(1, 0)]),
                Step::Fault(On::Commit, Fate::LostAfter),
                Step::Steal { ms: 0, release: false },
                push(&[item(1, 0), Item { id: Id::OfMessage(1), ..item(1, 0) }, item(0, 0)]),
                Step::Wait(Wait::Millis(100)),
            ],
        ),
    ];
    scripts.into_iter().map(|(wrong, steps)| (wrong, Script { setup, steps })).collect()
}
