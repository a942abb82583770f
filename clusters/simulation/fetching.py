"""Followers' requests on their way: what is asked and answered, and what the wire has shown of it.

Also how such a request ends without an answer: its connection breaks, or its time is over.
"""

from __future__ import annotations

from typing import Any, Final

from neaptide.clusters.broker.replication.errors import FENCED, Error
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.simulation.broker_node import BrokerNode
from neaptide.clusters.simulation.network import FETCH, Entry, Link
from neaptide.clusters.simulation.network_node import Network
from neaptide.clusters.simulation.parts import Asked, FetchPosition, RequestTimedOut

Answer = events.FetchResponded | events.OffsetForLeaderEpochResponded | events.ListOffsetsResponded
ANSWERS: Final = (
    events.FetchResponded,
    events.OffsetForLeaderEpochResponded,
    events.ListOffsetsResponded,
)


def time_out(network: Network, number: int) -> None:
    due_us = network.asked[number].sent_us + network.spec.socket_timeout_ms * 1_000
    network.later(max(0, due_us - network.now_us), RequestTimedOut(number))


def take_time_out(network: Network, number: int, due_us: int) -> bool:
    """False: it was answered."""
    if number not in network.asked:
        return False
    network.reach(due_us)
    fail_request(network, number)
    return True


def expect_time_out(network: Network, entry: Entry) -> None:
    """A follower's request, or its answer, is kept up: the follower will not wait for ever."""
    assert entry.link is not None
    number = getattr(entry.body, "request", None)
    if isinstance(entry.body, ANSWERS):
        number = asked_by(network, entry.link.target, entry.body)
    if number in network.asked:
        time_out(network, number)


def asked_by(network: Network, broker_id: int, body: object) -> int | None:
    """The number of the request that an answer on its way to this broker answers."""
    sequence = getattr(body, "sequence", None)
    for number, asked in network.asked.items():
        if asked.broker == broker_id and asked.effect.sequence == sequence:
            return number
    return None


def ask(
    node: BrokerNode,
    effect: effects.SendFetch | effects.SendOffsetForLeaderEpoch | effects.SendListOffsets,
) -> None:
    network, broker_id, leader = node.network, node.broker_id, effect.fetcher.leader
    number = network.number()
    network.asked[number] = Asked(broker_id, leader, effect, network.now_us)
    if leader not in network.listening:
        fail_request(network, number)
        return
    request: object
    match effect:
        case effects.SendFetch():
            note_request(node, leader, effect)
            request = events.FetchRequested(
                number,
                broker_id,
                effect.max_wait_ms,
                effect.min_bytes,
                effect.partitions,
                effect.broker_epoch,
            )
        case effects.SendOffsetForLeaderEpoch():
            request = events.OffsetForLeaderEpochRequested(number, effect.partitions)
        case effects.SendListOffsets():
            request = events.ListOffsetsRequested(number, broker_id, effect.partitions)
    entry = network.send(broker_id, leader, FETCH, request)
    if network.recorder is not None and isinstance(request, events.FetchRequested):
        network.recorder.asked(entry)


def note_request(node: BrokerNode, leader: int, effect: effects.SendFetch) -> None:
    network, broker_id, shown = node.network, node.broker_id, node.network.shown
    for asked in effect.partitions:
        if asked.partition != network.partition:
            continue
        held = node.core.partitions.get(asked.partition)
        if held is None:  # deleted after it had asked, by the same event
            continue
        epoch = held.leader_epoch
        key = (broker_id, leader, epoch)
        shown.rounds[key] = shown.rounds.get(key, 0) + 1
        before = shown.positions.get(broker_id)
        mark = before.high_watermark if before else None
        shown.positions[broker_id] = FetchPosition(
            leader, epoch, shown.rounds[key], asked.fetch_offset, mark, network.now_us
        )


def arrived(network: Network, broker_id: int, body: Answer) -> None:
    """An answer has reached a follower."""
    number = asked_by(network, broker_id, body)
    if number is not None:
        del network.asked[number]
    note_answer(network, broker_id, body)


def note_answer(network: Network, broker_id: int, body: Answer) -> None:
    """An answer has reached a follower: what it says of the partition that is shown."""
    if isinstance(body, events.ListOffsetsResponded):
        return
    shown = network.shown
    position = shown.positions.get(broker_id)
    for result in body.results:
        if result.partition != network.partition:
            continue
        if (result.error in FENCED) is not (broker_id in shown.fenced):
            shown.fenced ^= {broker_id}
        if position and isinstance(result, events.FetchResult) and result.error is Error.NONE:
            shown.positions[broker_id] = position._replace(high_watermark=result.high_watermark)


