//! One file per resource: parse, order, respond. No rule about queues is in here.

mod ack;
mod analytics;
mod configure;
mod dead_letters;
mod groups;
mod lease;
mod maintenance;
mod messages;
mod ops;
mod pop;
mod push;
mod queues;
mod status;
mod traces;
mod transaction;

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Response, StatusCode};
use serde::Serialize;
use tidegate_core::command::Command;
use tidegate_core::name::{GroupName, NameError, PartitionName, QueueName};
use tidegate_core::reply::Reply;
use tidegate_core::time::Timestamp;
use tidegate_driver::Receipt;

use crate::body::Source;
use crate::caller::Caller;
use crate::error::Failure;
use crate::forward::{self, Before};
use crate::query::{self, Query};
use crate::receipt::{Body, Connection, Witness};
use crate::router::{Endpoint, Parameters};
use crate::time;
use crate::{Asked, Shared};

pub(crate) use ops::Health;

/// The type of every body but the Prometheus text.
pub(crate) const JSON: &str = "application/json";

/// What a handler gives back.
pub(crate) type Outcome = Result<Response<Body>, Failure>;

/// Finds the handler of a request and lets it answer.
pub(crate) async fn dispatch(
    shared: &Shared,
    asked: &Asked<'_>,
    body: &mut Source,
    connection: &Arc<Connection>,
    before: Before,
) -> Outcome {
    let exchange = Exchange {
        shared,
        connection,
        parameters: asked.parameters,
        query: Query::new(asked.head.uri.query()),
        headers: &asked.head.headers,
        caller: &asked.caller,
        body,
        before,
        forwarder: None,
    };
    match asked.route.endpoint {
        Endpoint::Push => push::push(exchange).await,
        Endpoint::PopQueue => pop::queue(exchange).await,
        Endpoint::PopPartition => pop::partition(exchange).await,
        Endpoint::PopLabels => pop::labels(exchange).await,
        Endpoint::Ack => ack::single(exchange).await,
        Endpoint::AckBatch => ack::batch(exchange).await,
        // Boxed, so that each connection has room for the busy handlers only.
        other => Box::pin(dispatch_rare(other, exchange)).await,
    }
}

async fn dispatch_rare(endpoint: Endpoint, exchange: Exchange<'_>) -> Outcome {
    match endpoint {
        Endpoint::ExtendLease => lease::extend(exchange).await,
        Endpoint::Transaction => transaction::transaction(exchange).await,
        Endpoint::Configure => configure::configure(exchange).await,
        Endpoint::ListQueues => queues::list(exchange).await,
        Endpoint::ListNamespaces => queues::list_namespaces(exchange).await,
        Endpoint::ListTasks => queues::list_tasks(exchange).await,
        Endpoint::DescribeQueue => queues::describe(exchange).await,
        Endpoint::PreviewRetention => queues::preview_retention(exchange).await,
        Endpoint::DeleteQueue => queues::delete(exchange).await,
        Endpoint::ListGroups => groups::list(exchange).await,
        Endpoint::ListLagging => groups::lagging(exchange).await,
        Endpoint::DescribeGroup => groups::describe(exchange).await,
        Endpoint::ChangeSubscription => groups::change_subscription(exchange).await,
        Endpoint::SeekQueue => groups::seek_queue(exchange).await,
        Endpoint::SeekPartition => groups::seek_partition(exchange).await,
        Endpoint::DeleteGroup => groups::delete(exchange).await,
        Endpoint::DeleteGroupOnQueue => groups::delete_on_queue(exchange).await,
        Endpoint::FindMessage => messages::find(exchange).await,
        Endpoint::DropDeadLetters => messages::drop_dead_letters(exchange).await,
        Endpoint::Replay => messages::replay(exchange).await,
        Endpoint::ListDeadLetters => dead_letters::list(exchange).await,
        Endpoint::ListMessages => messages::list(exchange).await,
        Endpoint::ReplayRow => dead_letters::replay(exchange).await,
        Endpoint::PurgeDeadLetters => dead_letters::purge(exchange).await,
        Endpoint::Overview => status::overview(exchange).await,
        Endpoint::Depth => status::depth(exchange).await,
        Endpoint::Status => status::status(exchange).await,
        Endpoint::StatusOfQueues => status::list(exchange).await,
        Endpoint::StatusOfQueue => status::describe(exchange).await,
        Endpoint::StatusAnalytics => status::analytics(exchange).await,
        Endpoint::StatusOfBuffers => status::buffers(),
        Endpoint::RefreshStats => status::refresh(exchange).await,
        Endpoint::Maintenance => maintenance::get(&exchange),
        Endpoint::SetMaintenance => maintenance::set_push(exchange).await,
        Endpoint::PopMaintenance => maintenance::get_pop(&exchange),
        Endpoint::SetPopMaintenance => maintenance::set_pop(exchange).await,
        Endpoint::SharedState => maintenance::shared_state(&exchange),
        Endpoint::Notify => maintenance::notify(exchange).await,
        Endpoint::MeshStats => maintenance::mesh(),
        Endpoint::Trace => traces::write(exchange).await,
        Endpoint::TracesOfName => traces::of_name(exchange).await,
        Endpoint::TraceNames => traces::names(exchange).await,
        Endpoint::TracesOfMessage => traces::of_message(exchange).await,
        Endpoint::QueueLag => analytics::queue_lag(exchange).await,
        Endpoint::QueueOps => analytics::queue_ops(exchange).await,
        Endpoint::ParkedReplicas => analytics::parked(exchange).await,
        Endpoint::RetentionHistory => analytics::retention(exchange).await,
        Endpoint::SystemMetrics => analytics::system(exchange).await,
        Endpoint::WorkerMetrics => analytics::worker(exchange).await,
        Endpoint::PostgresStats => analytics::postgres(exchange).await,
        Endpoint::OpenApi => Ok(ops::openapi()),
        Endpoint::Who => Ok(ops::who(&exchange)),
        Endpoint::Liveness => Ok(ops::liveness()),
        Endpoint::Health => ops::health(exchange).await,
        Endpoint::MetricsJson => ops::metrics_json(exchange).await,
        Endpoint::MetricsText => ops::metrics_text(exchange).await,
        Endpoint::Push
        | Endpoint::PopQueue
        | Endpoint::PopPartition
        | Endpoint::PopLabels
        | Endpoint::Ack
        | Endpoint::AckBatch => Err(Failure::internal()),
    }
}

