"""What a system file says, checked: brokers that are started, or a cluster that is just used.

Values only. Settings of clients, and the environment of processes, may hold secrets: nothing here
prints them, and `record` leaves their values out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from neaptide.results.secrets import NOT_RECORDED, without_secrets

COMMANDS: Final = ("start", "prepare", "stop", "kill", "pause", "resume")

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
    image: str | None = None  # on docker: what the nodes run in; None: neaptide's own
    mounts: tuple[Path, ...] = ()  # on docker: directories of this machine, read-only
    client: Mapping[str, str] = field(default_factory=dict, repr=False)  # librdkafka's settings

    @property
    def nodes(self) -> tuple[OwnNode, ...]:
        return (*self.controllers, *self.brokers)

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(broker.id for broker in self.brokers)

    @property
    def directory(self) -> Path:
        """Where the file is: {here}."""
        return self.file.absolute().parent

    @property
    def mounted(self) -> tuple[Path, ...]:
        """Directories of this machine that a container needs: also the file's own, if a node names
        it."""
        here = any(_names(node, self.directory) for node in self.nodes)
        return tuple(dict.fromkeys((*((self.directory,) if here else ()), *self.mounts)))

    def record(self) -> dict[str, Any]:
        """What run.json has of the file."""
        return {
            "file": str(self.file),
            "name": self.name,
            "behaves_like": self.behaves_like,
            **({} if self.image is None else {"image": self.image}),
            **({"mounts": [str(path) for path in self.mounts]} if self.mounts else {}),
            **({"client": dict.fromkeys(self.client, NOT_RECORDED)} if self.client else {}),
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


def _names(node: OwnNode, directory: Path) -> bool:
    """Whether a node's commands or properties name something below a directory, or {here}."""
    commands = [argv for name in COMMANDS if (argv := getattr(node, name)) is not None]
    texts = [node.template, *(word for argv in commands for word in argv)]
    programs = [Path(argv[0]) for argv in commands]
    return any("{here}" in text for text in texts) or any(
        program.is_relative_to(directory) for program in programs
    )


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
