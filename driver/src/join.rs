//! The heartbeat of a broker among others: beat, look at who seems to have ended, bury them, and carry out the plan that
//! `core::fleet` makes of what was seen.

use std::time::Duration;

use compact_str::CompactString;
use futures_util::future::join_all;
use tidegate_core::broker::{Counters, Standing};
use tidegate_core::fleet::{Conflict, Fleet, Holding, Member, Probed, SLOTS, Weight};
use tidegate_core::store::Slot;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use crate::handle::Order;
use crate::slots::{Keep, Peer};
use crate::{Clock, Membership, MembershipError, Slots};

/// From one heartbeat to the next.
const BEAT: Duration = Duration::from_millis(500);
/// The same while somebody waits for news of the owners, or while slots are given away.
const HASTY_BEAT: Duration = Duration::from_millis(100);
/// After its last slot is released, how long a retiring broker waits for others to take them: requests that it is asked
/// to send on have nowhere to go before.
const SUCCESSION: Duration = Duration::from_millis(1_500);

/// Looks at the address of a broker whose control connection is gone.
pub trait Probe: Send + Sync + 'static {
    /// Tells who answers there, soon.
    fn probe(&self, address: &str) -> impl Future<Output = Probed> + Send;
}

/// Why a broker cannot join.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JoinError {
    /// Another broker lives under the same address.
    AddressTaken {
        /// The address.
        address: CompactString,
        /// The other's incarnation.
        incarnation: CompactString,
    },
    /// The store could not be asked.
    Store(String),
}

/// The way to the heartbeat's task.
pub struct Joined {
    orders: mpsc::UnboundedSender<Farewell>,
    task: JoinHandle<()>,
}

/// What a broker that stops asks of its heartbeat.
enum Farewell {
    /// Give all slots away. Answered once they are, with whether there is anybody who takes them.
    Retire(oneshot::Sender<bool>),
    /// Leave the fleet.
    Leave,
}

impl Joined {
    /// Gives all slots to the others. Tells whether there are others; if not, nothing was given away.
    pub async fn retire(&self) -> bool {
        let (sender, answer) = oneshot::channel();
        // A task that has ended owns nothing that could be given away.
        let _ = self.orders.send(Farewell::Retire(sender));
        answer.await.unwrap_or(false)
    }

    /// Leaves the fleet; all slots are released by now.
    pub async fn leave(self) {
        let _ = self.orders.send(Farewell::Leave);
        let _ = self.task.await;
    }
}

/// Joins the brokers on a store, and takes part until told otherwise. `mint` makes incarnations; the brokers are named by
/// them.
pub async fn join<M: Membership, P: Probe>(
    slots: Slots,
    membership: M,
    probe: P,
    me: Member,
    clock: Clock,
    mint: impl FnMut() -> CompactString + Send + 'static,
) -> Result<Joined, JoinError> {
    slots.rename(me.incarnation.clone());
    let (orders, farewells) = mpsc::unbounded_channel();
    let (keeper, switches) = mpsc::unbounded_channel();
    let mut heart = Heart {
        fleet: Fleet::new(me),
        slots,
        membership,
        probe,
        clock,
        mint,
        contending: [false; SLOTS],
        counted: Default::default(),
        works: true,
        retiring: None,
        released: None,
        farewells,
        switches,
    };
    heart.enter().await?;
    heart.slots.kept_by(keeper);
    let task = tokio::spawn(heart.run());
    Ok(Joined { orders, task })
}

struct Heart<M, P, F> {
    fleet: Fleet,
    slots: Slots,
    membership: M,
    probe: P,
    clock: Clock,
    mint: F,
    /// Which brokers were told to take their slots.
    contending: [bool; SLOTS],
    /// Requests that each broker had counted at the plan before.
    counted: [u64; SLOTS],
    /// Whether the last heartbeat came back: only changes are logged.
    works: bool,
    retiring: Option<oneshot::Sender<bool>>,
    /// Since when nothing is left to give away.
    released: Option<Instant>,
    farewells: mpsc::UnboundedReceiver<Farewell>,
    switches: mpsc::UnboundedReceiver<Keep>,
}

impl<M: Membership, P: Probe, F: FnMut() -> CompactString + Send> Heart<M, P, F> {
    /// The first heartbeats: until it is certain that nobody else has this address.
    async fn enter(&mut self) -> Result<(), JoinError> {
        loop {
            if let Err(error) = self.beat().await {
                return Err(JoinError::Store(match error {
                    MembershipError::Lost(text) => text,
                    MembershipError::Buried => "declared dead at the start".to_owned(),
                }));
            }
            match self.fleet.conflict() {
                Conflict::None => return Ok(()),
                Conflict::Lives(incarnation) => {
                    let _ = self.membership.leave(&self.fleet.me().incarnation).await;
                    return Err(JoinError::AddressTaken { address: self.fleet.me().address.clone(), incarnation });
                }
                Conflict::Waiting => sleep(HASTY_BEAT).await,
            }
        }
    }

