-- elections: the first high watermark of each leader epoch, with the highest of all earlier epochs.
WITH in_time AS (
    SELECT
        run, topic, partition, leader_epoch, high_watermark,
        row_number() OVER (
            PARTITION BY run, topic, partition, leader_epoch ORDER BY responded_ns, round, follower
        ) AS turn
    FROM responses
),
epochs AS (
    SELECT
        run, topic, partition, leader_epoch,
        max(CASE WHEN turn = 1 THEN high_watermark END) AS first_high_watermark,
        max(high_watermark) AS highest
    FROM in_time
    GROUP BY run, topic, partition, leader_epoch
),
compared AS (
    SELECT
        epochs.*,
        max(highest) OVER (
            PARTITION BY run, topic, partition ORDER BY leader_epoch
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS earlier_high_watermark
    FROM epochs
)
SELECT
    compared.*,
    first_high_watermark < earlier_high_watermark
        AS high_watermark_regression_at_election
FROM compared
