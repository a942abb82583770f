"""How the load of a run went: panels over time, drawn from `series/`. Not the taking of the series.

The rule: a picture is drawn from at most a few hundred points a line, however long the run; see
`checkers/pipeline/series.py`, which says what each series means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from neaptide.results.report.plots import COLOURS, OUTCOMES, shade, style, to_svg
from neaptide.results.report.rows import RunData

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NS: Final = 1e9
_MS: Final = 1e6


@dataclass(frozen=True, slots=True)
class OverTime:
    """All series of one run on one grid of stretches."""

    edges_s: np.ndarray  # one more than there are stretches
    width_s: float
    values: Mapping[str, np.ndarray]  # NaN where nothing is known
    begun_s: float  # when the first of it happened

    def filled(self, name: str) -> np.ndarray:
        """Where nothing is recorded, nothing happened."""
        found: np.ndarray = np.nan_to_num(self.values.get(name, np.zeros(len(self.edges_s) - 1)))
        return found

    def kept(self, name: str) -> np.ndarray:
        """Where nothing is recorded, it is as before."""
        values = self.values.get(name)
        if values is None:
            return np.zeros(len(self.edges_s) - 1)
        known = np.where(np.isnan(values), 0, np.arange(len(values)))
        kept: np.ndarray = np.nan_to_num(values[np.maximum.accumulate(known)])
        return kept


def on_a_grid(data: RunData) -> OverTime | None:
    """None: no series were taken, or there was no load."""
    series = data.series
    if series.num_rows == 0:
        return None
    width_ns = series["width_ns"][0].as_py()
    stretches = series["at_ns"].to_numpy() // width_ns
    names = np.array(series["series"].to_pylist())
    values = series["value"].to_numpy()
    count = int(stretches.max()) + 1
    grids: dict[str, np.ndarray] = {}
    for name in sorted(set(names)):
        grids[name] = np.full(count, np.nan)
        grids[name][stretches[names == name]] = values[names == name]
    edges_s = np.arange(count + 1) * (width_ns / _NS)
    return OverTime(edges_s, width_ns / _NS, grids, float(edges_s[stretches.min()]))


def load(data: RunData) -> str | None:
    """Throughput, latency, unseen and lag, availability: one picture, one axis of time."""
    over_time = on_a_grid(data)
    if over_time is None:
        return None
    from matplotlib.figure import Figure  # half a second, and most reports have no plots

    figure = Figure(figsize=(9.6, 2.1 * len(_PANELS)), layout="constrained")
    panels = figure.subplots(len(_PANELS), 1, sharex=True)
    for axes, draw in zip(panels, _PANELS, strict=True):
        draw(axes, over_time)
        shade(axes, data)
        axes.legend(fontsize=7, ncols=4, loc="upper left", frameon=False)
    panels[-1].set_xlim(over_time.begun_s, over_time.edges_s[-1])
    panels[-1].set_xlabel("seconds since the run began; faults are shaded", fontsize=8)
    return to_svg(figure)


def _throughput(axes: Axes, over_time: OverTime) -> None:
    below = np.zeros(len(over_time.edges_s) - 1)
    for name, colour in OUTCOMES.items():
        above = below + over_time.filled(name) / over_time.width_s
        axes.stairs(
            above, over_time.edges_s, baseline=below, fill=True, color=colour, label=name, lw=0
        )
        below = above
    style(axes, "sends completed, by outcome", "a second")


def _latency(axes: Axes, over_time: OverTime) -> None:
    kinds = (("p50", COLOURS[0]), ("p99", COLOURS[1]), ("max", COLOURS[3]))
    for name, colour in kinds:
        values = over_time.values.get(f"latency-{name}")
        if values is not None:
            axes.stairs(values / _MS, over_time.edges_s, baseline=None, color=colour, label=name)
    axes.set_yscale("log")
    style(axes, "latency of acknowledged sends", "ms")


def _unseen_and_lag(axes: Axes, over_time: OverTime) -> None:
    for name, colour, line, meaning in (
        ("unseen", COLOURS[3], "-", "unseen: acknowledged, read by nobody yet"),
        ("lag", COLOURS[4], ":", "lag: highest read behind highest acknowledged"),
    ):
        axes.stairs(
            over_time.kept(name), over_time.edges_s, baseline=None, color=colour, ls=line,
            label=meaning,
        )  # fmt: skip
    style(axes, "unseen records, and lag of the readers", "records")
    axes.set_ylim(bottom=0)


def _availability(axes: Axes, over_time: OverTime) -> None:
    written_to = over_time.kept("written-to")
    taking = over_time.filled("acknowledging")
    axes.stairs(
        written_to, over_time.edges_s, fill=True, color="#f3d9d7", lw=0, label="only written to"
    )
    axes.stairs(
        taking, over_time.edges_s, fill=True, color=OUTCOMES["ok"], lw=0,
        label="took an acknowledged write",
    )  # fmt: skip
    style(axes, "availability", "partitions")
    axes.set_ylim(0, 1.25 * max(1.0, float(written_to.max(initial=0.0))))


_PANELS: Final[tuple[Callable[[Axes, OverTime], None], ...]] = (
    _throughput,
    _latency,
    _unseen_and_lag,
    _availability,
)
