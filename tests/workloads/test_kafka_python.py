"""kafka-python calls a listener on the thread of its connections: nothing may wait there. And what
it waits for without an end has an end here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.errors import KafkaTimeoutError, LeaderNotAvailableError
from kafka.future import Future

from neaptide.workloads.libraries import kafka_python
from neaptide.workloads.libraries.kafka_python import (
    CalledInTurn,
    PythonProducer,
    Turn,
    offsets_of,
)
from neaptide.workloads.libraries.model import LibraryError, Place, ProducerAsked


class Member:
    """What it was called with, and on which thread."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Place, ...]]] = []
        self.threads: set[int] = set()

    def _called(self, name: str, places: Sequence[Place]) -> None:
        self.calls.append((name, tuple(places)))
        self.threads.add(threading.get_ident())

    def assigned(self, places: Sequence[Place]) -> Mapping[Place, int]:
        self._called("assigned", places)
        return {place: 7 for place in places}

    def revoked(self, places: Sequence[Place]) -> None:
        self._called("revoked", places)

    def lost(self, places: Sequence[Place]) -> None:
        raise LookupError("the group is gone")


class Seeks:
    def __init__(self) -> None:
        self.sought: list[tuple[TopicPartition, int]] = []

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.sought.append((partition, offset))


PLACE = TopicPartition("t", 3)


def ended(future: Future) -> None:
    event = threading.Event()
    future.add_both(lambda _: event.set())
    assert event.wait(30)


def test_a_listener_runs_on_a_thread_of_its_own_while_the_client_waits() -> None:
    member, seeks, turn = Member(), Seeks(), Turn()
    called = CalledInTurn(seeks, member, turn)
    step = called.on_partitions_revoked([PLACE])
    future = step.send(None)
    member.calls.append(("the client", ()))  # it has not polled yet
    with turn.given():
        ended(future)
    with pytest.raises(StopIteration):
        step.send(None)
    assert member.calls == [("the client", ()), ("revoked", (("t", 3),))]
    assert threading.get_ident() not in member.threads


def test_what_a_listener_sought_is_sought() -> None:
    member, seeks, turn = Member(), Seeks(), Turn()
    step = CalledInTurn(seeks, member, turn).on_partitions_assigned([PLACE])
    future = step.send(None)
    with turn.given():
        ended(future)
    with pytest.raises(StopIteration):
        step.send(None)
    assert seeks.sought == [(PLACE, 7)]


def test_what_a_listener_raises_reaches_the_library() -> None:
    member, seeks, turn = Member(), Seeks(), Turn()
    step = CalledInTurn(seeks, member, turn).on_partitions_lost([PLACE])
    future = step.send(None)
    with turn.given():
        ended(future)
    with pytest.raises(LookupError):
        step.send(None)


@pytest.mark.parametrize(
    ("ends", "said"),
    [(KeyError(PLACE), LeaderNotAvailableError), (KafkaTimeoutError(), KafkaTimeoutError)],
)
def test_a_partition_without_a_leader_is_an_error_of_kafka(
    ends: Exception, said: type[Exception]
) -> None:
    def ask(partitions: Sequence[TopicPartition], timeout_ms: int) -> Mapping[TopicPartition, int]:
        raise ends

    with pytest.raises(said):
        offsets_of(ask, [PLACE], 500)
    assert offsets_of(lambda partitions, timeout_ms: {PLACE: timeout_ms}, [PLACE], 5) == {PLACE: 5}


class Waiting:
    """A KafkaProducer whose coordinator answers when it is let."""

    def __init__(self, **_: Any) -> None:
        self.may_go_on = threading.Event()

    def flush(self, timeout: float) -> None: ...

    def _wait(self, *_: Any) -> None:
        self.may_go_on.wait()

    commit_transaction = abort_transaction = send_offsets_to_transaction = _wait


class Group:
    group = "g"


@pytest.mark.parametrize(
    "call",
    [
        lambda producer: producer.commit(1.0),
        lambda producer: producer.abort(1.0),
        lambda producer: producer.send_offsets({("t", 0): 1}, Group),
    ],
)
def test_a_coordinator_that_never_answers_is_not_waited_for(
    call: Callable[[PythonProducer], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_python, "KafkaProducer", Waiting)
    monkeypatch.setattr(kafka_python, "_STUCK_S", 0.05)
    producer = PythonProducer(ProducerAsked("", "all", True, "id"))
    library: Any = producer._producer
    with pytest.raises(LibraryError) as stuck:
        call(producer)
    assert (stuck.value.name, stuck.value.again, stuck.value.aborts) == ("_STUCK", False, False)
    library.may_go_on.set()
    monkeypatch.setattr(kafka_python, "_STUCK_S", 30.0)
    call(producer)


class Expiring:
    """A KafkaProducer that commits whatever became of the sends."""

    def __init__(self, **_: Any) -> None:
        self.sent: list[Future] = []
        self.did: list[str] = []

    def send(self, *_: Any, **__: Any) -> Future:
        self.sent.append(Future())
        return self.sent[-1]

    def begin_transaction(self) -> None:
        self.did.append("begin")

    def flush(self, timeout: float) -> None:
        for future in self.sent:
            future.failure(KafkaTimeoutError())
        self.sent.clear()

    def commit_transaction(self) -> None:
        self.did.append("commit")


def test_a_transaction_of_which_a_batch_has_expired_is_not_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_python, "KafkaProducer", Expiring)
    producer = PythonProducer(ProducerAsked("", "all", True, "id"))
    library: Any = producer._producer
    ends: list[str | None] = []
    producer.begin()
    producer.send("t", 0, None, "v", lambda _, error: ends.append(error))
    with pytest.raises(LibraryError) as refused:
        producer.commit(1.0)
    assert (refused.value.name, refused.value.aborts) == ("KafkaTimeoutError", True)
    assert ends == ["KafkaTimeoutError"]
    assert library.did == ["begin"]
    producer.begin()  # the next one has nothing to do with that
    producer.commit(1.0)
    assert library.did == ["begin", "begin", "commit"]
