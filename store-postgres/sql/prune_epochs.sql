-- Forgets commits of earlier owners that nobody can ask for any more.
DELETE FROM queen.commits WHERE slot = $1 AND epoch < $2 AND time < $3
