//! Response bodies, and the way from "the answer was decided" to "the answer was written".
//!
//! A leased pop whose answer cannot be written has to give its lease back. So its body carries the receipt; when hyper
//! has taken the bytes the receipt goes to the connection, and only a flush that succeeded counts it as sent. Whatever
//! drops it earlier (a closed connection, a reset stream, an answer that was never polled) gives the lease back.
//!
//! Where another broker forwarded the pop, "written" means written to *its* client: it leaves the request's body open until
//! then. Ended, the answer was written; reset, it was not. A connection that breaks says neither: the broker may have died
//! a moment after its client got the answer, so the lease stands until it runs out.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use tidegate_driver::Receipt;
use tokio_util::sync::CancellationToken;

use crate::peers::Unwritten;

/// What is known of one connection while it lives.
#[derive(Default)]
pub struct Connection {
    /// Receipts of answers that hyper has taken and the socket has not.
    unwritten: Mutex<Vec<Proof>>,
    /// Whether `unwritten` holds something: most flushes need not look.
    any_unwritten: AtomicBool,
    /// Requests being answered.
    open: AtomicUsize,
    /// The client has closed its side: it asks for nothing more, and waits for nothing.
    departed: CancellationToken,
    /// Goes up with every request begun or ended and every write: a connection on which it stands still is idle.
    progress: AtomicU64,
}

impl Connection {
    /// Counts a request until the guard is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> OpenRequest {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.touch();
        OpenRequest(Arc::clone(self))
    }

    /// A number that changes as long as something happens; none while a request is being answered.
    pub(crate) fn idle_mark(&self) -> Option<u64> {
        (self.open.load(Ordering::Relaxed) == 0).then(|| self.progress.load(Ordering::Relaxed))
    }

    pub(crate) fn touch(&self) {
        self.progress.fetch_add(1, Ordering::Relaxed);
    }

    /// The client has closed its side.
    pub(crate) fn depart(&self) {
        self.departed.cancel();
    }

    /// Whether the client has closed its side.
    pub(crate) fn has_departed(&self) -> bool {
        self.departed.is_cancelled()
    }

    /// Ends when the client has closed its side.
    pub async fn departed(&self) {
        self.departed.cancelled().await;
    }

    /// Everything taken so far has reached the socket.
    pub(crate) fn flushed(&self) {
        if !self.any_unwritten.swap(false, Ordering::AcqRel) {
            return;
        }
        let written = std::mem::take(&mut *self.unwritten.lock().unwrap_or_else(PoisonError::into_inner));
        written.into_iter().for_each(Proof::sent);
    }

    fn taken(&self, receipt: Proof) {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner).push(receipt);
        self.any_unwritten.store(true, Ordering::Release);
    }
}

/// A request being answered.
pub(crate) struct OpenRequest(Arc<Connection>);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
        self.0.touch();
    }
}

/// Who has to know that an answer was written; dropped, it was not.
enum Proof {
    /// The broker of this process.
    Here(Receipt),
    /// The broker that the pop was forwarded to.
    There(Unwritten),
}

impl Proof {
    fn sent(self) {
        match self {
            Proof::Here(receipt) => receipt.sent(),
            Proof::There(unwritten) => unwritten.sent(),
        }
    }
}

/// Who knows whether an answer was written.
pub(crate) enum Witness {
    /// The connection that the request came on.
    Socket(Arc<Connection>),
    /// The broker that forwarded the request, whose body this is.
    Forwarder(Incoming),
}

/// A response body of one piece.
#[derive(Default)]
pub struct Body {
    bytes: Bytes,
    receipt: Option<(Proof, Witness)>,
}

impl Body {
    /// The answer of a pop, with what says whether it arrived.
    pub(crate) fn with_receipt(bytes: Bytes, receipt: Receipt, witness: Witness) -> Self {
        // What leased nothing waits for nobody.
        let receipt = receipt.is_armed().then_some((Proof::Here(receipt), witness));
        Body { bytes, receipt }
    }

    /// The answer of another broker, which may have to know whether it arrived.
    pub(crate) fn forwarded(bytes: Bytes, unwritten: Option<Unwritten>, connection: Arc<Connection>) -> Self {
        Body { bytes, receipt: unwritten.map(|unwritten| (Proof::There(unwritten), Witness::Socket(connection))) }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Body { bytes, receipt: None }
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if !self.bytes.is_empty() {
            match self.receipt.take() {
                Some((proof, Witness::Socket(connection))) => connection.taken(proof),
                forwarded => self.receipt = forwarded,
            }
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.bytes)))));
        }
        if let Some((_, Witness::Forwarder(request))) = &mut self.receipt {
            let stands = ready!(stands(request, cx));
            if let Some((proof, _)) = self.receipt.take().filter(|_| stands) {
                proof.sent();
            }
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_empty() && self.receipt.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.len() as u64)
    }
}

/// Hyper drops the answer of a stream that was reset, and of one whose connection broke.
impl Drop for Body {
    fn drop(&mut self) {
        if !self.bytes.is_empty() {
            return;
        }
        if let Some((proof, Witness::Forwarder(mut request))) = self.receipt.take() {
            let reset = stands(&mut request, &mut Context::from_waker(Waker::noop())) == Poll::Ready(false);
            if !reset {
                proof.sent();
            }
        }
    }
}

/// What the broker that forwarded a pop has said of an answer: false once it could not write it.
fn stands(request: &mut Incoming, cx: &mut Context<'_>) -> Poll<bool> {
    use hyper::body::Body;
    loop {
        match ready!(Pin::new(&mut *request).poll_frame(cx)) {
            Some(Ok(_)) => {}
            Some(Err(error)) => return Poll::Ready(!was_reset(&error)),
            None => return Poll::Ready(true),
        }
    }
}

fn was_reset(error: &hyper::Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<h2::Error>());
    cause.is_some_and(|cause| cause.is_reset() && cause.is_remote())
}
