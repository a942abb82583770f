"""`run.json` says what ran: it reads back as written, and a wrong one is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from neaptide.results.errors import RunUnreadableError
from neaptide.results.run import (
    legend_of,
    named_brokers,
    parse_run,
    read_run,
)
from neaptide.results.store import write_run
from tests.results.one_run import RUN


def test_what_is_written_reads_back(tmp_path: Path) -> None:
    write_run(tmp_path, RUN)
    assert read_run(tmp_path) == RUN


def test_a_run_that_has_only_begun_reads_too() -> None:
    begun: dict[str, Any] = {
        "neaptide": "0.1.0",
        "name": "x",
        "system": "neaptide:0.8",
        "host": "local",
    }
    begun |= {"seed": 1, "started_utc": "", "status": "running", "kind": "random", "brokers": {}}
    assert parse_run(begun).final_reads == ()


def test_fields_of_a_later_version_are_passed_by() -> None:
    assert parse_run(RUN.to_json() | {"moon": "full"}) == RUN


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("status", "done", "must be one of running, finished, interrupted"),
        ("seed", True, "expected int, found true"),
        ("seed", "7", 'expected int, found "7"'),
        ("final_reads", [{"topic": "t"}], "'partition'"),
        ("brokers", {"A": "0"}, "expected int"),
        ("aim", {"hit": "yes"}, "expected bool"),
        ("title", None, "expected str, found null"),
    ],
)
def test_a_wrong_field_is_named(field: str, value: Any, sentence: str) -> None:
    with pytest.raises(RunUnreadableError, match=field) as caught:
        parse_run(RUN.to_json() | {field: value})
    assert sentence in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"name": "x"}', "\udcff"])
def test_garbage_is_refused_with_the_file_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(RunUnreadableError, match=r"run\.json"):
        read_run(tmp_path)


def test_no_run_json_asks_whether_this_is_a_run(tmp_path: Path) -> None:
    with pytest.raises(RunUnreadableError, match="is this a run directory"):
        read_run(tmp_path)


def test_it_is_plain_json() -> None:
    assert json.loads(json.dumps(RUN.to_json()))["brokers"] == {"A": 0, "B": 1, "C": 2}


def test_brokers_are_called_by_letters_and_a_legend_says_their_ids() -> None:
    assert named_brokers((1, 2, 5)) == {"A": 1, "B": 2, "C": 5}
    assert list(named_brokers(range(28)))[25:] == ["Z", "AA", "AB"]
    assert legend_of({"A": 1, "B": 5}) == "A is broker 1, B is broker 5"
    assert legend_of({"1": 1, "5": 5}) == ""  # ids are the names already
