"""What an application may send: null values, one value twice, bytes that are no text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from neaptide.clusters.hosts.place import LOCAL
from neaptide.harness.testing.cluster import LiveCluster
from neaptide.harness.testing.lab import Judge, Lab
from tests.proof import proof_but

pytestmark = [pytest.mark.live, pytest.mark.spark]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setenv("NEAPTIDE_RUNS", str(tmp_path))
    judge = Judge(lambda run: [])
    made = Lab(judge, "test", "neaptide:2.1", 7, LOCAL)
    yield made
    made.close(failed=True)
    judge.stop()


def produce(cluster: LiveCluster, acks: str, *records: tuple[Any, Any]) -> None:
    producer = cluster.producer({"acks": acks})
    for key, value in records:
        producer.produce("t", value=value, key=key)
    assert producer.flush(60) == 0


@pytest.mark.parametrize("system", proof_but(["neaptide:2.1", "kafka:3.9.1"], "neaptide:2.1"))
def test_an_application_sends_what_it_likes(lab: Lab, system: str) -> None:
    cluster = lab.cluster(system)
    records = [(None, None), ("k", None), ("k", None), ("a", "paid"), ("b", "paid"), (None, "")]
    produce(cluster, "all", *records, (None, b"\xff"), (None, rb"\xff"), (b"\xff", "hex:ff"))
    checked = lab.check(cluster)
    assert (checked.verdict, checked.anomalies, checked.reasons) == ("valid", {}, ())


def test_each_of_them_is_missed_when_it_is_lost(lab: Lab) -> None:
    cluster = lab.cluster()
    produce(cluster, "all", ("a", "paid"), ("k", None))
    for follower in ("B", "C"):
        cluster.wait_until(lambda follower=follower: cluster.log_end_offset(follower) == 2)  # type: ignore[misc]
    for follower in ("B", "C"):
        cluster.hold("A", follower)
        cluster.wait_until(lambda follower=follower: cluster.is_held("A", follower))  # type: ignore[misc]
    produce(cluster, "1", ("b", "paid"), ("k", None), (None, b"\xff"))
    cluster.kill("A")
    cluster.wait_until(lambda: cluster.leader() in ("B", "C"))
    produce(cluster, "all", (None, rb"\xff"))
    checked = lab.check(cluster)
    assert (checked.verdict, checked.outcome) == ("anomalous", "lost")
    lost = checked.anomalies.get("lost-write", 0) + checked.anomalies.get("unseen", 0)
    assert lost == 3
    assert not {"duplicate", "phantom"} & {*checked.anomalies}


@pytest.mark.parametrize("is_said", proof_but([True, False]))
def test_what_an_application_deletes_is_not_lost_if_it_says_so(lab: Lab, is_said: bool) -> None:
    cluster = lab.cluster(system="kafka:3.9.1")
    produce(cluster, "all", *((None, f"v{n}") for n in range(5)))
    admin = AdminClient({**cluster.client_settings})
    for deleted in admin.delete_records([TopicPartition("t", 0, 3)]).values():
        deleted.result(60)
    if is_said:
        cluster.deleted_records("t", 0, 3)
    checked = lab.check(cluster)
    assert checked.verdict == ("valid" if is_said else "anomalous"), checked.reasons
    assert checked.anomalies.get("lost-write", 0) == (0 if is_said else 3)
