//! One HTTP/1.1 connection, and what comes back over it.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{HeaderMap, Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::AbortHandle;

/// A keep-alive connection. Dropped, it hangs up at once, in the middle of a call too.
pub struct Client {
    sender: SendRequest<Full<Bytes>>,
    connection: AbortHandle,
}

impl Client {
    /// Speaks HTTP/1.1 over `io`.
    pub async fn over(io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Client {
        let (sender, connection) = http1::handshake(TokioIo::new(io)).await.expect("a pipe opens");
        let connection = tokio::spawn(connection).abort_handle();
        Client { sender, connection }
    }

    /// Whether the server keeps the connection open.
    pub fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }

    /// One call; an error is one of the connection.
    pub async fn try_call(
        &mut self,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
    ) -> Result<Answer, hyper::Error> {
        self.try_call_with(method, path, &[], body).await
    }

    /// One call with more headers.
    pub async fn try_call_with(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, String)],
        body: impl Into<Bytes>,
    ) -> Result<Answer, hyper::Error> {
        self.sender.ready().await?;
        let request = Request::builder().method(method).uri(path).header("host", "tidegate.test");
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, value));
        let request = request.body(Full::new(body.into())).expect("tests write valid paths");
        Answer::read(self.sender.send_request(request).await?).await
    }

    /// One call over a connection that works.
    pub async fn call(&mut self, method: Method, path: &str, body: impl Into<Bytes>) -> Answer {
        let described = format!("{method} {path}");
        self.try_call(method, path, body).await.unwrap_or_else(|error| panic!("{described}: {error}"))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The code.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The bytes.
    pub body: Bytes,
}

impl Answer {
    /// Reads an answer to its end.
    pub async fn read(response: Response<hyper::body::Incoming>) -> Result<Answer, hyper::Error> {
        let (head, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Answer { status: head.status.as_u16(), headers: head.headers, body })
    }

    /// The body as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("answers are UTF-8")
    }

    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("status {}, not JSON ({error}): {:?}", self.status, self.text()))
    }

    /// The body as a bare array.
    #[track_caller]
    pub fn list(&self) -> Vec<Value> {
        match self.json() {
            Value::Array(list) => list,
            other => panic!("status {}, not an array: {other}", self.status),
        }
    }

    /// Asserts the code.
    #[track_caller]
    pub fn expect(self, status: u16) -> Answer {
        assert_eq!(self.status, status, "{}", self.text());
        self
    }

    /// Asserts the code and gives the text under `error`.
    #[track_caller]
    pub fn error(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{}", self.text());
        let body = self.json();
        let error = body["error"].as_str();
        error.unwrap_or_else(|| panic!("status {status} without an error text: {body}")).to_owned()
    }

    /// A header that is there at most once.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}
