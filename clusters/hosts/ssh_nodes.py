"""Which machines the nodes of the host `ssh` are: from a word, or from a file of nodes. Pure.

ssh:me@one,two:2222          or        [[node]]
                                       address = "one"
                                       user = "me"
                                       key = "~/.ssh/id_ed25519"
"""

from __future__ import annotations

import getpass
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from neaptide.clusters.errors import UsageError

_PORT: Final = 22
_NODE_KEYS: Final[dict[str, type]] = {
    "address": str,
    "user": str,
    "port": int,
    "key": str,
    "python": str,
    "java": str,
    "directory": str,
}
_FILE_KEYS: Final[dict[str, type]] = {"node": list, "known_hosts": str, "harness": str}


@dataclass(frozen=True, slots=True)
class SshNode:
    """One machine, how to come to it, and what is there."""

    address: str
    user: str
    port: int = _PORT
    key: str | None = None  # None: the agent's keys, and those in ~/.ssh
    python: str = sys.executable  # has what our broker imports
    java: str = "java"
    directory: str = ""  # where the run's files go; "": the node's directory for temporary files

    def __str__(self) -> str:
        return f"{self.user}@{self.address}:{self.port}"


@dataclass(frozen=True, slots=True)
class SshNodes:
    """Node N is the N-th. `harness`: where they reach it; None: as the first connection shows."""

    nodes: tuple[SshNode, ...]
    known_hosts: str = "~/.ssh/known_hosts"
    harness: str | None = None


def parse_nodes(text: str) -> SshNodes:
    """`user@h1,h2,h3`: the user is of all that follow without one. Raises UsageError."""
    user = getpass.getuser()
    nodes = []
    for word in text.split(","):
        before, at, address = word.strip().rpartition("@")
        user = before if at else user
        name, colon, port = address.partition(":")
        if not name or not user or (colon and not port.isdigit()):
            raise UsageError(f"{word!r} is no node: write ssh:user@h1,h2,h3, or user@host:port.")
        nodes.append(SshNode(name, user, int(port) if colon else _PORT))
    return SshNodes(tuple(nodes))


def load_nodes(file: Path) -> SshNodes:
    """A file of nodes. Raises UsageError that says what is wrong in it."""
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The file of nodes {file} cannot be read: {error}.") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"The file of nodes {file} is not TOML: {error}.") from error
    _check(document, _FILE_KEYS, f"{file}")
    nodes = [
        _node(raw, f"{file}, node {number}")
        for number, raw in enumerate(document.get("node", ()), start=1)
    ]
    if not nodes:
        raise UsageError(f"{file} names no node: write a [[node]] with its address for each.")
    rest = {key: value for key, value in document.items() if key != "node"}
    return SshNodes(tuple(nodes), **rest)


def _node(raw: object, where: str) -> SshNode:
    if not isinstance(raw, dict):
        raise UsageError(f"{where}: write it as [[node]], with one key a line.")
    _check(raw, _NODE_KEYS, where)
    if "address" not in raw:
        raise UsageError(f"{where}: it has no address.")
    return SshNode(**{"user": getpass.getuser(), **raw})


def _check(raw: Mapping[str, Any], keys: Mapping[str, type], where: str) -> None:
    for key, value in raw.items():
        if key not in keys:
            raise UsageError(f"{where}: there is no {key!r}; it must be one of {', '.join(keys)}.")
        if type(value) is not keys[key]:
            kind = {str: "a text", int: "a number", list: "a table [[node]]"}[keys[key]]
            raise UsageError(f"{where}: {key} must be {kind}, not {value!r}.")
