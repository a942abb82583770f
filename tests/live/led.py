"""Topics of the broker that is alone: who leads them, and how far they are."""

from __future__ import annotations

import json

from kazoo.exceptions import NodeExistsError

from tests.live.alone import REAL, Alone
from tests.live.cluster import LiveCluster, until
from tests.live.phantom import Phantom, Question
from tests.live.struct_messages import (
    Place,
)


def checkpoint(text: str) -> list[list[str]]:
    """The entries of one of Kafka's checkpoint files: version, count, a line each."""
    if not text:  # Apache Kafka makes the file before it writes it
        return []
    version, count, *lines = text.splitlines()
    assert version == "0"
    assert int(count) == len(lines)
    return [line.split(" ") for line in lines]


def led_alone(alone: Alone, topic: str, unclean: str) -> Phantom:
    """A phantom is leader and the only member of the ISR, as it would write that."""
    leader = alone.phantom()
    settings = {"unclean.leader.election.enable": unclean}
    alone.create_topic(topic, [[leader.broker, REAL]], settings)
    state = {**alone.state(topic), "isr": [leader.broker]}
    path = f"/brokers/topics/{topic}/partitions/0/state"
    alone.zookeeper.set(path, json.dumps(state).encode())
    return leader


def led_by_the_second(alone: Alone, topic: str) -> Phantom:
    """The preferred leader, a phantom, was dead and is in sync again; the broker leads."""
    preferred = alone.phantom()
    alone.create_topic(topic, [[preferred.broker, REAL]])
    preferred.leave()
    until(lambda: alone.state(topic)["leader"] == REAL, "the broker leads")
    until(lambda: alone.isr(topic) == [REAL], "it is alone in the ISR")
    back = alone.phantom(again=preferred.broker)

    def is_in_sync() -> bool:
        alone.fetch(back.broker, topic, 0)
        return alone.isr(topic) == sorted([REAL, back.broker])

    until(is_in_sync, "the phantom is in the ISR")
    return back


def asked_from(question: Question, place: Place) -> int:
    return int(question.body.partitions[place].offset)


def followed(
    alone: Alone, name: str, *more: Phantom, unclean: str = "false"
) -> tuple[Phantom, Place]:
    """A phantom leads, and `more` of them would be next; the broker is the last of all."""
    leader = alone.phantom()
    replicas = [leader.broker, *(each.broker for each in more), REAL]
    settings = {"unclean.leader.election.enable": unclean}
    alone.create_topic(name, [replicas], settings)
    return leader, (name, 0)


REASSIGN = "/admin/reassign_partitions"


def reassign(cluster: LiveCluster, topic: str, *replicas: int) -> None:
    named = [{"topic": topic, "partition": 0, "replicas": list(replicas)}]
    content = json.dumps({"version": 1, "partitions": named}).encode()

    def is_asked() -> bool:
        """Not before an earlier one is over."""
        try:
            cluster.zookeeper.create(REASSIGN, content)
        except NodeExistsError:
            return False
        return True

    until(is_asked, "no other reassignment goes on")


def await_over(cluster: LiveCluster, topic: str, *replicas: int) -> None:
    def is_over() -> bool:
        content = cluster.znode(f"/brokers/topics/{topic}")
        moving = content.get("adding_replicas") or content.get("removing_replicas")
        return content["partitions"]["0"] == list(replicas) and not moving

    until(is_over, f"{topic} is of {replicas}")
    until(lambda: not cluster.zookeeper.exists(REASSIGN), "the znode is gone")


def await_assigned(cluster: LiveCluster, topic: str, *replicas: int) -> None:
    await_over(cluster, topic, *replicas)
    assert sorted(cluster.state(topic)["isr"]) == sorted(replicas)
    assert cluster.state(topic)["leader"] in replicas
