//! Tells the program which compiler built it: a figure without it cannot be compared.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output();
    let version = version.ok().and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default();
    let version = if version.trim().is_empty() { "rustc of unknown version" } else { version.trim() };
    println!("cargo:rustc-env=TIDEGATE_BENCH_RUSTC={version}");
}
