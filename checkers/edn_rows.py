"""Lines of a Jepsen history as columns: one line in, what it says of one operation out.

Plain Python, no Spark: `checkers.edn_reader` runs it over splits of a file. The operations are
those of `jepsen.tests.kafka`: `send`, `poll` and `txn` with their micro-operations, `assign` and
`subscribe`; any other is kept by its name without a value.

Keys: an integer is a partition of the topic `jepsen`; anything else is a topic of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from neaptide.checkers.edn import EdnError, Keyword, parse, write

TOPIC: Final = "jepsen"

RECORD: Final = pa.struct(
    [
        ("f", pa.string()), ("mop", pa.int32()), ("topic", pa.string()), ("partition", pa.int32()),
        ("offset", pa.int64()), ("value", pa.string()), ("rebalanced", pa.bool_()),
    ]
)  # fmt: skip
LINE: Final = pa.schema(
    [
        ("line", pa.int64()),  # where the line is among the lines of the file
        ("index", pa.int64()),  # of the operation, if the history has indices
        ("time", pa.int64()),
        ("process", pa.int32()),
        ("type", pa.string()),
        ("f", pa.string()),
        ("records", pa.list_(RECORD)),
        ("keys", pa.list_(pa.string())),  # of assign and subscribe, as `key_text`
        ("value", pa.string()),  # of the nemesis, as EDN
        ("error", pa.string()),
        ("bad", pa.string()),  # why the line cannot be read; then all else is null
        ("text", pa.string()),  # of a bad line
    ]
)

_NEMESIS: Final = -1
_SKIPPED: Final = ("", "[", "]")


def rows_of(lines: pa.RecordBatch) -> pa.RecordBatch:
    """Read a batch of lines with the columns `line` and `value`."""
    texts = zip(lines.column("line").to_pylist(), lines.column("value").to_pylist(), strict=True)
    rows = [row for number, text in texts if (row := read_line(number, text)) is not None]
    return pa.RecordBatch.from_pylist(rows, schema=LINE)


def read_line(number: int, text: str) -> dict[str, Any] | None:
    """What one line says; nothing for an empty one."""
    if text.strip() in _SKIPPED:
        return None
    try:
        return {"line": number, **_operation(parse(text))}
    except EdnError as error:
        return {"line": number, "bad": str(error), "text": text}


def key_text(key: object) -> str:
    """`topic/partition` of a key; the partition has no slash."""
    return f"{TOPIC}/{key}" if isinstance(key, int) else f"{_text(key)}/0"


def _operation(op: Any) -> dict[str, Any]:
    if not isinstance(op, dict):
        raise EdnError("it is no operation but something else than a map")
    kind, f, process = op.get("type"), op.get("f"), op.get("process")
    if kind not in ("invoke", "ok", "fail", "info"):
        raise EdnError(f"its :type is {write(kind)}, not :invoke, :ok, :fail or :info")
    if not isinstance(f, str):
        raise EdnError("it has no :f")
    is_client = isinstance(process, int)
    known = is_client and f in ("send", "poll", "txn")
    value = op.get("value")
    error = op.get("error")
    return {
        "index": op.get("index"),
        "time": op.get("time"),
        "process": process if is_client else _NEMESIS,
        "type": str(kind),
        "f": str(f) if is_client else "nemesis",
        "records": _records(op, str(f)) if known else [],
        "keys": [key_text(key) for key in _list(value)] if f in ("assign", "subscribe") else None,
        "value": None if is_client else write({Keyword(f): value}),
        "error": None if error is None else _text(error),
    }


def _records(op: dict[Any, Any], f: str) -> list[dict[str, Any]]:
    rebalanced = {
        key_text(key)
        for event in _list(op.get("rebalance-log"))
        for key in _list(event.get("keys") if isinstance(event, dict) else None)
    }
    mops = _list(op.get("value"))
    transaction = f == "txn" or len(mops) > 1
    return [
        {**record, "mop": n if transaction else None}
        for n, mop in enumerate(mops)
        for record in _of_mop(mop, rebalanced)
    ]


def _of_mop(mop: Any, rebalanced: set[str]) -> Iterator[dict[str, Any]]:
    match mop:
        case ["send", key, [offset, value]]:
            yield _record("send", key, offset, value)
        case ["send", key, value]:
            yield _record("send", key, None, value)
        case ["poll"] | ["poll", None]:
            yield {"f": "poll"}
        case ["poll", dict() as polled]:
            if not any(polled.values()):
                yield {"f": "poll"}
            for key, pairs in polled.items():
                for offset, value in _pairs(pairs):
                    record = _record("poll", key, offset, value)
                    yield {**record, "rebalanced": key_text(key) in rebalanced or None}
        case _:
            raise EdnError(f"{write(mop)} is neither a :send nor a :poll")


def _record(f: str, key: object, offset: object, value: object) -> dict[str, Any]:
    if not (offset is None or isinstance(offset, int)):
        raise EdnError(f"the offset {write(offset)} is no number")
    topic, _, partition = key_text(key).rpartition("/")
    return {
        "f": f, "topic": topic, "partition": int(partition), "offset": offset,
        "value": None if value is None else _text(value),
    }  # fmt: skip


def _pairs(pairs: Any) -> Iterator[tuple[Any, Any]]:
    for pair in _list(pairs):
        if not (isinstance(pair, list) and len(pair) == 2):
            raise EdnError(f"{write(pair)} is no pair of offset and value")
        yield pair[0], pair[1]


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise EdnError(f"{write(value)} is no vector")
    return value


def _text(value: object) -> str:
    if isinstance(value, str):
        return str(value)
    return json.dumps(value) if isinstance(value, bool | float) else write(value)
