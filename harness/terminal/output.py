"""What people see: progress on standard error, results on standard output.

With a terminal there is a live line; without one, plain lines, and only when something changed.
With `--json`, standard output has one JSON document and nothing else.
"""

from __future__ import annotations

import atexit
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, cast

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from neaptide.harness.terminal.outgoing import Outgoing
from neaptide.results.matrix import Matrix, Status
from neaptide.results.visible import visible

_COLOURS = {
    "held": "green",
    "valid": "green",
    "yes": "green",
    "unknown": "yellow",
    "no": "red",
    "anomalous": "red",
    "lost": "red",
    "diverged": "red",
}


class _Console(Console):
    """What others have written is shown, and not obeyed."""

    def print(self, *objects: Any, **how: Any) -> None:
        super().print(*(visible(one) if isinstance(one, str) else one for one in objects), **how)


out = _Console(highlight=False, soft_wrap=True)
# A descriptor of its own: while Spark starts, Java is given another standard error than this
# process, and what is reported meanwhile is not to go there.
_own_stderr = os.fdopen(os.dup(2), "w", buffering=1, encoding="utf-8", errors="replace")
err = _Console(file=cast(TextIO, Outgoing(_own_stderr)), highlight=False, soft_wrap=True)


@atexit.register
def _close() -> None:
    with suppress(OSError):  # whoever read it is gone
        _own_stderr.close()


def coloured(word: str) -> str:
    word = visible(word)
    colour = _COLOURS.get(word)
    return f"[{colour}]{escape(word)}[/]" if colour else escape(word)


@dataclass(slots=True)
class _Said:
    """How much is said on standard error, beside errors. Quiet goes before verbose."""

    quiet: bool = False
    verbose: bool = False


_said = _Said()


def be_quiet(given: bool) -> bool:
    _said.quiet = given
    return given


def be_verbose(given: bool) -> bool:
    _said.verbose = given
    return given


def is_verbose() -> bool:
    return _said.verbose and not _said.quiet


def has_bar() -> bool:
    """Whether progress is a bar; otherwise it is lines."""
    return err.is_terminal and not (_said.quiet or _said.verbose)


def note(line: str) -> None:
    """What is good to know, and no result: the seed, what is being done."""
    if not _said.quiet:
        err.print(line, markup=False)


class Reporter:
    """Shows what is being done: one bar, one line of text."""

    def __init__(self, progress: Progress | None, task: TaskID | None) -> None:
        self._progress = progress
        self._task = task
        self._last = ""

    def report(self, text: str, completed: float | None = None) -> None:
        text = visible(text)
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, description=text, completed=completed)
        elif text != self._last:
            note(text)
        self._last = text


@contextmanager
def reporting(total: float) -> Iterator[Reporter]:
    if not has_bar():
        yield Reporter(None, None)
        return
    columns = (
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=err, transient=True) as progress:
        yield Reporter(progress, progress.add_task("", total=total))


def print_json(document: Mapping[str, Any]) -> None:
    print(json.dumps(document, indent=2))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> None:
    """With a terminal, a frame; without one, columns that `awk` and `diff` can read."""
    if not out.is_terminal:
        _print_plain(columns, rows, title)
        return
    table = Table(title=title or None, title_justify="left")
    for name in columns:  # what does not fit is on the next line: two systems would look alike
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(coloured(cell) for cell in row))
    _Console(highlight=False).print(table)


def _print_plain(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> None:
    """A line a row, whatever its length; two spaces or more between cells."""
    lines = [columns, *([" ".join(visible(cell).split()) for cell in row] for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    if title:
        print(title)
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(cells).rstrip())


_STATUS_COLOURS: dict[Status, str] = {
    "agrees": "green",
    "disagrees": "red",
    "unknown": "yellow",
    "unpredicted": "dim",
    "not served": "dim",
}


def print_matrix(matrix: Matrix) -> None:
    """Scenarios as rows, systems as columns; a sign in each cell says what its colour says."""
    if not out.is_terminal:
        rows = []
        for name, _, kind in matrix.scenarios:
            found = (matrix.cell(name, system) for system in matrix.systems)
            rows.append([name, kind, *(cell.text if cell else "" for cell in found)])
        _print_plain(["scenario", "kind", *matrix.systems], rows)
        return
    table = Table(title_justify="left")
    for name in ("scenario", "kind", *matrix.systems):
        table.add_column(name, overflow="fold")
    for name, _, kind in matrix.scenarios:
        cells = [matrix.cell(name, system) for system in matrix.systems]
        texts = [f"[{_STATUS_COLOURS[c.status]}]{escape(c.text)}[/]" if c else "" for c in cells]
        table.add_row(name, kind, *texts)
    _Console(highlight=False).print(table)


def shown(path: Path) -> str:
    """A path as short as it can be said from here."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def fault_text(value: Mapping[str, Any]) -> str:
    """What was done to a cluster, as its history has it: `kill: broker B, in_flight discarded`."""
    [(verb, fields)] = value.items()
    if not isinstance(fields, Mapping):
        return f"{verb}: {fields}"
    said = [f"{name} {_value(one)}" for name, one in fields.items() if one not in (None, "", {})]
    return f"{verb}: {', '.join(said)}" if said else verb


def _value(value: Any) -> str:
    if not isinstance(value, Mapping):
        return str(value)
    return " and ".join(f"{name} {one}" for name, one in value.items())


def anomalies_text(anomalies: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in anomalies.items()) or "none"


def _agreement(result: Any) -> str:
    if result.cell.expected is None:
        return "-"  # nothing is predicted there
    return "yes" if result.agrees else "no"


def print_results(results: Sequence[Any]) -> None:
    rows = [
        (
            result.cell.scenario.name,
            str(result.cell.system),
            result.cell.expected or "-",
            result.observed,
            _agreement(result),
            f"{result.seconds:.1f}",
            anomalies_text(result.anomalies),
        )
        for result in results
    ]
    columns = ("scenario", "system", "expected", "observed", "agrees", "seconds", "anomalies")
    print_table(columns, rows)
    for result in results:
        out.print(f"report: {shown(result.run / 'report.html')}", markup=False)
        seen = [f"seen as predicted: {sight}" for sight in result.confirmed]
        for sentence in (*result.reasons, *result.disagreements, *seen):
            out.print(f"  {result.cell.scenario.name}: {sentence}", markup=False)
