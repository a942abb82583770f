-- overtaken: acknowledged sends that began when a higher offset had been acknowledged already, with
-- the first record that was: what is sent later lies behind it, if the log was not cut.
WITH places_of_sends AS (
    SELECT
        run, topic, partition, log_offset, max(invoked_ns) AS sent_ns,
        max_by(value, invoked_ns) AS value, max_by(operation, invoked_ns) AS operation,
        min(completed_ns) AS acknowledged_ns, min_by(value, completed_ns) AS acknowledged_value,
        min_by(operation, completed_ns) AS acknowledged_by
    FROM records
    WHERE is_ok_send AND log_offset IS NOT NULL
    GROUP BY run, topic, partition, log_offset
),
compared AS (
    SELECT
        places_of_sends.*,
        min(acknowledged_ns) OVER (
            PARTITION BY run, topic, partition ORDER BY log_offset DESC
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS higher_ns
    FROM places_of_sends
)
SELECT
    later.run, later.topic, later.partition, later.log_offset, later.value, later.operation,
    later.sent_ns, higher_ns AS acknowledged_ns,
    max(higher.log_offset) AS other_offset,
    max_by(higher.acknowledged_value, higher.log_offset) AS other_value,
    max_by(higher.acknowledged_by, higher.log_offset) AS other_operation,
    true AS G0_realtime
FROM compared AS later
JOIN places_of_sends AS higher
    ON higher.run = later.run AND higher.topic = later.topic
    AND higher.partition = later.partition AND higher.acknowledged_ns = later.higher_ns
    AND higher.log_offset > later.log_offset
WHERE higher_ns < later.sent_ns
GROUP BY
    later.run, later.topic, later.partition, later.log_offset, later.value, later.operation,
    later.sent_ns, higher_ns
