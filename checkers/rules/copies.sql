-- copies: offsets at which two replicas hold different records, with the first and the last of them
-- in a fixed order (what is null comes first).
--
-- `below`: the least high watermark that any of these replicas had checkpointed.
WITH suspects AS (
    SELECT
        run, topic, partition, log_offset,
        min(coalesce(high_watermark, 0)) AS below,
        coalesce(min(leader_epoch) < max(leader_epoch), false) AS epochs_differ,
        count(DISTINCT control) > 1
            OR coalesce(min(key) < max(key), false) OR count(key) NOT IN (0, count(*))
            OR coalesce(min(value) < max(value), false) OR count(value) NOT IN (0, count(*))
            AS records_differ
    FROM replicas
    WHERE log_offset IS NOT NULL
    GROUP BY run, topic, partition, log_offset
),
ordered AS (
    SELECT
        replicas.run, replicas.topic, replicas.partition, replicas.log_offset, below,
        records_differ, broker, key, value, control, leader_epoch,
        row_number() OVER first_first AS turn,
        count(*) OVER (
            PARTITION BY replicas.run, replicas.topic, replicas.partition, replicas.log_offset
        ) AS turns
    FROM replicas
    JOIN suspects USING (run, topic, partition, log_offset)
    WHERE epochs_differ OR records_differ
    WINDOW first_first AS (
        PARTITION BY replicas.run, replicas.topic, replicas.partition, replicas.log_offset
        ORDER BY control, key NULLS FIRST, value NULLS FIRST, leader_epoch NULLS FIRST, broker
    )
),
judged AS (
    SELECT
        run, topic, partition, log_offset, level, below,
        CASE WHEN bool_or(records_differ) THEN 'record' ELSE 'leader_epoch' END AS differs,
        max(CASE WHEN turn = 1 THEN broker END) AS broker,
        max(CASE WHEN turn = 1 THEN key END) AS key,
        max(CASE WHEN turn = 1 THEN value END) AS value,
        max(CASE WHEN turn = 1 THEN leader_epoch END) AS leader_epoch,
        max(CASE WHEN turn = turns THEN broker END) AS other_broker,
        max(CASE WHEN turn = turns THEN key END) AS other_key,
        max(CASE WHEN turn = turns THEN value END) AS other_value,
        max(CASE WHEN turn = turns THEN leader_epoch END) AS other_leader_epoch
    FROM ordered
    JOIN runs USING (run)
    GROUP BY run, topic, partition, log_offset, level, below
)
SELECT
    judged.*,
    level OR log_offset < below AS replica_divergence,
    NOT (level OR log_offset < below) AS unproven_difference
FROM judged