    async fn run(mut self) {
        loop {
            let started = Instant::now();
            if self.works {
                self.act().await;
            }
            let hasty = self.retiring.is_some();
            let (next, soonest) = (started + if hasty { HASTY_BEAT } else { BEAT }, started + HASTY_BEAT);
            tokio::select! {
                biased;
                farewell = self.farewells.recv() => match farewell {
                    Some(Farewell::Retire(answer)) => {
                        self.fleet.drain();
                        self.retiring = Some(answer);
                    }
                    Some(Farewell::Leave) | None => {
                        let _ = self.membership.leave(&self.fleet.me().incarnation).await;
                        return;
                    }
                },
                Some((switch, answer)) = self.switches.recv() => {
                    // Whoever asked may have left; it is switched nevertheless.
                    let _ = answer.send(self.membership.switch(switch).await);
                }
                () = sleep_until(next) => {}
                () = async { self.slots.wanted().await; sleep_until(soonest).await } => {}
            }
            self.beat_and_log().await;
        }
    }

    async fn beat_and_log(&mut self) {
        match self.beat().await {
            Ok(()) => {
                if !self.works {
                    tracing::info!("heartbeats work again");
                }
                self.works = true;
            }
            Err(MembershipError::Lost(error)) => {
                if self.works {
                    tracing::warn!(error, "a heartbeat failed; trusting nothing in memory until the store confirms it");
                }
                self.works = false;
                self.fleet.missed();
                self.slots.order(|| Order::Distrust);
            }
            Err(MembershipError::Buried) => {
                let incarnation = (self.mint)();
                tracing::warn!(%incarnation, "declared dead by another broker; going on under another name, with nothing");
                self.fleet.rename(incarnation.clone());
                self.fleet.missed();
                self.slots.rename(incarnation.clone());
                self.slots.order(|| Order::Rename(incarnation.clone()));
                self.slots.refresh();
            }
        }
    }

    /// One heartbeat, and what it shows of the others.
    async fn beat(&mut self) -> Result<(), MembershipError> {
        let view = self.membership.beat(self.fleet.me()).await?;
        self.slots.maintain(view.maintenance);
        self.fleet.viewed(self.clock.moment(), view);
        let suspects = self.fleet.suspects();
        if !suspects.is_empty() {
            let looks = suspects.iter().map(|suspect| self.probe.probe(&suspect.address));
            for (suspect, probed) in suspects.iter().zip(join_all(looks).await) {
                tracing::debug!(incarnation = %suspect.incarnation, ?probed, "a broker's control connection is gone");
                self.fleet.probed(&suspect.incarnation, probed);
            }
        }
        for (incarnation, beat) in self.fleet.burials(self.clock.moment()) {
            if self.membership.bury(&incarnation, beat).await? {
                tracing::warn!(%incarnation, "another broker has ended; its slots are free");
                self.fleet.buried(self.clock.moment(), &incarnation);
            }
        }
        Ok(())
    }

    /// Carries out the plan.
    async fn act(&mut self) {
        let now = self.clock.moment();
        let fleet = &self.fleet;
        self.slots.publish(|slot| {
            let owner = fleet.owner_elsewhere(now, slot)?;
            Some(Peer { incarnation: owner.incarnation.clone(), address: owner.address.clone() })
        });
        if self.retiring.is_some() && !self.fleet.has_heirs(now) {
            self.retired(false);
            return;
        }
        if self.fleet.me().draining && self.retiring.is_none() && self.released.is_none() {
            // There was nobody to give them to: they stay until the brokers are shut down.
            return;
        }
        if self.retiring.is_some() {
            self.slots.retire();
        }
        let held = self.holdings().await;
        let plan = self.fleet.plan(now, &held);
        for (slot, contend) in (0..SLOTS as u8).map(Slot).zip(plan.contend) {
            let told = &mut self.contending[usize::from(slot.0)];
            if plan.hand_over.contains(&slot) {
                *told = false;
                tracing::info!(slot = slot.0, "handing the slot over");
                self.slots.handle(slot).order(Order::HandOver);
            } else if *told != contend {
                *told = contend;
                self.slots.handle(slot).order(Order::Contend(contend));
            }
        }
        if self.retiring.is_some() && held.iter().all(|holding| *holding == Holding::No) {
            let released = *self.released.get_or_insert_with(Instant::now);
            let inherited = (0..SLOTS as u8).all(|slot| self.fleet.owner_elsewhere(now, Slot(slot)).is_some());
            if inherited || released.elapsed() >= SUCCESSION {
                self.retired(true);
            }
        }
    }

    fn retired(&mut self, given: bool) {
        if let Some(answer) = self.retiring.take() {
            // Whoever asked may have lost patience.
            let _ = answer.send(given);
        }
    }

    async fn holdings(&mut self) -> [Holding; SLOTS] {
        let mut held = [Holding::No; SLOTS];
        for (at, holding) in held.iter_mut().enumerate() {
            let slot = Slot(at as u8);
            *holding = match self.slots.standing(slot) {
                Standing::Elsewhere => Holding::No,
                Standing::Leaving => Holding::Leaving,
                Standing::Ours => {
                    let counters = self.slots.handle(slot).counters().await;
                    let count = requests(&counters);
                    let before = std::mem::replace(&mut self.counted[at], count);
                    Holding::Yes(Weight { requests: count.saturating_sub(before), queues: counters.queues })
                }
            };
        }
        held
    }
}

fn requests(counters: &Counters) -> u64 {
    counters.push_requests + counters.pop_requests + counters.ack_requests + counters.transactions
}
