-- Retention: a partition's watermarks, what outlives deleted messages, and what was deleted.

-- Hashes below the log start and from the hash start on outlived their messages. `trimmed_bytes` counts the payload bytes
-- from the first message ever to the last one deleted, `trimmed_last` is that one's commit time.
ALTER TABLE queen.partitions
    ADD COLUMN hash_start bigint NOT NULL DEFAULT 0,
    ADD COLUMN trimmed_bytes bigint NOT NULL DEFAULT 0,
    ADD COLUMN trimmed_last bigint;
-- Watermarks move every few seconds: pages keep room for new versions, and are cleaned soon.
ALTER TABLE queen.partitions SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- Where segments come and go, dead ones must not pile up between those that are read.
ALTER TABLE queen.segments SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_scale_factor = 0.05, toast.autovacuum_vacuum_cost_delay = 0);

-- A segment without its messages.
CREATE TABLE queen.hashes (
    partition uuid NOT NULL,
    start bigint NOT NULL,
    created bigint NOT NULL,
    total bigint NOT NULL,
    count integer NOT NULL,
    base uuid NOT NULL,
    hashes bytea,
    PRIMARY KEY (partition, start)
) WITH (toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE queen.hashes ALTER COLUMN hashes SET STORAGE EXTERNAL;

-- What a rule deleted from a queue within a minute. Rules: 0 retentionSeconds, 1 completedRetentionSeconds,
-- 2 maxWaitTimeSeconds. It names no id: it outlives the queue.
CREATE TABLE queen.retention_history (
    slot smallint NOT NULL,
    minute bigint NOT NULL,
    tenant uuid NOT NULL,
    queue text NOT NULL,
    rule smallint NOT NULL,
    segments bigint NOT NULL,
    messages bigint NOT NULL,
    unconsumed bigint NOT NULL,
    events bigint NOT NULL,
    PRIMARY KEY (slot, minute, tenant, queue, rule)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);

-- What retention writes in a commit: watermarks, removed partitions, history.
CREATE FUNCTION queen.write_retention_v1(
    p_slot smallint,
    p_partition_ids uuid[], p_partition_queues uuid[], p_partition_names text[], p_partition_created bigint[],
    p_partition_log_starts bigint[], p_partition_hash_starts bigint[], p_partition_bytes bigint[],
    p_partition_last bigint[],
    p_dropped uuid[],
    p_history_minutes bigint[], p_history_tenants uuid[], p_history_queues text[], p_history_rules integer[],
    p_history_segments bigint[], p_history_messages bigint[], p_history_unconsumed bigint[], p_history_events bigint[]
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF cardinality(p_partition_ids) > 0 THEN
        INSERT INTO queen.partitions (id, slot, queue, name, created, log_start, hash_start, trimmed_bytes, trimmed_last)
            SELECT id, p_slot, queue, name, created, log_start, hash_start, bytes, last
            FROM unnest(p_partition_ids, p_partition_queues, p_partition_names, p_partition_created,
                p_partition_log_starts, p_partition_hash_starts, p_partition_bytes, p_partition_last)
                AS p(id, queue, name, created, log_start, hash_start, bytes, last)
            ON CONFLICT (id) DO UPDATE SET created = excluded.created, log_start = excluded.log_start,
                hash_start = excluded.hash_start, trimmed_bytes = excluded.trimmed_bytes,
                trimmed_last = excluded.trimmed_last;
    END IF;
    IF cardinality(p_dropped) > 0 THEN
        DELETE FROM queen.cursors WHERE slot = p_slot AND partition = ANY (p_dropped);
        DELETE FROM queen.segments WHERE partition = ANY (p_dropped);
        DELETE FROM queen.hashes WHERE partition = ANY (p_dropped);
        DELETE FROM queen.partitions WHERE id = ANY (p_dropped);
    END IF;
    IF cardinality(p_history_minutes) > 0 THEN
        INSERT INTO queen.retention_history AS h
            (slot, minute, tenant, queue, rule, segments, messages, unconsumed, events)
            SELECT p_slot, minute, tenant, queue, rule, sum(segments), sum(messages), sum(unconsumed), sum(events)
            FROM unnest(p_history_minutes, p_history_tenants, p_history_queues, p_history_rules, p_history_segments,
                p_history_messages, p_history_unconsumed, p_history_events)
                AS n(minute, tenant, queue, rule, segments, messages, unconsumed, events)
            GROUP BY minute, tenant, queue, rule
            ON CONFLICT (slot, minute, tenant, queue, rule) DO UPDATE SET segments = h.segments + excluded.segments,
                messages = h.messages + excluded.messages, unconsumed = h.unconsumed + excluded.unconsumed,
                events = h.events + excluded.events;
    END IF;
END $$;

-- Removes rows below the watermarks of partitions, at most `p_limit`: 0 nothing is left, 1 more is, 2 fenced. Hashes from
-- the hash start on outlive their messages.
CREATE FUNCTION queen.trim_logs_v1(p_slot smallint, p_epoch bigint, p_token uuid, p_partitions uuid[], p_limit integer)
RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    v_left integer := p_limit;
    v_partition uuid;
    v_log_start bigint;
    v_hash_start bigint;
    v_deleted integer;
BEGIN
    IF queen.fence_v1(p_slot, 2::smallint, p_epoch, p_token, '{}', '{}') <> 0 THEN
        RETURN 2;
    END IF;
    FOR v_partition, v_log_start, v_hash_start IN
        SELECT id, log_start, hash_start FROM queen.partitions WHERE id = ANY (p_partitions) AND slot = p_slot
    LOOP
        WITH old AS (
            DELETE FROM queen.segments WHERE partition = v_partition AND start IN (
                SELECT start FROM queen.segments
                WHERE partition = v_partition AND start < v_log_start AND start + count <= v_log_start
                ORDER BY start LIMIT v_left)
            RETURNING partition, start, created, total, count, base, hashes
        ), kept AS (
            INSERT INTO queen.hashes (partition, start, created, total, count, base, hashes)
            SELECT * FROM old WHERE start + count > v_hash_start
        )
        SELECT count(*) INTO v_deleted FROM old;
        v_left := v_left - v_deleted;
        IF v_left > 0 THEN
            DELETE FROM queen.hashes WHERE partition = v_partition AND start IN (
                SELECT start FROM queen.hashes
                WHERE partition = v_partition AND start < v_hash_start AND start + count <= v_hash_start
                ORDER BY start LIMIT v_left);
            GET DIAGNOSTICS v_deleted = ROW_COUNT;
            v_left := v_left - v_deleted;
        END IF;
        IF v_left <= 0 THEN
            RETURN 1;
        END IF;
    END LOOP;
    RETURN 0;
END $$;

-- Removes history before a minute, at most `p_limit` rows: 0 nothing is left, 1 more is, 2 fenced.
CREATE FUNCTION queen.trim_history_v1(p_slot smallint, p_epoch bigint, p_token uuid, p_before bigint, p_limit integer)
RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    v_deleted integer;
BEGIN
    IF queen.fence_v1(p_slot, 2::smallint, p_epoch, p_token, '{}', '{}') <> 0 THEN
        RETURN 2;
    END IF;
    DELETE FROM queen.retention_history WHERE slot = p_slot AND (minute, tenant, queue, rule) IN (
        SELECT minute, tenant, queue, rule FROM queen.retention_history WHERE slot = p_slot AND minute < p_before
        ORDER BY minute LIMIT p_limit);
    GET DIAGNOSTICS v_deleted = ROW_COUNT;
    RETURN (v_deleted = p_limit)::integer;
END $$;

-- As before, with what outlived deleted messages of the ended queue.
CREATE OR REPLACE FUNCTION queen.trim_v1(p_slot smallint, p_epoch bigint, p_token uuid, p_queue uuid, p_limit integer)
RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    v_left integer := p_limit;
    v_partition uuid;
    v_deleted integer;
BEGIN
    IF queen.fence_v1(p_slot, 2::smallint, p_epoch, p_token, '{}', '{}') <> 0 THEN
        RETURN 2;
    END IF;
    PERFORM FROM queen.queues WHERE id = p_queue AND ended;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    FOR v_partition IN SELECT id FROM queen.partitions WHERE queue = p_queue ORDER BY name LIMIT p_limit LOOP
        DELETE FROM queen.segments WHERE partition = v_partition AND start IN (
            SELECT start FROM queen.segments WHERE partition = v_partition ORDER BY start LIMIT v_left);
        GET DIAGNOSTICS v_deleted = ROW_COUNT;
        v_left := v_left - v_deleted;
        IF v_left > 0 THEN
            DELETE FROM queen.hashes WHERE partition = v_partition AND start IN (
                SELECT start FROM queen.hashes WHERE partition = v_partition ORDER BY start LIMIT v_left);
            GET DIAGNOSTICS v_deleted = ROW_COUNT;
            v_left := v_left - v_deleted;
        END IF;
        IF v_left <= 0 THEN
            RETURN 1;
        END IF;
        DELETE FROM queen.cursors WHERE slot = p_slot AND partition = v_partition;
        DELETE FROM queen.dead_letters WHERE partition = v_partition;
        DELETE FROM queen.partitions WHERE id = v_partition;
    END LOOP;
    PERFORM FROM queen.partitions WHERE queue = p_queue LIMIT 1;
    IF FOUND THEN
        RETURN 1;
    END IF;
    DELETE FROM queen.subscriptions WHERE slot = p_slot AND queue = p_queue;
    DELETE FROM queen.queues WHERE id = p_queue;
    RETURN 0;
END $$;
