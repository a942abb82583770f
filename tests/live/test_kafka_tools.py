"""G4, G5: Kafka's own command-line tools on our brokers, and on a real Kafka beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kafka_tools import (
    COMMANDS,
    OF_CONSUMER_PROTOCOL,
    READ_BY_CONSUMER_PROTOCOL,
    Command,
    play,
)
from tests.live.cluster import running
from tests.proof import proof_but

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.needs("maven")]
SETTINGS = {
    "auto.create.topics.enable": "true",
    "default.replication.factor": "2",
    "group.initial.rebalance.delay.ms": "200",
    "num.partitions": "4",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
}
# What a broker of 2.1 has no API for, whichever tool asks: that of Kafka 2.1 has none either.
_NEWER_THAN_2_1 = (
    *("kafka-configs --alter topics", "kafka-configs --describe topics"),
    *("kafka-configs --alter brokers", "kafka-configs --describe brokers --entity-default"),
    *("kafka-get-offsets max-timestamp", "kafka-consumer-groups --delete-offsets"),
    *("kafka-leader-election", "kafka-reassign-partitions --execute"),
    *("kafka-reassign-partitions --verify", "kafka-reassign-partitions --list"),
    *("kafka-transactions", "kafka-replica-verification"),
)


# What a group has to read, and who reads it.
_OF_GROUPS = (
    *("kafka-topics --create", "kafka-producer-perf-test", "kafka-console-producer"),
    *("kafka-console-consumer --group", "kafka-consumer-groups"),
)


def _chosen(system: str, *, of_groups: bool) -> list[Command]:
    newer = _NEWER_THAN_2_1 if system == "neaptide:2.1" else ()
    if system != "neaptide:4.0":  # Kafka 3.9.1 has it in KRaft alone
        newer = (*newer, OF_CONSUMER_PROTOCOL, READ_BY_CONSUMER_PROTOCOL)
    named = [one for one in COMMANDS if not one.name.startswith(newer)]
    return [one for one in named if one.name.startswith(_OF_GROUPS)] if of_groups else named


@pytest.mark.parametrize(
    ("own_or_kafka", "of_groups"),
    proof_but(
        [
            ("neaptide:4.0", True),
            ("neaptide:4.0", False),
            ("neaptide:2.1", False),
            ("kafka:3.9.1", False),
        ],
    ),
)
def test_g4_g5_tools_do_what_they_are_called_for(
    tmp_path: Path, own_or_kafka: str, of_groups: bool
) -> None:
    """With the seven ways to reset a group's offsets (G4), and its lag (G5)."""
    with running(own_or_kafka, tmp_path, SETTINGS) as cluster:
        played = list(play(cluster.bootstrap, tmp_path, _chosen(own_or_kafka, of_groups=of_groups)))
    assert not {one.command.name: one.output for one in played if not one.is_well}
