"""One seed of a search, from nothing to a scenario file: explore, shrink, write down, play again.

What is found counts only as a scenario file that comes to the same outcome when it is played by its
conditions alone. What does so only under the search's own timing is recognized (`unportable`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from neaptide.clusters.broker.replication.generation import GENERATIONS, Generation
from neaptide.clusters.simulation.world import World
from neaptide.nemesis.scenario import parse_scenario
from neaptide.nemesis.search import swarm as swarms
from neaptide.nemesis.search.as_steps import as_schedule
from neaptide.nemesis.search.command import command_of
from neaptide.nemesis.search.deliveries import evidence_of, first_state, shortened, words
from neaptide.nemesis.search.document import Cluster, document_of
from neaptide.nemesis.search.evidence import with_messages
from neaptide.nemesis.search.explore import BROKEN, Episode, Found, is_bad, watched_world
from neaptide.nemesis.search.judge import Judged
from neaptide.nemesis.search.play import simulate
from neaptide.nemesis.search.priorities import Run, try_runs
from neaptide.nemesis.search.search import Search
from neaptide.nemesis.search.shrink import Schedule, renamed, shrink, signature
from neaptide.nemesis.search.targets import Target
from neaptide.nemesis.search.worlds import ready_world
from neaptide.nemesis.steps import in_line


@dataclass(frozen=True, slots=True)
class Loss:
    """A schedule that was found and shrunk. `document`: the text of its scenario file.

    Of a broken invariant there is no file: `evidence` is what was seen when it broke, `passed` the
    messages between brokers up to that moment. `command`: what finds it again. `moves` and `path`
    are of what was found message by message: how long it was, and the shortened one in lines.
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
    moves: int = 0
    path: tuple[str, ...] = ()

    def in_words(self) -> str:
        return in_line(self.shrunk) if self.shrunk else ", ".join(self.path)


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
    episode, is_over = Episode(target, seed), over_after(time_s)
    found = episode.explore(search.schedules_max, is_over) if search.schedules_max else None
    if found is None and search.messages is not None and not is_over():
        tried = try_runs(target, seed, search.messages, is_over)
        run, schedules = tried.found, episode.schedules + tried.runs
        loss = None if run is None else _loss_of_run(search, tried.target, run, seed)
        return Explored(seed, schedules, len(episode.states), loss)
    if found is None:
        return Explored(seed, episode.schedules, len(episode.states), None)
    ready = watched_world(target)
    outcome = found.judged.outcome
    if isinstance(ready, Judged) or outcome.startswith(BROKEN):
        loss = broken_rule(search, ready, found)
    else:
        loss = loss_of(search, ready, found)
    return Explored(seed, episode.schedules, len(episode.states), loss)


def loss_of(search: Search, ready: World, found: Found) -> Loss:
    """What was found, shrunk, and its file."""
    target, outcome, seed = search.target(), found.judged.outcome, found.seed
    writer = _Writer(search, target, ready, seed, found.judged)
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
        command=command_of(search, seed),
    )


def _loss_of_run(search: Search, target: Target, run: Run, seed: int) -> Loss:
    """What was found message by message, shortened; and as a file, where steps can say it."""
    assert run.judged is not None
    outcome, evidence, path = run.judged.outcome, run.judged.evidence, run.path
    first = first_state(target)
    if isinstance(first, Judged):
        return _path_loss(search, outcome, seed, run, (), evidence)
    path = shortened(first, path, target, outcome)
    evidence = evidence_of(first, path, target)
    lines = tuple(words(path, target))
    loss = _path_loss(search, outcome, seed, run, lines, evidence)
    if outcome.startswith(BROKEN):
        return loss
    unwatched = replace(search, watched=False)
    in_steps = unwatched.target()
    ready = ready_world(in_steps.spec)
    schedule = as_schedule(path, in_steps, ready, outcome)
    if schedule is None:
        return loss
    found = loss_of(unwatched, ready, Found(seed, schedule, Judged(outcome, ()), 0))
    return replace(found, command=loss.command, moves=loss.moves, path=lines, evidence=evidence)


def _path_loss(
    search: Search, outcome: str, seed: int, run: Run, lines: tuple[str, ...], evidence: str
) -> Loss:
    return Loss(
        outcome,
        seed,
        len(run.path),
        (),
        document="",
        portable=False,
        signature=f"{outcome}, message by message",
        evidence=evidence,
        command=command_of(search, seed),
        moves=len(run.path),
        path=lines,
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
            title=f"{title}: {in_line(schedule)}",
            source=f"found by {command_of(self.search, self.seed)}",
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
            needs = self.search.idempotence or self.target.spec.transactions is not None
            if needs and rules.idempotence is None:
                continue
            outcome = self._judged(text, rules).outcome
            if outcome != "unknown":
                expect[f"neaptide:{name}"] = outcome
        return self._document(schedule, expect)
