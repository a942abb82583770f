"""What the clients of a world do: send records, read partitions, and make of the answers what
librdkafka makes of them. What consumers commit is in committing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.simulation import committing, idempotent, transactional
from neaptide.clusters.simulation.asking import (
    AnswerLate,
    Retry,
    leader_of,
    try_later,
)
from neaptide.clusters.simulation.client_node import ClientNode
from neaptide.clusters.simulation.clients import (
    DEFINITE,
    MESSAGE_TIMEOUT_MS,
    RECORD_BYTES,
    REQUEST_TIMEOUT_MS,
    RESENT,
    RETRIABLE,
    FetchAnswered,
    Load,
    Outcome,
    Poll,
    Read,
    Send,
)
from neaptide.clusters.simulation.disk import values_of
from neaptide.clusters.simulation.network import CLIENT, CLIENTS, Entry

FROM_START = -1
BURST_MS = 500


class Burst(NamedTuple):
    """The load sends its next records."""


class LingerOver(NamedTuple):
    """A record has waited long enough for another one of its request."""


# --- what is asked of them -----------------------------------------------------------------------


def produce(
    client: ClientNode,
    value: str,
    acks: int,
    partition: int = 0,
    *,
    to: int | None = None,
    of_load: bool = False,
    size_bytes: int = RECORD_BYTES,
) -> None:
    """Sends a record, after those that wait already; `to`: by a client that knows this broker."""
    number, options = client.next_number, client.options
    send = Send(
        number,
        value,
        acks,
        partition,
        client.network.now_us,
        options.retries,
        to,
        of_load,
        size_bytes=size_bytes,
    )
    if options.idempotence:
        send = replace(send, sequence=idempotent.next_sequence(client, partition, to))
    client.next_number += 1
    client.waiting = (*client.waiting, send)
    _send_waiting(client)


def load(client: ClientNode, rate: float, acks: int) -> None:
    """Half of what is sent in a second, every half second, until `stop_load`."""
    client.load = Load(max(1, round(rate * BURST_MS / 1_000)), acks)
    client.network.later(0, Burst())


def stop_load(client: ClientNode) -> None:
    client.load = None


def consume(client: ClientNode, partition: int, phase: str, offset: int = FROM_START) -> None:
    """Begins to read a partition from its start, or an offset, to the high watermark."""
    client.found = ()
    client.reads_begun += 1
    client.reading = Read(
        partition,
        phase,
        offset,
        client.network.now_us,
        client.reads_begun,
        seeks_start=offset == FROM_START,
    )
    _read_on(client)


# --- sending -------------------------------------------------------------------------------------


def _send_waiting(client: ClientNode) -> None:
    """As many as may be in flight; where nobody leads, it is tried again after a while."""
    _settle_late(client)
    most = client.options.max_in_flight
    left: list[Send] = []
    gone: set[int] = set()  # in the request of another one
    for send in client.waiting:
        if send.number in gone:
            continue
        is_free = send.of_load and send.sequence is None
        if not is_free and (left or _in_flight(client) >= most or _lingers(client, send)):
            left.append(send)
            continue
        leader = leader_of(client, send.partition, send.to)
        if leader is None:
            left.append(send)
            try_later(client)
            continue
        sends = (send, *_others(client, leader, send))
        gone |= {one.number for one in sends}
        _send(client, leader, sends)
    client.waiting = tuple(left)


def _lingers(client: ClientNode, send: Send) -> bool:
    """It waits for a record of another partition, for a while."""
    linger_us = client.network.spec.linger_ms * 1_000
    if send.is_sent or client.network.now_us >= send.invoked_us + linger_us:
        return False
    if any(other.partition != send.partition for other in client.waiting):
        return False
    client.network.later(send.invoked_us + linger_us - client.network.now_us, LingerOver())
    return True


def _others(client: ClientNode, leader: int, send: Send) -> Iterator[Send]:
    """The first that waits of each other partition of this leader, with the same acks."""
    if not client.network.spec.linger_ms or send.of_load:
        return
    seen = {send.partition}
    for other in client.waiting:
        if other.partition in seen or other.of_load or other.number < send.number:
            continue
        seen.add(other.partition)
        fits = (other.to, other.acks) == (send.to, send.acks)
        if fits and leader_of(client, other.partition, other.to) == leader:
            yield other


def _in_flight(client: ClientNode) -> int:
    """How many requests the limit counts: those of a load only where order is kept."""
    if client.options.idempotence:
        return len(client.in_flight)
    return sum(not sends[0].of_load for _, sends in client.in_flight.values())


def _settle_late(client: ClientNode) -> None:
    """Whose time is over is not sent any more."""
    late_us = client.network.now_us - MESSAGE_TIMEOUT_MS * 1_000
    late = [send for send in client.waiting if send.invoked_us <= late_us]
    if not late:
        return
    client.waiting = tuple(send for send in client.waiting if send.invoked_us > late_us)
    outcome = Outcome("info", client.network.now_us, error="_MSG_TIMED_OUT")
    for send in late:
        if send.sequence is None:
            client.settle(send, outcome)
        elif send.value not in client.sends:
            idempotent.give_up(client, send, outcome)


def _send(client: ClientNode, leader: int, sends: tuple[Send, ...]) -> None:
    """In one request; all of the same acks, and with sequences or without."""
    topic, number, acks = client.network.spec.topic, client.network.number(), sends[0].acks
    batches = tuple(
        (
            TopicPartition(topic, send.partition),
            (events.ProducedBatch(1, send.size_bytes, send.value, producer=send.sequence),),
        )
        for send in sends
    )
    request = events.ProduceRequested(number, acks, REQUEST_TIMEOUT_MS, batches)
    client.network.send(CLIENT, leader, CLIENTS, request)
    if acks == 0:
        for send in sends:
            client.settle(send, Outcome("ok", client.network.now_us))
        return
    waits_ms = MESSAGE_TIMEOUT_MS
    if sends[0].sequence is not None:
        waits_ms = idempotent.SOCKET_TIMEOUT_MS
        sends = tuple(send if send.is_sent else replace(send, is_sent=True) for send in sends)
    client.in_flight[number] = (leader, sends)
    client.network.later(waits_ms * 1_000, AnswerLate(number))


# --- what happens to them ------------------------------------------------------------------------


def take(client: ClientNode, body: object) -> bool:
    """Something that a client had put off. True where it was still meant."""
    if isinstance(body, Retry):
        client.is_retrying = False
        _send_waiting(client)
        _read_on(client)
        committing.ask_again(client)
        transactional.go_on(client)
        return True
    if isinstance(body, LingerOver):
        _send_waiting(client)
        return True
    if isinstance(body, Burst):
        return _burst(client)
    assert isinstance(body, AnswerLate)
    entry = client.in_flight.get(body.request)
    reading = client.reading
    if entry is not None:
        _unanswered(client, body.request, "_MSG_TIMED_OUT")
        return True
    if reading is not None and reading.request == body.request:
        client.reading = replace(reading, request=None)
        client.leaders.pop((reading.partition, None), None)
        try_later(client)
        return True
    return committing.is_late(client, body.request) or transactional.is_late(client, body.request)


def _burst(client: ClientNode) -> bool:
    going = client.load
    if going is None:
        return False
    for _ in range(going.burst):
        value = f"load-{client.next_number}"
        produce(client, value, going.acks, of_load=True)
    client.network.later(BURST_MS * 1_000, Burst())
    return True


def _unanswered(client: ClientNode, number: int, why: str) -> None:
    _, sends = client.in_flight.pop(number)
    for send in reversed(sends):
        client.leaders.pop((send.partition, send.to), None)
        _again_or(client, send, Outcome("info", client.network.now_us, error=why))
    _send_waiting(client)


def _again_or(client: ClientNode, send: Send, outcome: Outcome) -> None:
    if send.sequence is not None:
        client.wait_again(send)
        try_later(client)
    elif send.retries_left:
        client.wait_again(replace(send, retries_left=send.retries_left - 1, is_sent=True))
        try_later(client)
    else:
        client.settle(send, outcome)


def break_connection(client: ClientNode, lost: Entry) -> None:
    """What waited on a link between a client and a broker is lost with its connection."""
    client.network.remove(lambda entry: entry is lost)
    if isinstance(lost.body, effects.RespondProduce | events.ProduceRequested):
        number = lost.body.request
        if number in client.in_flight:
            _unanswered(client, number, "_TRANSPORT")
    reading = client.reading
    if reading is not None and isinstance(lost.body, FetchAnswered | events.FetchRequested):
        client.reading = replace(reading, request=None)
        try_later(client)
    committing.connection_lost(client, lost)
    transactional.connection_lost(client, lost)


def broken(client: ClientNode, broker_id: int) -> None:
    """A broker is dead: the connections to it are broken."""
    for number, (leader, _) in tuple(client.in_flight.items()):
        if leader == broker_id and number in client.in_flight:
            _unanswered(client, number, "_TRANSPORT")
    reading = client.reading
    if reading is not None and client.leaders.get((reading.partition, None)) == broker_id:
        client.reading = replace(reading, request=None)
        try_later(client)
    for known, leader in tuple(client.leaders.items()):
        if leader == broker_id:
            del client.leaders[known]
    committing.broken(client, broker_id)
    transactional.broken(client, broker_id)


def take_answer(client: ClientNode, body: object) -> None:
    """A broker's answer has arrived."""
    if transactional.take_answer(client, body):
        return
    if isinstance(body, effects.RespondProduce):
        _on_produced(client, body)
    elif isinstance(body, FetchAnswered):
        _on_read(client, body)
    else:
        committing.take_answer(client, body)


