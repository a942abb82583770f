"""Mutants of the ISR: who joins it, who leaves it, and in which one a leader believes.

Each broken rule is the core's own with one thing wrong, and keeps its signature.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, Final

from neaptide.clusters.broker.replication.generation import CaughtUp, Generation
from neaptide.clusters.broker.replication.partition import partition_rules
from neaptide.clusters.broker.replication.partition.partition_rules import (
    CommittedIsr,
    Leader,
    Partition,
    PendingShrinkIsr,
)
from neaptide.nemesis.search.mutants.mutant import ONE, V2_1, V4_0, row, rule


def without_leaving(leader: Leader) -> Collection[int]:
    isr = leader.isr
    leaving = isr.leaving if isinstance(isr, PendingShrinkIsr) else ()
    return set(isr.maximal) - set(leaving)


def joins_where(is_far_enough: Callable[[Partition, Leader, int], bool]) -> Callable[..., bool]:
    """Who is not in the ISR joins it where this says so of its log end offset."""

    def may_join(led: Partition, replica_id: int, rules: Generation) -> bool:
        leader = led.role
        assert isinstance(leader, Leader)
        if not isinstance(leader.isr, CommittedIsr) or replica_id in leader.isr.isr:
            return False
        remote = leader.remotes.get(replica_id)
        return remote is not None and is_far_enough(led, leader, remote.log_end_offset)

    return may_join


def takes_what_it_wanted(led: Partition) -> Partition:
    """A lost race ends with the ISR that was to be written."""
    leader = led.role
    assert isinstance(leader, Leader)
    return replace(led, role=replace(leader, isr=CommittedIsr(tuple(without_leaving(leader)))))


def takes_the_old_isr(led: Partition) -> Partition:
    leader = led.role
    assert isinstance(leader, Leader)
    return replace(led, role=replace(leader, isr=CommittedIsr(leader.isr.isr)))


def nobody_is_out_of_sync(led: Partition, **rest: Any) -> tuple[int, ...]:
    return ()


MUTANTS: Final = (
    row(
        "joins-before-the-epoch-start",
        "A follower joins the ISR before it has what the leader's epoch began with.",
        replace(V2_1, isr_needs_epoch_start=False),
    ),
    rule(
        "joins-below-high-watermark",
        partition_rules.may_join_isr,
        joins_where(lambda led, leader, end: end >= leader.epoch_start_offset),
        "A follower joins the ISR although it has not reached the high watermark.",
    ),
    rule(
        "joins-one-short",
        partition_rules.may_join_isr,
        joins_where(
            lambda led, leader, end: end >= max(leader.epoch_start_offset, led.high_watermark) - 1
        ),
        "A follower joins the ISR when one committed record is still missing.",
    ),
    rule(
        "joins-on-any-fetch",
        partition_rules.may_join_isr,
        joins_where(lambda led, leader, end: True),
        "A follower joins the ISR with its first fetch.",
    ),
    rule(
        "takes-the-isr-it-wanted",
        partition_rules.abandon_isr_change,
        takes_what_it_wanted,
        "A leader that lost the race to write an ISR believes in what it wanted to write.",
        topic_settings=ONE,
        shown="an ISR change that comes after the controller's",
    ),
    rule(
        "takes-the-old-isr",
        partition_rules.doubt_isr_change,
        takes_the_old_isr,
        "A leader whose session ends over an ISR change believes that it was not written.",
        topic_settings=ONE,
        shown="a session that ends over an ISR change, message by message",
    ),
    rule(
        "isr-never-shrinks",
        partition_rules.out_of_sync_replicas,
        nobody_is_out_of_sync,
        "A leader never takes anybody out of the ISR.",
        hidden="only availability suffers: the high watermark waits for who is stuck",
    ),
    row(
        "isr-changes-name-no-epochs",
        "An ISR change does not name the registrations of its members, and whoever has one joins.",
        replace(V4_0, isr_names_broker_epochs=False),
        faults=("kill", "hold", "control", "power_off"),
        topic_settings=ONE,
        steps_only=True,
        shown="a power failure while an ISR change is on its way",
    ),
    row(
        "isr-of-the-unregistered",
        "A broker that is not registered is put into the ISR.",
        replace(V4_0, fences_isr_members=False),
        hidden="who registers again is taken out of the ISR, and nobody else can be elected",
    ),
    row(
        "caught-up-on-any-fetch",
        "A follower that fetches counts as caught up, however far behind it is.",
        replace(V2_1, caught_up=CaughtUp.ON_ANY_FETCH),
        hidden="only availability suffers: the high watermark waits for who is behind",
    ),
)
