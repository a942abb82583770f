"""What keeps a message up, and what loses it: cuts, holds, noise, and who does not listen.

Nothing is delivered here. A hold counts what it has taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.simulation.network import CONTROL, FETCH, Entry, Hold, Link, facts_of

if TYPE_CHECKING:
    from neaptide.clusters.simulation.world import World


def is_blocked(world: World, link: Link, entry: Entry) -> bool:
    if world.paused and link.target in world.paused:
        return True
    if link.channel == CONTROL and (link.target not in world.brokers or link in world.unanswered):
        return True  # tried again until that broker answers, or is given up; one at a time
    if world.blocked_links and link in world.blocked_links:
        return True
    if world.cuts and link.source != link.target and any(c.covers(link) for c in world.cuts):
        return True
    return bool(world.holds) and _is_held(world, link, entry)


def _is_held(world: World, link: Link, entry: Entry) -> bool:
    """What is held already is not counted again."""
    for hold in world.holds.values():
        if hold.drops or not is_matched(world, hold, link, entry.body):
            continue
        if hold.times is not None and world.held_by.get(entry.sequence) == hold.name:
            return True
        if not _counts(world, hold):
            continue
        if hold.times is not None:
            world.held_by = {**world.held_by, entry.sequence: hold.name}
        world.ever_held |= {hold.name}
        if world.recorder is not None:
            world.recorder.blocked(world, entry)
        return True
    return False


def _counts(world: World, hold: Hold) -> bool:
    """Whether a rule takes one more message."""
    count = world.hold_counts.get(hold.name, 0)
    world.hold_counts[hold.name] = count + 1
    return hold.times is None or count < hold.times


def is_dropped(world: World, link: Link, entry: Entry) -> bool:
    for hold in world.holds.values():
        if hold.drops and is_matched(world, hold, link, entry.body) and _counts(world, hold):
            return True
    noise = world.spec.noise
    return (
        noise is not None
        and noise.loss_per_million > 0
        and link.channel == FETCH
        and link.source != link.target
        and noise.draw(entry.sequence) % 1_000_000 < noise.loss_per_million
    )


def is_matched(world: World, hold: Hold, link: Link, body: object) -> bool:
    if not hold.matches(link, body):
        return False
    if hold.where is None:
        return True
    if hold.topic is not None:
        return hold.where(facts_of(body, TopicPartition(hold.topic, 0)))
    return hold.where(_facts(world, link, body))


def _facts(world: World, link: Link, body: object) -> Mapping[str, int | None]:
    """What conditions may ask of a message; an answer is of the round of its request."""
    facts = facts_of(body, world.partition)
    if link.channel != FETCH:
        return facts
    is_request = hasattr(body, "request")
    position = world.positions.get(link.source if is_request else link.target)
    if position is not None:
        facts["round"] = position.round
        facts.setdefault("fetch_offset", position.log_end_offset)
        facts.setdefault("leader_epoch", position.leader_epoch)
    return facts
