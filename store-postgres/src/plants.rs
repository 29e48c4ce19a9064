//! Deliberate violations, switched on by `TIDEGATE_PLANT` in a build with the feature `plants`: the crash test proves
//! itself by finding each.

use std::sync::{Arc, OnceLock};

use tidegate_core::store::{Commit, Fence, StoreReply};

use crate::error::Failure;
use crate::ownership::{slot_number, token};
use crate::store::Inner;

/// What is broken on purpose.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plant {
    /// A commit is answered before it is stored.
    ReplyEarly,
    /// A commit goes through whoever owns the slot.
    SkipFence,
    /// Commits of unknown outcome are said not to have happened.
    SkipSettle,
}

/// Whether this plant is switched on.
pub(crate) fn planted(plant: Plant) -> bool {
    static PLANT: OnceLock<Option<Plant>> = OnceLock::new();
    let read = || match std::env::var("TIDEGATE_PLANT").as_deref() {
        Ok("reply-early") => Some(Plant::ReplyEarly),
        Ok("skip-fence") => Some(Plant::SkipFence),
        Ok("skip-settle") => Some(Plant::SkipSettle),
        _ => None,
    };
    *PLANT.get_or_init(read) == Some(plant)
}

/// Answers first and commits afterwards.
pub(crate) fn answer_early(store: &Arc<Inner>, commit: Commit) -> Result<StoreReply, Box<Commit>> {
    if !planted(Plant::ReplyEarly) {
        return Err(Box::new(commit));
    }
    let store = Arc::clone(store);
    tokio::spawn(async move {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        let _ = store.commit_now(commit).await;
    });
    Ok(StoreReply::Committed)
}

/// Makes the fence rows say what the sender believes.
pub(crate) async fn forge_fence(store: &Inner, fence: Fence) -> Result<(), Failure> {
    sqlx::query("UPDATE queen.fences SET epoch = $2, token = $3 WHERE slot = $1")
        .bind(slot_number(fence.slot))
        .bind(fence.epoch.0 as i64)
        .bind(token(fence.token))
        .execute(&store.pools().writes)
        .await?;
    Ok(())
}
