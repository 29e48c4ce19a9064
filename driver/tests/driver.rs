//! The loop on tokio's paused time: calls, receipts, deadlines, slow stores, the end.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use tidegate_core::broker::Broker;
use tidegate_core::command::{Command, Pop, PopScope, Push};
use tidegate_core::error::Rejection;
use tidegate_core::message::NewMessage;
use tidegate_core::name::{GroupName, PartitionName, QueueName, TenantId};
use tidegate_core::reply::{Delivery, PushOutcome, Reply};
use tidegate_core::settings::Settings;
use tidegate_core::store::{StoreReply, StoreRequest};
use tidegate_core::time::{Span, Timestamp};
use tidegate_driver::{Answer, Call, Clock, Handle, Immediate, Store};
use tidegate_store_memory::MemoryStore;
use tokio::task::JoinHandle;

const WALL: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

fn broker() -> Broker {
    Broker::new(Settings::default(), [7; 32])
}

/// A broker over a store in memory that answers at once.
fn start() -> (Handle, JoinHandle<()>) {
    start_watched(|_| {})
}

/// The same, with an eye on every request to the store.
fn start_watched(mut watch: impl FnMut(&StoreRequest) + Send + 'static) -> (Handle, JoinHandle<()>) {
    let clock = Clock::starting_at(WALL);
    let mut memory = MemoryStore::new();
    let store = Immediate::new(clock, move |now, request| {
        watch(&request);
        memory.call(now, request)
    });
    tidegate_driver::spawn(broker(), store, clock)
}

/// A store in memory behind a wire on which every answer takes a while.
struct Slow {
    memory: Arc<Mutex<MemoryStore>>,
    clock: Clock,
    delay: Duration,
    commits: Arc<AtomicUsize>,
}

impl Store for Slow {
    fn call(&mut self, request: StoreRequest) -> Answer {
        if matches!(request, StoreRequest::Commit(_)) {
            self.commits.fetch_add(1, Ordering::Relaxed);
        }
        let (memory, clock, delay) = (self.memory.clone(), self.clock, self.delay);
        Answer::Later(Box::pin(async move {
            tokio::time::sleep(delay).await;
            let time = clock.wall();
            let reply = memory.lock().expect("no test thread panicked").call(time, request);
            (time, reply)
        }))
    }
}

fn start_slow(delay: Duration) -> (Handle, JoinHandle<()>, Arc<AtomicUsize>) {
    let clock = Clock::starting_at(WALL);
    let commits = Arc::new(AtomicUsize::new(0));
    let store = Slow { memory: Arc::new(Mutex::new(MemoryStore::new())), clock, delay, commits: commits.clone() };
    let (handle, task) = tidegate_driver::spawn(broker(), store, clock);
    (handle, task, commits)
}

fn queue() -> QueueName {
    QueueName::new("orders").expect("a valid name")
}

fn push(partition: &str, payload: &'static str) -> Command {
    let message = NewMessage { transaction: None, payload: payload.as_bytes().into(), trace: None, producer: None };
    let partition = PartitionName::new(partition).expect("a valid name");
    Command::Push(Push::new([(queue(), partition, message)]))
}

fn pop(wait: Option<Span>) -> Pop {
    let (scope, group) = (PopScope::Queue(queue()), GroupName::queue_mode());
    Pop { scope, group, batch: 10, partitions: None, auto_ack: false, wait, lease: None, start: None }
}

fn call(handle: &Handle, command: Command) -> Call {
    handle.call(TenantId::DEFAULT, command)
}

/// Calls, and says that the answer arrived.
async fn ask(handle: &Handle, command: Command) -> Reply {
    let (reply, receipt) = call(handle, command).await;
    receipt.sent();
    reply
}

fn payloads(reply: &Reply) -> Vec<&[u8]> {
    let Reply::Popped(delivery) = reply else { panic!("not the answer to a pop: {reply:?}") };
    let claims = delivery.iter().flat_map(|delivery: &Delivery| &delivery.claims);
    claims.flat_map(|claim| &claim.messages).map(|message| &message.message.payload[..]).collect()
}

async fn sleep(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

/// Polls a call once: it has to be pending.
async fn assert_parked(call: &mut Pin<&mut Call>) {
    let parked = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_pending())).await;
    assert!(parked);
}

#[tokio::test(start_paused = true)]
async fn a_push_comes_back_from_a_pop() {
    let (handle, _task) = start();
    let pushed = ask(&handle, push("p", "one")).await;
    assert!(
        matches!(&pushed, Reply::Pushed(outcomes) if matches!(outcomes[..], [PushOutcome::Queued(_)])),
        "{pushed:?}"
    );
    assert_eq!(payloads(&ask(&handle, Command::Pop(pop(None))).await), [b"one"]);
    // Leased, so there is nothing for the next.
    assert_eq!(ask(&handle, Command::Pop(pop(None))).await, Reply::Popped(None));
    assert_eq!(handle.counters().await.partitions, 1);
}

