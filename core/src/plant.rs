//! Wrong lines, planted on purpose and switched on one at a time, that prove the simulator: a plant it does not find is a
//! bug it would not find.
//!
//! `plant!(Name)` is whether that line is switched on, `plant!(Name => wrong)` does the wrong thing when it is. Without the
//! feature `plants` both are constants and nothing of them is left in the program.

/// Whether a wrong line is switched on, or what to do when it is.
macro_rules! plant {
    ($name:ident) => {
        $crate::plant::planted($crate::plant::Plant::$name)
    };
    ($name:ident => $wrong:expr) => {
        if $crate::plant::planted($crate::plant::Plant::$name) {
            $wrong;
        }
    };
}

macro_rules! plants {
    ($($name:ident: $law:literal, $wrong:literal;)*) => {
        /// A wrong line. What is wrong is said in the words of what happens.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        #[repr(u8)]
        pub enum Plant {
            $(#[doc = $wrong] $name,)*
        }

        impl Plant {
            /// All of them.
            pub const ALL: &'static [Plant] = &[$(Plant::$name),*];

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self { $(Plant::$name => stringify!($name)),* }
            }

            /// What is wrong with it.
            pub const fn wrong(self) -> &'static str {
                match self { $(Plant::$name => $wrong),* }
            }

            /// The invariant that it breaks, as the simulator's catalogue numbers them.
            pub const fn breaks(self) -> &'static str {
                match self { $(Plant::$name => $law),* }
            }

            /// The one with this name.
            pub fn named(name: &str) -> Option<Plant> {
                Self::ALL.iter().copied().find(|plant| plant.name() == name)
            }
        }
    };
}

