//! HTTP itself: routes, methods, bodies, connections.

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::Instant;

use crate::world::{Answer, World, accepted, ids, took};

behaviour!(
    an_unknown_path_is_not_found,
    a_wrong_method_is_not_allowed,
    an_answer_of_nothing_has_no_body,
    answers_are_json_whatever_was_sent,
    a_connection_serves_many_calls,
    pipelined_calls_are_answered_in_order,
    two_versions_of_http_are_spoken,
    a_reset_stream_is_a_client_that_left,
    a_body_in_chunks_is_a_body,
    a_parked_client_that_left_gets_no_lease,
    an_answer_nobody_could_read_gives_its_lease_back,
    metrics_count_what_happened,
    a_shutdown_ends_parked_calls,
);

// check: 53
async fn an_unknown_path_is_not_found(world: World) {
    let missing = json!({"error": "Not Found", "code": "no_such_route"});
    for path in [
        "/api/v1/nope",
        "/api/v1/",
        "/api/v2/push",
        "/api/v1/resources/partitions",
        "/api/v1/pop/queue",
        "/api/v1/push/extra",
    ] {
        for method in [Method::GET, Method::POST, Method::DELETE] {
            let answer = world.call(method.clone(), path, "").await.expect(404);
            assert_eq!(answer.json(), missing, "{method} {path}");
        }
    }
    for path in ["/", "/nope", "/queue/v1/queues"] {
        assert_eq!(world.call(Method::POST, path, "{}").await.expect(404).json(), missing, "{path}");
        world.get(path).await.error(404);
    }
}

async fn a_wrong_method_is_not_allowed(world: World) {
    let wrong = [
        (Method::GET, "/api/v1/push"),
        (Method::DELETE, "/api/v1/push"),
        (Method::POST, "/api/v1/pop"),
        (Method::POST, "/api/v1/pop/queue/q"),
        (Method::GET, "/api/v1/ack"),
        (Method::PUT, "/api/v1/ack/batch"),
        (Method::GET, "/api/v1/transaction"),
        (Method::GET, "/api/v1/configure"),
        (Method::POST, "/api/v1/resources/queues"),
        (Method::PATCH, "/api/v1/resources/queues/q"),
        (Method::GET, "/api/v1/lease/x/extend"),
        (Method::POST, "/api/v1/dlq"),
        (Method::PUT, "/api/v1/dlq"),
        (Method::POST, "/health"),
        (Method::GET, "/api/v1/consumer-groups/g/queues/q/seek"),
        (Method::POST, "/api/v1/messages/p/t"),
    ];
    for (method, path) in wrong {
        let error = world.call(method.clone(), path, "{}").await.error(405);
        assert!(!error.is_empty(), "{method} {path}");
    }
}

/// Writes bytes and reads until as many answers have come as are wanted.
async fn exchange(io: &mut DuplexStream, bytes: &[u8], wanted: usize) -> Vec<(u16, String, String)> {
    io.write_all(bytes).await.expect("open");
    let mut received = Vec::new();
    loop {
        let answers = answers(&received);
        if answers.len() >= wanted {
            return answers;
        }
        let read = io.read_buf(&mut received).await.expect("open");
        assert!(
            read > 0,
            "closed after {} of {wanted} answers: {:?}",
            answers.len(),
            String::from_utf8_lossy(&received)
        );
    }
}

/// The whole answers in these bytes: code, head, body.
fn answers(mut bytes: &[u8]) -> Vec<(u16, String, String)> {
    let mut found = Vec::new();
    while let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
        let head = String::from_utf8(bytes[..end].to_vec()).expect("ASCII").to_ascii_lowercase();
        let status: u16 = head.split(' ').nth(1).expect("a code").parse().expect("a number");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        let length: usize = length.map_or(0, |length| length.trim().parse().expect("a number"));
        let Some(body) = bytes.get(end + 4..end + 4 + length) else { return found };
        found.push((status, head, String::from_utf8(body.to_vec()).expect("UTF-8")));
        bytes = &bytes[end + 4 + length..];
    }
    found
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n")
}

