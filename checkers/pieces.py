"""Pieces: what one task reads at a time, a stretch of one Parquet file or rows out of memory.

Plain Python over what was found when the runs were opened, on the driver; no file is opened here.
Files that only Spark can read (`checkers.remote`) have no pieces: Spark hands out their rows.

The rule: a piece names rows of one run and one table, and no row is in two pieces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from neaptide.checkers.material import Material
from neaptide.checkers.reading import FINAL_READS, FinalReads, Piece, Work

# A task begins with the next piece once it has this many rows: enough that starting it costs
# little, few enough that all cores have some.
ROWS_PER_READER: Final = 700_000


def shared_out(materials: Sequence[Material], readers_min: int) -> list[tuple[Work, ...]]:
    """All pieces of all runs, a share for each task that reads; at least one task."""
    works: list[Work] = [work for material in materials for work in _of_run(material)]
    rows = sum(work.rows for work in works if isinstance(work, Piece))
    fair = max(1, min(ROWS_PER_READER, -(-rows // readers_min)))
    shares: list[list[Work]] = [[]]
    taken = 0
    for work in works:
        if taken >= fair and isinstance(work, Piece):
            shares.append([])
            taken = 0
        shares[-1].append(work)
        taken += work.rows if isinstance(work, Piece) else 0
    return [tuple(share) for share in shares]


def _of_run(material: Material) -> Iterator[Work]:
    for table, paths in material.files.items():
        for path in paths:
            if isinstance(path, Path):
                yield from _of_file(material.name, table, path, material.row_groups[path])
    reads = list(material.final_reads.values())
    if reads:
        yield FinalReads(
            material.name,
            pa.table(
                [
                    [read.topic for read in reads],
                    [read.partition for read in reads],
                    [material.whole and read.reached for read in reads],
                    [read.start_offset for read in reads],
                    [read.end_offset for read in reads],
                ],
                schema=FINAL_READS,
            ),
        )


def _of_file(run: str, table: str, path: Path, row_groups: Sequence[int]) -> Iterator[Piece]:
    groups: list[int] = []
    rows = 0
    for number, rows_of_group in enumerate(row_groups):
        groups.append(number)
        rows += rows_of_group
        if rows >= ROWS_PER_READER:
            yield Piece(run, table, str(path), tuple(groups), rows)
            groups, rows = [], 0
    if groups:
        yield Piece(run, table, str(path), tuple(groups), rows)
