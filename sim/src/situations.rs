//! Tells which named situations a history met. It judges nothing; it reads the history as a checker does, so every layer
//! has it for nothing.
//!
//! **A new situation** is a line in `marks.rs` and the place below that notices it.

use hashbrown::HashMap;

use crate::history::{
    AckError, Acked, Answer, At, Checker, Event, Fault, Findings, GroupNo, Key, LaneNo, LeaseNo, MessageNo, Operation,
    OwnerChange, PartDone, PartitionNo, Phase, Pop, Proof, Pushed, Record, Refusal, RolledBack, Scope, Spread, Stamp,
    Start, Status, Terms, Written,
};
use crate::marks::Mark;

/// The fold.
pub struct Situations {
    epoch: Stamp,
    latency: At,
    open: HashMap<u32, (At, Operation), Spread>,
    /// By lease: when it ends, and how many faults came while it lived.
    leases: HashMap<LeaseNo, (Stamp, u32), Spread>,
    live: Vec<(LeaseNo, Stamp)>,
    delivered: HashMap<(GroupNo, MessageNo), (), Spread>,
    nacked: HashMap<(GroupNo, Key), (), Spread>,
    lanes: HashMap<LaneNo, PartitionNo, Spread>,
    after: Option<Mark>,
    epochs: u64,
    owner_host: Option<u16>,
    store_troubled: bool,
    healed: bool,
}

impl Situations {
    /// For a history on these terms.
    pub fn new(terms: &Terms) -> Self {
        Situations {
            epoch: terms.epoch,
            latency: terms.latency,
            open: HashMap::default(),
            leases: HashMap::default(),
            live: Vec::new(),
            delivered: HashMap::default(),
            nacked: HashMap::default(),
            lanes: HashMap::default(),
            after: None,
            epochs: 0,
            owner_host: None,
            store_troubled: false,
            healed: false,
        }
    }
}

