//! Retention under faults, and over a year.

mod support;

use std::collections::BTreeMap;

use support::*;
use tidegate_core::broker::Notice;
use tidegate_core::command::*;
use tidegate_core::error::StoreErrorKind;
use tidegate_core::name::*;
use tidegate_core::options::{Labels, QueueOptions};
use tidegate_core::record::RetentionRule;
use tidegate_core::reply::*;
use tidegate_core::settings::Settings;
use tidegate_core::testkit::faulty::{Fault, RequestKind};
use tidegate_core::time::*;

const HOUR: Span = Span::from_secs(3_600);

fn configure(options: QueueOptions) -> Command {
    Command::Configure { queue: queue("q"), options, labels: Labels::derived("q") }
}

fn options(change: impl FnOnce(&mut QueueOptions)) -> QueueOptions {
    let mut options = QueueOptions::configured();
    change(&mut options);
    options
}

fn group(name: &str) -> GroupName {
    GroupName::new(name).expect("a name")
}

/// Commits on delivery: what is older than its hashes are kept cannot be acked (OPT-26).
fn pop_for(name: &str, batch: u32) -> Command {
    let Command::Pop(pop) = pop("q", batch) else { unreachable!() };
    Command::Pop(Pop { group: group(name), partitions: None, auto_ack: true, ..pop })
}

fn totals(world: &mut World) -> BTreeMap<String, u64> {
    let Reply::Queue(Some(detail)) = world.call(Command::DescribeQueue { queue: queue("q") }) else { panic!() };
    detail.partitions.into_iter().map(|it| (it.name.as_str().to_owned(), it.counts.total)).collect()
}

/// What the specification says of one partition, written down without any cleverness.
#[derive(Default)]
struct Log {
    /// First offset, one past the last, commit time.
    segments: Vec<(u64, u64, Timestamp)>,
    log_start: u64,
    /// First offset not committed, by group.
    cursors: BTreeMap<&'static str, u64>,
}

impl Log {
    fn end(&self) -> u64 {
        self.segments.last().map_or(0, |last| last.1)
    }

    /// A cycle at `now`.
    fn cycle(&mut self, options: &QueueOptions, now: Timestamp) {
        let lowest = self.cursors.values().min().copied();
        for (_, end, created) in &self.segments {
            let past = |seconds: i64| seconds > 0 && *created < now.minus(Span::from_secs(seconds));
            let goes = options.retention_enabled && past(options.retention_seconds)
                || past(options.max_wait_time_seconds)
                || options.retention_enabled
                    && past(options.completed_retention_seconds)
                    && lowest.is_some_and(|lowest| *end <= lowest);
            if !goes {
                return;
            }
            self.log_start = self.log_start.max(*end);
        }
    }
}

/// Numbers that look random; the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

/// An hour passes at once; then the cycle has the few moments that it needs.
fn an_hour_later(world: &mut World) -> Timestamp {
    world.now = Now { monotonic: world.now.monotonic.plus(HOUR), store: world.now.store.plus(HOUR) };
    let at = world.now.store;
    world.broker.tick(world.now);
    world.pump();
    world.advance(Span::from_millis(20));
    at
}

