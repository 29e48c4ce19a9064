//! What acks do to a cursor (8.4), computed anew.

use super::shadow::{Cursor, Partition};
use crate::history::{AckItem, Key, Leased, Options, Proof, Stamp, Status};

/// What a decision comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settled {
    pub next: u64,
    pub retries: u32,
    pub consumed: u64,
    pub lease: Option<Leased>,
    pub dead: Option<u64>,
}

/// The offset of an acked message in `from..to`.
pub fn place(row: &Partition, key: Key, from: u64, to: u64) -> Option<u64> {
    let log = row.log.get(from as usize..(to as usize).min(row.log.len()))?;
    log.iter().position(|message| message.key == key).map(|at| from + at as u64)
}

/// The decision on items that name one lease; none when it is refused. `now` is when it is made.
pub fn decide(
    row: &Partition,
    old: &Cursor,
    items: &[AckItem],
    proof: Proof,
    options: &Options,
    now: Stamp,
) -> Option<Settled> {
    match proof {
        Proof::None => {}
        Proof::Foreign => return None,
        Proof::Lease(id) => {
            old.lease.filter(|lease| lease.lease == id && now < lease.expires)?;
        }
    }
    let end = old.lease.map_or(row.end(), |lease| lease.end);
    let inside = |item: &AckItem| place(row, item.key, old.next, end);
    let grave = |status: Status| match status {
        Status::DeadLetter => 0,
        Status::Failed => 1,
        Status::Retry => 2,
        Status::Completed => 3,
    };
    let failed = items.iter().filter(|item| item.status != Status::Completed);
    let signal =
        failed.filter_map(|item| Some((inside(item)?, grave(item.status), item.status))).min_by_key(|it| (it.0, it.1));
    let done = items.iter().filter(|item| item.status == Status::Completed).filter_map(inside);
    let done = done.filter(|at| signal.is_none_or(|signal| *at < signal.0)).max();
    let mut after =
        Settled { next: old.next, retries: old.retries, consumed: old.consumed, lease: old.lease, dead: None };
    let pass = |after: &mut Settled, next: u64| {
        after.consumed += next.saturating_sub(after.next);
        after.next = after.next.max(next);
    };
    if let Some(at) = done {
        pass(&mut after, at + 1);
    }
    let Some(lease) = old.lease else { return Some(after) };
    let exhausted = i64::from(old.retries) >= options.retry_limit;
    match signal {
        None if after.next >= lease.end => (after.lease, after.retries) = (None, 0),
        None => {}
        Some((at, _, status)) => {
            after.lease = None;
            let dies = status == Status::DeadLetter || (status == Status::Failed && exhausted);
            if dies {
                pass(&mut after, at + 1);
                after.retries = 0;
                after.dead = Some(at).filter(|_| status == Status::DeadLetter || options.dead_letters);
            } else if status == Status::Failed {
                after.retries += 1;
            }
        }
    }
    Some(after)
}
