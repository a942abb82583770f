"""The nemesis of a random run: what it does is undone, and what missed is listed, with why."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest
from typer.testing import CliRunner

from neaptide.clusters.errors import UsageError
from neaptide.harness.cli import main as cli
from neaptide.harness.live.stage import Stage
from neaptide.harness.play.random_asked import RandomRun, check_faults, parse_nemesis
from neaptide.harness.play.random_nemesis import RandomNemesis
from neaptide.harness.play.random_run import run_random
from neaptide.harness.play.scenario import play
from neaptide.harness.scenarios import saved_schedule
from neaptide.harness.scenarios.systems import parse_systems
from neaptide.nemesis.acts import Act
from neaptide.nemesis.gate.client import FetchPosition
from neaptide.nemesis.search.play import is_simulated
from neaptide.results.run import Run, named_brokers, read_run

OWN, KAFKA, COMBINED = parse_systems(["neaptide:2.1", "kafka:3.9.1", "kafka:4.1.0-combined"])
IDS = named_brokers((0, 1, 2))


class Cluster:
    """Stands for a stage, its faults and clients: who is there, and what was done, in order."""

    killable = 3  # clients

    def __init__(self) -> None:
        self.done: list[tuple[Any, ...]] = []
        self.down: set[int] = set()
        self.paused: set[int] = set()
        self.noted: list[Any] = []
        self.cluster = SimpleNamespace(is_up=lambda node: node not in self.down, quorum={})
        self.observer = SimpleNamespace(controller=None, registered={0, 1, 2})
        self.deaf: set[int] = set()
        self.gave_up: set[int] = set()
        self.lets_give_up = False
        self.isr: tuple[int, ...] = (1, 2)
        self.leader: int | None = 1
        self.positions: dict[tuple[int, str, int], FetchPosition] = {}
        self.gate = SimpleNamespace(positions={})  # rounds are not watched yet
        self.recorder = SimpleNamespace(now_ns=lambda: 0)
        self.spec = SimpleNamespace(topic=SimpleNamespace(name="t", assignment={0: (0, 1, 2)}))
        self.spec.brokers = (0, 1, 2)
        self.names = {0: "A", 1: "B", 2: "C"}

    def is_reachable(self, node: int) -> bool:
        return node not in self.down | self.paused

    def last_words(self, node: int) -> str:
        return f"{node}: log truncation is not allowed"

    def has_given_up(self, node: int) -> bool:
        return self.lets_give_up and node in self.gave_up and node in self.down

    async def is_listening(self, node: int) -> bool:
        return node not in self.deaf

    def view(self, _: int, topic: str | None = None) -> Any:
        return SimpleNamespace(leader=self.leader, leader_epoch=4, isr=self.isr)

    async def until(self, condition: Callable[[], bool], within_s: float, what: str) -> None:
        if not condition():
            raise TimeoutError(what)

    async def watch_rounds(self) -> None:
        self.gate.positions = self.positions

    def note_nemesis(self, value: Any, _: int) -> None:
        self.noted.append(value)

    async def kill(self, in_flight: str, *nodes: int) -> None:
        self.done += [("kill", node, in_flight) for node in nodes]
        self.down.update(nodes)

    async def stop(self, node: int) -> None:
        self.done.append(("stop", node))
        self.down.add(node)

    async def restart(self, node: int) -> None:
        self.done.append(("restart", node))
        self.down.discard(node)

    async def pause(self, node: int) -> None:
        self.done.append(("pause", node))
        self.paused.add(node)

    async def resume(self, node: int) -> None:
        self.done.append(("resume", node))
        self.paused.discard(node)

    async def set_clock(self, node: int, ahead_ms: int) -> None:
        self.done.append(("clock", node, ahead_ms))

    async def cut(self, source: Any, destination: Any, purpose: str, *, both: bool) -> None:
        self.done.append(("cut", source, destination, purpose, both))

    async def kill_one(self, client: int) -> None:
        self.done.append(("kill client", client))

    async def replace_one(self, client: int) -> None:
        self.done.append(("replace client", client))

    async def heal(self, source: Any, destination: Any) -> None:
        self.done.append(("heal", source, destination))


def played(cluster: Cluster, *schedule: Act, stop: bool = False) -> RandomNemesis:
    stand_in = cast(Any, cluster)
    nemesis = RandomNemesis(stand_in, stand_in, schedule, stand_in, IDS)

    async def play() -> None:
        if stop:
            nemesis.stopping.set()
        await nemesis.play(0.05)

    # An act that comes too late on a busy machine is left out; here none comes too late.
    with patch("neaptide.harness.play.random_nemesis.time", SimpleNamespace(monotonic=lambda: 0.0)):
        asyncio.run(play())
    return nemesis


def acts(*steps: dict[str, Any]) -> tuple[Act, ...]:
    """Each begins after the one before it, and they end in the same order."""
    return tuple(Act(0.001 * n, 0.02 + 0.001 * n, (step,)) for n, step in enumerate(steps))


def killed(whom: dict[str, Any], in_flight: str = "discarded") -> dict[str, Any]:
    return {"kill": {**whom, "in_flight": in_flight}}


LEADER: dict[str, Any] = {"broker": "leader(0)"}
ALL: dict[str, Any] = {"brokers": ["A", "B", "C"]}


def test_what_was_done_is_undone_once() -> None:
    cluster = Cluster()
    nemesis = played(cluster, *acts(killed(LEADER)))
    assert cluster.done == [("kill", 1, "discarded"), ("restart", 1)]
    assert nemesis.missed == []
    assert nemesis.doing == "load"


def test_a_broker_that_ended_itself_is_noted_and_started_before_the_next_phase() -> None:
    cluster = Cluster()
    cluster.down = cluster.gave_up = {2}
    nemesis = played(cluster, *acts(killed(LEADER)))
    assert cluster.done[:2] == [("kill", 2, "discarded"), ("restart", 2)]
    why = {"broker": "C", "why": "2: log truncation is not allowed"}
    assert cluster.noted == [{"gave_up": why}]
    assert cluster.done[2:] == [("kill", 1, "discarded"), ("restart", 1)]
    assert nemesis.missed == []


def settled(cluster: Cluster) -> list[tuple[Any, ...]]:
    stand_in = cast(Any, cluster)
    asyncio.run(RandomNemesis(stand_in, stand_in, (), stand_in, IDS).settle())
    return cluster.done


def test_a_leader_that_leaves_who_has_all_out_of_its_isr_is_restarted_at_the_end() -> None:
    cluster = Cluster()
    cluster.positions = {(0, "t", 0): FetchPosition(1, 4, 9, 30, 30)}
    assert settled(cluster) == [("kill", 1, "discarded"), ("restart", 1)]
    why = "it leaves A out of the ISR, with all that it has"
    assert cluster.noted == [{"stuck": {"broker": "B", "why": why}}]


@pytest.mark.parametrize(
    "position",
    [
        FetchPosition(1, 4, 9, 29, 30),  # it has not all
        FetchPosition(1, 4, 9, 30, None),  # no response yet
        FetchPosition(1, 3, 9, 30, 30),  # of an earlier epoch
        FetchPosition(2, 4, 9, 30, 30),  # of another leader
        None,  # it does not fetch
    ],
)
def test_a_leader_whose_follower_is_behind_is_left_alone(position: FetchPosition | None) -> None:
    cluster = Cluster()
    cluster.positions = {} if position is None else {(0, "t", 0): position}
    assert settled(cluster) == []


def test_nobody_is_restarted_where_every_replica_is_in_the_isr() -> None:
    cluster = Cluster()
    cluster.isr = (0, 1, 2)
    cluster.positions = {(0, "t", 0): FetchPosition(1, 4, 9, 30, 30)}
    assert settled(cluster) == []


def test_a_broker_that_ended_without_giving_up_is_left_alone() -> None:
    cluster = Cluster()
    cluster.down = {2}
    played(cluster, *acts(killed(LEADER)))
    assert ("restart", 2) not in cluster.done


class HalfStage(Stage):
    """Only what says of a broker that is down why it is."""

    def __init__(self, log: Path) -> None:
        ended = SimpleNamespace(
            is_up=lambda _: False, controllers=(), logs=lambda: {"broker-1": log}
        )
        self.cluster = cast(Any, ended)
        self.spec = cast(Any, SimpleNamespace(brokers=(1,)))
        self.severed = set()
        self._started = {1}
        self.lets_give_up = True


GAVE_UP = "FATAL Exiting because log truncation is not allowed for partition [t,0], current leader"
AT_START = "ERROR Exiting Kafka due to fatal exception during startup. (kafka.Kafka$)"
IN_STARTUP = "ERROR [KafkaServer id=2] Fatal error during KafkaServer startup. Prepare to shutdown"
SHUTDOWN = "\n".join(f"INFO part {n} shut down" for n in range(60))
STARTS = "INFO starting (kafka.server.KafkaServer)"
EXPIRED = "org.apache.zookeeper.KeeperException$SessionExpiredException: KeeperErrorCode = Session"
NOISE = "[71.203s][warning][cds] Skipping kafka/Kafka: Old class has been linked"
NO_MEMORY = "java.lang.OutOfMemoryError: Java heap space"
TRACE = "\tat kafka.Kafka$.main(Kafka.scala:112)\nINFO [KafkaServer id=0] shutting down"


@pytest.mark.parametrize(
    ("log", "has_given_up", "last_words"),
    [
        (f"INFO started\n{GAVE_UP}\n", True, GAVE_UP),
        (f"INFO started\n{GAVE_UP}\n{SHUTDOWN}\n{NOISE}\n", True, GAVE_UP),
        (f"{GAVE_UP}\n{NOISE}\n{STARTS}\n{NOISE}", False, NOISE),
        (f"{AT_START}\n{EXPIRED}\n{TRACE}\n", True, AT_START),
        (f"{GAVE_UP}\nFATAL {NO_MEMORY}\n", False, f"FATAL {NO_MEMORY}"),
        (f"{AT_START}\n{NO_MEMORY}", False, NO_MEMORY),
        (f"{IN_STARTUP}\n{EXPIRED}\n{SHUTDOWN}", True, IN_STARTUP),
        (f"{IN_STARTUP}\n{EXPIRED}\n{STARTS}\n{NO_MEMORY}", False, NO_MEMORY),
        (f"WARN {EXPIRED}\n{AT_START}\n{NO_MEMORY}", False, NO_MEMORY),
        (f"{IN_STARTUP}\n{NO_MEMORY}\n\tat a.B.c(B.java:1)\n\t... 3 more\n", False, NO_MEMORY),
        ("", False, "nothing"),
    ],
)
def test_a_broker_has_given_up_if_its_log_ends_with_that(
    tmp_path: Path, log: str, has_given_up: bool, last_words: str
) -> None:
    file = tmp_path / "broker-1.log"
    file.write_text(log)
    assert HalfStage(file).has_given_up(1) is has_given_up
    assert HalfStage(file).last_words(1) == last_words


def test_it_has_not_given_up_if_a_fault_ended_it_or_the_run_does_not_restart(
    tmp_path: Path,
) -> None:
    log = tmp_path / "broker-1.log"
    log.write_text(GAVE_UP)
    severed, scripted = HalfStage(log), HalfStage(log)
    severed.severed = {1}
    scripted.lets_give_up = False
    assert not severed.has_given_up(1)
    assert not scripted.has_given_up(1)


def test_a_client_that_was_killed_is_replaced() -> None:
    cluster = Cluster()
    nemesis = played(cluster, *acts({"kill_client": {"number": 65_534}}))
    assert cluster.done == [("kill client", 2), ("replace client", 2)]
    assert nemesis.missed == []


def test_who_is_down_already_is_left_to_who_took_it_down() -> None:
    cluster = Cluster()
    steps = {"pause": {"broker": "C"}}, killed(ALL, "delivered"), {"stop": {"broker": "A"}}
    nemesis = played(cluster, *acts(*steps))
    assert cluster.done[:3] == [("pause", 2), ("kill", 0, "delivered"), ("kill", 1, "delivered")]
    assert sorted(cluster.done[3:]) == [("restart", 0), ("restart", 1), ("resume", 2)]
    why = "nobody is left to do it to"
    assert [(one.phase, one.fault, one.why) for one in nemesis.missed] == [(3, "restart", why)]
    assert cluster.noted == [{"missed": {"phase": 3, "fault": "restart", "why": why}}]


@pytest.mark.parametrize(
    ("whom", "node"),
    [
        ({"broker": "B"}, 1),
        ({"broker": "leader(0)"}, 1),
        ({"broker": "follower(0)"}, 2),
        ({"controller": "active"}, 100),
    ],
)
def test_a_role_is_who_has_it_when_the_step_begins(whom: dict[str, Any], node: int) -> None:
    cluster = Cluster()
    cluster.observer.controller = 100
    played(cluster, *acts(killed(whom)))
    assert cluster.done == [("kill", node, "discarded"), ("restart", node)]


@pytest.mark.parametrize(
    "whom",
    [{"broker": "leader(0)"}, {"broker": "follower(0)"}, {"controller": "active"},
     {"broker": "coordinator"}],
)  # fmt: skip
def test_where_nobody_has_the_role_it_is_a_miss(whom: dict[str, Any]) -> None:
    cluster = Cluster()
    cluster.leader, cluster.isr = None, ()
    nemesis = played(cluster, *acts(killed(whom)))
    assert cluster.done == []
    assert [one.fault for one in nemesis.missed] == ["kill"]


def test_a_step_that_is_not_undone_lasts_and_is_undone_at_the_end() -> None:
    cluster = Cluster()
    played(cluster, Act(0.0, 0.0, (killed(LEADER),)), *acts({"pause": {"broker": "A"}}))
    assert [one[:2] for one in cluster.done] == [
        ("kill", 1), ("pause", 0), ("resume", 0), ("restart", 1),
    ]  # fmt: skip


def test_what_a_step_waits_for_and_does_not_come_is_a_miss_and_undone() -> None:
    cluster = Cluster()
    nemesis = played(cluster, *acts({**killed({"broker": "A"}), "until": "leader is C"}))
    assert cluster.done == [("kill", 0, "discarded"), ("restart", 0)]
    assert "leader is C" in nemesis.missed[0].why


def test_who_has_given_up_is_started_again_before_the_next_fault() -> None:
    cluster = Cluster()
    cluster.deaf = {1, 2}
    cluster.observer.registered = {0, 1}  # 2 has been started and does not listen yet
    played(cluster, *acts({"pause": {"broker": "A"}}))
    assert cluster.done[:3] == [("kill", 1, "discarded"), ("restart", 1), ("pause", 0)]


@pytest.mark.parametrize(
    ("broker", "ahead_ms", "restarted"),
    [(0, 5_000, True), (0, -5_000, False), (2, 5_000, False)],
)
def test_who_may_wait_for_its_clock_and_is_in_no_isr_is_started_again(
    broker: int, ahead_ms: int, restarted: bool
) -> None:
    """Broker 0 is out of the ISR, 2 in it; one that was behind has seen no later time than now."""
    cluster = Cluster()
    cluster.down = {1}
    clock = {"set_clock": {"broker": "ABC"[broker], "ahead_ms": ahead_ms}}
    later = Act(0.03, 0.01, ({"pause": {"broker": "B"}},))
    played(cluster, *acts(clock), later)
    again = [("kill", broker, "discarded"), ("restart", broker)] if restarted else []
    assert cluster.done == [("clock", broker, ahead_ms), ("clock", broker, 0), *again]


def test_a_clock_that_drifts_is_right_when_the_last_step_is_over() -> None:
    cluster = Cluster()
    played(cluster, *acts(*({"set_clock": {"broker": "A", "ahead_ms": n}} for n in (5, 10, 15))))
    assert cluster.done == [("clock", 0, ms) for ms in (5, 10, 15, 0)]


def test_a_cut_and_a_partition_are_healed() -> None:
    cluster = Cluster()
    cut = {"from": "A", "to": "coordination", "purpose": "coordination", "both": True}
    played(cluster, *acts({"cut": cut}))
    assert cluster.done[-1] == ("heal", 0, "coordination")
    cluster.done.clear()
    mute = {"shape": "mute", "brokers": ["A", "B", "C"], "first": "leader(0)"}
    played(cluster, *acts({"partition": mute}))
    assert [one[:3] for one in cluster.done[:2]] == [("cut", 1, 0), ("cut", 1, 2)]
    assert {frozenset(one[1:]) for one in cluster.done[2:]} == {
        frozenset((0, 1)),
        frozenset((1, 2)),
    }


def test_a_controller_that_is_no_broker_loses_nothing_with_its_power() -> None:
    cluster = Cluster()
    cluster.observer.controller = 100
    nemesis = played(cluster, *acts({"power_off": {"controller": "active"}}))
    assert cluster.done == []
    assert [one.fault for one in nemesis.missed] == ["power-off"]


def test_a_run_that_is_asked_to_stop_begins_no_fault() -> None:
    cluster = Cluster()
    played(cluster, *acts(killed(ALL)), stop=True)
    assert cluster.done == []


def asked(faults: str, system: Any = KAFKA, brokers: int = 3) -> RandomRun:
    names, saved = parse_nemesis(faults, system)
    return RandomRun("append", system, names, 10, 100, seed=1, brokers=brokers, saved=saved)


def test_what_a_system_cannot_do_is_refused_before_it_begins() -> None:
    with pytest.raises(UsageError, match="rounds needs --brokers 3 or more, not 2"):
        check_faults(asked("rounds", KAFKA, brokers=2))
    with pytest.raises(UsageError, match="cut needs --brokers 2"):
        check_faults(asked("cut", KAFKA, brokers=1))
    with pytest.raises(UsageError, match=r"power-off: in kafka:4\.1\.0-combined every"):
        check_faults(asked("power-off", COMBINED))
    assert check_faults(asked("all", KAFKA)).faults[-2:] == ("members", "rounds")
    assert "members" in check_faults(asked("all", OWN)).faults
    assert "power-off" not in check_faults(asked("all", COMBINED)).faults


# --- live ----------------------------------------------------------------------------------------

_KILL = {"kill": {"broker": "old_leader", "in_flight": "discarded"}}
HITS: list[dict[str, Any]] = [
    {"until": "round(follower) >= was(round(follower)) + 2"},
    {
        "hold": {
            "response": "fetch",
            "from": "old_leader",
            "to": "follower",
            "where": "high_watermark > HW(follower)",
        },
        "until": "held(old_leader, follower)",
    },
    {**_KILL, "until": "leader is next_leader"},
]
MISSES: list[dict[str, Any]] = [
    {"hold": {"request": "fetch", "from": "follower", "to": "old_leader"}},
    {"cut": {"from": "old_leader", "to": "next_leader"}},
    {"until": "leader_epoch >= was(leader_epoch) + 9", "within": 0.5},
]


def saved(file: Path, *chains: list[dict[str, Any]]) -> Path:
    schedule = [Act(0.5 + n, 0.0, ({"cast": {}}, *chain)) for n, chain in enumerate(chains)]
    topic = "t", [["A", "B", "C"]]
    command = "neaptide run append --system neaptide:2.1"
    document = saved_schedule.document_of("chains", command, tuple("ABC"), topic, (*schedule,))
    saved_schedule.save(document, file)
    return file


def ran(monkeypatch: pytest.MonkeyPatch, directory: Path, schedule: Path) -> Run:
    monkeypatch.setenv("NEAPTIDE_RUNS", str(directory / "runs"))
    monkeypatch.setenv("NEAPTIDE_STATE", str(directory / "state"))
    one = RandomRun("append", OWN, (), 8, 300, seed=1, partitions=1, saved=schedule)
    return read_run(asyncio.run(run_random(one, lambda *_: None)))


@pytest.mark.live
def test_a_hit_is_a_hit_and_a_miss_is_listed_and_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ran(monkeypatch, tmp_path, saved(tmp_path / "schedule.toml", MISSES, HITS))
    assert run.status == "finished"
    assert run.aimed == 2
    assert [(one.phase, one.fault) for one in run.missed] == [(1, "rounds")]
    assert "leader_epoch" in run.missed[0].why
    assert run.converged is not None
    assert run.converged.level
    assert run.aim is not None
    assert run.aim.hit
    done = [{k: v for k, v in step.items() if k != "at"} for step in run.schedule["step"]]
    assert done == [{"cast": {}}, *MISSES, {"cast": {}}, *HITS]


def test_the_schedule_in_the_record_can_be_played_again(tmp_path: Path) -> None:
    file = saved(tmp_path / "schedule.toml", HITS)
    first = asked(str(file)).schedule()
    document = saved_schedule.load(file).document
    (tmp_path / "run.json").write_text(json.dumps({"schedule": document}), encoding="utf-8")
    again = asked(str(tmp_path))
    assert again.schedule() == first
    assert f"--nemesis {tmp_path}" in again.repeat()


def test_a_file_is_run_with_its_load_and_what_is_said_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEAPTIDE_STATE", str(tmp_path / "state"))
    played: list[RandomRun] = []
    monkeypatch.setattr(cli, "_run_workload", lambda one, *_: played.append(one))
    file = saved(tmp_path / "schedule.toml", HITS)
    result = CliRunner().invoke(cli.app, ["run", str(file), "-s", "neaptide:4.0", "--seed", "7"])
    assert result.exit_code == 0, result.output
    [one] = played
    assert (str(one.system), one.seed, one.partitions, one.saved) == ("neaptide:4.0", 7, 1, file)
    assert one.time_s > 8


def test_who_plays_scenarios_alone_and_the_simulation_refuse_it(tmp_path: Path) -> None:
    scenario = saved_schedule.load(saved(tmp_path / "schedule.toml", []))
    assert not is_simulated(scenario)
    with pytest.raises(UsageError, match=r"`neaptide run x\.toml` plays it"):
        asyncio.run(play(scenario, OWN, 1, "x.toml", lambda _: None))


def test_a_schedule_for_more_brokers_or_partitions_is_refused(tmp_path: Path) -> None:
    file = saved(tmp_path / "schedule.toml", HITS)
    with pytest.raises(UsageError, match="raise --brokers"):
        asked(str(file), brokers=2).schedule()
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace('[["A"', '[["B"], ["A"], ["A"], ["A"], ["A"'), encoding="utf-8")
    with pytest.raises(UsageError, match="raise --partitions"):
        asked(str(file)).schedule()
