"""`spark.read.format("neaptide")`: a history of Jepsen's Kafka workload as a table of operations.

    spark.dataSource.register(HistorySource)
    spark.read.format("neaptide").load("history.edn")

The columns are those of `results.schema.OPERATIONS_READ`. Several files may be loaded at once; the
number of an operation is unique in its file. Files are read where the tasks are, by their names:
nothing in a name is a pattern. Not here: how they are read (`splits`, `operations`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from neaptide.checkers.histories.splits import (
    SPLIT_BYTES,
    LineRefusedError,
    Split,
    Times,
    TimesNotRisingError,
    local_path,
    read_split,
    refusal,
    splits,
)
from neaptide.results.errors import RunUnreadableError
from neaptide.results.schema import OPERATIONS_READ

NAME: Final = "neaptide"
SPLIT_OPTION: Final = "splitBytes"
TIMES_OPTION: Final = "times"  # "lines": the places of lines stand for their times


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


# Spark takes words as they are.
COLUMNS: Final = pa.schema([field.with_type(_plain(field.type)) for field in OPERATIONS_READ])


class HistorySource(DataSource):
    """Files of EDN, one operation a line."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return from_arrow_schema(COLUMNS)

    def reader(self, schema: StructType) -> HistoryReader:
        if schema != self.schema():
            raise RunUnreadableError("A history has columns of its own: leave .schema(…) out.")
        split_bytes = int(self.options.get(SPLIT_OPTION, SPLIT_BYTES))
        times: Times = "lines" if self.options.get(TIMES_OPTION) == "lines" else "rising"
        return HistoryReader(_paths(self.options), split_bytes, times)


@dataclass(frozen=True)
class Part(InputPartition):
    """What one task reads."""

    split: Split


class HistoryReader(DataSourceReader):
    """Reads each part of each file by itself."""

    def __init__(self, paths: Sequence[str], split_bytes: int, times: Times) -> None:
        self._paths = paths
        self._split_bytes = split_bytes
        self._times = times

    def partitions(self) -> Sequence[Part]:
        return [
            Part(replace(split, times=self._times))
            for path in self._paths
            for split in splits(local_path(path), split_bytes=self._split_bytes)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        try:
            for batch in read_split(partition.split):
                yield batch.cast(COLUMNS)
        except TimesNotRisingError as error:
            raise RunUnreadableError(
                f"{partition.split.path} has times that do not rise from line to line: read it with"
                ' .option("times", "lines"), then the places of the lines stand for them'
            ) from error
        except LineRefusedError as error:
            raise refusal(partition.split.path, error.place, error.why, error.text) from error


def _paths(options: Mapping[str, str]) -> list[str]:
    """`load` gives one path as `path`, and several as JSON."""
    if "path" in options:
        return [options["path"]]
    paths = [str(path) for path in json.loads(options.get("paths", "[]"))]
    if not paths:
        raise RunUnreadableError('Name a file: .load("history.edn").')
    return paths
