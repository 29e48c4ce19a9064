//! Operations that may still have an effect: those under way, and those of unknown outcome until all is settled.

use hashbrown::HashMap;

use crate::history::{
    AckItem, At, GroupNo, Item, OpNo, Operation, Part, PartitionNo, PayloadNo, Pop, Record, Spread, TenantNo,
};

/// An operation as it was begun.
#[derive(Clone, Debug)]
pub struct Call {
    pub op: OpNo,
    pub tenant: TenantNo,
    pub at: At,
    pub place: u32,
    pub operation: Operation,
    /// Its client was told that nobody knows.
    pub doubtful: bool,
}

/// All of them.
#[derive(Default)]
pub struct Opened {
    calls: Vec<Call>,
    /// How often each content was sent.
    sent: HashMap<PayloadNo, u32, Spread>,
    /// When a pop of each group last ended.
    popped: HashMap<GroupNo, At, Spread>,
    /// When something else that changes more than a log last ended.
    changed: At,
    /// When anything that may change something last ended.
    wrote: At,
    /// Operations under way that may move cursors back.
    rewinds: u32,
}

impl Opened {
    pub fn begin(&mut self, record: &Record, place: u32, tenant: TenantNo, operation: &Operation) {
        let call = Call { op: record.op, tenant, at: record.at, place, operation: operation.clone(), doubtful: false };
        for item in call.pushes() {
            *self.sent.entry(item.payload).or_default() += 1;
        }
        self.rewinds += u32::from(call.rewinds());
        self.calls.push(call);
    }

    pub fn end(&mut self, op: OpNo, now: At) -> Option<Call> {
        let at = self.calls.iter().position(|call| call.op == op)?;
        let call = self.calls.swap_remove(at);
        self.rewinds -= u32::from(call.rewinds());
        if call.writes() {
            self.wrote = now;
        }
        match &call.operation {
            Operation::Pop(pop) => _ = self.popped.insert(pop.group, now),
            Operation::Push { .. } => {}
            _ if call.writes() => self.changed = now,
            _ => {}
        }
        Some(call)
    }

    /// Since when nothing of a group has ended.
    pub fn quiet_since(&self, group: GroupNo) -> At {
        self.popped.get(&group).copied().unwrap_or(At::MIN).max(self.changed)
    }

    pub fn call(&self, op: OpNo) -> Option<&Call> {
        self.calls.iter().find(|call| call.op == op)
    }

    pub fn doubt(&mut self, op: OpNo) {
        if let Some(call) = self.calls.iter_mut().find(|call| call.op == op) {
            call.doubtful = true;
        }
    }

    /// What was under way has had its effect by now, or never will: its clients are gone.
    pub fn settle(&mut self) {
        self.calls.clear();
        self.rewinds = 0;
    }

    pub fn iter(&self) -> impl Iterator<Item = &Call> {
        self.calls.iter()
    }

    /// Whether nothing that may change something has been under way since `at`.
    pub fn quiet(&self, at: At) -> bool {
        self.wrote < at && self.calls.iter().all(|call| !call.writes())
    }

    /// Whether something is under way that may move cursors back, or take them away.
    pub fn rewinds(&self) -> bool {
        self.rewinds > 0
    }

    /// Whether a content was sent by one operation only.
    pub fn sent_once(&self, payload: PayloadNo) -> bool {
        self.sent.get(&payload) == Some(&1)
    }
}

impl Call {
    /// What it pushes.
    pub fn pushes(&self) -> Vec<Item> {
        match &self.operation {
            Operation::Push { items } => items.clone(),
            Operation::Transaction { parts, .. } => {
                let push = |part: &Part| if let Part::Push(item) = part { Some(*item) } else { None };
                parts.iter().filter_map(push).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Whether it pushes something like this.
    pub fn pushes_one(&self, wanted: impl Fn(&Item) -> bool) -> bool {
        match &self.operation {
            Operation::Push { items } => items.iter().any(wanted),
            Operation::Transaction { parts, .. } => {
                parts.iter().any(|part| matches!(part, Part::Push(item) if wanted(item)))
            }
            _ => false,
        }
    }

    /// What it says of a partition's messages for a group.
    pub fn acks(&self, partition: PartitionNo, of: GroupNo) -> Vec<AckItem> {
        match &self.operation {
            Operation::Ack { group, items } if *group == of => {
                items.iter().filter(|item| item.partition == partition).copied().collect()
            }
            Operation::Transaction { parts, .. } => {
                let ack = |part: &Part| match part {
                    Part::Ack(group, item) if *group == of && item.partition == partition => Some(*item),
                    _ => None,
                };
                parts.iter().filter_map(ack).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The pop, if it is one for this group.
    pub fn pops(&self, of: GroupNo) -> Option<&Pop> {
        match &self.operation {
            Operation::Pop(pop) if pop.group == of => Some(pop),
            _ => None,
        }
    }

    /// Whether it may move cursors back, or take them away.
    pub fn rewinds(&self) -> bool {
        matches!(self.operation, Operation::Seek { .. } | Operation::DeleteGroup { .. } | Operation::DeleteQueue { .. })
    }

    /// Whether it may change something.
    pub fn writes(&self) -> bool {
        !matches!(
            self.operation,
            Operation::FindMessage { .. }
                | Operation::ListDeadLetters { .. }
                | Operation::DescribeQueue { .. }
                | Operation::ListGroups { .. }
        )
    }
}
