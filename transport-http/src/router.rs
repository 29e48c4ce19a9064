//! The table of routes, and finding a request's route in it.

use std::borrow::Cow;

use hyper::Method;
use tidegate_core::name::excerpt;

use crate::error::Failure;
use crate::query::decode_percent;

/// What a token must hold when authentication is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// Nothing: open to anyone.
    Public,
    /// Read.
    ReadOnly,
    /// Push.
    WriteOnly,
    /// Read and write.
    ReadWrite,
    /// Everything.
    Admin,
}

/// One route.
#[derive(Clone, Debug)]
pub struct Route {
    /// Its method; HEAD comes with GET.
    pub method: Method,
    /// Its path; a segment that starts with a colon is a parameter.
    pub path: &'static str,
    /// Who may call it.
    pub level: Level,
    pub(crate) endpoint: Endpoint,
}

impl Route {
    /// Whether it is about one tenant's queues; else it is about this broker, whoever asks.
    pub fn is_tenants(&self) -> bool {
        self.endpoint.kind() != Kind::Local
    }
}

/// What answers a route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Endpoint {
    Push,
    PopQueue,
    PopPartition,
    PopLabels,
    Ack,
    AckBatch,
    ExtendLease,
    Transaction,
    Configure,
    ListQueues,
    ListNamespaces,
    ListTasks,
    DescribeQueue,
    PreviewRetention,
    DeleteQueue,
    ListGroups,
    ListLagging,
    DescribeGroup,
    ChangeSubscription,
    SeekQueue,
    SeekPartition,
    DeleteGroup,
    DeleteGroupOnQueue,
    FindMessage,
    DropDeadLetters,
    Replay,
    ListDeadLetters,
    ListMessages,
    ReplayRow,
    PurgeDeadLetters,
    Overview,
    Depth,
    Status,
    StatusOfQueues,
    StatusOfQueue,
    StatusAnalytics,
    StatusOfBuffers,
    RefreshStats,
    Maintenance,
    SetMaintenance,
    PopMaintenance,
    SetPopMaintenance,
    SharedState,
    Notify,
    MeshStats,
    Trace,
    TracesOfName,
    TraceNames,
    TracesOfMessage,
    QueueLag,
    QueueOps,
    ParkedReplicas,
    RetentionHistory,
    SystemMetrics,
    WorkerMetrics,
    PostgresStats,
    OpenApi,
    Who,
    Liveness,
    Health,
    MetricsJson,
    MetricsText,
}

/// What it means to send a request of a route on to another broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// It is about this broker, whoever owns which slot.
    Local,
    /// It may wait, and lease messages.
    Pop,
    /// It changes nothing.
    Read,
    /// It may change something.
    Write,
}

impl Endpoint {
    /// What it means to send such a request on.
    pub(crate) fn kind(self) -> Kind {
        match self {
            Endpoint::PopQueue | Endpoint::PopPartition | Endpoint::PopLabels => Kind::Pop,
            Endpoint::Push
            | Endpoint::Ack
            | Endpoint::AckBatch
            | Endpoint::ExtendLease
            | Endpoint::Transaction
            | Endpoint::Configure
            | Endpoint::DeleteQueue
            | Endpoint::ChangeSubscription
            | Endpoint::SeekQueue
            | Endpoint::SeekPartition
            | Endpoint::DeleteGroup
            | Endpoint::DeleteGroupOnQueue
            | Endpoint::DropDeadLetters
            | Endpoint::Replay
            | Endpoint::ReplayRow
            | Endpoint::PurgeDeadLetters
            | Endpoint::Trace => Kind::Write,
            Endpoint::PreviewRetention
            | Endpoint::ListQueues
            | Endpoint::ListNamespaces
            | Endpoint::ListTasks
            | Endpoint::DescribeQueue
            | Endpoint::ListGroups
            | Endpoint::ListLagging
            | Endpoint::DescribeGroup
            | Endpoint::FindMessage
            | Endpoint::ListMessages
            | Endpoint::Overview
            | Endpoint::Depth
            | Endpoint::Status
            | Endpoint::StatusOfQueues
            | Endpoint::StatusOfQueue
            | Endpoint::StatusAnalytics
            | Endpoint::RefreshStats
            | Endpoint::TracesOfName
            | Endpoint::TraceNames
            | Endpoint::TracesOfMessage
            | Endpoint::QueueLag
            | Endpoint::QueueOps
            | Endpoint::ParkedReplicas
            | Endpoint::RetentionHistory
            | Endpoint::SystemMetrics
            | Endpoint::WorkerMetrics
            | Endpoint::PostgresStats
            | Endpoint::ListDeadLetters => Kind::Read,
            Endpoint::StatusOfBuffers
            | Endpoint::Maintenance
            | Endpoint::SetMaintenance
            | Endpoint::PopMaintenance
            | Endpoint::SetPopMaintenance
            | Endpoint::SharedState
            | Endpoint::Notify
            | Endpoint::MeshStats
            | Endpoint::OpenApi
            | Endpoint::Who
            | Endpoint::Liveness
            | Endpoint::Health
            | Endpoint::MetricsJson
            | Endpoint::MetricsText => Kind::Local,
        }
    }

