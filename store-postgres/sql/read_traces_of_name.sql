-- Traces that carry a name, newest first.
SELECT t.id, t.partition, t.transaction, t.queue, t.partition_name, t.consumer_group, t.event, t.data, t.names, t.created
FROM queen.trace_names n JOIN queen.traces t ON t.id = n.trace
WHERE n.tenant = $1 AND n.name = $2 ORDER BY n.trace DESC LIMIT $3 OFFSET $4