fn post(path: &str, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

async fn an_answer_of_nothing_has_no_body(world: World) {
    let mut io = world.connect();
    let bytes = get("/api/v1/pop/queue/q") + &get("/status");
    let answers = exchange(&mut io, bytes.as_bytes(), 2).await;
    let (status, head, body) = &answers[0];
    assert_eq!((*status, body.as_str()), (204, ""));
    assert!(!head.contains("content-length") && !head.contains("transfer-encoding"), "{head}");
    assert_eq!(answers[1].0, 200, "and the connection goes on");
}

async fn answers_are_json_whatever_was_sent(world: World) {
    for content_type in [
        "",
        "Content-Type: text/plain\r\n",
        "Content-Type: application/x-www-form-urlencoded\r\n",
        "Content-Type: application/json; charset=latin1\r\n",
    ] {
        let body = r#"{"items":[{"queue":"q","payload":1}]}"#;
        let bytes = format!(
            "POST /api/v1/push HTTP/1.1\r\nHost: t\r\n{content_type}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let answers = exchange(&mut world.connect(), bytes.as_bytes(), 1).await;
        assert_eq!(answers[0].0, 201, "{content_type}");
    }
    for path in [
        "/api/v1/pop/queue/q",
        "/api/v1/resources/queues",
        "/health",
        "/status",
        "/api/v1/nope",
        "/api/v1/push",
        "/api/v1/dlq",
    ] {
        let answer = world.get(path).await;
        assert_eq!(answer.header("content-type"), Some("application/json"), "{path}");
        answer.json();
    }
    let metrics = world.get("/metrics/prometheus").await.expect(200);
    assert_eq!(metrics.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert_eq!(metrics.header("cache-control"), Some("no-cache"));
}

async fn a_connection_serves_many_calls(world: World) {
    let mut client = world.client().await;
    for n in 0..200 {
        let body = json!({"items": [{"queue": "q", "transactionId": n.to_string(), "payload": n}]}).to_string();
        client.call(Method::POST, "/api/v1/push", body).await.expect(201);
        client.call(Method::POST, "/api/v1/push", "nonsense").await.expect(400);
        client.call(Method::GET, "/api/v1/nope", "").await.expect(404);
        client.call(Method::GET, "/api/v1/push", "").await.expect(405);
        client.call(Method::GET, "/api/v1/pop/queue/q?autoAck=true", "").await.expect(200);
        client.call(Method::GET, "/api/v1/pop/queue/q", "").await.expect(204);
    }
    // Idle for an hour it may have been closed, but not in the middle of a long poll.
    let answer = client.call(Method::GET, "/api/v1/pop/queue/q?wait=true&timeout=3600000", "").await;
    assert_eq!(answer.status, 204);
}

async fn pipelined_calls_are_answered_in_order(world: World) {
    let mut io = world.connect();
    let push = |id: &str| {
        post("/api/v1/push", &json!({"items": [{"queue": "q", "transactionId": id, "payload": 0}]}).to_string())
    };
    let pop = get("/api/v1/pop/queue/q?autoAck=true");
    let bytes =
        [push("x"), pop.clone(), push("y"), post("/api/v1/push", "nonsense"), pop.clone(), pop, get("/api/v1/nope")]
            .concat();
    let answers = exchange(&mut io, bytes.as_bytes(), 7).await;
    let statuses: Vec<u16> = answers.iter().map(|answer| answer.0).collect();
    assert_eq!(statuses, [201, 200, 201, 400, 200, 204, 404]);
    assert!(answers[1].2.contains(r#""transactionId":"x""#) && answers[4].2.contains(r#""transactionId":"y""#));
    // A call behind a parked one waits for its turn.
    let begun = Instant::now();
    let bytes = get("/api/v1/pop/queue/q?wait=true&timeout=1000") + &get("/status");
    let statuses: Vec<u16> = exchange(&mut io, bytes.as_bytes(), 2).await.iter().map(|answer| answer.0).collect();
    assert_eq!(statuses, [204, 200]);
    took(begun, 1_000);
    // Byte by byte is a call too.
    for byte in push("z").bytes() {
        io.write_all(&[byte]).await.expect("open");
        tokio::task::yield_now().await;
    }
    assert_eq!(exchange(&mut io, b"", 1).await[0].0, 201);
}

/// A call over HTTP/2.
async fn call2(
    sender: &hyper::client::conn::http2::SendRequest<Full<Bytes>>,
    method: Method,
    path: &str,
    body: &str,
) -> Result<Answer, hyper::Error> {
    let mut sender = sender.clone();
    sender.ready().await?;
    let uri = format!("http://tidegate.test{path}");
    let request =
        Request::builder().method(method).uri(uri).body(Full::new(Bytes::from(body.to_owned()))).expect("valid");
    Answer::read(sender.send_request(request).await?).await
}

async fn h2(world: &World) -> hyper::client::conn::http2::SendRequest<Full<Bytes>> {
    let io = TokioIo::new(world.connect());
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.expect("prior knowledge");
    tokio::spawn(connection);
    sender
}

async fn two_versions_of_http_are_spoken(world: World) {
    let sender = h2(&world).await;
    let begun = Instant::now();
    // On one connection a parked call holds up nobody.
    let (parked, pushed) =
        tokio::join!(call2(&sender, Method::GET, "/api/v1/pop/queue/q?wait=true&timeout=60000", ""), async {
            world.sleep(1).await;
            let body = json!({"items": [{"queue": "q", "transactionId": "x", "payload": 0}]}).to_string();
            call2(&sender, Method::POST, "/api/v1/push", &body).await
        });
    took(begun, 1_000);
    pushed.expect("open").expect(201);
    let parked = parked.expect("open").expect(200).json();
    assert_eq!(parked["messages"][0]["transactionId"], "x");
    let statuses = [
        ("/api/v1/nope", 404),
        ("/api/v1/push", 405),
        ("/api/v1/pop/queue/q?batch=x", 400),
        ("/health", 200),
        ("/api/v1/pop/queue/q", 204),
    ];
    for (path, status) in statuses {
        let answer = call2(&sender, Method::GET, path, "").await.expect("open").expect(status);
        if status >= 400 {
            answer.error(status);
        }
    }
    let mut calls = tokio::task::JoinSet::new();
    for n in 0..100 {
        let sender = sender.clone();
        calls.spawn(async move {
            let body = json!({"items": [{"queue": "many", "transactionId": n.to_string(), "payload": n}]}).to_string();
            call2(&sender, Method::POST, "/api/v1/push", &body).await.expect("open").expect(201);
        });
    }
    calls.join_all().await;
    assert_eq!(world.pop("many", "").await.messages().len(), 100);
}

async fn a_reset_stream_is_a_client_that_left(world: World) {
    let sender = h2(&world).await;
    let parked = tokio::spawn({
        let sender = sender.clone();
        async move { call2(&sender, Method::GET, "/api/v1/pop/queue/q?wait=true&timeout=60000", "").await }
    });
    world.sleep(1).await;
    parked.abort();
    world.sleep_ms(1).await;
    world.put("q", &["x"]).await;
    assert_eq!(world.pop("q", "").await.ids(), ["x"]);
    call2(&sender, Method::GET, "/status", "").await.expect("the connection goes on").expect(200);
}

async fn a_body_in_chunks_is_a_body(world: World) {
    let chunks = [r#"{"items":[{"queue":"q","#, r#""payload":"in "#, r#"pieces"}]}"#];
    let mut bytes = "POST /api/v1/push HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned();
    for chunk in chunks {
        bytes += &format!("{:x}\r\n{chunk}\r\n", chunk.len());
    }
    bytes += "0\r\n\r\n";
    assert_eq!(exchange(&mut world.connect(), bytes.as_bytes(), 1).await[0].0, 201);
    assert_eq!(world.pop("q", "").await.messages()[0]["data"], "in pieces");
}

// scn: 24
async fn a_parked_client_that_left_gets_no_lease(world: World) {
    for (n, auto_ack) in [false, true].into_iter().enumerate() {
        for route in ["/api/v1/pop/queue/n.q", "/api/v1/pop/queue/n.q/partition/Default", "/api/v1/pop"] {
            let group = format!("{}{n}", route.len());
            let query = format!(
                "?namespace=n&consumerGroup={group}&subscriptionMode=new&wait=true&timeout=60000&autoAck={auto_ack}"
            );
            world.get(&format!("{route}?namespace=n&consumerGroup={group}&subscriptionMode=new")).await;
            let mut gone = world.connect();
            gone.write_all(get(&format!("{route}{query}")).as_bytes()).await.expect("open");
            world.sleep(1).await;
            drop(gone);
            world.sleep_ms(1).await;
            world.put("n.q", &[&group]).await;
            let begun = Instant::now();
            let other = world.get(&format!("{route}{query}")).await.expect(200).json();
            assert_eq!(other["messages"][0]["transactionId"], group, "{route} autoAck={auto_ack}");
            took(begun, 0);
        }
    }
}

// scn: 24
async fn an_answer_nobody_could_read_gives_its_lease_back(world: World) {
    world.put("q", &ids("x", 2)).await;
    for route in ["/api/v1/pop/queue/q", "/api/v1/pop/queue/q/partition/Default", "/api/v1/pop?namespace=q"] {
        for (n, query) in ["", "wait=true&timeout=60000&"].into_iter().enumerate() {
            let group = format!("{}{n}", route.len());
            let separator = if route.contains('?') { '&' } else { '?' };
            let path = format!("{route}{separator}{query}consumerGroup={group}");
            // The request is on its way when the client leaves: the pipe has it, and nobody will read the answer.
            let mut gone = world.connect();
            gone.write_all(get(&path).as_bytes()).await.expect("open");
            drop(gone);
            let begun = Instant::now();
            let other = world.pop("q", &format!("consumerGroup={group}&wait=true&timeout=10000")).await;
            assert_eq!(other.ids(), ["x1", "x2"], "{path}");
            assert!(begun.elapsed().as_millis() <= 1, "at once, not after the lease");
            accepted(&world.ack(other.message("x2"), "completed").await);
        }
    }
}

/// The value of a metric line that begins with this name and labels.
fn value(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).trim().parse().expect("a number")
}

async fn metrics_count_what_happened(world: World) {
    world.put("q", &ids("x", 5)).await;
    let popped = world.pop("q", "batch=3").await;
    world.ack_batch("__QUEUE_MODE__", popped.items("completed")).await;
    world.pop_partition("q", "Default", "").await;
    let parked = tokio::spawn({
        let world = world.clone();
        async move { world.pop("parked", "wait=true&timeout=5000").await.is_empty() }
    });
    world.sleep(1).await;
    let answer = world.get("/metrics/prometheus").await.expect(200);
    let text = answer.text();
    let counts = [
        ("queen_process_push_requests_total", 1.0),
        ("queen_process_push_messages_total", 5.0),
        ("queen_process_pop_messages_total", 5.0),
        ("queen_process_ack_requests_total", 1.0),
        ("queen_process_ack_messages_total", 3.0),
        ("queen_pop_targeted_total", 1.0),
        ("queen_pop_fill_wait_total", 0.0),
        ("queen_pop_fill_wait_microseconds_total", 0.0),
        (r#"queen_parked_long_polls{queue="parked"}"#, 1.0),
    ];
    for (name, expected) in counts {
        assert_eq!(value(text, name), expected, "{name}");
        let family = name.split('{').next().expect("a name");
        assert!(text.contains(&format!("# HELP {family} ")) && text.contains(&format!("# TYPE {family} ")), "{family}");
    }
    for name in ["queen_uptime_seconds", "queen_process_resident_memory_bytes"] {
        assert!(value(text, name) > 0.0, "{name}");
    }
    assert!(parked.await.expect("no panic"));
}

async fn a_shutdown_ends_parked_calls(world: World) {
    let begun = Instant::now();
    let mut parked = tokio::task::JoinSet::new();
    for n in 0..50 {
        let world = world.clone();
        parked.spawn(async move {
            let mut client = world.client().await;
            client.call(Method::GET, &format!("/api/v1/pop/queue/q{n}?wait=true&timeout=60000"), "").await.status
        });
    }
    world.sleep(1).await;
    world.begin_shutdown();
    assert!(parked.join_all().await.iter().all(|status| *status == 204));
    world.ended().await;
    took(begun, 1_000);
}
