//! The records of one slot in memory, and how they find each other. Slabs of small rows linked by number: a million
//! partitions have to fit.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::num::NonZeroU32;
use hashbrown::HashTable;
use slab::Slab;
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64;

use super::commit::Seat;
use crate::activity::Activity;
use crate::log::Log;
use crate::name::{DeadLetterId, GroupName, LeaseId, PartitionId, PartitionName, QueueName, TenantId, TransactionHash};
use crate::record::{Cursor, DeadLetterHead, Lease, PartitionRecord, QueueRecord, SubscriptionRecord, Trimmed};
use crate::time::Timestamp;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub struct $name(NonZeroU32);

        impl $name {
            // Counted from 1, so that an `Option` of it takes no room of its own in a million rows.
            fn of(key: usize) -> Self {
                $name(NonZeroU32::MIN.saturating_add(u32::try_from(key).unwrap_or(u32::MAX)))
            }

            fn key(self) -> usize {
                self.0.get() as usize - 1
            }
        }
    };
}

number! {
    /// A queue's row.
    QueueIx
}
number! {
    /// A partition's row.
    PartitionIx
}
number! {
    /// The row of one group on one queue.
    GroupIx
}
number! {
    /// The row of one group on one partition.
    LaneIx
}

/// A queue.
pub struct Queue {
    /// As stored.
    pub record: QueueRecord,
    /// The commit that creates it, until it is durable.
    pub fresh: Option<Seat>,
    /// Every partition, in order of creation.
    pub partitions: Vec<PartitionIx>,
    /// Groups with a subscription, a cursor, or a parked pop.
    pub groups: BTreeMap<GroupName, GroupIx>,
    /// The latest commit time or registration given out.
    pub latest: Timestamp,
    /// The latest registration given out.
    pub registered: Timestamp,
    /// What happened in this minute.
    pub activity: Activity,
    /// Partitions from which retention has deleted something.
    pub trimmed: BTreeMap<PartitionIx, TrimmedRow>,
    by_name: HashTable<PartitionIx>,
}

/// What retention left of a partition's deleted messages.
pub struct TrimmedRow {
    /// As stored.
    pub trimmed: Trimmed,
    /// Commit time of the first hash that outlived its message, or an earlier one; none where it is not known.
    pub oldest_hash: Option<Timestamp>,
}

/// A time no later than the commit time of the oldest message, in whole seconds, so that a million take four bytes each.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Oldest(u32);

impl Oldest {
    /// The time; long ago where it is not known.
    pub fn earliest(self) -> Timestamp {
        match self.0 {
            0 => Timestamp::MIN,
            seconds => Timestamp::from_micros(i64::from(seconds) * 1_000_000),
        }
    }

    /// Notes the oldest message's commit time.
    pub fn set(&mut self, created: Timestamp) {
        self.0 = u32::try_from(created.as_micros().div_euclid(1_000_000)).unwrap_or(0);
    }

    /// It is not known any more.
    pub fn forget(&mut self) {
        self.0 = 0;
    }
}

/// Bytes that an open segment is weighed in: two bytes then say more than a segment may weigh.
pub const OPEN_WEIGHT_UNIT: usize = 8;

/// A partition.
pub struct Partition {
    /// Its id.
    pub id: PartitionId,
    /// Its name.
    pub name: PartitionName,
    /// Its queue.
    pub queue: QueueIx,
    /// Head of the list of its lanes.
    first_lane: Option<LaneIx>,
    /// When it was first written.
    pub created: Timestamp,
    /// First retained offset.
    pub log_start: u64,
    /// One past the last durable message.
    pub end: u64,
    /// Durable payload bytes.
    pub bytes: u64,
    /// Segments, times, hashes, as far as they are in memory.
    pub log: Log,
    /// Durable segments, where that is known: it is not after a load.
    pub segments: Option<u32>,
    /// Segments that an open commit appends.
    pub open_segments: u32,
    /// The commit that appends to it.
    pub writer: Option<Seat>,
    /// Whether that commit creates it.
    pub fresh: bool,
    /// Where in the commit being built its open segment is, plus one.
    pub open_write: u32,
    /// What that segment weighs, in units of `OPEN_WEIGHT_UNIT`; full at the greatest number.
    pub open_weight: u16,
    /// When the first retained message was committed, or earlier.
    pub oldest: Oldest,
}

