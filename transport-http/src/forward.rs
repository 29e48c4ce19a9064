//! Where a request is answered: here, or by the broker that owns its tenant's slot (design.md 4.6, 4.7).
//!
//! A request that was certainly not executed (no owner is known, the owner refused it, it never reached it) is held here
//! and sent again when more is known. One that may have been executed is never sent again unless that does no harm.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Version};
use tidegate_core::error::Rejection;
use tidegate_core::limits::HOLD;
use tidegate_core::time::Span;
use tidegate_driver::{Peer, Place};
use tokio::time::{Instant, sleep};

use crate::body::Source;
use crate::caller::TENANT;
use crate::error::Failure;
use crate::peers::Lost;
use crate::query::Query;
use crate::receipt::{Body, Connection};
use crate::route::{self, Outcome};
use crate::router::Kind;
use crate::wire::pop;
use crate::{Asked, Shared};

/// Marks a request that a broker sent on: such a request is never sent on again. It grants nothing:
/// a stranger who sends it is answered 421 by a broker that would have sent the request on, and no differently by the owner.
pub(crate) const FORWARDED: HeaderName = HeaderName::from_static("tidegate-forwarded");
/// Milliseconds that a pop has waited before it was sent on. A stranger who sends it waits less.
pub(crate) const WAITED: HeaderName = HeaderName::from_static("tidegate-waited");
/// Marks the answer of a broker that does not own the slot: certainly nothing was executed.
pub(crate) const NOT_OWNER: HeaderName = HeaderName::from_static("tidegate-not-owner");

/// How long after the first refusal it is tried again, whatever is known by then; and the longest between two tries.
const FIRST_RETRY: Duration = Duration::from_millis(20);
const LAST_RETRY: Duration = Duration::from_millis(200);

/// Why a try came to nothing.
enum Held {
    /// The slot is looked for again.
    Again,
    /// That is the answer.
    Final(Failure),
}

/// Answers a request, wherever.
pub(crate) async fn answer(
    shared: &Shared,
    asked: &Asked<'_>,
    body: &mut Source,
    connection: &Arc<Connection>,
) -> Outcome {
    let head = asked.head;
    let kind = asked.route.endpoint.kind();
    if kind == Kind::Local || !shared.slots.is_fleet() {
        let before = Before { waited: Duration::ZERO, forwarded: false };
        return route::dispatch(shared, asked, body, connection, before).await;
    }
    if head.headers.contains_key(FORWARDED) {
        return answer_forwarded(shared, asked, body, connection).await;
    }
    let arrived = Instant::now();
    let mut deadline = None;
    let mut pause = FIRST_RETRY;
    let mut was_sent = false;
    loop {
        let held = match shared.slots.place(asked.caller.tenant) {
            Place::Here(_) => {
                let before = Before { waited: arrived.elapsed(), forwarded: false };
                match route::dispatch(shared, asked, body, connection, before).await {
                    Err(failure) if failure.is_not_owner() => Held::Again,
                    outcome => return outcome,
                }
            }
            // Boxed, so that requests that are answered here need not have room for it.
            Place::There(peer) => {
                let sent = Box::pin(send(shared, &peer, head, kind, body, arrived.elapsed(), connection));
                let forwards = shared.peers.forwards();
                if std::mem::replace(&mut was_sent, true) { &forwards.sent_again } else { &forwards.forwarded }.up();
                match sent.await {
                    Ok(response) => return Ok(response),
                    Err(held) => held,
                }
            }
            Place::Nowhere => Held::Again,
        };
        if let Held::Final(failure) = held {
            return Err(failure);
        }
        let deadline = *deadline.get_or_insert_with(|| {
            shared.peers.forwards().held.up();
            arrived + patience(shared, head, kind)
        });
        if !wait(shared, connection, kind, deadline, &mut pause).await {
            return match kind {
                // It waits no longer, and there was nothing.
                Kind::Pop if connection.has_departed() => Ok(route::no_content()),
                _ => Err(Rejection::NotOwner.into()),
            };
        }
    }
}

/// What a request went through before it got to a handler.
#[derive(Clone, Copy)]
pub(crate) struct Before {
    /// How long it was held.
    pub(crate) waited: Duration,
    /// Whether another broker sent it on.
    pub(crate) forwarded: bool,
}

/// How long a request is held: a pop for as long as it would wait anyway. One with a short wait is no worse off than one
/// that does not wait at all.
fn patience(shared: &Shared, head: &Parts, kind: Kind) -> Duration {
    let duration = |span: Span| Duration::from_micros(span.as_micros().max(0).unsigned_abs());
    let wait = || pop::wait(Query::new(head.uri.query()), shared.settings.default_timeout);
    match kind {
        Kind::Pop => duration(HOLD).max(wait().map_or(Duration::ZERO, duration)),
        Kind::Local | Kind::Read | Kind::Write => duration(HOLD),
    }
}

