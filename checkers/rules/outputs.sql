-- outputs: of a partition that has one output for each input, what the final reads found, in the
-- order of the inputs, each with the input before it; last a row for where the inputs end.
--
-- The key of an output names its input, as in-0@17. `ends`: how far there were inputs.
WITH ends AS (
    SELECT run, topic, partition, key AS source, max(log_offset) AS source_end
    FROM said
    WHERE f = 'source'
    GROUP BY run, topic, partition, key
),
found AS (
    SELECT
        run, topic, partition, log_offset, min(value) AS value, min(operation) AS operation,
        min(split_part(key, '@', 1)) AS source,
        min(
            CASE WHEN TRY_CAST(split_part(key, '@', 2) AS BIGINT) BETWEEN 0 AND 9223372036854775806
            THEN TRY_CAST(split_part(key, '@', 2) AS BIGINT) END
        ) AS source_offset
    FROM operations
    SEMI JOIN ends USING (run, topic, partition)
    WHERE f = 'poll' AND type = 'ok' AND phase = 'final' AND log_offset IS NOT NULL
        AND key LIKE '%@%'
    GROUP BY run, topic, partition, log_offset
),
in_order AS (
    SELECT
        found.*,
        coalesce(lag(source_offset) OVER by_input, -1) AS source_before,
        lag(log_offset) OVER by_input AS offset_before,
        lag(value) OVER by_input AS value_before
    FROM found
    WINDOW by_input AS (
        PARTITION BY run, topic, partition, source ORDER BY source_offset, log_offset
    )
),
last_ones AS (
    SELECT
        run, topic, partition, source, max(source_offset) AS source_before,
        max_by(log_offset, source_offset) AS offset_before,
        max_by(value, source_offset) AS value_before
    FROM found
    GROUP BY run, topic, partition, source
),
inputs AS (
    SELECT
        run, topic, partition, source, source_offset, log_offset, value, operation, source_before,
        offset_before, value_before
    FROM in_order
    UNION ALL
    SELECT
        run, topic, partition, source, source_end, CAST(NULL AS BIGINT), CAST(NULL AS STRING),
        CAST(NULL AS BIGINT), coalesce(source_before, -1), offset_before, value_before
    FROM ends
    LEFT JOIN last_ones USING (run, topic, partition, source)
)
SELECT
    inputs.*, source_before + 1 AS first_missing, source_offset - source_before - 1 AS missing,
    value IS NOT NULL AND source_offset = source_before AS input_twice,
    complete AND source_offset > source_before + 1
        AND (value IS NOT NULL OR source_offset > 0) AS input_missing
FROM inputs
JOIN partitions USING (run, topic, partition)
