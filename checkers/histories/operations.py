"""Values of lines as operations, and operations as columns of `results.schema.OPERATIONS_READ`.

The operations are those of `jepsen.tests.kafka`: `send`, `poll` and `txn` with their
micro-operations, `assign` and `subscribe`; any other is kept by its name without a value. An
invocation and its completion are one operation, brought together by their process; its number is
the `:index` of the first of its lines; in a history without, where that line is in its file.

Keys: a number of a partition (below 2^31) is one of the topic `jepsen`; anything else is a topic of
its own. An assignment drops what its process polled and no longer has: that begins anew, by a seek.

The rule: what is no operation is refused by `EdnError`; no line is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neaptide.checkers.histories.edn import MAP, QUOTE, SYMBOL, EdnError, canonical, write
from neaptide.checkers.histories.tokens import Fields, Value, pairs, require_whole
from neaptide.results.record_texts import NULL
from neaptide.results.schema import OPERATIONS_READ

TOPIC: Final = "jepsen"
NEMESIS: Final = "nemesis"
_NEMESIS_PROCESS: Final = -1
_INT32: Final = 2**31 - 1
_KINDS: Final = ("invoke", "ok", "fail", "info")
_OF_RECORDS: Final = ("send", "poll", "txn")
ASSIGNING: Final = ("assign", "subscribe")
# What our tables call otherwise; of a client that has such a word the keyword is kept.
_OURS: Final = ("seek", "commit", "committed", "nemesis", "leader")
_KNOWN: Final = frozenset(("index", "time", "process", "type", "f", "value"))
_PLAIN_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")
_NO_SYMBOL: Final = re.compile(r"-?[0-9]|[\\#]")  # a number, a character, a tagged value
_READS_AS_ELSE: Final = re.compile(
    rf"[:\[{{(#\\\"']|(?:true|false|{NULL}⟩|-?[0-9]+(?:[./][0-9]+)?(?:[eE][+-]?[0-9]+)?M?)\Z"
)

# Names in the column `f` that are always there, and the codes that records have for them.
_NAMES: Final = ("send", "poll", "seek", "nemesis")
_SEND, _POLL, _SEEK, _NEMESIS = range(len(_NAMES))
_POLL_REBALANCED: Final = -1
_RECORD_WIDTH: Final = 5  # f, mop, key, offset, value
_OP_WIDTH: Final = 8  # operation, process, kind, invoked, completed, error, row, records

Key = int | str  # a partition of `TOPIC`, or a topic of its own
Records = list[Any]  # `_RECORD_WIDTH` fields a record, one behind the other


class Line(NamedTuple):
    """One line that is an operation's invocation, or its completion, or a step of the nemesis."""

    at: int  # its `:index`, or its place
    at_ns: int
    process: int
    kind: str
    f: str
    records: Records
    keys: Sequence[Key]  # that an assignment has, or that were polled
    error: str | None


class Past(Protocol):
    """What was before the lines that are read here, of a process that has not been seen yet."""

    def last(self, process: int) -> Line | None: ...
    def had(self, process: int) -> Collection[Key]: ...


@dataclass(frozen=True, slots=True)
class Given:
    """What a history gives with its first operation, and then must give with all."""

    index: bool
    time: bool


def given(op: Fields) -> Given:
    return Given(op.get("index") is not None, op.get("time") is not None)


