//! The one place where the machine's clock and its random source are read, and its limits raised.

use std::fs::File;
use std::io::{self, Read};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};
use tidegate_core::time::Timestamp;
use uuid::{Builder, Uuid};

/// The wall time now.
pub fn wall() -> Timestamp {
    let micros = |length: Duration| i64::try_from(length.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_micros(match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => micros(since),
        Err(before) => -micros(before.duration()),
    })
}

/// Monotonic time since some moment, which runs on while the machine is suspended where the system has such a clock.
pub fn monotonic() -> Duration {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: ClockId = ClockId::Monotonic;
    let time = clock_gettime(CLOCK);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// What a loopback address is worth something to: this boot of the machine, and the network namespace. None where the
/// system does not say.
pub fn host() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let network = std::fs::read_link("/proc/self/ns/net").ok()?;
    Some(format!("{} {}", boot.trim(), network.display()))
}

/// Fresh random bytes, for ids that no stranger can guess; never stored or logged.
pub fn entropy() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Makes UUIDs v7 that differ within this process and from those of every other: `entropy` is this process's own.
pub fn minting(entropy: [u8; 32]) -> impl Fn() -> Uuid {
    let next = AtomicU64::new(0);
    move || {
        let mut tail = [0; 10];
        tail.copy_from_slice(&entropy[..10]);
        for (byte, count) in tail[2..].iter_mut().zip(next.fetch_add(1, Ordering::Relaxed).to_be_bytes()) {
            *byte ^= count;
        }
        Builder::from_unix_timestamp_millis(wall().as_unix_millis(), &tail).into_uuid()
    }
}

/// Allows as many open files, and so connections, as the machine lets this process have.
pub fn raise_open_files() {
    match rlimit::increase_nofile_limit(u64::MAX) {
        Ok(limit) => tracing::debug!(limit, "open files allowed"),
        Err(error) => tracing::warn!(%error, "cannot raise the number of open files; connections are limited by it"),
    }
}
