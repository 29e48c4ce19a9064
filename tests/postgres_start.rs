//! What the built binary says when it cannot start on a database: one line on standard error that says what to do, exit
//! status 1, and never a password.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use tidegate_store_postgres::fixture::Cluster;

#[path = "common/binary.rs"]
mod binary;

/// In every URL of these tests; must never be shown.
const PASSWORD: &str = "hunter2-is-secret";

/// A server that asks for passwords over TCP, and knows a role `plain` that may create nothing.
fn server() -> &'static Cluster {
    static SERVER: OnceLock<Cluster> = OnceLock::new();
    SERVER.get_or_init(|| {
        // Not below the build's folder: Postgres is another user when root runs the tests.
        let rules = std::env::temp_dir().join(format!("tidegate-hba-{}", std::process::id()));
        fs::write(&rules, "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n")
            .expect("a file can be made");
        fs::set_permissions(&rules, fs::Permissions::from_mode(0o644)).expect("it is ours");
        let cluster = Cluster::private(&[&format!("hba_file={}", rules.display())]);
        // It was read at the start.
        let _ = fs::remove_file(&rules);
        cluster.sql("postgres", &format!("ALTER ROLE postgres PASSWORD '{PASSWORD}'"));
        cluster.sql("postgres", &format!("CREATE ROLE plain LOGIN PASSWORD '{PASSWORD}'"));
        cluster
    })
}

/// A new database and its name.
fn database() -> String {
    let url = server().database();
    url.split(['/', '?']).nth(3).expect("a URL names its database").to_owned()
}

/// A URL over TCP.
fn url(user: &str, password: &str, database: &str) -> String {
    format!("postgres://{user}:{password}@127.0.0.1:{}/{database}", server().port())
}

fn serve(arguments: &[&str], environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["serve", "--listen", "127.0.0.1:0"]).args(arguments);
    command.env_clear().envs(environment.iter().copied()).stdin(Stdio::null());
    command
}

/// The one line with which a start is refused. It must have each of `words`.
fn refusal(arguments: &[&str], environment: &[(&str, &str)], words: &[&str]) -> String {
    let output = serve(arguments, environment).output().expect("the built binary starts");
    let errors = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(output.stdout.is_empty());
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(!errors.contains("panicked") && !errors.contains(PASSWORD), "{errors}");
    for word in words {
        assert!(errors.contains(word), "no `{word}` in: {errors}");
    }
    errors
}

#[test]
fn wrong_credentials() {
    let (database, wrong) = (database(), format!("{PASSWORD}-wrong"));
    refusal(&["--store", &url("plain", &wrong, &database)], &[], &["plain", "password authentication failed"]);
    refusal(&["--store", &url("nobody", &wrong, &database)], &[], &["nobody", "password authentication failed"]);
}

#[test]
fn a_missing_database() {
    let url = url("postgres", PASSWORD, "nowhere");
    refusal(&["--store", &url], &[], &["\"nowhere\" does not exist"]);
}

#[test]
fn no_server_at_the_address() {
    let url = format!("postgres://plain:{PASSWORD}@no-such-host.invalid/postgres");
    refusal(&["--store", &url], &[], &["no-such-host.invalid"]);
}

#[test]
fn a_server_that_nobody_started_yet_is_waited_for() {
    let cluster = Cluster::private(&[]);
    let url = format!("postgres://postgres:{PASSWORD}@127.0.0.1:{}/postgres", cluster.port());
    cluster.stop_fast();
    let starting = thread::spawn(move || binary::Broker::start_with(&["--store", &url], &[]));
    thread::sleep(Duration::from_secs(2));
    assert!(!starting.is_finished());
    cluster.start();
    let broker = starting.join().expect("it starts once the server is there");
    let log = broker.log();
    assert_eq!(log.matches("waiting for Postgres, 30 s at most").count(), 1, "said once: {log}");
    assert!(log.contains(&format!("port {}", cluster.port())) && !log.contains(PASSWORD), "{log}");
    drop(broker);
    // But not for ever.
    let url = format!("postgres://plain:{PASSWORD}@127.0.0.1:1/postgres");
    let start = Instant::now();
    let output = serve(&["--store", &url, "--log-format", "text"], &[]).output().expect("the built binary starts");
    let errors = String::from_utf8(output.stderr).expect("text");
    assert!(start.elapsed() >= Duration::from_secs(30), "{errors}");
    assert_eq!((output.status.code(), errors.lines().count()), (Some(1), 2), "{errors}");
    let last = errors.lines().last().unwrap_or_default();
    assert!(last.contains("cannot connect to Postgres at 127.0.0.1, port 1") && !errors.contains(PASSWORD), "{errors}");
}

#[test]
fn no_right_to_create_the_schema() {
    let url = url("plain", PASSWORD, &database());
    refusal(&["--store", &url], &[], &["\"queen\"", "permission denied", "right"]);
}

#[test]
fn no_rights_on_a_schema_that_another_role_made() {
    let database = database();
    let owner = url("postgres", PASSWORD, &database);
    drop(binary::Broker::start_with(&["--store", &owner], &[]));
    refusal(&["--store", &url("plain", PASSWORD, &database)], &[], &["\"queen\"", "permission denied", "right"]);
}

#[test]
fn a_schema_that_something_else_made() {
    for foreign in ["CREATE TABLE queen.queues (id int)", "CREATE TABLE queen.letters (id int)"] {
        let database = database();
        server().sql(&database, "CREATE SCHEMA queen");
        server().sql(&database, foreign);
        refusal(&["--store", &url("postgres", PASSWORD, &database)], &[], &["\"queen\"", "made by something else"]);
        let left = server().sql(&database, "SELECT count(*) FROM pg_class WHERE relnamespace = 'queen'::regnamespace");
        assert_eq!(left, "1\n", "nothing was added");
    }
}