/// One group on one queue.
pub struct Group {
    /// Its queue.
    pub queue: QueueIx,
    /// Its name.
    pub name: GroupName,
    /// Written at its first any-partition pop.
    pub subscription: Option<Box<SubscriptionRecord>>,
    /// The commit that writes the subscription.
    pub writer: Option<Seat>,
    /// Lanes that have something to give, in order of becoming ready.
    pub ready: BTreeMap<u64, LaneIx>,
    /// Lanes whose cursor is being written.
    pub busy: u32,
    /// Lanes it has.
    pub lanes: u32,
    /// Lanes whose implied start is not found yet.
    pub unresolved: u32,
    /// Parked pops that take from any partition, first in first.
    pub waiters: BTreeSet<u64>,
    /// Parked pops of one partition.
    pub partition_waiters: BTreeMap<PartitionIx, BTreeSet<u64>>,
}

impl Group {
    /// Whether anybody waits for its lanes.
    pub fn has_waiters(&self) -> bool {
        !self.waiters.is_empty() || !self.partition_waiters.is_empty()
    }
}

/// One group on one partition: a cursor, stored or implied.
pub struct Lane {
    /// The partition.
    pub partition: PartitionIx,
    /// The group.
    pub group: GroupIx,
    sibling: Option<LaneIx>,
    /// The commit that writes its cursor.
    pub writer: Option<Seat>,
    /// Whether the cursor is stored; else it is implied by the group's subscription.
    pub stored: bool,
    /// Whether its start is implied and not found yet: it is the next offset or a later one.
    pub unresolved: bool,
    retries: u32,
    /// What `place_key` means: a `Place` with its tag apart from its number takes eight bytes less.
    place_kind: PlaceKind,
    place_key: u64,
    next: u64,
    consumed: u64,
    lease: Option<Box<Lease>>,
}

/// Where a lane waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Nowhere: nothing to give, or its cursor is being written.
    Idle,
    /// Among its group's ready lanes.
    Ready(u64),
    /// Among the timers.
    Timed(Timestamp),
}

/// A place without its number.
#[derive(Clone, Copy)]
enum PlaceKind {
    Idle,
    Ready,
    Timed,
}

impl Lane {
    /// Where it waits.
    pub fn place(&self) -> Place {
        match self.place_kind {
            PlaceKind::Idle => Place::Idle,
            PlaceKind::Ready => Place::Ready(self.place_key),
            PlaceKind::Timed => Place::Timed(Timestamp::from_micros(self.place_key.cast_signed())),
        }
    }

    /// Sets where it waits.
    pub fn set_place(&mut self, place: Place) {
        (self.place_kind, self.place_key) = match place {
            Place::Idle => (PlaceKind::Idle, 0),
            Place::Ready(seq) => (PlaceKind::Ready, seq),
            Place::Timed(at) => (PlaceKind::Timed, at.as_micros().cast_unsigned()),
        };
    }

    /// Its cursor.
    pub fn cursor(&self) -> Cursor {
        let lease = self.lease.as_deref().copied();
        Cursor { next: self.next, retries: self.retries, consumed: self.consumed, lease }
    }

    /// The next lane of its partition.
    pub fn sibling(&self) -> Option<LaneIx> {
        self.sibling
    }

    /// The lease recorded last.
    pub fn lease(&self) -> Option<&Lease> {
        self.lease.as_deref()
    }

    fn set(&mut self, cursor: Cursor) {
        self.next = cursor.next;
        self.retries = cursor.retries;
        self.consumed = cursor.consumed;
        self.lease = cursor.lease.map(Box::new);
    }
}

