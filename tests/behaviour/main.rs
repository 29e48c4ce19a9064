//! The whole broker under test: real HTTP bytes over an in-memory pipe, a real core and store, and virtual time, so that
//! an hour of leases costs nothing and every bound is exact.
//!
//! One file per topic. A test is an `async fn(World)` named in its file's `behaviour!` list, which runs it over every
//! store. `// check: N` names a line of the wire page's section 32, `// req:` a requirement, `// scn:` a situation.

/// The one list of tests of a file, run over every store. A test that is missing from its list is dead code, which
/// clippy refuses.
macro_rules! behaviour {
    ($($test:ident),+ $(,)?) => {
        mod memory {
            $(
                #[tokio::test(start_paused = true)]
                async fn $test() {
                    super::$test($crate::world::World::start($crate::world::Backend::Memory).await).await;
                }
            )+
        }

        mod postgres {
            $(
                #[tokio::test(start_paused = true)]
                async fn $test() {
                    super::$test($crate::world::World::start($crate::world::Backend::Postgres).await).await;
                }
            )+
        }
    };
}

mod ack;
mod auth;
mod bad_input;
mod chaos;
mod configure;
mod dead_letters;
mod encryption;
mod faults;
mod groups;
mod http;
mod lease;
mod logs;
mod messages;
mod names;
mod openapi;
mod operations;
mod pop;
mod push;
mod retention;
mod retries;
mod scenarios;
mod subscriptions;
mod tenants;
mod transaction;
mod visibility;
mod window;
mod world;
