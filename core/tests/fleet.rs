//! Who lives, who is buried, and which slots a broker should have.

use compact_str::CompactString;
use tidegate_core::fleet::{Conflict, Fleet, FleetView, Holding, Member, Plan, Probed, SLOTS, Seen, Weight, slot_of};
use tidegate_core::name::TenantId;
use tidegate_core::store::Slot;
use tidegate_core::time::{Moment, Span};
use uuid::Uuid;

fn member(name: &str) -> Member {
    let address = format!("http://10.0.0.1/{name}").into();
    Member { incarnation: name.into(), address, host: "host".into(), draining: false }
}

fn seen(name: &str, beat: u64) -> Seen {
    Seen { member: member(name), beat, session: true, dead: false }
}

/// A view in which `owners` own their numbers of slots, one after the other; an empty name owns nothing.
fn view(brokers: Vec<Seen>, owners: &[(&str, usize)]) -> FleetView {
    let name = |name: &str| (!name.is_empty()).then(|| CompactString::from(name));
    let owners = owners.iter().flat_map(|(who, count)| std::iter::repeat_n(name(who), *count)).collect();
    FleetView { brokers, owners, ..FleetView::default() }
}

/// What `me` holds of the first `owners`.
fn held(me: &str, owners: &[(&str, usize)]) -> [Holding; SLOTS] {
    let mut held = [Holding::No; SLOTS];
    let names = owners.iter().flat_map(|(who, count)| std::iter::repeat_n(*who, *count));
    for (holding, name) in held.iter_mut().zip(names) {
        if name == me {
            *holding = Holding::Yes(Weight::default());
        }
    }
    held
}

fn at(millis: i64) -> Moment {
    Moment::from_micros(1_000_000_000).plus(Span::from_millis(millis))
}

/// The plan of `me` among `brokers`, all alive.
fn plan(me: &str, brokers: &[&str], owners: &[(&str, usize)]) -> Plan {
    let mut fleet = Fleet::new(member(me));
    fleet.viewed(at(0), view(brokers.iter().map(|name| seen(name, 1)).collect(), owners));
    fleet.plan(at(0), &held(me, owners))
}

fn contended(plan: &Plan) -> usize {
    plan.contend.iter().filter(|contend| **contend).count()
}

#[test]
fn a_tenants_slot_never_changes() {
    let slots: Vec<u8> = (0..12).map(|n| slot_of(TenantId(Uuid::from_u128(n))).0).collect();
    assert_eq!(slots, EXPECTED_SLOTS);
    assert_eq!(slot_of(TenantId::DEFAULT), Slot(EXPECTED_SLOTS[1]));
}

/// Written down once: a store is laid out by them.
const EXPECTED_SLOTS: [u8; 12] = [8, 11, 15, 3, 12, 1, 11, 0, 5, 0, 9, 14];