/// A dead letter as memory knows it.
pub struct Dead {
    /// As stored.
    pub head: DeadLetterHead,
    /// Its partition.
    pub partition: PartitionIx,
    /// The commit that removes it.
    pub writer: Option<Seat>,
}

/// All records of the slot.
#[derive(Default)]
pub struct Tables {
    /// Queues by tenant and name.
    pub tenants: BTreeMap<TenantId, BTreeMap<QueueName, QueueIx>>,
    queues: Slab<Queue>,
    partitions: Slab<Partition>,
    groups: Slab<Group>,
    lanes: Slab<Lane>,
    by_id: HashTable<PartitionIx>,
    /// Lanes under each lease.
    pub leases: BTreeMap<LeaseId, SmallVec<[LaneIx; 1]>>,
    /// Dead letters in order of filing.
    pub dead: BTreeMap<DeadLetterId, Dead>,
    /// The last id given to one.
    pub last_dead: DeadLetterId,
    /// The same by address.
    dead_at: BTreeSet<(PartitionIx, TransactionHash, DeadLetterId)>,
    ready_count: u64,
}

fn name_hash(name: &PartitionName) -> u64 {
    xxh3_64(name.as_str().as_bytes())
}

fn id_hash(id: PartitionId) -> u64 {
    // Random already: the id is a version 4 UUID; its variant bits are the top ones of the low half.
    let bits = id.0.as_u128();
    (bits as u64) ^ ((bits >> 64) as u64).rotate_left(17)
}

macro_rules! row {
    ($get:ident, $get_mut:ident, $field:ident, $ix:ty, $row:ty) => {
        /// A row by its number, which only a live row has.
        #[track_caller]
        pub fn $get(&self, ix: $ix) -> &$row {
            &self.$field[ix.key()]
        }

        /// A row by its number, to change it.
        #[track_caller]
        pub fn $get_mut(&mut self, ix: $ix) -> &mut $row {
            &mut self.$field[ix.key()]
        }
    };
}

impl Tables {
    row!(queue, queue_mut, queues, QueueIx, Queue);
    row!(partition, partition_mut, partitions, PartitionIx, Partition);
    row!(group, group_mut, groups, GroupIx, Group);
    row!(lane, lane_mut, lanes, LaneIx, Lane);

    /// The queue called `name`.
    pub fn find_queue(&self, tenant: TenantId, name: &QueueName) -> Option<QueueIx> {
        self.tenants.get(&tenant)?.get(name).copied()
    }

