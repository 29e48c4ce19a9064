-- A page of partitions from an id on, each with where its log ends (one index descent each). Of those from which retention
-- has deleted, whether rows are left below the watermarks.
SELECT p.id, p.queue, p.name, p.created, p.log_start, t.next, t.created AS last, t.total,
    p.hash_start, p.trimmed_bytes, p.trimmed_last,
    p.log_start > 0 AND (
        coalesce((SELECT s.start + s.count <= p.log_start FROM queen.segments s
                  WHERE s.partition = p.id ORDER BY s.start LIMIT 1), false)
        OR coalesce((SELECT h.start + h.count <= p.hash_start FROM queen.hashes h
                     WHERE h.partition = p.id ORDER BY h.start LIMIT 1), false)) AS untrimmed
FROM queen.partitions p
LEFT JOIN LATERAL (
    SELECT s.start + s.count AS next, s.created, s.total FROM queen.segments s
    WHERE s.partition = p.id ORDER BY s.start DESC LIMIT 1
) t ON true
WHERE p.slot = $1 AND p.id > $2
  AND (NOT $4 OR EXISTS (SELECT FROM queen.queues q WHERE q.id = p.queue AND NOT q.ended))
ORDER BY p.id LIMIT $3
