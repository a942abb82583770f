"""Plots of bounded size, however long the run: inline SVG by Matplotlib.

HW and LEO of each follower as the wire showed them, and leaders over time for runs under load; how
the load went is in `over_time`. Faults are shaded.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow.compute as pc

from neaptide.results.report.rows import Row, RunData, fault_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS_MAX: Final = 1_500
PARTITIONS_MAX: Final = 4
SPANS_MAX: Final = 300
COLOURS: Final = ("#1f5fa8", "#c2410c", "#2f7d46", "#7c3aed", "#0e7490", "#a16207")
OUTCOMES: Final = {"ok": "#2f7d46", "info": "#d97706", "fail": "#c0312b"}
_NS: Final = 1e9


def to_svg(figure: Figure) -> str:
    """The picture, the same for the same data: no date, no random ids."""
    import matplotlib as mpl

    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "neaptide", "svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None}, bbox_inches="tight")
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def fault_spans(faults: Sequence[Row]) -> list[tuple[float, float, str]]:
    """(from, to, name) in seconds: a fault lasts until it is undone, or to its own end."""
    undone_by = {
        **dict.fromkeys(("kill", "power_off", "stop"), "restart"),
        "pause": "resume",
        "remove_voter": "add_voter",
    }
    spans: list[tuple[float, float, str]] = []
    open_: dict[tuple[str, str], tuple[float, str]] = {}
    for row in faults:
        verb, fields = fault_of(row)
        at_s = row["invoked_ns"] / _NS
        broker = str(fields.get("broker", ""))
        if verb in undone_by:
            open_[(undone_by[verb], broker)] = (at_s, f"{verb} {broker}")
        elif verb in ("cut", "hold"):
            open_[("heal", verb)] = (at_s, verb)
        elif verb in ("restart", "resume", "add_voter", "heal"):
            keys = [k for k in open_ if k[0] == verb and (verb == "heal" or k[1] == broker)]
            for key in keys:
                begun_s, name = open_.pop(key)
                spans.append((begun_s, at_s, name))
    return sorted(spans)


def shade(axes: Axes, data: RunData) -> None:
    for begun_s, ended_s in merged(fault_spans(data.rows_of("nemesis"))):
        axes.axvspan(begun_s, max(ended_s, begun_s + 0.01), color="#c0312b", alpha=0.10, lw=0)


def merged(spans: Sequence[tuple[float, float, str]]) -> list[tuple[float, float]]:
    """The same spans, but those that a picture could not show apart as one: at most `SPANS_MAX`."""
    length = max((ended_s for _, ended_s, _ in spans), default=0.0)
    kept: list[tuple[float, float]] = []
    for begun_s, ended_s, _ in sorted(spans):
        if kept and begun_s - kept[-1][0] < length / SPANS_MAX:
            kept[-1] = (kept[-1][0], max(kept[-1][1], ended_s))
        else:
            kept.append((begun_s, ended_s))
    return kept


def style(axes: Axes, title: str, unit: str) -> None:
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_ylabel(unit, fontsize=8)
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.25)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _thin(values: np.ndarray) -> np.ndarray:
    if len(values) <= POINTS_MAX:
        return values
    chosen: np.ndarray = values[np.linspace(0, len(values) - 1, POINTS_MAX).astype(int)]
    return chosen


def watermarks(data: RunData) -> str | None:
    """LEO and HW of each follower over time, one panel a partition (the first few)."""
    rounds = data.fetch_rounds
    partitions = sorted(set(rounds["partition"].to_pylist()))[:PARTITIONS_MAX]
    if not partitions:
        return None
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 2.4 * len(partitions)))
    panels = figure.subplots(len(partitions), 1, sharex=True, squeeze=False)[:, 0]
    for axes, partition in zip(panels, partitions, strict=True):
        chosen = rounds.filter(pc.equal(rounds["partition"], partition)).sort_by("requested_ns")
        for number, follower in enumerate(sorted(set(chosen["follower"].to_pylist()))):
            mine = chosen.filter(pc.equal(chosen["follower"], follower))
            name, colour = data.names.get(follower, str(follower)), COLOURS[number % 6]
            at = _thin(mine["requested_ns"].to_numpy() / _NS)
            axes.step(
                at, _thin(mine["fetch_offset"].to_numpy()), where="post", color=colour, lw=1.4,
                label=f"{name} LEO",
            )  # fmt: skip
            kept = mine.filter(pc.and_(pc.is_valid(mine["delivered_ns"]),
                                       pc.greater_equal(mine["high_watermark"], 0)))  # fmt: skip
            axes.step(
                _thin(kept["delivered_ns"].to_numpy() / _NS),
                _thin(kept["high_watermark"].to_numpy()),
                where="post", color=colour, lw=1.2, ls=":", label=f"{name} HW",
            )  # fmt: skip
        shade(axes, data)
        style(axes, f"followers of partition {partition}: LEO and HW on the wire", "offset")
        axes.legend(fontsize=7, ncols=6, loc="upper left", frameon=False)
    panels[-1].set_xlabel("seconds since the run began", fontsize=8)
    return to_svg(figure)


def leaders(data: RunData) -> str | None:
    """Who led each partition, as the coordination service said."""
    rows = data.rows_of("leader")
    partitions = sorted({row["partition"] for row in rows})[:12]
    if not partitions:
        return None
    end_s = max(row["invoked_ns"] for row in rows) / _NS
    faults = data.rows_of("nemesis")
    end_s = max([end_s, *(row["invoked_ns"] / _NS for row in faults)]) + 1
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 0.8 + 0.32 * len(partitions)))
    axes = figure.subplots()
    for line, partition in enumerate(partitions):
        mine = [row for row in rows if row["partition"] == partition]
        starts = [row["invoked_ns"] / _NS for row in mine]
        for row, begun_s, ended_s in zip(mine, starts, [*starts[1:], end_s], strict=True):
            leader = json.loads(row["value"])["leader"]
            colour = "#e2e8f0" if leader is None else COLOURS[leader % 6]
            axes.barh(line, ended_s - begun_s, left=begun_s, height=0.7, color=colour)
            if leader is not None and ended_s - begun_s > end_s / 30:
                name = data.names.get(leader, str(leader))
                axes.text(begun_s + 0.1, line, name, va="center", fontsize=7, color="white")
    axes.set_yticks(range(len(partitions)), [f"partition {p}" for p in partitions])
    shade(axes, data)
    style(axes, "leader of each partition", "")
    axes.set_xlabel("seconds since the run began", fontsize=8)
    return to_svg(figure)
