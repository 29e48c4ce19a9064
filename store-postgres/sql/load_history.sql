-- What retention deleted from a tenant's queues, in order of time.
SELECT minute, queue, rule, segments, messages, unconsumed, events
FROM queen.retention_history WHERE slot = $1 AND minute >= $3 AND minute < $4 AND tenant = $2
ORDER BY minute, queue COLLATE "C", rule
