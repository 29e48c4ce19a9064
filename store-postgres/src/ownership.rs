//! Taking, keeping, giving up and settling slots.

use std::time::Duration;

use compact_str::CompactString;
use sqlx::Row;
use tidegate_core::name::QueueId;
use tidegate_core::store::{CommitKey, Epoch, Fence, Slot, SlotView, StoreReply, Token};
use uuid::Uuid;

use crate::error::{Failure, corrupt, repeat};
use crate::store::{Inner, lock};

/// How long a raise waits for commits of the last owner before it ends their connections.
const PATIENCE: Duration = Duration::from_millis(500);

pub(crate) fn slot_number(slot: Slot) -> i16 {
    i16::from(slot.0)
}

pub(crate) fn token(token: Token) -> Uuid {
    Uuid::from_u128(token.0)
}

/// Keys as two columns.
pub(crate) fn columns<'a>(keys: impl IntoIterator<Item = &'a CommitKey>) -> (Vec<i64>, Vec<i64>) {
    keys.into_iter().map(|key| (key.epoch.0 as i64, key.number.0 as i64)).unzip()
}

impl Inner {
    pub(crate) async fn watch(&self, slot: Slot) -> StoreReply {
        match repeat(|| self.view(slot)).await {
            Ok(view) => StoreReply::Watched(view),
            Err(failure) => failure.of_read(),
        }
    }

    async fn view(&self, slot: Slot) -> Result<SlotView, Failure> {
        let row = sqlx::query(include_str!("../sql/watch.sql"))
            .bind(vec![slot_number(slot)])
            .fetch_optional(&self.pools().control)
            .await?
            .ok_or_else(|| corrupt(format!("the database has no slot {}", slot.0)))?;
        Ok(SlotView {
            epoch: Epoch(row.try_get::<i64, _>(1)? as u64),
            token: row.try_get::<Option<Uuid>, _>(2)?.map(|token| Token(token.as_u128())),
            owner: row.try_get::<Option<&str>, _>(3)?.map(CompactString::new),
            beat: row.try_get::<i64, _>(4)? as u64,
            gone: row.try_get(5)?,
        })
    }

    pub(crate) async fn take(&self, slot: Slot, seen: Epoch, new: Token, owner: CompactString) -> StoreReply {
        let pools = self.pools();
        let taking = sqlx::query_scalar::<_, Option<i64>>("SELECT queen.take_v1($1, $2, $3, $4)")
            .bind(slot_number(slot))
            .bind(seen.0 as i64)
            .bind(token(new))
            .bind(owner.as_str())
            .fetch_one(&pools.writes);
        tokio::pin!(taking);
        let taken = tokio::select! {
            biased;
            taken = &mut taking => taken,
            () = tokio::time::sleep(PATIENCE) => {
                // A frozen owner may hold a fence; its connections' names tell which they are.
                let ended = sqlx::query(include_str!("../sql/terminate.sql"))
                    .bind(slot_number(slot))
                    .execute(&pools.control)
                    .await;
                tracing::warn!(slot = slot.0, worked = ended.is_ok(), "ended the last owner's connections");
                taking.await
            }
        };
        lock(&self.cache).clear();
        match taken {
            Ok(Some(epoch)) => StoreReply::Taken(Epoch(epoch as u64)),
            Ok(None) => self.watch(slot).await,
            Err(error) => Failure::from(error).of_write(),
        }
    }

    pub(crate) async fn renew(&self, fence: Fence, acknowledged: [Option<CommitKey>; 2]) -> StoreReply {
        match repeat(|| self.try_renew(fence, acknowledged)).await {
            Ok(status) => self.status(status, StoreReply::Renewed),
            Err(failure) => failure.of_read(),
        }
    }

    async fn try_renew(&self, fence: Fence, acknowledged: [Option<CommitKey>; 2]) -> Result<i32, Failure> {
        let (epochs, numbers) = columns(acknowledged.iter().flatten());
        let row = sqlx::query(
            "SELECT queen.renew_v1($1, $2, $3, $4, $5), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
        )
        .bind(slot_number(fence.slot))
        .bind(fence.epoch.0 as i64)
        .bind(token(fence.token))
        .bind(epochs)
        .bind(numbers)
        .fetch_one(&self.pools().control)
        .await?;
        self.hear(row.try_get(1)?);
        Ok(row.try_get(0)?)
    }

    /// What the functions in the database return.
    pub(crate) fn status(&self, status: i32, done: StoreReply) -> StoreReply {
        match status {
            0 => done,
            2 => {
                lock(&self.cache).clear();
                StoreReply::SuffixLost
            }
            _ => StoreReply::Fenced,
        }
    }

    pub(crate) async fn release(&self, fence: Fence) -> StoreReply {
        let released = sqlx::query_scalar::<_, bool>("SELECT queen.release_v1($1, $2, $3)")
            .bind(slot_number(fence.slot))
            .bind(fence.epoch.0 as i64)
            .bind(token(fence.token))
            .fetch_one(&self.pools().writes)
            .await;
        match released {
            Ok(true) => StoreReply::Released,
            Ok(false) => StoreReply::Fenced,
            Err(error) => Failure::from(error).of_write(),
        }
    }

    pub(crate) async fn settle(&self, fence: Fence, new: Token, unknown: Vec<CommitKey>) -> StoreReply {
        let (epochs, numbers) = columns(&unknown);
        let row = sqlx::query("SELECT epoch, committed FROM queen.settle_v1($1, $2, $3, $4, $5, $6)")
            .bind(slot_number(fence.slot))
            .bind(fence.epoch.0 as i64)
            .bind(token(fence.token))
            .bind(token(new))
            .bind(epochs)
            .bind(numbers)
            .fetch_one(&self.pools().writes)
            .await;
        let told = row.and_then(|row| {
            Ok((row.try_get::<Option<i64>, _>(0)?, row.try_get::<Option<Vec<bool>>, _>(1)?.unwrap_or_default()))
        });
        match told {
            #[cfg(feature = "plants")]
            Ok((Some(epoch), committed)) if crate::plants::planted(crate::plants::Plant::SkipSettle) => {
                StoreReply::Settled { epoch: Epoch(epoch as u64), committed: vec![false; committed.len()] }
            }
            Ok((Some(epoch), committed)) => StoreReply::Settled { epoch: Epoch(epoch as u64), committed },
            Ok((None, _)) => StoreReply::Fenced,
            Err(error) => Failure::from(error).of_write(),
        }
    }

    pub(crate) async fn trim(&self, fence: Fence, queue: QueueId, limit: u32) -> StoreReply {
        let status = sqlx::query_scalar::<_, i32>("SELECT queen.trim_v1($1, $2, $3, $4, $5)")
            .bind(slot_number(fence.slot))
            .bind(fence.epoch.0 as i64)
            .bind(token(fence.token))
            .bind(queue.0)
            .bind(limit as i32)
            .fetch_one(&self.pools().writes)
            .await;
        crate::retention::trimmed(status)
    }

    pub(crate) async fn ping(&self) -> StoreReply {
        match sqlx::query("SELECT FROM queen.slots LIMIT 1").execute(&self.pools().reads).await {
            Ok(_) => StoreReply::Pong,
            Err(error) => Failure::from(error).of_read(),
        }
    }
}