impl Checker for Situations {
    fn name(&self) -> &'static str {
        "situations"
    }

    fn record(&mut self, _place: u32, record: &Record, findings: &mut Findings) {
        let marks = &mut findings.marks;
        let mut hit = |mark: Mark| marks.hit(mark);
        match &record.event {
            Event::Invoke(operation) => {
                self.invoked(record.at, operation, &mut hit);
                self.open.insert(record.op.0, (record.at, operation.clone()));
            }
            Event::Ok(answer) => {
                if let Some(mark) = self.after.take() {
                    hit(mark);
                }
                if let Some((at, operation)) = self.open.remove(&record.op.0) {
                    self.answered(record.at, at, &operation, answer, &mut hit);
                }
            }
            Event::Fail(refusal) => {
                self.open.remove(&record.op.0);
                match refusal {
                    Refusal::Unavailable => hit(Mark::RefusedUnavailable),
                    Refusal::NotSent => hit(Mark::RefusedNotSent),
                    // No client of ours asks for what cannot be.
                    Refusal::Invalid => {}
                }
            }
            Event::Unknown => {
                if let Some((_, operation)) = self.open.remove(&record.op.0) {
                    unknown(&operation, &mut hit);
                }
            }
            Event::Fault(fault) => self.fault(record.at, fault, &mut hit),
            Event::Phase(Phase::Healed) => {
                self.healed = true;
                if !self.open.is_empty() {
                    hit(Mark::HealedWithOpenOperations);
                }
                if self.live.iter().any(|(_, end)| *end > self.epoch + record.at) {
                    hit(Mark::HealedWithLiveLeases);
                }
            }
            Event::Phase(_) => {}
            Event::Commit(commit) => {
                let mut appends = 0;
                let mut cursors = 0;
                for write in &commit.writes {
                    match write {
                        Written::Append { created, .. } => {
                            appends += 1;
                            if *created > commit.decided {
                                hit(Mark::CommitTimePushedForward);
                            }
                        }
                        Written::Cursor { lease, retries, .. } => {
                            cursors += 1;
                            if *retries > 0 {
                                hit(Mark::RetryCharged);
                            }
                            if let Some(lease) = lease {
                                self.leases.insert(lease.lease, (lease.expires, 0));
                                self.live.push((lease.lease, lease.expires));
                                if self.live.len() > 64 {
                                    self.live.drain(..32);
                                }
                            }
                        }
                        Written::Partition { lane, partition, .. }
                            if self.lanes.insert(*lane, *partition).is_some_and(|before| before != *partition) =>
                        {
                            hit(Mark::LaneBornAgain);
                        }
                        Written::DeadLetter { .. } => hit(Mark::DeadLetterFiled),
                        Written::DropDeadLetter { .. } => hit(Mark::DeadLetterRemoved),
                        Written::Subscription { changed: None, .. } => hit(Mark::GroupRegistered),
                        _ => {}
                    }
                }
                if appends > 1 {
                    hit(Mark::CommitOfManySegments);
                }
                if appends > 0 && cursors > 0 {
                    hit(Mark::CommitOfPushesAndCursors);
                }
                if self.owner_host.is_some_and(|host| host != record.host.0) {
                    hit(Mark::CommitByAnotherBroker);
                }
                self.owner_host = Some(record.host.0);
            }
            Event::Owner(owner) => {
                self.epochs += 1;
                let live = self.live.iter().any(|(_, end)| *end > self.epoch + record.at);
                match owner.change {
                    OwnerChange::Taken if owner.epoch > 1 => {
                        hit(Mark::SlotTakenAgain);
                        if live {
                            hit(Mark::SlotTakenUnderLiveLeases);
                        }
                        if self
                            .open
                            .values()
                            .any(|(_, operation)| matches!(operation, Operation::Pop(pop) if pop.wait > 0))
                        {
                            hit(Mark::SlotTakenUnderLongPolls);
                        }
                    }
                    OwnerChange::Taken => {}
                    OwnerChange::Raised => hit(Mark::EpochRaised),
                    OwnerChange::Released => hit(Mark::SlotReleased),
                }
            }
            Event::Lost { .. } => hit(Mark::CommitsLost),
        }
    }

    fn finish(&mut self, _findings: &mut Findings) {}
}

impl Situations {
    fn invoked(&mut self, at: At, operation: &Operation, hit: &mut impl FnMut(Mark)) {
        let now = self.epoch + at;
        let edge = |proof: &Proof| match proof {
            Proof::Lease(lease) => self.leases.get(lease).map(|(end, _)| now - end),
            _ => None,
        };
        match operation {
            Operation::Ack { items, .. } => match items.first().and_then(|item| edge(&item.lease)) {
                Some(-1) => hit(Mark::AckJustBeforeExpiry),
                Some(0) => hit(Mark::AckAtExpiry),
                Some(1) => hit(Mark::AckJustAfterExpiry),
                _ => {}
            },
            Operation::Extend { lease, .. } => match edge(lease) {
                Some(-1) => hit(Mark::ExtendJustBeforeExpiry),
                Some(0 | 1) => hit(Mark::ExtendAtExpiry),
                _ => {}
            },
            Operation::Seek { .. }
            | Operation::DeleteGroup { .. }
            | Operation::DeleteQueue { .. }
            | Operation::Configure { .. }
                if self.live.iter().any(|(_, end)| *end > now) =>
            {
                hit(match operation {
                    Operation::Seek { .. } => Mark::SeekUnderLiveLeases,
                    Operation::DeleteGroup { .. } => Mark::DeleteGroupUnderLiveLeases,
                    Operation::DeleteQueue { .. } => Mark::DeleteQueueUnderLiveLeases,
                    _ => Mark::ConfigureUnderLiveLeases,
                });
            }
            _ => {}
        }
    }

