//! What the store holds, told from its commits alone.

use std::rc::Rc;

use crate::history::{
    At, ClientNo, Committed, Fault, GroupNo, Key, LaneNo, LeaseNo, Leased, MessageNo, Micros, Options, PartitionNo,
    PayloadNo, Pop, QueueIdNo, QueueNo, Scope, Stamp, Start, TenantNo, Terms, Written,
};

const SECOND: Micros = 1_000_000;

/// A message of a log.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    pub message: MessageNo,
    pub key: Key,
    pub payload: PayloadNo,
    pub created: Stamp,
    /// When, where in the history, and with which commit it came.
    pub at: At,
    pub place: u32,
    /// The place of its commit in the order in which owners made them.
    pub order: u64,
}

/// A cursor, with when it was last written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cursor {
    pub next: u64,
    pub retries: u32,
    pub consumed: u64,
    pub lease: Option<Leased>,
    pub at: At,
    pub place: u32,
}

/// A partition.
#[derive(Clone, Debug)]
pub struct Partition {
    pub queue: QueueIdNo,
    pub lane: LaneNo,
    pub log: Vec<Message>,
    pub cursors: Vec<(GroupNo, Cursor)>,
}

/// A group's registration.
#[derive(Clone, Copy, Debug)]
pub struct Subscription {
    pub group: GroupNo,
    pub start: Start,
    pub registered: Stamp,
    pub changed: Option<Stamp>,
    pub place: u32,
    pub order: u64,
}

/// A queue.
#[derive(Clone, Debug)]
pub struct Queue {
    pub name: QueueNo,
    pub options: Options,
    /// What they were before, which decisions under way may still have used, and when they changed.
    pub past: Vec<(Options, u32)>,
    pub changed: u32,
    pub born: u32,
    pub ended: bool,
    pub subscriptions: Vec<Subscription>,
    pub partitions: Vec<PartitionNo>,
}

/// A dead letter.
#[derive(Clone, Copy, Debug)]
pub struct Dead {
    pub partition: PartitionNo,
    pub group: GroupNo,
    pub message: MessageNo,
    pub key: Key,
    pub retries: u32,
    pub place: u32,
    pub dropped: Option<u32>,
}

/// What a pop took of a partition.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    pub partition: PartitionNo,
    pub group: GroupNo,
    pub first: u64,
    pub end: u64,
    pub order: u64,
}

/// The whole.
pub struct Shadow {
    pub terms: Terms,
    pub partitions: Vec<Option<Partition>>,
    pub queues: Vec<Option<Queue>>,
    places: Vec<Option<(PartitionNo, u32)>>,
    payloads: Vec<Option<(MessageNo, u32)>>,
    pub leases: Vec<Vec<Grant>>,
    pub dead: Vec<Option<Dead>>,
    /// All commits, for a store that loses some.
    commits: Vec<(Rc<Committed>, u32, At)>,
    pub now: At,
    pub place: u32,
    /// Clocks have not gone steadily: store time cannot be told from true time.
    pub jumped: bool,
    /// Since which place nothing was lost.
    pub lost: u32,
    /// When a seek or a deletion was last begun.
    pub disturbed: u32,
    pub faults: u32,
    /// When something last went wrong.
    pub fault_at: At,
}

/// The place of a commit in the order in which owners made them; the store may get two of them the other way round.
pub fn order(commit: &Committed) -> u64 {
    commit.epoch << 32 | commit.number
}

fn put<T: Clone>(list: &mut Vec<T>, at: usize, empty: T) -> &mut T {
    if list.len() <= at {
        list.resize(at + 1, empty);
    }
    &mut list[at]
}

impl Shadow {
    pub fn new(terms: &Terms) -> Self {
        Shadow {
            terms: terms.clone(),
            partitions: Vec::new(),
            queues: Vec::new(),
            places: Vec::new(),
            payloads: Vec::new(),
            leases: Vec::new(),
            dead: Vec::new(),
            commits: Vec::new(),
            now: 0,
            place: 0,
            jumped: false,
            lost: 0,
            disturbed: 0,
            faults: 0,
            fault_at: At::MIN / 2,
        }
    }

    pub fn at(&mut self, place: u32, at: At) {
        (self.place, self.now) = (place, at);
    }

    pub fn disturb(&mut self, place: u32) {
        self.disturbed = place;
    }

    pub fn fault(&mut self, fault: &Fault) {
        self.faults += 1;
        self.fault_at = self.fault_at.max(self.now);
        if let Fault::Stalled(length)
        | Fault::Late(length)
        | Fault::Outage(length)
        | Fault::CutFromStore(length)
        | Fault::CutFromBroker(_, length)
        | Fault::CutFromClients(length)
        | Fault::Pause(length)
        | Fault::Slow(length)
        | Fault::Duplicated(length) = fault
        {
            self.fault_at = self.fault_at.max(self.now + length);
        }
        self.jumped |= matches!(fault, Fault::StoreClockJump(_) | Fault::Drift(_) | Fault::ClockJump(_));
    }

