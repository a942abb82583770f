"""A broker that leads, ours and Apache Kafka's: its followers are the test's.

Each test is of one partition with the replicas 0, which leads and is a broker, and phantoms: they
fetch when the test does, and are in the ISR from the beginning.
"""

from __future__ import annotations

import pytest

from tests.live.alone import CONSUMER, REAL, Alone
from tests.live.cluster import until
from tests.live.struct_messages import (
    EARLIEST,
    FETCH,
    LATEST,
    NONE,
    NOT_LEADER,
    OUT_OF_RANGE,
    UNKNOWN_EPOCH,
    UNKNOWN_ERROR,
    Asked,
    Fetch,
    read_fetched,
)

pytestmark = pytest.mark.live


def led(alone: Alone, name: str, followers: int = 1, **settings: str) -> tuple[str, list[int]]:
    """A topic that the broker leads, and phantoms that follow it, all in its ISR."""
    phantoms = [alone.phantom().broker for _ in range(followers)]
    named = {key.replace("_", "."): value for key, value in settings.items()}
    topic = alone.create_topic(name, [[REAL, *phantoms]], named)
    assert alone.isr(topic) == [REAL, *phantoms]
    return topic, phantoms


def high_watermark(alone: Alone, topic: str) -> int:
    return alone.fetch(CONSUMER, topic, 0).high_watermark


# --- log end offset and high watermark -----------------------------------------------------------


def test_r1_f7_a_consumer_reads_to_the_high_watermark_and_a_follower_to_the_log_end(
    alone: Alone, topic_name: str
) -> None:
    topic, [follower] = led(alone, topic_name)
    alone.append(topic, 10)
    assert alone.fetch(follower, topic, 0).offsets == list(range(10))
    alone.fetch(follower, topic, 4)
    seen = alone.fetch(CONSUMER, topic, 0)
    assert (seen.high_watermark, seen.offsets) == (4, [0, 1, 2, 3])
    assert alone.list_offset(topic, LATEST) == 4
    alone.fetch(follower, topic, 10)
    assert alone.fetch(CONSUMER, topic, 0).offsets == list(range(10))


def test_r2_r3_the_high_watermark_is_the_least_that_a_member_of_the_isr_has_asked_for(
    alone: Alone, topic_name: str
) -> None:
    """min(15, 3, 4) is 3, and only a fetch of the one with 3 moves it."""
    topic, [first, second] = led(alone, topic_name, 2)
    alone.append(topic, 15)
    assert high_watermark(alone, topic) == 0
    alone.fetch(first, topic, 3)
    assert high_watermark(alone, topic) == 0
    alone.fetch(second, topic, 4)
    assert high_watermark(alone, topic) == 3
    alone.fetch(second, topic, 9)
    assert high_watermark(alone, topic) == 3
    alone.fetch(first, topic, 6)
    assert high_watermark(alone, topic) == 6
    alone.fetch(first, topic, 2)  # a follower that lost its log: what is committed stays so
    assert high_watermark(alone, topic) == 6


def test_r4_f1_the_follower_learns_the_high_watermark_one_round_after_the_leader(
    alone: Alone, topic_name: str
) -> None:
    topic, [follower] = led(alone, topic_name)
    sent = alone.send(topic, b"m")
    first = until(
        lambda: (lambda answer: answer if answer.offsets else None)(
            alone.fetch(follower, topic, 0)
        ),
        "the record is in the leader's log",
    )
    assert (first.offsets, first.high_watermark) == ([0], 0)
    assert (high_watermark(alone, topic), sent.answer) == (0, None)
    alone.fetch(follower, topic, 1)
    assert sent.await_answer() == "acked"
    assert high_watermark(alone, topic) == 1
    assert alone.fetch(follower, topic, 1).high_watermark == 1


def test_r7_i8_an_isr_that_shrinks_to_its_leader_commits_all_and_completes_what_waits(
    alone: Alone, topic_name: str
) -> None:
    phantom = alone.phantom()
    topic = alone.create_topic(topic_name, [[REAL, phantom.broker]])
    sent = alone.send(topic, b"m")
    until(lambda: alone.fetch(phantom.broker, topic, 0).offsets == [0], "it is appended")
    assert (high_watermark(alone, topic), sent.answer) == (0, None)
    phantom.leave()
    assert sent.await_answer() == "acked"
    assert high_watermark(alone, topic) == 1
    [partition] = alone.admin.list_topics(topic, timeout=20).topics[topic].partitions.values()
    assert (partition.leader, partition.isrs) == (REAL, [REAL])
    assert partition.replicas == [REAL, phantom.broker]  # AR = ISR and the one that left


# --- what a fetch is answered --------------------------------------------------------------------


