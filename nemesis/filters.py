"""Cuts as rules for the packet filters of nodes. Pure: which node drops what.

Every link leads through the gate, so a node sees the harness alone, and recognizes the links by
port: the gate's, where the node has connected; its own, where clients have. Each rule stands at
the node that opened the connection, or that was connected to from outside the cluster. What a
port does not show (a broker with one listener for all) is left to the gate, which is cut too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from neaptide.clusters.hosts.host import Drop
from neaptide.nemesis.gate.model import Endpoint, LinkSpec, Purpose
from neaptide.nemesis.gate.network import Network


@dataclass(frozen=True, slots=True)
class _Flow:
    """One direction of a link's packets, and the node that can drop them."""

    source: Endpoint
    destination: Endpoint
    purpose: Purpose
    node: int
    drop: Drop


def drops(
    network: Network, links: Sequence[LinkSpec], ports: Mapping[str, int], brokers: Sequence[int]
) -> dict[int, frozenset[Drop]]:
    """What each broker's node drops while the network is cut like this; `ports`: the gate's."""
    found: dict[int, set[Drop]] = {broker: set() for broker in brokers}
    for flow in _flows(links, ports, brokers):
        if network.is_cut(flow.source, flow.destination, flow.purpose):
            found[flow.node].add(flow.drop)
    return {broker: frozenset(those) for broker, those in found.items()}


def _flows(
    links: Sequence[LinkSpec], ports: Mapping[str, int], brokers: Sequence[int]
) -> Iterable[_Flow]:
    users = Counter((link.destination, link.target) for link in links)
    for link in links:
        if link.source is None:
            openers: list[int] = [broker for broker in brokers if broker != link.destination]
        else:
            openers = [broker for broker in brokers if broker == link.source]
        for opener in openers:
            yield from _both(link, opener, opener, "peer", ports[link.name])
        served_alone = link.target is not None and users[link.destination, link.target] == 1
        if link.source is not None and link.target and not openers and served_alone:
            for node in (broker for broker in brokers if broker == link.destination):
                yield from _both(link, link.source, node, "node", link.target.port)


def _both(
    link: LinkSpec, opener: Endpoint, node: int, ends_at: str, port: int
) -> tuple[_Flow, _Flow]:
    """From the opener to the link's destination, and back, as the node sees them."""
    if ends_at == "peer":
        there, back = Drop("output", "peer", port), Drop("input", "peer", port)
    else:
        there, back = Drop("input", "node", port), Drop("output", "node", port)
    return (
        _Flow(opener, link.destination, link.purpose, node, there),
        _Flow(link.destination, opener, link.purpose, node, back),
    )
