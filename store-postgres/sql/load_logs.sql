-- Heads of segments that start before $2 and were committed at or after $3, newest first, for several partitions: the
-- inner search stops at the first one that is too old. Those that outlived their messages lie below all others.
SELECT r.place, s.start, s.created, s.total, s.count, s.base, s.hashes
FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) WITH ORDINALITY AS r(partition, before, since, place)
JOIN LATERAL (
    (SELECT s.start, s.created, s.total, s.count, s.base, s.hashes FROM queen.segments s
     WHERE s.partition = r.partition AND s.start < r.before
       AND s.start > coalesce((
         SELECT o.start FROM queen.segments o
         WHERE o.partition = r.partition AND o.start < r.before AND o.created < r.since ORDER BY o.start DESC LIMIT 1), -1)
     ORDER BY s.start DESC LIMIT $4)
    UNION ALL
    (SELECT h.start, h.created, h.total, h.count, h.base, h.hashes FROM queen.hashes h
     WHERE h.partition = r.partition AND h.start < r.before
       AND h.start > coalesce((
         SELECT o.start FROM queen.hashes o
         WHERE o.partition = r.partition AND o.start < r.before AND o.created < r.since ORDER BY o.start DESC LIMIT 1), -1)
     ORDER BY h.start DESC LIMIT $4)
) s ON true
ORDER BY r.place, s.start DESC
