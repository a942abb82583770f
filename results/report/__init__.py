"""`report.html` of a run: one self-contained page, without scripts or anything from outside.

A person should see at a glance what happened; whoever wants to know more finds the evidence, the
fetch rounds, the plots, and the command that repeats the run.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import jinja2
import pyarrow as pa
import pyarrow.compute as pc

from neaptide.results.report import evidence, lag, over_time, plots
from neaptide.results.report.closeup import close_up
from neaptide.results.report.diagram import draw
from neaptide.results.report.fate import fates
from neaptide.results.report.layout import lay_out
from neaptide.results.report.mermaid import sequence_diagram
from neaptide.results.report.rows import Row, RunData, load
from neaptide.results.report.story import Line, Moment, Story
from neaptide.results.store import write_text

REPORT_FILE: Final = "report.html"
_STORY_OPERATIONS_MAX: Final = 400
_STORY_ROUNDS_MAX: Final = 5_000
_GONE_MAX: Final = 5
_FATES_MAX: Final = 5


def write_report(run_directory: Path) -> Path:
    """Writes the report of a run. Raises RunUnreadableError or StoreError."""
    data = load(run_directory)
    page = environment().get_template("report.html").render(**_page(data))
    path = run_directory / REPORT_FILE
    write_text(path, page)
    return path


def diagram_of(run_directory: Path) -> str:
    """The fetch-round diagram alone, as SVG text."""
    svg, _ = _diagram(load(run_directory))
    return svg


@functools.cache
def environment() -> jinja2.Environment:
    """One for the process: to compile the template takes longer than to fill it in."""
    folder = str(files("neaptide.results.report") / "templates")
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _page(data: RunData) -> dict[str, Any]:
    outcome = data.verdict.get("outcome", "unknown")
    verdict = data.verdict.get("verdict", "unknown")
    shown, more = evidence.records(data)
    diagram, left_out = _diagram(data)
    under_load = data.run.kind == "random"
    return {
        "run": data.run,
        "badge": verdict if under_load else outcome,
        "verdict": verdict,
        "outcome": outcome,
        "agrees": data.run.expected == outcome if data.run.expected else None,
        "reasons": data.verdict.get("reasons", []),
        "proofs": _proofs(data.verdict.get("proofs", {})),
        "operations": data.verdict.get("operations", data.operation_rows),
        "is_cut": data.is_cut,
        "counts": evidence.anomaly_counts(data),
        "records": shown,
        "more_records": more,
        "fates": [str(fate) for fate in fates(data, _FATES_MAX)],
        "diagram": diagram,
        "left_out": left_out,
        "closeup": _closeup(data) if under_load else None,
        "logs": _final_logs(data) if not under_load else [],
        "plots": [
            svg
            for svg in (
                over_time.load(data),
                lag.lag(data),
                plots.leaders(data) if under_load else None,
                plots.watermarks(data),
            )
            if svg
        ],
        "faults": [
            (f"{begun_s:.2f} s", f"{ended_s - begun_s:.2f} s", name)
            for begun_s, ended_s, name in plots.fault_spans(data.rows_of("nemesis"))
        ],
    }


def _proofs(held: Mapping[str, bool | None]) -> list[tuple[str, str]]:
    """Each thing that had to hold, in words, and whether it did; those that did not come first."""
    words = {False: "no", True: "yes", None: "not needed"}
    rows = [(name.replace("-", " "), words[held[name]]) for name in held]
    return sorted(rows, key=lambda row: list(words.values()).index(row[1]))


def _lifelines(data: RunData) -> list[str]:
    """Brokers from left to right: in the order in which they are assigned, the leader first."""
    names = list(data.run.brokers)
    schedule = data.run.schedule
    if isinstance(schedule, dict):
        topics = schedule.get("cluster", {}).get("topics", {})
        for topic in topics.values():
            first = [str(name) for name in topic.get("assignment", [[]])[0]]
            return [*first, *(name for name in names if name not in first)]
    return names


def _moments(data: RunData) -> list[Moment]:
    """The story of partition 0; under load, of faults, leaders and the records in question only."""
    operations = _operations_of_interest(data)
    rounds: Sequence[Row] = []
    if data.run.kind == "scenario":
        chosen = data.fetch_rounds.filter(pc.equal(data.fetch_rounds["partition"], 0))
        rounds = chosen.sort_by("requested_ns").slice(0, _STORY_ROUNDS_MAX).to_pylist()
    moments = Story(data.names, 0).in_order(operations, rounds)
    gone = evidence.nowhere(data)[:_GONE_MAX]
    if gone and moments:
        text = f"at the end, on no replica: {', '.join(gone)}"
        moments.append(Line(moments[-1].at_ns, text, "bad"))
    return moments


def _diagram(data: RunData) -> tuple[str, int]:
    guilty = {str(row["value"]) for row in data.anomalies if row["value"] is not None}
    drawing = lay_out(_moments(data), _lifelines(data), guilty)
    return draw(drawing), drawing.left_out


def mermaid_of(run_directory: Path) -> str:
    """The fetch rounds that matter as a Mermaid sequence diagram. Raises RunUnreadableError."""
    data = load(run_directory)
    found = close_up(data) if data.run.kind == "random" else None
    if found is None:
        moments = _moments(data)
    else:
        moments = Story(data.names, found.partition).in_order(found.operations, found.rounds)
    return sequence_diagram(moments, _lifelines(data))


def _closeup(data: RunData) -> tuple[str, int, str] | None:
    """A record in question, its partition, and the rounds around it as a diagram."""
    found = close_up(data)
    if found is None:
        return None
    moments = Story(data.names, found.partition).in_order(found.operations, found.rounds)
    picture = draw(lay_out(moments, _lifelines(data), {found.record}))
    return found.record, found.partition, picture


def _operations_of_interest(data: RunData) -> list[Row]:
    table = data.operations
    few = pc.is_in(table["f"], pa.array(["nemesis", "leader"]))
    values = {row["value"] for row in data.anomalies if row["value"]}
    if data.run.kind == "scenario":
        wanted = table
    else:
        named = pc.is_in(table["value"], pa.array(sorted(values)[:10], pa.string()))
        wanted = table.filter(pc.or_(few, named))
    rows: list[Row] = wanted.sort_by("invoked_ns").slice(0, _STORY_OPERATIONS_MAX).to_pylist()
    return rows


def _final_logs(data: RunData) -> list[tuple[str, list[tuple[int, str, bool]]]]:
    """Each replica's log as its disk had it: (offset, value, whether another replica differs)."""
    rows = sorted(
        (row for row in data.replicas.slice(0, 2_000).to_pylist() if row["partition"] == 0),
        key=lambda row: (row["broker"], row["offset"] or 0),
    )
    by_offset: dict[int, set[str | None]] = {}
    for row in rows:
        if row["offset"] is not None:
            by_offset.setdefault(row["offset"], set()).add(row["value"])
    logs: dict[str, list[tuple[int, str, bool]]] = {}
    for row in rows:
        name = data.names.get(row["broker"], str(row["broker"]))
        log = logs.setdefault(name, [])
        if row["offset"] is not None:
            differs = len(by_offset[row["offset"]]) > 1
            log.append((row["offset"], str(row["value"]), differs))
    return list(logs.items())
