"""What all clients have in common: whom they believe to lead, and when they ask again.

Clients learn who leads from the metadata of a broker that they reach, so they may believe what is
no longer so.
"""

from __future__ import annotations

from typing import NamedTuple

from neaptide.clusters.broker.replication.group.committed_offsets import partition_for
from neaptide.clusters.broker.replication.model import LeaderAndIsr, TopicPartition
from neaptide.clusters.simulation.client_node import ClientNode
from neaptide.clusters.simulation.clients import RETRY_AFTER_MS
from neaptide.clusters.simulation.network import CLIENT, CLIENTS, Link


class Retry(NamedTuple):
    """The clients look again for a leader."""


class AnswerLate(NamedTuple):
    """A client has waited for an answer for as long as it waits at all."""

    request: int


def try_later(client: ClientNode) -> None:
    if not client.is_retrying:
        client.is_retrying = True
        client.network.later(RETRY_AFTER_MS * 1_000, Retry())


def reaches(client: ClientNode, broker: int) -> bool:
    if broker not in client.network.listening or broker in client.network.paused:
        return False
    there, back = Link(CLIENT, broker, CLIENTS), Link(broker, CLIENT, CLIENTS)
    return not any(cut.covers(there) or cut.covers(back) for cut in client.network.cuts)


def coordinator_of(client: ClientNode, name: str, topic: str) -> int | None:
    """Of a group, or of a transactional id, as the clients believe; asked anew where that broker is
    dead. `topic`: the internal topic of such coordinators."""
    configuration = client.network.spec.internal_topics.get(topic)
    assert configuration is not None, f"no {topic} in this world"
    place = partition_for(name, len(configuration.assignment), topic)
    known = client.coordinators.get(place)
    if known is not None and known in client.network.listening:
        return known
    newest = newest_leader(client, place)
    if newest is not None:
        client.coordinators[place] = newest
    return newest


def forget_coordinator(client: ClientNode, broker: int) -> None:
    """It has not answered, or says that it is none: the next who asks asks who it is."""
    known = client.coordinators.items()
    client.coordinators = {place: one for place, one in known if one != broker}


def leader_of(client: ClientNode, partition: int, to: int | None = None) -> int | None:
    """Who leads a partition of the world's topic, as the clients believe; asked anew where that
    broker is dead."""
    known = client.leaders.get((partition, to))
    if known is not None and known in client.network.listening:
        return known
    newest = newest_leader(client, TopicPartition(client.network.spec.topic, partition), to)
    if newest is not None:
        client.leaders[partition, to] = newest
    return newest


def newest_leader(
    client: ClientNode, partition: TopicPartition, to: int | None = None
) -> int | None:
    """Who leads, as the brokers answer that can be asked (`to`: only this one), and lives.

    Of what different brokers answer, the newest leader epoch is believed, as librdkafka does.
    """
    newest: LeaderAndIsr | None = None
    for broker_id in sorted(client.network.listening) if to is None else (to,):
        state = _answer_of(client, broker_id, partition)
        if state is None or state.leader not in client.network.listening:
            continue
        if newest is None or state.leader_epoch > newest.leader_epoch:
            newest = state
    return None if newest is None else newest.leader


def leaders_known(client: ClientNode, partition: TopicPartition) -> dict[int, LeaderAndIsr]:
    """What each broker that can be asked answers about who leads."""
    answers = {
        number: _answer_of(client, number, partition) for number in sorted(client.network.listening)
    }
    return {number: state for number, state in answers.items() if state is not None}


def _answer_of(client: ClientNode, broker: int, partition: TopicPartition) -> LeaderAndIsr | None:
    if not reaches(client, broker):
        return None
    known_state = client.brokers[broker].core.metadata.topics.get(partition.topic, {})
    known_of = known_state.get(partition.partition)
    return None if known_of is None else known_of.state
