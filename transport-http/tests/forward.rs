//! Brokers in one process that forward to each other over real loopback connections, in real time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_core::broker::Broker;
use tidegate_core::fleet::Member;
use tidegate_core::name::TenantId;
use tidegate_core::settings::Settings;
use tidegate_core::time::Timestamp;
use tidegate_driver::testkit::Hub;
use tidegate_driver::{Clock, Joined, Place, Slots, join, spawn_slots};
use tidegate_store_memory::MemoryStore;
use tidegate_transport_http::{Authenticator, HttpSettings, Service, TokenKeys, TokenRules, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

const WALL: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

fn hub() -> Hub {
    let mut store = MemoryStore::new();
    Hub::new(Clock::starting_at(WALL), move |now, request| store.call(now, request))
}

/// A broker that takes part; only some have HTTP.
struct Process {
    slots: Slots,
    joined: Joined,
    port: u16,
    stop: CancellationToken,
}

async fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("a port").port();
    (listener, port)
}

async fn enter(hub: &Hub, name: &'static str, port: u16) -> (Slots, Joined) {
    let clock = Clock::starting_at(WALL);
    let (slots, _) = spawn_slots(true, clock, |slot| {
        let settings = Settings { slot, owner: name.into(), sends_on: true, ..Settings::default() };
        (Broker::new(settings, [slot.0; 32]), hub.store(name))
    });
    let address = format!("http://127.0.0.1:{port}").into();
    let me = Member { incarnation: name.into(), address, host: name.into(), draining: false };
    let mint = move || format!("{name}-again").into();
    let joined = join(slots.clone(), hub.membership(name), hub.clone(), me, clock, mint).await.expect("it joins");
    (slots, joined)
}

async fn start(hub: &Hub, name: &'static str) -> Process {
    start_with(hub, name, HttpSettings::default()).await
}

async fn start_with(hub: &Hub, name: &'static str, settings: HttpSettings) -> Process {
    let (listener, port) = listener().await;
    let (slots, joined) = enter(hub, name, port).await;
    let stop = CancellationToken::new();
    tokio::spawn(serve(listener, Service::new(slots.clone(), settings), stop.clone()));
    Process { slots, joined, port, stop }
}

