-- unsourced: partitions of outputs of which nobody said which inputs there were.
SELECT DISTINCT run, topic, partition, true AS unproven_stream
FROM said
ANTI JOIN (
    SELECT DISTINCT run, topic, partition FROM said WHERE f = 'source'
) AS sourced USING (run, topic, partition)
WHERE f = 'setting' AND key = 'each.input'
