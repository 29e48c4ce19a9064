-- Every broker, and whether its control connection still stands. Long dead ones are left out.
WITH sessions AS MATERIALIZED (
    SELECT classid::bigint << 32 | objid::bigint AS key FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 1 AND granted
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
)
SELECT incarnation, address, host, draining, beat, dead,
    EXISTS (SELECT FROM sessions WHERE key = queen.session_key_v1(incarnation)) AS session
FROM queen.brokers WHERE NOT dead OR seen > now() - interval '1 minute' ORDER BY incarnation
