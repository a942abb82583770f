"""One cluster for the tests of this folder, whole again before each; one more for what ends it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from tests.live.alone import ALWAYS, NEWER, SYSTEMS, Alone, System
from tests.live.cluster import BROKERS, LiveCluster

SETTINGS = {
    "auto.create.topics.enable": "false",
    "replica.high.watermark.checkpoint.interval.ms": "200",
    "replica.fetch.backoff.ms": "100",
    "replica.fetch.wait.max.ms": "100",
    "socket.request.max.bytes": "2000000",
    "zookeeper.session.timeout.ms": "20000",
}


@pytest.fixture(scope="package")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    directory = tmp_path_factory.mktemp("cluster")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("NEAPTIDE_STATE", str(directory / "state"))
        cluster = LiveCluster(directory, SETTINGS)
        yield cluster
        cluster.close()


@pytest.fixture
def cluster(running: LiveCluster) -> LiveCluster:
    """All brokers are up, whatever the test before has done to them."""
    for broker in BROKERS:
        if not running.brokers.is_up(broker):
            running.restart(broker)
    return running


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    return "".join(c if c.isalnum() else "-" for c in request.node.name)[:200]


# --- one broker, of our own or of Apache Kafka's -------------------------------------------------

LAG_TIME_MS = 30_000  # nobody leaves the ISR because a test is slow


def each_of(systems: Sequence[System]) -> list[Any]:
    """The parameters of a fixture; what is missing here leaves out Apache Kafka's."""
    return [
        pytest.param(
            each,
            id=each.name,
            marks=(
                pytest.mark.needs(*(() if each.kafka is None else ("maven",))),
                *(() if each.name in ALWAYS else (pytest.mark.proof,)),
            ),
        )
        for each in systems
    ]


@contextmanager
def started(system: System, factory: pytest.TempPathFactory) -> Iterator[Alone]:
    directory = factory.mktemp("alone")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("NEAPTIDE_STATE", str(directory / "state"))
        cluster = Alone(directory, system, {"replica.lag.time.max.ms": str(LAG_TIME_MS)})
        yield cluster
        cluster.close()


Kept = Callable[[System], Alone]


@pytest.fixture(scope="package")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    """Starts a broker for the first test that asks for its system, and ends it after the last of
    this folder: whoever uses it leaves no phantom behind."""
    with ExitStack() as running:
        found: dict[System, Alone] = {}

        def of(system: System) -> Alone:
            if system not in found:
                found[system] = running.enter_context(started(system, tmp_path_factory))
            return found[system]

        yield of


@pytest.fixture(scope="package", params=each_of(SYSTEMS))
def only_one(request: pytest.FixtureRequest, kept: Kept) -> Alone:
    return kept(request.param)


@pytest.fixture
def alone(only_one: Alone) -> Iterator[Alone]:
    yield only_one
    only_one.end_phantoms()


@pytest.fixture(scope="module", params=each_of(NEWER))
def newer(request: pytest.FixtureRequest, kept: Kept) -> Alone:
    """Of the age in which operators ask by the admin API."""
    return kept(request.param)
