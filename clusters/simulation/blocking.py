"""What keeps a message up, and what loses it: cuts, holds, noise, and who does not listen.

Nothing is delivered here. A hold counts what it has taken.
"""

from __future__ import annotations

from collections.abc import Mapping

from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.simulation.network import CONTROL, FETCH, Entry, Hold, Link, facts_of
from neaptide.clusters.simulation.network_node import Network


def is_blocked(network: Network, link: Link, entry: Entry) -> bool:
    if network.paused and link.target in network.paused:
        return True
    if link.channel == CONTROL and (
        link.target not in network.listening or link in network.unanswered
    ):
        return True  # tried again until that broker answers, or is given up; one at a time
    if network.blocked_links and link in network.blocked_links:
        return True
    if network.cuts and link.source != link.target and any(c.covers(link) for c in network.cuts):
        return True
    return bool(network.holds) and _is_held(network, link, entry)


def _is_held(network: Network, link: Link, entry: Entry) -> bool:
    """What is held already is not counted again."""
    for hold in network.holds.values():
        if hold.drops or not is_matched(network, hold, link, entry.body):
            continue
        if hold.times is not None and network.held_by.get(entry.sequence) == hold.name:
            return True
        if not _counts(network, hold):
            continue
        if hold.times is not None:
            network.held_by = {**network.held_by, entry.sequence: hold.name}
        network.ever_held |= {hold.name}
        if network.recorder is not None:
            network.recorder.blocked(entry)
        return True
    return False


def _counts(network: Network, hold: Hold) -> bool:
    """Whether a rule takes one more message."""
    count = network.hold_counts.get(hold.name, 0)
    network.hold_counts[hold.name] = count + 1
    return hold.times is None or count < hold.times


def is_held(network: Network, entry: Entry) -> bool:
    """Whether a rule keeps such a message, which has come to it already."""
    link, body = entry.link, entry.body
    return link is not None and any(
        not hold.drops
        and is_matched(network, hold, link, body)
        and (hold.times is None or network.held_by.get(entry.sequence) == hold.name)
        for hold in network.holds.values()
    )


def is_dropped(network: Network, link: Link, entry: Entry) -> bool:
    for hold in network.holds.values():
        if hold.drops and is_matched(network, hold, link, entry.body) and _counts(network, hold):
            return True
    noise = network.spec.noise
    return (
        noise is not None
        and noise.loss_per_million > 0
        and link.channel == FETCH
        and link.source != link.target
        and noise.draw(entry.sequence) % 1_000_000 < noise.loss_per_million
    )


def is_matched(
    network: Network,
    hold: Hold,
    link: Link,
    body: object,
    partition: TopicPartition | None = None,
) -> bool:
    """`partition`: of which `where` speaks if the rule names no topic; None: the network's."""
    if not hold.matches(link, body):
        return False
    if hold.where is None:
        return True
    if hold.topic is not None:
        return hold.where(facts_of(body, TopicPartition(hold.topic, 0)))
    return hold.where(_facts(network, link, body, partition or network.partition))


def _facts(
    network: Network, link: Link, body: object, partition: TopicPartition
) -> Mapping[str, int | str | None]:
    """What conditions may ask of a message; an answer is of the round of its request."""
    facts = facts_of(body, partition)
    if link.channel != FETCH:
        return facts
    is_request = hasattr(body, "request")
    position = network.shown.positions.get(link.source if is_request else link.target)
    if position is not None:
        facts["round"] = position.round
        facts.setdefault("fetch_offset", position.log_end_offset)
        facts.setdefault("leader_epoch", position.leader_epoch)
    return facts
