"""Mutants of a follower's answers: which it takes, and for what.

Each broken rule is the core's own with one thing wrong, and keeps its signature.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.follower import replica_fetcher_manager
from neaptide.clusters.broker.replication.model import Batch, TopicPartition
from neaptide.clusters.broker.replication.partition import unified_log
from neaptide.clusters.broker.replication.partition.partition_rules import Follower, Partition
from neaptide.clusters.broker.replication.partition.unified_log import UnifiedLog
from neaptide.nemesis.search.mutants.mutant import rule


def takes_late_answers(broker: Broker, fetcher_id: Any, sequence: int) -> Any:
    fetcher = broker.fetchers.get(fetcher_id)
    if fetcher is None or fetcher.in_flight is None:
        return None
    broker.fetchers[fetcher_id] = replace(fetcher, in_flight=None)
    return fetcher.in_flight


def means_always(
    broker: Broker, fetcher_id: Any, in_flight: Any, topic_partition: TopicPartition, meant: Any
) -> Partition | None:
    fetcher, held = broker.fetchers.get(fetcher_id), broker.partitions.get(topic_partition)
    if fetcher is None or held is None or topic_partition not in fetcher.followed:
        return None
    return held if isinstance(held.role, Follower) else None


def follows_always(log: UnifiedLog, batches: tuple[Batch, ...]) -> bool:
    return True


MUTANTS: Final = (
    rule(
        "late-answers-taken",
        replica_fetcher_manager.take_answer,
        takes_late_answers,
        "A follower takes an answer to an earlier request.",
        hidden="answers die with their connection, and each connection has one request in flight",
    ),
    rule(
        "answers-always-meant",
        replica_fetcher_manager.still_meant,
        means_always,
        "A follower takes an answer about a state that it has left.",
    ),
    rule(
        "appends-below-the-end",
        unified_log.follows,
        follows_always,
        "A follower does not check that what it got lies behind the end of its log.",
        hidden="no leader answers what was not asked: the check is a second lock",
    ),
)