def read_line(op: Fields, place: int, gives: Given) -> Line:
    """What a line says; `place` is where it is in its file. Raises EdnError."""
    kind, f, process, what = op.get("type"), op.get("f"), op.get("process"), op.get("value")
    if kind not in _KINDS:
        raise EdnError(f"its :type is {write(kind)}, not :invoke, :ok, :fail or :info")
    if type(f) is not str or f[0] == QUOTE:
        raise EdnError(f"its :f is {write(f)}, which is no keyword")
    at = op.get("index")
    if type(at) is not int or not gives.index:
        at = _absent(at, "index", gives.index, place)
    at_ns = op.get("time")
    if type(at_ns) is not int or not gives.time:
        at_ns = _absent(at_ns, "time", gives.time, at)
    rebalanced: frozenset[Key] = frozenset()
    error = None
    if not op.keys() <= _KNOWN:
        error = _error(op.get("error"))
        rebalanced = _rebalanced(op.get("rebalance-log"))
        for name in op.keys() - _KNOWN:
            require_whole(op[name])
    if type(process) is not int:
        if process != NEMESIS:
            raise EdnError(f"its :process is {write(process)}, neither a number nor :nemesis")
        require_whole(what)
        step = [_NEMESIS, None, None, None, write({MAP: [f, what]})]
        return Line(at, at_ns, _NEMESIS_PROCESS, kind, NEMESIS, step, (), error)
    if not 0 <= process <= _INT32:
        raise EdnError(f"its :process is {process}: it must be from 0 to {_INT32}")
    if f in _OF_RECORDS:
        polled: list[Key] = []
        records = _records(what, f, rebalanced, polled)
        return Line(at, at_ns, process, kind, f, records, polled, error)
    keys = _keys(what) if f in ASSIGNING else ()
    require_whole(what)
    return Line(at, at_ns, process, kind, f, [], keys, error)


def _absent(number: Value, name: str, is_given: bool, otherwise: int) -> int:
    """What stands for a number that a history does not give."""
    if is_given:
        raise EdnError(f"its :{name} is {write(number)}, which is no number that is taken")
    if number is not None:
        raise EdnError(f"it has :{name}, which the first operation has not")
    return otherwise


def _records(value: Value, f: str, rebalanced: frozenset[Key], polled: list[Key]) -> Records:
    mops = value if type(value) is list else _vector(value)
    in_transaction = f == "txn" or len(mops) > 1
    records: Records = []
    for position, mop in enumerate(mops):
        n = position if in_transaction else None
        name = mop[0] if type(mop) is list and mop else None
        if name == "poll" and len(mop) == 1:
            records += (_POLL, n, None, None, None)
        elif name == "poll" and len(mop) == 2:
            records += _polled(mop[1], n, rebalanced, polled)
        elif name == "send" and len(mop) == 3:
            key, what = mop[1], mop[2]
            offset = None
            if type(what) is list and len(what) == 2:
                offset, what = what
                if type(offset) is not int:
                    _require_none(offset)
            if type(key) is not int or not 0 <= key <= _INT32:
                key = _key(key)
            records += (_SEND, n, key, offset, what if type(what) is int else value_text(what))
        else:
            require_whole(mop)
            raise EdnError(f"{write(mop)} is neither a :send nor a :poll")
    return records


def _polled(value: Value, n: int | None, rebalanced: frozenset[Key], polled: list[Key]) -> Records:
    records: Records = []
    for raw, found in pairs(_map(value)):
        key = _key(raw)
        polled.append(key)
        f = _POLL_REBALANCED if key in rebalanced else _POLL
        for pair in found if type(found) is list else _vector(found):
            if type(pair) is not list or len(pair) != 2:
                raise EdnError(f"{write(pair)} is no pair of offset and value")
            offset, what = pair
            if type(offset) is not int:
                _require_none(offset)
            records += (f, n, key, offset, what if type(what) is int else value_text(what))
    return records or [_POLL, n, None, None, None]


def _map(value: Value) -> list[Value]:
    if value is None:
        return []
    if type(value) is not dict or MAP not in value:
        require_whole(value)
        raise EdnError(f"{write(value)} is no map of what was polled")
    items: list[Value] = value[MAP]
    return items


def _key(key: Value) -> Key:
    if type(key) is int and 0 <= key <= _INT32:
        return key
    if type(key) is str and key.startswith(QUOTE):
        name = key[1:]
        if _PLAIN_NAME.fullmatch(name) and name != TOPIC:
            return name
    require_whole(key)
    return f"{SYMBOL}{key[SYMBOL]}" if type(key) is dict and SYMBOL in key else canonical(key)


def _require_none(offset: Value) -> None:
    if offset is not None:
        require_whole(offset)
        raise EdnError(f"the offset {write(offset)} is no number that is taken")


