-- Who owns which slot, and whether that broker is known to have ended.
SELECT s.slot, s.epoch, s.token, s.owner, s.beat,
    EXISTS (SELECT FROM queen.brokers b WHERE b.dead AND b.incarnation::text = s.owner) AS gone, clock_timestamp() AS time
FROM queen.slots s WHERE s.slot = ANY ($1)
