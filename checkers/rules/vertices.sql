-- vertices: when each operation of a run with transactions was, and whether it is known to have
-- succeeded (`completed_ns` is null where it is not).
SELECT DISTINCT
    run, operation, invoked_ns,
    CASE WHEN type = 'ok' THEN completed_ns END AS completed_ns
FROM operations
JOIN runs USING (run)
WHERE transactions AND f IN ('send', 'poll')
