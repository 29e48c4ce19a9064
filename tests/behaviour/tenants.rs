//! Several tenants on one broker: each has its own queues, and nothing that one does or asks tells of another's.

use std::collections::{BTreeMap, BTreeSet};

use hyper::Method;
use serde_json::{Value, json};
use tidegate_transport_http::ROUTES;

use crate::world::{Backend, World, accepted, item, refused};

behaviour!(
    equal_names_are_different_queues,
    another_tenants_ids_are_as_good_as_none,
    the_header_names_the_tenant,
    without_tenancy_the_header_means_nothing,
    nothing_of_one_tenant_shows_in_anothers_answers,
);

const A: &str = "aaaaaaaa-0000-4000-8000-00000000000a";
const B: &str = "bbbbbbbb-0000-4000-8000-00000000000b";

async fn shared(world: &World) {
    world.restart_http(|settings, http| (settings.tenants, http.tenants) = (true, true)).await;
}

fn of(world: &World, tenant: &str) -> World {
    world.with_header("x-queen-tenant", tenant)
}

async fn equal_names_are_different_queues(world: World) {
    shared(&world).await;
    let (a, b) = (of(&world, A), of(&world, B));
    a.configure("q", json!({"leaseTime": 7, "namespace": "n"})).await;
    a.put("q", &["x", "y"]).await;
    // The same id of the same names is another message.
    b.put("q", &["x"]).await;
    assert_eq!(a.pop("q", "batch=10").await.ids(), ["x", "y"]);
    assert_eq!(b.pop("q", "batch=10").await.ids(), ["x"]);
    assert!(world.pop("q", "").await.is_empty(), "the default tenant is one like the others");
    assert!(b.discover("namespace=n").await.is_empty());
    assert_eq!((a.queue_names().await, b.queue_names().await), (vec!["q".to_owned()], vec!["q".to_owned()]));
    b.delete("/api/v1/resources/queues/q").await.expect(200);
    assert!(b.queue_names().await.is_empty());
    assert_eq!(a.pop("q", "consumerGroup=g&batch=10").await.ids(), ["x", "y"]);
    // It is stored with its tenant.
    world.restart().await;
    assert_eq!(a.pop("q", "consumerGroup=h&batch=10").await.ids(), ["x", "y"]);
    assert!(b.queue_names().await.is_empty());
}

async fn another_tenants_ids_are_as_good_as_none(world: World) {
    shared(&world).await;
    let (a, b) = (of(&world, A), of(&world, B));
    a.put("q", &["x", "y"]).await;
    let dead = a.pop("q", "batch=1").await;
    accepted(&a.ack(dead.message("x"), "dlq").await);
    let popped = a.pop("q", "").await;
    b.put("q", &["x"]).await;
    b.pop("q", "").await;
    let unknown = "0198aaaa-0000-4000-8000-000000000009";
    for partition in [popped.partition_id(), unknown] {
        let mut ack = item(popped.message("y"), "completed");
        ack["partitionId"] = json!(partition);
        refused(&b.ack_item(ack.clone()).await, "partition not owned by tenant");
        refused(&b.ack_batch("__QUEUE_MODE__", vec![ack.clone()]).await[0], "partition not owned by tenant");
        ack["type"] = json!("ack");
        let body = b.post("/api/v1/transaction", json!({"operations": [ack]})).await.expect(200).json();
        let text = body["error"].as_str().expect("it is rolled back");
        assert!(text.contains(&format!("partition {partition} not owned by this tenant")), "{text}");
        b.find(partition, "y").await.error(404);
        for (method, rest) in [(Method::DELETE, ""), (Method::POST, "/retry")] {
            b.call(method, &format!("/api/v1/messages/{partition}/x{rest}"), "").await.error(404);
        }
    }
    for lease in [popped.lease(), unknown] {
        let body = b.post(&format!("/api/v1/lease/{lease}/extend"), json!({"seconds": 900})).await.expect(200).json();
        assert_eq!((&body["success"], &body["renewed"]), (&json!(false), &json!(0)));
    }
    assert!(b.dead_letters("q").await.is_empty());
    // And nothing has happened to them.
    assert_eq!(a.dead_letters("q").await.len(), 1);
    accepted(&a.ack(popped.message("y"), "completed").await);
}