    fn answered(&mut self, now: At, at: At, operation: &Operation, answer: &Answer, hit: &mut impl FnMut(Mark)) {
        match (operation, answer) {
            (Operation::Push { items }, Answer::Pushed(pushed)) => {
                let queued = pushed.iter().filter(|outcome| matches!(outcome, Pushed::Queued(_))).count();
                let duplicate = pushed.iter().filter(|outcome| matches!(outcome, Pushed::Duplicate(_))).count();
                if queued > 0 {
                    hit(Mark::PushQueued);
                }
                if queued > 0 && duplicate > 0 {
                    hit(Mark::PushPartlyDuplicate);
                }
                if duplicate > 0 {
                    hit(Mark::PushDuplicate);
                }
                if pushed.iter().any(|outcome| matches!(outcome, Pushed::Unknown)) {
                    hit(Mark::PushUnknown);
                }
                if pushed.iter().any(|outcome| matches!(outcome, Pushed::Failed)) {
                    hit(Mark::PushFailed);
                }
                if items.iter().any(|item| item.text.is_none()) {
                    hit(Mark::PushWithoutId);
                }
                if items.iter().any(|item| item.lane != items[0].lane) {
                    hit(Mark::PushToManyLanes);
                }
                if self.store_troubled && queued > 0 {
                    hit(Mark::PushQueuedAfterStoreFault);
                }
            }
            (Operation::Pop(pop), Answer::Popped(delivery)) => {
                let waited = now - at > 2 * self.latency;
                if delivery.messages.is_empty() {
                    hit(if pop.wait > 0 && waited { Mark::PopEmptyAfterWait } else { Mark::PopEmpty });
                    return;
                }
                self.popped(pop, hit);
                if delivery.messages.len() == pop.batch as usize {
                    hit(Mark::PopFull);
                }
                if delivery.messages.iter().any(|message| message.partition != delivery.messages[0].partition) {
                    hit(Mark::PopOfManyPartitions);
                }
                let mut again = false;
                let mut after_nack = false;
                for message in &delivery.messages {
                    again |= self.delivered.insert((pop.group, message.message), ()).is_some();
                    after_nack |= self.nacked.contains_key(&(pop.group, message.key));
                }
                if again {
                    hit(if after_nack { Mark::RedeliveredAfterNack } else { Mark::RedeliveredAfterExpiry });
                }
                if self.healed {
                    hit(Mark::PopAfterHeal);
                }
                if pop.wait > 0 && waited {
                    let fresh = delivery.messages[0].created >= self.epoch + at - 1;
                    hit(match (fresh, again, after_nack) {
                        (true, ..) => Mark::WokenByPush,
                        (_, true, true) => Mark::WokenByNack,
                        (_, true, false) => Mark::WokenByExpiry,
                        (_, false, _) => Mark::WokenByTimeOrChange,
                    });
                }
            }
            (Operation::Ack { group, items }, Answer::Acked(acked)) => {
                for (item, outcome) in items.iter().zip(acked) {
                    self.acked(item.status, item.lease, outcome, hit);
                    if outcome.error.is_none() && matches!(item.status, Status::Failed | Status::Retry) {
                        self.nacked.insert((*group, item.key), ());
                    }
                }
                let completed = items.iter().filter(|item| item.status == Status::Completed).count();
                if completed > 0 && completed < items.len() {
                    hit(Mark::AckMixed);
                }
            }
            (Operation::Extend { .. }, Answer::Extended { renewed, .. }) => {
                hit(if *renewed > 0 { Mark::Extended } else { Mark::ExtendedNothing });
            }
            (Operation::Transaction { .. }, Answer::Transacted(parts)) => {
                let pushes = parts.iter().any(|part| matches!(part, PartDone::Pushed { .. }));
                let acks = parts.iter().any(|part| matches!(part, PartDone::Acked { .. }));
                hit(match (pushes, acks) {
                    (true, true) => Mark::TransactionOfBoth,
                    (true, false) => Mark::TransactionOfPushes,
                    _ => Mark::TransactionOfAcks,
                });
                if parts.iter().any(|part| matches!(part, PartDone::Pushed { duplicate: true, .. })) {
                    hit(Mark::TransactionWithTwin);
                }
                if parts.iter().any(|part| matches!(part, PartDone::Acked { dead_lettered: true })) {
                    hit(Mark::TransactionDeadLetters);
                }
            }
            (_, Answer::RolledBack(why)) => hit(match why {
                RolledBack::UnknownMessage => Mark::RolledBackUnknownMessage,
                RolledBack::Duplicate => Mark::RolledBackDuplicate,
                RolledBack::Ack(_) => Mark::RolledBackAck,
                RolledBack::ForeignPartition => Mark::RolledBackForeign,
                RolledBack::RequiredLease => Mark::RolledBackRequiredLease,
            }),
            (_, Answer::Configured { .. }) => hit(Mark::Configured),
            (_, Answer::QueueDeleted { existed }) => {
                hit(if *existed { Mark::QueueDeleted } else { Mark::NoQueueDeleted })
            }
            (_, Answer::Sought(moved)) => hit(if moved.is_some() { Mark::Sought } else { Mark::SoughtNothing }),
            (_, Answer::GroupDeleted { cursors, metadata }) => {
                if *cursors > 0 {
                    hit(Mark::GroupDeleted);
                }
                if *metadata {
                    hit(Mark::GroupMetadataDeleted);
                }
            }
            (_, Answer::SubscriptionChanged(records)) => {
                hit(if *records > 0 { Mark::SubscriptionChanged } else { Mark::NoSubscriptionChanged });
            }
            (_, Answer::Found(found)) => hit(match found {
                None => Mark::NotFound,
                Some(found) if found.dead_lettered => Mark::FoundDeadLettered,
                Some(_) => Mark::Found,
            }),
            (_, Answer::DeadLetters(rows)) => {
                hit(if rows.is_empty() { Mark::NoDeadLetters } else { Mark::DeadLettersListed })
            }
            (_, Answer::DeadLettersDropped(count)) => {
                hit(if *count > 0 { Mark::DeadLettersDropped } else { Mark::NoDeadLettersDropped });
            }
            (_, Answer::Replayed(message)) => {
                hit(if message.is_some() { Mark::Replayed } else { Mark::ReplayedNothing })
            }
            (_, Answer::Described(queue)) => {
                hit(if queue.is_some() { Mark::Described } else { Mark::DescribedNothing })
            }
            (_, Answer::Groups(rows)) => {
                if rows.iter().any(|row| row.live) {
                    hit(Mark::GroupsWithLiveLease);
                }
                if rows.iter().any(|row| row.lag > 0) {
                    hit(Mark::GroupsWithLag);
                }
            }
            _ => {}
        }
    }

