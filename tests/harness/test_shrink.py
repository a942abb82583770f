"""`neaptide shrink`: what it plays, what it refuses, what it leaves."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from neaptide.harness.cli import shrink as cli_shrink
from neaptide.harness.cli.main import app
from neaptide.harness.cli.shrink import Tried
from neaptide.harness.play.recording import output_of
from neaptide.harness.scenarios import saved_schedule
from neaptide.nemesis.acts import Schedule
from neaptide.nemesis.drawn.schedule import draw_schedule
from neaptide.results.outcomes import RULES_VERSION
from neaptide.results.store import write_json, write_run
from tests.results.losing_run import RUN

SCHEDULE = draw_schedule(3, ("kill", "pause"), ("A", "B", "C"), 60.0, 1)
REPEAT = (
    "neaptide run append --system kafka:0.10.2.2 --nemesis kill,pause --time 60 --rate 5000"
    " --set 'a.b=c d' --seed 3"
)


@pytest.fixture
def lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NEAPTIDE_STATE", str(tmp_path / "state"))
    return made(tmp_path / "run", "anomalous")


def made(directory: Path, verdict: str, **changed: object) -> Path:
    directory.mkdir()
    topic = "t", [["A", "B", "C"]]
    document = saved_schedule.document_of("t", REPEAT, ("A", "B", "C"), topic, SCHEDULE)
    run = replace(RUN, kind="random", schedule=document, repeat=REPEAT)
    write_run(directory, replace(run, **changed))  # type: ignore[arg-type]
    outcome = "lost" if verdict == "anomalous" else "held"
    made_by = {"rules": RULES_VERSION}
    write_json(
        directory / "verdict.json", {"verdict": verdict, "outcome": outcome, "made_by": made_by}
    )
    return directory


def test_each_try_is_the_command_of_the_run_with_another_schedule(lost: Path) -> None:
    document = saved_schedule.load(lost).document
    file = lost / "schedule.toml"
    saved_schedule.save(saved_schedule.changed(document, SCHEDULE[:1]), file)
    words = saved_schedule.command(file)
    assert words[:4] == ["run", "append", "--system", "kafka:0.10.2.2"]
    for option, value in (("--nemesis", str(file)), ("--set", "a.b=c d"), ("--seed", "3")):
        assert words[words.index(option) + 1] == value
        assert words.count(option) == 1
    assert float(words[words.index("--time") + 1]) < 30


def test_what_is_left_is_saved_and_can_be_played(
    lost: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def play(_: object, schedule: Schedule, file: Path) -> Tried:
        kills = [act for act in schedule if act.verb == "kill"]
        return Tried(len(schedule), 1, "lost" if kills else "held", "")

    monkeypatch.setattr(cli_shrink, "_play", play)
    result = CliRunner().invoke(app, ["shrink", str(lost), "--json", "--plays", "500"])
    assert result.exit_code == 0, result.output
    reported = json.loads(result.stdout)
    assert reported["steps"]["after"] == 1 < reported["steps"]["before"]
    assert reported["confirmed"] == {"lost": 3, "of": 3}
    assert reported["complete"]
    saved = saved_schedule.load(Path(reported["schedule"]))
    [act] = saved_schedule.schedule_of(saved)
    assert act.verb == "kill"
    assert saved.expect == {"lost": ("neaptide:0.10",)}
    assert f"--nemesis {reported['schedule']}" in reported["repeat"]


def test_where_another_play_loses_nothing_the_schedule_stays_and_the_status_says_so(
    lost: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_shrink, "_play", lambda *_: Tried(1, 1, "held", ""))
    result = CliRunner().invoke(app, ["shrink", str(lost), "--plays", "2", "--confirm", "1"])
    assert result.exit_code == 2
    assert "there may be smaller ones" in result.stdout
    assert saved_schedule.schedule_of(saved_schedule.load(lost / "shrunk.toml")) == SCHEDULE


def test_a_run_that_other_rules_have_judged_is_judged_again_first(lost: Path) -> None:
    old = {"verdict": "anomalous", "outcome": "lost", "made_by": {"rules": RULES_VERSION - 1}}
    write_json(lost / "verdict.json", old)
    result = CliRunner().invoke(app, ["shrink", str(lost)])
    assert "judge it again" in str(result.exception)


def test_who_is_interrupted_lets_the_run_end_in_order(tmp_path: Path) -> None:
    ended = tmp_path / "ended"
    child = (
        "import signal, sys, time, pathlib, os\n"
        f"ended = pathlib.Path({str(ended)!r})\n"
        "signal.signal(signal.SIGTERM, lambda *_: (ended.write_text('x'), os._exit(0)))\n"
        "os.kill(os.getppid(), signal.SIGINT)\n"
        "time.sleep(60)\n"
    )
    with pytest.raises(KeyboardInterrupt):
        output_of([sys.executable, "-c", child])
    assert ended.exists()


@pytest.mark.parametrize(
    ("verdict", "changed", "why"),
    [
        ("valid", {}, "has no anomaly"),
        ("anomalous", {"kind": "scenario"}, "is no random run"),
        ("anomalous", {"schedule": {"step": []}}, "is no random run"),
        ("anomalous", {"schedule": [{"at_s": 1}]}, "draw one anew"),
    ],
)
def test_what_cannot_be_made_smaller_is_refused(
    tmp_path: Path, verdict: str, changed: dict[str, object], why: str
) -> None:
    directory = made(tmp_path / "run", verdict, **changed)
    result = CliRunner().invoke(app, ["shrink", str(directory)])
    assert why in str(result.exception)
