"""Values of EDN, as `edn` has them, for tests that generate."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

NASTY = (
    "", "}", "]}", "},{", ", :time 3", ":type :ok", "nil", "null", ",nil,", "\\", '"',
    '\\"', "a\nb", "{:type :ok", "#_", "; not a comment", "#jepsen.history.Op{",
    "\x00", "\x01", "é", "\t", "\r",
)  # fmt: skip
STRINGS = st.one_of(st.text(st.characters(exclude_categories=["Cs"])), st.sampled_from(NASTY)).map(
    lambda text: '"' + text
)
KEYWORDS = st.sampled_from(["ok", "a-b", "nil", "null", "true", "type", "time", "a/b", "keys?"])
INTEGERS = st.integers(-(2**63), 2**63 - 1)
SYMBOLS = st.sampled_from(["null", "1/2", "name", "##NaN", "9" * 25]).map(lambda name: {"'": name})
ATOMS = st.one_of(
    st.none(), st.booleans(), INTEGERS, st.integers(-1, 9), STRINGS, KEYWORDS, SYMBOLS,
    st.floats(allow_nan=False, allow_infinity=False),
)  # fmt: skip


def maps(keys: st.SearchStrategy[Any], values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    pairs = st.lists(st.tuples(keys, values), max_size=4)
    return pairs.map(lambda each: {"": [one for pair in each for one in pair]})


VALUES = st.recursive(
    ATOMS, lambda inner: st.lists(inner, max_size=5) | maps(inner, inner), max_leaves=12
)
