-- sends: what each process sent, in its order, each with what it sent before to the partition.
--
-- `place`: the offset of the record by its acknowledgement, or else by who read it. `stands`: it is
-- acknowledged, and the final reads found it. Sends that surely failed are a sequence of their own.
-- After an operation of which the end is not known a client goes on as a new process: what it sent
-- before and after that is not compared.
WITH placed AS (
    SELECT
        run, topic, partition, records.process, value, operation AS send_operation,
        invoked_ns AS sent_ns, position, is_failed, final_least,
        is_ok_send AS known_end,
        is_ok_send AND final_reads > 0 AND NOT is_repeated AS stands,
        coalesce(
            CASE WHEN is_acked THEN log_offset END, CASE WHEN NOT is_repeated THEN seen_least END
        ) AS place
    FROM records
    JOIN profiles USING (run, topic, partition, value)
    WHERE is_send
),
in_turn AS (
    SELECT
        placed.*,
        lag(value) OVER sent_order AS previous_value,
        lag(place) OVER sent_order AS previous_place,
        lag(send_operation) OVER sent_order AS previous_operation,
        lag(known_end) OVER sent_order AS previous_known_end,
        count(CASE WHEN NOT known_end THEN 1 END) OVER (
            PARTITION BY run, topic, partition, process, is_failed
            ORDER BY sent_ns, send_operation, position
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS unknown_ends_before
    FROM placed
    WINDOW sent_order AS (
        PARTITION BY run, topic, partition, process, is_failed
        ORDER BY sent_ns, send_operation, position
    )
)
SELECT
    in_turn.*,
    place < previous_place AND send_operation <> previous_operation AND NOT is_failed
        AND previous_known_end AS nonmonotonic_send,
    place < previous_place AND send_operation = previous_operation AS int_nonmonotonic_send
FROM in_turn
