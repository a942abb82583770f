"""The schedule of a random run as a scenario file: what is done when, with which load, and to what
it comes.

It is a file like any other, with a `run` that says the load, and steps that have times. A random
run's record has it (`run.json`), `neaptide nightly` keeps what it found as such files, and
`neaptide run FILE`, `replay`, `shrink` and `explain` take one. Here they are made, opened and
played.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import tomlkit

from neaptide.clusters.errors import UsageError
from neaptide.nemesis.acts import Schedule, acts_of, documents_of, length_s
from neaptide.nemesis.scenario import Scenario, load_scenario, scenario_of
from neaptide.results.store import write_text

SUFFIX: Final = ".toml"
_OF_A_CLUSTER: Final = ("--brokers", "--partitions", "--set", "--nemesis", "--time")
Document = Mapping[str, Any]


# --- opening -------------------------------------------------------------------------------------


def load(path: Path) -> Scenario:
    """Of a run directory, or of a file. Raises UsageError: one sentence."""
    if path.is_dir():
        return _of_directory(path)
    if path.suffix == ".json":
        raise UsageError(_refused(path))
    scenario = load_scenario(path)
    if scenario.run is None:
        raise UsageError(f"{path}: is no schedule of a random run: it has no run.")
    return scenario


def _of_directory(directory: Path) -> Scenario:
    file = directory / "run.json"
    try:
        schedule = json.loads(file.read_text(encoding="utf-8"))["schedule"]
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError):
        raise UsageError(f"{file}: has no schedule of a random run.") from None
    if isinstance(schedule, list):
        raise UsageError(_refused(file))
    if not isinstance(schedule, dict) or "run" not in schedule:
        raise UsageError(f"{file}: has no schedule of a random run.")
    return scenario_of(str(file), schedule)


def _refused(file: Path) -> str:
    return (
        f"{file}: has a schedule from before schedules were scenario files: draw one anew with"
        " `neaptide run` and its seed, or play it with the version that wrote it."
    )


def schedule_of(scenario: Scenario) -> Schedule:
    return acts_of(scenario.document["step"])


# --- making --------------------------------------------------------------------------------------


def document_of(
    title: str,
    repeat: str,
    brokers: Sequence[str],
    topic: tuple[str, Sequence[Sequence[str]]],
    schedule: Schedule,
) -> dict[str, Any]:
    """Of a random run, whose command is `repeat`."""
    words = shlex.split(repeat)[2:]
    name, assignment = topic
    settings = dict(one.split("=", 1) for one in _values(words, "--set"))
    cluster: dict[str, Any] = {
        "brokers": list(brokers),
        "topics": {name: {"assignment": [list(replicas) for replicas in assignment]}},
        **({"settings": settings} if settings else {}),
    }
    return {
        "title": title,
        "source": [repeat],
        "run": shlex.join(_without(words, _OF_A_CLUSTER)),
        "cluster": cluster,
        "step": [*documents_of(schedule)],
    }


def changed(document: Document, schedule: Schedule, **more: Any) -> dict[str, Any]:
    """The same file with another schedule, and what else is said."""
    return {**document, "step": [*documents_of(schedule)], **more}


def _values(words: Sequence[str], option: str) -> Iterator[str]:
    return (value for name, value in pairwise(words) if name == option)


def _without(words: Sequence[str], options: Sequence[str]) -> list[str]:
    """Each option has one value."""
    dropped = {n + more for n, word in enumerate(words) if word in options for more in (0, 1)}
    return [word for n, word in enumerate(words) if n not in dropped]


def save(document: Document, file: Path, first_line: str = "") -> None:
    """Any scenario's document, of a random run or not. Raises StoreError."""
    write_text(file, first_line + "\n".join(_lines(document)) + "\n")


def _lines(document: Document) -> Iterator[str]:
    """A table for each step, a line for each of its keys."""
    tables = {name: of for name, of in document.items() if isinstance(of, Mapping)}
    for name, of in document.items():
        if name not in tables and name != "step":
            yield f"{name} = {_value(of)}"
    for name, table in tables.items():
        if table:
            yield f"\n[{name}]"
            yield from (f"{_key(key)} = {_value(of)}" for key, of in table.items())
    for step in document["step"]:
        yield "\n[[step]]"
        yield from (f"{_key(key)} = {_value(of)}" for key, of in step.items())


def _key(name: str) -> str:
    return tomlkit.key(name).as_string()


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(name)} = {_value(of)}" for name, of in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return str(tomlkit.item(value).as_string())


# --- playing -------------------------------------------------------------------------------------


def command(file: Path, system: str | None = None) -> list[str]:
    """The arguments of `neaptide` that play it, for as long as the schedule takes."""
    scenario = load(file)
    return [
        *("run", *(scenario.run or ())),
        *(("--system", system) if system is not None else ()),
        *("--brokers", str(len(scenario.brokers))),
        *("--partitions", str(len(scenario.topic.assignment))),
        *(word for one in scenario.settings.items() for word in ("--set", "=".join(one))),
        *("--nemesis", str(file), "--time", f"{length_s(schedule_of(scenario)):.0f}"),
    ]


def systems_of(scenario: Scenario) -> list[str]:
    """What its `run` names."""
    return [*_values(scenario.run or (), "--system")]
