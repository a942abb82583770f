"""EDN: what is read is what was written, and what is no EDN is refused with its place."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from neaptide.checkers.histories.edn import EdnError, parse, write
from tests.checkers.edn_values import VALUES


@given(VALUES)
def test_what_is_written_is_read(value: object) -> None:
    assert parse(write(value)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("#jepsen.history.Op{:index 0, :type :ok}", {"": ["index", 0, "type", "ok"]}),
        ("{:a #{1 2} ; why\n :b (1, 2)}", {"": ["a", [1, 2], "b", [1, 2]]}),
        (
            '[#_ignored 1N 2.5M \\a \\newline "\\u0041\\"" #_ last]',
            [1, 2.5, '"a', '"\n', '"A"'],
        ),
        ('#_ before #inst "2026-01-01" #_ after', '"2026-01-01'),
        ("[[:poll {0 [[1 2]]}] nil true]", [["poll", {"": [0, [[1, 2]]]}], None, True]),
        ("[1/2 ##NaN null :a/b]", [{"'": "1/2"}, {"'": "##NaN"}, {"'": "null"}, "a/b"]),
        ("[9223372036854775807 9223372036854775808]", [2**63 - 1, {"'": "9223372036854775808"}]),
    ],
)  # fmt: skip
def test_notation(text: str, value: Any) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{:a", "'}' is missing"),
        ("{:a}", "a key without a value"),
        ("[1 2", "']' is missing"),
        ("[1 #_]", "closes nothing"),
        ("1 2", "follows the end"),
        ("^{:a 1} [1]", "follows the end"),
        (")", "closes nothing"),
        ('"open', "does not end"),
        ("", "a value is missing"),
        ("#:a{:b 1}", "a namespace"),
        ("[" * 100_000, "nested too deeply"),
        ("9" * 5_000, "too long"),
    ],
)
def test_what_is_no_edn_is_refused(text: str, why: str) -> None:
    with pytest.raises(EdnError, match=why.replace("[", r"\[").replace("]", r"\]")):
        parse(text)