    /// Whether HEAD may stand for GET: not where GET takes messages that HEAD would throw away.
    fn takes_head(self) -> bool {
        !matches!(self, Endpoint::PopQueue | Endpoint::PopPartition | Endpoint::PopLabels)
    }
}

macro_rules! routes {
    ($($method:ident $path:literal $level:ident $endpoint:ident;)*) => {
        &[$(Route {
            method: Method::$method,
            path: $path,
            level: Level::$level,
            endpoint: Endpoint::$endpoint,
        }),*]
    };
}

/// Every route. The first that fits wins: the busiest come first, and a path of fixed words before one with parameters
/// that it would fit as well.
pub static ROUTES: &[Route] = routes! {
    POST   "/api/v1/push"                                                                   WriteOnly Push;
    GET    "/api/v1/pop/queue/:queue"                                                       ReadWrite PopQueue;
    GET    "/api/v1/pop/queue/:queue/partition/:partition"                                  ReadWrite PopPartition;
    GET    "/api/v1/pop"                                                                    ReadWrite PopLabels;
    POST   "/api/v1/ack"                                                                    ReadWrite Ack;
    POST   "/api/v1/ack/batch"                                                              ReadWrite AckBatch;
    POST   "/api/v1/transaction"                                                            ReadWrite Transaction;
    POST   "/api/v1/lease/:leaseId/extend"                                                  ReadWrite ExtendLease;
    POST   "/api/v1/configure"                                                              ReadWrite Configure;
    GET    "/api/v1/resources/queues"                                                       ReadOnly  ListQueues;
    GET    "/api/v1/resources/namespaces"                                                   ReadOnly  ListNamespaces;
    GET    "/api/v1/resources/tasks"                                                        ReadOnly  ListTasks;
    GET    "/api/v1/resources/queues/:queue"                                                ReadOnly  DescribeQueue;
    GET    "/api/v1/resources/queues/:queue/retention"                                      ReadOnly  PreviewRetention;
    DELETE "/api/v1/resources/queues/:queue"                                                Admin     DeleteQueue;
    GET    "/api/v1/consumer-groups"                                                        ReadOnly  ListGroups;
    GET    "/api/v1/consumer-groups/lagging"                                                ReadOnly  ListLagging;
    GET    "/api/v1/consumer-groups/:group"                                                 ReadOnly  DescribeGroup;
    POST   "/api/v1/consumer-groups/:group/subscription"                                    ReadWrite ChangeSubscription;
    POST   "/api/v1/consumer-groups/:group/queues/:queue/seek"                              ReadWrite SeekQueue;
    POST   "/api/v1/consumer-groups/:group/queues/:queue/partitions/:partition/seek"        ReadWrite SeekPartition;
    DELETE "/api/v1/consumer-groups/:group"                                                 Admin     DeleteGroup;
    DELETE "/api/v1/consumer-groups/:group/queues/:queue"                                   Admin     DeleteGroupOnQueue;
    GET    "/api/v1/messages/:partitionId/:transactionId"                                   ReadOnly  FindMessage;
    DELETE "/api/v1/messages/:partitionId/:transactionId"                                   ReadWrite DropDeadLetters;
    POST   "/api/v1/messages/:partitionId/:transactionId/retry"                             ReadWrite Replay;
    GET    "/api/v1/dlq"                                                                    ReadOnly  ListDeadLetters;
    GET    "/api/v1/resources/overview"                                                     ReadOnly  Overview;
    GET    "/api/v1/resources/queues/:queue/depth"                                          ReadOnly  Depth;
    GET    "/api/v1/messages"                                                               ReadOnly  ListMessages;
    POST   "/api/v1/dlq/:id/replay"                                                         ReadWrite ReplayRow;
    DELETE "/api/v1/dlq"                                                                    Admin     PurgeDeadLetters;
    POST   "/api/v1/traces"                                                                 ReadWrite Trace;
    GET    "/api/v1/traces/names"                                                           ReadOnly  TraceNames;
    GET    "/api/v1/traces/by-name/:name"                                                   ReadOnly  TracesOfName;
    GET    "/api/v1/traces/:partitionId/:transactionId"                                     ReadOnly  TracesOfMessage;
    GET    "/api/v1/status"                                                                 ReadOnly  Status;
    GET    "/api/v1/status/queues"                                                          ReadOnly  StatusOfQueues;
    GET    "/api/v1/status/queues/:queue"                                                   ReadOnly  StatusOfQueue;
    GET    "/api/v1/status/analytics"                                                       ReadOnly  StatusAnalytics;
    GET    "/api/v1/status/buffers"                                                         ReadOnly  StatusOfBuffers;
    GET    "/api/v1/analytics/queue-lag"                                                    ReadOnly  QueueLag;
    GET    "/api/v1/analytics/queue-ops"                                                    ReadOnly  QueueOps;
    GET    "/api/v1/analytics/queue-parked-replicas"                                        ReadOnly  ParkedReplicas;
    GET    "/api/v1/analytics/retention"                                                    ReadOnly  RetentionHistory;
    GET    "/api/v1/analytics/system-metrics"                                               ReadOnly  SystemMetrics;
    GET    "/api/v1/analytics/worker-metrics"                                               ReadOnly  WorkerMetrics;
    GET    "/api/v1/analytics/postgres-stats"                                               ReadOnly  PostgresStats;
    GET    "/api/v1/system/maintenance"                                                     Admin     Maintenance;
    POST   "/api/v1/system/maintenance"                                                     Admin     SetMaintenance;
    GET    "/api/v1/system/maintenance/pop"                                                 Admin     PopMaintenance;
    POST   "/api/v1/system/maintenance/pop"                                                 Admin     SetPopMaintenance;
    GET    "/api/v1/system/shared-state"                                                    Admin     SharedState;
    POST   "/api/v1/stats/refresh"                                                          Admin     RefreshStats;
    POST   "/internal/api/notify"                                                           Admin     Notify;
    GET    "/internal/api/shared-state/stats"                                               Admin     MeshStats;
    GET    "/internal/api/inter-instance/stats"                                             Admin     MeshStats;
    GET    "/openapi.json"                                                                  Public    OpenApi;
    GET    "/internal/broker"                                                               Public    Who;
    GET    "/status"                                                                        ReadOnly  Liveness;
    GET    "/health"                                                                        Public    Health;
    GET    "/metrics"                                                                       Public    MetricsJson;
    GET    "/metrics/prometheus"                                                            Public    MetricsText;
};

