-- standing_sends: acknowledged values that the final reads found, each with the one of these that
-- its process sent before.
WITH compared AS (
    SELECT
        run, topic, partition, process, value, send_operation, final_least, unknown_ends_before,
        lag(value) OVER sent_order AS sent_before,
        lag(final_least) OVER sent_order AS sent_before_offset,
        lag(unknown_ends_before) OVER sent_order AS previous_unknown_ends
    FROM sends
    WHERE stands
    WINDOW sent_order AS (
        PARTITION BY run, topic, partition, process ORDER BY sent_ns, send_operation, position
    )
)
SELECT compared.*, final_least < sent_before_offset AS reordered
FROM compared
WHERE unknown_ends_before = previous_unknown_ends
