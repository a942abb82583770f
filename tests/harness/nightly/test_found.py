"""A finding is played again, made smaller, saved; a saved one is played on the next night."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from neaptide.clusters.errors import UsageError
from neaptide.harness.cli.main import app
from neaptide.harness.comparing import replay_saved
from neaptide.harness.nightly import found
from neaptide.harness.nightly.found import Finding, investigate, investigate_search, search_name
from neaptide.harness.nightly.known import KEY_LINE, files_in, key_in, plays_of
from neaptide.harness.nightly.plan import Plan
from neaptide.harness.nightly.rows import Known, row_of
from neaptide.harness.nightly.state import Ended, Play
from neaptide.harness.play.recording import Recorded, recorded
from neaptide.harness.scenarios import saved_schedule
from neaptide.harness.scenarios.catalog import scenario_files
from neaptide.nemesis.acts import Schedule
from neaptide.nemesis.drawn.schedule import draw_schedule
from neaptide.nemesis.scenario import expected_outcome
from neaptide.results.store import write_run
from tests.harness.nightly.fakes import HELD, LOST, VALUES, play, verdict
from tests.results.losing_run import RUN

SCHEDULE = draw_schedule(3, ("kill", "pause"), ("A", "B", "C"), 60.0, 1)
REPEAT = (
    "neaptide run append --system neaptide:0.10 --nemesis kill,pause --time 60 --rate 500"
    " --client aiokafka --set 'a.b=c d' --seed 3"
)
TOPIC = "t", [["A", "B", "C"]]
DOCUMENT = saved_schedule.document_of("t", REPEAT, ("A", "B", "C"), TOPIC, SCHEDULE)
LOST_RUN = replace(RUN, kind="random", schedule=DOCUMENT, repeat=REPEAT, seed=3)
KEY = "lost neaptide:0.10 append confluent-kafka acks=all idempotence=no"


@pytest.fixture
def finding(tmp_path: Path) -> Finding:
    directory = tmp_path / "run"
    directory.mkdir()
    write_run(directory, LOST_RUN)
    row = row_of("n", Ended(play("cell 1"), "/runs/run", 1.0), verdict(LOST), Known())
    (tmp_path / "night").mkdir()
    return Finding(row, VALUES, directory, tmp_path / "night", tmp_path / "found")


class Player:
    """Loses where the schedule that is tried has a kill. `after`: so many plays and no more."""

    def __init__(self, after: int | None = None, loses: bool = True) -> None:
        self.plays: list[Play] = []
        self.after = after
        self.loses = loses

    async def __call__(self, one: Play) -> Any:
        if self.after is not None and len(self.plays) >= self.after:
            return None
        self.plays.append(one)
        if one.is_search:
            return {"play": one.name, "outcome": "held", "key": ""}
        words = LOST if self.loses and self._has_kill(one) else HELD
        return row_of("n", Ended(one, "/runs/x", 1.0), verdict(words), Known())

    def _has_kill(self, one: Play) -> bool:
        file = Path(one.words[one.words.index("--nemesis") + 1])
        return "kill" in kinds(saved_schedule.schedule_of(saved_schedule.load(file)))


def kinds(schedule: Schedule) -> list[str]:
    return [act.verb for act in schedule]


def test_it_is_played_again_made_smaller_and_saved(finding: Finding) -> None:
    player = Player()
    plan = Plan(repeat=2, shrink=200, search=7)
    said = asyncio.run(investigate(finding, LOST_RUN, plan, player))
    assert said["again"] == said["confirm"] == [2, 2]
    assert said["faults"][1] == 1 < said["faults"][0]
    assert said["complete"]
    saved = saved_schedule.load(Path(said["file"]))
    assert kinds(saved_schedule.schedule_of(saved)) == ["kill"]
    assert saved.expect == {"lost": ("neaptide:0.10",)}
    assert key_in(Path(said["file"])) == finding.key == KEY
    assert saved.document["found"]["confirm"] == {"lost": 2, "of": 2}
    by_kind = [one.kind for one in player.plays]
    assert by_kind[:2] == ["again", "again"]
    assert by_kind[-3:] == ["confirm", "confirm", "simulated"]
    assert len({one.item for one in player.plays}) == len(player.plays)
    [search] = [one for one in player.plays if one.is_search]
    assert "--outcome lost --first" in " ".join(search.words)


def test_what_never_comes_again_is_saved_as_it_was_and_not_shrunk(finding: Finding) -> None:
    player = Player(loses=False)
    said = asyncio.run(investigate(finding, LOST_RUN, Plan(repeat=3), player))
    assert said["again"] == [0, 3]
    assert {one.kind for one in player.plays} == {"again", "simulated"}
    saved = saved_schedule.load(Path(said["file"]))
    assert saved_schedule.schedule_of(saved) == SCHEDULE
    assert saved.document["found"]["again"] == {"lost": 0, "of": 3}


@pytest.mark.parametrize("after", range(9))
def test_when_the_night_is_over_what_is_known_by_then_is_saved(
    finding: Finding, after: int
) -> None:
    said = asyncio.run(investigate(finding, LOST_RUN, Plan(repeat=2, shrink=200), Player(after)))
    assert said["why"] == "the night was over"
    saved = saved_schedule.load(Path(said["file"]))
    assert said["faults"] == [len(kinds(SCHEDULE)), len(kinds(saved_schedule.schedule_of(saved)))]
    assert "kill" in kinds(saved_schedule.schedule_of(saved))


def test_another_outcome_is_another_finding(finding: Finding) -> None:
    class Diverging(Player):
        async def __call__(self, one: Play) -> Any:
            row = await super().__call__(one)
            return {**row, "key": row["key"].replace("lost", "diverged")}

    said = asyncio.run(investigate(finding, LOST_RUN, Plan(repeat=2), Diverging()))
    assert said["again"] == [0, 2]


def test_what_the_simulation_finds_is_kept_with_its_key_and_played_live(finding: Finding) -> None:
    folder = finding.night / "searched" / search_name("cell 1 #1")
    folder.mkdir(parents=True)
    text = scenario_files()["hw-truncation-loss"].read_text(encoding="utf-8")
    (folder / "lost-neaptide-0.10-1.toml").write_text(text, encoding="utf-8")
    (folder / "lost-neaptide-0.10-2.toml").write_text(f"{text}\n# [[step]]\n", encoding="utf-8")
    (folder / "diverged-neaptide-0.10-3.toml").write_text("", encoding="utf-8")

    async def live(one: Play) -> Any:
        return {"outcome": "lost" if one.seed < 3 else "held"}

    said = asyncio.run(investigate_search(finding, Plan(repeat=3), live, live=True))
    assert said["again"] == [2, 3]
    kept = Path(said["file"])
    assert kept.read_text(encoding="utf-8") == f"{KEY_LINE}{KEY}\n{text}"
    assert key_in(kept) == KEY
    none = asyncio.run(investigate_search(finding, Plan(repeat=3), live, live=False))
    assert none["again"] == [0, 0]


def test_what_no_scenario_can_say_is_said(finding: Finding) -> None:
    said = asyncio.run(investigate_search(finding, Plan(), Player(), live=True))
    assert (said["file"], said["simulated"]) == (None, None)
    assert "by its timing alone" in said["why"]


def test_which_findings_the_simulation_may_know() -> None:
    assert found.is_searchable(VALUES, "lost")
    assert not found.is_searchable({**VALUES, "system": "kafka:3.9.1"}, "lost")
    assert not found.is_searchable({**VALUES, "workload": "txn"}, "lost")
    assert not found.is_searchable({**VALUES, "acks": "0"}, "lost")
    assert not found.is_searchable(VALUES, "unavailable")
    assert not found.is_searchable(VALUES, "anomalous")


# --- saved schedules -----------------------------------------------------------------------------


def saved_in(tmp_path: Path, **more: Any) -> Path:
    file = tmp_path / "lost.toml"
    said = {"expect": {"lost": ["neaptide:0.10"]}, **more}
    document = saved_schedule.changed(DOCUMENT, SCHEDULE[:1], **said)
    saved_schedule.save(document, file, f"{KEY_LINE}{KEY}\n")
    return file


def test_a_saved_schedule_is_the_command_of_its_run(tmp_path: Path) -> None:
    file = saved_in(tmp_path)
    words = saved_schedule.command(file)
    assert words[:2] == ["run", "append"]
    for option, value in {
        "--system": "neaptide:0.10", "--nemesis": str(file), "--rate": "500", "--seed": "3",
        "--client": "aiokafka", "--set": "a.b=c d", "--brokers": "3", "--partitions": "1",
    }.items():  # fmt: skip
        assert words.count(option) == 1
        assert words[words.index(option) + 1] == value
    assert 5 < float(words[words.index("--time") + 1]) < 30
    assert "kafka:3.9.1" in saved_schedule.command(file, "kafka:3.9.1")


def test_what_it_expects_is_by_system(tmp_path: Path) -> None:
    file = saved_in(tmp_path, expect={"lost": ["neaptide:0.10"], "held": ["neaptide:0.11+"]})
    saved = saved_schedule.load(file)
    systems = ("neaptide:0.10", "neaptide:2.1", "kafka:3.9.1")
    assert [expected_outcome(saved, system) for system in systems] == ["lost", "held", None]


def test_known_files_are_played_on_the_systems_of_plan_and_file(tmp_path: Path) -> None:
    file = saved_in(tmp_path, expect={"lost": ["neaptide:0.10"], "held": ["neaptide:0.11+"]})
    (tmp_path / "a.toml").write_bytes(scenario_files()["hw-truncation-loss"].read_bytes())
    assert [one.name for one in files_in([tmp_path])] == ["a.toml", "lost.toml"]
    own = tmp_path / "found"
    own.mkdir()
    (own / "lost.toml").write_text("", encoding="utf-8")
    (own / "other.toml").write_text("", encoding="utf-8")
    # Of one name the first: a user's copy of a finding says what should be.
    assert files_in([tmp_path, own])[1:] == [tmp_path / "lost.toml", own / "other.toml"]
    systems = ("neaptide:0.10", "neaptide:2.1", "kafka:3.9.1")
    schedules = list(plays_of(file, systems, 9))
    assert [(one.of, one.expected) for one in schedules] == [
        ("lost.toml@neaptide:0.10", "lost"),
        ("lost.toml@neaptide:2.1", "held"),
    ]
    assert [one.seed for one in schedules] == [3, 3]
    assert [one.values["system"] for one in schedules] == ["neaptide:0.10", "neaptide:2.1"]
    assert schedules[0].values["client"] == "aiokafka"
    assert schedules[0].values["faults"] in ("kill", "pause", "kill,pause")
    scenarios = list(plays_of(tmp_path / "a.toml", systems, 9))
    assert [(one.of, one.expected) for one in scenarios] == [
        ("a.toml@neaptide:0.10", "lost"),
        ("a.toml@neaptide:2.1", "held"),
        ("a.toml@kafka:3.9.1", "held"),
    ]
    assert key_in(file) == KEY
    assert key_in(tmp_path / "a.toml") is None
    (own / "old.json").write_text("[]", encoding="utf-8")
    with pytest.raises(UsageError, match=r"old\.json: .* draw one anew"):
        files_in([tmp_path, own])
    with pytest.raises(UsageError, match=r"There is no directory .* of known schedules"):
        files_in([tmp_path / "no"])


def test_a_known_scenario_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("title = 1", encoding="utf-8")
    with pytest.raises(UsageError, match=r"a\.toml"):
        list(plays_of(tmp_path / "a.toml", ["neaptide:0.10"], 1))


# --- replay --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "arguments", "status", "plays"),
    [
        ([LOST], [], 0, 1),
        ([HELD], [], 1, 1),
        ([("unknown", "unknown"), LOST], ["--retries-unknown", "1"], 0, 2),
        ([("unknown", "unknown")], [], 2, 1),
        ([HELD], ["--system", "kafka:3.9.1"], 0, 1),
        ([LOST], ["--system", "kafka:3.9.1"], 1, 1),
        ([LOST, HELD], ["--repeat", "2"], 1, 2),
    ],
)
def test_replay_plays_it_again_and_compares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: Any, arguments: Any, status: int,
    plays: int,
) -> None:  # fmt: skip
    monkeypatch.setenv("NEAPTIDE_STATE", str(tmp_path / "state"))
    left, played = list(words), []

    class NoSpark:
        def __init__(self, master: str | None) -> None:
            pass

        def __enter__(self) -> NoSpark:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def session(self) -> None:
            pass

    def record(_: Any, __: Path, system: str, seed: int | None) -> Recorded:
        played.append(system)
        return Recorded(Path(f"run{len(played)}"))

    def judge(_: Any, runs: list[Path]) -> list[Any]:
        found = [left.pop(0) for _ in runs]
        return [SimpleNamespace(verdict=v, outcome=o, anomalies={}, reasons=()) for v, o in found]

    monkeypatch.setattr("neaptide.harness.checking.check.SparkStart", NoSpark)
    monkeypatch.setattr("neaptide.harness.checking.check.check_and_report", judge)
    monkeypatch.setattr(replay_saved, "_play", record)
    file = saved_in(tmp_path)
    result = CliRunner().invoke(app, ["replay", str(file), "--json", *arguments])
    assert result.exit_code == status, result.output
    assert len(played) == plays
    rows = json.loads(result.stdout)["results"]
    assert [one["observed"] for one in rows][-1] == words[-1][1]


def test_a_saved_schedule_says_itself_where_it_is_played(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["replay", str(saved_in(tmp_path)), "--host", "simulation"])
    assert "leave out --host and --twice" in str(result.exception)


def test_what_a_run_that_only_records_leaves() -> None:
    assert recorded('{"run": "/x/y", "verdict": "unchecked"}', "", 0) == Recorded(Path("/x/y"))
    assert recorded("", "seed 1\nneaptide: There is no system 'x'.\n", 64) == Recorded(
        None, "There is no system 'x'"
    )
    assert recorded("", "", -9).why == "it ended with status -9"
