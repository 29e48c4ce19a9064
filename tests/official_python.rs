//! Queen's official Python client, unchanged, against the built broker: runs `tests/official_python/cases.py`.
//!
//! The client is installed from PyPI into an environment of its own under the target folder, once.

#[path = "common/binary.rs"]
mod binary;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use binary::{Broker, Store};

const CLIENT: &str = "queen-mq==1.0.6";

#[test]
fn the_python_client_finds_everything_it_needs() {
    let python = environment();
    // One after the other: they share the client's environment.
    for store in [Store::Memory, Store::Postgres] {
        finds_everything(&python, &Broker::over(store));
    }
}

fn finds_everything(python: &Path, broker: &Broker) {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/official_python/cases.py");
    let output = Command::new(python).arg(cases).arg(broker.url()).output().expect("python starts");
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}");
}

/// The interpreter of a virtual environment that holds the client.
fn environment() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(CLIENT.replace("==", "-"));
    let python = folder.join("bin/python");
    let complete = folder.join("complete");
    if !complete.exists() {
        let _ = fs::remove_dir_all(&folder);
        run(
            Command::new("python3").args(["-m", "venv"]).arg(&folder),
            "install Python 3.9 or newer with its venv module (Debian: apt-get install python3 python3-venv)",
        );
        run(
            Command::new(&python).args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", CLIENT]),
            "make PyPI reachable for pip",
        );
        fs::write(complete, "").expect("the target folder is writable");
    }
    python
}

fn run(command: &mut Command, remedy: &str) {
    match command.output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => panic!("{command:?} failed; {remedy}:\n{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => panic!("{command:?} could not be run ({error}); {remedy}"),
    }
}
