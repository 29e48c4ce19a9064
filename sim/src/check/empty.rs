//! Whoever is told that nothing is there is told the truth, and whoever waits is woken (L2 to L4).

use super::open::{Call, Opened};
use super::shadow::{Partition, Queue, Shadow};
use crate::history::{Answer, At, Delivery, Findings, Micros, Operation, PartitionNo, Pop, Scope};

const SECOND: Micros = 1_000_000;

pub fn law(
    shadow: &Shadow,
    open: &Opened,
    call: &Call,
    answer: &Answer,
    (place, ended): (u32, At),
    findings: &mut Findings,
) {
    let (Operation::Pop(pop), Answer::Popped(Delivery { messages, .. })) = (&call.operation, answer) else { return };
    if !messages.is_empty() || shadow.jumped || shadow.lost > call.place {
        return;
    }
    // Others who may have had it in hand, or changed the rules, make it nobody's fault.
    let meddles = |other: &Call| match &other.operation {
        Operation::Pop(it) => it.group == pop.group,
        Operation::Push { .. } => false,
        _ => other.writes(),
    };
    if open.iter().any(meddles) {
        return;
    }
    let slack = shadow.terms.latency * 4 + shadow.terms.skew * 4 + 1;
    for (number, row) in shadow.partitions.iter().enumerate() {
        let Some(row) = row.as_ref().filter(|row| shadow.reaches(pop, row)) else { continue };
        let Some((_, queue)) = shadow.live(PartitionNo(number as u32)) else { continue };
        let Some(since) = free_since(shadow, row, queue, pop, call) else { continue };
        let quiet = (shadow.fault_at + 20 * SECOND).max(call.at).max(since).max(ended) + slack;
        // One that does not wait must have found what was there before it came; one that waits is woken.
        let must = if pop.wait > 0 {
            quiet < shadow.now
        } else {
            since.max(shadow.fault_at + 20 * SECOND).max(ended) + slack < call.at
        };
        if must {
            let late = shadow.now - since;
            findings.violate("empty", place, || {
                format!(
                    "group {} is told that nothing is there, partition {number} has had something for {late} µs",
                    pop.group.0
                )
            });
        }
    }
}

/// Since when a partition has something for a pop that nobody holds.
fn free_since(shadow: &Shadow, row: &Partition, queue: &Queue, pop: &Pop, call: &Call) -> Option<At> {
    let options = &queue.options;
    if options.min_pop_wait_millis > 0 || queue.changed > call.place || matches!(pop.scope, Scope::Namespace(_)) {
        return None;
    }
    let subscription = queue.subscription(pop.group).filter(|it| it.place < call.place);
    let cursor = row.cursor(pop.group);
    let (next, written, expires) = match (cursor, subscription) {
        (Some(cursor), _) => (cursor.next, cursor.at, cursor.lease.map(|lease| lease.expires)),
        (None, Some(subscription)) => (row.implied(subscription, shadow.terms.queue_mode)?, At::MIN, None),
        (None, None) => return None,
    };
    let first = row.log.get(next as usize)?;
    let due = first.created + options.delayed_processing.max(options.window_buffer) * SECOND;
    let due = if shadow.terms.hot_list || options.window_buffer == 0 {
        due
    } else {
        due.max(row.log.last()?.created + options.window_buffer * SECOND)
    };
    let stamps = [Some(due), expires].into_iter().flatten().map(|stamp| stamp - shadow.terms.epoch);
    Some(stamps.fold(first.at.max(written), At::max))
}
