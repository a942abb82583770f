"""A find as a directory that others can use: the scenario, what was seen, and how to play it.

What was seen comes from saved runs of this very scenario: nothing is said of versions on which it
was not played. Not here: playing anything.
"""

from __future__ import annotations

import shlex
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from neaptide.clusters.errors import UsageError
from neaptide.harness.comparing.plain_script import script_of, why_no_script
from neaptide.harness.scenarios import saved_schedule
from neaptide.harness.scenarios.catalog import scenario_files
from neaptide.harness.scenarios.explain import explained
from neaptide.harness.scenarios.systems import OWN
from neaptide.harness.terminal.version import VERSION
from neaptide.nemesis.scenario import Scenario, load_scenario, scenario_of
from neaptide.results.errors import RunUnreadableError
from neaptide.results.report import REPORT_FILE, diagram_of, write_report
from neaptide.results.report.evidence import records
from neaptide.results.report.rows import load
from neaptide.results.run import RUN_FILE, Run, read_run
from neaptide.results.store import find_run, runs_directory, write_text
from neaptide.results.verdicts import read_verdict, why_not_believed

README_FILE: Final = "README.md"
SCRIPT_FILE: Final = "reproduce.sh"
PICTURE_FILE: Final = "fetch-rounds.svg"
_SCENARIO: Final = "scenario.toml"
_SCHEDULE: Final = "schedule.toml"  # of a random run


@dataclass(frozen=True, slots=True)
class Find:
    """One scenario, the run that is shown of it, and the outcomes of all runs of it."""

    scenario: Scenario
    run: Path
    record: Run
    outcomes: Mapping[str, Mapping[str, int]]  # by system

    @property
    def file(self) -> str:
        return _SCENARIO if self.scenario.run is None else _SCHEDULE


def find_of(name: str) -> Find:
    """`name`: a run, a scenario file, or a scenario that ships. Raises UsageError."""
    if name.endswith(saved_schedule.SUFFIX) or name in scenario_files():
        path = Path(name) if name.endswith(saved_schedule.SUFFIX) else scenario_files()[name]
        document = dict(load_scenario(path).document)
        shown = None
    else:
        directory = Path(name) if (Path(name) / RUN_FILE).exists() else find_run(name)
        shown = directory.resolve()
        document = _document(shown)
        if document is None:
            raise UsageError(
                f"{name} has no schedule: it is no run of a scenario or of a workload."
            )
    runs = [shown] if shown is not None else []
    runs += [run for run in _saved() if run not in runs and _document(run) == document]
    judged = [(run, outcome) for run in runs if (outcome := _outcome(run)) is not None]
    if not judged:
        raise UsageError(
            f"No run of {name} has a verdict: `neaptide run {shlex.quote(name)}` plays and judges"
            " it, `neaptide check RUN` judges a run."
        )
    if shown is not None and shown not in dict(judged):
        raise UsageError(f"{name} has no verdict that stands: `neaptide check {name}` judges it.")
    best = shown or max(judged, key=lambda one: (one[1] not in ("held", "unknown"), one[0].name))[0]
    record = read_run(best)
    outcomes: dict[str, Counter[str]] = {}
    for run, outcome in judged:
        outcomes.setdefault(read_run(run).system, Counter())[outcome] += 1
    return Find(scenario_of(record.name, document), best, record, outcomes)


def _saved() -> Iterator[Path]:
    for file in sorted(runs_directory().glob(f"*/{RUN_FILE}")):
        if not file.parent.is_symlink():
            yield file.parent.resolve()


def _document(run: Path) -> Any:
    try:
        document = read_run(run).schedule
    except RunUnreadableError:
        return None
    if not isinstance(document, dict) or "step" not in document:
        return None
    return document


def _outcome(run: Path) -> str | None:
    try:
        verdict = read_verdict(run)
    except RunUnreadableError:
        return None
    if verdict is None or why_not_believed(run, verdict) is not None:
        return None
    return str(verdict.get("outcome", "unknown"))


