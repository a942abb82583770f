"""A stranger's run among one's own: it is shown as far as it can be, and spoils no other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.serve.conftest import client_of
from tests.serve.stored import LOST, Stored, write_store

STRANGE = "2025-11-23T08-00-00Z-strange"
ESC = "\x1b]0;mine\x07\x1b[2J"
TURNED = "\u202egpj.exe"


def _fifo(name: str) -> Callable[[Path], None]:
    return lambda run: _put_fifo(run / name)


def _put_fifo(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def _text(name: str, text: str) -> Callable[[Path], None]:
    return lambda run: _put(run / name, text)


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _changed(name: str, /, **values: object) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        document = json.loads((run / name).read_text(encoding="utf-8"))
        (run / name).write_text(json.dumps({**document, **values}), encoding="utf-8")

    return change


def _looping(run: Path) -> None:
    (run / "operations" / "part-x-1.parquet").symlink_to("part-x-1.parquet")


def _deep(depth: int) -> object:
    document: object = 1
    for _ in range(depth):
        document = [document]
    return document


HOSTILE: dict[str, Callable[[Path], None]] = {
    "run.json nested 200,000 deep": _text("run.json", "[" * 200_000 + "]" * 200_000),
    "run.json whose schedule is nested 900 deep": _changed("run.json", schedule=_deep(900)),
    "run.json whose schedule is nested 90 deep": _changed("run.json", schedule=_deep(90)),
    "run.json that is no object": _text("run.json", "5"),
    "run.json of huge numbers": _changed("run.json", seed=10**400, min_acked=-(2**70)),
    "run.json with a number of 5,000 digits": _text("run.json", '{"seed": ' + "9" * 5000 + "}"),
    "run.json is a FIFO": _fifo("run.json"),
    "verdict.json nested": _text("verdict.json", "[" * 200_000),
    "verdict.json is a FIFO": _fifo("verdict.json"),
    "verdict.json whose reasons are a number": _changed("verdict.json", reasons=5),
    "verdict.json whose reasons are objects": _changed("verdict.json", reasons=[{}, None]),
    "verdict.json whose anomalies are a list": _changed("verdict.json", anomalies=[1]),
    "verdict.json whose proofs are a text": _changed("verdict.json", proofs="x"),
    "steps.json is a FIFO": _fifo("steps.json"),
    "steps.json nested": _text("steps.json", "[" * 200_000),
    "steps.json of nothing": _text("steps.json", "{}"),
    "a log is a FIFO": _fifo("logs/broker-9.log"),
    "a table is a FIFO": _fifo("operations/part-z-1.parquet"),
    "a table is text": _text("operations/part-z-1.parquet", "no parquet"),
    "an anomaly is text": _text("anomalies/part-z-1.parquet", "no parquet"),
    "a link to itself": _looping,
    "signs that a browser obeys": _changed("run.json", title=TURNED + ESC, name="a\u202eb"),
}


def strange_among(root: Path, what: str) -> None:
    run = root / STRANGE
    root.joinpath(LOST).rename(run)
    write_again = write_store(root.parent / "again")
    write_again.lost.rename(root / LOST)
    HOSTILE[what](run)


@pytest.mark.parametrize("what", HOSTILE)
@pytest.mark.timeout(120)
def test_a_strangers_run_spoils_no_other(own: Stored, what: str) -> None:
    (own.root.parent / "again").mkdir()
    strange_among(own.root, what)
    client = client_of(own.root)
    for path in ("/", "/matrix", "/nights", f"/runs/{LOST}", f"/runs/{LOST}/logs", "/?as=json"):
        answer = client.get(path)
        assert answer.status_code == 200, (path, answer.text[:300])
        assert "\u202e" not in answer.text
        assert "\x1b" not in answer.text
    for path in ("", "/logs", "/rounds?record=m2", "/zip", "/files/run.json", "/plots/lag"):
        answer = client.get(f"/runs/{STRANGE}{path}")
        assert answer.status_code < 500, (path, answer.text[:300])
        if path in ("", "/logs"):
            assert "\u202e" not in answer.text
            assert "\x1b" not in answer.text
    assert client.get(f"/compare?run={STRANGE}&run={LOST}").status_code < 500


@pytest.mark.live
def test_what_a_broker_has_written_is_shown_on_a_terminal_and_not_obeyed() -> None:
    code = f"""
from neaptide.harness.terminal import output
said = {f"its log says last: {ESC}{TURNED} [bold]"!r}
output.out.print(said, markup=False)
output.err.print(said, markup=False)
output.print_table(("a",), ((said,),))
with output.reporting(1) as reporter:
    reporter.report(said)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for said in (done.stdout, done.stderr):
        assert "\x1b" not in said
        assert "\u202e" not in said
        assert "\\x1b]0;mine" in said
        assert "\\u202egpj.exe" in said
        assert "[bold]" in said
