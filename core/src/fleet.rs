//! Several brokers on one store: who lives, who is to be declared dead, which slots this broker should have (design.md
//! 4.1).
//!
//! A `Fleet` is fed with what the heartbeats return and asked for a `Plan`. It only says which slots to contend for and
//! which to give away; whether a slot may really be taken is decided by its `Broker`, and proven by the store.
//!
//! Brokers never compare clocks: a counter that stands still on the reader's own monotonic clock is all they know of
//! each other's time.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use compact_str::CompactString;
use xxhash_rust::xxh3::xxh3_64;

use crate::limits::{FREE_FOR_ALL, TAKEOVER};
use crate::name::TenantId;
use crate::settings::Maintenance;
use crate::store::Slot;
use crate::time::Moment;

/// Slots of a store; written into its schema, so this number can never change.
pub const SLOTS: usize = 16;

/// The slot of a tenant. Every broker that ever ran on a store must agree, so this can never change either.
pub fn slot_of(tenant: TenantId) -> Slot {
    Slot((xxh3_64(tenant.0.as_bytes()) % SLOTS as u64) as u8)
}

/// A broker as the others know it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// A UUID as text, new with every start; the owner's name in the slots it takes.
    pub incarnation: CompactString,
    /// `--advertise`: the URL under which the others reach it, without a slash at the end.
    pub address: CompactString,
    /// The machine's boot id and the network namespace: what a loopback address is worth something to.
    pub host: CompactString,
    /// It is about to stop and takes no slots.
    pub draining: bool,
}

/// A broker in a `FleetView`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Who.
    pub member: Member,
    /// Changes with each of its heartbeats.
    pub beat: u64,
    /// Whether its control connection still stands, as the store sees it.
    pub session: bool,
    /// It was buried: its heartbeats and renewals fail for ever, its slots are free.
    pub dead: bool,
}

/// What a heartbeat returns.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FleetView {
    /// Every broker that has not left; the asker may be among them.
    pub brokers: Vec<Seen>,
    /// The owner's incarnation of each slot, none where it was released or never taken.
    pub owners: Vec<Option<CompactString>>,
    /// Goes up when anything outside the slots changed (design.md 4.8).
    pub revision: u64,
    /// What operators have switched off.
    pub maintenance: Maintenance,
}

/// What a look at another broker's address showed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Probed {
    /// Nobody listens there.
    Refused,
    /// The broker with this incarnation answered.
    Answered(CompactString),
    /// Neither: no answer in time, or one that makes no sense.
    Unclear,
}

/// How this broker stands to one slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Holding {
    /// Not its own.
    #[default]
    No,
    /// Its own.
    Yes(Weight),
    /// Being given away.
    Leaving,
}

/// What it costs others when a slot moves; light ones move first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Weight {
    /// Requests since the plan before.
    pub requests: u64,
    /// Queues.
    pub queues: u64,
}

/// What this broker should do now.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// Slots to take as soon as they can be had.
    pub contend: [bool; SLOTS],
    /// Slots to give away.
    pub hand_over: Vec<Slot>,
}

/// Whether another broker has this one's address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Conflict {
    /// No.
    None,
    /// One had it, and is not yet known to have ended.
    Waiting,
    /// Yes, and it lives.
    Lives(CompactString),
}

/// Another broker, as far as it is known.
struct Other {
    member: Member,
    beat: u64,
    /// Since when the beat stands still.
    since: Moment,
    /// Whether the beat was ever seen to change.
    moved: bool,
    session: bool,
    dead: bool,
    /// Its address was seen to belong to nobody, or to somebody else.
    ended: bool,
}

impl Other {
    fn silent(&self, now: Moment) -> bool {
        now >= self.since.plus(TAKEOVER)
    }

    fn alive(&self, now: Moment) -> bool {
        !self.dead && !self.silent(now)
    }
}

