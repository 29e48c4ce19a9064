//! What a world is made of: its topology and its rules. Drawn from a seed, read from a file, or written in front of a list
//! of steps.

use serde::Deserialize;

use crate::history::{Micros, Options};

macro_rules! setup {
    ($($(#[$doc:meta])* $name:ident: $default:literal;)*) => {
        /// A world before its first moment. Every field is a number, so that a line of text can hold it.
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct Setup {
            $($(#[$doc])* pub $name: i64,)*
        }

        impl Default for Setup {
            fn default() -> Self {
                Setup { $($name: $default,)* }
            }
        }

        /// What a world file says; what it leaves out is drawn.
        #[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct Wishes {
            $($(#[$doc])* pub $name: Option<i64>,)*
        }

        impl Wishes {
            /// Puts what is wished in the place of what was drawn.
            pub fn apply(&self, setup: &mut Setup) {
                $(if let Some(wish) = self.$name { setup.$name = wish; })*
            }
        }

        impl Setup {
            /// Its fields by name.
            pub fn fields(&self) -> Vec<(&'static str, i64)> {
                vec![$((stringify!($name), self.$name),)*]
            }

            /// Sets a field by its name; false when there is none.
            pub fn set(&mut self, name: &str, value: i64) -> bool {
                match name {
                    $(stringify!($name) => self.$name = value,)*
                    _ => return false,
                }
                true
            }
        }
    };
}

setup! {
    /// Seeds everything that the steps do not say: latencies, ids.
    seed: 0;
    /// 1 to 3. A single one is no fleet.
    brokers: 1;
    /// 1 to 4; each belongs to a slot of its own.
    tenants: 1;
    /// Queues of each tenant, 1 to 8.
    queues: 1;
    /// Partitions of each queue, 1 to 16.
    lanes: 2;
    /// Consumer groups besides the queue mode's, 0 to 8.
    groups: 2;
    /// Clients, dealt out to the tenants, 1 to 16.
    clients: 3;
    /// From a broker to the store, and back, in microseconds. -1: answered on the spot.
    store_latency: -1;
    /// Between clients and brokers, and between brokers, in microseconds.
    net_latency: 0;
    /// What both may take longer, in microseconds.
    jitter: 0;
    /// Milliseconds from one heartbeat of a fleet to the next; production's is 500.
    beat: 500;
    /// Keeps the store's last commits, so that they can be lost (0 or 1); it makes a run slower.
    lossy: 0;
    /// Seconds: the options that a configured queue has.
    lease: 10;
    /// Failed acks that redeliver.
    retries: 3;
    /// Whether exhausted messages are dead-lettered (0 or 1).
    dead_letters: 1;
    /// Seconds from commit to delivery.
    delay: 0;
    /// Seconds that a partition gathers.
    window: 0;
    /// Seconds in which a transaction id is remembered.
    dedup: 60;
    /// Milliseconds that an under-full long poll is held back.
    min_pop_wait: 0;
    /// `QUEEN_HOTLIST` (0 or 1).
    hot_list: 1;
    /// `QUEEN_HOTLIST_WINDOW_BATCH`.
    window_batch: 3;
    /// `TIDEGATE_REQUIRE_LEASE` (0 or 1).
    require_lease: 0;
    /// `DEFAULT_SUBSCRIPTION_MODE` is `new` (0 or 1).
    default_new: 0;
    /// Bytes of memory for the logs' hashes.
    dedup_cache_bytes: 1_000_000;
    /// Configures every queue before the first step (0 or 1).
    configured: 1;
}

impl Setup {
    /// Brings every field to where a world can be made of it.
    pub fn clamped(mut self) -> Self {
        let limits = [
            ("brokers", 1, 3),
            ("tenants", 1, 4),
            ("queues", 1, 8),
            ("lanes", 1, 16),
            ("groups", 0, 8),
            ("clients", 1, 16),
            ("store_latency", -1, 60_000_000),
            ("net_latency", 0, 60_000_000),
            ("jitter", 0, 60_000_000),
            ("beat", 50, 3_000),
            ("lease", 0, 1_000_000),
            ("retries", 0, 1_000),
            ("delay", 0, 1_000_000),
            ("window", 0, 1_000_000),
            ("dedup", 0, 10_000_000),
            ("min_pop_wait", 0, 100_000),
            ("window_batch", 1, 1_000_000),
            ("dedup_cache_bytes", 0, 1 << 40),
        ];
        for (name, value) in self.fields() {
            if let Some((_, least, most)) = limits.iter().find(|(limited, ..)| *limited == name) {
                self.set(name, value.clamp(*least, *most));
            }
        }
        // A client of each tenant at least.
        self.clients = self.clients.max(self.tenants);
        self
    }

    /// Options that a step can give a queue: the world's own, and some that differ where it matters.
    pub fn options(&self, variant: u64, namespace: u16) -> Options {
        let own = Options {
            lease_time: self.lease,
            retry_limit: self.retries,
            dead_letters: self.dead_letters != 0,
            delayed_processing: self.delay,
            window_buffer: self.window,
            retention_enabled: false,
            retention: 0,
            completed_retention: 0,
            max_wait_time: 0,
            min_pop_wait_millis: self.min_pop_wait,
            encryption: false,
            dedup_window: self.dedup,
            namespace,
        };
        match variant % 6 {
            0..3 => own,
            3 => Options { lease_time: self.lease / 2 + 1, retry_limit: 0, delayed_processing: 0, ..own },
            4 => Options { dedup_window: self.dedup / 2, window_buffer: 2 - self.window.min(2), ..own },
            _ => Options { dead_letters: self.dead_letters == 0, delayed_processing: 1, dedup_window: 0, ..own },
        }
    }

    /// The options of a queue that nobody configured, as the specification has them.
    pub fn implicit(&self, namespace: u16) -> Options {
        Options {
            lease_time: 60,
            retry_limit: 3,
            dead_letters: true,
            delayed_processing: 0,
            window_buffer: 0,
            retention_enabled: false,
            retention: 0,
            completed_retention: 0,
            max_wait_time: 0,
            min_pop_wait_millis: 0,
            encryption: false,
            dedup_window: 3_600,
            namespace,
        }
    }

    /// Lengths that mean something to some rule, in microseconds.
    pub fn lengths(&self) -> Vec<Micros> {
        const SECOND: Micros = 1_000_000;
        let mut lengths = vec![
            self.lease * SECOND,
            // Of ownership: renewed each half second, trusted for three, taken over after three and a half.
            500_000,
            3 * SECOND,
            3_500_000,
            // Held for two seconds, settled within ten.
            2 * SECOND,
            10 * SECOND,
        ];
        for seconds in [self.delay, self.window, self.dedup] {
            if seconds > 0 {
                lengths.push(seconds * SECOND);
            }
        }
        if self.min_pop_wait > 0 {
            lengths.push(self.min_pop_wait * 1_000);
        }
        lengths
    }

    /// A length by its number: what faults and waits of steps name.
    pub fn length(&self, number: u16) -> Micros {
        let lengths = self.lengths();
        let number = usize::from(number);
        let base = lengths[number / 4 % lengths.len()];
        match number % 4 {
            0 => base,
            1 => base / 2,
            2 => base + 1,
            _ => 1_000 << (number / 4 % 12),
        }
    }
}
