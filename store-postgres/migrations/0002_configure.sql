-- Replaces a queue's whole configuration, or makes the queue: what is left out goes back to its default. This is the
-- only writer of options. The broker calls it inside its own commits; people may call it with the first three arguments:
--
--   SELECT queen.configure_queue_v1('orders', '{"leaseTime": 30, "delayedProcessing": 5}');
--
-- Option names are those of POST /api/v1/configure, with namespace and task. A change is picked up within the refresh
-- interval of the broker; making a new queue costs its slot one reload.
CREATE FUNCTION queen.configure_queue_v1(
    p_queue text,
    p_options jsonb DEFAULT '{}',
    p_tenant uuid DEFAULT '00000000-0000-0000-0000-000000000001',
    p_id uuid DEFAULT NULL,
    p_revision bigint DEFAULT 0
) RETURNS uuid LANGUAGE plpgsql AS $$
DECLARE
    v_id uuid := p_id;
    v_slot smallint;
    v_key text;
    v_value jsonb;
    v_number numeric;
    v_least bigint;
    v_names CONSTANT text[] := ARRAY['namespace', 'task', 'leaseTime', 'retryLimit', 'retryDelay', 'priority', 'maxSize',
        'ttl', 'deadLetterQueue', 'dlqAfterMaxRetries', 'delayedProcessing', 'windowBuffer', 'retentionEnabled',
        'retentionSeconds', 'completedRetentionSeconds', 'maxWaitTimeSeconds', 'minPopWaitTime', 'encryptionEnabled',
        'dedupWindowSeconds'];
BEGIN
    FOR v_key, v_value IN SELECT * FROM jsonb_each(p_options) LOOP
        IF v_key <> ALL (v_names) THEN
            RAISE EXCEPTION 'option % is unknown; the options are %', v_key, array_to_string(v_names, ', ')
                USING ERRCODE = 'invalid_parameter_value';
        ELSIF jsonb_typeof(v_value) = 'null' THEN
            p_options := p_options - v_key;
        ELSIF v_key IN ('namespace', 'task') THEN
            IF jsonb_typeof(v_value) <> 'string' THEN
                RAISE EXCEPTION 'option % must be a string', v_key USING ERRCODE = 'invalid_parameter_value';
            END IF;
        ELSIF v_key IN ('deadLetterQueue', 'dlqAfterMaxRetries', 'retentionEnabled', 'encryptionEnabled') THEN
            IF jsonb_typeof(v_value) <> 'boolean' THEN
                RAISE EXCEPTION 'option % must be true or false', v_key USING ERRCODE = 'invalid_parameter_value';
            END IF;
        ELSE
            IF jsonb_typeof(v_value) <> 'number' THEN
                RAISE EXCEPTION 'option % must be a whole number', v_key USING ERRCODE = 'invalid_parameter_value';
            END IF;
            v_number := v_value::numeric;
            v_least := (CASE WHEN v_key = 'priority' THEN -2147483648 ELSE 0 END);
            IF v_key = 'minPopWaitTime' THEN
                v_number := least(greatest(v_number, 0), 60000);
                p_options := jsonb_set(p_options, ARRAY[v_key], to_jsonb(v_number));
            END IF;
            IF v_number <> trunc(v_number) OR v_number NOT BETWEEN v_least AND 2147483647 THEN
                RAISE EXCEPTION 'option % must be a whole number from % to 2147483647', v_key, v_least
                    USING ERRCODE = 'invalid_parameter_value';
            END IF;
        END IF;
    END LOOP;

    IF v_id IS NULL THEN
        SELECT id INTO v_id FROM queen.queues WHERE tenant = p_tenant AND name = p_queue AND NOT ended;
        IF v_id IS NULL THEN
            SELECT slot INTO v_slot FROM queen.tenants WHERE tenant = p_tenant;
            IF v_slot IS NULL THEN
                RAISE EXCEPTION 'tenant % has no queue yet; make its first one through a broker', p_tenant
                    USING ERRCODE = 'invalid_parameter_value';
            END IF;
            -- Whoever owns the slot knows nothing of this queue: it has to take the slot anew, and load.
            UPDATE queen.slots SET owner = NULL, token = NULL WHERE slot = v_slot;
            UPDATE queen.fences SET token = NULL WHERE slot = v_slot;
            v_id := gen_random_uuid();
            INSERT INTO queen.queues (id, slot, tenant, name) VALUES (v_id, v_slot, p_tenant, p_queue);
        END IF;
    END IF;

    UPDATE queen.queues SET
        namespace = coalesce(p_options ->> 'namespace', ''),
        task = coalesce(p_options ->> 'task', ''),
        lease_time = coalesce((p_options ->> 'leaseTime')::numeric::integer, 300),
        retry_limit = coalesce((p_options ->> 'retryLimit')::numeric::integer, 3),
        retry_delay = coalesce((p_options ->> 'retryDelay')::numeric::integer, 1000),
        priority = coalesce((p_options ->> 'priority')::numeric::integer, 0),
        max_size = coalesce((p_options ->> 'maxSize')::numeric::integer, 0),
        ttl = coalesce((p_options ->> 'ttl')::numeric::integer, 3600),
        dead_letter_queue = coalesce((p_options ->> 'deadLetterQueue')::boolean, true),
        dlq_after_max_retries = coalesce((p_options ->> 'dlqAfterMaxRetries')::boolean, true),
        delayed_processing = coalesce((p_options ->> 'delayedProcessing')::numeric::integer, 0),
        window_buffer = coalesce((p_options ->> 'windowBuffer')::numeric::integer, 0),
        retention_enabled = coalesce((p_options ->> 'retentionEnabled')::boolean, false),
        retention_seconds = coalesce((p_options ->> 'retentionSeconds')::numeric::integer, 0),
        completed_retention_seconds = coalesce((p_options ->> 'completedRetentionSeconds')::numeric::integer, 0),
        max_wait_time_seconds = coalesce((p_options ->> 'maxWaitTimeSeconds')::numeric::integer, 0),
        min_pop_wait_time = coalesce((p_options ->> 'minPopWaitTime')::numeric::integer, 0),
        encryption_enabled = coalesce((p_options ->> 'encryptionEnabled')::boolean, false),
        dedup_window_seconds = coalesce((p_options ->> 'dedupWindowSeconds')::numeric::integer, 3600),
        revision = CASE WHEN p_id IS NULL THEN revision + 1 ELSE greatest(p_revision, revision + 1) END
    WHERE id = v_id;
    RETURN v_id;
END $$;

-- Which slot a tenant belongs to: written with its first queue, so that the function above can make others.
CREATE TABLE queen.tenants (
    tenant uuid PRIMARY KEY,
    slot smallint NOT NULL
);
