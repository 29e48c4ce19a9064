//! A broker's process: a `Broker` for each slot, its clocks, its heartbeat. What the driver does in production, done by
//! events.

use compact_str::{CompactString, format_compact};
use tidegate_core::broker::{Broker, Output, Standing};
use tidegate_core::error::{StoreError, StoreErrorKind};
use tidegate_core::fleet::{Conflict, Fleet, Holding, Member, Probed, SLOTS, Weight};
use tidegate_core::record::StartFrom;
use tidegate_core::settings::Settings;
use tidegate_core::store::{Slot, StoreAnswer, StoreReply};
use tidegate_core::time::{Moment, Now, StoreClock};

use super::{Coming, World};
use crate::history::{At, Micros};

/// From one heartbeat to the next while requests wait for an owner, or slots are given away.
const HASTY_BEAT: Micros = 100_000;

/// A process, or the place where one was.
pub struct Host {
    number: u8,
    /// Counts its processes: what was meant for an earlier one is nobody's.
    pub life: u32,
    /// Whether it runs.
    pub up: bool,
    /// It does nothing until then.
    pub paused_until: At,
    /// It was told to stop.
    pub stopping: bool,
    /// How long it stays down after it stopped.
    down_for: Micros,
    /// By slot of the world.
    pub seats: Vec<Seat>,
    fleet: Option<Fleet>,
    entered: bool,
    /// The last heartbeat came back.
    works: bool,
    contending: [bool; SLOTS],
    names: u32,
    /// By slot of the world: another broker that owns it.
    pub peers: Vec<Option<u8>>,
    /// Calls that wait for an owner.
    pub held: Vec<u32>,
    /// Whether a look at them is due.
    pub retry_set: bool,
    clock: Clock,
    /// It cannot reach the store until then.
    pub cut_from_store: At,
    /// Clients cannot reach it until then.
    pub cut_from_clients: At,
    /// By host: they cannot reach each other until then.
    pub cut_from: [At; 3],
    /// The next heartbeat is lost.
    pub beat_lost: bool,
}

/// A slot's broker.
pub struct Seat {
    pub broker: Broker,
    store_clock: StoreClock,
    wake_at: Option<At>,
    dirty: bool,
    standing: Standing,
}

/// A process's monotonic clock.
#[derive(Clone, Copy)]
struct Clock {
    /// True time and reading at the last change of speed.
    since: At,
    reading: i64,
    /// Millionths that it is too fast.
    drift: i64,
}

impl Clock {
    fn at(&self, now: At) -> Moment {
        let passed = now - self.since;
        let passed = if self.drift == 0 { passed } else { passed + passed * self.drift / 1_000_000 };
        Moment::from_micros((self.reading + passed).unsigned_abs())
    }

    /// The first moment of true time at which it shows `moment`.
    fn when(&self, moment: Moment) -> At {
        let wanted = moment.as_micros() as i64 - self.reading;
        if self.drift == 0 {
            return self.since + wanted;
        }
        let mut at = self.since + (i128::from(wanted) * 1_000_000 / i128::from(1_000_000 + self.drift)) as i64;
        while self.at(at) < moment {
            at += 1;
        }
        at
    }
}

/// Refused, and certainly nothing was done.
pub fn unavailable() -> StoreReply {
    StoreReply::Failed(StoreError { kind: StoreErrorKind::Unavailable, text: "a fault".into() })
}

impl Host {
    /// A host without a process.
    pub fn down(number: u8) -> Self {
        Host {
            number,
            life: 0,
            up: false,
            paused_until: 0,
            stopping: false,
            down_for: 0,
            seats: Vec::new(),
            fleet: None,
            entered: false,
            works: false,
            contending: [false; SLOTS],
            names: 0,
            peers: Vec::new(),
            held: Vec::new(),
            retry_set: false,
            clock: Clock { since: 0, reading: 1_000_000 * i64::from(number), drift: 0 },
            cut_from_store: 0,
            cut_from_clients: 0,
            cut_from: [0; 3],
            beat_lost: false,
        }
    }

    /// Whether the process of that life still runs.
    pub fn lives(&self, life: u32) -> bool {
        self.up && self.life == life
    }

    /// Whether it is one of several.
    pub fn is_fleet(&self) -> bool {
        self.fleet.is_some()
    }

