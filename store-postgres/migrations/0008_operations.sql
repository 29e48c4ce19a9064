-- What operators need: switches that hold for every broker, traces that clients leave, and what happened in each minute.

-- One row. Each heartbeat reads it.
CREATE TABLE queen.maintenance (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    push boolean NOT NULL DEFAULT false,
    pop boolean NOT NULL DEFAULT false
);
INSERT INTO queen.maintenance DEFAULT VALUES;

-- What clients noted about a message's way. It outlives the message and its queue, and nothing purges it.
CREATE TABLE queen.traces (
    id uuid PRIMARY KEY,
    slot smallint NOT NULL,
    tenant uuid NOT NULL,
    partition uuid NOT NULL,
    transaction bytea NOT NULL,
    queue text NOT NULL,
    partition_name text NOT NULL,
    consumer_group text NOT NULL,
    event text NOT NULL,
    data bytea NOT NULL,
    names text[] NOT NULL,
    created bigint NOT NULL
);
-- By a hash: a transaction id may be longer than an index entry.
CREATE INDEX traces_by_message ON queen.traces (tenant, partition, md5(transaction), id);

CREATE TABLE queen.trace_names (
    tenant uuid NOT NULL,
    name text NOT NULL,
    trace uuid NOT NULL,
    PRIMARY KEY (tenant, name, trace)
);

-- What happened on a queue in a minute. `counts` has the order that the broker gives it: first maxima, then sums.
CREATE TABLE queen.activity (
    slot smallint NOT NULL,
    start bigint NOT NULL,
    tenant uuid NOT NULL,
    queue text NOT NULL,
    counts bigint[] NOT NULL,
    PRIMARY KEY (slot, start, tenant, queue)
);

-- Counts of the same minute and queue, one after the other: maxima and sums.
CREATE FUNCTION queen.merge_counts_v1(p_maxima integer, p_one bigint[], p_other bigint[]) RETURNS bigint[]
LANGUAGE sql IMMUTABLE AS $$
    SELECT array_agg(CASE WHEN i <= p_maxima THEN greatest(p_one[i], p_other[i])
        ELSE coalesce(p_one[i], 0) + coalesce(p_other[i], 0) END ORDER BY i)
    FROM generate_series(1, greatest(cardinality(p_one), cardinality(p_other))) i;
$$;

-- The writes of a commit that are about operations. Traces come as JSON with their bytes in hexadecimal: they are few.
CREATE FUNCTION queen.write_operations_v1(
    p_slot smallint, p_traces jsonb, p_activity jsonb, p_maxima integer, p_before bigint, p_limit bigint
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO queen.traces (id, slot, tenant, partition, transaction, queue, partition_name, consumer_group, event, data,
        names, created)
        SELECT id, p_slot, tenant, partition, decode(transaction, 'hex'), queue, partition_name, consumer_group, event,
            decode(data, 'hex'), names, created
        FROM jsonb_to_recordset(p_traces) AS t(id uuid, tenant uuid, partition uuid, transaction text, queue text,
            partition_name text, consumer_group text, event text, data text, names text[], created bigint);
    INSERT INTO queen.trace_names (tenant, name, trace)
        SELECT tenant, unnest(names), id FROM jsonb_to_recordset(p_traces) AS t(id uuid, tenant uuid, names text[]);
    INSERT INTO queen.activity AS a (slot, start, tenant, queue, counts)
        SELECT p_slot, start, tenant, queue, counts
        FROM jsonb_to_recordset(p_activity) AS t(start bigint, tenant uuid, queue text, counts bigint[])
        ON CONFLICT (slot, start, tenant, queue)
        DO UPDATE SET counts = queen.merge_counts_v1(p_maxima, a.counts, excluded.counts);
    DELETE FROM queen.activity WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM queen.activity WHERE slot = p_slot AND start < p_before ORDER BY start LIMIT p_limit));
END $$;
