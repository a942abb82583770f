"""Plots of bounded size, however long the run: inline SVG by Matplotlib.

HW and LEO of each follower as the wire showed them; throughput by outcome, latency quantiles, and
leaders over time for runs under load. Faults are shaded.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Final

import matplotlib as mpl
import numpy as np
import pyarrow.compute as pc
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from results.report.rows import Row, RunData

POINTS_MAX: Final = 1_500
PARTITIONS_MAX: Final = 4
_COLOURS: Final = ("#1f5fa8", "#c2410c", "#2f7d46", "#7c3aed", "#0e7490", "#a16207")
_OUTCOMES: Final = {"ok": "#2f7d46", "info": "#d97706", "fail": "#c0312b"}
_NS: Final = 1e9


def to_svg(figure: Figure) -> str:
    """The picture, the same for the same data: no date, no random ids."""
    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": "neaptide", "svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None}, bbox_inches="tight")
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def fault_spans(faults: Sequence[Row]) -> list[tuple[float, float, str]]:
    """(from, to, name) in seconds: a fault lasts until it is undone, or to its own end."""
    undone_by = {"kill": "restart", "power_off": "restart", "stop": "restart", "pause": "resume"}
    spans: list[tuple[float, float, str]] = []
    open_: dict[tuple[str, str], tuple[float, str]] = {}
    for row in faults:
        verb, fields = next(iter(json.loads(row["value"]).items()))
        at_s = row["invoked_ns"] / _NS
        broker = str(fields.get("broker", ""))
        if verb in undone_by:
            open_[(undone_by[verb], broker)] = (at_s, f"{verb} {broker}")
        elif verb in ("cut", "hold"):
            open_[("heal", verb)] = (at_s, verb)
        elif verb in ("restart", "resume", "heal"):
            keys = [k for k in open_ if k[0] == verb and (verb == "heal" or k[1] == broker)]
            for key in keys:
                begun_s, name = open_.pop(key)
                spans.append((begun_s, at_s, name))
    return spans


def _shade(axes: Axes, data: RunData) -> None:
    for begun_s, ended_s, _ in fault_spans(data.rows_of("nemesis")):
        axes.axvspan(begun_s, max(ended_s, begun_s + 0.01), color="#c0312b", alpha=0.10, lw=0)


def _style(axes: Axes, title: str, unit: str) -> None:
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
    figure = Figure(figsize=(9.6, 2.4 * len(partitions)))
    panels = figure.subplots(len(partitions), 1, sharex=True, squeeze=False)[:, 0]
    for axes, partition in zip(panels, partitions, strict=True):
        chosen = rounds.filter(pc.equal(rounds["partition"], partition)).sort_by("requested_ns")
        for number, follower in enumerate(sorted(set(chosen["follower"].to_pylist()))):
            mine = chosen.filter(pc.equal(chosen["follower"], follower))
            name, colour = data.names.get(follower, str(follower)), _COLOURS[number % 6]
            at = _thin(mine["requested_ns"].to_numpy() / _NS)
            axes.step(
                at, _thin(mine["fetch_offset"].to_numpy()), where="post", color=colour, lw=1.4,
                label=f"{name} LEO",
            )  # fmt: skip
            told = mine.filter(pc.and_(pc.is_valid(mine["delivered_ns"]),
                                       pc.greater_equal(mine["high_watermark"], 0)))  # fmt: skip
            axes.step(
                _thin(told["delivered_ns"].to_numpy() / _NS),
                _thin(told["high_watermark"].to_numpy()),
                where="post", color=colour, lw=1.2, ls=":", label=f"{name} HW",
            )  # fmt: skip
        _shade(axes, data)
        _style(axes, f"followers of partition {partition}: LEO and HW on the wire", "offset")
        axes.legend(fontsize=7, ncols=6, loc="upper left", frameon=False)
    panels[-1].set_xlabel("seconds since the run began", fontsize=8)
    return to_svg(figure)


def load(data: RunData) -> str | None:
    """Throughput by outcome, and latency quantiles of acknowledged sends, second by second."""
    operations = data.operations
    sends = operations.filter(pc.equal(operations["f"], "send"))
    sends = sends.filter(pc.is_valid(sends["completed_ns"]))
    if sends.num_rows == 0:
        return None
    seconds = (sends["completed_ns"].to_numpy() / _NS).astype(int)
    kinds = np.array(sends["type"].to_pylist())
    latency_ms = (sends["completed_ns"].to_numpy() - sends["invoked_ns"].to_numpy()) / 1e6
    figure = Figure(figsize=(9.6, 4.6))
    above, below = figure.subplots(2, 1, sharex=True)
    span = np.arange(seconds.min(), seconds.max() + 1)
    bottom = np.zeros(len(span))
    for kind, colour in _OUTCOMES.items():
        counts = np.bincount(seconds[kinds == kind] - span[0], minlength=len(span))
        above.bar(span, counts, bottom=bottom, width=1.0, align="edge", color=colour, label=kind)
        bottom += counts
    _shade(above, data)
    _style(above, "sends completed, by outcome", "a second")
    above.legend(fontsize=7, ncols=3, loc="upper left", frameon=False)
    ok = kinds == "ok"
    by_second = _split_by(seconds[ok], latency_ms[ok])
    for quantile, colour in ((0.5, _COLOURS[0]), (0.99, _COLOURS[1]), (1.0, _COLOURS[3])):
        at = [second + 0.5 for second, _ in by_second]
        quantiles = [float(np.quantile(values, quantile)) for _, values in by_second]
        below.plot(at, quantiles, color=colour, lw=1.2, label=f"p{quantile * 100:g}")
    below.set_yscale("log")
    _shade(below, data)
    _style(below, "latency of acknowledged sends", "ms")
    below.legend(fontsize=7, ncols=3, loc="upper left", frameon=False)
    below.set_xlabel("seconds since the run began", fontsize=8)
    return to_svg(figure)


def _split_by(keys: np.ndarray, values: np.ndarray) -> list[tuple[int, np.ndarray]]:
    """The values of each key, in the order of keys."""
    order = np.argsort(keys, kind="stable")
    found, starts = np.unique(keys[order], return_index=True)
    parts = np.split(values[order], starts[1:]) if len(found) else []
    return [(int(key), part) for key, part in zip(found, parts, strict=True)]


def leaders(data: RunData) -> str | None:
    """Who led each partition, as the coordination service said."""
    rows = data.rows_of("leader")
    partitions = sorted({row["partition"] for row in rows})[:12]
    if not partitions:
        return None
    end_s = max(row["invoked_ns"] for row in rows) / _NS
    faults = data.rows_of("nemesis")
    end_s = max([end_s, *(row["invoked_ns"] / _NS for row in faults)]) + 1
    figure = Figure(figsize=(9.6, 0.8 + 0.32 * len(partitions)))
    axes = figure.subplots()
    for line, partition in enumerate(partitions):
        mine = [row for row in rows if row["partition"] == partition]
        starts = [row["invoked_ns"] / _NS for row in mine]
        for row, begun_s, ended_s in zip(mine, starts, [*starts[1:], end_s], strict=True):
            leader = json.loads(row["value"])["leader"]
            colour = "#e2e8f0" if leader is None else _COLOURS[leader % 6]
            axes.barh(line, ended_s - begun_s, left=begun_s, height=0.7, color=colour)
            if leader is not None and ended_s - begun_s > end_s / 30:
                name = data.names.get(leader, str(leader))
                axes.text(begun_s + 0.1, line, name, va="center", fontsize=7, color="white")
    axes.set_yticks(range(len(partitions)), [f"partition {p}" for p in partitions])
    _shade(axes, data)
    _style(axes, "leader of each partition", "")
    axes.set_xlabel("seconds since the run began", fontsize=8)
    return to_svg(figure)
