-- positions: commits of a group, and answers about its position, each with the highest position
-- that was acknowledged before it was invoked.
--
-- Two operations that overlap in time prove nothing. A seek (with the group as its key, or of a
-- process that answers for the group) starts anew. Without a group, the position is the process's.
-- A reset of the group's position starts anew where it begins, which is where its own commit does;
-- what was asked for before it says nothing of what is behind it. Behind one that nobody
-- acknowledged nobody knows the position, until the next.
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
        completed_ns AS at_ns, 1 AS turn, invoked_ns AS asked_ns, true AS is_sure
    FROM asked
    WHERE f <> 'seek'
    UNION ALL
    SELECT
        run, topic, partition, consumer_group, f, operation, process, log_offset, invoked_ns, 0,
        invoked_ns, true
    FROM asked
    WHERE f <> 'seek'
    UNION ALL
    SELECT DISTINCT
        asked.run, asked.topic, asked.partition, members.consumer_group, asked.f, asked.operation,
        asked.process, CAST(NULL AS BIGINT), asked.completed_ns, 1, asked.invoked_ns, true
    FROM asked
    JOIN members USING (run, topic, partition)
    WHERE f = 'seek'
        AND (asked.key = members.consumer_group OR asked.process = members.process)
    UNION ALL
    SELECT
        run, topic, partition, consumer_group, 'reset', operation, -1, CAST(NULL AS BIGINT),
        invoked_ns, 1, invoked_ns, is_sure
    FROM resets
),
eras AS (
    SELECT
        moments.*,
        count(CASE WHEN f IN ('seek', 'reset') THEN 1 END) OVER in_time AS era,
        max(CASE WHEN f = 'reset' THEN at_ns END) OVER in_time AS reset_ns
    FROM moments
    WINDOW in_time AS (
        PARTITION BY run, topic, partition, consumer_group ORDER BY at_ns, operation, turn
        ROWS UNBOUNDED PRECEDING
    )
),
compared AS (
    SELECT
        eras.*,
        min(CASE WHEN is_sure THEN 1 ELSE 0 END) OVER (
            PARTITION BY run, topic, partition, consumer_group, era
        ) = 1 AS is_known,
        max(
            CASE WHEN turn = 1 AND (reset_ns IS NULL OR asked_ns >= reset_ns) THEN log_offset END
        ) OVER (
            PARTITION BY run, topic, partition, consumer_group, era ORDER BY at_ns, operation, turn
            ROWS UNBOUNDED PRECEDING
        ) AS acknowledged_before
    FROM eras
),
judged AS (
    SELECT
        compared.*, end_offset,
        is_known AND coalesce(coalesce(log_offset, -1) < acknowledged_before, false) AS went_back,
        coalesce(f = 'commit' AND complete AND log_offset > end_offset, false) AS truncated
    FROM compared
    JOIN partitions USING (run, topic, partition)
    WHERE turn = 0
)
SELECT
    judged.*,
    CASE WHEN NOT went_back THEN 'truncated' WHEN f = 'commit' THEN 'went back' ELSE 'lost' END
        AS how,
    went_back OR truncated AS commit_regression
FROM judged
