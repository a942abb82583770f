"""The pytest plugin: options, fixtures, collection of scenario files, and what failures look like.

pytest loads this file in every session of every project that has neaptide installed. So nothing
heavy is imported here, and nothing is done until a test asks for it.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from neaptide.harness.testing import SUFFIX

if TYPE_CHECKING:
    from neaptide.harness.testing.items import ScenarioFile
    from neaptide.harness.testing.lab import Lab, Settings


_SETTINGS: Final = pytest.StashKey["Settings"]()
_SEED: Final = pytest.StashKey[int]()
_OURS: Final = str(Path(__file__).resolve().parents[2])  # the files of this package
_FAILED: Final = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("neaptide")
    group.addoption(
        "--neaptide-system",
        action="append",
        default=[],
        metavar="SYSTEM",
        help="A system to test, such as kafka:3.9.1. Repeatable. Clusters use the first.",
    )
    group.addoption(
        "--neaptide-host",
        metavar="HOST",
        help="Where brokers run: local (the default), netns, docker; or simulation, for scenario"
        " files.",
    )
    group.addoption(
        "--neaptide-seed", type=int, metavar="N", help="The seed of all random choices."
    )
    group.addoption(
        "--neaptide-batch",
        type=int,
        metavar="N",
        help="How many scenario tests are played before Spark judges them in one job.",
    )
    group.addoption(
        "--neaptide-retries-unknown",
        type=int,
        metavar="N",
        help="Repeat a scenario that proved nothing, at most N times. Never an anomaly.",
    )
    parser.addini("neaptide_systems", "The systems, if --neaptide-system is not given.", "linelist")


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    from neaptide.harness.testing import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "neaptide: starts brokers or plays a scenario.")
    seed = _number(config, "seed", None)
    worker = getattr(config, "workerinput", None)  # xdist: each worker has the seed of the first
    if worker is not None:
        seed = worker["neaptide_seed"]
    config.stash[_SEED] = secrets.randbelow(2**31) if seed is None else seed
    if _systems(config) or _host(config) != "local":
        _settings(config)  # what is wrong with them is said before anything is collected


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Of xdist, in its first process."""
    node.workerinput["neaptide_seed"] = node.config.stash[_SEED]


def pytest_report_header(config: pytest.Config) -> str:
    return f"neaptide seed: {config.stash[_SEED]}"


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> ScenarioFile | None:
    if not file_path.name.endswith(SUFFIX):
        return None
    from neaptide.harness.testing.items import ScenarioFile

    file: ScenarioFile = ScenarioFile.from_parent(parent, path=file_path)
    file.settings = _settings(parent.config)
    return file


def _systems(config: pytest.Config) -> tuple[str, ...]:
    return tuple(_values(config, "system", config.getini("neaptide_systems")))


def _host(config: pytest.Config) -> str:
    return next(iter(_values(config, "host")), "local")


def _number(config: pytest.Config, option: str, otherwise: int | None) -> int | None:
    said = next(iter(_values(config, option)), None)
    try:
        return otherwise if said is None else int(said)
    except ValueError:
        raise pytest.UsageError(f"neaptide: {option} = {said!r} must be a whole number.") from None


def _values(config: pytest.Config, option: str, ini: Sequence[str] = ()) -> Sequence[Any]:
    """Of the command line, the environment, pytest's own ini file, or neaptide's; empty: of none.

    Raises pytest.UsageError.
    """
    given = config.getoption(f"--neaptide-{option}")
    if given not in (None, []):
        return given if isinstance(given, list) else [given]
    from neaptide.clusters.errors import UsageError
    from neaptide.harness.terminal import configuration

    try:
        said = configuration.of_pytest(None, os.environ, option)
        if said or ini:
            return said or ini
        file = configuration.find_file(config.rootpath)
        configuration.set_directories(file)
        return configuration.of_pytest(file, {}, option)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None


