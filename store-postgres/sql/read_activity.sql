-- What happened on a tenant's queues, merged into buckets: the newest ones, in order of start and queue.
WITH counted AS (
    SELECT floor(a.start::numeric / $6)::bigint * $6 AS bucket, a.queue, c.place,
        CASE WHEN c.place <= $7 THEN max(c.count) ELSE sum(c.count)::bigint END AS count
    FROM queen.activity a, unnest(a.counts) WITH ORDINALITY AS c(count, place)
    WHERE a.slot = $1 AND a.start >= $4 AND a.start < $5 AND a.tenant = $2 AND ($3::text IS NULL OR a.queue = $3)
    GROUP BY 1, a.queue, c.place
), buckets AS (
    SELECT bucket, queue, array_agg(count ORDER BY place) AS counts FROM counted GROUP BY bucket, queue
    ORDER BY bucket DESC, queue COLLATE "C" DESC LIMIT $8
)
SELECT bucket, queue, counts FROM buckets ORDER BY bucket, queue COLLATE "C"
