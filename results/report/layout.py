"""Where each moment of a story goes on the page: lifelines as columns, rows by time. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from neaptide.results.report.story import CONSUMER, PRODUCER, Arrow, Badge, Cells, Line, Moment

ROWS_MAX: Final = 90
TOP: Final = 74
COLUMN_WIDTH: Final = 190
MARGIN: Final = 90
_HEIGHTS: Final = {Arrow: 30, Badge: 32, Cells: 48, Line: 26}
_DEATHS: Final = ("SIGKILL", "power off", "stopped")
_RETURNS: Final = ("started",)


@dataclass(frozen=True, slots=True)
class PlacedRow:
    """Moments that share a height: one arrow or line, or badges or cells of several lifelines."""

    y: int
    moments: tuple[Moment, ...]

    @property
    def at_ns(self) -> int:
        return self.moments[0].at_ns


@dataclass(frozen=True, slots=True)
class Dead:
    """From where to where a lifeline is down."""

    lifeline: str
    y_from: int
    y_to: int


@dataclass(frozen=True, slots=True)
class Drawing:
    lifelines: tuple[str, ...]
    rows: tuple[PlacedRow, ...]
    dead: tuple[Dead, ...]
    width: int
    height: int
    left_out: int
    guilty: frozenset[str]  # records that something was found about
    ids: Mapping[str, int]  # of brokers, by their names

    @property
    def messages(self) -> tuple[Arrow | Badge, ...]:
        """Those that say something in words, from top to bottom."""
        return tuple(
            moment
            for row in self.rows
            for moment in row.moments
            if isinstance(moment, Arrow | Badge) and moment.says
        )

    def x(self, lifeline: str) -> int:
        return MARGIN + COLUMN_WIDTH * self.lifelines.index(lifeline)


def lay_out(
    moments: Sequence[Moment],
    brokers: Sequence[str],
    guilty: Iterable[str] = (),
    ids: Mapping[str, int] | None = None,
) -> Drawing:
    """Places moments from top to bottom; too many are cut in the middle, and counted."""
    lifelines = (PRODUCER, *brokers, CONSUMER)
    rows = _pack(_without_repetition(moments), lifelines)
    left_out = max(0, len(rows) - ROWS_MAX)
    if left_out:
        half = ROWS_MAX // 2
        note = Line(rows[half][0].at_ns, f"… {left_out} rows are left out here …")
        rows = [*rows[:half], [note], *rows[-half:]]
    placed, y = [], TOP
    for row in rows:
        height = max(_HEIGHTS[type(moment)] for moment in row)
        placed.append(PlacedRow(y + height // 2, tuple(row)))
        y += height
    width = 2 * MARGIN + COLUMN_WIDTH * (len(lifelines) - 1)
    return Drawing(
        lifelines,
        tuple(placed),
        _dead(placed, y),
        width,
        y + 16,
        left_out,
        frozenset(guilty),
        ids or {},
    )


def _without_repetition(moments: Sequence[Moment]) -> list[Moment]:
    """A log that changes twice with nothing between is shown once, as it is then."""
    kept: list[Moment] = []
    shown: dict[str, Cells] = {}
    for moment in moments:
        if isinstance(moment, Cells):
            before = shown.get(moment.lifeline)
            if before is not None and before.state == moment.state:
                continue
            shown[moment.lifeline] = moment
            last = kept[-1] if kept else None
            if isinstance(last, Cells) and last.lifeline == moment.lifeline:
                kept[-1] = replace(last, state=moment.state)
                continue
        kept.append(moment)
    return kept


def _pack(moments: list[Moment], lifelines: Sequence[str]) -> list[list[Moment]]:
    """Badges and cells of different lifelines that follow each other share a row."""
    rows: list[list[Moment]] = []
    for moment in moments:
        if isinstance(moment, Badge | Cells) and moment.lifeline not in lifelines:
            continue
        row = rows[-1] if rows else None
        if (
            isinstance(moment, Badge | Cells)
            and row is not None
            and type(row[0]) is type(moment)
            and all(isinstance(m, Badge | Cells) and m.lifeline != moment.lifeline for m in row)
        ):
            row.append(moment)
        else:
            rows.append([moment])
    return rows


def _dead(rows: Sequence[PlacedRow], bottom: int) -> tuple[Dead, ...]:
    died: dict[str, int] = {}
    dead = []
    for row in rows:
        for moment in row.moments:
            if not isinstance(moment, Badge):
                continue
            if moment.text.startswith(_DEATHS):
                died[moment.lifeline] = row.y
            elif moment.text.startswith(_RETURNS) and moment.lifeline in died:
                dead.append(Dead(moment.lifeline, died.pop(moment.lifeline), row.y))
    dead += [Dead(lifeline, y, bottom) for lifeline, y in died.items()]
    return tuple(dead)
