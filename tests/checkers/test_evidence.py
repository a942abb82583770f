"""Two checks of one run at once leave one whole table each time."""

from __future__ import annotations

from pathlib import Path

import pytest

from neaptide.checkers.evidence import replacement


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
