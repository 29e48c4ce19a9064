//! Bad input, as tables: every field of every route with every kind of bad value, and every kind of bad body. Each gets
//! its documented status and a JSON error that names what was wrong, changes nothing, and the connection and the broker
//! go on.

use bytes::Bytes;
use hyper::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::world::{Answer, Client, World, accepted, encode};

behaviour!(
    fields_of_bodies,
    parameters_of_queries,
    names_in_paths,
    addresses_of_messages,
    bodies_that_are_not_json,
    bodies_that_are_too_deep,
    bodies_that_are_too_large,
    heads_that_are_too_large,
    bodies_that_never_end,
    options_of_a_configure,
    nul_and_surrogates_where_they_are_allowed,
);

/// One connection that must outlive everything sent over it, and the state that must not change.
struct Probe {
    world: World,
    client: Client,
    tried: usize,
}

impl Probe {
    async fn new(world: &World) -> Probe {
        world.put("q", &["x", "y"]).await;
        let popped = world.pop("q", "consumerGroup=g&leaseSeconds=2000000&batch=1").await;
        accepted(&world.ack(popped.message("x"), "dlq").await);
        world.pop("q", "consumerGroup=g&leaseSeconds=2000000").await;
        Probe { world: world.clone(), client: world.client().await, tried: 0 }
    }

    /// Everything that can be seen of what is stored.
    async fn state(&self) -> String {
        let mut state = String::new();
        for path in [
            "/api/v1/resources/queues",
            "/api/v1/resources/queues/q",
            "/api/v1/consumer-groups",
            "/api/v1/consumer-groups/g",
            "/api/v1/dlq",
        ] {
            state += self.world.get(path).await.expect(200).text();
        }
        state
    }

    async fn send(&mut self, method: Method, path: &str, body: impl Into<Bytes>) -> Answer {
        self.tried += 1;
        self.client.call(method, path, body).await
    }

    /// Sends what must be refused.
    async fn refuses(
        &mut self,
        what: &str,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
        status: u16,
        names: &str,
    ) {
        let before = self.state().await;
        let answer = self.send(method, path, body).await;
        assert_eq!(answer.status, status, "{what}: {}", answer.text());
        assert_eq!(answer.header("content-type"), Some("application/json"), "{what}");
        let error = answer.error(status);
        assert!(error.contains(names), "{what}: {error:?} does not name {names:?}");
        assert!(error.len() < 2_000, "{what}: the input is echoed");
        assert_eq!(self.state().await, before, "{what} changed something");
        assert!(self.client.is_open(), "{what} closed the connection");
        self.client.call(Method::GET, "/status", "").await.expect(200);
    }

    /// Sends what is unusual and fine.
    async fn takes(&mut self, what: &str, method: Method, path: &str, body: impl Into<Bytes>) -> Answer {
        let answer = self.send(method, path, body).await;
        assert!((200..300).contains(&answer.status), "{what}: {} {}", answer.status, answer.text());
        assert!(self.client.is_open(), "{what} closed the connection");
        answer
    }
}

/// What a field of a body may be.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// A name that must be there.
    Name,
    /// A name that may be absent.
    OptionalName,
    /// A transaction id that may be absent.
    Id,
    /// A text of any content that may be absent; what it means is told per item.
    Text,
    /// Any JSON value that must be there.
    Payload,
}

