"""docs/own-system.md: its files can be read by the real reader, and its tables are the code's."""

from __future__ import annotations

from pathlib import Path

import pytest

from neaptide.clusters.own.model import Managed, Used
from neaptide.clusters.own.parsing import load_system
from neaptide.clusters.own.placeholders import fill, table, unknown
from tests.own.kafka import INSTALLED, PAGE, of_page, write_files


def test_the_files_of_the_page_are_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGING_PASSWORD", "hunter2")
    scripts = tmp_path / "kafka" / "bin"
    scripts.mkdir(parents=True)
    for name in ("kafka-server-start.sh", "kafka-storage.sh"):
        (scripts / name).touch(mode=0o755)
    system = load_system(write_files(tmp_path, str(tmp_path / "kafka")))
    assert isinstance(system, Managed)
    assert (system.ids, len(system.controllers)) == ((1, 2, 3), 1)
    used = load_system(tmp_path / "staging.toml")
    assert isinstance(used, Used)
    assert used.client["sasl.password"] == "hunter2"
    assert INSTALLED in of_page()["my-cluster.toml"]


def test_the_table_of_placeholders_is_the_codes() -> None:
    assert table() in PAGE.read_text(encoding="utf-8")


def test_a_placeholder_is_a_name_in_braces_and_not_behind_a_dollar() -> None:
    text = "a={id} b=${id} c=${file:/x:y} d={ id } e={1}"
    assert fill(text, {"id": "7"}) == "a=7 b=${id} c=${file:/x:y} d={ id } e={1}"
    assert unknown(text, {"id": ""}) is None
    assert unknown("a={no_such}", {"id": ""}) == "no_such"
