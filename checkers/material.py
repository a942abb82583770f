"""What is there to judge: run directories opened, and what is wrong with them put in sentences.

Plain Python over directory listings, Parquet footers and `run.json`; no row is read here.

The rule: whatever a run lacks makes it unknown and is named by file, but what can be read is still
read, and never disturbs another run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from neaptide.results.errors import RunUnreadableError
from neaptide.results.run import RUN_FILE, FinalRead, Run, Written, read_run
from neaptide.results.schema import OPERATIONS_OPTIONAL, TABLES
from neaptide.results.tables import named_files

EDN_SYSTEM: Final = "jepsen"  # of a history that Jepsen recorded: it has no replicas' logs
PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_OF_WRITER: Final = re.compile(r"part-(?P<writer>.+)-\d+\.parquet")


@dataclass(frozen=True, slots=True)
class Material:
    """One run directory, opened."""

    directory: Path
    run: Run | None
    files: Mapping[str, tuple[Path | str, ...]]  # readable ones, by table; a str is an URI
    reasons: tuple[str, ...]  # why it can only be unknown
    whole: bool  # the record of its operations is complete
    transactions: bool = False  # some of its operations are transactions
    # What is there, by table and writer, to be compared with what the run says was written.
    written: Mapping[str, Mapping[str, Written]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def rows_by_table(self) -> dict[str, int]:
        """How many rows there are in all readable files."""
        return {
            table: sum(written.rows for written in of_table.values())
            for table, of_table in self.written.items()
        }

    @property
    def rows(self) -> int:
        return sum(self.rows_by_table.values())

    @property
    def by_jepsen(self) -> bool:
        """A history that Jepsen recorded."""
        return self.run is not None and self.run.system == EDN_SYSTEM

    @property
    def has_open_sends(self) -> bool:
        """Reads may vouch for sends of which the end is not known: what else was in their
        transaction, or the offset that a history gives them."""
        return self.transactions or self.by_jepsen

    @property
    def level(self) -> bool:
        """All replicas were level when their logs were read."""
        return self.run is not None and self.run.converged is not None and self.run.converged.level

    @property
    def hidden(self) -> bool:
        """Nobody could read replicas' logs, of a cluster that was just used."""
        return self.run is not None and not self.run.logs_readable

    @property
    def is_foreign(self) -> bool:
        """Its brokers were set up by its user: what they delete or compact by default is not said
        here."""
        return self.run is not None and (self.hidden or self.run.own is not None)

    @property
    def final_reads(self) -> Mapping[tuple[str, int], FinalRead]:
        """The reads after healing, by partition."""
        reads = self.run.final_reads if self.run is not None else ()
        return {(read.topic, read.partition): read for read in reads}


def open_run(directory: Path) -> Material:
    """Look at a run directory; one that cannot be looked at is no reason to fail."""
    try:
        return _open_run(directory.resolve())
    except Exception as error:  # whatever is wrong with its files
        return unreadable(directory, f"{directory} cannot be opened: {_first_line(error)}.")


def _open_run(directory: Path) -> Material:
    if not directory.is_dir():
        return unreadable(directory, f"{directory} is not a directory.")
    if not PLAIN_NAME.fullmatch(directory.name):
        return unreadable(
            directory,
            f"The directory name {directory.name!r} has characters other than letters, digits, "
            "dot, dash and underscore: rename it.",
        )
    run, reasons = _read(directory)
    files: dict[str, tuple[Path | str, ...]] = {}
    damaged: dict[str, list[str]] = {}
    there: dict[str, Mapping[str, Written]] = {}
    transactions = False
    for table in TABLES:
        opened = _open_table(directory, table)
        files[table], damaged[table] = tuple(opened.good), opened.bad
        if opened.good:
            there[table] = by_writer({path.name: rows for path, rows in opened.good.items()})
        transactions = transactions or opened.transactions
    if not files["operations"] and not damaged["operations"]:
        damaged["operations"].append(f"{directory / 'operations'} has no Parquet file.")
    if run is not None and run.replicas_written and not files["replicas"]:
        damaged["replicas"].append(
            f"{directory / 'replicas'} has no Parquet file, although run.json says it was written."
        )
    reasons += [sentence for table in TABLES for sentence in damaged[table]]
    whole = run is not None and run.status == "finished" and not damaged["operations"]
    return Material(directory, run, files, tuple(reasons), whole, transactions, there)


def by_writer(files: Mapping[str, int]) -> dict[str, Written]:
    """What each writer wrote, by the names of its files and their rows; empty tables count too."""
    written: dict[str, Written] = {}
    for name, rows in files.items():
        matched = _OF_WRITER.fullmatch(name)
        writer = matched["writer"] if matched else name
        before = written.get(writer, Written(0, 0))
        written[writer] = Written(before.files + 1, before.rows + rows)
    return written


def unreadable(directory: Path, reason: str) -> Material:
    """What cannot be opened at all."""
    return Material(directory, None, {table: () for table in TABLES}, (reason,), False)


def _read(directory: Path) -> tuple[Run | None, list[str]]:
    try:
        run = read_run(directory)
    except RunUnreadableError as error:
        return None, [f"{error}."]
    except RecursionError:
        return None, [f"{directory / RUN_FILE} cannot be read: it is nested too deeply."]
    return run, []


@dataclass(frozen=True, slots=True)
class Opened:
    good: dict[Path, int]  # the rows of each file
    bad: list[str]  # sentences
    transactions: bool


def _open_table(directory: Path, table: str) -> Opened:
    opened = open_files(named_files(directory / table), table)
    opened.bad.extend(
        f"{path} was never finished." for path in sorted((directory / table).glob(".*.tmp"))
    )
    return opened


def open_files(paths: Iterable[Path], table: str) -> Opened:
    """Some files of a table."""
    good: dict[Path, int] = {}
    bad: list[str] = []
    transactions = False
    for path in paths:
        try:
            if not path.is_file():
                bad.append(f"{path} is no file, or a link to none.")
                continue
            footer = pq.read_metadata(path)
        except (OSError, pa.ArrowException) as error:
            bad.append(f"{path} is not a whole Parquet file ({_first_line(error)}).")
            continue
        fault = _fault(footer.schema.to_arrow_schema(), TABLES[table])
        if fault is None:
            good[path] = footer.num_rows
            transactions = transactions or _has_values(footer, "mop")
        else:
            bad.append(f"{path} {fault}.")
    return Opened(good, bad, transactions)


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _has_values(footer: pq.FileMetaData, name: str) -> bool:
    """Whether a column is there and not all null; where nothing shows it, it may be."""
    if name not in footer.schema.names:
        return False
    index = footer.schema.names.index(name)
    chunks = (footer.row_group(n).column(index) for n in range(footer.num_row_groups))
    return any(
        chunk.statistics is None
        or not chunk.statistics.has_null_count
        or chunk.statistics.null_count < chunk.num_values
        for chunk in chunks
    )


def _fault(found: pa.Schema, expected: pa.Schema) -> str | None:
    for column in expected:
        index = found.get_field_index(column.name)
        if index < 0 and column.name in OPERATIONS_OPTIONAL.names:
            continue
        if index < 0:
            return f"lacks the column {column.name!r}"
        is_type, wanted = _plain(found.field(index).type), _plain(column.type)
        if is_type != wanted:
            return f"has {is_type} in the column {column.name!r}, not {wanted}"
    return None


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind
