"""Two checks of one run at once leave one whole table each time; what is written is counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from neaptide.checkers.evidence import difference, replacement


def write(run: Path, text: str) -> None:
    with replacement(run, "anomalies") as directory:
        directory.mkdir()
        (directory / "part").write_text(text)


def test_the_later_takes_the_place_of_the_earlier(tmp_path: Path) -> None:
    write(tmp_path, "one")
    write(tmp_path, "two")
    assert [path.name for path in tmp_path.iterdir()] == ["anomalies"]
    assert (tmp_path / "anomalies" / "part").read_text() == "two"


def test_a_check_that_was_quicker_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getpid", lambda: 1)
    with replacement(tmp_path, "anomalies") as directory:
        directory.mkdir()
        (directory / "part").write_text("slow")
        monkeypatch.setattr("os.getpid", lambda: 2)
        write(tmp_path, "quick")
    assert [path.name for path in tmp_path.iterdir()] == ["anomalies"]
    assert (tmp_path / "anomalies" / "part").read_text() == "slow"


@pytest.mark.parametrize(
    ("counted", "written", "said"),
    [
        ({}, {}, None),
        ({"lost-write": 2, "duplicate": 0}, {"lost-write": 2}, None),
        ({"lost-write": 12}, {}, "12 anomalies were counted, and 0 rows of evidence were written"),
        (
            {"lost-write": 2},
            {"lost-write": 1, "duplicate": 1},
            "(duplicate: 0, 1; lost-write: 2, 1)",
        ),
    ],
)
def test_an_anomaly_without_its_row_is_said_with_both_numbers(
    counted: dict[str, int], written: dict[str, int], said: str | None
) -> None:
    found = difference(counted, written)
    assert (found is None) if said is None else (said in (found or ""))
