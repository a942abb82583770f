"""What must hold of a broker after every step, whatever happened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.replication.partition.partition_rules import Leader, Partition

if TYPE_CHECKING:
    from tests.core.world import World


def check(world: World, broker_id: int) -> None:
    broker = world.brokers[broker_id]
    for topic_partition, partition in broker.partitions.items():
        log = world.disks[broker_id].logs[topic_partition]
        assert partition.log.end_offset == log.end_offset, "core and disk disagree"
        assert partition.log.epochs == log.epochs, "cache and checkpoint disagree"
        assert 0 <= partition.high_watermark <= partition.log.end_offset
        if isinstance(partition.role, Leader):
            _check_leader(world, topic_partition, partition, broker_id)
    watched = {request for requests in broker.watchers.values() for request in requests}
    assert watched == set(broker.delayed), "a parked request that nobody wakes, or a ghost"
    for request, answers in world.answers.items():
        assert len(answers) == 1, f"request {request} was answered twice"


def _check_leader(
    world: World, topic_partition: TopicPartition, partition: Partition, broker_id: int
) -> None:
    assert isinstance(partition.role, Leader)
    led_by = world.leaders.setdefault((topic_partition, partition.leader_epoch), broker_id)
    assert led_by == broker_id, "two leaders in one epoch"
    assert broker_id in partition.role.isr.isr, "the leader is not in its ISR"
    assert set(partition.role.isr.maximal) <= set(partition.assigned)