/// The most parameters a path has.
const MAX_PARAMETERS: usize = 3;

/// A path's parameters, decoded, in the order of the path.
#[derive(Default)]
pub(crate) struct Parameters<'p>([Cow<'p, str>; MAX_PARAMETERS]);

impl Parameters<'_> {
    /// The `n`th parameter.
    pub(crate) fn at(&self, n: usize) -> &str {
        self.0.get(n).map_or("", |text| text)
    }
}

/// Finds the route of a request.
pub(crate) fn find<'p>(method: &Method, path: &'p str) -> Result<(&'static Route, Parameters<'p>), Failure> {
    let mut raw = [""; MAX_PARAMETERS];
    for route in ROUTES {
        if answers(route, method) && fits(route.path, path, &mut raw) {
            return Ok((route, decode(route.path, raw)?));
        }
    }
    let known: Vec<&Route> = ROUTES.iter().filter(|route| fits(route.path, path, &mut raw)).collect();
    if known.is_empty() {
        return Err(Failure::no_such_route());
    }
    let mut allowed: Vec<&str> = known.iter().map(|route| route.method.as_str()).collect();
    if known.iter().any(|route| answers(route, &Method::HEAD)) {
        allowed.push("HEAD");
    }
    allowed.sort_unstable();
    allowed.dedup();
    Err(Failure::wrong_method(method.as_str(), allowed.join(", ")))
}

fn answers(route: &Route, method: &Method) -> bool {
    route.method == *method || (*method == Method::HEAD && route.method == Method::GET && route.endpoint.takes_head())
}

/// Whether `path` has `pattern`'s shape; if so, `raw` holds its parameters as they are written.
fn fits<'p>(pattern: &str, path: &'p str, raw: &mut [&'p str; MAX_PARAMETERS]) -> bool {
    let (mut wanted, mut given) = (pattern.split('/'), path.split('/'));
    let mut slots = raw.iter_mut();
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return true,
            (Some(wanted), Some(given)) if wanted.starts_with(':') => {
                // The table's test sees to it that there is always a slot.
                if let Some(slot) = slots.next() {
                    *slot = given;
                }
            }
            (Some(wanted), Some(given)) if wanted == given => {}
            _ => return false,
        }
    }
}

