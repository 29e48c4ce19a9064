//! Connections to other brokers: HTTP/2 with prior knowledge, a few for each, one stream a request.
//!
//! A connection is asked for a sign of life every second. While one is overdue nothing new is sent over it, and when it
//! stays away the connection is given up with everything on it: a frozen process keeps its sockets open.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io::ErrorKind;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use compact_str::CompactString;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Ping, PingPong, Reason, RecvStream, SendStream};
use hyper::header::CONTENT_LENGTH;
use hyper::{Request, Response, Uri};
use tidegate_core::fleet::Probed;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::forwards::Forwards;
use crate::gather::gathering;

/// Where a broker tells who it is.
pub(crate) const WHO: &str = "/internal/broker";

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(1);
/// How long a look at somebody's address may take.
const LOOK: Duration = Duration::from_millis(300);
/// Connections to one broker that are made before their streams are counted.
const CONNECTIONS: usize = 2;
/// Streams on a connection before another one is made: the other end allows 1,000, and a long poll takes one each.
const STREAMS: usize = 800;
/// From one sign of life to the next question.
const PING: Duration = Duration::from_secs(1);
/// When an answer is overdue.
const OVERDUE: Duration = Duration::from_millis(700);
/// How long after that the connection is given up.
const GIVE_UP: Duration = Duration::from_millis(2_300);
/// Bytes of answers that may be on their way on one stream, and on one connection.
const STREAM_WINDOW: u32 = 1_024 * 1_024;
const CONNECTION_WINDOW: u32 = 16 * 1_024 * 1_024;

/// Why a request got no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lost {
    /// It certainly did not reach the other broker's hands.
    NotSent,
    /// Nobody knows.
    Unknown,
}

/// All connections to others.
#[derive(Default)]
pub struct Peers {
    known: Mutex<BTreeMap<CompactString, Arc<Known>>>,
    forwards: Arc<Forwards>,
}

/// A broker that something was sent to.
#[derive(Default)]
struct Known {
    links: Mutex<Vec<Arc<Link>>>,
    /// One connection is made at a time: whoever waits finds it made.
    making: tokio::sync::Mutex<()>,
}

/// One connection.
struct Link {
    sender: SendRequest<Bytes>,
    /// What each request's URI begins with.
    base: Uri,
    streams: AtomicUsize,
    /// It has been without a sign of life for too long.
    overdue: Arc<AtomicBool>,
    /// It is over.
    over: Arc<AtomicBool>,
    tasks: [JoinHandle<()>; 2],
}

