"""One seed of a search, from nothing to a scenario file: explore, shrink, write down, play again.

What is found counts only as a scenario file that comes to the same outcome when it is played by its
conditions alone. What does so only under the search's own timing is recognized (`unportable`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from neaptide.clusters.broker.replication.generation import GENERATIONS, Generation
from neaptide.clusters.simulation.world import World
from neaptide.nemesis.scenario import parse_scenario
from neaptide.nemesis.search import swarm as swarms
from neaptide.nemesis.search.command import command_of
from neaptide.nemesis.search.document import Cluster, document_of
from neaptide.nemesis.search.evidence import with_messages
from neaptide.nemesis.search.explore import BROKEN, Episode, Found, is_bad, watched_world
from neaptide.nemesis.search.judge import Judged
from neaptide.nemesis.search.play import simulate
from neaptide.nemesis.search.shrink import Schedule, renamed, shrink
from neaptide.nemesis.search.targets import BAD, BAD_WITH_IDEMPOTENCE, NAMES, Target, target_of
from neaptide.nemesis.search.words import in_words, signature


@dataclass(frozen=True, slots=True)
class Search:
    """What is searched for: everything that a worker must know. `rules`: a generation or mutant."""

    rules: Generation
    acks: tuple[str, ...]
    faults: tuple[str, ...]
    settings: Mapping[str, str]
    topic_settings: Mapping[str, str]
    schedules_max: int  # in one episode
    watched: bool = False  # with invariants
    outcomes: tuple[str, ...] = BAD  # what counts as a find
    idempotence: bool = False  # of its producers
    swarm: bool = False  # every seed draws its own (swarm)
    asked: Search | None = None  # of what is drawn for a seed: what was searched
    names: Mapping[str, int] = field(default_factory=lambda: NAMES)  # of its brokers
    partitions: int = 1
    spares: bool = False  # no power failure takes a last copy
    second_client: bool = False  # of the groups that commit

    def target(self) -> Target:
        target = target_of(
            self.rules,
            self.settings,
            self.topic_settings,
            self.acks,
            self.faults,
            watched=self.watched,
            idempotence=self.idempotence,
            names=self.names,
            partitions=self.partitions,
            spares=self.spares,
            second_client=self.second_client,
        )
        if self.outcomes in (BAD, BAD_WITH_IDEMPOTENCE):
            return target
        return replace(target, outcomes=self.outcomes, anomalies=())


@dataclass(frozen=True, slots=True)
class Loss:
    """A schedule that was found and shrunk. `document`: the text of its scenario file.

    Of a broken invariant there is no file: `evidence` is what was seen when it broke, `passed` the
    messages between brokers up to that moment. `command`: what finds it again.
    """

    outcome: str
    seed: int
    steps: int
    shrunk: Schedule
    document: str
    portable: bool
    signature: str
    evidence: str = ""
    passed: tuple[str, ...] = ()
    command: str = ""


@dataclass(frozen=True, slots=True)
class Explored:
    """What one seed came to."""

    seed: int
    schedules: int
    states: int
    loss: Loss | None


def explore_seed(search: Search, seed: int, time_s: float | None = None) -> Explored:
    """`time_s`: it is left where it is then; what is found by then does not depend on it."""
    search = swarms.drawn(search, seed) if search.swarm else search
    target = search.target()
    episode = Episode(target, seed)
    found = episode.explore(search.schedules_max, over_after(time_s))
    if found is None:
        return Explored(seed, episode.schedules, len(episode.states), None)
    ready = watched_world(target)
    outcome = found.judged.outcome
    if isinstance(ready, Judged) or outcome.startswith(BROKEN):
        loss = broken_rule(search, ready, found)
    else:
        loss = loss_of(search, ready, found)
    return Explored(seed, episode.schedules, len(episode.states), loss)


def loss_of(search: Search, ready: World, found: Found, by: str = "") -> Loss:
    """What was found, shrunk, and its file. `by`: the options of the search, if any."""
    target, outcome, seed = search.target(), found.judged.outcome, found.seed
    writer = _Writer(search, target, ready, seed, found.judged, by)
    portable = writer.is_portable(found.schedule)
    shrunk = shrink(
        target,
        ready,
        found.schedule,
        outcome,
        writer.is_portable if portable else (lambda schedule: True),
    )
    return Loss(
        outcome,
        seed,
        len(found.schedule),
        shrunk,
        writer.final_document(shrunk),
        writer.is_portable(shrunk),
        signature(shrunk),
        command=command_of(search, seed, by),
    )


def over_after(time_s: float | None) -> Callable[[], bool]:
    if time_s is None:
        return lambda: False
    end_s = time.monotonic() + time_s
    return lambda: time.monotonic() >= end_s


def broken_rule(search: Search, ready: World | Judged, found: Found) -> Loss:
    """A broken invariant is no outcome that a scenario file can wait for: it has no file."""
    target, outcome, schedule = search.target(), found.judged.outcome, found.schedule
    judged = found.judged
    passed: tuple[str, ...] = ()
    if not isinstance(ready, Judged):
        schedule = shrink(target, ready, schedule, outcome)
        again, passed = with_messages(target, ready, schedule)
        judged = again or judged
    return Loss(
        outcome,
        found.seed,
        len(found.schedule),
        schedule,
        document="",
        portable=False,
        signature=f"{outcome}: {signature(schedule)}",
        evidence=judged.evidence,
        passed=passed,
        command=command_of(search, found.seed),
    )


@dataclass(frozen=True, slots=True)
class _Writer:
    search: Search
    target: Target
    ready: World
    seed: int
    judged: Judged  # what it came to when it was found
    by: str

    @property
    def outcome(self) -> str:
        return self.judged.outcome

    def _document(self, schedule: Schedule, expect: Mapping[str, str]) -> str:
        what = {"lost": "An acknowledged record is lost", "diverged": "Two replicas diverge"}
        what["duplicated"] = (
            "A commit that was acknowledged is lost, and its records are read again"
            if "commit-regression" in dict(self.judged.anomalies)
            else "An acknowledged record is there twice"
        )
        title = what.get(self.outcome, f"The outcome is {self.outcome}")
        return document_of(
            self.target,
            self.ready,
            schedule,
            Cluster(self.search.settings, self.search.topic_settings),
            title=f"{title}: {in_words(schedule)}",
            source=f"found by {command_of(self.search, self.seed, self.by)}",
            expect=expect,
        )

    def is_portable(self, schedule: Schedule) -> bool:
        text = self._document(renamed(schedule), {f"neaptide:{self.search.rules.name}": "lost"})
        judged = self._judged(text, self.search.rules)
        return judged.outcome == self.outcome and is_bad(self.target, judged)

    def _judged(self, text: str, rules: Generation) -> Judged:
        return simulate(parse_scenario("found", text, "found.toml"), rules).judged

    def final_document(self, schedule: Schedule) -> str:
        """With what the same schedule comes to on every generation."""
        text = self._document(schedule, {f"neaptide:{self.search.rules.name}": self.outcome})
        expect = {f"neaptide:{self.search.rules.name}": self.outcome}
        for name, rules in GENERATIONS.items():
            if self.search.idempotence and rules.idempotence is None:
                continue
            outcome = self._judged(text, rules).outcome
            if outcome != "unknown":
                expect[f"neaptide:{name}"] = outcome
        return self._document(schedule, expect)
