"""Producers of transactions: each has a transactional id, and does one thing after the other.

As Java's and librdkafka's do it: it asks the coordinator for its producer id and epoch, adds each
partition before the first record to it, sends one record at a time until that is acknowledged, and
asks for the end until that is answered. What a transaction came to is known of all of its records
at once. Source: KIP-98, KIP-360.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.model import ProducerSequence, TopicPartition
from neaptide.clusters.broker.replication.transaction.transaction_metadata import (
    TRANSACTIONS_TOPIC,
)
from neaptide.clusters.simulation.asking import (
    AnswerLate,
    coordinator_of,
    forget_coordinator,
    leader_of,
    try_later,
)
from neaptide.clusters.simulation.blocking import is_held
from neaptide.clusters.simulation.client_node import ClientNode
from neaptide.clusters.simulation.clients import (
    RECORD_BYTES,
    REQUEST_TIMEOUT_MS,
    Asked,
    Outcome,
    Send,
    TransactionalProducer,
)
from neaptide.clusters.simulation.network import CLIENT, CLIENTS, Entry

ACKS_ALL: Final = -1
TIMEOUT_MS: Final = 60_000  # transaction.timeout.ms
_AGAIN: Final = frozenset(
    {
        Error.COORDINATOR_NOT_AVAILABLE,
        Error.NOT_COORDINATOR,
        Error.CONCURRENT_TRANSACTIONS,
        Error.REQUEST_TIMED_OUT,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.NOT_ENOUGH_REPLICAS,
        Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }
)
# After these of a Produce the transaction can be aborted, and the producer goes on.
_ABORTABLE: Final = frozenset(
    {Error.OUT_OF_ORDER_SEQUENCE_NUMBER, Error.UNKNOWN_PRODUCER_ID, Error.INVALID_TXN_STATE}
)
_OF_2_5: Final = 12  # the version of Fetch of the first generation here that has KIP-360
_REQUESTS: Final = (
    events.InitProducerIdRequested,
    events.AddPartitionsToTxnRequested,
    events.ProduceRequested,
    events.EndTxnRequested,
    effects.RespondInitProducerId,
    effects.RespondTransaction,
    effects.RespondProduce,
)


# --- what is asked of them -----------------------------------------------------------------------


def open_producer(
    client: ClientNode,
    name: str,
    transactional_id: str,
    *,
    is_raw: bool = False,
    timeout_ms: int = TIMEOUT_MS,
) -> None:
    """It begins to ask for its producer id and epoch."""
    _put(client, TransactionalProducer(name, transactional_id, timeout_ms, is_raw))
    _go_on(client, name)


def begin(client: ClientNode, name: str) -> None:
    client.transactions_begun += 1
    _put(client, replace(client.transactional[name], transaction=client.transactions_begun))


def send(client: ClientNode, name: str, value: str, partition: int = 0) -> None:
    """Of a producer that can send nothing any more, nothing leaves it."""
    one = client.transactional[name]
    number = client.next_number
    client.next_number += 1
    record = Send(
        number,
        value,
        ACKS_ALL,
        partition,
        client.network.now_us,
        size_bytes=RECORD_BYTES,
        client=name,
        transaction=one.transaction,
    )
    _put(client, replace(one, sent=(*one.sent, record), sending=(*one.sending, record)))
    _go_on(client, name)


def end(client: ClientNode, name: str, *, commits: bool) -> None:
    """Begins to end a transaction. It cannot be committed after an error.

    What is in flight of one that is aborted is awaited, but by a raw producer.
    """
    one = client.transactional[name]
    if one.is_over or (commits and one.error):
        _settle(client, name, Outcome("info", client.network.now_us, error=one.error))
        return
    if not commits:
        in_flight = one.asked is not None and one.asked.what == "produce"
        one = replace(one, sending=one.sending[:1] if in_flight and not one.is_raw else ())
        if in_flight and one.is_raw:
            _abandon(client, one)
            one = replace(one, asked=None)
    _put(client, replace(one, ending=commits))
    _go_on(client, name)


def give_up(client: ClientNode, name: str) -> None:
    """Nobody waits any longer for what it does: nobody knows the end of its transaction."""
    one = client.transactional[name]
    _put(client, replace(one, is_over=True, error="_TIMED_OUT"))
    _settle(client, name, Outcome("info", client.network.now_us, error="_TIMED_OUT"))


def die(client: ClientNode, name: str) -> None:
    """Its process is gone. What it has sent is on its way."""
    _abandon(client, client.transactional[name])
    _settle(client, name, Outcome("info", client.network.now_us, error="_DESTROY"))
    del client.transactional[name]


def _abandon(client: ClientNode, one: TransactionalProducer) -> None:
    """Its connection is closed: a request that a rule holds may still arrive."""
    if one.asked is None:
        return
    number = one.asked.request

    def is_held_up(entry: Entry) -> bool:
        is_request = getattr(entry.body, "request", None) == number
        return is_request and entry in client.network.waiting and is_held(client.network, entry)

    client.network.abandon(client.network.remove(is_held_up))
    client.network.unblock()


# --- what it does next ---------------------------------------------------------------------------


def go_on(client: ClientNode) -> None:
    for name in tuple(client.transactional):
        _go_on(client, name)


def _go_on(client: ClientNode, name: str) -> None:
    one = client.transactional[name]
    what = _next(one)
    if what is None:
        return
    if what == "end" and not one.added:  # there is nothing of it on any broker
        _ended(client, name)
        return
    to = (
        leader_of(client, one.sending[0].partition)
        if what == "produce"
        else coordinator_of(client, one.transactional_id, TRANSACTIONS_TOPIC)
    )
    if to is None:
        try_later(client)
        return
    number = client.network.number()
    client.network.send(CLIENT, to, CLIENTS, _request(client, one, what, number))
    client.network.later(REQUEST_TIMEOUT_MS * 1_000, AnswerLate(number))
    _put(client, replace(one, asked=Asked(number, to, what)))


def _next(one: TransactionalProducer) -> str | None:
    if one.is_over or one.asked is not None:
        return None
    if not one.is_initialized:
        return "init"
    if one.sending and not one.error:
        return "produce" if one.sending[0].partition in one.added else "add"
    return "end" if one.ending is not None else None


def _request(client: ClientNode, one: TransactionalProducer, what: str, number: int) -> object:
    of = (one.transactional_id, one.producer_id, one.producer_epoch)
    match what:
        case "init":
            named = (one.producer_id, one.producer_epoch)
            return events.InitProducerIdRequested(
                number, one.transactional_id, one.timeout_ms, *named
            )
        case "add":
            return events.AddPartitionsToTxnRequested(number, *of, (_place(client, one),))
        case "produce":
            record = one.sending[0]
            sequence = ProducerSequence(*of[1:], one.sequences.get(record.partition, 0), True)
            batch = events.ProducedBatch(1, record.size_bytes, record.value, producer=sequence)
            places = ((_place(client, one), (batch,)),)
            return events.ProduceRequested(number, ACKS_ALL, REQUEST_TIMEOUT_MS, places, of[0])
        case _:
            assert one.ending is not None
            return events.EndTxnRequested(number, *of, one.ending)


def _place(client: ClientNode, one: TransactionalProducer) -> TopicPartition:
    return TopicPartition(client.network.spec.topic, one.sending[0].partition)


def _put(client: ClientNode, one: TransactionalProducer) -> None:
    client.transactional[one.name] = one


# --- what comes of it ----------------------------------------------------------------------------


def _who_asked(client: ClientNode, request: int | None) -> TransactionalProducer | None:
    for one in client.transactional.values():
        if one.asked is not None and one.asked.request == request:
            return one
    return None


def take_answer(client: ClientNode, body: Any) -> bool:
    """False: it is another client's."""
    one = _who_asked(client, getattr(body, "request", None))
    if one is None:
        return isinstance(body, effects.RespondInitProducerId | effects.RespondTransaction)
    assert one.asked is not None
    asked, one = one.asked, replace(one, asked=None)
    error = _error_of(body)
    if error is Error.NONE:
        _put(client, _after(one, asked.what, body))
        if asked.what == "end":
            _ended(client, one.name)
            return True
    elif error is Error.DUPLICATE_SEQUENCE_NUMBER:
        _put(client, _written(one, None))
    elif error in _AGAIN:
        _put(client, one)
        _ask_later(client, asked)
        return True
    elif asked.what == "produce" and error in _ABORTABLE:
        _put(client, replace(one, error=error.name, sending=()))
    else:
        _fail(client, one, error)
        return True
    _go_on(client, one.name)
    return True


