//! Metrics, as one list: name, type, meaning, and where the number comes from. A new one is one more entry.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use tidegate_core::activity::Activity;
use tidegate_core::broker::{Counters, Histogram};
use tidegate_core::limits::MAX_LABELLED_QUEUES;
use tidegate_core::name::QueueName;
use tidegate_core::record::{RetentionRule, Tally};
use tidegate_core::settings::Maintenance;

use crate::Shared;
use crate::forwards::Forwards;
use crate::router::Endpoint;
use crate::settings::StoreFigures;

/// The Prometheus text format.
pub(crate) const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Everything a metric can be taken from, read at one moment.
pub(crate) struct Reading {
    pub(crate) uptime_seconds: f64,
    pub(crate) resident_bytes: u64,
    pub(crate) user_micros: f64,
    pub(crate) system_micros: f64,
    pub(crate) store: StoreFigures,
    maintenance: Maintenance,
    latencies: Arc<Latencies>,
    counters: Counters,
    parked: BTreeMap<QueueName, u64>,
    forwards: Arc<Forwards>,
}

impl Reading {
    pub(crate) async fn take(shared: &Shared) -> Self {
        let (user, system) = cpu_micros();
        Reading {
            uptime_seconds: shared.started.elapsed().as_secs_f64(),
            resident_bytes: resident_bytes(),
            user_micros: user,
            system_micros: system,
            store: (shared.settings.store_figures)(),
            maintenance: shared.slots.maintenance(),
            latencies: Arc::clone(&shared.latencies),
            counters: shared.slots.counters().await,
            parked: shared.parked.by_queue(),
            forwards: Arc::clone(shared.peers.forwards()),
        }
    }
}

/// A number that only grows, or one that goes up and down.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
}

/// A family of metrics whose series are known beforehand.
struct Family {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    series: &'static [Series],
}