    /// Store time at which something that began at `at` was decided at the earliest.
    pub fn earliest(&self, at: At) -> Stamp {
        if self.jumped { Stamp::MIN / 2 } else { self.terms.epoch + at - self.terms.skew }
    }

    /// Store time now, at the latest.
    pub fn latest(&self) -> Stamp {
        if self.jumped { Stamp::MAX / 2 } else { self.terms.epoch + self.now + self.terms.skew }
    }

    pub fn tenant_of(&self, client: ClientNo) -> TenantNo {
        self.terms.client_tenant.get(client.index()).copied().unwrap_or_default()
    }

    pub fn queue_of(&self, lane: LaneNo) -> QueueNo {
        self.terms.lane_queue.get(lane.index()).copied().unwrap_or_default()
    }

    pub fn tenant_of_lane(&self, lane: LaneNo) -> TenantNo {
        self.terms.queue_tenant.get(self.queue_of(lane).index()).copied().unwrap_or_default()
    }

    pub fn partition(&self, partition: PartitionNo) -> Option<&Partition> {
        self.partitions.get(partition.index())?.as_ref()
    }

    pub fn queue(&self, id: QueueIdNo) -> Option<&Queue> {
        self.queues.get(id.index())?.as_ref()
    }

    /// A partition's queue, if both are there.
    pub fn live(&self, partition: PartitionNo) -> Option<(&Partition, &Queue)> {
        let row = self.partition(partition)?;
        let queue = self.queue(row.queue).filter(|queue| !queue.ended)?;
        Some((row, queue))
    }

    pub fn live_queue(&self, name: QueueNo) -> Option<&Queue> {
        self.queues.iter().flatten().find(|queue| queue.name == name && !queue.ended)
    }

    /// Where a message stands.
    pub fn message(&self, message: MessageNo) -> Option<(&Partition, PartitionNo, u64, &Message)> {
        let (partition, offset) = (*self.places.get(message.index())?)?;
        let row = self.partition(partition)?;
        Some((row, partition, u64::from(offset), row.log.get(offset as usize)?))
    }

    /// The message that was last stored with a content, and where in the history.
    pub fn stored(&self, payload: PayloadNo) -> Option<(MessageNo, u32)> {
        *self.payloads.get(payload.index())?
    }

    pub fn grants(&self, lease: LeaseNo) -> &[Grant] {
        self.leases.get(lease.index()).map_or(&[], |grants| grants)
    }

    pub fn reaches(&self, pop: &Pop, row: &Partition) -> bool {
        match pop.scope {
            Scope::Queue(queue) => self.queue_of(row.lane) == queue,
            Scope::Lane(lane) => row.lane == lane,
            Scope::Namespace(wanted) => {
                let fits = |options: &Options| options.namespace == wanted;
                self.queue(row.queue).is_some_and(|queue| queue.options_since(0).any(fits))
            }
        }
    }

    pub fn apply(&mut self, commit: &Committed, place: u32, at: At) {
        for write in &commit.writes {
            self.write(write, commit, place, at);
        }
    }

