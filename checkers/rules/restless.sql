-- restless: partitions of share groups (KIP-932) that were not at rest in the end: of what no member
-- was given nobody knows whether it would have been.
SELECT said.run, said.topic, said.partition, true AS unproven_share_group
FROM said
ANTI JOIN rests USING (run, topic, partition)
WHERE f = 'setting' AND key = 'share.group'
GROUP BY said.run, said.topic, said.partition
