//! Giving a slot away, getting it back, and trusting memory only as long as the store confirms it.

mod support;

use support::*;
use tidegate_core::broker::Standing;
use tidegate_core::error::{Rejection, StoreErrorKind};
use tidegate_core::reply::Reply;
use tidegate_core::settings::Settings;
use tidegate_core::store::{Slot, StoreReply, StoreRequest};
use tidegate_core::time::Span;

fn world() -> World {
    World::with(Settings { sends_on: true, ..Settings::default() })
}

fn not_owner() -> Reply {
    Reply::Refused(Rejection::NotOwner)
}

fn owner(world: &mut World) -> Option<String> {
    let now = world.now.store;
    match world.store.inner_mut().call(now, StoreRequest::Watch(Slot(0))) {
        StoreReply::Watched(view) => view.owner.map(|owner| owner.to_string()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_handed_over_slot_is_released_and_not_taken_again_until_asked() {
    let mut world = world();
    assert!(queued(&world.call(push("q", "p", &[("a", b"1")]))));
    let parked = world.start(long_pop("other", 1, Span::from_secs(30)));
    world.broker.hand_over(world.now);
    world.pump();
    assert_eq!(world.answer(parked), Some(not_owner()), "it is for the next owner");
    assert_eq!((owner(&mut world), world.broker.slot_standing()), (None, Standing::Elsewhere));
    world.advance(Span::from_secs(10));
    assert_eq!((owner(&mut world), world.call(push("q", "p", &[("b", b"2")]))), (None, not_owner()));
    world.broker.contend(world.now, true);
    world.pump();
    assert_eq!(world.broker.slot_standing(), Standing::Ours);
    assert!(queued(&world.call(push("q", "p", &[("c", b"3")]))));
    assert_eq!(payloads(&delivered(world.call(pop("q", 10)))), ["1", "3"]);
}

#[test]
fn what_was_begun_is_finished_before_a_slot_is_handed_over() {
    let mut world = world();
    world.store.set_latency(Span::from_millis(25), Span::from_millis(25));
    let writing = world.start(push("q", "p", &[("a", b"1")]));
    let behind = world.start(push("q", "p", &[("b", b"2")]));
    world.broker.hand_over(world.now);
    world.pump();
    assert_eq!(world.broker.slot_standing(), Standing::Leaving);
    let late = world.start(push("q", "p", &[("c", b"3")]));
    assert_eq!(world.answer(late), Some(not_owner()));
    world.advance(Span::from_secs(1));
    for begun in [writing, behind] {
        assert!(queued(&world.answer(begun).expect("it was begun")));
    }
    assert_eq!(owner(&mut world), None);
}

#[test]
fn a_lost_slot_sends_everything_back_at_once() {
    let mut world = world();
    let parked = world.start(long_pop("q", 1, Span::from_secs(30)));
    world.take_by_stranger();
    world.advance(Span::from_millis(600));
    assert_eq!(world.answer(parked), Some(not_owner()));
    assert_eq!(world.call(push("q", "p", &[("a", b"1")])), not_owner());
}

#[test]
fn a_distrusted_memory_answers_nothing_until_a_later_renewal() {
    let mut world = world();
    world.store.set_latency(Span::from_millis(25), Span::from_millis(25));
    world.broker.distrust(world.now);
    world.pump();
    let asked = world.start(pop("q", 1));
    world.advance(Span::from_millis(20));
    assert_eq!(world.answer(asked), None, "the renewal is on its way");
    world.advance(Span::from_millis(300));
    assert_eq!(world.answer(asked), Some(Reply::Popped(None)));
    // Renewals that fail leave it so.
    world.store.set_outage(Some(StoreErrorKind::Unavailable));
    world.broker.distrust(world.now);
    let asked = world.start(pop("q", 1));
    world.advance(Span::from_millis(2_600));
    assert_eq!(world.answer(asked), Some(not_owner()));
}

#[test]
fn a_buried_broker_goes_on_under_another_name() {
    let mut world = world();
    world.broker.rename(world.now, "phoenix".into());
    assert_eq!(world.broker.slot_standing(), Standing::Elsewhere);
    // The store shows the old name, which is dead to everybody; here it is only silent.
    world.advance(Span::from_secs(5));
    assert_eq!(owner(&mut world).as_deref(), Some("phoenix"));
}

#[test]
fn a_watcher_that_could_not_look_starts_counting_anew() {
    let mut world = world();
    world.take_by_stranger();
    world.advance(Span::from_secs(3));
    world.store.set_outage(Some(StoreErrorKind::Unavailable));
    world.advance(Span::from_secs(10));
    world.store.set_outage(None);
    world.advance(Span::from_secs(3));
    assert_eq!(owner(&mut world).as_deref(), Some("stranger"));
    world.advance(Span::from_secs(1));
    assert_eq!(owner(&mut world).as_deref(), Some("tidegate"));
}
