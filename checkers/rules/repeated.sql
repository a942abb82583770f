-- repeated: records that the members of a group processed more often than the resets of its
-- position explain; `delivery` is what they promise.
--
-- A record may be processed once, and once more behind each reset that led back over it: from a
-- position behind the record to the record or before it. A reset that nobody acknowledged may be
-- done when the group is anywhere: it is taken to lead back over all behind where it leads.
WITH modes AS (
    SELECT run, topic, partition, max(value) AS delivery
    FROM said
    WHERE f = 'setting' AND key = 'delivery'
    GROUP BY run, topic, partition
),
done AS (
    SELECT
        run, topic, partition, key AS consumer_group, log_offset, operation, process, invoked_ns,
        row_number() OVER by_record AS nth
    FROM said
    SEMI JOIN modes USING (run, topic, partition)
    WHERE f = 'process'
    WINDOW by_record AS (
        PARTITION BY run, topic, partition, key, log_offset ORDER BY invoked_ns, operation
    )
),
again AS (
    SELECT
        done.run, done.topic, done.partition, done.consumer_group, done.log_offset, nth,
        count(resets.operation) AS resets_back
    FROM done
    LEFT JOIN resets
        ON resets.run = done.run AND resets.topic = done.topic
        AND resets.partition = done.partition AND resets.consumer_group = done.consumer_group
        AND resets.invoked_ns <= done.invoked_ns AND resets.position <= done.log_offset
        AND (NOT resets.is_sure OR resets.position_before > done.log_offset)
    WHERE nth > 1
    GROUP BY done.run, done.topic, done.partition, done.consumer_group, done.log_offset, nth
),
unexplained AS (
    SELECT run, topic, partition, consumer_group, log_offset, max(resets_back) AS resets_back
    FROM again
    WHERE nth > 1 + resets_back
    GROUP BY run, topic, partition, consumer_group, log_offset
),
counted AS (
    SELECT
        run, topic, partition, consumer_group, log_offset, resets_back, count(*) AS times,
        min(operation) AS operation, min(process) AS process, max(process) AS other_process
    FROM done
    JOIN unexplained USING (run, topic, partition, consumer_group, log_offset)
    GROUP BY run, topic, partition, consumer_group, log_offset, resets_back
)
SELECT
    run, topic, partition, consumer_group, log_offset, log.value, delivery, times, resets_back,
    operation, process, other_process,
    delivery = 'at-most-once' AS processed_twice,
    delivery <> 'at-most-once' AS processed_again
FROM counted
JOIN log USING (run, topic, partition, log_offset)
JOIN modes USING (run, topic, partition)
