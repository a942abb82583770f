-- send_leaps: sends over a record of others that is known to be in the log.
WITH leaps_of_sends AS (
    SELECT
        sends.*,
        CASE WHEN gaps.log_offset IS NULL THEN previous_place + 1 ELSE next_known END AS next_known
    FROM sends
    LEFT JOIN gaps
        ON gaps.run = sends.run AND gaps.topic = sends.topic AND gaps.partition = sends.partition
        AND gaps.log_offset = sends.previous_place
    WHERE previous_place + 1 < place
),
judged AS (
    SELECT
        leaps_of_sends.*, send_operation = previous_operation AS inside,
        count(*) OVER (PARTITION BY run, topic, partition, process, send_operation = previous_operation)
            AS skips,
        row_number() OVER (
            PARTITION BY run, topic, partition, process, send_operation = previous_operation
            ORDER BY send_operation, position
        ) AS turn
    FROM leaps_of_sends
    WHERE next_known < place
)
SELECT
    judged.*,
    inside AS int_send_skip,
    NOT inside AND NOT is_failed AND turn = 1 AS send_skip
FROM judged
