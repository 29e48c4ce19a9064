-- A page of dead letters' narrow parts after an id.
SELECT id, partition, consumer_group, message_offset, message, hash, retries, failed, created
FROM queen.dead_letters d
WHERE slot = $1 AND id > $2
  AND (NOT $4 OR EXISTS (
    SELECT FROM queen.partitions p JOIN queen.queues q ON q.id = p.queue WHERE p.id = d.partition AND NOT q.ended))
ORDER BY id LIMIT $3
