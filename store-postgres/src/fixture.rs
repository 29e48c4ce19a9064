//! A Postgres server for tests that nobody has to set up: made in the temporary folder when a test first needs it, gone
//! with the test process, however that ends.
//!
//! [`Cluster::shared`] is for tests that want a database; [`Cluster::private`] for those that kill the server. Both are
//! blocking and panic when something is wrong: the message is what a person at a terminal needs to read.
//!
//! Postgres refuses to run as root, so that a test run by root starts it as the user `postgres`, who then owns the folder.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use rustix::process::{Pid, Signal, geteuid, kill_process, test_kill_process};

/// Names an existing server to use instead of a shared one of our own; its role must be allowed to create databases.
/// What is created there begins with `tidegate_test_` and stays.
pub const EXISTING_SERVER: &str = "TIDEGATE_TEST_POSTGRES";

/// Folders are called this, the id of the test process, and a number.
const FOLDER: &str = "tidegate-pg-";
/// How long a server may take to be ready or to be gone. Generous: recovery on a busy machine takes seconds.
const PATIENCE: Duration = Duration::from_secs(60);
const GLANCE: Duration = Duration::from_millis(5);
/// Where no system takes the ports of outgoing connections from. Else whoever keeps trying to reach a server that is
/// down would one day be connected to itself, and the server could not come back.
const PORTS: std::ops::Range<u16> = 15_000..32_000;

/// A Postgres server: ours, or an existing one.
pub struct Cluster {
    home: Home,
}

enum Home {
    Own(Own),
    Existing { url: String },
}

struct Own {
    binaries: PathBuf,
    account: Option<Account>,
    folder: PathBuf,
    /// The TCP port on 127.0.0.1 when there is one, and part of the socket's name in any case.
    port: u16,
    arguments: Vec<String>,
    server: Mutex<Option<Child>>,
    watchdog: Mutex<Child>,
}

/// The user that a test run by root starts the server as.
#[derive(Clone, Copy)]
struct Account {
    user: u32,
    group: u32,
}

impl Cluster {
    /// The server that the tests of one process share: a Unix socket only, and nothing is ever synced to the disk.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Cluster> = OnceLock::new();
        SHARED.get_or_init(|| match std::env::var(EXISTING_SERVER) {
            Ok(url) if !url.is_empty() => Self { home: Home::Existing { url } },
            _ => Self::own(false, &["fsync=off", "full_page_writes=off", "synchronous_commit=off"]),
        })
    }

    /// A server of the caller's own with a durable data folder, on a TCP port and a Unix socket, to be killed at will.
    /// `settings` are more `name=value`s of its configuration. It goes when this value is dropped.
    pub fn private(settings: &[&str]) -> Self {
        Self::own(true, settings)
    }

    fn own(tcp: bool, settings: &[&str]) -> Self {
        sweep();
        let binaries = binaries();
        let account = account();
        let folder = make_folder(account);
        let data = folder.join("data");
        let mut initdb = as_account(&binaries, "initdb", account);
        initdb.args(["--no-sync", "--locale=C", "--encoding=UTF8", "-A", "trust", "-U", "postgres", "-D"]).arg(&data);
        run(initdb);

        let port = if tcp { free_port() } else { 5432 };
        let mut arguments = vec!["-D".to_owned(), data.display().to_string()];
        let own = [
            format!("port={port}"),
            format!("listen_addresses={}", if tcp { "127.0.0.1" } else { "" }),
            format!("unix_socket_directories={}", folder.display()),
            "max_connections=400".to_owned(),
            // In the folder rather than in /dev/shm, where a killed server would leave it.
            "dynamic_shared_memory_type=mmap".to_owned(),
            "log_timezone=UTC".to_owned(),
        ];
        for setting in own.into_iter().chain(settings.iter().map(|&setting| setting.to_owned())) {
            arguments.extend(["-c".to_owned(), setting]);
        }
        let watchdog = Mutex::new(watchdog(&folder));
        let own = Own { binaries, account, folder, port, arguments, server: Mutex::new(None), watchdog };
        own.start();
        Self { home: Home::Own(own) }
    }

    /// Creates an empty database and returns its URL: over the Unix socket where there is a server of our own.
    pub fn database(&self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let mut name = format!("tidegate_test_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        if matches!(self.home, Home::Existing { .. }) {
            // Databases of earlier runs are still there, perhaps of a process with the same id.
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let _ = write!(name, "_{}", now.as_millis());
        }
        self.sql("postgres", &format!("CREATE DATABASE {name}"));
        self.url(&name)
    }

    /// The URL of a database that need not exist, with the role that owns the server.
    pub fn url(&self, database: &str) -> String {
        match &self.home {
            Home::Own(own) => {
                let folder = own.folder.display();
                format!("postgres://postgres@localhost:{}/{database}?host={folder}", own.port)
            }
            Home::Existing { url } => with_database(url, database),
        }
    }

    /// The port on 127.0.0.1 of a private server.
    pub fn port(&self) -> u16 {
        self.mine().port
    }

    /// Runs SQL through `psql` in the named database and returns what it prints: rows as lines, columns with `|`.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        let mut psql = match &self.home {
            Home::Own(own) => Command::new(own.binaries.join("psql")),
            Home::Existing { .. } => Command::new(search().map_or("psql".into(), |folder| folder.join("psql"))),
        };
        psql.args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-c", sql, "-d"]).arg(self.url(database));
        run(psql)
    }

    /// What the server has written to its log so far.
    pub fn log(&self) -> String {
        self.mine().log()
    }

    /// SIGKILL to every process of the server at once: what a power cut or the kernel's out-of-memory killer does.
    pub fn kill(&self) {
        self.mine().kill();
    }

    /// Ends the server in good order: open transactions are rolled back, what was committed is written out.
    pub fn stop_fast(&self) {
        self.mine().stop(Signal::INT);
    }

    /// Starts a server that was killed or stopped, on the same port, and waits until it accepts connections.
    pub fn start(&self) {
        self.mine().start();
    }

    fn mine(&self) -> &Own {
        match &self.home {
            Home::Own(own) => own,
            Home::Existing { .. } => panic!("the server of {EXISTING_SERVER} is not ours to start, stop or look into"),
        }
    }
}

