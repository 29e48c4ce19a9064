//! Ids from time and entropy.

use rand_chacha::ChaCha20Rng;
use rand_core::Rng;
use uuid::{Builder, Uuid};

use crate::name::MessageId;
use crate::time::Timestamp;

/// Low bits of a segment's base id left zero, so that ids of its messages follow by counting.
const COUNTER_BYTES: usize = 2;

/// A version 4 UUID: nothing but chance.
pub fn random(entropy: &mut ChaCha20Rng) -> Uuid {
    let mut bytes = [0; 16];
    entropy.fill_bytes(&mut bytes);
    Builder::from_random_bytes(bytes).into_uuid()
}

/// A version 7 UUID: sorts by time, to the millisecond.
pub fn sortable(now: Timestamp, entropy: &mut ChaCha20Rng) -> Uuid {
    let mut bytes = [0; 10];
    entropy.fill_bytes(&mut bytes);
    plant!(LeaseIdsRepeat => bytes = [0; 10]);
    Builder::from_unix_timestamp_millis(now.as_unix_millis(), &bytes).into_uuid()
}

/// A version 7 UUID that sorts after `last` and, where it can, by time to the microsecond.
pub fn ordered(now: Timestamp, last: Uuid, entropy: &mut ChaCha20Rng) -> Uuid {
    let mut bytes = [0; 10];
    entropy.fill_bytes(&mut bytes);
    let micros = now.as_micros().rem_euclid(1_000) as u16;
    // The twelve bits behind the version: the microsecond within the millisecond, and room for chance.
    let precise = micros << 2 | u16::from(bytes[1] & 3);
    bytes[..2].copy_from_slice(&precise.to_be_bytes());
    let id = Builder::from_unix_timestamp_millis(now.as_unix_millis(), &bytes).into_uuid();
    if id > last { id } else { Uuid::from_u128(last.as_u128().wrapping_add(1)) }
}

/// The base id of a segment: version 7, with room to count its messages.
pub fn segment_base(created: Timestamp, entropy: &mut ChaCha20Rng) -> MessageId {
    let mut bytes = [0; 10];
    entropy.fill_bytes(&mut bytes[..10 - COUNTER_BYTES]);
    plant!(MessageIdsRepeat => bytes = [0; 10]);
    MessageId(Builder::from_unix_timestamp_millis(created.as_unix_millis(), &bytes).into_uuid())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MAX_SEGMENT_MESSAGES;
    use rand_core::SeedableRng;

    #[test]
    fn ordered_ids_sort_by_time_and_then_by_turn() {
        let mut entropy = ChaCha20Rng::from_seed([7; 32]);
        let mut last = Uuid::nil();
        for micros in [5_000_000, 5_000_000, 5_000_001, 5_000_002, 5_000_999, 5_001_000, 5_000_000] {
            let id = ordered(Timestamp::from_micros(micros), last, &mut entropy);
            assert!(id > last && id.get_version_num() == 7);
            last = id;
        }
    }

    #[test]
    fn every_id_of_a_segment_is_version_7_and_its_own() {
        let mut entropy = ChaCha20Rng::from_seed([7; 32]);
        let base = segment_base(Timestamp::from_micros(1_700_000_000_123_456), &mut entropy);
        let last = base.nth(MAX_SEGMENT_MESSAGES as u32 - 1);
        assert_eq!(last.0.get_version_num(), 7);
        assert_eq!(base.0.as_u128() & 0xffff, 0);
        assert_eq!(base.0.as_u128() >> 16, last.0.as_u128() >> 16);
        assert_eq!((base.0.as_u128() >> 80) as u64, 1_700_000_000_123);
        assert_eq!(random(&mut entropy).get_version_num(), 4);
        assert_eq!(sortable(Timestamp::EPOCH, &mut entropy).get_version_num(), 7);
    }
}
