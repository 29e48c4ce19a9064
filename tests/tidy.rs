//! What must stay true of the whole source tree: who may depend on whom, under which licences, with which features, and
//! that the papers say what the code says.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId};
use tidegate_core::options::OPTIONS;

/// Lines in a source file. A longer one is several files.
const MAX_FILE_LINES: usize = 900;
/// Lines in `src/main.rs`: it starts things and nothing else.
const MAX_MAIN_LINES: usize = 80;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What cargo resolved for the machine the tests run on.
fn metadata() -> &'static Metadata {
    static METADATA: OnceLock<Metadata> = OnceLock::new();
    METADATA.get_or_init(|| {
        let version = Command::new("rustc").arg("-vV").output().expect("rustc can be run");
        let version = String::from_utf8(version.stdout).expect("rustc writes UTF-8");
        let host = version.lines().find_map(|line| line.strip_prefix("host: ")).expect("rustc knows its host");
        MetadataCommand::new()
            .manifest_path(root().join("Cargo.toml"))
            .other_options(["--offline".into(), "--filter-platform".into(), host.to_owned()])
            .exec()
            .expect("cargo metadata works without a network")
    })
}

fn package(id: &PackageId) -> &'static Package {
    metadata().packages.iter().find(|package| package.id == *id).expect("every resolved package is described")
}

fn members() -> Vec<&'static Package> {
    metadata().workspace_packages()
}

/// Every file below `folder` of the source tree, with what git ignores left out.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the source tree is readable") {
        let path = entry.expect("the source tree is readable").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with('.') && !name.starts_with("target") && name != "node_modules" {
            files(&path, found);
        } else if path.is_file() {
            found.push(path);
        }
    }
}

fn sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    files(root(), &mut found);
    found.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    found.sort();
    assert!(found.len() > 20, "the source tree was not found");
    found
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Our own crates that each of our crates builds on; tests may use what is in the second list as well.
const ARROWS: &[(&str, &[&str], &[&str])] = &[
    ("tidegate-core", &[], &["tidegate-store-memory"]),
    ("tidegate-store-memory", &["tidegate-core"], &[]),
    ("tidegate-driver", &["tidegate-core"], &["tidegate-store-memory"]),
    ("tidegate-store-postgres", &["tidegate-core", "tidegate-driver"], &[]),
    ("tidegate-transport-http", &["tidegate-core", "tidegate-driver"], &["tidegate-store-memory"]),
    ("tidegate-sim", &["tidegate-core", "tidegate-store-memory"], &["tidegate-driver", "tidegate-transport-http"]),
    ("tidegate", EVERYTHING, &[]),
    ("tidegate-bench", EVERYTHING, &[]),
];

/// What assembles may build on every part.
const EVERYTHING: &[&str] = &[
    "tidegate-core",
    "tidegate-driver",
    "tidegate-sim",
    "tidegate-store-memory",
    "tidegate-store-postgres",
    "tidegate-transport-http",
];

#[test]
fn crates_depend_on_each_other_in_one_direction() {
    let ours: BTreeSet<&str> = members().iter().map(|member| member.name.as_str()).collect();
    let listed: BTreeSet<&str> = ARROWS.iter().map(|(name, ..)| *name).collect();
    assert_eq!(ours, listed, "a new crate needs a row in ARROWS");
    for member in members() {
        let (_, builds_on, tests_use) = ARROWS.iter().find(|(name, ..)| *name == member.name.as_str()).unwrap();
        for dependency in member.dependencies.iter().filter(|dependency| ours.contains(dependency.name.as_str())) {
            let name = dependency.name.as_str();
            let allowed = match dependency.kind {
                // A crate that depends on itself turns its own test kit on.
                DependencyKind::Development => {
                    builds_on.contains(&name) || tests_use.contains(&name) || name == member.name.as_str()
                }
                _ => builds_on.contains(&name),
            };
            assert!(allowed, "{} must not depend on {name}", member.name);
        }
    }
}