async fn the_header_names_the_tenant(world: World) {
    shared(&world).await;
    of(&world, A).put("a", &["x"]).await;
    assert_eq!(of(&world, &A.to_uppercase()).queue_names().await, ["a"]);
    world.put("default", &["x"]).await;
    assert_eq!(of(&world, "").queue_names().await, ["default"]);
    assert_eq!(of(&world, "00000000-0000-0000-0000-000000000001").queue_names().await, ["default"]);
    for wrong in ["x", "aaaaaaaa0000400080000000000000aa", "{aaaaaaaa-0000-4000-8000-00000000000a}", "*"] {
        let caller = of(&world, wrong);
        let text = caller.push(json!([{"queue": "q", "payload": 1}])).await.error(400);
        assert_eq!(text, "invalid x-queen-tenant header (must be a UUID)");
        // What is about no tenant is not asked for one.
        caller.get("/status").await.expect(200);
        caller.get("/metrics/prometheus").await.expect(200);
        caller.get("/api/v1/nope").await.error(404);
    }
}

async fn without_tenancy_the_header_means_nothing(world: World) {
    of(&world, A).put("q", &["x"]).await;
    of(&world, "x").put("q", &["y"]).await;
    assert_eq!(world.pop("q", "").await.ids(), ["x", "y"]);
}

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.roll(from.len())]
    }
}

/// One tenant that asks at random, over every route there is.
struct Tenant {
    world: World,
    dice: Dice,
    mark: &'static str,
    /// Ids it was told.
    known: Vec<String>,
    /// What it was told, its ids by the order in which it heard of them.
    heard: Vec<String>,
}

/// The UUIDs in a text.
fn ids_in(text: &str) -> Vec<String> {
    let shaped = |part: &str| {
        let hyphens = |(at, byte): (usize, u8)| {
            if [8, 13, 18, 23].contains(&at) { byte == b'-' } else { byte.is_ascii_hexdigit() }
        };
        part.bytes().enumerate().all(hyphens)
    };
    let places = 0..text.len().saturating_sub(35);
    places.filter_map(|at| text.get(at..at + 36)).filter(|part| shaped(part)).map(str::to_owned).collect()
}

impl Tenant {
    fn new(world: World, seed: u64, mark: &'static str) -> Self {
        Tenant { world, dice: Dice(seed), mark, known: Vec::new(), heard: Vec::new() }
    }

    /// An id it knows, or one of `others`.
    fn id(&mut self, others: &[String]) -> String {
        let count = self.known.len() + others.len();
        let unknown = || "0198aaaa-0000-7000-8000-00000000dead".to_owned();
        if count == 0 {
            return unknown();
        }
        let at = self.dice.roll(count + 1);
        self.known.iter().chain(others).nth(at).cloned().unwrap_or_else(unknown)
    }

    fn body(&mut self, path: &str, others: &[String]) -> Value {
        let (queue, transaction) = (self.dice.pick(&["q", "r"]), self.dice.pick(&["t1", "t2", "t3", "t4", "t5", "t6"]));
        let (partition, group) = (self.dice.pick(&["Default", "p"]), self.dice.pick(&["g", "__QUEUE_MODE__"]));
        let push = json!({"queue": queue, "partition": partition, "transactionId": transaction, "payload": self.mark});
        let mut ack = json!({
            "transactionId": transaction, "partitionId": self.id(others), "consumerGroup": group,
            "status": self.dice.pick(&["completed", "failed", "retry", "dlq"]),
        });
        if self.dice.roll(2) == 0 {
            ack["leaseId"] = json!(self.id(others));
        }
        match path {
            "/api/v1/push" => json!({"items": [push]}),
            "/api/v1/ack" => ack,
            "/api/v1/ack/batch" => json!({"consumerGroup": group, "acknowledgments": [ack]}),
            "/api/v1/transaction" => {
                let (mut push, mut with) = (push, ack);
                (push["type"], with["type"]) = (json!("push"), json!("ack"));
                json!({"operations": if self.dice.roll(2) == 0 { json!([push]) } else { json!([push, with]) }})
            }
            "/api/v1/configure" => {
                let options = json!({"namespace": "n", "leaseTime": self.dice.roll(3) * 20, "retryLimit": 1});
                json!({"queue": queue, "options": options})
            }
            _ if path.ends_with("/seek") && self.dice.roll(2) == 0 => json!({"toEnd": true}),
            _ if path.ends_with("/seek") => json!({"timestamp": "1970-01-01T00:00:00Z"}),
            _ => json!({"subscriptionTimestamp": "2026-01-01T00:00:00Z", "seconds": 30}),
        }
    }

