//! Payloads: any JSON value, passed on byte for byte as a slice of the body it came in.

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::error::Failure;

/// Arrays and objects inside each other. Consumers' parsers recurse: what is deeper would be accepted here and crash
/// there, again with each redelivery.
const MAX_DEPTH: usize = 10_000;

/// The payload as a slice of `body`; `place` names the item it belongs to.
pub(crate) fn slice(raw: &RawValue, body: &Bytes, place: impl FnOnce() -> String) -> Result<Bytes, Failure> {
    let text = raw.get().as_bytes();
    // Each level opens and closes, so only a long payload can be too deep.
    if text.len() > 2 * MAX_DEPTH {
        let depth = depth(text);
        if depth > MAX_DEPTH {
            return Err(Failure::bad_body(format!(
                "{}.payload nests {depth} levels deep, at most {MAX_DEPTH} are allowed",
                place()
            )));
        }
    }
    Ok(body.slice_ref(text))
}

/// How deep valid JSON nests.
fn depth(json: &[u8]) -> usize {
    let (mut open, mut deepest, mut in_string, mut escaped) = (0usize, 0, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                open += 1;
                deepest = deepest.max(open);
            }
            b']' | b'}' if !in_string => open = open.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_in_strings_do_not_nest() {
        assert_eq!(depth(br#"{"a":[1,{"b":"]}[[[\"[[["}],"c":[]}"#), 3);
        assert_eq!(depth(br#""[[[""#), 0);
        assert_eq!(depth("[".repeat(9).as_bytes()), 9);
    }
}