def test_f4_only_the_first_batch_of_an_answer_may_be_larger_than_the_limit(
    alone: Alone, topic_name: str
) -> None:
    topic = alone.create_topic(topic_name, [[REAL], [REAL]])
    for partition in (0, 1):
        for _ in range(2):
            alone.produce(topic, partition, b"x" * 1_000)
    asked = {(topic, number): Asked(0, max_bytes=100) for number in (0, 1)}
    one, other = alone.fetch_all(Fetch(CONSUMER, asked)).values()
    assert one.offsets == [0]
    assert other.offsets == []
    asked = {(topic, number): Asked(0) for number in (0, 1)}
    one, other = alone.fetch_all(Fetch(CONSUMER, asked, max_bytes=1_200)).values()
    assert one.offsets == [0]  # one fits; the response has no room for a second
    assert other.offsets == []
    one, other = alone.fetch_all(Fetch(CONSUMER, asked)).values()
    assert (one.offsets, other.offsets) == ([0, 1], [0, 1])


def test_f6_a_fetch_waits_until_an_append_wakes_it_or_its_time_is_over(
    alone: Alone, topic_name: str
) -> None:
    topic, [follower] = led(alone, topic_name)
    version, place = alone.system.fetch, (topic, 0)
    connection = alone.connect()
    waiting = Fetch(follower, {place: Asked(0)}, max_wait_ms=60_000)
    connection.send(FETCH, version, waiting.encode(version))
    alone.append(topic, 1)
    assert read_fetched(connection.receive(), version)[place].offsets == [0]
    short = Fetch(follower, {place: Asked(1)}, max_wait_ms=50)
    assert alone.fetch_all(short)[place].offsets == []
    many = Fetch(follower, {place: Asked(0)}, max_wait_ms=60_000, min_bytes=100)
    connection.send(FETCH, version, many.encode(version))
    for _ in range(3):  # a hundred bytes are more than one record, with or without a batch
        alone.append(topic, 1)
    assert read_fetched(connection.receive(), version)[place].offsets[:2] == [0, 1]
    wrong = Fetch(follower, {place: Asked(99)}, max_wait_ms=60_000)
    assert alone.fetch_all(wrong)[place].error == OUT_OF_RANGE  # at once
    connection.close()


def test_f9_f10_what_lies_outside_of_the_log_is_out_of_range(alone: Alone, topic_name: str) -> None:
    topic, [follower] = led(alone, topic_name)
    alone.append(topic, 3)
    assert alone.fetch(follower, topic, 3).error == NONE
    assert alone.fetch(follower, topic, 4).error == OUT_OF_RANGE
    assert alone.fetch(CONSUMER, topic, -5).error == OUT_OF_RANGE


def test_f12_a_broker_that_is_no_replica_gets_nothing_and_moves_nothing(
    alone: Alone, topic_name: str
) -> None:
    topic, [follower] = led(alone, topic_name)
    stranger = alone.phantom().broker
    alone.append(topic, 3)
    answer = alone.fetch(stranger, topic, 0)
    error = NONE if alone.system.has_epochs else UNKNOWN_ERROR  # KAFKA-5758, 0.11.0.1
    if alone.system.name == "kafka:3.9.1":
        error = NOT_LEADER  # from 3.3 on (KAFKA-13837)
    assert (answer.offsets, answer.error) == ([], error)
    alone.fetch(stranger, topic, 3)
    assert high_watermark(alone, topic) == 0
    alone.fetch(follower, topic, 3)
    assert high_watermark(alone, topic) == 3


def test_e6_a_fetch_in_another_leader_epoch_is_refused(alone: Alone, topic_name: str) -> None:
    topic, [follower] = led(alone, topic_name)
    alone.append(topic, 1)
    epoch = int(alone.state(topic)["leader_epoch"])
    errors = [alone.fetch(follower, topic, 0, epoch + by).error for by in (-1, 0, 1)]
    if alone.system.has_epochs and epoch == 0:
        assert errors[1:] == [NONE, UNKNOWN_EPOCH]  # -1 means that none is named
    else:
        assert errors == [NONE] * 3


# --- in-sync replicas ----------------------------------------------------------------------------


def rejoining(alone: Alone, name: str, *more: str) -> tuple[list[str], int]:
    """Topics with three records, and a phantom that left their ISR and has come back."""
    phantom = alone.phantom()
    topics = [alone.create_topic(each, [[REAL, phantom.broker]]) for each in (name, *more)]
    phantom.leave()
    for topic in topics:
        alone.await_isr(topic, [REAL])
        alone.append(topic, 3)
    return topics, alone.phantom(again=phantom.broker).broker


