//! Options that were changed in the store itself (CFG-9): the owner looks at the queues' records each refresh interval,
//! and a later version of one is treated as a configure call's.

use super::Broker;
use super::calls::Pending;
use super::tables::QueueIx;
use super::timers::Alarm;
use crate::limits::STORE_RETRY;
use crate::name::QueueId;
use crate::options::{Labels, QueueOptions};
use crate::record::QueueRecord;
use crate::store::{StoreReply, StoreRequest};

impl Broker {
    /// The slot is loaded: from now on its queues are looked at. What was begun for an earlier ownership ends.
    pub(super) fn start_refreshing(&mut self) {
        self.refreshes += 1;
        self.start_minutes();
        self.timers.set(self.now.monotonic.plus(self.settings.refresh), Alarm::Refresh(self.refreshes));
    }

    /// It is time to look.
    pub(super) fn refresh(&mut self, number: u64) {
        if number != self.refreshes || self.draining {
            return;
        }
        if self.usable() {
            self.ask_for_queues(number, None);
        } else if self.owned() {
            self.timers.set(self.now.monotonic.plus(STORE_RETRY), Alarm::Refresh(number));
        }
    }

    fn ask_for_queues(&mut self, number: u64, after: Option<QueueId>) {
        self.ask(StoreRequest::LoadQueues { slot: self.settings.slot, after }, Pending::Refresh(number));
    }

    /// A page of queues was read, or could not be: then the round starts again.
    pub(super) fn queues_read(&mut self, number: u64, reply: StoreReply) {
        if number != self.refreshes || !self.owned() {
            return;
        }
        let StoreReply::Queues { queues, next } = reply else {
            return self.timers.set(self.now.monotonic.plus(STORE_RETRY), Alarm::Refresh(number));
        };
        for record in queues {
            self.look_at_queue(record);
        }
        match next {
            Some(last) => self.ask_for_queues(number, Some(last)),
            None => self.timers.set(self.now.monotonic.plus(self.settings.refresh), Alarm::Refresh(number)),
        }
    }

    /// A version that is not later may be older than a commit in flight; a queue that is not known may be one that was
    /// deleted or is being made.
    fn look_at_queue(&mut self, stored: QueueRecord) {
        let found = self.tables.find_queue(stored.tenant, &stored.name);
        let later = |queue: &QueueIx| {
            let row = self.tables.queue(*queue);
            row.record.id == stored.id && row.fresh.is_none() && stored.revision > row.record.revision
        };
        if let Some(queue) = found.filter(later) {
            self.reconfigure(queue, stored.options, stored.labels, stored.revision);
        }
    }

    /// A queue has new options: they hold for the next decision, parked pops included.
    pub(super) fn reconfigure(&mut self, queue: QueueIx, options: QueueOptions, labels: Labels, revision: u64) {
        let record = &mut self.tables.queue_mut(queue).record;
        let relabelled = record.labels != labels;
        let before = core::mem::replace(&mut record.options, options);
        (record.labels, record.revision) = (labels, revision);
        plant!(ConfigureMerges => record.options.retry_limit = before.retry_limit);
        plant!(ConfigureIgnored => record.options = before.clone());
        self.place_queue(queue);
        plant!(WakeLostOnConfigure => self.waiters.awake.clear());
        plant!(ConfigureChangesLeases => self.shorten_leases(queue));
        if relabelled {
            self.wake_discovery(queue);
        }
    }
}
