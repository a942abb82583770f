-- own_reads: values that one transaction both sent and read.
SELECT
    run, topic, partition, value, operation,
    min(process) AS process,
    min(CASE WHEN is_seen THEN log_offset END) AS log_offset,
    count(CASE WHEN is_seen THEN 1 END) AS reads,
    true AS precommitted_read
FROM records
WHERE mop IS NOT NULL AND value IS NOT NULL
GROUP BY run, topic, partition, value, operation
HAVING count(CASE WHEN is_send THEN 1 END) > 0 AND count(CASE WHEN is_seen THEN 1 END) > 0
