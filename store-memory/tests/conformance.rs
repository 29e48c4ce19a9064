//! The port's conformance suite over the memory store.

use tidegate_core::testkit::conformance::PROMISES;
use tidegate_store_memory::MemoryStore;

#[test]
fn keeps_every_promise_of_the_port() {
    let broken: Vec<&str> = PROMISES
        .iter()
        .filter(|promise| std::panic::catch_unwind(|| (promise.check)(&mut MemoryStore::new())).is_err())
        .map(|promise| promise.name)
        .collect();
    assert!(broken.is_empty(), "broken promises: {broken:#?}");
}
