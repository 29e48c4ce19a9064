-- The names that traces carry, last seen first, and how many names there are.
SELECT n.name, count(*), count(DISTINCT (t.partition, t.transaction)), max(t.created), count(*) OVER () AS total
FROM queen.trace_names n JOIN queen.traces t ON t.id = n.trace
WHERE n.tenant = $1 GROUP BY n.name ORDER BY max(t.created) DESC, n.name COLLATE "C" LIMIT $2 OFFSET $3
