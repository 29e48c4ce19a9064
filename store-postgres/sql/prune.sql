-- Forgets commits that nobody can ask for any more.
DELETE FROM queen.commits WHERE slot = $1 AND epoch = $2 AND number >= $3 AND number < $4