def fail_request(network: Network, number: int) -> None:
    """A follower's connection to its leader is broken: both ends see it, if they live."""
    asked = network.asked.pop(number)
    fetcher, sequence = asked.effect.fetcher, asked.effect.sequence
    if asked.broker in network.listening:
        failed = events.FetcherRequestFailed(fetcher, sequence)
        network.send(asked.broker, asked.broker, FETCH, failed)
    network.remove(lambda entry: is_exchange(entry, asked, number))
    if asked.leader in network.listening:
        network.send(asked.broker, asked.leader, FETCH, events.RequestAbandoned(number))


def die(network: Network, died: int) -> None:
    """What a dead broker asked, or was asked, gets no answer; the wire shows nothing of it."""
    shown = network.shown
    shown.positions.pop(died, None)
    shown.fenced -= {died}
    for number, asked in tuple(network.asked.items()):
        if died in (asked.broker, asked.leader):
            fail_request(network, number)


def restart(network: Network, restarted: int) -> None:
    """Who followed it has no position until it fetches again: the new process may lead on in the
    same epoch, and know of no high watermark."""
    positions = network.shown.positions
    for broker in [one for one, position in positions.items() if position.leader == restarted]:
        del positions[broker]


def close_fetcher(network: Network, broker_id: int, effect: effects.CloseFetcher) -> None:
    for number, asked in tuple(network.asked.items()):
        if (asked.broker, asked.effect.fetcher) == (broker_id, effect.fetcher):
            del network.asked[number]
            network.remove(lambda e, a=asked, n=number: is_exchange(e, a, n))  # type: ignore[misc]
            if asked.leader in network.listening:
                network.send(broker_id, asked.leader, FETCH, events.RequestAbandoned(number))


def respond(node: BrokerNode, effect: Any) -> None:
    """A leader answers a follower."""
    network = node.network
    asked = network.asked[effect.request]
    fetcher, sequence = asked.effect.fetcher, asked.effect.sequence
    answer: object
    match effect:
        case effects.RespondFetch(_, results):
            answer = events.FetchResponded(fetcher, sequence, read(node, results))
        case effects.RespondOffsetForLeaderEpoch(_, ends):
            answer = events.OffsetForLeaderEpochResponded(
                fetcher,
                sequence,
                tuple(
                    events.EpochEndOffset(e.partition, e.error, e.end_offset, e.leader_epoch)
                    for e in ends
                ),
            )
        case _:
            listed = (events.ListedOffset(o.partition, o.error, o.offset) for o in effect.results)
            answer = events.ListOffsetsResponded(fetcher, sequence, tuple(listed))
    if isinstance(answer, events.FetchResponded):
        note_mark(network, node.broker_id, asked.broker, answer)
    entry = network.send(node.broker_id, asked.broker, FETCH, answer)
    if network.recorder is not None and isinstance(answer, events.FetchResponded):
        network.recorder.answered(entry)


def note_mark(network: Network, leader: int, follower: int, answer: events.FetchResponded) -> None:
    shown = network.shown
    position = shown.positions.get(follower)
    for result in answer.results:
        if not position or result.partition != network.partition or result.error is not Error.NONE:
            continue
        key = (position.leader_epoch, leader, follower)
        if result.high_watermark < shown.marks_answered.get(key, 0):
            shown.marks_gone_back += 1
        shown.marks_answered[key] = result.high_watermark


def read(
    node: BrokerNode, results: tuple[effects.FetchedResult, ...]
) -> tuple[events.FetchResult, ...]:
    """The records of an answer: as much as fits, but never nothing where there is something."""
    spec = node.network.spec
    budget = spec.settings.replica_fetch_response_max_bytes
    has_start = spec.rules.fetch_version >= 5
    is_first = True
    answers = []
    for one in results:
        batches: tuple[Any, ...] = ()
        if one.records is not None:
            log = node.disk.logs[one.partition]
            batches, budget = log.read(one.records, budget, at_least_one=is_first)
            is_first = is_first and not batches
        start_offset = one.log_start_offset if has_start else -1
        answers.append(
            events.FetchResult(
                one.partition,
                one.error,
                one.high_watermark,
                start_offset,
                batches,
                one.diverging_epoch,
            )
        )
    return tuple(answers)


def break_connection(network: Network, link: Link, entry: Entry) -> None:
    """A message is lost: on TCP that is a broken connection."""
    if network.recorder is not None:
        network.recorder.dropped(entry)
    number = getattr(entry.body, "request", None) or asked_by(network, link.target, entry.body)
    if number in network.asked:
        fail_request(network, number)


def is_exchange(entry: Entry, asked: Asked, number: int) -> bool:
    """Whether a message belongs to this request: the request itself, or its answer."""
    body = entry.body
    if entry.link is None or entry.link.channel != FETCH:
        return False
    if getattr(body, "request", None) == number:
        return not isinstance(body, events.RequestAbandoned)
    return (
        entry.link == Link(asked.leader, asked.broker, FETCH)
        and getattr(body, "fetcher", None) == asked.effect.fetcher
        and getattr(body, "sequence", None) == asked.effect.sequence
    )