    fn popped(&self, pop: &Pop, hit: &mut impl FnMut(Mark)) {
        hit(Mark::PopGiven);
        hit(match pop.scope {
            Scope::Queue(_) => Mark::PopOfQueue,
            Scope::Lane(_) => Mark::PopOfLane,
            Scope::Namespace(_) => Mark::PopOfNamespace,
        });
        if pop.auto_ack {
            hit(Mark::PopAutoAck);
        }
        if pop.lease > 0 {
            hit(Mark::PopWithLease);
        }
        match pop.start {
            Start::New => hit(Mark::PopFromNew),
            Start::Time(_) => hit(Mark::PopFromTime),
            Start::Default | Start::All => {}
        }
    }

    fn acked(&self, status: Status, lease: Proof, outcome: &Acked, hit: &mut impl FnMut(Mark)) {
        match outcome.error {
            None => hit(match (status, outcome) {
                (Status::Completed, Acked { noop: true, .. }) => Mark::AckNoop,
                (Status::Completed, _) if lease == Proof::None => Mark::AckWithoutLease,
                (Status::Completed, Acked { released: true, .. }) => Mark::AckReleases,
                (Status::Completed, _) => Mark::AckCompleted,
                (Status::Failed, Acked { dead_lettered: true, .. }) => Mark::AckExhausted,
                (Status::Failed, Acked { dropped: true, .. }) => Mark::AckDropped,
                (Status::Failed, _) => Mark::AckFailed,
                (Status::Retry, _) => Mark::AckRetry,
                (Status::DeadLetter, Acked { dropped: true, .. }) => Mark::AckDropped,
                (Status::DeadLetter, _) => Mark::AckDeadLetter,
            }),
            Some(error) => hit(match error {
                AckError::ConsumerNotFound => Mark::AckWithoutConsumer,
                AckError::InvalidLease => Mark::AckInvalidLease,
                AckError::LeaseRequired => Mark::AckLeaseRequired,
                AckError::Unresolvable => Mark::AckUnresolvable,
                AckError::AlreadyCommitted => Mark::AckAlreadyCommitted,
                AckError::Foreign => Mark::AckForeign,
                AckError::Unavailable => Mark::AckUnavailable,
                AckError::Unknown => Mark::AckUnknown,
            }),
        }
    }