/// Labels in braces, if any, and the value.
type Series = (&'static str, fn(&Reading) -> f64);

/// A family of gauges with a series for each queue that has something to tell.
struct QueueFamily {
    name: &'static str,
    help: &'static str,
    values: fn(&Reading) -> &BTreeMap<QueueName, u64>,
}

/// A family with a series for each of the busiest queues, from the last minute that was written down.
struct MinuteFamily {
    name: &'static str,
    help: &'static str,
    /// More labels, each with its value.
    series: &'static [MinuteSeries],
}

/// More labels, if any, and the value, where there is one.
type MinuteSeries = (&'static str, fn(&Activity) -> Option<u64>);

macro_rules! minute {
    ($field:ident) => {
        |activity: &Activity| Some(activity.$field)
    };
}

/// What happened on each queue in a minute.
static BY_MINUTE: &[MinuteFamily] = &[
    MinuteFamily {
        name: "queen_queue_push_requests_per_minute",
        help: "Push requests in the last minute.",
        series: &[("", minute!(push_requests))],
    },
    MinuteFamily {
        name: "queen_queue_push_messages_per_minute",
        help: "Messages stored in the last minute.",
        series: &[("", minute!(push_messages))],
    },
    MinuteFamily {
        name: "queen_queue_pop_messages_per_minute",
        help: "Messages delivered in the last minute.",
        series: &[("", minute!(pop_messages))],
    },
    MinuteFamily {
        name: "queen_queue_pop_empty_per_minute",
        help: "Pops answered empty in the last minute.",
        series: &[("", minute!(pop_empty))],
    },
    MinuteFamily {
        name: "queen_queue_transactions_per_minute",
        help: "Transactions that pushed in the last minute.",
        series: &[("", minute!(transactions))],
    },
    MinuteFamily {
        name: "queen_queue_ack_per_minute",
        help: "Ack items in the last minute.",
        series: &[(",result=\"success\"", minute!(ack_success)), (",result=\"failed\"", minute!(ack_failed))],
    },
    MinuteFamily {
        name: "queen_queue_parked_consumers",
        help: "Long polls that were parked at the end of the last minute.",
        series: &[("", minute!(parked))],
    },
    MinuteFamily {
        name: "queen_queue_pop_lag_milliseconds",
        help: "From a message's commit to its delivery, in the last minute; nothing where none was delivered.",
        series: &[
            (",stat=\"avg\"", |it| (it.lag_samples > 0).then(|| it.lag_sum_ms / it.lag_samples.max(1))),
            (",stat=\"max\"", |it| (it.lag_samples > 0).then_some(it.lag_max_ms)),
        ],
    },
    MinuteFamily {
        name: "queen_dlq_depth_by_queue",
        help: "Dead letters at the end of the last minute.",
        series: &[("", minute!(dead_letters))],
    },
];

/// How long requests took: counted where they are answered, without a lock.
#[derive(Default)]
pub(crate) struct Latencies {
    push: Latency,
    pop: Latency,
    ack: Latency,
}

/// Bounds in microseconds.
const LATENCIES: [u64; 13] =
    [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 500_000, 2_500_000, 30_000_000];

#[derive(Default)]
struct Latency {
    counts: [AtomicU64; LATENCIES.len() + 1],
    sum_micros: AtomicU64,
}

impl Latencies {
    /// Notes how long a request of an endpoint took, if it is one of those that are measured.
    pub(crate) fn note(&self, endpoint: Endpoint, took: Duration) {
        let latency = match endpoint {
            Endpoint::Push => &self.push,
            Endpoint::PopQueue | Endpoint::PopPartition | Endpoint::PopLabels => &self.pop,
            Endpoint::Ack | Endpoint::AckBatch => &self.ack,
            _ => return,
        };
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let at = LATENCIES.partition_point(|bound| *bound < micros);
        if let Some(count) = latency.counts.get(at) {
            count.fetch_add(1, Relaxed);
        }
        latency.sum_micros.fetch_add(micros, Relaxed);
    }

    fn print(&self, out: &mut String) {
        let name = "tidegate_request_seconds";
        let _ = writeln!(out, "# HELP {name} How long requests took, waiting included.\n# TYPE {name} histogram");
        for (op, latency) in [("push", &self.push), ("pop", &self.pop), ("ack", &self.ack)] {
            let mut so_far = 0;
            for (bound, count) in LATENCIES.iter().zip(&latency.counts) {
                so_far += count.load(Relaxed);
                let _ = writeln!(out, "{name}_bucket{{op=\"{op}\",le=\"{}\"}} {so_far}", *bound as f64 / 1e6);
            }
            so_far += latency.counts.last().map_or(0, |count| count.load(Relaxed));
            let sum = latency.sum_micros.load(Relaxed) as f64 / 1e6;
            let _ = writeln!(out, "{name}_bucket{{op=\"{op}\",le=\"+Inf\"}} {so_far}");
            let _ = writeln!(out, "{name}_sum{{op=\"{op}\"}} {sum}\n{name}_count{{op=\"{op}\"}} {so_far}");
        }
    }
}

/// A histogram that the core keeps.
fn print_histogram(out: &mut String, name: &str, help: &str, histogram: &Histogram, unit: f64) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} histogram");
    let (buckets, all) = histogram.buckets();
    for (bound, count) in buckets {
        let _ = writeln!(out, "{name}_bucket{{le=\"{}\"}} {count}", bound as f64 * unit);
    }
    let sum = histogram.sum() as f64 * unit;
    let _ = writeln!(out, "{name}_bucket{{le=\"+Inf\"}} {all}\n{name}_sum {sum}\n{name}_count {all}");
}

/// Every family by queue.
static BY_QUEUE: &[QueueFamily] = &[QueueFamily {
    name: "queen_parked_long_polls",
    help: "Long polls waiting now; those of discovery under the empty name.",
    values: |reading| &reading.parked,
}];

/// A family of counters with a series for each queue and retention rule that deleted something.
struct RetentionFamily {
    name: &'static str,
    help: &'static str,
    value: fn(&Tally) -> u64,
}

/// Every family by queue and retention rule.
static BY_RULE: &[RetentionFamily] = &[
    RetentionFamily {
        name: "tidegate_retention_deleted_messages_total",
        help: "Messages that retention deleted, by the option that says so.",
        value: |tally| tally.messages,
    },
    RetentionFamily {
        name: "tidegate_retention_unconsumed_messages_total",
        help: "Those of them that no consumer group had consumed.",
        value: |tally| tally.unconsumed,
    },
];

/// One of the broker's counters as a series.
macro_rules! counted {
    ($field:ident) => {
        |reading: &Reading| reading.counters.$field as f64
    };
}

/// One of the counters of forwards as a series.
macro_rules! forwards {
    ($field:ident) => {
        |reading: &Reading| reading.forwards.$field.get() as f64
    };
}

macro_rules! families {
    ($($kind:ident $name:literal $help:literal $($labels:literal $value:expr),+;)*) => {
        &[$(Family { name: $name, kind: Kind::$kind, help: $help, series: &[$(($labels, $value)),+] }),*]
    };
}