#[test]
fn a_schema_of_a_newer_version() {
    let database = database();
    let url = url("postgres", PASSWORD, &database);
    drop(binary::Broker::start_with(&["--store", &url], &[]));
    server().sql(
        &database,
        "INSERT INTO queen.schema_migrations SELECT 9000, description, installed_on, success, checksum, execution_time \
         FROM queen.schema_migrations ORDER BY version DESC LIMIT 1",
    );
    refusal(&["--store", &url], &[], &["9000", "newer"]);
}

#[test]
fn urls_that_do_not_parse() {
    for url in [
        format!("postgres://plain:{PASSWORD}@127.0.0.1:port/db"),
        format!("postgres://plain:{PASSWORD}@127.0.0.1:99999/db"),
        format!("postgres://plain:{PASSWORD}@[::1/db"),
        format!("postgres://plain:{PASSWORD}@/db?sslmode=perhaps"),
        format!("mysql://plain:{PASSWORD}@127.0.0.1/db"),
    ] {
        let said = refusal(&["--store", &url], &[], &[]);
        assert!(said.contains("postgres://") || said.contains("sslmode"), "{said}");
        // The variable is read like the flag.
        refusal(&[], &[("TIDEGATE_STORE", &url)], &[]);
    }
}

#[test]
fn variables_fill_what_the_url_leaves_out() {
    let (database, port) = (database(), server().port().to_string());
    let all = [
        ("PG_HOST", "127.0.0.1"),
        ("PG_PORT", port.as_str()),
        ("PG_USER", "postgres"),
        ("PG_PASSWORD", PASSWORD),
        ("PG_DATABASE", database.as_str()),
    ];
    let broker = binary::Broker::start_with(&["--store", "postgres://"], &all);
    assert!(!broker.log().contains(PASSWORD), "{}", broker.log());
    drop(broker);
    let wrong = [all[0], all[1], ("PG_USER", "nobody"), all[3], all[4]];
    refusal(&["--store", "postgres://"], &wrong, &["nobody", "password authentication failed"]);
    // What the URL says goes first.
    drop(binary::Broker::start_with(&["--store", &url("postgres", PASSWORD, &database)], &[("PG_USER", "nobody")]));
    refusal(&["--store", "postgres://"], &[("PG_PORT", "many")], &["PG_PORT"]);
    refusal(&["--store", "postgres://"], &[("DB_POOL_SIZE", "many")], &["DB_POOL_SIZE"]);
}

#[test]
fn ten_brokers_start_at_once_on_an_empty_database() {
    let url = url("postgres", PASSWORD, &database());
    let start = |_| {
        let url = url.clone();
        thread::spawn(move || binary::Broker::start_with(&["--store", &url], &[]))
    };
    let starting: Vec<_> = (0..10).map(start).collect();
    for broker in starting {
        let broker = broker.join().expect("each of them starts");
        assert!(!broker.log().contains(PASSWORD) && !broker.log().contains("panicked"), "{}", broker.log());
    }
}

/// A certificate authority of its own, and a server that has a certificate of it for `localhost` alone.
fn server_with_tls() -> (Cluster, std::path::PathBuf) {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    let folder = std::env::temp_dir().join(format!("tidegate-tls-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder can be made");
    let authority_key = KeyPair::generate().expect("a key");
    let mut authority = CertificateParams::new(Vec::new()).expect("parameters");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = authority.self_signed(&authority_key).expect("a certificate");
    let key = KeyPair::generate().expect("a key");
    let issuer = Issuer::new(authority, authority_key);
    let certificate = CertificateParams::new(vec!["localhost".to_owned()])
        .expect("parameters")
        .signed_by(&key, &issuer)
        .expect("a certificate");
    for (name, text) in [("root.pem", root.pem()), ("server.pem", certificate.pem()), ("key.pem", key.serialize_pem())]
    {
        fs::write(folder.join(name), text).expect("a file can be written");
    }
    let key = folder.join("key.pem");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("it is ours");
    // When root runs the tests, Postgres is another user, and wants the key to be its own.
    let _ = Command::new("chown").arg("postgres").arg(&key).stderr(Stdio::null()).status();
    let cluster = Cluster::private(&[
        "ssl=on",
        &format!("ssl_cert_file={}", folder.join("server.pem").display()),
        &format!("ssl_key_file={}", key.display()),
    ]);
    (cluster, folder)
}

#[test]
fn tls_is_spoken_and_its_certificate_checked_as_the_url_says() {
    let (cluster, folder) = server_with_tls();
    let root = folder.join("root.pem");
    let port = cluster.port();
    let url = |host: &str, rest: &str| format!("postgres://postgres@{host}:{port}/postgres?sslmode={rest}");
    let checked = format!("verify-full&sslrootcert={}", root.display());
    for rest in ["require", &checked] {
        drop(binary::Broker::start_with(&["--store", &url("localhost", rest)], &[]));
    }
    let broker = binary::Broker::start_with(&["--store", &url("localhost", &checked)], &[]);
    let plain = cluster.sql(
        "postgres",
        "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE NOT ssl AND application_name LIKE 'tidegate%'",
    );
    assert_eq!(plain.trim(), "0", "every connection is encrypted");
    drop(broker);
    // Another name than the certificate's, and an authority that nobody told of.
    refusal(&["--store", &url("127.0.0.1", &checked)], &[], &["cannot connect to Postgres"]);
    refusal(&["--store", &url("localhost", "verify-full")], &[], &["cannot connect to Postgres"]);
    let _ = fs::remove_dir_all(folder);
}
