//! The socket as hyper sees it: says when bytes were written, and gives hyper's own error answers a body.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::gather::Gathering;
use crate::receipt::Connection;

/// A socket that keeps its `Connection` informed.
pub(crate) struct Watched<I> {
    inner: TokioIo<Gathering<I>>,
    connection: Arc<Connection>,
    /// What is written in place of hyper's own answer, as far as it is not written yet.
    instead: Vec<u8>,
}

impl<I: AsyncWrite + Unpin> Watched<I> {
    pub(crate) fn new(inner: Gathering<I>, connection: Arc<Connection>) -> Self {
        Watched { inner: TokioIo::new(inner), connection, instead: Vec::new() }
    }

    /// Writes `instead` to its end.
    fn poll_instead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.instead.is_empty() {
            let written = ready!(Pin::new(&mut self.inner).poll_write(cx, &self.instead))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.instead.drain(..written);
        }
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncRead + Unpin> Read for Watched<I> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<I: AsyncWrite + Unpin> Write for Watched<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_instead(cx))?;
        self.connection.touch();
        if let Some(instead) = with_body(buf) {
            self.instead = instead;
            return Poll::Ready(Ok(buf.len()));
        }
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // Hyper's own answers have no body, so they are never written in several pieces.
        match bufs {
            [one] => self.poll_write(cx, one),
            _ => {
                ready!(self.poll_instead(cx))?;
                self.connection.touch();
                Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_instead(cx))?;
        ready!(Pin::new(&mut self.inner).poll_flush(cx))?;
        if !self.inner.inner().gathers() {
            self.connection.flushed();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_instead(cx))?;
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// Hyper answers a request that it cannot parse by itself, without a body, and offers no way to say something. Every
/// error of ours has a JSON body (queen-http.md 36.2), so an empty answer of class 4xx at the end of `buf` can only be
/// hyper's: this is `buf` with such an answer completed, and none when there is no such answer.
fn with_body(buf: &[u8]) -> Option<Vec<u8>> {
    const LENGTH: &str = "content-length: 0\r\n";
    // Bodies end in a bracket or a line feed, so this is cheap to tell.
    if !buf.ends_with(b"\r\n\r\n") {
        return None;
    }
    let start = buf.windows(10).rposition(|window| window == b"HTTP/1.1 4" || window == b"HTTP/1.0 4")?;
    let head = std::str::from_utf8(&buf[start..]).ok().filter(|head| head.contains(LENGTH))?;
    let (status, error) = match head.get(9..12)? {
        // A name in the path that is longer than hyper's limit breaks the same rule as one longer than ours.
        "414" => ("400 Bad Request", "the path and the query may have 65534 bytes, a name in them 1024 bytes of UTF-8"),
        "431" => ("431 Request Header Fields Too Large", "the request's headers are too large or too many"),
        _ => ("400 Bad Request", "this is not an HTTP request: its first line or a header cannot be read"),
    };
    let body = format!("{{\"error\":\"{error}\"}}");
    let rest = head.split_once("\r\n")?.1.replace(LENGTH, "");
    let length = body.len();
    let mut instead = buf[..start].to_vec();
    instead.extend_from_slice(
        format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n{rest}{body}")
            .as_bytes(),
    );
    Some(instead)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completes_only_hypers_own_answers() {
        let own = b"HTTP/1.1 204 No Content\r\ndate: x\r\n\r\nHTTP/1.1 414 URI Too Long\r\ncontent-length: 0\r\ndate: x\r\n\r\n";
        let completed = String::from_utf8(with_body(own).expect("an empty 414 is hyper's")).expect("it is text");
        assert!(completed.starts_with("HTTP/1.1 204 No Content\r\ndate: x\r\n\r\nHTTP/1.1 400 Bad Request\r\n"));
        let (head, body) = completed.rsplit_once("\r\n\r\n").expect("a head and a body");
        assert!(head.ends_with("date: x") && head.contains(&format!("content-length: {}\r\n", body.len())), "{head}");
        assert!(body.starts_with("{\"error\":") && body.ends_with("}"), "{body}");

        for ours in [
            "HTTP/1.1 204 No Content\r\n\r\n",
            "HTTP/1.1 100 Continue\r\n\r\n",
            "HTTP/1.1 404 Not Found\r\ncontent-length: 20\r\n\r\n",
            "HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}",
            "HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n",
        ] {
            assert!(with_body(ours.as_bytes()).is_none(), "{ours}");
        }
    }
}