plants! {
    // Leases
    LeaseLivesAtExpiry: "S10", "A lease still holds at the very time it expires.";
    LeaseEndsEarly: "S10", "A lease is over one microsecond before it expires.";
    LeaseLengthIgnored: "S6", "A pop that asks for a lease of its own length gets the queue's.";
    LeaseHidesNothing: "S6", "A live lease does not hide its partition.";
    LeaseIdsRepeat: "S10", "Two leases of one millisecond have the same id.";
    ClaimEndsShort: "S10", "A lease covers one message less than was delivered.";
    ClaimResetsRetries: "S13", "A delivery forgets the failures before it.";
    ExpiryCharges: "S13", "A lease that ran out charges a retry.";
    ExtendRevives: "S10", "An expired lease can be extended.";
    ExtendShortens: "S10", "An extension shorter than what is left shortens the lease.";
    ExtendFirstOnly: "S6", "An extension of a lease on several partitions reaches only the first.";
    ExtendAnsweredEarly: "S29", "An extension is answered before it is durable.";
    ExtendOfAnyTenant: "S23", "A tenant can extend another's lease.";
    GiveBackCharges: "S13", "A lease whose answer could not be written charges a retry.";
    UnsentKeepsLease: "L3", "An answer that could not be written keeps its lease.";
    AbandonedKeepsLease: "L3", "A client that left while its pop was being committed keeps the lease.";
    // Pops
    AutoAckSkips: "S7", "A pop that commits on delivery skips the message behind it.";
    AutoAckStays: "S9", "A pop that commits on delivery commits nothing.";
    BatchTooLarge: "S7", "A pop is given one message more than it asked for.";
    PartitionCapIgnored: "S7", "A pop takes from more partitions than it asked for.";
    PopSkipsFirst: "S7", "A pop leases its first message and does not deliver it.";
    PopAnsweredEarly: "S6", "A pop is answered before its lease is durable.";
    FullBatchHeld: "L1", "A pop is held back for more although its batch is full.";
    ReadyNewestFirst: "L4", "Pops take from the partition that became ready last.";
    // Acks
    AnyLeaseAccepted: "S10", "An ack is accepted whatever lease it names.";
    ExpiredLeaseAccepted: "S10", "An ack is accepted although its lease ran out.";
    ForeignProofAccepted: "S10", "An ack that names something that never was a lease is accepted.";
    AckOfAnyTenant: "S23", "A tenant can ack in another's partition.";
    AckMovesOtherGroups: "S23", "An ack moves the cursors of the partition's other groups too.";
    AckAdvancesTooFar: "S12", "A completed ack passes the message behind it.";
    AckTakesWholeBatch: "S12", "A completed ack of a part completes the whole batch.";
    PartialAckPassesFailure: "S12", "Items completed above a failed one take it along.";
    PartialAckEndsLease: "S12", "A completed ack of a part ends the lease.";
    FullAckKeepsLease: "L3", "The ack of a whole batch does not end the lease.";
    NackKeepsLease: "L3", "A failed ack does not end the lease.";
    LastFailureCounts: "S12", "Of several failed items the last in the request counts, not the lowest.";
    AckAnsweredEarly: "S9", "An ack is answered before it is durable.";
    HashesForgottenEarly: "S10", "A leased message can no longer be acked once its id's window has passed.";
    // Retries and dead letters
    AckKeepsRetries: "S13", "The ack of a whole batch does not reset the retry counter.";
    RetryStatusCharges: "S13", "An ack with status retry charges a retry.";
    FailureUncharged: "S13", "A failed ack charges nothing.";
    RetryLimitShort: "S13", "A message is redelivered once less than the limit says.";
    RetryLimitLong: "S13", "A message is redelivered once more than the limit says.";
    DlqStatusCharged: "S14", "An ack with status dlq counts as a failure.";
    DeadLettersNeedBothFlags: "S14", "Dead letters are filed only when both options ask for it.";
    DroppedIsFiled: "S14", "A dead letter is filed although both options are off.";
    DeadLetterStays: "S14", "A dead-lettered message is delivered again.";
    DeadLetterNotFiled: "S14", "A message is passed over as dead and is no dead letter.";
    DeadLetterTwice: "S14", "A dead letter is filed twice.";
    DeadLetterKeepsRetries: "S13", "A dead letter leaves its retries to the next message.";
    DeadLetterOfNeighbour: "S14", "The message before the failed one is filed as dead.";
    DeadLettersOfAnyTenant: "S23", "A tenant sees another's dead letters.";
    DroppedDeadLettersStay: "S14", "Dead letters that were deleted are still there.";
    ReplayKeepsDeadLetter: "S14", "A replayed dead letter stays a dead letter too.";
    ReplayLosesMessage: "S1", "A replayed dead letter is gone and not pushed.";
    // Pushes
    PushAnsweredEarly: "S1", "A push is answered before it is durable.";
    BatchReversed: "S5", "A push's messages are stored in reverse order.";
    MessageIdsRepeat: "S4", "Segments of one millisecond share their messages' ids.";
    DedupOff: "S15", "A repeated transaction id is never a duplicate.";
    DedupOffStillForbids: "S15", "A queue without a window refuses what was pushed in the last ten seconds.";
    DedupForgetsEarly: "S15", "An id is forgotten after half its window.";
    DedupForgetsLate: "S15", "An id is remembered for twice its window.";
    DedupForgetsAtEdge: "S15", "An id is forgotten at the very end of its window.";
    DedupForgetsPastEdge: "S15", "An id is remembered one microsecond past its window.";
    DedupForgetsOnRestart: "S16", "A new owner knows no ids of its predecessor.";
    DedupAcrossPartitions: "S15", "An id is looked for in the queue's first partition, whichever it is pushed to.";
    TwinInRequestMissed: "S15", "Two messages with one id in one push are both stored.";
    DuplicateWrongId: "S15", "A duplicate is told the id behind its original's.";
    DuplicateStored: "S15", "A duplicate is reported and stored.";
    DuplicateAnsweredEarly: "S29", "A duplicate is reported before its original is durable.";
    // Delay and window
    DelayIgnoredInBatch: "S19", "A message younger than the delay is delivered behind an older one.";
    DelayEarlyByOne: "S19", "A delayed message is due one microsecond early.";
    DelayLateByOne: "S19", "A delayed message is due one microsecond late.";
    WindowIgnored: "S20", "A window holds nothing back.";
    WindowEarlyByOne: "S20", "A window ends one microsecond early.";
    WindowLateByOne: "S20", "A window ends one microsecond late.";
    WindowBySilence: "S20", "A window starts anew with each message.";
    WindowBatchLate: "S20", "A window needs one message more than enough to end early.";
    // Groups
    NewGroupReadsBacklog: "S7", "A group that starts at new messages is given the old ones.";
    GroupSkipsBacklog: "L1", "A group that starts at the beginning is not given the backlog.";
    RegistrationNotLater: "S7", "A registration may have the time of a commit before it.";
    CommitBeforeRegistration: "L1", "A commit may have a time before a registration before it.";
    SeekKeepsLease: "S8", "A seek leaves the lease.";
    SeekKeepsRetries: "S13", "A seek leaves the retry counter.";
    SeekOffByOne: "S8", "A seek goes one message too far.";
    SeekPastTime: "S8", "A seek to a time passes what was committed at that very time.";
    GroupCursorsStay: "S8", "A deleted group's cursors stay.";
    GroupSubscriptionStays: "S8", "A deleted group's registration stays.";
    // Queues
    QueueNotDeleted: "S8", "A queue that was deleted is still there.";
    ConfigureIgnored: "S26", "New options are stored and not used.";
    ConfigureMerges: "S26", "New options keep the old retry limit.";
    ConfigureChangesLeases: "S26", "New options change the leases that are out.";
    // Transactions
    TransactionAcksLost: "S21", "A transaction pushes and does not ack.";
    TransactionPushesLost: "S21", "A transaction acks and does not push.";
    TransactionIgnoresRefusal: "S21", "A transaction is carried out although one of its acks is refused.";
    TransactionToleratesUnknown: "S21", "A transaction is carried out although it acks an unknown id.";
    TransactionStoresDuplicate: "S15", "A transaction stores an id that is stored already.";
    TransactionAnsweredEarly: "S21", "A transaction is answered before it is durable.";
    RequiredLeaseIgnored: "S21", "A transaction is carried out without the lease it requires.";
    // Waiting
    WakeLostOnPush: "L2", "A push does not wake who waits for it.";
    WakeLostOnAck: "L2", "An ack does not wake who waits for what is behind it.";
    WakeLostOnNack: "L2", "A failed ack, or a lease given back, wakes nobody.";
    WakeLostOnLeaseEnd: "L2", "The end of a lease wakes nobody.";
    WakeLostOnDue: "L2", "The end of a delay or a window wakes nobody.";
    WakeLostOnSeek: "L2", "A seek back wakes nobody.";
    WakeLostOnBirth: "L2", "A new partition does not wake who waits for it or its queue.";
    WakeLostOnConfigure: "L2", "New options that let go of messages wake nobody.";
    DeadlineForgetsLanes: "L2", "No tick is asked for when leases, delays and windows end.";
    WaitNeverEnds: "L6", "A long poll is not answered when its wait is over.";
    WaiterServedTwice: "S6", "A parked pop that was served stays parked.";
    NewestWaiterFirst: "L6", "Of those who wait the last to come is served first.";
    ParkedLostWithSlot: "L6", "Parked pops are forgotten when the slot is lost.";
    // Commits and ownership
    UnknownTakenForFailed: "S29", "A commit of unknown outcome is said to have failed.";
    UnknownTakenForDurable: "S1", "A commit of unknown outcome is said to be durable.";
    FailedTakenForDurable: "S1", "A commit that failed is said to be durable.";
    SettlingMisread: "S29", "What a settling says of a commit is read the wrong way round.";
    OverdueSaysFailed: "S29", "Who waited too long for an outcome is told that nothing was stored.";
    OrphanSaysRefused: "S29", "A commit that was answered after the slot was lost is said not to have happened.";
    FailedPushStays: "L6", "Messages of a failed commit stay in memory.";
    FailedCursorStays: "S24", "A cursor that a failed commit moved stays where it was moved.";
    LostSuffixUnnoticed: "S30", "A store that lost commits is not found out.";
    TrustsForever: "L6", "An owner answers from memory although its lease on the slot ran out.";
    OwnerStartsEarlier: "S10", "A new owner's time starts before its predecessor's last.";
    HandOverUnfinished: "S29", "A slot is given up while something is in flight.";
    LoadLosesCursors: "S9", "A new owner knows no cursors.";
    LoadLosesLeases: "S6", "A new owner knows no leases.";
    LoadLosesRetries: "S13", "A new owner knows no retries.";
    LoadLosesDeadLetters: "S14", "A new owner knows no dead letters.";
    LoadLosesSubscriptions: "S7", "A new owner knows no registrations.";
}

#[cfg(feature = "plants")]
mod chosen {
    use super::Plant;
    use core::sync::atomic::{AtomicU8, Ordering};

    /// One more than the plant's number; 0 is none.
    static CHOSEN: AtomicU8 = AtomicU8::new(0);

    /// Switches one plant on, or all off. It holds for every broker of the process.
    pub fn set(plant: Option<Plant>) {
        CHOSEN.store(plant.map_or(0, |plant| plant as u8 + 1), Ordering::Relaxed);
    }

    /// Whether a plant is switched on.
    pub fn planted(plant: Plant) -> bool {
        CHOSEN.load(Ordering::Relaxed) == plant as u8 + 1
    }
}
#[cfg(feature = "plants")]
pub use chosen::{planted, set};

/// Whether a plant is switched on: never, in this build.
#[cfg(not(feature = "plants"))]
pub const fn planted(_: Plant) -> bool {
    false
}