def test_i4_i7_a_replica_joins_at_the_high_watermark_and_all_brokers_learn_of_it(
    alone: Alone, topic_name: str
) -> None:
    """The second topic is there so that a change of the first would have been seen by then."""
    [behind, level], follower = rejoining(alone, topic_name, f"{topic_name}-2")
    notes = alone.zookeeper.exists("/isr_change_notification").cversion
    alone.fetch(follower, behind, 2)
    alone.fetch(follower, level, 3)
    alone.await_isr(level, [REAL, follower])
    assert alone.isr(behind) == [REAL]
    alone.fetch(follower, behind, 3)
    alone.await_isr(behind, [REAL, follower])

    def isr_in_metadata() -> list[int]:
        [partition] = alone.admin.list_topics(level, timeout=20).topics[level].partitions.values()
        return sorted(partition.isrs)

    until(lambda: isr_in_metadata() == [REAL, follower], "the controller has informed all")
    until(lambda: _is_quiet(alone, notes), "a notification was written, and deleted")


def _is_quiet(alone: Alone, before: int) -> bool:
    """Each child that comes and each that goes counts."""
    children, stat = alone.zookeeper.get_children("/isr_change_notification", include_data=True)
    return not children and stat.cversion >= before + 2


def test_i6_an_isr_that_somebody_else_has_written_is_not_overwritten(
    alone: Alone, topic_name: str
) -> None:
    """The same state once more: only its version is another one."""
    [raced, free], follower = rejoining(alone, topic_name, f"{topic_name}-2")
    path = f"/brokers/topics/{raced}/partitions/0/state"
    content, stat = alone.zookeeper.get(path)
    alone.zookeeper.set(path, content)
    alone.fetch(follower, raced, 3)
    alone.fetch(follower, free, 3)
    alone.await_isr(free, [REAL, follower])
    assert alone.zookeeper.get(path)[0] == content
    assert alone.zookeeper.get(path)[1].version == stat.version + 1


def test_i9_acks_all_is_refused_before_the_append_and_answered_with_error_20_after_it(
    alone: Alone, topic_name: str
) -> None:
    settings = {"min.insync.replicas": "2"}
    phantom = alone.phantom()
    topic = alone.create_topic(topic_name, [[REAL, phantom.broker]], settings)
    # From 3.7 on the high watermark waits for the ISR, and so does the producer.
    waits = alone.system.name == "kafka:3.9.1"
    late = alone.send(topic, b"late", timeout_ms=3_000 if waits else 30_000)
    until(lambda: alone.fetch(phantom.broker, topic, 0).offsets == [0], "it is appended")
    phantom.leave()
    answer = "REQUEST_TIMED_OUT" if waits else "NOT_ENOUGH_REPLICAS_AFTER_APPEND"
    assert late.await_answer() == answer
    assert alone.isr(topic) == [REAL]
    assert alone.send(topic, b"never").await_answer() == "NOT_ENOUGH_REPLICAS"
    alone.append(topic, 1)  # acks=1
    again = alone.phantom(again=phantom.broker).broker
    assert alone.fetch(again, topic, 0).offsets == [0, 1]  # late, and the one of acks=1


def test_i9_min_insync_replicas_counts_no_more_replicas_than_there_are(
    alone: Alone, topic_name: str
) -> None:
    """KAFKA-15583: from 3.7 on."""
    topic = alone.create_topic(topic_name, [[REAL]], {"min.insync.replicas": "2"})
    expected = "acked" if alone.system.name == "kafka:3.9.1" else "NOT_ENOUGH_REPLICAS"
    assert alone.send(topic, b"alone").await_answer() == expected


# --- logs ----------------------------------------------------------------------------------------


def test_r8_r9_segments_roll_by_size_and_retention_deletes_the_oldest(
    alone: Alone, topic_name: str
) -> None:
    settings = {"segment.bytes": "300", "retention.bytes": "600"}
    topic = alone.create_topic(topic_name, [[REAL]], settings)
    for _ in range(8):
        alone.produce(topic, 0, b"x" * 200)  # one to a segment
    directory = alone.log_directory(REAL) / f"{topic}-0"
    bases = sorted(int(file.stem) for file in directory.glob("*.log"))
    assert bases == list(range(bases[0], 8))
    size = (directory / f"{7:020}.log").stat().st_size  # of each
    at = 8 - (600 + size - 1) // size  # what is left would be too small with one less
    until(lambda: alone.list_offset(topic, EARLIEST) == at, f"the log starts at {at}")
    while at < 8:  # Apache Kafka answers with records of one segment
        read = alone.fetch(CONSUMER, topic, at).offsets
        assert read[0] == at
        at = read[-1] + 1
    assert alone.fetch(CONSUMER, topic, 0).error == OUT_OF_RANGE