/// All brokers as one of them sees them.
pub struct Fleet {
    me: Member,
    others: BTreeMap<CompactString, Other>,
    owners: [Option<CompactString>; SLOTS],
    /// Since when nobody owns a slot.
    free: [Option<Moment>; SLOTS],
    /// Whether there was a view that can be relied on now.
    heard: bool,
}

impl Fleet {
    /// A fleet of which nothing is known yet but this broker.
    pub fn new(me: Member) -> Self {
        Fleet { me, others: BTreeMap::new(), owners: [const { None }; SLOTS], free: [None; SLOTS], heard: false }
    }

    /// This broker.
    pub fn me(&self) -> &Member {
        &self.me
    }

    /// This broker is about to stop.
    pub fn drain(&mut self) {
        self.me.draining = true;
    }

    /// This broker was buried and goes on under another name.
    pub fn rename(&mut self, incarnation: CompactString) {
        self.me.incarnation = incarnation;
    }

    /// A heartbeat came back.
    pub fn viewed(&mut self, now: Moment, view: FleetView) {
        let mut before = core::mem::take(&mut self.others);
        for Seen { member, beat, session, dead } in view.brokers {
            if member.incarnation == self.me.incarnation {
                continue;
            }
            let known = before.remove(&member.incarnation);
            let other = match known {
                Some(known) if known.beat == beat && self.heard => Other { member, session, dead, ..known },
                // What was seen before a gap says nothing about the gap: the other may have tried in vain as well.
                Some(known) if known.beat == beat => Other { member, session, dead, since: now, ended: false, ..known },
                known => Other { moved: known.is_some(), member, beat, since: now, session, dead, ended: false },
            };
            self.others.insert(other.member.incarnation.clone(), other);
        }
        for (slot, owner) in view.owners.into_iter().take(SLOTS).enumerate() {
            self.owners[slot] = owner;
        }
        self.heard = true;
        for slot in 0..SLOTS {
            let owned = self.owner(now, slot).is_some();
            self.free[slot] = if owned { None } else { self.free[slot].or(Some(now)) };
        }
    }

    /// A heartbeat failed: nothing is known of anybody until the next one.
    pub fn missed(&mut self) {
        self.heard = false;
        self.free = [None; SLOTS];
    }

    /// The living owner of a slot as the last view told it, this broker included.
    fn owner(&self, now: Moment, slot: usize) -> Option<&Member> {
        let owner = self.owners[slot].as_ref()?;
        if *owner == self.me.incarnation {
            return Some(&self.me);
        }
        self.others.get(owner).filter(|other| other.alive(now)).map(|other| &other.member)
    }

    /// The living broker that owns a slot, if it is another one.
    pub fn owner_elsewhere(&self, now: Moment, slot: Slot) -> Option<&Member> {
        let owner = self.owner(now, usize::from(slot.0).min(SLOTS - 1))?;
        (owner.incarnation != self.me.incarnation).then_some(owner)
    }

    /// Whether another broker lives that could take a slot.
    pub fn has_heirs(&self, now: Moment) -> bool {
        self.others.values().any(|other| other.alive(now) && !other.member.draining)
    }

    /// Whose addresses are worth a look: their session is gone. A loopback address proves nothing on another machine.
    pub fn suspects(&self) -> Vec<Member> {
        let suspicious = |other: &&Other| !other.dead && !other.session && !other.ended;
        let reachable = |other: &&Other| !is_loopback(&other.member.address) || other.member.host == self.me.host;
        self.others.values().filter(suspicious).filter(reachable).map(|other| other.member.clone()).collect()
    }

    /// What a look at a suspect's address showed. It counts until the suspect beats again.
    pub fn probed(&mut self, incarnation: &str, probed: Probed) {
        let Some(other) = self.others.get_mut(incarnation) else { return };
        other.ended = match probed {
            Probed::Refused => true,
            Probed::Answered(by) => by != incarnation,
            Probed::Unclear => false,
        };
    }

