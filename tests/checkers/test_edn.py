"""EDN: what is read is what was written, and what is no EDN is refused with its place."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide.checkers.edn import EdnError, Keyword, parse, write
from neaptide.checkers.edn_rows import read_line

ATOMS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(), st.sampled_from(["ok", "a-b"]).map(Keyword)
)
VALUES = st.recursive(
    ATOMS, lambda inner: st.lists(inner) | st.dictionaries(st.integers(), inner), max_leaves=20
)


@given(VALUES)
def test_what_is_written_is_read(value: object) -> None:
    assert parse(write(value)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("#jepsen.history.Op{:index 0, :type :ok}", {"index": 0, "type": "ok"}),
        ("{:a #{1 2} ; why\n :b (1, 2)}", {"a": [1, 2], "b": [1, 2]}),
        ('[#_ignored 1N 2.5M \\a \\newline "\\u0041\\""]', [1, 2.5, "a", "\n", 'A"']),
        ('#inst "2026-01-01"', "2026-01-01"),
        ("[[:poll {0 [[1 2]]}] nil true]", [["poll", {0: [[1, 2]]}], None, True]),
    ],
)
def test_notation(text: str, value: Any) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{:a", "'}' is missing"),
        ("{:a}", "a key without a value"),
        ("[1 2", "']' is missing"),
        ("1 2", "follows the end"),
        (")", "closes nothing"),
        ('"open', "does not end"),
        ("", "a value is missing"),
    ],
)
def test_what_is_no_edn_is_refused(text: str, why: str) -> None:
    with pytest.raises(EdnError, match=why.replace("[", r"\[").replace("]", r"\]")):
        parse(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[1 2]", "something else than a map"),
        ("{:type :done, :f :poll}", ":type is :done"),
        ("{:type :ok, :f :send, :process 1, :value [[:put 1 2]]}", "neither a :send nor a :poll"),
        ('{:type :ok, :f :send, :process 1, :value [[:send 1 ["x" 2]]]}', "is no number"),
        ("{:type :ok, :f :poll, :process 1, :value [[:poll {1 [[1]]}]]}", "no pair"),
    ],
)
def test_what_is_no_operation_is_refused(text: str, why: str) -> None:
    row = read_line(7, text)
    assert row is not None
    assert (row["line"], row["text"]) == (7, text)
    assert why in row["bad"]


def test_a_transaction_has_numbered_micro_operations() -> None:
    line = (
        "{:index 3, :time 9, :type :ok, :process 2, :f :txn, :rebalance-log [{:keys [1]}], "
        ":value [[:send 0 [4 77]] [:poll {1 [[5 78]]}] [:send 0 79]]}"
    )
    row = read_line(0, line)
    assert row is not None
    assert [
        (r["f"], r["mop"], r["partition"], r["offset"], r["value"], r.get("rebalanced"))
        for r in row["records"]
    ] == [
        ("send", 0, 0, 4, "77", None),
        ("poll", 1, 1, 5, "78", True),
        ("send", 2, 0, None, "79", None),
    ]
