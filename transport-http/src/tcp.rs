//! A TCP socket that two may hold: hyper, which reads and writes it, and whoever wants to know that the peer has closed
//! its side although nobody is reading.
//!
//! hyper looks for the end of a connection only while its buffer is empty. A client that pipelined a second request
//! behind a parked pop, and left, would keep its place in the line and be given a lease.

use std::future::pending;
use std::io::{ErrorKind, IoSlice, Result};
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// One of two handles to a socket.
pub(crate) struct SharedStream(Arc<TcpStream>);

impl SharedStream {
    /// The stream, and a future that ends when the peer has closed its side.
    pub(crate) fn watched(stream: TcpStream) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let stream = Arc::new(stream);
        let watched = Arc::clone(&stream);
        (SharedStream(stream), async move { peer_closed(&watched).await })
    }
}

/// Whether a closed peer is seen by `peer_closed`, so that hyper need not look.
pub(crate) const SEES_CLOSED_PEERS: bool = cfg!(any(target_os = "linux", target_os = "android"));

/// Out-of-band data is not what is waited for: this interest also wakes at the peer's end of file, and unlike "readable"
/// only then, whatever bytes wait to be read.
#[cfg(any(target_os = "linux", target_os = "android"))]
async fn peer_closed(stream: &TcpStream) {
    while let Ok(ready) = stream.ready(tokio::io::Interest::PRIORITY).await {
        if ready.is_read_closed() {
            return;
        }
        // Somebody did send out-of-band data.
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    pending().await
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
async fn peer_closed(_: &TcpStream) {
    pending().await
}

impl AsyncRead for SharedStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(cx))?;
            match self.0.try_read_buf(buf) {
                Ok(_) => return Poll::Ready(Ok(())),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for SharedStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(cx))?;
            match self.0.try_write_vectored(bufs) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(socket2::SockRef::from(&*self.0).shutdown(Shutdown::Write))
    }
}
