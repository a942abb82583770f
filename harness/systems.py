"""What can be tested: `neaptide:0.10`, `neaptide:0.11`, … Reading a system's name checks it."""

from __future__ import annotations

from dataclasses import dataclass

from clusters.broker.replication.generation import GENERATIONS
from clusters.errors import UsageError

KNOWN = tuple(f"neaptide:{name}" for name in GENERATIONS)
HOSTS = ("local",)


@dataclass(frozen=True, slots=True)
class System:
    kind: str
    version: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.version}"


def parse_system(text: str) -> System:
    """Raises UsageError with what there is."""
    kind, _, version = text.partition(":")
    if text not in KNOWN:
        raise UsageError(f"There is no system {text!r}; it must be one of {', '.join(KNOWN)}.")
    return System(kind, version)


def check_host(text: str) -> str:
    if text not in HOSTS:
        raise UsageError(f"There is no host {text!r}; it must be one of {', '.join(HOSTS)}.")
    return text