    /// The queues of a tenant, by name.
    pub fn queues_of(&self, tenant: TenantId) -> impl Iterator<Item = QueueIx> + '_ {
        self.tenants.get(&tenant).into_iter().flat_map(|queues| queues.values().copied())
    }

    /// The partition of `queue` called `name`.
    pub fn find_partition(&self, queue: QueueIx, name: &PartitionName) -> Option<PartitionIx> {
        let same = |ix: &PartitionIx| self.partition(*ix).name == *name;
        self.queue(queue).by_name.find(name_hash(name), same).copied()
    }

    /// The partition with `id`.
    pub fn partition_by_id(&self, id: PartitionId) -> Option<PartitionIx> {
        self.by_id.find(id_hash(id), |ix| self.partition(*ix).id == id).copied()
    }

    /// The tenant a partition belongs to.
    pub fn tenant_of(&self, partition: PartitionIx) -> TenantId {
        self.queue(self.partition(partition).queue).record.tenant
    }

    /// The lane of a group on a partition.
    pub fn find_lane(&self, partition: PartitionIx, group: GroupIx) -> Option<LaneIx> {
        self.lanes_of(partition).find(|&lane| self.lane(lane).group == group)
    }

    /// The lane of the group called `name` on a partition.
    pub fn find_lane_by_name(&self, partition: PartitionIx, name: &GroupName) -> Option<LaneIx> {
        let group = self.queue(self.partition(partition).queue).groups.get(name)?;
        self.find_lane(partition, *group)
    }

    /// All lanes of a partition, youngest first.
    pub fn lanes_of(&self, partition: PartitionIx) -> impl Iterator<Item = LaneIx> + '_ {
        core::iter::successors(self.partition(partition).first_lane, |&lane| self.lane(lane).sibling)
    }

    /// A partition's row, if there still is one.
    pub fn find_partition_row(&mut self, ix: PartitionIx) -> Option<&mut Partition> {
        self.partitions.get_mut(ix.key())
    }

    /// A group's row, if there still is one.
    pub fn find_group(&self, ix: GroupIx) -> Option<&Group> {
        self.groups.get(ix.key())
    }

    /// Every queue.
    pub fn all_queues(&self) -> Vec<QueueIx> {
        self.tenants.values().flat_map(|queues| queues.values().copied()).collect()
    }

    /// How many queues and partitions there are.
    pub fn sizes(&self) -> (usize, usize) {
        (self.queues.len(), self.partitions.len())
    }

    /// Adds a queue.
    pub fn add_queue(&mut self, record: QueueRecord, fresh: Option<Seat>) -> QueueIx {
        let (tenant, name) = (record.tenant, record.name.clone());
        let latest = record.created;
        let ix = QueueIx::of(self.queues.insert(Queue {
            record,
            fresh,
            partitions: Vec::new(),
            groups: BTreeMap::new(),
            latest,
            registered: Timestamp::MIN,
            activity: Activity::default(),
            trimmed: BTreeMap::new(),
            by_name: HashTable::new(),
        }));
        self.tenants.entry(tenant).or_default().insert(name, ix);
        ix
    }

    /// Adds a partition.
    pub fn add_partition(&mut self, queue: QueueIx, record: PartitionRecord, writer: Option<Seat>) -> PartitionIx {
        let (id_key, name_key) = (id_hash(record.id), name_hash(&record.name));
        let ix = PartitionIx::of(self.partitions.insert(Partition {
            id: record.id,
            name: record.name,
            queue,
            first_lane: None,
            created: record.created,
            log_start: record.log_start,
            end: 0,
            bytes: 0,
            log: Log::default(),
            segments: Some(0),
            open_segments: 0,
            writer,
            fresh: writer.is_some(),
            open_write: 0,
            open_weight: 0,
            oldest: Oldest::default(),
        }));
        let partitions = &self.partitions;
        self.by_id.insert_unique(id_key, ix, |ix| id_hash(partitions[ix.key()].id));
        let row = &mut self.queues[queue.key()];
        row.partitions.push(ix);
        if record.trimmed != Trimmed::default() {
            row.trimmed.insert(ix, TrimmedRow { trimmed: record.trimmed, oldest_hash: None });
        }
        row.by_name.insert_unique(name_key, ix, |ix| name_hash(&partitions[ix.key()].name));
        ix
    }

    /// The row of a group on a queue, made when missing.
    pub fn group_of(&mut self, queue: QueueIx, name: &GroupName) -> GroupIx {
        if let Some(ix) = self.queue(queue).groups.get(name) {
            return *ix;
        }
        let ix = GroupIx::of(self.groups.insert(Group {
            queue,
            name: name.clone(),
            subscription: None,
            writer: None,
            ready: BTreeMap::new(),
            busy: 0,
            lanes: 0,
            unresolved: 0,
            waiters: BTreeSet::new(),
            partition_waiters: BTreeMap::new(),
        }));
        self.queue_mut(queue).groups.insert(name.clone(), ix);
        ix
    }

    /// Adds the lane of a group on a partition.
    pub fn add_lane(&mut self, partition: PartitionIx, group: GroupIx, cursor: Cursor, stored: bool) -> LaneIx {
        let sibling = self.partition(partition).first_lane;
        let lane = LaneIx::of(self.lanes.insert(Lane {
            partition,
            group,
            sibling,
            writer: None,
            stored,
            unresolved: false,
            retries: 0,
            place_kind: PlaceKind::Idle,
            place_key: 0,
            next: 0,
            consumed: 0,
            lease: None,
        }));
        self.partition_mut(partition).first_lane = Some(lane);
        self.group_mut(group).lanes += 1;
        self.set_cursor(lane, cursor);
        lane
    }

    /// Sets a lane's cursor and keeps the index of leases true.
    pub fn set_cursor(&mut self, lane: LaneIx, cursor: Cursor) {
        let before = self.lane(lane).lease().map(|lease| lease.id);
        let after = cursor.lease.map(|lease| lease.id);
        if before != after {
            if let Some(id) = before {
                self.forget_lease(lane, id);
            }
            if let Some(id) = after {
                self.leases.entry(id).or_default().push(lane);
            }
        }
        let row = self.lane_mut(lane);
        row.set(cursor);
        if core::mem::take(&mut row.unresolved) {
            let group = row.group;
            self.group_mut(group).unresolved -= 1;
        }
    }

    /// Notes that a lane starts at its next offset or at a later one that is not found yet.
    pub fn set_unresolved(&mut self, lane: LaneIx) {
        let row = self.lane_mut(lane);
        if !core::mem::replace(&mut row.unresolved, true) {
            let group = row.group;
            self.group_mut(group).unresolved += 1;
        }
    }

    fn forget_lease(&mut self, lane: LaneIx, id: LeaseId) {
        if let Some(lanes) = self.leases.get_mut(&id) {
            lanes.retain(|other| *other != lane);
            if lanes.is_empty() {
                self.leases.remove(&id);
            }
        }
    }

    /// Puts a lane among its group's ready ones, at the end, and says in which place it stands.
    pub fn make_ready(&mut self, lane: LaneIx) -> Place {
        self.ready_count += 1;
        let (seq, group) = (self.ready_count, self.lane(lane).group);
        self.group_mut(group).ready.insert(seq, lane);
        Place::Ready(seq)
    }

    /// Takes a partition out that a commit did not create. It has no lanes yet: those come when it is durable.
    pub fn remove_partition(&mut self, ix: PartitionIx) {
        let lanes: SmallVec<[LaneIx; 4]> = self.lanes_of(ix).collect();
        for lane in lanes {
            self.remove_lane(lane);
        }
        let row = self.partition(ix);
        let (id_key, name_key, queue) = (id_hash(row.id), name_hash(&row.name), row.queue);
        if let Ok(entry) = self.by_id.find_entry(id_key, |other| *other == ix) {
            entry.remove();
        }
        let queue = self.queue_mut(queue);
        if let Ok(entry) = queue.by_name.find_entry(name_key, |other| *other == ix) {
            entry.remove();
        }
        // The newest partition is the likeliest to go.
        if let Some(at) = queue.partitions.iter().rposition(|other| *other == ix) {
            queue.partitions.remove(at);
        }
        self.partitions.remove(ix.key());
    }

    /// Takes partitions of one queue out that have no lane any more.
    pub fn remove_partitions(&mut self, queue: QueueIx, partitions: &[PartitionIx]) {
        let gone: BTreeSet<PartitionIx> = partitions.iter().copied().collect();
        self.queue_mut(queue).partitions.retain(|ix| !gone.contains(ix));
        for ix in gone {
            self.queue_mut(queue).trimmed.remove(&ix);
            self.remove_partition(ix);
        }
    }

    /// Takes a lane out of every order and list. Its timer, if any, is the caller's.
    pub fn remove_lane(&mut self, ix: LaneIx) {
        self.set_cursor(ix, Cursor::default());
        let lane = self.lane(ix);
        let (partition, group, sibling, place) = (lane.partition, lane.group, lane.sibling, lane.place());
        let before = self.lanes_of(partition).find(|&other| self.lane(other).sibling == Some(ix));
        match before {
            Some(before) => self.lane_mut(before).sibling = sibling,
            None => self.partition_mut(partition).first_lane = sibling,
        }
        let group = self.group_mut(group);
        group.lanes -= 1;
        if let Place::Ready(seq) = place {
            group.ready.remove(&seq);
        }
        self.lanes.remove(ix.key());
    }

    /// Forgets a group nobody needs: no subscription, no lane, nobody waiting.
    pub fn tidy_group(&mut self, ix: GroupIx) {
        let Some(group) = self.groups.get(ix.key()) else { return };
        let idle = group.subscription.is_none()
            && group.writer.is_none()
            && group.lanes == 0
            && group.waiters.is_empty()
            && group.partition_waiters.is_empty();
        if idle {
            let (queue, name) = (group.queue, group.name.clone());
            self.queue_mut(queue).groups.remove(&name);
            self.groups.remove(ix.key());
        }
    }

    /// Takes a queue out with all that hangs on it. Its lanes' timers are the caller's.
    pub fn remove_queue(&mut self, ix: QueueIx) {
        for partition in core::mem::take(&mut self.queue_mut(ix).partitions) {
            let range = (partition, TransactionHash(0), DeadLetterId(uuid::Uuid::nil()))
                ..=(partition, TransactionHash(u128::MAX), DeadLetterId(uuid::Uuid::max()));
            let dead: Vec<_> = self.dead_at.range(range).copied().collect();
            for key in dead {
                self.dead_at.remove(&key);
                self.dead.remove(&key.2);
            }
            let lanes: SmallVec<[LaneIx; 4]> = self.lanes_of(partition).collect();
            for lane in lanes {
                self.set_cursor(lane, Cursor::default());
                self.lanes.remove(lane.key());
            }
            let key = id_hash(self.partition(partition).id);
            if let Ok(entry) = self.by_id.find_entry(key, |other| *other == partition) {
                entry.remove();
            }
            self.partitions.remove(partition.key());
        }
        let queue = self.queues.remove(ix.key());
        for group in queue.groups.into_values() {
            self.groups.remove(group.key());
        }
        if let Some(queues) = self.tenants.get_mut(&queue.record.tenant) {
            queues.remove(&queue.record.name);
            if queues.is_empty() {
                self.tenants.remove(&queue.record.tenant);
            }
        }
    }

    /// Adds a dead letter.
    pub fn add_dead(&mut self, partition: PartitionIx, head: DeadLetterHead) {
        self.last_dead = self.last_dead.max(head.id);
        self.dead_at.insert((partition, head.hash, head.id));
        self.dead.insert(head.id, Dead { head, partition, writer: None });
    }

    /// Removes a dead letter.
    pub fn remove_dead(&mut self, id: DeadLetterId) {
        if let Some(dead) = self.dead.remove(&id) {
            self.dead_at.remove(&(dead.partition, dead.head.hash, id));
        }
    }

    /// Dead letters of one address, oldest first.
    pub fn dead_at(&self, partition: PartitionIx, hash: TransactionHash) -> impl Iterator<Item = &Dead> {
        let range =
            (partition, hash, DeadLetterId(uuid::Uuid::nil()))..=(partition, hash, DeadLetterId(uuid::Uuid::max()));
        self.dead_at.range(range).filter_map(|key| self.dead.get(&key.2))
    }

    /// Dead letters of one partition.
    pub fn dead_of(&self, partition: PartitionIx) -> impl Iterator<Item = &Dead> {
        let range = (partition, TransactionHash(0), DeadLetterId(uuid::Uuid::nil()))
            ..=(partition, TransactionHash(u128::MAX), DeadLetterId(uuid::Uuid::max()));
        self.dead_at.range(range).filter_map(|key| self.dead.get(&key.2))
    }

    /// How many dead letters one partition has.
    pub fn dead_count(&self, partition: PartitionIx) -> u64 {
        let range = (partition, TransactionHash(0), DeadLetterId(uuid::Uuid::nil()))
            ..=(partition, TransactionHash(u128::MAX), DeadLetterId(uuid::Uuid::max()));
        self.dead_at.range(range).count() as u64
    }
}

/// A million of these have to fit.
const _: () = assert!(size_of::<Partition>() <= 144 && size_of::<Lane>() <= 56);
