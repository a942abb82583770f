"""What each page shows: reads a run, decides, returns what its template is given. No HTTP here."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from neaptide.results.compare import aligned, first_difference, steps_of
from neaptide.results.errors import NeaptideError, RunNotFoundError
from neaptide.results.left_out import STEPS_FILE
from neaptide.results.matrix import SIGNS, assemble
from neaptide.results.report.diagram import draw
from neaptide.results.report.page import (
    PLOTS,
    closeup_picture,
    drawing_of,
    moments_of,
    page_of,
)
from neaptide.results.report.rows import RunData, load
from neaptide.results.run import RUN_FILE, Run
from neaptide.results.serve import inside, node_logs, urls
from neaptide.results.serve.listing import Asked, Listed, Listing, chosen
from neaptide.results.serve.live import Follower, began_utc
from neaptide.results.verdicts import VERDICT_FILE

WORD_SIGNS: Final = {
    "anomalous": "✗",
    "unknown": "?",
    "valid": "✓",
    "running": "…",
    "unjudged": "…",
}
_NODE_LOGS_MAX: Final = 5
_ROUNDS_MAX: Final = 200_000

NotServed = Callable[[Sequence[Path]], Mapping[tuple[str, str], str]]
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """The values that were made last, so many of them; each is made by one thread at a time."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._kept: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K, make: Callable[[], V]) -> V:
        with self._lock:
            if key not in self._kept:
                self._kept[key] = make()
                while len(self._kept) > self._most:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(key)
            return self._kept[key]


class UnreadableRunError(NeaptideError):
    """A run is there, and its run.json says nothing."""


class WrongQuestionError(NeaptideError):
    """A page was asked for something that it cannot show."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A run and what was read of it."""

    listed: Listed
    run: Run
    data: RunData


