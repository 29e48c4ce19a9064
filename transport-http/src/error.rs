//! What went wrong, as status and body. The only place where a rejection gets a status code.

use bytes::Bytes;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::{Response, StatusCode};
use serde::Serialize;
use tidegate_core::error::Rejection;
use tidegate_core::name::{NameError, excerpt};

use crate::receipt::Body;
use crate::route::JSON;

/// An answer that is not a success. Its body is always valid JSON with an `error`.
#[derive(Debug)]
pub(crate) struct Failure {
    status: StatusCode,
    body: Vec<u8>,
    /// Seconds after which it is worth trying again.
    retry_after: Option<&'static str>,
    /// Methods that the path knows, on a 405.
    allow: Option<String>,
    /// Certainly nothing was done, and the slot's owner would do it.
    not_owner: bool,
}

/// The plain error body.
#[derive(Serialize)]
struct Plain<'a> {
    error: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
}

impl Failure {
    /// `status` with a body of the route's own shape.
    pub(crate) fn with_body(status: StatusCode, body: &impl Serialize) -> Self {
        // Nothing that is serialized here can fail: keys are strings and there is no I/O.
        let body = serde_json::to_vec(body).unwrap_or_else(|_| b"{\"error\":\"internal error\"}".to_vec());
        Failure { status, body, retry_after: None, allow: None, not_owner: false }
    }

    /// `status` with `{"error": …}`.
    pub(crate) fn new(status: StatusCode, error: &str) -> Self {
        Failure::with_body(status, &Plain { error, code: None })
    }

    fn coded(status: StatusCode, error: &str, code: &str) -> Self {
        Failure::with_body(status, &Plain { error, code: Some(code) })
    }

    /// 400: something in the path or the query.
    pub(crate) fn bad_request(error: impl AsRef<str>) -> Self {
        Failure::new(StatusCode::BAD_REQUEST, error.as_ref())
    }

    /// 400: something in the body.
    pub(crate) fn bad_body(what: impl AsRef<str>) -> Self {
        Failure::bad_request(format!("bad body: {}", what.as_ref()))
    }

    /// 400: a name in the body that breaks the rules for names.
    pub(crate) fn bad_name(field: &str, error: NameError) -> Self {
        Failure::bad_body(format!("{field} {error}"))
    }

    /// 401: who asks is not known, and why.
    pub(crate) fn unauthorized(error: &str) -> Self {
        Failure::new(StatusCode::UNAUTHORIZED, error)
    }

    /// 403: who asks is known, and may not.
    pub(crate) fn forbidden() -> Self {
        Failure::new(StatusCode::FORBIDDEN, "Insufficient permissions")
    }

    /// 404 with the route's own error text.
    pub(crate) fn not_found(error: &str) -> Self {
        Failure::new(StatusCode::NOT_FOUND, error)
    }

    /// 404: there is no such path. Clients read the code.
    pub(crate) fn no_such_route() -> Self {
        Failure::coded(StatusCode::NOT_FOUND, "Not Found", "no_such_route")
    }

    /// 405: the path exists, but not for this method.
    pub(crate) fn wrong_method(method: &str, allow: String) -> Self {
        let error = format!("method {} is not allowed here, allowed: {allow}", excerpt(method));
        let failure = Failure::coded(StatusCode::METHOD_NOT_ALLOWED, &error, "method_not_allowed");
        Failure { allow: Some(allow), ..failure }
    }

    /// 421: another broker sent this on, and this one does not own the slot.
    pub(crate) fn misdirected() -> Self {
        let rejection = Rejection::NotOwner;
        Failure::coded(StatusCode::MISDIRECTED_REQUEST, &rejection.to_string(), rejection.code())
    }

    /// Whether the slot's owner would do what was asked.
    pub(crate) fn is_not_owner(&self) -> bool {
        self.not_owner
    }

    /// 408: the client stopped sending in the middle of its body.
    pub(crate) fn body_timeout() -> Self {
        Failure::new(StatusCode::REQUEST_TIMEOUT, "the request body did not arrive in time")
    }

    /// 413.
    pub(crate) fn too_large(limit: usize) -> Self {
        let error = format!("the request body is larger than {limit} bytes (QUEEN_MAX_BODY_BYTES)");
        Failure::coded(StatusCode::PAYLOAD_TOO_LARGE, &error, "body_too_large")
    }

    /// 500: a defect of ours.
    pub(crate) fn internal() -> Self {
        Failure::coded(StatusCode::INTERNAL_SERVER_ERROR, "internal error", "internal")
    }

    /// The client will not see this: it is gone, or stopped in the middle of its request.
    pub(crate) fn unreadable(error: &hyper::Error) -> Self {
        Failure::bad_body(format!("it could not be read: {error}"))
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    pub(crate) fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::from(Bytes::from(self.body)));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from_static(seconds));
        }
        if let Some(allow) = self.allow.and_then(|allow| HeaderValue::try_from(allow).ok()) {
            headers.insert(ALLOW, allow);
        }
        response
    }

    /// The error's text, for tests.
    #[cfg(test)]
    pub(crate) fn text(&self) -> String {
        let body: serde_json::Value = serde_json::from_slice(&self.body).expect("every error body is valid JSON");
        body["error"].as_str().unwrap_or_default().to_owned()
    }
}

impl From<Rejection> for Failure {
    fn from(rejection: Rejection) -> Self {
        let status = match rejection {
            Rejection::StoreUnavailable
            | Rejection::OutcomeUnknown
            | Rejection::NotOwner
            | Rejection::Maintenance
            | Rejection::Draining
            | Rejection::NoKey
            | Rejection::ForeignKey => StatusCode::SERVICE_UNAVAILABLE,
        };
        let failure = Failure::coded(status, &rejection.to_string(), rejection.code());
        Failure { retry_after: Some("1"), not_owner: rejection == Rejection::NotOwner, ..failure }
    }
}
