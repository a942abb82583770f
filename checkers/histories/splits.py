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
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final, Literal
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pyarrow as pa

from neaptide.checkers.histories.edn import EdnError
from neaptide.checkers.histories.operations import (
    ASSIGNING,
    Given,
    Key,
    Line,
    Operations,
    given,
    read_line,
)
from neaptide.checkers.histories.tokens import Blank, read_lines, without_collector
from neaptide.results.errors import RunUnreadableError

SPLIT_BYTES: Final = 16 * 2**20
# Each looks for the assignments in all that is before it.
SPLITS_MAX: Final = 32
BATCH_ROWS: Final = 100_000
_BLOCK: Final = 2**16  # what is made of it stays in the caches of a processor
_AROUND: Final = 2**16  # read first before a part
_COUNTED: Final = 2**20
_GZIP: Final = b"\x1f\x8b"
_AT_ONCE: Final = 1_000
_TEXT_MAX: Final = 80
_ASSIGNMENTS: Final = (b":assign", b":subscribe")
# A process as Clojure prints it, and one that is named otherwise.
_PROCESSES: Final = 2**31
_PROCESS: Final = re.compile(rb":process ([0-9]+)[,}]")
_OTHERWISE: Final = re.compile(rb":process(?! (?:[0-9]+|:nemesis)[,}])")


class TimesNotRisingError(Exception):
    """A line has the same :time as one before it, or an earlier one: times give no order."""


class LineRefusedError(Exception):
    """A line is no operation."""

    def __init__(self, place: int, why: str, text: str) -> None:
        super().__init__(place, why, text)
        self.place = place  # where it begins in the file
        self.why = why
        self.text = text


@dataclass(frozen=True, slots=True)
class Block:
    """Lines that are read at once."""

    start: int
    text: bytes  # without the line break behind the last

    def places(self) -> Iterator[int]:
        """Where each line begins."""
        lengths = (len(line) + 1 for line in self.text.split(b"\n"))
        return itertools.accumulate(lengths, initial=self.start)


# As they are given; so, but refused where they do not rise from line to line; or the places of the
# lines in their stead.
Times = Literal["given", "rising", "lines"]


@dataclass(frozen=True, slots=True)
class Split:
    """A part of a file, from a byte to another."""

    path: str
    number: int  # in its file
    start: int
    end: int
    times: Times = "given"


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
    """The parts of a file, at least one. Raises RunUnreadableError."""
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
        for n, start in enumerate(range(0, max(1, size), each))
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
        by_lines = split.times == "lines"
        rising = split.times == "rising" and gives.time
        latest = past.last_ns() if rising and split.start else None
        with _refusing() as at:
            for line in _lines(_blocks(file, split.start, split.end), gives, at):
                if order is not None and line.at <= order:
                    raise EdnError(f"its :index is {line.at}, but one before it has {order}")
                order = line.at if gives.index else None
                if rising and line.process >= 0:  # a fault has no place in the order
                    if latest is not None and line.at_ns <= latest:
                        raise TimesNotRisingError
                    latest = line.at_ns
                operations.add(line._replace(at_ns=line.at) if by_lines else line)
                if operations.rows >= batch_rows:
                    yield operations.take()
            behind = _blocks_about(operations.open, _blocks(file, split.end, None))
            for line in _lines(behind, gives, at, all_readable=False):
                if not operations.open:
                    break
                operations.add_completion(line._replace(at_ns=line.at) if by_lines else line)
            operations.end()
        if operations.rows:
            yield operations.take()


def refusal(path: str, place: int, why: str, text: str) -> RunUnreadableError:
    """What to say of a line: its number is counted."""
    number = 1
    with open(path, "rb") as file:
        while place > 0 and (block := file.read(min(place, _COUNTED))):
            number += block.count(b"\n")
            place -= len(block)
    return RunUnreadableError(f"{path} line {number} cannot be read: {why}: {text}")


@dataclass(slots=True)
class _At:
    """The line that is read."""

    block: Block = Block(0, b"")
    number: int = 0  # in its block


@contextmanager
def _refusing() -> Iterator[_At]:
    at = _At()
    try:
        yield at
    except EdnError as error:
        place = next(itertools.islice(at.block.places(), at.number, None))
        text = at.block.text.split(b"\n")[at.number]
        raise LineRefusedError(place, str(error), _shown(text)) from error


def _shown(text: bytes) -> str:
    shown = text[: 4 * _TEXT_MAX].decode(errors="replace").strip()
    return shown if len(shown) <= _TEXT_MAX else f"{shown[:_TEXT_MAX]}…"


def _first(file: BinaryIO) -> Given | None:
    """What the history gives with its first operation, if it has one that can be read."""
    file.seek(0)
    for text in file:
        (op,) = read_lines(text.rstrip(b"\n"))
        if isinstance(op, EdnError):
            return Given(False, False)  # it will be refused
        if not isinstance(op, Blank):
            return given(op)
    return None


def _lines(
    blocks: Iterable[Block], gives: Given, at: _At, *, all_readable: bool = True
) -> Iterator[Line]:
    """Each line, while `at` says which; where not all need be readable, others are passed by."""
    for block in blocks:
        at.block = block
        places = itertools.repeat(0) if gives.index else block.places()
        for at.number, (op, place) in enumerate(zip(read_lines(block.text), places, strict=False)):
            if isinstance(op, Blank):
                continue
            try:
                if isinstance(op, EdnError):
                    raise op
                line = read_line(op, place, gives)
            except EdnError:
                if all_readable:
                    raise
                continue
            yield line


