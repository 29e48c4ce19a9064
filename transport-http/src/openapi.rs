//! The OpenAPI document. Paths, methods and levels come from the table of routes, schemas from the types that are read and
//! written, options from their table; `contract` says of each endpoint what belongs to it, and the compiler that none is
//! missing.

mod shapes;

use std::sync::OnceLock;

use bytes::Bytes;
use hyper::{Method, StatusCode};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};
use tidegate_core::limits::MAX_NAME_BYTES;

use crate::router::{Endpoint, Kind, Level, ROUTES, Route};
use crate::wire::{
    ack, analytics, configure, dead_letters, groups, lease, listing, maintenance, messages, push, queues, retention,
    status, traces, transaction,
};
use crate::{metrics, route};

/// The document as it is served.
pub(crate) fn document() -> Bytes {
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    DOCUMENT.get_or_init(|| Bytes::from(build().to_string())).clone()
}

fn build() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        let operations = paths.entry(template(route.path)).or_insert_with(|| json!({}));
        operations[route.method.as_str().to_ascii_lowercase()] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tidegate",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Partitioned queues with consumer groups, leases, acks and transactions.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": {"Error": schema::<shapes::Error>()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    })
}

/// `/a/:b` as `/a/{b}`.
fn template(path: &str) -> String {
    let segment = |segment: &str| match segment.strip_prefix(':') {
        Some(name) => format!("{{{name}}}"),
        None => segment.to_owned(),
    };
    path.split('/').map(segment).collect::<Vec<_>>().join("/")
}

fn operation(route: &Route) -> Value {
    let contract = contract(route.endpoint);
    let in_path = route.path.split('/').filter_map(|segment| segment.strip_prefix(':')).map(|name| {
        let schema = match name {
            "partitionId" | "id" => json!({"type": "string", "format": "uuid"}),
            _ => name_schema(),
        };
        json!({"name": name, "in": "path", "required": true, "schema": schema})
    });
    let in_query = contract.query.iter().map(|Parameter { name, required, schema, about }| {
        json!({"name": name, "in": "query", "required": required, "schema": schema, "description": about})
    });
    let parameters: Vec<Value> = in_path.chain(in_query).collect();
    let mut responses = Map::new();
    for (status, answer) in contract.answers {
        responses.insert(status.as_str().to_owned(), response(status, answer));
    }
    let takes_parameters = !parameters.is_empty();
    for status in errors(route, contract.body.is_some(), takes_parameters) {
        let error = Answer::Json(json!({"$ref": "#/components/schemas/Error"}));
        responses.entry(status.as_str().to_owned()).or_insert_with(|| response(status, error));
    }
    let mut operation = json!({
        "operationId": operation_id(route),
        "summary": contract.summary,
        "x-level": level(route.level),
        "parameters": parameters,
        "responses": responses,
    });
    if route.level == Level::Public {
        operation["security"] = json!([]);
    } else {
        // Only asked for where the broker was started with authentication.
        operation["security"] = json!([{}, {"token": []}]);
    }
    if let Some(Body { schema, required }) = contract.body {
        let content = json!({"application/json": {"schema": schema}});
        operation["requestBody"] = json!({"required": required, "content": content});
    }
    operation
}

/// What goes wrong alike on every route of a kind.
fn errors(route: &Route, takes_body: bool, takes_parameters: bool) -> Vec<StatusCode> {
    let mut errors = Vec::new();
    if takes_body || takes_parameters || route.endpoint.kind() != Kind::Local {
        errors.push(StatusCode::BAD_REQUEST);
    }
    if takes_body {
        errors.extend([StatusCode::REQUEST_TIMEOUT, StatusCode::PAYLOAD_TOO_LARGE]);
    }
    if route.level != Level::Public {
        errors.extend([StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN]);
    }
    if route.endpoint.kind() != Kind::Local {
        errors.push(StatusCode::SERVICE_UNAVAILABLE);
    }
    errors
}

