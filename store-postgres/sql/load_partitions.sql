-- A page of partitions from an id on, each with where its log ends (one index descent each).
SELECT p.id, p.queue, p.name, p.created, p.log_start, t.next, t.created AS last, t.total
FROM queen.partitions p
LEFT JOIN LATERAL (
    SELECT s.start + s.count AS next, s.created, s.total FROM queen.segments s
    WHERE s.partition = p.id ORDER BY s.start DESC LIMIT 1
) t ON true
WHERE p.slot = $1 AND p.id > $2
  AND (NOT $4 OR EXISTS (SELECT FROM queen.queues q WHERE q.id = p.queue AND NOT q.ended))
ORDER BY p.id LIMIT $3
