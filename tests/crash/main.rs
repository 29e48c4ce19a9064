//! Brokers, Postgres and their connections die at random moments while clients work; nothing that a client was told may
//! turn out untrue.

mod brokers;
mod check;
mod faults;
mod history;
mod http;
#[cfg(feature = "plants")]
mod plants;
mod proxy;
mod random;
mod recorder;
mod run;
mod session;
mod situations;
mod store;
mod workload;

/// The harness itself, without faults and without a database: what a sound broker does is accepted.
#[test]
fn a_run_without_faults_is_accepted() {
    let mut run = run::Run::new(run::seed());
    run.add_broker(brokers::Broker::start("memory", true));
    run.start_clients();
    run.until_answered(2_000);
    run.finish();
}

/// The harness must find what is wrong: a store in memory forgets everything when its broker is killed.
#[test]
fn a_broker_that_forgets_is_found() {
    let mut run = run::Run::new(run::seed());
    run.add_broker(brokers::Broker::start("memory", true));
    run.start_clients();
    run.until_answered(300);
    run.brokers[0].kill();
    run.brokers[0].resume();
    run.until_answered(300);
    let promises: std::collections::BTreeSet<_> = run.verdict().into_iter().map(|broken| broken.promise).collect();
    run.summary();
    assert!(promises.contains("delivery"), "{promises:?}");
}

/// req: OPT-25
#[test]
fn one_broker_keeps_its_word_through_kills_and_cuts() {
    let mut store = store::Store::start();
    let mut run = run::Run::new(run::seed());
    run.add_broker(brokers::Broker::start(&store.url(), true));
    run.start_clients();
    faults::storm(&mut run, &store, faults::ONE, faults::kills(50));
    run.finish();
}

/// req: OPT-25
#[test]
fn three_brokers_on_one_database_keep_their_word_through_kills_cuts_and_freezes() {
    let mut store = store::Store::start();
    let mut run = run::Run::new(run::seed());
    for _ in 0..3 {
        run.add_broker(brokers::Broker::start(&store.url(), false));
    }
    run.start_clients();
    faults::storm(&mut run, &store, faults::SEVERAL, faults::kills(50));
    run.finish();
}
