"""What consumers of groups do: ask where their group goes on, and commit how far they have come.

As a live run's clients do it (workloads.groups): one thing after the other, each asked again until
it is answered; so what is acknowledged is known, and what never was is not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.group.committed_offsets import (
    INVALID_OFFSET,
    OffsetAndMetadata,
    OffsetCommitRecord,
    partition_for,
)
from neaptide.clusters.broker.replication.group.group_coordinator import NO_GENERATION
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.simulation.asking import AnswerLate, new_request, newest_leader, try_later
from neaptide.clusters.simulation.clients import REQUEST_TIMEOUT_MS, GroupOperation
from neaptide.clusters.simulation.network import CLIENT, CLIENTS, Entry

if TYPE_CHECKING:
    from neaptide.clusters.simulation.world import World

COMMIT_BYTES: Final = 100
_MESSAGES: Final = (
    events.OffsetCommitRequested,
    events.OffsetFetchRequested,
    effects.RespondOffsetCommit,
    effects.RespondOffsetFetch,
)


def ask_position(world: World, group: str, partition: int, phase: str) -> None:
    """Begins to ask where a group goes on; `clients.asking` is None when that is known."""
    process = world.clients.reads_begun + 1  # who asks will be the next to read
    _begin(world, GroupOperation("committed", group, partition, None, phase, world.now_us, process))


def commit(world: World, group: str, partition: int, offset: int) -> None:
    """Begins to commit; `clients.asking` is None when that is acknowledged."""
    process = world.clients.reads_begun
    _begin(world, GroupOperation("commit", group, partition, offset, "main", world.now_us, process))


def give_up(world: World) -> None:
    """Nobody knows what became of it."""
    asking = world.clients.asking
    assert asking is not None
    world.clients.asking = None
    _note(world, replace(asking, kind="info", completed_us=world.now_us))


def _begin(world: World, operation: GroupOperation) -> None:
    assert world.clients.asking is None
    world.clients.asking = operation
    ask_again(world)


def ask_again(world: World) -> None:
    """Sends what is asked to the group's coordinator, unless it is on its way."""
    asking = world.clients.asking
    if asking is None or asking.request is not None:
        return
    coordinator = _coordinator(world, asking.group)
    if coordinator is None:
        try_later(world)
        return
    number = new_request(world)
    partition = TopicPartition(world.spec.topic, asking.partition)
    request: object
    if asking.offset is None:
        request = events.OffsetFetchRequested(number, asking.group, (partition,))
    else:
        committed = (OffsetCommitRecord(asking.group, partition, OffsetAndMetadata(asking.offset)),)
        batch = events.ProducedBatch(1, COMMIT_BYTES, committed)
        request = events.OffsetCommitRequested(
            number, asking.group, NO_GENERATION, committed, batch
        )
    world.clients.asking = replace(asking, request=number, to=coordinator)
    world.send(CLIENT, coordinator, CLIENTS, request)
    world.later(REQUEST_TIMEOUT_MS * 1_000, AnswerLate(number))
    if world.spec.second_client:
        _ask_too(world, asking, partition)


def _ask_too(world: World, asking: GroupOperation, partition: TopicPartition) -> None:
    """A second client of the group, which knows no coordinator, asks every broker while the first
    one asks or commits. Whoever answers it has promised what the answer says."""
    for broker in sorted(world.brokers):
        number = new_request(world)
        world.clients.asking_too[number] = replace(
            asking, f="committed", offset=None, request=number, to=broker, invoked_us=world.now_us
        )
        request = events.OffsetFetchRequested(number, asking.group, (partition,))
        world.send(CLIENT, broker, CLIENTS, request)


def _take_answer_too(world: World, body: effects.RespondOffsetFetch) -> None:
    asked = world.clients.asking_too.pop(body.request)
    ((_, position),) = body.results
    if body.error is Error.NONE and position.offset != INVALID_OFFSET:
        done = replace(asked, kind="ok", offset=position.offset, completed_us=world.now_us)
        _note(world, done)


def _coordinator(world: World, group: str) -> int | None:
    """As the clients believe; asked anew where that broker is dead."""
    known = world.clients.coordinators.get(group)
    if known is not None and known in world.brokers:
        return known
    assert world.spec.offsets is not None, "no __consumer_offsets in this world"
    partition = partition_for(group, len(world.spec.offsets.assignment))
    newest = newest_leader(world, partition)
    if newest is not None:
        world.clients.coordinators[group] = newest
    return newest


# --- what comes of it ----------------------------------------------------------------------------


def take_answer(world: World, body: object) -> None:
    asking = world.clients.asking
    if getattr(body, "request", None) in world.clients.asking_too:
        assert isinstance(body, effects.RespondOffsetFetch)
        _take_answer_too(world, body)
        return
    if asking is None or getattr(body, "request", None) != asking.request:
        return
    match body:
        case effects.RespondOffsetCommit(_, ((_, error),)):
            found = asking.offset
        case effects.RespondOffsetFetch(_, error, ((_, position),)):
            found = None if position.offset == INVALID_OFFSET else position.offset
        case _:
            raise AssertionError(f"no client of a group is sent {body}")
    if error is not Error.NONE:
        _not_answered(world, asking)
        return
    world.clients.asking = None
    done = replace(asking, kind="ok", offset=found, completed_us=world.now_us)
    if done.f == "commit":
        assert found is not None
        world.clients.committed[done.group, done.partition] = found
    _note(world, done)


def _note(world: World, done: GroupOperation) -> None:
    world.clients.group_operations += (done,)
    if world.recorder is not None:
        world.recorder.of_group(world, done)


def _not_answered(world: World, asking: GroupOperation) -> None:
    """Refused, lost or late: somebody else may be asked."""
    world.clients.asking = replace(asking, request=None)
    world.clients.coordinators.pop(asking.group, None)
    try_later(world)


def is_late(world: World, request: int) -> bool:
    """Whether it was this that was waited for; then it is asked again."""
    asking = world.clients.asking
    if asking is None or asking.request != request:
        return False
    _not_answered(world, asking)
    return True


def connection_lost(world: World, lost: Entry) -> None:
    """What waited on a link between a client and a broker is lost with its connection."""
    if isinstance(lost.body, _MESSAGES):
        is_late(world, lost.body.request)


def broken(world: World, broker_id: int) -> None:
    """A broker is dead: the connections to it are broken."""
    clients = world.clients
    asking = clients.asking
    if asking is not None and asking.request is not None and asking.to == broker_id:
        _not_answered(world, asking)
    clients.coordinators = {g: b for g, b in clients.coordinators.items() if b != broker_id}
