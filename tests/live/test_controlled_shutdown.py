"""C5: controlled shutdown: what a controller does for a broker that stops, and such a broker."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.live.alone import REAL, Alone
from tests.live.clients import librdkafka_consume, librdkafka_produce
from tests.live.cluster import BROKERS, LiveCluster, until
from tests.live.conftest import SETTINGS
from tests.live.led import led_alone
from tests.proof import proof_but

pytestmark = pytest.mark.live
CONTROLLED_SHUTDOWN = 7
NONE, BROKER_NOT_AVAILABLE = 0, 8
STOPS = {"controlled.shutdown.enable": "true", "controlled.shutdown.retry.backoff.ms": "200"}


class Relieved(NamedTuple):
    error: int
    remaining: set[str]


def stops(alone: Alone, broker: int) -> Relieved:
    """A broker that is none asks for it, in v1; it does not stop, so that all can be seen."""
    answer = alone.ask(CONTROLLED_SHUTDOWN, 1, struct.pack(">i", broker))
    error = answer.int16()
    remaining = set()
    for _ in range(answer.int32()):
        remaining.add(answer.text())
        answer.int32()
    return Relieved(error, remaining)


def test_c5_another_leads_what_a_stopping_broker_led_and_its_isr_is_without_it(
    alone: Alone, topic_name: str
) -> None:
    stopping = alone.phantom()
    led = alone.create_topic(f"{topic_name}-led", [[stopping.broker, REAL]])
    followed = alone.create_topic(f"{topic_name}-followed", [[REAL, stopping.broker]])
    before = alone.state(led)
    assert before["leader"] == stopping.broker
    assert alone.isr(followed) == sorted([REAL, stopping.broker])
    assert stops(alone, stopping.broker) == Relieved(NONE, set())
    after = alone.state(led)
    assert (after["leader"], after["isr"]) == (REAL, [REAL])
    assert after["leader_epoch"] == before["leader_epoch"] + 1
    assert alone.isr(followed) == [REAL]
    assert alone.zookeeper.exists(f"/brokers/ids/{stopping.broker}")  # it has not gone yet


def test_c5_what_nobody_else_in_sync_could_lead_remains_until_somebody_can(
    alone: Alone, topic_name: str
) -> None:
    stopping = led_alone(alone, topic_name, "false")
    assert stops(alone, stopping.broker) == Relieved(NONE, {topic_name})
    state = {**alone.state(topic_name), "isr": [stopping.broker, REAL]}
    path = f"/brokers/topics/{topic_name}/partitions/0/state"
    alone.zookeeper.set(path, json.dumps(state).encode())
    assert stops(alone, stopping.broker) == Relieved(NONE, set())
    assert (alone.state(topic_name)["leader"], alone.isr(topic_name)) == (REAL, [REAL])


def test_c5_a_broker_that_is_not_there_is_not_relieved(alone: Alone) -> None:
    assert stops(alone, 999).error == BROKER_NOT_AVAILABLE


# --- a broker that stops -------------------------------------------------------------------------


@pytest.fixture(scope="module", params=proof_but(["0.8", "0.10", "2.1", "2.8", "4.0"], "2.1"))
def stoppable(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveCluster]:
    directory = tmp_path_factory.mktemp("stoppable")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("NEAPTIDE_STATE", str(directory / "state"))
        cluster = LiveCluster(directory, {**SETTINGS, **STOPS}, request.param)
        yield cluster
        cluster.close()


def stop(cluster: LiveCluster, broker: int) -> None:
    """SIGTERM, and its end."""
    cluster.do(cluster.brokers.stop(broker))
    until(lambda: not cluster.zookeeper.exists(f"/brokers/ids/{broker}"), "its session is over")


def test_c5_a_broker_that_stops_is_relieved_before_it_ends(
    stoppable: LiveCluster, topic_name: str
) -> None:
    """One after the other, the controller too; two of three in sync are enough all the time."""
    topic = stoppable.create_topic(topic_name, [BROKERS], {"min.insync.replicas": "2"})
    sent = [b"first"]
    librdkafka_produce(stoppable.bootstrap, topic, sent, -1, "none")
    for broker in BROKERS:
        stop(stoppable, broker)
        assert "leads nothing any more" in stoppable.log(broker)
        assert stoppable.state(topic)["leader"] != broker
        until(lambda b=broker: b not in stoppable.state(topic)["isr"], "it is in no ISR")  # type: ignore[misc]
        sent.append(b"without %d" % broker)
        librdkafka_produce(stoppable.bootstrap, topic, sent[-1:], -1, "none")
        stoppable.restart(broker)
        stoppable.await_isr(topic, BROKERS)
    assert librdkafka_consume(stoppable.bootstrap, topic, len(sent)) == sent


def test_c5_a_broker_that_nobody_can_replace_ends_all_the_same(
    stoppable: LiveCluster, topic_name: str
) -> None:
    """After controlled.shutdown.max.retries attempts; when it is back it leads again."""
    clean = {"unclean.leader.election.enable": "false"}
    topic = stoppable.create_topic(topic_name, [[0, 1]], clean)
    stoppable.kill(1)
    stoppable.await_isr(topic, [0])
    librdkafka_produce(stoppable.bootstrap, topic, [b"on 0 alone"], -1, "none")
    stop(stoppable, 0)
    assert "no attempt at it has succeeded" in stoppable.log(0)
    stoppable.restart(1)
    assert stoppable.state(topic)["leader"] == -1
    stoppable.restart(0)
    stoppable.await_isr(topic, [0, 1])
    assert librdkafka_consume(stoppable.bootstrap, topic, 1) == [b"on 0 alone"]
