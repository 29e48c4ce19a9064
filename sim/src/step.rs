//! What happens in a run: a list of steps, each a pause and then something that is done.
//!
//! A step names things by symbols ("the second newest batch of this client"), never by what a run made, so that any step
//! can be left out and the rest keeps its meaning. Every number means something: too large ones go round.
//!
//! **A new operation or fault** is a row in `kinds!` and an arm in `world/act.rs`; the generator and the text form know it
//! by its row.

use std::fmt;

use crate::history::Micros;

/// What a row of the table is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Class {
    /// A client does it.
    Operation,
    /// Time goes on to a rule's boundary.
    Until,
    /// Something goes wrong.
    Fault,
}

/// A row: a kind of step.
pub struct Row {
    /// The kind.
    pub kind: Kind,
    /// Its word.
    pub word: &'static str,
    /// What it is about.
    pub class: Class,
    /// How often it is drawn, beside others of its class.
    pub weight: u32,
    /// Its numbers' names, and for each how many values are drawn.
    pub arguments: &'static [(&'static str, u16)],
}

macro_rules! kinds {
    ($($class:ident $name:ident $word:literal $weight:literal [$($argument:ident $end:literal),*];)*) => {
        /// What is done.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum Kind {
            $(#[doc = $word] $name,)*
        }

        /// Everything that can be done.
        pub const ROWS: &[Row] = &[$(Row {
            kind: Kind::$name,
            word: $word,
            class: Class::$class,
            weight: $weight,
            arguments: &[$((stringify!($argument), $end)),*],
        },)*];
    };
}

kinds! {
    Operation Push "push" 30 [client 8, lane 16, count 6, text 8, spread 4];
    Operation Pop "pop" 34 [client 8, lane 16, scope 5, group 4, batch 6, wait 8, lease 5, flags 16];
    Operation Ack "ack" 34 [client 8, nth 8, shape 7, status 8, proof 10, group 8];
    Operation Extend "extend" 4 [client 8, nth 4, length 64];
    Operation Transaction "transact" 6 [client 8, nth 4, pushes 4, lane 16, text 8, shape 4, status 6, required 8];
    Operation Repeat "repeat" 5 [client 8, nth 6];
    Operation Configure "configure" 2 [client 8, lane 16, variant 6];
    Operation DeleteQueue "delete-queue" 1 [client 8, lane 16];
    Operation Seek "seek" 2 [client 8, lane 16, group 4, whole 2, target 4];
    Operation DeleteGroup "delete-group" 1 [client 8, lane 16, group 4, flags 4];
    Operation ChangeSubscription "change-subscription" 1 [client 8, group 4, back 8];
    Operation FindMessage "find" 2 [client 8, nth 8];
    Operation ListDeadLetters "list-dead" 2 [client 8, lane 16, group 4, flags 4, limit 4];
    Operation DropDeadLetters "drop-dead" 1 [client 8, nth 8];
    Operation Replay "replay" 2 [client 8, nth 8, group 4];
    Operation DescribeQueue "describe" 1 [client 8, lane 16];
    Operation ListGroups "groups" 1 [client 8, group 4];

    Until UntilLease "until-lease" 10 [nth 4, edge 3];
    Until UntilDelay "until-delay" 4 [nth 3, edge 3];
    Until UntilWindow "until-window" 4 [nth 3, edge 3];
    Until UntilDedup "until-dedup" 4 [nth 4, edge 3];

    Fault AnswerLost "store-answer-lost" 6 [on 8];
    Fault RequestLost "store-request-lost" 4 [on 8];
    Fault Fenced "store-fenced" 3 [on 8];
    Fault Failed "store-failed" 4 [on 8];
    Fault Stalled "store-stalled" 4 [on 8, length 48];
    Fault Late "store-late" 4 [on 8, length 48];
    Fault SuffixLost "suffix-lost" 4 [commits 5];
    Fault Outage "outage" 2 [length 48];
    Fault CutFromStore "cut-store" 3 [host 3, length 48];
    Fault CutFromBroker "cut-broker" 3 [host 3, other 3, length 48];
    Fault CutFromClients "cut-clients" 2 [host 3, length 48];
    Fault Crash "crash" 4 [host 3, length 48];
    Fault Pause "pause" 3 [host 3, length 48];
    Fault Shutdown "shutdown" 2 [host 3, length 48];
    Fault HeartbeatLost "beat-lost" 2 [host 3];
    Fault StoreClockJump "store-clock" 2 [back 2, length 48];
    Fault Drift "drift" 2 [host 3, speed 8];
    Fault Slow "slow" 2 [length 48];
    Fault LostOnTheWay "lose-request" 2 [];
    Fault AnswerRefused "refuse-answer" 3 [];
    Fault AnswerVanished "vanish-answer" 3 [];
    Fault Duplicated "duplicate" 3 [length 48];
    Fault ClientLeft "client-leaves" 3 [client 8, nth 3];
    Fault ClientCrash "client-crash" 2 [client 8];
}

/// Numbers of a step at most.
pub const MAX_ARGUMENTS: usize = 8;

impl Kind {
    /// Its row.
    pub fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }
}

/// A pause, and something that is done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Step {
    /// How long after the step before, in microseconds.
    pub delay: Micros,
    /// What.
    pub kind: Kind,
    /// Its numbers, in the order of its row.
    pub arguments: [u16; MAX_ARGUMENTS],
}

impl Step {
    /// A step with its first numbers; the others are 0.
    pub fn new(delay: Micros, kind: Kind, arguments: &[u16]) -> Self {
        let mut all = [0; MAX_ARGUMENTS];
        for (place, argument) in all.iter_mut().zip(arguments) {
            *place = *argument;
        }
        Step { delay, kind, arguments: all }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = self.kind.row();
        write!(f, "+{} {}", self.delay, row.word)?;
        for ((name, _), value) in row.arguments.iter().zip(self.arguments) {
            if value != 0 {
                write!(f, " {name}={value}")?;
            }
        }
        Ok(())
    }
}

/// Reads a step as it is written.
pub fn parse(line: &str) -> Result<Step, String> {
    let mut words = line.split_whitespace();
    let delay = words.next().and_then(|word| word.strip_prefix('+')?.parse().ok());
    let delay = delay.ok_or_else(|| format!("{line:?} does not begin with a pause such as +1000"))?;
    let word = words.next().unwrap_or_default();
    let row = ROWS.iter().find(|row| row.word == word).ok_or_else(|| format!("{word:?} is no step"))?;
    let mut step = Step::new(delay, row.kind, &[]);
    for argument in words {
        let (name, value) = argument.split_once('=').ok_or_else(|| format!("{argument:?} is not name=number"))?;
        let place = row.arguments.iter().position(|(known, _)| *known == name);
        let place = place.ok_or_else(|| format!("{word} has no number {name:?}"))?;
        step.arguments[place] = value.parse().map_err(|_| format!("{argument:?} is not name=number"))?;
    }
    Ok(step)
}