    fn write(&mut self, write: &Written, commit: &Committed, place: u32, at: At) {
        match write {
            Written::Queue { id, queue, options } => match put(&mut self.queues, id.index(), None) {
                Some(row) => {
                    row.past.push((row.options, place));
                    (row.options, row.changed) = (**options, place);
                }
                empty => {
                    *empty = Some(Queue {
                        name: *queue,
                        options: **options,
                        past: Vec::new(),
                        changed: place,
                        born: place,
                        ended: false,
                        subscriptions: Vec::new(),
                        partitions: Vec::new(),
                    });
                }
            },
            Written::EndQueue { id } => {
                if let Some(queue) = put(&mut self.queues, id.index(), None) {
                    queue.ended = true;
                }
            }
            Written::Partition { partition, queue, lane, .. } => {
                let row = put(&mut self.partitions, partition.index(), None);
                if row.is_none() {
                    *row = Some(Partition { queue: *queue, lane: *lane, log: Vec::new(), cursors: Vec::new() });
                    if let Some(queue) = put(&mut self.queues, queue.index(), None) {
                        queue.partitions.push(*partition);
                    }
                }
            }
            Written::Append { partition, created, messages, .. } => {
                let Some(row) = put(&mut self.partitions, partition.index(), None) else { return };
                for it in messages {
                    *put(&mut self.places, it.message.index(), None) = Some((*partition, row.log.len() as u32));
                    *put(&mut self.payloads, it.payload.index(), None) = Some((it.message, place));
                    let (message, key, payload) = (it.message, it.key, it.payload);
                    row.log.push(Message { message, key, payload, created: *created, at, place, order: order(commit) });
                }
            }
            Written::Cursor { partition, group, next, retries, consumed, lease } => {
                let Some(row) = put(&mut self.partitions, partition.index(), None) else { return };
                let old = row.cursors.iter_mut().find(|(of, _)| of == group);
                let (next, retries, consumed, lease) = (*next, *retries, *consumed, *lease);
                let new = Cursor { next, retries, consumed, lease, at, place };
                if let Some(lease) = lease
                    && old.as_ref().and_then(|(_, old)| old.lease).is_none_or(|old| old.lease != lease.lease)
                {
                    let (partition, group, order) = (*partition, *group, order(commit));
                    let grant = Grant { partition, group, first: next, end: lease.end, order };
                    put(&mut self.leases, lease.lease.index(), Vec::new()).push(grant);
                }
                match old {
                    Some((_, old)) => *old = new,
                    None => row.cursors.push((*group, new)),
                }
            }
            Written::DropCursor { partition, group } => {
                if let Some(row) = put(&mut self.partitions, partition.index(), None) {
                    row.cursors.retain(|(of, _)| of != group);
                }
            }
            Written::Subscription { queue, group, start, registered, changed } => {
                let Some(row) = put(&mut self.queues, queue.index(), None) else { return };
                row.subscriptions.retain(|subscription| subscription.group != *group);
                let (group, start, registered, changed) = (*group, *start, *registered, *changed);
                row.subscriptions.push(Subscription { group, start, registered, changed, place, order: order(commit) });
            }
            Written::DropSubscription { queue, group } => {
                if let Some(row) = put(&mut self.queues, queue.index(), None) {
                    row.subscriptions.retain(|subscription| subscription.group != *group);
                }
            }
            Written::DeadLetter { id, partition, group, message, retries, .. } => {
                let key = self.message(*message).map_or(Key::Own(*message), |(.., stored)| stored.key);
                *put(&mut self.dead, id.index(), None) = Some(Dead {
                    partition: *partition,
                    group: *group,
                    message: *message,
                    key,
                    retries: *retries,
                    place,
                    dropped: None,
                });
            }
            Written::DropDeadLetter { id } => {
                if let Some(dead) = put::<Option<Dead>>(&mut self.dead, id.index(), None) {
                    dead.dropped = Some(place);
                }
            }
            Written::Other(_) => {}
        }
    }

    /// Keeps a commit, in case the store loses those after it.
    pub fn keep(&mut self, commit: &Committed, place: u32, at: At) {
        self.commits.push((Rc::new(commit.clone()), place, at));
    }

    /// The store lost its newest commits: what they brought never was.
    pub fn lose(&mut self, last: u64, place: u32) {
        let kept: Vec<_> = self.commits.drain(..).filter(|(commit, ..)| commit.serial <= last).collect();
        self.partitions.clear();
        self.queues.clear();
        self.places.clear();
        self.payloads.clear();
        self.leases.clear();
        self.dead.clear();
        for (commit, place, at) in &kept {
            self.apply(commit, *place, *at);
        }
        self.commits = kept;
        self.lost = place;
    }
}

impl Queue {
    /// The options that a decision may have used which began at `place`.
    pub fn options_since(&self, place: u32) -> impl Iterator<Item = &Options> {
        let past = self.past.iter().filter(move |(_, until)| *until > place).map(|(options, _)| options);
        past.chain([&self.options])
    }

    pub fn subscription(&self, group: GroupNo) -> Option<&Subscription> {
        self.subscriptions.iter().find(|it| it.group == group)
    }
}

impl Partition {
    pub fn end(&self) -> u64 {
        self.log.len() as u64
    }

    pub fn first_at(&self, time: Stamp) -> u64 {
        self.log.partition_point(|message| message.created < time) as u64
    }

    pub fn cursor(&self, group: GroupNo) -> Option<&Cursor> {
        self.cursors.iter().find(|(of, _)| *of == group).map(|(_, cursor)| cursor)
    }

    /// Where a group stands by its registration, where that can be told.
    pub fn implied(&self, subscription: &Subscription, queue_mode: Option<GroupNo>) -> Option<u64> {
        if Some(subscription.group) == queue_mode {
            return Some(0);
        }
        match subscription.start {
            _ if subscription.changed.is_some() => None,
            Start::All => Some(0),
            Start::New => Some(self.first_at(subscription.registered)),
            Start::Time(time) => Some(self.first_at(time)),
            Start::Default => None,
        }
    }
}

/// Whether delay and window let go of the messages from `first` to `end`, all of them, at `now`.
pub fn let_go(row: &Partition, options: &Options, terms: &Terms, first: u64, end: u64, now: Stamp) -> bool {
    let (Some(oldest), Some(newest)) = (row.log.get(first as usize), row.log.get(end.wrapping_sub(1) as usize)) else {
        return false;
    };
    let delay = options.delayed_processing * SECOND;
    let window = options.window_buffer * SECOND;
    let delayed = delay == 0 || newest.created + delay <= now;
    let early = terms.hot_list && delay == 0 && row.end() - first >= terms.window_batch;
    // Without the hot list the last message decides; those that came after the decision do not.
    let opens = if terms.hot_list { oldest.created + window } else { newest.created + window };
    delayed && (window == 0 || early || opens <= now)
}
