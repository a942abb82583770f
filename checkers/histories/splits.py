"""Files of histories in parts that are read apart: byte ranges in, batches of operations out.

A line is of the part in which it begins; an operation is of the part in which its first line is.
So whoever reads a part reads on until all that is open there is completed, and asks those before,
backwards, whether a completion without an invocation is theirs. Both are short: an operation lasts
for some lines. Where one never ends, its part reads to the end of the file.

The rule: paths are names of files of this machine, nothing in them is a pattern. What cannot be
read is refused with the number of its line.
"""

from __future__ import annotations

import itertools
import mmap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pyarrow as pa

from neaptide.checkers.histories.edn import EdnError
from neaptide.checkers.histories.operations import (
    Given,
    Key,
    Line,
    Operations,
    given,
    read_line,
)
from neaptide.checkers.histories.tokens import Blank, Value, read_lines, without_collector
from neaptide.results.errors import RunUnreadableError

SPLIT_BYTES: Final = 16 * 2**20
# Each looks for the assignments in all that is before it.
SPLITS_MAX: Final = 32
BATCH_ROWS: Final = 100_000
_BLOCK: Final = 2**20
_AROUND: Final = 2**16  # read at once before and behind a part
_GZIP: Final = b"\x1f\x8b"
_AT_ONCE: Final = 1_000
_TEXT_MAX: Final = 80
_ASSIGNMENTS: Final = (b":assign", b":subscribe")


class LineRefusedError(Exception):
    """A line is no operation."""

    def __init__(self, place: int, why: str, text: str) -> None:
        super().__init__(place, why, text)
        self.place = place  # where it begins in the file
        self.why = why
        self.text = text


@dataclass(frozen=True, slots=True)
class Split:
    """A part of a file, from a byte to another."""

    path: str
    number: int  # in its file
    start: int
    end: int


def local_path(name: str) -> Path:
    """A path, or a file:// URI. Raises RunUnreadableError for what is elsewhere."""
    if "://" not in name or Path(name).exists():
        return Path(name)
    uri = urlsplit(name)
    if uri.scheme != "file" or uri.netloc not in ("", "localhost"):
        raise RunUnreadableError(
            f"{name} cannot be read: a history is a file of this machine, a path or file://…"
        )
    return Path(url2pathname(uri.path))