fn response(status: StatusCode, answer: Answer) -> Value {
    let description = status.canonical_reason().unwrap_or("Answer");
    match answer {
        Answer::Nothing => json!({"description": description}),
        Answer::Json(schema) => {
            json!({"description": description, "content": {(route::JSON): {"schema": schema}}})
        }
        Answer::Text(kind) => {
            json!({"description": description, "content": {(kind): {"schema": {"type": "string"}}}})
        }
    }
}

fn operation_id(route: &Route) -> String {
    let mut name = format!("{:?}", route.endpoint);
    if let Some(first) = name.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    match route.method {
        // One endpoint under several paths.
        Method::GET if route.path.starts_with("/internal/api/inter") => name + "OfInstances",
        _ => name,
    }
}

fn level(level: Level) -> &'static str {
    match level {
        Level::Public => "public",
        Level::ReadOnly => "read-only",
        Level::WriteOnly => "write-only",
        Level::ReadWrite => "read-write",
        Level::Admin => "admin",
    }
}

/// What a route takes and gives, besides what it has in common with others.
struct Contract {
    summary: &'static str,
    query: Vec<Parameter>,
    body: Option<Body>,
    answers: Vec<(StatusCode, Answer)>,
}

struct Parameter {
    name: &'static str,
    required: bool,
    schema: Value,
    about: &'static str,
}

struct Body {
    schema: Value,
    required: bool,
}

enum Answer {
    /// No body.
    Nothing,
    /// JSON of this schema.
    Json(Value),
    /// Text of this type.
    Text(&'static str),
}

/// The schema of a type, as it is written or read.
fn schema<T: JsonSchema>() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut schema: Schema = settings.for_serialize().into_generator().into_root_schema_for::<T>();
    schema.remove("title");
    schema.into()
}

/// The schema of a body, with the fields that it cannot do without.
fn body_schema<T: JsonSchema>(required: &[(&str, &[&str])]) -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut schema: Value = settings.for_deserialize().into_generator().into_root_schema_for::<T>().into();
    for (place, fields) in required {
        if let Some(object) = schema.pointer_mut(place) {
            object["required"] = json!(fields);
            for field in *fields {
                let Some(kind) = object.pointer_mut(&format!("/properties/{field}/type")) else { continue };
                if let Some(first) = kind.as_array().and_then(|kinds| kinds.first()).cloned() {
                    *kind = first;
                }
            }
        }
    }
    schema
}

fn name_schema() -> Value {
    json!({"type": "string", "maxLength": MAX_NAME_BYTES, "pattern": "^[^\\u0000]*$"})
}

impl Contract {
    fn new(summary: &'static str) -> Self {
        Contract { summary, query: Vec::new(), body: None, answers: Vec::new() }
    }

    fn gives<T: JsonSchema>(self, status: StatusCode) -> Self {
        self.answer(status, Answer::Json(schema::<T>()))
    }

    fn answer(mut self, status: StatusCode, answer: Answer) -> Self {
        self.answers.push((status, answer));
        self
    }

    /// The plain error, with a status of the route's own.
    fn fails(self, status: StatusCode) -> Self {
        self.gives::<shapes::Error>(status)
    }

    fn takes<T: JsonSchema>(mut self, required: &[(&str, &[&str])]) -> Self {
        self.body = Some(Body { schema: body_schema::<T>(required), required: true });
        self
    }

    fn may_take<T: JsonSchema>(mut self) -> Self {
        self.body = Some(Body { schema: body_schema::<T>(&[]), required: false });
        self
    }

    fn query(mut self, name: &'static str, schema: Value, about: &'static str) -> Self {
        self.query.push(Parameter { name, required: false, schema, about });
        self
    }

    fn named(self, name: &'static str, about: &'static str) -> Self {
        self.query(name, name_schema(), about)
    }

