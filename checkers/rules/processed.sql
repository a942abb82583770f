-- processed: records behind which a group has committed its position, or that it processed, with
-- how often it did; `delivery` is what its members promise.
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
done AS (
    SELECT
        run, topic, partition, key AS consumer_group, log_offset, count(*) AS times,
        min(operation) AS operation, min(process) AS process, max(process) AS other_process
    FROM said
    WHERE f = 'process'
    GROUP BY run, topic, partition, key, log_offset
),
reach AS (
    SELECT
        run, topic, partition, key AS consumer_group,
        max(CASE WHEN f <> 'process' THEN log_offset END) AS position,
        min(CASE WHEN f = 'process' THEN log_offset END) AS first_done
    FROM operations
    SEMI JOIN modes USING (run, topic, partition)
    WHERE f IN ('commit', 'committed', 'process') AND type = 'ok'
    GROUP BY run, topic, partition, key
),
begun AS (
    SELECT
        run, topic, partition, consumer_group, delivery, position,
        CASE WHEN reset_to = 'earliest' THEN 0 ELSE first_done END AS first_offset
    FROM reach
    JOIN modes USING (run, topic, partition)
)
SELECT
    run, topic, partition, consumer_group, log.log_offset, log.value, delivery, position,
    coalesce(times, 0) AS times, operation, process, other_process
FROM log
JOIN begun USING (run, topic, partition)
LEFT JOIN done USING (run, topic, partition, consumer_group, log_offset)
WHERE times > 1 OR (times IS NULL AND log_offset < position AND log_offset >= first_offset)