/// What a package's code links when it is built by itself: what others of the workspace turn on in a crate that both
/// use (tokens need a random source in one that encryption needs without) is none of its doing.
fn linked_alone(package: &str) -> BTreeSet<String> {
    let tree = ["tree", "--offline", "--package", package, "--edges", "normal", "--prefix", "none", "--format", "{p}"];
    let output = Command::new(env!("CARGO")).args(tree).current_dir(root()).output().expect("cargo can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("cargo writes UTF-8");
    text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn the_core_has_no_runtime_no_io_and_no_random_source() {
    let core = *members().iter().find(|member| member.name.as_str() == "tidegate-core").unwrap();
    let linked = linked_alone("tidegate-core");
    assert!(linked.contains("aes-gcm") && linked.contains("bytes"), "{linked:?}");
    let forbidden = [
        "tokio",
        "hyper",
        "mio",
        "socket2",
        "futures-util",
        "async-trait",
        "getrandom",
        "rand",
        "libc",
        "rustix",
        "sqlx",
        "reqwest",
        "tracing",
        "log",
        "parking_lot",
        "crossbeam",
        "rayon",
        "chrono",
        "jiff",
        "time",
        "serde_json",
    ];
    for name in forbidden {
        assert!(!linked.contains(name), "tidegate-core links {name}");
    }
    // `std` comes back through a dependency's default features, and with it clocks and seeded maps.
    for dependency in core.dependencies.iter().filter(|dependency| dependency.kind == DependencyKind::Normal) {
        let candidates = metadata().packages.iter().filter(|package| package.name.as_str() == dependency.name);
        let defaults = candidates.filter_map(|package| package.features.get("default")).any(|list| !list.is_empty());
        let name = &dependency.name;
        assert!(!(dependency.uses_default_features && defaults), "tidegate-core takes {name} with default features");
        assert!(!dependency.features.iter().any(|feature| feature == "std"), "tidegate-core takes {name} with std");
    }
    let lib = text(&root().join("core/src/lib.rs"));
    assert!(lib.contains("#![no_std]"), "core/src/lib.rs must say #![no_std]");
}

#[test]
fn json_keeps_numbers_and_key_order_as_they_were_sent() {
    // Each of these, turned on by anybody in the build, changes what serde_json does for all.
    let nodes = &metadata().resolve.as_ref().expect("cargo metadata resolves").nodes;
    for node in nodes.iter().filter(|node| package(&node.id).name.as_str() == "serde_json") {
        for feature in ["arbitrary_precision", "preserve_order", "float_roundtrip"] {
            assert!(!node.features.iter().any(|on| on.as_str() == feature), "serde_json's {feature} is on");
        }
    }
}

/// Licences that ask for no more than to be named.
const LICENCES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    // Root certificates, in the official clients only.
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Whether an SPDX expression can be met with `LICENCES`: AND needs both sides, OR one, as do the old slashes.
fn is_allowed(expression: &str) -> bool {
    fn split<'a>(text: &'a str, word: &str) -> Vec<&'a str> {
        let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
        for (at, c) in text.char_indices() {
            depth += i32::from(c == '(') - i32::from(c == ')');
            if depth == 0 && at >= start && text[at..].starts_with(word) {
                parts.push(&text[start..at]);
                start = at + word.len();
            }
        }
        parts.push(&text[start..]);
        parts
    }
    let text = expression.trim();
    let (either, both) = (split(text, " OR "), split(text, " AND "));
    if either.len() > 1 {
        either.into_iter().any(is_allowed)
    } else if both.len() > 1 {
        both.into_iter().all(is_allowed)
    } else if let Some(inner) = text.strip_prefix('(').and_then(|text| text.strip_suffix(')')) {
        is_allowed(inner)
    } else if text.contains('/') {
        text.split('/').any(is_allowed)
    } else {
        LICENCES.contains(&text)
    }
}

