//! HTTP in, commands out: Queen's API over HTTP/1.1 and HTTP/2.
//!
//! The way of a request: `accept` has the connection, `router` finds the route, `auth` lets it pass, `body` and `query` parse what came with
//! it into a `Command` (off the core's thread), the driver's handle carries it to the broker, and `wire` writes the reply
//! as JSON. `route` has one file per resource that does this for its routes; `error` alone knows status codes of
//! rejections; `receipt` tells the broker whether a leased answer was written. With
//! several brokers on one store, `forward` sends a request on to the owner of its slot over the connections of `peers`.
//!
//! Absent on purpose: any rule about queues, any clock but tokio's for timeouts, any random source, anything of stores.

pub mod accept;
mod auth;
mod body;
mod caller;
mod error;
mod forward;
mod forwards;
mod gather;
mod io;
mod metrics;
mod openapi;
mod parked;
mod peers;
mod query;
mod receipt;
mod route;
mod router;
mod settings;
mod spans;
mod tcp;
mod time;
mod wire;

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use hyper::body::Incoming;
use hyper::header::{CONNECTION, CONTENT_LENGTH, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, Version};
use tidegate_core::name::TenantId;
use tidegate_driver::Slots;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

pub use auth::{Algorithms, Authenticator, TokenKeys, TokenRules, WrongKey};
pub use peers::Peers;
pub use receipt::{Body, Connection};
pub use router::{Level, ROUTES, Route};
pub use settings::{HttpSettings, StoreFigures};

use crate::error::Failure;

/// Answers requests with what a broker says; cheap to clone.
#[derive(Clone)]
pub struct Service {
    shared: Arc<Shared>,
}

/// What is asked, and by whom.
pub(crate) struct Asked<'r> {
    pub(crate) head: &'r Parts,
    pub(crate) route: &'static Route,
    pub(crate) parameters: &'r router::Parameters<'r>,
    pub(crate) caller: caller::Caller,
}

/// What every handler needs.
pub(crate) struct Shared {
    pub(crate) slots: Slots,
    pub(crate) peers: Peers,
    pub(crate) settings: HttpSettings,
    pub(crate) started: Instant,
    pub(crate) parked: parked::Parked,
    pub(crate) latencies: Arc<metrics::Latencies>,
}

impl Service {
    /// A service over the brokers behind `slots`; call it inside a tokio runtime.
    pub fn new(slots: impl Into<Slots>, settings: HttpSettings) -> Self {
        let (slots, peers, parked) = (slots.into(), Peers::default(), parked::Parked::default());
        let (started, latencies) = (Instant::now(), Arc::default());
        Service { shared: Arc::new(Shared { slots, peers, settings, started, parked, latencies }) }
    }

    /// Serves one connection, HTTP/1.1 with keep-alive and pipelining or HTTP/2 with prior knowledge, until it ends or
    /// `shutdown` has drained it.
    pub async fn serve_connection<I>(&self, io: I, shutdown: CancellationToken)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let shared = Arc::clone(&self.shared);
        let respond = move |request, connection| answer(Arc::clone(&shared), request, connection);
        // Only hyper itself sees this client leave.
        let peer = accept::Peer { closed: std::future::pending(), seen: false };
        accept::serve_connection(io, peer, &self.shared.settings, shutdown, respond).await;
    }
}

/// Accepts connections on `listener` until `shutdown`, then drains them; returns when the last is gone.
pub async fn serve(listener: TcpListener, service: Service, shutdown: CancellationToken) {
    let shared = Arc::clone(&service.shared);
    let respond = move |request, connection| answer(Arc::clone(&shared), request, connection);
    accept::serve_with(listener, &service.shared.settings, shutdown, respond).await;
}

/// Answers one request, whatever happens: a panic is a 500, and connection and broker go on.
async fn answer(shared: Arc<Shared>, request: Request<Incoming>, connection: Arc<Connection>) -> Response<Body> {
    let head = request.method() == Method::HEAD;
    let closes = shared.slots.retiring() && request.version() < Version::HTTP_2;
    let mut handler = pin!(handle(&shared, request, &connection));
    let outcome = poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| handler.as_mut().poll(cx))) {
        Ok(poll) => poll,
        // The panic hook has told the log what it was.
        Err(_) => Poll::Ready(Err(Failure::internal())),
    })
    .await;
    let mut response = outcome.unwrap_or_else(|failure| {
        tracing::debug!(status = failure.status().as_u16(), "request refused");
        failure.into_response()
    });
    if closes {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if head {
        let length = HeaderValue::from(response.body().len());
        response.headers_mut().insert(CONTENT_LENGTH, length);
        *response.body_mut() = Body::default();
    }
    response
}

async fn handle(shared: &Shared, request: Request<Incoming>, connection: &Arc<Connection>) -> route::Outcome {
    let (head, body) = request.into_parts();
    let path = head.uri.path();
    let found = router::find(&head.method, path);
    let subject = match &shared.settings.authenticator {
        Some(authenticator) => {
            // Whoever may not ask does not learn either what there is to ask.
            let level = found.as_ref().map_or(Level::ReadWrite, |(route, _)| route.level);
            authenticator.admit(level, path, &head.headers)?
        }
        None => None,
    };
    let (route, parameters) = found?;
    let tenant = match shared.settings.tenants {
        true if route.is_tenants() => caller::tenant(&head.headers)?,
        true | false => TenantId::DEFAULT,
    };
    let asked = Asked { head: &head, route, parameters: &parameters, caller: caller::Caller { tenant, subject } };
    let began = Instant::now();
    let mut body = body::Source::new(body);
    let answering = forward::answer(shared, &asked, &mut body, connection);
    let outcome = answering.instrument(spans::of_request(&head, route)).await;
    shared.latencies.note(route.endpoint, began.elapsed());
    outcome
}
