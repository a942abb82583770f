"""What faults need of the machine and of the host that the brokers run on: the one table of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from neaptide.clusters.errors import UsageError
from neaptide.clusters.hosts.faketime import find_library
from neaptide.clusters.hosts.io_faults import find_strace
from neaptide.clusters.hosts.place import Place
from neaptide.clusters.hosts.toxiproxy import find_server
from neaptide.nemesis.steps import Means


@dataclass(frozen=True, slots=True)
class Need:
    """`find` raises MissingPartError. `hosts`: where alone it can be done; none: everywhere."""

    does: str
    find: Callable[[], object]
    hosts: tuple[str, ...] = ()


NEEDS: Final[Mapping[Means, Need]] = {
    # Where a packet filter drops what is cut, the server's calls would hang in it.
    "toxics": Need("puts toxics on links", find_server, ("local",)),
    "clocks": Need("sets clocks", find_library),
    "calls": Need("has calls of a running broker fail", find_strace, ("local", "netns")),
}


def check_need(what: Means, who: str, place: Place) -> None:
    """Raises MissingPartError where the machine lacks it, UsageError where the host cannot do it.

    `who`: wants it, for the sentence.
    """
    need = NEEDS[what]
    if need.hosts and place.name not in need.hosts:
        raise UsageError(f"{who} {need.does}: that needs --host {' or '.join(need.hosts)}.")
    need.find()
