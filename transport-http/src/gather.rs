//! Writes that are gathered: what many HTTP/2 streams say at one moment leaves in one system call.
//!
//! h2 writes a frame of some size as soon as it is complete, and all others whenever its connection was woken, which is
//! about once a stream. Here a write adds to a buffer and a flush does nothing; the task that drives the connection
//! empties the buffer once everything that was ready to run has had its say. On a connection that does not gather
//! (HTTP/1, where an answer is written whole) everything goes straight through.

use std::io::{ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that wait no longer for others to join them.
const ENOUGH: usize = 64 * 1_024;
/// Bytes that may wait for a socket that takes none: more are not accepted.
const BOUND: usize = 256 * 1_024;

/// The socket as the protocol sees it.
pub(crate) struct Gathering<I>(Arc<Shared<I>>);

/// Where the connection's task empties the buffer.
pub(crate) struct Outlet<I>(Arc<Shared<I>>);

struct Shared<I> {
    gathers: AtomicBool,
    // One task locks it, time after time.
    state: Mutex<State<I>>,
}

struct State<I> {
    io: I,
    out: BytesMut,
    /// Whether what else was ready to run had its turn since `out` was last empty.
    yielded: bool,
}

/// A socket that gathers once it is told to, and the outlet of what it gathered.
pub(crate) fn gathering<I>(io: I) -> (Gathering<I>, Outlet<I>) {
    let state = State { io, out: BytesMut::new(), yielded: false };
    let shared = Arc::new(Shared { gathers: AtomicBool::new(false), state: Mutex::new(state) });
    (Gathering(Arc::clone(&shared)), Outlet(shared))
}

impl<I> Shared<I> {
    fn lock(&self) -> MutexGuard<'_, State<I>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn gathers(&self) -> bool {
        self.gathers.load(Ordering::Relaxed)
    }
}

impl<I> Clone for Outlet<I> {
    fn clone(&self) -> Self {
        Outlet(Arc::clone(&self.0))
    }
}

impl<I> Gathering<I> {
    /// Whether a flush leaves the writing to the outlet.
    pub(crate) fn gathers(&self) -> bool {
        self.0.gathers()
    }
}

impl<I> Outlet<I> {
    /// From now on writes are gathered, and whoever drives the connection calls `poll_out` after it.
    pub(crate) fn gather(&self) {
        self.0.gathers.store(true, Ordering::Relaxed);
    }

    /// Whether writes are gathered.
    pub(crate) fn gathers(&self) -> bool {
        self.0.gathers()
    }
}

impl<I: AsyncWrite + Unpin> Outlet<I> {
    /// Writes out what was gathered; ready when nothing is left. The first call after something came waits for one turn of
    /// the scheduler: the tasks that are ready to run may have more.
    pub(crate) fn poll_out(&self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let mut state = self.0.lock();
        if !state.out.is_empty() && state.out.len() < ENOUGH && !state.yielded {
            state.yielded = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        state.poll_out(cx)
    }
}

impl<I: AsyncWrite + Unpin> State<I> {
    fn poll_out(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        while !self.out.is_empty() {
            let written = ready!(Pin::new(&mut self.io).poll_write(cx, &self.out))?;
            if written == 0 {
                return Poll::Ready(Err(ErrorKind::WriteZero.into()));
            }
            self.out.advance(written);
        }
        if self.out.capacity() > ENOUGH {
            // A burst is over; there may be thousands of connections.
            self.out = BytesMut::new();
        }
        self.yielded = false;
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Gathering<I> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.0.lock().io).poll_read(cx, buf)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Gathering<I> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<Result<usize>> {
        let mut state = self.0.lock();
        if !self.0.gathers() {
            return Pin::new(&mut state.io).poll_write_vectored(cx, bufs);
        }
        if state.out.len() >= BOUND {
            let emptied = state.poll_out(cx)?;
            if emptied.is_pending() && state.out.len() >= BOUND {
                return Poll::Pending;
            }
        }
        let mut taken = 0;
        for buf in bufs {
            let room = BOUND - state.out.len();
            let part = &buf[..buf.len().min(room)];
            state.out.extend_from_slice(part);
            taken += part.len();
        }
        Poll::Ready(Ok(taken))
    }

