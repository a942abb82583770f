-- witness_rounds: of each leader epoch and follower, the first fetch round that asked for what is
-- behind the offset of an anomaly, so that the follower had it (`had_in_round`), and the first
-- delivered one that carried a high watermark above the offset (`committed_in_round`).
SELECT
    run, topic, partition, witnessed.log_offset, leader_epoch, leader, follower,
    min(CASE WHEN fetch_offset > witnessed.log_offset THEN round END) AS had_in_round,
    min(CASE WHEN high_watermark > witnessed.log_offset AND delivered_ns IS NOT NULL
        THEN round END) AS committed_in_round
FROM fetch_rounds
JOIN witnessed USING (run, topic, partition)
WHERE fetch_offset > witnessed.log_offset
    OR (high_watermark > witnessed.log_offset AND delivered_ns IS NOT NULL)
GROUP BY run, topic, partition, witnessed.log_offset, leader_epoch, leader, follower
