//! Connections: accepting them up to a cap, HTTP/1.1 and HTTP/2 with prior knowledge on each, ending the idle ones, and
//! the drain at shutdown. Generic over what answers a request, so that a benchmark can measure an empty handler on the
//! very same loop.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::HttpSettings;
use crate::gather::gathering;
use crate::io::Watched;
use crate::receipt::Connection;
use crate::tcp::{SEES_CLOSED_PEERS, SharedStream};

/// After a failed `accept` (out of file descriptors, mostly), how long until the next.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);
/// Between the signal and the drain: a connection accepted a moment before it may still bring its request.
const LAST_REQUESTS: Duration = Duration::from_millis(10);
/// How long an idle connection has for its goodbye.
const GOODBYE: Duration = Duration::from_secs(1);
/// Streams one HTTP/2 connection may have open: long polls take one each.
const HTTP2_STREAMS: u32 = 1_000;
/// Streams an HTTP/2 client may reset before they were looked at; clients that give up many long polls need room.
const HTTP2_RESETS: usize = 1_000;
/// Bytes of headers on HTTP/2: a path of three names of 1,024 bytes, each byte written in three, and then some.
const HTTP2_HEADER_BYTES: u32 = 128 * 1_024;
/// How often an HTTP/2 client is asked for a sign of life, and how long it may take to give one.
const HTTP2_PING: Duration = Duration::from_secs(30);
const HTTP2_PONG: Duration = Duration::from_secs(10);

/// Accepts connections until `shutdown`, then drains them; returns when the last is gone.
///
/// `respond` gets each request with the connection it came on.
pub async fn serve_with<R, F, B>(
    listener: TcpListener,
    settings: &HttpSettings,
    shutdown: CancellationToken,
    respond: R,
) where
    R: Fn(Request<Incoming>, Arc<Connection>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: hyper::body::Body<Error = Infallible> + Send + 'static,
    B::Data: Send,
{
    let places = Arc::new(Semaphore::new(settings.max_connections.clamp(1, Semaphore::MAX_PERMITS)));
    let connections = TaskTracker::new();
    loop {
        // A full house leaves newcomers in the kernel's queue.
        let (place, accepted) = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            next = async { (Arc::clone(&places).acquire_owned().await, listener.accept().await) } => next,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
        // A token of its own: looking at it must not contend with every other connection.
        let (settings, shutdown, respond) = (settings.clone(), shutdown.child_token(), respond.clone());
        connections.spawn(async move {
            let (stream, closed) = SharedStream::watched(stream);
            let peer = Peer { closed, seen: SEES_CLOSED_PEERS };
            serve_connection(stream, peer, &settings, shutdown, respond).await;
            drop(place);
        });
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

/// The other end of a connection.
pub(crate) struct Peer<C> {
    /// Ends when it has closed its side.
    pub(crate) closed: C,
    /// Whether `closed` can be relied on. Then a client that closes its side is still answered what it asked, and only
    /// what it waits for is given up; else hyper ends the connection when it sees the end.
    pub(crate) seen: bool,
}

/// Serves one connection until it ends, is idle for too long, or is drained.
pub(crate) async fn serve_connection<I, C, R, F, B>(
    io: I,
    peer: Peer<C>,
    settings: &HttpSettings,
    shutdown: CancellationToken,
    respond: R,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    C: Future<Output = ()>,
    R: Fn(Request<Incoming>, Arc<Connection>) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: hyper::body::Body<Error = Infallible> + Send + 'static,
    B::Data: Send,
{
    let state = Arc::new(Connection::default());
    let (io, outlet) = gathering(io);
    let (answering, switch) = (Arc::clone(&state), outlet.clone());
    let service = service_fn(move |request: Request<Incoming>| {
        if request.version() == Version::HTTP_2 {
            switch.gather();
        }
        let open = answering.begin();
        let response = respond(request, Arc::clone(&answering));
        async move {
            let response = response.await;
            drop(open);
            Ok::<_, Infallible>(response)
        }
    });
    let builder = builder(peer.seen);
    let connection = builder.serve_connection(Watched::new(io, Arc::clone(&state)), service);
    let mut connection = pin!(connection);

    let idle_timeout = settings.idle_timeout.unwrap_or(Duration::MAX);
    let mut idle_mark = state.idle_mark();
    let mut idle_check = pin!(sleep(idle_timeout));
    let mut closed = pin!(peer.closed);
    let mut departed = false;
    // From here on the connection only finishes what it has, until this instant.
    let mut leave_by: Option<Instant> = None;
    let ended = loop {
        tokio::select! {
            biased;
            ended = poll_fn(|cx| {
                let ended = connection.as_mut().poll(cx);
                if ended.is_pending() && outlet.gathers() && let Poll::Ready(written) = outlet.poll_out(cx) {
                    match written {
                        Ok(()) => state.flushed(),
                        Err(error) => return Poll::Ready(Err(error.into())),
                    }
                }
                ended
            }) => break Some(ended),
            () = async { shutdown.cancelled().await; sleep(LAST_REQUESTS).await }, if leave_by.is_none() => {
                connection.as_mut().graceful_shutdown();
                // What waits is answered as if its client had left: so is what waits at another broker.
                state.depart();
                leave_by = Some(Instant::now() + settings.drain_timeout);
            }
            () = idle_check.as_mut(), if leave_by.is_none() => {
                let mark = state.idle_mark();
                if mark.is_some() && mark == idle_mark {
                    connection.as_mut().graceful_shutdown();
                    leave_by = Some(Instant::now() + GOODBYE);
                } else {
                    idle_mark = mark;
                    idle_check.set(sleep(idle_timeout));
                }
            }
            () = closed.as_mut(), if !departed => {
                departed = true;
                state.depart();
            }
            () = until(leave_by) => break None,
        }
    };
    match ended {
        Some(Ok(())) => {}
        Some(Err(error)) => tracing::debug!(%error, "connection ended"),
        None => tracing::debug!("connection dropped: idle or not drained in time"),
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => poll_fn(|_| Poll::<()>::Pending).await,
    }
}

fn builder(half_close: bool) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    // Without half-close, hyper drops a parked handler when it sees the client's end of file. The header timeout is off because it sets a timer per request; the idle check covers slow headers as well.
    builder.http1().half_close(half_close).keep_alive(true).header_read_timeout(None).timer(TokioTimer::new());
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(HTTP2_STREAMS)
        .max_pending_accept_reset_streams(HTTP2_RESETS)
        .max_header_list_size(HTTP2_HEADER_BYTES)
        .keep_alive_interval(HTTP2_PING)
        .keep_alive_timeout(HTTP2_PONG);
    builder
}