/// Me, everybody alive, who owns how many; how many to contend for, how many to give away.
type Spread = (&'static str, &'static [&'static str], &'static [(&'static str, usize)], usize, usize);

#[test]
fn slots_spread_over_the_living() {
    // me, everybody alive, who owns how many; how many to contend for (own ones included), how many to give away
    let cases: &[Spread] = &[
        ("a", &["a"], &[("", 16)], 16, 0),
        ("a", &["a", "b"], &[("", 16)], 8, 0),
        ("b", &["a", "b"], &[("", 16)], 8, 0),
        ("a", &["a", "b", "c"], &[("", 16)], 6, 0),
        ("b", &["a", "b", "c"], &[("", 16)], 5, 0),
        ("c", &["a", "b", "c"], &[("", 16)], 5, 0),
        // A newcomer gets its share by release, one by one.
        ("a", &["a", "b"], &[("a", 16)], 15, 1),
        ("b", &["a", "b"], &[("a", 16)], 0, 0),
        ("a", &["a", "b"], &[("", 1), ("a", 15)], 15, 0),
        ("b", &["a", "b"], &[("", 1), ("a", 15)], 1, 0),
        ("a", &["a", "b"], &[("a", 8), ("b", 8)], 8, 0),
        ("a", &["a", "b", "c"], &[("a", 6), ("b", 6), ("c", 4)], 6, 0),
        ("a", &["a", "b", "c"], &[("a", 7), ("b", 6), ("c", 3)], 6, 1),
        // Who is not known to live any more owns nothing.
        ("a", &["a", "b"], &[("a", 6), ("b", 5), ("x", 5)], 8, 0),
        ("b", &["a", "b"], &[("a", 6), ("b", 5), ("x", 5)], 8, 0),
    ];
    for (me, brokers, owners, contend, give) in cases {
        let plan = plan(me, brokers, owners);
        assert_eq!((contended(&plan), plan.hand_over.len()), (*contend, *give), "{me} {brokers:?} {owners:?}");
    }
}

#[test]
fn free_slots_are_dealt_out_once() {
    let owners = [("a", 3), ("", 9), ("c", 4)];
    let plans = ["a", "b", "c"].map(|me| (me, plan(me, &["a", "b", "c"], &owners)));
    for slot in 3..12 {
        let takers: Vec<_> = plans.iter().filter(|(_, plan)| plan.contend[slot]).map(|(me, _)| me).collect();
        assert_eq!(takers.len(), 1, "slot {slot}: {takers:?}");
    }
}

#[test]
fn what_is_free_for_long_anybody_takes() {
    let mut fleet = Fleet::new(member("a"));
    let owners = [("a", 15), ("", 1)];
    let both = || vec![seen("a", 1), seen("b", 1)];
    fleet.viewed(at(0), view(both(), &owners));
    assert!(!fleet.plan(at(900), &held("a", &owners)).contend[15]);
    assert!(fleet.plan(at(1_000), &held("a", &owners)).contend[15]);
}

#[test]
fn what_only_the_store_says_is_ours_we_take() {
    let mut fleet = Fleet::new(member("b"));
    fleet.viewed(at(0), view(vec![seen("a", 1), seen("b", 1)], &[("b", 1), ("a", 15)]));
    let plan = fleet.plan(at(0), &[Holding::No; SLOTS]);
    assert!(plan.contend[0] && contended(&plan) == 1, "nobody else ever would");
}

#[test]
fn light_slots_move_first() {
    let owners = [("a", 16)];
    let mut fleet = Fleet::new(member("a"));
    fleet.viewed(at(0), view(vec![seen("b", 1)], &owners));
    let mut held = held("a", &owners);
    for (slot, holding) in held.iter_mut().enumerate() {
        let queues = if slot == 3 { 0 } else { 1 };
        *holding = Holding::Yes(Weight { requests: if slot == 3 { 9 } else { 0 }, queues });
    }
    held[7] = Holding::Yes(Weight::default());
    assert_eq!(fleet.plan(at(0), &held).hand_over, [Slot(7)]);
    held[7] = Holding::Leaving;
    assert_eq!(fleet.plan(at(0), &held).hand_over, [], "one at a time");
    held[7] = Holding::Yes(Weight { requests: 1, queues: 0 });
    assert_eq!(fleet.plan(at(0), &held).hand_over, [Slot(0)], "queues without traffic before traffic");
}

#[test]
fn a_draining_broker_gives_everything_and_takes_nothing() {
    let owners = [("a", 6), ("b", 10)];
    let mut fleet = Fleet::new(member("a"));
    fleet.drain();
    fleet.viewed(at(0), view(vec![seen("b", 1)], &owners));
    let plan = fleet.plan(at(5_000), &held("a", &owners));
    assert_eq!((contended(&plan), plan.hand_over.len()), (0, 6));
    // And the others do not count on it.
    let mut other = Fleet::new(member("b"));
    let mut draining = seen("a", 1);
    draining.member.draining = true;
    other.viewed(at(0), view(vec![draining], &[("a", 0), ("", 6), ("b", 10)]));
    assert_eq!(contended(&other.plan(at(0), &held("b", &[("", 6), ("b", 10)]))), 16);
    assert!(!other.has_heirs(at(0)) && fleet.has_heirs(at(0)));
}

#[test]
fn silence_is_counted_on_the_own_clock_and_only_without_gaps() {
    let owners = [("b", 16)];
    let mut fleet = Fleet::new(member("a"));
    let mut look = |time, beat| {
        fleet.viewed(at(time), view(vec![seen("b", beat)], &owners));
        (fleet.burials(at(time)), contended(&fleet.plan(at(time), &[Holding::No; SLOTS])))
    };
    assert_eq!(look(0, 7), (vec![], 0));
    assert_eq!(look(3_499, 7), (vec![], 0));
    assert_eq!(look(3_500, 7), (vec![("b".into(), 7)], 16));
    assert_eq!(look(3_600, 8), (vec![], 0), "it beats again");
    fleet.missed();
    assert_eq!(contended(&fleet.plan(at(20_000), &[Holding::No; SLOTS])), 0, "nothing is known");
    fleet.viewed(at(20_000), view(vec![seen("b", 8)], &owners));
    assert_eq!(fleet.burials(at(20_000)), [], "the store may have been away for both");
    fleet.viewed(at(23_500), view(vec![seen("b", 8)], &owners));
    assert_eq!(fleet.burials(at(23_500)).len(), 1);
}

#[test]
fn a_broker_without_session_and_process_is_buried_at_once() {
    let refused = || Probed::Refused;
    let by = |name: &str| Probed::Answered(name.into());
    // its address, its host; is it looked at; what a look showed; is it buried then
    let cases = [
        ("http://10.1.1.1:1", "other", true, refused(), true),
        ("http://10.1.1.1:1", "other", true, by("new"), true),
        ("http://10.1.1.1:1", "other", true, by("b"), false),
        ("http://10.1.1.1:1", "other", true, Probed::Unclear, false),
        ("http://127.0.0.1:1", "host", true, refused(), true),
        ("http://127.0.0.1:1", "other", false, refused(), false),
        ("http://localhost:1", "other", false, refused(), false),
        ("http://[::1]:1", "other", false, refused(), false),
    ];
    for (address, host, looked, probed, buried) in cases {
        let mut fleet = Fleet::new(member("a"));
        let mut other = seen("b", 4);
        other.member.address = address.into();
        other.member.host = host.into();
        fleet.viewed(at(0), view(vec![other.clone()], &[("b", 16)]));
        assert!(fleet.suspects().is_empty(), "its session stands");
        other.session = false;
        fleet.viewed(at(500), view(vec![other.clone()], &[("b", 16)]));
        assert_eq!(!fleet.suspects().is_empty(), looked, "{address} {host}");
        assert!(fleet.burials(at(500)).is_empty(), "a lost session alone waits");
        if looked {
            fleet.probed("b", probed.clone());
        }
        assert_eq!(!fleet.burials(at(500)).is_empty(), buried, "{address} {host} {probed:?}");
        if buried {
            fleet.buried(at(500), "b");
            assert_eq!(contended(&fleet.plan(at(500), &[Holding::No; SLOTS])), 16);
        }
        other.beat += 1;
        fleet.viewed(at(1_000), view(vec![other], &[("b", 16)]));
        assert!(fleet.burials(at(1_000)).is_empty(), "it beat again");
    }
}

#[test]
fn two_brokers_cannot_share_an_address() {
    let mut fleet = Fleet::new(member("a"));
    let mut other = seen("b", 4);
    other.member.address = member("a").address;
    let mut look = |time, other: &Seen| {
        fleet.viewed(at(time), view(vec![other.clone()], &[]));
        fleet.conflict()
    };
    assert_eq!(look(0, &other), Conflict::Waiting, "it may be what is left of a predecessor");
    assert_eq!(look(500, &other), Conflict::Waiting);
    let mut alive = other.clone();
    alive.beat += 1;
    assert_eq!(look(1_000, &alive), Conflict::Lives("b".into()));
    alive.dead = true;
    assert_eq!(look(1_500, &alive), Conflict::None);
}
