"""What all clients have in common: whom they believe to lead, and when they ask again.

Clients learn who leads from the metadata of a broker that they reach, so they may believe what is
no longer so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from neaptide.clusters.broker.replication.model import LeaderAndIsr, TopicPartition
from neaptide.clusters.simulation.clients import RETRY_AFTER_MS
from neaptide.clusters.simulation.network import CLIENT, CLIENTS, Link

if TYPE_CHECKING:
    from neaptide.clusters.simulation.world import World


class Retry(NamedTuple):
    """The clients look again for a leader."""


class AnswerLate(NamedTuple):
    """A client has waited for an answer for as long as it waits at all."""

    request: int


def try_later(world: World) -> None:
    if not world.clients.is_retrying:
        world.clients.is_retrying = True
        world.later(RETRY_AFTER_MS * 1_000, Retry())


def new_request(world: World) -> int:
    world.sequence += 1
    return world.sequence


def reaches(world: World, broker: int) -> bool:
    if broker not in world.brokers or broker in world.paused:
        return False
    there, back = Link(CLIENT, broker, CLIENTS), Link(broker, CLIENT, CLIENTS)
    return not any(cut.covers(there) or cut.covers(back) for cut in world.cuts)


def newest_leader(world: World, partition: TopicPartition, to: int | None = None) -> int | None:
    """Who leads, as the brokers answer that can be asked (`to`: only this one), and lives.

    Of what different brokers answer, the newest leader epoch is believed, as librdkafka does.
    """
    newest: LeaderAndIsr | None = None
    for broker_id in sorted(world.brokers) if to is None else (to,):
        state = _answer_of(world, broker_id, partition)
        if state is None or state.leader not in world.brokers:
            continue
        if newest is None or state.leader_epoch > newest.leader_epoch:
            newest = state
    return None if newest is None else newest.leader


def leaders_known(world: World, partition: TopicPartition) -> dict[int, LeaderAndIsr]:
    """What each broker that can be asked answers about who leads."""
    answers = {number: _answer_of(world, number, partition) for number in sorted(world.brokers)}
    return {number: state for number, state in answers.items() if state is not None}


def _answer_of(world: World, broker: int, partition: TopicPartition) -> LeaderAndIsr | None:
    if not reaches(world, broker):
        return None
    known_state = world.brokers[broker].metadata.topics.get(partition.topic, {})
    known_of = known_state.get(partition.partition)
    return None if known_of is None else known_of.state
