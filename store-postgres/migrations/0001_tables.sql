-- What Tidegate stores. Times that the broker reckons with are microseconds since 1970; offsets are numbers from 0.
-- A partition's messages lie in packed segments, never a row per message.

-- Who owns a slot. `beat` counts renewals.
CREATE TABLE queen.slots (
    slot smallint PRIMARY KEY,
    epoch bigint NOT NULL DEFAULT 0,
    token uuid,
    owner text,
    beat bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 20);

-- What commits lock and check: one row for each that may be in flight, and one (lane 2) for trims. Only a new owner
-- updates them, so a commit never writes a new version of a row that the next one needs.
CREATE TABLE queen.fences (
    slot smallint NOT NULL,
    lane smallint NOT NULL,
    epoch bigint NOT NULL DEFAULT 0,
    token uuid,
    PRIMARY KEY (slot, lane)
) WITH (fillfactor = 20);

INSERT INTO queen.slots (slot) SELECT generate_series(0, 15);
INSERT INTO queen.fences (slot, lane) SELECT slot, lane FROM generate_series(0, 15) slot, generate_series(0, 2) lane;

-- Which commits happened. Old rows are deleted by the owner every few seconds.
CREATE TABLE queen.commits (
    slot smallint NOT NULL,
    epoch bigint NOT NULL,
    number bigint NOT NULL,
    time bigint NOT NULL,
    PRIMARY KEY (slot, epoch, number)
);

-- The brokers on this database. `beat` counts heartbeats; who is known to have ended is `dead`.
CREATE TABLE queen.brokers (
    incarnation uuid PRIMARY KEY,
    address text NOT NULL,
    host text NOT NULL,
    beat bigint NOT NULL DEFAULT 0,
    draining boolean NOT NULL DEFAULT false,
    dead boolean NOT NULL DEFAULT false,
    seen timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 20);

-- A queue with all its options. Only queen.configure_queue_v1 writes options; a queue that a push or a pop makes has
-- the defaults that stand here.
CREATE TABLE queen.queues (
    id uuid PRIMARY KEY,
    slot smallint NOT NULL,
    tenant uuid NOT NULL,
    name text NOT NULL,
    ended boolean NOT NULL DEFAULT false,
    namespace text NOT NULL DEFAULT '',
    task text NOT NULL DEFAULT '',
    lease_time integer NOT NULL DEFAULT 60,
    retry_limit integer NOT NULL DEFAULT 3,
    retry_delay integer NOT NULL DEFAULT 1000,
    priority integer NOT NULL DEFAULT 0,
    max_size integer NOT NULL DEFAULT 0,
    ttl integer NOT NULL DEFAULT 3600,
    dead_letter_queue boolean NOT NULL DEFAULT true,
    dlq_after_max_retries boolean NOT NULL DEFAULT true,
    delayed_processing integer NOT NULL DEFAULT 0,
    window_buffer integer NOT NULL DEFAULT 0,
    retention_enabled boolean NOT NULL DEFAULT false,
    retention_seconds integer NOT NULL DEFAULT 0,
    completed_retention_seconds integer NOT NULL DEFAULT 0,
    max_wait_time_seconds integer NOT NULL DEFAULT 0,
    min_pop_wait_time integer NOT NULL DEFAULT 0,
    encryption_enabled boolean NOT NULL DEFAULT false,
    dedup_window_seconds integer NOT NULL DEFAULT 3600,
    revision bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX queues_by_name ON queen.queues (tenant, name) WHERE NOT ended;
CREATE INDEX queues_by_slot ON queen.queues (slot, id);

CREATE TABLE queen.subscriptions (
    slot smallint NOT NULL,
    queue uuid NOT NULL,
    consumer_group text NOT NULL,
    -- a: from the start, n: what comes after the registration, t: from a time
    start "char" NOT NULL,
    start_time bigint,
    registered bigint NOT NULL,
    changed bigint,
    PRIMARY KEY (slot, queue, consumer_group)
);

-- A push does not touch the partition's row: where its log ends follows from its last segment.
CREATE TABLE queen.partitions (
    id uuid PRIMARY KEY,
    slot smallint NOT NULL,
    queue uuid NOT NULL,
    name text NOT NULL,
    created bigint NOT NULL,
    log_start bigint NOT NULL
);
CREATE UNIQUE INDEX partitions_by_name ON queen.partitions (queue, name);
CREATE INDEX partitions_by_slot ON queen.partitions (slot, id);

-- Where a group stands on a partition. Updates change no indexed column, and pages keep room for them.
CREATE TABLE queen.cursors (
    slot smallint NOT NULL,
    partition uuid NOT NULL,
    consumer_group text NOT NULL,
    next bigint NOT NULL,
    consumed bigint NOT NULL,
    lease uuid,
    lease_expires bigint,
    lease_end bigint,
    retries integer NOT NULL,
    PRIMARY KEY (slot, partition, consumer_group)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- Messages `start` to `start + count - 1` of a partition, committed together. `total` counts the partition's payload
-- bytes up to here. `hashes` are 16 bytes a message; none where they follow from the message ids. Both wide columns are
-- packed already: Postgres need not try again.
CREATE TABLE queen.segments (
    partition uuid NOT NULL,
    start bigint NOT NULL,
    created bigint NOT NULL,
    total bigint NOT NULL,
    count integer NOT NULL,
    base uuid NOT NULL,
    hashes bytea,
    body bytea NOT NULL,
    PRIMARY KEY (partition, start)
) WITH (toast_tuple_target = 8160, autovacuum_vacuum_insert_scale_factor = 0.5);
ALTER TABLE queen.segments ALTER COLUMN hashes SET STORAGE EXTERNAL;
ALTER TABLE queen.segments ALTER COLUMN body SET STORAGE EXTERNAL;

-- A dead letter: a copy, independent of its segment. `body` holds the message and the error.
CREATE TABLE queen.dead_letters (
    id uuid PRIMARY KEY,
    slot smallint NOT NULL,
    partition uuid NOT NULL,
    consumer_group text NOT NULL,
    message_offset bigint NOT NULL,
    message uuid NOT NULL,
    hash uuid NOT NULL,
    retries integer NOT NULL,
    failed bigint NOT NULL,
    created bigint NOT NULL,
    body bytea NOT NULL
);
CREATE INDEX dead_letters_by_slot ON queen.dead_letters (slot, id);
CREATE INDEX dead_letters_by_partition ON queen.dead_letters (partition);
