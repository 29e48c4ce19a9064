-- Traces of a message, oldest first, and how many there are.
SELECT id, partition, transaction, queue, partition_name, consumer_group, event, data, names, created,
    count(*) OVER () AS total
FROM queen.traces WHERE tenant = $1 AND partition = $2 AND md5(transaction) = md5($3) AND transaction = $3
ORDER BY id LIMIT $4
