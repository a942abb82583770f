-- positions: commits of a group, and answers about its position, each with the highest position
-- that was acknowledged before it was invoked.
--
-- Two operations that overlap in time prove nothing. A seek (with the group as its key, or of a
-- process that answers for the group) starts anew. Without a group, the position is the process's.
WITH asked AS (
    SELECT
        run, topic, partition, f, operation, process, log_offset, invoked_ns, completed_ns, key,
        coalesce(key, concat('process ', CAST(process AS STRING))) AS consumer_group
    FROM operations
    WHERE partition IS NOT NULL AND type = 'ok' AND f IN ('commit', 'committed', 'seek')
),
members AS (
    SELECT DISTINCT run, topic, partition, consumer_group, process FROM asked WHERE f <> 'seek'
),
moments AS (
    SELECT
        run, topic, partition, consumer_group, f, operation, process, log_offset,
        completed_ns AS at_ns, 1 AS turn
    FROM asked
    WHERE f <> 'seek'
    UNION ALL
    SELECT
        run, topic, partition, consumer_group, f, operation, process, log_offset, invoked_ns, 0
    FROM asked
    WHERE f <> 'seek'
    UNION ALL
    SELECT DISTINCT
        asked.run, asked.topic, asked.partition, members.consumer_group, asked.f, asked.operation,
        asked.process, CAST(NULL AS BIGINT), asked.completed_ns, 1
    FROM asked
    JOIN members USING (run, topic, partition)
    WHERE f = 'seek'
        AND (asked.key = members.consumer_group OR asked.process = members.process)
),
eras AS (
    SELECT
        moments.*,
        count(CASE WHEN f = 'seek' THEN 1 END) OVER (
            PARTITION BY run, topic, partition, consumer_group ORDER BY at_ns, operation, turn
            ROWS UNBOUNDED PRECEDING
        ) AS era
    FROM moments
),
compared AS (
    SELECT
        eras.*,
        max(CASE WHEN turn = 1 THEN log_offset END) OVER (
            PARTITION BY run, topic, partition, consumer_group, era ORDER BY at_ns, operation, turn
            ROWS UNBOUNDED PRECEDING
        ) AS acknowledged_before
    FROM eras
)
SELECT
    compared.*, end_offset,
    coalesce(coalesce(log_offset, -1) < acknowledged_before, false) AS went_back,
    coalesce(f = 'commit' AND complete AND log_offset > end_offset, false) AS truncated
FROM compared
JOIN partitions USING (run, topic, partition)
WHERE turn = 0