def splits(path: Path, *, split_bytes: int = SPLIT_BYTES) -> list[Split]:
    """The parts of a file; an empty one has none. Raises RunUnreadableError."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(len(_GZIP))
    except OSError as error:
        raise RunUnreadableError(f"{path} cannot be read: {error.strerror}.") from error
    if head == _GZIP:
        raise RunUnreadableError(f"{path} cannot be read: it is compressed by gzip; unpack it.")
    each = max(split_bytes, -(-size // SPLITS_MAX))
    return [
        Split(str(path), n, start, min(start + each, size))
        for n, start in enumerate(range(0, size, each))
    ]


def read_split(split: Split, *, batch_rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
    """The operations that begin in a part. Raises LineRefusedError."""
    with open(split.path, "rb") as file, without_collector():
        gives = _first(file)
        if gives is None:
            return
        past = _Past(split.path, split.start, gives)
        operations = Operations(past)
        order = past.last_at() if gives.index and split.start else None
        for place, text, value in _lines(file, split.start, split.end, _BLOCK):
            with _refusing(place, text):
                line = _line(value, place, gives)
                if gives.index:
                    order = _in_order(line, order)
                operations.add(line)
            if operations.rows >= batch_rows:
                yield operations.take()
        for place, text, value in _lines(file, split.end, None, _AROUND):
            if not operations.open:
                break
            for line in _readable([value], place, gives):
                with _refusing(place, text):
                    operations.add_completion(line)
        operations.end()
        yield operations.take()


def refusal(path: str, place: int, why: str, text: str) -> RunUnreadableError:
    """What to say of a line: its number is counted."""
    number = 1
    with open(path, "rb") as file:
        while place > 0 and (block := file.read(min(place, _BLOCK))):
            number += block.count(b"\n")
            place -= len(block)
    return RunUnreadableError(f"{path} line {number} cannot be read: {why}: {text}")


@contextmanager
def _refusing(place: int, text: bytes) -> Iterator[None]:
    try:
        yield
    except EdnError as error:
        raise LineRefusedError(place, str(error), _shown(text)) from error


def _shown(text: bytes) -> str:
    shown = text[: 4 * _TEXT_MAX].decode(errors="replace").strip()
    return shown if len(shown) <= _TEXT_MAX else f"{shown[:_TEXT_MAX]}…"


def _in_order(line: Line, before: int | None) -> int:
    if before is not None and line.at <= before:
        raise EdnError(f"its :index is {line.at}, but the line before has {before}")
    return line.at


def _first(file: BinaryIO) -> Given | None:
    """What the history gives with its first operation, if it has one that can be read."""
    file.seek(0)
    for text in file:
        (value,) = read_lines(text.rstrip(b"\n"))
        if isinstance(value, Blank):
            continue
        try:
            return given(value)
        except EdnError:
            return Given(False, False)  # it will be refused
    return None


Lines = Iterator[tuple[int, bytes, Value | EdnError]]


def _lines(file: BinaryIO, start: int, end: int | None, size: int) -> Lines:
    """Place, text and value of each line that begins in a range."""
    for place, block in _blocks(file, start, end, size):
        texts = block.split(b"\n")
        places = itertools.accumulate((len(text) + 1 for text in texts), initial=place)
        for at, text, value in zip(places, texts, read_lines(block), strict=False):
            if not isinstance(value, Blank):
                yield at, text, value


def _blocks(file: BinaryIO, start: int, end: int | None, size: int) -> Iterator[tuple[int, bytes]]:
    """Whole lines, without the line break behind the last."""
    at = start
    if start:
        file.seek(start - 1)
        at += len(file.readline()) - 1
    while end is None or at < end:
        file.seek(at)
        block = file.read(size if end is None else min(size, end - at))
        if not block:
            return
        if not block.endswith(b"\n"):
            block += file.readline()
        yield at, block[:-1] if block.endswith(b"\n") else block
        at += len(block)


def _line(value: Value | EdnError, place: int, gives: Given) -> Line:
    if isinstance(value, EdnError):
        raise value
    return read_line(value, place, gives)


def _readable(values: Iterable[Value | EdnError], place: int, gives: Given) -> Iterator[Line]:
    """Those that are operations; whoever has the others refuses them."""
    for value in values:
        try:
            yield _line(value, place, gives)
        except EdnError:
            continue


class _Past:
    """What is in a file before a place: read when it is asked for."""

    def __init__(self, path: str, end: int, gives: Given) -> None:
        self._path = path
        self._end = end  # of what was not read yet
        self._start = end
        self._gives = gives
        self._size = _AROUND
        self._last: dict[int, Line] = {}
        self._last_at: int | None = None
        self._assigned: dict[int, frozenset[Key]] | None = None

    def last(self, process: int) -> Line | None:
        """The last line of a process."""
        while process not in self._last and self._end > 0:
            self._read_back()
        return self._last.get(process)

    def last_at(self) -> int | None:
        """The last line's index."""
        while self._last_at is None and self._end > 0:
            self._read_back()
        return self._last_at

    def assigned(self, process: int) -> frozenset[Key] | None:
        """What a process was assigned to, or subscribed to, last."""
        if self._assigned is None:
            self._assigned = self._assignments() if self._start else {}
        return self._assigned.get(process)

    def _read_back(self) -> None:
        begin = max(0, self._end - self._size)
        self._size *= 2
        with open(self._path, "rb") as file:
            lines = [
                line
                for place, _, value in _lines(file, begin, self._end, _BLOCK)
                for line in _readable([value], place, self._gives)
            ]
        self._end = begin
        for line in reversed(lines):
            self._last.setdefault(line.process, line)
        if lines and self._last_at is None:
            self._last_at = lines[-1].at

    def _assignments(self) -> dict[int, frozenset[Key]]:
        """Whoever assigns says so by a keyword: only lines that have it are read."""
        found: dict[int, frozenset[Key]] = {}
        for block in self._assigning_lines():
            values = (value for value in read_lines(block) if not isinstance(value, Blank))
            for line in _readable(values, 0, self._gives):
                if line.keys is not None and line.kind in ("ok", "info"):
                    found[line.process] = line.keys
        return found

    def _assigning_lines(self) -> Iterator[bytes]:
        with (
            open(self._path, "rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text,
        ):
            starts: set[int] = set()
            for word in _ASSIGNMENTS:
                at = text.find(word, 0, self._start)
                while at >= 0:
                    starts.add(text.rfind(b"\n", 0, at) + 1)
                    at = text.find(word, at + 1, self._start)
            places = sorted(starts)
            for n in range(0, len(places), _AT_ONCE):
                some = places[n : n + _AT_ONCE]
                yield b"\n".join(text[at : text.find(b"\n", at)] for at in some)