/// Values for a field: what they are, and how they are written. `None` leaves the field out.
fn values() -> Vec<(&'static str, Option<String>)> {
    let written = [
        ("null", "null"),
        ("a number", "5"),
        ("a fraction", "1.5"),
        ("a negative", "-1"),
        ("huge", "1e400"),
        ("true", "true"),
        ("an array", "[]"),
        ("an object", r#"{"a":1}"#),
        ("empty", r#""""#),
        ("NUL", r#""a\u0000b""#),
        ("a lone surrogate", r#""\ud800""#),
        ("a lone low surrogate", r#""a\udc00""#),
        ("a slash", r#""a/b""#),
        ("an escaped slash", r#""a%2Fb""#),
        ("dots", r#""..""#),
        ("a plus", r#""a+b""#),
        ("a question mark", r#""a?b""#),
        ("a hash", r##""a#b""##),
        ("a space", r#""a b""#),
        ("an emoji", r#""😀""#),
    ];
    let mut values = vec![("missing", None), ("long", Some(format!("{:?}", "x".repeat(65_536))))];
    values.extend(written.map(|(what, text)| (what, Some(text.to_owned()))));
    values
}

/// Whether a value is one that a field refuses; none where the page leaves it open.
fn is_bad(kind: Kind, what: &str) -> Option<bool> {
    let absent = ["missing", "null"].contains(&what);
    let wrong_type = ["a number", "a fraction", "a negative", "huge", "true", "an array", "an object"].contains(&what);
    let surrogate = what.ends_with("surrogate");
    match kind {
        Kind::Name => Some(absent || wrong_type || surrogate || ["long", "NUL"].contains(&what)),
        Kind::OptionalName => Some(wrong_type || surrogate || ["long", "NUL"].contains(&what)),
        Kind::Id => Some(wrong_type || surrogate || what == "long"),
        Kind::Text if surrogate => None,
        Kind::Text => Some(wrong_type),
        Kind::Payload => Some(what == "missing"),
    }
}

/// An object of these fields with one of them replaced or left out.
fn object(fields: &[(&str, &str)], key: &str, value: Option<&str>) -> String {
    let write = |(name, text): &(&str, &str)| match (*name == key, value) {
        (true, None) => None,
        (true, Some(value)) => Some(format!("{name:?}:{value}")),
        (false, _) => Some(format!("{name:?}:{text}")),
    };
    format!("{{{}}}", fields.iter().filter_map(write).collect::<Vec<_>>().join(","))
}

/// An object's fields: their names, what they may be, and a good value.
type Fields = &'static [(&'static str, Kind, &'static str)];

const PUSH_ITEM: Fields = &[
    ("queue", Kind::Name, r#""bad""#),
    ("partition", Kind::OptionalName, r#""p""#),
    ("transactionId", Kind::Id, "null"),
    ("payload", Kind::Payload, "1"),
];
const PUSH_OPERATION: Fields = &[
    ("queue", Kind::Name, r#""bad""#),
    ("partition", Kind::OptionalName, r#""p""#),
    ("transactionId", Kind::Id, "null"),
];
const ACK: Fields = &[
    ("transactionId", Kind::Id, r#""x""#),
    ("partitionId", Kind::Text, r#""0198c0de-0000-4000-8000-000000000001""#),
    ("status", Kind::Text, r#""completed""#),
    ("consumerGroup", Kind::OptionalName, r#""nobody""#),
    ("leaseId", Kind::Text, r#""0198c0de-0000-7000-8000-000000000001""#),
    ("error", Kind::Text, r#""why""#),
];
const ACK_ITEM: Fields = &[
    ("transactionId", Kind::Id, r#""x""#),
    ("partitionId", Kind::Text, r#""0198c0de-0000-4000-8000-000000000001""#),
    ("status", Kind::Text, r#""completed""#),
    ("leaseId", Kind::Text, r#""0198c0de-0000-7000-8000-000000000001""#),
    ("error", Kind::Text, r#""why""#),
];
const ACK_BATCH: Fields = &[("consumerGroup", Kind::OptionalName, r#""nobody""#)];

async fn fields_of_bodies(world: World) {
    let mut probe = Probe::new(&world).await;
    type Wrap = fn(&str) -> String;
    let routes: [(&str, Fields, Wrap); 8] = [
        ("/api/v1/push", PUSH_ITEM, |item| format!(r#"{{"items":[{item}]}}"#)),
        ("/api/v1/push", PUSH_ITEM, |item| format!(r#"{{"items":[{{"queue":"bad","payload":0}},{item}]}}"#)),
        ("/api/v1/ack", ACK, |body| body.to_owned()),
        ("/api/v1/ack/batch", ACK_ITEM, |item| format!(r#"{{"consumerGroup":"nobody","acknowledgments":[{item}]}}"#)),
        ("/api/v1/ack/batch", ACK_BATCH, |body| {
            body.replacen('{', r#"{"acknowledgments":[{}],"#, 1).replace(",}", "}")
        }),
        ("/api/v1/transaction", PUSH_OPERATION, |op| {
            format!(
                r#"{{"operations":[{}]}}"#,
                op.replacen('{', r#"{"type":"push","payload":1,"#, 1).replace(",}", "}")
            )
        }),
        ("/api/v1/transaction", PUSH_OPERATION, |item| {
            format!(
                r#"{{"operations":[{{"type":"push","items":[{}]}}]}}"#,
                item.replacen('{', r#"{"payload":1,"#, 1).replace(",}", "}")
            )
        }),
        ("/api/v1/transaction", ACK, |op| {
            format!(r#"{{"operations":[{}]}}"#, op.replacen('{', r#"{"type":"ack","#, 1).replace(",}", "}"))
        }),
    ];
    for (path, fields, wrap) in routes {
        let good: Vec<(&str, &str)> = fields.iter().map(|(name, _, value)| (*name, *value)).collect();
        for (name, kind, _) in fields {
            for (what, value) in values() {
                let body = wrap(&object(&good, name, value.as_deref()));
                let described = format!("{path}: {name} {what}");
                match is_bad(*kind, what) {
                    Some(true) => probe.refuses(&described, Method::POST, path, body, 400, name).await,
                    Some(false) => drop(probe.takes(&described, Method::POST, path, body).await),
                    None => {
                        let answer = probe.send(Method::POST, path, body).await;
                        assert!([200, 400].contains(&answer.status), "{described}: {}", answer.text());
                    }
                }
            }
        }
    }
    // What holds the items.
    for value in
        ["null", "5", "true", r#""x""#, "{}", "[5]", "[null]", r#"["x"]"#, "[[]]", r#"[{"queue":"bad","payload":0},7]"#]
    {
        let body = format!(r#"{{"items":{value}}}"#);
        probe.refuses(&body.clone(), Method::POST, "/api/v1/push", body, 400, "items").await;
        if value != "null" {
            let body = format!(r#"{{"acknowledgments":{}}}"#, value.replace("bad", "x"));
            let object = value.ends_with('}');
            probe.refuses(&body.clone(), Method::POST, "/api/v1/ack/batch", body, 400, "acknowledgments").await;
            assert!(!object || value == "{}");
        }
        let body = format!(r#"{{"operations":{value}}}"#);
        probe.refuses(&body.clone(), Method::POST, "/api/v1/transaction", body, 400, "operations").await;
    }
    for body in ["null", "5", "true", r#""x""#, "[]"] {
        for path in [
            "/api/v1/push",
            "/api/v1/ack",
            "/api/v1/ack/batch",
            "/api/v1/transaction",
            "/api/v1/configure",
            "/api/v1/consumer-groups/g/queues/q/seek",
            "/api/v1/consumer-groups/g/subscription",
        ] {
            probe.refuses(&format!("{path}: {body}"), Method::POST, path, body, 400, "").await;
        }
    }
    // The type of an operation.
    for value in [None, Some("null"), Some("5"), Some(r#""""#), Some(r#""PUSH""#), Some(r#""delete""#), Some("{}")] {
        let body = format!(
            r#"{{"operations":[{}]}}"#,
            object(&[("type", ""), ("queue", r#""bad""#), ("payload", "0")], "type", value)
        );
        probe.refuses(&body.clone(), Method::POST, "/api/v1/transaction", body, 400, "").await;
    }
    // A seek's target and a subscription's time.
    let seek = "/api/v1/consumer-groups/g/queues/q/seek";
    for value in ["null", "5", "true", "{}", r#""""#, "1e400", "-1"] {
        probe.refuses("seek", Method::POST, seek, format!(r#"{{"timestamp":{value}}}"#), 400, "").await;
        probe
            .refuses(
                "change",
                Method::POST,
                "/api/v1/consumer-groups/g/subscription",
                format!(r#"{{"subscriptionTimestamp":{value}}}"#),
                400,
                "",
            )
            .await;
    }
    for value in [r#""yesterday""#, r#""2026-02-30T00:00:00Z""#, r#""a\u0000b""#, r#""99999-01-01T00:00:00Z""#] {
        let (body, change) = (format!(r#"{{"timestamp":{value}}}"#), format!(r#"{{"subscriptionTimestamp":{value}}}"#));
        probe.refuses("seek", Method::POST, seek, body, 500, "seek failed").await;
        probe
            .refuses(
                "change",
                Method::POST,
                "/api/v1/consumer-groups/g/subscription",
                change,
                500,
                "subscription failed",
            )
            .await;
    }
    assert!(probe.tried > 600, "{}", probe.tried);
}

async fn parameters_of_queries(world: World) {
    let mut probe = Probe::new(&world).await;
    let whole: &[&str] = &[
        "",
        "abc",
        "1.5",
        "1e3",
        "0x10",
        "99999999999",
        "-99999999999",
        "%00",
        "5%20",
        "%F0%9F%98%80",
        "%FF",
        "true",
        "null",
    ];
    let flag: &[&str] = &["", "1", "0", "yes", "TRUE", "True", "null", "truee", "%00", "%FF"];
    let timeout: &[&str] = &["", "-1", "-5", "abc", "1.5", "99999999999999999999999", "%00", "%FF"];
    let long = "x".repeat(1_025);
    let name: &[&str] = &[&long, "%00", "a%00b", "%FF", "%ED%A0%80"];
    let start: &[&str] = &["garbage", "NEW", "%00", "%FF", "2026-99-99", "-1", "%F0%9F%98%80"];
    let parameters = [
        ("batch", whole),
        ("partitions", whole),
        ("leaseSeconds", whole),
        ("autoAck", flag),
        ("wait", flag),
        ("timeout", timeout),
        ("consumerGroup", name),
        ("subscriptionMode", start),
        ("subscriptionFrom", start),
    ];
    let huge = "9".repeat(60_000);
    for path in [
        "/api/v1/pop/queue/q",
        "/api/v1/pop/queue/q/partition/Default",
        "/api/v1/pop?namespace=q",
        "/api/v1/pop/queue/fresh",
    ] {
        let join = if path.contains('?') { '&' } else { '?' };
        for (name, values) in parameters {
            for value in values.iter().copied().chain([huge.as_str()]) {
                let query = format!("{path}{join}{name}={value}");
                let what = &query[..query.len().min(120)];
                probe.refuses(what, Method::GET, &query, "", 400, name).await;
            }
            let twice = format!("{path}{join}{name}=1&{name}=1");
            probe.refuses(&twice.clone(), Method::GET, &twice, "", 400, name).await;
        }
        for value in ["a%2Fb", "..", "a+b", "a%3Fb", "a%23b", "a%20b", "%F0%9F%98%80", "", &"x".repeat(1_024)] {
            probe.takes(value, Method::GET, &format!("{path}{join}consumerGroup={value}&autoAck=true"), "").await;
        }
    }
    // Parameters of the read routes never fail: what does not parse is the default.
    for path in ["/api/v1/dlq", "/api/v1/consumer-groups/lagging"] {
        for name in ["limit", "offset", "minLagSeconds"] {
            for value in ["", "abc", "-1", "1.5", "99999999999999999999", "9223372036854775807", "%00"] {
                probe.takes(name, Method::GET, &format!("{path}?{name}={value}"), "").await;
            }
        }
    }
}

async fn names_in_paths(world: World) {
    let mut probe = Probe::new(&world).await;
    let long = "x".repeat(1_025);
    let bad = [long.as_str(), "%00", "a%00", "%FF", "a%C3", "%ED%A0%80"];
    let routes = [
        (Method::GET, "/api/v1/pop/queue/{}", "queue"),
        (Method::GET, "/api/v1/pop/queue/{}/partition/p", "queue"),
        (Method::GET, "/api/v1/pop/queue/q/partition/{}", "partition"),
        (Method::GET, "/api/v1/resources/queues/{}", "queue"),
        (Method::DELETE, "/api/v1/resources/queues/{}", "queue"),
        (Method::GET, "/api/v1/consumer-groups/{}", "group"),
        (Method::DELETE, "/api/v1/consumer-groups/{}", "group"),
        (Method::DELETE, "/api/v1/consumer-groups/{}/queues/q", "group"),
        (Method::DELETE, "/api/v1/consumer-groups/g/queues/{}", "queue"),
        (Method::POST, "/api/v1/consumer-groups/{}/subscription", "group"),
        (Method::POST, "/api/v1/consumer-groups/{}/queues/q/seek", "group"),
        (Method::POST, "/api/v1/consumer-groups/g/queues/{}/seek", "queue"),
        (Method::POST, "/api/v1/consumer-groups/g/queues/q/partitions/{}/seek", "partition"),
    ];
    let body = r#"{"toEnd":true,"subscriptionTimestamp":"2026-01-01T00:00:00Z"}"#;
    for (method, path, field) in &routes {
        for value in bad {
            let path = path.replace("{}", value);
            let what = format!("{method} {}", &path[..path.len().min(100)]);
            let before = probe.state().await;
            let answer = probe.send(method.clone(), &path, body).await;
            let error = answer.error(400);
            assert!(error.to_lowercase().contains(field), "{what}: {error}");
            assert_eq!(probe.state().await, before, "{what} changed something");
        }
        for value in ["a/b", "..", "a+b", "a?b", "a#b", "a b", "😀"] {
            let answer = probe.send(method.clone(), &path.replace("{}", &encode(value)), body).await;
            // Known or not: the name is understood.
            assert!(
                [200, 204, 404].contains(&answer.status),
                "{method} {path} {value}: {} {}",
                answer.status,
                answer.text()
            );
            assert!(!answer.text().contains("no_such_route"), "{method} {path} {value}");
        }
    }
    // A lease id is any text; what never was one extends nothing.
    for value in ["x", "..", "a/b", "%", "😀", &"x".repeat(2_000)] {
        let answer =
            probe.takes(value, Method::POST, &format!("/api/v1/lease/{}/extend", encode(value)), "{}").await.json();
        assert_eq!((&answer["success"], &answer["leaseId"]), (&json!(false), &json!(value)));
    }
}

async fn addresses_of_messages(world: World) {
    let mut probe = Probe::new(&world).await;
    for partition in ["nonsense", "..", "😀", "0198c0de", "%", &"x".repeat(2_000)] {
        let path = format!("/api/v1/messages/{}/x", encode(partition));
        probe.refuses(&path.clone(), Method::GET, &path, "", 500, "resolve failed").await;
        probe.refuses(&path.clone(), Method::DELETE, &path, "", 500, "delete failed").await;
        let before = probe.state().await;
        let answer = probe.send(Method::POST, &format!("{path}/retry"), "").await;
        assert!([400, 404, 500].contains(&answer.status), "{}", answer.text());
        answer.error(answer.status);
        assert_eq!(probe.state().await, before);
    }
    let partition = world.queue("q").await["partitions"][0]["id"].as_str().expect("a text").to_owned();
    for id in ["nope", "..", "a/b", "😀", " ", "\u{0}", &"x".repeat(20_000)] {
        let path = format!("/api/v1/messages/{partition}/{}", encode(id));
        let what = &path[..path.len().min(100)];
        probe.refuses(what, Method::GET, &path, "", 404, "Message not found").await;
        probe.refuses(what, Method::DELETE, &path, "", 404, "Message not found").await;
        probe.refuses(what, Method::POST, &format!("{path}/retry"), "", 404, "Message not found").await;
    }
    let group = format!("/api/v1/messages/{partition}/x/retry?consumerGroup={}", "x".repeat(1_025));
    probe.refuses("a long group", Method::POST, &group, "", 400, "consumerGroup").await;
}

/// The routes that read a body, and what they say to one that is not JSON.
const WITH_BODY: [(&str, u16, &str); 7] = [
    ("/api/v1/push", 400, "bad body"),
    ("/api/v1/ack", 400, "bad body"),
    ("/api/v1/ack/batch", 400, "bad body"),
    ("/api/v1/transaction", 400, "bad body"),
    ("/api/v1/configure", 400, "bad body"),
    ("/api/v1/consumer-groups/g/queues/q/seek", 400, "bad body"),
    ("/api/v1/consumer-groups/g/subscription", 400, ""),
];

async fn bodies_that_are_not_json(world: World) {
    let mut probe = Probe::new(&world).await;
    let push = br#"{"items":[{"queue":"bad","payload":"text"}]}"#;
    let mut not_utf8 = push.to_vec();
    not_utf8[36] = 0xff;
    let mut bodies: Vec<(String, Vec<u8>)> = vec![
        ("nothing".into(), vec![]),
        ("a word".into(), b"nonsense".to_vec()),
        ("a form".into(), b"items=1&queue=q".to_vec()),
        ("two values".into(), [&push[..], &push[..]].concat()),
        ("a tail".into(), [&push[..], b" x"].concat()),
        ("a comma too many".into(), br#"{"items":[{"queue":"bad","payload":1},]}"#.to_vec()),
        ("a byte order mark alone".into(), vec![0xef, 0xbb, 0xbf]),
        ("a NUL byte".into(), vec![0]),
        ("a raw newline in a text".into(), b"{\"items\":[{\"queue\":\"b\nad\",\"payload\":1}]}".to_vec()),
        ("a bad escape".into(), br#"{"items":[{"queue":"\x","payload":1}],"queue":"\x"}"#.to_vec()),
        ("UTF-16".into(), "{}".encode_utf16().flat_map(u16::to_le_bytes).collect()),
        ("not UTF-8".into(), not_utf8),
        ("not UTF-8 in a name".into(), b"{\"items\":[{\"queue\":\"\xff\",\"payload\":1}],\"queue\":\"\xff\"}".to_vec()),
    ];
    bodies.extend((1..push.len()).step_by(5).map(|end| (format!("cut after {end}"), push[..end].to_vec())));
    for (path, status, names) in WITH_BODY {
        for (what, body) in &bodies {
            // Without the items of a push these two are good bodies of other routes.
            probe.refuses(&format!("{path}: {what}"), Method::POST, path, body.clone(), status, names).await;
        }
    }
    // Where a body does not matter, a bad one does not either.
    for (what, body) in &bodies {
        let answer = probe.takes(what, Method::POST, "/api/v1/lease/x/extend", body.clone()).await.json();
        assert_eq!(answer["success"], false);
        if what != "nothing" {
            let seek = "/api/v1/consumer-groups/g/queues/q/partitions/Default/seek";
            probe.refuses(&format!("{seek}: {what}"), Method::POST, seek, body.clone(), 400, "bad body").await;
        }
    }
}

async fn bodies_that_are_too_deep(world: World) {
    let mut probe = Probe::new(&world).await;
    const DEPTH: usize = 100_000;
    let arrays = "[".repeat(DEPTH);
    let closed = format!("{arrays}{}", "]".repeat(DEPTH));
    let objects = r#"{"a":"#.repeat(DEPTH);
    for (path, status, names) in WITH_BODY {
        for body in [&arrays, &closed, &objects] {
            probe.refuses(path, Method::POST, path, body.clone(), status, names).await;
        }
        // As the value of a key that nobody reads: ignored or refused, survived in any case.
        for value in [&closed, &arrays] {
            let answer = probe.send(Method::POST, path, format!(r#"{{"unknown":{value}}}"#)).await;
            assert!([200, 201, 400].contains(&answer.status), "{path}: {}", answer.text());
        }
    }
    let named = [
        ("/api/v1/push", r#"{"items":"#),
        ("/api/v1/push", r#"{"items":[{"payload":1,"queue":"#),
        ("/api/v1/ack", r#"{"status":"#),
        ("/api/v1/ack/batch", r#"{"acknowledgments":"#),
        ("/api/v1/transaction", r#"{"operations":"#),
        ("/api/v1/configure", r#"{"queue":"bad","options":{"leaseTime":"#),
    ];
    for (path, start) in named {
        let end = match start.matches('[').count() {
            1 => "}]}",
            _ if start.contains("options") => "}}",
            _ => "}",
        };
        probe.refuses(start, Method::POST, path, format!("{start}{closed}{end}"), 400, "").await;
    }
    // A payload is opaque, but one that no consumer's parser survives is refused; a deep one comes back as it was.
    let push = |payload: &str| format!(r#"{{"items":[{{"queue":"bad","payload":{payload}}}]}}"#);
    probe.refuses("payload", Method::POST, "/api/v1/push", push(&closed), 400, "items[0].payload").await;
    let operation = format!(r#"{{"operations":[{{"type":"push","queue":"bad","payload":{closed}}}]}}"#);
    probe.refuses("payload", Method::POST, "/api/v1/transaction", operation, 400, "payload").await;
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let body = push(&deep).replace("bad", "deep");
    probe.send(Method::POST, "/api/v1/push", body).await.expect(201);
    let popped = world.get("/api/v1/pop/queue/deep").await.expect(200);
    assert!(popped.text().contains(&deep), "byte for byte");
}

async fn bodies_that_are_too_large(world: World) {
    let mut probe = Probe::new(&world).await;
    const SIZE: usize = 65 * 1_024 * 1_024;
    let mut body = br#"{"items":[{"queue":"bad","payload":""#.to_vec();
    body.resize(SIZE - 4, b'x');
    body.extend(br#""}]}"#);
    let body = Bytes::from(body);
    let before = probe.state().await;
    for (path, ..) in WITH_BODY.into_iter().chain([
        ("/api/v1/lease/x/extend", 0, ""),
        ("/api/v1/consumer-groups/g/queues/q/partitions/Default/seek", 0, ""),
    ]) {
        let mut client = world.client().await;
        let answer = client.call(Method::POST, path, body.clone()).await;
        let error = answer.error(413);
        assert!(error.contains("67108864") || error.contains("67,108,864"), "{path}: the limit is named: {error}");
        assert_eq!(answer.header("content-type"), Some("application/json"), "{path}");
        // The connection goes on.
        assert!(client.is_open(), "{path} closed the connection");
        client.call(Method::GET, "/status", "").await.expect(200);
    }
    // In chunks nobody knows the size beforehand.
    let mut io = world.connect();
    io.write_all(b"POST /api/v1/push HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n").await.expect("open");
    let mut written = 0;
    let mut received = Vec::new();
    let (mut read, mut write) = tokio::io::split(io);
    let writer = tokio::spawn(async move {
        for chunk in body.chunks(1 << 20) {
            let head = format!("{:x}\r\n", chunk.len());
            for part in [head.as_bytes(), chunk, b"\r\n"] {
                if write.write_all(part).await.is_err() {
                    return written;
                }
            }
            written += chunk.len();
        }
        let _ = write.write_all(b"0\r\n\r\n").await;
        written
    });
    while !received.windows(4).any(|window| window == b"\r\n\r\n") {
        assert!(read.read_buf(&mut received).await.expect("an answer") > 0, "closed without an answer");
    }
    assert!(received.starts_with(b"HTTP/1.1 413 "), "{}", String::from_utf8_lossy(&received));
    writer.abort();
    assert_eq!(probe.state().await, before);
    // At the limit itself a body is read.
    let mut fits = br#"{"items":[{"queue":"large","payload":""#.to_vec();
    fits.resize(64 * 1_024 * 1_024 - 4, b'x');
    fits.extend(br#""}]}"#);
    probe.takes("64 MiB", Method::POST, "/api/v1/push", fits).await;
    assert_eq!(world.queue("large").await["totals"]["total"], 1);
}

async fn heads_that_are_too_large(world: World) {
    let mut probe = Probe::new(&world).await;
    let before = probe.state().await;
    let long = "x".repeat(65_536);
    let heads = [
        format!("GET /api/v1/pop/queue/{long} HTTP/1.1\r\nHost: t\r\n\r\n"),
        format!("GET /api/v1/pop/queue/q?consumerGroup={long} HTTP/1.1\r\nHost: t\r\n\r\n"),
        format!("GET /api/v1/pop/queue/q HTTP/1.1\r\nHost: t\r\nX: {}\r\n\r\n", long.repeat(20)),
        format!("GET /status HTTP/1.1\r\nHost: t\r\n{}\r\n", "X: 1\r\n".repeat(2_000)),
        "nonsense\r\n\r\n".to_owned(),
        "GET\r\n\r\n".to_owned(),
        "GET /status HTTP/1.1\r\nHost: t\r\nContent-Length: x\r\n\r\n".to_owned(),
        "POST /api/v1/push HTTP/1.1\r\nHost: t\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nx".to_owned(),
        "POST /api/v1/push HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n".to_owned(),
    ];
    for head in heads {
        let mut io = world.connect();
        // It may hang up in the middle of the writing.
        let _ = io.write_all(head.as_bytes()).await;
        let mut received = vec![0; 12];
        if io.read_exact(&mut received).await.is_ok() {
            let status = String::from_utf8_lossy(&received).into_owned();
            assert!(status.starts_with("HTTP/1.1 4"), "{}: {status}", &head[..head.len().min(60)]);
        }
        drop(io);
        assert_eq!(probe.state().await, before);
    }
    probe.takes("afterwards", Method::GET, "/status", "").await;
}

async fn bodies_that_never_end(world: World) {
    let mut probe = Probe::new(&world).await;
    let before = probe.state().await;
    let body = r#"{"items":[{"queue":"bad","payload":1}]}"#;
    for length in [body.len() + 1, 1_000_000] {
        let mut io = world.connect();
        let bytes = format!("POST /api/v1/push HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\n{body}");
        io.write_all(bytes.as_bytes()).await.expect("open");
        world.sleep(1).await;
        drop(io);
        world.sleep(1).await;
    }
    let listed = probe.world.queue_names().await;
    assert_eq!(listed, ["q"], "half a request is no request");
    let after = probe.state().await;
    assert_eq!(after.len(), before.len());
    probe.takes("afterwards", Method::GET, "/status", "").await;
}

async fn options_of_a_configure(world: World) {
    let mut probe = Probe::new(&world).await;
    for (what, value) in values() {
        let body = object(&[("queue", ""), ("options", "{}")], "queue", value.as_deref());
        match is_bad(Kind::Name, what) {
            Some(true) => {
                probe.refuses(&format!("queue {what}"), Method::POST, "/api/v1/configure", body, 400, "queue").await
            }
            _ => drop(probe.takes(what, Method::POST, "/api/v1/configure", body).await),
        }
    }
    let bad = [
        r#""""#,
        "1.5",
        r#""a\u0000b""#,
        r#""\ud800""#,
        "[]",
        r#"{"a":1}"#,
        r#""😀""#,
        "1e400",
        "99999999999999999999",
        r#"" 5""#,
        r#""+5""#,
    ];
    for option in &tidegate_core::options::OPTIONS {
        // Clamped rather than refused, where the number is one.
        let clamped = option.name == "minPopWaitTime";
        for value in bad.into_iter().filter(|value| !(clamped && *value == "99999999999999999999")) {
            let body = format!(r#"{{"queue":"bad","options":{{"{}":{value}}}}}"#, option.name);
            probe.refuses(&body.clone(), Method::POST, "/api/v1/configure", body, 400, option.name).await;
        }
        let long = format!(r#"{{"queue":"bad","options":{{"{}":"{}"}}}}"#, option.name, "9".repeat(65_536));
        if !clamped {
            probe.refuses(option.name, Method::POST, "/api/v1/configure", long, 400, option.name).await;
        }
    }
    for label in ["namespace", "task"] {
        for value in ["5", "true", "[]", "{}", r#""\ud800""#, r#""a\u0000b""#, &format!("{:?}", "x".repeat(65_536))] {
            for body in [
                format!(r#"{{"queue":"bad","{label}":{value}}}"#),
                format!(r#"{{"queue":"bad","options":{{"{label}":{value}}}}}"#),
            ] {
                let what = body[..body.len().min(80)].to_owned();
                probe.refuses(&what, Method::POST, "/api/v1/configure", body, 400, label).await;
            }
        }
    }
    assert!(!world.queue_names().await.contains(&"bad".to_owned()));
}

async fn nul_and_surrogates_where_they_are_allowed(world: World) {
    // Ids, payloads and error texts keep NUL; payloads keep lone surrogates.
    let body = r#"{"items":[{"queue":"q","transactionId":"a\u0000b","payload":"\u0000 \ud800"}]}"#;
    world.post_text("/api/v1/push", body).await.expect(201);
    let again = world.push_ids("q", &["a\u{0}b"]).await;
    assert_eq!(again, ["duplicate"]);
    let popped = world.get("/api/v1/pop/queue/q").await.expect(200);
    assert!(popped.text().contains(r#""data":"\u0000 \ud800""#), "{}", popped.text());
    assert!(popped.text().contains(r#""transactionId":"a\u0000b""#), "{}", popped.text());
    let partition = world.queue("q").await["partitions"][0]["id"].clone();
    let ack = json!({"transactionId": "a\u{0}b", "partitionId": partition, "status": "dlq", "error": "why\u{0}"});
    accepted(&world.ack_item(ack).await);
    let dead = world.get("/api/v1/dlq").await.expect(200);
    assert!(dead.text().contains(r#""errorMessage":"why\u0000""#), "{}", dead.text());
    assert!(dead.text().contains(r#""transactionId":"a\u0000b""#), "{}", dead.text());
}
