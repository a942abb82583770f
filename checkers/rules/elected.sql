-- elected: partitions to which a leader was elected that was, in the state before, neither in the
-- ISR nor eligible (KIP-966): an unclean election, whatever it is called. `explained_by`: it was
-- allowed, or asked for, or nobody knows whether it was; or nobody was left who might lead, and who
-- led last leads again (the last known leader of KIP-966, whatever the settings say).
--
-- Who restarts after it was killed is no longer eligible, and the leader of such a partition is
-- elected in the same write: nobody sees that nobody was left. So where the ISR was empty, and a
-- broker was killed since somebody led, the last leader may lead again.
--
-- Who gets a reassigned partition in the moment in which that is complete was in no state before.
WITH allowed AS (
    SELECT run, topic, partition, max(value) AS value
    FROM said
    WHERE f = 'setting' AND key = 'unclean.leader.election.enable'
    GROUP BY run, topic, partition
),
asked AS (
    SELECT run, min(at_ns) AS asked_ns
    FROM nemesis_steps
    WHERE fault LIKE '{"elect"%unclean%'
    GROUP BY run
),
killed AS (
    SELECT run, at_ns AS killed_ns
    FROM nemesis_steps
    WHERE fault LIKE '{"kill%' OR fault LIKE '{"power%'
),
after_kills AS (
    SELECT DISTINCT states.run, topic, partition, states.operation
    FROM states
    JOIN killed ON killed.run = states.run
        AND killed_ns > last_led_ns AND killed_ns <= from_ns
    WHERE trim(previous_isr) = '' AND leader = last_leader
),
unclean AS (
    SELECT
        states.*,
        CASE
            WHEN allowed.value IS NULL THEN 'nobody knows whether it was allowed'
            WHEN allowed.value <> 'false' THEN 'unclean.leader.election.enable'
            WHEN asked_ns <= from_ns THEN 'elect'
            WHEN trim(previous_may_lead) = '' AND leader = last_leader
                THEN 'the last known leader'
            WHEN after_kills.operation IS NOT NULL THEN 'the last known leader'
        END AS explained_by
    FROM states
    LEFT JOIN allowed USING (run, topic, partition)
    LEFT JOIN asked USING (run)
    LEFT JOIN after_kills USING (run, topic, partition, operation)
    WHERE follows AND leader IS NOT NULL AND leader_epoch > previous_leader_epoch
        AND replicas = previous_replicas
        AND previous_may_lead NOT LIKE concat('% ', CAST(leader AS STRING), ' %')
)
SELECT
    run, topic, partition, operation, from_ns, leader, leader_epoch, previous_isr, explained_by,
    explained_by IS NULL AS protocol_violation,
    explained_by IS NOT NULL AS explained_violation
FROM unclean