    fn fault(&mut self, at: At, fault: &Fault, hit: &mut impl FnMut(Mark)) {
        let now = self.epoch + at;
        for (lease, end) in &self.live {
            if *end > now
                && let Some((_, faults)) = self.leases.get_mut(lease)
            {
                *faults += 1;
                if *faults == 2 {
                    hit(Mark::TwoFaultsInOneLease);
                }
            }
        }
        self.after = Some(match fault {
            Fault::AnswerLost => Mark::AfterAnswerLost,
            Fault::RequestLost => Mark::AfterRequestLost,
            Fault::Fenced => Mark::AfterFenced,
            Fault::Stalled(_) => Mark::AfterStalled,
            Fault::Late(_) => Mark::AfterLate,
            Fault::SuffixLost(_) => Mark::AfterSuffixLost,
            Fault::Failed => Mark::AfterFailed,
            Fault::Outage(_) => Mark::AfterOutage,
            Fault::CutFromStore(_) => Mark::AfterCutFromStore,
            Fault::CutFromBroker(..) => Mark::AfterCutFromBroker,
            Fault::CutFromClients(_) => Mark::AfterCutFromClients,
            Fault::Crash => Mark::AfterCrash,
            Fault::Restart => Mark::AfterRestart,
            Fault::Pause(_) => Mark::AfterPause,
            Fault::Shutdown => Mark::AfterShutdown,
            Fault::HeartbeatLost => Mark::AfterHeartbeatLost,
            Fault::StoreClockJump(by) if *by > 0 => Mark::AfterStoreClockForward,
            Fault::StoreClockJump(_) => Mark::AfterStoreClockBack,
            Fault::Drift(_) => Mark::AfterDrift,
            Fault::Slow(_) => Mark::AfterSlow,
            Fault::LostOnTheWay => Mark::AfterLostOnTheWay,
            Fault::AnswerRefused => Mark::AfterAnswerRefused,
            Fault::AnswerVanished => Mark::AfterAnswerVanished,
            Fault::Duplicated(_) => Mark::AfterDuplicated,
            Fault::ClientLeft => Mark::AfterClientLeft,
            Fault::ClientCrash => Mark::AfterClientCrash,
            Fault::ClockJump(_) | Fault::Other(_) => return,
        });
        self.store_troubled |= matches!(
            fault,
            Fault::AnswerLost
                | Fault::RequestLost
                | Fault::Failed
                | Fault::Stalled(_)
                | Fault::Late(_)
                | Fault::Outage(_)
        );
    }
}

fn unknown(operation: &Operation, hit: &mut impl FnMut(Mark)) {
    hit(match operation {
        Operation::Push { .. } => Mark::UnknownPush,
        Operation::Pop(pop) if pop.auto_ack => Mark::UnknownAutoAck,
        Operation::Pop(_) => Mark::UnknownPop,
        Operation::Ack { .. } => Mark::UnknownAck,
        Operation::Transaction { .. } => Mark::UnknownTransaction,
        _ => Mark::UnknownOther,
    });
}
