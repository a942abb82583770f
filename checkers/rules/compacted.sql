-- compacted: values that compaction may have removed: behind each lies another one of its key, or
-- nobody knows where it lies, or it has deleted its key.
WITH placed AS (
    SELECT run, topic, partition, key, value, max(log_offset) AS place
    FROM operations
    SEMI JOIN compacting USING (run, topic, partition)
    WHERE key IS NOT NULL AND value IS NOT NULL AND (f = 'poll' OR (f = 'send' AND committed))
    GROUP BY run, topic, partition, key, value
),
ranked AS (
    SELECT placed.*, max(place) OVER (PARTITION BY run, topic, partition, key) AS newest
    FROM placed
)
SELECT DISTINCT run, topic, partition, value
FROM ranked
WHERE place IS NULL OR place < newest OR value LIKE '⟨null%'