/// Each segment is decoded by itself, so that an encoded slash stays within its segment.
fn decode<'p>(pattern: &str, raw: [&'p str; MAX_PARAMETERS]) -> Result<Parameters<'p>, Failure> {
    let mut parameters = Parameters::default();
    let names = pattern.split('/').filter_map(|segment| segment.strip_prefix(':'));
    for ((name, raw), decoded) in names.zip(raw).zip(&mut parameters.0) {
        *decoded = decode_percent(raw).ok_or_else(|| {
            Failure::bad_request(format!("path segment {name} is not percent-encoded UTF-8: {:?}", excerpt(raw)))
        })?;
    }
    Ok(parameters)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(method: &str, path: &str) -> Result<(Endpoint, Vec<String>), String> {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let (route, parameters) = find(&method, path).map_err(|failure| failure.text())?;
        let count = route.path.matches(':').count();
        Ok((route.endpoint, (0..count).map(|n| parameters.at(n).to_owned()).collect()))
    }

    fn check(method: &str, path: &str, endpoint: Endpoint, parameters: &[&str]) {
        let parameters = parameters.iter().map(|&text| text.to_owned()).collect();
        assert_eq!(found(method, path), Ok((endpoint, parameters)), "{method} {path}");
    }

    #[test]
    fn the_table_is_sound() {
        for (n, route) in ROUTES.iter().enumerate() {
            assert!(route.path.starts_with('/') && route.path.matches(':').count() <= MAX_PARAMETERS, "{}", route.path);
            let sample = route.path.replace(':', "");
            let method = route.method.clone();
            let first =
                ROUTES.iter().position(|other| other.method == method && fits(other.path, &sample, &mut [""; 3]));
            assert_eq!(first, Some(n), "{} {} is reachable", route.method, route.path);
        }
    }

    #[test]
    fn segments_are_decoded_one_by_one() {
        check("GET", "/api/v1/pop/queue/a%2Fb", Endpoint::PopQueue, &["a/b"]);
        check("GET", "/api/v1/pop/queue/a%252Fb", Endpoint::PopQueue, &["a%2Fb"]);
        check("GET", "/api/v1/pop/queue/a+b", Endpoint::PopQueue, &["a+b"]);
        check("GET", "/api/v1/pop/queue/..", Endpoint::PopQueue, &[".."]);
        check("GET", "/api/v1/pop/queue/.", Endpoint::PopQueue, &["."]);
        check("GET", "/api/v1/pop/queue/", Endpoint::PopQueue, &[""]);
        check("GET", "/api/v1/pop/queue/a%3Fb%23c%25", Endpoint::PopQueue, &["a?b#c%"]);
        check("GET", "/api/v1/pop/queue/%F0%9F%98%80 x", Endpoint::PopQueue, &["😀 x"]);
        check("GET", "/api/v1/pop/queue//partition/", Endpoint::PopPartition, &["", ""]);
        check("GET", "/api/v1/pop/queue/a/partition/lane%20x%2Fy", Endpoint::PopPartition, &["a", "lane x/y"]);
        check("DELETE", "/api/v1/resources/queues/", Endpoint::DeleteQueue, &[""]);
        check(
            "POST",
            "/api/v1/consumer-groups/g/queues/q/partitions/p/seek",
            Endpoint::SeekPartition,
            &["g", "q", "p"],
        );
    }

    #[test]
    fn fixed_words_win_over_parameters() {
        check("GET", "/api/v1/consumer-groups/lagging", Endpoint::ListLagging, &[]);
        check("DELETE", "/api/v1/consumer-groups/lagging", Endpoint::DeleteGroup, &["lagging"]);
        check("HEAD", "/api/v1/resources/queues", Endpoint::ListQueues, &[]);
    }

    #[test]
    fn says_what_is_missing_or_broken() {
        for path in
            ["/", "/api/v1/nope", "/api/v1/pop/queue", "/api/v1/push/", "//api/v1/push", "/api/v1/queues/q/clear"]
        {
            assert_eq!(found("GET", path), Err("Not Found".into()), "{path}");
        }
        let wrong = |method, path| found(method, path).expect_err(path);
        assert_eq!(wrong("GET", "/api/v1/push"), "method GET is not allowed here, allowed: POST");
        assert_eq!(wrong("HEAD", "/api/v1/pop"), "method HEAD is not allowed here, allowed: GET");
        assert_eq!(wrong("OPTIONS", "/health"), "method OPTIONS is not allowed here, allowed: GET, HEAD");
        assert_eq!(
            wrong("PUT", "/api/v1/resources/queues/q"),
            "method PUT is not allowed here, allowed: DELETE, GET, HEAD"
        );
        for broken in ["%", "%f", "%zz", "%ff"] {
            let text = wrong("GET", Box::leak(format!("/api/v1/pop/queue/{broken}").into_boxed_str()));
            assert!(text.starts_with("path segment queue is not percent-encoded UTF-8"), "{text}");
        }
    }
}
