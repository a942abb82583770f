"""Many lines at once are read as each of them alone is by the exact reader."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from neaptide.checkers.histories import tokens
from neaptide.checkers.histories.edn import EdnError, parse, write
from neaptide.checkers.histories.tokens import BLANK, read_lines, require_whole
from tests.checkers.edn_values import INTEGERS, KEYWORDS, STRINGS, VALUES, maps

KEYS = st.integers(0, 3)
PAIRS = st.lists(st.lists(INTEGERS | STRINGS, min_size=2, max_size=2), max_size=3)
MOPS = st.one_of(
    st.just(["poll"]),
    st.tuples(st.just("poll"), maps(KEYS, PAIRS)).map(list),
    st.tuples(st.just("send"), KEYS, INTEGERS | STRINGS | PAIRS).map(list),
)
FIELDS = st.fixed_dictionaries(
    {"type": KEYWORDS, "f": KEYWORDS, "value": st.lists(MOPS, max_size=4) | VALUES},
    optional={
        "index": INTEGERS, "time": INTEGERS, "process": INTEGERS | KEYWORDS, "error": VALUES,
        "rebalance-log": VALUES, "debug": VALUES,
    },
)  # fmt: skip
# Small changes of a line's text, most of which make it something else than EDN, or another value.
CHANGES = (
    ("}", "]"), ("]", "}"), ("{", "["), ("[", "{"), ("}", ""), ("{", ""), ("]", ""), ("[", ""),
    (" ", ""), (" ", ", "), (", ", " "), (", ", "\t"), (":", ""), (":", "::"), (" :", ":"),
    ("0", "00"), ("1", "+1"), ("1", "1N"), ("1", "1.5"), ("-", "#_"), ("nil", "null"), ("{", "#{"),
    ("{", "#jepsen.history.Op{"), ("}", "} {"), ("}", "}, :a 1}"), ("]", "] ; why"), ('"', ""),
    ('"', '""'), (":", "#tag :"), ("[", "(:a "), (" ", " \\a "), ("1", "9" * 20), ("}", "} \r"),
)  # fmt: skip


def text_of(fields: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f":{name} {write(value)}" for name, value in fields.items()) + "}"


def alone(line: bytes) -> Any:
    """What the exact reader says of a line."""
    if line.strip() in (b"", b"[", b"]"):
        return BLANK
    try:
        value = parse(line.decode())
        require_whole(value)
    except (EdnError, UnicodeDecodeError):
        return None
    items = value.get("") if isinstance(value, dict) else None
    if items is None or not all(isinstance(k, str) and k[:1] != '"' for k in items[::2]):
        return None
    return dict(zip(items[::2], items[1::2], strict=True))


def together(block: bytes) -> list[Any]:
    def whole(read: Any) -> Any:
        try:
            for value in read.values() if isinstance(read, dict) else ():
                require_whole(value)
        except EdnError:
            return None
        return None if isinstance(read, EdnError) else read

    return [whole(read) for read in read_lines(block)]


def require_same(lines: Sequence[bytes]) -> None:
    read = together(b"\n".join(lines))
    wanted = [alone(line) for line in lines]
    assert repr(read) == repr(wanted)


@given(st.lists(FIELDS, min_size=1, max_size=5))
def test_lines_are_read_as_each_alone(ops: list[dict[str, Any]]) -> None:
    texts = [text_of(op).encode() for op in ops]
    require_same([line for text in texts for line in text.split(b"\n")])


@pytest.mark.slow
@given(
    st.lists(FIELDS, min_size=1, max_size=4),
    st.lists(st.tuples(st.sampled_from(CHANGES), st.integers(0, 50)), min_size=1, max_size=3),
)
def test_lines_that_were_changed_are_read_as_each_alone(
    ops: list[dict[str, Any]], changes: list[tuple[tuple[str, str], int]]
) -> None:
    text = "\n".join(text_of(op) for op in ops)
    for (old, new), place in changes:
        parts = text.split(old)
        at = place % len(parts)
        text = old.join([*parts[:at], new.join(parts[at : at + 2]), *parts[at + 2 :]])
    require_same(text.encode().split(b"\n"))


@given(
    st.lists(
        st.sampled_from([b"{", b"}", b"[", b"]", b":a", b" ", b", ", b"1", b"\n", b'"']),
        max_size=14,
    )
)
@example([b"{:a [1", b"\n", b"2]}"])
@example([b"{:a 1]", b"\n", b"{:b 2]"])
@example([b"{:a 1}, {:b 2}", b"\n", b"", b"{:c 3}"])
def test_no_line_passes_for_a_part_of_another(parts: list[bytes]) -> None:
    whole = b"{:a 1}\n" + b"".join(parts) + b"\n{:b 2}"
    require_same(whole.split(b"\n"))


@pytest.mark.parametrize(
    "mixed_up",
    [
        b"{:type :ok, :f :ok, :error {], :value [}}",
        b"{:type :ok, :error {1 2], :value [3 4}, :f :ok}",
        b"{:type :ok, :error {]}, :f {}, :value [}}",
        b"{:type :ok, :type :ok}",  # and a field that is there twice
    ],
)
def test_brackets_that_are_mixed_up_are_no_fields(mixed_up: bytes) -> None:
    require_same([mixed_up])
    require_same([b"{:type :ok}", mixed_up, b"{:type :ok, :value {}}"])


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(line: bytes) -> None:
    require_same(line.split(b"\n"))


ORDINARY = (
    b"{:type :ok, :f :txn, :value [[:send 0 [4 77]] [:poll {1 [[5 78]], 2 []}]], :time 9}",
    b"{:index 3, :type :info, :process :nemesis, :f :kill, :value nil, :time -9}",
    b'{:type :ok, :f :send, :value [[:send 0 [4 "}, :time 3 {"]]], :error [:timeout "a; b"]}',
    b"#jepsen.history.Op{:type :ok, :f :poll, :value [[:poll {}]]}",
)


@pytest.mark.parametrize("line", ORDINARY)
def test_what_jepsen_writes_needs_no_second_reader(
    line: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [alone(one) for one in (line, *ORDINARY)]
    monkeypatch.setattr(tokens, "parse", None)
    assert read_lines(b"\n".join((line, *ORDINARY))) == wanted


def test_one_unusual_line_costs_the_others_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [b"{:type :ok, :f :poll, :process %d}" % n for n in range(1_000)]
    lines[random.Random(1).randrange(1_000)] = b"{:type :ok, :f :poll, :process 1/2}"
    read = []

    def noting(text: str) -> Any:
        read.append(text)
        return parse(text)

    monkeypatch.setattr(tokens, "parse", noting)
    assert len(read_lines(b"\n".join(lines))) == 1_000
    assert read == ["{:type :ok, :f :poll, :process 1/2}"]