class Pages:
    """All pages of one directory of runs."""

    def __init__(self, root: Path, not_served: NotServed = lambda runs: {}) -> None:
        self.root = root
        self.listing = Listing(root)
        self._not_served = not_served
        self._data: Recent[tuple[Any, ...], RunData] = Recent(3)
        self._plots: Recent[tuple[Any, ...], str | None] = Recent(24)

    # --- the table of runs -----------------------------------------------------------------------

    def home(self, asked: Asked) -> dict[str, Any]:
        runs = self.listing.runs()
        return {
            "asked": asked,
            "rows": chosen(runs, asked),
            "total": len(runs),
            "signs": WORD_SIGNS,
            "choices": {
                "verdict": _choices(one.word for one in runs),
                "outcome": _choices(one.outcome for one in runs),
                "system": _choices(one.system for one in runs),
                "workload": _choices(one.scenario for one in runs),
                "fault": _choices(fault for one in runs for fault in one.faults),
            },
            "root": str(self.root),
        }

    # --- one run ---------------------------------------------------------------------------------

    def open(self, name: str) -> Opened:
        """Raises RunNotFoundError, RefusedLinkError, UnreadableRunError."""
        listed = self.listing.find(name)
        inside.refuse_links_out(listed.directory)
        if listed.run is None:
            raise UnreadableRunError(listed.problem)
        data = self._data.get(_stamps(listed.directory), lambda: load(listed.directory))
        return Opened(listed, listed.run, data)

    def run(self, name: str) -> dict[str, Any]:
        opened = self.open(name)
        plots = [
            f'<img src="{urls.run_plot(name, plot.name)}" alt="{plot.title}" loading="lazy">'
            for plot in PLOTS
            if plot.is_there(opened.data)
        ]
        under_load = opened.run.kind == "random"

        def rounds_of(record: str, partition: int) -> str | None:
            return urls.run_rounds(name, record, partition) if under_load and record else None

        page = page_of(opened.data, plots, rounds_of)
        is_going = opened.listed.state == "running"
        return {
            **page,
            "badge": "running" if is_going else page["badge"],
            "reasons": [] if is_going else page["reasons"],
            "listed": opened.listed,
            "files": sorted(inside.shown_files(opened.listed.directory)),
            "progress": None
            if opened.listed.state == "judged"
            else Follower(opened.listed.directory).look(),
        }

    def rounds(self, name: str, record: str, partition: int) -> dict[str, Any]:
        opened = self.open(name)
        found = closeup_picture(opened.data, record, partition)
        if found is None:
            raise WrongQuestionError(
                f"No fetch round is known around an acknowledged record {record!r} of partition"
                f" {partition}."
            )
        return {"listed": opened.listed, "run": opened.run, "closeup": found}

    def plot(self, name: str, plot_name: str) -> str:
        """SVG. Raises RunNotFoundError where there is no such picture."""
        opened = self.open(name)
        found = next((each for each in PLOTS if each.name == plot_name), None)
        svg = None
        if found is not None and found.is_there(opened.data):
            draw_it, data = found.draw, opened.data
            key = (*_stamps(opened.listed.directory), plot_name)
            svg = self._plots.get(key, lambda: draw_it(data))
        if svg is None:
            raise RunNotFoundError(f"There is no picture {plot_name!r} of the run {name}.")
        return _as_document(svg)

    def file(self, name: str, file: str) -> Path:
        """Raises RunNotFoundError where the run has no such file that may be shown."""
        found = self.listing.find(name)
        inside.refuse_links_out(found.directory)
        files = inside.shown_files(found.directory)
        if file not in files:
            raise RunNotFoundError(f"There is no file {file!r} of the run {name} to be shown.")
        return files[file]

    def logs(self, name: str, wanted: Sequence[str], since_s: float | None) -> dict[str, Any]:
        """The logs of brokers, or those that are wanted, beside the record of the run."""
        opened = self.open(name)
        paths = {path.name: path for path in inside.log_files(opened.listed.directory)}
        brokers = node_logs.broker_names(paths, opened.run.brokers)
        named = [file for file in wanted if file in paths]
        files = (named or list(brokers) or list(paths))[:_NODE_LOGS_MAX]
        began = began_utc(opened.run)
        if began is None:
            raise UnreadableRunError(
                f"Its run.json says that it began at {opened.run.started_utc!r}: without a time no"
                " log can stand beside the rounds."
            )
        logs = [node_logs.read_log(paths[file], began) for file in files]
        rows = node_logs.side_by_side(moments_of(opened.data), logs)
        shown, before, after = node_logs.from_s(rows, since_s)
        return {
            "listed": opened.listed,
            "run": opened.run,
            "files": list(paths),
            "chosen": files,
            "columns": [(brokers.get(log.name, log.name), log) for log in logs],
            "rows": shown,
            "before": before,
            "after": after,
            "next_s": f"{rows[before + len(shown)].at_ns / 1e9:.3f}" if after else "",
            "since": "" if since_s is None else f"{since_s:g}",
        }

    # --- several runs ----------------------------------------------------------------------------

    def compare(self, names: Sequence[str]) -> dict[str, Any]:
        if len(names) != 2:
            raise WrongQuestionError("Choose two runs to compare, not fewer and not more.")
        sides = [self.open(name) for name in names]
        steps = [
            steps_of(side.data.fetch_rounds.slice(0, _ROUNDS_MAX).to_pylist(), side.data.names)
            for side in sides
        ]
        found = first_difference(steps[0], steps[1])
        marks = (frozenset(), frozenset()) if found is None else found.anchors()
        drawings = [drawing_of(side.data) for side in sides]
        return {
            "sides": [
                {
                    "listed": side.listed,
                    "run": side.run,
                    "diagram": draw(drawing, mark, anchored=False, prefix=f"side-{number}-"),
                    "rounds": len(moved),
                }
                for number, (side, drawing, mark, moved) in enumerate(
                    zip(sides, drawings, marks, steps, strict=True)
                )
            ],
            "difference": found,
            "pairs": [
                (
                    pair,
                    bool({pair.first_anchor} & marks[0]) or bool({pair.second_anchor} & marks[1]),
                )
                for pair in aligned(moments_of(sides[0].data), moments_of(sides[1].data))
            ],
        }

    def matrix(self) -> dict[str, Any]:
        runs = [
            one.directory
            for one in self.listing.runs()
            if one.run is not None and one.run.kind == "scenario" and one.state != "running"
        ]
        matrix = assemble(runs, self._not_served(runs) if runs else {})
        return {
            "matrix": matrix,
            "signs": SIGNS,
            "link": lambda run: urls.run(run.name),
            "remarks": [
                cell for cell in matrix.cells if any(each.reasons for each in cell.repetitions)
            ],
        }


def _choices(words: Any) -> list[str]:
    return sorted({word for word in words if word})


def _stamps(directory: Path) -> tuple[Any, ...]:
    """Other than before when something of the run was written."""
    names = (*inside.READ_FOLDERS, RUN_FILE, VERDICT_FILE, STEPS_FILE)
    stamps = []
    for name in names:
        try:
            found = (directory / name).stat()
            stamps.append((found.st_mtime_ns, found.st_size))
        except OSError:
            stamps.append((0, 0))
    return (directory, *stamps)


def _as_document(svg: str) -> str:
    """A picture by itself must say of which kind it is."""
    return f'<?xml version="1.0" encoding="utf-8"?>\n{svg}'
