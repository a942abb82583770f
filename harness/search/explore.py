"""Searches the simulation for schedules that lose, and saves what it finds as scenario files."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from neaptide.clusters.broker.replication.generation import GENERATIONS, Generation
from neaptide.clusters.broker.replication.settings import (
    InvalidSettingError,
    replication_settings,
    setting_names,
)
from neaptide.clusters.errors import UsageError
from neaptide.nemesis.search.campaign import Campaign, Until, run_campaign
from neaptide.nemesis.search.command import SETTINGS, TOPIC_SETTINGS
from neaptide.nemesis.search.episode import Loss
from neaptide.nemesis.search.explore import BROKEN
from neaptide.nemesis.search.invariants import SENTENCES
from neaptide.nemesis.search.judge import WORST_FIRST
from neaptide.nemesis.search.moves import FAULTS
from neaptide.nemesis.search.search import Search
from neaptide.nemesis.search.swarm import DRAWN_SETTINGS, FAULTS_OF_A_SWARM
from neaptide.nemesis.search.targets import (
    BAD,
    BAD_WITH_IDEMPOTENCE,
    LATE,
    NAMES,
    REPLICAS_OF_FIVE,
    RETENTION,
    RETENTION_CHECK,
    TRANSACT,
    names_of,
)

DEFAULT_FAULTS: Final = ("kill", "hold", "cut", "pause", "wait")
SCHEDULES_PER_SEED: Final = 3_000
SCHEDULES_OF_A_SWARM: Final = 1_000  # each seed of it is another search: fewer of each
KEPT_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line asks for."""

    system: str  # of mutants: empty means all
    seed: int
    seeds: int | None = None
    time_s: float | None = None
    acks: str = "all"
    faults: tuple[str, ...] = DEFAULT_FAULTS
    settings: Mapping[str, str] = field(default_factory=dict)
    save: Path = Path("schedules")
    first: bool = False
    workers: int | None = None
    invariants: bool = False
    outcome: str | None = None  # None: any that is bad
    master: str | None = None  # a Spark cluster whose executors search
    histories: Path | None = None  # where the runs of what is found go
    idempotence: bool = False
    swarm: bool = False
    brokers: int | None = None  # None: three, or in a swarm as many as a seed draws
    partitions: int | None = None
    retention: bool = False


def search_of(asked: Asked) -> Search:
    """Raises UsageError for what cannot be searched."""
    kind, _, name = asked.system.partition(":")
    if kind != "neaptide" or name not in GENERATIONS:
        raise UsageError(
            f"explore searches our own broker: --system must be one of"
            f" {', '.join(f'neaptide:{one}' for one in GENERATIONS)}, not {asked.system!r}."
        )
    acks = tuple(dict.fromkeys(one.strip() for one in asked.acks.split(",")))
    if not set(acks) <= {"0", "1", "all"}:
        raise UsageError(f"--acks {asked.acks!r} must be 0, 1 or all, or several: 0,1,all.")
    if asked.idempotence:
        _check_idempotence(acks, GENERATIONS[name])
    if asked.outcome is not None and asked.outcome not in WORST_FIRST:
        raise UsageError(f"--outcome {asked.outcome!r} must be one of {', '.join(WORST_FIRST)}.")
    _check_names(asked.settings)
    if asked.swarm:
        _check_drawn(asked)
    else:
        _check_transactions(asked.faults, GENERATIONS[name])
    settings = {**SETTINGS, **{k: v for k, v in asked.settings.items() if k not in TOPIC_SETTINGS}}
    topic = {k: asked.settings.get(k, v) for k, v in TOPIC_SETTINGS.items()}
    brokers = len(NAMES) if asked.brokers is None else asked.brokers
    wanted = int(topic["min.insync.replicas"]) if topic["min.insync.replicas"].isdigit() else 1
    if wanted > min(brokers, REPLICAS_OF_FIVE):
        raise UsageError(f"min.insync.replicas={wanted} needs as many replicas; use --brokers.")
    if asked.retention:
        topic.update(RETENTION)
        settings.update(RETENTION_CHECK)
    try:
        replication_settings({**settings, **topic}, GENERATIONS[name])
    except InvalidSettingError as error:
        raise UsageError(f"--set: {error}.") from None
    bad = BAD_WITH_IDEMPOTENCE if asked.idempotence else BAD
    return Search(
        GENERATIONS[name],
        acks,
        asked.faults,
        settings,
        topic,
        SCHEDULES_OF_A_SWARM if asked.swarm else SCHEDULES_PER_SEED,
        watched=asked.invariants,
        outcomes=(asked.outcome,) if asked.outcome is not None else bad,
        idempotence=asked.idempotence,
        swarm=asked.swarm,
        names=names_of(brokers),
        partitions=1 if asked.partitions is None else asked.partitions,
    )


_KNOWN: Final = setting_names() | {"zookeeper.session.timeout.ms"} | set(TOPIC_SETTINGS)


