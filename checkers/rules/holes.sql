-- holes: of each replica that was level, how many offsets it lacks that another one has, from its
-- own log start on; and (without a broker) partitions whose logs all end at or before an offset
-- that was read at the end, or, where the final reads are not complete, acknowledged.
--
-- An offset whose key the replica has again further on, or that deletes a key, may have been
-- compacted away; control records too.
WITH logs AS (
    SELECT
        run, topic, partition, broker,
        max(log_start_offset) AS log_start, max(log_end_offset) AS log_end
    FROM replicas
    JOIN runs USING (run)
    WHERE level
    GROUP BY run, topic, partition, broker
),
sizes AS (
    SELECT run, topic, partition, count(*) AS replicas_read, max(log_end) AS log_end
    FROM logs
    GROUP BY run, topic, partition
),
suspects AS (
    SELECT
        run, topic, partition, log_offset, min(value) AS value, min(key) AS key,
        count(CASE WHEN value NOT LIKE '⟨null%' THEN 1 END) = 0 AND count(key) > 0 AS deletes, bool_or(control) AS control
    FROM replicas
    JOIN sizes USING (run, topic, partition)
    WHERE log_offset IS NOT NULL
    GROUP BY run, topic, partition, log_offset
    HAVING count(DISTINCT broker) < max(replicas_read)
),
lacking AS (
    SELECT
        suspects.run, suspects.topic, suspects.partition, logs.broker, suspects.log_offset,
        suspects.value, suspects.key, logs.log_end
    FROM suspects
    JOIN logs USING (run, topic, partition)
    LEFT JOIN replicas
        ON replicas.run = suspects.run AND replicas.topic = suspects.topic
        AND replicas.partition = suspects.partition AND replicas.broker = logs.broker
        AND replicas.log_offset = suspects.log_offset
    WHERE suspects.log_offset >= log_start AND replicas.broker IS NULL
        AND NOT suspects.deletes AND NOT suspects.control
),
again AS (
    SELECT DISTINCT lacking.run, lacking.topic, lacking.partition, lacking.broker,
        lacking.log_offset
    FROM lacking
    JOIN replicas USING (run, topic, partition, broker, key)
    WHERE replicas.log_offset > lacking.log_offset
)
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
        CASE WHEN complete THEN highest_final ELSE greatest(highest_final, highest_acked) END
            AS known
    FROM partitions
    JOIN sizes USING (run, topic, partition)
) AS whole_logs
WHERE known >= log_end
