-- Whole dead letters by id, unless their queue has ended.
SELECT d.id, d.partition, d.consumer_group, d.message_offset, d.message, d.hash, d.retries, d.failed, d.created, d.body
FROM queen.dead_letters d
JOIN queen.partitions p ON p.id = d.partition JOIN queen.queues q ON q.id = p.queue AND NOT q.ended
WHERE d.id = ANY ($1)