#[test]
fn every_licence_is_on_the_list() {
    assert!(is_allowed("(GPL-3.0 OR MIT) AND Unicode-3.0") && is_allowed("Apache-2.0 / GPL-2.0") && is_allowed("MIT"));
    assert!(!is_allowed("GPL-3.0") && !is_allowed("MIT AND GPL-3.0") && !is_allowed("MIT AND (GPL-2.0 OR GPL-3.0)"));
    for package in &metadata().packages {
        let licence = package.license.as_deref().unwrap_or("no licence");
        assert!(is_allowed(licence), "{} {} has {licence}", package.name, package.version);
    }
}

#[test]
fn manifests_take_lints_and_versions_from_the_root() {
    for member in members() {
        let manifest = text(member.manifest_path.as_std_path());
        let name = &member.name;
        assert!(manifest.contains("[lints]\nworkspace = true"), "{name} does not take the workspace's lints");
        if name.as_str() == "tidegate" {
            continue;
        }
        let mut in_dependencies = false;
        for line in manifest.lines().map(str::trim) {
            if line.starts_with('[') {
                in_dependencies = line.ends_with("dependencies]");
            } else if in_dependencies && line.contains('=') && !line.starts_with('#') {
                let own = line.contains("path = \".\"");
                assert!(own || line.contains("workspace = true"), "{name}: `{line}` belongs into the root's table");
            }
        }
    }
}

#[test]
fn source_files_are_short_enough_to_read() {
    for path in sources() {
        let lines = text(&path).lines().count();
        let limit = if path == root().join("src/main.rs") { MAX_MAIN_LINES } else { MAX_FILE_LINES };
        assert!(lines <= limit, "{} has {lines} lines, at most {limit} are allowed", path.display());
    }
}

#[test]
fn the_machine_is_asked_in_one_place() {
    let places = [
        ("SystemTime::now", "src/system.rs"),
        ("env::var", "src/settings/read.rs"),
        ("signal(SignalKind", "src/shutdown.rs"),
        ("std::time::Instant", "nowhere"),
    ];
    let product = ["src", "core/src", "driver/src", "store-memory/src", "transport-http/src"].map(|at| root().join(at));
    for path in sources().iter().filter(|path| product.iter().any(|folder| path.starts_with(folder))) {
        for (what, place) in places {
            let allowed = *path == root().join(place);
            assert!(allowed || !text(path).contains(what), "{} has {what}: it belongs into {place}", path.display());
        }
    }
}

#[test]
fn source_files_begin_with_what_they_are() {
    for path in sources() {
        assert!(text(&path).starts_with("//!"), "{} does not say what lives in it", path.display());
    }
}

#[test]
fn no_file_names_somebodys_machine() {
    // Written so that this file does not contain what it looks for.
    let homes = ["work", "root", "home", "Users"].map(|folder| format!("/{folder}/"));
    let begins_a_path = |before: &str| !before.ends_with(|c: char| c.is_alphanumeric() || "._-})*".contains(c));
    let mut found = Vec::new();
    files(root(), &mut found);
    for path in found {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        for home in &homes {
            let named = text.match_indices(home.as_str()).any(|(at, _)| begins_a_path(&text[..at]));
            assert!(!named, "{} names a path in {home}", path.display());
        }
    }
}

#[test]
fn the_papers_are_there_and_name_every_option() {
    for name in ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "Cargo.lock"] {
        assert!(root().join(name).is_file(), "{name} is missing");
    }
    let readme = text(&root().join("README.md"));
    for option in OPTIONS {
        assert!(readme.contains(&format!("`{}`", option.name)), "README.md does not name the option {}", option.name);
    }
    let architecture = text(&root().join("ARCHITECTURE.md"));
    for member in members().iter().filter(|member| member.name.as_str() != "tidegate") {
        let folder = member.manifest_path.parent().and_then(|folder| folder.file_name()).unwrap_or_default();
        assert!(architecture.contains(&format!("`{folder}")), "ARCHITECTURE.md does not name the crate {folder}");
    }
}
