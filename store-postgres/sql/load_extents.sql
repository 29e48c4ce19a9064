-- What segments span from an offset on, oldest first, for several partitions: $3 asks for those that outlived their
-- messages. Both searches are ranges of a primary key that end at the limit; one of them has nothing to do.
SELECT r.place, s.start, s.count, s.created, s.total
FROM unnest($1::uuid[], $2::bigint[], $3::boolean[]) WITH ORDINALITY AS r(partition, first, hashes, place)
JOIN LATERAL (
    (SELECT s.start, s.count, s.created, s.total FROM queen.segments s
     WHERE NOT r.hashes AND s.partition = r.partition AND s.start >= r.first ORDER BY s.start LIMIT $4)
    UNION ALL
    (SELECT h.start, h.count, h.created, h.total FROM queen.hashes h
     WHERE r.hashes AND h.partition = r.partition AND h.start >= r.first ORDER BY h.start LIMIT $4)
) s ON true
LIMIT $4
