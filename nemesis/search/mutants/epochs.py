"""Mutants of leader epochs: who notes them, when, and which requests they fence.

Each broken rule is the core's own with one thing wrong, and keeps its signature.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from neaptide.clusters.broker.replication.generation import (
    GENERATIONS,
    EpochAssignment,
    Generation,
    SameLeader,
)
from neaptide.clusters.broker.replication.interface.effects import (
    LogWrite,
    WriteLeaderEpochCheckpoint,
)
from neaptide.clusters.broker.replication.model import Batch, EpochEntry
from neaptide.clusters.broker.replication.partition import leader_epoch_file_cache, partition_rules
from neaptide.clusters.broker.replication.partition.leader_epoch_file_cache import Epochs
from neaptide.clusters.broker.replication.partition.partition_rules import Partition
from neaptide.clusters.simulation.disk import Disk
from neaptide.nemesis.search.mutants.mutant import ONE, V2_0, V2_1, ZOMBIES, row, rule
from neaptide.nemesis.search.targets import FOUR

# The core's own rules, whatever stands in their places while a mutant is searched.
_append_as_follower = partition_rules.append_as_follower.own
_write = Disk.write.own


def notes_no_epochs(
    held: Partition, batches: tuple[Batch, ...], *, rules: Generation, **rest: Any
) -> Partition:
    return _append_as_follower(held, batches, rules=GENERATIONS["0.10"], **rest)


def writes_no_epochs(disk: Disk, effect: LogWrite) -> int | None:
    is_epochs = isinstance(effect, WriteLeaderEpochCheckpoint)
    return None if is_epochs else _write(disk, effect)


def makes_no_room(epochs: Epochs, epoch: int, start_offset: int) -> Epochs:
    if epoch <= leader_epoch_file_cache.latest_epoch(epochs):
        return epochs
    return (*epochs, EpochEntry(epoch, start_offset))


MUTANTS: Final = (
    row(
        "unfenced",
        "A request that is meant for another leader epoch is answered.",
        replace(V2_1, fences_leader_epochs=False),
        topic_settings=ONE,
        faults=ZOMBIES,
        steps_only=True,
        shown="the found schedule kip-320-divergence",
    ),
    row(
        "same-leader-fetches-on",
        "A follower that missed an epoch goes on fetching from the leader that it had.",
        replace(V2_0, same_leader=SameLeader.FETCHES_ON),
        topic_settings=ONE,
        faults=ZOMBIES,
        steps_only=True,
        shown="a zombie that learns of its leader's newer epoch, not of those between",
    ),
    row(
        "fetches-on-in-the-old-epoch",
        "A follower of the same leader goes on in the old epoch, in which it is refused.",
        replace(V2_1, same_leader=SameLeader.FETCHES_ON),
    ),
    row(
        "epochs-on-first-append",
        "A leader notes its epoch with its first record only.",
        replace(V2_1, epoch_assignment=EpochAssignment.ON_FIRST_APPEND),
        topic_settings=ONE,
        faults=("kill", "hold"),
        brokers=FOUR,  # one of whom a new leader knows nothing, one who misses it, one who has both
        steps_only=True,
        shown="four brokers, and a leader that has written nothing yet",
    ),
    row(
        "epochs-never",
        "Nobody notes epochs, so followers fall back on the high watermark.",
        replace(V2_1, epoch_assignment=EpochAssignment.NEVER),
    ),
    rule(
        "followers-note-no-epochs",
        partition_rules.append_as_follower,
        notes_no_epochs,
        "A follower does not note the epochs of what it appends.",
    ),
    rule(
        "empty-epochs-make-no-room",
        leader_epoch_file_cache.assign,
        makes_no_room,
        "An epoch that got no record stays when another one begins at the same offset.",
    ),
    rule(
        "epochs-not-written",
        Disk.write,
        writes_no_epochs,
        "The epoch checkpoint is read at the start, and never written.",
    ),
)
