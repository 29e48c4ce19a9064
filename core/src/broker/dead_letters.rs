//! Dead letters: listing, removing, and the way back. Memory knows where each is; the store holds its message.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::calls::Pending;
use super::commit::{Change, Done};
use super::tables::Dead;
use super::{Broker, Waiting, Work};
use crate::command::{Address, RequestId};
use crate::error::Rejection;
use crate::message::{NewMessage, transaction_text};
use crate::name::{DeadLetterId, GroupName, PartitionId, QueueName, TenantId};
use crate::record::DeadLetterRecord;
use crate::reply::{DeadLetterRow, Replayed, Reply};
use crate::seal::Place;
use crate::store::{StoreReply, StoreRequest, Write};
use crate::time::Moment;

/// A dead letter on its way back to its partition.
pub struct Replay {
    pub(super) request: RequestId,
    tenant: TenantId,
    which: Which,
    /// The row that is being read.
    asked: Option<DeadLetterId>,
    /// The row, once it was read.
    record: Option<DeadLetterRecord>,
}

/// Which dead letter is meant.
enum Which {
    /// The newest failure at an address, or that of one group.
    At(Address, Option<GroupName>),
    /// This one.
    Row(DeadLetterId),
}

impl Replay {
    pub(super) fn at(request: RequestId, tenant: TenantId, address: Address, group: Option<GroupName>) -> Self {
        Replay { request, tenant, which: Which::At(address, group), asked: None, record: None }
    }

    pub(super) fn row(request: RequestId, tenant: TenantId, id: DeadLetterId) -> Self {
        Replay { request, tenant, which: Which::Row(id), asked: None, record: None }
    }
}

impl Broker {
    fn partition_of(&self, tenant: TenantId, id: PartitionId) -> Option<super::tables::PartitionIx> {
        let own = |partition: &_| self.tables.tenant_of(*partition) == tenant || plant!(DeadLettersOfAnyTenant);
        self.tables.partition_by_id(id).filter(own)
    }

    /// The dead letter that is meant, if it is there.
    fn meant(&self, tenant: TenantId, which: &Which) -> Option<&Dead> {
        match which {
            Which::At(address, group) => {
                let partition = self.partition_of(tenant, address.partition)?;
                self.tables
                    .dead_at(partition, address.transaction.hash())
                    .filter(|dead| group.as_ref().is_none_or(|group| *group == dead.head.group))
                    .max_by_key(|dead| (dead.head.failed, dead.head.id))
            }
            Which::Row(id) => self.tables.dead.get(id).filter(|dead| self.tables.tenant_of(dead.partition) == tenant),
        }
    }

    /// Moves one dead letter to the tail of its partition, in one commit (36.14).
    pub(super) fn run_replay(&mut self, since: Moment, mut replay: Box<Replay>) {
        let Some(dead) = self.meant(replay.tenant, &replay.which) else {
            return self.reply(replay.request, Reply::Replayed(None));
        };
        if let Some(seat) = dead.writer {
            return self.wait(seat, Waiting::new(since, Work::Replay(replay)));
        }
        let partition = dead.partition;
        let id = dead.head.id;
        let Some(record) = replay.record.take().filter(|record| record.head.id == id) else {
            replay.asked = Some(id);
            self.ask(StoreRequest::ReadDeadLetters(vec![id]), Pending::ReplayRead(replay));
            return;
        };
        let row = self.tables.partition(partition);
        let (queue, name) = (self.tables.queue(row.queue).record.name.clone(), row.name.clone());
        if let Some(seat) = self.push_blocked(replay.tenant, &queue, &name) {
            replay.record = Some(record);
            return self.wait(seat, Waiting::new(since, Work::Replay(replay)));
        }
        let original = record.head.message;
        let Some(message) = record.message else {
            // Retention removed the payload before the row was filed: there is nothing to move.
            return self.reply(replay.request, Reply::Replayed(None));
        };
        let record = &self.tables.queue(self.tables.partition(partition).queue).record;
        let place = Place { queue: record.id, partition: row.id, message: original };
        // Opened and sealed anew: what is stored is bound to its old place.
        let payload =
            self.sealing_of(replay.tenant, &queue).and_then(|key| Ok((key, self.unbound(place, message.payload)?)));
        let (key, payload) = match payload {
            Ok(payload) => payload,
            Err(rejection) => return self.reply(replay.request, Reply::Refused(rejection)),
        };
        let message = NewMessage { transaction: None, payload, trace: message.trace, producer: message.producer };
        let new = match plant!(ReplayLosesMessage) {
            true => original,
            false => self.append(partition, message, 1, key.as_ref()),
        };
        if !plant!(ReplayKeepsDeadLetter) {
            self.remove_dead_letter(id);
        }
        let reply = Reply::Replayed(Some(Replayed { queue, partition: name, id: new }));
        self.commits.draft().1.tell(Done::Reply(replay.request, Box::new(reply)));
    }

