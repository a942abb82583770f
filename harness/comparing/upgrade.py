"""The catalogue on two versions of Apache Kafka, with the settings that a user's brokers have.

Here: which scenarios are played, and what a `server.properties` changes in them. Playing and
judging is `repro`; what has changed is said by `neaptide.results.upgrade`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import tomlkit

from neaptide.clusters.errors import MissingPartError, UsageError
from neaptide.clusters.hosts.place import LOCAL
from neaptide.clusters.kafka.versions import Mode, parse_release
from neaptide.clusters.properties import PropertiesError, read_properties
from neaptide.clusters.settings import known_settings
from neaptide.harness.comparing.repro import Cell
from neaptide.harness.play.scenario import check_scenario
from neaptide.harness.scenarios.catalog import documented
from neaptide.harness.scenarios.systems import KAFKA, System, fetch, parse_system
from neaptide.nemesis.scenario import expected_outcome, parse_scenario
from neaptide.results.store import write_text

# Who a broker is, where it listens and whom it trusts is not the same in a cluster of a test.
_ADDRESSES: Final = (
    "advertised.",
    "allow.everyone.",
    "authorizer.",
    "broker.id",
    "control.plane.",
    "controller.",
    "delegation.",
    "host.name",
    "inter.broker.listener.",
    "listener",
    "log.dir",
    "metadata.log.dir",
    "node.id",
    "password.",
    "port",
    "principal.",
    "process.roles",
    "sasl.",
    "security.",
    "ssl.",
    "super.users",
    "zookeeper.",
)
# Elections come when a schedule makes them come, and only what is looked at is replicated.
_ELECTIONS: Final = (
    "auto.create.topics.",
    "auto.leader.rebalance.",
    "controlled.shutdown.",
    "leader.imbalance.",
    "offsets.topic.",
    "transaction.state.log.",
)
_MEMORY: Final = ("log.cleaner.",)
_PLUGINS: Final = (".class", ".class.name", ".classes", ".class.path", ".reporters", ".policy")
_MEASURES: Final = (".ms", ".bytes", ".messages", ".hours", ".minutes", ".seconds")


@dataclass(frozen=True, slots=True)
class Settings:
    """Of a user's brokers: those that scenarios are played with, and why the others are not."""

    used: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    is_kraft: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What an upgrade plays. `not_played`: by scenario, why it is not."""

    before: System
    after: System
    cells: Sequence[Cell]
    not_played: Mapping[str, str]


def read_settings(file: Path) -> Settings:
    """Of a `server.properties`. Raises UsageError."""
    try:
        given = read_properties(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file} is not UTF-8 text.") from None
    except PropertiesError as error:
        raise UsageError(f"{file}: {error}.") from None
    why = {name: _why_left_out(name) for name in given}
    return Settings(
        {name: value for name, value in given.items() if why[name] is None},
        {name: reason for name, reason in why.items() if reason is not None},
        "process.roles" in given,
    )


def _why_left_out(name: str) -> str | None:
    if name.startswith(_ADDRESSES):
        return "the cluster of a test has addresses and rights of its own"
    if name.startswith(_ELECTIONS):
        return "a schedule says when leaders change and what is replicated"
    if name.startswith(_MEMORY):
        return "brokers of a test are small"
    if name.endswith(_PLUGINS) or name.startswith(("remote.", "metric")):
        return "it is about a plug-in"
    if name not in known_settings():
        return "neaptide knows no such setting"
    return None


def plan(
    before: str,
    after: str,
    settings: Settings,
    repeat: int,
    names: Sequence[str],
    folder: Path,
) -> Plan:
    """`before` and `after`: versions, as 3.9.0. `folder`: where changed scenarios are written.

    Raises UsageError.
    """
    systems = [_system(version, settings) for version in (before, after)]
    if systems[0] == systems[1]:
        raise UsageError(f"Both are {systems[0]}: name two versions.")
    for system in systems:
        fetch(system)
    cells: list[list[Cell]] = [[], []]
    not_played: dict[str, str] = {}
    for path, scenario in documented(list(names)):
        if not any(p.startswith(f"{KAFKA}:") for on in scenario.expect.values() for p in on):
            continue
        where = scenario.name
        try:
            for system in systems:
                check_scenario(scenario, system, LOCAL)
                if not names and expected_outcome(scenario, system.like) is None:
                    raise UsageError(f"nothing is predicted of it on {system}")
        except (UsageError, MissingPartError) as error:
            not_played[scenario.name] = str(error)
            continue
        if settings.used:
            file = folder / path.name
            text = with_settings(path.read_text(encoding="utf-8"), settings.used)
            scenario, where = parse_scenario(scenario.name, text, str(file)), str(file)
            folder.mkdir(parents=True, exist_ok=True)
            write_text(file, text)
        for of_system, system in zip(cells, systems, strict=True):
            of_system += [Cell(scenario, where, system)] * repeat
    # Side by side: after an interruption there is as much of the one as of the other.
    paired = [cell for pair in zip(*cells, strict=True) for cell in pair]
    return Plan(systems[0], systems[1], paired, not_played)


def _system(version: str, settings: Settings) -> System:
    """Of a release that has both, KRaft where the settings are of a node of KRaft."""
    name = version.removeprefix(f"{KAFKA}:")
    release = parse_release(name)
    if settings.is_kraft and release.mode is Mode.ZOOKEEPER:
        name = f"{name}-{Mode.KRAFT.value}"
    return parse_system(f"{KAFKA}:{name}")


def with_settings(text: str, settings: Mapping[str, str]) -> str:
    """A scenario's file with these settings of brokers, comments and all.

    A time or a size that the scenario sets stays: it is chosen so that the steps come about soon.
    """
    document = tomlkit.parse(text)
    cluster: Any = document["cluster"]
    if "settings" not in cluster:
        cluster["settings"] = tomlkit.table()
    _set(cluster["settings"], settings)
    for topic in cluster["topics"].values():
        own = topic.get("settings", {})
        of_topics = {name.removeprefix("log."): value for name, value in settings.items()}
        _set(own, {name: value for name, value in of_topics.items() if name in own})
    return tomlkit.dumps(document)


def _set(table: Any, settings: Mapping[str, str]) -> None:
    for name, value in settings.items():
        if name not in table or not name.endswith(_MEASURES):
            table[name] = value
