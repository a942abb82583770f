"""What is asked of a system of the user's own, before anything is started."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from neaptide.clusters.errors import UsageError
from neaptide.clusters.hosts.place import LOCAL, Place
from neaptide.harness.cli import main as cli
from neaptide.harness.comparing.repro import cells
from neaptide.harness.nightly.asked import Means, run_of
from neaptide.harness.nightly.plan import read_plan
from neaptide.harness.play.random_asked import RandomRun, check, parse_nemesis, rate_for
from neaptide.harness.play.random_load import names_of
from neaptide.harness.play.scenario import play, refused_by_own
from neaptide.harness.scenarios.catalog import scenario_files
from neaptide.harness.scenarios.systems import (
    System,
    check_system_on,
    generation_of,
    parse_system,
    place_of,
    secret_settings,
)
from neaptide.nemesis.scenario import (
    ScheduledStep,
    expected_outcome,
    load_scenario,
    with_brokers,
)
from neaptide.nemesis.steps import Hold, Inject, OpenClient, Pause
from tests.own.files import MANAGED, USED, written

LIKE = "kafka:3.9.1-kraft"
LOSS = load_scenario(scenario_files()["hw-truncation-loss"])


@pytest.fixture
def used(directory: Path) -> System:
    return parse_system(str(written(directory, USED)))


@pytest.fixture
def managed(directory: Path) -> System:
    return parse_system(str(written(directory, MANAGED)))


def asked(system: System, nemesis: str = "none", **more: Any) -> RandomRun:
    faults, saved = parse_nemesis(nemesis, system)
    one = RandomRun("append", system, faults, 30, 500, seed=7, saved=saved, ids=(1, 2, 3))
    return replace(one, **more)


def test_documents_say_of_it_what_they_say_of_what_it_behaves_like(managed: System) -> None:
    assert (str(managed), managed.like, managed.release) == ("own:mine", LIKE, "3.9.1-kraft")
    assert generation_of(managed) is None
    assert expected_outcome(LOSS, managed.like) == "held"
    assert expected_outcome(LOSS, str(managed)) is None
    assert managed.options.startswith("--system /")


def test_brokers_are_known_by_the_ids_of_the_file(managed: System) -> None:
    moved = with_brokers(LOSS, (1, 2, 3))
    assert moved.brokers == {"A": 1, "B": 2, "C": 3}
    assert moved.document == LOSS.document
    assert [one.line for one in moved.steps] == [one.line for one in LOSS.steps]
    assert [one.step for one in moved.steps] == [one.step for one in LOSS.steps]
    conditions = [(s.until, m.until) for s, m in zip(LOSS.steps, moved.steps, strict=True)]
    [(was, now), *_] = [(s, m) for s, m in conditions if s and m and "leader is B" in s.text]
    led = SimpleNamespace(leader=lambda: 2, held=lambda *ends: ends in ((1, 2), (2, 1)))
    assert (was.text, was.holds(led), now.holds(led)) == (now.text, False, True)
    drawn = [act.steps[0]["cut"] for act in asked(managed, "cut").schedule()]
    ends = {end for cut in drawn for end in (cut["from"], cut["to"])}
    assert ends <= {"A", "B", "C", "coordination"}
    assert ends & {"C"}
    assert check(asked(managed, "kill,cut")).broker_ids == (1, 2, 3)


def test_faults_of_processes_and_links_are_refused_where_a_cluster_is_just_used(
    used: System, managed: System
) -> None:
    for fault in ("kill", "pause", "restart", "power-off", "cut", "partition", "members", "rounds"):
        with pytest.raises(UsageError, match=rf"--nemesis {fault}: .*just used.*\[\[brokers\]\]"):
            check(asked(used, fault))
    assert check(asked(used, "client"))
    assert parse_nemesis("all", used)[0] == ("client",)
    assert check(asked(managed, "kill,cut"))


def test_a_pause_needs_a_way_to_pause(managed: System, directory: Path) -> None:
    with pytest.raises(UsageError, match=r"--nemesis pause: .*node 100 has a kill command"):
        check(asked(managed, "pause"))
    able = MANAGED.replace('kill = ["./start.sh", "{pid}"]', "")
    assert check(asked(parse_system(str(written(directory, able))), "pause"))


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"workload": "stream"}, "take one of append, txn, bank"),
        ({"workload": "keyed"}, "take one of append, txn, bank"),
        ({"client": "kafka-python"}, "are librdkafka's; choose --client confluent-kafka"),
        ({"settings": {"a": "b"}}, "--set: .* just used"),
        ({"place": Place("netns")}, "leave out --host netns"),
    ],
)
def test_what_a_cluster_that_is_just_used_is_not_for(
    used: System, managed: System, more: dict[str, Any], says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        check(asked(used, **more))
    assert check(asked(managed, **more))


def test_a_scenario_is_not_for_it_either(used: System) -> None:
    with pytest.raises(UsageError, match="a scenario is about brokers"):
        asyncio.run(play(LOSS, used, 1, "it", lambda _: None))


def test_where_managed_brokers_run(managed: System) -> None:
    with pytest.raises(UsageError, match=r"--host local, netns, docker, ssh, not on simulation"):
        check_system_on(managed, Place("simulation"))
    check_system_on(managed, Place("netns"))


def test_the_image_of_the_file_is_the_nodes_unless_the_command_names_one(
    directory: Path, managed: System
) -> None:
    mine = parse_system(str(written(directory, f'image = "mine:1"\n{MANAGED}')))
    assert place_of(mine, Place("docker")).image == "mine:1"
    assert place_of(mine, Place("docker", "other:2")).image == "other:2"
    assert place_of(managed, Place("docker")).image is None
    assert place_of(mine, Place("local")) == Place("local")
    assert place_of(parse_system("kafka:3.9.1"), Place("docker")).image is None


def test_topics_on_a_cluster_with_topics_of_others_can_be_given(
    used: System, managed: System
) -> None:
    assert names_of(asked(used, topics=2)) == ("neaptide-7-t", "neaptide-7-t1")
    assert names_of(asked(managed, topics=2)) == ("t", "t1")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"brokers": {"A": 0, "B": 1, "C": 2, "D": 3}}, "needs 4 brokers, and it has 3"),
        ({"controllers": 3}, "needs 3 controllers, and it has 1"),
        ({"settings": {"eligible.leader.replicas.version": "1"}}, "is for who formats"),
        ({"steps": (ScheduledStep(Inject("A", "fsync"), 1),)}, "calls of a broker fail"),
        (
            {"steps": (ScheduledStep(Pause("A"), 1),)},
            "pauses, and node 100 has a kill but no pause",
        ),
    ],
)
def test_a_scenario_that_a_system_cannot_play_is_named(
    managed: System, change: dict[str, Any], says: str
) -> None:
    """The twin is the scenario as it is; and `repro` of all scenarios passes over the others."""
    assert refused_by_own(LOSS, managed) is None
    changed = replace(LOSS, **change)
    assert says in (refused_by_own(changed, managed) or "")
    assert refused_by_own(changed, parse_system("kafka:3.9.1")) is None
    files = [(Path("it"), LOSS), (Path("other"), changed)]
    name = [str(managed.own.file)] if managed.own else []
    kept = cells(files, name, 1, all_of_them=True)
    assert [cell.scenario for cell in kept] == [LOSS]


def test_what_does_not_read_the_settings_of_clients_is_refused(directory: Path) -> None:
    """The twin is the same file without [client]."""
    plain = parse_system(str(written(directory, MANAGED)))
    client = '[client]\n"client.rack" = "a"\n[environment]'
    given = parse_system(str(written(directory, MANAGED.replace("[environment]", client))))
    assert secret_settings(given) == {"client.rack": "a"}
    for more, says in (
        ({"client": "kafka-python"}, "are librdkafka's; choose --client confluent-kafka"),
        ({"workload": "keyed"}, r"clients that do not read \[client\] .*: take one of append"),
        ({"faults": ("members",)}, "members are changed through the listener of clients"),
    ):
        with pytest.raises(UsageError, match=says):
            check(asked(given, **more))
        check(asked(plain, **more))
    assert check(asked(given, "kill,cut"))
    assert asked(given, workload="groups").coordinated is None
    assert asked(plain, workload="groups").coordinated == ("g", "group")
    for step in (
        OpenClient("p", "raw_producer", None, "tx"),
        Hold.of("request", "produce", "client", "A", rule="r"),
    ):
        changed = replace(LOSS, steps=(ScheduledStep(step, 1),))
        assert "reads or writes messages of clients itself" in (
            refused_by_own(changed, given) or ""
        )
        assert refused_by_own(changed, plain) is None
    assert refused_by_own(LOSS, given) is None


@pytest.mark.parametrize(
    ("usual", "given", "used_gets", "managed_gets"),
    [
        (5000.0, None, 100.0, 5000.0),
        (50.0, None, 50.0, 50.0),
        (5000.0, 700.0, 700.0, 700.0),
    ],
)
def test_a_cluster_that_is_just_used_gets_100_records_a_second_unless_told_otherwise(
    used: System,
    managed: System,
    usual: float,
    given: float | None,
    used_gets: float,
    managed_gets: float,
) -> None:
    assert rate_for(used, usual, given) == used_gets
    assert rate_for(managed, usual, given) == managed_gets


@pytest.mark.parametrize(
    ("options", "rate", "is_said"), [((), 100.0, True), (("--rate", "700"), 700.0, False)]
)
def test_the_command_says_that_it_sends_less(
    used: System,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    rate: float,
    is_said: bool,
) -> None:
    asked: list[RandomRun] = []
    said: list[str] = []
    monkeypatch.setattr(cli, "_print_line", said.append)
    monkeypatch.setattr("neaptide.harness.scenarios.systems.brokers_of", lambda _: (1, 2, 3))
    monkeypatch.setattr(cli, "_run_workload", lambda one, *_: asked.append(one))
    assert used.used is not None
    arguments = ["run", "append", "--system", str(used.used.file), "--nemesis", "none", *options]
    done = CliRunner().invoke(cli.app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert [one.rate for one in asked] == [rate]
    line = "--rate 100: the cluster is just used; give --rate for another"
    assert said == ([line] if is_said else [])


@pytest.mark.parametrize(("rate", "becomes"), [(None, 100.0), (700, 700.0)])
def test_a_night_sends_no_more_to_it(used: System, rate: float | None, becomes: float) -> None:
    assert used.used is not None
    file = str(used.used.file)
    plan = read_plan({"systems": [file]} | ({} if rate is None else {"rate": rate}), "plan")
    means = Means({file: used}, {"local": LOCAL}, {file: (1, 2, 3)})
    values = {
        "system": file, "host": "local", "workload": "append", "client": "confluent-kafka",
        "faults": "client", "acks": "all", "idempotence": "no", "brokers": "3",
    }  # fmt: skip
    assert run_of(plan, means, values, 7).rate == becomes
