"""A saved schedule names the command that finds it again: all that changes what is searched."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from neaptide import harness
from neaptide.clusters.errors import UsageError
from neaptide.harness.cli import explore as cli_search
from neaptide.harness.cli.main import app
from neaptide.harness.search.explore import Asked, search_of
from neaptide.nemesis.scenario import load_scenario
from neaptide.nemesis.search.command import command_of
from neaptide.nemesis.search.deliveries import Counts
from neaptide.nemesis.search.priorities import ByMessages

FOUND = {path.stem: path for path in (Path(harness.__path__[0]) / "found").glob("*.toml")}
ACKS_1 = ("--acks", "1", "--nemesis", "kill,hold", "--seed", "4", "--seeds", "1", "--workers", "1")


def _arguments(path: Path) -> list[str]:
    [source] = load_scenario(path).source
    said, _, command = source.partition("found by neaptide ")
    assert said == ""
    return shlex.split(command)


def _asked(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> Asked:
    """What the command line asks for; nothing is searched."""
    asked: list[Asked] = []
    monkeypatch.setattr(cli_search, "_campaign", lambda one, **_: asked.append(one))
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return asked[0]


@pytest.mark.parametrize("name", FOUND)
def test_the_command_of_a_found_schedule_asks_for_the_search_that_found_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = _arguments(FOUND[name])
    asked = _asked(arguments, monkeypatch)
    assert asked.seeds == 1
    assert command_of(search_of(asked), asked.seed) == shlex.join(["neaptide", *arguments])


@pytest.mark.parametrize(
    "said",
    [
        ("--set", "replica.lag.time.max.ms=12000"),
        ("--set", "offsets.commit.required.acks=1", "--set", "min.insync.replicas=1"),
        ("--outcome", "diverged"),
        ("--idempotence",),
        ("--invariants",),
        ("--brokers", "5", "--partitions", "2"),
        ("--brokers", "4", "--retention"),
        (),
    ],
)
def test_whatever_changes_a_search_is_in_its_command(
    said: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["explore", "--system", "neaptide:2.1", "--acks", "all", "--nemesis", "kill,cut"]
    arguments = [*options, *said, "--seed", "5", "--seeds", "1"]
    asked = _asked(arguments, monkeypatch)
    assert command_of(search_of(asked), asked.seed) == shlex.join(["neaptide", *arguments])


def test_several_kinds_of_acks_are_in_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["explore", "--system", "neaptide:2.1", "--acks", "0,1,all", "--nemesis", "kill"]
    asked = _asked([*options, "--seed", "5", "--seeds", "1"], monkeypatch)
    assert search_of(asked).acks == ("0", "1", "all")
    command = shlex.join(["neaptide", *options, "--seed", "5", "--seeds", "1"])
    assert command_of(search_of(asked), 5) == command


def test_a_search_by_priorities_names_its_bounds_where_they_were_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = _asked(["explore", "--seed", "5", "--seeds", "1"], monkeypatch)
    drawn = replace(search_of(asked), messages=ByMessages(1))
    given = replace(drawn, messages=ByMessages(1, Counts(kills=2), fetches_only=True))
    assert "neaptide explore priorities --system" in command_of(drawn, 5)
    bounds = "--produces 0 --kills 2 --restarts 0 --timers 0 --expiries 0 --reads 0 --operations 0"
    assert f" --fetches-only {bounds} " in command_of(given, 5)


@pytest.mark.proof
@pytest.mark.slow
def test_a_find_by_priorities_is_found_again_by_its_command(tmp_path: Path) -> None:
    one = ["explore", "--system", "neaptide:0.10", "--set", "min.insync.replicas=1"]
    options = [*one, "--priorities", "--nemesis", "kill", "--seed", "30", "--json"]
    many = CliRunner().invoke(app, [*options, "--seeds", "20", "--save", str(tmp_path / "a")])
    found = json.loads(many.stdout)
    assert (many.exit_code, found["outcome"]) == (1, "lost")
    alone = CliRunner().invoke(
        app, [*shlex.split(found["command"])[1:], "--json", "--save", str(tmp_path / "b")]
    )
    again = json.loads(alone.stdout)
    assert (again["runs"], again["seed"], again["path"]) == (1, found["seed"], found["path"])
    assert Path(again["schedule"]).read_text() == Path(found["schedule"]).read_text()


@pytest.mark.slow
def test_the_command_of_a_saved_file_finds_it_again(tmp_path: Path) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    settings = ("--set", "replica.lag.time.max.ms=12000", "--outcome", "lost")
    CliRunner().invoke(app, ["explore", *ACKS_1, *settings, "--save", str(first)])
    [saved] = first.iterdir()
    result = CliRunner().invoke(app, [*_arguments(saved), "--save", str(again)])
    assert result.exit_code == 1, result.output
    [found] = again.iterdir()
    assert found.read_text(encoding="utf-8") == saved.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("min.insync.replica=1", "did you mean min.insync.replicas?"),
        ("num.brokers=5", "a search reads no such setting"),
        ("log.retention.ms=100", "a search reads no such setting"),
    ],
)
def test_a_setting_that_a_search_does_not_read_is_refused(
    setting: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = _asked(["explore", "--set", setting, "--seed", "5", "--seeds", "1"], monkeypatch)
    with pytest.raises(UsageError, match=re.escape(says)):
        search_of(asked)
