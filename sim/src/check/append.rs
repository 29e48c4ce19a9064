//! Logs grow at their end, in the order of time, by what somebody pushes, and by nothing twice (S2 to S5, S15, S16).

use super::open::Opened;
use super::shadow::{Shadow, order};
use crate::history::{Appended, Committed, Findings, Item, Key, LaneNo, Operation, PartitionNo, Stamp, Written};

const SECOND: i64 = 1_000_000;

pub fn law(shadow: &Shadow, open: &Opened, commit: &Committed, place: u32, findings: &mut Findings) {
    for write in &commit.writes {
        match write {
            Written::Append { partition, start, created, messages } => {
                one(shadow, open, commit, (*partition, *start, *created, messages), place, findings);
            }
            Written::Subscription { queue, group, registered, changed, .. } => {
                let Some(row) = shadow.queue(*queue) else { continue };
                if row.subscription(*group).is_some() && changed.is_none() {
                    findings.violate("registration", place, || {
                        format!("group {} registers again on queue {}", group.0, row.name.0)
                    });
                }
                let logs = row.partitions.iter().filter_map(|it| shadow.partition(*it));
                let earlier = |log: &[super::shadow::Message]| {
                    Some(log.iter().rev().find(|it| it.order < order(commit))?.created)
                };
                let last = logs.filter_map(|it| earlier(&it.log)).max();
                if changed.is_none() && last.is_some_and(|last| last >= *registered) {
                    findings.violate("registration", place, || {
                        format!(
                            "group {} registers at {registered} on queue {}, which has a message of {last:?}",
                            group.0, row.name.0
                        )
                    });
                }
            }
            _ => {}
        }
    }
}

fn one(
    shadow: &Shadow,
    open: &Opened,
    commit: &Committed,
    (partition, start, created, messages): (PartitionNo, u64, Stamp, &[Appended]),
    place: u32,
    findings: &mut Findings,
) {
    // A partition that this very commit makes has no log yet.
    let made = commit.writes.iter().find_map(|write| match write {
        Written::Partition { partition: made, queue, lane, .. } if *made == partition => Some((*lane, *queue)),
        _ => None,
    });
    let row = shadow.partition(partition);
    let Some((lane, queue)) = row.map(|row| (row.lane, row.queue)).or(made) else {
        return findings
            .violate("append", place, || format!("messages for partition {}, which nobody made", partition.0));
    };
    let before = commit.writes.iter().take_while(
        |write| !matches!(write, Written::Append { partition: of, start: at, .. } if (*of, *at) == (partition, start)),
    );
    let earlier: u64 = before
        .filter_map(|write| match write {
            Written::Append { partition: of, messages, .. } if *of == partition => Some(messages.len() as u64),
            _ => None,
        })
        .sum();
    let end = row.map_or(0, |row| row.end()) + earlier;
    if start != end {
        findings.violate("append", place, || format!("partition {} ends at {end} and goes on at {start}", partition.0));
    }
    let last = row.and_then(|row| Some(row.log.last()?.created));
    if last.is_some_and(|last| created < last) {
        findings.violate("time", place, || {
            format!("partition {}: a commit at {created} follows one at {last:?}", partition.0)
        });
    }
    let settings = shadow.queue(queue);
    let subscriptions = settings.into_iter().flat_map(|queue| &queue.subscriptions);
    let registered =
        subscriptions.filter(|it| it.changed.is_none() && it.order < order(commit)).map(|it| it.registered).max();
    if registered.is_some_and(|registered| created <= registered) {
        findings.violate("time", place, || {
            format!("partition {}: a commit at {created}, and a group had registered at {registered:?}", partition.0)
        });
    }
    for message in messages {
        if shadow.message(message.message).is_some() {
            findings.violate("append", place, || format!("message id {} is given twice", message.message.0));
        }
        if !explained(shadow, open, lane, message) {
            findings.violate("append", place, || {
                format!("nobody pushed what message {} holds to lane {}", message.message.0, lane.0)
            });
        }
        let Key::Given(_) = message.key else { continue };
        let (Some(row), Some(settings)) = (row, settings) else { continue };
        let window = settings.options_since(place.saturating_sub(1_000)).map(|it| it.dedup_window).min().unwrap_or(0);
        let twin = row.log.iter().rev().take(64).find(|other| other.key == message.key);
        if window > 0
            && let Some(twin) = twin
            && twin.created >= commit.decided.max(created) - window * SECOND
        {
            findings.violate("dedup", place, || {
                let ago = commit.decided - twin.created;
                format!(
                    "message {} is stored {ago} µs after message {} with the same id",
                    message.message.0, twin.message.0
                )
            });
        }
    }
}

/// Whether somebody is pushing this, or replays a dead letter of it.
fn explained(shadow: &Shadow, open: &Opened, lane: LaneNo, message: &Appended) -> bool {
    let wanted = |item: &Item| {
        let key = item.text.map_or(Key::Own(message.message), Key::Given);
        item.lane == lane && item.payload == message.payload && key == message.key
    };
    open.iter().any(|call| match &call.operation {
        Operation::Replay { partition, key, .. } => shadow.dead.iter().flatten().any(|dead| {
            let held = shadow.message(dead.message).is_some_and(|(.., stored)| stored.payload == message.payload);
            held && dead.partition == *partition && dead.key == *key && message.key == Key::Own(message.message)
        }),
        _ => shadow.tenant_of_lane(lane) == call.tenant && call.pushes_one(wanted),
    })
}
