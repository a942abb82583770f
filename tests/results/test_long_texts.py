"""Long texts: known by their beginning, distinguished by more."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from neaptide.results.long_texts import shortened
from neaptide.results.report.rows import load
from tests.checkers.histories import Story, final, send


def test_long_texts_are_distinguished_by_more_than_their_beginning() -> None:
    long, other = "x" * 5_000 + "1", "x" * 5_000 + "2"
    texts = pa.chunked_array([[long, "short", None], [other, long]])
    first, short, nothing, second, again = shortened(texts).to_pylist()
    assert (short, nothing) == ("short", None)
    assert first == again != second
    assert first.startswith("xxx")
    assert "⟨5001 bytes, sha256 " in first
    assert len(first) < 200


def test_a_report_finds_what_a_check_names(tmp_path: Path) -> None:
    long = "z" * 3_000
    run = Story([send(long, 0), final((0, long))]).write(tmp_path / "run")
    [named] = shortened(pa.chunked_array([[long]])).to_pylist()
    assert set(load(run).operations["value"].to_pylist()) == {named}
