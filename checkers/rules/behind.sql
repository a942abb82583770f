-- behind: fetch rounds in which a member of the ISR asked for an offset below what was acknowledged
-- to acks=all before: it had lost, or never had, a record that every member has. The first of each
-- follower and leader epoch. `explained_by`: a fault that takes records away, or an unclean
-- election, which is reported as such.
--
-- A follower counts as a member where it was one in the state before the request and is one in the
-- next, too, if there is any: who leaves the ISR is seen to have left a little later. The request
-- after which it joined the ISR counts, too.
WITH moments AS (
    SELECT
        run, topic, partition, completed_ns AS at_ns, 1 AS turn, log_offset + 1 AS acked,
        CAST(NULL AS INT) AS follower, CAST(NULL AS INT) AS leader,
        CAST(NULL AS INT) AS leader_epoch, CAST(NULL AS BIGINT) AS round,
        CAST(NULL AS BIGINT) AS fetch_offset, CAST(NULL AS BIGINT) AS delivered_ns
    FROM operations
    WHERE f = 'send' AND type = 'ok' AND acks = 'all' AND log_offset IS NOT NULL
    UNION ALL
    SELECT
        run, topic, partition, requested_ns, 0, CAST(NULL AS BIGINT), follower, leader,
        leader_epoch, round, fetch_offset, delivered_ns
    FROM fetch_rounds
    WHERE fetch_offset >= 0
),
known AS (
    SELECT
        moments.*,
        max(acked) OVER (
            PARTITION BY run, topic, partition ORDER BY at_ns, turn ROWS UNBOUNDED PRECEDING
        ) AS acknowledged,
        lead(at_ns) OVER (
            PARTITION BY run, topic, partition, follower, leader ORDER BY at_ns, round
        ) AS next_ns
    FROM moments
),
breaches AS (
    SELECT
        known.run, known.topic, known.partition, known.follower, known.leader,
        states.leader_epoch, round, at_ns AS requested_ns, fetch_offset, acknowledged,
        trim(isr) AS isr,
        row_number() OVER (
            PARTITION BY known.run, known.topic, known.partition, known.follower,
                states.leader_epoch
            ORDER BY at_ns, round
        ) AS turn_of_all
    FROM known
    JOIN states
        ON states.run = known.run AND states.topic = known.topic
        AND states.partition = known.partition AND states.leader = known.leader
        AND (until_ns IS NULL OR at_ns < until_ns)
        AND (
            at_ns >= from_ns
            OR (
                coalesce(next_ns > from_ns, delivered_ns IS NULL) AND follows
                AND states.leader_epoch = previous_leader_epoch
                AND previous_isr NOT LIKE concat('% ', CAST(follower AS STRING), ' %')
            )
        )
    WHERE fetch_offset < acknowledged AND is_followed
        AND coalesce(known.leader_epoch = states.leader_epoch, true)
        AND isr LIKE concat('% ', CAST(follower AS STRING), ' %')
        AND coalesce(next_isr LIKE concat('% ', CAST(follower AS STRING), ' %'), true)
),
takes AS (
    SELECT run, min(at_ns) AS taken_ns, regexp_extract(min(fault), '^."([a-z_]+)', 1) AS fault
    FROM nemesis_steps
    WHERE fault LIKE '{"power%' OR fault LIKE '{"damage%' OR fault LIKE '{"inject%'
    GROUP BY run
),
unclean AS (
    SELECT run, topic, partition, min(from_ns) AS unclean_ns
    FROM elected
    GROUP BY run, topic, partition
),
explained AS (
    SELECT
        breaches.*,
        CASE
            WHEN taken_ns <= requested_ns THEN fault
            WHEN unclean_ns <= requested_ns THEN 'unclean election'
        END AS explained_by
    FROM breaches
    LEFT JOIN takes USING (run)
    LEFT JOIN unclean USING (run, topic, partition)
    WHERE turn_of_all = 1
)
SELECT
    explained.*,
    explained_by IS NULL AS protocol_violation,
    explained_by IS NOT NULL AS explained_violation
FROM explained