    /// Who is to be declared dead, each with the beat at which it stands still: silent for too long, or without session
    /// and process.
    pub fn burials(&self, now: Moment) -> Vec<(CompactString, u64)> {
        let over = |other: &&Other| !other.dead && (other.silent(now) || other.ended && !other.session);
        self.others.values().filter(over).map(|other| (other.member.incarnation.clone(), other.beat)).collect()
    }

    /// A burial succeeded.
    pub fn buried(&mut self, now: Moment, incarnation: &str) {
        if let Some(other) = self.others.get_mut(incarnation) {
            other.dead = true;
        }
        for slot in 0..SLOTS {
            if self.owner(now, slot).is_none() {
                self.free[slot] = self.free[slot].or(Some(now));
            }
        }
    }

    /// Whether another broker lives under this one's address. One whose session stands is given the time to beat.
    pub fn conflict(&self) -> Conflict {
        let mut conflict = Conflict::None;
        for other in self.others.values() {
            if other.dead || other.member.address != self.me.address {
                continue;
            }
            if other.moved {
                return Conflict::Lives(other.member.incarnation.clone());
            }
            conflict = Conflict::Waiting;
        }
        conflict
    }

    /// What to do, given how this broker stands to each slot.
    pub fn plan(&self, now: Moment, held: &[Holding; SLOTS]) -> Plan {
        let mut plan = Plan::default();
        if self.me.draining {
            let mine = held.iter().enumerate().filter(|(_, holding)| matches!(holding, Holding::Yes(_)));
            plan.hand_over = mine.map(|(slot, _)| Slot(slot as u8)).collect();
            return plan;
        }
        for (slot, holding) in held.iter().enumerate() {
            plan.contend[slot] = matches!(holding, Holding::Yes(_));
        }
        if !self.heard {
            return plan;
        }
        // How many slots each broker has that takes slots, by name: every broker reckons the same from the same view.
        let living = self.others.values().filter(|other| other.alive(now) && !other.member.draining);
        let mut counts: BTreeMap<&str, usize> = living.map(|other| (other.member.incarnation.as_str(), 0)).collect();
        let mine = held.iter().filter(|holding| matches!(holding, Holding::Yes(_))).count();
        counts.insert(&self.me.incarnation, mine);
        let mut free = Vec::new();
        for (slot, holding) in held.iter().enumerate() {
            match (holding, self.owner(now, slot)) {
                (Holding::Yes(_), _) => {}
                (_, Some(owner)) if owner.incarnation != self.me.incarnation => {
                    if let Some(count) = counts.get_mut(owner.incarnation.as_str()) {
                        *count += 1;
                    }
                }
                // It was lost here, and the store still says that it is ours: nobody else would ever take it.
                (Holding::No, Some(_)) => {
                    plan.contend[slot] = true;
                    counts.entry(&self.me.incarnation).and_modify(|count| *count += 1);
                }
                _ => free.push(slot),
            }
        }
        for slot in &free {
            let Some(fewest) = counts.iter().min_by_key(|(_, count)| **count).map(|(name, _)| *name) else { break };
            if let Some(count) = counts.get_mut(fewest) {
                *count += 1;
            }
            let anybody = self.free[*slot].is_some_and(|since| now >= since.plus(FREE_FOR_ALL));
            let leaving = held[*slot] == Holding::Leaving;
            plan.contend[*slot] = !leaving && (anybody || fewest == self.me.incarnation);
        }
        // One at a time, and only while everything has its place: the next plan sees where it went.
        if free.is_empty() && mine > SLOTS.div_ceil(counts.len()) {
            let weights = held.iter().enumerate().filter_map(|(slot, holding)| match holding {
                Holding::Yes(weight) => Some((*weight, slot)),
                Holding::No | Holding::Leaving => None,
            });
            if let Some((_, slot)) = weights.min() {
                plan.contend[slot] = false;
                plan.hand_over.push(Slot(slot as u8));
            }
        }
        plan
    }
}

/// Whether a URL names the machine itself.
fn is_loopback(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap_or(rest);
    authority.starts_with("127.") || authority.starts_with("[::1]") || authority.split(':').next() == Some("localhost")
}
