-- Forgets commits of earlier owners that nobody can ask for any more: old ones, and never the last hundred, for the next
-- owner's first commits still name what it knew.
DELETE FROM queen.commits WHERE slot = $1 AND epoch < $2 AND time < $3 AND (epoch, number) < (
    SELECT epoch, number FROM queen.commits WHERE slot = $1 AND epoch < $2
    ORDER BY epoch DESC, number DESC OFFSET 100 LIMIT 1)