    fn is_write_vectored(&self) -> bool {
        self.0.gathers() || self.0.lock().io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        match self.0.gathers() {
            true => Poll::Ready(Ok(())),
            false => Pin::new(&mut self.0.lock().io).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let mut state = self.0.lock();
        ready!(state.poll_out(cx))?;
        Pin::new(&mut state.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Waker;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    /// Counts how often it is written to.
    struct Counting<I>(I, Arc<Mutex<usize>>);

    impl<I: AsyncWrite + Unpin> AsyncWrite for Counting<I> {
        fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<Result<usize>> {
            *self.1.lock().expect("no panic") += 1;
            Pin::new(&mut self.0).poll_write(cx, buf)
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
            Pin::new(&mut self.0).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
            Pin::new(&mut self.0).poll_shutdown(cx)
        }
    }

    #[tokio::test]
    async fn what_is_said_in_one_turn_leaves_in_one_write() {
        let (near, mut far) = duplex(1_024 * 1_024);
        let writes = Arc::new(Mutex::new(0));
        let (mut socket, outlet) = gathering(Counting(near, Arc::clone(&writes)));
        socket.write_all(b"before").await.expect("it is open");
        assert_eq!(*writes.lock().expect("no panic"), 1, "it goes straight through");
        outlet.gather();
        socket.write_all(b" one").await.expect("there is room");
        socket.flush().await.expect("it says so");
        let mut cx = Context::from_waker(Waker::noop());
        assert!(outlet.poll_out(&mut cx).is_pending(), "others have their turn first");
        socket.write_all(b" two").await.expect("there is room");
        poll_fn(|cx| outlet.poll_out(cx)).await.expect("it is open");
        assert_eq!(*writes.lock().expect("no panic"), 2);
        // What is left at the end goes out before the end does.
        socket.write_all(b" three").await.expect("there is room");
        socket.shutdown().await.expect("it is open");
        let mut all = String::new();
        far.read_to_string(&mut all).await.expect("an end");
        assert_eq!(all, "before one two three");
    }

    #[tokio::test]
    async fn a_socket_that_takes_nothing_fills_the_buffer_and_then_nothing_is_taken() {
        let (near, mut far) = duplex(1_024);
        let (mut socket, outlet) = gathering(near);
        outlet.gather();
        let sent: Vec<u8> = (0..BOUND * 3).map(|at| at as u8).collect();
        let mut cx = Context::from_waker(Waker::noop());
        let mut taken = 0;
        while let Poll::Ready(count) = Pin::new(&mut socket).poll_write(&mut cx, &sent[taken..]) {
            taken += count.expect("it is open");
            assert!(taken <= BOUND + 1_024, "the buffer has a bound");
        }
        assert!(taken >= BOUND);
        // It goes on when somebody reads, byte for byte.
        let reading = tokio::spawn(async move {
            let mut all = Vec::new();
            far.read_to_end(&mut all).await.map(|_| all)
        });
        socket.write_all(&sent[taken..]).await.expect("it is open");
        socket.shutdown().await.expect("it is open");
        let read = reading.await.expect("no panic").expect("an end");
        assert!(read == sent, "{} of {}", read.len(), sent.len());
    }

    #[tokio::test]
    async fn a_socket_that_broke_says_so() {
        let (near, far) = duplex(1_024);
        let (mut socket, outlet) = gathering(near);
        outlet.gather();
        drop(far);
        socket.write_all(b"one").await.expect("nobody knows yet");
        assert!(poll_fn(|cx| outlet.poll_out(cx)).await.is_err());
        assert!(socket.shutdown().await.is_err());
    }
}
