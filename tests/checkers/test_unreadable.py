"""Histories whose names or lines are odd: names are literal, and what cannot be read is the reason
of that history alone, while the others of the same command are judged.
"""

from __future__ import annotations

import gzip
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.harness.command import neaptide

pytestmark = pytest.mark.spark


def lines(*ops: str) -> bytes:
    return "".join(f"{op}\n" for op in ops).encode()


def op(index: int, type: str, process: str, f: str, value: str) -> str:
    """One line: an invocation, or a completion."""
    return f"{{:index {index}, :type :{type}, :process {process}, :f :{f}, :value {value}}}"


SEND = (
    op(0, "invoke", "0", "send", "[[:send 0 1]]"),
    op(1, "ok", "0", "send", "[[:send 0 [0 1]]]"),
)
NEXT = (
    op(2, "invoke", "0", "send", "[[:send 0 2]]"),
    op(3, "ok", "0", "send", "[[:send 0 [1 2]]]"),
)
POLL = op(4, "invoke", "1", "poll", "[[:poll]]")
BOTH = op(5, "ok", "1", "poll", "[[:poll {0 [[0 1] [1 2]]}]]")
SECOND = op(5, "ok", "1", "poll", "[[:poll {0 [[1 2]]}]]")
VALID = lines(*SEND, *NEXT, POLL, BOTH)
LOST = lines(*SEND, *NEXT, POLL, SECOND)
KILL = op(0, "info", ":nemesis", "kill", ":all")


def with_third_line(line: str) -> bytes:
    return lines(*SEND, line, NEXT[1], POLL, BOTH)


# In whichever file the name says, and in no other: each is judged by itself.
JUDGED: dict[str, tuple[bytes, str]] = {
    "_history.edn": (VALID, "valid"),
    ".hidden.edn": (VALID, "valid"),
    "a*.edn": (VALID, "valid"),
    "ab.edn": (LOST, "anomalous"),
    "history[1].edn": (VALID, "valid"),
    "history1.edn": (LOST, "anomalous"),
    "at 12:30.edn": (VALID, "valid"),
    "{a,b}?.edn": (VALID, "valid"),
    "large-keys.edn": (VALID.replace(b":send 0 ", b":send 4294967296 ")
                       .replace(b"{0 [[", b"{4294967296 [["), "valid"),
}  # fmt: skip
NO_PROOF = {"empty.edn": b"", "nemesis-only.edn": lines(KILL), "blank.edn": b"\n\n"}
# Each with its line, where it is one that cannot be read, and a part of what is said of it.
REFUSED: dict[str, tuple[bytes, int | None, str]] = {
    "index-is-text.edn": (with_third_line(NEXT[0].replace(":index 2", ':index "2"')), 3, ":index"),
    "process-is-text.edn": (
        with_third_line(NEXT[0].replace(":process 0", ':process "0"')), 3, ":process",
    ),
    "process-is-nil.edn": (
        with_third_line(NEXT[0].replace(":process 0", ":process nil")), 3, ":process",
    ),
    "no-map.edn": (with_third_line("[1 2]"), 3, "[1 2]"),
    "unfinished.edn": (with_third_line("{:type"), 3, "{:type"),
    "deep.edn": (with_third_line("[" * 100_000), 3, "nested"),
    "no-utf-8.edn": (VALID.replace(b":process 1", b':error "\xff", :process 1'), 5, "UTF-8"),
    "packed.edn": (gzip.compress(VALID), None, "gzip"),
}  # fmt: skip


@dataclass(frozen=True)
class Checked:
    """What one command said of all of them."""

    status: int
    table: dict[str, dict[str, Any]]  # by the name of the file
    junit: ET.Element
    page: str


def named(directory: Path, files: dict[str, bytes]) -> list[str]:
    for name, content in files.items():
        (directory / name).write_bytes(content)
    return list(files)


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Checked:
    directory = tmp_path_factory.mktemp("odd")
    names = named(directory, {name: content for name, (content, _) in JUDGED.items()})
    names += named(directory, NO_PROOF)
    names += named(directory, {name: content for name, (content, _, _) in REFUSED.items()})
    done, reported = neaptide(
        directory, "check", *names, "--json", "--junit", "junit.xml", "--html", "runs.html"
    )
    assert reported is not None, done.stderr
    return Checked(
        done.returncode,
        dict(zip(names, reported["runs"], strict=True)),
        ET.parse(directory / "junit.xml").getroot(),
        (directory / "runs.html").read_text(),
    )


def test_an_anomaly_among_them_counts_most(checked: Checked) -> None:
    assert checked.status == 1


@pytest.mark.parametrize("name", JUDGED)
def test_a_name_is_that_of_one_file(checked: Checked, name: str) -> None:
    verdict = checked.table[name]
    assert (verdict["verdict"], verdict["operations"]) == (JUDGED[name][1], 3), verdict


@pytest.mark.parametrize("name", NO_PROOF)
def test_without_operations_of_clients_nothing_is_proved(checked: Checked, name: str) -> None:
    verdict = checked.table[name]
    assert (verdict["verdict"], verdict["operations"]) == ("unknown", 0)
    assert any("Nothing was acknowledged" in reason for reason in verdict["reasons"])


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_unknown_and_says_where(checked: Checked, name: str) -> None:
    _, line, why = REFUSED[name]
    verdict = checked.table[name]
    reason = verdict["reasons"][0]
    assert verdict["verdict"] == "unknown"
    assert why in reason
    assert f"{name} cannot be read" in reason or f"{name} line {line} cannot be read" in reason
    case = next(c for c in checked.junit.iter("testcase") if c.get("name") == name)
    assert case.find("error") is not None  # it is no pass
    assert name in checked.page


@pytest.mark.proof
def test_one_that_cannot_be_read_beside_a_valid_one(tmp_path: Path) -> None:
    (tmp_path / "good.edn").write_bytes(VALID)
    (tmp_path / "bad.edn").write_bytes(REFUSED["no-map.edn"][0])
    done, _ = neaptide(tmp_path, "check", "bad.edn", "good.edn", "--to-edn", "again.edn")
    assert done.returncode == 64  # --to-edn writes one
    done, reported = neaptide(tmp_path, "check", "bad.edn", "good.edn", "--json")
    assert done.returncode == 2
    assert [run["verdict"] for run in reported["runs"]] == ["unknown", "valid"]
    assert {path.name for path in tmp_path.glob("*.edn")} == {"good.edn", "bad.edn"}
