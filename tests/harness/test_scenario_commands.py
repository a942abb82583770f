"""`list`, `new` and `explain`: what there is, what to start from, and what it will do, in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.errors import UsageError
from neaptide.harness.cli.doctor import examine
from neaptide.harness.cli.scenarios import by_subject, explain, list_, new
from neaptide.harness.scenarios.catalog import documented
from neaptide.harness.scenarios.explain import explained
from neaptide.nemesis.scenario import Scenario, expected_outcome, load_scenario
from neaptide.nemesis.scenario_file import SUBJECTS
from neaptide.nemesis.search.play import simulate
from tests.harness.command import neaptide

SHIPPED = [scenario for _, scenario in documented([])]


def test_every_outcome_of_a_scenario_that_ships_is_a_bug_or_by_design_or_of_a_client() -> None:
    """Unless it is `held`. acks=1 that loses records is no find."""
    without = [
        (scenario.name, outcome)
        for scenario in SHIPPED
        for outcome in scenario.expect
        if outcome != "held" and outcome not in scenario.kind
    ]
    assert without == []
    kinds = {scenario.name: dict(scenario.kind) for scenario in SHIPPED}
    assert kinds["acks-1-loss"] == {"lost": "by design"}
    assert kinds["stale-diverging-answer"] == {"lost": "bug"}
    assert kinds["unclean-b2"] == {"diverged": "bug", "lost": "by design"}
    assert kinds["hw-two-rounds"] == {}


def test_every_scenario_that_ships_teaches_something_and_every_subject_has_one() -> None:
    assert {scenario.teaches for scenario in SHIPPED} == set(SUBJECTS)
    listed = by_subject(SHIPPED)
    assert [scenario.teaches for scenario in listed] == sorted(
        (str(scenario.teaches) for scenario in SHIPPED), key=SUBJECTS.index
    )


@pytest.mark.slow
def test_the_list_says_source_sentence_and_outcomes(tmp_path: Path) -> None:
    done, document = neaptide(tmp_path, "list", "--json")
    assert done.returncode == 0
    [loss] = [s for s in document["scenarios"] if s["name"] == "hw-truncation-loss"]
    assert loss["teaches"] == "epochs"
    assert loss["source"]
    assert "kafka:0.10" in loss["outcomes"]["lost"]


def test_list_and_doctor_say_where_jars_of_kafka_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And our own brokers, which have no jars, are listed without a place."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    list_()
    lines = [line for line in capsys.readouterr().out.splitlines() if str(tmp_path) in line]
    [line] = lines
    assert line.startswith(f"jars of kafka:VERSION: {tmp_path}/home/.m2/repository")
    assert f"{tmp_path}/cache/neaptide/kafka" in line
    [found] = [one for one in examine() if str(tmp_path / "home") in one.detail]
    assert (found.part, line) == ("Apache Kafka's jars", f"jars of kafka:VERSION: {found.detail}")


@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_new_scenario_is_one_that_can_be_played(tmp_path: Path, generation: str) -> None:
    file = tmp_path / "mine.toml"
    new(file)
    scenario = load_scenario(file)
    played = simulate(scenario, GENERATIONS[generation])
    assert (played.missed, played.disagreements) == ("", ())
    assert played.judged.outcome == expected_outcome(scenario, f"neaptide:{generation}")


def test_new_writes_a_file_once_and_explain_shows_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.toml"
    new(file)
    written = file.read_text(encoding="utf-8")
    capsys.readouterr()
    explain(str(file))
    assert capsys.readouterr().out.startswith(f"{load_scenario(file).title}.")
    with pytest.raises(UsageError, match="exists already"):
        new(file)
    assert file.read_text(encoding="utf-8") == written
    with pytest.raises(UsageError, match=r"must end in \.toml"):
        new(tmp_path / "mine.txt")


@pytest.mark.parametrize("scenario", SHIPPED, ids=lambda s: s.name)
def test_an_explanation_names_every_step_its_reason_and_its_condition(scenario: Scenario) -> None:
    text = "\n".join(explained(scenario))
    assert scenario.title in text
    for scheduled in scenario.steps:
        assert scheduled.why in text
        if scheduled.until is not None:
            assert f"until {scheduled.until.text}, at most {scheduled.within_s:g} s" in text
    assert f"{len(scenario.steps):3}. " in text
    for outcome in scenario.expect:
        assert f"  {outcome} on " in text
