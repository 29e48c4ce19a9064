-- Ends the connections of a slot's owner whose commits hold up its successor.
SELECT count(pg_terminate_backend(a.pid)) FROM pg_stat_activity a JOIN queen.slots s ON a.application_name = 'tidegate ' || s.owner
WHERE s.slot = $1 AND a.pid <> pg_backend_pid()
