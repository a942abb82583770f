"""Placeholders of a system file: `{client_listen}` in a command or in properties. Pure.

Only names in braces count, and none behind a `$`, so that `${file:/etc/secrets:password}` of
Kafka's config providers stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

MEANINGS: Final[Mapping[str, str]] = {
    "id": "the node's id",
    "client_listen": "where the broker itself listens for clients, as 127.0.0.1:10101",
    "client_advertised": "where clients reach it: the gate",
    "replication_listen": "where it listens for other brokers",
    "replication_advertised": "where they reach it: the gate",
    "controller_listen": "where a controller of KRaft listens",
    "controller_advertised": "where it is reached: the gate",
    "quorum": "controller.quorum.voters, through the gate: 100@127.0.0.1:10104",
    "zookeeper": "zookeeper.connect, through the gate: neaptide has a ZooKeeper for the run",
    "log_dir": "the log directory: in the run directory, unless the node has a `log_dir`",
    "cluster_id": "one id of a KRaft cluster, the same for all nodes",
    "here": "the directory of the system file",
}
IN_COMMANDS: Final[Mapping[str, str]] = {
    **MEANINGS,
    "properties": "the node's properties, filled in and written by neaptide",
    "pid": "the broker's process (only of `stop`, `kill`, `pause`, `resume`)",
}
_PLACEHOLDER: Final = re.compile(r"(?<!\$)\{([a-z_]+)\}")


def unknown(text: str, known: Mapping[str, str]) -> str | None:
    """The first placeholder that there is not; None: there are all."""
    return next((name for name in _PLACEHOLDER.findall(text) if name not in known), None)


def placeholders(text: str) -> frozenset[str]:
    return frozenset(_PLACEHOLDER.findall(text))


def fill(text: str, values: Mapping[str, str]) -> str:
    """Raises KeyError, by its name, for what has no value here."""
    return _PLACEHOLDER.sub(lambda found: values[found[1]], text)


def table() -> str:
    """The placeholders as a Markdown table: what docs/own-system.md prints."""
    rows = [f"| `{{{name}}}` | {meaning} |" for name, meaning in IN_COMMANDS.items()]
    return "\n".join(["| placeholder | is |", "|---|---|", *rows]) + "\n"