impl Link {
    /// A path with its query at this broker.
    fn uri(&self, of: &Uri) -> Option<Uri> {
        let mut parts = self.base.clone().into_parts();
        parts.path_and_query = of.path_and_query().cloned();
        Uri::from_parts(parts).ok()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Counts a stream while it lives.
struct Stream(Arc<Link>);

impl Drop for Stream {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request whose answer has not come.
pub(crate) struct Asked {
    response: ResponseFuture,
    request: SendStream<Bytes>,
    stream: Stream,
    forwards: Arc<Forwards>,
}

/// An answer whose sender waits to hear that it was written. Dropped, it was not.
pub(crate) struct Unwritten {
    request: SendStream<Bytes>,
    /// None once it was written.
    answer: Option<(RecvStream, Stream)>,
    forwards: Arc<Forwards>,
}

impl Peers {
    /// What became of what was sent.
    pub(crate) fn forwards(&self) -> &Arc<Forwards> {
        &self.forwards
    }

    /// Sends a request, whole or with its end left `open`. Of its URI only path and query count.
    pub(crate) async fn ask(
        &self,
        address: &CompactString,
        mut request: Request<()>,
        body: Bytes,
        open: bool,
    ) -> Result<Asked, Lost> {
        let link = self.link(address).await?;
        *request.uri_mut() = link.uri(request.uri()).ok_or(Lost::NotSent)?;
        link.streams.fetch_add(1, Ordering::Relaxed);
        let stream = Stream(Arc::clone(&link));
        let mut sender = link.sender.clone().ready().await.map_err(|_| Lost::NotSent)?;
        let whole = body.is_empty() && !open;
        let (response, mut sending) = sender.send_request(request, whole).map_err(|_| Lost::NotSent)?;
        if !body.is_empty() {
            // The stream may have ended already; then the answer says why.
            let _ = sending.send_data(body, !open);
        }
        Ok(Asked { response, request: sending, stream, forwards: Arc::clone(&self.forwards) })
    }

    /// A connection with room.
    async fn link(&self, address: &CompactString) -> Result<Arc<Link>, Lost> {
        let known = Arc::clone(locked(&self.known).entry(address.clone()).or_default());
        if let Some(link) = known.link()? {
            return Ok(link);
        }
        let _alone = known.making.lock().await;
        if let Some(link) = known.link()? {
            return Ok(link);
        }
        let link = Arc::new(connect(address).await.map_err(|_| Lost::NotSent)?);
        locked(&known.links).push(Arc::clone(&link));
        Ok(link)
    }
}

impl Known {
    /// A connection with room, if there is one and the other end gives signs of life.
    fn link(&self) -> Result<Option<Arc<Link>>, Lost> {
        let mut links = locked(&self.links);
        links.retain(|link| !link.over.load(Ordering::Relaxed));
        if links.iter().any(|link| link.overdue.load(Ordering::Relaxed)) {
            return Err(Lost::NotSent);
        }
        let count = |link: &Arc<Link>| link.streams.load(Ordering::Relaxed);
        let Some(least) = links.iter().min_by_key(|link| count(link)) else { return Ok(None) };
        let has_room = count(least) == 0 || links.len() >= CONNECTIONS && count(least) < STREAMS;
        Ok(has_room.then(|| Arc::clone(least)))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl tidegate_driver::Probe for Peers {
    async fn probe(&self, address: &str) -> Probed {
        timeout(LOOK, look(address)).await.unwrap_or(Probed::Unclear)
    }
}

/// Asks whoever listens at an address who it is, over a connection of its own.
async fn look(address: &str) -> Probed {
    let link = match connect(address).await {
        Ok(link) => Arc::new(link),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Probed::Refused,
        Err(_) => return Probed::Unclear,
    };
    let answer = async {
        let request = Request::get(link.uri(&Uri::from_static(WHO))?).body(()).ok()?;
        let mut sender = link.sender.clone().ready().await.ok()?;
        let (response, _) = sender.send_request(request, true).ok()?;
        let (head, mut body) = response.await.ok()?.into_parts();
        let name = read(&mut body, None).await.ok()?;
        let name = CompactString::from_utf8(name).ok()?;
        head.status.is_success().then_some(name)
    };
    answer.await.map_or(Probed::Unclear, Probed::Answered)
}

async fn connect(address: &str) -> std::io::Result<Link> {
    let authority = address.split_once("://").map_or(address, |(_, rest)| rest);
    let authority = if authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
        authority.to_owned()
    } else {
        format!("{authority}:80")
    };
    let base = address.parse::<Uri>().map_err(std::io::Error::other)?;
    let stream = timeout(CONNECT, TcpStream::connect(authority)).await??;
    stream.set_nodelay(true)?;
    let (stream, outlet) = gathering(stream);
    outlet.gather();
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(STREAM_WINDOW).initial_connection_window_size(CONNECTION_WINDOW).enable_push(false);
    let (sender, mut connection) = builder.handshake(stream).await.map_err(std::io::Error::other)?;
    let pings = connection.ping_pong();
    let over = Arc::new(AtomicBool::new(false));
    let overdue = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&over);
    let running = tokio::spawn(async move {
        let driven = poll_fn(|cx| {
            let ended = Pin::new(&mut connection).poll(cx);
            if ended.is_pending()
                && let Poll::Ready(Err(error)) = outlet.poll_out(cx)
            {
                return Poll::Ready(Err(error.into()));
            }
            ended.map_err(Into::<Box<dyn std::error::Error + Send + Sync>>::into)
        });
        if let Err(error) = driven.await {
            tracing::debug!(%error, "a connection to another broker ended");
        }
        ended.store(true, Ordering::Relaxed);
    });
    let (late, ended, abort) = (Arc::clone(&overdue), Arc::clone(&over), running.abort_handle());
    let watching = tokio::spawn(async move {
        if let Some(pings) = pings {
            watch(pings, &late).await;
        }
        ended.store(true, Ordering::Relaxed);
        // Everything on it is told that it is over.
        abort.abort();
    });
    Ok(Link { sender, base, streams: AtomicUsize::new(0), overdue, over, tasks: [running, watching] })
}

/// Ends when the other end gives no sign of life.
async fn watch(mut pings: PingPong, overdue: &AtomicBool) {
    loop {
        let mut pong = std::pin::pin!(pings.ping(Ping::opaque()));
        let in_time = match timeout(OVERDUE, pong.as_mut()).await {
            Ok(pong) => pong.is_ok(),
            Err(_) => {
                overdue.store(true, Ordering::Relaxed);
                matches!(timeout(GIVE_UP, pong).await, Ok(Ok(_)))
            }
        };
        if !in_time {
            return;
        }
        overdue.store(false, Ordering::Relaxed);
        sleep(PING).await;
    }
}

impl Asked {
    /// Waits for the answer; `departed` ends when the client waits no longer.
    pub(crate) async fn answer(
        mut self,
        departed: impl Future<Output = ()>,
    ) -> Result<(Response<Bytes>, Option<Unwritten>), Lost> {
        let response = tokio::select! {
            biased;
            response = &mut self.response => response,
            () = departed => {
                let _ = self.request.send_data(Bytes::from_static(b"0"), false);
                (&mut self.response).await
            }
        };
        let (head, mut answer) = response.map_err(|error| lost(&error))?.into_parts();
        let length = head.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let body = read(&mut answer, length).await.map_err(|_| Lost::Unknown)?;
        let waits = !answer.is_end_stream();
        let unwritten = waits.then(|| Unwritten {
            request: self.request,
            answer: Some((answer, self.stream)),
            forwards: self.forwards,
        });
        Ok((Response::from_parts(head, body), unwritten))
    }
}

fn lost(error: &h2::Error) -> Lost {
    let refused = error.reason() == Some(Reason::REFUSED_STREAM);
    // Streams that the other end had not begun are told so; those it had begun run on.
    let not_begun = error.is_go_away() && error.is_remote() && error.reason() == Some(Reason::NO_ERROR);
    if refused || not_begun { Lost::NotSent } else { Lost::Unknown }
}

/// Reads a body to its end, or as much of it as was announced.
async fn read(body: &mut RecvStream, length: Option<usize>) -> Result<Bytes, h2::Error> {
    let mut first = Bytes::new();
    let mut whole = BytesMut::new();
    while length.is_none_or(|length| first.len() + whole.len() < length) {
        let Some(data) = body.data().await.transpose()? else { break };
        // Capacity that is not given back is only missed by later data.
        let _ = body.flow_control().release_capacity(data.len());
        if first.is_empty() && whole.is_empty() {
            first = data;
            continue;
        }
        if whole.is_empty() {
            whole.reserve(length.unwrap_or(0).min(STREAM_WINDOW as usize).max(first.len() + data.len()));
            whole.extend_from_slice(&std::mem::take(&mut first));
        }
        whole.extend_from_slice(&data);
    }
    Ok(if whole.is_empty() { first } else { whole.freeze() })
}

impl Unwritten {
    /// The answer was written: the other broker need not take anything back.
    pub(crate) fn sent(mut self) {
        let ended = self.request.send_data(Bytes::new(), true);
        if let (Ok(()), Some((mut answer, stream))) = (ended, self.answer.take()) {
            // A stream that is dropped before both ends closed it is reset, which would mean the contrary.
            tokio::spawn(async move {
                while let Some(Ok(_)) = answer.data().await {}
                drop(stream);
            });
        }
    }
}

impl Drop for Unwritten {
    fn drop(&mut self) {
        if self.answer.is_some() {
            self.request.send_reset(Reason::CANCEL);
            self.forwards.given_back.up();
        }
    }
}