/// Every family, in the order it is printed in.
static FAMILIES: &[Family] = families! {
    Gauge "queen_uptime_seconds" "Seconds since the broker's start." "" |reading| reading.uptime_seconds;
    Gauge "queen_process_resident_memory_bytes" "Resident memory of the process."
        "" |reading| reading.resident_bytes as f64;

    Counter "queen_process_push_requests_total" "Push requests." "" counted!(push_requests);
    Counter "queen_process_push_messages_total" "Messages stored by pushes and transactions."
        "" counted!(push_messages);
    Counter "queen_process_pop_requests_total" "Pop requests." "" counted!(pop_requests);
    Counter "queen_process_pop_messages_total" "Messages delivered." "" counted!(pop_messages);
    Counter "queen_process_ack_requests_total" "Ack requests; a batch counts once." "" counted!(ack_requests);
    Counter "queen_process_ack_messages_total" "Ack items that succeeded." "" counted!(ack_messages);
    Counter "queen_pop_targeted_total" "Pops of one partition." "" counted!(pop_targeted);
    Counter "queen_pop_wildcard_total" "Pops of any partition, discovery included." "" counted!(pop_wildcard);
    Counter "queen_pop_fill_wait_total" "Pops held back for a fuller batch (minPopWaitTime)." "" counted!(fill_waits);
    Counter "queen_pop_fill_wait_microseconds_total" "Microseconds that pops were held back for a fuller batch."
        "" counted!(fill_wait_micros);
    Counter "queen_batches_fired_total" "Commits sent to the store." "{op=\"commit\"}" counted!(commits);
    Counter "queen_batch_items_fired_total" "Writes in those commits." "{op=\"commit\"}" counted!(commit_writes);

    Gauge "queen_db_pool_size" "Connections to the database that are open." "" |reading| reading.store.pool_size as f64;
    Gauge "queen_db_pool_idle" "Connections that nobody uses now." "" |reading| reading.store.pool_idle as f64;
    Gauge "queen_db_pool_active" "Connections in use now."
        "" |reading| reading.store.pool_size.saturating_sub(reading.store.pool_idle) as f64;
    Gauge "queen_maintenance_mode_enabled" "Whether push maintenance is on: 1 or 0."
        "" |reading| f64::from(u8::from(reading.maintenance.push));
    Gauge "tidegate_pop_maintenance_mode_enabled" "Whether pop maintenance is on: 1 or 0."
        "" |reading| f64::from(u8::from(reading.maintenance.pop));
    Counter "tidegate_cache_hits_total" "Reads of messages that the store's memory could answer."
        "" |reading| reading.store.cache_hits as f64;
    Counter "tidegate_cache_misses_total" "Reads of messages that went to the database."
        "" |reading| reading.store.cache_misses as f64;
    Gauge "tidegate_cache_bytes" "Bytes that messages in the store's memory take."
        "" |reading| reading.store.cache_bytes as f64;
    Counter "tidegate_acks_refused_total" "Ack items that were refused: too late, mostly." "" counted!(ack_refused);
    Gauge "tidegate_log_bytes" "Bytes that hashes and commit times of logs take." "" counted!(log_bytes);

    Counter "queen_cluster_push_requests_total" "Push requests." "{scope=\"cluster\"}" counted!(push_requests);
    Counter "queen_cluster_push_messages_total" "Messages stored." "{scope=\"cluster\"}" counted!(push_messages);
    Counter "queen_cluster_pop_requests_total" "Pop requests." "{scope=\"cluster\"}" counted!(pop_requests);
    Counter "queen_cluster_pop_messages_total" "Messages delivered." "{scope=\"cluster\"}" counted!(pop_messages);
    Counter "queen_cluster_ack_requests_total" "Ack requests." "{scope=\"cluster\"}" counted!(ack_requests);
    Counter "queen_cluster_ack_messages_total" "Ack items that succeeded." "{scope=\"cluster\"}" counted!(ack_messages);
    Counter "queen_cluster_transactions_total" "Transactions carried out."
        "{scope=\"cluster\"}" counted!(transactions);
    Counter "queen_cluster_dlq_total" "Dead letters filed." "{scope=\"cluster\"}" counted!(dead_lettered);
    Counter "queen_cluster_ack_total" "Ack items by result."
        "{scope=\"cluster\",result=\"success\"}" counted!(ack_messages),
        "{scope=\"cluster\",result=\"failed\"}" counted!(ack_refused);
    Gauge "queen_dlq_depth" "Dead letters now." "{scope=\"cluster\"}" counted!(dead_letters);

    Counter "tidegate_push_duplicates_total" "Pushed items that were duplicates." "" counted!(push_duplicates);
    Counter "tidegate_pop_empty_total" "Pops answered empty." "" counted!(pop_empty);
    Counter "tidegate_transactions_rolled_back_total" "Transactions rolled back." "" counted!(transactions_rolled_back);
    Counter "tidegate_dropped_messages_total" "Messages dropped because retries were exhausted and dead-lettering is off."
        "" counted!(dropped);
    Counter "tidegate_payloads_sealed_total" "Payloads encrypted on their way to the store." "" counted!(sealed);
    Counter "tidegate_payloads_opened_total" "Encrypted payloads opened for a client." "" counted!(opened);
    Counter "tidegate_payloads_unopened_total"
        "Payloads that look encrypted and that no key opened; they were given as stored." "" counted!(unopened);
    Counter "tidegate_logs_loaded_total" "Logs of which all that was asked for was loaded."
        "" counted!(logs_loaded);
    Counter "tidegate_logs_evicted_total" "Logs put out of memory to keep to the budget."
        "" counted!(logs_evicted);
    Counter "tidegate_logs_probed_total" "Scans of logs that do not fit into memory."
        "" counted!(logs_probed);
    Counter "tidegate_leases_given_back_total" "Leases given back because their answer could not be written."
        "" counted!(given_back);
    Counter "tidegate_commits_failed_total" "Commits that the store certainly did not carry out."
        "" counted!(commits_failed);
    Counter "tidegate_commits_fenced_total" "Commits refused because another owner had the slot."
        "" counted!(commits_fenced);
    Counter "tidegate_commits_settled_total" "Commits whose outcome was unknown and has been settled."
        "" counted!(unknown_settled);
    Counter "tidegate_slots_taken_total" "Times the slot was taken." "" counted!(slots_taken);
    Counter "tidegate_slots_lost_total" "Times the slot was lost to another owner." "" counted!(slots_lost);
    Counter "tidegate_suffixes_lost_total" "Times an acknowledged commit was missing in the store."
        "" counted!(suffixes_lost);
    Counter "tidegate_partitions_cleaned_total" "Partitions removed because nobody used them any more."
        "" counted!(partitions_cleaned);
    Counter "tidegate_forwards_total" "Requests sent to the broker that owns their slot; each counts once."
        "" forwards!(forwarded);
    Counter "tidegate_forwards_held_total" "Requests that waited for an owner of their slot."
        "" forwards!(held);
    Counter "tidegate_forwards_repeated_total" "Times a request was sent to an owner that had been sent before."
        "" forwards!(sent_again);
    Counter "tidegate_forwards_unknown_total" "Requests answered outcome_unknown because their owner was lost."
        "" forwards!(unknown);
    Counter "tidegate_forwards_given_back_total" "Leases that owners took back because the client could not be answered."
        "" forwards!(given_back);
    Gauge "tidegate_parked_calls" "Calls parked in the broker now, over all queues." "" counted!(parked);
    Gauge "tidegate_partitions" "Partitions in memory now." "" counted!(partitions);
    Gauge "tidegate_queues" "Queues in memory now." "" counted!(queues);
};

