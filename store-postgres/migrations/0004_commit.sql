-- Commits. All that a commit writes arrives with one call, so its locks live for the few milliseconds that the server
-- itself needs, whatever becomes of the client.


-- The rarer writes of a commit, a column a kind. Ended queues go before new ones, for a name may be taken over.
CREATE FUNCTION queen.write_records_v1(
    p_slot smallint,
    p_ended uuid[],
    p_queue_ids uuid[], p_queue_tenants uuid[], p_queue_names text[], p_queue_namespaces text[], p_queue_tasks text[],
    p_queue_created bigint[], p_queue_revisions bigint[], p_queue_options jsonb[],
    p_partition_ids uuid[], p_partition_queues uuid[], p_partition_names text[], p_partition_created bigint[],
    p_partition_log_starts bigint[],
    p_subscription_queues uuid[], p_subscription_groups text[], p_subscription_starts text[],
    p_subscription_start_times bigint[], p_subscription_registered bigint[], p_subscription_changed bigint[],
    p_dropped_subscription_queues uuid[], p_dropped_subscription_groups text[],
    p_dropped_cursor_partitions uuid[], p_dropped_cursor_groups text[],
    p_dead_ids uuid[], p_dead_partitions uuid[], p_dead_groups text[], p_dead_offsets bigint[], p_dead_messages uuid[],
    p_dead_hashes uuid[], p_dead_retries bigint[], p_dead_failed bigint[], p_dead_created bigint[], p_dead_bodies bytea[],
    p_dropped_dead uuid[]
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF cardinality(p_ended) > 0 THEN
        UPDATE queen.queues SET ended = true WHERE id = ANY (p_ended);
    END IF;
    IF cardinality(p_queue_ids) > 0 THEN
        INSERT INTO queen.tenants (tenant, slot)
            SELECT DISTINCT tenant, p_slot FROM unnest(p_queue_tenants) tenant ON CONFLICT DO NOTHING;
        -- Configuring raises the revision by one.
        INSERT INTO queen.queues (id, slot, tenant, name, namespace, task, created_at, revision)
            SELECT id, p_slot, tenant, name, namespace, task, 'epoch'::timestamptz + created * interval '1 microsecond',
                revision - (options IS NOT NULL)::integer
            FROM unnest(p_queue_ids, p_queue_tenants, p_queue_names, p_queue_namespaces, p_queue_tasks, p_queue_created,
                p_queue_revisions, p_queue_options)
                AS q(id, tenant, name, namespace, task, created, revision, options)
            ON CONFLICT (id) DO UPDATE SET created_at = excluded.created_at
                WHERE queues.created_at <> excluded.created_at;
        -- Without options a queue keeps the defaults of the columns.
        PERFORM queen.configure_queue_v1(name, options, tenant, id, revision)
            FROM unnest(p_queue_names, p_queue_options, p_queue_tenants, p_queue_ids, p_queue_revisions)
                AS q(name, options, tenant, id, revision)
            WHERE options IS NOT NULL;
    END IF;
    IF cardinality(p_partition_ids) > 0 THEN
        INSERT INTO queen.partitions (id, slot, queue, name, created, log_start)
            SELECT id, p_slot, queue, name, created, log_start
            FROM unnest(p_partition_ids, p_partition_queues, p_partition_names, p_partition_created,
                p_partition_log_starts) AS p(id, queue, name, created, log_start)
            ON CONFLICT (id) DO UPDATE SET created = excluded.created, log_start = excluded.log_start;
    END IF;
    IF cardinality(p_subscription_queues) > 0 THEN
        INSERT INTO queen.subscriptions (slot, queue, consumer_group, start, start_time, registered, changed)
            SELECT p_slot, queue, consumer_group, start::"char", start_time, registered, changed
            FROM unnest(p_subscription_queues, p_subscription_groups, p_subscription_starts, p_subscription_start_times,
                p_subscription_registered, p_subscription_changed)
                AS s(queue, consumer_group, start, start_time, registered, changed)
            ON CONFLICT (slot, queue, consumer_group) DO UPDATE SET start = excluded.start,
                start_time = excluded.start_time, registered = excluded.registered, changed = excluded.changed;
    END IF;
    IF cardinality(p_dropped_subscription_queues) > 0 THEN
        DELETE FROM queen.subscriptions s
            USING unnest(p_dropped_subscription_queues, p_dropped_subscription_groups) AS d(queue, consumer_group)
            WHERE s.slot = p_slot AND s.queue = d.queue AND s.consumer_group = d.consumer_group;
    END IF;
    IF cardinality(p_dropped_cursor_partitions) > 0 THEN
        DELETE FROM queen.cursors c
            USING unnest(p_dropped_cursor_partitions, p_dropped_cursor_groups) AS d(partition, consumer_group)
            WHERE c.slot = p_slot AND c.partition = d.partition AND c.consumer_group = d.consumer_group;
    END IF;
    IF cardinality(p_dropped_dead) > 0 THEN
        DELETE FROM queen.dead_letters WHERE id = ANY (p_dropped_dead);
    END IF;
    IF cardinality(p_dead_ids) > 0 THEN
        INSERT INTO queen.dead_letters (id, slot, partition, consumer_group, message_offset, message, hash, retries,
            failed, created, body)
            SELECT id, p_slot, partition, consumer_group, message_offset, message, hash, retries, failed, created, body
            FROM unnest(p_dead_ids, p_dead_partitions, p_dead_groups, p_dead_offsets, p_dead_messages, p_dead_hashes,
                p_dead_retries, p_dead_failed, p_dead_created, p_dead_bodies)
                AS d(id, partition, consumer_group, message_offset, message, hash, retries, failed, created, body)
            ON CONFLICT (id) DO UPDATE SET partition = excluded.partition, consumer_group = excluded.consumer_group,
                message_offset = excluded.message_offset, message = excluded.message, hash = excluded.hash,
                retries = excluded.retries, failed = excluded.failed, created = excluded.created, body = excluded.body;
    END IF;
END $$;

-- Takes a commit's fence row, and looks for the last two commits acknowledged to its sender: 0 go on, 1 fenced, 2 an
-- acknowledged commit is missing. One statement: each costs as much as what it does.
CREATE FUNCTION queen.fence_v1(
    p_slot smallint, p_lane smallint, p_epoch bigint, p_token uuid, p_epochs bigint[], p_numbers bigint[]
) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    v_whole boolean;
BEGIN
    SELECT (cardinality(p_epochs) < 1 OR EXISTS (SELECT FROM queen.commits c
            WHERE c.slot = p_slot AND c.epoch = p_epochs[1] AND c.number = p_numbers[1]))
        AND (cardinality(p_epochs) < 2 OR EXISTS (SELECT FROM queen.commits c
            WHERE c.slot = p_slot AND c.epoch = p_epochs[2] AND c.number = p_numbers[2]))
    INTO v_whole FROM queen.fences
        WHERE slot = p_slot AND lane = p_lane AND epoch = p_epoch AND token = p_token FOR NO KEY UPDATE;
    RETURN CASE WHEN v_whole IS NULL THEN 1 WHEN v_whole THEN 0 ELSE 2 END;
END $$;

-- A commit: 0 done, 1 fenced, 2 an acknowledged commit is missing. It writes what every push, pop and ack writes, a
-- column a field; records of other kinds follow in the same transaction.
CREATE FUNCTION queen.commit_v1(
    p_slot smallint, p_lane smallint, p_epoch bigint, p_token uuid, p_epochs bigint[], p_numbers bigint[],
    p_number bigint, p_time bigint,
    p_segment_partitions uuid[], p_segment_starts bigint[], p_segment_created bigint[], p_segment_totals bigint[],
    p_segment_counts integer[], p_segment_bases uuid[], p_segment_hashes bytea[], p_segment_bodies bytea[],
    p_cursor_partitions uuid[], p_cursor_groups text[], p_cursor_next bigint[], p_cursor_consumed bigint[],
    p_cursor_leases uuid[], p_cursor_expires bigint[], p_cursor_ends bigint[], p_cursor_retries integer[]
) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    v_status integer := queen.fence_v1(p_slot, p_lane, p_epoch, p_token, p_epochs, p_numbers);
BEGIN
    IF v_status <> 0 THEN
        RETURN v_status;
    END IF;
    INSERT INTO queen.commits (slot, epoch, number, time) VALUES (p_slot, p_epoch, p_number, p_time);
    IF cardinality(p_segment_partitions) > 0 THEN
        INSERT INTO queen.segments (partition, start, created, total, count, base, hashes, body)
            SELECT * FROM unnest(p_segment_partitions, p_segment_starts, p_segment_created, p_segment_totals,
                p_segment_counts, p_segment_bases, p_segment_hashes, p_segment_bodies);
    END IF;
    IF cardinality(p_cursor_partitions) > 0 THEN
        INSERT INTO queen.cursors
            (slot, partition, consumer_group, next, consumed, lease, lease_expires, lease_end, retries)
            SELECT p_slot, c.* FROM unnest(p_cursor_partitions, p_cursor_groups, p_cursor_next, p_cursor_consumed,
                p_cursor_leases, p_cursor_expires, p_cursor_ends, p_cursor_retries) AS c
            ON CONFLICT (slot, partition, consumer_group) DO UPDATE SET next = excluded.next,
                consumed = excluded.consumed, lease = excluded.lease, lease_expires = excluded.lease_expires,
                lease_end = excluded.lease_end, retries = excluded.retries;
    END IF;
    RETURN 0;
END $$;
