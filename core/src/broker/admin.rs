//! Changes that go alone into their commits: configuration, deletion, seeks. Nothing else is open while one of them is,
//! so they need no locks of their own. Long ones go in steps, between which everything else goes on.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::commit::{Change, Done};
use super::loads::{Need, Needs};
use super::tables::{GroupIx, PartitionIx, QueueIx};
use super::{Broker, Waiting, Work};
use crate::command::{RequestId, SeekTarget};
use crate::limits::MAX_STEP_PARTITIONS;
use crate::name::{DeadLetterId, GroupName, PartitionId, PartitionName, QueueName, TenantId};
use crate::options::{Labels, QueueOptions};
use crate::record::Cursor;
use crate::reply::Reply;
use crate::rules::start::Start;
use crate::store::Write;
use crate::time::{Moment, Timestamp};

/// An exclusive change.
pub struct Exclusive {
    pub(super) request: RequestId,
    tenant: TenantId,
    order: Order,
}

enum Order {
    Configure { queue: QueueName, options: QueueOptions, labels: Labels },
    DeleteQueue { queue: QueueName },
    ChangeSubscription { group: GroupName, since: Timestamp },
    Seek { group: GroupName, queue: QueueName, partition: Option<PartitionName>, target: SeekTarget, steps: Steps },
    DeleteGroup { group: GroupName, queue: Option<QueueName>, metadata: bool, steps: Steps },
    PurgeDeadLetters { queue: QueueName, group: Option<GroupName>, removed: u64 },
}

/// The partitions a longer change goes through.
#[derive(Default)]
struct Steps {
    /// None until the first step.
    left: Option<VecDeque<PartitionId>>,
    touched: u64,
    /// Offsets that were looked up for the next step.
    found: BTreeMap<PartitionId, u64>,
}

impl Steps {
    fn next(&mut self) -> Vec<PartitionId> {
        let left = self.left.get_or_insert_default();
        let count = left.len().min(MAX_STEP_PARTITIONS);
        left.drain(..count).collect()
    }

    fn upcoming(&self) -> impl Iterator<Item = &PartitionId> {
        self.left.iter().flatten().take(MAX_STEP_PARTITIONS)
    }

    fn over(&self) -> bool {
        self.left.as_ref().is_none_or(VecDeque::is_empty)
    }
}

impl Exclusive {
    fn work(request: RequestId, tenant: TenantId, order: Order) -> Work {
        Work::Exclusive(Box::new(Exclusive { request, tenant, order }))
    }

    pub(super) fn configure(
        request: RequestId,
        tenant: TenantId,
        queue: QueueName,
        options: QueueOptions,
        labels: Labels,
    ) -> Work {
        Self::work(request, tenant, Order::Configure { queue, options, labels })
    }

    pub(super) fn delete_queue(request: RequestId, tenant: TenantId, queue: QueueName) -> Work {
        Self::work(request, tenant, Order::DeleteQueue { queue })
    }

    pub(super) fn change_subscription(
        request: RequestId,
        tenant: TenantId,
        group: GroupName,
        since: Timestamp,
    ) -> Work {
        Self::work(request, tenant, Order::ChangeSubscription { group, since })
    }

    pub(super) fn seek(
        request: RequestId,
        tenant: TenantId,
        group: GroupName,
        queue: QueueName,
        partition: Option<PartitionName>,
        target: SeekTarget,
    ) -> Work {
        Self::work(request, tenant, Order::Seek { group, queue, partition, target, steps: Steps::default() })
    }

    pub(super) fn purge_dead_letters(
        request: RequestId,
        tenant: TenantId,
        queue: QueueName,
        group: Option<GroupName>,
    ) -> Work {
        Self::work(request, tenant, Order::PurgeDeadLetters { queue, group, removed: 0 })
    }

    pub(super) fn delete_group(
        request: RequestId,
        tenant: TenantId,
        group: GroupName,
        queue: Option<QueueName>,
        metadata: bool,
    ) -> Work {
        Self::work(request, tenant, Order::DeleteGroup { group, queue, metadata, steps: Steps::default() })
    }
}