    fn whole(self, name: &'static str, about: &'static str) -> Self {
        self.query(name, json!({"type": "integer", "minimum": 0}), about)
    }

    fn page(self) -> Self {
        self.whole("limit", "Rows at most.").whole("offset", "Rows skipped.")
    }

    fn times(self) -> Self {
        let time = || json!({"type": "string", "format": "date-time"});
        self.query("from", time(), "From this time on.").query("to", time(), "Up to this time.")
    }

    fn queue_filters(self) -> Self {
        self.named("queue", "Only this queue.")
            .named("namespace", "Only queues of this namespace.")
            .named("task", "Only queues of this task.")
    }

    fn pop(self) -> Self {
        let whole = || json!({"type": "integer", "minimum": i32::MIN, "maximum": i32::MAX});
        let truth = || json!({"type": "boolean"});
        let modes = json!({"type": "string", "enum": ["", "all", "new", "from_beginning", "new-only", "timestamp"]});
        self.named("consumerGroup", "For this group; without one, for queue mode.")
            .query("batch", whole(), "Messages at most, over all partitions; 200 without it.")
            .query("partitions", whole(), "Partitions at most; 1 without it, 0 is no limit.")
            .query("autoAck", truth(), "Commit on delivery and take no lease.")
            .query("wait", truth(), "Wait for messages.")
            .query("timeout", json!({"type": "integer", "minimum": 0}), "Milliseconds to wait at most.")
            .query("leaseSeconds", whole(), "The lease's length; the queue's without it.")
            .query("subscriptionMode", modes, "Where a group that is new here starts.")
            .query("subscriptionFrom", json!({"type": "string"}), "The time it starts at, or `now`.")
            .gives::<shapes::Popped>(StatusCode::OK)
            .answer(StatusCode::NO_CONTENT, Answer::Nothing)
    }
}

