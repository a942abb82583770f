"""The logs of nodes beside each other and beside what the run recorded, by time. Pure but for
reading the files.

A log has the clock of its machine, and mostly no date and no time zone; a run has its own clock.
The first line of a log is taken to be from soon after the run began, so its zone follows, in
quarters of an hour. Clocks that a fault has set are what they are: such lines stand elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from neaptide.results.report.story import Arrow, Badge, Line, Moment
from neaptide.results.serve.inside import open_plain

LOG_BYTES_MAX: Final = 2_000_000
LINE_MAX: Final = 600
ROWS_MAX: Final = 400
TOGETHER_NS: Final = 2_000_000
_STAMP: Final = re.compile(
    r"^\[?(?:(\d{4})-(\d\d)-(\d\d)[ T])?(\d\d):(\d\d):(\d\d)[.,](\d{3})\d*\]?\s*"
)
_SIMULATED: Final = re.compile(r"^(\d{6,}) ")  # events.log: microseconds of the simulated world
_DAY_NS: Final = 86_400 * 1_000_000_000
_QUARTER_NS: Final = 900 * 1_000_000_000
_MS: Final = 1_000_000
RUN: Final = "the run"  # the column of what was recorded


@dataclass(frozen=True, slots=True)
class LogLine:
    """`at_ns`: of the run. `text` may have further lines, which had no time of their own."""

    at_ns: int
    text: str


@dataclass(frozen=True, slots=True)
class NodeLog:
    """One log file. `is_cut`: it is longer than what was read of it. `timed`: whether its lines
    have times; otherwise they stand nowhere."""

    name: str
    lines: tuple[LogLine, ...]
    is_cut: bool
    timed: bool


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing in a cell. `anchor`: of its message in the diagram; empty: it has none."""

    text: str
    tone: str = "quiet"
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class SideBySide:
    """One row for what happened together. `cells`: in the order of the columns."""

    at_ns: int
    cells: tuple[tuple[Entry, ...], ...]

    @property
    def at(self) -> str:
        return f"{self.at_ns / 1e9:.3f}"


def read_log(path: Path, began_utc: datetime) -> NodeLog:
    """Raises OSError."""
    with open_plain(path) as opened:
        data = opened.read(LOG_BYTES_MAX + 1)
    texts = data[:LOG_BYTES_MAX].decode("utf-8", "replace").splitlines()
    lines = tuple(_lines(texts, _ns_of(began_utc)))
    return NodeLog(path.name, lines, len(data) > LOG_BYTES_MAX, bool(lines))


def _ns_of(began: datetime) -> int:
    """Since the midnight before, UTC."""
    utc = began.astimezone(UTC) if began.tzinfo else began
    seconds = utc.hour * 3600 + utc.minute * 60 + utc.second
    return seconds * 1_000_000_000 + utc.microsecond * 1_000


def _lines(texts: Iterable[str], began_ns: int) -> Iterator[LogLine]:
    origin_us: int | None = None  # of the simulated world, whose first message comes at once
    zone_ns: int | None = None
    previous: LogLine | None = None
    for text in texts:
        found = _STAMP.match(text)
        simulated = _SIMULATED.match(text) if found is None else None
        if found is not None:
            raw_ns = _time_of_day_ns(found) - began_ns
            if zone_ns is None:
                zone_ns = round(raw_ns / _QUARTER_NS) * _QUARTER_NS
            at_ns, rest = (raw_ns - zone_ns), text[found.end() :]
            if previous is not None and at_ns < previous.at_ns - _DAY_NS // 2:
                at_ns += _DAY_NS  # midnight came between
        elif simulated is not None:
            origin_us = int(simulated[1]) if origin_us is None else origin_us
            at_ns, rest = (int(simulated[1]) - origin_us) * 1_000, text[simulated.end() :]
        else:
            if previous is not None:
                previous = LogLine(previous.at_ns, _short(f"{previous.text}\n{text}"))
            continue
        if previous is not None:
            yield previous
        previous = LogLine(at_ns, _short(rest))
    if previous is not None:
        yield previous


def _short(text: str) -> str:
    return text if len(text) <= LINE_MAX else f"{text[:LINE_MAX]}…"


def _time_of_day_ns(found: re.Match[str]) -> int:
    hours, minutes, seconds, milliseconds = (int(found[n]) for n in range(4, 8))
    return ((hours * 60 + minutes) * 60 + seconds) * 1_000_000_000 + milliseconds * _MS


def side_by_side(moments: Sequence[Moment], logs: Sequence[NodeLog]) -> list[SideBySide]:
    """Everything by time; what is less than two milliseconds apart and of different columns shares
    a row. The first column is the run's own record."""
    items: list[tuple[int, int, Entry]] = []
    for moment in moments:
        entry = _entry(moment)
        if entry is not None:
            items.append((moment.at_ns, 0, entry))
    for column, log in enumerate(logs, start=1):
        items += [(line.at_ns, column, Entry(line.text, _tone(line.text))) for line in log.lines]
    rows: list[SideBySide] = []
    cells: list[list[Entry]] = []
    begun_ns = 0
    for at_ns, column, entry in sorted(items, key=lambda item: item[:2]):
        if not cells or cells[column] or at_ns - begun_ns > TOGETHER_NS:
            if cells:
                rows.append(SideBySide(begun_ns, tuple(map(tuple, cells))))
            cells, begun_ns = [[] for _ in range(len(logs) + 1)], at_ns
        cells[column].append(entry)
    if cells:
        rows.append(SideBySide(begun_ns, tuple(map(tuple, cells))))
    return rows


def _entry(moment: Moment) -> Entry | None:
    match moment:
        case Arrow():
            text = f"{moment.source} → {moment.destination}: {moment.text}"
            return Entry(text, moment.tone, moment.anchor)
        case Badge():
            return Entry(f"{moment.lifeline}: {moment.text}", moment.tone, moment.anchor)
        case Line():
            return Entry(moment.text, moment.tone)
    return None


def _tone(text: str) -> str:
    return "bad" if re.match(r"(ERROR|FATAL|WARN)", text) else "quiet"


def from_s(rows: Sequence[SideBySide], since_s: float | None) -> tuple[list[SideBySide], int, int]:
    """As many rows as a page has, from a second on; how many come before, and after."""
    begin = 0
    if since_s is not None:
        since_ns = int(since_s * 1e9)
        begin = next((n for n, row in enumerate(rows) if row.at_ns >= since_ns), len(rows))
    shown = list(rows[begin : begin + ROWS_MAX])
    return shown, begin, max(0, len(rows) - begin - ROWS_MAX)


def broker_names(files: Iterable[str], brokers: Mapping[str, int]) -> dict[str, str]:
    """Log files of brokers to the names that they have in the run, in the order of these."""
    known = {f"broker-{number}.log": name for name, number in brokers.items()}
    there = set(files)
    return {file: name for file, name in known.items() if file in there}
