-- A commit that writes messages and cursors only: nearly all of them.
SELECT queen.commit_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22,
    $23, $24), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
