//! Tokens: who may call which route, and what is noted of who pushed. How a token is checked is the transport's own test.

use std::sync::Arc;

use hyper::Method;
use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::{Value, json};
use tidegate_transport_http::{Authenticator, Level, ROUTES, TokenKeys, TokenRules};

use crate::world::{World, accepted, item};

behaviour!(
    every_route_lets_exactly_its_roles_pass,
    the_levels_are_those_of_the_page,
    strangers_learn_nothing_of_routes,
    the_subject_is_noted_on_what_is_pushed,
    without_authentication_tokens_mean_nothing,
    a_token_may_end_while_its_pop_waits,
);

const SECRET: &str = "a secret of at least thirty-two bytes";

async fn protected(world: &World) {
    let keys = TokenKeys::default().with_secret(SECRET).expect("a secret");
    let authenticator = Arc::new(Authenticator::new(TokenRules::default(), keys, world.wall()));
    world.restart_http(|_, http| http.authenticator = Some(authenticator)).await;
}

fn token(claims: Value) -> String {
    let key = EncodingKey::from_secret(SECRET.as_bytes()).expect("a key");
    encode(&Header::default(), &claims, &key).expect("a token")
}

fn with_role(world: &World, role: &str) -> World {
    as_who(world, json!({"role": role}))
}

fn as_who(world: &World, claims: Value) -> World {
    world.with_header("authorization", format!("Bearer {}", token(claims)))
}

const ROLES: [&str; 4] = ["admin", "read-write", "read-only", "write-only"];

fn passing(level: Level) -> &'static [&'static str] {
    match level {
        Level::Public => &["", "nobody", "admin", "read-write", "read-only", "write-only"],
        Level::ReadOnly => &["admin", "read-write", "read-only"],
        Level::WriteOnly => &["admin", "read-write", "write-only"],
        Level::ReadWrite => &["admin", "read-write"],
        Level::Admin => &["admin"],
    }
}

/// A path of a route, with something for each parameter.
fn sample(path: &str) -> String {
    let fill = |segment: &str| match segment {
        ":partitionId" | ":leaseId" | ":id" => "0198aaaa-0000-7000-8000-000000000009".to_owned(),
        other => other.trim_start_matches(':').to_owned(),
    };
    path.split('/').map(fill).collect::<Vec<_>>().join("/")
}

async fn every_route_lets_exactly_its_roles_pass(world: World) {
    protected(&world).await;
    for route in ROUTES {
        let (path, described) = (sample(route.path), format!("{} {}", route.method, route.path));
        let call = async |world: &World| world.call(route.method.clone(), &path, "{}").await;
        let mut callers = vec![("", world.clone()), ("nobody", as_who(&world, json!({"sub": "x"})))];
        callers.extend(ROLES.map(|role| (role, with_role(&world, role))));
        for (role, caller) in callers {
            let answer = call(&caller).await;
            if passing(route.level).contains(&role) {
                assert!(![401, 403].contains(&answer.status), "{role} at {described}: {}", answer.text());
            } else if role.is_empty() {
                assert_eq!(answer.error(401), "Authentication required", "{described}");
                assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
            } else {
                assert_eq!(answer.error(403), "Insufficient permissions", "{role} at {described}");
            }
        }
        let broken = world.with_header("authorization", "Bearer x").call(route.method.clone(), &path, "{}").await;
        assert_eq!(broken.status == 401, route.level != Level::Public, "{described}");
    }
}

