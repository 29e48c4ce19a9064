SELECT queen.commit_v1(1::smallint, :client_id::smallint, 1, '00000000-0000-0000-0000-000000000007', '{}', '{}', nextval('n'), 0,
    p, s, s, s, c, p, array_fill(NULL::bytea, ARRAY[64]), b, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}')
FROM (SELECT array_agg(gen_random_uuid()) AS p, array_agg(g::bigint) AS s, array_agg(1) AS c, array_agg(decode(repeat('7b2273', 83), 'hex')) AS b FROM generate_series(1, 64) g) x;
