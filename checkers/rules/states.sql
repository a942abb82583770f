-- states: what the coordination service reported of each partition, from when it was seen until the
-- next was: who led, who was in the ISR (`isr`: its brokers, each between two blanks), who else was
-- eligible (KIP-966), the same of the state before, and who led last before it (`last_leader`), from
-- `last_led_ns` on.
--
-- `follows`: it is the one that came after the state before. Where states have versions (in
-- ZooKeeper) one may have been missed.
WITH reported AS (
    SELECT
        run, topic, partition, operation, completed_ns AS from_ns, leader_epoch,
        CAST(nullif(regexp_extract(value, '"leader" *: *([0-9]+)', 1), '') AS INT) AS leader,
        regexp_extract(value, '"isr" *: *.([0-9, ]*)', 1) AS isr,
        regexp_extract(value, '"eligible" *: *.([0-9, ]*)', 1) AS eligible,
        regexp_extract(value, '"replicas" *: *.([0-9, ]*)', 1) AS replicas,
        CAST(nullif(regexp_extract(value, '"version" *: *([0-9]+)', 1), '') AS INT) AS version
    FROM operations
    WHERE f = 'leader' AND leader_epoch >= 0
),
spaced AS (
    SELECT
        run, topic, partition, operation, from_ns, leader_epoch, leader, replicas, version,
        concat(' ', replace(isr, ',', ' '), ' ') AS isr,
        concat(' ', replace(concat(isr, ' ', eligible), ',', ' '), ' ') AS may_lead
    FROM reported
),
counted AS (
    SELECT
        spaced.*,
        count(leader) OVER (
            PARTITION BY run, topic, partition ORDER BY from_ns, operation
            ROWS UNBOUNDED PRECEDING
        ) AS leaders
    FROM spaced
),
with_last AS (
    SELECT
        counted.*,
        first_value(leader) OVER (
            PARTITION BY run, topic, partition, leaders ORDER BY from_ns, operation
        ) AS led_by,
        first_value(from_ns) OVER (
            PARTITION BY run, topic, partition, leaders ORDER BY from_ns, operation
        ) AS led_ns
    FROM counted
),
in_time AS (
    SELECT
        with_last.*,
        lead(from_ns) OVER then_next AS until_ns,
        lead(isr) OVER then_next AS next_isr,
        lead(version) OVER then_next AS next_version,
        lag(leader_epoch) OVER then_next AS previous_leader_epoch,
        lag(led_by) OVER then_next AS last_leader,
        lag(led_ns) OVER then_next AS last_led_ns,
        lag(isr) OVER then_next AS previous_isr,
        lag(may_lead) OVER then_next AS previous_may_lead,
        lag(replicas) OVER then_next AS previous_replicas,
        lag(version) OVER then_next AS previous_version
    FROM with_last
    WINDOW then_next AS (PARTITION BY run, topic, partition ORDER BY from_ns, operation)
)
SELECT
    in_time.*,
    coalesce(version = previous_version + 1, true) AS follows,
    coalesce(next_version = version + 1, true) AS is_followed
FROM in_time
