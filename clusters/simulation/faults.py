"""What may be done to a world: the verbs of schedules. Each does its thing at once.

A kill is what the live harness does: the broker's links are severed, the process is gone, the
schedule's word decides on the bytes in flight, the service forgets the session.
"""

from __future__ import annotations

from collections.abc import Mapping

from neaptide.clusters.broker.replication.step import shut_down
from neaptide.clusters.simulation import altering, controlling, fetching, producing, sessions
from neaptide.clusters.simulation.blocking import is_matched
from neaptide.clusters.simulation.effect_handlers import carry_out
from neaptide.clusters.simulation.ending import die
from neaptide.clusters.simulation.network import (
    ALTER,
    CLIENTS,
    CONTROL,
    CONTROL_ANSWERS,
    FETCH,
    SERVICE,
    Cut,
    Entry,
    Hold,
)
from neaptide.clusters.simulation.world import World, start_broker

__all__ = [
    "cut",
    "depose",
    "discard",
    "expire",
    "heal",
    "hold",
    "kill",
    "pause",
    "power_off",
    "register",
    "release",
    "restart",
    "resume",
    "slow",
    "stop",
]


def kill(world: World, broker_id: int, *, delivered: bool = False) -> None:
    """SIGKILL. What it had sent and nobody has received is delivered, or discarded."""
    if delivered:
        _deliver_sent(world, broker_id)
    die(world, broker_id)


def power_off(world: World, broker_id: int, keep: Mapping[int, int]) -> dict[int, int]:
    """SIGKILL, and its page cache is gone but for the records before `keep`, by partition.

    One that was stopped before has nothing to be killed.
    """
    if broker_id in world.brokers:
        die(world, broker_id)
    kept = {world.partition._replace(partition=p): offset for p, offset in keep.items()}
    lost = world.own_disk(broker_id).lose_page_cache(kept)
    return {tp.partition: count for tp, count in lost.items() if tp.topic == world.spec.topic}


def stop(world: World, broker_id: int) -> None:
    """A clean shutdown: high watermarks checkpointed, logs flushed."""
    carry_out(world, broker_id, shut_down(world.brokers[broker_id].copy()))
    world.own_disk(broker_id).sync()
    kill(world, broker_id, delivered=True)


def restart(world: World, broker_id: int) -> None:
    start_broker(world, broker_id)


def _deliver_sent(world: World, broker_id: int) -> None:
    """Also what was held: the schedule says that the dead broker's messages arrive."""

    def is_sent(entry: Entry) -> bool:
        return (
            entry.link is not None
            and entry.link.source == broker_id
            and entry.link.target != broker_id
        )

    for entry in sorted(world.remove(is_sent), key=lambda entry: entry.sequence):
        world.deliver_now(entry)


def pause(world: World, broker_id: int) -> None:
    world.paused |= {broker_id}
    for number, asked in tuple(world.asked.items()):
        if asked.leader == broker_id:
            fetching.time_out(world, number)
    sessions.look_at_sessions(world)


def expire(world: World, broker_id: int) -> None:
    """Its session ends, and it does not know it: it goes on as what it was."""
    sessions.end_session(world, broker_id)


def depose(world: World) -> None:
    """`/controller` is deleted, as operators do to have another: whose it was keeps its session."""
    world.send_all(world.service.depose())


def register(world: World, broker_id: int) -> None:
    """It learns that its session is over, and has a new one."""
    sessions.come_back(world, broker_id)


def resume(world: World, broker_id: int) -> None:
    world.paused -= {broker_id}
    sessions.look_at_sessions(world)
    world.unblock()


def cut(
    world: World, source: int | None, target: int | None, purpose: str | None, *, both: bool
) -> None:
    world.cuts |= {Cut(source, target, purpose)}
    if both:
        world.cuts |= {Cut(target, source, purpose)}
    sessions.look_at_sessions(world)


def heal(world: World, source: int | None = None, target: int | None = None) -> None:
    """Undoes cuts: those between two ends, or all. What waited is lost with its connection."""
    healed = {
        one
        for one in world.cuts
        if (source is None and target is None)
        or (one.source, one.target) in ((source, target), (target, source))
    }
    if source is None and target is None:
        world.slowed.clear()
    world.cuts -= healed
    _reset(world, healed)
    sessions.look_at_sessions(world)
    world.unblock()


def _reset(world: World, healed: set[Cut]) -> None:
    """Requests that waited on a cut link fail: their connections are reset.

    So are those of clients that had not come to the cut yet: they are in the same connections.
    """
    on_their_way = [e for e in world.messages if e.link is not None and e.link.channel == CLIENTS]
    for entry in (*on_their_way, *world.waiting):
        link = entry.link
        if link is None or not any(one.covers(link) for one in healed):
            continue
        if link.channel == CLIENTS:
            producing.break_connection(world, entry)
        if link.channel == ALTER:
            altering.lose(world, entry)
            continue
        if link.channel != FETCH or SERVICE in (link.source, link.target):
            continue
        number: int | None = getattr(entry.body, "request", None)
        if isinstance(entry.body, fetching.ANSWERS):
            number = fetching.asked_by(world, link.target, entry.body)
        if number in world.asked:
            fetching.fail_request(world, number)


def slow(
    world: World, source: int | None, target: int | None, purpose: str | None, delay_ms: int
) -> None:
    """Messages from source to target take so much longer; 0: no longer."""
    where = Cut(source, target, purpose)
    world.slowed.pop(where, None)
    if delay_ms:
        world.slowed[where] = delay_ms * 1_000


def hold(world: World, rule: Hold) -> None:
    """From now on; what is on its way already is held too when it arrives."""
    world.holds[rule.name] = rule
    world.hold_counts.pop(rule.name, None)
    world.held_by = {n: name for n, name in world.held_by.items() if name != rule.name}


def release(world: World, name: str) -> None:
    """What was held goes on, in order."""
    world.holds.pop(name, None)
    world.unblock()


def discard(world: World, name: str) -> int:
    """What was held is thrown away: its connections break. A controller sends it again."""
    rule = world.holds.pop(name)
    held = [
        entry
        for entry in world.waiting
        if entry.link is not None and is_matched(world, rule, entry.link, entry.body)
    ]
    for entry in held:
        assert entry.link is not None
        if entry.link.channel == ALTER:
            altering.lose(world, entry)
        elif entry.link.channel not in (CONTROL, CONTROL_ANSWERS):
            fetching.break_connection(world, entry.link, entry)
        else:
            world.waiting.remove(entry)
            controlling.lose(world, entry)
    world.unblock()
    return len(held)
