//! What retention asks: what is oldest, what it once deleted, and the removal of what lies below watermarks.

use sqlx::Row;
use tidegate_core::name::{PartitionId, TenantId};
use tidegate_core::record::HistoryRecord;
use tidegate_core::store::{Extent, ExtentRead, Fence, Slot, StoreReply};
use tidegate_core::time::Timestamp;

use crate::error::{Failure, corrupt, repeat};
use crate::ownership::{slot_number, token};
use crate::rows;
use crate::store::Inner;

impl Inner {
    pub(crate) async fn load_extents(&self, reads: Vec<ExtentRead>, limit: u32) -> StoreReply {
        match repeat(|| self.extents(&reads, limit)).await {
            Ok(lists) => StoreReply::Extents(lists),
            Err(failure) => failure.of_read(),
        }
    }

    async fn extents(&self, reads: &[ExtentRead], limit: u32) -> Result<Vec<Vec<Extent>>, Failure> {
        let found = sqlx::query(include_str!("../sql/load_extents.sql"))
            .bind(reads.iter().map(|read| read.partition.0).collect::<Vec<_>>())
            .bind(reads.iter().map(|read| read.from.min(i64::MAX as u64) as i64).collect::<Vec<_>>())
            .bind(reads.iter().map(|read| read.hashes).collect::<Vec<_>>())
            .bind(i64::from(limit))
            .fetch_all(&self.pools().reads)
            .await?;
        let mut lists: Vec<Vec<Extent>> = reads.iter().map(|_| Vec::new()).collect();
        for row in &found {
            let place = row.try_get::<i64, _>(0)? as usize - 1;
            lists.get_mut(place).ok_or_else(|| corrupt("extents nobody asked for"))?.push(rows::extent(row)?);
        }
        Ok(lists)
    }

    pub(crate) async fn trim_logs(&self, fence: Fence, partitions: Vec<PartitionId>, limit: u32) -> StoreReply {
        let status = sqlx::query_scalar::<_, i32>("SELECT queen.trim_logs_v1($1, $2, $3, $4, $5)")
            .bind(slot_number(fence.slot))
            .bind(fence.epoch.0 as i64)
            .bind(token(fence.token))
            .bind(partitions.iter().map(|partition| partition.0).collect::<Vec<_>>())
            .bind(limit.min(i32::MAX as u32) as i32)
            .fetch_one(&self.pools().writes)
            .await;
        trimmed(status)
    }

    pub(crate) async fn load_history(
        &self,
        slot: Slot,
        tenant: TenantId,
        since: Timestamp,
        until: Timestamp,
    ) -> StoreReply {
        match repeat(|| self.history(slot, tenant, since, until)).await {
            Ok(records) => StoreReply::History(records),
            Err(failure) => failure.of_read(),
        }
    }

    async fn history(
        &self,
        slot: Slot,
        tenant: TenantId,
        since: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<HistoryRecord>, Failure> {
        let found = sqlx::query(include_str!("../sql/load_history.sql"))
            .bind(slot_number(slot))
            .bind(tenant.0)
            .bind(since.as_micros())
            .bind(until.as_micros())
            .fetch_all(&self.pools().reads)
            .await?;
        found.iter().map(|row| rows::history(row, tenant)).collect()
    }

    pub(crate) async fn trim_history(&self, fence: Fence, before: Timestamp, limit: u32) -> StoreReply {
        let status = sqlx::query_scalar::<_, i32>("SELECT queen.trim_history_v1($1, $2, $3, $4, $5)")
            .bind(slot_number(fence.slot))
            .bind(fence.epoch.0 as i64)
            .bind(token(fence.token))
            .bind(before.as_micros())
            .bind(limit.min(i32::MAX as u32) as i32)
            .fetch_one(&self.pools().writes)
            .await;
        trimmed(status)
    }
}

/// What the trimming functions in the database return.
pub(crate) fn trimmed(status: Result<i32, sqlx::Error>) -> StoreReply {
    match status {
        Ok(2) => StoreReply::Fenced,
        Ok(status) => StoreReply::Trimmed { more: status == 1 },
        // Repeating a trim does no harm.
        Err(error) => Failure::from(error).of_read(),
    }
}
