//! Taking a batch, under a lease or for good, and lengthening a lease.

use crate::name::LeaseId;
use crate::record::{Cursor, Lease};
use crate::time::{Span, Timestamp};

/// The cursor once `first..end` is delivered under a lease. The retry budget stands (6.4).
pub fn claim(cursor: &Cursor, id: LeaseId, end: u64, length: Span, now: Timestamp) -> Cursor {
    let end = end - u64::from(plant!(ClaimEndsShort));
    let mut after = Cursor { lease: Some(Lease { id, expires: now.plus(length), end }), ..cursor.clone() };
    plant!(ClaimResetsRetries => after.retries = 0);
    plant!(ExpiryCharges => after.retries += u32::from(cursor.lease.is_some()));
    after
}

/// The cursor once `first..end` is delivered and committed at once (`autoAck`).
pub fn claim_for_good(cursor: &Cursor, first: u64, end: u64) -> Cursor {
    plant!(AutoAckSkips => return Cursor { next: end + 1, lease: None, ..cursor.clone() });
    plant!(AutoAckStays => return Cursor { next: first, lease: None, ..cursor.clone() });
    Cursor { next: end, consumed: cursor.consumed + (end - first), lease: None, ..cursor.clone() }
}

/// The cursor with its live lease lengthened; none when the lease is another's or over. It never shortens (9).
pub fn extend(cursor: &Cursor, id: LeaseId, length: Span, now: Timestamp) -> Option<Cursor> {
    let lease = cursor.lease.filter(|lease| lease.id == id && (lease.lives(now) || plant!(ExtendRevives)))?;
    let mut expires = lease.expires.max(now.plus(length));
    plant!(ExtendShortens => expires = now.plus(length));
    Some(Cursor { lease: Some(Lease { expires, ..lease }), ..cursor.clone() })
}

/// The cursor once nobody holds its batch; none when the lease is not `id`.
pub fn give_back(cursor: &Cursor, id: LeaseId) -> Option<Cursor> {
    cursor.lease.filter(|lease| lease.id == id)?;
    plant!(GiveBackCharges => return Some(Cursor { lease: None, retries: cursor.retries + 1, ..cursor.clone() }));
    Some(Cursor { lease: None, ..cursor.clone() })
}
