//! The query string: strict where a pop is concerned (a typo must not consume messages), lenient on listings.

use std::borrow::Cow;
use std::str::FromStr;

use percent_encoding::percent_decode;
use tidegate_core::name::excerpt;

use crate::error::Failure;

/// A query string, not yet decoded. Unknown parameters are ignored, so only what is asked for is looked at.
#[derive(Clone, Copy)]
pub(crate) struct Query<'q>(&'q str);

impl<'q> Query<'q> {
    pub(crate) fn new(raw: Option<&'q str>) -> Self {
        Query(raw.unwrap_or_default())
    }

    /// The text of `name`; an error when it is given twice or is no UTF-8.
    pub(crate) fn text(&self, name: &str) -> Result<Option<Cow<'q, str>>, Failure> {
        let mut found = None;
        for pair in self.0.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if key != name && decode(key).is_none_or(|key| key != name) {
                continue;
            }
            if found.is_some() {
                return Err(Failure::bad_request(format!("query parameter {name} is given twice")));
            }
            let text = decode(value).ok_or_else(|| {
                let given = excerpt(value);
                Failure::bad_request(format!("query parameter {name} is not percent-encoded UTF-8: {given:?}"))
            })?;
            found = Some(text);
        }
        Ok(found)
    }

    /// `name` as a number or another type that `expected` describes; an error when it does not parse.
    pub(crate) fn typed<T: FromStr>(&self, name: &str, expected: &str) -> Result<Option<T>, Failure> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        text.parse().map(Some).map_err(|_| unexpected(name, expected, &text))
    }

    /// `name` as a number; `default` when it is absent or does not parse.
    pub(crate) fn number_or<T: FromStr>(&self, name: &str, default: T) -> Result<T, Failure> {
        Ok(self.text(name)?.and_then(|text| text.parse().ok()).unwrap_or(default))
    }

    /// `name` as a boolean; `default` when it is absent or a word that says neither.
    pub(crate) fn truth_or(&self, name: &str, default: bool) -> Result<bool, Failure> {
        Ok(match self.text(name)?.as_deref() {
            Some("true" | "1" | "yes") => true,
            Some("false" | "0" | "no") => false,
            _ => default,
        })
    }

    /// `name` as a filter: empty means no filter.
    pub(crate) fn filter(&self, name: &str) -> Result<Option<Cow<'q, str>>, Failure> {
        Ok(self.text(name)?.filter(|text| !text.is_empty()))
    }
}

/// The error for a parameter whose text is not what it has to be.
pub(crate) fn unexpected(name: &str, expected: &str, given: &str) -> Failure {
    Failure::bad_request(format!("query parameter {name} must be {expected}, got {:?}", excerpt(given)))
}

/// Undoes percent-encoding and `+` for a space; none where that is broken or leaves no UTF-8.
fn decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('+') {
        return decode_percent(text);
    }
    let spaced = text.replace('+', " ");
    decode_percent(&spaced).map(|text| Cow::Owned(text.into_owned()))
}

/// Undoes percent-encoding; none where a `%` has no two digits or the bytes are no UTF-8.
pub(crate) fn decode_percent(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    let broken = text.split('%').skip(1).any(|after| {
        let digits = after.as_bytes().get(..2);
        !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    });
    if broken {
        return None;
    }
    percent_decode(text.as_bytes()).decode_utf8().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(query: &str, name: &str) -> Result<Option<String>, String> {
        Query(query).text(name).map(|found| found.map(Cow::into_owned)).map_err(|failure| failure.text())
    }

    #[test]
    fn decodes_names_and_values() {
        assert_eq!(text("a=1&b=x%20y+z&c", "b").unwrap().as_deref(), Some("x y z"));
        assert_eq!(text("a=1&c", "c").unwrap().as_deref(), Some(""));
        assert_eq!(text("%62=1", "b").unwrap().as_deref(), Some("1"));
        assert_eq!(text("b=a=b", "b").unwrap().as_deref(), Some("a=b"));
        assert_eq!(text("b=%E2%9C%93%2B", "b").unwrap().as_deref(), Some("✓+"));
        assert_eq!(text("", "b").unwrap(), None);
        assert_eq!(text("x=%zz&x=1&b=2", "b").unwrap().as_deref(), Some("2"), "unknown ones are ignored");
    }

    #[test]
    fn names_what_is_wrong() {
        assert_eq!(text("b=1&b=1", "b").unwrap_err(), "query parameter b is given twice");
        for broken in ["b=%", "b=%f", "b=%zz", "b=%ff"] {
            assert!(text(broken, "b").unwrap_err().starts_with("query parameter b is not percent-encoded UTF-8"));
        }
        let batch = |query| Query(query).typed::<i32>("batch", "a whole number").map_err(|failure| failure.text());
        assert_eq!(batch("batch=-3"), Ok(Some(-3)));
        assert_eq!(batch("batch=abc").unwrap_err(), "query parameter batch must be a whole number, got \"abc\"");
        assert!(batch("batch=2147483648").is_err());
        assert!(batch("batch=").is_err());
        assert!(batch("batch=1.0").is_err());
    }

    #[test]
    fn listings_fall_back() {
        let query = Query("limit=abc&offset=7&deleteMetadata=maybe&q=&minLagSeconds=0&no=no");
        assert_eq!(query.number_or("limit", 100).ok(), Some(100));
        assert_eq!(query.number_or("offset", 0).ok(), Some(7));
        assert_eq!(query.truth_or("deleteMetadata", true).ok(), Some(true));
        assert_eq!(query.truth_or("no", true).ok(), Some(false));
        assert!(query.filter("q").is_ok_and(|filter| filter.is_none()));
    }
}
