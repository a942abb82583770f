-- windows: how each partition was available, by fault window: the time from one step of the nemesis
-- to the next. `longest_gap_ns`: the longest time in it without an acknowledged write.
WITH moments AS (
    SELECT
        run, topic, partition, coalesce(completed_ns, invoked_ns) AS at_ns, 0 AS turn,
        CASE
            WHEN is_ok_send THEN 'ok' WHEN is_failed THEN 'fail' ELSE 'info'
        END AS what,
        CAST(NULL AS STRING) AS fault
    FROM records
    WHERE is_send
    UNION ALL
    SELECT partitions.run, topic, partition, at_ns, 1, 'step', fault
    FROM partitions
    JOIN nemesis_steps USING (run)
    WHERE partition IS NOT NULL AND sends > 0
    UNION ALL
    SELECT run, topic, partition, last_ns, 2, 'end', CAST(NULL AS STRING)
    FROM partitions
    WHERE partition IS NOT NULL AND sends > 0
),
windowed AS (
    SELECT
        moments.*,
        count(CASE WHEN what = 'step' THEN 1 END) OVER (
            PARTITION BY run, topic, partition ORDER BY at_ns, turn ROWS UNBOUNDED PRECEDING
        ) AS fault_window,
        coalesce(max(CASE WHEN what IN ('ok', 'step') THEN at_ns END) OVER (
            PARTITION BY run, topic, partition ORDER BY at_ns, turn
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), 0) AS since_ns,
        coalesce(lead(CASE WHEN what = 'step' THEN at_ns END) OVER (
            PARTITION BY run, topic, partition ORDER BY at_ns, turn
        ), at_ns) AS until_ns
    FROM moments
),
opened AS (
    SELECT
        windowed.*,
        CASE WHEN what IN ('ok', 'step') THEN at_ns ELSE since_ns END AS open_ns,
        CASE WHEN what = 'step' THEN 0 ELSE at_ns - since_ns END AS before_ns
    FROM windowed
),
gaps_of_windows AS (
    SELECT
        opened.*,
        greatest(before_ns, until_ns - open_ns) AS gap_ns,
        CASE WHEN until_ns - open_ns > before_ns THEN open_ns ELSE since_ns END AS gap_from_ns,
        max(greatest(before_ns, until_ns - open_ns)) OVER (
            PARTITION BY run, topic, partition, fault_window
        ) AS longest_ns
    FROM opened
)
SELECT
    run, topic, partition, fault_window, max(fault) AS fault,
    min(CASE WHEN what = 'step' THEN at_ns WHEN fault_window = 0 THEN 0 END) AS from_ns,
    max(until_ns) AS to_ns,
    count(CASE WHEN what = 'ok' THEN 1 END) AS acked,
    count(CASE WHEN what = 'fail' THEN 1 END) AS failed,
    count(CASE WHEN what = 'info' THEN 1 END) AS indeterminate,
    max(longest_ns) AS longest_gap_ns,
    min(CASE WHEN gap_ns = longest_ns THEN gap_from_ns END) AS gap_from_ns,
    true AS availability
FROM gaps_of_windows
GROUP BY run, topic, partition, fault_window
