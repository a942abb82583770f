-- responses: fetch rounds whose response carried a high watermark of a known leader epoch, each with
-- the high watermark of the response before it to the same follower.
WITH in_turn AS (
    SELECT
        run, topic, partition, leader, leader_epoch, follower, round, responded_ns, high_watermark,
        lag(high_watermark) OVER (
            PARTITION BY run, topic, partition, leader_epoch, leader, follower
            ORDER BY responded_ns, round
        ) AS previous_high_watermark
    FROM fetch_rounds
    WHERE responded_ns IS NOT NULL AND coalesce(error, 0) = 0
        AND high_watermark >= 0 AND leader_epoch IS NOT NULL
)
SELECT
    in_turn.*,
    high_watermark < previous_high_watermark AS high_watermark_regression
FROM in_turn