def _on_produced(client: ClientNode, body: effects.RespondProduce) -> None:
    entry = client.in_flight.pop(body.request, None)
    if entry is None:
        return
    results = {result.partition.partition: result for result in body.results}
    for send in reversed(entry[1]):
        result = results.get(send.partition)
        if result is None:
            client.settle(send, Outcome("info", client.network.now_us, error="no answer"))
        else:
            _on_result(client, send, result)
    if not client.is_retrying:
        _send_waiting(client)


def _on_result(client: ClientNode, send: Send, result: effects.ProducedPartition) -> None:
    """What is answered of one partition."""
    now_us = client.network.now_us
    if send.sequence is not None:
        if not idempotent.take_answer(client, send, result.error, result.base_offset):
            if result.error in RESENT:
                client.leaders.pop((send.partition, send.to), None)
            client.wait_again(send)
            try_later(client)
    elif result.error is Error.NONE:
        client.settle(send, Outcome("ok", now_us, result.base_offset))
    elif result.error in DEFINITE and not (result.error in RETRIABLE and send.retries_left):
        kind = "info" if send.is_sent else "fail"
        client.settle(send, Outcome(kind, now_us, error=result.error.name))
    elif result.error in RESENT:  # a leader that steps down may have appended it
        client.leaders.pop((send.partition, send.to), None)
        client.wait_again(replace(send, is_sent=True))
        try_later(client)
    else:
        _again_or(client, send, Outcome("info", now_us, error=result.error.name))


