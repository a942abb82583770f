-- passed: records that no member of a group has processed, and behind which it has committed its
-- position; `delivery` is what its members promise.
--
-- A reset begins a new stretch of the group's way: from the position that was set to the highest
-- one that is known of the group before the next reset. What lies in no stretch, as between the
-- positions before and after a reset, the group does not claim to have processed. Of a reset that
-- nobody acknowledged, the stretch begins where the group surely was beyond it, done or not.
WITH modes AS (
    SELECT
        run, topic, partition,
        max(CASE WHEN key = 'delivery' THEN value END) AS delivery,
        max(CASE WHEN key = 'auto.offset.reset' THEN value END) AS reset_to
    FROM said
    WHERE f = 'setting'
    GROUP BY run, topic, partition
    HAVING count(CASE WHEN key = 'delivery' THEN 1 END) > 0
),
asked AS (
    SELECT run, topic, partition, key AS consumer_group, f, invoked_ns, log_offset
    FROM operations
    SEMI JOIN modes USING (run, topic, partition)
    WHERE f IN ('commit', 'committed', 'process') AND type = 'ok'
),
first_resets AS (
    SELECT run, topic, partition, consumer_group, min(invoked_ns) AS reset_ns
    FROM resets
    GROUP BY run, topic, partition, consumer_group
),
first_stretches AS (
    SELECT
        run, topic, partition, consumer_group,
        min(
            CASE WHEN f = 'process' AND (reset_ns IS NULL OR invoked_ns < reset_ns)
            THEN log_offset END
        ) AS first_done
    FROM asked
    LEFT JOIN first_resets USING (run, topic, partition, consumer_group)
    GROUP BY run, topic, partition, consumer_group
),
begun AS (
    SELECT
        run, topic, partition, consumer_group, CAST(-1 AS BIGINT) AS operation,
        CAST(-1 AS BIGINT) AS since_ns, true AS is_sure,
        CASE WHEN reset_to = 'earliest' THEN 0 ELSE first_done END AS first_offset
    FROM first_stretches
    JOIN modes USING (run, topic, partition)
    UNION ALL
    SELECT
        run, topic, partition, consumer_group, operation, invoked_ns, is_sure,
        CASE WHEN is_sure THEN position ELSE greatest(position, coalesce(position_before, 0)) END
    FROM resets
),
in_turn AS (
    SELECT
        begun.*,
        lead(since_ns) OVER by_group AS until_ns,
        count(CASE WHEN is_sure THEN 1 END) OVER by_group AS sure_begun
    FROM begun
    WINDOW by_group AS (
        PARTITION BY run, topic, partition, consumer_group ORDER BY since_ns, operation
    )
),
stretches AS (
    SELECT
        run, topic, partition, consumer_group, operation, since_ns, until_ns,
        max(first_offset) OVER (
            PARTITION BY run, topic, partition, consumer_group, sure_begun
            ORDER BY since_ns, operation
        ) AS first_offset
    FROM in_turn
),
reach AS (
    SELECT
        stretches.run, stretches.topic, stretches.partition, stretches.consumer_group,
        stretches.operation, max(first_offset) AS first_offset, max(log_offset) AS position
    FROM stretches
    JOIN asked
        ON asked.run = stretches.run AND asked.topic = stretches.topic
        AND asked.partition = stretches.partition
        AND asked.consumer_group = stretches.consumer_group
    WHERE f <> 'process' AND invoked_ns >= since_ns AND (until_ns IS NULL OR invoked_ns < until_ns)
    GROUP BY
        stretches.run, stretches.topic, stretches.partition, stretches.consumer_group,
        stretches.operation
),
done AS (
    SELECT DISTINCT run, topic, partition, key AS consumer_group, log_offset, true AS is_done
    FROM said
    WHERE f = 'process'
),
claimed AS (
    SELECT
        reach.run, reach.topic, reach.partition, reach.consumer_group, log.log_offset, log.value,
        max(reach.position) AS position
    FROM log
    JOIN reach
        ON reach.run = log.run AND reach.topic = log.topic AND reach.partition = log.partition
        AND log.log_offset >= reach.first_offset AND log.log_offset < reach.position
    GROUP BY
        reach.run, reach.topic, reach.partition, reach.consumer_group, log.log_offset, log.value
)
SELECT
    run, topic, partition, consumer_group, log_offset, value, delivery, position,
    CAST(NULL AS BIGINT) AS operation,
    delivery = 'at-least-once' AS unprocessed,
    delivery <> 'at-least-once' AS skipped_by_commit
FROM claimed
JOIN modes USING (run, topic, partition)
LEFT JOIN done USING (run, topic, partition, consumer_group, log_offset)
WHERE is_done IS NULL
