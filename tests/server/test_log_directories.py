"""R11: a log directory that fails under a running broker, and logs that move to another."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest

from neaptide.clusters.broker.coordination.zookeeper import ZooKeeperCoordination
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.model import LeaderAndIsr, TopicPartition
from neaptide.clusters.broker.server.apis.describing import answer_describe_log_dirs
from neaptide.clusters.broker.server.apis.row import PendingRequest
from neaptide.clusters.broker.server.config import server_config
from neaptide.clusters.broker.server.log_reader import LogReader
from neaptide.clusters.broker.server.moving import copy_some
from neaptide.clusters.broker.server.shell import BrokerShell
from neaptide.clusters.broker.storage.errors import StorageError
from neaptide.clusters.broker.storage.log import Log
from neaptide.clusters.broker.storage.log_manager import LogManager
from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.codec import Header
from tests.server.given import CONNECTION, CONTEXT, GOOD, SlowCoordination
from tests.storage.batches import batch, with_headers

PARTITIONS = A, B, C = [TopicPartition("t", number) for number in range(3)]


class Running:
    """A broker that leads three partitions: A and C in the directory `one`, B in `two`."""

    def __init__(self, path: Path, generation: str = "2.1", *, more: Sequence[str] = ()) -> None:
        self.paths = [path / name for name in ("one", "two", *more)]
        names = ",".join(map(str, self.paths))
        config = server_config({**GOOD, "log.dirs": names, "neaptide.generation": generation})
        survives = config.generation.survives_failed_log_directories
        self.logs = LogManager.open(self.paths, 7, {}, survives=survives)
        self.failures: list[Exception] = []
        self.shell = BrokerShell(config, self.logs, self.failures.append)
        self.answers: list[object] = []
        respond = dict.fromkeys((effects.RespondProduce, effects.RespondControl), self._respond)
        self.shell.performers = {**self.shell.performers, **respond}
        self.asked: list[object] = []
        coordination = SlowCoordination()
        coordination.execute = self.asked.append  # type: ignore[assignment,method-assign]
        self.shell.begin(cast(ZooKeeperCoordination, coordination))
        states = tuple(
            events.PartitionState(tp, LeaderAndIsr(7, 0, (7,), 1, 0), (7,), {}, is_new=True)
            for tp in PARTITIONS
        )
        self.shell.submit(events.LeaderAndIsrRequested(1, 7, 1, states, ()))
        self.answers.clear()

    def _respond(self, effect: object) -> None:
        self.answers.append(effect)

    def produce(self, *partitions: TopicPartition) -> list[tuple[TopicPartition, Error]]:
        """One record each; what was answered."""
        produced = events.ProducedBatch(1, len(RECORD), RECORD)
        named = tuple((tp, (produced,)) for tp in partitions)
        self.shell.submit(events.ProduceRequested(2, 1, 30_000, named))
        [answer] = self.answers
        self.answers.clear()
        assert isinstance(answer, effects.RespondProduce)
        return [(one.partition, one.error) for one in answer.results]

    def break_log(self, tp: TopicPartition) -> None:
        """Nothing can be appended to it any more."""
        log = self.logs.logs[tp]

        def append(*_: object, **__: object) -> NoReturn:
            raise StorageError(log.directory.parent, "broken")

        log.append = append  # type: ignore[method-assign]

    @property
    def ends(self) -> dict[TopicPartition, tuple[int, int]]:
        """Where each log ends: as the core has it, and on disk."""
        return {
            tp: (self.shell.core.partitions[tp].log.end_offset, log.log_end_offset)
            for tp, log in sorted(self.logs.logs.items())
        }


RECORD = batch(0, [b"x"])


@pytest.mark.parametrize("order", [(A, B, C), (B, A, C), (A, C, B)], ids=str)
def test_r11_a_request_is_carried_out_where_it_can_be(
    tmp_path: Path, order: Sequence[TopicPartition]
) -> None:
    """What was appended before the failure is not appended again."""

    async def run() -> None:
        here = Running(tmp_path)
        here.break_log(B)
        done = here.produce(*order)
        assert dict(done) == {A: Error.NONE, B: Error.KAFKA_STORAGE_ERROR, C: Error.NONE}
        assert here.ends == {A: (1, 1), C: (1, 1)}
        assert [type(one).__name__ for one in here.asked][-1:] == ["NotifyLogDirEvent"]
        assert dict(here.produce(*order)) == dict(done)
        assert here.ends == {A: (2, 2), C: (2, 2)}
        assert not here.failures

    asyncio.run(run())


def test_r11_two_that_fail_in_one_request_have_nothing_done_twice(tmp_path: Path) -> None:
    async def run() -> None:
        here = Running(tmp_path, more=["three"])
        assert [here.logs.directory_of(tp).path.name for tp in PARTITIONS] == [
            "one",
            "two",
            "three",
        ]
        for tp in (B, C):
            here.break_log(tp)
        done = here.produce(A, B, C)
        failed = Error.KAFKA_STORAGE_ERROR
        assert done == [(A, Error.NONE), (B, failed), (C, failed)]
        assert here.ends == {A: (1, 1)}
        assert [type(one).__name__ for one in here.asked][-2:] == ["NotifyLogDirEvent"] * 2
        assert not here.failures

    asyncio.run(run())


def test_r11_the_last_directory_is_the_end_of_the_broker(tmp_path: Path) -> None:
    async def run() -> None:
        here = Running(tmp_path)
        here.shell.lose_directory(StorageError(tmp_path / "one", "broken"))
        assert not here.failures
        here.shell.lose_directory(StorageError(tmp_path / "one", "found once more"))
        assert not here.failures
        here.shell.lose_directory(StorageError(tmp_path / "two" / "t-1", "broken"))
        assert len(here.failures) == 1

    asyncio.run(run())


def test_r11_before_1_0_the_first_is_the_end_of_the_broker(tmp_path: Path) -> None:
    async def run() -> None:
        here = Running(tmp_path, "0.11")
        here.shell.lose_directory(StorageError(tmp_path / "one", "broken"))
        assert len(here.failures) == 1

    asyncio.run(run())


def test_r11_a_log_moves_while_it_is_written_to(tmp_path: Path) -> None:
    async def run() -> None:
        here = Running(tmp_path)
        for _ in range(5):
            here.produce(A, B)
        move = here.shell.moving.move
        assert move(A, tmp_path / "two") is Error.NONE
        here.produce(A)
        async with asyncio.timeout(20):
            while here.logs.futures:
                await asyncio.sleep(0)
        assert here.logs.directory_of(A).path == tmp_path / "two"
        here.produce(A)
        assert here.ends == {A: (7, 7), B: (5, 5), C: (0, 0)}
        assert move(A, tmp_path / "three") is Error.LOG_DIR_NOT_FOUND
        assert move(TopicPartition("n" * 240, 0), tmp_path / "two") is (
            Error.INVALID_TOPIC_EXCEPTION
        )
        assert move(TopicPartition("none", 0), tmp_path / "two") is Error.REPLICA_NOT_AVAILABLE
        here.shell.lose_directory(StorageError(tmp_path / "two", "broken"))
        for tp, path in ((A, "one"), (C, "two"), (C, "one")):
            assert move(tp, tmp_path / path) is Error.KAFKA_STORAGE_ERROR
        assert not here.failures

    asyncio.run(run())


def test_r11_what_is_cut_from_a_log_is_cut_from_its_copy(tmp_path: Path) -> None:
    async def run() -> None:
        here = Running(tmp_path)
        for _ in range(3):
            here.produce(A)
        here.logs.start_moving(A, tmp_path / "two")
        log, future = here.logs.logs[A], here.logs.futures[A]
        assert copy_some(log, future)
        here.shell.performers[effects.TruncateLog](effects.TruncateLog(A, 1))
        assert (log.log_end_offset, future.log_end_offset) == (1, 1)
        again = effects.TruncateFullyAndStartAt(A, 9)
        here.shell.performers[effects.TruncateFullyAndStartAt](again)
        assert (log.log_end_offset, future.log_end_offset) == (9, 9)

    asyncio.run(run())


def test_r11_a_copy_begins_with_the_batch_in_which_its_log_starts(tmp_path: Path) -> None:
    logs = LogManager.open([tmp_path / "one", tmp_path / "two"], 7, {})
    log = logs.create_log(A)
    log.append(*with_headers(batch(0, [b"a", b"b", b"c"]), batch(3, [b"d"])))
    log.delete_records_before(1)
    logs.start_moving(A, tmp_path / "two")
    future = logs.futures[A]
    assert copy_some(log, future)
    assert offsets(future) == offsets(log) == (1, 4)
    logs.finish_moving(A)
    assert offsets(logs.logs[A]) == (1, 4)
    logs.shutdown()


def offsets(log: Log) -> tuple[int, int]:
    return log.log_start_offset, log.log_end_offset


def test_r11_a_directory_that_has_gone_is_described_as_one_that_failed(tmp_path: Path) -> None:
    """Before a write has noticed it."""
    logs = LogManager.open([tmp_path / "one", tmp_path / "two"], 7, {})
    for tp in (A, B):
        logs.create_log(tp)
    (tmp_path / "two").rename(tmp_path / "elsewhere")
    reader = LogReader(logs, cast(Any, None), cast(Any, None))
    request = PendingRequest(1, CONNECTION, Header(Api.DESCRIBE_LOG_DIRS, 1, 1, "c"))
    entity = SimpleNamespace(topics=None)
    answer = answer_describe_log_dirs(request, entity, replace(CONTEXT, reader=reader))
    found = {Path(one.log_dir).name: int(one.error_code.value) for one in answer.results}
    assert found == {"one": Error.NONE, "two": Error.KAFKA_STORAGE_ERROR}