impl Own {
    fn start(&self) {
        let mut server = lock(&self.server);
        assert!(server.is_none(), "the server runs already");
        let log = File::options().create(true).append(true).open(self.log_path()).expect("our folder is writable");
        let mut command = as_account(&self.binaries, "postgres", self.account);
        command.args(&self.arguments).env("TZ", "UTC").stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a file handle can be copied")).stderr(log);
        let mut child = command.spawn().expect("postgres starts");
        self.tell_watchdog(child.id());
        let deadline = Deadline::new();
        while !self.ready(child.id()) {
            let ended = child.try_wait().expect("the server is our child");
            if ended.is_some() || !deadline.wait() {
                let _ = child.kill();
                panic!("Postgres did not start ({ended:?}); its log:\n{}", self.log());
            }
        }
        *server = Some(child);
    }

    /// The server says in its lock file how far it is. One that was killed leaves the file behind: hence the id.
    fn ready(&self, id: u32) -> bool {
        let lock = fs::read_to_string(self.folder.join("data/postmaster.pid")).unwrap_or_default();
        let mut lines = lock.lines();
        lines.next() == Some(id.to_string().as_str()) && lines.nth(6).map(str::trim_end) == Some("ready")
    }

    fn kill(&self) {
        let Some(mut server) = lock(&self.server).take() else { return };
        let id = Pid::from_child(&server);
        // Stopped first: it would answer the death of its children by starting new ones.
        let _ = kill_process(id, Signal::STOP);
        let children = children(server.id());
        for &child in &children {
            let _ = kill_process(child, Signal::KILL);
        }
        let _ = kill_process(id, Signal::KILL);
        let _ = server.wait();
        let deadline = Deadline::new();
        while children.iter().any(|&child| is_alive(child)) {
            assert!(deadline.wait(), "a process of the killed server does not end");
        }
    }

    fn stop(&self, signal: Signal) -> Option<ExitStatus> {
        let mut server = lock(&self.server).take()?;
        let _ = kill_process(Pid::from_child(&server), signal);
        let deadline = Deadline::new();
        loop {
            if let Some(status) = server.try_wait().expect("the server is our child") {
                return Some(status);
            }
            if !deadline.wait() {
                let _ = server.kill();
                return server.wait().ok();
            }
        }
    }

    fn tell_watchdog(&self, server: u32) {
        let mut watchdog = lock(&self.watchdog);
        let pipe = watchdog.stdin.as_mut().expect("the watchdog is told through a pipe");
        writeln!(pipe, "{server}").expect("the watchdog listens");
    }