def _error_of(body: Any) -> Error:
    match body:
        case effects.RespondProduce(results=(result, *_)):
            return result.error
        case effects.RespondTransaction(partitions=((_, error), *_)):
            return error
    return Error(body.error)


def _after(one: TransactionalProducer, what: str, body: Any) -> TransactionalProducer:
    match what:
        case "init":
            return replace(
                one,
                producer_id=body.producer_id,
                producer_epoch=body.producer_epoch,
                is_initialized=True,
                sequences={},
            )
        case "add":
            return replace(one, added=one.added | {one.sending[0].partition})
        case "produce":
            return _written(one, body.results[0].base_offset)
    return one


def _written(one: TransactionalProducer, offset: int | None) -> TransactionalProducer:
    record, *left = one.sending
    sequence = one.sequences.get(record.partition, 0) + 1
    return replace(
        one,
        sending=tuple(left),
        written={**one.written, record.value: offset},
        sequences={**one.sequences, record.partition: sequence},
    )


def _fail(client: ClientNode, one: TransactionalProducer, error: Error) -> None:
    """It is fenced, or knows no way on."""
    _put(client, replace(one, error=error.name, is_over=True))
    if one.ending is not None:
        _settle(client, one.name, Outcome("info", client.network.now_us, error=error.name))


