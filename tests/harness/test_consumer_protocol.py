"""KIP-848 as applications use it: `group.protocol=consumer`, on our own broker and on a real Kafka.

The same tests for both, through the pytest fixture: nothing may differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from neaptide.clusters.broker.replication.group.committed_offsets import (
    OFFSETS_TOPIC,
    partition_for,
)
from neaptide.clusters.hosts.place import LOCAL
from neaptide.harness.testing.cluster import LiveCluster
from neaptide.harness.testing.lab import Judge, Lab
from tests.live.cluster import DEADLINE_S, until
from tests.live.members import owned, polled
from tests.proof import proof_but

pytestmark = [pytest.mark.live, pytest.mark.needs("maven")]
PARTITIONS = 4
RECORDS = 40
OFFSETS_PARTITIONS = 3
SETTINGS = {
    "offsets.topic.num.partitions": OFFSETS_PARTITIONS,
    "offsets.topic.replication.factor": 3,
    "group.consumer.min.session.timeout.ms": 3_000,
    "group.consumer.session.timeout.ms": 3_000,
    "group.consumer.min.heartbeat.interval.ms": 200,
    "group.consumer.heartbeat.interval.ms": 200,
}
MEMBER = {
    "group.protocol": "consumer",
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "log_level": 0,
}


@pytest.fixture(
    scope="module",
    params=proof_but(["neaptide:4.0", "kafka:4.0.1", "kafka:4.4.0"], "neaptide:4.0"),
)
def own_or_kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveCluster]:
    directory = tmp_path_factory.mktemp("consumer-protocol")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("NEAPTIDE_RUNS", str(directory / "runs"))
        patched.setenv("NEAPTIDE_STATE", str(directory / "state"))
        judge = Judge(lambda run: [])
        lab = Lab(judge, "protocol", request.param, 7, LOCAL)
        try:
            cluster = lab.cluster(topics={"t": PARTITIONS, "tide": 1}, settings=SETTINGS)
            producer = Producer({**cluster.client_settings, "log_level": 0})
            for number in range(RECORDS):
                producer.produce("t", value=str(number), partition=number % PARTITIONS)
            assert producer.flush(DEADLINE_S) == 0
            yield cluster
        finally:
            lab.close(failed=True)
            judge.stop()


Join = Callable[..., Consumer]


@pytest.fixture
def join(own_or_kafka: LiveCluster) -> Iterator[Join]:
    """A member of a group, which leaves with the test."""
    there: list[Consumer] = []

    def member(
        group: str, more: Mapping[str, Any] | None = None, topics: tuple[str, ...] = ("t",)
    ) -> Consumer:
        given = {**own_or_kafka.client_settings, "group.id": group, **MEMBER, **(more or {})}
        there.append(Consumer(given))
        there[-1].subscribe(list(topics))
        return there[-1]

    yield member
    for consumer in there:
        consumer.close()


def shared(*consumers: Consumer) -> bool:
    """Whether all partitions are owned, each by one, and none has two more than another."""
    polled(*consumers)
    each = [owned(consumer) for consumer in consumers]
    sizes = [len(one) for one in each]
    whole = sorted(p for of in each for p in of) == list(range(PARTITIONS))
    return whole and max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_g6_members_share_and_take_over_from_who_leaves(join: Join, assignor: str) -> None:
    more = {"group.remote.assignor": assignor}
    x, y, z = (join(f"shared-{assignor}", more) for _ in range(3))
    until(lambda: shared(x, y, z), "all have partitions")
    before = {one: owned(one) for one in (x, y)}
    z.close()
    until(lambda: shared(x, y), "z's are with x and y")
    if assignor == "uniform":  # nobody gives up what it may keep
        assert all(of <= owned(one) or len(of) > 2 for one, of in before.items())


def test_g6_a_member_that_dies_is_missed_after_its_session(join: Join) -> None:
    """It is only silent: it polls no more, as a process that hangs."""
    x, y = join("dies"), join("dies", {"max.poll.interval.ms": 6_000})
    until(lambda: shared(x, y), "both have partitions")
    until(lambda: shared(x), "x has all of them")


def test_g6_members_and_their_commits_outlive_their_coordinator(
    own_or_kafka: LiveCluster, join: Join
) -> None:
    x = join("outlives")
    seen: set[int] = set()

    def has_seen_all() -> bool:
        seen.update(*polled(x))
        return len(seen) == RECORDS

    until(has_seen_all, "all records")
    x.commit(asynchronous=False)
    admin = AdminClient({**own_or_kafka.client_settings, "log_level": 0})
    internal = admin.list_topics(OFFSETS_TOPIC, timeout=DEADLINE_S).topics[OFFSETS_TOPIC]
    at = partition_for("outlives", OFFSETS_PARTITIONS).partition
    coordinator = "ABC"[internal.partitions[at].leader]
    own_or_kafka.kill(coordinator)
    try:

        def committed() -> bool:
            found = x.committed([TopicPartition("t", p) for p in range(PARTITIONS)], DEADLINE_S)
            return [one.offset for one in found] == [RECORDS // PARTITIONS] * PARTITIONS

        until(committed, "the new coordinator knows the commits")
        y = join("outlives")
        until(lambda: shared(x, y), "both have partitions")
        assert polled(x, y) == [[], []]  # they go on where the group was
    finally:
        own_or_kafka.restart(coordinator)


def test_kip_345_a_static_member_that_starts_again_keeps_its_partitions(join: Join) -> None:
    x = join("static", {"group.instance.id": "x"})
    y = join("static", {"group.instance.id": "y"})
    until(lambda: shared(x, y), "both have partitions")
    mine = owned(y)
    y.close()
    again = join("static", {"group.instance.id": "y"})
    until(lambda: bool(polled(again, x)) and owned(again) == mine, "y has what it had")
    assert owned(x) | mine == set(range(PARTITIONS))


def test_g6_a_pattern_is_matched_by_the_coordinator(join: Join) -> None:
    x = join("pattern", topics=("^ti.*",))

    def is_assigned() -> bool:
        polled(x)
        return [one.topic for one in x.assignment()] == ["tide"]

    until(is_assigned, "the one topic that matches")


def test_g6_operators_see_and_delete_groups(own_or_kafka: LiveCluster, join: Join) -> None:
    admin = AdminClient({**own_or_kafka.client_settings, "log_level": 0})
    x, y = join("seen"), join("also-seen")
    until(lambda: shared(x) and shared(y), "each has all of them")
    x.commit(offsets=[TopicPartition("t", 0, 3)], asynchronous=False)
    answered = admin.list_consumer_groups().result()
    assert answered.errors == []  # each broker has answered
    listed = {one.group_id: one for one in answered.valid}
    assert {listed[name].type.name for name in ("seen", "also-seen")} == {"CONSUMER"}
    described = admin.describe_consumer_groups(["seen"])["seen"].result()
    assert (described.state.name, described.partition_assignor) == ("STABLE", "uniform")
    [one] = described.members
    assert {place.partition for place in one.assignment.topic_partitions} == set(range(PARTITIONS))
    with pytest.raises(Exception, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups(["seen"])["seen"].result()
    x.close()
    until(
        lambda: admin.describe_consumer_groups(["seen"])["seen"].result().state.name == "EMPTY",
        "x has left",
    )
    asked = [ConsumerGroupTopicPartitions("seen", [TopicPartition("t", 0)])]
    [found] = admin.list_consumer_group_offsets(asked)["seen"].result().topic_partitions
    assert found.offset == 3
    admin.delete_consumer_groups(["seen"])["seen"].result()
    assert "seen" not in {g.group_id for g in admin.list_consumer_groups().result().valid}


def test_g6_a_group_changes_its_protocol_when_nobody_is_in_it(join: Join) -> None:
    x = join("changes")
    until(lambda: shared(x), "x has all of them")
    x.commit(offsets=[TopicPartition("t", 0, 3)], asynchronous=False)
    x.close()
    classic = join("changes", {"group.protocol": "classic"})
    until(lambda: shared(classic), "the classic member has all of them")
    [position] = classic.committed([TopicPartition("t", 0)], DEADLINE_S)
    assert position.offset == 3
    classic.close()
    again = join("changes")
    until(lambda: shared(again), "the next has all of them")


def test_g6_a_group_has_settings_of_its_own(own_or_kafka: LiveCluster, join: Join) -> None:
    admin = AdminClient({**own_or_kafka.client_settings, "log_level": 0})

    def alter(**settings: str) -> None:
        entries = [
            ConfigEntry(
                f"consumer.{name.replace('_', '.')}",
                value,
                incremental_operation=AlterConfigOpType.SET,
            )
            for name, value in settings.items()
        ]
        group = ConfigResource.Type.GROUP
        resource = ConfigResource(group, "own-settings", incremental_configs=entries)
        asked = admin.incremental_alter_configs([resource])  # kept until it is answered
        asked[resource].result()

    def described() -> dict[str, str]:
        resource = ConfigResource(ConfigResource.Type.GROUP, "own-settings")
        asked = admin.describe_configs([resource])
        found = asked[resource].result()
        names = "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"
        return {name: found[name].value for name in names}

    assert described() == {
        "consumer.heartbeat.interval.ms": "200",
        "consumer.session.timeout.ms": "3000",
    }
    alter(heartbeat_interval_ms="700")
    until(lambda: described()["consumer.heartbeat.interval.ms"] == "700", "it is known")
    assert described()["consumer.session.timeout.ms"] == "3000"
    for wrong in (
        {"heartbeat_interval_ms": "199"},  # the least that brokers allow is 200
        {"session_timeout_ms": "60001"},
        {"heartbeat_interval_ms": "3000"},  # no less than the session
        {"heartbeat_interval_ms": "soon"},
        {"unknown": "1"},
    ):
        with pytest.raises(KafkaException, match="INVALID_CONFIG"):
            alter(**wrong)
    x = join("own-settings")
    until(lambda: shared(x), "x has all of them")


# librdkafka's cooperative-sticky adds data of its own to assignments, now and then: then a group
# does not change its protocol.
@pytest.mark.parametrize("assignor", proof_but(["range", "roundrobin"], "range"))
def test_g6_members_change_the_protocol_one_by_one_and_change_it_back(
    join: Join, assignor: str
) -> None:
    """As an application that is started anew, member by member, with another setting."""
    name = f"moves-{assignor}"
    classic = {
        "group.protocol": "classic",
        "partition.assignment.strategy": assignor,
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 300,
    }
    members = [join(name, classic) for _ in range(2)]
    until(lambda: shared(*members), "the classic members share")
    members[0].commit(offsets=[TopicPartition("t", 0, 3)], asynchronous=False)
    for more in ({}, classic):
        for at in range(2):
            members.append(join(name, more))
            until(lambda: shared(*members), f"the three share ({at}, {more})")
            members.pop(0).close()
            until(lambda: shared(*members), f"the two share ({at}, {more})")
            [position] = members[-1].committed([TopicPartition("t", 0)], DEADLINE_S)
            assert position.offset == 3
