//! What a connection does, whatever the broker says: framing, limits, drains, clients that leave. In process, in real
//! bytes, on virtual time; most tests need no store, so theirs never answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tidegate_core::broker::Broker;
use tidegate_core::settings::Settings;
use tidegate_core::store::StoreRequest;
use tidegate_core::time::Timestamp;
use tidegate_driver::{Answer, Clock, Immediate, Store};
use tidegate_store_memory::MemoryStore;
use tidegate_transport_http::{Body, Connection, HttpSettings, Service, accept};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// A store that is away for good.
struct Silent;

impl Store for Silent {
    fn call(&mut self, _: StoreRequest) -> Answer {
        Answer::Later(Box::pin(std::future::pending()))
    }
}

fn service(settings: HttpSettings) -> Service {
    let broker = Broker::new(Settings::default(), [7; 32]);
    let (handle, _) = tidegate_driver::spawn(broker, Silent, Clock::starting_at(Timestamp::EPOCH));
    Service::new(handle, settings)
}

/// A service over a store in memory.
fn whole_service() -> Service {
    let clock = Clock::starting_at(Timestamp::EPOCH);
    let mut memory = MemoryStore::new();
    let store = Immediate::new(clock, move |now, request| memory.call(now, request));
    let (handle, _) = tidegate_driver::spawn(Broker::new(Settings::default(), [7; 32]), store, clock);
    Service::new(handle, HttpSettings::default())
}

/// A client that writes bytes and reads answers.
struct Client {
    io: DuplexStream,
    unread: Vec<u8>,
}

impl Client {
    fn connect(service: &Service, shutdown: &CancellationToken) -> Self {
        Self::connect_narrow(service, shutdown, 1 << 20)
    }

    /// A client whose unread answers block the broker after `room` bytes.
    fn connect_narrow(service: &Service, shutdown: &CancellationToken, room: usize) -> Self {
        let (io, server) = tokio::io::duplex(room);
        let (service, shutdown) = (service.clone(), shutdown.clone());
        tokio::spawn(async move { service.serve_connection(server, shutdown).await });
        Client { io, unread: Vec::new() }
    }

    fn plain() -> Self {
        Self::with(HttpSettings::default())
    }

    fn with(settings: HttpSettings) -> Self {
        Self::connect(&service(settings), &CancellationToken::new())
    }

    async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.io.write_all(bytes.as_ref()).await.expect("the connection takes bytes");
    }

    /// The next answer: its head in lower case, and its body.
    async fn answer(&mut self) -> (String, String) {
        self.answer_to(false).await
    }

    async fn answer_to(&mut self, head_only: bool) -> (String, String) {
        let end = loop {
            if let Some(at) = self.unread.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            self.more().await;
        };
        let head = String::from_utf8(self.unread.drain(..end).collect()).expect("a head is text").to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length = length.map_or(0, |length| length.parse().expect("a length"));
        let length = if head_only { 0 } else { length };
        while self.unread.len() < length {
            self.more().await;
        }
        (head, String::from_utf8(self.unread.drain(..length).collect()).expect("a body is text"))
    }

    async fn more(&mut self) {
        let read = self.io.read_buf(&mut self.unread).await.expect("the connection gives bytes");
        assert!(read > 0, "the connection ended early: {:?}", String::from_utf8_lossy(&self.unread));
    }

    /// Waits for the end of the connection, which sends nothing more.
    async fn ended(&mut self) {
        self.io.read_to_end(&mut self.unread).await.expect("the connection ends in order");
        assert_eq!(String::from_utf8_lossy(&self.unread), "");
    }

    /// The connection still answers.
    async fn goes_on(&mut self) {
        self.send("GET /status HTTP/1.1\r\n\r\n").await;
        let (head, body) = self.answer().await;
        assert!(head.starts_with("http/1.1 200 ok\r\n"), "{head}");
        assert_eq!(body, r#"{"status":"ok","engine":"segments-rust"}"#);
    }
}

fn error_of(body: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(body).expect("an error body is JSON");
    value["error"].as_str().expect("an error body has an error").to_owned()
}