def _blocks(file: BinaryIO, start: int, end: int | None) -> Iterator[Block]:
    """The lines that begin in a range."""
    at = _first_line(file, start)
    while end is None or at < end:
        file.seek(at)
        text = file.read(_BLOCK if end is None else min(_BLOCK, end - at))
        if not text:
            return
        if not text.endswith(b"\n"):
            text += file.readline()
        yield Block(at, text[:-1] if text.endswith(b"\n") else text)
        at += len(text)


def _blocks_about(processes: Collection[int], blocks: Iterable[Block]) -> Iterator[Block]:
    """Those that may have a line of one of them: there may be very many, and none.

    A process that is named as Clojure prints it is another, or one of them; where it is named
    otherwise, whoever reads the line finds out.
    """
    known: set[int] = set()
    pattern = _about(known)
    for block in blocks:
        if not processes:
            return
        if known != set(processes):
            known = set(processes)
            pattern = _about(known)
        if pattern.search(block.text):
            yield block


def _about(processes: Collection[int]) -> re.Pattern[bytes]:
    numbers = b"|".join(b"%d" % process for process in processes)
    return re.compile(rb":process(?! [0-9]+[,}])|:process (?:%s)[,}]" % numbers)


def _first_line(file: BinaryIO, start: int) -> int:
    """Where the first line begins that does not begin before a place."""
    if not start:
        return 0
    file.seek(start - 1)
    return start - 1 + len(file.readline())


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
        self._last_ns: int | None = None
        self._assigned: dict[int, tuple[int, Sequence[Key]]] | None = None
        self._named: Collection[int] | None = None  # processes

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

    def last_ns(self) -> int | None:
        """The time of the last line of a client."""
        while self._last_ns is None and self._end > 0:
            self._read_back()
        return self._last_ns

    def had(self, process: int) -> Collection[Key]:
        """What a process was assigned to, or subscribed to, last, and what it has polled since."""
        if not self._start:
            return ()
        if self._assigned is None:
            self._assigned = self._assignments()
        place, keys = self._assigned.get(process, (0, ()))
        if place == 0 and not self._names(process):
            return ()
        return {*keys, *self._polled(process, place)}

    def _read_back(self) -> None:
        begin = max(0, self._end - self._size)
        self._size *= 2
        with open(self._path, "rb") as file:
            lines = list(self._lines(_blocks(file, begin, self._end)))
        self._end = begin
        for line in reversed(lines):
            self._last.setdefault(line.process, line)
        if lines and self._last_at is None:
            self._last_at = lines[-1].at
        if self._last_ns is None:
            of_clients = [line.at_ns for line in lines if line.process >= 0]
            self._last_ns = max(of_clients, default=None)

    def _assignments(self) -> dict[int, tuple[int, Sequence[Key]]]:
        """Of each process the last, and where it is. Whoever assigns says so by a keyword: only
        lines that have it are read."""
        found: dict[int, tuple[int, Sequence[Key]]] = {}
        at = _At()
        for places, block in self._assigning_lines():
            for line in _lines([block], self._gives, at, all_readable=False):
                if line.f in ASSIGNING and line.kind in ("ok", "info"):
                    found[line.process] = places[at.number], line.keys
        return found

    def _names(self, process: int) -> bool:
        """Whether a process may be there at all: many begin late."""
        if self._named is None:
            found: set[int] = set()
            with open(self._path, "rb") as file:
                for block in _blocks(file, 0, self._start):
                    if _OTHERWISE.search(block.text):
                        self._named = range(_PROCESSES)
                        return True
                    found.update(map(int, _PROCESS.findall(block.text)))
            self._named = found
        return process in self._named

    def _polled(self, process: int, place: int) -> set[Key]:
        """What a process has polled behind a place."""
        keys: set[Key] = set()
        pattern = _about([process])
        with open(self._path, "rb") as file:
            blocks = _blocks_about([process], _blocks(file, place, self._start))
            for line in self._lines(map(partial(_lines_about, pattern), blocks)):
                if line.process == process and line.kind == "ok" and line.f not in ASSIGNING:
                    keys.update(line.keys)
        return keys

    def _lines(self, blocks: Iterable[Block]) -> Iterator[Line]:
        return _lines(blocks, self._gives, _At(), all_readable=False)

    def _assigning_lines(self) -> Iterator[tuple[Sequence[int], Block]]:
        """Some at once, with where each is."""
        with (
            open(self._path, "rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text,
        ):
            starts: set[int] = set()
            end = _first_line(file, self._start)
            for word in _ASSIGNMENTS:
                at = text.find(word, 0, end)
                while at >= 0:
                    starts.add(text.rfind(b"\n", 0, at) + 1)
                    at = text.find(word, at + 1, end)
            places = sorted(starts)
            for n in range(0, len(places), _AT_ONCE):
                some = places[n : n + _AT_ONCE]
                yield some, Block(0, b"\n".join(text[at : text.find(b"\n", at)] for at in some))


def _lines_about(pattern: re.Pattern[bytes], block: Block) -> Block:
    return Block(block.start, b"\n".join(filter(pattern.search, block.text.split(b"\n"))))
