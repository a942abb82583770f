"""Reads pieces of runs, in the tasks that read, and passes on what the checks look at.

Here the words of a table become numbers, and reads that follow each other without a gap become one
row: a consumer's path has few turns.

The rule: no judgement; a file that cannot be read fails its run, and no other. A check whose time
is over reads no further, and says so to whoever judges, since half a history proves nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from neaptide.checkers.relations import (
    ACKED,
    FAILED,
    FINAL,
    FINAL_UNSURE,
    PARTS,
    READ,
    READ_UNSURE,
    RELATIONS,
    SENT,
    Outbox,
)
from neaptide.results.forgone import PANDAS, forgo
from neaptide.results.long_texts import shortened

# What is read at a time: not more rows, and not more bytes, as the file's footer tells them.
ROWS_AT_ONCE: Final = 131_072
BYTES_AT_ONCE: Final = 32 * 2**20

_WORDS: Final = {
    "operations": ["f", "type", "topic", "phase", "acks"],
    "replicas": ["topic"],
    "fetch_rounds": ["topic"],
}
COLUMNS: Final = {
    "operations": (
        "operation", "row", "process", "f", "type", "invoked_ns", "completed_ns", "topic",
        "partition", "offset", "key", "value", "acks", "phase", "mop", "rebalanced",
    ),
    "replicas": (
        "topic", "partition", "broker", "offset", "leader_epoch", "key", "value", "control",
        "high_watermark",
    ),
    "fetch_rounds": (
        "topic", "partition", "leader_epoch", "leader", "follower", "round", "responded_ns",
        "delivered_ns", "fetch_offset", "high_watermark", "error",
    ),
}  # fmt: skip
EXPIRED: Final = ""  # as the reason of a failure: there was no more time


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one table of one run."""

    run: str
    table: str
    path: str
    row_groups: tuple[int, ...]
    rows: int


@dataclass(frozen=True, slots=True)
class FinalReads:
    """What the final reads of one run say of its partitions: columns of the same length."""

    run: str
    columns: pa.Table  # topic, partition, complete, start_offset, end_offset


Work = Piece | FinalReads

# Of a part; its run is that of all of them.
FINAL_READS: Final = pa.schema([*list(PARTS)[1:], *list(RELATIONS["final_reads"])[1:]])


