//! What the core asked the store to write, and what the store answered. The model uses it only to learn what the core is
//! free to choose and does not tell at once: commit times, and what was written for a client that got no answer.

use std::collections::BTreeMap;

use bytes::Bytes;
use tidegate_core::name::{DeadLetterId, GroupName, LeaseId, MessageId, PartitionId, QueueId, QueueName, TenantId};
use tidegate_core::record::{CursorRecord, StartFrom, SubscriptionRecord};
use tidegate_core::store::{Commit, CommitKey, StoreCall, StoreReply, StoreRequest, Write};
use tidegate_core::time::Timestamp;

/// What the store answered to a commit.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Fate {
    Open,
    Done,
    Undone,
}

/// A first contact that was to be written.
#[derive(Clone, Copy, Debug)]
pub struct Contact {
    pub registered: Timestamp,
    pub start: StartFrom,
    /// It certainly was.
    pub certain: bool,
}

/// A message that was to be written.
#[derive(Clone, Debug)]
pub struct Appended {
    pub id: MessageId,
    pub partition: PartitionId,
    pub offset: u64,
    pub created: Timestamp,
    pub payload: Bytes,
    commit: usize,
}

/// Everything that was ever to be written, in order.
#[derive(Default)]
pub struct Log {
    commits: Vec<Fate>,
    queues: BTreeMap<QueueId, (TenantId, QueueName)>,
    calls: BTreeMap<StoreCall, usize>,
    keys: BTreeMap<CommitKey, usize>,
    settling: BTreeMap<StoreCall, Vec<CommitKey>>,
    appended: Vec<Appended>,
    by_id: BTreeMap<MessageId, usize>,
    cursors: Vec<(usize, CursorRecord)>,
    contacts: Vec<(usize, SubscriptionRecord)>,
    leases: BTreeMap<(LeaseId, PartitionId), Timestamp>,
    /// Where each lease was first written.
    first: BTreeMap<LeaseId, usize>,
    dead: BTreeMap<(MessageId, GroupName), (DeadLetterId, Timestamp)>,
}

/// A place in the log.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub struct Mark {
    appended: usize,
    cursors: usize,
    contacts: usize,
}

impl Log {
    /// Notes what the store is asked.
    pub fn note(&mut self, call: StoreCall, request: &StoreRequest) {
        match request {
            StoreRequest::Commit(commit) => {
                let n = self.commits.len();
                self.commits.push(Fate::Open);
                self.calls.insert(call, n);
                self.keys.insert(CommitKey { epoch: commit.fence.epoch, number: commit.number }, n);
                self.note_writes(n, commit);
            }
            StoreRequest::Settle { unknown, .. } => {
                self.settling.insert(call, unknown.clone());
            }
            _ => {}
        }
    }

    fn note_writes(&mut self, n: usize, commit: &Commit) {
        for write in &commit.writes {
            match write {
                Write::Append(segment) => {
                    for (message, place) in segment.messages.iter().zip(0u32..) {
                        let id = segment.base.nth(place);
                        self.by_id.insert(id, self.appended.len());
                        self.appended.push(Appended {
                            id,
                            partition: segment.partition,
                            offset: segment.start + u64::from(place),
                            created: segment.created,
                            payload: message.payload.clone(),
                            commit: n,
                        });
                    }
                }
                Write::Cursor(record) => {
                    if let Some(lease) = record.cursor.lease {
                        self.first.entry(lease.id).or_insert(self.cursors.len());
                        self.leases.insert((lease.id, record.partition), lease.expires);
                    }
                    self.cursors.push((n, record.clone()));
                }
                Write::Subscription(record) => self.contacts.push((n, record.clone())),
                Write::Queue(record) => {
                    self.queues.insert(record.id, (record.tenant, record.name.clone()));
                }
                Write::DeadLetter(letter) => {
                    let head = &letter.head;
                    self.dead.insert((head.message, head.group.clone()), (head.id, head.failed));
                }
                _ => {}
            }
        }
    }

    /// Notes what the store answered.
    pub fn heed(&mut self, call: StoreCall, reply: &StoreReply) {
        let fate = match reply {
            StoreReply::Committed => Fate::Done,
            StoreReply::Failed(_) | StoreReply::Fenced | StoreReply::SuffixLost => Fate::Undone,
            _ => Fate::Open,
        };
        if let Some(&commit) = self.calls.get(&call) {
            self.commits[commit] = fate;
        }
        let StoreReply::Settled { committed, .. } = reply else { return };
        for (key, committed) in self.settling.remove(&call).unwrap_or_default().iter().zip(committed) {
            if let Some(&commit) = self.keys.get(key) {
                self.commits[commit] = if *committed { Fate::Done } else { Fate::Undone };
            }
        }
    }

    /// Another broker numbers its requests anew.
    pub fn forget_calls(&mut self) {
        self.calls.clear();
        self.settling.clear();
    }

