WITH fence AS MATERIALIZED (
    SELECT FROM queen.fences WHERE slot = 1 AND lane = :client_id AND epoch = 1
        AND token = '00000000-0000-0000-0000-000000000007' FOR NO KEY UPDATE
), x AS MATERIALIZED (SELECT array_agg(gen_random_uuid()) AS p, array_agg(g::bigint) AS s, array_agg(1) AS c, array_agg(decode(repeat('7b2273', 83), 'hex')) AS b FROM generate_series(1, 64) g
), number AS (
    INSERT INTO queen.commits (slot, epoch, number, time) SELECT 1, 1, nextval('n'), 0 FROM fence
), cursors AS (
    INSERT INTO queen.cursors (slot, partition, consumer_group, next, consumed, retries)
    SELECT 1, u.p, 'g', 0, 0, 0 FROM fence, unnest('{}'::uuid[]) AS u(p)
    ON CONFLICT (slot, partition, consumer_group) DO UPDATE SET next = excluded.next
), segments AS (
    INSERT INTO queen.segments (partition, start, created, total, count, base, hashes, body)
    SELECT u.p, u.s, u.s, u.s, u.c, u.p, NULL, u.b FROM fence, x, unnest(x.p, x.s, x.c, x.b) AS u(p, s, c, b)
)
SELECT count(*) FROM fence;
