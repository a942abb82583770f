"""What a run writes: the columns of its Parquet tables, their units, and the meaning of null.

This is the only place where columns are defined; whoever writes or reads a run imports from here.
All times are nanoseconds on one monotonic clock since the run started (`*_ns`), so that they
compare across the processes of one run. A null means "not known" or "does not apply", never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

_text = pa.dictionary(pa.int32(), pa.string())

OPERATIONS: Final = pa.schema(
    [
        # One operation may have many rows: one per record that it sent or polled.
        pa.field("operation", pa.int64(), nullable=False),  # unique in the run
        pa.field("row", pa.int32(), nullable=False),  # position inside the operation, from 0
        pa.field(
            "process", pa.int32(), nullable=False
        ),  # logical single-threaded client; -1 nemesis
        # send | poll | seek | commit | committed | nemesis | leader
        # commit: a group's position was committed; committed: it was asked for. Of both, `offset`
        # is the position (null: the group has none) and `key` the group (null: the process alone).
        pa.field("f", _text, nullable=False),
        # ok: surely happened. fail: surely did not. info: indeterminate (Jepsen's meanings).
        # A row of type "invoke" is an operation of which no completion was recorded.
        pa.field("type", _text, nullable=False),
        pa.field("invoked_ns", pa.int64(), nullable=False),
        pa.field("completed_ns", pa.int64()),  # null: never completed
        pa.field("topic", _text),  # null: not about a partition, or a poll that returned nothing
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),  # send: the acknowledged offset, null if none came back
        pa.field("key", pa.string()),
        # Unique per send in a run. nemesis: the step as JSON, {"kill": {"broker": "C"}}.
        # leader: what the coordination service said, {"leader": 1, "isr": [0, 1]}.
        pa.field("value", pa.string()),
        pa.field("acks", _text),  # send: "0" | "1" | "all"
        pa.field(
            "leader_epoch", pa.int32()
        ),  # poll: as the client reported it; leader: the new one
        # poll: "final" for the reads after healing, to the log end. Otherwise "main".
        pa.field("phase", _text, nullable=False),
        pa.field("error", pa.string()),  # Kafka's error name or a sentence; null: no error
    ]
)

# Columns that a table of operations may lack, or have in some of its files only: absent is null.
OPERATIONS_OPTIONAL: Final = pa.schema(
    [
        # Position of the micro-operation in its transaction, from 0. Rows of one transaction share
        # `operation`, process, type and times, and are `send` or `poll` like any other.
        # Null: the operation is no transaction.
        pa.field("mop", pa.int32()),
        pa.field("rebalanced", pa.bool_()),  # poll: the partition was reassigned during it
    ]
)
OPERATIONS_READ: Final = pa.schema([*OPERATIONS, *OPERATIONS_OPTIONAL])

FETCH_ROUNDS: Final = pa.schema(
    [
        # One row per (Fetch request, partition in it) that the fetch gate saw.
        pa.field("follower", pa.int32(), nullable=False),
        pa.field("leader", pa.int32(), nullable=False),
        pa.field("topic", _text, nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("leader_epoch", pa.int32()),  # null: the gate has not learned it
        pa.field("round", pa.int64(), nullable=False),  # from 1 in each (follower, leader epoch)
        pa.field("requested_ns", pa.int64(), nullable=False),  # the request reached the gate
        pa.field("forwarded_ns", pa.int64()),  # it left for the leader; null: never
        pa.field("responded_ns", pa.int64()),  # the response reached the gate; null: never
        pa.field("delivered_ns", pa.int64()),  # it left for the follower; null: never
        pa.field("fetch_offset", pa.int64(), nullable=False),  # the follower's log end offset
        pa.field("high_watermark", pa.int64()),  # of the response; null: no response
        pa.field("log_start_offset", pa.int64()),  # of the response; null before Fetch v5
        pa.field("records_bytes", pa.int32()),  # size of the record data in the response
        pa.field("error", pa.int16()),  # Kafka's error code of the partition; null: no response
        # passed | held (and later passed) | discarded | dropped
        pa.field("request_fate", _text, nullable=False),
        pa.field("response_fate", _text),  # null: no response
        pa.field("held_ns", pa.int64(), nullable=False),  # total time held by the gate, 0 if none
    ]
)

REPLICAS: Final = pa.schema(
    [
        # One row per record in each replica's log, read from its disk after the run.
        # A replica with an empty log has one row with a null offset.
        pa.field("broker", pa.int32(), nullable=False),
        pa.field("topic", _text, nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64()),
        pa.field("leader_epoch", pa.int32()),  # null: record formats v0 and v1 have none
        pa.field("batch_base_offset", pa.int64()),
        pa.field("timestamp_ms", pa.int64()),
        pa.field("key", pa.string()),
        pa.field("value", pa.string()),  # null also for a control record
        pa.field("control", pa.bool_(), nullable=False),
        pa.field("log_start_offset", pa.int64(), nullable=False),
        pa.field("log_end_offset", pa.int64(), nullable=False),
        pa.field("high_watermark", pa.int64()),  # as checkpointed; null: none was
    ]
)

# Also the columns of `measures/`: what is told about a run without judging it, see
# checkers/rules/conditions.py.
# What a run records, by the name of the folder.
TABLES: Final[Mapping[str, pa.Schema]] = {
    "operations": OPERATIONS_READ,
    "fetch_rounds": FETCH_ROUNDS,
    "replicas": REPLICAS,
}

ANOMALIES: Final = pa.schema(
    [
        pa.field("run", pa.string(), nullable=False),  # name of the run directory
        pa.field("anomaly", pa.string(), nullable=False),  # see checkers/anomalies.py
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("value", pa.string()),
        pa.field("operation", pa.int64()),  # the send or poll that is the main witness
        pa.field("evidence", pa.string(), nullable=False),  # JSON, keys by anomaly
    ]
)

# `series/`: what happened over time, in stretches of equal width, a bounded number of them.
SERIES: Final = pa.schema(
    [
        pa.field("run", pa.string(), nullable=False),
        pa.field("series", pa.string(), nullable=False),  # see checkers/pipeline/series.py
        pa.field("at_ns", pa.int64(), nullable=False),  # when the stretch begins
        pa.field("width_ns", pa.int64(), nullable=False),  # how long it is, the same in one run
        pa.field("value", pa.float64(), nullable=False),
    ]
)