// req: OPT-14, OPT-15, OPT-16, OPT-18, OPT-19
#[test]
fn a_year_deletes_nothing_too_early_keeps_nothing_for_ever_and_strands_nobody() {
    let mut world = World::new();
    let mut dice = Dice(7);
    let mut logs: BTreeMap<String, Log> = BTreeMap::new();
    let mut now_options = options(|_| ());
    let mut groups = vec!["fast", "slow", "absent"];
    assert!(matches!(world.call(configure(now_options.clone())), Reply::Configured { .. }));
    for name in &groups {
        assert_eq!(world.call(pop_for(name, 1)), Reply::Popped(None));
    }
    let (mut deleted, mut skipped) = (0, 0);
    for hour in 0..365 * 24 {
        let now = an_hour_later(&mut world);
        for log in logs.values_mut() {
            let before = log.log_start;
            log.cycle(&now_options, now);
            deleted += log.log_start - before;
        }
        if hour % 6 == 0 {
            let expected: BTreeMap<String, u64> =
                logs.iter().map(|(name, log)| (name.clone(), log.end() - log.log_start)).collect();
            assert_eq!(totals(&mut world), expected, "in hour {hour} with {now_options:?}");
        }
        if dice.roll(200) == 0 {
            // Half an hour apart from every commit time.
            let mut window = |most| if dice.roll(2) == 0 { 0 } else { dice.roll(most) as i64 * 3_600 + 1_800 };
            let (age, completed, wait) = (window(800), window(200), window(1_000));
            now_options = options(|it| {
                (it.retention_seconds, it.completed_retention_seconds) = (age, completed);
                it.max_wait_time_seconds = wait;
                it.dedup_window_seconds = window(10);
            });
            now_options.retention_enabled = dice.roll(3) > 0;
            assert!(matches!(world.call(configure(now_options.clone())), Reply::Configured { .. }));
        }
        if dice.roll(4) == 0 {
            let name = format!("p{}", dice.roll(3));
            let count = 1 + dice.roll(3);
            let ids: Vec<String> = (0..count).map(|n| format!("{hour}/{n}")).collect();
            let items: Vec<(&str, &'static [u8])> = ids.iter().map(|id| (id.as_str(), &b"1"[..])).collect();
            let created = world.now.store;
            assert!(queued(&world.call(push("q", &name, &items))));
            let log = logs.entry(name).or_default();
            let start = log.end();
            log.segments.push((start, start + count, created));
            for name in &groups {
                log.cursors.entry(name).or_insert(0);
            }
        }
        if hour == 200 * 24 {
            let gone = Command::DeleteGroup { group: group("absent"), queue: None, metadata: true };
            assert!(matches!(world.call(gone), Reply::GroupDeleted { .. }));
            groups.retain(|name| *name != "absent");
            logs.values_mut().for_each(|log| {
                log.cursors.remove("absent");
            });
        }
        if hour % 997 == 0 {
            world.restart();
        }
        for name in groups.iter().filter(|name| **name == "fast" || (**name == "slow" && hour % (24 * 9) == 0)) {
            // Each partition with something left gives its first message that is there, and then all.
            while let Reply::Popped(Some(delivery)) = world.call(pop_for(name, 1_000)) {
                for claim in &delivery.claims {
                    let log = logs.get_mut(claim.name.as_str()).expect("a known partition");
                    let cursor = log.cursors.get_mut(name).expect("a known group");
                    let first = (*cursor).max(log.log_start);
                    skipped += first - *cursor;
                    assert_eq!(claim.messages.len() as u64, log.segments.last().map_or(0, |it| it.1) - first);
                    *cursor = first + claim.messages.len() as u64;
                }
            }
            for log in logs.values() {
                assert!(log.cursors[name] == log.end() || log.log_start == log.end(), "{name} is stuck");
            }
        }
    }
    assert!(deleted > 1_000 && skipped > 50, "{deleted} deleted, {skipped} skipped");
    // Whatever there is goes in the end, hashes included.
    let last = options(|it| (it.max_wait_time_seconds, it.dedup_window_seconds) = (1, 0));
    assert!(matches!(world.call(configure(last)), Reply::Configured { .. }));
    an_hour_later(&mut world);
    an_hour_later(&mut world);
    assert_eq!(totals(&mut world).values().sum::<u64>(), 0);
    world.advance(Span::from_secs(1));
    let counted = world.broker.counters();
    assert!(counted.retention.values().flatten().map(|tally| tally.messages).sum::<u64>() > 0);
}

// req: OPT-15
#[test]
fn a_step_that_fails_or_whose_answer_is_lost_is_made_up_for() {
    for fault in [Fault::Failed(StoreErrorKind::Unavailable), Fault::RequestLost, Fault::AnswerLost] {
        for kind in [RequestKind::Commit, RequestKind::Load, RequestKind::Trim] {
            let mut world = World::new();
            for n in 0..30 {
                assert!(queued(&world.call(push("q", "p", &[(format!("{n}").leak(), b"1")]))));
            }
            let short = options(|it| it.max_wait_time_seconds = 60);
            assert!(matches!(world.call(configure(short)), Reply::Configured { .. }));
            world.advance(Span::from_secs(58));
            world.store.script(Some(kind), fault);
            world.advance(Span::from_secs(30));
            assert_eq!(totals(&mut world)["p"], 0, "{kind:?} {fault:?}");
            let told: u64 = world
                .notices
                .iter()
                .map(|Notice::Deleted { rule, tally, .. }| {
                    assert_eq!(*rule, RetentionRule::MaxWait);
                    assert_eq!(tally.messages, tally.unconsumed);
                    tally.messages
                })
                .sum();
            assert_eq!(told, 30, "each message is told of once: {kind:?} {fault:?}");
            let tallies = world.broker.counters().retention.into_values().next().expect("a queue");
            assert_eq!(tallies.map(|tally| tally.messages), [0, 0, 30]);
            world.restart();
            assert_eq!(totals(&mut world)["p"], 0);
        }
    }
}

// req: OPT-17
#[test]
fn a_large_backlog_goes_in_bounded_commits() {
    let mut world = World::with(Settings { retention_batch: 7, ..Settings::default() });
    for n in 0..100 {
        assert!(queued(&world.call(push("q", &format!("p{}", n % 9), &[(format!("{n}").leak(), b"1")]))));
    }
    assert!(matches!(world.call(configure(options(|it| it.max_wait_time_seconds = 1))), Reply::Configured { .. }));
    let before = world.broker.counters().commits;
    world.advance(Span::from_secs(10));
    assert_eq!(totals(&mut world).values().sum::<u64>(), 0);
    let commits = world.broker.counters().commits - before;
    assert!((15..=40).contains(&commits), "100 segments by 7 in {commits} commits");
    let Reply::History(records) = world.call(Command::ListHistory { since: Timestamp::MIN, until: Timestamp::MAX })
    else {
        panic!()
    };
    assert_eq!(records.iter().map(|record| record.tally.messages).sum::<u64>(), 100);
    assert!(records.iter().all(|record| record.rule == RetentionRule::MaxWait && record.queue == queue("q")));
}

// req: OPT-17
#[test]
fn many_partitions_are_gone_through_in_steps_that_read_only_what_is_old() {
    let mut world = World::new();
    for n in 0..2_500 {
        assert!(queued(&world.call(push("q", &format!("p{n}"), &[("x", b"1")]))));
    }
    let slow = options(|it| (it.retention_enabled, it.retention_seconds) = (true, 3_600));
    assert!(matches!(world.call(configure(slow)), Reply::Configured { .. }));
    world.restart();
    // After a restart each partition is looked at once; from then on nothing is asked until something is old.
    world.advance(Span::from_secs(60));
    assert_eq!(totals(&mut world).values().sum::<u64>(), 2_500);
    an_hour_later(&mut world);
    world.advance(Span::from_secs(1));
    assert_eq!(totals(&mut world).values().sum::<u64>(), 0);
}
