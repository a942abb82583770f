"""Mutants of the rules of group coordinators: what is acknowledged, what is read, what is known.

Each broken rule is the core's own with one thing wrong, and keeps its signature.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.group import (
    committed_offsets,
    group_metadata_manager,
)
from neaptide.clusters.broker.replication.group.committed_offsets import (
    CommittedOffsets,
    OffsetCommitRecord,
)
from neaptide.clusters.broker.replication.group.group_coordinator import DelayedCommit
from neaptide.clusters.broker.replication.group.group_metadata_manager import (
    answer_commit,
)
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.interface.events import CommittedOffsetsRead
from neaptide.clusters.broker.replication.rule import Rule
from neaptide.clusters.simulation import effect_handlers
from neaptide.clusters.simulation.broker_node import BrokerNode
from neaptide.clusters.simulation.disk import SimulatedLog
from neaptide.nemesis.search.mutants.mutant import Mutant, rule
from neaptide.nemesis.search.targets import COMMITS

_on_committed_offsets_read = group_metadata_manager.on_committed_offsets_read.own
_with_committed = committed_offsets.with_committed.own
GROUPS: Final = ("kill", "hold", COMMITS)


def acks_at_once(broker: Broker) -> int:
    return 1


def reads_nothing(broker: Broker, event: CommittedOffsetsRead, now_ms: int) -> None:
    _on_committed_offsets_read(broker, replace(event, committed_offsets={}), now_ms)


def reads_what_is_committed(node: BrokerNode, effect: effects.ReadCommittedOffsets) -> None:
    """In place of all of the log."""
    log, partition = node.disk.logs[effect.partition], effect.partition
    mark = node.core.partitions[partition].high_watermark
    below = [batch for batch in log.batches if batch.next_offset <= mark]
    found = SimulatedLog(below).committed_offsets
    effect_handlers.handle(node, events.CommittedOffsetsRead(partition, found))


def reads_the_first(node: BrokerNode, effect: effects.ReadCommittedOffsets) -> None:
    """Of a group, in place of the last."""
    batches = node.disk.logs[effect.partition].batches
    found = SimulatedLog(batches[::-1]).committed_offsets
    effect_handlers.handle(node, events.CommittedOffsetsRead(effect.partition, found))


def knows_the_first(
    positions: CommittedOffsets, records: Iterable[OffsetCommitRecord]
) -> CommittedOffsets:
    return {**_with_committed({}, records), **positions}


def _of_groups(
    name: str, rule_of: Rule[Any, Any], by: Any, sentence: str, shown: str = ""
) -> Mutant:
    """One function is another one, and consumers of a group commit."""
    return rule(name, rule_of, by, sentence, faults=GROUPS, steps_only=True, shown=shown)


def acknowledges_what_timed_out(self: DelayedCommit, broker: Broker) -> None:
    error = self.appended.error or Error.NONE
    answer_commit(broker, self.request, self.partition, self.committed, error)


MUTANTS: Final = (
    rule(
        "timed-out-commit-acknowledged",
        DelayedCommit.complete,
        acknowledges_what_timed_out,
        "A commit that has run out of time is acknowledged.",
        swarm=True,
    ),
    _of_groups(
        "commits-acked-at-once",
        group_metadata_manager.required_acks,
        acks_at_once,
        "A commit is acknowledged before it is replicated.",
    ),
    _of_groups(
        "positions-not-read",
        group_metadata_manager.on_committed_offsets_read,
        reads_nothing,
        "A new coordinator knows nothing of what is in its log.",
    ),
    _of_groups(
        "positions-read-to-high-watermark",
        effect_handlers.read_committed_offsets,
        reads_what_is_committed,
        "A new coordinator reads its log to its own high watermark, which may be one round old.",
        shown="four steps",
    ),
    _of_groups(
        "first-position-read",
        effect_handlers.read_committed_offsets,
        reads_the_first,
        "A new coordinator takes the first commit of a group that it finds, not the last.",
    ),
    _of_groups(
        "first-position-known",
        committed_offsets.with_committed,
        knows_the_first,
        "A coordinator keeps the position that it knows when a later one is acknowledged.",
    ),
)
