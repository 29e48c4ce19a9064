//! The end of a run: faults are over, what was begun ends, everything is drained, and what is left is told.

use super::World;
use crate::history::{AckItem, Delivered, GroupNo, Micros, Phase, Pop, QueueNo, Scope, Start, Status};

/// Everything that was begun ends within this, or never.
const SETTLES: Micros = 180_000_000;
/// An operation without faults ends within this.
const ANSWERS: Micros = 30_000_000;
/// Pops that a drain takes at most for each group and queue.
const MAX_POPS: u32 = 5_000;

impl World {
    /// Brings a run to its end.
    pub(super) fn finish(&mut self) {
        if self.findings.violations.is_empty() {
            self.heal();
        }
        if self.findings.violations.is_empty() {
            self.drain();
        }
        if self.findings.violations.is_empty() {
            self.tell_what_is_left();
        }
        for checker in &mut self.checkers {
            checker.finish(&mut self.findings);
        }
    }

    fn heal(&mut self) {
        self.store.heal();
        self.armed = super::entry::Armed::default();
        self.slowness = 0;
        let now = self.now;
        for host in 0..self.hosts.len() as u8 {
            let place = &mut self.hosts[usize::from(host)];
            place.cut_from_store = now;
            place.cut_from_clients = now;
            place.cut_from = [now; 3];
            place.beat_lost = false;
            place.paused_until = place.paused_until.min(now + 1_000);
            place.drift(now, 0);
        }
        self.phase(Phase::Healed);
        let until = self.now + SETTLES;
        loop {
            self.advance(self.now + 250_000);
            let up = self.hosts.iter().all(|host| host.up && !host.stopping);
            if (up && self.settled()) || !self.findings.violations.is_empty() {
                break;
            }
            if self.now > until {
                return self.wrong(|| "the faults are over, and something that was begun does not end".into());
            }
        }
        // Owners that were cut off know by now, and what they had in flight is settled.
        self.advance(self.now + 5_000_000);
        self.phase(Phase::Settled);
    }

    fn drain(&mut self) {
        self.phase(Phase::Draining);
        // A queue may have been given a delay or a window of its own.
        let rules = (self.setup.delay.max(1) + self.setup.window.max(2) + 1) * 1_000_000;
        // What is leased now, or delayed, comes in the second round.
        for round in 0..2 {
            if round == 1 {
                self.advance(self.leases_end.clamp(self.now, self.now + 200_000_000) + rules);
            }
            let groups = self.names.group_count();
            for at in 0..self.groups_used.len() as u16 {
                if self.groups_used[usize::from(at)] {
                    self.drain_group(QueueNo(at / groups), GroupNo(at % groups));
                }
                if !self.findings.violations.is_empty() {
                    return;
                }
            }
        }
        self.phase(Phase::Drained);
    }

    fn drain_group(&mut self, queue: QueueNo, group: GroupNo) {
        let client = self.drainer(self.names.tenant_of_queue(queue));
        for _ in 0..MAX_POPS {
            let pop = Pop {
                scope: Scope::Queue(queue),
                group,
                batch: 100,
                partitions: 0,
                auto_ack: false,
                wait: 0,
                // A queue's own may be too short for anybody to keep up.
                lease: ANSWERS,
                start: Start::Default,
            };
            let call = self.pop(client, pop);
            if !self.wait_for(call) {
                return;
            }
            let Some((proof, messages)) = self.take_newest(client) else { return };
            let item = |message: &Delivered| AckItem {
                partition: message.partition,
                key: message.key,
                status: Status::Completed,
                lease: proof,
            };
            let call = self.ack(client, group, messages.iter().map(item).collect());
            if !self.wait_for(call) {
                return;
            }
        }
        self.wrong(|| format!("group {} of queue {} is never empty", group.0, queue.0));
    }

    /// Lets time pass until an operation is answered.
    fn wait_for(&mut self, call: u32) -> bool {
        let until = self.now + ANSWERS;
        let mut pause = 0;
        while self.calls[call as usize].open && self.now < until && self.findings.violations.is_empty() {
            self.advance(self.now + pause);
            pause = if pause == 0 { 1 + 2 * self.setup.net_latency } else { (pause * 2).min(1_000_000) };
        }
        let answered = self.calls[call as usize].answered;
        if !answered {
            self.wrong(|| format!("operation {call} is refused or not answered, and no fault is left"));
        }
        answered
    }

    fn tell_what_is_left(&mut self) {
        for tenant in 0..self.names.tenants.len() as u16 {
            let tenant = crate::history::TenantNo(tenant);
            let client = self.drainer(tenant);
            let mut calls = vec![self.list_dead_letters(client, None, None, 10_000, 0)];
            let queues = (0..self.names.queue_count()).map(QueueNo);
            let mine: Vec<QueueNo> = queues.filter(|queue| self.names.tenant_of_queue(*queue) == tenant).collect();
            for queue in mine {
                calls.push(self.describe(client, queue));
            }
            calls.push(self.list_groups(client, None));
            for call in calls {
                self.wait_for(call);
            }
        }
    }
}
