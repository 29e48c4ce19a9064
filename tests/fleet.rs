//! Several real brokers on one real Postgres: who serves when one is killed, frozen, or told to stop.

#[path = "common/binary.rs"]
mod binary;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use binary::Broker;
use rustix::process::{Pid, Signal, kill_process};
use tidegate_store_postgres::fixture::Cluster;

/// Which slot the tenant of a broker without tenancy has.
const SLOT: u8 = 11;

/// Brokers on a database of their own.
struct Fleet {
    /// Its URL.
    database: String,
    brokers: Vec<Broker>,
}

impl Fleet {
    fn start(count: usize) -> Self {
        let mut fleet = Fleet { database: Cluster::shared().database(), brokers: Vec::new() };
        for _ in 0..count {
            fleet.add();
        }
        // Until all of them know each other, and the slots have spread.
        thread::sleep(Duration::from_secs(2));
        fleet
    }

    fn add(&mut self) -> &Broker {
        self.brokers.push(Broker::start_with(&["--store", &self.database], &[]));
        self.brokers.last().expect("it was added")
    }

    /// The place of the broker that owns the tenant's slot.
    fn owner(&self) -> usize {
        let sql = format!("SELECT owner FROM queen.slots WHERE slot = {SLOT}");
        let name = self.database.split('?').next().and_then(|url| url.rsplit('/').next()).expect("a database");
        let owner = Cluster::shared().sql(name, &sql);
        let names = self
            .brokers
            .iter()
            .map(|broker| Client::of(broker).ask("GET", "/internal/broker", "").expect("it answers").1);
        names.into_iter().position(|name| name == owner.trim()).unwrap_or_else(|| panic!("nobody is {owner}"))
    }

    /// The tenant's owner, then the others.
    fn by_ownership(mut self) -> (Broker, Fleet) {
        let owner = self.owner();
        (self.brokers.remove(owner), self)
    }
}

fn signal(broker: &mut Broker, signal: Signal) {
    let pid = Pid::from_raw(broker.process().id().cast_signed()).expect("a process id");
    kill_process(pid, signal).expect("the process is there");
}

/// A connection that is kept, and made again when it was closed between two requests.
struct Client {
    address: String,
    stream: Option<TcpStream>,
}

impl Client {
    fn of(broker: &Broker) -> Self {
        Client::to(broker.url())
    }

    fn to(url: &str) -> Self {
        Client { address: url.trim_start_matches("http://").to_owned(), stream: None }
    }

    fn send(&mut self, method: &str, path: &str, body: &str) -> std::io::Result<&mut TcpStream> {
        if self.stream.is_none() {
            let stream = TcpStream::connect(&self.address)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(Duration::from_secs(20)))?;
            self.stream = Some(stream);
        }
        let stream = self.stream.as_mut().expect("it was just made");
        let length = body.len();
        write!(stream, "{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{body}")?;
        Ok(stream)
    }

    fn ask(&mut self, method: &str, path: &str, body: &str) -> std::io::Result<(u16, String)> {
        let stream = self.send(method, path, body)?;
        let (status, text, closes) = read(stream)?;
        if closes {
            self.stream = None;
        }
        Ok((status, text))
    }

    fn push(&mut self, queue: &str, id: &str) -> std::io::Result<(u16, String)> {
        let body = format!(r#"{{"items":[{{"queue":"{queue}","transactionId":"{id}","payload":"{id}"}}]}}"#);
        self.ask("POST", "/api/v1/push", &body)
    }

    /// The ids of everything in a queue, in order.
    fn drain(&mut self, queue: &str) -> Vec<String> {
        let mut ids = Vec::new();
        loop {
            let path = format!("/api/v1/pop/queue/{queue}?batch=1000&autoAck=true");
            let (status, body) = self.ask("GET", &path, "").expect("it answers");
            if status == 204 {
                return ids;
            }
            let body: serde_json::Value = serde_json::from_str(&body).expect("JSON");
            let messages = body["messages"].as_array().expect("messages");
            ids.extend(messages.iter().map(|it| it["data"].as_str().expect("a payload").to_owned()));
        }
    }
}

