"""What consumers of groups do: ask where their group goes on, and commit how far they have come.

As a live run's clients do it (workloads.groups): one thing after the other, each asked again until
it is answered; so what is acknowledged is known, and what never was is not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.group.committed_offsets import (
    INVALID_OFFSET,
    OFFSETS_TOPIC,
    OffsetAndMetadata,
    OffsetCommitRecord,
)
from neaptide.clusters.broker.replication.group.group_coordinator import NO_GENERATION
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.simulation.asking import (
    AnswerLate,
    coordinator_of,
    forget_coordinator,
    try_later,
)
from neaptide.clusters.simulation.client_node import ClientNode
from neaptide.clusters.simulation.clients import REQUEST_TIMEOUT_MS, GroupOperation
from neaptide.clusters.simulation.network import CLIENT, CLIENTS, Entry

_MESSAGES: Final = (
    events.OffsetCommitRequested,
    events.OffsetFetchRequested,
    effects.RespondOffsetCommit,
    effects.RespondOffsetFetch,
)


def ask_position(client: ClientNode, group: str, partition: int, phase: str) -> None:
    """Begins to ask where a group goes on; `clients.asking` is None when that is known."""
    process = client.reads_begun + 1  # who asks will be the next to read
    _begin(
        client,
        GroupOperation("committed", group, partition, None, phase, client.network.now_us, process),
    )


def commit(client: ClientNode, group: str, partition: int, offset: int) -> None:
    """Begins to commit; `clients.asking` is None when that is acknowledged."""
    process = client.reads_begun
    _begin(
        client,
        GroupOperation("commit", group, partition, offset, "main", client.network.now_us, process),
    )


def give_up(client: ClientNode) -> None:
    """Nobody knows what became of it."""
    asking = client.asking
    assert asking is not None
    client.asking = None
    _note(client, replace(asking, kind="info", completed_us=client.network.now_us))


def _begin(client: ClientNode, operation: GroupOperation) -> None:
    assert client.asking is None
    client.asking = operation
    ask_again(client)


def ask_again(client: ClientNode) -> None:
    """Sends what is asked to the group's coordinator, unless it is on its way."""
    asking = client.asking
    if asking is None or asking.request is not None:
        return
    coordinator = coordinator_of(client, asking.group, OFFSETS_TOPIC)
    if coordinator is None:
        try_later(client)
        return
    number = client.network.number()
    partition = TopicPartition(client.network.spec.topic, asking.partition)
    request: object
    if asking.offset is None:
        request = _asks(number, asking.group, partition)
    else:
        committed = (OffsetCommitRecord(asking.group, partition, OffsetAndMetadata(asking.offset)),)
        request = events.OffsetCommitRequested(number, asking.group, NO_GENERATION, committed)
    client.asking = replace(asking, request=number, to=coordinator)
    client.network.send(CLIENT, coordinator, CLIENTS, request)
    client.network.later(REQUEST_TIMEOUT_MS * 1_000, AnswerLate(number))
    if client.network.spec.second_client:
        _ask_too(client, asking, partition)


def _asks(number: int, group: str, partition: TopicPartition) -> events.OffsetFetchRequested:
    return events.OffsetFetchRequested(number, (events.WantedOffsets(group, (partition,)),))


def _ask_too(client: ClientNode, asking: GroupOperation, partition: TopicPartition) -> None:
    """A second client of the group, which knows no coordinator, asks every broker while the first
    one asks or commits. Whoever answers it has promised what the answer says."""
    for broker in sorted(client.network.listening):
        number = client.network.number()
        client.asking_too[number] = replace(
            asking,
            f="committed",
            offset=None,
            request=number,
            to=broker,
            invoked_us=client.network.now_us,
        )
        request = _asks(number, asking.group, partition)
        client.network.send(CLIENT, broker, CLIENTS, request)


def _take_answer_too(client: ClientNode, body: effects.RespondOffsetFetch) -> None:
    asked = client.asking_too.pop(body.request)
    [found] = body.groups
    [(_, position)] = found.results
    if found.error is Error.NONE and position.offset != INVALID_OFFSET:
        done = replace(asked, kind="ok", offset=position.offset, completed_us=client.network.now_us)
        _note(client, done)


# --- what comes of it ----------------------------------------------------------------------------


def take_answer(client: ClientNode, body: object) -> None:
    asking = client.asking
    if getattr(body, "request", None) in client.asking_too:
        assert isinstance(body, effects.RespondOffsetFetch)
        _take_answer_too(client, body)
        return
    if asking is None or getattr(body, "request", None) != asking.request:
        return
    match body:
        case effects.RespondOffsetCommit(_, ((_, error),)):
            found = asking.offset
        case effects.RespondOffsetFetch(_, ((_, error, ((_, position),), _),)):
            found = None if position.offset == INVALID_OFFSET else position.offset
        case _:
            raise AssertionError(f"no client of a group is sent {body}")
    if error is not Error.NONE:
        _not_answered(client, asking)
        return
    client.asking = None
    done = replace(asking, kind="ok", offset=found, completed_us=client.network.now_us)
    if done.f == "commit":
        assert found is not None
        client.committed[done.group, done.partition] = found
    _note(client, done)


def _note(client: ClientNode, done: GroupOperation) -> None:
    client.group_operations += (done,)
    if client.network.recorder is not None:
        client.network.recorder.of_group(done)


def _not_answered(client: ClientNode, asking: GroupOperation) -> None:
    """Refused, lost or late: somebody else may be asked."""
    client.asking = replace(asking, request=None)
    if asking.to is not None:
        forget_coordinator(client, asking.to)
    try_later(client)


def is_late(client: ClientNode, request: int) -> bool:
    """Whether it was this that was waited for; then it is asked again."""
    asking = client.asking
    if asking is None or asking.request != request:
        return False
    _not_answered(client, asking)
    return True


def connection_lost(client: ClientNode, lost: Entry) -> None:
    """What waited on a link between a client and a broker is lost with its connection."""
    if isinstance(lost.body, _MESSAGES):
        is_late(client, lost.body.request)


def broken(client: ClientNode, broker_id: int) -> None:
    """A broker is dead: the connections to it are broken."""
    asking = client.asking
    if asking is not None and asking.request is not None and asking.to == broker_id:
        _not_answered(client, asking)
    forget_coordinator(client, broker_id)
