-- Removes rows of an ended queue, at most `p_limit` segments: 0 nothing is left, 1 more is, 2 fenced.
CREATE FUNCTION queen.trim_v1(p_slot smallint, p_epoch bigint, p_token uuid, p_queue uuid, p_limit integer)
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