    fn incarnation(&mut self) -> CompactString {
        self.names += 1;
        format_compact!("b{}.{}", self.number, self.names)
    }

    /// Its clock goes faster, or slower, from now on.
    pub fn drift(&mut self, now: At, millionths: i64) {
        let reading = self.clock.at(now).as_micros() as i64;
        self.clock = Clock { since: now, reading, drift: millionths };
    }

    fn now(&self, seat: u8, at: At) -> Now {
        self.seats[usize::from(seat)].store_clock.now(self.clock.at(at))
    }
}

impl World {
    /// Starts a process on a host that has none.
    pub(super) fn start_host(&mut self, host: u8) {
        let fleet = self.setup.brokers > 1;
        let slots = self.names.slots.clone();
        let entropy: Vec<[u8; 32]> = slots.iter().map(|_| self.entropy.bytes()).collect();
        let setup = &self.setup;
        let place = &mut self.hosts[usize::from(host)];
        let incarnation = place.incarnation();
        let seats = slots.iter().zip(entropy).map(|(slot, entropy)| {
            let settings = Settings {
                slot: *slot,
                owner: incarnation.clone(),
                sends_on: fleet,
                hot_list: setup.hot_list != 0,
                window_batch: setup.window_batch as u64,
                default_start: if setup.default_new != 0 { StartFrom::New } else { StartFrom::All },
                dedup_cache_bytes: setup.dedup_cache_bytes as u64,
                require_lease: setup.require_lease != 0,
                ..Settings::default()
            };
            Seat {
                broker: Broker::new(settings, entropy),
                store_clock: StoreClock::default(),
                wake_at: None,
                dirty: false,
                standing: Standing::Elsewhere,
            }
        });
        place.seats = seats.collect();
        place.life += 1;
        place.up = true;
        place.stopping = false;
        place.paused_until = 0;
        place.entered = false;
        place.works = false;
        place.contending = [false; SLOTS];
        place.peers = vec![None; slots.len()];
        place.held.clear();
        place.retry_set = false;
        place.beat_lost = false;
        place.fleet = fleet.then(|| {
            Fleet::new(Member {
                incarnation,
                address: format_compact!("http://10.0.0.{host}"),
                host: format_compact!("machine {host}"),
                draining: false,
            })
        });
        let life = place.life;
        for seat in 0..slots.len() as u8 {
            let now = self.hosts[usize::from(host)].now(seat, self.now);
            let broker = &mut self.hosts[usize::from(host)].seats[usize::from(seat)].broker;
            if fleet {
                broker.contend(now, false);
            }
            broker.tick(now);
            self.soil(host, seat);
        }
        if fleet {
            self.later(0, Coming::Beat { host, life });
        }
    }

    /// The process is gone, with all it had in memory.
    pub(super) fn stop_host(&mut self, host: u8, down_for: Micros) {
        let place = &mut self.hosts[usize::from(host)];
        place.up = false;
        place.seats.clear();
        place.held.clear();
        place.paused_until = 0;
        if let Some(fleet) = place.fleet.take() {
            self.store.session_lost(&fleet.me().incarnation);
        }
        self.later(down_for, Coming::Start { host });
        self.connections_broken(host);
    }

    /// The process is told to stop, and takes its time.
    pub(super) fn shut_down(&mut self, host: u8, down_for: Micros) {
        let place = &mut self.hosts[usize::from(host)];
        place.stopping = true;
        place.down_for = down_for;
        match &mut place.fleet {
            Some(fleet) => fleet.drain(),
            None => self.drain_host(host),
        }
    }

    fn drain_host(&mut self, host: u8) {
        for seat in 0..self.hosts[usize::from(host)].seats.len() as u8 {
            self.feed(host, seat, |broker, now| broker.drain(now));
        }
    }

    /// Gives a broker an input, with the time.
    pub(super) fn feed<T>(&mut self, host: u8, seat: u8, input: impl FnOnce(&mut Broker, Now) -> T) -> T {
        let now = self.hosts[usize::from(host)].now(seat, self.now);
        let done = input(&mut self.hosts[usize::from(host)].seats[usize::from(seat)].broker, now);
        self.soil(host, seat);
        done
    }

