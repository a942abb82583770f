"""What `neaptide upgrade` plays, and what a user's server.properties changes in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from neaptide.clusters.errors import UsageError
from neaptide.harness.comparing.upgrade import Settings, plan, read_settings, with_settings
from neaptide.harness.scenarios.catalog import scenario_files
from neaptide.nemesis.scenario import parse_scenario
from tests.harness.command import neaptide

# As Kafka ships it, and what operators add.
PROPERTIES = """\
# The role of this server. Setting this puts us in KRaft mode
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
advertised.listeners=PLAINTEXT://localhost:9092
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
ssl.keystore.password=hunter2
num.network.threads=3
log.dirs=/tmp/kraft-combined-logs
offsets.topic.replication.factor=1
min.insync.replicas=2
unclean.leader.election.enable : true
replica.lag.time.max.ms=45000
log.retention.hours=168
auto.leader.rebalance.enable=true
metric.reporters=com.example.Reporter
example.made.up=1
"""


def settings_of(folder: Path, text: str = PROPERTIES) -> Settings:
    file = folder / "server.properties"
    file.write_text(text, encoding="utf-8")
    return read_settings(file)


def test_of_a_users_settings_those_are_used_that_are_not_about_where_a_broker_is(
    tmp_path: Path,
) -> None:
    settings = settings_of(tmp_path)
    assert settings.used == {
        "num.network.threads": "3",
        "min.insync.replicas": "2",
        "unclean.leader.election.enable": "true",
        "replica.lag.time.max.ms": "45000",
        "log.retention.hours": "168",
    }
    assert settings.left_out["example.made.up"] == "neaptide knows no such setting"
    assert "hunter2" not in str(settings)
    assert settings.is_kraft


@pytest.mark.parametrize(
    ("text", "why"), [("min.insync.replicas", "line 1 is not of the form"), ("a=\\u12", "escape")]
)
def test_what_is_no_properties_file_is_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        settings_of(tmp_path, text)
    with pytest.raises(UsageError, match="cannot be read"):
        read_settings(tmp_path / "none")


def test_a_users_settings_win_over_a_scenarios_but_not_over_its_times_and_sizes() -> None:
    file = scenario_files()["stale-diverging-answer"]
    used = {
        "min.insync.replicas": "1",
        "unclean.leader.election.enable": "true",
        "replica.lag.time.max.ms": "45000",
        "log.retention.hours": "168",
    }
    text = with_settings(file.read_text(encoding="utf-8"), used)
    changed = parse_scenario("changed", text, "changed")
    assert changed.topic.settings == {"min.insync.replicas": "1"}
    assert {name: changed.settings[name] for name in used} == {
        **used,
        "replica.lag.time.max.ms": "120000",
    }


def test_a_topics_own_setting_is_that_of_the_brokers_without_log() -> None:
    text = """
[cluster]
topics.t = { assignment = [["A"]], settings = { "message.timestamp.type" = "CreateTime" } }
"""
    changed = with_settings(text, {"log.message.timestamp.type": "LogAppendTime"})
    assert '"message.timestamp.type" = "LogAppendTime"' in changed
    assert '"log.message.timestamp.type" = "LogAppendTime"' in changed


@pytest.mark.slow  # where the jars are fetched first
@pytest.mark.needs("maven")
def test_what_one_of_them_cannot_play_is_named_with_the_reason(tmp_path: Path) -> None:
    planned = plan("3.9.1", "4.1.0", Settings({"min.insync.replicas": "1"}), 2, [], tmp_path)
    assert [str(cell.system) for cell in planned.cells[:2]] == ["kafka:3.9.1", "kafka:4.1.0"]
    played = {cell.scenario.name for cell in planned.cells}
    assert "acks-1-loss" in played
    assert "kafka:4.1.0" in planned.not_played["controller-failover"]
    assert not played & set(planned.not_played)
    assert len(planned.cells) == 4 * len(played)
    for cell in planned.cells:
        again = parse_scenario(cell.scenario.name, Path(cell.where).read_text("utf-8"), cell.where)
        assert again.document == cell.scenario.document


@pytest.mark.slow
@pytest.mark.needs("maven")
def test_where_the_settings_are_of_kraft_so_is_the_version(tmp_path: Path) -> None:
    kraft = Settings({}, {}, is_kraft=True)
    planned = plan("3.9.1", "4.1.0", kraft, 1, ["acks-1-loss"], tmp_path)
    assert str(planned.before) == "kafka:3.9.1-kraft"
    assert str(planned.after) == "kafka:4.1.0"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("3.9.1", "3.9.1"), "Both are kafka:3.9.1: name two versions."),
        (("3.9.1", "tomorrow"), "'tomorrow' is no version of Apache Kafka"),
        (("3.9.1", "4.1.0", "--settings", "none"), "none cannot be read"),
        (("3.9.1", "4.1.0", "akcs-1-loss"), "There is no scenario 'akcs-1-loss'"),
    ],
)
@pytest.mark.slow
def test_what_cannot_be_compared_is_said_in_one_sentence(
    tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    done, _ = neaptide(tmp_path, "upgrade", *arguments)
    assert done.returncode == 64, done.stderr
    assert sentence in done.stderr


@pytest.mark.proof
@pytest.mark.live
@pytest.mark.spark
@pytest.mark.needs("maven")
@pytest.mark.timeout(600)
def test_one_scenario_on_two_versions_is_played_resumed_and_shown(tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text("min.insync.replicas=1\n", encoding="utf-8")
    arguments = ("upgrade", "3.9.1", "3.9.1-kraft", "acks-0-loss", "--json", "-o", "page.html")
    settings = ("--settings", "server.properties")
    done, document = neaptide(tmp_path, *arguments, *settings)
    assert document is not None, done.stderr
    assert done.returncode == 0, done.stderr
    [one] = document["open"]
    assert (one["kind"], one["before"], one["after"]) == ("by design", {"lost": 1}, {"lost": 1})
    assert "2 runs on kafka:3.9.1 and kafka:3.9.1-kraft: about 1 min" in done.stderr
    assert "acks-0-loss" in (tmp_path / "page.html").read_text(encoding="utf-8")

    again, resumed = neaptide(tmp_path, *arguments, *settings, "--resume")
    assert resumed == document, again.stderr
    assert again.stderr.count("played already") == 2
