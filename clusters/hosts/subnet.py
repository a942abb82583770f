"""A private subnet that nobody on this machine uses: chosen once, and claimed by a file lock.

The lock is per machine, not per user's state: two harnesses with stores of their own must not meet.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterable
from ipaddress import IPv4Network
from pathlib import Path
from typing import IO, Final

from neaptide.clusters.errors import MissingPartError
from neaptide.clusters.hosts.run_tool import run_tool

POOL: Final = IPv4Network("10.213.0.0/16")
_LOCKS: Final = Path("/run/neaptide")


class SubnetClaim:
    """A /24 of ours until `close`."""

    def __init__(self, network: IPv4Network, lock: IO[bytes]) -> None:
        self.network = network
        self._lock = lock

    @property
    def label(self) -> str:
        """Short, and unique among the claims of this machine."""
        return str(self.network.network_address).split(".")[2]

    def address(self, number: int) -> str:
        return str(self.network[number])

    def close(self) -> None:
        self._lock.close()


def claim_subnet(locks: Path = _LOCKS) -> SubnetClaim:
    """The first free /24 of the pool. Raises MissingPartError where all are in use."""
    locks.mkdir(parents=True, exist_ok=True)
    used = routed()
    for network in free(POOL.subnets(new_prefix=24), used):
        lock = (locks / str(network.network_address)).open("ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            continue
        if network not in free([network], routed()):  # taken between the look and the lock
            lock.close()
            continue
        return SubnetClaim(network, lock)
    raise MissingPartError(f"every subnet of {POOL} is in use: end the runs that use them")


def free(candidates: Iterable[IPv4Network], used: Iterable[IPv4Network]) -> list[IPv4Network]:
    """Those that overlap with nothing in use."""
    taken = list(used)
    return [each for each in candidates if not any(each.overlaps(other) for other in taken)]


def routed() -> list[IPv4Network]:
    """Every network that this machine has a route to, but for the default route."""
    routes = json.loads(run_tool(("ip", "-json", "-4", "route", "show", "table", "all")))
    return [
        IPv4Network(route["dst"], strict=False)
        for route in routes
        if route["dst"] != "default" and route.get("type") not in ("broadcast", "multicast")
    ]
