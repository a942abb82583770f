"""EDN: what is read is what was written, and what is no EDN is refused with its place."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from neaptide.checkers.histories.edn import EdnError, canonical, parse, write
from neaptide.checkers.histories.operations import value_text as text_in_tables
from tests.checkers.edn_values import VALUES


@pytest.mark.slow
@given(VALUES)
def test_what_is_written_is_read(value: object) -> None:
    assert parse(write(value)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("#jepsen.history.Op{:index 0, :type :ok}", {"": ["index", 0, "type", "ok"]}),
        ("{:a #{1 2} ; why\n :b (1, 2)}", {"": ["a", {"#": [1, 2]}, "b", [1, 2]]}),
        (
            '[#_ignored 1N 2.5M \\a \\newline "\\u0041\\"" #_ last]',
            [1, {"'": "25E-1M"}, {"'": "\\a"}, {"'": "\\u000a"}, '"A"'],
        ),
        ('#_ before #other "2026-01-01" #_ after', '"2026-01-01'),
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
        (")", "closes nothing"),
        ('"open', "does not end"),
        ("", "a value is missing"),
        ("#:a [:b 1]", "a namespace is of a map"),
        ("#{1 0x1}", "one value twice"),
        ("08", "08 is no number"),
        ("1/0", "divides by zero"),
        ("2r12", "2r12 is no number"),
        ("1x", "1x is no number"),
        ('#inst "soon"', "is none"),
        ("#uuid 1", "is none"),
        ("[" * 100_000, "nested too deeply"),
        ("9" * 5_000, "too long"),
    ],
)
def test_what_is_no_edn_is_refused(text: str, why: str) -> None:
    with pytest.raises(EdnError, match=why.replace("[", r"\[").replace("]", r"\]")):
        parse(text)


# What Clojure 1.12 says of `=`, by Jepsen's checker where it can compare them.
EQUAL = (
    ("16", "0x10", "0X10", "+16", "020", "2r10000", "16N", "36rg", "32/2"),
    ("1/2", "2/4", "+1/2", "017/34"),
    ("-1/2", "-2/4"),
    ("18446744073709551616", "0x10000000000000000", "18446744073709551616N"),
    ("1000.0", "1e3", "1E3", "1e+3", "1000.", "10000e-1"),
    ("0.0", "-0.0"),
    ("1M", "1.0M", "1.00M", "10e-1M"),
    ("100M", "1e2M", "100.0M"),
    ("0M", "0.00M", "-0M"),
    ("{:a 1, :b 2}", "{:b 2 :a 1}", "{:b 0x2, :a 1N}", "^{:m 1} {:a 1 :b #_3 2}"),
    ("#{1 2}", "#{2 1}", "#{0x2 1}"),
    ("[#{1 2} {:a {:b 1 :c 2}}]", "(#{2 1} {:a {:c 2 :b 1}})"),
    ("[1 2]", "(1 2)", "^:m [1 2]", "[1, 2]"),
    ("{:a/b 1, :c 2}", "#:a{:b 1, :_/c 2}"),
    ("{a/b 1}", "#:a{b 1}"),
    ("\\a", "\\u0061", "\\o141"),
    ("\\newline", "\\u000a"),
    ('"A"', '"\\u0041"', '"\\101"'),
    ('#inst "2026"', '#inst "2026-01-01"', '#inst "2026-01-01T00:00:00.0001-00:00"',
     '#inst "2026-01-01T02:00:00.000+02:00"', '#inst "2026-01-01T00:00Z"'),
    ('#uuid "F81D4FAE-7DEC-11D0-A765-00A0C91E6BF6"',
     '#uuid "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"'),
    ("##Inf", "1e999"),
    ("nil",),
    ("true",), ('"true"',), (":true",), ("1.0",), ("1",), ('"1"',), ('"1/2"',), ('"16"',),
    (":a",), ("a",), ("-a",), ('"-a"',), ('":a"',), ('"a"',), ("[:a]",),
    ('"[:a]"',), ("[a]",), ('["a"]',), ('"2026-01-01"',),
    ("#{}",), ("[]",), ("{}",), ('""',), ('"\'a"',), ('"⟨null⟩"',), ('"1M"',),
    ('"1.0"',), ('"\\\\a"',),
)  # fmt: skip


@pytest.mark.parametrize("texts", EQUAL, ids=lambda texts: texts[0])
def test_what_clojure_has_equal_is_one_value(texts: tuple[str, ...]) -> None:
    assert len({canonical(parse(text)) for text in texts}) == 1
    assert len({str(text_in_tables(parse(text))) for text in texts}) == 1


def test_what_clojure_has_not_equal_is_not() -> None:
    for of in (canonical, text_in_tables):
        known = [str(of(parse(texts[0]))) for texts in EQUAL]
        assert len(set(known)) == len(known)


@given(VALUES, VALUES)
def test_two_values_have_one_text_if_they_are_written_alike(one: object, other: object) -> None:
    alike = canonical(one) == canonical(other)
    assert (text_in_tables(one) == text_in_tables(other)) == alike