    /// Where the log ends now.
    pub fn mark(&self) -> Mark {
        Mark { appended: self.appended.len(), cursors: self.cursors.len(), contacts: self.contacts.len() }
    }

    /// The log with a place from which on it matters to a command.
    pub fn since(&self, mark: Mark) -> Peek<'_> {
        Peek { log: self, mark, contact: mark, late: false }
    }
}

/// The log as the model sees it for one command.
#[derive(Clone, Copy)]
pub struct Peek<'a> {
    log: &'a Log,
    mark: Mark,
    contact: Mark,
    late: bool,
}

impl<'a> Peek<'a> {
    /// First contacts before this place were seen already.
    pub fn contacts_since(self, contact: Mark) -> Self {
        Peek { contact, ..self }
    }

    /// The command was decided some time ago: more may have come since.
    pub fn some_time_ago(self) -> Self {
        Peek { late: true, ..self }
    }

    /// Whether more may have come since the command was decided.
    pub fn late(&self) -> bool {
        self.late
    }

    /// A message that was to be written under this id.
    pub fn message(&self, id: MessageId) -> Option<&'a Appended> {
        self.log.by_id.get(&id).map(|&at| &self.log.appended[at])
    }

    /// Whether a registration of this time may have been written before a message. A call may be decided in parts: one of
    /// them may be stored before a registration that is known before the call's answer.
    pub fn registered_before(&self, registered: Timestamp, id: MessageId) -> bool {
        let Some(message) = self.message(id) else { return true };
        let later = |(commit, record): &(usize, SubscriptionRecord)| {
            record.registered == registered && *commit > message.commit
        };
        !self.log.contacts.iter().any(later)
    }

    /// The last message with this payload that may have been written since the command came.
    pub fn message_of(&self, payload: &Bytes) -> Option<&'a Appended> {
        let appended = self.log.appended[self.mark.appended..].iter().rev();
        appended
            .filter(|message| self.log.commits[message.commit] != Fate::Undone)
            .find(|message| message.payload == *payload)
    }

    /// The cursors of a group that may have been written since the command came.
    pub fn cursors(&self, group: &'a GroupName) -> impl DoubleEndedIterator<Item = &'a CursorRecord> {
        let log = self.log;
        let written =
            log.cursors[self.mark.cursors..].iter().filter(|(commit, _)| log.commits[*commit] != Fate::Undone);
        written.map(|(_, record)| record).filter(move |record| record.group == *group)
    }

    /// The registration of a group on a queue that may just have been written.
    pub fn contact(&self, tenant: TenantId, queue: &QueueName, group: &GroupName) -> Option<Contact> {
        let contacts = self.log.contacts[self.contact.contacts..].iter().rev();
        let (commit, record) =
            contacts.filter(|(commit, _)| self.log.commits[*commit] != Fate::Undone).find(|(_, record)| {
                let (owner, name) = &self.log.queues[&record.queue];
                (*owner, name, &record.group) == (tenant, queue, group)
            })?;
        let certain = self.log.commits[*commit] == Fate::Done;
        Some(Contact { registered: record.registered, start: record.start, certain })
    }

    /// Whether a lease was first written since the command came.
    pub fn is_new(&self, lease: LeaseId) -> bool {
        self.log.first.get(&lease).is_some_and(|&first| first >= self.mark.cursors)
    }

    /// Whether any first contact of a group may just have been written.
    pub fn any_contact(&self, group: &GroupName) -> bool {
        let written = |commit: &usize| self.log.commits[*commit] != Fate::Undone;
        let mut contacts = self.log.contacts[self.contact.contacts..].iter();
        let mut cursors = self.log.cursors[self.contact.cursors..].iter();
        contacts.any(|(commit, record)| written(commit) && record.group == *group)
            || cursors.any(|(commit, record)| written(commit) && record.group == *group)
    }

    /// Whether a cursor of a group on a partition may just have been written, and if so whether it certainly was.
    pub fn cursor(&self, partition: PartitionId, group: &GroupName) -> Option<bool> {
        let cursors = self.log.cursors[self.contact.cursors..].iter().rev();
        let mut cursors = cursors.filter(|(commit, _)| self.log.commits[*commit] != Fate::Undone);
        let (commit, _) = cursors.find(|(_, record)| record.partition == partition && record.group == *group)?;
        Some(self.log.commits[*commit] == Fate::Done)
    }

    /// Under which id and when a message was last to be dead-lettered.
    pub fn dead_letter(&self, message: MessageId, group: &GroupName) -> Option<(DeadLetterId, Timestamp)> {
        self.log.dead.get(&(message, group.clone())).copied()
    }

    /// The expiry that a lease was last written with on a partition.
    pub fn expiry(&self, lease: LeaseId, partition: PartitionId) -> Option<Timestamp> {
        self.log.leases.get(&(lease, partition)).copied()
    }
}
