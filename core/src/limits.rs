//! Every hard limit, named with its unit.

use crate::time::Span;

/// Bytes of UTF-8 in the name of a queue, partition or group, and in a label.
pub const MAX_NAME_BYTES: usize = 1_024;
/// Bytes of UTF-8 in a transaction id.
pub const MAX_TRANSACTION_ID_BYTES: usize = 65_535;

/// Messages in one segment.
pub const MAX_SEGMENT_MESSAGES: usize = 1_000;
/// Payload bytes in one segment; a larger message stands alone.
pub const MAX_SEGMENT_BYTES: usize = 256 * 1_024;

/// Commits in flight at once.
pub const MAX_COMMITS_IN_FLIGHT: usize = 2;
/// Payload bytes in one commit; one larger request goes alone.
pub const MAX_COMMIT_BYTES: usize = 8 * 1_024 * 1_024;
/// Writes in one commit; one larger request goes alone.
pub const MAX_COMMIT_WRITES: usize = 5_000;
/// Partitions that one step of a seek or a group's deletion touches, and dead letters that one of a purge removes.
pub const MAX_STEP_PARTITIONS: usize = 4_096;
/// Segments that one trim of a deleted queue removes.
pub const MAX_TRIM_SEGMENTS: u32 = 1_000;
/// Records in one page of a load.
pub const MAX_PAGE_RECORDS: usize = 10_000;
/// Segment heads in one page of a log.
pub const MAX_PAGE_HEADS: usize = 1_000;
/// Hashes in one page of a log, give or take one segment's.
pub const MAX_PAGE_HASHES: usize = 100_000;

/// How far back a listing of messages goes that does not say.
pub const LISTED_AGE: Span = Span::from_secs(3_600);
/// Messages that a listing looks at before it gives the page it has: one that shows few of many must not hold everybody up.
pub const MAX_LISTED_LOOKS: usize = 100_000;

/// Queues of which a slot's owner writes down what happened in a minute: the busiest.
pub const MAX_ACTIVITY_QUEUES: usize = 500;
/// Queues of a slot that metrics have a label for: the busiest of the last minute.
pub const MAX_LABELLED_QUEUES: usize = 100;
/// Rows of activity that one commit removes.
pub const MAX_ACTIVITY_DROPPED: u32 = 5_000;
/// Buckets of activity in one answer.
pub const MAX_ACTIVITY_READ: usize = 20_000;
/// Traces of one message that are shown.
pub const MAX_TRACES_READ: u64 = 1_000;
/// Names that one trace may carry.
pub const MAX_TRACE_NAMES: usize = 100;
/// Partitions below whose watermarks one trim removes rows.
pub const MAX_TRIM_PARTITIONS: usize = 256;
/// Segments that a dry run of retention looks at in one request.
pub const MAX_PREVIEW_EXTENTS: u32 = 10_000;
/// How long retention pauses between two looks at as many partitions as a step may touch.
pub const RETENTION_PAUSE: Span = Span::from_millis(1);
/// How often unused partitions are removed at most.
pub const CLEAN_UP_INTERVAL: Span = Span::from_secs(60);
/// How often history that is too old is looked for.
pub const MAX_HISTORY_AGE_CHECK: Span = Span::from_secs(3_600);

/// Logs of which a page is asked for in one request.
pub const MAX_LOGS_READ: usize = 64;
/// Single messages that are read in one request because their commit time is asked for.
pub const MAX_TIMES_READ: usize = 4_096;

/// How often an owner renews its slot.
pub const RENEW_INTERVAL: Span = Span::from_millis(500);
/// How long after *sending* a renewal that succeeded an owner may answer from memory.
pub const OWNERSHIP: Span = Span::from_secs(3);
/// How long an owner's counter must stand still before another broker may take its slot.
pub const TAKEOVER: Span = Span::from_millis(3_500);
/// How long a slot may be without an owner before any broker may take it, not only the one whose turn it is.
pub const FREE_FOR_ALL: Span = Span::from_secs(1);
/// How long a request waits for its slot to have an owner; a pop waits within its own wait.
pub const HOLD: Span = Span::from_secs(2);
/// How long a caller waits for a commit whose outcome is unknown.
pub const OUTCOME_WAIT: Span = Span::from_secs(10);
/// How long after a store error the next attempt starts.
pub const STORE_RETRY: Span = Span::from_millis(100);

/// The lease where neither the request nor a queue says one (OPT-3).
pub const DEFAULT_LEASE: Span = Span::from_secs(60);
/// The least time a hash is kept for resolving acks (OPT-26).
pub const MIN_HASH_AGE: Span = Span::from_secs(900);
