-- A page of cursors from a partition on, without the first $3 of that partition.
SELECT partition, consumer_group, next, consumed, lease, lease_expires, lease_end, retries
FROM queen.cursors c
WHERE slot = $1 AND partition >= $2
  AND (NOT $5 OR EXISTS (
    SELECT FROM queen.partitions p JOIN queen.queues q ON q.id = p.queue WHERE p.id = c.partition AND NOT q.ended))
ORDER BY partition, consumer_group OFFSET $3 LIMIT $4
