//! Names and ids: parsed once, valid ever after.

use alloc::string::ToString;
use compact_str::CompactString;
use core::fmt;
use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_128;

use crate::limits::{MAX_NAME_BYTES, MAX_TRANSACTION_ID_BYTES};

/// Why a text is no name or id. The caller knows which field it came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NameError {
    /// More bytes of UTF-8 than the limit.
    #[error("is {actual} bytes long, at most {limit} bytes of UTF-8 are allowed")]
    TooLong {
        /// Bytes given.
        actual: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// U+0000 somewhere in it.
    #[error("contains U+0000, which a name cannot hold")]
    HoldsNul,
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(CompactString);

        impl $name {
            /// Takes up to 1,024 bytes of UTF-8 without U+0000; the empty text is a name like any other.
            pub fn new(text: &str) -> Result<Self, NameError> {
                if text.len() > MAX_NAME_BYTES {
                    return Err(NameError::TooLong { actual: text.len(), limit: MAX_NAME_BYTES });
                }
                if text.as_bytes().contains(&0) {
                    return Err(NameError::HoldsNul);
                }
                Ok(Self(CompactString::new(text)))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(self.as_str(), f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

name! {
    /// The name of a queue, unique in its tenant.
    QueueName
}
name! {
    /// The name of a partition, unique in its queue.
    PartitionName
}
name! {
    /// The name of a consumer group.
    GroupName
}

impl PartitionName {
    /// The partition of a push that names none: `Default`.
    pub fn default_partition() -> Self {
        Self(CompactString::const_new("Default"))
    }
}

impl GroupName {
    /// The group of a pop or ack that names none: `__QUEUE_MODE__`. Subscription settings never apply to it.
    pub fn queue_mode() -> Self {
        Self(CompactString::const_new("__QUEUE_MODE__"))
    }

    /// Whether this is `__QUEUE_MODE__`.
    pub fn is_queue_mode(&self) -> bool {
        self.0 == "__QUEUE_MODE__"
    }
}

/// The 128-bit xxh3 hash of a transaction id: what deduplication and acks find messages by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionHash(pub u128);

impl TransactionHash {
    /// The hash of a transaction id's UTF-8 bytes. The value is stored: it never changes.
    pub fn of(text: &str) -> Self {
        TransactionHash(xxh3_128(text.as_bytes()))
    }
}

impl fmt::Debug for TransactionHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A transaction id with its hash, computed where the id is parsed and not on the core's thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TransactionId {
    text: CompactString,
    hash: TransactionHash,
}

impl TransactionId {
    /// Takes up to 65,535 bytes of UTF-8, U+0000 and the empty text included.
    pub fn new(text: &str) -> Result<Self, NameError> {
        if text.len() > MAX_TRANSACTION_ID_BYTES {
            return Err(NameError::TooLong { actual: text.len(), limit: MAX_TRANSACTION_ID_BYTES });
        }
        Ok(Self { text: CompactString::new(text), hash: TransactionHash::of(text) })
    }

    /// An id with a hash that is not its own, for tests of what happens when two ids share one.
    #[cfg(feature = "testkit")]
    pub fn with_hash(text: &str, hash: TransactionHash) -> Self {
        Self { text: CompactString::new(text), hash }
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Its hash.
    pub fn hash(&self) -> TransactionHash {
        self.hash
    }

    /// The text itself.
    pub fn into_text(self) -> CompactString {
        self.text
    }
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub Uuid);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

uuid_id! {
    /// A tenant: nothing a client can ask crosses tenants.
    TenantId
}
uuid_id! {
    /// One incarnation of a queue: deleted and pushed to again, a queue has a new one.
    QueueId
}
uuid_id! {
    /// A partition (UUID v4).
    PartitionId
}
uuid_id! {
    /// A message (UUID v7). Message n of a segment has the segment's base id plus n.
    MessageId
}
uuid_id! {
    /// A lease (UUID v7), shared by every partition that one pop claimed.
    LeaseId
}
uuid_id! {
    /// A dead letter (UUID v7: the order of filing).
    DeadLetterId
}
uuid_id! {
    /// A trace that a transactional push gave a message.
    TraceId
}

impl TenantId {
    /// The one tenant of a broker without tenancy.
    pub const DEFAULT: TenantId = TenantId(Uuid::from_u128(1));
}

impl MessageId {
    /// The id of the `n`th message of the segment whose base id this is.
    pub fn nth(self, n: u32) -> MessageId {
        MessageId(Uuid::from_u128(self.0.as_u128().wrapping_add(u128::from(n))))
    }

    /// The hash under which a message pushed without a transaction id is found: that of its id's text.
    pub fn as_transaction_hash(self) -> TransactionHash {
        let mut buffer = Uuid::encode_buffer();
        TransactionHash::of(self.0.hyphenated().encode_lower(&mut buffer))
    }

    /// The id as the text that serves as transaction id where none was given.
    pub fn to_text(self) -> CompactString {
        let mut buffer = Uuid::encode_buffer();
        CompactString::new(self.0.hyphenated().encode_lower(&mut buffer))
    }
}

/// Shortens a client's text for an error message, so that a megabyte of it is not echoed.
pub fn excerpt(text: &str) -> alloc::string::String {
    const SHOWN: usize = 64;
    if text.chars().count() <= SHOWN {
        return text.to_string();
    }
    let mut short: alloc::string::String = text.chars().take(SHOWN).collect();
    short.push('…');
    short
}
