//! Messages: what a producer gives, what a store keeps, what a consumer gets. Payloads are opaque bytes end to end.

use alloc::vec::Vec;
use bytes::Bytes;
use compact_str::CompactString;

use crate::name::{MessageId, TraceId, TransactionHash, TransactionId};
use crate::time::Timestamp;

/// A message that is to be stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewMessage {
    /// The producer's id for it; none means the message id's text.
    pub transaction: Option<TransactionId>,
    /// The JSON text exactly as sent.
    pub payload: Bytes,
    /// Only a transactional push can carry one.
    pub trace: Option<TraceId>,
    /// The subject of the producer's verified token.
    pub producer: Option<CompactString>,
}

impl NewMessage {
    /// What this message weighs against the limits on segments and commits, in bytes.
    pub fn weight(&self) -> usize {
        self.payload.len() + self.transaction.as_ref().map_or(0, |id| id.as_str().len())
    }
}

/// A message as read back from a segment. Its id is the segment's base id plus its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredMessage {
    /// Its transaction id; none means the message id's text.
    pub transaction: Option<CompactString>,
    /// The bytes that were pushed.
    pub payload: Bytes,
    /// The trace a transactional push gave it.
    pub trace: Option<TraceId>,
    /// The subject of the producer's token.
    pub producer: Option<CompactString>,
}

/// Neighbouring messages of one segment, as a store reads them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentSlice {
    /// Offset of the first message in `messages`.
    pub start: u64,
    /// Commit time, shared by the whole segment.
    pub created: Timestamp,
    /// Id of the first message in `messages`; the others follow by counting.
    pub base: MessageId,
    /// The messages, in offset order without gaps.
    pub messages: Vec<StoredMessage>,
}

impl SegmentSlice {
    /// Each message with its offset and id.
    pub fn iter(&self) -> impl Iterator<Item = (u64, MessageId, &StoredMessage)> {
        self.messages.iter().zip(0u32..).map(|(message, n)| (self.start + u64::from(n), self.base.nth(n), message))
    }
}

/// The transaction id of a message as text, given or derived from its id.
pub fn transaction_text(given: Option<&CompactString>, id: MessageId) -> CompactString {
    given.cloned().unwrap_or_else(|| id.to_text())
}

/// The hash a new message will be found by once it has `id`.
pub fn hash_of(message: &NewMessage, id: MessageId) -> TransactionHash {
    message.transaction.as_ref().map_or_else(|| id.as_transaction_hash(), TransactionId::hash)
}
