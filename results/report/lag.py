"""How long ago each follower's last fetch was, over time, in units of the setting that it was
measured in: the picture of a `measure` step. Nothing is judged here.
"""

from __future__ import annotations

import json
from typing import Final

import numpy as np
import pyarrow.compute as pc

from neaptide.results.report.plots import COLOURS, shade, style, to_svg
from neaptide.results.report.rows import Row, RunData, fault_of

_NS: Final = 1e9
_MS: Final = 1e6


def lag(data: RunData) -> str | None:
    """A tooth rises from each fetch to the next; None: nothing was measured in the run."""
    measured = [row for row in data.rows_of("nemesis") if fault_of(row)[0] == "measured"]
    rounds = data.fetch_rounds
    if not measured or not rounds.num_rows:
        return None
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 3.0))
    axes = figure.subplots()
    unit_ms, fields = _unit_ms(measured[0]), fault_of(measured[0])[1]
    end_ns = max(measured[-1]["invoked_ns"], *rounds["requested_ns"].to_pylist())
    for number, follower in enumerate(sorted(set(rounds["follower"].to_pylist()))):
        mine = rounds.filter(pc.equal(rounds["follower"], follower))
        at_s, times = teeth(np.sort(mine["requested_ns"].to_numpy()), int(end_ns), unit_ms)
        name = data.names.get(follower, str(follower))
        axes.plot(at_s, times, color=COLOURS[number % len(COLOURS)], lw=1.2, label=name)
    for limit in ("above", "at_most"):
        if limit in fields:
            axes.axhline(fields[limit], color="#64748b", lw=1, ls="--")
    for row in data.rows_of("leader"):
        axes.axvline(row["invoked_ns"] / _NS, color="#7c3aed", lw=0.8, ls=":")
        axes.annotate(_isr(data, row), (row["invoked_ns"] / _NS, axes.get_ylim()[1]), fontsize=7)
    for row in measured:
        found = fault_of(row)[1]
        axes.plot(row["invoked_ns"] / _NS, found["times"], "o", color="#c0312b", ms=5)
        where = (row["invoked_ns"] / _NS, found["times"])
        axes.annotate(f" {found['times']:g} ×", where, fontsize=8, color="#c0312b")
    shade(axes, data)
    style(axes, "time since each follower's last fetch", f"× {fields['unit']}")
    axes.set_xlabel("seconds since the run began", fontsize=8)
    axes.legend(fontsize=7, loc="center left", frameon=False)
    return to_svg(figure)


def teeth(fetched_ns: np.ndarray, end_ns: int, unit_ms: float) -> tuple[np.ndarray, np.ndarray]:
    """Points (seconds, lag in units): 0 at each fetch, and as far as it grew before the next."""
    ends_ns = np.append(fetched_ns[1:], max(end_ns, fetched_ns[-1]))
    at_ns = np.column_stack((fetched_ns, ends_ns)).ravel()
    grown = np.column_stack((np.zeros(len(fetched_ns)), ends_ns - fetched_ns)).ravel()
    return at_ns / _NS, grown / _MS / unit_ms


def _unit_ms(measured: Row) -> float:
    fields = fault_of(measured)[1]
    return float(fields["elapsed_ms"]) / float(fields["times"])


def _isr(data: RunData, row: Row) -> str:
    isr = json.loads(row["value"])["isr"]
    return " ISR " + ", ".join(data.names.get(broker, str(broker)) for broker in sorted(isr))
