"""The condition of a rule."""

from __future__ import annotations

import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neaptide.clusters.errors import UsageError
from neaptide.nemesis.gate.where import NAMES, parse_where

_OPERATORS = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "==": operator.eq,
    "!=": operator.ne,
}


def _holds(text: str, **facts: int | None) -> bool:
    return all(comparison.holds(facts) for comparison in parse_where(text))


@given(st.sampled_from(NAMES), st.sampled_from(sorted(_OPERATORS)), st.integers(), st.integers())
def test_every_name_and_operator_means_what_it_says(
    name: str, sign: str, left: int, right: int
) -> None:
    assert _holds(f"{name} {sign} {right}", **{name: left}) == _OPERATORS[sign](left, right)


def test_all_comparisons_must_hold_and_none_hold_always() -> None:
    both = "high_watermark >= 2 and fetch_offset<3"
    assert _holds(both, high_watermark=2, fetch_offset=2)
    assert not _holds(both, high_watermark=2, fetch_offset=3)
    assert not _holds(both, high_watermark=1, fetch_offset=2)
    assert _holds("  ")


def test_a_number_that_is_not_known_makes_its_comparison_false() -> None:
    assert not _holds("high_watermark < 2", high_watermark=None)
    assert not _holds("high_watermark != 2")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("high_watermark => 2", "cannot read the comparison 'high_watermark => 2'"),
        ("round == 1 and", "cannot read the comparison ''"),
        ("round == 1 or round == 2", "cannot read"),
        ("leo >= 2", "a message has no 'leo': must be one of round, fetch_offset"),
    ],
)
def test_what_cannot_be_read_is_said(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_where(text)