async fn until(what: &str, mut check: impl FnMut() -> bool) {
    let start = Instant::now();
    while !check() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// The owner of the tenant's slot, and another that knows it.
async fn pair(hub: &Hub) -> (Process, Process) {
    let owner = start(hub, "owner").await;
    until("it takes the slot", || matches!(owner.slots.place(TenantId::DEFAULT), Place::Here(_))).await;
    let entry = start(hub, "entry").await;
    until("it knows the owner", || matches!(entry.slots.place(TenantId::DEFAULT), Place::There(_))).await;
    (owner, entry)
}

struct Answer {
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn status(&self) -> u16 {
        self.head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status")
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }
}

async fn send(port: u16, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.expect("it accepts");
    stream.write_all(request.as_bytes()).await.expect("it reads");
    stream
}

async fn read(mut stream: TcpStream) -> Answer {
    let mut all = Vec::new();
    timeout(Duration::from_secs(15), stream.read_to_end(&mut all))
        .await
        .expect("an answer in time")
        .expect("an answer");
    let end = all.windows(4).position(|window| window == b"\r\n\r\n").expect("a head");
    let body = all.split_off(end + 4);
    Answer { head: String::from_utf8(all).expect("text").to_lowercase(), body }
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
}

fn post(path: &str, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

async fn ask(port: u16, request: &str) -> Answer {
    read(send(port, request).await).await
}

async fn push(port: u16, queue: &str, payload: &str) {
    let body = format!(r#"{{"items":[{{"queue":"{queue}","payload":{payload}}}]}}"#);
    let answer = ask(port, &post("/api/v1/push", &body)).await;
    assert_eq!(answer.status(), 201, "{}", answer.text());
}

/// A counter of a broker.
async fn counted(port: u16, name: &str) -> u64 {
    let metrics = ask(port, &get("/metrics/prometheus")).await;
    let value = metrics.text().lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name} in {}", metrics.text()))
}

fn pop(queue: &str, query: &str) -> String {
    get(&format!("/api/v1/pop/queue/{queue}?{query}"))
}

#[tokio::test]
async fn a_push_through_one_wakes_a_pop_parked_through_another() {
    let hub = hub();
    let (owner, entry) = pair(&hub).await;
    for (round, (popper, pusher)) in [(&entry, &owner), (&owner, &entry), (&entry, &entry)].into_iter().enumerate() {
        let queue = format!("q{round}");
        let parked = send(popper.port, &pop(&queue, "wait=true&timeout=10000")).await;
        sleep(Duration::from_millis(100)).await;
        let start = Instant::now();
        push(pusher.port, &queue, "1").await;
        let answer = read(parked).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
        assert!(start.elapsed() < Duration::from_millis(500), "{:?}", start.elapsed());
        let listed = ask(popper.port, &get("/api/v1/resources/queues")).await;
        assert!(listed.text().contains(&queue), "{}", listed.text());
    }
}

#[tokio::test]
async fn what_is_forwarded_arrives_as_it_was_sent() {
    let hub = hub();
    let (owner, entry) = pair(&hub).await;
    let payload = r#"{"b":1, "a":9007199254740993, "c":1.0, "n":"\u0000\ud800"}"#;
    let large = format!("\"{}\"", "x".repeat(3_000_000));
    push(entry.port, "q%2F1", payload).await;
    let answer = ask(owner.port, &pop("q%252F1", "autoAck=true")).await;
    assert!(answer.text().contains(payload), "{}", answer.text());
    push(entry.port, "q2", &large).await;
    let answer = ask(entry.port, &pop("q2", "autoAck=true")).await;
    assert!(answer.text().contains(&large));
    assert!(answer.head.contains("content-type: application/json"), "{}", answer.head);
    // Refusals come from the owner too, word for word.
    for request in [
        post("/api/v1/push", "{\"items\":[{}]}"),
        post("/api/v1/push", "{"),
        get("/api/v1/resources/queues/nowhere"),
        pop("q", "batch=x"),
        pop("q", ""),
        "HEAD /api/v1/resources/queues HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".to_owned(),
    ] {
        let (there, here) = (ask(entry.port, &request).await, ask(owner.port, &request).await);
        assert_eq!((there.status(), &there.body), (here.status(), &here.body), "{request}");
    }
}

#[tokio::test]
async fn what_was_forwarded_is_never_forwarded_again() {
    // A stranger who marks his requests so is refused where others would be served, and that is all.
    let hub = hub();
    let (owner, entry) = pair(&hub).await;
    let forwarded = |request: String| request.replacen("host: x", "host: x\r\ntidegate-forwarded: somebody", 1);
    for request in
        [pop("q", "wait=true&timeout=5000"), post("/api/v1/push", r#"{"items":[{"queue":"q","payload":1}]}"#)]
    {
        let answer = ask(entry.port, &forwarded(request)).await;
        assert_eq!(answer.status(), 421, "{}", answer.text());
        assert!(answer.head.contains("tidegate-not-owner: true"), "{}", answer.head);
    }
    assert_eq!(ask(owner.port, &forwarded(pop("q", ""))).await.status(), 204, "and nothing was pushed");
    // How long it has waited already counts.
    let start = Instant::now();
    let waited = pop("q", "wait=true&timeout=60000").replacen(
        "host: x",
        "host: x\r\ntidegate-forwarded: y\r\ntidegate-waited: 59800",
        1,
    );
    assert_eq!(ask(owner.port, &waited).await.status(), 204);
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_client_that_leaves_takes_nothing_with_it() {
    let hub = hub();
    let (owner, entry) = pair(&hub).await;
    // While parked.
    let parked = send(entry.port, &pop("q", "wait=true&timeout=10000")).await;
    sleep(Duration::from_millis(200)).await;
    drop(parked);
    sleep(Duration::from_millis(200)).await;
    push(owner.port, "q", "1").await;
    assert_eq!(ask(entry.port, &pop("q", "")).await.status(), 200);
    // When it has only closed its side it is told that there is nothing.
    let mut half = send(entry.port, &pop("q3", "wait=true&timeout=10000")).await;
    sleep(Duration::from_millis(100)).await;
    half.shutdown().await.expect("it was open");
    assert_eq!(read(half).await.status(), 204);
    // While the answer, which is larger than what sockets take, is being written.
    let large = format!("\"{}\"", "x".repeat(20_000_000));
    push(owner.port, "large", &large).await;
    let unread = send(entry.port, &pop("large", "")).await;
    sleep(Duration::from_millis(500)).await;
    assert_eq!(ask(owner.port, &pop("large", "")).await.status(), 204, "it is leased");
    drop(unread);
    let answer = ask(owner.port, &pop("large", "wait=true&timeout=5000")).await;
    assert_eq!(answer.status(), 200, "it was given back");
    assert_eq!(counted(entry.port, "tidegate_forwards_given_back_total").await, 1);
    assert_eq!(counted(owner.port, "tidegate_leases_given_back_total").await, 1);
}

#[tokio::test]
async fn a_lease_that_was_written_stays() {
    let hub = hub();
    let (owner, entry) = pair(&hub).await;
    for round in 0..50 {
        let queue = format!("q{round}");
        push(entry.port, &queue, "1").await;
        assert_eq!(ask(entry.port, &pop(&queue, "")).await.status(), 200);
    }
    sleep(Duration::from_millis(200)).await;
    for round in 0..50 {
        assert_eq!(ask(owner.port, &pop(&format!("q{round}"), "")).await.status(), 204, "{round}");
    }
}

/// A pop as another broker sends it on, whose answer has arrived there and was not yet written to anybody.
async fn forwarded_pop(port: u16, queue: &str) -> (h2::SendStream<bytes::Bytes>, tokio::task::JoinHandle<()>) {
    let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("it accepts");
    let (mut ask, connection) = h2::client::handshake(stream).await.expect("it speaks HTTP/2");
    let connection = tokio::spawn(async move { drop(connection.await) });
    let uri = format!("http://x/api/v1/pop/queue/{queue}");
    let request = hyper::Request::get(uri).header("tidegate-forwarded", "true").body(()).expect("a request");
    let (response, request) = ask.send_request(request, false).expect("it is sent");
    let response = response.await.expect("an answer");
    assert_eq!(response.status(), 200);
    assert!(response.into_body().data().await.is_some_and(|data| data.is_ok()));
    (request, connection)
}

/// The lease of an answer that may have reached its client is nobody else's, also when the broker that wrote it died.
#[tokio::test]
async fn a_lease_outlives_the_broker_that_its_answer_went_through() {
    let owner = start(&hub(), "owner").await;
    until("it takes the slot", || matches!(owner.slots.place(TenantId::DEFAULT), Place::Here(_))).await;
    push(owner.port, "dies", "1").await;
    let (_request, connection) = forwarded_pop(owner.port, "dies").await;
    connection.abort();
    sleep(Duration::from_millis(300)).await;
    assert_eq!(ask(owner.port, &pop("dies", "")).await.status(), 204);

    push(owner.port, "could-not-write", "1").await;
    let (mut request, _connection) = forwarded_pop(owner.port, "could-not-write").await;
    request.send_reset(h2::Reason::CANCEL);
    assert_eq!(ask(owner.port, &pop("could-not-write", "wait=true&timeout=5000")).await.status(), 200);
}

#[tokio::test]
async fn parked_pops_follow_the_slot() {
    let hub = hub();
    let (owner, entry) = pair(&hub).await;
    let through = [&owner, &entry].map(|process| process.port);
    let mut parked = Vec::new();
    for (port, queue) in through.into_iter().zip(["a", "b"]) {
        parked.push((queue, send(port, &pop(queue, "wait=true&timeout=10000")).await));
    }
    sleep(Duration::from_millis(100)).await;
    assert!(owner.joined.retire().await);
    let answer = ask(owner.port, &get("/api/v1/resources/queues")).await;
    assert_eq!(answer.status(), 200, "it forwards now");
    for (queue, _) in &parked {
        push(owner.port, queue, "1").await;
    }
    for (queue, parked) in parked {
        assert_eq!(read(parked).await.status(), 200, "{queue}");
    }
    // Who still waits there when it closes is told that there is nothing.
    let waiting = send(owner.port, &pop("c", "wait=true&timeout=60000")).await;
    sleep(Duration::from_millis(100)).await;
    owner.stop.cancel();
    assert_eq!(read(waiting).await.status(), 204);
}

#[tokio::test]
async fn without_an_owner_requests_are_held_and_then_refused() {
    let hub = hub();
    let (listener, port) = listener().await;
    let (slots, _joined) = enter(&hub, "alone", port).await;
    hub.cut("alone", true);
    sleep(Duration::from_millis(3_700)).await;
    tokio::spawn(serve(listener, Service::new(slots, HttpSettings::default()), CancellationToken::new()));
    let start = Instant::now();
    let answer = ask(port, &get("/api/v1/resources/queues")).await;
    assert_eq!((answer.status(), answer.head.contains("retry-after: 1")), (503, true), "{}", answer.text());
    assert!(start.elapsed() > Duration::from_millis(1_800) && start.elapsed() < Duration::from_millis(2_800));
}

/// A broker that owns the slots but whose port is `listener`'s, and one that forwards to it.
async fn impostor(hub: &Hub) -> (TcpListener, (Slots, Joined), Process) {
    let (listener, port) = listener().await;
    let owner = enter(hub, "owner", port).await;
    until("it takes the slot", || matches!(owner.0.place(TenantId::DEFAULT), Place::Here(_))).await;
    let entry = start(hub, "entry").await;
    until("it knows the owner", || matches!(entry.slots.place(TenantId::DEFAULT), Place::There(_))).await;
    (listener, owner, entry)
}

#[tokio::test]
async fn a_forward_that_broke_has_an_unknown_outcome() {
    let hub = hub();
    let (listener, _owner, entry) = impostor(&hub).await;
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.expect("it accepts");
            let mut buffer = [0; 65_536];
            let _ =
                timeout(Duration::from_millis(300), async { while stream.read(&mut buffer).await.is_ok() {} }).await;
        }
    });
    let body = r#"{"items":[{"queue":"q","payload":1}]}"#;
    let answer = ask(entry.port, &post("/api/v1/push", body)).await;
    assert_eq!((answer.status(), answer.text().contains("outcome_unknown")), (503, true), "{}", answer.text());
    let answer = ask(entry.port, &pop("q", "autoAck=true")).await;
    assert!(answer.text().contains("outcome_unknown"), "{}", answer.text());
    // What changes nothing is asked again until the time is over.
    let answer = ask(entry.port, &get("/api/v1/resources/queues")).await;
    assert_eq!((answer.status(), answer.text().contains("outcome_unknown")), (503, false), "{}", answer.text());
    let port = entry.port;
    assert_eq!(counted(port, "tidegate_forwards_total").await, 3, "two writes and a read");
    assert_eq!(counted(port, "tidegate_forwards_unknown_total").await, 2, "the writes");
    assert_eq!(counted(port, "tidegate_forwards_held_total").await, 1, "the read");
    assert!(counted(port, "tidegate_forwards_repeated_total").await >= 2, "its tries");
}

#[tokio::test]
async fn a_frozen_owner_stalls_nobody_for_long() {
    let hub = hub();
    let (listener, _owner, entry) = impostor(&hub).await;
    // It accepts, and never says a word.
    let _listener = listener;
    let body = r#"{"items":[{"queue":"q","payload":1}]}"#;
    let start = Instant::now();
    let answer = ask(entry.port, &post("/api/v1/push", body)).await;
    assert!(answer.text().contains("outcome_unknown"), "{}", answer.text());
    assert!(start.elapsed() < Duration::from_millis(4_500), "{:?}", start.elapsed());
}

/// Settings of a broker that several tenants share and that lets nobody in without a token.
fn protected() -> HttpSettings {
    let keys = TokenKeys::default().with_secret("a secret").expect("a secret");
    let authenticator = Authenticator::new(TokenRules::default(), keys, || WALL);
    HttpSettings { authenticator: Some(Arc::new(authenticator)), tenants: true, ..HttpSettings::default() }
}

fn token(role: &str) -> String {
    let key = jsonwebtoken::EncodingKey::from_secret(b"a secret").expect("a secret");
    let claims = serde_json::json!({"role": role, "sub": "shop"});
    jsonwebtoken::encode(&jsonwebtoken::Header::default(), &claims, &key).expect("a token")
}

/// A request with more lines in its head.
fn with(request: &str, lines: &[String]) -> String {
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    request.replacen("host: x\r\n", &format!("host: x\r\n{lines}"), 1)
}

#[tokio::test]
async fn the_owner_asks_for_the_token_and_the_tenant_itself() {
    let hub = hub();
    let owner = start_with(&hub, "owner", protected()).await;
    until("it takes the slot", || matches!(owner.slots.place(TenantId::DEFAULT), Place::Here(_))).await;
    let entry = start_with(&hub, "entry", protected()).await;
    until("it knows the owner", || matches!(entry.slots.place(TenantId::DEFAULT), Place::There(_))).await;
    // A tenant whose slot the owner still has, so that it is sent on as well.
    let tenant = (2..)
        .map(|n| uuid::Uuid::from_u128(n << 64))
        .find(|id| matches!(entry.slots.place(TenantId(*id)), Place::There(_)))
        .expect("one of many");
    let bearer = |role: &str| format!("authorization: Bearer {}", token(role));
    let named = format!("x-queen-tenant: {tenant}");
    let push = post("/api/v1/push", r#"{"items":[{"queue":"q","payload":1}]}"#);

    let answer = ask(entry.port, &with(&push, &[bearer("write-only"), named.clone()])).await;
    assert_eq!(answer.status(), 201, "{}", answer.text());
    let answer = ask(entry.port, &with(&pop("q", ""), &[bearer("read-write"), named.clone()])).await;
    assert!(answer.text().contains(r#""producerSub":"shop""#), "{}", answer.text());
    let answer = ask(entry.port, &with(&pop("q", "consumerGroup=g"), &[bearer("read-write")])).await;
    assert_eq!(answer.status(), 204, "the default tenant has no such queue");

    // What says that another broker has sent it on is let in by nothing but its own token.
    let forged = "tidegate-forwarded: entry".to_owned();
    for lines in [vec![], vec![forged.clone()], vec![forged.clone(), named.clone()]] {
        let answer = ask(owner.port, &with(&push, &lines)).await;
        assert_eq!((answer.status(), answer.text()), (401, r#"{"error":"Authentication required"}"#));
        let answer = ask(entry.port, &with(&push, &lines)).await;
        assert_eq!(answer.status(), 401);
    }
    let answer = ask(owner.port, &with(&push, &[forged, bearer("read-only"), named])).await;
    assert_eq!(answer.status(), 403);
}
