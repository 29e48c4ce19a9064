//! Runs a command with a private Postgres that ends with it: `TIDEGATE_STORE` tells the command's brokers where it is.
//!
//!     cargo run -p tidegate-store-postgres --features fixture --example with_postgres -- COMMAND ARGUMENTS…

use std::process::{Command, ExitCode};

use tidegate_store_postgres::fixture::Cluster;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let Some(program) = words.next() else {
        eprintln!("with_postgres: expected a command to run");
        return ExitCode::from(2);
    };
    let cluster = Cluster::private(&[]);
    let status = Command::new(&program).args(words).env("TIDEGATE_STORE", cluster.database()).status();
    match status {
        Ok(status) => ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)),
        Err(error) => {
            eprintln!("with_postgres: cannot run {}: {error}", program.display());
            ExitCode::FAILURE
        }
    }
}
