"""One text is one record: exact, reversible, and the same in memory as in SQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from neaptide.results.long_texts import LONG_BYTES, shortened
from neaptide.results.record_texts import (
    NULL,
    bytes_of,
    identified,
    mark_header,
    marked,
    record_text,
    text_of,
)
from neaptide.results.report.rows import load
from neaptide.results.schema import OPERATIONS, REPLICAS
from tests.checkers.histories import Story, final, held, send

NASTY = (
    b"\xff", rb"\xff", b"hex:ff", b"hex:", "⟨null⟩".encode(), "a ⟨3⟩".encode(), b"", b"null",
    "⟨null, key k⟩".encode(), "⟨null, mark 3⟩".encode(), "⟨".encode(), "⟩".encode(), b"None",
    "\ufffd".encode(), b"\x00", b"\xed\xa0\x80", "… ⟨600 bytes, sha256 00⟩".encode(), b"a\\",
)  # fmt: skip
BYTES = st.sampled_from(NASTY) | st.binary(max_size=12) | st.text(max_size=8).map(str.encode)
MARKS = st.none() | st.integers(0, 12).map(str)
RECORDS = st.tuples(st.none() | BYTES, MARKS)


def read(value: bytes | None, mark: str | None) -> str | None:
    return record_text(value, None if mark is None else [("other", b"x"), mark_header(mark)])


@given(st.lists(RECORDS, min_size=2, max_size=2, unique=True))
@example([(b"\xff", None), (rb"\xff", None)])
@example([("a ⟨3⟩".encode(), None), (b"a", "3")])
@example([(b"null", None), (None, None)])
def test_records_that_differ_have_texts_that_differ(records: list[Any]) -> None:
    one, other = records
    assert read(*one) != read(*other)


@given(RECORDS)
def test_a_text_is_read_back_and_is_what_who_sends_it_writes(record: Any) -> None:
    value, mark = record
    text = read(value, mark)
    assert bytes_of(text) == value
    assert text == marked(text_of(value), mark)
    assert text is None or isinstance(text.encode(), bytes)  # which every table can hold


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        (b"", ""),
        (b"paid", "paid"),
        (b"\xff", "hex:ff"),
        (rb"\xff", r"\xff"),
        ("é", "é"),
    ],
)
def test_what_can_be_read_stays_as_it_is(value: bytes | str | None, text: str | None) -> None:
    assert text_of(value) == text


@pytest.mark.parametrize(
    "headers", [None, [], [("neaptide-mark", None)], [("neaptide-mark", b"a")]]
)
def test_what_is_no_mark_of_ours_is_none(headers: Any) -> None:
    assert record_text(b"a", headers) == "a"


def test_a_header_of_a_disk_is_the_same() -> None:
    assert record_text(b"a", ((b"neaptide-mark", b"7"),)) == "a ⟨7⟩"


def test_no_text_can_be_the_short_form_of_a_long_one() -> None:
    long = "x" * (LONG_BYTES + 1)
    [short] = shortened(pa.chunked_array([[long]])).to_pylist()
    assert text_of(short) != short


def operations(*rows: dict[str, Any]) -> pa.Table:
    shared = {
        "operation": 1,
        "row": 0,
        "process": 0,
        "type": "ok",
        "invoked_ns": 0,
        "phase": "main",
    }
    return pa.Table.from_pylist([shared | row for row in rows], schema=OPERATIONS)


OPERATION_ROWS = (
    ({"f": "send", "partition": 0, "key": "k"}, f"{NULL}, key k⟩"),
    ({"f": "send", "partition": 0, "key": ""}, f"{NULL}, key ⟩"),
    ({"f": "send", "partition": 0}, f"{NULL}⟩"),
    ({"f": "send", "partition": 0, "value": ""}, ""),
    ({"f": "poll", "partition": 0, "offset": 3}, f"{NULL}⟩"),
    ({"f": "poll", "partition": 0}, None),  # it returned nothing
    ({"f": "poll"}, None),
    ({"f": "commit", "partition": 0, "offset": 3, "key": "group"}, None),
)
REPLICA_ROWS = (
    ({"offset": 3, "control": False, "key": "k"}, f"{NULL}, key k⟩"),
    ({"offset": 3, "control": True}, None),
    ({"control": False}, None),  # an empty log
)


def replicas(*rows: dict[str, Any]) -> pa.Table:
    shared = {"broker": 0, "topic": "t", "partition": 0, "log_start_offset": 0, "log_end_offset": 0}
    return pa.Table.from_pylist([shared | row for row in rows], schema=REPLICAS)


@pytest.mark.parametrize(
    ("table", "rows"), [(operations, OPERATION_ROWS), (replicas, REPLICA_ROWS)]
)
def test_a_null_value_of_a_record_has_a_name(table: Any, rows: Any) -> None:
    made = table(*(row for row, _ in rows))
    assert identified(made)["value"].to_pylist() == [text for _, text in rows]


def test_a_report_calls_a_null_value_as_a_check_does(tmp_path: Path) -> None:
    ops = [send(None, 0, key="k"), send("", 1), final((0, None, "k"), (1, ""))]
    run = Story(ops, [held(0, (0, None), (1, ""))]).write(tmp_path / "run")
    data = load(run)
    assert data.operations["value"].to_pylist() == [f"{NULL}, key k⟩", "", f"{NULL}, key k⟩", ""]
    assert data.replicas["value"].to_pylist() == [f"{NULL}⟩", ""]
