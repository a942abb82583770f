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


OFFSET_MAX: Final = 2**63 - 2  # the log end behind it is a number, too
# 146 years: what lies between two times is a number, too. A clock that went back may be below 0.
TIME_MAX: Final = 2**62


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `meaning`: one or two sentences for readers, with the unit and what null says.

    `words`, `least` and `most`: what may be in it. A row with anything else makes a run unknown.
    """

    name: str
    type: pa.DataType
    meaning: str
    nullable: bool = True
    words: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None


def _schema(columns: tuple[Column, ...]) -> pa.Schema:
    return pa.schema([pa.field(c.name, c.type, nullable=c.nullable) for c in columns])


# `f` of operations: of every run, of workloads, and of histories of Jepsen (other clients than ours
# may say no more of an operation than its name).
OF_PARTITIONS: Final = (  # always about one
    "seek", "commit", "committed", "reset", "leader", "setting", "delete-records",
    "stable", "sum", "source", "process", "assigned", "revoked", "lost",
    "acquire", "acknowledge", "share-rest",
)  # fmt: skip
_F: Final = (
    "send", "poll", "nemesis", *OF_PARTITIONS,
    "txn", "assign", "subscribe", "crash", "debug-topic-partitions",
)  # fmt: skip
_FATES: Final = ("passed", "held", "discarded", "dropped")

_OPERATIONS: Final = (
    Column("operation", pa.int64(), "The operation. Unique in the run.", False, least=0),
    Column(
        "row", pa.int32(), "The position of the row inside its operation, from 0.", False, least=0
    ),
    Column(
        "process",
        pa.int32(),
        "The logical client, which has one thread. -1: nemesis. -2: who observes the leaders.",
        False,
        least=-2,
    ),
    Column(
        "f",
        _text,
        "What was done: `send`, `poll`, `seek`, `commit`, `committed`, `nemesis`, `leader`, or a"
        " word of a workload. `commit`: a group's position was committed. `committed`: the"
        " position was asked for. Of both, `offset` is the position (null: the group has none),"
        " and `key` is the group (null: the process alone). `reset`: the position of the group"
        " `key` was reset on purpose, to `offset`. `setting`: the partition's topic has the setting"
        " `key`, with this value; without one that lets something delete (`retention.ms`,"
        " `retention.bytes`, `cleanup.policy`), nothing does. `delete-records`: records below"
        " `offset` were deleted on purpose (DeleteRecords).",
        False,
        _F,
    ),
    Column(
        "type",
        _text,
        "`ok`: it surely happened. `fail`: it surely did not happen. `info`: nobody knows"
        " (Jepsen's words). `invoke`: no completion was recorded.",
        False,
        ("ok", "fail", "info", "invoke"),
    ),
    Column(
        "invoked_ns", pa.int64(), "When the operation began.", False, least=-TIME_MAX, most=TIME_MAX
    ),
    Column(
        "completed_ns",
        pa.int64(),
        "When it ended. Null: it never ended.",
        least=-TIME_MAX,
        most=TIME_MAX,
    ),
    Column("topic", _text, "Null: not about a partition, or a poll that returned nothing."),
    Column("partition", pa.int32(), "The partition.", least=0),
    Column(
        "offset",
        pa.int64(),
        "Of a send: the acknowledged offset. Null (or -1, as Kafka says it): none came back.",
        least=-1,
        most=OFFSET_MAX,
    ),
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
    Column("acks", _text, 'Of a send: "0", "1" or "all".', words=("0", "1", "all")),
    Column(
        "leader_epoch",
        pa.int32(),
        "Of a poll: as the client reported it. Of `leader`: the new one.",
        least=-1,
    ),
    Column(
        "phase",
        _text,
        "Of a poll: `final` for the reads to the log end after healing. Otherwise `main`.",
        False,
        ("main", "final"),
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
        least=0,
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
    Column("follower", pa.int32(), "The broker that fetches.", False, least=0),
    Column("leader", pa.int32(), "The broker that answers.", False, least=0),
    Column("topic", _text, "The topic.", False),
    Column("partition", pa.int32(), "The partition.", False, least=0),
    Column("leader_epoch", pa.int32(), "Null: the gate does not know it yet.", least=-1),
    Column(
        "round", pa.int64(), "Counted from 1 for each follower and leader epoch.", False, least=1
    ),
    Column(
        "requested_ns",
        pa.int64(),
        "When the request reached the gate.",
        False,
        least=-TIME_MAX,
        most=TIME_MAX,
    ),
    Column(
        "forwarded_ns",
        pa.int64(),
        "When it left for the leader. Null: never.",
        least=-TIME_MAX,
        most=TIME_MAX,
    ),
    Column(
        "responded_ns",
        pa.int64(),
        "When the response reached the gate. Null: never.",
        least=-TIME_MAX,
        most=TIME_MAX,
    ),
    Column(
        "delivered_ns",
        pa.int64(),
        "When it left for the follower. Null: never.",
        least=-TIME_MAX,
        most=TIME_MAX,
    ),
    Column("fetch_offset", pa.int64(), "The follower's log end offset.", False, least=-1),
    Column(
        "high_watermark",
        pa.int64(),
        "Of the response. Null: no response. -1: the response has an error.",
        least=-1,
    ),
    Column("log_start_offset", pa.int64(), "Of the response. Null before Fetch v5.", least=-1),
    Column(
        "records_bytes",
        pa.int32(),
        "The size of the records in the response, in bytes.",
        least=-1,
    ),
    Column("error", pa.int16(), "Kafka's error code of the partition. Null: no response."),
    Column(
        "request_fate",
        _text,
        "`passed`, `held` (it passed later), `discarded`, or `dropped`.",
        False,
        _FATES,
    ),
    Column("response_fate", _text, "The same words. Null: no response.", words=_FATES),
    Column(
        "held_ns",
        pa.int64(),
        "How long the gate held the two messages; 0: not at all.",
        False,
        least=-TIME_MAX,
        most=TIME_MAX,
    ),
)
FETCH_ROUNDS: Final = _schema(_FETCH_ROUNDS)

_MESSAGES: Final = (
    Column("api", _text, "The API, as rules name it: `produce`, `write_txn_markers`.", False),
    Column("version", pa.int16(), "Of the API.", False, least=0),
    Column("message", _text, "`request` or `response`.", False, ("request", "response")),
    Column("correlation_id", pa.int32(), "A response has that of its request.", False),
    Column("source", _text, "A broker, or `client`. Null: the gate does not know who."),
    Column("destination", _text, "The same."),
    Column("topic", _text, "Null: it is about no partition."),
    Column("partition", pa.int32(), "Null: it is about none.", least=0),
    Column(
        "received_ns",
        pa.int64(),
        "When it reached the gate.",
        False,
        least=-TIME_MAX,
        most=TIME_MAX,
    ),
    Column(
        "forwarded_ns",
        pa.int64(),
        "When it left for its destination. Null: never.",
        least=-TIME_MAX,
        most=TIME_MAX,
    ),
    Column("fate", _text, "As in fetch_rounds.", False, _FATES),
    Column(
        "fields",
        _text,
        "JSON. What it says of the partition, and what a response answers: `producer_id`,"
        " `producer_epoch`, `sequence`, `error`, `offset`, by the names that rules have.",
        False,
    ),
)
MESSAGES: Final = _schema(_MESSAGES)

_REPLICAS: Final = (
    Column("broker", pa.int32(), "The broker.", False, least=0),
    Column("topic", _text, "The topic.", False),
    Column("partition", pa.int32(), "The partition.", False, least=0),
    Column(
        "offset",
        pa.int64(),
        "The record's offset. Null: the log is empty.",
        least=0,
        most=OFFSET_MAX,
    ),
    Column("leader_epoch", pa.int32(), "Null: record formats v0 and v1 have none.", least=-1),
    Column(
        "batch_base_offset",
        pa.int64(),
        "The offset of the first record of its batch.",
        least=0,
        most=OFFSET_MAX,
    ),
    Column("timestamp_ms", pa.int64(), "The record's timestamp."),
    Column(
        "key",
        pa.string(),
        "The record's key, as in operations. Of a control record: whose marker it is, as"
        " `producer 7 epoch 0`.",
    ),
    Column(
        "value",
        pa.string(),
        "The record's value, as in operations. Of a control record: `commit` or `abort`, or the"
        " number of its type.",
    ),
    Column("control", pa.bool_(), "Whether it is a control record, of a transaction.", False),
    Column("log_start_offset", pa.int64(), "Of the replica's log.", False, least=0),
    Column("log_end_offset", pa.int64(), "Of the replica's log.", False, least=0),
    Column(
        "high_watermark", pa.int64(), "As the broker checkpointed it. Null: it did not.", least=-1
    ),
)
REPLICAS: Final = _schema(_REPLICAS)

# What a run records, by the name of the folder: the columns, and how they are read.
RECORDED: Final[Mapping[str, tuple[Column, ...]]] = {
    "operations": (*_OPERATIONS, *_OPERATIONS_OPTIONAL),
    "fetch_rounds": _FETCH_ROUNDS,
    "messages": _MESSAGES,
    "replicas": _REPLICAS,
}
TABLES: Final[Mapping[str, pa.Schema]] = {
    "operations": OPERATIONS_READ,
    "fetch_rounds": FETCH_ROUNDS,
    "messages": MESSAGES,
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
    "messages": (
        "Other requests and responses, of clients and of brokers, on links that a rule is about or"
        " that transactions use. One row for each message and partition in it, as the gate saw it.",
        _MESSAGES,
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
