-- A commit that writes traces or activity too, behind the same fence.
WITH done AS MATERIALIZED (
    SELECT queen.commit_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21,
        $22, $23, $24) AS status)
SELECT status, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
    CASE WHEN status = 0 THEN queen.write_records_v1($1, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38,
        $39, $40, $41, $42, $43, $44, $45, $46, $47, $48, $49, $50, $51, $52, $53, $54, $55, $56, $57, $58, $59)::text END,
    CASE WHEN status = 0 THEN queen.write_retention_v1($1, $60, $61, $62, $63, $64, $65, $66, $67, $68, $69, $70, $71, $72,
        $73, $74, $75, $76)::text END,
    CASE WHEN status = 0 THEN queen.write_operations_v1($1, $77, $78, $79, $80, $81)::text END
FROM done
