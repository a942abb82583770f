"""What a run writes: the columns of its Parquet tables, their units, and the meaning of null.

This is the only place where columns are defined; whoever writes or reads a run imports from here,
and docs/reference/columns.md is made of it. All times are nanoseconds on one monotonic clock since
the run started (`*_ns`), so that they compare across the processes of one run. A null means "not
known" or "does not apply", never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

_text = pa.dictionary(pa.int32(), pa.string())


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `meaning`: one or two sentences for readers, with the unit and what null says."""

    name: str
    type: pa.DataType
    meaning: str
    nullable: bool = True


def _schema(columns: tuple[Column, ...]) -> pa.Schema:
    return pa.schema([pa.field(c.name, c.type, nullable=c.nullable) for c in columns])


_OPERATIONS: Final = (
    Column("operation", pa.int64(), "The operation. Unique in the run.", False),
    Column("row", pa.int32(), "The position of the row inside its operation, from 0.", False),
    Column("process", pa.int32(), "The logical client, which has one thread. -1: nemesis.", False),
    Column(
        "f",
        _text,
        "What was done: `send`, `poll`, `seek`, `commit`, `committed`, `nemesis`, `leader`, or a"
        " word of a workload. `commit`: a group's position was committed. `committed`: the"
        " position was asked for. Of both, `offset` is the position (null: the group has none),"
        " and `key` is the group (null: the process alone). `reset`: the position of the group"
        " `key` was reset on purpose, to `offset`.",
        False,
    ),
    Column(
        "type",
        _text,
        "`ok`: it surely happened. `fail`: it surely did not happen. `info`: nobody knows"
        " (Jepsen's words). `invoke`: no completion was recorded.",
        False,
    ),
    Column("invoked_ns", pa.int64(), "When the operation began.", False),
    Column("completed_ns", pa.int64(), "When it ended. Null: it never ended."),
    Column("topic", _text, "Null: not about a partition, or a poll that returned nothing."),
    Column("partition", pa.int32(), "The partition."),
    Column("offset", pa.int64(), "Of a send: the acknowledged offset. Null: none came back."),
    Column("key", pa.string(), "The record's key, as text, or the group."),
    Column(
        "value",
        pa.string(),
        "Of a send or a poll: the record's value as text; bytes that are no UTF-8 as `hex:ff`, and"
        " of a record with the mark 3 `paid ⟨3⟩` (`results/record_texts.py`). Null: a null value."
        " A value that is sent twice to a partition needs marks. Of `nemesis`: the step as JSON,"
        ' `{"kill": {"broker": "C"}}`. Of `leader`: what the coordination service reported,'
        ' `{"leader": 1, "isr": [0, 1]}`. Of `reset`: the position before, null if there was none.',
    ),
    Column("acks", _text, 'Of a send: "0", "1" or "all".'),
    Column(
        "leader_epoch",
        pa.int32(),
        "Of a poll: as the client reported it. Of `leader`: the new one.",
    ),
    Column(
        "phase",
        _text,
        "Of a poll: `final` for the reads to the log end after healing. Otherwise `main`.",
        False,
    ),
    Column("error", pa.string(), "Kafka's name of the error, or a sentence. Null: no error."),
)
OPERATIONS: Final = _schema(_OPERATIONS)

# Columns that a table of operations may lack, or have in some of its files only: absent is null.
_OPERATIONS_OPTIONAL: Final = (
    Column(
        "mop",
        pa.int32(),
        "The position of the micro-operation in its transaction, from 0. Rows of one transaction"
        " have the same `operation`, process, type and times, and are `send` or `poll` like any"
        " other. Null: the operation is no transaction. The column may be absent.",
    ),
    Column(
        "rebalanced",
        pa.bool_(),
        "Of a poll: the partition was reassigned during it. The column may be absent.",
    ),
)
OPERATIONS_OPTIONAL: Final = _schema(_OPERATIONS_OPTIONAL)
OPERATIONS_READ: Final = _schema((*_OPERATIONS, *_OPERATIONS_OPTIONAL))

