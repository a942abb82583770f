"""A node's packet filter as text for nft(8), and what nft says of it. Pure.

One table is ours and is replaced as a whole, in one transaction: nothing of anybody else's is
touched, and a packet sees the old rules or the new ones. Every rule drops TCP between the node and
the harness's address on one port, and counts what it dropped: connections are not reset by it.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, Final

from neaptide.clusters.hosts.host import Drop

TABLE: Final = "neaptide"
_PRIORITY: Final = -10  # before the filters that a machine may have


def render(drops: Collection[Drop], harness_address: str, table: str = TABLE) -> str:
    """A script that makes the table hold exactly these rules."""
    lines = [f"add table ip {table}", f"delete table ip {table}"]
    if drops:
        lines.append(f"add table ip {table}")
        for hook in ("input", "output"):
            chain = f"{{ type filter hook {hook} priority {_PRIORITY}; policy accept; }}"
            lines.append(f"add chain ip {table} {hook} {chain}")
        lines += [_rule(drop, harness_address, table) for drop in sorted(drops)]
    return "\n".join(lines) + "\n"


def _rule(drop: Drop, harness_address: str, table: str) -> str:
    """The peer, as a node sees it, is always the harness: all links lead through its gate."""
    outgoing = drop.hook == "output"
    address = "daddr" if outgoing else "saddr"
    to_the_peers_port = drop.ends_at == "peer"
    port = "dport" if outgoing == to_the_peers_port else "sport"
    match = f"ip {address} {harness_address} tcp {port} {drop.port}"
    return f"add rule ip {table} {drop.hook} {match} counter drop"


def remove(table: str = TABLE) -> str:
    """A script after which the table is not there."""
    return render((), "", table)


def dropped_packets(listing: str) -> int:
    """The packets that the rules in `nft --json list table …` have dropped."""
    document: dict[str, Any] = json.loads(listing)
    rules = (entry["rule"] for entry in document["nftables"] if "rule" in entry)
    counters = (part["counter"] for rule in rules for part in rule["expr"] if "counter" in part)
    return sum(int(counter["packets"]) for counter in counters)
