"""One mutant: which rule is broken, by what, and what a search needs to see it. See mutants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from clusters.broker.replication.generation import GENERATIONS, Generation

Replaced = tuple[Any, Any, Any]  # in what, by which name, by what
USUAL: Final = ("kill", "hold", "cut", "pause", "wait")
POWER: Final = ("kill", "power_off", "hold", "wait")
ZOMBIES: Final = ("kill", "hold", "zombie")
TORN: Final = ("stop", "power_off")
READS: Final = (*USUAL, "consume")
TWO: Final[Mapping[str, str]] = {"min.insync.replicas": "2"}
ONE: Final[Mapping[str, str]] = {"min.insync.replicas": "1"}
UNCLEAN: Final[Mapping[str, str]] = {"unclean.leader.election.enable": "true"}
_V2_1: Final = GENERATIONS["2.1"]


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    sentence: str
    rules: Generation = _V2_1
    replaced: tuple[Replaced, ...] = ()
    acks: tuple[str, ...] = ("all",)
    faults: tuple[str, ...] = USUAL
    topic_settings: Mapping[str, str] = field(default_factory=lambda: TWO)
    settings: Mapping[str, str] = field(default_factory=dict)
    hidden: str = ""
    steps_only: bool = False  # what it takes is many steps: by priorities it is not looked for
    idempotence: bool = False  # of the producers