impl Broker {
    /// Carries out an exclusive change, or its next step. Nothing is open.
    pub(super) fn run_exclusive(&mut self, since: Moment, exclusive: Box<Exclusive>) {
        let Exclusive { request, tenant, order } = *exclusive;
        match order {
            Order::Configure { queue, options, labels } => self.configure(request, tenant, queue, options, labels),
            Order::DeleteQueue { queue } => self.delete_queue(request, tenant, &queue),
            Order::ChangeSubscription { group, since } => self.change_subscription(request, tenant, &group, since),
            Order::Seek { group, queue, partition, target, mut steps } => {
                match self.seek_step(tenant, &group, &queue, partition.as_ref(), target, &mut steps) {
                    Ok(true) => {}
                    Ok(false) => return self.reply(request, Reply::Sought(None)),
                    Err(needs) => {
                        let order = Order::Seek { group, queue, partition, target, steps };
                        let work = Exclusive::work(request, tenant, order);
                        return self.suspend(Waiting::new(since, work), needs);
                    }
                }
                let reply = Reply::Sought(Some(steps.touched));
                let over = steps.over();
                let order = Order::Seek { group, queue, partition, target, steps };
                self.finish_step(Exclusive { request, tenant, order }, over, reply);
            }
            Order::DeleteGroup { group, queue, metadata, mut steps } => {
                let queues = self.queues_in_scope(tenant, queue.as_ref());
                self.drop_cursors_step(&group, &queues, &mut steps);
                let over = steps.over();
                let removed = over && metadata && !plant!(GroupSubscriptionStays) && self.unsubscribe(&group, &queues);
                let reply = Reply::GroupDeleted { partitions: steps.touched, metadata: removed };
                let order = Order::DeleteGroup { group, queue, metadata, steps };
                self.finish_step(Exclusive { request, tenant, order }, over, reply);
            }
            Order::PurgeDeadLetters { queue, group, removed } => {
                let (step, over) = self.purge_step(tenant, &queue, group.as_ref());
                let removed = removed + step;
                let order = Order::PurgeDeadLetters { queue, group, removed };
                self.finish_step(Exclusive { request, tenant, order }, over, Reply::DeadLettersDropped(removed));
            }
        }
    }

    /// Answers once the commit being built is durable, or goes on with the next step; answers at once when there is
    /// nothing to write.
    fn finish_step(&mut self, exclusive: Exclusive, over: bool, reply: Reply) {
        let request = exclusive.request;
        if self.commits.building().is_none() {
            if over {
                self.reply(request, reply);
            } else {
                self.admit(Work::Exclusive(Box::new(exclusive)));
            }
            return;
        }
        self.commits.make_exclusive();
        let done = if over { Done::Reply(request, Box::new(reply)) } else { Done::Step(Box::new(exclusive)) };
        self.commits.draft().1.tell(done);
    }

    /// Replaces a queue's whole configuration, or makes the queue (CFG-1).
    fn configure(
        &mut self,
        request: RequestId,
        tenant: TenantId,
        name: QueueName,
        options: QueueOptions,
        labels: Labels,
    ) {
        let (queue, revision) = match self.tables.find_queue(tenant, &name) {
            None => (self.make_queue(tenant, &name, options.clone(), labels.clone()), 0),
            Some(queue) => {
                let mut record = self.tables.queue(queue).record.clone();
                (record.options, record.labels) = (options.clone(), labels.clone());
                record.revision += 1;
                let revision = record.revision;
                let (_, draft) = self.commits.draft();
                draft.write(Write::Queue(Box::new(record)));
                (queue, revision)
            }
        };
        // On a new queue too: parked discovery pops may want it.
        let change = Change::Configure(queue, Box::new((options.clone(), labels.clone(), revision)));
        self.commits.draft().1.change(change);
        let id = self.tables.queue(queue).record.id;
        self.commits.make_exclusive();
        let reply = Reply::Configured { id, labels, options };
        self.commits.draft().1.tell(Done::Reply(request, Box::new(reply)));
    }

    fn delete_queue(&mut self, request: RequestId, tenant: TenantId, name: &QueueName) {
        let Some(queue) = self.tables.find_queue(tenant, name) else {
            return self.reply(request, Reply::QueueDeleted { existed: false });
        };
        plant!(QueueNotDeleted => return self.reply(request, Reply::QueueDeleted { existed: true }));
        let id = self.tables.queue(queue).record.id;
        let (_, draft) = self.commits.draft();
        draft.write(Write::EndQueue(id));
        draft.change(Change::EndQueue(queue));
        draft.tell(Done::Reply(request, Box::new(Reply::QueueDeleted { existed: true })));
        self.commits.make_exclusive();
    }

    fn change_subscription(&mut self, request: RequestId, tenant: TenantId, name: &GroupName, since: Timestamp) {
        let groups: Vec<GroupIx> = self
            .tables
            .queues_of(tenant)
            // Subscription settings never apply to queue mode.
            .filter(|_| !name.is_queue_mode())
            .filter_map(|queue| self.tables.queue(queue).groups.get(name).copied())
            .collect();
        let mut records = 0;
        for group in groups {
            let Some(subscription) = self.tables.group(group).subscription.as_deref() else { continue };
            let record = crate::record::SubscriptionRecord { changed: Some(since), ..subscription.clone() };
            let (_, draft) = self.commits.draft();
            draft.write(Write::Subscription(record.clone()));
            draft.change(Change::Subscribe(group, Box::new(record)));
            records += 1;
        }
        let exclusive = Exclusive { request, tenant, order: Order::ChangeSubscription { group: name.clone(), since } };
        self.finish_step(exclusive, true, Reply::SubscriptionChanged { records });
    }

