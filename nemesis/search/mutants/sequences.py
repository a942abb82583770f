"""Mutants of the rules of idempotent producers: what a partition remembers of their sequences.

Each broken rule is the core's own with one thing wrong, and keeps its signature.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from neaptide.clusters.broker.replication.broker import Broker, StoredReplica
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.generation import Idempotence
from neaptide.clusters.broker.replication.interface.events import ProducedBatch, ProducersRead
from neaptide.clusters.broker.replication.leader import produce
from neaptide.clusters.broker.replication.leader.produce import Appended
from neaptide.clusters.broker.replication.model import ProducerSequence, TopicPartition
from neaptide.clusters.broker.replication.partition import partition_rules, producer_state_manager
from neaptide.clusters.broker.replication.partition.partition_rules import Partition
from neaptide.clusters.broker.replication.partition.producer_state_manager import (
    NO_PRODUCERS,
    Checked,
    Duplicate,
    InSequence,
    Producers,
    Refused,
)
from neaptide.clusters.broker.replication.replicas import log_manager
from neaptide.clusters.broker.replication.rule import Rule
from neaptide.clusters.simulation.disk import Disk
from neaptide.nemesis.search.mutants.mutant import ONE, Mutant, rule

# The core's own rules, whatever stands in their places while a mutant is searched.
_check = producer_state_manager.check.own
_known = produce.known_error.own
_append_as_leader = partition_rules.append_as_leader.own
_append_as_follower = partition_rules.append_as_follower.own
_on_producers_read = log_manager.on_producers_read.own
_stored = Disk.stored.own


def checks_nothing(
    known: Producers, sequence: ProducerSequence, count: int, rule: Idempotence
) -> Checked:
    return InSequence()


def appends_duplicates(
    known: Producers, sequence: ProducerSequence, count: int, rule: Idempotence
) -> Checked:
    checked = _check(known, sequence, count, rule)
    return InSequence() if isinstance(checked, Duplicate) else checked


def accepts_gaps(
    known: Producers, sequence: ProducerSequence, count: int, rule: Idempotence
) -> Checked:
    """What comes later than it should is taken; what comes earlier is still refused."""
    checked = _check(known, sequence, count, rule)
    state = known.get(sequence.producer_id)
    last = -1 if state is None else state.batches[-1].last_sequence
    is_gap = isinstance(checked, Refused) and sequence.base_sequence > last
    return InSequence() if is_gap else checked


def takes_what_came_late(
    known: Producers, sequence: ProducerSequence, count: int, rule: Idempotence
) -> Checked:
    """Neither gaps nor what should have filled them are refused; duplicates are still known."""
    checked = _check(known, sequence, count, rule)
    return InSequence() if isinstance(checked, Refused) else checked


def acks_duplicates_at_once(
    broker: Broker, led: Partition, batch: ProducedBatch, acks: int
) -> Appended | None:
    known = _known(broker, led, batch, acks)
    return known if known is None or known.error is not None else replace(known, error=Error.NONE)


def leaders_learn_nothing(led: Partition, *rest: Any) -> Partition:
    return _with(_append_as_leader(led, *rest), led.log.producers)


def followers_learn_nothing(held: Partition, *rest: Any, **named: Any) -> Partition:
    return _with(_append_as_follower(held, *rest, **named), held.log.producers)


def remembers_what_was_cut(broker: Broker, event: ProducersRead, now_ms: int) -> None:
    """In place of `on_producers_read`."""


def forgets_all_when_cut(broker: Broker, event: ProducersRead, now_ms: int) -> None:
    _on_producers_read(broker, replace(event, producers=NO_PRODUCERS), now_ms)


def reads_no_producers(disk: Disk) -> dict[TopicPartition, StoredReplica]:
    return {
        tp: replace(replica, log=replace(replica.log, producers=NO_PRODUCERS))
        for tp, replica in _stored(disk).items()
    }


def _with(held: Partition, remembered: Producers) -> Partition:
    return replace(held, log=replace(held.log, producers=remembered))


def _of_producers(
    name: str, rule_of: Rule[Any, Any], by: Any, sentence: str, **rest: Any
) -> Mutant:
    """One function is another one, and producers are idempotent."""
    return rule(name, rule_of, by, sentence, idempotence=True, **rest)


MUTANTS: Final = (
    _of_producers(
        "sequences-not-checked",
        producer_state_manager.check,
        checks_nothing,
        "A leader appends whatever sequence an idempotent producer sends.",
    ),
    _of_producers(
        "duplicates-appended",
        producer_state_manager.check,
        appends_duplicates,
        "A leader appends a batch that it knows again.",
    ),
    _of_producers(
        "duplicates-acked-at-once",
        produce.known_error,
        acks_duplicates_at_once,
        "A duplicate is acknowledged to acks=all although its first copy is not committed.",
    ),
    _of_producers(
        "gaps-accepted",
        producer_state_manager.check,
        accepts_gaps,
        "A leader appends a batch before which others are missing.",
        hidden="what is missing is refused when it comes, and never acknowledged",
    ),
    _of_producers(
        "late-sequences-taken",
        producer_state_manager.check,
        takes_what_came_late,
        "A leader appends a batch after those that should have come behind it.",
        shown="a fixed schedule of tests of idempotence",
    ),
    _of_producers(
        "leaders-learn-nothing",
        partition_rules.append_as_leader,
        leaders_learn_nothing,
        "A leader does not remember the sequences of what it appends.",
    ),
    _of_producers(
        "followers-learn-nothing",
        partition_rules.append_as_follower,
        followers_learn_nothing,
        "A follower does not remember the sequences of what it appends.",
    ),
    _of_producers(
        "remembers-what-was-cut",
        log_manager.on_producers_read,
        remembers_what_was_cut,
        "A log that is cut keeps what is remembered of the batches that were cut off.",
        topic_settings=ONE,
    ),
    _of_producers(
        "forgets-all-when-cut",
        log_manager.on_producers_read,
        forgets_all_when_cut,
        "A log that is cut forgets also the producers of what is left.",
        topic_settings=ONE,
        shown="six steps",
    ),
    _of_producers(
        "producers-not-read",
        Disk.stored,
        reads_no_producers,
        "A broker that starts knows nothing of the producers of what is on its disk.",
    ),
)