    /// One request; gives what it sent and what it got.
    async fn ask(&mut self, others: &[String]) -> (String, String) {
        let routes: Vec<_> = ROUTES.iter().filter(|route| route.is_tenants()).collect();
        // Half of them put something there that the others can be about.
        let busy = ["/api/v1/push", "/api/v1/pop/queue/:queue", "/api/v1/ack"];
        let route = match self.dice.roll(2) {
            0 => routes[self.dice.roll(routes.len())],
            _ => {
                let path = self.dice.pick(&busy);
                routes.into_iter().find(|route| route.path == path).expect("it is there")
            }
        };
        let mut path = Vec::new();
        for segment in route.path.split('/') {
            path.push(match segment {
                ":queue" => self.dice.pick(&["q", "r"]).to_owned(),
                ":partition" => self.dice.pick(&["Default", "p"]).to_owned(),
                ":group" => self.dice.pick(&["g", "__QUEUE_MODE__"]).to_owned(),
                ":transactionId" => self.dice.pick(&["t1", "t2", "t3", "t4", "t5", "t6"]).to_owned(),
                parameter if parameter.starts_with(':') => self.id(others),
                fixed => fixed.to_owned(),
            });
        }
        let mut path = path.join("/");
        if route.path.starts_with("/api/v1/pop") {
            path += self.dice.pick(&["?namespace=n&batch=1&consumerGroup=g", "?namespace=n&batch=3"]);
        }
        let body = self.body(route.path, others).to_string();
        let answer = self.world.call(route.method.clone(), &path, body.clone()).await;
        (format!("{} {path} {body}", route.method), format!("{} {}", answer.status, answer.text()))
    }

    /// Notes an answer in words that do not depend on chance.
    fn hear(&mut self, sent: &str, got: &str) {
        let told = ids_in(got);
        for id in &told {
            if !self.known.contains(id) && !sent.contains(id.as_str()) {
                self.known.push(id.clone());
            }
        }
        let known = |id: &String| self.known.iter().position(|it| it == id);
        let mut got = got.to_owned();
        for (id, at) in told.iter().filter_map(|id| Some((id, known(id)?))) {
            got = got.replace(id, &format!("#{at}"));
        }
        self.heard.push(without_times(&got));
    }
}

/// A text without the digits of its times: commit times are told apart by microseconds that nobody promised.
fn without_times(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("2026-01-") {
        out.push_str(&rest[..at]);
        let end = rest[at..].find('Z').map_or(rest.len(), |end| at + end + 1);
        out.push_str("(time)");
        rest = &rest[end..];
    }
    out + rest
}

/// Tenant A asks the same things once alone and once beside tenant B, who uses the same names and A's own ids: A is told
/// the same, and B nothing that is A's.
async fn nothing_of_one_tenant_shows_in_anothers_answers(world: World) {
    let alone = World::start(Backend::Memory).await;
    shared(&alone).await;
    shared(&world).await;
    let steps = if crate::world::full() { 2_000 } else { 250 };
    let seed = 7;
    let mut reference = Tenant::new(of(&alone, A), seed, "secret of A");
    let mut a = Tenant::new(of(&world, A), seed, "secret of A");
    let mut b = Tenant::new(of(&world, B), seed + 1, "secret of B");
    let mut statuses: BTreeMap<String, usize> = BTreeMap::new();
    for step in 0..steps {
        let (sent, got) = reference.ask(&[]).await;
        reference.hear(&sent, &got);
        let (sent, got) = a.ask(&[]).await;
        *statuses.entry(got[..3].to_owned()).or_default() += 1;
        assert!(!got.contains(b.mark), "A was told {got}");
        a.hear(&sent, &got);
        assert_eq!(a.heard.last(), reference.heard.last(), "step {step}: {sent}");

        let (sent, got) = b.ask(&a.known).await;
        assert!(!got.contains(a.mark), "B was told {got}");
        let own: BTreeSet<String> = a.known.iter().cloned().collect();
        for id in ids_in(&got).into_iter().filter(|id| own.contains(id)) {
            assert!(sent.contains(&id), "B was told A's {id}: {got}");
        }
        b.hear(&sent, &got);
        if step % 10 == 9 {
            alone.sleep(1).await;
        }
    }
    assert!(statuses["200"] > 30 && statuses["201"] > 20 && statuses["404"] > 5, "{statuses:?}");
}