    /// A broker has something to say, once all that arrives at this moment has arrived.
    fn soil(&mut self, host: u8, seat: u8) {
        let place = &mut self.hosts[usize::from(host)].seats[usize::from(seat)];
        if !place.dirty {
            place.dirty = true;
            self.dirty.push((host, seat));
        }
    }

    /// Carries out what brokers want until they want nothing.
    pub(super) fn flush(&mut self) {
        let mut at = 0;
        while at < self.dirty.len() {
            let (host, seat) = self.dirty[at];
            at += 1;
            if !self.hosts[usize::from(host)].up {
                continue;
            }
            loop {
                let place = &mut self.hosts[usize::from(host)];
                if !place.up {
                    break;
                }
                match place.seats[usize::from(seat)].broker.poll() {
                    Some(Output::Reply(id, reply)) => self.replied(host, seat, id, reply),
                    Some(Output::Store(call, request)) => self.ask_store(host, seat, call, request),
                    // For an operator's log.
                    Some(Output::Notice(_)) => {}
                    None => break,
                }
            }
            self.after(host, seat);
        }
        self.dirty.clear();
    }

    /// What follows from where a broker stands now.
    fn after(&mut self, host: u8, seat: u8) {
        let now = self.now;
        let place = &mut self.hosts[usize::from(host)];
        if !place.up {
            return;
        }
        let (clock, life) = (place.clock, place.life);
        let at_seat = &mut place.seats[usize::from(seat)];
        at_seat.dirty = false;
        let deadline = at_seat.broker.deadline().map(|deadline| clock.when(deadline).max(now));
        let standing = at_seat.broker.slot_standing();
        let moved = std::mem::replace(&mut at_seat.standing, standing) != standing;
        if deadline.is_some() && at_seat.wake_at.is_none_or(|set| deadline.is_some_and(|at| at < set)) {
            at_seat.wake_at = deadline;
            if let Some(at) = deadline {
                self.later(at - now, Coming::Wake { host, life, seat });
            }
        }
        let place = &self.hosts[usize::from(host)];
        if place.stopping && place.seats.iter().all(|seat| seat.broker.drained()) {
            let down_for = place.down_for;
            if let Some(fleet) = &place.fleet {
                self.store.leave(&fleet.me().incarnation);
            }
            return self.stop_host(host, down_for);
        }
        if moved && !place.held.is_empty() {
            self.retry_soon(host, 0);
        }
    }

    pub(super) fn wake(&mut self, host: u8, life: u32, seat: u8) {
        let now = self.now;
        let place = &mut self.hosts[usize::from(host)];
        if !place.lives(life) || place.seats[usize::from(seat)].wake_at.is_none_or(|at| at > now) {
            return;
        }
        let moment = place.clock.at(now);
        let at_seat = &mut place.seats[usize::from(seat)];
        at_seat.wake_at = None;
        if at_seat.broker.deadline().is_some_and(|deadline| deadline <= moment) {
            self.feed(host, seat, |broker, now| broker.tick(now));
        } else {
            self.soil(host, seat);
        }
    }

    /// An answer of the store.
    pub(super) fn hear(&mut self, host: u8, seat: u8, answer: StoreAnswer) {
        let now = self.now;
        let place = &mut self.hosts[usize::from(host)];
        let moment = place.clock.at(now);
        place.seats[usize::from(seat)].store_clock.observe(answer.time, moment);
        self.feed(host, seat, |broker, now| broker.stored(now, answer));
    }

    // The heartbeat among others.