def _check_names(settings: Mapping[str, str]) -> None:
    """What a search does not read would change nothing. Raises UsageError."""
    for name in sorted(settings.keys() - _KNOWN):
        close = difflib.get_close_matches(name, sorted(_KNOWN), n=1)
        meant = f"did you mean {close[0]}?" if close else f"there are {', '.join(sorted(_KNOWN))}."
        raise UsageError(f"--set {name}: a search reads no such setting; {meant}")


def _check_drawn(asked: Asked) -> None:
    """Raises UsageError for what every seed of a swarm draws."""
    for name in sorted(set(DRAWN_SETTINGS) & set(asked.settings)):
        raise UsageError(f"--set {name}: every seed of a swarm draws it.")


def _check_idempotence(acks: tuple[str, ...], rules: Generation) -> None:
    """Raises UsageError."""
    if acks != ("all",):
        raise UsageError(f"--idempotence needs --acks all, not {','.join(acks)}.")
    if rules.idempotence is None:
        raise UsageError(
            f"--idempotence: neaptide:{rules.name} has no idempotent producers, which came with"
            " 0.11."
        )


def _check_transactions(faults: tuple[str, ...], rules: Generation) -> None:
    """Raises UsageError for what would never be drawn."""
    if LATE in faults and TRANSACT not in faults:
        raise UsageError(f"The fault {LATE} is about transactions: name {TRANSACT} beside it.")
    if TRANSACT in faults and rules.idempotence is None:
        raise UsageError(
            f"The fault {TRANSACT}: neaptide:{rules.name} has no transactions, which came with"
            " 0.11."
        )


def faults_of(text: str | None, *, swarm: bool = False) -> tuple[str, ...]:
    """Of `--nemesis`; None: those that a search assumes. Raises UsageError."""
    if text is not None:
        return parse_search_faults(text)
    return FAULTS_OF_A_SWARM if swarm else DEFAULT_FAULTS


def parse_search_faults(text: str) -> tuple[str, ...]:
    """`kill,hold,cut`. Raises UsageError."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in FAULTS:
            raise UsageError(f"There is no fault {name!r}; a search knows {', '.join(FAULTS)}.")
    if not names:
        raise UsageError(f"Name faults, as in kill,hold; a search knows {', '.join(FAULTS)}.")
    return names


def explore(asked: Asked, report: Callable[[Campaign, float], None]) -> dict[str, Any]:
    """Searches, saves, and returns the document of `--json`."""
    search = search_of(asked)
    _check_writable(asked.save)
    until = Until(asked.seeds, asked.time_s, asked.first)
    if asked.master is not None:
        from neaptide.harness.search.explore_spark import run_on_spark

        campaign, seconds, histories = run_on_spark(
            asked.master, search, asked.seed, until, report, asked.histories
        )
    else:
        workers = asked.workers or os.cpu_count() or 1
        campaign, seconds = run_campaign(search, asked.seed, until, workers=workers, report=report)
        histories = ()
    return {
        "system": asked.system,
        "schedules": campaign.schedules,
        "seconds": round(seconds, 3),
        "seeds": campaign.seeds,
        "first_loss_seconds": campaign.first_loss_s and round(campaign.first_loss_s, 3),
        "found": [
            {
                "outcome": loss.outcome,
                "seed": loss.seed,
                "steps": loss.steps,
                "shrunk_steps": len(loss.shrunk),
                "schedule": str(save(loss, asked)),
            }
            for loss in campaign.shortest()[:KEPT_MAX]
        ],
        "histories": [str(run) for run in histories],
        "found_in_all": len(campaign.losses),
        "not_portable": [
            {
                "outcome": loss.outcome,
                "seed": loss.seed,
                "steps": loss.steps,
                "shrunk_steps": len(loss.shrunk) or len(loss.path),
                "schedule": loss.in_words(),
                "command": loss.command,
            }
            for loss in campaign.unportable.values()
        ],
        "broken": [
            {
                "invariant": loss.outcome.removeprefix(BROKEN),
                "sentence": SENTENCES[loss.outcome.removeprefix(BROKEN)],
                "seed": loss.seed,
                "steps": loss.steps,
                "shrunk_steps": len(loss.shrunk) or len(loss.path),
                "schedule": loss.in_words(),
                "evidence": loss.evidence,
                "messages": list(loss.passed),
                "command": loss.command,
            }
            for loss in campaign.broken.values()
        ],
    }


def _check_writable(directory: Path) -> None:
    """Before anything is searched for. Raises UsageError."""
    existing = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    if not (existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)):
        raise UsageError(f"--save {directory}: cannot write there; name another directory.")


def save(loss: Loss, asked: Asked) -> Path:
    name = asked.system.replace(":", "-")
    path = asked.save / f"{loss.outcome}-{name}-{loss.seed}.toml"
    try:
        asked.save.mkdir(parents=True, exist_ok=True)
        path.write_text(loss.document, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--save {asked.save}: cannot write there: {error.strerror}.") from None
    return path