/// Status, body, and whether the connection is closed now.
fn read(stream: &mut TcpStream) -> std::io::Result<(u16, String, bool)> {
    let mut all = Vec::new();
    let mut buffer = [0; 65_536];
    loop {
        let end = all.windows(4).position(|window| window == b"\r\n\r\n");
        if let Some(end) = end {
            let head = String::from_utf8_lossy(&all[..end]).to_lowercase();
            let line =
                |name: &str| head.lines().find_map(|line| line.strip_prefix(name).map(str::trim).map(str::to_owned));
            let length = line("content-length:").map_or(0, |length| length.parse::<usize>().expect("a length"));
            if all.len() >= end + 4 + length {
                let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
                let body = String::from_utf8_lossy(&all[end + 4..]).into_owned();
                return Ok((status, body, line("connection:").as_deref() == Some("close")));
            }
        }
        match stream.read(&mut buffer)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            read => all.extend_from_slice(&buffer[..read]),
        }
    }
}

/// Time until a push through any of these is carried out; ids count up.
fn time_to_serve(fleet: &Fleet, queue: &str) -> (Duration, Vec<String>) {
    let start = Instant::now();
    for round in 0.. {
        assert!(start.elapsed() < Duration::from_secs(30), "nobody serves");
        let broker = &fleet.brokers[round % fleet.brokers.len()];
        let id = format!("served{round}");
        match Client::of(broker).push(queue, &id).expect("these run") {
            (201, _) => return (start.elapsed(), vec![id]),
            (503, _) => {}
            other => panic!("{other:?}"),
        }
    }
    unreachable!("rounds do not end")
}

#[test]
fn a_push_through_one_wakes_a_pop_through_another_quickly() {
    let (owner, fleet) = Fleet::start(3).by_ownership();
    let (popper, pusher) = (&fleet.brokers[0], &fleet.brokers[1]);
    let mut popping = Client::of(popper);
    let mut pushing = [Client::of(pusher), Client::of(&owner)];
    let mut took: Vec<Duration> = (0..200)
        .map(|round| {
            let path = "/api/v1/pop/queue/wake?wait=true&timeout=10000&autoAck=true";
            let parked = popping.send("GET", path, "").expect("it reads").try_clone().expect("a socket");
            let answered = thread::spawn(move || {
                let mut parked = parked;
                let answer = read(&mut parked).expect("it answers");
                (answer.0, Instant::now())
            });
            thread::sleep(Duration::from_millis(30));
            let start = Instant::now();
            assert_eq!(pushing[round % 2].push("wake", &format!("m{round}")).expect("it answers").0, 201);
            let (status, at) = answered.join().expect("no panic");
            assert_eq!(status, 200);
            at.saturating_duration_since(start)
        })
        .collect();
    took.sort_unstable();
    eprintln!("wake-up through another broker: median {:?}, p99 {:?}, longest {:?}", took[100], took[197], took[199]);
    assert!(took[197] < Duration::from_millis(50), "{took:?}");
}

#[test]
fn after_the_owner_was_killed_another_serves_within_two_seconds() {
    let (mut owner, fleet) = Fleet::start(3).by_ownership();
    assert_eq!(Client::of(&fleet.brokers[0]).push("q", "before").expect("it answers").0, 201);
    signal(&mut owner, Signal::KILL);
    let (took, ids) = time_to_serve(&fleet, "q");
    eprintln!("after SIGKILL of the owner another serves in {took:?}");
    assert!(took < Duration::from_secs(2), "{took:?}");
    let drained = Client::of(&fleet.brokers[1]).drain("q");
    assert_eq!((drained.first().map(String::as_str), drained.last()), (Some("before"), ids.last()));
}

