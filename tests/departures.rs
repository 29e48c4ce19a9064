//! Clients that close their side of a real TCP connection: who leaves while parked takes nothing, who only has nothing
//! more to say is answered.

#[path = "common/binary.rs"]
mod binary;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::Duration;

use binary::Broker;

fn connect(broker: &Broker) -> TcpStream {
    let stream = TcpStream::connect(broker.url().trim_start_matches("http://")).expect("the broker accepts");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout can be set");
    stream
}

/// Sends a request, closes this side, and reads all that comes back.
fn ask(broker: &Broker, request: &str) -> String {
    let mut stream = connect(broker);
    stream.write_all(request.as_bytes()).expect("the broker reads");
    stream.shutdown(Shutdown::Write).expect("it was open");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the broker answers and closes");
    answer
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")
}

fn push(queue: &str) -> String {
    let body = format!(r#"{{"items":[{{"queue":"{queue}","payload":1}}]}}"#);
    format!("POST /api/v1/push HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn long_pop(queue: &str, query: &str) -> String {
    get(&format!("/api/v1/pop/queue/{queue}?wait=true&timeout=60000{query}"))
}

#[test]
fn a_client_that_left_while_parked_takes_nothing_whatever_it_sent_behind() {
    // scn: 24
    let broker = Broker::start();
    let behind = [("plain", String::new()), ("stray", "\r\n".into()), ("next", get("/health"))];
    for (name, behind) in &behind {
        for query in ["", "&autoAck=true"] {
            let queue = format!("{name}{}", query.len());
            let mut parked = connect(&broker);
            parked.write_all((long_pop(&queue, query) + behind).as_bytes()).expect("the broker reads");
            thread::sleep(Duration::from_millis(200));
            drop(parked);
            thread::sleep(Duration::from_millis(200));
            assert!(ask(&broker, &push(&queue)).starts_with("HTTP/1.1 201 "));
            let answer = ask(&broker, &get(&format!("/api/v1/pop/queue/{queue}")));
            assert!(answer.starts_with("HTTP/1.1 200 "), "{queue}: {answer}");
        }
    }
    let metrics = ask(&broker, &get("/metrics/prometheus"));
    assert!(metrics.contains("\ntidegate_parked_calls 0\n"), "nobody is left in the line");
}

#[test]
fn a_client_that_only_has_nothing_more_to_say_is_answered() {
    let broker = Broker::start();
    for _ in 0..50 {
        assert!(ask(&broker, &push("q")).starts_with("HTTP/1.1 201 "));
        assert!(ask(&broker, &get("/api/v1/pop/queue/q?autoAck=true&wait=true")).contains("\"messages\":[{"));
        assert!(ask(&broker, &get("/health")).starts_with("HTTP/1.1 200 "));
    }
    // It cannot be told from one that left: what it waits for is given up, and it is told so.
    assert!(ask(&broker, &long_pop("q", "")).starts_with("HTTP/1.1 204 "));
}
