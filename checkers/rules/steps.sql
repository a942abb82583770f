-- steps: reads of a consumer that do not begin right behind where it was, with where it was.
--
-- The reads of one process and partition are taken in its order; a seek, and the beginning of the
-- final reads, start a new sequence. Inside one operation (`inside`) each read follows the one
-- before; between two, it follows the last read or seek of an operation that surely succeeded: one
-- that did not moves nobody. What was reassigned during an operation is not judged inside it.
WITH moves AS (
    SELECT
        run, topic, partition, process, operation, value, type = 'ok' AS settled,
        phase = 'final' AS is_final, coalesce(rebalanced, false) AS rebalanced,
        CASE WHEN f = 'poll' THEN log_offset END AS log_offset,
        row_number() OVER (
            PARTITION BY run, topic, partition, process, phase = 'final'
            ORDER BY invoked_ns, operation, position
        ) AS turn
    FROM operations
    WHERE partition IS NOT NULL AND (f = 'seek' OR (f = 'poll' AND log_offset IS NOT NULL))
),
numbered AS (
    SELECT
        moves.*,
        count(CASE WHEN settled THEN 1 END) OVER (
            PARTITION BY run, topic, partition, process, is_final ORDER BY turn
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS settled_before,
        lag(operation) OVER in_turn AS previous_operation,
        lag(log_offset) OVER in_turn AS previous_offset,
        lag(value) OVER in_turn IS NOT NULL AS previous_known,
        lag(settled) OVER in_turn AS previous_settled
    FROM moves
    WINDOW in_turn AS (PARTITION BY run, topic, partition, process, is_final ORDER BY turn)
),
settled_moves AS (
    SELECT
        run, topic, partition, process, is_final, operation, log_offset, value,
        settled_before + 1 AS number
    FROM numbered
    WHERE settled
),
followed AS (
    SELECT
        run, topic, partition, process, operation, value, log_offset, rebalanced,
        previous_operation, previous_offset, previous_known
    FROM numbered
    WHERE previous_operation = operation OR previous_settled
    UNION ALL
    SELECT
        run, topic, partition, process, numbered.operation, numbered.value, numbered.log_offset,
        rebalanced, settled_moves.operation, settled_moves.log_offset,
        settled_moves.value IS NOT NULL
    FROM numbered
    JOIN settled_moves USING (run, topic, partition, process, is_final)
    WHERE previous_operation <> numbered.operation AND NOT previous_settled
        AND settled_moves.number = settled_before
)
SELECT followed.*, operation = previous_operation AS inside
FROM followed
WHERE log_offset IS NOT NULL AND previous_offset IS NOT NULL
    AND log_offset <> previous_offset + 1
    AND NOT (operation = previous_operation AND rebalanced)
