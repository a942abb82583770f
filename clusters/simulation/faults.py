"""What may be done to a world: the verbs of schedules. Each does its thing at once.

A kill is what the live harness does: the broker's links are severed, the process is gone, the
schedule's word decides on the bytes in flight, the service forgets the session.
"""

from __future__ import annotations

from collections.abc import Mapping

from neaptide.clusters.broker.replication.interface.administration import ShutdownRequested
from neaptide.clusters.simulation import (
    broker_calls,
    controlling,
    fetching,
    producing,
)
from neaptide.clusters.simulation.blocking import is_matched
from neaptide.clusters.simulation.network import (
    ALTER,
    CLIENTS,
    CONTROL,
    CONTROL_ANSWERS,
    FETCH,
    MARKERS,
    SERVICE,
    VERIFICATION,
    Cut,
    Entry,
    Hold,
)
from neaptide.clusters.simulation.world import World

__all__ = [
    "cut",
    "deliver",
    "depose",
    "discard",
    "elect",
    "expire",
    "heal",
    "hold",
    "kill",
    "pause",
    "power_off",
    "reassign",
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
        world.deliver_sent(broker_id)
    world.end(broker_id)


def power_off(world: World, broker_id: int, keep: Mapping[int, int]) -> dict[int, int]:
    """SIGKILL, and its page cache is gone but for the records before `keep`, by partition.

    One that was stopped before has nothing to be killed.
    """
    if broker_id in world.network.listening:
        world.end(broker_id)
    kept = {world.partition._replace(partition=p): offset for p, offset in keep.items()}
    lost = world.nodes[broker_id].own_disk().lose_page_cache(kept)
    return {tp.partition: count for tp, count in lost.items() if tp.topic == world.spec.topic}


def stop(world: World, broker_id: int) -> None:
    """A clean shutdown: high watermarks checkpointed, logs flushed.

    At once, or, with controlled.shutdown.enable, as soon as the broker has been relieved or gives
    up.
    """
    world.handle(broker_id, ShutdownRequested())


def restart(world: World, broker_id: int) -> None:
    world.start(broker_id)


def pause(world: World, broker_id: int) -> None:
    world.network.paused |= {broker_id}
    for number, asked in tuple(world.network.asked.items()):
        if asked.leader == broker_id:
            fetching.time_out(world.network, number)
    world.coordination.look_at_sessions()


def expire(world: World, broker_id: int) -> None:
    """Its session ends, and it does not know it: it goes on as what it was."""
    world.coordination.end_session(broker_id)


def depose(world: World) -> None:
    """`/controller` is deleted, as operators do to have another: whose it was keeps its session."""
    world.network.notify(world.service.depose())


def reassign(world: World, partition: int, target: tuple[int, ...]) -> None:
    """An operator asks for other replicas of a partition, by `/admin/reassign_partitions`."""
    moved = world.partition._replace(partition=partition)
    world.network.notify(world.service.reassign({moved: target}))


def elect(world: World, partition: int) -> None:
    """An operator asks for a preferred leader, by `/admin/preferred_replica_election`."""
    led = world.partition._replace(partition=partition)
    world.network.notify(world.service.elect((led,)))


def register(world: World, broker_id: int) -> None:
    """It learns that its session is over, and has a new one."""
    world.coordination.come_back(broker_id)


def resume(world: World, broker_id: int) -> None:
    world.network.paused -= {broker_id}
    world.coordination.look_at_sessions()
    world.network.unblock()


def cut(
    world: World, source: int | None, target: int | None, purpose: str | None, *, both: bool
) -> None:
    world.network.cuts |= {Cut(source, target, purpose)}
    if both:
        world.network.cuts |= {Cut(target, source, purpose)}
    world.coordination.look_at_sessions()


def heal(world: World, source: int | None = None, target: int | None = None) -> None:
    """Undoes cuts: those between two ends, or all. What waited is lost with its connection."""
    healed = {
        one
        for one in world.network.cuts
        if (source is None and target is None)
        or (one.source, one.target) in ((source, target), (target, source))
    }
    if source is None and target is None:
        world.network.slowed.clear()
    world.network.cuts -= healed
    _reset(world, healed)
    world.coordination.look_at_sessions()
    world.network.unblock()


def _reset(world: World, healed: set[Cut]) -> None:
    """Requests that waited on a cut link fail: their connections are reset.

    So are those of clients that had not come to the cut yet: they are in the same connections.
    """
    on_their_way = [
        e for e in world.network.messages if e.link is not None and e.link.channel == CLIENTS
    ]
    for entry in (*on_their_way, *world.network.waiting):
        link = entry.link
        if link is None or not any(one.covers(link) for one in healed):
            continue
        if link.channel == CLIENTS:
            producing.break_connection(world.clients, entry)
        if link.channel in (ALTER, MARKERS, VERIFICATION):
            broker_calls.lose(world.network, entry)
            continue
        if link.channel != FETCH or SERVICE in (link.source, link.target):
            continue
        number: int | None = getattr(entry.body, "request", None)
        if isinstance(entry.body, fetching.ANSWERS):
            number = fetching.asked_by(world.network, link.target, entry.body)
        if number in world.network.asked:
            fetching.fail_request(world.network, number)


def slow(
    world: World, source: int | None, target: int | None, purpose: str | None, delay_ms: int
) -> None:
    """Messages from source to target take so much longer; 0: no longer."""
    where = Cut(source, target, purpose)
    world.network.slowed.pop(where, None)
    if delay_ms:
        world.network.slowed[where] = delay_ms * 1_000


def hold(world: World, rule: Hold) -> None:
    """From now on; what is on its way already is held too when it arrives."""
    world.network.holds[rule.name] = rule
    world.network.hold_counts.pop(rule.name, None)
    world.network.held_by = {
        n: name for n, name in world.network.held_by.items() if name != rule.name
    }


def release(world: World, name: str) -> None:
    """What was held goes on, in order; but for what its sender has given up."""
    rule = world.network.holds.pop(name, None)
    if rule is not None:
        _take_abandoned(world, rule)
    world.network.unblock()


def deliver(world: World, name: str) -> bool:
    """What was held arrives although its senders have given it up. False: one has not, and nothing
    is delivered."""
    rule = world.network.holds[name]
    if any(_is_held_by(world, rule, entry) for entry in world.network.waiting):
        return False
    del world.network.holds[name]
    for entry in _take_abandoned(world, rule):
        world.deliver_now(entry)
    world.network.unblock()
    return True


def _take_abandoned(world: World, rule: Hold) -> list[Entry]:
    network = world.network
    meant = [entry for entry in network.abandoned if _is_held_by(world, rule, entry)]
    network.abandoned = tuple(entry for entry in network.abandoned if entry not in meant)
    return meant


def _is_held_by(world: World, rule: Hold, entry: Entry) -> bool:
    link = entry.link
    return link is not None and is_matched(world.network, rule, link, entry.body)


def discard(world: World, name: str) -> int:
    """What was held is thrown away: its connections break. A controller sends it again."""
    rule = world.network.holds.pop(name)
    _take_abandoned(world, rule)
    held = [entry for entry in world.network.waiting if _is_held_by(world, rule, entry)]
    for entry in held:
        assert entry.link is not None
        if entry.link.channel in broker_calls.APIS:
            broker_calls.lose(world.network, entry)
        elif entry.link.channel == CLIENTS:
            producing.break_connection(world.clients, entry)
        elif entry.link.channel not in (CONTROL, CONTROL_ANSWERS):
            fetching.break_connection(world.network, entry.link, entry)
        else:
            world.network.waiting.remove(entry)
            controlling.lose(world.network, entry)
    world.network.unblock()
    return len(held)