/// What belongs to each endpoint.
fn contract(endpoint: Endpoint) -> Contract {
    const OK: StatusCode = StatusCode::OK;
    const CREATED: StatusCode = StatusCode::CREATED;
    const NOT_FOUND: StatusCode = StatusCode::NOT_FOUND;
    const REFUSED: StatusCode = StatusCode::INTERNAL_SERVER_ERROR;
    let new = Contract::new;
    match endpoint {
        Endpoint::Push => new("Append messages.")
            .takes::<push::PushBody<'_>>(&[("", &["items"]), ("/properties/items/items", &["queue", "payload"])])
            .gives::<Vec<shapes::PushResult>>(CREATED),
        Endpoint::PopQueue => new("Take messages of any partition of a queue.").pop(),
        Endpoint::PopPartition => new("Take messages of one partition.").pop(),
        Endpoint::PopLabels => new("Take messages of every queue with these labels.")
            .named("namespace", "Of this namespace; one of the two is needed.")
            .named("task", "Of this task.")
            .pop(),
        Endpoint::Ack => new("Settle a delivered message.")
            .takes::<ack::AckFields<'_>>(&[("", &["transactionId", "partitionId"])])
            .gives::<Vec<shapes::Acked>>(OK),
        Endpoint::AckBatch => new("Settle delivered messages.")
            .takes::<ack::BatchBody<'_>>(&[
                ("", &["acknowledgments"]),
                ("/properties/acknowledgments/items", &["transactionId", "partitionId"]),
            ])
            .gives::<Vec<shapes::Acked>>(OK),
        Endpoint::ExtendLease => {
            new("Lengthen a lease.").may_take::<lease::ExtendBody<'_>>().gives::<lease::Extended<'_>>(OK)
        }
        Endpoint::Transaction => new("Pushes and acks, all or nothing.")
            .takes::<transaction::TransactionBody<'_>>(&[("", &["operations"])])
            .gives::<transaction::Answer<'_>>(OK),
        Endpoint::Configure => new("Replace a queue's whole configuration.")
            .takes::<configure::ConfigureBody>(&[("", &["queue"])])
            .gives::<configure::Configured<'_>>(OK),
        Endpoint::ListQueues => new("All queues, newest first.").gives::<queues::Queues<'_>>(OK),
        Endpoint::ListNamespaces => new("Namespaces in use.").gives::<queues::Namespaces<'_>>(OK),
        Endpoint::ListTasks => new("Tasks in use.").gives::<queues::Tasks<'_>>(OK),
        Endpoint::Overview => new("Everything in a few numbers.").gives::<status::Overview>(OK),
        Endpoint::DescribeQueue => {
            new("One queue with its partitions.").gives::<queues::Detail<'_>>(OK).fails(NOT_FOUND)
        }
        Endpoint::Depth => new("How many messages wait for each group of a queue, and what for.")
            .named("group", "Only this group.")
            .named("consumerGroup", "The same.")
            .gives::<status::Depth<'_>>(OK)
            .fails(NOT_FOUND),
        Endpoint::PreviewRetention => new("What each retention rule would delete of a queue now.")
            .gives::<retention::Preview<'_>>(OK)
            .fails(NOT_FOUND),
        Endpoint::DeleteQueue => new("Delete a queue and all it holds.").gives::<queues::Deleted<'_>>(OK),
        Endpoint::ListGroups => new("Every group on every queue.").gives::<Vec<groups::Row<'_>>>(OK),
        Endpoint::ListLagging => new("Groups that are behind.")
            .query("minLagSeconds", json!({"type": "integer"}), "By more than this; an hour without it.")
            .gives::<Vec<groups::Lagging<'_>>>(OK),
        Endpoint::DescribeGroup => new("One group, by queue and partition.")
            .gives::<std::collections::BTreeMap<String, groups::OnQueue<'_>>>(OK),
        Endpoint::ChangeSubscription => new("Set the time that a group's subscription records carry.")
            .takes::<groups::SubscriptionBody<'_>>(&[("", &["subscriptionTimestamp"])])
            .gives::<groups::SubscriptionChanged<'_>>(OK)
            .fails(REFUSED),
        Endpoint::SeekQueue => new("Move a group on every partition of a queue.")
            .takes::<groups::SeekBody<'_>>(&[])
            .gives::<groups::SoughtQueue<'_>>(OK)
            .gives::<groups::NoSuchQueue<'_>>(NOT_FOUND)
            .fails(REFUSED),
        Endpoint::SeekPartition => new("Move a group on one partition; without a body to the end.")
            .may_take::<groups::SeekBody<'_>>()
            .gives::<groups::SoughtPartition<'_>>(OK)
            .gives::<groups::NoSuchPartition>(NOT_FOUND)
            .fails(REFUSED),
        Endpoint::DeleteGroup => new("Forget a group.")
            .query("deleteMetadata", json!({"type": "boolean"}), "Its subscription records too.")
            .gives::<groups::GroupDeleted<'_>>(OK),
        Endpoint::DeleteGroupOnQueue => new("Forget a group on one queue.")
            .query("deleteMetadata", json!({"type": "boolean"}), "Its subscription record too.")
            .gives::<groups::GroupDeleted<'_>>(OK),
        Endpoint::ListMessages => new("Messages, newest first.")
            .queue_filters()
            .named("partition", "Only partitions of this name.")
            .named("ns", "The same as namespace.")
            .query("status", json!({"type": "string", "enum": listing::statuses()}), "As queue mode sees them.")
            .times()
            .page()
            .gives::<listing::Page<'_>>(OK)
            .fails(REFUSED),
        Endpoint::FindMessage => new("One message.").gives::<messages::Detail<'_>>(OK).fails(NOT_FOUND).fails(REFUSED),
        Endpoint::DropDeadLetters => new("Remove the dead letters of a message.")
            .gives::<messages::AtAddress<'_>>(OK)
            .gives::<messages::AtAddress<'_>>(NOT_FOUND)
            .fails(REFUSED),
        Endpoint::Replay => new("Move a dead letter back to the tail of its partition.")
            .named("consumerGroup", "This group's; the newest failure without it.")
            .may_take::<shapes::Anything>()
            .gives::<shapes::Replayed>(OK)
            .gives::<messages::AtAddress<'_>>(NOT_FOUND),
        Endpoint::ListDeadLetters => new("Dead letters, newest failure first.")
            .named("queue", "Only of this queue.")
            .named("consumerGroup", "Only of this group.")
            .page()
            .gives::<dead_letters::Page<'_>>(OK),
        Endpoint::ReplayRow => new("Move a dead letter back to the tail of its partition, by its own id.")
            .may_take::<dead_letters::ReplayBody<'_>>()
            .gives::<shapes::Replayed>(OK)
            .fails(NOT_FOUND),
        Endpoint::PurgeDeadLetters => {
            let mut contract = new("Remove all dead letters of a queue.")
                .named("queue", "The queue.")
                .named("consumerGroup", "Only of this group.")
                .gives::<dead_letters::Purged<'_>>(OK);
            contract.query[0].required = true;
            contract.query[0].schema["minLength"] = json!(1);
            contract
        }
        Endpoint::Trace => new("Note something about a message's way.")
            .takes::<traces::TraceBody<'_>>(&[("", &["transactionId", "partitionId", "data"])])
            .gives::<traces::Traced>(CREATED)
            .fails(NOT_FOUND)
            .fails(REFUSED),
        Endpoint::TracesOfMessage => new("A message's traces, oldest first.").gives::<traces::OfMessage<'_>>(OK),
        Endpoint::TracesOfName => new("A name's traces, newest first.").page().gives::<traces::OfName<'_>>(OK),
        Endpoint::TraceNames => new("The names that traces carry.").page().gives::<traces::AllNames<'_>>(OK),
        Endpoint::Status => new("How the broker does.").queue_filters().times().gives::<status::Status>(OK),
        Endpoint::StatusOfQueues => new("How queues do.").queue_filters().page().gives::<status::Queues<'_>>(OK),
        Endpoint::StatusOfQueue => new("How a queue does.").gives::<status::Detail<'_>>(OK).fails(NOT_FOUND),
        Endpoint::StatusAnalytics => new("Messages by the time they were pushed.")
            .queue_filters()
            .times()
            .query("interval", json!({"type": "string", "enum": ["minute", "hour", "day"]}), "An hour without it.")
            .gives::<status::Analytics>(OK),
        Endpoint::StatusOfBuffers => new("What waits to be written.").gives::<status::Buffers>(OK),
        Endpoint::QueueLag => new("How long messages waited.")
            .named("queue", "Only this queue.")
            .times()
            .gives::<Vec<analytics::QueueLag<'_>>>(OK),
        Endpoint::QueueOps => new("What was done on queues.")
            .named("queue", "Only this queue.")
            .times()
            .gives::<analytics::QueueOps<'_>>(OK),
        Endpoint::ParkedReplicas => new("Long polls that were parked.")
            .named("queue", "Only this queue.")
            .times()
            .gives::<analytics::ParkedReplicas<'_>>(OK),
        Endpoint::RetentionHistory => {
            new("What retention deleted.").named("queue", "Only this queue.").times().gives::<analytics::Retention>(OK)
        }
        Endpoint::SystemMetrics => new("How the process does.").times().gives::<analytics::SystemMetrics<'_>>(OK),
        Endpoint::WorkerMetrics => new("What the broker did.")
            .named("queue", "Only this queue.")
            .times()
            .gives::<analytics::WorkerMetrics<'_>>(OK),
        Endpoint::PostgresStats => {
            new("What the database tells of itself.").times().gives::<analytics::PostgresStats>(OK)
        }
        Endpoint::Maintenance => new("How the operator's switches stand.").gives::<maintenance::Both>(OK),
        Endpoint::SetMaintenance => new("Switch pushes off or on.")
            .takes::<maintenance::SwitchBody>(&[("", &["enabled"])])
            .gives::<maintenance::PushSwitched>(OK)
            .fails(StatusCode::SERVICE_UNAVAILABLE),
        Endpoint::PopMaintenance => new("How the switch of pops stands.").gives::<maintenance::Pops>(OK),
        Endpoint::SetPopMaintenance => new("Switch pops off or on.")
            .takes::<maintenance::SwitchBody>(&[("", &["enabled"])])
            .gives::<maintenance::Pops>(OK)
            .fails(StatusCode::SERVICE_UNAVAILABLE),
        Endpoint::SharedState => new("What brokers share.").gives::<maintenance::SharedState>(OK),
        Endpoint::RefreshStats => {
            new("Compute the statistics anew.").may_take::<shapes::Anything>().gives::<status::Refreshed>(OK)
        }
        Endpoint::Notify => new("Say that something was pushed.")
            .takes::<maintenance::NotifyBody<'_>>(&[("", &["queue"])])
            .gives::<maintenance::Heard>(OK),
        Endpoint::MeshStats => new("Counters of the mesh.").gives::<maintenance::Mesh>(OK),
        Endpoint::Who => new("Which broker this is.").answer(OK, Answer::Text("text/plain")),
        Endpoint::Liveness => new("The process lives.").gives::<shapes::Alive>(OK),
        Endpoint::Health => {
            new("The store answers.").gives::<route::Health>(OK).gives::<route::Health>(StatusCode::SERVICE_UNAVAILABLE)
        }
        Endpoint::MetricsJson => new("A few metrics as JSON.").gives::<metrics::Summary>(OK),
        Endpoint::MetricsText => new("Every metric, for Prometheus.").answer(OK, Answer::Text(metrics::TEXT)),
        Endpoint::OpenApi => new("This document.").gives::<shapes::Anything>(OK),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_route_is_in_the_document_and_no_other() {
        let document = build();
        let paths = document["paths"].as_object().expect("paths");
        let told: BTreeSet<(String, String)> = paths
            .iter()
            .flat_map(|(path, operations)| {
                let methods = operations.as_object().expect("operations").keys();
                methods.map(|method| (method.to_ascii_uppercase(), path.clone()))
            })
            .collect();
        let routes: BTreeSet<(String, String)> =
            ROUTES.iter().map(|route| (route.method.to_string(), template(route.path))).collect();
        assert_eq!(told, routes);
    }

    #[test]
    fn operations_are_told_apart_and_complete() {
        let document = build();
        let mut ids = BTreeSet::new();
        for (path, operations) in document["paths"].as_object().expect("paths") {
            for (method, operation) in operations.as_object().expect("operations") {
                let id = operation["operationId"].as_str().expect("an id");
                assert!(ids.insert(id.to_owned()), "{id} is there twice");
                assert!(operation["summary"].as_str().is_some_and(|text| text.ends_with('.')), "{method} {path}");
                let responses = operation["responses"].as_object().expect("responses");
                assert!(responses.keys().any(|status| status.starts_with('2')), "{method} {path}");
                let public = operation["x-level"] == "public";
                assert_eq!(responses.contains_key("401"), !public, "{method} {path}");
                let parameters = operation["parameters"].as_array().expect("parameters");
                let in_path = parameters.iter().filter(|parameter| parameter["in"] == "path").count();
                assert_eq!(in_path, path.matches('{').count(), "{method} {path}");
            }
        }
    }

    #[test]
    fn options_come_from_their_table() {
        let document = build();
        let body = &document["paths"]["/api/v1/configure"]["post"]["requestBody"]["content"]["application/json"];
        for spec in &tidegate_core::options::OPTIONS {
            assert!(body["schema"]["properties"]["options"]["properties"].get(spec.name).is_some(), "{}", spec.name);
        }
    }
}