/// The page's table (3), as far as there are such routes.
const LEVELS: &[(&str, &str)] = &[
    ("POST /api/v1/push", "WriteOnly"),
    ("GET /api/v1/pop/queue/:queue", "ReadWrite"),
    ("GET /api/v1/pop/queue/:queue/partition/:partition", "ReadWrite"),
    ("GET /api/v1/pop", "ReadWrite"),
    ("POST /api/v1/ack", "ReadWrite"),
    ("POST /api/v1/ack/batch", "ReadWrite"),
    ("POST /api/v1/lease/:leaseId/extend", "ReadWrite"),
    ("POST /api/v1/transaction", "ReadWrite"),
    ("POST /api/v1/configure", "ReadWrite"),
    ("GET /api/v1/resources/queues", "ReadOnly"),
    ("GET /api/v1/resources/queues/:queue", "ReadOnly"),
    ("DELETE /api/v1/resources/queues/:queue", "Admin"),
    ("GET /api/v1/resources/overview", "ReadOnly"),
    ("GET /api/v1/resources/namespaces", "ReadOnly"),
    ("GET /api/v1/resources/tasks", "ReadOnly"),
    ("GET /api/v1/consumer-groups", "ReadOnly"),
    ("GET /api/v1/consumer-groups/lagging", "ReadOnly"),
    ("GET /api/v1/consumer-groups/:group", "ReadOnly"),
    ("POST /api/v1/consumer-groups/:group/subscription", "ReadWrite"),
    ("POST /api/v1/consumer-groups/:group/queues/:queue/seek", "ReadWrite"),
    ("POST /api/v1/consumer-groups/:group/queues/:queue/partitions/:partition/seek", "ReadWrite"),
    ("DELETE /api/v1/consumer-groups/:group", "Admin"),
    ("DELETE /api/v1/consumer-groups/:group/queues/:queue", "Admin"),
    ("GET /api/v1/messages", "ReadOnly"),
    ("GET /api/v1/messages/:partitionId/:transactionId", "ReadOnly"),
    ("DELETE /api/v1/messages/:partitionId/:transactionId", "ReadWrite"),
    ("POST /api/v1/messages/:partitionId/:transactionId/retry", "ReadWrite"),
    ("GET /api/v1/dlq", "ReadOnly"),
    ("POST /api/v1/traces", "ReadWrite"),
    ("GET /api/v1/traces/:partitionId/:transactionId", "ReadOnly"),
    ("GET /api/v1/traces/by-name/:name", "ReadOnly"),
    ("GET /api/v1/traces/names", "ReadOnly"),
    ("GET /api/v1/status", "ReadOnly"),
    ("GET /api/v1/status/queues", "ReadOnly"),
    ("GET /api/v1/status/queues/:queue", "ReadOnly"),
    ("GET /api/v1/status/analytics", "ReadOnly"),
    ("GET /api/v1/status/buffers", "ReadOnly"),
    ("GET /api/v1/analytics/queue-lag", "ReadOnly"),
    ("GET /api/v1/analytics/queue-ops", "ReadOnly"),
    ("GET /api/v1/analytics/queue-parked-replicas", "ReadOnly"),
    ("GET /api/v1/analytics/retention", "ReadOnly"),
    ("GET /api/v1/analytics/system-metrics", "ReadOnly"),
    ("GET /api/v1/analytics/worker-metrics", "ReadOnly"),
    ("GET /api/v1/analytics/postgres-stats", "ReadOnly"),
    ("GET /api/v1/system/maintenance", "Admin"),
    ("POST /api/v1/system/maintenance", "Admin"),
    ("GET /api/v1/system/maintenance/pop", "Admin"),
    ("POST /api/v1/system/maintenance/pop", "Admin"),
    ("GET /api/v1/system/shared-state", "Admin"),
    ("POST /api/v1/stats/refresh", "Admin"),
    ("POST /internal/api/notify", "Admin"),
    ("GET /internal/api/shared-state/stats", "Admin"),
    ("GET /internal/api/inter-instance/stats", "Admin"),
    ("GET /status", "ReadOnly"),
    ("GET /health", "Public"),
    ("GET /metrics", "Public"),
    ("GET /metrics/prometheus", "Public"),
];

/// Our own routes that need no token: other brokers ask the first before they take over.
const OWN_PUBLIC: &[&str] = &["GET /internal/broker", "GET /openapi.json"];

async fn the_levels_are_those_of_the_page(_: World) {
    let mut listed = 0;
    for route in ROUTES {
        let name = format!("{} {}", route.method, route.path);
        match LEVELS.iter().find(|(path, _)| *path == name) {
            Some((_, level)) => {
                listed += 1;
                assert_eq!(format!("{:?}", route.level), *level, "{name}");
            }
            None => assert_eq!(route.level == Level::Public, OWN_PUBLIC.contains(&name.as_str()), "{name}"),
        }
    }
    assert!(listed >= 29, "{listed}");
}