    fn log_path(&self) -> PathBuf {
        self.folder.join("log")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if thread::panicking() {
            let log = self.log();
            let tail = log.lines().rev().take(30).collect::<Vec<_>>();
            eprintln!("the end of Postgres' log:\n{}", tail.into_iter().rev().collect::<Vec<_>>().join("\n"));
        }
        let _ = self.stop(Signal::QUIT);
        // The end of the pipe sends the watchdog, which removes the folder.
        let mut watchdog = lock(&self.watchdog);
        drop(watchdog.stdin.take());
        let _ = watchdog.wait();
    }
}

/// A process that outlives the test process by a moment: it is told the server's id at each start, and when the pipe is closed, by
/// whatever end the test process came to, it ends the server and removes the folder.
fn watchdog(folder: &Path) -> Child {
    const SCRIPT: &str = r#"
        while read -r id; do server=$id; done
        [ -z "$server" ] || [ "$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null)" != "$server" ] || {
            kill -QUIT "$server" 2>/dev/null
            tries=100
            while [ -e "$1/data/postmaster.pid" ] && [ $tries -gt 0 ]; do sleep 0.1; tries=$((tries - 1)); done
        }
        rm -rf "$1""#;
    let mut command = Command::new("/bin/sh");
    command.args(["-c", SCRIPT, "tidegate-pg-watchdog"]).arg(folder).current_dir("/");
    // Interrupts of a terminal go to whole groups, and the watchdog must survive them.
    command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("/bin/sh starts")
}

/// Removes what test processes left whose watchdogs were killed as well.
fn sweep() {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(id) = name.strip_prefix(FOLDER).and_then(|rest| rest.split('-').next()) else { continue };
        let Some(maker) = id.parse().ok().and_then(Pid::from_raw) else { continue };
        if is_alive(maker) {
            continue;
        }
        let lock = fs::read_to_string(entry.path().join("data/postmaster.pid")).unwrap_or_default();
        let server = lock.lines().next().and_then(|id| id.parse().ok()).and_then(Pid::from_raw);
        // Ids are used again: only a process that was started with this folder is the server.
        if let Some(server) = server.filter(|&server| command_line(server).contains(&name)) {
            let _ = kill_process(server, Signal::QUIT);
            let deadline = Deadline::new();
            while is_alive(server) && deadline.wait() {}
        }
        // It may be somebody else's, or another process is at it.
        let _ = fs::remove_dir_all(entry.path());
    }
}

fn make_folder(account: Option<Account>) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("{FOLDER}{}-{number}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    let made = fs::DirBuilder::new().mode(0o700).create(&folder);
    made.unwrap_or_else(|error| panic!("cannot make {}: {error}", folder.display()));
    if let Some(account) = account {
        chown(&folder, Some(account.user), Some(account.group)).expect("root may give folders away");
    }
    folder
}

/// Where the server's programs are. Debian keeps them out of the search path.
fn binaries() -> PathBuf {
    search().expect("these tests need a Postgres server's programs: install `postgresql` (Debian and Ubuntu)")
}

fn search() -> Option<PathBuf> {
    let has_server = |folder: &PathBuf| folder.join("initdb").is_file() && folder.join("postgres").is_file();
    let version = |folder: &PathBuf| folder.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
    let mut versions: Vec<PathBuf> =
        fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    versions.sort_by_key(version);
    let debian = versions.into_iter().rev().map(|folder| folder.join("bin")).find(has_server);
    debian.or_else(|| {
        let output = Command::new("pg_config").arg("--bindir").output().ok()?;
        Some(PathBuf::from(String::from_utf8(output.stdout).ok()?.trim())).filter(has_server)
    })
}

fn account() -> Option<Account> {
    if !geteuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").expect("root can read /etc/passwd");
    let find = |name: &str| {
        let fields: Vec<&str> = users.lines().map(|line| line.split(':').collect()).find(|f: &Vec<_>| f[0] == name)?;
        Some(Account { user: fields.get(2)?.parse().ok()?, group: fields.get(3)?.parse().ok()? })
    };
    let found = find("postgres").or_else(|| find("nobody"));
    Some(found.expect("Postgres does not run as root: make a user `postgres`"))
}

/// A server's program, run by whom Postgres accepts, from a folder that this user may enter.
fn as_account(binaries: &Path, program: &str, account: Option<Account>) -> Command {
    let mut command = Command::new(binaries.join(program));
    command.current_dir("/");
    if let Some(account) = account {
        command.uid(account.user).gid(account.group);
    }
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PG")) {
        command.env_remove(name);
    }
    command
}

/// Runs a program to its end and returns what it printed.
fn run(mut command: Command) -> String {
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{}: {error}", command.get_program().display()));
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let (out, errors) = (text(output.stdout), text(output.stderr));
    assert!(output.status.success(), "{} failed: {out}{errors}", command.get_program().display());
    out
}

