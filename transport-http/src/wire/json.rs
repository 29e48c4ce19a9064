//! Writing JSON by hand, where a document tree or a serializer would cost more than the answer is worth.

use std::io::Write;

use bytes::Bytes;
use serde_json::value::RawValue;
use uuid::Uuid;

/// A string in quotes.
pub(crate) fn text(out: &mut Vec<u8>, text: &str) {
    let plain = text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\');
    if plain {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    } else {
        // Writing to memory does not fail.
        let _ = serde_json::to_writer(out, text);
    }
}

/// A UUID in quotes.
pub(crate) fn uuid(out: &mut Vec<u8>, id: Uuid) {
    let mut buffer = Uuid::encode_buffer();
    out.push(b'"');
    out.extend_from_slice(id.hyphenated().encode_lower(&mut buffer).as_bytes());
    out.push(b'"');
}

/// A number.
pub(crate) fn number(out: &mut Vec<u8>, number: impl std::fmt::Display) {
    let _ = write!(out, "{number}");
}

/// Either of the two words.
pub(crate) fn boolean(out: &mut Vec<u8>, value: bool) {
    out.extend_from_slice(if value { b"true" } else { b"false" });
}

/// A payload exactly as it was pushed; null where there is nothing.
pub(crate) fn payload(out: &mut Vec<u8>, payload: &Bytes) {
    out.extend_from_slice(if payload.is_empty() { b"null" } else { payload });
}

/// A payload as a field of something that is serialized; null where there is nothing, and where a store gave back
/// something that never was pushed.
pub(crate) fn raw(payload: Option<&Bytes>) -> Option<&RawValue> {
    payload.and_then(|payload| serde_json::from_slice(payload).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped_as_the_serializer_does() {
        for given in ["", "plain", "a\"b\\c\u{0}\n", "é😀", "\u{7f}"] {
            let mut out = Vec::new();
            text(&mut out, given);
            assert_eq!(serde_json::from_slice::<String>(&out).ok().as_deref(), Some(given));
        }
    }
}