#[tokio::test(start_paused = true)]
async fn a_parked_call_wakes_for_a_push_and_ends_at_its_deadline() {
    let (handle, _task) = start();
    let mut parked = pin!(call(&handle, Command::Pop(pop(Some(Span::from_secs(30))))));
    assert_parked(&mut parked).await;
    sleep(10_000).await;
    assert_parked(&mut parked).await;
    ask(&handle, push("p", "one")).await;
    let (reply, receipt) = parked.await;
    receipt.sent();
    assert_eq!(payloads(&reply), [b"one"]);

    let start = tokio::time::Instant::now();
    assert_eq!(ask(&handle, Command::Pop(pop(Some(Span::from_millis(1_500))))).await, Reply::Popped(None));
    let waited = start.elapsed();
    assert!(waited >= Duration::from_millis(1_500) && waited <= Duration::from_millis(1_502), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_left_while_parked_gets_no_lease() {
    let (handle, _task) = start();
    {
        let mut parked = pin!(call(&handle, Command::Pop(pop(Some(Span::from_secs(30))))));
        assert_parked(&mut parked).await;
        sleep(1).await;
    }
    ask(&handle, push("p", "one")).await;
    assert_eq!(payloads(&ask(&handle, Command::Pop(pop(None))).await), [b"one"]);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_nobody_took_gives_its_lease_back() {
    let (handle, _task) = start();
    ask(&handle, push("p", "one")).await;
    // The caller leaves when its reply is there and it has not seen it.
    let unseen = call(&handle, Command::Pop(pop(None)));
    sleep(1).await;
    drop(unseen);
    // The caller saw the reply and could not write it.
    let (reply, receipt) = call(&handle, Command::Pop(pop(None))).await;
    assert_eq!(payloads(&reply), [b"one"]);
    drop(receipt);
    // The caller wrote it.
    let (reply, receipt) = call(&handle, Command::Pop(pop(None))).await;
    assert_eq!(payloads(&reply), [b"one"]);
    receipt.sent();
    assert_eq!(ask(&handle, Command::Pop(pop(None))).await, Reply::Popped(None));
}

#[tokio::test(start_paused = true)]
async fn what_was_committed_on_delivery_is_not_given_back() {
    let (handle, _task) = start();
    ask(&handle, push("p", "one")).await;
    let (reply, receipt) = call(&handle, Command::Pop(Pop { auto_ack: true, ..pop(None) })).await;
    assert_eq!(payloads(&reply), [b"one"]);
    drop(receipt);
    assert_eq!(ask(&handle, Command::Pop(pop(None))).await, Reply::Popped(None));
}

#[tokio::test(start_paused = true)]
async fn what_arrives_together_is_committed_together() {
    let commits = Arc::new(AtomicUsize::new(0));
    let seen = commits.clone();
    let (handle, _task) = start_watched(move |request| {
        if matches!(request, StoreRequest::Commit(_)) {
            seen.fetch_add(1, Ordering::Relaxed);
        }
    });
    ask(&handle, push("p", "first")).await;
    let before = commits.load(Ordering::Relaxed);
    // The task does not run before the first await.
    let calls: Vec<Call> = (0..100).map(|_| call(&handle, push("p", "x"))).collect();
    for call in calls {
        assert!(matches!(call.await.0, Reply::Pushed(_)));
    }
    let commits = commits.load(Ordering::Relaxed) - before;
    assert!((1..=3).contains(&commits), "{commits} commits");
}

#[tokio::test(start_paused = true)]
async fn callers_of_a_slow_store_share_commits() {
    let (handle, _task, commits) = start_slow(Duration::from_millis(20));
    ask(&handle, push("p0", "first")).await;
    let before = commits.load(Ordering::Relaxed);
    let start = tokio::time::Instant::now();
    let partitions = ["p0", "p1", "p2", "p3"];
    let calls: Vec<Call> = (0..400).map(|n| call(&handle, push(partitions[n % 4], "x"))).collect();
    for call in calls {
        let (reply, _) = call.await;
        assert!(matches!(reply, Reply::Pushed(_)), "{reply:?}");
    }
    let commits = commits.load(Ordering::Relaxed) - before;
    assert!((1..=8).contains(&commits), "{commits} commits");
    assert!(start.elapsed() < Duration::from_millis(200), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn inputs_that_never_end_starve_neither_the_store_nor_the_clock() {
    let (handle, _task, _) = start_slow(Duration::from_millis(5));
    ask(&handle, push("p", "one")).await;
    let noise = handle.clone();
    let noise = tokio::spawn(async move {
        loop {
            for _ in 0..300 {
                drop(call(&noise, Command::Probe));
            }
            sleep(1).await;
        }
    });
    assert_eq!(payloads(&ask(&handle, Command::Pop(pop(None))).await), [b"one"]);
    let start = tokio::time::Instant::now();
    assert_eq!(ask(&handle, Command::Pop(pop(Some(Span::from_millis(100))))).await, Reply::Popped(None));
    assert!(start.elapsed() < Duration::from_millis(120), "{:?}", start.elapsed());
    noise.abort();
}

#[tokio::test(start_paused = true)]
async fn a_drain_answers_parked_calls_and_ends_the_task() {
    let released = Arc::new(AtomicUsize::new(0));
    let seen = released.clone();
    let (handle, task) = start_watched(move |request| {
        if matches!(request, StoreRequest::Release(_)) {
            seen.fetch_add(1, Ordering::Relaxed);
        }
    });
    ask(&handle, push("p", "one")).await;
    assert_eq!(payloads(&ask(&handle, Command::Pop(pop(None))).await), [b"one"]);
    let parked = call(&handle, Command::Pop(pop(Some(Span::from_secs(3_600)))));
    sleep(10).await;
    let start = tokio::time::Instant::now();
    handle.drain();
    let late = call(&handle, push("p", "two"));
    assert_eq!(parked.await.0, Reply::Popped(None));
    assert_eq!(late.await.0, Reply::Refused(Rejection::Draining));
    task.await.expect("the task ends in peace");
    assert_eq!(released.load(Ordering::Relaxed), 1);
    assert!(start.elapsed() < Duration::from_secs(1));
    assert_eq!(ask(&handle, push("p", "three")).await, Reply::Refused(Rejection::Draining));
    assert_eq!(handle.counters().await, Default::default());
    handle.drain();
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_commits_that_run() {
    let (handle, task, _) = start_slow(Duration::from_millis(300));
    ask(&handle, push("p", "one")).await;
    let running = call(&handle, push("p", "two"));
    let waiting = call(&handle, push("p", "three"));
    sleep(10).await;
    handle.drain();
    assert!(matches!(running.await.0, Reply::Pushed(_)));
    assert!(matches!(waiting.await.0, Reply::Pushed(_)));
    task.await.expect("the task ends in peace");
}

#[tokio::test(start_paused = true)]
async fn the_task_ends_with_its_last_handle() {
    let (handle, task) = start();
    ask(&handle, push("p", "one")).await;
    let (_, receipt) = call(&handle, Command::Pop(pop(None))).await;
    drop(handle);
    sleep(1_000).await;
    // A receipt still has something to say.
    assert!(!task.is_finished());
    drop(receipt);
    task.await.expect("the task ends in peace");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_fails_leaves_nobody_waiting() {
    let (handle, task) = start_watched(|request| {
        if matches!(request, StoreRequest::Commit(_)) {
            panic!("this test's store fails on purpose");
        }
    });
    let parked = call(&handle, Command::Pop(pop(Some(Span::from_secs(3_600)))));
    let failing = call(&handle, push("p", "one"));
    assert_eq!(failing.await.0, Reply::Refused(Rejection::OutcomeUnknown));
    assert_eq!(parked.await.0, Reply::Refused(Rejection::OutcomeUnknown));
    assert!(task.await.is_err_and(|error| error.is_panic()));
    assert_eq!(ask(&handle, push("p", "two")).await, Reply::Refused(Rejection::Draining));
    assert_eq!(handle.counters().await, Default::default());
}

#[tokio::test(start_paused = true)]
async fn stored_times_are_the_stores_own() {
    let created = Arc::new(Mutex::new(Vec::new()));
    let seen = created.clone();
    let clock = Clock::starting_at(WALL);
    // The store's clock is an hour ahead of the broker's, and then steps back two hours.
    let offset = Arc::new(Mutex::new(Span::from_secs(3_600)));
    let mut memory = MemoryStore::new();
    let recorded = move |now: Timestamp, request: StoreRequest| {
        let reply = memory.call(now, request.clone());
        if let StoreRequest::Commit(commit) = request {
            let times = commit.writes.iter().filter_map(|write| match write {
                tidegate_core::store::Write::Append(segment) => Some(segment.created),
                _ => None,
            });
            seen.lock().expect("no test thread panicked").extend(times);
        }
        reply
    };
    struct Ahead<F>(F, Clock, Arc<Mutex<Span>>);
    impl<F: FnMut(Timestamp, StoreRequest) -> StoreReply + Send + 'static> Store for Ahead<F> {
        fn call(&mut self, request: StoreRequest) -> Answer {
            let time = self.1.wall().plus(*self.2.lock().expect("no test thread panicked"));
            Answer::Now(time, (self.0)(time, request))
        }
    }
    let (handle, _task) = tidegate_driver::spawn(broker(), Ahead(recorded, clock, offset.clone()), clock);
    ask(&handle, push("p", "one")).await;
    let first = created.lock().expect("no test thread panicked")[0];
    assert!(first.since(WALL) >= Span::from_secs(3_600) && first.since(WALL) < Span::from_secs(3_601), "{first:?}");
    *offset.lock().expect("no test thread panicked") = Span::from_secs(-3_600);
    sleep(2_000).await;
    ask(&handle, push("p", "two")).await;
    let second = created.lock().expect("no test thread panicked")[1];
    // It went on at monotonic speed.
    assert!(second.since(first) >= Span::from_secs(2) && second.since(first) < Span::from_secs(3), "{second:?}");
}
