-- misfits: how many rows of a partition are not in the words of the schema, and what is wrong with
-- the first of them.
SELECT run, topic, partition, min(misfit) AS misfit, count(*) AS number
FROM (
    SELECT run, topic, partition, misfit FROM operations
    UNION ALL
    SELECT run, topic, partition, misfit FROM replicas
    UNION ALL
    SELECT run, topic, partition, misfit FROM fetch_rounds
    UNION ALL
    SELECT run, topic, partition, misfit FROM messages
) AS every_row
WHERE misfit IS NOT NULL
GROUP BY run, topic, partition
