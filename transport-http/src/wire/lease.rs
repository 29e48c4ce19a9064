//! Lease extension. (queen-http.md 9)

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidegate_core::time::{Span, Timestamp};

use crate::body::{Object, parse};
use crate::time;

/// Seconds where the body says none, or nothing that can be read.
const DEFAULT_SECONDS: i64 = 60;

#[derive(JsonSchema, Deserialize)]
pub(crate) struct ExtendBody<'b> {
    #[serde(borrow)]
    #[schemars(with = "Option<i64>")]
    seconds: Option<&'b RawValue>,
}

/// How long the extension is. This body alone is never refused.
pub(crate) fn length(body: &[u8]) -> Span {
    let seconds = parse::<Object<ExtendBody>>(body).ok().and_then(|Object(body)| body.seconds);
    Span::from_secs(seconds.and_then(|seconds| whole(seconds.get())).unwrap_or(DEFAULT_SECONDS).max(1))
}

/// A JSON integer; one beyond 64 bits is as good as for ever.
fn whole(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(text.parse().unwrap_or(if text.starts_with('-') { i64::MIN } else { i64::MAX }))
}

/// The answer. The expiry stands in it three times, for three generations of clients.
#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Extended<'a> {
    lease_id: &'a str,
    success: bool,
    renewed: u32,
    new_expires_at: Option<String>,
    expires_at: Option<String>,
    #[serde(rename = "lease_expires_at")]
    lease_expires_at: Option<String>,
}

impl<'a> Extended<'a> {
    /// `lease` is the path's text.
    pub(crate) fn new(lease: &'a str, renewed: u32, earliest: Option<Timestamp>) -> Self {
        let expiry = earliest.map(time::micros);
        Extended {
            lease_id: lease,
            success: renewed > 0,
            renewed,
            new_expires_at: expiry.clone(),
            expires_at: expiry.clone(),
            lease_expires_at: expiry,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anything_unreadable_is_a_minute() {
        for body in [
            "",
            "x",
            "[]",
            "{}",
            "{\"seconds\":null}",
            "{\"seconds\":\"5\"}",
            "{\"seconds\":1.5}",
            "{\"seconds\":true}",
        ] {
            assert_eq!(length(body.as_bytes()), Span::from_secs(60), "{body}");
        }
        assert_eq!(length(b"{\"seconds\":120}"), Span::from_secs(120));
        assert_eq!(length(b"{\"seconds\":0}"), Span::from_secs(1));
        assert_eq!(length(b"{\"seconds\":-99999999999999999999}"), Span::from_secs(1));
        assert_eq!(length(b"{\"seconds\":99999999999999999999}"), Span::from_secs(i64::MAX));
    }

    #[test]
    fn the_answer_is_exact() {
        let text = serde_json::to_string(&Extended::new("l", 0, None)).expect("it serializes");
        assert_eq!(
            text,
            r#"{"leaseId":"l","success":false,"renewed":0,"newExpiresAt":null,"expiresAt":null,"lease_expires_at":null}"#
        );
    }
}
