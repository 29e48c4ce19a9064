//! Messages that can be told apart: each payload and transaction id carries its number.

use bytes::Bytes;
use tidegate_core::name::TransactionId;

/// Hexadecimal digits of the number in a payload.
const DIGITS: usize = 14;
/// A JSON text: quotes around the number.
pub const LEAST_BYTES: usize = DIGITS + 2;

/// Makes payloads of one size, and knows them again.
pub struct Payloads {
    template: Vec<u8>,
    expected: Vec<u8>,
}

impl Payloads {
    /// Of `bytes` bytes each, at least `LEAST_BYTES`.
    pub fn new(bytes: usize) -> Self {
        let bytes = bytes.max(LEAST_BYTES);
        let letters = (0u64..).map(|n| b'a' + (mix(n) % 26) as u8);
        let mut template: Vec<u8> = letters.take(bytes).collect();
        template[0] = b'"';
        template[bytes - 1] = b'"';
        Payloads { expected: template.clone(), template }
    }

    /// Bytes of one payload.
    pub fn size(&self) -> usize {
        self.template.len()
    }

    /// The payloads numbered `first` and on, as neighbours in one buffer, as in the body of a request.
    pub fn buffer(&self, first: u64, count: usize) -> Bytes {
        let mut buffer = Vec::with_capacity(count * self.size());
        for n in (first..).take(count) {
            let start = buffer.len();
            buffer.extend_from_slice(&self.template);
            buffer[start + 1..=start + DIGITS].copy_from_slice(&digits(n));
        }
        Bytes::from(buffer)
    }

    /// The `index`th payload of a buffer, without a copy.
    pub fn slice(&self, buffer: &Bytes, index: usize) -> Bytes {
        buffer.slice(index * self.size()..(index + 1) * self.size())
    }

    /// Whether this is payload `n`, byte for byte.
    pub fn is(&mut self, n: u64, payload: &[u8]) -> bool {
        self.expected[1..=DIGITS].copy_from_slice(&digits(n));
        self.expected == payload
    }

    /// The number of a payload, if every byte of it is as it was made.
    pub fn number(&mut self, payload: &[u8]) -> Option<u64> {
        let digits = std::str::from_utf8(payload.get(1..=DIGITS)?).ok()?;
        let number = u64::from_str_radix(digits, 16).ok()?;
        self.is(number, payload).then_some(number)
    }
}

/// The transaction id of message `n`: 36 bytes in the shape of a UUID, the commonest id by far.
pub fn transaction_id(n: u64) -> Result<TransactionId, crate::Failure> {
    Ok(TransactionId::new(std::str::from_utf8(&id_text(n))?)?)
}

/// Whether this is the transaction id of message `n`.
pub fn is_transaction_id(n: u64, text: &str) -> bool {
    id_text(n) == text.as_bytes()
}

fn id_text(n: u64) -> [u8; 36] {
    let mut text = [b'-'; 36];
    // `mix` is a bijection: different numbers give different first halves.
    let (high, low) = (hex(mix(n)), hex(mix(!n)));
    text[..8].copy_from_slice(&high[..8]);
    text[9..13].copy_from_slice(&high[8..12]);
    text[14..18].copy_from_slice(&high[12..]);
    text[19..23].copy_from_slice(&low[..4]);
    text[24..].copy_from_slice(&low[4..]);
    text
}

/// The last digits of `n`.
fn digits(n: u64) -> [u8; DIGITS] {
    let [_, _, digits @ ..] = hex(n);
    digits
}

/// The sixteen hexadecimal digits of `n`, all at once: what makes messages must cost little beside what is measured.
pub fn hex(n: u64) -> [u8; 16] {
    // One digit a byte, the first in the lowest byte.
    let spread = |half: u64| {
        let half = (half | half << 16) & 0x0000_ffff_0000_ffff;
        let half = (half | half << 8) & 0x00ff_00ff_00ff_00ff;
        ((half | half << 4) & 0x0f0f_0f0f_0f0f_0f0f).swap_bytes()
    };
    let text = |half: u64| {
        let digits = spread(half);
        // 1 in each byte that is a letter.
        let letters = ((digits + 0x0606_0606_0606_0606) >> 4) & 0x0101_0101_0101_0101;
        (digits + 0x3030_3030_3030_3030 + letters * u64::from(b'a' - b'9' - 1)).to_le_bytes()
    };
    let mut digits = [0; 16];
    digits[..8].copy_from_slice(&text(n >> 32));
    digits[8..].copy_from_slice(&text(n & 0xffff_ffff));
    digits
}

/// A bijection of the 64-bit numbers that makes neighbours look unrelated (the finalizer of splitmix64).
fn mix(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

#[cfg(test)]
mod tests {
    use super::{Payloads, hex, is_transaction_id, transaction_id};

    #[test]
    fn a_payload_is_known_by_its_number() {
        let mut payloads = Payloads::new(256);
        let buffer = payloads.buffer(0xabc_def0_1234, 3);
        for index in 0..3 {
            let payload = payloads.slice(&buffer, index);
            assert_eq!(payload.len(), 256);
            assert_eq!(payloads.number(&payload), Some(0xabc_def0_1234 + index as u64));
        }
        let mut changed = payloads.slice(&buffer, 0).to_vec();
        changed[200] ^= 1;
        assert_eq!(payloads.number(&changed), None);
        assert_eq!(payloads.number(b"\"short\""), None);
    }

    #[test]
    fn digits_are_those_of_format() {
        for n in [0, 9, 10, 0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210, u64::MAX] {
            assert_eq!(std::str::from_utf8(&hex(n)).unwrap(), format!("{n:016x}"));
        }
    }

    #[test]
    fn ids_differ() {
        let texts: std::collections::BTreeSet<String> =
            (0..10_000).map(|n| transaction_id(n).unwrap().as_str().to_owned()).collect();
        assert_eq!(texts.len(), 10_000);
        assert!(is_transaction_id(7, transaction_id(7).unwrap().as_str()));
        assert!(!is_transaction_id(8, transaction_id(7).unwrap().as_str()));
        assert!(texts.iter().all(|text| text.len() == 36));
    }
}
