-- A page of subscriptions from a queue on, without the first $3 of that queue.
SELECT queue, consumer_group, start::text, start_time, registered, changed
FROM queen.subscriptions s
WHERE slot = $1 AND queue >= $2 AND EXISTS (SELECT FROM queen.queues q WHERE q.id = s.queue AND NOT q.ended)
ORDER BY queue, consumer_group OFFSET $3 LIMIT $4