#[tokio::test(start_paused = true)]
async fn pipelined_requests_are_answered_in_order() {
    let mut client = Client::plain();
    client.send("GET /status HTTP/1.1\r\n\r\nGET /nope HTTP/1.1\r\n\r\nGET /status HTTP/1.1\r\n\r\n").await;
    assert!(client.answer().await.0.starts_with("http/1.1 200"));
    assert_eq!(client.answer().await.1, r#"{"error":"Not Found","code":"no_such_route"}"#);
    assert!(client.answer().await.0.starts_with("http/1.1 200"));
    client.goes_on().await;
}

#[tokio::test(start_paused = true)]
async fn methods_are_told_apart() {
    let mut client = Client::plain();
    for (method, path, allow) in [
        ("PUT", "/api/v1/push", "post"),
        ("OPTIONS", "/api/v1/resources/queues/q", "delete, get, head"),
        ("HEAD", "/api/v1/pop/queue/q", "get"),
    ] {
        client.send(format!("{method} {path} HTTP/1.1\r\n\r\n")).await;
        let (head, body) = client.answer_to(method == "HEAD").await;
        assert!(head.starts_with("http/1.1 405") && head.contains(&format!("\r\nallow: {allow}\r\n")), "{head}");
        assert!(method == "HEAD" || error_of(&body).contains(method), "{body}");
    }
    client.send("HEAD /status HTTP/1.1\r\n\r\n").await;
    let (head, _) = client.answer_to(true).await;
    assert!(head.starts_with("http/1.1 200") && head.contains("content-length: 40\r\n"), "{head}");
    client.goes_on().await;
}

#[tokio::test(start_paused = true)]
async fn a_body_over_the_limit_is_refused_and_the_connection_goes_on() {
    let mut client = Client::with(HttpSettings { max_body_bytes: 1_000, ..HttpSettings::default() });
    let refused = |(head, body): (String, String)| {
        assert!(head.starts_with("http/1.1 413"), "{head}");
        assert!(error_of(&body).contains("1000 bytes"), "{body}");
    };
    let head = "POST /api/v1/push HTTP/1.1\r\ncontent-length: 1001\r\n\r\n";
    client.send(head).await;
    client.send([b' '; 1001]).await;
    refused(client.answer().await);
    client.goes_on().await;
    // A client that waits for the answer gets it, and may send the body all the same.
    client.send(head).await;
    refused(client.answer().await);
    client.send([b' '; 1001]).await;
    client.goes_on().await;

    client.send("POST /api/v1/push HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n").await;
    for _ in 0..3 {
        client.send(format!("190\r\n{}\r\n", " ".repeat(0x190))).await;
    }
    refused(client.answer().await);
    client.send("0\r\n\r\n").await;
    client.goes_on().await;

    // A client that asks first is told at once and sends nothing.
    client.send("POST /api/v1/push HTTP/1.1\r\ncontent-length: 1001\r\nexpect: 100-continue\r\n\r\n").await;
    refused(client.answer().await);

    // At the limit is within it.
    let mut client = Client::with(HttpSettings { max_body_bytes: 1_000, ..HttpSettings::default() });
    client.send(format!("POST /api/v1/push HTTP/1.1\r\ncontent-length: 1000\r\n\r\n{}", " ".repeat(1_000))).await;
    assert!(client.answer().await.0.starts_with("http/1.1 400"));
    client.goes_on().await;
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stops_is_given_up() {
    let mut client = Client::plain();
    client.send("POST /api/v1/push HTTP/1.1\r\ncontent-length: 10\r\n\r\n{").await;
    let (head, body) = client.answer().await;
    assert!(head.starts_with("http/1.1 408"), "{head}");
    assert!(error_of(&body).contains("in time"), "{body}");
}

#[tokio::test(start_paused = true)]
async fn what_is_no_http_gets_a_json_error_too() {
    for (request, status) in [
        ("GARBAGE\r\n\r\n".to_owned(), "400"),
        ("GET /a b HTTP/1.1\r\n\r\n".to_owned(), "400"),
        (format!("GET /api/v1/pop/queue/{} HTTP/1.1\r\n\r\n", "x".repeat(65_536)), "400"),
        (format!("GET /status HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(200)), "431"),
    ] {
        let mut client = Client::plain();
        client.send(&request).await;
        let (head, body) = client.answer().await;
        assert!(head.starts_with(&format!("http/1.1 {status} ")), "{head}");
        assert!(!error_of(&body).is_empty());
        client.ended().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_an_answer() {
    let mint = Arc::new(|| panic!("this panic is part of a test"));
    let mut client = Client::with(HttpSettings { mint, ..HttpSettings::default() });
    client.send("POST /api/v1/transaction HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}").await;
    let (head, body) = client.answer().await;
    assert!(head.starts_with("http/1.1 500"), "{head}");
    assert_eq!(error_of(&body), "internal error");
    client.goes_on().await;
}

#[tokio::test(start_paused = true)]
async fn idle_connections_are_closed_and_busy_ones_are_not() {
    // Nothing at all, half a preface, and a head that never ends.
    for sent in ["", "PRI * HT", "GET /status HTTP/1.1\r\n"] {
        let mut client = Client::plain();
        client.send(sent).await;
        let start = Instant::now();
        client.ended().await;
        assert!((75..=151).contains(&start.elapsed().as_secs()), "{sent:?}: {:?}", start.elapsed());
    }
    let mut client = Client::plain();
    for _ in 0..10 {
        sleep(Duration::from_secs(70)).await;
        client.goes_on().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_ends_idle_connections_at_once_and_busy_ones_in_time() {
    let (service, shutdown) = (service(HttpSettings::default()), CancellationToken::new());
    let mut idle = Client::connect(&service, &shutdown);
    idle.goes_on().await;
    let mut late = Client::connect(&service, &shutdown);
    let mut busy = Client::connect(&service, &shutdown);
    busy.send("POST /api/v1/push HTTP/1.1\r\ncontent-length: 10\r\n\r\n{").await;
    sleep(Duration::from_millis(1)).await;

    let start = Instant::now();
    shutdown.cancel();
    // Accepted a moment before: its request still counts.
    late.goes_on().await;
    idle.ended().await;
    late.ended().await;
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    busy.ended().await;
    assert!((4..5).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn http2_with_prior_knowledge() {
    let (io, server) = tokio::io::duplex(1 << 20);
    let service = service(HttpSettings { max_body_bytes: 1_000, ..HttpSettings::default() });
    tokio::spawn(async move { service.serve_connection(server, CancellationToken::new()).await });
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(io)).await;
    let (mut sender, connection) = handshake.expect("HTTP/2 is spoken");
    tokio::spawn(connection);
    for (method, path, size, status) in [
        ("GET", "/status", 0, StatusCode::OK),
        ("HEAD", "/status", 0, StatusCode::OK),
        ("GET", "/nope", 0, StatusCode::NOT_FOUND),
        ("POST", "/api/v1/push", 1_001, StatusCode::PAYLOAD_TOO_LARGE),
        ("POST", "/api/v1/push", 1, StatusCode::BAD_REQUEST),
        ("GET", "/status", 0, StatusCode::OK),
    ] {
        let body = Full::new(Bytes::from(vec![b' '; size]));
        let request = Request::builder().method(method).uri(format!("http://broker{path}")).body(body);
        let response = sender.send_request(request.expect("a request")).await.expect("an answer");
        assert_eq!(response.status(), status, "{method} {path}");
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        assert_eq!(body.is_empty(), method == "HEAD", "{method} {path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_leased_answer_that_cannot_be_written_gives_its_lease_back() {
    let (service, shutdown) = (whole_service(), CancellationToken::new());
    let mut client = Client::connect(&service, &shutdown);
    let push = r#"{"items":[{"queue":"q","payload":"0123456789"}]}"#;
    client.send(format!("POST /api/v1/push HTTP/1.1\r\ncontent-length: {}\r\n\r\n{push}", push.len())).await;
    assert!(client.answer().await.0.starts_with("http/1.1 201"));

    let pop = "GET /api/v1/pop/queue/q HTTP/1.1\r\n\r\n";
    let mut stuck = Client::connect_narrow(&service, &shutdown, 64);
    stuck.send(pop).await;
    sleep(Duration::from_millis(1)).await;
    client.send(pop).await;
    assert!(client.answer().await.0.starts_with("http/1.1 204"), "the stuck client has the lease");
    drop(stuck);
    sleep(Duration::from_millis(1)).await;
    client.send(pop).await;
    assert!(client.answer().await.0.starts_with("http/1.1 200"), "and now it has not");

    // What was written stays leased, whatever becomes of the client.
    drop(client);
    sleep(Duration::from_millis(1)).await;
    let mut client = Client::connect(&service, &shutdown);
    client.send(pop).await;
    assert!(client.answer().await.0.starts_with("http/1.1 204"));
}

/// On real sockets: what counts here is what the kernel tells.
#[tokio::test]
async fn a_client_that_leaves_while_parked_is_noticed() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (left, shutdown) = (Arc::new(AtomicUsize::new(0)), CancellationToken::new());
    let (counter, token) = (Arc::clone(&left), shutdown.clone());
    let server = tokio::spawn(async move {
        let park = move |_, connection: Arc<Connection>| {
            let counter = Arc::clone(&counter);
            async move {
                connection.departed().await;
                counter.fetch_add(1, Ordering::SeqCst);
                hyper::Response::new(Body::default())
            }
        };
        accept::serve_with(listener, &HttpSettings::default(), token, park).await;
    });
    let mut client = tokio::net::TcpStream::connect(address).await.expect("a connection");
    // With more behind it that nobody reads yet.
    client.write_all(b"GET /parked HTTP/1.1\r\n\r\nGET /next HTTP/1.1\r\n\r\n").await.expect("a request");
    sleep(Duration::from_millis(20)).await;
    assert_eq!(left.load(Ordering::SeqCst), 0);
    drop(client);
    let gone = async {
        while left.load(Ordering::SeqCst) == 0 {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(5), gone).await.expect("the handler is told");
    shutdown.cancel();
    timeout(Duration::from_secs(5), server).await.expect("the drain ends").expect("the server does not panic");
}