/// Waits until something may have changed; false when it has waited long enough.
async fn wait(shared: &Shared, connection: &Connection, kind: Kind, deadline: Instant, pause: &mut Duration) -> bool {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return false;
    }
    let mut changes = shared.slots.changes();
    shared.slots.refresh();
    let waits = kind == Kind::Pop;
    tokio::select! {
        biased;
        () = connection.departed(), if waits => return false,
        _ = changes.changed() => {}
        () = sleep(left.min(*pause)) => {}
    }
    *pause = (*pause * 2).min(LAST_RETRY);
    true
}

/// Answers a request that another broker sent on: by this one, or not at all.
async fn answer_forwarded(
    shared: &Shared,
    asked: &Asked<'_>,
    body: &mut Source,
    connection: &Arc<Connection>,
) -> Outcome {
    if let Place::Here(_) = shared.slots.place(asked.caller.tenant) {
        let before = Before { waited: head_waited(&asked.head.headers), forwarded: true };
        match route::dispatch(shared, asked, body, connection, before).await {
            Err(failure) if failure.is_not_owner() => {}
            outcome => return outcome,
        }
    }
    let mut response = Failure::misdirected().into_response();
    response.headers_mut().insert(NOT_OWNER, HeaderValue::from_static("true"));
    Ok(response)
}

fn head_waited(headers: &HeaderMap) -> Duration {
    let millis = headers.get(WAITED).and_then(|value| value.to_str().ok()?.parse().ok());
    Duration::from_millis(millis.unwrap_or(0))
}

/// Sends a request to the owner of its slot and gives back the answer.
async fn send(
    shared: &Shared,
    peer: &Peer,
    head: &Parts,
    kind: Kind,
    body: &mut Source,
    waited: Duration,
    connection: &Arc<Connection>,
) -> Result<Response<Body>, Held> {
    let bytes = body.read(&head.headers, &shared.settings).await.map_err(Held::Final)?;
    let pops = kind == Kind::Pop;
    let departed = async {
        match pops {
            true => connection.departed().await,
            false => std::future::pending().await,
        }
    };
    let answered = match shared.peers.ask(&peer.address, request(shared, head, waited), bytes, pops).await {
        Ok(asked) => asked.answer(departed).await,
        Err(lost) => Err(lost),
    };
    let (response, unwritten) = match answered {
        Ok(answered) => answered,
        Err(Lost::NotSent) => return Err(Held::Again),
        Err(Lost::Unknown) => {
            // What a pop without autoAck leased comes back by itself.
            let harmless = match kind {
                Kind::Read => true,
                Kind::Pop => !pop::commits(Query::new(head.uri.query())),
                Kind::Local | Kind::Write => false,
            };
            if harmless {
                return Err(Held::Again);
            }
            shared.peers.forwards().unknown.up();
            return Err(Held::Final(Rejection::OutcomeUnknown.into()));
        }
    };
    if response.status() == StatusCode::MISDIRECTED_REQUEST && response.headers().contains_key(NOT_OWNER) {
        return Err(Held::Again);
    }
    let (head, bytes) = response.into_parts();
    let mut response = Response::new(Body::forwarded(bytes, unwritten, Arc::clone(connection)));
    *response.status_mut() = head.status;
    *response.headers_mut() = head.headers;
    Ok(response)
}

/// The request as the owner gets it: path, query and body as they came.
fn request(shared: &Shared, head: &Parts, waited: Duration) -> Request<()> {
    let mut request = Request::new(());
    // A HEAD is answered by its GET, whose body is left out here.
    *request.method_mut() = if head.method == Method::HEAD { Method::GET } else { head.method.clone() };
    *request.uri_mut() = head.uri.clone();
    *request.version_mut() = Version::HTTP_2;
    let headers = request.headers_mut();
    // Who asks is for the owner to check again: it takes nobody's word for it, and so not a stranger's either.
    let settings = &shared.settings;
    let kept = [(CONTENT_TYPE, true), (AUTHORIZATION, settings.authenticator.is_some()), (TENANT, settings.tenants)];
    for (name, _) in kept.into_iter().filter(|(_, kept)| *kept) {
        if let Some(value) = head.headers.get(&name) {
            headers.insert(name, value.clone());
        }
    }
    headers.insert(FORWARDED, HeaderValue::from_static("true"));
    let millis = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
    if millis > 0 {
        headers.insert(WAITED, HeaderValue::from(millis));
    }
    request
}

/// A wait of which some is over.
pub(crate) fn left(wait: Option<Span>, waited: Duration) -> Option<Span> {
    let waited = i64::try_from(waited.as_micros()).unwrap_or(i64::MAX);
    wait.map(|wait| Span::from_micros(wait.as_micros().saturating_sub(waited).max(0)))
}

/// Ends when a broker that sent a pop on says that its client waits no longer.
pub(crate) async fn called_off(request: &mut hyper::body::Incoming) {
    use hyper::body::Body;
    let next = std::future::poll_fn(|cx| Pin::new(&mut *request).poll_frame(cx)).await;
    if let Some(Err(_)) = next {
        // The stream is reset: hyper drops what answers it.
        std::future::pending().await
    }
}
