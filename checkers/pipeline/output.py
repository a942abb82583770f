"""What a check brings out of the rows: one typed frame, whichever engine ran the rules.

A row is one of these (`what`): what was counted of a partition, how often an anomaly was found, an
anomaly with its evidence, what a replica or a fetch round bears witness of, an edge or a vertex of
the graph of transactions, or why a task could not go on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from neaptide.checkers.anomalies import ANOMALIES
from neaptide.checkers.rules.conditions import Plan, text_of
from neaptide.checkers.rules.dialects import Dialect

PARTITION, COUNT, ANOMALY, REPLICA, ROUND = "partition", "count", "anomaly", "replica", "round"
EDGE, VERTEX, LOG, FAILED = "edge", "vertex", "log", "failed"
EXPIRED: Final = "the time is over"  # as the reason of a failure

OUTPUT: Final = pa.schema(
    [
        pa.field("what", pa.string()),
        pa.field("run", pa.int32()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("name", pa.string()),  # of the anomaly; of an edge its kind
        pa.field("log_offset", pa.int64()),
        pa.field("value", pa.string()),
        pa.field("operation", pa.int64()),  # of an edge where it begins
        pa.field("target", pa.int64()),  # of an edge where it ends
        pa.field("process", pa.int32()),  # of a vertex
        pa.field("invoked_ns", pa.int64()),  # of a vertex
        pa.field("completed_ns", pa.int64()),  # of a vertex
        pa.field("number", pa.int64()),  # how many
        pa.field("text", pa.string()),  # JSON, or a reason
    ]
)
_TYPES: Final = {pa.string(): "STRING", pa.int32(): "INT", pa.int64(): "BIGINT"}

_PARTITION: Final = (
    "operations", "sends", "acked", "polled", "complete", "final_records", "backward_operation",
)  # fmt: skip
_COUNTING: Final = ", ".join(f"'{a.name}'" for a in ANOMALIES.values() if a.counts or a.doubt)


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be found out."""

    plan: Plan
    transactions: bool  # the graph of transactions is wanted
    rw: bool  # with its rw edges

    def output(self, dialect: Dialect, *, is_whole: bool) -> Iterator[tuple[str, str]]:
        """Each part of the output as SQL over what the rules have found; after a failure only what
        does not rest on later steps."""
        of_partition = dialect.json([(name, name) for name in _PARTITION])
        yield _select(PARTITION, "partitions", text=of_partition)
        logs = "SELECT DISTINCT run, topic, partition, broker FROM replicas"
        yield _select(LOG, f"({logs})", number="broker")
        counts = "SELECT run, name, count(*) AS number FROM found GROUP BY run, name"
        yield _select(COUNT, f"({counts})", ("run", "name", "number"))
        columns = ("run", "topic", "partition", "name", "log_offset", "value", "operation")
        yield _select(ANOMALY, "found", columns, text="evidence")
        if not is_whole:
            return
        for what, name, fields in (
            (REPLICA, "witness_replicas", ("broker", "value", "leader_epoch")),
            (
                ROUND,
                "witness_rounds",
                ("leader_epoch", "leader", "follower", "had_in_round", "committed_in_round"),
            ),
        ):
            witness = dialect.json([(field, field) for field in fields])
            yield _select(what, f"({text_of(name)})", (*_PLACE, "log_offset"), text=witness)
        if self.transactions:
            yield from self._graph()

    def _graph(self) -> Iterator[tuple[str, str]]:
        kinds = "" if self.rw else " WHERE kind <> 'rw'"
        yield _select(
            EDGE,
            f"({text_of('edges')}){kinds}",
            (*_PLACE, "value", "target"),
            name="kind",
            operation="source",
        )
        yield _select(
            VERTEX,
            f"({text_of('vertices')})",
            ("run", "operation", "process", "invoked_ns", "completed_ns"),
        )


_PLACE: Final = ("run", "topic", "partition")


def _select(
    what: str, source: str, columns: Sequence[str] = _PLACE, **named: str
) -> tuple[str, str]:
    values = {name: name for name in columns} | named | {"what": f"'{what}'"}
    chosen = ", ".join(
        f"CAST({values.get(field.name, 'NULL')} AS {_TYPES[field.type]}) AS {field.name}"
        for field in OUTPUT
    )
    return what, f"SELECT {chosen} FROM {source}"


def counted(found: str) -> str:
    """Anomalies with whether evidence of more than one kind is wanted for them."""
    return f"SELECT *, name IN ({_COUNTING}) AS counts FROM {found}"


def table_of(rows: Sequence[Mapping[str, object]]) -> pa.Table:
    return pa.Table.from_pylist([*rows], schema=OUTPUT)


def reason_of(error: Exception) -> str:
    """What it is, and the first line of what it says."""
    first = next(iter(str(error).strip().splitlines()), "").rstrip(".")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