    /// Moves the cursors of the next partitions; false when there is nothing to seek in; or says what has to be known of
    /// logs first.
    fn seek_step(
        &mut self,
        tenant: TenantId,
        group: &GroupName,
        queue: &QueueName,
        partition: Option<&PartitionName>,
        target: SeekTarget,
        steps: &mut Steps,
    ) -> Result<bool, Needs> {
        let Some(queue) = self.tables.find_queue(tenant, queue) else { return Ok(steps.left.is_some()) };
        if steps.left.is_none() {
            let partitions: Vec<PartitionIx> = match partition {
                Some(name) => self.tables.find_partition(queue, name).into_iter().collect(),
                None => self.tables.queue(queue).partitions.clone(),
            };
            if partitions.is_empty() {
                return Ok(false);
            }
            steps.left = Some(partitions.into_iter().map(|ix| self.tables.partition(ix).id).collect());
        }
        let start = match target {
            SeekTarget::End => Start::End,
            SeekTarget::Time(time) if plant!(SeekPastTime) => Start::Since(time.next()),
            SeekTarget::Time(time) => Start::Since(time),
        };
        let mut needs = Needs::new();
        let upcoming: Vec<PartitionId> = steps.upcoming().copied().collect();
        for id in upcoming {
            let Some(partition) = self.tables.partition_by_id(id) else { continue };
            if steps.found.contains_key(&id) {
                continue;
            }
            match self.resolve(start, partition) {
                // What is found stays where it is, however much is appended, and however much leaves memory.
                Ok(next) if next < self.tables.partition(partition).end => {
                    steps.found.insert(id, next);
                }
                Ok(_) => {}
                Err(question) => needs.push(Need::Of(partition, question)),
            }
        }
        if !needs.is_empty() {
            return Err(needs);
        }
        let group = self.tables.group_of(queue, group);
        for id in steps.next() {
            let Some(partition) = self.tables.partition_by_id(id) else { continue };
            let found = steps.found.remove(&id).map_or_else(|| self.resolve(start, partition), Ok);
            let Ok(next) = found else { continue };
            let lane = self
                .tables
                .find_lane(partition, group)
                .unwrap_or_else(|| self.tables.add_lane(partition, group, Cursor::default(), false));
            let consumed = self.tables.lane(lane).cursor().consumed;
            let mut cursor = Cursor { next, retries: 0, consumed, lease: None };
            plant!(SeekKeepsLease => cursor.lease = self.tables.lane(lane).lease().copied());
            plant!(SeekKeepsRetries => cursor.retries = self.tables.lane(lane).cursor().retries);
            plant!(SeekOffByOne => cursor.next += 1);
            self.write_cursor(lane, cursor);
            steps.touched += 1;
        }
        Ok(true)
    }

    fn queues_in_scope(&self, tenant: TenantId, name: Option<&QueueName>) -> Vec<QueueIx> {
        match name {
            Some(name) => self.tables.find_queue(tenant, name).into_iter().collect(),
            None => self.tables.queues_of(tenant).collect(),
        }
    }

    /// Removes the stored cursors of the next partitions.
    fn drop_cursors_step(&mut self, name: &GroupName, queues: &[QueueIx], steps: &mut Steps) {
        if steps.left.is_none() {
            let mut left = VecDeque::new();
            for queue in queues {
                let row = self.tables.queue(*queue);
                let Some(group) = row.groups.get(name).copied() else { continue };
                for partition in &row.partitions {
                    if let Some(lane) = self.tables.find_lane(*partition, group) {
                        steps.touched += 1;
                        if self.tables.lane(lane).stored {
                            left.push_back(self.tables.partition(*partition).id);
                        }
                    }
                }
            }
            steps.left = Some(left);
        }
        for id in steps.next() {
            let lane = self.tables.partition_by_id(id).and_then(|ix| self.tables.find_lane_by_name(ix, name));
            if let Some(lane) = lane.filter(|lane| self.tables.lane(*lane).stored && !plant!(GroupCursorsStay)) {
                self.drop_cursor(lane);
            }
        }
    }

    /// Removes the next dead letters of a queue; how many, and whether they were the last.
    fn purge_step(&mut self, tenant: TenantId, queue: &QueueName, group: Option<&GroupName>) -> (u64, bool) {
        let Some(queue) = self.tables.find_queue(tenant, queue) else { return (0, true) };
        let dead = self.tables.queue(queue).partitions.iter().flat_map(|partition| self.tables.dead_of(*partition));
        let wanted = dead.filter(|dead| group.is_none_or(|group| *group == dead.head.group));
        let ids: Vec<DeadLetterId> = wanted.map(|dead| dead.head.id).take(MAX_STEP_PARTITIONS + 1).collect();
        let over = ids.len() <= MAX_STEP_PARTITIONS;
        let now = ids.len().min(MAX_STEP_PARTITIONS);
        for id in ids.into_iter().take(now) {
            self.remove_dead_letter(id);
        }
        (now as u64, over)
    }

    /// Removes a group's registrations; whether there was one.
    fn unsubscribe(&mut self, name: &GroupName, queues: &[QueueIx]) -> bool {
        let mut removed = false;
        for queue in queues {
            let row = self.tables.queue(*queue);
            let Some(group) = row.groups.get(name).copied() else { continue };
            if self.tables.group(group).subscription.is_none() {
                continue;
            }
            let write = Write::DropSubscription { queue: row.record.id, group: name.clone() };
            let (_, draft) = self.commits.draft();
            draft.write(write);
            draft.change(Change::Unsubscribe(group));
            removed = true;
        }
        removed
    }
}