/// One request on its way to an answer.
struct Exchange<'r> {
    shared: &'r Shared,
    connection: &'r Arc<Connection>,
    parameters: &'r Parameters<'r>,
    query: Query<'r>,
    headers: &'r HeaderMap,
    caller: &'r Caller,
    body: &'r mut Source,
    before: Before,
    /// The body of a pop that another broker sent on: it ends when the answer was written to the client.
    forwarder: Option<Incoming>,
}

impl Exchange<'_> {
    /// The request's whole body.
    async fn body(&mut self) -> Result<Bytes, Failure> {
        self.body.read(self.headers, &self.shared.settings).await
    }

    /// Orders `command` and waits for the reply. Dropped meanwhile, the broker hears that the client is gone.
    async fn ask(&self, command: Command) -> Result<Reply, Failure> {
        match self.shared.slots.local(self.caller.tenant).call(self.caller.tenant, command).await.0 {
            Reply::Refused(rejection) => Err(rejection.into()),
            reply => Ok(reply),
        }
    }

    /// `ask` for what may wait and lease messages.
    async fn ask_with_receipt(&mut self, command: Command) -> Result<(Reply, Receipt), Failure> {
        if self.before.forwarded {
            self.forwarder = self.body.take_open();
        }
        let (connection, forwarder) = (self.connection, &mut self.forwarder);
        let departed = async {
            match forwarder {
                Some(forwarder) => forward::called_off(forwarder).await,
                None => connection.departed().await,
            }
        };
        let mut call = pin!(self.shared.slots.local(self.caller.tenant).call(self.caller.tenant, command));
        let answered = tokio::select! {
            biased;
            answered = call.as_mut() => answered,
            () = departed => {
                // A client that left must not be given what comes later. It may only have closed its side, so what is
                // decided already is still written.
                call.stop_waiting();
                call.await
            }
        };
        match answered {
            (Reply::Refused(rejection), _) => Err(rejection.into()),
            answered => Ok(answered),
        }
    }

    /// Who will know whether the answer was written.
    fn witness(&mut self) -> Witness {
        match self.forwarder.take() {
            Some(forwarder) => Witness::Forwarder(forwarder),
            None => Witness::Socket(Arc::clone(self.connection)),
        }
    }

    /// The path's `n`th parameter as a queue.
    fn queue(&self, n: usize) -> Result<QueueName, Failure> {
        QueueName::new(self.parameters.at(n)).map_err(|error| in_path("queue", error))
    }

    /// The path's `n`th parameter as a partition.
    fn partition(&self, n: usize) -> Result<PartitionName, Failure> {
        PartitionName::new(self.parameters.at(n)).map_err(|error| in_path("partition", error))
    }

    /// The path's `n`th parameter as a group.
    fn group(&self, n: usize) -> Result<GroupName, Failure> {
        GroupName::new(self.parameters.at(n)).map_err(|error| in_path("group", error))
    }

    /// A queue that the query may name.
    fn queue_filter(&self) -> Result<Option<QueueName>, Failure> {
        let name = self.query.filter("queue")?;
        name.map(|name| QueueName::new(&name).map_err(|error| in_query("queue", error))).transpose()
    }

    /// A time that the query may name.
    fn time(&self, name: &str) -> Result<Option<Timestamp>, Failure> {
        let Some(text) = self.query.filter(name)? else { return Ok(None) };
        let time = time::parse(&text).ok_or_else(|| query::unexpected(name, time::ACCEPTED, &text))?;
        Ok(Some(time))
    }

    /// A group that the query may name.
    fn group_filter(&self) -> Result<Option<GroupName>, Failure> {
        let name = self.query.filter("consumerGroup")?;
        name.map(|name| GroupName::new(&name).map_err(|error| in_query("consumerGroup", error))).transpose()
    }
}

fn in_path(segment: &str, error: NameError) -> Failure {
    Failure::bad_request(format!("path segment {segment} {error}"))
}

fn in_query(name: &str, error: NameError) -> Failure {
    Failure::bad_request(format!("query parameter {name} {error}"))
}

/// A reply of another kind than the command's: a defect.
fn unexpected(reply: &Reply) -> Failure {
    tracing::error!(?reply, "the broker gave a reply of another kind than the command's");
    Failure::internal()
}

/// An answer whose JSON is written already.
fn json(status: StatusCode, body: Vec<u8>) -> Response<Body> {
    respond(status, JSON, Bytes::from(body).into())
}

/// An answer that is serialized.
fn serialized(status: StatusCode, body: &impl Serialize) -> Outcome {
    let body = serde_json::to_vec(body).map_err(|error| {
        tracing::error!(%error, "an answer does not serialize");
        Failure::internal()
    })?;
    Ok(json(status, body))
}

/// 204: neither body nor length.
pub(crate) fn no_content() -> Response<Body> {
    let mut response = Response::new(Body::default());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

fn respond(status: StatusCode, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