/// What `/metrics/prometheus` prints.
pub(crate) fn text(reading: &Reading) -> String {
    let mut out = String::with_capacity(8 * 1024);
    for Family { name, kind, help, series } in FAMILIES {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        // Writing to a string does not fail.
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in *series {
            let _ = writeln!(out, "{name}{labels} {}", value(reading));
        }
    }
    let seconds = 1e-3;
    let ages = &reading.counters.delivery_ages;
    print_histogram(
        &mut out,
        "tidegate_delivery_age_seconds",
        "From a message's commit to its delivery.",
        ages,
        seconds,
    );
    let sizes = &reading.counters.commit_sizes;
    print_histogram(&mut out, "tidegate_commit_writes", "Writes of a commit.", sizes, 1.0);
    reading.latencies.print(&mut out);
    for MinuteFamily { name, help, series } in BY_MINUTE {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge");
        for row in reading.counters.minute.iter() {
            for (labels, value) in *series {
                if let Some(value) = value(&row.activity) {
                    let _ = writeln!(out, "{name}{{queue=\"{}\"{labels}}} {value}", escaped(row.queue.as_str()));
                }
            }
        }
    }
    for QueueFamily { name, help, values } in BY_QUEUE {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge");
        for (queue, value) in values(reading).iter().take(MAX_LABELLED_QUEUES) {
            let _ = writeln!(out, "{name}{{queue=\"{}\"}} {value}", escaped(queue.as_str()));
        }
    }
    // Queues of several tenants may share a name; series have no tenant label (16.4).
    let mut deleted: BTreeMap<(&QueueName, RetentionRule), Tally> = BTreeMap::new();
    for ((_, queue), tallies) in &reading.counters.retention {
        for (rule, tally) in RetentionRule::ALL.into_iter().zip(tallies).filter(|(_, tally)| tally.messages > 0) {
            deleted.entry((queue, rule)).or_default().add(tally);
        }
    }
    for RetentionFamily { name, help, value } in BY_RULE {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} counter");
        for ((queue, rule), tally) in &deleted {
            let (queue, rule) = (escaped(queue.as_str()), rule.option());
            let _ = writeln!(out, "{name}{{queue=\"{queue}\",rule=\"{rule}\"}} {}", value(tally));
        }
    }
    out
}

