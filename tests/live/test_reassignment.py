"""C5: partitions are reassigned by znode, by ours and by Apache Kafka; and in a cluster of ours."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.live.alone import REAL, Alone
from tests.live.clients import librdkafka_consume, librdkafka_produce
from tests.live.cluster import BROKERS, LiveCluster, until
from tests.live.conftest import SETTINGS
from tests.live.led import REASSIGN, await_assigned, await_over, reassign
from tests.proof import proof_but

pytestmark = pytest.mark.live
UNFENCED = ("0.8", "0.10")


def test_c5_a_new_replica_counts_when_it_is_in_sync_and_then_the_old_one_is_deleted(
    alone: Alone, topic_name: str
) -> None:
    topic = alone.create_topic(topic_name, [[REAL]])
    alone.append(topic, 3)
    before = alone.state(topic)
    new = alone.phantom()
    reassign(alone, topic, new.broker)

    def is_assigned_too() -> bool:
        partitions = alone.znode(f"/brokers/topics/{topic}")["partitions"]
        return sorted(partitions["0"]) == sorted([REAL, new.broker])

    until(is_assigned_too, "both are assigned")
    until(lambda: alone.state(topic)["leader_epoch"] > before["leader_epoch"], "a new epoch")
    assert alone.isr(topic) == [REAL]
    assert alone.state(topic)["leader"] == REAL
    log = alone.log_directory(REAL) / f"{topic}-0"
    assert log.is_dir()

    def leads() -> bool:
        alone.fetch(new.broker, topic, 3)  # it has all that there is
        return bool(alone.state(topic)["leader"] == new.broker)

    until(leads, "the new replica leads")
    await_assigned(alone, topic, new.broker)
    until(lambda: not log.exists(), "the log is deleted, or renamed at least")


def test_c5_a_replica_that_only_goes_and_one_that_only_moves_in_the_order(
    alone: Alone, topic_name: str
) -> None:
    other = alone.phantom()
    topic = alone.create_topic(topic_name, [[other.broker, REAL]])
    reassign(alone, topic, REAL, other.broker)
    await_assigned(alone, topic, REAL, other.broker)
    assert alone.state(topic)["leader"] == other.broker  # it stays: it is one of them
    reassign(alone, topic, REAL)
    await_assigned(alone, topic, REAL)
    assert alone.state(topic)["leader"] == REAL


# --- a cluster of ours ---------------------------------------------------------------------------


@pytest.fixture(scope="module", params=proof_but(["0.8", "0.10", "2.1", "2.8", "4.0"], "2.1"))
def three(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveCluster]:
    directory = tmp_path_factory.mktemp("three")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("NEAPTIDE_STATE", str(directory / "state"))
        cluster = LiveCluster(directory, SETTINGS, request.param)
        yield cluster
        cluster.close()


def ask_again_until_over(cluster: LiveCluster, topic: str, *replicas: int) -> None:
    """As an operator does: a controller that has been deposed and does not know it yet can delete
    what was asked for meanwhile, where nothing fences its writes (KAFKA-6082)."""

    def is_over() -> bool:
        if cluster.znode(f"/brokers/topics/{topic}")["partitions"]["0"] == list(replicas):
            return True
        if not cluster.zookeeper.exists(REASSIGN):
            reassign(cluster, topic, *replicas)
        return False

    until(is_over, f"{topic} is of {replicas}, asked for again and again")


def holders(cluster: LiveCluster, topic: str) -> set[int]:
    return {broker for broker in BROKERS if (cluster.log_directory(broker) / f"{topic}-0").is_dir()}


def test_c5_a_partition_goes_round_the_cluster_and_keeps_all_its_records(
    three: LiveCluster, topic_name: str
) -> None:
    """Each broker has it, gives it away, and gets it again; the controller changes meanwhile.

    A controller that is deposed sends no more of what it had to send: then a log may be left. And
    what is written to a leader that does not know yet that it leads no more is sent again, although
    the next one may have it.
    """
    topic = three.create_topic(topic_name, [[0, 1]])
    sent: list[bytes] = []
    for round_, replicas in enumerate([(1, 2), (2, 0), (0, 1), (2,), (1, 0, 2), (0, 1)]):
        sent.append(b"%d" % round_)
        librdkafka_produce(three.bootstrap, topic, sent[-1:], -1, "none")
        reassign(three, topic, *replicas)
        if round_ % 2:
            three.zookeeper.delete("/controller")
        if three.generation in UNFENCED:
            ask_again_until_over(three, topic, *replicas)
        await_assigned(three, topic, *replicas)
        if round_ % 2 == 0:
            until(lambda r=replicas: holders(three, topic) == set(r), "who gave it away has no log")  # type: ignore[misc]
    assert librdkafka_consume(three.bootstrap, topic, len(sent), drop_repeats=True) == sent


def test_c5_a_broker_that_was_dead_takes_up_its_replica_when_it_is_back(
    three: LiveCluster, topic_name: str
) -> None:
    """The controller stays, and has seen the broker go before it comes back.

    In 0.8 a new controller gives up a reassignment to a broker that is dead; and up to 2.1 the
    controller compares ids only: who has gone and come between two looks is sent nothing
    (KAFKA-1120).
    """
    controller = until(three.controller, "a controller")
    source, target = [broker for broker in BROKERS if broker != controller]
    topic = three.create_topic(topic_name, [[controller, source]])
    librdkafka_produce(three.bootstrap, topic, [b"m"], -1, "none")
    reassign(three, topic, controller, target)
    path = f"/brokers/topics/{topic}"  # a broker that is dead before it begins is refused in 0.8
    until(lambda: target in three.znode(path)["partitions"]["0"], "the reassignment has begun")
    three.kill(target)
    until(lambda: f"gone [{target}]" in three.log(controller), "the controller has seen it go")
    three.restart(target)
    await_over(three, topic, controller, target)
    three.await_isr(topic, [controller, target])  # it may have died after it was over
    three.kill(controller)
    assert three.await_leader(topic, other_than=controller) == target
    assert librdkafka_consume(three.bootstrap, topic, 1) == [b"m"]
    three.restart(controller)
    three.await_isr(topic, [controller, target])
