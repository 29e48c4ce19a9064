//! Reading messages and dead letters.

use sqlx::Row;
use tidegate_core::message::SegmentSlice;
use tidegate_core::name::{DeadLetterId, MessageId};
use tidegate_core::record::DeadLetterRecord;
use tidegate_core::store::{SegmentRead, StoreReply};

use crate::error::{Failure, corrupt, repeat};
use crate::pack::{unpack, unpack_dead};
use crate::rows;
use crate::store::Inner;

impl Inner {
    pub(crate) async fn read(&self, reads: Vec<SegmentRead>) -> StoreReply {
        match repeat(|| self.segments(&reads)).await {
            Ok(segments) => StoreReply::Segments(segments),
            Err(failure) => failure.of_read(),
        }
    }

    async fn segments(&self, reads: &[SegmentRead]) -> Result<Vec<Vec<SegmentSlice>>, Failure> {
        let offset = |offset: u64| offset.min(i64::MAX as u64) as i64;
        let found = sqlx::query(include_str!("../sql/read.sql"))
            .bind(reads.iter().map(|read| read.partition.0).collect::<Vec<_>>())
            .bind(reads.iter().map(|read| offset(read.from)).collect::<Vec<_>>())
            .bind(reads.iter().map(|read| offset(read.end)).collect::<Vec<_>>())
            .fetch_all(&self.pools().reads)
            .await?;
        let mut answers: Vec<Vec<SegmentSlice>> = reads.iter().map(|_| Vec::new()).collect();
        for row in &found {
            let place = row.try_get::<i64, _>(0)? as usize - 1;
            let (answer, read) =
                answers.get_mut(place).zip(reads.get(place)).ok_or_else(|| corrupt("messages nobody asked for"))?;
            let (log_start, start) = (rows::number(row, 1)?, rows::number(row, 2)?);
            let end = start + row.try_get::<i32, _>(4)? as u64;
            let (from, until) = (read.from.max(log_start).max(start), read.end.min(end));
            if from >= until {
                continue;
            }
            let skip = from - start;
            answer.push(SegmentSlice {
                start: from,
                created: rows::time(row, 3)?,
                base: MessageId(row.try_get(5)?).nth(skip as u32),
                messages: unpack(row.try_get(6)?, skip as usize, (until - start) as usize).map_err(corrupt)?,
            });
        }
        Ok(answers)
    }

    pub(crate) async fn read_dead_letters(&self, ids: Vec<DeadLetterId>) -> StoreReply {
        match repeat(|| self.dead_letters(&ids)).await {
            Ok(letters) => StoreReply::DeadLetters(letters),
            Err(failure) => failure.of_read(),
        }
    }

    async fn dead_letters(&self, ids: &[DeadLetterId]) -> Result<Vec<Option<DeadLetterRecord>>, Failure> {
        let found = sqlx::query(include_str!("../sql/read_dead_letters.sql"))
            .bind(ids.iter().map(|id| id.0).collect::<Vec<_>>())
            .fetch_all(&self.pools().reads)
            .await?;
        let mut letters = std::collections::BTreeMap::new();
        for row in &found {
            let head = rows::dead_letter(row)?;
            let (message, error) = unpack_dead(row.try_get(9)?).map_err(corrupt)?;
            letters.insert(head.id, DeadLetterRecord { head, message, error });
        }
        Ok(ids.iter().map(|id| letters.get(id).cloned()).collect())
    }
}
