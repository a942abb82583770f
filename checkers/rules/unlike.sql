-- unlike: records that the final reads found, where the logs of the level replicas agree on something
-- else at their offsets, or none has anything (`differs`: 'value', 'key', 'control', 'absent').
--
-- Where replicas differ from each other, that is a divergence; what only one lacks is a hole, and
-- what lies behind all log ends is one of all: here is the rest. What retention or compaction may
-- have removed since it was read is not absent.
WITH found AS (
    SELECT
        run, topic, partition, log_offset, min(value) AS value, max(value) AS other_value,
        min(key) AS key, max(key) AS other_key, min(operation) AS operation
    FROM operations
    JOIN runs USING (run)
    WHERE level AND f = 'poll' AND type = 'ok' AND phase = 'final' AND log_offset IS NOT NULL
    GROUP BY run, topic, partition, log_offset
),
kept AS (
    SELECT
        run, topic, partition, log_offset, count(*) AS copies, bool_and(control) AS control,
        bool_or(control) AS any_control,
        min(value) AS value, max(value) AS other_value, count(value) AS values_there,
        min(key) AS key, max(key) AS other_key, count(key) AS keys_there
    FROM replicas
    WHERE log_offset IS NOT NULL
    GROUP BY run, topic, partition, log_offset
),
logs AS (
    SELECT
        run, topic, partition, max(log_start_offset) AS log_start, max(log_end_offset) AS log_end
    FROM replicas
    GROUP BY run, topic, partition
),
compared AS (
    SELECT
        found.run, found.topic, found.partition, found.log_offset, found.value, found.key,
        operation, kept.value AS value_on_disk, kept.key AS key_on_disk,
        CASE
            WHEN copies IS NULL THEN 'absent'
            WHEN control THEN 'control'
            WHEN NOT any_control AND found.value = found.other_value
                AND ((kept.value = kept.other_value AND values_there = copies
                        AND kept.value <> found.value) OR values_there = 0)
            THEN 'value'
            WHEN NOT any_control AND found.key = found.other_key
                AND ((kept.key = kept.other_key AND keys_there = copies
                        AND kept.key <> found.key) OR keys_there = 0)
            THEN 'key'
        END AS differs
    FROM found
    LEFT JOIN kept
        ON kept.run = found.run AND kept.topic = found.topic AND kept.partition = found.partition
        AND kept.log_offset = found.log_offset
)
SELECT
    compared.run, compared.topic, compared.partition, log_offset, compared.value, compared.key,
    operation, differs, value_on_disk, key_on_disk, true AS log_mismatch
FROM compared
JOIN logs USING (run, topic, partition)
JOIN partitions USING (run, topic, partition)
LEFT JOIN (SELECT run, topic, partition, value, true AS is_older FROM compacted) AS older
    USING (run, topic, partition, value)
LEFT JOIN (SELECT run, topic, partition, true AS compacts FROM compacting) AS cleaned
    USING (run, topic, partition)
WHERE differs <> 'absent'
    OR (
        differs = 'absent' AND log_offset < log_end
        AND NOT (log_offset < log_start AND (start_is_sure OR is_foreign))
        AND is_older IS NULL
        AND (
            key IS NULL
            OR NOT is_foreign AND NOT (compacts IS NOT NULL AND coalesce(value LIKE '⟨null%', true))
        )
    )