/// A label's value, as the text format wants it.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// What `/metrics` shows. What has no meaning here is a zero, as clients of the original find it.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Summary {
    uptime: f64,
    requests: Rated,
    messages: Rated,
    database: Database,
    memory: Memory,
    cpu: Cpu,
}

#[derive(JsonSchema, Serialize)]
struct Rated {
    total: u64,
    rate: u64,
}

#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct Database {
    pool_size: u64,
    idle_connections: u64,
    waiting_requests: u64,
}

#[derive(JsonSchema, Serialize)]
#[serde(rename_all = "camelCase")]
struct Memory {
    rss: u64,
    heap_total: u64,
    heap_used: u64,
    external: u64,
    array_buffers: u64,
}

#[derive(JsonSchema, Serialize)]
struct Cpu {
    user: u64,
    system: u64,
}

impl Summary {
    pub(crate) fn new(reading: &Reading) -> Self {
        let counters = &reading.counters;
        Summary {
            uptime: reading.uptime_seconds,
            requests: Rated { total: counters.push_requests + counters.pop_requests + counters.ack_requests, rate: 0 },
            messages: Rated { total: counters.push_messages + counters.pop_messages, rate: 0 },
            database: Database {
                pool_size: reading.store.pool_size,
                idle_connections: reading.store.pool_idle,
                waiting_requests: 0,
            },
            memory: Memory { rss: reading.resident_bytes, heap_total: 0, heap_used: 0, external: 0, array_buffers: 0 },
            cpu: Cpu { user: 0, system: 0 },
        }
    }
}

/// Resident memory of this process; 0 where the system does not tell.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()).and_then(|number| number.parse::<u64>().ok());
    kibibytes.map_or(0, |kibibytes| kibibytes * 1024)
}

/// Microseconds of CPU that this process took, its own and the system's; nothing where the system does not tell.
fn cpu_micros() -> (f64, f64) {
    /// What a tick of `/proc` is on Linux, whatever the kernel's own clock.
    const TICK: f64 = 10_000.0;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the process stands in brackets and may hold anything.
    let mut fields = stat.rsplit(") ").next().unwrap_or_default().split(' ').skip(11);
    let mut ticks = || fields.next().and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0) * TICK;
    (ticks(), ticks())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn families_are_told_apart_and_explained() {
        let names: BTreeSet<_> = FAMILIES.iter().map(|family| family.name).collect();
        assert_eq!(names.len(), FAMILIES.len(), "no family twice");
        for family in FAMILIES {
            assert!(family.help.ends_with('.'), "{} has a sentence", family.name);
            assert_eq!(family.kind == Kind::Counter, family.name.ends_with("_total"), "{}", family.name);
        }
    }

    #[test]
    fn the_text_has_help_type_and_value() {
        let counters = Counters { push_requests: 3, ack_refused: 2, ..Counters::default() };
        let parked = BTreeMap::from([(QueueName::new("a\"\n\\").expect("a name"), 2)]);
        let forwards = Arc::<Forwards>::default();
        forwards.held.up();
        let text = text(&Reading {
            uptime_seconds: 1.5,
            resident_bytes: 4096,
            user_micros: 0.0,
            system_micros: 0.0,
            store: StoreFigures::default(),
            maintenance: Maintenance::default(),
            latencies: Arc::default(),
            counters,
            parked,
            forwards,
        });
        for line in [
            "# HELP queen_process_push_requests_total Push requests.",
            "# TYPE queen_process_push_requests_total counter",
            "queen_process_push_requests_total 3",
            "queen_uptime_seconds 1.5",
            "tidegate_forwards_held_total 1",
            "queen_cluster_ack_total{scope=\"cluster\",result=\"failed\"} 2",
            r#"queen_parked_long_polls{queue="a\"\n\\"} 2"#,
        ] {
            assert!(text.lines().any(|printed| printed == line), "{line}");
        }
    }
}