    pub(super) fn beat(&mut self, host: u8) {
        let index = usize::from(host);
        let Some(mut fleet) = self.hosts[index].fleet.take() else { return };
        let cut = self.hosts[index].cut_from_store > self.now || self.store.out_until > self.now;
        let lost = std::mem::take(&mut self.hosts[index].beat_lost);
        let moment = self.hosts[index].clock.at(self.now);
        let seats = self.hosts[index].seats.len() as u8;
        if cut || lost {
            self.hosts[index].works = false;
            fleet.missed();
            for seat in 0..seats {
                self.feed(host, seat, |broker, now| broker.distrust(now));
            }
        } else if let Some(view) = self.store.beat(self.now, fleet.me()) {
            self.hosts[index].works = true;
            fleet.viewed(moment, view);
            for suspect in fleet.suspects() {
                let probed = self.probe(host, &suspect);
                fleet.probed(&suspect.incarnation, probed);
            }
            for (incarnation, beat) in fleet.burials(moment) {
                if self.store.bury(&incarnation, beat) {
                    fleet.buried(moment, &incarnation);
                }
            }
        } else {
            let incarnation = self.hosts[index].incarnation();
            fleet.rename(incarnation.clone());
            fleet.missed();
            self.hosts[index].works = false;
            for seat in 0..seats {
                self.feed(host, seat, |broker, now| broker.rename(now, incarnation.clone()));
            }
        }
        let entered = self.hosts[index].entered || (self.hosts[index].works && fleet.conflict() == Conflict::None);
        self.hosts[index].entered = entered;
        let mut stopped = false;
        if entered && self.hosts[index].works {
            stopped = self.act_on_plan(host, &fleet, moment);
        }
        let place = &mut self.hosts[index];
        place.fleet = Some(fleet);
        let life = place.life;
        let hasty = place.stopping || !place.held.is_empty() || !entered;
        self.later(if hasty { HASTY_BEAT } else { self.setup.beat * 1_000 }, Coming::Beat { host, life });
        if stopped {
            self.drain_host(host);
        }
        if !self.hosts[index].held.is_empty() {
            self.retry_soon(host, 0);
        }
    }

    /// Who answers at another broker's address.
    fn probe(&self, host: u8, suspect: &Member) -> Probed {
        let other = suspect.address.bytes().last().map_or(0, |digit| digit.wrapping_sub(b'0'));
        let Some(place) = self.hosts.get(usize::from(other)) else { return Probed::Refused };
        let cut = self.hosts[usize::from(host)].cut_from[usize::from(other)] > self.now;
        if cut || place.paused_until > self.now {
            return Probed::Unclear;
        }
        match &place.fleet {
            Some(fleet) => Probed::Answered(fleet.me().incarnation.clone()),
            None => Probed::Refused,
        }
    }

    /// Carries out the plan; whether nothing is left to give away.
    fn act_on_plan(&mut self, host: u8, fleet: &Fleet, moment: Moment) -> bool {
        let index = usize::from(host);
        let slots = self.names.slots.clone();
        for (seat, slot) in slots.iter().enumerate() {
            let owner = fleet.owner_elsewhere(moment, *slot);
            let number = owner.and_then(|owner| Some(owner.address.bytes().last()?.wrapping_sub(b'0')));
            self.hosts[index].peers[seat] = number;
        }
        let mut held = [Holding::No; SLOTS];
        let me = &fleet.me().incarnation;
        for (slot, holding) in held.iter_mut().enumerate() {
            let seat = slots.iter().position(|of| usize::from(of.0) == slot);
            *holding = match seat {
                Some(seat) => match self.hosts[index].seats[seat].broker.slot_standing() {
                    Standing::Elsewhere => Holding::No,
                    Standing::Leaving => Holding::Leaving,
                    Standing::Ours => Holding::Yes(Weight { requests: 1, queues: 1 }),
                },
                None if self.store.idle_owners[slot].as_ref() == Some(me) => Holding::Yes(Weight::default()),
                None => Holding::No,
            };
        }
        let plan = fleet.plan(moment, &held);
        for slot in 0..SLOTS {
            let seat = slots.iter().position(|of| usize::from(of.0) == slot);
            let gives = plan.hand_over.contains(&Slot(slot as u8));
            let Some(seat) = seat else {
                // A slot without tenants moves at once: only who has it counts.
                let owner = &mut self.store.idle_owners[slot];
                if gives {
                    *owner = None;
                } else if plan.contend[slot] && owner.is_none() {
                    *owner = Some(me.clone());
                }
                continue;
            };
            let seat = seat as u8;
            if gives {
                self.hosts[index].contending[slot] = false;
                self.feed(host, seat, |broker, now| broker.hand_over(now));
            } else if self.hosts[index].contending[slot] != plan.contend[slot] {
                self.hosts[index].contending[slot] = plan.contend[slot];
                let contend = plan.contend[slot];
                self.feed(host, seat, |broker, now| broker.contend(now, contend));
            }
        }
        let nobody = held.iter().all(|holding| *holding == Holding::No);
        self.hosts[index].stopping && (nobody || !fleet.has_heirs(moment))
    }
}