def value_text(value: Value) -> int | str | None:
    """One text for what is equal, and different ones for what is not: a string stands as it is
    unless it reads as something else."""
    if value is None or type(value) is int:
        return value
    if type(value) is str and value.startswith(QUOTE):
        text = value[1:]
        return write(value) if _READS_AS_ELSE.match(text) else text
    require_whole(value)
    if type(value) is dict and SYMBOL in value and not _NO_SYMBOL.match(value[SYMBOL]):
        return f"{SYMBOL}{value[SYMBOL]}"
    return canonical(value)


def _keys(value: Value) -> Sequence[Key]:
    return tuple(_key(key) for key in _vector(value))


def _rebalanced(log: Value) -> frozenset[Key]:
    keys: frozenset[Key] = frozenset()
    for event in _vector(log):
        if type(event) is dict and MAP in event:
            for name, of in pairs(event[MAP]):
                keys |= frozenset(_keys(of)) if name == "keys" else frozenset()
    return keys


def _error(error: Value) -> str | None:
    if error is None:
        return None
    require_whole(error)
    return error if type(error) is str and not error.startswith(QUOTE) else _text(error)


def _text(value: Value) -> str:
    return value[1:] if type(value) is str and value.startswith(QUOTE) else write(value)


def _vector(value: Value) -> list[Value]:
    if value is None:
        return []
    if type(value) is not list:
        require_whole(value)
        raise EdnError(f"{write(value)} is no vector")
    return value


@dataclass(slots=True)
class Operations:
    """Lines in, in their order; operations out, in batches."""

    past: Past
    rows: int = 0  # that wait to be taken
    open: dict[int, Line] = field(default_factory=dict)  # invocations by their process
    _seen: set[int] = field(default_factory=set)  # processes
    _polled: dict[int, set[Key]] = field(default_factory=dict)  # or assigned to, by process
    _ops: list[Any] = field(default_factory=list)
    _records: Records = field(default_factory=list)
    _names: dict[str, int] = field(
        default_factory=lambda: {name: n for n, name in enumerate(_NAMES)}
    )

    def add(self, line: Line) -> None:
        process = line.process
        if process == _NEMESIS_PROCESS:
            self._write(line, line, line.records)
            return
        before = self.open.pop(process, None)
        if line.kind == "invoke":
            if before is not None:
                self._write(before, None, before.records)
            self.open[process] = line
            self._seen.add(process)
            return
        if before is None and process not in self._seen:
            earlier = self.past.last(process)
            if earlier is not None and earlier.kind == "invoke":  # those before have it
                self._seen.add(process)
                self._remember(line)
                return
        self._seen.add(process)
        begun = before or line
        # What succeeded is what its completion says, as Jepsen has it.
        records = line.records if line.kind == "ok" else line.records or begun.records
        self._write(begun, line, records)
        self._write_seeks(begun, line)
        self._remember(line)

    def add_completion(self, line: Line) -> None:
        """A line behind the last: it matters only if it ends what is open."""
        if line.process not in self.open:
            return
        if line.kind != "invoke":
            self.add(line)
            return
        before = self.open.pop(line.process)
        self._write(before, None, before.records)

    def end(self) -> None:
        """What is open stays so."""
        for line in self.open.values():
            self._write(line, None, line.records)
        self.open.clear()

    def take(self) -> pa.RecordBatch:
        """The rows so far."""
        batch = _batch(self._ops, self._records, list(self._names))
        self._ops, self._records, self.rows = [], [], 0
        return batch

    def _write(self, begun: Line, ended: Line | None, records: Records) -> None:
        """One operation: a row for each record, or one without."""
        kind = "invoke" if ended is None or ended.kind == "invoke" else ended.kind
        completed = None if ended is None or kind == "invoke" else ended.at_ns
        error = None if ended is None else ended.error
        n = len(records) // _RECORD_WIDTH or 1
        self._ops += (begun.at, begun.process, kind, begun.at_ns, completed, error, 0, n)
        named = "txn" if begun.f == "send" else begun.f  # a transaction of nothing: it sent nothing
        self._records += records or (self._code(named), None, None, None, None)
        self.rows += n

    def _write_seeks(self, begun: Line, ended: Line) -> None:
        """An assignment begins anew what its process has no more."""
        if ended.f not in ASSIGNING or ended.kind == "fail":
            return
        gone = sorted(self._had(ended.process).difference(ended.keys), key=_by_kind)
        if not gone:
            return
        self._ops += (
            begun.at, begun.process, "ok", begun.at_ns, ended.at_ns, ended.error, 1, len(gone)
        )  # fmt: skip
        for key in gone:
            self._records += (_SEEK, None, key, None, None)
        self.rows += len(gone)

    def _remember(self, line: Line) -> None:
        """What its process has a position in."""
        if line.f in ASSIGNING:
            if line.kind != "fail":
                self._polled[line.process] = set(line.keys)
        elif line.keys and line.kind == "ok":
            self._had(line.process).update(line.keys)

    def _had(self, process: int) -> set[Key]:
        had = self._polled.get(process)
        if had is None:
            had = self._polled[process] = set(self.past.had(process))
        return had

    def _code(self, f: str) -> int:
        name = f":{f}" if f in _OURS else f
        return self._names.setdefault(name, len(self._names))


