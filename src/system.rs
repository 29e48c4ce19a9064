//! The one place where the machine's clock and its random source are read, and its limits raised.

use std::fs::File;
use std::io::{self, Read};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use tidegate_core::time::Timestamp;
use uuid::{Builder, Uuid};

/// The wall time now.
pub fn wall() -> Timestamp {
    let micros = |length: std::time::Duration| i64::try_from(length.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_micros(match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => micros(since),
        Err(before) => -micros(before.duration()),
    })
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
