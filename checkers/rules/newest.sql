-- newest: of each key of a compacted partition the newest acknowledged value, and the last place at
-- which the final reads found the key.
SELECT
    run, topic, partition, key, complete, start_offset, end_offset,
    max(CASE WHEN f = 'send' THEN log_offset END) AS acked_offset,
    max_by(
        CASE WHEN f = 'send' THEN value END, CASE WHEN f = 'send' THEN log_offset END
    ) AS value,
    max_by(
        CASE WHEN f = 'send' THEN operation END, CASE WHEN f = 'send' THEN log_offset END
    ) AS operation,
    max(CASE WHEN f = 'poll' THEN log_offset END) AS final_offset,
    max_by(
        CASE WHEN f = 'poll' THEN value END, CASE WHEN f = 'poll' THEN log_offset END
    ) AS final_value
FROM operations
SEMI JOIN compacting USING (run, topic, partition)
JOIN partitions USING (run, topic, partition)
WHERE key IS NOT NULL AND log_offset IS NOT NULL AND (
    (f = 'send' AND committed) OR (f = 'poll' AND type = 'ok' AND phase = 'final')
)
GROUP BY run, topic, partition, key, complete, start_offset, end_offset
