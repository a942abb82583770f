"""One seed of a search, from nothing to a scenario file: explore, shrink, write down, play again.

What is found counts only as a scenario file that comes to the same outcome when it is played by its
conditions alone. What does so only under the search's own timing is told apart (`unportable`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from clusters.broker.replication.generation import GENERATIONS, Generation
from clusters.simulation.world import World
from nemesis import steps
from nemesis.scenario import parse_scenario
from nemesis.search.document import Cluster, document_of
from nemesis.search.explore import Episode, Target
from nemesis.search.play import simulate
from nemesis.search.shrink import Schedule, renamed, shrink
from nemesis.search.worlds import ready_world, world_spec

TOPIC = "t"
NAMES: Mapping[str, int] = {"A": 1, "B": 2, "C": 3}
ASSIGNMENT = ("C", "B", "A")  # A, which starts first, is controller and last to lead


@dataclass(frozen=True, slots=True)
class Search:
    """What is searched for: everything that a worker must know. `rules`: a generation or mutant."""

    rules: Generation
    acks: tuple[str, ...]
    faults: tuple[str, ...]
    settings: Mapping[str, str]
    topic_settings: Mapping[str, str]
    schedules_max: int  # in one episode

    def target(self) -> Target:
        assignment = {0: tuple(NAMES[name] for name in ASSIGNMENT)}
        spec = world_spec(
            self.rules,
            self.settings,
            tuple(sorted(NAMES.values())),
            TOPIC,
            assignment,
            self.topic_settings,
        )
        return Target(spec, NAMES, self.acks, self.faults)


@dataclass(frozen=True, slots=True)
class Loss:
    """A schedule that was found and shrunk. `document`: the text of its scenario file."""

    outcome: str
    seed: int
    steps: int
    shrunk: Schedule
    document: str
    portable: bool
    signature: str


@dataclass(frozen=True, slots=True)
class Explored:
    """What one seed came to."""

    seed: int
    schedules: int
    states: int
    loss: Loss | None


def explore_seed(search: Search, seed: int) -> Explored:
    target = search.target()
    episode = Episode(target, seed)
    found = episode.explore(search.schedules_max)
    if found is None:
        return Explored(seed, episode.schedules, len(episode.states), None)
    ready = ready_world(target.spec)
    outcome = found.judged.outcome
    writer = _Writer(search, target, ready, seed, outcome)
    portable = writer.is_portable(found.schedule)
    shrunk = shrink(
        target,
        ready,
        found.schedule,
        outcome,
        writer.is_portable if portable else (lambda schedule: True),
    )
    loss = Loss(
        outcome,
        seed,
        len(found.schedule),
        shrunk,
        writer.final_document(shrunk),
        writer.is_portable(shrunk),
        signature(shrunk),
    )
    return Explored(seed, episode.schedules, len(episode.states), loss)


@dataclass(frozen=True, slots=True)
class _Writer:
    search: Search
    target: Target
    ready: World
    seed: int
    outcome: str

    def _document(self, schedule: Schedule, expect: Mapping[str, str]) -> str:
        what = {"lost": "An acknowledged record is lost", "diverged": "Two replicas diverge"}
        title = what.get(self.outcome, f"The outcome is {self.outcome}")
        rules = self.search.rules.name
        return document_of(
            self.target,
            self.ready,
            schedule,
            Cluster(self.search.settings, self.search.topic_settings),
            title=f"{title}: {told(schedule)}",
            source=f"found by neaptide explore --system neaptide:{rules} --seed {self.seed}",
            expect=expect,
        )

    def is_portable(self, schedule: Schedule) -> bool:
        text = self._document(renamed(schedule), {f"neaptide:{self.search.rules.name}": "lost"})
        return self._outcome(text, self.search.rules) == self.outcome

    def _outcome(self, text: str, rules: Generation) -> str:
        scenario = parse_scenario("found", text, "found.toml")
        return simulate(scenario, rules).judged.outcome

    def final_document(self, schedule: Schedule) -> str:
        """With what the same schedule comes to on every generation."""
        text = self._document(schedule, {f"neaptide:{self.search.rules.name}": self.outcome})
        expect = {f"neaptide:{self.search.rules.name}": self.outcome}
        for name, rules in GENERATIONS.items():
            outcome = self._outcome(text, rules)
            if outcome != "unknown":
                expect[f"neaptide:{name}"] = outcome
        return self._document(schedule, expect)


def told(schedule: Schedule) -> str:
    """A schedule in a line."""
    return ", ".join(_word(step) for step in schedule)


def _word(step: steps.Step) -> str:
    match step:
        case steps.Produce(records, acks):
            return f"produce {' '.join(records)} acks={acks}"
        case steps.Hold():
            return f"hold {step.message} {step.source}→{step.destination}"
        case steps.Release():
            return "release"
        case steps.Cut():
            return f"cut {step.source}{'↔' if step.both else '→'}{step.destination}"
        case steps.Heal():
            return "heal"
        case steps.Await():
            return "wait"
        case steps.PowerOff(broker, survives):
            return f"power off {broker}" + (f" after {survives}" if survives else "")
        case steps.Kill(broker) | steps.Restart(broker) | steps.Pause(broker):
            return f"{type(step).__name__.lower()} {broker}"
        case steps.Resume(broker):
            return f"resume {broker}"
    return type(step).__name__.lower()


def signature(schedule: Schedule) -> str:
    """The same for schedules that differ in the brokers' names alone."""
    line = told(schedule)
    renaming: dict[str, str] = {}
    for letter in line:
        if letter in NAMES and letter not in renaming:
            renaming[letter] = f"{len(renaming) + 1}"
    return "".join(renaming.get(letter, letter) for letter in line)