_FETCH_ROUNDS: Final = (
    Column("follower", pa.int32(), "The broker that fetches.", False),
    Column("leader", pa.int32(), "The broker that answers.", False),
    Column("topic", _text, "The topic.", False),
    Column("partition", pa.int32(), "The partition.", False),
    Column("leader_epoch", pa.int32(), "Null: the gate does not know it yet."),
    Column("round", pa.int64(), "Counted from 1 for each follower and leader epoch.", False),
    Column("requested_ns", pa.int64(), "When the request reached the gate.", False),
    Column("forwarded_ns", pa.int64(), "When it left for the leader. Null: never."),
    Column("responded_ns", pa.int64(), "When the response reached the gate. Null: never."),
    Column("delivered_ns", pa.int64(), "When it left for the follower. Null: never."),
    Column("fetch_offset", pa.int64(), "The follower's log end offset.", False),
    Column("high_watermark", pa.int64(), "Of the response. Null: no response."),
    Column("log_start_offset", pa.int64(), "Of the response. Null before Fetch v5."),
    Column("records_bytes", pa.int32(), "The size of the records in the response, in bytes."),
    Column("error", pa.int16(), "Kafka's error code of the partition. Null: no response."),
    Column(
        "request_fate",
        _text,
        "`passed`, `held` (it passed later), `discarded`, or `dropped`.",
        False,
    ),
    Column("response_fate", _text, "The same words. Null: no response."),
    Column("held_ns", pa.int64(), "How long the gate held the two messages; 0: not at all.", False),
)
FETCH_ROUNDS: Final = _schema(_FETCH_ROUNDS)

_REPLICAS: Final = (
    Column("broker", pa.int32(), "The broker.", False),
    Column("topic", _text, "The topic.", False),
    Column("partition", pa.int32(), "The partition.", False),
    Column("offset", pa.int64(), "The record's offset. Null: the log is empty."),
    Column("leader_epoch", pa.int32(), "Null: record formats v0 and v1 have none."),
    Column("batch_base_offset", pa.int64(), "The offset of the first record of its batch."),
    Column("timestamp_ms", pa.int64(), "The record's timestamp."),
    Column("key", pa.string(), "The record's key, as in operations."),
    Column(
        "value", pa.string(), "The record's value, as in operations. Null also: a control record."
    ),
    Column("control", pa.bool_(), "Whether it is a control record, of a transaction.", False),
    Column("log_start_offset", pa.int64(), "Of the replica's log.", False),
    Column("log_end_offset", pa.int64(), "Of the replica's log.", False),
    Column("high_watermark", pa.int64(), "As the broker checkpointed it. Null: it did not."),
)
REPLICAS: Final = _schema(_REPLICAS)

# What a run records, by the name of the folder.
TABLES: Final[Mapping[str, pa.Schema]] = {
    "operations": OPERATIONS_READ,
    "fetch_rounds": FETCH_ROUNDS,
    "replicas": REPLICAS,
}

# Also the columns of `measures/`: what is reported about a run without judging it, see
# checkers/rules/conditions.py.
_ANOMALIES: Final = (
    Column("run", pa.string(), "The name of the run directory.", False),
    Column("anomaly", pa.string(), "The name of the anomaly.", False),
    Column("topic", pa.string(), "The topic."),
    Column("partition", pa.int32(), "The partition."),
    Column("offset", pa.int64(), "The offset."),
    Column("value", pa.string(), "The record's value."),
    Column("operation", pa.int64(), "The send or poll that is the main witness."),
    Column("evidence", pa.string(), "JSON. Its keys depend on the anomaly.", False),
)
ANOMALIES: Final = _schema(_ANOMALIES)

_SERIES: Final = (
    Column("run", pa.string(), "The name of the run directory.", False),
    Column("series", pa.string(), "What is measured: see checkers/pipeline/series.py.", False),
    Column("at_ns", pa.int64(), "When the stretch of time begins.", False),
    Column("width_ns", pa.int64(), "How long it is: the same for all of one run.", False),
    Column("value", pa.float64(), "The measured value.", False),
)
SERIES: Final = _schema(_SERIES)

# For readers: what a row is, and the columns, by the name of the folder in the run directory.
EXPLAINED: Final[Mapping[str, tuple[str, tuple[Column, ...]]]] = {
    "operations": (
        "What clients and the nemesis did. An operation has one row for each record that it sent"
        " or polled.",
        (*_OPERATIONS, *_OPERATIONS_OPTIONAL),
    ),
    "fetch_rounds": (
        "Fetch requests of followers, with their responses. One row for each request and partition"
        " in it, as the gate saw it.",
        _FETCH_ROUNDS,
    ),
    "replicas": (
        "The logs of all replicas, read from disk after the run. One row for each record; a replica"
        " with an empty log has one row without an offset.",
        _REPLICAS,
    ),
    "anomalies": (
        "What the check found. One row for each anomaly. `measures/` has the same columns.",
        _ANOMALIES,
    ),
    "series": (
        "What happened over time, in stretches of equal width, a bounded number of them.",
        _SERIES,
    ),
}