def _by_kind(key: Key) -> tuple[bool, Key]:
    return isinstance(key, str), key


def _batch(ops: list[Any], records: Records, names: list[str]) -> pa.RecordBatch:
    """Columns out of the fields of operations, and of their records."""
    operation, process, kind, invoked, completed, error, row, count = (
        ops[n::_OP_WIDTH] for n in range(_OP_WIDTH)
    )
    codes, mop, key, offset, value = (records[n::_RECORD_WIDTH] for n in range(_RECORD_WIDTH))
    counts = np.array(count, dtype=np.int64)
    begins = np.cumsum(counts) - counts
    rows = len(codes)
    of = np.repeat(np.arange(len(counts)), counts)  # which operation a row is of
    f = np.array(codes, dtype=np.int32)
    rebalanced = pa.array(f == _POLL_REBALANCED)
    f[f == _POLL_REBALANCED] = _POLL
    topic, partition = _places(key)
    is_read = (f == _POLL) | (f == _SEEK)
    columns = {
        "operation": pa.array(operation, pa.int64()).take(of),
        "row": pa.array(np.arange(rows) - begins[of] + np.array(row, dtype=np.int64)[of]),
        "process": pa.array(process, pa.int32()).take(of),
        "f": pa.DictionaryArray.from_arrays(f, names),
        "type": pa.array(kind, pa.string()).dictionary_encode().take(of),
        "invoked_ns": pa.array(invoked, pa.int64()).take(of),
        "completed_ns": pa.array(completed, pa.int64()).take(of),
        "topic": topic,
        "partition": partition,
        "offset": pa.array(offset, pa.int64()),
        "value": _values(value),
        "phase": pa.DictionaryArray.from_arrays(is_read.astype(np.int32), ["main", "final"]),
        "error": pa.array(error, pa.string()).take(of),
        "mop": pa.array(mop, pa.int32()),
        "rebalanced": pc.if_else(rebalanced, rebalanced, None),
    }
    return pa.RecordBatch.from_arrays(
        [
            columns[name].cast(kind) if name in columns else pa.nulls(rows, kind)
            for name, kind in zip(OPERATIONS_READ.names, OPERATIONS_READ.types, strict=True)
        ],
        schema=OPERATIONS_READ,
    )


def _places(keys: Sequence[Key | None]) -> tuple[pa.Array, pa.Array]:
    """Topics and partitions."""
    if _are(keys, int):
        partition = pa.array(keys, pa.int32())
        topic = pa.array(np.zeros(len(keys), dtype=np.int32), mask=np.array(partition.is_null()))
        return pa.DictionaryArray.from_arrays(topic, [TOPIC]), partition
    topics = [TOPIC if isinstance(key, int) else key for key in keys]
    numbers = [0 if isinstance(key, str) else key for key in keys]
    return pa.array(topics, pa.string()).dictionary_encode(), pa.array(numbers, pa.int32())


def _values(values: Sequence[int | str | None]) -> pa.Array:
    if _are(values, int):
        return pa.array(values, pa.int64()).cast(pa.string())
    if _are(values, str):
        return pa.array(values, pa.string())
    return pa.array([None if value is None else str(value) for value in values], pa.string())


def _are(values: Sequence[object], kind: type) -> bool:
    return set(map(type, values)) <= {kind, type(None)}
