"""aiokafka keeps the order of sends that take turns; a transaction has all its sends, or none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from neaptide.workloads.libraries import aio
from neaptide.workloads.libraries.model import NOT_SENT, LibraryError, ProducerAsked

ROOM = 3  # of a batch


class Batches:
    """As aiokafka's accumulator: who finds a full batch waits until it is taken, and looks again;
    meanwhile whoever comes finds the new one."""

    def __init__(self, **_: Any) -> None:
        self.batch: list[str] = []
        self.taken: list[str] = []
        self.tried: list[str] = []
        self.refuses: set[str] = set()
        self.ends: list[str] = []
        self._waiting: list[asyncio.Future[None]] = []

    async def start(self) -> None: ...

    async def begin_transaction(self) -> None: ...

    async def commit_transaction(self) -> None:
        self.ends.append("commit")

    async def abort_transaction(self) -> None:
        self.ends.append("abort")

    async def send(self, _: str, value: bytes, key: bytes | None, partition: int) -> Any:
        loop = asyncio.get_running_loop()
        self.tried.append(value.decode())
        if value.decode() in self.refuses:
            raise ValueError("refused")
        while len(self.batch) == ROOM:
            self._waiting.append(loop.create_future())
            await self._waiting[-1]
        self.batch.append(value.decode())
        acknowledged = loop.create_future()
        acknowledged.set_result(None)
        return acknowledged

    def take(self) -> None:
        self.taken += self.batch
        self.batch = []

    def wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.set_result(None)


class Sender:
    def __init__(self, transactional_id: str | None = None) -> None:
        self.producer = aio.AioProducer(ProducerAsked("", "all", True, transactional_id))
        self.batches: Any = self.producer._producer
        self.ends: dict[str, str | None] = {}

    def send(self, *values: str) -> None:
        for value in values:
            self.producer.send("t", 0, None, value, partial(self._end, value))
        self.on_loop(lambda: None)

    def _end(self, value: str, _: int | None, error: str | None) -> None:
        self.ends[value] = error

    def on_loop(self, call: Callable[[], None]) -> None:
        """Returns when all that could go on because of it has."""

        async def done() -> None:
            call()
            for _ in range(50):
                await asyncio.sleep(0)

        aio._call(done())


@pytest.fixture(autouse=True)
def batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aio, "AIOKafkaProducer", Batches)


def test_who_finds_a_new_batch_overtakes_nobody_who_waits() -> None:
    sender = Sender()
    sender.send("1", "2", "3", "4", "5")
    sender.on_loop(sender.batches.take)
    sender.send("6")
    for _ in range(3):
        sender.on_loop(sender.batches.wake)
        sender.on_loop(sender.batches.take)
    assert sender.batches.taken == ["1", "2", "3", "4", "5", "6"]
    assert sender.ends == dict.fromkeys("123456")


def test_sends_to_another_partition_wait_for_none() -> None:
    sender = Sender()
    sender.send("1", "2", "3", "4")
    sender.producer.send("t", 1, None, "other", lambda *_: None)
    sender.on_loop(lambda: None)
    assert "other" in sender.batches.tried


def test_a_send_whose_turn_does_not_come_in_time_never_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sender = Sender()
    sender.send("1", "2", "3", "4")
    monkeypatch.setattr(aio, "_REQUEST_MS", -1)
    sender.send("5")
    sender.on_loop(sender.batches.take)
    sender.on_loop(sender.batches.wake)
    assert sender.ends["5"] == NOT_SENT
    assert sender.ends["4"] is None
    assert "5" not in sender.batches.tried


def test_a_transaction_is_committed_once_all_have_their_place() -> None:
    sender = Sender("id")
    sender.producer.begin()
    sender.send("1", "2")
    sender.producer.commit(1.0)
    assert sender.batches.batch == ["1", "2"]
    assert sender.batches.ends == ["commit"]


def test_a_transaction_of_which_a_send_was_refused_is_not_committed() -> None:
    sender = Sender("id")
    sender.batches.refuses.add("2")
    sender.producer.begin()
    sender.send("1", "2")
    with pytest.raises(LibraryError) as refused:
        sender.producer.commit(1.0)
    assert (refused.value.name, refused.value.aborts) == ("ValueError", True)
    sender.producer.abort(1.0)
    assert sender.batches.ends == ["abort"]
    sender.producer.begin()  # of the next one nothing was refused
    sender.producer.commit(1.0)
    assert sender.batches.ends == ["abort", "commit"]


def test_what_waits_when_its_transaction_is_aborted_is_in_no_later_one() -> None:
    sender = Sender("id")
    sender.producer.begin()
    sender.send("1", "2", "3", "4", "5")  # the fourth waits for room, the fifth for its turn
    aborting = asyncio.run_coroutine_threadsafe(sender.producer._abort(), aio._loop())
    sender.on_loop(sender.batches.take)
    sender.on_loop(sender.batches.wake)
    aborting.result(5)
    assert sender.ends["5"] == NOT_SENT
    assert "5" not in sender.batches.tried