@dataclass(frozen=True, slots=True)
class Reader:
    """What every task that reads has to know."""

    tasks: int  # that judge
    steps: bool  # whether the steps of the nemesis are looked at
    deadline_s: float | None  # of the wall clock
    owns_process: bool  # nobody else's work is done in the process that this is in

    def read(self, works: Iterable[Work]) -> Iterator[pa.RecordBatch]:
        """The rows of pieces, as blocks."""
        if self.owns_process:
            forgo(PANDAS)
        outbox = Outbox(self.tasks)
        for work in works:
            if isinstance(work, FinalReads):
                outbox.put("final_reads", _final_reads(outbox, work))
                continue
            try:
                for rows in _rows(work):
                    if self._is_over():
                        _fail(outbox, work.run, EXPIRED)
                        break
                    self._take(outbox, work.run, work.table, rows)
                    yield from outbox.blocks()
            except (OSError, pa.ArrowException) as error:
                _fail(outbox, work.run, reason_of(error))
        yield from outbox.blocks(at_end=True)

    def read_shares(
        self, shares: Sequence[Sequence[Work]], numbers: Iterable[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """Those of all shares whose numbers come as `id`."""
        for batch in numbers:
            for number in batch["id"].to_pylist():
                yield from self.read(shares[number])

    def read_rows(self, table: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows that Spark has read, with the name of their run as a column, as blocks."""
        outbox = Outbox(self.tasks)
        for gathered in _gathered(batches):
            for run in pc.unique(gathered["run"]).to_pylist():
                if self._is_over():
                    _fail(outbox, run, EXPIRED)
                    continue
                self._take(outbox, run, table, gathered.filter(pc.equal(gathered["run"], run)))
            yield from outbox.blocks()
        yield from outbox.blocks(at_end=True)

    def _is_over(self) -> bool:
        return self.deadline_s is not None and time.time() > self.deadline_s

    def _take(self, outbox: Outbox, run: str, table: str, rows: pa.Table) -> None:
        if rows.num_rows == 0:
            return
        for name in ("key", "value"):
            if name in rows.column_names:
                place = rows.column_names.index(name)
                rows = rows.set_column(place, name, shortened(rows[name]))
        if table == "operations":
            _Operations(outbox, run, rows).pass_on(steps=self.steps)
        else:
            relation = {"replicas": "replicas", "fetch_rounds": "rounds"}[table]
            renamed = {"offset": "log_offset"}
            columns = {renamed.get(name, name): rows[name] for name in rows.column_names}
            columns["part"] = pa.array(_parts(outbox, run, rows))
            outbox.put(relation, _table(relation, columns))


class _Operations:
    """A stretch of one run's operations."""

    def __init__(self, outbox: Outbox, run: str, rows: pa.Table) -> None:
        self._outbox = outbox
        self._run = run
        self._rows = rows
        self._part = _parts(outbox, run, rows)
        self._f = _one_of(rows["f"])
        self._type = _one_of(rows["type"])
        self._is_final = _one_of(rows["phase"])("final")
        self._is_send = self._f("send")
        self._is_ok = self._type("ok")
        self._has_place = (rows["topic"].is_valid().to_numpy()) & (
            rows["partition"].is_valid().to_numpy()
        )
        self._has_offset = rows["offset"].is_valid().to_numpy()
        self._is_read = self._f("poll") & self._has_offset

    def pass_on(self, *, steps: bool) -> None:
        self._outbox.put("seen", self._seen())
        self._outbox.put("records", self._records())
        self._outbox.put("moves", self._moves())
        self._outbox.put("positions", self._positions())
        if steps:
            told = self._selected("steps", self._f("nemesis") & (self._numbers("row") == 0),
                                  at_ns="invoked_ns", fault="value")  # fmt: skip
            if told.num_rows:
                everywhere = self._outbox.parts.number((self._run, None, None))
                part = pa.array(np.full(told.num_rows, everywhere, np.int32))
                self._outbox.put_to_all("steps", told.set_column(0, "part", part))

    def _seen(self) -> pa.Table:
        """One row per part."""
        rows = self._rows
        completed = pc.coalesce(rows["completed_ns"], rows["invoked_ns"])
        backward = pc.fill_null(pc.less(rows["completed_ns"], rows["invoked_ns"]), False)
        flags = {
            "operations": (self._numbers("row") == 0) & (self._numbers("process") >= 0),
            "sends": self._is_send,
            "acked": self._is_send & self._is_ok,
            "final_records": self._is_read & self._is_final,
        }
        nothing = pa.scalar(None, pa.int64())
        columns = {
            "part": pa.array(self._part),
            **{name: pa.array(flag.astype(np.int64)) for name, flag in flags.items()},
            "highest_read": pc.if_else(pa.array(self._is_read), rows["offset"], nothing),
            "last_ns": completed,
            "backward_operation": pc.if_else(backward, rows["operation"], nothing),
        }
        how = [*((name, "sum") for name in flags), ("highest_read", "max"), ("last_ns", "max"),
               ("backward_operation", "min")]  # fmt: skip
        told = pa.table(columns).group_by("part", use_threads=False).aggregate(how)
        return _table("seen", {name.rpartition("_")[0] if name != "part" else name: told[name]
                               for name in told.column_names})  # fmt: skip

    def _records(self) -> pa.Table:
        kind = np.where(
            self._is_send,
            np.where(self._is_ok, ACKED, np.where(self._type("fail"), FAILED, SENT)),
            np.where(self._is_final, np.where(self._is_ok, FINAL, FINAL_UNSURE),
                     np.where(self._is_ok, READ, READ_UNSURE)),
        ).astype(np.int8)  # fmt: skip
        mask = (self._is_send | self._is_read) & self._has_place
        table = self._rows.append_column("kind", pa.array(kind))
        table = table.append_column("in_transaction", self._in_transaction())
        acks = _translated(self._rows["acks"], _acks, pa.int16())
        place = table.column_names.index("acks")
        return self._selected("records", mask, table.set_column(place, "acks", acks),
                              log_offset="offset")  # fmt: skip

    def _in_transaction(self) -> pa.Array | pa.ChunkedArray:
        if "mop" in self._rows.column_names:
            return self._rows["mop"].is_valid()
        return pa.array(np.zeros(len(self._part), bool))

    def _moves(self) -> pa.Table:
        """Where a consumer went, with what was read in one go as one row."""
        mask = (self._is_read | self._f("seek")) & self._has_place
        chosen = np.flatnonzero(mask)
        if not len(chosen):
            return RELATIONS["moves"].empty_table()
        is_read = self._is_read[chosen]
        operation, row = self._numbers("operation")[chosen], self._numbers("row")[chosen]
        offset = self._rows["offset"].fill_null(-1).to_numpy()[chosen]
        known = self._rows["value"].is_valid().to_numpy()[chosen]
        part, final = self._part[chosen], self._is_final[chosen]
        goes_on = np.zeros(len(chosen), bool)
        goes_on[1:] = (
            is_read[1:] & is_read[:-1] & known[1:] & known[:-1]
            & (operation[1:] == operation[:-1]) & (part[1:] == part[:-1])
            & (row[1:] == row[:-1] + 1) & (offset[1:] == offset[:-1] + 1)
            & (final[1:] == final[:-1])
        )  # fmt: skip
        first = np.flatnonzero(~goes_on)
        last = np.append(first[1:], len(chosen)) - 1
        begin = chosen[first]
        rows = self._rows.take(pa.array(begin))
        moved = is_read[first]
        rebalanced = (
            pc.fill_null(rows["rebalanced"], False)
            if "rebalanced" in rows.column_names
            else pa.array(np.zeros(len(begin), bool))
        )
        return _table(
            "moves",
            {
                "part": pa.array(part[first]),
                "process": rows["process"],
                "operation": rows["operation"],
                "row": rows["row"],
                "invoked_ns": rows["invoked_ns"],
                "first_offset": pa.array(offset[first], mask=~moved),
                "last_offset": pa.array(offset[last], mask=~moved),
                "value": rows["value"],
                "known": pa.array(known[first]),
                "ok": pa.array(self._is_ok[begin]),
                "final": pa.array(final[first]),
                "rebalanced": rebalanced,
            },
        )

    def _positions(self) -> pa.Table:
        """Acknowledged commits, answers about them, and seeks, with the group or its process."""
        is_commit = self._f("commit")
        mask = (
            ((is_commit & self._has_offset) | self._f("committed") | self._f("seek"))
            & self._is_ok & self._has_place
        )  # fmt: skip
        if not mask.any():
            return RELATIONS["positions"].empty_table()
        alone = pc.binary_join_element_wise("process", self._rows["process"].cast(pa.string()), " ")
        group = pc.coalesce(self._rows["key"], alone)
        return self._selected("positions", mask, self._rows.append_column("group_name", group),
                              log_offset="offset")  # fmt: skip

    def _selected(
        self, relation: str, mask: np.ndarray, rows: pa.Table | None = None, **renamed: str
    ) -> pa.Table:
        """The rows of a mask as a relation; some of its columns have another name in the table."""
        table = self._rows if rows is None else rows
        names = [name for name in RELATIONS[relation].names if name != "part"]
        chosen = table.select([renamed.get(name, name) for name in names]).rename_columns(names)
        chosen = chosen.append_column("part", pa.array(self._part)).filter(pa.array(mask))
        return _table(relation, dict(zip(chosen.column_names, chosen.columns, strict=True)))

    def _numbers(self, name: str) -> np.ndarray:
        numbers: np.ndarray = self._rows[name].to_numpy()
        return numbers


def _rows(piece: Piece) -> Iterator[pa.Table]:
    with pq.ParquetFile(piece.path, read_dictionary=_WORDS[piece.table]) as file:
        names = [name for name in COLUMNS[piece.table] if name in file.schema_arrow.names]
        groups = [file.metadata.row_group(number) for number in piece.row_groups]
        a_row = sum(group.total_byte_size for group in groups) / max(1, piece.rows)
        at_once = max(1, min(ROWS_AT_ONCE, int(BYTES_AT_ONCE / max(1.0, a_row))))
        if piece.rows <= at_once:
            yield file.read_row_groups(list(piece.row_groups), names, use_threads=False)
            return
        batches = file.iter_batches(
            at_once, row_groups=list(piece.row_groups), columns=names, use_threads=False
        )
        for batch in batches:
            yield pa.Table.from_batches([batch])


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """As much at a time as is read of a file: Spark hands out a few rows."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= ROWS_AT_ONCE or size >= BYTES_AT_ONCE:
            yield pa.Table.from_batches(waiting).combine_chunks()
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting).combine_chunks()


def _final_reads(outbox: Outbox, reads: FinalReads) -> pa.Table:
    columns = {name: reads.columns[name] for name in reads.columns.column_names}
    part = _parts(outbox, reads.run, reads.columns)
    return _table("final_reads", {**columns, "part": pa.array(part)})


def _fail(outbox: Outbox, run: str, reason: str) -> None:
    part = outbox.parts.number((run, None, None))
    outbox.put_to_all("failed", _table("failed", {"part": [part], "reason": [reason]}))


def _parts(outbox: Outbox, run: str, rows: pa.Table) -> np.ndarray:
    partition = rows["partition"].combine_chunks()
    return outbox.parts.numbers(run, _words(rows["topic"]), partition)


def _table(relation: str, columns: Any) -> pa.Table:
    schema = RELATIONS[relation]
    return pa.table({name: columns[name] for name in schema.names}).cast(schema)


def _words(column: pa.ChunkedArray) -> pa.DictionaryArray:
    """A column of words, whether or not its file has them as a dictionary."""
    whole = column.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = whole.unify_dictionaries().combine_chunks()
    return whole if pa.types.is_dictionary(whole.type) else whole.dictionary_encode()


def _one_of(column: pa.ChunkedArray) -> Callable[[str], np.ndarray]:
    """Whether each row has a word."""
    words = _words(column)
    known: Sequence[str | None] = words.dictionary.to_pylist()
    code = words.indices.fill_null(-1).to_numpy()

    def has(word: str) -> np.ndarray:
        numbers = [number for number, one in enumerate(known) if one == word]
        return np.isin(code, numbers) if numbers else np.zeros(len(code), bool)

    return has


def _translated(
    column: pa.ChunkedArray, what: Callable[[str], int | None], kind: pa.DataType
) -> pa.Array:
    words = _words(column)
    known = words.dictionary.to_pylist()
    meaning = pa.array([None if word is None else what(word) for word in known], kind)
    return meaning.take(words.indices)


def _acks(text: str) -> int | None:
    if text == "all":
        return -1
    return int(text) if text.lstrip("-").isdigit() else None


def reason_of(error: Exception) -> str:
    """What it is, and the first line of what it says."""
    first = next(iter(str(error).strip().splitlines()), "").rstrip(".")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
