"""What a system file says, checked: brokers that are started, or a cluster that is just used.

Values only. Settings of clients, and the environment of processes, may hold secrets: nothing here
prints them, and `record` leaves their values out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

NOT_RECORDED: Final = "(not recorded)"
COMMANDS: Final = ("start", "prepare", "stop", "kill", "pause", "resume")
_SECRET_NAME: Final = re.compile(r"password|passwd|secret|token|credential|jaas", re.IGNORECASE)


Argv = tuple[str, ...]  # a command without a shell; its placeholders are filled in for each node


@dataclass(frozen=True, slots=True)
class OwnNode:
    """One broker or controller. `template`: the text of its properties, with placeholders."""

    id: int
    properties: Path
    template: str
    start: Argv
    prepare: Argv | None = None  # once, before the first start
    stop: Argv | None = None  # None: SIGTERM
    kill: Argv | None = None  # None: SIGKILL
    pause: Argv | None = None  # None: SIGSTOP
    resume: Argv | None = None  # None: SIGCONT
    pid_file: str | None = None  # where the broker's pid is, if `start` does not start it itself
    log_dir: str | None = None  # None: in the run directory

    @property
    def can_pause(self) -> bool:
        """What has to be killed by a command of its own cannot be paused by a signal."""
        return self.kill is None or self.pause is not None


@dataclass(frozen=True, slots=True)
class Managed:
    """Brokers that neaptide starts, stops and kills."""

    name: str
    behaves_like: str  # as in kafka:…: 3.9.1, 3.9.1-kraft, 3.9.1-combined
    file: Path
    brokers: tuple[OwnNode, ...]
    controllers: tuple[OwnNode, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    said: frozenset[str] = frozenset()  # settings that some broker's properties name

    @property
    def nodes(self) -> tuple[OwnNode, ...]:
        return (*self.controllers, *self.brokers)

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(broker.id for broker in self.brokers)

    def record(self) -> dict[str, Any]:
        """What run.json has of the file."""
        return {
            "file": str(self.file),
            "name": self.name,
            "behaves_like": self.behaves_like,
            "environment": dict.fromkeys(self.environment, NOT_RECORDED),
            "brokers": [_node_record(node) for node in self.brokers],
            "controllers": [_node_record(node) for node in self.controllers],
            "properties": {str(node.properties): node.template for node in self.nodes},
        }


@dataclass(frozen=True, slots=True)
class Used:
    """A cluster that runs already, and goes on when the run is over."""

    name: str
    behaves_like: str
    file: Path
    bootstrap: str
    client: Mapping[str, str] = field(default_factory=dict, repr=False)  # librdkafka's settings
    keep_topics: bool = False

    def record(self) -> dict[str, Any]:
        """What run.json has of the file."""
        return {
            "file": str(self.file),
            "name": self.name,
            "behaves_like": self.behaves_like,
            "bootstrap": self.bootstrap,
            "client": dict.fromkeys(self.client, NOT_RECORDED),
            "keep_topics": self.keep_topics,
        }


OwnSystem = Managed | Used


def is_secret(name: str) -> bool:
    """Whether what is called so is a secret, by its name."""
    return _SECRET_NAME.search(name) is not None


def without_secrets(argv: Sequence[str]) -> list[str]:
    """A command as it may be kept: values of what is called like a secret are left out."""
    kept: list[str] = []
    for position, word in enumerate(argv):
        name, equals, _ = word.partition("=")
        before = argv[position - 1] if position else ""
        if equals and is_secret(name):
            kept.append(f"{name}={NOT_RECORDED}")
        elif before.startswith("-") and "=" not in before and is_secret(before):
            kept.append(NOT_RECORDED)
        else:
            kept.append(word)
    return kept


def _node_record(node: OwnNode) -> dict[str, Any]:
    said: dict[str, Any] = {"id": node.id, "properties": str(node.properties)}
    for name in COMMANDS:
        argv: Argv | None = getattr(node, name)
        if argv is not None:
            said[name] = without_secrets(argv)
    if node.pid_file is not None:
        said["pid_file"] = node.pid_file
    if node.log_dir is not None:
        said["log_dir"] = node.log_dir
    return said
