"""`neaptide export`: what is written of a find, and the script that needs no neaptide."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from neaptide.clusters.errors import UsageError
from neaptide.harness.comparing.export import export, find_of
from neaptide.harness.comparing.plain_script import script_of, why_no_script
from neaptide.harness.scenarios import saved_schedule
from neaptide.harness.scenarios.catalog import documented, scenario_files
from neaptide.nemesis.scenario import Scenario, load_scenario, parse_scenario
from neaptide.results.run import read_run
from neaptide.results.store import write_run
from tests.harness.command import neaptide
from tests.kafka.distribution import distribution
from tests.results.losing_run import write_held_twin, write_losing_run, write_verdict

LOSING = "hw-truncation-loss"


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NEAPTIDE_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def shipped(name: str) -> Scenario:
    return load_scenario(scenario_files()[name])


def saved(
    runs: Path, number: int, *, loses: bool, system: str, versions: Mapping[str, str] | None = None
) -> Path:
    """A judged run of the scenario as it ships."""
    run = runs / f"run-{number}"
    if loses:
        write_losing_run(run)
        write_verdict(run)
    else:
        write_held_twin(run)
    document = dict(shipped(LOSING).document)
    changed = replace(read_run(run), system=system, schedule=document, versions=versions or {})
    write_run(run, changed)
    return run


def test_a_find_says_what_was_seen_how_often_and_on_which_versions(runs: Path) -> None:
    saved(runs, 1, loses=True, system="kafka:0.10.2.2", versions={"librdkafka": "2.16.1"})
    saved(runs, 2, loses=True, system="kafka:0.10.2.2", versions={"librdkafka": "2.16.1"})
    saved(runs, 3, loses=False, system="kafka:3.9.1")
    write_losing_run(runs / "unjudged")
    find = find_of(LOSING)
    assert find.outcomes == {"kafka:0.10.2.2": {"lost": 2}, "kafka:3.9.1": {"held": 1}}
    assert find.run.name == "run-2"  # the newest that shows something

    written = export(find, runs.parent / "find")
    text = (written / "README.md").read_text(encoding="utf-8")
    assert "| `kafka:0.10.2.2` | lost 2 |" in text
    assert "| `kafka:3.9.1` | held 1 |" in text
    assert "| librdkafka | 2.16.1 |" in text
    assert "| lost-write, committed-then-lost | m2 |" in text
    assert "KIP-101" in text
    assert "neaptide run scenario.toml --system kafka:0.10.2.2" in text
    assert "Kafka's own tools cannot play it: it holds every fetch response" in text
    assert "m2" in (written / "fetch-rounds.svg").read_text(encoding="utf-8")
    assert (written / "report.html").exists()
    assert not (written / "reproduce.sh").exists()
    again = load_scenario(written / "scenario.toml")
    assert again.document == shipped(LOSING).document


def test_of_a_run_that_run_is_shown(runs: Path) -> None:
    held = saved(runs, 1, loses=False, system="kafka:3.9.1")
    saved(runs, 2, loses=True, system="kafka:0.10.2.2")
    find = find_of("run-1")
    assert (find.run, find.record.system) == (held.resolve(), "kafka:3.9.1")
    assert len(find.outcomes) == 2


def test_runs_of_another_scenario_do_not_count(runs: Path) -> None:
    saved(runs, 1, loses=True, system="kafka:0.10.2.2")
    other = saved(runs, 2, loses=True, system="kafka:0.11.0.3")
    record = read_run(other)
    write_run(other, replace(record, schedule={**record.schedule, "title": "Another"}))
    assert set(find_of(LOSING).outcomes) == {"kafka:0.10.2.2"}


def test_where_nothing_was_judged_that_is_said(runs: Path) -> None:
    with pytest.raises(UsageError, match="No run of hw-truncation-loss has a verdict"):
        find_of(LOSING)
    run = saved(runs, 1, loses=True, system="kafka:0.10.2.2")
    (run / "verdict.json").unlink()
    with pytest.raises(UsageError, match="neaptide check RUN"):
        find_of("run-1")


def test_a_run_without_a_schedule_is_refused_in_one_sentence(runs: Path) -> None:
    """As one of an application under pytest."""
    run = saved(runs, 1, loses=True, system="kafka:0.10.2.2")
    write_run(run, replace(read_run(run), schedule=None))
    with pytest.raises(UsageError, match="run-1 has no schedule"):
        find_of("run-1")


def test_what_is_there_is_not_overwritten(runs: Path) -> None:
    saved(runs, 1, loses=True, system="kafka:0.10.2.2")
    (runs.parent / "find").mkdir()
    with pytest.raises(UsageError, match="exists already"):
        export(find_of(LOSING), runs.parent / "find")


@pytest.mark.parametrize("name", sorted(scenario_files()))
def test_a_scenario_without_its_file_is_written_as_one_that_is_read_again(
    tmp_path: Path, name: str
) -> None:
    scenario = shipped(name)
    saved_schedule.save(scenario.document, tmp_path / f"{name}.toml")
    assert load_scenario(tmp_path / f"{name}.toml").document == scenario.document


@pytest.mark.proof
@pytest.mark.slow
def test_the_command_names_what_it_has_written(tmp_path: Path) -> None:
    saved(tmp_path / "runs", 1, loses=True, system="kafka:0.10.2.2")
    done, document = neaptide(tmp_path, "export", LOSING, "--to", "found", "--json")
    assert done.returncode == 0, done.stderr
    assert document["outcomes"] == {"kafka:0.10.2.2": {"lost": 1}}
    there = sorted(file.name for file in (tmp_path / "found").iterdir())
    assert document["files"] == there
    assert there == ["README.md", "fetch-rounds.svg", "report.html", "scenario.toml"]


# --- the script ----------------------------------------------------------------------------------

PLAIN = """
title = "A title with $(signs) and 'quotes'"
[cluster]
brokers = ["A", "B"]
topics.t = {{ assignment = [["A", "B"]] }}
[[step]]
produce = {{ record = "m1", acks = "all" }}
until = "acked(m1) and level"
[[step]]
{step}
[expect]
lost = ["kafka:4.0+"]
"""


KILL = 'kill = { broker = "A", in_flight = "discarded" }'


def scripted(step: str) -> Scenario:
    return parse_scenario("plain", PLAIN.format(step=step), "plain")


@pytest.mark.parametrize(
    ("step", "line"),
    [
        (KILL, "end KILL 0"),
        ('kill = { brokers = ["A", "B"], in_flight = "discarded" }', "end KILL 1"),
        ('stop = { broker = "A" }', "end TERM 0"),
        ('power_off = { broker = "A" }', "forget 0 ''"),
        ('power_off = { broker = "A", survives = "m1" }', "forget 0 m1"),
        ('pause = { broker = "B" }', 'kill -STOP "${pid[1]}"'),
        ("elect = {}", "elect preferred"),
        (
            f'{KILL}\nuntil = "isr is {{B}} and leader is B"',
            "wait_until 180 'isr is {B}' isr_is 1",
        ),
        (
            f'{KILL}\nuntil = "not registered(A)"',
            "wait_until 180 'not registered(A)' not is_registered 0",
        ),
    ],
)
def test_a_step_is_a_line_of_the_script(step: str, line: str) -> None:
    scenario = scripted(step)
    assert why_no_script(scenario) is None
    assert line in script_of(scenario).splitlines()


@pytest.mark.parametrize(
    ("step", "why"),
    [
        ('hold = { request = "fetch", from = "B", to = "A" }', "it holds every fetch request"),
        ('cut = { from = "A", to = "B", purpose = "replication" }', "it cuts the link"),
        ('stop = { controller = "active" }', "it is about the active controller"),
        (
            f'{KILL}\nuntil = "HW(B) >= 1"',
            "which they do not show",
        ),
        (
            f'{KILL}\nuntil = "leader is A or leader is B"',
            "which they do not show",
        ),
    ],
)
def test_what_the_tools_cannot_do_or_see_is_refused(step: str, why: str) -> None:
    refusal = why_no_script(scripted(step))
    assert refusal is not None
    assert why in refusal


def test_a_broker_that_was_stopped_has_flushed_its_log() -> None:
    step = (
        'stop = { broker = "A" }\n[[step]]\nrestart = { broker = "A" }\n'
        '[[step]]\npower_off = { broker = "A" }'
    )
    assert "has flushed a part of its log" in (why_no_script(scripted(step)) or "")


def test_every_script_is_one_for_bash_and_ends_what_it_started(tmp_path: Path) -> None:
    """With tools that do nothing: the first wait ends in vain, and says so."""
    tools = tmp_path / "kafka" / "bin"
    tools.mkdir(parents=True)
    for name in ("server-start", "storage"):
        tool = tools / f"kafka-{name}.sh"
        tool.write_text("#!/bin/sh\nexit 1\n", encoding="ascii")
        tool.chmod(0o755)
    plain = [scenario for _, scenario in documented([]) if why_no_script(scenario) is None]
    assert {"last-in-isr-loses-its-disk", "unclean-election-false"} <= {s.name for s in plain}
    for scenario in [*plain, scripted(KILL)]:
        script = tmp_path / "reproduce.sh"
        script.write_text(script_of(scenario), encoding="utf-8")
        subprocess.run(["bash", "-n", script], check=True)
        done = subprocess.run(
            ["bash", script],
            env={**os.environ, "KAFKA_HOME": str(tmp_path / "kafka")},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert "did not come about: node 3000 is formatted" in done.stderr


@pytest.mark.proof
@pytest.mark.live
@pytest.mark.needs("maven")
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("name", "version", "status"),
    [
        ("last-in-isr-loses-its-disk", "4.1.0", 1),
        ("all-replicas-down-true", "4.1.0", 1),
        ("unclean-election-false", "4.1.0", 0),
    ],
)
def test_the_script_sees_with_kafkas_tools_what_the_scenario_shows(
    tmp_path: Path, name: str, version: str, status: int
) -> None:
    script = tmp_path / "reproduce.sh"
    script.write_text(script_of(shipped(name)), encoding="utf-8")
    home = distribution(tmp_path / "kafka", version)
    environment = {**os.environ, "KAFKA_HOME": str(home)}
    done = subprocess.run(
        ["bash", script], env=environment, capture_output=True, text=True, timeout=800
    )
    assert done.returncode == status, done.stdout + done.stderr
