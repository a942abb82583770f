"""The fetch rounds by which one record was lost, out of a run under load. Pure.

Of thousands of rounds these are shown: those that were held or never arrived, for each follower the
one that brought the record and the first after it, and the first of each new leader epoch, which
shows to where the follower has truncated.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from neaptide.results.report.rows import Row, RunData

_SHOWN: Final = (
    "lost-write",
    "committed-then-lost",
    "replica-divergence",
    "inconsistent-offsets",
)
_BEFORE_NS: Final = 1_500_000_000
_AFTER_NS: Final = 4_000_000_000
_ROUNDS_MAX: Final = 60


@dataclass(frozen=True, slots=True)
class Closeup:
    """What happened around the acknowledgement of one record, in its partition."""

    record: str
    partition: int
    operations: list[Row]
    rounds: list[Row]


def close_up(data: RunData) -> Closeup | None:
    """Of the first record in question that was acknowledged, and of which rounds are known."""
    rows = data.anomalies if data.fetch_rounds.num_rows else []
    for row in sorted(rows, key=_rank):
        if row["value"] is None or row["partition"] is None:
            continue
        found = around(data, str(row["value"]), int(row["partition"]))
        if found is not None:
            return found
    return None


def _rank(row: Row) -> int:
    name = row["anomaly"]
    return _SHOWN.index(name) if name in _SHOWN else len(_SHOWN)


def around(data: RunData, value: str, partition: int) -> Closeup | None:
    """Of one record; None: it was not acknowledged at an offset, or no round near it is known."""
    table = data.operations
    own = table.filter(pc.equal(table["value"], value)).to_pylist()
    acks = [row for row in own if row["f"] == "send" and row["type"] == "ok"]
    if not acks or acks[0]["offset"] is None:
        return None
    offset, at_ns = acks[0]["offset"], acks[0]["completed_ns"]
    since_ns, until_ns = at_ns - _BEFORE_NS, at_ns + _AFTER_NS
    rounds = data.fetch_rounds
    near = rounds.filter(
        pc.and_(
            pc.equal(rounds["partition"], partition),
            pc.and_(
                pc.greater_equal(rounds["requested_ns"], since_ns),
                pc.less_equal(rounds["requested_ns"], until_ns),
            ),
        )
    )
    chosen = _shown(near.sort_by("requested_ns").to_pylist(), offset)
    if not chosen:
        return None
    few = table.filter(pc.is_in(table["f"], pa.array(["nemesis", "leader"]))).to_pylist()
    happened = [row for row in few if since_ns <= row["invoked_ns"] <= until_ns]
    before = [row for row in few if row["invoked_ns"] < since_ns and _leads(row, partition)]
    reads = [row for row in own if row["f"] == "poll"][:1]
    return Closeup(value, partition, [*before[-1:], *acks[:1], *reads, *happened], chosen)


def _leads(row: Row, partition: int) -> bool:
    return bool(row["f"] == "leader" and row["partition"] == partition)


def _shown(rounds: Iterable[Row], offset: int) -> list[Row]:
    chosen: dict[int, Row] = {}
    brought: dict[tuple[int, int], tuple[int, Row]] = {}
    knows: set[tuple[int, int]] = set()
    follows: dict[int, tuple[int, int | None]] = {}  # follower → the leader and epoch it was in
    for number, row in enumerate(rounds):
        pair = (row["follower"], row["leader"])
        epoch = (row["leader"], row["leader_epoch"])
        if row["request_fate"] != "passed" or row["response_fate"] not in ("passed", None):
            chosen[number] = row
        if follows.get(row["follower"], epoch) != epoch:
            chosen[number] = row
        follows[row["follower"]] = epoch
        if row["fetch_offset"] <= offset and row["records_bytes"]:
            brought[pair] = (number, row)
        elif row["fetch_offset"] > offset and pair not in knows:
            knows.add(pair)
            chosen[number] = row
    chosen |= dict(brought.values())
    return [chosen[number] for number in sorted(chosen)][:_ROUNDS_MAX]
