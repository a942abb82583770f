"""What a check brings out of the rows: one typed frame, whichever engine ran the rules.

A row is one of these (`what`): what was counted of a partition, how often an anomaly was found, an
anomaly with its evidence, rows that are not understood, what a replica or a fetch round bears
witness of, edges or vertices of the graph of transactions, or why a task could not go on.

Edges and vertices are many: a row has lists of them, whose elements belong together by their place.
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
EDGES, VERTICES, LOG, FAILED = "edges", "vertices", "log", "failed"
MISFIT = "misfit"  # rows that are not in the words of the schema
MANY = "many"  # edges: more than a task may hold
EXPIRED: Final = "the time is over"  # as the reason of a failure

OUTPUT: Final = pa.schema(
    [
        pa.field("what", pa.string()),
        pa.field("run", pa.int32()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("name", pa.string()),  # of the anomaly; of edges their kind
        pa.field("log_offset", pa.int64()),
        pa.field("value", pa.string()),
        pa.field("operation", pa.int64()),
        pa.field("number", pa.int64()),  # how many
        pa.field("text", pa.string()),  # JSON, or a reason
        pa.field("operations", pa.list_(pa.int64())),  # vertices, or where edges begin
        pa.field("targets", pa.list_(pa.int64())),  # where edges end
        pa.field("records", pa.list_(pa.string())),  # that prove edges
        pa.field("invoked_ns", pa.list_(pa.int64())),  # of vertices
        pa.field("completed_ns", pa.list_(pa.int64())),  # of vertices; -1: not known to have been
    ]
)
_TYPES: Final = {pa.string(): "STRING", pa.int32(): "INT", pa.int64(): "BIGINT"}
LISTS_A_GROUP: Final = 64  # so that no row is too large

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
    rules_only: bool = False  # what the rules have found, and nothing of the runs

    def output(self, dialect: Dialect, *, is_whole: bool) -> Iterator[tuple[str, str]]:
        """Each part of the output as SQL over what the rules have found; after a failure only what
        does not rest on later steps."""
        if self.rules_only:
            yield from self._found(dialect)
            return
        of_partition = dialect.json([(name, name) for name in _PARTITION])
        yield _select(dialect, PARTITION, "partitions", text=of_partition)
        logs = "SELECT DISTINCT run, topic, partition, broker FROM replicas"
        yield _select(dialect, LOG, f"({logs})", number="broker")
        yield _select(dialect, MISFIT, f"({text_of('misfits')})", number="number", text="misfit")
        yield from self._found(dialect)
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
            source = f"({text_of(name)})"
            yield _select(dialect, what, source, (*_PLACE, "log_offset"), text=witness)
        if self.transactions:
            yield from self._graph(dialect)

    def _found(self, dialect: Dialect) -> Iterator[tuple[str, str]]:
        counts = "SELECT run, name, count(*) AS number FROM found GROUP BY run, name"
        yield _select(dialect, COUNT, f"({counts})", ("run", "name", "number"))
        columns = ("run", "topic", "partition", "name", "log_offset", "value", "operation")
        yield _select(dialect, ANOMALY, "found", columns, text="evidence")

    def _graph(self, dialect: Dialect) -> Iterator[tuple[str, str]]:
        kinds = "" if self.rw else " WHERE kind <> 'rw'"
        yield _select(
            dialect,
            EDGES,
            f"({text_of('edges')}){kinds}"
            f" GROUP BY run, topic, partition, kind, source % {LISTS_A_GROUP}",
            name="kind",
            operations="array_agg(source)",
            targets="array_agg(target)",
            records="array_agg(value)",
        )
        yield _select(
            dialect,
            VERTICES,
            f"({text_of('vertices')}) GROUP BY run, operation % {LISTS_A_GROUP}",
            ("run",),
            operations="array_agg(operation)",
            invoked_ns="array_agg(invoked_ns)",
            completed_ns="array_agg(coalesce(completed_ns, -1))",
        )


_PLACE: Final = ("run", "topic", "partition")


def _select(
    dialect: Dialect, what: str, source: str, columns: Sequence[str] = _PLACE, **named: str
) -> tuple[str, str]:
    values = {name: name for name in columns} | named | {"what": f"'{what}'"}
    chosen = ", ".join(
        f"CAST({values.get(field.name, 'NULL')} AS {_type(dialect, field.type)}) AS {field.name}"
        for field in OUTPUT
    )
    return what, f"SELECT {chosen} FROM {source}"


def _type(dialect: Dialect, kind: pa.DataType) -> str:
    is_list = pa.types.is_list(kind)
    return dialect.list_of(_TYPES[kind.value_type]) if is_list else _TYPES[kind]


def counted(found: str) -> str:
    """Anomalies with whether evidence of more than one kind is wanted for them."""
    return f"SELECT *, name IN ({_COUNTING}) AS counts FROM {found}"


def table_of(rows: Sequence[Mapping[str, object]]) -> pa.Table:
    return pa.Table.from_pylist([*rows], schema=OUTPUT)


def reason_of(error: Exception) -> str:
    """What it is, and the first line of what it says."""
    first = next(iter(str(error).strip().splitlines()), "").rstrip(".")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