def _settings(config: pytest.Config) -> Settings:
    """Raises pytest.UsageError for options that cannot be."""
    if _SETTINGS in config.stash:
        return config.stash[_SETTINGS]
    from neaptide.clusters.errors import UsageError
    from neaptide.clusters.hosts.ledger import reap_orphans
    from neaptide.clusters.hosts.place import parse_place
    from neaptide.harness.live.left_behind import REMOVERS
    from neaptide.harness.scenarios.systems import parse_systems
    from neaptide.harness.terminal.signals import end_as_by_ctrl_c
    from neaptide.harness.testing.lab import Judge, Settings

    systems = _systems(config)
    try:
        parse_systems(systems)
        place = parse_place(_host(config))
    except UsageError as error:
        raise pytest.UsageError(str(error)) from None
    if threading.current_thread() is threading.main_thread():
        end_as_by_ctrl_c()
    # What a test session that was killed has left.
    reap_orphans(removers=REMOVERS, complain=lambda what: _say(config, what))
    settings = Settings(
        systems,
        place,
        config.stash[_SEED],
        1 if hasattr(config, "workerinput") else max(1, _number(config, "batch", 1) or 1),
        _number(config, "retries-unknown", 0) or 0,
        Judge(lambda run: _own_checks(config, run)),
        _own_workloads(config),
    )
    config.stash[_SETTINGS] = settings
    return settings


def _say(config: pytest.Config, what: str) -> None:
    """Not as a warning: those may be errors of the suite."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None:
        terminal.write_line(f"neaptide: {what}")


def _own_checks(config: pytest.Config, run: Path) -> list[str]:
    found = config.hook.pytest_neaptide_check(run=run)
    return [str(sentence) for sentences in found for sentence in sentences or ()]


def _own_workloads(config: pytest.Config) -> dict[str, str]:
    return {
        str(name): str(where)
        for workloads in config.hook.pytest_neaptide_workloads()
        for name, where in (workloads or {}).items()
    }


def pytest_unconfigure(config: pytest.Config) -> None:
    if _SETTINGS in config.stash:
        config.stash[_SETTINGS].judge.stop()


@pytest.fixture
def neaptide(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Clusters, runs and checks: `cluster = neaptide.cluster()`. All is ended with the test.

    A cluster to which a recorded producer has sent, and that the test did not check, is checked at
    the end: an acknowledged record that is gone fails the test.
    """
    lab = _settings(request.config).lab(request.node.name)
    yield lab
    from neaptide.harness.testing.findings import properties

    try:
        lab.close(failed=request.node.stash.get(_FAILED, True))
    finally:
        for system, judged in lab.judged:
            request.node.user_properties += properties(system, judged)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """A failure of ours is its few lines, without a traceback; CI on GitHub gets an annotation."""
    outcome: Any = yield
    report: pytest.TestReport = outcome.get_result()
    if report.when == "call":
        item.stash[_FAILED] = report.failed
    if call.excinfo is None or _SETTINGS not in item.config.stash:
        return
    from neaptide.harness.testing.findings import NeaptideFailure, WaitFailure

    error = call.excinfo.value
    if isinstance(error, NeaptideFailure):
        report.longrepr = str(error)
        if isinstance(error, WaitFailure):
            report.longrepr = f"{_where(call.excinfo)}{error}"
    elif _is_for_the_user(call.excinfo):
        report.longrepr = f"{_where(call.excinfo)}neaptide: {error}"


def _is_for_the_user(raised: pytest.ExceptionInfo[BaseException]) -> bool:
    """A sentence of ours that says what to do: nobody needs our traceback."""
    from neaptide.harness.terminal.exits import status_of

    error = raised.value
    is_ours = str(raised.traceback[-1].path).startswith(_OURS)
    return isinstance(error, Exception) and is_ours and status_of(error) is not None


def _where(raised: pytest.ExceptionInfo[BaseException]) -> str:
    """The line of the test, or of what it calls, behind which all is ours."""
    theirs = [entry for entry in raised.traceback if not str(entry.path).startswith(_OURS)]
    return f"{theirs[-1].path}:{theirs[-1].lineno + 1}\n" if theirs else ""


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """On GitHub: one annotation for each failure, at the file and line of the test."""
    if os.environ.get("GITHUB_ACTIONS") != "true" or _SETTINGS not in config.stash:
        return
    from neaptide.harness.terminal.ci import annotation

    for kind in ("failed", "error"):
        for report in terminalreporter.stats.get(kind, []):
            file, line, title = report.location
            text = annotation(str(file), (line or 0) + 1, title, report.longreprtext)
            terminalreporter.write_line(text)
