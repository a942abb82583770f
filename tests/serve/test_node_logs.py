"""Logs of nodes are put in the time of the run, whatever zone and form their clocks have."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from neaptide.results.report.story import Arrow, Badge, Cells, Line, LogState, Moment
from neaptide.results.serve import node_logs
from neaptide.results.serve.node_logs import (
    LINE_MAX,
    LogLine,
    broker_names,
    from_s,
    read_log,
    side_by_side,
)

BEGAN = datetime(2025, 11, 21, 23, 59, 58, 500_000, tzinfo=UTC)
S = 1_000_000_000


def read(tmp_path: Path, text: str) -> tuple[LogLine, ...]:
    path = tmp_path / "broker-0.log"
    path.write_text(text, encoding="utf-8")
    return read_log(path, BEGAN).lines


@pytest.mark.parametrize(
    "stamp",
    [
        "23:59:59.750",
        "2025-11-21 23:59:59,750",
        "[2025-11-21 23:59:59,750]",
        "2025-11-22T05:44:59.750",  # Kathmandu
        "18:59:59.750",  # New York
    ],
)
def test_a_line_has_its_time_since_the_run_began(tmp_path: Path, stamp: str) -> None:
    assert read(tmp_path, f"{stamp} INFO started\n") == (LogLine(1_250_000_000, "INFO started"),)


def test_a_simulated_log_begins_with_its_run(tmp_path: Path) -> None:
    lines = read(tmp_path, "1000000500 3 Link one\n1000002500 4 None two\n")
    assert lines == (LogLine(0, "3 Link one"), LogLine(2_000_000, "4 None two"))


def test_midnight_may_come_between(tmp_path: Path) -> None:
    lines = read(tmp_path, "23:59:59.000 one\n00:00:01.000 two\n")
    assert [line.at_ns for line in lines] == [S // 2, 5 * S // 2]


def test_a_line_without_a_time_belongs_to_the_one_before(tmp_path: Path) -> None:
    text = "Traceback that nobody began\n23:59:59.000 ERROR\n  at one\n  at two\n00:00:00.000 on\n"
    assert [line.text for line in read(tmp_path, text)] == ["ERROR\n  at one\n  at two", "on"]


def test_a_log_without_times_stands_nowhere(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("just words\n", encoding="utf-8")
    log = read_log(path, BEGAN)
    assert (log.lines, log.timed) == ((), False)


def test_long_lines_and_long_logs_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [line] = read(tmp_path, f"23:59:59.000 {'x' * 2 * LINE_MAX}\n")
    assert len(line.text) == LINE_MAX + 1
    path = tmp_path / "long"
    path.write_bytes(b"23:59:59.000 x\n" * 4)
    assert (read_log(path, BEGAN).is_cut, len(read_log(path, BEGAN).lines)) == (False, 4)
    monkeypatch.setattr(node_logs, "LOG_BYTES_MAX", 30)
    assert (read_log(path, BEGAN).is_cut, len(read_log(path, BEGAN).lines)) == (True, 2)


def test_bytes_that_are_no_text_are_shown_as_such(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"23:59:59.000 \xff\xfe\n")
    assert "\ufffd" in read_log(path, BEGAN).lines[0].text


def test_what_happened_together_shares_a_row(tmp_path: Path) -> None:
    one = tmp_path / "one"
    one.write_text("23:59:59.500 A\n23:59:59.501 B\n00:00:01.500 C\n", encoding="utf-8")
    two = tmp_path / "two"
    two.write_text("23:59:59.501 D\n", encoding="utf-8")
    moments: list[Moment] = [
        Arrow(S, "A", "C", "fetch", anchor="here"),
        Cells(S, "A", LogState((), 0, 0)),
        Badge(2 * S, "B", "SIGKILL", "bad"),
        Line(2 * S, "ISR {A}"),
    ]
    rows = side_by_side(moments, [read_log(one, BEGAN), read_log(two, BEGAN)])
    texts = [[[entry.text for entry in cell] for cell in row.cells] for row in rows]
    assert texts == [
        [["A → C: fetch"], ["A"], []],
        [[], ["B"], ["D"]],
        [["B: SIGKILL"], [], []],
        [["ISR {A}"], [], []],
        [[], ["C"], []],
    ]
    assert [row.at for row in rows] == ["1.000", "1.001", "2.000", "2.000", "3.000"]
    assert rows[0].cells[0][0].anchor == "here"
    shown, before, after = from_s(rows, 2.0)
    assert (len(shown), before, after) == (3, 2, 0)
    assert from_s(rows, 99.0) == ([], 5, 0)


def test_logs_of_brokers_have_their_names() -> None:
    files = ["broker-0.log", "broker-2.log", "gate.log"]
    assert broker_names(files, {"C": 2, "A": 0, "B": 1}) == {
        "broker-2.log": "C",
        "broker-0.log": "A",
    }
