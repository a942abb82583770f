-- steps: reads of a consumer that do not begin right behind where it was, with where it was.
--
-- The reads of one process and partition are taken in its order, those at the end by themselves; a
-- seek starts both sequences anew. Inside one operation (`inside`) each read follows the one
-- before; between two, it follows the last read or seek of an operation that surely succeeded: one
-- that did not moves nobody. What was reassigned during an operation is not judged inside it.
WITH moves AS (
    SELECT
        run, topic, partition, process, operation, position, invoked_ns, value,
        type = 'ok' AS settled,
        phase = 'final' AS is_final, coalesce(rebalanced, false) AS rebalanced, log_offset
    FROM operations
    WHERE partition IS NOT NULL AND f = 'poll' AND (log_offset IS NOT NULL OR value IS NOT NULL)
    UNION ALL
    SELECT
        run, topic, partition, process, operation, position, invoked_ns, NULL, type = 'ok',
        is_final, false, NULL
    FROM operations
    CROSS JOIN (SELECT true AS is_final UNION ALL SELECT false) AS both_sequences
    WHERE partition IS NOT NULL AND f = 'seek'
),
in_turn AS (
    SELECT
        moves.*,
        lag(operation) OVER turn AS previous_operation,
        lag(log_offset) OVER turn AS previous_offset,
        lag(value IS NOT NULL) OVER turn AS previous_known,
        lag(settled) OVER turn AS previous_settled
    FROM moves
    WINDOW turn AS (
        PARTITION BY run, topic, partition, process, is_final
        ORDER BY invoked_ns, operation, position
    )
),
-- Few consumers have reads of operations that did not succeed: only their moves are counted.
unsettled AS (
    SELECT DISTINCT run, topic, partition, process, is_final FROM moves WHERE NOT settled
),
counted AS (
    SELECT
        in_turn.*,
        count(CASE WHEN settled THEN 1 END) OVER (
            PARTITION BY run, topic, partition, process, is_final
            ORDER BY invoked_ns, operation, position
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS settled_before
    FROM in_turn
    SEMI JOIN unsettled USING (run, topic, partition, process, is_final)
),
settled_moves AS (
    SELECT
        run, topic, partition, process, is_final, operation AS settled_operation,
        log_offset AS settled_offset, value IS NOT NULL AS settled_known,
        settled_before + 1 AS settled_before
    FROM counted
    WHERE settled
),
followed AS (
    SELECT
        run, topic, partition, process, operation, value, log_offset, rebalanced,
        previous_operation, previous_offset, previous_known
    FROM in_turn
    WHERE previous_operation = operation OR previous_settled
    UNION ALL
    SELECT
        run, topic, partition, process, operation, value, log_offset, rebalanced,
        settled_operation, settled_offset, settled_known
    FROM counted
    JOIN settled_moves USING (run, topic, partition, process, is_final, settled_before)
    WHERE previous_operation <> operation AND NOT previous_settled
),
judged AS (
    SELECT
        run, topic, partition, process, operation, value, log_offset, previous_operation,
        previous_offset, previous_known, operation = previous_operation AS inside
    FROM followed
    WHERE log_offset IS NOT NULL AND previous_offset IS NOT NULL
        AND log_offset <> previous_offset + 1
        AND NOT (operation = previous_operation AND rebalanced)
)
SELECT
    judged.*,
    log_offset <= previous_offset AND NOT inside AS nonmonotonic_poll,
    log_offset <= previous_offset AND inside AS int_nonmonotonic_poll
FROM judged
