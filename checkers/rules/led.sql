-- led: leader epochs of a partition in which two brokers answered followers as its leader.
WITH leaders AS (
    SELECT
        run, topic, partition, leader_epoch, leader, min(responded_ns) AS first_ns,
        min(round) AS round
    FROM fetch_rounds
    WHERE responded_ns IS NOT NULL AND error = 0 AND leader_epoch IS NOT NULL
    GROUP BY run, topic, partition, leader_epoch, leader
)
SELECT
    run, topic, partition, leader_epoch, min(leader) AS leader, max(leader) AS other_leader,
    max(first_ns) AS responded_ns, count(*) > 1 AS protocol_violation
FROM leaders
GROUP BY run, topic, partition, leader_epoch