# --- reading -------------------------------------------------------------------------------------


def _read_on(client: ClientNode) -> None:
    reading = client.reading
    if reading is None or reading.request is not None:
        return
    leader = leader_of(client, reading.partition)
    if leader is None:
        try_later(client)
        return
    partition = TopicPartition(client.network.spec.topic, reading.partition)
    offset = reading.offset
    if offset < 0:  # from the start: as auto.offset.reset=earliest has it
        log = client.brokers[leader].disk.logs.get(partition)
        offset = log.start_offset if log else 0
    number = client.network.number()
    asked = events.FetchedPartition(partition, offset, 1 << 20)
    client.reading = replace(reading, offset=offset, request=number)
    is_committed = client.network.spec.transactions is not None
    request = events.FetchRequested(number, -1, 0, 0, (asked,), is_committed=is_committed)
    client.network.send(CLIENT, leader, CLIENTS, request)
    client.network.later(REQUEST_TIMEOUT_MS * 1_000, AnswerLate(number))


def _on_read(client: ClientNode, body: FetchAnswered) -> None:
    """It reads to the high watermark: where a transaction is open before that, it waits."""
    reading = client.reading
    if reading is None or reading.request != body.request:
        return
    result = body.result
    if result.error is not Error.NONE:
        is_out_of_range = result.error is Error.OFFSET_OUT_OF_RANGE
        # Who does not lead says nothing of where the log starts either.
        seeks = is_out_of_range or reading.seeks_start
        offset = FROM_START if seeks else reading.offset
        client.reading = replace(reading, offset=offset, request=None, seeks_start=seeks)
        client.leaders.pop((reading.partition, None), None)
        try_later(client)
        return
    found = [
        (batch.base_offset + index, batch.leader_epoch, value)
        for batch in body.committed
        for index, value in enumerate(values_of(batch))
        if batch.base_offset + index >= reading.offset
    ]
    records = tuple((offset, str(value)) for offset, _, value in found)
    if records:
        client.found += records
        client.polls += (Poll(reading.number, reading.phase, records, reading.partition),)
    if reading.phase == "main":
        client.consumed.update((value, offset) for offset, value in records)
    if client.network.recorder is not None:
        client.network.recorder.polled(reading, found)
    next_offset = result.batches[-1].next_offset if result.batches else reading.offset
    if next_offset >= result.high_watermark:
        client.reading = None
        client.reads_done += 1
        client.read_end = next_offset
        return
    client.reading = replace(reading, offset=next_offset, request=None, seeks_start=False)
    if result.batches:
        _read_on(client)
    else:
        try_later(client)
