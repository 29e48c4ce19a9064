//! The built binary as a process: what it prints, what it refuses, how it ends.

#[path = "common/binary.rs"]
mod binary;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use binary::Broker;
use rustix::process::{Pid, Signal, kill_process};

/// What a shutdown may take, and a little for a busy machine.
const SHUTDOWN: Duration = Duration::from_millis(5_500);

/// Runs `tidegate` to its end with nothing but `environment` set.
fn run(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(arguments).env_clear().envs(environment.iter().copied()).stdin(Stdio::null());
    command.output().expect("the built binary starts")
}

fn connect(url: &str) -> TcpStream {
    let stream = TcpStream::connect(url.trim_start_matches("http://")).expect("the broker accepts connections");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout can be set");
    stream
}

fn write(stream: &mut TcpStream, request: &str) {
    stream.write_all(request.as_bytes()).expect("the broker reads");
}

/// A whole request and everything that comes back until the broker closes the connection.
fn ask(url: &str, request: &str) -> String {
    let mut stream = connect(url);
    write(&mut stream, request);
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the broker answers and closes");
    answer
}

fn get(url: &str, path: &str) -> String {
    ask(url, &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
}

fn post(url: &str, path: &str, body: &str) -> String {
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
    ask(url, &(head + body))
}

fn status(url: &str) -> String {
    get(url, "/status")
}

/// A long poll on a queue in which nothing is.
fn park(url: &str) -> TcpStream {
    let mut stream = connect(url);
    write(&mut stream, "GET /api/v1/pop/queue/empty?wait=true&timeout=60000 HTTP/1.1\r\nHost: x\r\n\r\n");
    // Long enough to be parked; a signal that comes earlier is answered with a refusal instead.
    thread::sleep(Duration::from_millis(300));
    stream
}

fn signal(process: &Child, signal: Signal) {
    kill_process(Pid::from_child(process), signal).expect("the process is ours");
}

/// Waits for the process and tells how long that took.
fn end(broker: &mut Broker) -> (ExitStatus, Duration) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(15) {
        if let Some(status) = broker.process().try_wait().expect("the process is ours") {
            return (status, start.elapsed());
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("the broker does not end");
}

#[test]
fn stdout_has_the_ready_line_and_nothing_else() {
    let mut process = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["serve", "--listen", "127.0.0.1:0", "--store", "memory"])
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the built binary starts");
    let mut stdout = BufReader::new(process.stdout.take().expect("stdout is piped"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("the broker prints text");
    let url = line.strip_prefix("listening on ").expect("the ready line").trim_end().to_owned();
    assert!(url.starts_with("http://127.0.0.1:") && !url.ends_with(":0"), "{line}");
    assert!(status(&url).starts_with("HTTP/1.1 200 "));
    signal(&process, Signal::TERM);
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).expect("the broker prints text");
    assert_eq!(rest, "");
    assert!(process.wait().expect("the process is ours").success());
}

#[test]
fn a_message_goes_through_the_built_binary() {
    let broker = Broker::start();
    let body = r#"{"items":[{"queue":"q","transactionId":"t","payload":{"b":1, "a":9007199254740993, "c":1.0}}]}"#;
    let pushed = post(broker.url(), "/api/v1/push", body);
    assert!(pushed.starts_with("HTTP/1.1 201 ") && pushed.contains("\"queued\""), "{pushed}");
    let popped = get(broker.url(), "/api/v1/pop/queue/q");
    assert!(popped.starts_with("HTTP/1.1 200 "), "{popped}");
    assert!(popped.contains(r#"{"b":1, "a":9007199254740993, "c":1.0}"#), "{popped}");
}

#[test]
fn variables_reach_what_they_are_for() {
    let environment = [
        ("QUEEN_MAX_BODY_BYTES", "300"),
        ("DEFAULT_TIMEOUT", "50"),
        ("DEFAULT_SUBSCRIPTION_MODE", "new"),
        ("TIDEGATE_REQUIRE_LEASE", "1"),
        ("QUEEN_HOTLIST_WINDOW_BATCH", "2"),
    ];
    let broker = Broker::start_with(&[], &environment);
    let url = broker.url();
    let large = format!(r#"{{"items":[{{"queue":"q","payload":"{}"}}]}}"#, "x".repeat(300));
    assert!(post(url, "/api/v1/push", &large).starts_with("HTTP/1.1 413 "));

    let start = Instant::now();
    assert!(get(url, "/api/v1/pop/queue/empty?wait=true").starts_with("HTTP/1.1 204 "));
    assert!(start.elapsed() < Duration::from_secs(10));

    let push = r#"{"items":[{"queue":"q","payload":1},{"queue":"q","payload":2}]}"#;
    assert!(post(url, "/api/v1/push", push).starts_with("HTTP/1.1 201 "));
    assert!(get(url, "/api/v1/pop/queue/q?consumerGroup=late").starts_with("HTTP/1.1 204 "));

    let popped = get(url, "/api/v1/pop/queue/q?consumerGroup=early&subscriptionMode=all&batch=1");
    let popped: serde_json::Value = serde_json::from_str(popped.split_once("\r\n\r\n").unwrap().1).expect("JSON");
    let message = &popped["messages"][0];
    let (partition, transaction) = (&message["partitionId"], &message["transactionId"]);
    let ack = format!(
        r#"{{"transactionId":{transaction},"partitionId":{partition},"status":"completed","consumerGroup":"early"}}"#
    );
    let refused = post(url, "/api/v1/ack", &ack);
    assert!(refused.contains("TIDEGATE_REQUIRE_LEASE"), "{refused}");

    // The window of `q` ends early with two messages here, and not at all where the hot list is off.
    let configure = r#"{"queue":"q","options":{"windowBuffer":3600}}"#;
    assert!(post(url, "/api/v1/configure", configure).starts_with("HTTP/1.1 200 "));
    assert!(get(url, "/api/v1/pop/queue/q").starts_with("HTTP/1.1 200 "));
    let off = Broker::start_with(&[], &[("QUEEN_HOTLIST", "off"), ("QUEEN_HOTLIST_WINDOW_BATCH", "2")]);
    assert!(post(off.url(), "/api/v1/configure", configure).starts_with("HTTP/1.1 200 "));
    assert!(post(off.url(), "/api/v1/push", push).starts_with("HTTP/1.1 201 "));
    assert!(get(off.url(), "/api/v1/pop/queue/q").starts_with("HTTP/1.1 204 "));
}

fn a_signal_ends_it(name: Signal) {
    let mut broker = Broker::start();
    let mut parked = park(broker.url());
    signal(broker.process(), name);
    let (status, took) = end(&mut broker);
    assert_eq!(status.code(), Some(0), "{}", broker.log());
    assert!(took < SHUTDOWN, "it took {took:?}");
    let mut answer = String::new();
    parked.read_to_string(&mut answer).expect("the broker answers and closes");
    assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");
    assert!(TcpStream::connect(broker.url().trim_start_matches("http://")).is_err());
}

#[test]
fn sigterm_answers_parked_pops_and_exits_with_0() {
    a_signal_ends_it(Signal::TERM);
}

#[test]
fn sigint_does_the_same() {
    a_signal_ends_it(Signal::INT);
}

/// A client that sends half a request and no more.
fn stall(url: &str) -> TcpStream {
    let mut stream = connect(url);
    write(&mut stream, "POST /api/v1/push HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{\"items\":[");
    thread::sleep(Duration::from_millis(300));
    stream
}

#[test]
fn a_stalled_client_does_not_hold_up_the_shutdown() {
    let mut broker = Broker::start();
    let _stalled = stall(broker.url());
    let _idle = connect(broker.url());
    signal(broker.process(), Signal::TERM);
    let (status, took) = end(&mut broker);
    assert_eq!(status.code(), Some(0), "{}", broker.log());
    assert!(took < SHUTDOWN, "it took {took:?}");
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let mut broker = Broker::start();
    let _stalled = stall(broker.url());
    signal(broker.process(), Signal::TERM);
    thread::sleep(Duration::from_millis(300));
    signal(broker.process(), Signal::INT);
    let (status, took) = end(&mut broker);
    // The stalled client would have held it for seconds.
    assert_eq!(status.code(), Some(130), "{}", broker.log());
    assert!(took < Duration::from_secs(2), "it took {took:?}");
}

#[test]
fn a_value_that_does_not_parse_stops_the_start_and_names_itself() {
    let cases = [
        ("PORT", "http"),
        ("TIDEGATE_LISTEN", "6632"),
        ("TIDEGATE_STORE", "mysql://user:hunter2@db/queen"),
        ("TIDEGATE_REQUIRE_LEASE", "sometimes"),
        ("TIDEGATE_LOG_FORMAT", "xml"),
        ("QUEEN_MAX_BODY_BYTES", "64MB"),
        ("DEFAULT_TIMEOUT", "-1"),
        ("POP_DEFAULT_TIMEOUT_MS", "1.5"),
        ("DEFAULT_SUBSCRIPTION_MODE", "some"),
        ("QUEEN_HOTLIST", "2"),
        ("QUEEN_HOTLIST_WINDOW_BATCH", "0"),
        ("LOG_LEVEL", "loud"),
        ("JWT_ENABLED", "true"),
        ("QUEEN_TENANCY_HEADER", "maybe"),
        ("QUEEN_ENCRYPTION_KEY", "hunter2"),
    ];
    for (name, value) in cases {
        let output = run(&["serve"], &[(name, value)]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{name}={value}: {said}");
        assert!(said.starts_with(&format!("tidegate: {name} ")), "{name}={value}: {said}");
        assert!(!said.contains("hunter2"), "{said}");
        assert!(output.stdout.is_empty());
    }
    for (flag, value) in [("--listen", "nowhere"), ("--store", "disk"), ("--log-format", "xml")] {
        let output = run(&["serve", flag, value], &[]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{flag} {value}: {said}");
        assert!(said.starts_with(&format!("tidegate: {flag} ")), "{flag} {value}: {said}");
    }
}

#[test]
fn tokens_and_their_keys_come_from_the_environment() {
    let file = std::env::temp_dir().join(format!("tidegate-keys-{}.json", std::process::id()));
    let path = file.to_str().expect("a path").to_owned();
    let environment = [("JWT_ENABLED", "true"), ("JWT_ALGORITHM", "auto"), ("JWT_JWKS_FILE", path.as_str())];
    let refusal = || {
        let output = run(&["serve", "--listen", "127.0.0.1:0"], &environment);
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(refusal().contains("cannot read the file"), "{}", refusal());
    std::fs::write(&file, "hunter2").expect("the file can be written");
    let said = refusal();
    assert!(said.contains("is no JSON Web Key Set") && !said.contains("hunter2"), "{said}");

    // "hunter2", as a symmetric key of a set.
    std::fs::write(&file, r#"{"keys":[{"kty":"oct","k":"aHVudGVyMg"}]}"#).expect("the file can be written");
    let broker = Broker::start_with(&[], &environment);
    let key = jsonwebtoken::EncodingKey::from_secret(b"hunter2").expect("a key");
    let claims = serde_json::json!({"role": "read-only"});
    let token = jsonwebtoken::encode(&jsonwebtoken::Header::default(), &claims, &key).expect("a token");
    assert!(status(broker.url()).starts_with("HTTP/1.1 401 "));
    assert!(get(broker.url(), "/health").starts_with("HTTP/1.1 200 "));
    let head = format!("GET /status HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\r\n");
    assert!(ask(broker.url(), &head).starts_with("HTTP/1.1 200 "));
    drop(broker);
    let _ = std::fs::remove_file(&file);
}

#[test]
fn listen_goes_before_its_variable_and_that_before_port() {
    // `Broker` asks for `--listen 127.0.0.1:0`, which nothing else overrides.
    let broker = Broker::start_with(&[], &[("TIDEGATE_LISTEN", "192.0.2.1:1"), ("PORT", "1")]);
    assert!(status(broker.url()).starts_with("HTTP/1.1 200 "));

    // Held by us, so that the broker fails with the address that it tried.
    let taken = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let address = taken.local_addr().expect("the port is known");
    let port = address.port().to_string();
    let tried = |environment: &[(&str, &str)]| {
        let output = run(&["serve", "--log-format", "text"], environment);
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let said = tried(&[("TIDEGATE_LISTEN", &address.to_string()), ("PORT", "0")]);
    assert!(said.contains(&format!("cannot listen on {address}")), "{said}");
    let said = tried(&[("PORT", &port)]);
    assert!(said.contains(&format!("cannot listen on 127.0.0.1:{port}")), "{said}");
}

#[test]
fn variables_without_effect_are_named_once() {
    let environment = [("JWT_SECRET", "hunter2"), ("QUEEN_V2_ZSTD_LEVEL", "9"), ("POP_WAIT_MAX_INTERVAL_MS", "1")];
    let mut broker = Broker::start_with(&["--log-format", "json"], &environment);
    signal(broker.process(), Signal::TERM);
    end(&mut broker);
    // The log is followed by a thread of its own; the last line is the shutdown's.
    let start = Instant::now();
    while !broker.log().contains("\"stopped\"") && start.elapsed() < Duration::from_secs(5) {
        thread::sleep(Duration::from_millis(10));
    }
    let log = broker.log();
    assert!(!log.contains("hunter2"), "{log}");
    let lines = log.lines().filter(|line| line.starts_with('{'));
    let events: Vec<serde_json::Value> = lines.map(|line| serde_json::from_str(line).expect("JSON logs")).collect();
    let named: Vec<_> = events.iter().filter(|event| event["fields"]["variables"].is_string()).collect();
    assert_eq!(named.len(), 1, "{log}");
    let variables = "JWT_SECRET, POP_WAIT_MAX_INTERVAL_MS, QUEEN_V2_ZSTD_LEVEL";
    assert_eq!(named[0]["fields"]["variables"], variables);
}

#[test]
fn without_a_command_it_shows_help() {
    let output = run(&[], &[]);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("Usage: tidegate"));
    let output = run(&["--version"], &[]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), concat!("tidegate ", env!("CARGO_PKG_VERSION"), "\n"));
    assert_eq!(run(&["frobnicate"], &[]).status.code(), Some(2));
}
