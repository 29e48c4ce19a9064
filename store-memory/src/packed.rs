//! A segment's messages in one allocation, copied from wherever they came: a stored message keeps no request's buffer
//! alive, and a message read is a slice of the segment.
//!
//! The layout, numbers little-endian: head (count and flags, u32), the payloads' ends (u32 each), then, where the flags
//! say so, the extras' ends (u32 each), the hashes (16 bytes each) and the extras, last the payloads. Ends count from
//! the beginning of the extras or the payloads. Most messages have no extras (a transaction id, a trace, a producer).

use std::sync::Arc;

use bytes::Bytes;
use compact_str::CompactString;
use tidegate_core::message::{NewMessage, StoredMessage};
use tidegate_core::name::{MessageId, TraceId, TransactionHash};
use tidegate_core::record::NewSegment;
use uuid::Uuid;

const HAS_HASHES: u32 = 1;
const HAS_EXTRAS: u32 = 2;
const FLAG_BITS: u32 = 2;

const HAS_TRANSACTION: u8 = 1;
const HAS_TRACE: u8 = 2;
const HAS_PRODUCER: u8 = 4;

/// Up to this many messages, hashes that follow from the message ids are not stored: a million partitions with one
/// message each are 16 MB smaller. Beyond it, computing them costs more than the bytes are worth.
const MOST_DERIVED: usize = 2;

const WORD: usize = size_of::<u32>();
const HASH: usize = size_of::<u128>();

/// The messages of one segment.
#[derive(Clone)]
pub(crate) struct Packed(Arc<[u8]>);

impl AsRef<[u8]> for Packed {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Packed {
    /// Packs a segment's messages. `scratch` is a buffer to build in; its content does not matter. None when a length
    /// does not fit its field: more than 4 GiB.
    pub(crate) fn pack(segment: &NewSegment, scratch: &mut Vec<u8>) -> Option<Packed> {
        let messages = &segment.messages;
        let count = u32::try_from(messages.len()).ok().filter(|count| *count < 1 << (32 - FLAG_BITS))?;
        let with_hashes = !hashes_follow(segment);
        let with_extras = messages.iter().any(|message| extras_length(message) > 0);
        let flags = if with_hashes { HAS_HASHES } else { 0 } | if with_extras { HAS_EXTRAS } else { 0 };

        scratch.clear();
        scratch.extend_from_slice(&((count << FLAG_BITS) | flags).to_le_bytes());
        put_ends(scratch, messages.iter().map(|message| message.payload.len()))?;
        if with_extras {
            put_ends(scratch, messages.iter().map(extras_length))?;
        }
        if with_hashes {
            segment.hashes.iter().for_each(|hash| scratch.extend_from_slice(&hash.0.to_le_bytes()));
        }
        if with_extras {
            messages.iter().for_each(|message| put_extras(scratch, message));
        }
        messages.iter().for_each(|message| scratch.extend_from_slice(&message.payload));
        Some(Packed(Arc::from(scratch.as_slice())))
    }

    /// How many messages there are.
    pub(crate) fn count(&self) -> u64 {
        u64::from(self.head() >> FLAG_BITS)
    }

    /// Each message's hash; `base` is the segment's base id.
    pub(crate) fn hashes(&self, base: MessageId) -> Vec<TransactionHash> {
        if self.head() & HAS_HASHES == 0 {
            return (0..self.head() >> FLAG_BITS).map(|n| base.nth(n).as_transaction_hash()).collect();
        }
        self.layout().hashes.iter().map(|hash| TransactionHash(u128::from_le_bytes(*hash))).collect()
    }

    /// The messages with places `from` (inclusive) to `end` (exclusive).
    pub(crate) fn read(&self, from: u64, end: u64) -> Vec<StoredMessage> {
        let layout = self.layout();
        let count = layout.payload_ends.len();
        let place = |n: u64| usize::try_from(n).unwrap_or(usize::MAX).min(count);
        let range = place(from)..place(end);
        let whole = Bytes::from_owner(self.clone());
        range
            .map(|place| {
                let (start, end) = span(layout.payload_ends, place);
                let payload = whole.slice(layout.payloads_at + start..layout.payloads_at + end);
                let mut message = StoredMessage { transaction: None, payload, trace: None, producer: None };
                if !layout.extras_ends.is_empty() {
                    let (start, end) = span(layout.extras_ends, place);
                    take_extras(&layout.extras[start..end], &mut message);
                }
                message
            })
            .collect()
    }

    fn head(&self) -> u32 {
        self.0.first_chunk().map_or(0, |head| u32::from_le_bytes(*head))
    }