    /// Whether memory has a dead letter that no open commit removes.
    fn still_there(&self, id: Option<DeadLetterId>) -> bool {
        id.and_then(|id| self.tables.dead.get(&id)).is_some_and(|dead| dead.writer.is_none())
    }

    pub(super) fn remove_dead_letter(&mut self, id: DeadLetterId) {
        let (seat, draft) = self.commits.draft();
        draft.write(Write::DropDeadLetter(id));
        draft.change(Change::DropDeadLetter(id));
        if let Some(dead) = self.tables.dead.get_mut(&id) {
            dead.writer = Some(seat);
        }
    }

    /// The row of a dead letter that is to be replayed was read.
    pub(super) fn replay_read(&mut self, mut replay: Replay, reply: StoreReply) {
        match reply {
            StoreReply::DeadLetters(rows) => match rows.into_iter().next().flatten() {
                Some(record) => {
                    replay.record = Some(record);
                    self.admit(Work::Replay(Box::new(replay)));
                }
                // Somebody else's commit removed it while it was read; what is left decides.
                None if !self.still_there(replay.asked) => self.admit(Work::Replay(Box::new(replay))),
                None => self.reply(replay.request, Reply::Replayed(None)),
            },
            _ => self.reply(replay.request, Reply::Refused(Rejection::StoreUnavailable)),
        }
    }

    /// Removes every dead letter of an address (14.3).
    pub(super) fn run_drop_dead_letters(
        &mut self,
        since: Moment,
        request: RequestId,
        tenant: TenantId,
        address: Box<Address>,
    ) {
        let Some(partition) = self.partition_of(tenant, address.partition) else {
            return self.reply(request, Reply::DeadLettersDropped(0));
        };
        let dead: Vec<_> = self
            .tables
            .dead_at(partition, address.transaction.hash())
            .map(|dead| (dead.head.id, dead.writer))
            .collect();
        if let Some(seat) = dead.iter().find_map(|(_, writer)| *writer) {
            let work = Work::DropDeadLetters(request, tenant, address);
            return self.wait(seat, Waiting::new(since, work));
        }
        if dead.is_empty() {
            return self.reply(request, Reply::DeadLettersDropped(0));
        }
        for (id, _) in dead.iter().filter(|_| !plant!(DroppedDeadLettersStay)) {
            self.remove_dead_letter(*id);
        }
        let reply = Reply::DeadLettersDropped(dead.len() as u64);
        self.commits.draft().1.tell(Done::Reply(request, Box::new(reply)));
    }

    /// A page of dead letters, newest failure first (15).
    pub(super) fn list_dead_letters(
        &mut self,
        request: RequestId,
        tenant: TenantId,
        queue: Option<QueueName>,
        group: Option<GroupName>,
        (limit, offset): (usize, usize),
    ) {
        let ids: Vec<DeadLetterId> = self
            .tables
            .dead
            .values()
            .rev()
            .filter(|dead| {
                let record = &self.tables.queue(self.tables.partition(dead.partition).queue).record;
                (record.tenant == tenant || plant!(DeadLettersOfAnyTenant))
                    && queue.as_ref().is_none_or(|queue| *queue == record.name)
                    && group.as_ref().is_none_or(|group| *group == dead.head.group)
            })
            .map(|dead| dead.head.id)
            .skip(offset)
            .take(limit)
            .collect();
        if ids.is_empty() {
            return self.reply(request, Reply::DeadLetters(Vec::new()));
        }
        self.ask(StoreRequest::ReadDeadLetters(ids), Pending::DeadLetters(request, tenant));
    }

    /// The rows of a page were read.
    pub(super) fn dead_letters_read(&mut self, request: RequestId, tenant: TenantId, reply: StoreReply) {
        if self.refused_without_slot(request) {
            return;
        }
        let StoreReply::DeadLetters(rows) = reply else {
            return self.reply(request, Reply::Refused(Rejection::StoreUnavailable));
        };
        let rows = rows.into_iter().flatten().filter_map(|record| self.dead_letter_row(tenant, record)).collect();
        self.reply(request, Reply::DeadLetters(rows));
    }

    fn dead_letter_row(&mut self, tenant: TenantId, record: DeadLetterRecord) -> Option<DeadLetterRow> {
        let partition = self.tables.partition(self.partition_of(tenant, record.head.partition)?);
        let queue = &self.tables.queue(partition.queue).record;
        let (queue_id, queue, partition_name) = (queue.id, queue.name.clone(), partition.name.clone());
        let DeadLetterRecord { head, message, error } = record;
        let given = message.as_ref().and_then(|message| message.transaction.as_ref());
        let transaction = transaction_text(given, head.message);
        let (payload, producer) = message.map(|message| (message.payload, message.producer)).unzip();
        let (payload, encrypted) =
            payload.map(|payload| self.opened(queue_id, head.partition, head.message, payload)).unzip();
        Some(DeadLetterRow {
            id: head.id,
            queue,
            partition_name,
            transaction,
            payload,
            encrypted: encrypted.unwrap_or(false),
            producer: producer.flatten(),
            head,
            error,
        })
    }
}
