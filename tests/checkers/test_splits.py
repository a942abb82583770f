"""A history read in parts is what it is when read at once; what is wrong in it is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.checkers.histories import splits
from neaptide.checkers.histories.splits import LineRefusedError, Split, local_path, read_split
from neaptide.results.errors import RunUnreadableError

PROCESSES = st.sampled_from([0, 1, 2, ":nemesis"])
KINDS = st.sampled_from([":invoke", ":ok", ":fail", ":info"])
FS = st.sampled_from([":txn", ":poll", ":assign", ":subscribe", ":crash"])
KEYS = st.lists(st.integers(0, 3), max_size=3, unique=True)


@st.composite
def histories(draw: st.DrawFn) -> list[str]:
    """Operations of a few processes: some are never completed, some were never invoked; they poll
    what they are assigned to and what they are not (a subscription names topics)."""
    has_index, has_time = draw(st.booleans()), draw(st.booleans())
    open_f: dict[object, str] = {}
    lines = []
    for n in range(draw(st.integers(0, 25))):
        process, kind, f = draw(PROCESSES), draw(KINDS), draw(FS)
        if kind == ":invoke":
            open_f[process] = f
        else:
            f = open_f.pop(process, f)
        keys = draw(KEYS)
        if f in (":assign", ":subscribe"):
            value = f"[{' '.join(map(str, keys))}]"
        else:
            polled = " ".join(f"{key} [[{n} {n}] [{n + 1} {n}]]" for key in keys)
            value = draw(st.sampled_from(["nil", f"[[:send 0 {n}] [:poll {{{polled}}}]]"]))
        index = f":index {3 * n}, " if has_index else ""
        time = f":time {n // 2}, " if has_time else ""
        lines.append(f"{{{index}{time}:type {kind}, :process {process}, :f {f}, :value {value}}}")
        lines += draw(st.lists(st.just(""), max_size=1))
    return lines


def rows_of(path: Path, split_bytes: int, batch_rows: int = 1_000) -> list[dict[str, Any]]:
    return rows_in(splits.splits(path, split_bytes=split_bytes), batch_rows)


def rows_in(parts: Sequence[Split], batch_rows: int = 1_000) -> list[dict[str, Any]]:
    rows = [
        row
        for part in parts
        for batch in read_split(part, batch_rows=batch_rows)
        for row in batch.to_pylist()
    ]
    return sorted(rows, key=lambda row: (row["operation"], row["row"]))


@pytest.mark.slow
@settings(max_examples=20)  # each is read some fifty times
@given(histories())
def test_it_is_the_whole_wherever_it_is_cut(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    """Before each line, and inside of each."""
    path = tmp_path_factory.getbasetemp() / "cut.edn"
    text = "".join(f"{line}\n" for line in lines)
    path.write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(splits, "_BLOCK", 100)
        patch.setattr(splits, "_AROUND", 50)
        whole = rows_of(path, 10**9)
        starts = [0, *(n + 1 for n, sign in enumerate(text) if sign == "\n")]
        for cut in [place for start in starts for place in (start, start + 7)]:
            parts = [Split(str(path), 0, 0, cut), Split(str(path), 1, cut, len(text))]
            assert rows_in([part for part in parts if part.start < part.end]) == whole, cut


@pytest.mark.slow
@given(histories(), st.integers(20, 400), st.booleans(), st.integers(1, 20))
def test_parts_together_are_the_whole(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[str],
    split_bytes: int,
    ends_with_a_line_break: bool,
    batch_rows: int,
) -> None:
    path = tmp_path_factory.getbasetemp() / "history.edn"
    path.write_text("\n".join(lines) + "\n" * ends_with_a_line_break, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(splits, "SPLITS_MAX", 1_000)
        patch.setattr(splits, "_BLOCK", 100)
        patch.setattr(splits, "_AROUND", 50)
        whole = rows_of(path, 10**9)
        assert rows_of(path, split_bytes, batch_rows) == whole
    numbers = [(row["operation"], row["row"]) for row in whole]
    assert len(set(numbers)) == len(numbers)


def read_text(tmp_path: Path, *lines: str | bytes) -> list[dict[str, Any]]:
    path = tmp_path / "history.edn"
    path.write_bytes(b"\n".join(x if isinstance(x, bytes) else x.encode() for x in lines))
    return rows_of(path, 10**9)


def line(kind: str, process: object, value: str, f: str = "txn", **more: object) -> str:
    rest = "".join(f", :{name.replace('_', '-')} {of}" for name, of in more.items())
    return f"{{:type :{kind}, :process {process}, :f :{f}, :value {value}{rest}}}"


def records(rows: list[dict[str, Any]], *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in columns) for row in rows]


def test_a_transaction_has_numbered_micro_operations(tmp_path: Path) -> None:
    rows = read_text(
        tmp_path,
        line("invoke", 2, "[[:send 0 77] [:poll] [:send 0 79]]", time=5, index=3),
        line(
            "ok", 2, "[[:send 0 [4 77]] [:poll {1 [[5 78]]}] [:send 0 79]]", time=9, index=4,
            rebalance_log="[{:keys [1]}]",
        ),
    )  # fmt: skip
    assert records(rows, "f", "mop", "partition", "offset", "value", "rebalanced", "phase") == [
        ("send", 0, 0, 4, "77", None, "main"),
        ("poll", 1, 1, 5, "78", True, "final"),
        ("send", 2, 0, None, "79", None, "main"),
    ]
    assert {(r["operation"], r["type"], r["invoked_ns"], r["completed_ns"]) for r in rows} == {
        (3, "ok", 5, 9)
    }


def test_keys_and_values_of_any_kind_go_through(tmp_path: Path) -> None:
    keys = ("0", "2147483647", "2147483648", '"a b"', '"jepsen"', "orders", '"orders"', ":k", "1/2")
    rows = read_text(tmp_path, *(line("ok", 0, f"[[:send {key} [0 1]]]") for key in keys))
    assert records(rows, "topic", "partition") == [
        ("jepsen", 0), ("jepsen", 2147483647), ("2147483648", 0), ('"a b"', 0), ('"jepsen"', 0),
        ("'orders", 0), ("orders", 0), (":k", 0), ("'1/2", 0),
    ]  # fmt: skip
    values = (
        '"a\\"b\\u0041"',
        "99999999999999999999",
        '#inst "2026"',
        "[1 2 3]",
        ":k",
        "1/2",
        "nil",
    )
    rows = read_text(tmp_path, *(line("ok", 0, f"[[:send 0 [0 {value}]]]") for value in values))
    assert records(rows, "value") == [
        ('a"bA',), ("99999999999999999999",), ('#inst "2026-01-01T00:00:00.000-00:00"',),
        ("[1 2 3]",), (":k",), ("1/2",), (None,),
    ]  # fmt: skip


def test_operations_that_lack_an_end(tmp_path: Path) -> None:
    rows = read_text(
        tmp_path,
        line("ok", 0, "[[:send 0 [0 1]]]"),  # was never invoked
        line("invoke", 0, "[[:send 0 2]]"),  # is invoked twice
        line("invoke", 0, "[[:send 0 3]]"),
        line("info", 0, "nil", error=":timeout"),
        line("invoke", 1, "[[:send 0 4]]"),  # never ends
        line("info", ":nemesis", "{:a [1]}", f="kill"),
    )
    assert records(rows, "process", "f", "type", "value", "error") == [
        (0, "send", "ok", "1", None),
        (0, "send", "invoke", "2", None),
        (0, "send", "info", "3", "timeout"),
        (1, "send", "invoke", "4", None),
        (-1, "nemesis", "info", "{:kill {:a [1]}}", None),
    ]


def test_what_an_assignment_drops_begins_anew(tmp_path: Path) -> None:
    rows = read_text(
        tmp_path,
        line("ok", 0, "[0 1]", f="assign"),
        line("ok", 0, "[[:poll {5 [[0 1]]}]]", f="poll"),
        line("fail", 0, "[]", f="assign"),
        line("info", 0, "[1]", f="assign"),
        line("ok", 0, "[1 0]", f="subscribe"),
    )
    seeks = [row for row in rows if row["f"] == "seek"]
    assert records(seeks, "row", "type", "partition") == [(1, "ok", 0), (2, "ok", 5)]


SENT = "[[:send 0 1]]"


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("[1 2]", "something else than a map"),
        ("{1 2}", "a field of it is no keyword"),
        ("{:type :ok, :f :poll, :process 0, :value [{:a}]}", "a key without a value"),
        ("{:type :ok, :f :kill, :process :nemesis, :value [{:a}]}", "a key without a value"),
        (line("done", 0, SENT), ":type is :done"),
        ('{:type "ok", :f :send, :process 0}', ':type is "ok"'),
        ('{:type :ok, :f "send", :process 0}', ':f is "send"'),
        ("{:type :ok, :process 0}", ":f is nil"),
        (line("ok", '"0"', SENT), ':process is "0", neither a number nor :nemesis'),
        (line("ok", "nil", SENT), ":process is nil"),
        (line("ok", '"nemesis"', SENT), ':process is "nemesis"'),
        (line("ok", "1.0", SENT), ":process is 1.0"),
        (line("ok", -1, SENT), ":process is -1"),
        (line("ok", 2**31, SENT), ":process is 2147483648"),
        (line("ok", 0, SENT, index='"1"'), 'has :index, which the first operation has not'),
        (line("ok", 0, "[[:put 1 2]]"), "neither a :send nor a :poll"),
        (line("ok", 0, '[["send" 1 2]]'), "neither a :send nor a :poll"),
        (line("ok", 0, '[[:send 1 ["x" 2]]]'), 'offset "x" is no number'),
        (line("ok", 0, f"[[:send 1 [{2**63} 2]]]"), "is no number that is taken"),
        (line("ok", 0, "[[:send 1 [true 2]]]"), "offset true is no number"),
        (line("ok", 0, "[[:poll {1 [[1]]}]]"), "no pair"),
        (line("ok", 0, "[[:poll {1 [1 2]}]]"), "no pair"),
        (line("ok", 0, "[[:poll {1}]]"), "a key without a value"),
        (line("ok", 0, "[[:poll [1]]]"), "no map of what was polled"),
        (line("ok", 0, "7"), "7 is no vector"),
        (line("ok", 0, "7", f="assign"), "7 is no vector"),
        ("{:type :ok, :f :txn", "'}' is missing"),
        (b'{:type :ok, :f :txn, :error "\xff"}', "not UTF-8 at byte 30"),
        ('{:type :ok, :f :txn, :error "\\ud800"}', "half of a pair"),
    ],
)  # fmt: skip
def test_what_is_no_operation_is_refused(tmp_path: Path, bad: str | bytes, why: str) -> None:
    good = line("invoke", 7, SENT)
    assert read_text(tmp_path, good, "", good)
    with pytest.raises(LineRefusedError) as refused:
        read_text(tmp_path, good, "", bad, good)
    assert why in refused.value.why
    assert refused.value.place == len(good) + 2


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ({"index": 4, "time": 5}, "its :index is 4, but one before it has 4"),
        ({"index": 3, "time": 5}, "its :index is 3, but one before it has 4"),
        ({"index": '"5"', "time": 5}, 'its :index is "5"'),
        ({"time": 5}, "its :index is nil"),
        ({"index": 5}, "its :time is nil"),
        ({"index": 5, "time": "1.5"}, "its :time is 1.5"),
        ({"index": 5, "time": 2**63}, "its :time is 9223372036854775808"),
    ],
)
def test_what_the_first_operation_gives_all_must(
    tmp_path: Path, bad: dict[str, Any], why: str
) -> None:
    good = [line("ok", 0, SENT, index=n, time=0) for n in (1, 4)]
    assert read_text(tmp_path, *good, line("ok", 0, SENT, index=5, time=-3))
    with pytest.raises(LineRefusedError, match=r"that is taken|before it has") as refused:
        read_text(tmp_path, *good, line("ok", 0, SENT, **bad))
    assert why in refused.value.why


@pytest.mark.parametrize("named", [":process 7", ":process  7", ":process +7", ":process #_1 7"])
def test_an_end_that_is_far_behind_is_found(tmp_path: Path, named: str) -> None:
    path = tmp_path / "history.edn"
    other = line("ok", 77, SENT) + "\n"
    end = line("ok", 7, "[[:send 0 [0 1]]]").replace(":process 7", named)
    path.write_text(line("invoke", 7, SENT) + "\n" + 5_000 * other + end, encoding="utf-8")
    rows = rows_of(path, 100_000)
    assert records(rows[:1], "process", "type", "offset") == [(7, "ok", 0)]
    assert len(rows) == 5_001


def test_the_order_of_indices_is_that_of_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "history.edn"
    lines = [line("ok", 0, SENT, index=n) for n in (1, 2, 3, 3)]
    path.write_text("\n".join(lines), encoding="utf-8")
    for split_bytes in (1_000, len(lines[0]) + 1):
        with pytest.raises(LineRefusedError, match="its :index is 3, but one before it has 3"):
            rows_of(path, split_bytes)


@pytest.mark.parametrize(
    "name", ["a b.edn", "a%20b.edn", "a:b.edn", "a*.edn", "history[1].edn", "_a.edn", ".a.edn"]
)
def test_a_name_is_a_path_or_a_uri(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    assert local_path(str(path)) == path
    assert local_path(path.as_uri()) == path


@pytest.mark.parametrize("name", ["hdfs://there/a.edn", "s3a://bucket/a.edn", "file://there/a.edn"])
def test_what_is_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(RunUnreadableError, match="a history is a file of this machine"):
        local_path(name)


UNASSIGNED = (
    line("ok", 7, "[9]", f="assign"),
    line("ok", 7, "[[:poll {5 [[0 1]]}]]", f="poll"),
    line("fail", 7, "[[:poll {6 [[0 1]]}]]", f="poll"),
    line("ok", 8, "[[:poll {4 [[0 1]]}]]", f="poll"),
    line("invoke", 7, "[8]", f="assign"),
    line("ok", 7, "[8]", f="assign"),
    line("info", 8, "[]", f="subscribe"),
)
DROPPED = [("seek", 5), ("seek", 9), ("seek", 4)]


@pytest.mark.slow
@pytest.mark.parametrize("named", [":process {}", ":process  {}", ":process +{}"])
def test_what_was_polled_before_a_cut_begins_anew_behind_it(tmp_path: Path, named: str) -> None:
    """Also what its process was not assigned to: a subscription names topics, not partitions."""
    path = tmp_path / "history.edn"
    text = "\n".join(UNASSIGNED)
    for process in ("7", "8"):
        text = text.replace(f":process {process},", f"{named.format(process)},")
    path.write_text(text, encoding="utf-8")
    for cut in range(1, len(text) + 1):
        seeks = [row for row in rows_of(path, cut) if row["f"] == "seek"]
        assert records(seeks, "f", "partition") == DROPPED, cut