def _ended(client: ClientNode, name: str) -> None:
    """The coordinator has decided as it was asked to."""
    one = client.transactional[name]
    kind = "ok" if one.ending else "fail"
    _settle(client, name, Outcome(kind, client.network.now_us))
    one = client.transactional[name]
    if one.error:  # its sequences are no longer known: a new epoch begins (KIP-360)
        knows = client.network.spec.rules.fetch_version >= _OF_2_5
        _put(client, replace(one, error="", is_initialized=False, is_over=not knows))
        _go_on(client, name)


def _settle(client: ClientNode, name: str, outcome: Outcome) -> None:
    """A transaction is one operation: all of it happened, or nothing, or nobody knows."""
    one = client.transactional[name]
    for record in one.sent:
        client.settle(record, replace(outcome, offset=one.written.get(record.value)))
    ended = outcome.kind != "info" or one.is_over
    _put(
        client,
        replace(
            one,
            transaction=None if ended else one.transaction,
            added=frozenset() if ended else one.added,
            sent=(),
            sending=(),
            written={},
            ending=None,
            asked=None,
        ),
    )


def _ask_later(client: ClientNode, asked: Asked) -> None:
    if asked.what == "produce":
        client.leaders = {key: one for key, one in client.leaders.items() if one != asked.to}
    else:
        forget_coordinator(client, asked.to)
    try_later(client)


def _unanswered(client: ClientNode, one: TransactionalProducer) -> None:
    assert one.asked is not None
    _put(client, replace(one, asked=None))
    _ask_later(client, one.asked)


def is_late(client: ClientNode, request: int) -> bool:
    """Whether it was this that was waited for; then it is asked again."""
    one = _who_asked(client, request)
    if one is None:
        return False
    _unanswered(client, one)
    return True


def connection_lost(client: ClientNode, lost: Entry) -> None:
    if isinstance(lost.body, _REQUESTS):
        is_late(client, lost.body.request)


def broken(client: ClientNode, broker_id: int) -> None:
    """A broker is dead: the connections to it are broken."""
    for one in tuple(client.transactional.values()):
        if one.asked is not None and one.asked.to == broker_id:
            _unanswered(client, one)