/// A TCP port on 127.0.0.1 that is free now, and that no outgoing connection will be given.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().subsec_nanos();
    let start = (now / 1_000) ^ std::process::id().wrapping_mul(7_919);
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        assert!(step < 10_000, "no free port");
        let span = u32::from(PORTS.end - PORTS.start);
        let port = PORTS.start + (start.wrapping_add(step.wrapping_mul(13)) % span) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// The same URL with another database.
fn with_database(url: &str, database: &str) -> String {
    let (address, query) = url.split_once('?').map_or((url, None), |(address, query)| (address, Some(query)));
    let host = address.find("://").map_or(0, |at| at + 3);
    let end = address[host..].find('/').map_or(address.len(), |at| host + at);
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    format!("{}/{database}{query}", &address[..end])
}

fn children(parent: u32) -> Vec<Pid> {
    let output = Command::new("ps").args(["-A", "-o", "ppid=,pid="]).output();
    let listed = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let from_ps = listed.lines().filter_map(|line| {
        let mut fields = line.split_whitespace();
        (fields.next()? == parent.to_string()).then(|| fields.next()?.parse().ok())?
    });
    let from_proc = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| {
        let id = entry.file_name().to_str()?.parse::<i32>().ok()?;
        (stat(id)?.1 == parent.to_string()).then_some(id)
    });
    let ids: Vec<i32> = if Path::new("/proc/self/stat").exists() { from_proc.collect() } else { from_ps.collect() };
    ids.into_iter().filter_map(Pid::from_raw).collect()
}

/// State and parent of a process, where there is a `/proc`. They follow the name, which may hold anything.
fn stat(id: i32) -> Option<(String, String)> {
    let line = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let mut fields = line[line.rfind(')')? + 1..].split_whitespace().map(str::to_owned);
    Some((fields.next()?, fields.next()?))
}

/// Whether a process runs. One that has ended but was not asked about by its parent does not.
fn is_alive(id: Pid) -> bool {
    let exists = !matches!(test_kill_process(id), Err(rustix::io::Errno::SRCH));
    exists && stat(id.as_raw_pid()).is_none_or(|(state, _)| state != "Z")
}

fn command_line(id: Pid) -> String {
    let proc = fs::read(format!("/proc/{}/cmdline", id.as_raw_pid()));
    let line = proc.or_else(|_| {
        Command::new("ps")
            .args(["-o", "args=", "-p", &id.as_raw_pid().to_string()])
            .output()
            .map(|output| output.stdout)
    });
    String::from_utf8_lossy(&line.unwrap_or_default()).into_owned()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A test that failed with the lock taken must not keep the server from being ended.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The end of a wait, counted in glances.
struct Deadline(AtomicU32);

impl Deadline {
    fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Waits a moment; false when the time is up.
    fn wait(&self) -> bool {
        thread::sleep(GLANCE);
        u128::from(self.0.fetch_add(1, Ordering::Relaxed)) < PATIENCE.as_millis() / GLANCE.as_millis()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_there_when_it_is_asked_for() {
        let cluster = Cluster::shared();
        let (one, other) = (cluster.database(), cluster.database());
        assert_ne!(one, other);
    }

    #[test]
    fn what_was_committed_survives_a_kill() {
        let cluster = Cluster::private(&["max_connections=20"]);
        cluster.sql("postgres", "CREATE TABLE kept (n int)");
        for n in 0..5 {
            cluster.sql("postgres", &format!("INSERT INTO kept VALUES ({n})"));
            cluster.kill();
            cluster.start();
        }
        cluster.stop_fast();
        cluster.start();
        assert_eq!(cluster.sql("postgres", "SELECT count(*), current_setting('max_connections') FROM kept"), "5|20\n");
    }

    #[test]
    fn a_dropped_server_leaves_nothing() {
        let cluster = Cluster::private(&[]);
        let folder = cluster.mine().folder.clone();
        assert!(folder.exists());
        drop(cluster);
        assert!(!folder.exists());
    }

    #[test]
    fn a_url_keeps_all_but_its_database() {
        for (url, expected) in [
            ("postgres://u:p@h:5/old?sslmode=disable", "postgres://u:p@h:5/new?sslmode=disable"),
            ("postgres://h", "postgres://h/new"),
            ("postgres://u@h/?host=/tmp/x", "postgres://u@h/new?host=/tmp/x"),
        ] {
            assert_eq!(with_database(url, "new"), expected);
        }
    }
}
