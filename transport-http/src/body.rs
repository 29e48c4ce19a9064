//! Request bodies: reading them under the limit, and JSON that says where it is wrong.

use std::borrow::Cow;
use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::HeaderMap;
use hyper::body::{Body as _, Incoming};
use hyper::header::EXPECT;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::HttpSettings;
use crate::error::Failure;

/// Room that is made for a body before any of it has arrived.
const EAGER_BYTES: u64 = 1024 * 1024;
/// How long a body that is too large is read and thrown away.
const ABSORB_TIME: Duration = Duration::from_secs(10);
/// A client that sends nothing for this long is waiting for its answer.
const STALL: Duration = Duration::from_millis(250);

/// A request's body, which may be wanted again when the request is sent somewhere else.
pub(crate) struct Source {
    incoming: Option<Incoming>,
    whole: Bytes,
}

impl Source {
    pub(crate) fn new(incoming: Incoming) -> Self {
        Source { incoming: Some(incoming), whole: Bytes::new() }
    }

    /// The whole body.
    pub(crate) async fn read(&mut self, headers: &HeaderMap, settings: &HttpSettings) -> Result<Bytes, Failure> {
        if let Some(incoming) = self.incoming.take() {
            self.whole = read(incoming, headers, settings.max_body_bytes, settings.body_timeout).await?;
        }
        Ok(self.whole.clone())
    }

    /// What is left open by a broker that waits to say more; none when the body ended with the request's head.
    pub(crate) fn take_open(&mut self) -> Option<Incoming> {
        self.incoming.take_if(|incoming| !incoming.is_end_stream())
    }
}

/// Reads a whole body of at most `limit` bytes.
async fn read(mut body: Incoming, headers: &HeaderMap, limit: usize, patience: Duration) -> Result<Bytes, Failure> {
    let announced = body.size_hint().lower();
    if announced > limit as u64 {
        // A client that asks first will not send it.
        let asks = headers.contains_key(EXPECT);
        return Err(if asks { Failure::too_large(limit) } else { refuse(body, limit).await });
    }
    let Some(first) = next(&mut body, patience).await? else { return Ok(Bytes::new()) };
    if body.is_end_stream() && first.len() <= limit {
        return Ok(first);
    }
    let mut whole = BytesMut::with_capacity(announced.min(EAGER_BYTES) as usize);
    whole.extend_from_slice(&first);
    while whole.len() <= limit {
        match next(&mut body, patience).await? {
            Some(data) => whole.extend_from_slice(&data),
            None => return Ok(whole.freeze()),
        }
    }
    Err(refuse(body, limit).await)
}

/// The next bytes; none at the end.
async fn next(body: &mut Incoming, patience: Duration) -> Result<Option<Bytes>, Failure> {
    // Mostly it is there already, and then no timer is needed.
    let early = poll_fn(|cx| Poll::Ready(Pin::new(&mut *body).poll_frame(cx))).await;
    let frame = match early {
        Poll::Ready(frame) => Ok(frame),
        Poll::Pending => tokio::time::timeout(patience, poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx))).await,
    };
    match frame {
        Err(_) => Err(Failure::body_timeout()),
        Ok(None) => Ok(None),
        Ok(Some(Err(error))) => Err(Failure::unreadable(&error)),
        // Trailers say nothing that is of interest here.
        Ok(Some(Ok(frame))) => Ok(Some(frame.into_data().unwrap_or_default())),
    }
}

/// Answers 413 when the client has sent what it has to send, or waits. A socket that is closed with unread bytes in it
/// resets the connection, so the client might never see why; and many clients read nothing before they have sent all.
async fn refuse(mut body: Incoming, limit: usize) -> Failure {
    let mut left = limit.saturating_mul(2);
    let absorbed = tokio::time::timeout(ABSORB_TIME, absorb(&mut body, &mut left, STALL)).await;
    if let Ok(Absorbed::Stalled) = absorbed {
        tokio::spawn(async move {
            let _ = tokio::time::timeout(ABSORB_TIME, absorb(&mut body, &mut left, ABSORB_TIME)).await;
        });
    }
    Failure::too_large(limit)
}

/// How reading and throwing away ended.
enum Absorbed {
    /// The body ended, or so many bytes came that the connection is better closed.
    Finished,
    /// Nothing came for a while.
    Stalled,
}

/// Reads and throws away at most `left` bytes.
async fn absorb(body: &mut Incoming, left: &mut usize, patience: Duration) -> Absorbed {
    loop {
        match tokio::time::timeout(patience, next(body, ABSORB_TIME)).await {
            Ok(Ok(Some(data))) => match left.checked_sub(data.len()) {
                Some(rest) => *left = rest,
                None => return Absorbed::Finished,
            },
            Ok(Ok(None) | Err(_)) => return Absorbed::Finished,
            Err(_) => return Absorbed::Stalled,
        }
    }
}

/// Reads JSON whose error names the field by its path.
pub(crate) fn parse<'b, T: Deserialize<'b>>(body: &'b [u8]) -> Result<T, Failure> {
    parse_below("", body)
}

/// `parse` for JSON that stands at `place` in the body.
pub(crate) fn parse_below<'b, T: Deserialize<'b>>(place: &str, body: &'b [u8]) -> Result<T, Failure> {
    // Checked as a whole once: strings then need no check of their own.
    let text = std::str::from_utf8(body)
        .map_err(|error| Failure::bad_body(format!("not UTF-8: the byte at {} is wrong", error.valid_up_to())))?;
    // Keeping the path costs, so it is only kept when there is something to say.
    serde_json::from_str(text).map_err(|error| Failure::bad_body(explain::<T>(place, text, &error)))
}

