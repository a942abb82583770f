-- holes: of each replica that was level, how many offsets it lacks that another one has; and
-- (without a broker) partitions whose logs all end at or before an offset that was read at the end,
-- or, where the final reads are not complete, acknowledged, or before the end that the final reads
-- found; or all begin above 0; or between whose begin and end no log has anything at an offset.
--
-- Below its own log start a replica lacks nothing where records may have been deleted on purpose.
-- Where compaction may be at work, an offset is not lacked whose key is there again further on (on
-- any replica: this one may have cleaned that too), or that deletes a key; nor a control record.
WITH logs AS (
    SELECT
        run, topic, partition, broker, max(log_start_offset) AS first_offset,
        max(CASE WHEN deletes OR compacts OR is_foreign THEN log_start_offset ELSE 0 END)
            AS log_start,
        min(CASE WHEN deletes OR compacts OR is_foreign THEN 0 ELSE log_start_offset END) AS begins,
        max(log_end_offset) AS log_end,
        bool_or(coalesce(compacts, left(topic, 2) = '__' OR is_foreign)) AS may_compact
    FROM replicas
    JOIN runs USING (run)
    LEFT JOIN (SELECT run, topic, partition, deletes FROM deleting) AS retained
        USING (run, topic, partition)
    LEFT JOIN (SELECT run, topic, partition, true AS compacts FROM compacting) AS cleaned
        USING (run, topic, partition)
    WHERE level
    GROUP BY run, topic, partition, broker
),
sizes AS (
    SELECT
        run, topic, partition, count(*) AS replicas_read, min(begins) AS begins,
        min(first_offset) AS first_offset,
        max(log_end) AS log_end, bool_or(may_compact) AS may_compact
    FROM logs
    GROUP BY run, topic, partition
),
suspects AS (
    SELECT
        run, topic, partition, log_offset, min(value) AS value, min(key) AS key, may_compact,
        may_compact AND (
            count(CASE WHEN value NOT LIKE '⟨null%' THEN 1 END) = 0 AND count(key) > 0
            OR bool_or(control)
        ) AS is_cleaned
    FROM replicas
    JOIN sizes USING (run, topic, partition)
    WHERE log_offset IS NOT NULL
    GROUP BY run, topic, partition, log_offset, may_compact
    HAVING count(DISTINCT broker) < max(replicas_read)
),
lacking AS (
    SELECT
        suspects.run, suspects.topic, suspects.partition, logs.broker, suspects.log_offset,
        suspects.value, suspects.key, suspects.may_compact, logs.log_end
    FROM suspects
    JOIN logs USING (run, topic, partition)
    LEFT JOIN replicas
        ON replicas.run = suspects.run AND replicas.topic = suspects.topic
        AND replicas.partition = suspects.partition AND replicas.broker = logs.broker
        AND replicas.log_offset = suspects.log_offset
    WHERE suspects.log_offset >= log_start AND replicas.broker IS NULL AND NOT is_cleaned
),
again AS (
    SELECT DISTINCT lacking.run, lacking.topic, lacking.partition, lacking.broker,
        lacking.log_offset
    FROM lacking
    JOIN replicas USING (run, topic, partition, key)
    WHERE lacking.may_compact AND replicas.log_offset > lacking.log_offset
),
there AS (
    SELECT run, topic, partition, log_offset, log_end
    FROM replicas
    JOIN sizes USING (run, topic, partition)
    WHERE log_offset >= first_offset AND NOT may_compact
    UNION
    SELECT run, topic, partition, first_offset - 1, log_end
    FROM sizes
    WHERE NOT may_compact
),
nowhere AS (
    SELECT
        run, topic, partition, log_end, log_offset + 1 AS first_offset,
        coalesce(lead(log_offset) OVER log_order, log_end) - 1 AS last_offset
    FROM there
    WINDOW log_order AS (PARTITION BY run, topic, partition ORDER BY log_offset)
),
judged AS (
    SELECT
        run, topic, partition, broker, count(*) AS offsets, min(log_offset) AS log_offset,
        max(log_offset) AS last_offset, max(log_end) AS log_end
    FROM lacking
    ANTI JOIN again USING (run, topic, partition, broker, log_offset)
    GROUP BY run, topic, partition, broker
    UNION ALL
    SELECT
        run, topic, partition, CAST(NULL AS INT) AS broker, known - log_end + 1 AS offsets,
        log_end AS log_offset, known AS last_offset, log_end
    FROM (
        SELECT
            partitions.*, log_end,
            greatest(
                highest_final, end_offset - 1, CASE WHEN NOT complete THEN highest_acked END
            ) AS known
        FROM partitions
        JOIN sizes USING (run, topic, partition)
    ) AS whole_logs
    WHERE known >= log_end
    UNION ALL
    SELECT
        run, topic, partition, CAST(NULL AS INT), begins, CAST(0 AS BIGINT), begins - 1, log_end
    FROM sizes
    WHERE begins > 0
    UNION ALL
    SELECT
        run, topic, partition, CAST(NULL AS INT), sum(last_offset - first_offset + 1),
        min(first_offset), max(last_offset), max(log_end)
    FROM nowhere
    WHERE last_offset >= first_offset
    GROUP BY run, topic, partition
)
SELECT
    judged.*,
    true AS replica_hole
FROM judged
