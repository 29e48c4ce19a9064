-- The segments that hold messages $2 to $3 (exclusive) of several partitions: from the last one that starts at or before
-- the first offset. What lies below the partition's log start is deleted.
SELECT r.place, p.log_start, s.start, s.created, s.count, s.base, s.body
FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) WITH ORDINALITY AS r(partition, first, until, place)
JOIN queen.partitions p ON p.id = r.partition
JOIN LATERAL (
    SELECT s.start, s.created, s.count, s.base, s.body FROM queen.segments s
    WHERE s.partition = r.partition AND s.start < r.until
      AND s.start >= coalesce((
        SELECT o.start FROM queen.segments o
        WHERE o.partition = r.partition AND o.start <= greatest(r.first, p.log_start) ORDER BY o.start DESC LIMIT 1), 0)
    ORDER BY s.start
) s ON true
ORDER BY r.place, s.start
