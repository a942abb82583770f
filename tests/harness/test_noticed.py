"""What is an incident, and what is a fault's doing; it is said when it is seen."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from neaptide.clusters.cluster import ClusterSpec, TopicSpec
from neaptide.harness.live import stage as stages
from neaptide.harness.live.account import Account
from neaptide.harness.live.stage import Stage
from neaptide.harness.scenarios.systems import parse_systems
from neaptide.results.run import Incident

[SYSTEM] = parse_systems(["neaptide:2.1"])
SPEC = ClusterSpec((0, 1), {}, TopicSpec("t", {0: (0, 1)}, {}))
STANDS = Incident("process", "Broker 1 stands still: somebody sent it a SIGSTOP.")


@pytest.mark.parametrize(
    ("stopped", "by_fault", "incident"),
    [
        ({1}, "", STANDS),
        ({1}, "paused", None),
        ({1}, "severed", None),
        (set(), "", None),
        ({7}, "", None),  # it was never started
    ],
)
def test_a_broker_that_no_fault_has_paused_is_named_at_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stopped: set[int],
    by_fault: str,
    incident: Incident | None,
) -> None:
    monkeypatch.setenv("NEAPTIDE_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(stages, "_STANDS_STILL_S", 0.0)
    said: list[Incident] = []
    stage = Stage(tmp_path, SYSTEM, SPEC, account=Account(on_incident=said.append))
    try:
        monkeypatch.setattr(stage.cluster, "is_up", lambda _: True)
        monkeypatch.setattr(stage.cluster, "is_stopped", lambda broker: broker in stopped)
        stage._started = {0, 1}
        if by_fault:
            getattr(stage, by_fault).add(1)
        assert stage.find_incident() == incident
        assert stage.find_incident() == incident
        assert said == ([] if incident is None else [incident])  # once
    finally:
        stage.host.close_now()


def test_what_has_just_gone_on_again_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is seen stopped for a moment after a fault has let it go on."""
    monkeypatch.setenv("NEAPTIDE_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(stages, "_STANDS_STILL_S", 3_600.0)
    stage = Stage(tmp_path, SYSTEM, SPEC)
    try:
        monkeypatch.setattr(stage.cluster, "is_up", lambda _: True)
        monkeypatch.setattr(stage.cluster, "is_stopped", lambda _: True)
        stage._started = {0, 1}
        assert stage.find_incident() is None
        monkeypatch.setattr(stage.cluster, "is_stopped", lambda _: False)
        assert stage.find_incident() is None
        monkeypatch.setattr(stages, "_STANDS_STILL_S", 0.0)
        assert stage.find_incident() is None  # nothing is left of the former look
    finally:
        stage.host.close_now()


@pytest.mark.parametrize("looks", [[{}, {0: "a"}, {0: "a", 1: "b"}], [{0: "a", 1: "b"}]])
def test_no_topic_is_created_before_the_controller_knows_of_all_brokers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks: list[dict[int, str]]
) -> None:
    """Of those that it does not know of it would make no leaders."""
    monkeypatch.setenv("NEAPTIDE_STATE", str(tmp_path / "state"))
    left = list(looks)
    monkeypatch.setattr(stages, "advertised_at", lambda *_: left.pop(0))
    stage = Stage(tmp_path, SYSTEM, SPEC)
    try:
        monkeypatch.setattr(stage, "client_address", lambda _: "127.0.0.1:1")
        asyncio.run(stage._until_controller_knows(0, frozenset({0, 1})))
        assert left == []
    finally:
        stage.host.close_now()


def test_a_controller_that_never_knows_of_a_broker_ends_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEAPTIDE_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(stages, "_START_WITHIN_S", 0.0)
    monkeypatch.setattr(stages, "advertised_at", lambda *_: {0: "a"})
    stage = Stage(tmp_path, SYSTEM, SPEC)
    try:
        monkeypatch.setattr(stage, "client_address", lambda _: "127.0.0.1:1")
        with pytest.raises(TimeoutError, match="does not know of all brokers"):
            asyncio.run(stage._until_controller_knows(0, frozenset({0, 1})))
    finally:
        stage.host.close_now()
