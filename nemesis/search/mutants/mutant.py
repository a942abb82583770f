"""A mutant: the core with one rule broken on purpose, for as long as `applied` lasts.

Not which there are: see the files beside this one. What is broken is a field of a generation's row,
or one function of the core, the service or the disk, which another one replaces. The search gets
what it needs to see it: faults, acknowledgements, settings, brokers. `hidden` says why a mutant
cannot be found, `shown` what shows one in the tests for which a search takes long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from neaptide.clusters.broker.replication.generation import GENERATIONS, Generation
from neaptide.clusters.broker.replication.rule import Rule
from neaptide.nemesis.search.targets import NAMES

Replaced = tuple[Rule[..., Any], Callable[..., Any]]  # which rule, by what
USUAL: Final = ("kill", "hold", "cut", "pause", "wait")
POWER: Final = ("kill", "power_off", "hold", "wait")
ZOMBIES: Final = ("kill", "hold", "zombie")
STALE: Final = ("kill", "zombie", "stale")
TORN: Final = ("stop", "power_off")
READS: Final = (*USUAL, "consume")
TWO: Final[Mapping[str, str]] = {"min.insync.replicas": "2"}
ONE: Final[Mapping[str, str]] = {"min.insync.replicas": "1"}
UNCLEAN: Final[Mapping[str, str]] = {"unclean.leader.election.enable": "true"}
V0_11: Final = GENERATIONS["0.11"]
V2_0: Final = GENERATIONS["2.0"]
V2_1: Final = GENERATIONS["2.1"]
V2_8: Final = GENERATIONS["2.8"]
V4_0: Final = GENERATIONS["4.0"]


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    sentence: str
    rules: Generation = V2_1
    replaced: tuple[Replaced, ...] = ()
    acks: tuple[str, ...] = ("all",)
    faults: tuple[str, ...] = USUAL
    topic_settings: Mapping[str, str] = field(default_factory=lambda: TWO)
    settings: Mapping[str, str] = field(default_factory=dict)
    brokers: Mapping[str, int] = field(default_factory=lambda: NAMES)
    hidden: str = ""
    shown: str = ""
    steps_only: bool = False  # what it takes is many steps: by priorities it is not looked for
    idempotence: bool = False  # of the producers
    swarm: bool = False  # nothing says what shows it: every seed draws faults, clients and brokers


def row(name: str, sentence: str, rules: Generation, **rest: Any) -> Mutant:
    """One field of a generation's row is another one."""
    return Mutant(name, sentence, rules, **rest)


def rule(
    name: str, own: Rule[..., Any], by: Callable[..., Any], sentence: str, **rest: Any
) -> Mutant:
    """Another function stands in for one rule."""
    return Mutant(name, sentence, replaced=((own, by),), **rest)


def unseen(
    name: str, own: Rule[..., Any], by: Callable[..., Any], sentence: str, **rest: Any
) -> Mutant:
    """Another function stands in for one rule; the search gets no hint."""
    return rule(name, own, by, sentence, swarm=True, **rest)


@contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    """While it lasts, this process plays by the mutant's rule."""
    for own, by in mutant.replaced:
        own.now = by
    try:
        yield
    finally:
        for own, _ in mutant.replaced:
            own.now = own.own
