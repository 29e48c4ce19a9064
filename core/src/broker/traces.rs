//! Traces: what clients note about a message's way. Memory keeps nothing of them. (queen-http.md 18)

use alloc::boxed::Box;

use super::Broker;
use super::commit::Done;
use crate::command::{NewTrace, RequestId};
use crate::name::TenantId;
use crate::record::TraceRecord;
use crate::reply::Reply;
use crate::rules::ids;
use crate::store::Write;

impl Broker {
    /// Writes a trace with the commit being built. The message need not exist, its partition has to.
    pub(super) fn run_trace(&mut self, request: RequestId, tenant: TenantId, trace: NewTrace) {
        let partition = self.tables.partition_by_id(trace.partition);
        let Some(partition) = partition.filter(|partition| self.tables.tenant_of(*partition) == tenant) else {
            return self.reply(request, Reply::Traced(None));
        };
        let NewTrace { partition: id, transaction, group, event, data, mut names } = trace;
        names.sort_unstable();
        names.dedup();
        let row = self.tables.partition(partition);
        let record = TraceRecord {
            id: ids::sortable(self.now.store, &mut self.entropy),
            tenant,
            partition: id,
            transaction: transaction.into_text(),
            queue: self.tables.queue(row.queue).record.name.clone(),
            partition_name: row.name.clone(),
            group,
            event,
            data,
            names,
            created: self.now.store,
        };
        let reply = Reply::Traced(Some(record.id));
        let (_, draft) = self.commits.draft();
        draft.weigh(record.data.len());
        draft.write(Write::Trace(Box::new(record)));
        draft.tell(Done::Reply(request, Box::new(reply)));
    }
}
