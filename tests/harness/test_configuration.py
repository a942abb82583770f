"""Options that are set once: a file, over it the environment, over both the command line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from neaptide.clusters.errors import UsageError
from neaptide.harness.cli import explore as cli_search
from neaptide.harness.cli import main as cli
from neaptide.harness.cli import sweep as cli_sweep
from neaptide.harness.scenarios.systems import DEFAULT_SYSTEM
from neaptide.harness.search.explore import Asked
from neaptide.harness.terminal.configuration import (
    defaults_of,
    find_file,
    of_pytest,
    set_directories,
)

PROGRAM: Any = typer.main.get_command(cli.app)


def defaults(directory: Path, text: str, environ: Mapping[str, str] | None = None) -> Any:
    (directory / "neaptide.toml").write_text(text, encoding="utf-8")
    return defaults_of(PROGRAM, find_file(directory), environ or {})


def refusal(directory: Path, text: str, environ: Mapping[str, str] | None = None) -> str:
    with pytest.raises(UsageError) as refused:
        defaults(directory, text, environ)
    return str(refused.value)


# --- which file ----------------------------------------------------------------------------------


def test_without_a_file_nothing_is_set(tmp_path: Path) -> None:
    assert find_file(tmp_path) is None
    assert not any(defaults_of(PROGRAM, None, {})["run"].values())


def test_the_nearest_file_counts_and_a_project_only_with_our_table(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "neaptide.toml").write_text('system = "neaptide:0.10"')
    (tmp_path / "a" / "pyproject.toml").write_text("[tool.other]")
    found = find_file(inner)
    assert found is not None
    assert found.path == tmp_path / "neaptide.toml"
    (tmp_path / "a" / "pyproject.toml").write_text('[tool.neaptide]\nsystem = "neaptide:2.1"')
    found = find_file(inner)
    assert found is not None
    assert (found.path, found.settings) == (
        tmp_path / "a" / "pyproject.toml",
        {"system": "neaptide:2.1"},
    )


def test_a_file_that_is_no_toml_is_named(tmp_path: Path) -> None:
    assert "neaptide.toml: is not valid TOML" in refusal(tmp_path, "system = ")


# --- what it sets --------------------------------------------------------------------------------


def test_what_all_commands_share_is_set_for_each_that_has_it(tmp_path: Path) -> None:
    made = defaults(tmp_path, 'system = "neaptide:2.1"\nhost = "netns"\nseed = 7\njson = true')
    assert made["run"]["system"] == "neaptide:2.1"
    assert made["repro"]["system"] == ["neaptide:2.1"]
    assert made["explore"]["swarm"]["system"] == "neaptide:2.1"
    assert made["run"]["seed"] == "7"
    assert made["spark"]["status"] == {"json": True}
    assert made["run"]["host"] == "netns"
    assert "host" not in made["serve"], "there it is where to listen"


def test_a_command_has_a_table_and_a_group_has_one_for_all_of_its_commands(tmp_path: Path) -> None:
    text = """
        seed = 1
        [run]
        seed = 2
        time = "90s"
        set = { "min.insync.replicas" = 2, "unclean.leader.election.enable" = false }
        [explore]
        time = 5
        [explore.swarm]
        time = 6
    """
    made = defaults(tmp_path, text)
    assert made["run"]["seed"] == "2"
    assert made["replay"]["seed"] == "1"
    assert made["run"]["time_s"] == "90s"
    assert made["run"]["setting"] == [
        "min.insync.replicas=2",
        "unclean.leader.election.enable=false",
    ]
    assert made["explore"]["random"]["time_s"] == "5"
    assert made["explore"]["swarm"]["time_s"] == "6"


def test_the_environment_goes_before_the_file_and_the_nearer_name_before_the_others(
    tmp_path: Path,
) -> None:
    text = 'system = "neaptide:0.10"\n[run]\nrate = 5\n[explore]\ntime = 5'
    environ = {
        "NEAPTIDE_SYSTEM": "neaptide:2.1",
        "NEAPTIDE_REPRO_SYSTEM": "neaptide:2.0 neaptide:2.1",
        "NEAPTIDE_RUN_RATE": "9",
        "NEAPTIDE_RUN_IDEMPOTENCE": "yes",
        "NEAPTIDE_EXPLORE_TIME": "8",
        "NEAPTIDE_EXPLORE_SWARM_TIME": "9",
    }
    made = defaults(tmp_path, text, environ)
    assert made["run"]["system"] == "neaptide:2.1"
    assert made["repro"]["system"] == ["neaptide:2.0", "neaptide:2.1"]
    assert (made["run"]["rate"], made["run"]["idempotence"]) == ("9", True)
    assert made["explore"]["random"]["time_s"] == "8"
    assert made["explore"]["swarm"]["time_s"] == "9"


def test_a_file_is_relative_to_the_one_that_names_it(tmp_path: Path) -> None:
    made = defaults(tmp_path, 'system = "my.toml"\nnodes = "n.toml"\n[explore]\nsave = "s"')
    assert made["run"]["system"] == str(tmp_path / "my.toml")
    assert made["run"]["nodes"] == str(tmp_path / "n.toml")
    assert made["explore"]["random"]["save"] == str(tmp_path / "s")


def test_directories_are_variables_that_may_be_set_already(tmp_path: Path) -> None:
    defaults(tmp_path, 'runs = "r"\nstate = "s"')
    environ = {"NEAPTIDE_RUNS": "/elsewhere"}
    set_directories(find_file(tmp_path), environ)
    assert environ == {"NEAPTIDE_RUNS": "/elsewhere", "NEAPTIDE_STATE": str(tmp_path / "s")}


def test_pytest_has_a_table_too(tmp_path: Path) -> None:
    defaults(tmp_path, 'system = "neaptide:2.1"\n[pytest]\nbatch = 3\nsystem = ["a", "b"]')
    file = find_file(tmp_path)
    assert of_pytest(file, {}, "system") == ["a", "b"]
    assert of_pytest(file, {}, "batch") == ["3"]
    assert of_pytest(file, {}, "seed") == []
    assert of_pytest(file, {"NEAPTIDE_SYSTEM": "c"}, "system") == ["c"]
    assert of_pytest(file, {"NEAPTIDE_PYTEST_BATCH": "4"}, "batch") == ["4"]


# --- what means nothing --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('sytem = "x"', "neaptide.toml: sytem is no option; did you mean 'system'?"),
        ("time = 3", "time: commands differ in it; write it into [run]"),
        ("[run]\ntimes = 3", "run.times is no option of it; did you mean 'time'?"),
        ("[explore.swarms]\n", "explore.swarms is no option of it; did you mean 'swarm'?"),
        ("[explore.swarm]\nbrokers = 3", "explore.swarm.brokers is no option of it"),
        ("run = 3", "run must be a table"),
        ("[pytest]\nbath = 3", "pytest.bath is no option of it; did you mean 'batch'?"),
        ("pytest = 3", "pytest must be a table"),
        ('[run]\nidempotence = "yes"', "run.idempotence = 'yes' must be true or false"),
        ("[run]\nrate = []", "run.rate = [] must be a text or a number"),
        ("[run]\nset = [[1]]", "run.set = [1] must be a text or a number"),
    ],
)
def test_what_names_nothing_is_refused(tmp_path: Path, text: str, said: str) -> None:
    assert said in refusal(tmp_path, text)


def test_a_variable_that_is_nearly_one_of_ours_is_refused(tmp_path: Path) -> None:
    said = "NEAPTIDE_SYTEM means nothing; did you mean NEAPTIDE_SYSTEM?"
    assert said in refusal(tmp_path, "", {"NEAPTIDE_SYTEM": "x"})
    assert "must be one of 1, true" in refusal(tmp_path, "", {"NEAPTIDE_JSON": "perhaps"})
    defaults(tmp_path, "", {"NEAPTIDE_SOMETHING_OF_MY_CI": "x", "NEAPTIDE_RUNS": "r"})


# --- through the command line --------------------------------------------------------------------


@pytest.fixture
def explored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[str, Asked]]:
    """What is searched, and how, instead of a search."""
    asked: list[tuple[str, Asked]] = []

    def fake(mode: str) -> Callable[..., None]:
        return lambda one, *_, **__: asked.append((mode, one))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli_search, "_campaign", fake("steps"))
    for mode in ("mutants", "exhaustive", "priorities"):
        monkeypatch.setattr(cli_sweep, mode, fake(mode))

    def run(*words: str) -> tuple[str, Asked]:
        done = CliRunner().invoke(cli.app, [*words])
        assert done.exit_code == 0, done.output
        return asked.pop()

    return run


def test_the_command_line_goes_before_all(
    explored: Callable[..., tuple[str, Asked]], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("neaptide.toml").write_text('system = "neaptide:0.10"\n[explore]\nworkers = 1')
    assert explored("explore")[1].system == "neaptide:0.10"
    monkeypatch.setenv("NEAPTIDE_EXPLORE_SYSTEM", "neaptide:0.11")
    _, asked = explored("explore")
    assert (asked.system, asked.workers) == ("neaptide:0.11", 1)
    assert explored("explore", "-s", "neaptide:2.1")[1].system == "neaptide:2.1"
    _, asked = explored("--isolated", "explore")
    assert (asked.system, asked.workers) == (DEFAULT_SYSTEM, None)


@pytest.mark.parametrize(
    ("words", "mode", "is_swarm"),
    [
        ((), "steps", False),
        (("random",), "steps", False),
        (("swarm",), "steps", True),
        (("--swarm",), "steps", True),
        (("--seed", "1", "--swarm"), "steps", True),
        (("priorities",), "priorities", False),
        (("--seed", "1", "--priorities"), "priorities", False),
        (("exhaustive", "--invariants"), "exhaustive", False),
        (("--produces", "2", "--exhaustive"), "exhaustive", False),
        (("mutants",), "mutants", False),
        (("--mutants", "-s", "neaptide:2.1"), "mutants", False),
    ],
)
def test_the_modes_of_explore_are_commands(
    explored: Callable[..., tuple[str, Asked]],
    words: tuple[str, ...],
    mode: str,
    is_swarm: bool,
) -> None:
    """And the flags that they were before are understood."""
    done, asked = explored("explore", *words)
    assert (done, asked.swarm) == (mode, is_swarm)


@pytest.mark.parametrize(
    ("words", "seconds"), [("90s", 90), ("1h30m", 5400), ("20", 20), ("0.5h", 1800)]
)
def test_a_duration_is_written_in_one_way(
    explored: Callable[..., tuple[str, Asked]], words: str, seconds: float
) -> None:
    assert explored("explore", "--time", words)[1].time_s == seconds
    Path("neaptide.toml").write_text(f'[explore]\ntime = "{words}"')
    assert explored("explore", "swarm")[1].time_s == seconds


@pytest.mark.live
def test_a_wrong_value_that_nobody_typed_is_named_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "neaptide.toml").write_text('[run]\ntime = "soon"')
    done = subprocess.run(
        [sys.executable, "-m", "neaptide.harness.cli", "run", "append"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 64
    assert "'--time': 'soon' is no duration, as 90s, 30m or 1h30m" in done.stderr
    assert str(tmp_path / "neaptide.toml") in done.stderr


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("neaptide explore sw", ["swarm"]),
        ("neaptide run --system neaptide:2", ["neaptide:2.0", "neaptide:2.1", "neaptide:2.8"]),
        ("neaptide run append --nemesis kill,cu", ["kill,cut"]),
        ("neaptide repro acks-1", ["acks-1-loss"]),
        ("neaptide run ap", ["append"]),
        ("neaptide run append --host si", ["simulation"]),
        ("neaptide run append --client kaf", ["kafka-python"]),
    ],
)
def test_a_shell_completes_what_there_is(line: str, offered: list[str]) -> None:
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
    done = CliRunner().invoke(cli.app, env={"_NEAPTIDE_COMPLETE": "complete_bash", **words})
    assert done.stdout.split() == offered
