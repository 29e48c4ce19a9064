//! Spans of requests, with the trace that a client is in (W3C `traceparent`).

use hyper::HeaderMap;
use hyper::http::request::Parts;
use tracing::Span;

use crate::router::Route;

/// A span for a request. It costs one comparison where nobody listens to spans.
pub(crate) fn of_request(head: &Parts, route: &Route) -> Span {
    let span = tracing::debug_span!(
        target: "tidegate::request",
        "request",
        method = %route.method,
        route = route.path,
        trace_id = tracing::field::Empty,
        parent_span_id = tracing::field::Empty,
    );
    if !span.is_disabled()
        && let Some(Context { trace, parent }) = context(&head.headers)
    {
        span.record("trace_id", trace).record("parent_span_id", parent);
    }
    span
}

/// Where in a trace a request was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Context<'h> {
    trace: &'h str,
    parent: &'h str,
}

/// The context in `traceparent`; none where there is none or it breaks the standard.
fn context(headers: &HeaderMap) -> Option<Context<'_>> {
    let text = headers.get("traceparent")?.to_str().ok()?.trim();
    let mut parts = text.split('-');
    let (version, trace, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let hex = |text: &str, length: usize| {
        text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let some = |text: &str| text.bytes().any(|byte| byte != b'0');
    // A later version may have more parts; the first may not.
    let whole = version != "00" || parts.next().is_none();
    let valid = hex(version, 2) && version != "ff" && hex(trace, 32) && hex(parent, 16) && hex(flags, 2) && whole;
    (valid && some(trace) && some(parent)).then_some(Context { trace, parent })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    fn read(text: &'static str) -> Option<(String, String)> {
        let headers = HeaderMap::from_iter([("traceparent".parse().expect("a name"), HeaderValue::from_static(text))]);
        context(&headers).map(|it| (it.trace.to_owned(), it.parent.to_owned()))
    }

    #[test]
    fn a_context_is_taken_as_the_standard_has_it() {
        const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
        let good = Some((TRACE.to_owned(), "00f067aa0ba902b7".to_owned()));
        assert_eq!(read("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"), good);
        assert_eq!(read("cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-comes"), good);
        for bad in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
        assert_eq!(context(&HeaderMap::new()), None);
    }
}