fn explain<'b, T: Deserialize<'b>>(place: &str, text: &'b str, error: &serde_json::Error) -> String {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    match serde_path_to_error::deserialize::<_, T>(&mut deserializer) {
        Err(error) => {
            let path = error.path().to_string();
            let path = if path == "." { place.to_owned() } else { format!("{place}{path}") };
            let mut what = error.inner().to_string();
            // Inside a part of the body, the parser counts from the part's start: its path is the better place to look.
            if let Some(at) = what.rfind(" at line ").filter(|_| !place.is_empty()) {
                what.truncate(at);
            }
            let what = shorten(&what);
            if path.is_empty() { what } else { format!("{}: {what}", shorten(&path)) }
        }
        // The value itself was fine: something follows it.
        Ok(_) => shorten(&error.to_string()),
    }
}

/// Parser texts quote what they found, and that may be a megabyte. The end says what was expected and where.
fn shorten(text: &str) -> String {
    const SHOWN: usize = 160;
    let count = text.chars().count();
    if count <= 2 * SHOWN {
        return text.to_owned();
    }
    let (start, end) = (text.chars().take(SHOWN), text.chars().skip(count - SHOWN));
    start.chain(['…']).chain(end).collect()
}

/// A JSON object as `T`. What is derived for a struct also takes an array of its fields in order; a client that sends one
/// has not understood the API, and must hear so.
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(Fields(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for Object<T> {
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

impl JsonSchema for Text<'_> {
    fn schema_name() -> Cow<'static, str> {
        "Text".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string"})
    }
}

/// An object whose keys are not known beforehand, in the order sent.
pub(crate) struct Entries<'b>(pub(crate) Vec<(Text<'b>, &'b RawValue)>);

impl<'de: 'b, 'b> Deserialize<'de> for Entries<'b> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Vec<(Text<'de>, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(entries)
            }
        }
        deserializer.deserialize_map(Fields).map(Entries)
    }
}

/// A JSON string, borrowed from the body unless an escape is written in it. (`Cow` alone would only borrow where it is a
/// field's whole type, not within an `Option`.)
pub(crate) struct Text<'b>(pub(crate) Cow<'b, str>);

impl std::ops::Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de: 'b, 'b> Deserialize<'de> for Text<'b> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Borrow;
        impl<'de> Visitor<'de> for Borrow {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Borrow)
    }
}

/// For a field that may be left out but where null is a value: `Option` alone would read null as left out.
pub(crate) fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Outer<'b> {
        #[serde(borrow)]
        list: Vec<Object<Inner<'b>>>,
    }

    #[derive(Deserialize)]
    struct Inner<'b> {
        #[serde(borrow, default)]
        name: Option<Text<'b>>,
        #[serde(borrow, default, deserialize_with = "present")]
        raw: Option<&'b RawValue>,
    }

    fn first(body: &str) -> Result<(Option<String>, Option<String>), String> {
        let Object(outer) = parse::<Object<Outer>>(body.as_bytes()).map_err(|failure| failure.text())?;
        let Some(Object(inner)) = outer.list.into_iter().next() else { return Err("empty".into()) };
        Ok((inner.name.map(|name| name.to_string()), inner.raw.map(|raw| raw.get().to_owned())))
    }

    #[test]
    fn keeps_bytes_and_understands_escapes() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        for raw in [
            "null",
            "{\"b\":1, \"a\":9007199254740993, \"c\":1.0, \"n\":\"\\u0000\"}",
            "1e400",
            "-0",
            "\"\\ud800\"",
            "{\"a\":1,\"a\":2}",
            &deep,
        ] {
            let found = first(&format!("{{\"list\":[{{\"raw\": {raw} ,\"name\":\"\\u0026\\ud83d\\ude00\"}}]}}"));
            assert_eq!(found, Ok((Some("&😀".into()), Some(raw.into()))));
        }
        assert_eq!(first("{\"list\":[{\"name\":null,\"x\":[\"\\ud800\"]}]}"), Ok((None, None)));
    }

    #[test]
    fn says_where_it_is_wrong() {
        let says = |body: &str, expected: &str| {
            let text = first(body).expect_err(body);
            assert!(text.starts_with("bad body: ") && text.contains(expected), "{body}: {text}");
        };
        says("", "EOF");
        says("{", "EOF");
        says("[]", "expected an object");
        says("null", "expected an object");
        says("{\"list\":{}}", "list: invalid type: map, expected a sequence");
        says("{\"list\":[{},[\"x\"]]}", "list[1]: invalid type: sequence, expected an object");
        says("{\"list\":[{},{\"name\":5}]}", "list[1].name: invalid type: integer `5`, expected a string");
        says("{\"list\":[{\"name\":\"\\ud800\"}]}", "list[0].name: ");
        says("{\"list\":[{\"raw\":[1,]}]}", "list[0].raw: ");
        says("{\"list\":[]} x", "trailing characters");
        says("{\"list\":[],\"list\":[]}", "duplicate field `list`");
        says(&"[".repeat(100_000), "expected an object");
        says(&format!("{{\"list\":[{{\"name\":{{\"{}", "x".repeat(70_000)), "list[0].name: ");
        let long = first(&format!("{{\"list\":\"{}\"}}", "x".repeat(70_000))).expect_err("a string is no list");
        assert!(long.len() < 500 && long.contains("expected a sequence"), "{long}");
    }

    #[test]
    fn refuses_what_is_not_utf8() {
        let failure = parse::<Object<Outer>>(b"{\"list\":\"\xff\"}").err().expect("0xff is no UTF-8");
        assert_eq!(failure.text(), "bad body: not UTF-8: the byte at 9 is wrong");
    }
}