async fn strangers_learn_nothing_of_routes(world: World) {
    protected(&world).await;
    let calls = [
        (Method::GET, "/api/v1/nope", 404),
        (Method::POST, "/nope", 404),
        (Method::GET, "/api/v1/push", 405),
        (Method::GET, "/api/v1/pop/queue/%zz", 400),
    ];
    for (method, path, status) in calls {
        assert_eq!(world.call(method.clone(), path, "").await.error(401), "Authentication required", "{path}");
        for role in ["read-only", "write-only"] {
            with_role(&world, role).call(method.clone(), path, "").await.error(403);
        }
        with_role(&world, "read-write").call(method, path, "").await.error(status);
    }
    // Paths of the original's console, and another extension's, are everybody's.
    for path in ["/assets/x.js", "/favicon.ico", "/auth/me", "/queue/v1/queues", "/"] {
        world.get(path).await.error(404);
    }
}

async fn the_subject_is_noted_on_what_is_pushed(world: World) {
    protected(&world).await;
    let admin = with_role(&world, "admin");
    let billing = as_who(&world, json!({"role": "write-only", "sub": "billing"}));
    let shop = as_who(&world, json!({"role": "read-write", "sub": "shop"}));
    // What an item says of itself counts for nothing.
    let pushed = json!([{"queue": "q", "transactionId": "a", "payload": 1, "producerSub": "somebody"}]);
    billing.push(pushed).await.expect(201);
    let operation = json!({"type": "push", "queue": "q", "transactionId": "b", "payload": 2, "producerSub": "x"});
    shop.post("/api/v1/transaction", json!({"operations": [operation]})).await.expect(200);
    admin.put("q", &["c"]).await;
    let popped = admin.pop("q", "").await;
    let subjects: Vec<&Value> = popped.messages().iter().map(|message| &message["producerSub"]).collect();
    assert_eq!(subjects, [&json!("billing"), &json!("shop"), &Value::Null]);
    let detail = admin.find(popped.partition_id(), "a").await.expect(200).json();
    assert_eq!(detail["producerSub"], "billing");
    accepted(&admin.ack_batch("__QUEUE_MODE__", vec![item(popped.message("a"), "dlq")]).await[0]);
    assert_eq!(admin.dead_letters("q").await[0]["producerSub"], "billing");
    admin.post_text(&format!("/api/v1/messages/{}/a/retry", popped.partition_id()), "").await.expect(200);
    let popped = admin.pop("q", "consumerGroup=later").await;
    assert_eq!(popped.messages()[3]["producerSub"], "billing", "whoever replays a message has not produced it");
}

async fn without_authentication_tokens_mean_nothing(world: World) {
    for text in [format!("Bearer {}", token(json!({"role": "read-only", "sub": "x"}))), "Bearer !".into(), "".into()] {
        let caller = world.with_header("authorization", text);
        caller.push(json!([{"queue": "q", "payload": 1}])).await.expect(201);
    }
    let popped = world.pop("q", "").await;
    assert_eq!(popped.messages().len(), 3);
    assert!(popped.messages().iter().all(|message| message["producerSub"].is_null()));
}

async fn a_token_may_end_while_its_pop_waits(world: World) {
    protected(&world).await;
    let seconds = world.wall()().as_micros() / 1_000_000;
    let caller = as_who(&world, json!({"role": "read-write", "exp": seconds + 5}));
    let waiting = caller.clone();
    let parked = tokio::spawn(async move { waiting.pop("q", "wait=true&timeout=60000").await });
    world.sleep(40).await;
    assert_eq!(caller.get("/api/v1/pop/queue/q").await.error(401), "Token has expired");
    with_role(&world, "write-only").put("q", &["x"]).await;
    assert_eq!(parked.await.expect("it is answered").ids(), ["x"]);
}