#[test]
fn after_the_owner_was_frozen_another_serves_and_what_the_frozen_one_did_counts_once() {
    let (mut owner, fleet) = Fleet::start(3).by_ownership();
    assert_eq!(Client::of(&fleet.brokers[0]).push("q", "before").expect("it answers").0, 201);
    signal(&mut owner, Signal::STOP);
    // The frozen one finds this when it wakes.
    let mut late = Client::of(&owner);
    let body = r#"{"items":[{"queue":"q","transactionId":"late","payload":"late"}]}"#;
    let mut late = late.send("POST", "/api/v1/push", body).expect("the kernel takes it").try_clone().expect("a socket");
    let mut leased = Client::of(&owner);
    let mut leased =
        leased.send("GET", "/api/v1/pop/queue/q", "").expect("the kernel takes it").try_clone().expect("a socket");
    let (took, served) = time_to_serve(&fleet, "q");
    eprintln!("after SIGSTOP of the owner another serves in {took:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
    let mut other = Client::of(&fleet.brokers[0]);
    let mut seen = other.drain("q");
    assert_eq!(seen.first().map(String::as_str), Some("before"));
    signal(&mut owner, Signal::CONT);
    let (status, _, _) = read(&mut late).expect("it answers");
    let (popped, text, _) = read(&mut leased).expect("it answers");
    // What it gives out now it has from the new owner: nothing that was delivered before.
    assert!(popped != 200 || !text.contains("before"), "{popped} {text}");
    assert_eq!(Client::of(&owner).push("q", "after").expect("it answers").0, 201, "it forwards");
    thread::sleep(Duration::from_secs(1));
    seen.extend(other.drain("q"));
    let count = |id: &str| seen.iter().filter(|seen| *seen == id).count() + usize::from(text.contains(id));
    assert_eq!((count("before"), count(&served[0]), count("after")), (1, 1, 1), "{seen:?} {text}");
    assert!(status != 201 || count("late") == 1, "{status} {seen:?} {text}");
    assert!(owner.log().contains("declared dead by another broker"), "{}", owner.log());
}

/// What the clients of a rolling restart saw.
#[derive(Default)]
struct Seen {
    requests: AtomicU64,
    longest: Mutex<Duration>,
    failures: Mutex<Vec<String>>,
}

#[test]
fn a_switch_set_at_one_broker_holds_at_every_other_and_outlives_them_all() {
    let mut fleet = Fleet::start(2);
    let set = |broker: &Broker, path: &str, on: bool| {
        let body = format!(r#"{{"enabled":{on}}}"#);
        assert_eq!(Client::of(broker).ask("POST", path, &body).expect("it answers").0, 200);
    };
    let (push, pop) = ("/api/v1/system/maintenance", "/api/v1/system/maintenance/pop");
    set(&fleet.brokers[0], push, true);
    set(&fleet.brokers[1], pop, true);
    // At once means within a heartbeat.
    thread::sleep(Duration::from_secs(1));
    for broker in &fleet.brokers {
        let (status, text) = Client::of(broker).push("q", "x").expect("it answers");
        assert_eq!((status, text.contains("push maintenance is on")), (503, true), "{text}");
        let (status, _) =
            Client::of(broker).ask("GET", "/api/v1/pop/queue/q?wait=true&timeout=9000", "").expect("it answers");
        assert_eq!(status, 204);
    }
    for mut broker in fleet.brokers.drain(..) {
        signal(&mut broker, Signal::KILL);
        let _ = broker.process().wait();
    }
    let broker = fleet.add();
    let (_, text) = Client::of(broker).ask("GET", push, "").expect("it answers");
    assert!(text.contains(r#""maintenanceMode":true,"popMaintenanceMode":true"#), "{text}");
    set(broker, push, false);
    set(broker, pop, false);
    let begun = Instant::now();
    while Client::of(broker).push("q", "x").expect("it answers").0 != 201 {
        assert!(begun.elapsed() < Duration::from_secs(20), "nobody takes the slot");
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_rolling_restart_under_load_fails_and_stalls_nobody() {
    let mut fleet = Fleet::start(3);
    let urls = Arc::new(Mutex::new(fleet.brokers.iter().map(|broker| broker.url().to_owned()).collect::<Vec<_>>()));
    let (seen, stop) = (Arc::new(Seen::default()), Arc::new(AtomicBool::new(false)));
    let clients: Vec<_> = (0..8)
        .map(|number| {
            let (urls, seen, stop) = (Arc::clone(&urls), Arc::clone(&seen), Arc::clone(&stop));
            thread::spawn(move || load(number, &urls, &seen, &stop))
        })
        .collect();
    thread::sleep(Duration::from_secs(1));
    for _ in 0..3 {
        let mut leaving = fleet.brokers.remove(0);
        signal(&mut leaving, Signal::TERM);
        let status = leaving.process().wait().expect("it ends");
        assert_eq!(status.code(), Some(0), "{}", leaving.log());
        let url = leaving.url().to_owned();
        let fresh = fleet.add().url().to_owned();
        let mut urls = urls.lock().expect("no panic");
        urls.retain(|known| *known != url);
        urls.push(fresh);
        drop(urls);
        thread::sleep(Duration::from_secs(2));
    }
    stop.store(true, Ordering::Relaxed);
    let mut pushed: Vec<String> = clients.into_iter().flat_map(|client| client.join().expect("no panic")).collect();
    let (requests, longest) = (seen.requests.load(Ordering::Relaxed), *seen.longest.lock().expect("no panic"));
    eprintln!("rolling restart: {requests} requests, the longest took {longest:?}");
    let failures = seen.failures.lock().expect("no panic");
    assert!(failures.is_empty(), "{failures:?}");
    assert!(longest < Duration::from_secs(2), "{longest:?}");
    let mut drained = Client::of(&fleet.brokers[0]).drain("load");
    pushed.sort_unstable();
    drained.sort_unstable();
    assert_eq!(pushed, drained, "nothing is lost, nothing twice");
}

/// Pushes and parks in turns, each over a kept connection, until told to stop. Gives back what was stored.
fn load(number: usize, urls: &Mutex<Vec<String>>, seen: &Seen, stop: &AtomicBool) -> Vec<String> {
    let mut pushed = Vec::new();
    let mut client: Option<Client> = None;
    let mut turn = number;
    for round in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let id = format!("{number}-{round}");
        let start = Instant::now();
        let answer = loop {
            let current = client.get_or_insert_with(|| {
                let urls = urls.lock().expect("no panic");
                turn += 1;
                Client::to(&urls[turn % urls.len()])
            });
            if current.stream.is_none() && TcpStream::connect(&current.address).is_err() {
                // It is gone: the next one.
                client = None;
                continue;
            }
            // The pop's wait is short of what would count as stalled.
            break match round % 20 {
                0 => current.ask("GET", "/api/v1/pop/queue/empty?wait=true&timeout=300", ""),
                1..4 => current.ask("GET", "/api/v1/resources/queues", ""),
                _ => current.push("load", &id),
            };
        };
        let took = start.elapsed();
        seen.requests.fetch_add(1, Ordering::Relaxed);
        let mut longest = seen.longest.lock().expect("no panic");
        *longest = took.max(*longest);
        drop(longest);
        match answer {
            Ok((201, _)) => pushed.push(id),
            Ok((200 | 204, _)) => {}
            other => {
                seen.failures.lock().expect("no panic").push(format!("{number} {round}: {other:?} after {took:?}"))
            }
        }
        if client.as_ref().is_some_and(|client| client.stream.is_none()) {
            client = None;
        }
    }
    pushed
}
