"""Whether a setting of a broker or a topic is one that there is, or a slip of the pen.

The names are those that the releases 0.8.2, 0.10.2, 3.9 and 4.1 of Kafka have, their own printed
tables and what their classes know besides. Kafka passes over a name that it does not know, for a
plug-in may read it: so one is refused only if it looks like one that is known. Our own broker has
no plug-ins.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Final

from neaptide.clusters.nearest import did_you_mean

# Where a broker is and how others reach it, which the harness has to know.
SET_BY_HARNESS: Final = frozenset(
    {
        *("broker.id", "node.id", "process.roles", "log.dir", "log.dirs", "metadata.log.dir"),
        *("listeners", "advertised.listeners", "inter.broker.listener.name"),
        *("host.name", "port", "advertised.host.name", "advertised.port"),
        *("listener.security.protocol.map", "security.inter.broker.protocol"),
        *("controller.listener.names", "controller.quorum.voters"),
        *("controller.quorum.bootstrap.servers", "zookeeper.connect"),
    }
)
_PREFIXES: Final = ("neaptide.", "listener.name.", "confluent.")
_LOOKS_LIKE: Final = 0.8


@cache
def known_settings() -> frozenset[str]:
    text = (files("neaptide.clusters.kafka") / "settings.txt").read_text(encoding="ascii")
    return frozenset(text.split())


def problem_of(names: Iterable[str], *, has_plugins: bool = True) -> str | None:
    """What is wrong with the first of these that is none, as a sentence without its full stop."""
    for name in names:
        if name in SET_BY_HARNESS:
            return f"{name!r} is set by neaptide itself: leave it out"
        if name in known_settings() or name.startswith(_PREFIXES):
            continue
        near = did_you_mean(name, sorted(known_settings()), _LOOKS_LIKE)
        if near or not has_plugins:
            return f"no release of Kafka has a setting {name!r}{near}"
    return None