def export(find: Find, directory: Path) -> Path:
    """Writes the directory, which must not be there. Raises UsageError or StoreError."""
    try:
        directory.mkdir(parents=True)
    except FileExistsError:
        raise UsageError(f"{directory} exists already; choose another directory.") from None
    except OSError as error:
        raise UsageError(f"{directory} cannot be made: {error.strerror}.") from None
    _write_scenario(find, directory / find.file)
    write_text(directory / PICTURE_FILE, diagram_of(find.run))
    if not (find.run / REPORT_FILE).exists():
        write_report(find.run)
    shutil.copyfile(find.run / REPORT_FILE, directory / REPORT_FILE)
    if why_no_script(find.scenario) is None:
        script = directory / SCRIPT_FILE
        write_text(script, script_of(find.scenario))
        script.chmod(0o755)
    write_text(directory / README_FILE, "\n".join(readme(find)) + "\n")
    return directory


def _write_scenario(find: Find, file: Path) -> None:
    """The file that ships, with its comments, where it says the same."""
    shipped = scenario_files().get(find.record.name)
    if shipped is not None and load_scenario(shipped).document == find.scenario.document:
        write_text(file, shipped.read_text(encoding="utf-8"))
    else:
        saved_schedule.save(find.scenario.document, file)


def readme(find: Find) -> Iterator[str]:
    """Line by line, in Markdown."""
    run = find.record
    yield f"# {_text(find.scenario.title or run.title or run.name)}\n"
    if find.scenario.source:
        yield f"Described in: {_text(', '.join(find.scenario.source))}\n"
    yield "## What was seen\n"
    yield "| system | outcome of its runs |"
    yield "|---|---|"
    for system, outcomes in sorted(find.outcomes.items()):
        seen = ", ".join(f"{outcome} {count}" for outcome, count in sorted(outcomes.items()))
        yield f"| `{system}` | {seen} |"
    yield ""
    yield from _of_the_run(find)
    yield "## Steps\n"
    yield "```text"
    yield from explained(find.scenario)
    yield "```\n"
    yield "## Play it\n"
    yield from _commands(find)


def _of_the_run(find: Find) -> Iterator[str]:
    run, data = find.record, load(find.run)
    yield (
        f"What follows is from one run on `{run.system}` (seed {run.seed}, {run.started_utc}), made"
        f" with neaptide {run.neaptide}. Its report is [{REPORT_FILE}]({REPORT_FILE}).\n"
    )
    if run.versions:
        yield "| part | version |"
        yield "|---|---|"
        yield from (f"| {_text(name)} | {_text(of)} |" for name, of in sorted(run.versions.items()))
        yield ""
    shown, more = records(data)
    if shown:
        yield "| anomalies | record | where | acknowledged | read | on disk |"
        yield "|---|---|---|---|---|---|"
        for one in shown:
            cells = (one.anomalies, one.record, one.place, one.acknowledged, one.read, one.on_disk)
            yield f"| {' | '.join(map(_text, cells))} |"
        yield f"\nAnd {more} more.\n" if more else ""
    yield f"![Replicas as columns, fetch rounds as arrows]({PICTURE_FILE})\n"


def _commands(find: Find) -> Iterator[str]:
    command = _command(find)
    reason = why_no_script(find.scenario)
    if reason is None:
        yield (
            "Without neaptide, with the tools of an unpacked Apache Kafka in KRaft:"
            f" `KAFKA_HOME=DIR ./{SCRIPT_FILE}`. It exits 1 where an acknowledged record is gone,"
            " 0 where all are there, 2 where a step did not come about.\n"
        )
    else:
        yield f"Kafka's own tools cannot play it: {reason}.\n"
    yield "With neaptide installed:\n"
    yield f"```console\n$ {shlex.join(command)}\n```\n"
    yield f"In a container (`make image` in a checkout of neaptide {VERSION} builds the image):\n"
    yield (
        '```console\n$ docker run --rm --init --volume "$PWD:/work"'
        f" neaptide:{VERSION} {shlex.join(command[1:])}\n```"
    )


def _command(find: Find) -> list[str]:
    system = find.record.system
    if system.startswith(f"{OWN}:"):  # a file of the user's, which others do not have
        system = "SYSTEM.toml"
    if find.scenario.run is not None:
        return ["neaptide", "replay", find.file, "--system", system]
    return ["neaptide", "run", find.file, "--system", system, "--seed", str(find.record.seed)]


def _text(text: str) -> str:
    """In a cell of a Markdown table."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
