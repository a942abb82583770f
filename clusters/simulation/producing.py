"""What the clients of a world do: send records, read partitions, and make of the answers what
librdkafka makes of them. What consumers commit is in committing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.simulation import committing, fetching, idempotent
from neaptide.clusters.simulation.asking import (
    AnswerLate,
    Retry,
    new_request,
    newest_leader,
    try_later,
)
from neaptide.clusters.simulation.clients import (
    DEFINITE,
    MESSAGE_TIMEOUT_MS,
    RECORD_BYTES,
    REQUEST_TIMEOUT_MS,
    RESENT,
    RETRIABLE,
    Load,
    Outcome,
    Poll,
    Read,
    Send,
)
from neaptide.clusters.simulation.disk import values_of
from neaptide.clusters.simulation.network import CLIENT, CLIENTS, Entry, Link

if TYPE_CHECKING:
    from neaptide.clusters.simulation.world import World

FROM_START = -1
BURST_MS = 500


class Burst(NamedTuple):
    """The load sends its next records."""


# --- what is asked of them -----------------------------------------------------------------------


def produce(
    world: World,
    value: str,
    acks: int,
    partition: int = 0,
    *,
    to: int | None = None,
    of_load: bool = False,
    size_bytes: int = RECORD_BYTES,
) -> None:
    """Sends a record, after those that wait already; `to`: by a client that knows this broker."""
    clients = world.clients
    number, options = clients.next_number, clients.options
    send = Send(
        number,
        value,
        acks,
        partition,
        world.now_us,
        options.retries,
        to,
        of_load,
        size_bytes=size_bytes,
    )
    if options.idempotence:
        send = replace(send, sequence=idempotent.next_sequence(world, partition, to))
    clients.next_number += 1
    clients.waiting = (*clients.waiting, send)
    _send_waiting(world)


def load(world: World, rate: float, acks: int) -> None:
    """Half of what is sent in a second, every half second, until `stop_load`."""
    world.clients.load = Load(max(1, round(rate * BURST_MS / 1_000)), acks)
    world.later(0, Burst())


def stop_load(world: World) -> None:
    world.clients.load = None


def consume(world: World, partition: int, phase: str, offset: int = FROM_START) -> None:
    """Begins to read a partition from its start, or an offset, to the high watermark."""
    clients = world.clients
    clients.found = ()
    clients.reads_begun += 1
    clients.reading = Read(partition, phase, offset, world.now_us, clients.reads_begun)
    _read_on(world)


# --- sending -------------------------------------------------------------------------------------


def _send_waiting(world: World) -> None:
    """As many as may be in flight; where nobody leads, it is tried again after a while."""
    _settle_late(world)
    clients = world.clients
    most = clients.options.max_in_flight
    left: list[Send] = []
    for send in clients.waiting:
        is_free = send.of_load and send.sequence is None
        if not is_free and (left or _in_flight(world) >= most):
            left.append(send)
            continue
        leader = _leader(world, send.partition, send.to)
        if leader is None:
            left.append(send)
            try_later(world)
            continue
        _send(world, leader, send)
    clients.waiting = tuple(left)


def _in_flight(world: World) -> int:
    """How many requests the limit counts: those of a load only where order is kept."""
    clients = world.clients
    if clients.options.idempotence:
        return len(clients.in_flight)
    return sum(not other.of_load for _, other in clients.in_flight.values())


def _settle_late(world: World) -> None:
    """Whose time is over is not sent any more."""
    clients = world.clients
    late_us = world.now_us - MESSAGE_TIMEOUT_MS * 1_000
    late = [send for send in clients.waiting if send.invoked_us <= late_us]
    if not late:
        return
    clients.waiting = tuple(send for send in clients.waiting if send.invoked_us > late_us)
    outcome = Outcome("info", world.now_us, error="_MSG_TIMED_OUT")
    for send in late:
        if send.sequence is None:
            clients.settle(send, outcome)
        elif send.value not in clients.sends:
            idempotent.give_up(world, send, outcome)


def _send(world: World, leader: int, send: Send) -> None:
    partition = TopicPartition(world.spec.topic, send.partition)
    batches = (events.ProducedBatch(1, send.size_bytes, send.value, producer=send.sequence),)
    number = new_request(world)
    request = events.ProduceRequested(
        number, send.acks, REQUEST_TIMEOUT_MS, ((partition, batches),)
    )
    world.send(CLIENT, leader, CLIENTS, request)
    if send.acks == 0:
        world.clients.settle(send, Outcome("ok", world.now_us))
        return
    waits_ms = MESSAGE_TIMEOUT_MS
    if send.sequence is not None:
        waits_ms = idempotent.SOCKET_TIMEOUT_MS
        send = send if send.is_sent else replace(send, is_sent=True)
    world.clients.in_flight[number] = (leader, send)
    world.later(waits_ms * 1_000, AnswerLate(number))


def _leader(world: World, partition: int, to: int | None = None) -> int | None:
    """Who leads, as the clients believe; asked anew where that broker is dead."""
    known = world.clients.leaders.get((partition, to))
    if known is not None and known in world.brokers:
        return known
    newest = newest_leader(world, TopicPartition(world.spec.topic, partition), to)
    if newest is not None:
        world.clients.leaders[partition, to] = newest
    return newest


# --- what happens to them ------------------------------------------------------------------------


def take(world: World, body: object) -> bool:
    """Something that a client had put off. True where it was still meant."""
    if isinstance(body, Retry):
        world.clients.is_retrying = False
        _send_waiting(world)
        _read_on(world)
        committing.ask_again(world)
        return True
    if isinstance(body, Burst):
        return _burst(world)
    assert isinstance(body, AnswerLate)
    entry = world.clients.in_flight.get(body.request)
    reading = world.clients.reading
    if entry is not None:
        _unanswered(world, body.request, "_MSG_TIMED_OUT")
        return True
    if reading is not None and reading.request == body.request:
        world.clients.reading = replace(reading, request=None)
        world.clients.leaders.pop((reading.partition, None), None)
        try_later(world)
        return True
    return committing.is_late(world, body.request)


def _burst(world: World) -> bool:
    going = world.clients.load
    if going is None:
        return False
    for _ in range(going.burst):
        value = f"load-{world.clients.next_number}"
        produce(world, value, going.acks, of_load=True)
    world.later(BURST_MS * 1_000, Burst())
    return True


def _unanswered(world: World, number: int, why: str) -> None:
    _, send = world.clients.in_flight.pop(number)
    world.clients.leaders.pop((send.partition, send.to), None)
    _again_or(world, send, Outcome("info", world.now_us, error=why))
    _send_waiting(world)


def _again_or(world: World, send: Send, outcome: Outcome) -> None:
    clients = world.clients
    if send.sequence is not None:
        clients.wait_again(send)
        try_later(world)
    elif send.retries_left:
        clients.wait_again(replace(send, retries_left=send.retries_left - 1, is_sent=True))
        try_later(world)
    else:
        clients.settle(send, outcome)


def break_connection(world: World, lost: Entry) -> None:
    """What waited on a link between a client and a broker is lost with its connection."""
    world.remove(lambda entry: entry is lost)
    if isinstance(lost.body, effects.RespondProduce | events.ProduceRequested):
        number = lost.body.request
        if number in world.clients.in_flight:
            _unanswered(world, number, "_TRANSPORT")
    reading = world.clients.reading
    if reading is not None and isinstance(lost.body, events.FetchResponded | events.FetchRequested):
        world.clients.reading = replace(reading, request=None)
        try_later(world)
    committing.connection_lost(world, lost)


def broken(world: World, broker_id: int) -> None:
    """A broker is dead: the connections to it are broken."""
    clients = world.clients
    for number, (leader, _) in tuple(clients.in_flight.items()):
        if leader == broker_id and number in clients.in_flight:
            _unanswered(world, number, "_TRANSPORT")
    reading = clients.reading
    if reading is not None and clients.leaders.get((reading.partition, None)) == broker_id:
        clients.reading = replace(reading, request=None)
        try_later(world)
    for known, leader in tuple(clients.leaders.items()):
        if leader == broker_id:
            del clients.leaders[known]
    committing.broken(world, broker_id)


def respond(world: World, broker_id: int, effect: Any) -> None:
    """A broker answers a client."""
    answer: object = effect
    if isinstance(effect, effects.RespondFetch):
        answer = events.FetchResponded(
            events.FetcherId(broker_id, 0),
            effect.request,
            fetching.read(world, broker_id, effect.results),
        )
    world.send(broker_id, CLIENT, CLIENTS, answer)


def deliver(world: World, link: Link, body: object) -> None:
    """A message between a client and a broker has arrived."""
    if link.target != CLIENT:
        if link.target in world.brokers:
            world.handle(link.target, body)
    elif isinstance(body, effects.RespondProduce):
        _on_produced(world, body)
    elif isinstance(body, events.FetchResponded):
        _on_read(world, body)
    else:
        committing.take_answer(world, body)


def _on_produced(world: World, body: effects.RespondProduce) -> None:
    entry = world.clients.in_flight.pop(body.request, None)
    if entry is None:
        return
    send, result = entry[1], body.results[0]
    now_us = world.now_us
    if send.sequence is not None:
        if not idempotent.take_answer(world, send, result.error, result.base_offset):
            if result.error in RESENT:
                world.clients.leaders.pop((send.partition, send.to), None)
            world.clients.wait_again(send)
            try_later(world)
    elif result.error is Error.NONE:
        world.clients.settle(send, Outcome("ok", now_us, result.base_offset))
    elif result.error in DEFINITE and not (result.error in RETRIABLE and send.retries_left):
        kind = "info" if send.is_sent else "fail"
        world.clients.settle(send, Outcome(kind, now_us, error=result.error.name))
    elif result.error in RESENT:
        world.clients.leaders.pop((send.partition, send.to), None)
        world.clients.wait_again(send)
        try_later(world)
    else:
        _again_or(world, send, Outcome("info", now_us, error=result.error.name))
    if not world.clients.is_retrying:
        _send_waiting(world)


# --- reading -------------------------------------------------------------------------------------


def _read_on(world: World) -> None:
    reading = world.clients.reading
    if reading is None or reading.request is not None:
        return
    leader = _leader(world, reading.partition)
    if leader is None:
        try_later(world)
        return
    partition = TopicPartition(world.spec.topic, reading.partition)
    offset = reading.offset
    if offset < 0:  # from the start: as auto.offset.reset=earliest has it
        log = world.disks[leader].logs.get(partition)
        offset = log.start_offset if log else 0
    number = new_request(world)
    asked = events.FetchedPartition(partition, offset, 1 << 20)
    world.clients.reading = replace(reading, offset=offset, request=number)
    world.send(CLIENT, leader, CLIENTS, events.FetchRequested(number, -1, 0, 0, (asked,)))
    world.later(REQUEST_TIMEOUT_MS * 1_000, AnswerLate(number))


def _on_read(world: World, body: events.FetchResponded) -> None:
    clients = world.clients
    reading = clients.reading
    if reading is None or reading.request != body.sequence:
        return
    result = body.results[0]
    if result.error is not Error.NONE:
        is_out_of_range = result.error is Error.OFFSET_OUT_OF_RANGE
        offset = -1 if is_out_of_range else reading.offset
        clients.reading = replace(reading, offset=offset, request=None)
        clients.leaders.pop((reading.partition, None), None)
        try_later(world)
        return
    found = [
        (batch.base_offset + index, batch.leader_epoch, value)
        for batch in result.batches
        for index, value in enumerate(values_of(batch))
        if batch.base_offset + index >= reading.offset
    ]
    records = tuple((offset, str(value)) for offset, _, value in found)
    if records:
        clients.found += records
        clients.polls += (Poll(reading.number, reading.phase, records, reading.partition),)
    if reading.phase == "main":
        clients.consumed.update((value, offset) for offset, value in records)
    if world.recorder is not None:
        world.recorder.polled(world, found)
    next_offset = result.batches[-1].next_offset if result.batches else reading.offset
    if next_offset >= result.high_watermark:
        clients.reading = None
        clients.reads_done += 1
        clients.read_end = next_offset
    else:
        clients.reading = replace(reading, offset=next_offset, request=None)
        _read_on(world)