    fn layout(&self) -> Layout<'_> {
        let head = self.head();
        let count = (head >> FLAG_BITS) as usize;
        let extras_count = if head & HAS_EXTRAS == 0 { 0 } else { count };
        let hash_count = if head & HAS_HASHES == 0 { 0 } else { count };
        let (_, rest) = self.0.split_at(WORD);
        let (payload_ends, rest) = rest.split_at(WORD * count);
        let (extras_ends, rest) = rest.split_at(WORD * extras_count);
        let (hashes, rest) = rest.split_at(HASH * hash_count);
        let extras_ends = extras_ends.as_chunks().0;
        let extras_bytes = extras_ends.last().map_or(0, |end| u32::from_le_bytes(*end) as usize);
        Layout {
            payload_ends: payload_ends.as_chunks().0,
            extras_ends,
            hashes: hashes.as_chunks().0,
            extras: &rest[..extras_bytes],
            payloads_at: self.0.len() - rest.len() + extras_bytes,
        }
    }
}

/// Where things are; a part that was left out is empty.
struct Layout<'a> {
    payload_ends: &'a [[u8; WORD]],
    extras_ends: &'a [[u8; WORD]],
    hashes: &'a [[u8; HASH]],
    extras: &'a [u8],
    payloads_at: usize,
}

fn hashes_follow(segment: &NewSegment) -> bool {
    let mut places = segment.messages.iter().zip(&segment.hashes).zip(0u32..);
    segment.messages.len() <= MOST_DERIVED
        && places.all(|((message, hash), n)| {
            message.transaction.is_none() && *hash == segment.base.nth(n).as_transaction_hash()
        })
}

fn put_ends(to: &mut Vec<u8>, lengths: impl Iterator<Item = usize>) -> Option<()> {
    let mut end = 0u32;
    for length in lengths {
        end = end.checked_add(u32::try_from(length).ok()?)?;
        to.extend_from_slice(&end.to_le_bytes());
    }
    Some(())
}

/// Where the part at `place` starts and ends.
fn span(ends: &[[u8; WORD]], place: usize) -> (usize, usize) {
    let end_of = |place: usize| u32::from_le_bytes(ends[place]) as usize;
    (place.checked_sub(1).map_or(0, end_of), end_of(place))
}

/// Bytes that `put_extras` writes; nothing at all for a message that has none.
fn extras_length(message: &NewMessage) -> usize {
    let transaction = message.transaction.as_ref().map(|id| WORD + id.as_str().len());
    let trace = message.trace.map(|_| size_of::<Uuid>());
    let producer = message.producer.as_ref().map(|producer| WORD + producer.len());
    match (transaction, trace, producer) {
        (None, None, None) => 0,
        _ => 1 + transaction.unwrap_or(0) + trace.unwrap_or(0) + producer.unwrap_or(0),
    }
}

fn put_extras(to: &mut Vec<u8>, message: &NewMessage) {
    if extras_length(message) == 0 {
        return;
    }
    let flag = |there: bool, flag: u8| if there { flag } else { 0 };
    to.push(
        flag(message.transaction.is_some(), HAS_TRANSACTION)
            | flag(message.trace.is_some(), HAS_TRACE)
            | flag(message.producer.is_some(), HAS_PRODUCER),
    );
    if let Some(id) = &message.transaction {
        put_text(to, id.as_str());
    }
    if let Some(trace) = message.trace {
        to.extend_from_slice(trace.0.as_bytes());
    }
    if let Some(producer) = &message.producer {
        put_text(to, producer);
    }
}

/// `pack` has refused texts longer than a u32 counts.
fn put_text(to: &mut Vec<u8>, text: &str) {
    to.extend_from_slice(&(text.len() as u32).to_le_bytes());
    to.extend_from_slice(text.as_bytes());
}

fn take_extras(extras: &[u8], message: &mut StoredMessage) {
    let Some((flags, mut rest)) = extras.split_first() else {
        return;
    };
    if flags & HAS_TRANSACTION != 0 {
        message.transaction = take_text(&mut rest);
    }
    if flags & HAS_TRACE != 0
        && let Some((trace, after)) = rest.split_first_chunk()
    {
        message.trace = Some(TraceId(Uuid::from_bytes(*trace)));
        rest = after;
    }
    if flags & HAS_PRODUCER != 0 {
        message.producer = take_text(&mut rest);
    }
}

/// The next text; the bytes were text when they were packed.
fn take_text(from: &mut &[u8]) -> Option<CompactString> {
    let (length, rest) = from.split_first_chunk()?;
    let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    *from = rest;
    CompactString::from_utf8(text).ok()
}
