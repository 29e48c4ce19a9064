//! How messages lie in a column: packed, compressed where that pays, checksummed.
//!
//! A packed value is a header (format, codec, length before compression, checksum of what follows) and the messages:
//! what each consists of, then all payloads one after the other, so that reading copies nothing out of the whole.

use bytes::{Buf, BufMut, Bytes};
use compact_str::CompactString;
use tidegate_core::message::{NewMessage, StoredMessage};
use tidegate_core::name::TraceId;
use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_64;

const FORMAT: u8 = 1;
const PLAIN: u8 = 0;
const LZ4: u8 = 1;
const HEADER_BYTES: usize = 14;

/// Below this many bytes compression saves less than it costs.
const COMPRESSED_FROM: usize = 512;
/// LZ4 makes nothing smaller than by this factor, so a greater length is damage, not worth the memory.
const MOST_RATIO: usize = 256;

const HAS_TRANSACTION: u8 = 1;
const HAS_TRACE: u8 = 2;
const HAS_PRODUCER: u8 = 4;

/// Why stored bytes cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("packed messages are damaged: {0}")]
pub(crate) struct Damaged(&'static str);

/// Messages as a column holds them.
pub(crate) fn pack(messages: &[NewMessage]) -> Vec<u8> {
    let mut raw = Vec::with_capacity(messages.iter().map(|message| message.weight() + 8).sum::<usize>() + 8);
    put_length(&mut raw, messages.len());
    for message in messages {
        put_parts(
            &mut raw,
            message.payload.len(),
            message.transaction.as_ref().map(|id| id.as_str()),
            message.trace,
            message.producer.as_deref(),
        );
    }
    messages.iter().for_each(|message| raw.put_slice(&message.payload));
    seal(&raw)
}

/// A dead letter's message and error as a column holds them.
pub(crate) fn pack_dead(message: Option<&StoredMessage>, error: &str) -> Vec<u8> {
    let mut raw = Vec::new();
    put_text(&mut raw, error);
    put_length(&mut raw, usize::from(message.is_some()));
    if let Some(message) = message {
        let StoredMessage { transaction, payload, trace, producer } = message;
        put_parts(&mut raw, payload.len(), transaction.as_deref(), *trace, producer.as_deref());
        raw.put_slice(payload);
    }
    seal(&raw)
}

/// Messages `from` (inclusive) to `end` (exclusive) of a packed value.
pub(crate) fn unpack(packed: &[u8], from: usize, end: usize) -> Result<Vec<StoredMessage>, Damaged> {
    let mut raw = open(packed)?;
    take_messages(&mut raw, from, end)
}

/// A dead letter's message and error.
pub(crate) fn unpack_dead(packed: &[u8]) -> Result<(Option<StoredMessage>, CompactString), Damaged> {
    let mut raw = open(packed)?;
    let error = take_text(&mut raw)?;
    Ok((take_messages(&mut raw, 0, 1)?.pop(), error))
}

fn seal(raw: &[u8]) -> Vec<u8> {
    let mut packed = vec![0; HEADER_BYTES];
    let mut codec = PLAIN;
    if raw.len() >= COMPRESSED_FROM {
        packed.resize(HEADER_BYTES + lz4_flex::block::get_maximum_output_size(raw.len()), 0);
        match lz4_flex::block::compress_into(raw, &mut packed[HEADER_BYTES..]) {
            // Less than an eighth saved is not worth the time it takes to read.
            Ok(length) if length < raw.len() - raw.len() / 8 => {
                codec = LZ4;
                packed.truncate(HEADER_BYTES + length);
            }
            _ => packed.truncate(HEADER_BYTES),
        }
    }
    if codec == PLAIN {
        packed.extend_from_slice(raw);
    }
    let checksum = xxh3_64(&packed[HEADER_BYTES..]);
    let mut header = &mut packed[..HEADER_BYTES];
    header.put_u8(FORMAT);
    header.put_u8(codec);
    header.put_u32(raw.len() as u32);
    header.put_u64(checksum);
    packed
}

fn open(packed: &[u8]) -> Result<Bytes, Damaged> {
    let (mut header, body) = packed.split_at_checked(HEADER_BYTES).ok_or(Damaged("too short"))?;
    if header.get_u8() != FORMAT {
        return Err(Damaged("unknown format"));
    }
    let codec = header.get_u8();
    let length = header.get_u32() as usize;
    if header.get_u64() != xxh3_64(body) {
        return Err(Damaged("the checksum differs"));
    }
    match codec {
        PLAIN if body.len() == length => Ok(Bytes::copy_from_slice(body)),
        LZ4 if length / MOST_RATIO <= body.len() => match lz4_flex::block::decompress(body, length) {
            Ok(raw) if raw.len() == length => Ok(Bytes::from(raw)),
            _ => Err(Damaged("it does not decompress")),
        },
        _ => Err(Damaged("unknown codec or length")),
    }
}

fn put_parts(
    raw: &mut Vec<u8>,
    payload: usize,
    transaction: Option<&str>,
    trace: Option<TraceId>,
    producer: Option<&str>,
) {
    let flag = |set: bool, flag: u8| if set { flag } else { 0 };
    raw.put_u8(
        flag(transaction.is_some(), HAS_TRANSACTION)
            | flag(trace.is_some(), HAS_TRACE)
            | flag(producer.is_some(), HAS_PRODUCER),
    );
    put_length(raw, payload);
    if let Some(text) = transaction {
        put_text(raw, text);
    }
    if let Some(trace) = trace {
        raw.put_slice(trace.0.as_bytes());
    }
    if let Some(text) = producer {
        put_text(raw, text);
    }
}

fn take_messages(raw: &mut Bytes, from: usize, end: usize) -> Result<Vec<StoredMessage>, Damaged> {
    let count = take_length(raw)?;
    let mut messages = Vec::with_capacity(end.min(count).saturating_sub(from));
    let mut lengths = Vec::with_capacity(messages.capacity());
    let (mut skipped, mut all) = (0usize, 0usize);
    for place in 0..count {
        let flags = take(raw, 1)?.get_u8();
        let length = take_length(raw)?;
        all = all.saturating_add(length);
        let transaction = if flags & HAS_TRANSACTION > 0 { Some(take_part(raw)?) } else { None };
        let trace = if flags & HAS_TRACE > 0 { Some(take(raw, 16)?) } else { None };
        let producer = if flags & HAS_PRODUCER > 0 { Some(take_part(raw)?) } else { None };
        if place < from {
            skipped = all;
        } else if place < end {
            lengths.push(length);
            messages.push(StoredMessage {
                transaction: transaction.map(text).transpose()?,
                payload: Bytes::new(),
                trace: trace.and_then(|bytes| Uuid::from_slice(&bytes).ok()).map(TraceId),
                producer: producer.map(text).transpose()?,
            });
        }
    }
    if raw.len() < all {
        return Err(Damaged("payloads are missing"));
    }
    raw.advance(skipped);
    for (message, length) in messages.iter_mut().zip(lengths) {
        message.payload = take(raw, length)?;
    }
    Ok(messages)
}

fn take(raw: &mut Bytes, length: usize) -> Result<Bytes, Damaged> {
    if raw.len() < length { Err(Damaged("it ends too early")) } else { Ok(raw.split_to(length)) }
}

fn take_part(raw: &mut Bytes) -> Result<Bytes, Damaged> {
    let length = take_length(raw)?;
    take(raw, length)
}

fn text(bytes: Bytes) -> Result<CompactString, Damaged> {
    CompactString::from_utf8(&bytes[..]).map_err(|_| Damaged("a text is not UTF-8"))
}

fn take_text(raw: &mut Bytes) -> Result<CompactString, Damaged> {
    text(take_part(raw)?)
}

fn put_text(raw: &mut Vec<u8>, text: &str) {
    put_length(raw, text.len());
    raw.put_slice(text.as_bytes());
}

/// Seven bits a byte, the lowest first.
fn put_length(raw: &mut Vec<u8>, mut length: usize) {
    while length > 0x7f {
        raw.put_u8(length as u8 | 0x80);
        length >>= 7;
    }
    raw.put_u8(length as u8);
}

fn take_length(raw: &mut Bytes) -> Result<usize, Damaged> {
    let mut length = 0usize;
    for shift in (0..42).step_by(7) {
        let byte = take(raw, 1)?.get_u8();
        length |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(length);
        }
    }
    Err(Damaged("a length has too many bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(n: usize) -> NewMessage {
        let payload = Bytes::from(format!("{{\"event\":\"order.created\",\"number\":{n}}}"));
        NewMessage { transaction: None, payload, trace: None, producer: Some("billing".into()) }
    }

    #[test]
    fn parts_of_a_packed_segment_are_read_alone() {
        for count in [1, 3, 500] {
            let messages: Vec<_> = (0..count).map(message).collect();
            let packed = pack(&messages);
            for (from, end) in [(0, count), (0, 1), (count - 1, count), (count / 2, count), (count, count + 5)] {
                let read = unpack(&packed, from, end).expect("whole");
                let expected: Vec<_> = messages[from..end.min(count)].iter().map(|m| m.payload.clone()).collect();
                assert_eq!(read.iter().map(|m| m.payload.clone()).collect::<Vec<_>>(), expected);
                assert!(read.iter().all(|m| m.producer.as_deref() == Some("billing")));
            }
        }
        let many: Vec<_> = (0..500).map(message).collect();
        let plain: usize = many.iter().map(NewMessage::weight).sum();
        assert!(pack(&many).len() < plain / 2, "what repeats itself is compressed");
    }

    #[test]
    fn damage_is_noticed_wherever_it_is() {
        let packed = pack(&(0..20).map(message).collect::<Vec<_>>());
        for at in 0..packed.len() {
            let mut damaged = packed.clone();
            damaged[at] ^= 0x10;
            assert!(unpack(&damaged, 0, 20).is_err(), "byte {at}");
            assert!(unpack(&packed[..at], 0, 20).is_err(), "cut at {at}");
        }
    }
}
