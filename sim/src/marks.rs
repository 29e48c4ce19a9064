//! Named situations that a good run of seeds has to meet: a promise that was never put to the test was not checked.
//!
//! Each is one line below; whoever notices it calls `Marks::hit`. The nightly run fails when one was not reached.

macro_rules! marks {
    ($($name:ident $text:literal;)*) => {
        /// A situation. Its text is its name for people and never changes its meaning.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u16)]
        pub enum Mark {
            $(#[doc = $text] $name,)*
        }

        /// All of them.
        pub const ALL: &[(Mark, &str)] = &[$((Mark::$name, $text),)*];
    };
}

marks! {
    PushQueued "push: stored";
    PushDuplicate "push: duplicate refused in the window";
    PushPartlyDuplicate "push: batch with a duplicate";
    PushUnknown "push: an item's outcome unknown";
    PushFailed "push: an item refused";
    PushWithoutId "push: without a transaction id";
    PushToManyLanes "push: to several partitions";
    PushQueuedAfterStoreFault "push: stored after a fault of the store";
    PopGiven "pop: messages given";
    PopEmpty "pop: empty";
    PopEmptyAfterWait "pop: empty at the end of its wait";
    PopFull "pop: batch full";
    PopOfManyPartitions "pop: several partitions in one";
    PopOfQueue "pop: of a queue";
    PopOfLane "pop: of a partition";
    PopOfNamespace "pop: of a namespace";
    PopAutoAck "pop: committed on delivery";
    PopWithLease "pop: lease asked for";
    PopFromNew "pop: a group that starts at the end";
    PopFromTime "pop: a group that starts at a time";
    PopAfterHeal "pop: messages given after the faults";
    RedeliveredAfterExpiry "pop: again after the lease's end";
    RedeliveredAfterNack "pop: again after a nack";
    WokenByPush "long poll: woken by a push";
    WokenByExpiry "long poll: woken by a lease's end";
    WokenByNack "long poll: woken by a nack";
    WokenByTimeOrChange "long poll: woken by a delay, a window, a seek or a new owner";
    AckCompleted "ack: completed, and more of the batch is out";
    AckReleases "ack: completed the batch";
    AckWithoutLease "ack: without a lease";
    AckNoop "ack: completed before";
    AckMixed "ack: some completed, some not";
    AckFailed "ack: failed, to be delivered again";
    AckRetry "ack: retry";
    AckExhausted "ack: retries exhausted, dead-lettered";
    AckDropped "ack: retries exhausted, dropped";
    AckDeadLetter "ack: dead-lettered by status";
    AckWithoutConsumer "ack: refused, no such consumer";
    AckInvalidLease "ack: refused, invalid lease";
    AckLeaseRequired "ack: refused, lease required";
    AckUnresolvable "ack: refused, unresolvable";
    AckAlreadyCommitted "ack: refused, already committed";
    AckForeign "ack: refused, another tenant's partition";
    AckUnavailable "ack: refused, no store or owner";
    AckUnknown "ack: an item's outcome unknown";
    AckJustBeforeExpiry "lease: ack 1 unit before its end";
    AckAtExpiry "lease: ack at its very end";
    AckJustAfterExpiry "lease: ack 1 unit after its end";
    ExtendJustBeforeExpiry "lease: extended 1 unit before its end";
    ExtendAtExpiry "lease: extended at its end";
    Extended "lease: extended";
    ExtendedNothing "lease: nothing live to extend";
    TwoFaultsInOneLease "lease: two faults while it lives";
    SeekUnderLiveLeases "lease: seek while it lives";
    DeleteGroupUnderLiveLeases "lease: group deleted while it lives";
    DeleteQueueUnderLiveLeases "lease: queue deleted while it lives";
    ConfigureUnderLiveLeases "lease: queue configured while it lives";
    RetryCharged "retry: charged";
    DeadLetterFiled "dead letter: filed";
    DeadLetterRemoved "dead letter: removed";
    DeadLettersListed "dead letter: listed";
    NoDeadLetters "dead letter: none to list";
    DeadLettersDropped "dead letter: dropped by a client";
    NoDeadLettersDropped "dead letter: none to drop";
    Replayed "dead letter: moved back";
    ReplayedNothing "dead letter: none to move back";
    TransactionOfBoth "transaction: pushes and acks";
    TransactionOfPushes "transaction: pushes alone";
    TransactionOfAcks "transaction: acks alone";
    TransactionWithTwin "transaction: the same id twice in it";
    TransactionDeadLetters "transaction: dead-letters";
    RolledBackUnknownMessage "transaction: rolled back, unknown message";
    RolledBackDuplicate "transaction: rolled back, duplicate";
    RolledBackAck "transaction: rolled back, ack refused";
    RolledBackForeign "transaction: rolled back, foreign partition";
    RolledBackRequiredLease "transaction: rolled back, required lease";
    Configured "queue: configured";
    QueueDeleted "queue: deleted";
    NoQueueDeleted "queue: none to delete";
    LaneBornAgain "queue: a partition's name used again after a deletion";
    Described "queue: described";
    DescribedNothing "queue: unknown";
    Sought "group: sought";
    SoughtNothing "group: nothing to seek in";
    GroupDeleted "group: cursors deleted";
    GroupMetadataDeleted "group: subscription deleted";
    GroupRegistered "group: registered";
    SubscriptionChanged "group: subscription changed";
    NoSubscriptionChanged "group: no subscription to change";
    GroupsWithLiveLease "group: listed with a live lease";
    GroupsWithLag "group: listed with a lag";
    Found "message: found";
    FoundDeadLettered "message: found, dead-lettered";
    NotFound "message: not found";
    CommitOfManySegments "commit: of several segments";
    CommitOfPushesAndCursors "commit: of pushes and cursors together";
    CommitByAnotherBroker "commit: by another broker than the one before";
    CommitTimePushedForward "commit: a segment later than the decision";
    SlotTakenAgain "slot: taken from a former owner";
    SlotTakenUnderLiveLeases "slot: taken while leases live";
    SlotTakenUnderLongPolls "slot: taken while long polls wait";
    EpochRaised "slot: own epoch raised to settle an outcome";
    SlotReleased "slot: released";
    CommitsLost "slot: commits lost";
    HealedWithOpenOperations "heal: while operations are open";
    HealedWithLiveLeases "heal: while leases live";
    RefusedUnavailable "refused: no store or owner";
    RefusedNotSent "refused: no connection";
    UnknownPush "unknown: push";
    UnknownPop "unknown: pop";
    UnknownAutoAck "unknown: pop that commits on delivery";
    UnknownAck "unknown: ack";
    UnknownTransaction "unknown: transaction";
    UnknownOther "unknown: another operation";
    AfterAnswerLost "success after: the store's answer lost";
    AfterRequestLost "success after: a request to the store lost";
    AfterFenced "success after: fenced";
    AfterStalled "success after: the store stalls";
    AfterLate "success after: late at the store";
    AfterSuffixLost "success after: commits lost";
    AfterFailed "success after: the store refuses";
    AfterOutage "success after: the store's outage";
    AfterCutFromStore "success after: cut from the store";
    AfterCutFromBroker "success after: cut from a broker";
    AfterCutFromClients "success after: cut from clients";
    AfterCrash "success after: crash";
    AfterRestart "success after: restart";
    AfterPause "success after: pause";
    AfterShutdown "success after: shutdown";
    AfterHeartbeatLost "success after: heartbeat lost";
    AfterStoreClockForward "success after: the store's clock jumps forward";
    AfterStoreClockBack "success after: the store's clock jumps back";
    AfterDrift "success after: a clock drifts";
    AfterSlow "success after: slow network";
    AfterLostOnTheWay "success after: request lost";
    AfterAnswerRefused "success after: answer refused";
    AfterAnswerVanished "success after: answer vanished";
    AfterDuplicated "success after: request doubled";
    AfterClientLeft "success after: client left";
    AfterClientCrash "success after: client crashed";
}

/// How often each situation occurred.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Marks {
    counts: [u32; ALL.len()],
}

impl Default for Marks {
    fn default() -> Self {
        Marks { counts: [0; ALL.len()] }
    }
}

impl Marks {
    /// It occurred.
    pub fn hit(&mut self, mark: Mark) {
        let count = &mut self.counts[mark as usize];
        *count = count.saturating_add(1);
    }

    /// How often it did.
    pub fn count(&self, mark: Mark) -> u32 {
        self.counts[mark as usize]
    }

    /// How many did.
    pub fn reached(&self) -> usize {
        self.counts.iter().filter(|count| **count > 0).count()
    }

    /// The texts of those that never did.
    pub fn unreached(&self) -> impl Iterator<Item = &'static str> {
        ALL.iter().filter(|(mark, _)| self.count(*mark) == 0).map(|(_, text)| *text)
    }

    /// Takes those of another run into account.
    pub fn add(&mut self, other: &Marks) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count = count.saturating_add(more);
        }
    }
}
