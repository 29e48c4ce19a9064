//! What runs met: faults by operation, steps, events.

use crate::history::{Fault, OperationKind};

macro_rules! kinds {
    ($($name:ident $word:literal $pattern:pat,)*) => {
        /// The kinds of faults, for counting.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum FaultKind {
            $(#[doc = $word] $name,)*
        }

        /// All of them, with their words.
        pub const FAULTS: &[(FaultKind, &str)] = &[$((FaultKind::$name, $word),)*];

        impl FaultKind {
            /// The kind of a fault.
            pub fn of(fault: &Fault) -> Self {
                match fault {
                    $($pattern => FaultKind::$name,)*
                }
            }
        }
    };
}

kinds! {
    AnswerLost "store's answer lost" Fault::AnswerLost,
    RequestLost "request to the store lost" Fault::RequestLost,
    Fenced "fenced" Fault::Fenced,
    Stalled "store stalls" Fault::Stalled(_),
    Late "late at the store" Fault::Late(_),
    SuffixLost "suffix lost" Fault::SuffixLost(_),
    Failed "store refuses" Fault::Failed,
    Outage "store's outage" Fault::Outage(_),
    CutFromStore "cut from the store" Fault::CutFromStore(_),
    CutFromBroker "cut from a broker" Fault::CutFromBroker(..),
    CutFromClients "cut from clients" Fault::CutFromClients(_),
    Crash "crash" Fault::Crash,
    Restart "restart" Fault::Restart,
    Pause "pause" Fault::Pause(_),
    Shutdown "shutdown" Fault::Shutdown,
    HeartbeatLost "heartbeat lost" Fault::HeartbeatLost,
    ClockJump "broker's clock jumps" Fault::ClockJump(_),
    StoreClockJump "store's clock jumps" Fault::StoreClockJump(_),
    Drift "clock drifts" Fault::Drift(_),
    Slow "slow network" Fault::Slow(_),
    LostOnTheWay "request lost" Fault::LostOnTheWay,
    AnswerRefused "answer refused" Fault::AnswerRefused,
    AnswerVanished "answer vanished" Fault::AnswerVanished,
    Duplicated "request doubled" Fault::Duplicated(_),
    ClientLeft "client leaves" Fault::ClientLeft,
    ClientCrash "client crashes" Fault::ClientCrash,
    Other "other" Fault::Other(_),
}

/// The kinds of operations, with their words.
pub const OPERATIONS: &[(OperationKind, &str)] = &[
    (OperationKind::Push, "push"),
    (OperationKind::Pop, "pop"),
    (OperationKind::Ack, "ack"),
    (OperationKind::Extend, "extend"),
    (OperationKind::Transaction, "transaction"),
    (OperationKind::Configure, "configure"),
    (OperationKind::DeleteQueue, "delete queue"),
    (OperationKind::Seek, "seek"),
    (OperationKind::DeleteGroup, "delete group"),
    (OperationKind::ChangeSubscription, "change subscription"),
    (OperationKind::FindMessage, "find message"),
    (OperationKind::ListDeadLetters, "list dead letters"),
    (OperationKind::DropDeadLetters, "drop dead letters"),
    (OperationKind::Replay, "replay"),
    (OperationKind::DescribeQueue, "describe queue"),
    (OperationKind::ListGroups, "list groups"),
];

const CELLS: usize = FAULTS.len() * OPERATIONS.len();

/// Why a fault cannot meet an operation; none where it can.
pub fn impossible(fault: FaultKind, _operation: OperationKind) -> Option<&'static str> {
    match fault {
        FaultKind::ClockJump => Some("the core is given no wall clock, and a monotonic one does not jump"),
        FaultKind::Other => Some("only real processes have it"),
        _ => None,
    }
}

/// Counts of one run or many.
#[derive(Clone, Debug)]
pub struct Counts {
    /// Steps of lists.
    pub steps: u64,
    /// Events that happened.
    pub events: u64,
    /// Commits that the store carried out.
    pub commits: u64,
    /// Operations by kind that clients were answered.
    pub answered: [u64; OPERATIONS.len()],
    /// Operations that ended unknown or refused.
    pub unanswered: u64,
    /// Faults by kind.
    pub faults: [u64; FAULTS.len()],
    /// How often a fault met an operation that was under way.
    cells: Box<[u64; CELLS]>,
}

impl Default for Counts {
    fn default() -> Self {
        Counts {
            steps: 0,
            events: 0,
            commits: 0,
            answered: [0; OPERATIONS.len()],
            unanswered: 0,
            faults: [0; FAULTS.len()],
            cells: Box::new([0; CELLS]),
        }
    }
}

impl Counts {
    /// A fault met an operation.
    pub fn met(&mut self, fault: FaultKind, operation: OperationKind) {
        self.cells[fault as usize * OPERATIONS.len() + operation as usize] += 1;
    }

    /// How often it did.
    pub fn cell(&self, fault: FaultKind, operation: OperationKind) -> u64 {
        self.cells[fault as usize * OPERATIONS.len() + operation as usize]
    }

    /// Operations that were answered.
    pub fn operations(&self) -> u64 {
        self.answered.iter().sum()
    }

    /// Of these, pushes, pops and acks.
    pub fn busy_operations(&self) -> u64 {
        self.answered[..3].iter().sum()
    }

    /// Takes another run's into account.
    pub fn add(&mut self, other: &Counts) {
        self.steps += other.steps;
        self.events += other.events;
        self.commits += other.commits;
        self.unanswered += other.unanswered;
        let lists: [(&mut [u64], &[u64]); 3] = [
            (&mut self.answered, &other.answered),
            (&mut self.faults, &other.faults),
            (&mut *self.cells, &*other.cells),
        ];
        for (sums, more) in lists {
            for (sum, more) in sums.iter_mut().zip(more) {
                *sum += more;
            }
        }
    }

    /// Every cell as a table for people: faults down, operations across. Cells below `least` are named beneath it.
    pub fn matrix(&self, least: u64) -> String {
        let mut text = format!("{:26}", "");
        for (_, word) in OPERATIONS {
            text += &format!(" {:>8}", &word[..word.len().min(8)]);
        }
        text.push('\n');
        let mut rare = String::new();
        for (fault, word) in FAULTS {
            text += &format!("{word:26}");
            for (operation, name) in OPERATIONS {
                let count = self.cell(*fault, *operation);
                match impossible(*fault, *operation) {
                    Some(_) => text += &format!(" {:>8}", "-"),
                    None => text += &format!(" {count:>8}"),
                }
                if count < least && impossible(*fault, *operation).is_none() {
                    rare += &format!("below {least}: {word} during {name}: {count}\n");
                }
            }
            text.push('\n');
        }
        for (fault, word) in FAULTS {
            if let Some(why) = impossible(*fault, OperationKind::Push) {
                text += &format!("-: {word}: {why}\n");
            }
        }
        text + &rare
    }
}
