//! `tidegate-bench`: how fast and how small the broker is. Figures are of the machine they are taken on, so each run
//! prints it.

mod broker;
mod drive;
mod forward;
mod http;
mod load;
mod machine;
mod memory;
mod options;
mod payload;
mod postgres;
mod pump;
mod report;
mod server;
mod shapes;
mod soak;
mod speed;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The product's allocator: what is measured here is what `tidegate serve` does.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What every part of this program fails with: a text for a person.
type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(Parser)]
#[command(
    name = "tidegate-bench",
    version,
    about = "Measures Tidegate: the core alone, HTTP beside an empty handler, forwarding"
)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Core(speed::Arguments),
    Http(http::Arguments),
    Forward(forward::Arguments),
    Options(options::Arguments),
    Postgres(postgres::Arguments),
    Shapes(shapes::Arguments),
    Soak(soak::Arguments),
    #[command(hide = true)]
    Load(load::Arguments),
    #[command(hide = true)]
    Drive(drive::Arguments),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().what {
        What::Core(arguments) if arguments.measures_memory() => memory::run(&arguments),
        What::Core(arguments) => speed::run(&arguments),
        What::Http(arguments) => http::run(&arguments),
        What::Forward(arguments) => forward::run(&arguments),
        What::Options(arguments) => options::run(&arguments),
        What::Load(arguments) => load::run(&arguments),
        What::Postgres(arguments) => postgres::run(&arguments),
        What::Shapes(arguments) => shapes::run(&arguments),
        What::Soak(arguments) => soak::run(&arguments),
        What::Drive(arguments) => drive::run(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            report::failure(&failure.to_string());
            ExitCode::FAILURE
        }
    }
}
