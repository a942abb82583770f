"""Followers' requests on their way: what is asked and answered, and what the wire has shown of it.

Also how such a request ends without an answer: its connection breaks, or its time is over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from neaptide.clusters.broker.replication.errors import FENCED, Error
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.simulation.network import FETCH, Entry, Link
from neaptide.clusters.simulation.parts import Asked, FetchPosition, RequestTimedOut

if TYPE_CHECKING:
    from neaptide.clusters.simulation.world import World

Answer = events.FetchResponded | events.OffsetForLeaderEpochResponded | events.ListOffsetsResponded
ANSWERS: Final = (
    events.FetchResponded,
    events.OffsetForLeaderEpochResponded,
    events.ListOffsetsResponded,
)


def time_out(world: World, number: int) -> None:
    due_us = world.asked[number].sent_us + world.spec.socket_timeout_ms * 1_000
    world.later(max(0, due_us - world.now_us), RequestTimedOut(number))


def take_time_out(world: World, number: int, due_us: int) -> bool:
    """False: it was answered."""
    if number not in world.asked:
        return False
    world.now_us = max(world.now_us, due_us)
    fail_request(world, number)
    return True


def expect_time_out(world: World, entry: Entry) -> None:
    """A follower's request, or its answer, is kept up: the follower will not wait for ever."""
    assert entry.link is not None
    number = getattr(entry.body, "request", None)
    if isinstance(entry.body, ANSWERS):
        number = asked_by(world, entry.link.target, entry.body)
    if number in world.asked:
        time_out(world, number)


def asked_by(world: World, broker_id: int, body: object) -> int | None:
    """The number of the request that an answer on its way to this broker answers."""
    sequence = getattr(body, "sequence", None)
    for number, asked in world.asked.items():
        if asked.broker == broker_id and asked.effect.sequence == sequence:
            return number
    return None


def ask(
    world: World,
    broker_id: int,
    effect: effects.SendFetch | effects.SendOffsetForLeaderEpoch | effects.SendListOffsets,
) -> None:
    leader = effect.fetcher.leader
    world.sequence += 1
    number = world.sequence
    world.asked[number] = Asked(broker_id, leader, effect, world.now_us)
    if leader not in world.brokers:
        fail_request(world, number)
        return
    request: object
    match effect:
        case effects.SendFetch():
            note_request(world, broker_id, leader, effect)
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
    entry = world.send(broker_id, leader, FETCH, request)
    if world.recorder is not None and isinstance(request, events.FetchRequested):
        world.recorder.asked(world, entry)


def note_request(world: World, broker_id: int, leader: int, effect: effects.SendFetch) -> None:
    for asked in effect.partitions:
        if asked.partition != world.partition:
            continue
        epoch = world.brokers[broker_id].partitions[asked.partition].leader_epoch
        key = (broker_id, leader, epoch)
        world.rounds[key] = world.rounds.get(key, 0) + 1
        before = world.positions.get(broker_id)
        mark = before.high_watermark if before else None
        world.positions[broker_id] = FetchPosition(
            leader, epoch, world.rounds[key], asked.fetch_offset, mark, world.now_us
        )


def note_answer(world: World, broker_id: int, body: Answer) -> None:
    """An answer has reached a follower: what it says of the world's partition."""
    if isinstance(body, events.ListOffsetsResponded):
        return
    position = world.positions.get(broker_id)
    for result in body.results:
        if result.partition != world.partition:
            continue
        if (result.error in FENCED) is not (broker_id in world.fenced):
            world.fenced ^= {broker_id}
        if position and isinstance(result, events.FetchResult) and result.error is Error.NONE:
            world.positions[broker_id] = position._replace(high_watermark=result.high_watermark)


def fail_request(world: World, number: int) -> None:
    """A follower's connection to its leader is broken: both ends see it, if they live."""
    asked = world.asked.pop(number)
    fetcher, sequence = asked.effect.fetcher, asked.effect.sequence
    if asked.broker in world.brokers:
        failed = events.FetcherRequestFailed(fetcher, sequence)
        world.send(asked.broker, asked.broker, FETCH, failed)
    world.remove(lambda entry: is_exchange(entry, asked, number))
    if asked.leader in world.brokers:
        world.send(asked.broker, asked.leader, FETCH, events.RequestAbandoned(number))


def close_fetcher(world: World, broker_id: int, effect: effects.CloseFetcher) -> None:
    for number, asked in tuple(world.asked.items()):
        if (asked.broker, asked.effect.fetcher) == (broker_id, effect.fetcher):
            del world.asked[number]
            world.remove(lambda e, a=asked, n=number: is_exchange(e, a, n))  # type: ignore[misc]
            if asked.leader in world.brokers:
                world.send(broker_id, asked.leader, FETCH, events.RequestAbandoned(number))


def respond(world: World, broker_id: int, effect: Any) -> None:
    """A leader answers a follower."""
    asked = world.asked[effect.request]
    fetcher, sequence = asked.effect.fetcher, asked.effect.sequence
    answer: object
    match effect:
        case effects.RespondFetch(_, results):
            answer = events.FetchResponded(fetcher, sequence, read(world, broker_id, results))
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
        note_mark(world, broker_id, asked.broker, answer)
    entry = world.send(broker_id, asked.broker, FETCH, answer)
    if world.recorder is not None and isinstance(answer, events.FetchResponded):
        world.recorder.answered(world, entry)


def note_mark(world: World, leader: int, follower: int, answer: events.FetchResponded) -> None:
    position = world.positions.get(follower)
    for result in answer.results:
        if not position or result.partition != world.partition or result.error is not Error.NONE:
            continue
        key = (position.leader_epoch, leader, follower)
        if result.high_watermark < world.marks_answered.get(key, 0):
            world.marks_gone_back += 1
        world.marks_answered[key] = result.high_watermark


def read(
    world: World, broker_id: int, results: tuple[effects.FetchedResult, ...]
) -> tuple[events.FetchResult, ...]:
    """The records of an answer: as much as fits, but never nothing where there is something."""
    budget = world.spec.settings.replica_fetch_response_max_bytes
    has_start = world.spec.rules.fetch_version >= 5
    is_first = True
    answers = []
    for one in results:
        batches: tuple[Any, ...] = ()
        if one.records is not None:
            log = world.disks[broker_id].logs[one.partition]
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


def break_connection(world: World, link: Link, entry: Entry) -> None:
    """A message is lost: on TCP that is a broken connection."""
    if world.recorder is not None:
        world.recorder.dropped(world, entry)
    number = getattr(entry.body, "request", None) or asked_by(world, link.target, entry.body)
    if number in world.asked:
        fail_request(world, number)


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
