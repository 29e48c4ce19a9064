-- A broker's sign of life. No row: it was declared dead.
INSERT INTO queen.brokers AS b (incarnation, address, host, draining) VALUES ($1, $2, $3, $4)
ON CONFLICT (incarnation) DO UPDATE SET beat = b.beat + 1, draining = excluded.draining, seen = now() WHERE NOT b.dead
RETURNING beat
