"""What an idempotent producer makes of answers, and of none: it sends again, the same sequence.

As librdkafka does it: a record is sent until it is acknowledged or its time is over, those behind
it wait where they are refused for its sake, and where the order is lost for good the producer ends
and another one, with a new id, takes its place. Who hands the ids out is not played here: each
client has one for each partition. Source: KIP-98, and librdkafka's "Idempotent Producer".
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.model import ProducerSequence
from neaptide.clusters.simulation.client_node import ClientNode
from neaptide.clusters.simulation.clients import Outcome, Send

SOCKET_TIMEOUT_MS: Final = 6_000  # workloads.kafka_clients: no answer in that time, ask again
# Of no use to send again.
NEVER_TAKEN: Final = frozenset(
    {Error.RECORD_TOO_LARGE, Error.INVALID_REQUIRED_ACKS, Error.INVALID_PRODUCER_EPOCH}
)
# The leader misses what came before: it may be on its way, or be lost for good.
GAP: Final = frozenset({Error.OUT_OF_ORDER_SEQUENCE_NUMBER, Error.UNKNOWN_PRODUCER_ID})


def next_sequence(client: ClientNode, partition: int, to: int | None) -> ProducerSequence:
    """The sequence of a new record."""
    sequence = client.sequences.get((partition, to))
    if sequence is None:
        sequence = ProducerSequence(client.next_producer_id, 0, 0)
        client.next_producer_id += 1
    following = sequence._replace(base_sequence=sequence.base_sequence + 1)
    client.sequences[partition, to] = following
    return sequence


def take_answer(client: ClientNode, send: Send, error: Error, offset: int) -> bool:
    """What an answer settles; False: the record must be sent again."""
    now_us = client.network.now_us
    if error is Error.NONE:
        client.settle(send, Outcome("ok", now_us, offset))
    elif error is Error.DUPLICATE_SEQUENCE_NUMBER:  # appended before; where, is not said
        client.settle(send, Outcome("ok", now_us))
    elif error in NEVER_TAKEN or (error in GAP and _is_first(client, send)):
        give_up(client, send, Outcome("info", now_us, error=error.name))
    else:
        return False
    return True


def _is_first(client: ClientNode, send: Send) -> bool:
    """Nothing is before it that could still fill the gap."""
    return not any(
        other.number < send.number and _is_same(other, send) for other in client.unsettled
    )


def give_up(client: ClientNode, send: Send, outcome: Outcome) -> None:
    """The producer ends: of what it has sent nobody knows; what it has not is its successor's."""
    key = (send.partition, send.to)
    if key in client.sequences and _is_of(client.sequences[key], send):
        del client.sequences[key]
    client.settle(send, outcome)
    purged = Outcome("info", client.network.now_us, error="_PURGE_INFLIGHT")
    for number, (leader, sends) in tuple(client.in_flight.items()):
        kept = tuple(other for other in sends if not _is_same(other, send))
        if not kept:
            del client.in_flight[number]
        elif len(kept) < len(sends):
            client.in_flight[number] = (leader, kept)
        for other in sends:
            if other not in kept:
                client.settle(other, purged)
    waiting = []
    for other in client.waiting:
        if not _is_same(other, send):
            waiting.append(other)
        elif other.is_sent:
            client.settle(other, purged)
        else:
            sequence = next_sequence(client, other.partition, other.to)
            waiting.append(replace(other, sequence=sequence))
    client.waiting = tuple(waiting)


def _is_same(one: Send, other: Send) -> bool:
    """Whether both are of one producer."""
    return one.sequence is not None and _is_of(one.sequence, other)


def _is_of(sequence: ProducerSequence, send: Send) -> bool:
    return send.sequence is not None and sequence.producer_id == send.sequence.producer_id
