"""The shell around the core, with a real log directory and nobody else: order, and the end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

import pytest
from kio.schema.api_versions.v0.request import ApiVersionsRequest
from kio.schema.metadata.v1.request import MetadataRequest

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.broker.replication.group.committed_offsets import (
    OFFSETS_TOPIC,
    CommittedOffsets,
    OffsetAndMetadata,
    OffsetCommitRecord,
)
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.replication.step import _HANDLERS
from neaptide.clusters.broker.server import log_effects, shell
from neaptide.clusters.broker.storage import group_records
from neaptide.clusters.broker.storage.errors import StorageError
from neaptide.clusters.broker.storage.flush import Flush
from neaptide.clusters.broker.storage.group_records import encode, groups_of
from neaptide.clusters.broker.storage.log_snapshot import LogSnapshot
from neaptide.clusters.broker.storage.record_batch import assign
from neaptide.clusters.broker.storage.record_writer import record_batch
from neaptide.clusters.broker.storage.removal import remove_now
from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.codec import decode_response
from tests.live.raw import produce_request
from tests.server.given import World, turns
from tests.storage.batches import batch

T0 = TopicPartition("t", 0)


async def leading(directory: Path, **settings: str) -> World:
    """Broker 7 leads t-0 alone."""
    world = World(directory / "data", **settings)
    world.coordination.may_report["t"] = asyncio.Event()
    world.coordination.may_report["t"].set()
    world.ask(world.connection(), world.leader_and_isr("t", 0), 1)
    await turns()
    return world


def produced(frame: bytes) -> tuple[str, int]:
    """Error and base offset of the only partition."""
    [topic] = decode_response(frame[4:], Api.PRODUCE, 3)[1].responses
    [partition] = topic.partition_responses
    return partition.error_code.name, int(partition.base_offset)


def test_a_later_leader_and_isr_does_not_overtake_one_that_waits_for_settings(
    tmp_path: Path,
) -> None:
    async def play() -> None:
        world = World(tmp_path / "data")
        first, second = world.connection(), world.connection()
        world.ask(first, world.leader_and_isr("slow", 0), 1)
        world.ask(second, world.leader_and_isr("quick", 0), 2)
        world.coordination.may_report["quick"] = asyncio.Event()
        world.coordination.may_report["quick"].set()
        await turns()
        assert world.answered == []
        world.coordination.may_report["slow"].set()
        await turns()
        assert world.answered == [1, 2]
        assert set(world.logs.logs) == {TopicPartition("slow", 0), TopicPartition("quick", 0)}

    asyncio.run(play())


def test_a_topics_settings_are_asked_for_once_and_again_after_it_was_deleted(
    tmp_path: Path,
) -> None:
    async def play() -> None:
        world = World(tmp_path / "data")
        world.coordination.may_report["t"] = asyncio.Event()
        world.coordination.may_report["t"].set()
        connection = world.connection()
        for number in (0, 1):
            world.ask(connection, world.leader_and_isr("t", number), number)
            await turns()
        assert world.coordination.asked == ["t"]
        stop = events.StopReplicaRequested(0, 7, 1, True, (TopicPartition("t", 0),))
        world.ask(connection, world.control_request(stop), 2)
        world.ask(connection, world.leader_and_isr("t", 2), 3)
        await turns()
        assert world.coordination.asked == ["t", "t"]
        assert world.answered == [0, 1, 2, 3]

    asyncio.run(play())


def test_a_disk_that_fails_ends_it_before_anything_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        world = World(tmp_path / "data")
        world.coordination.may_report["t"] = asyncio.Event()
        world.coordination.may_report["t"].set()
        connection = world.connection()
        world.ask(connection, world.leader_and_isr("t", 0), 1)
        await turns()
        request = produce_request("t", batch(0, [b"m1"]), acks=1)
        world.ask(connection, request, 2)
        log = world.logs.logs[TopicPartition("t", 0)]

        def full(*_: object, **__: object) -> None:
            raise StorageError(tmp_path, "No space left on device")

        monkeypatch.setattr(log, "append", full)
        world.ask(connection, request, 3)
        world.ask(connection, request, 4)
        assert world.answered == [1, 2]
        assert [type(error) for error in world.failures] == [StorageError]
        assert log.log_end_offset == 1

    asyncio.run(play())


def test_a_refusal_of_an_unknown_api_versions_can_be_read_in_version_0(tmp_path: Path) -> None:
    async def play() -> None:
        world = World(tmp_path / "data")
        frames: list[bytes] = []
        connection = world.connection()
        cast(Any, connection).respond = frames.append
        world.shell.handle(connection, b"\x00\x12\x00\x63" + b"\x00\x00\x00\x05" + b"\xff\xff")
        correlation_id, answer = decode_response(frames[0][4:], Api.API_VERSIONS, 0)
        assert (correlation_id, answer.error_code.name) == (5, "unsupported_version")

    asyncio.run(play())


def test_a_clean_end_checkpoints_the_high_watermarks(tmp_path: Path) -> None:
    async def play() -> None:
        world = await leading(tmp_path)
        world.ask(world.connection(), produce_request("t", batch(0, [b"a", b"b"]), acks=1), 2)
        world.shell.shut_down()
        assert world.logs.read_high_watermarks() == {T0: 2}

    asyncio.run(play())


# --- a step of the core that fails ----------------------------------------------------------------


def fail_halfway(broker: Broker, event: object, now_ms: int) -> None:
    """A handler with a mistake, behind half of what it should have done."""
    broker.partitions.clear()
    broker.watchers[T0] = (99,)
    broker.next_sequence += 1
    broker.controller_epoch = 77
    broker.do(effects.DeleteLog(T0))
    raise ZeroDivisionError("nobody thought of this")


def test_a12_a_step_that_fails_leaves_nothing_behind_and_its_request_gets_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        world = await leading(tmp_path)
        frames: list[bytes] = []
        connection = world.connection()
        cast(Any, connection).respond = frames.append
        request = produce_request("t", batch(0, [b"a"]), acks=1)
        before = world.shell.core.copy()
        with monkeypatch.context() as patched:
            patched.setitem(cast(Any, _HANDLERS), events.ProduceRequested, fail_halfway)
            world.ask(connection, request, 2)
        assert world.shell.core == before
        world.ask(connection, request, 3)
        errors = [produced(frame) for frame in frames]
        assert errors == [("unknown_server_error", -1), ("none", 0)]
        assert not world.failures
        assert set(world.logs.logs) == {T0}
        assert "ProduceRequested" in caplog.text
        assert "nobody thought of this" in caplog.text

    asyncio.run(play())


def test_a12_all_that_a_step_can_change_in_place_is_put_back(tmp_path: Path) -> None:
    """A new field of the broker that is a set, or a dictionary made otherwise, would be missed."""

    async def play() -> None:
        core = World(tmp_path / "data").shell.core
        values = {field.name: getattr(core, field.name) for field in fields(core)}
        in_place = {name for name, one in values.items() if isinstance(one, dict | list | set)}
        assert in_place == {*shell._DICTIONARIES, "effects"}  # `step` itself clears those

    asyncio.run(play())


def test_a12_a_step_that_fails_and_is_no_request_ends_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for an error, and without the event the broker would not go on."""

    async def play() -> None:
        world = await leading(tmp_path)
        before = world.shell.core.copy()
        monkeypatch.setitem(cast(Any, _HANDLERS), events.ProducerExpiration, fail_halfway)
        world.shell.submit(events.ProducerExpiration(1))
        assert [type(error) for error in world.failures] == [ZeroDivisionError]
        assert world.shell.core == before
        assert set(world.logs.logs) == {T0}

    asyncio.run(play())


# --- work that takes long -------------------------------------------------------------------------


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def test_a12_the_event_loop_goes_on_while_a_new_coordinator_reads_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What needs the core, or cuts logs, waits and keeps its order; nothing else does."""
    may_go_on = threading.Event()
    threads = []

    def slow(log: LogSnapshot) -> Any:
        threads.append(threading.current_thread())
        may_go_on.wait(5)
        return groups_of(log)

    monkeypatch.setattr(group_records, "groups_of", slow)
    monkeypatch.setattr(log_effects, "READ_AT_ONCE_BYTES", 0)

    async def play() -> None:
        world = await leading(tmp_path)
        log = world.logs.create_log(TopicPartition(OFFSETS_TOPIC, 0))
        committed = OffsetCommitRecord("g", T0, OffsetAndMetadata(5))
        data = bytearray(record_batch([encode(committed, 1, GENERATIONS["2.0"])], 1))
        log.append(data, assign(data, 0, 0))
        world.coordination.may_report[OFFSETS_TOPIC] = asyncio.Event()
        world.coordination.may_report[OFFSETS_TOPIC].set()
        del world.answered[:]
        world.ask(world.connection(), world.leader_and_isr(OFFSETS_TOPIC, 1), 1)
        await until(lambda: bool(threads))
        cuts: list[int] = []
        world.shell.when_free(lambda: cuts.append(len(world.answered)))
        world.ask(world.connection(), produce_request("t", batch(0, [b"a"]), acks=1), 2)
        world.ask(world.connection(), ApiVersionsRequest(), 3)
        world.ask(world.connection(), MetadataRequest(topics=None), 4)
        await turns()
        assert threads[0] is not threading.current_thread()
        assert (world.answered, cuts) == ([3, 4], [])
        assert not world.shell.core.committed_offsets
        may_go_on.set()
        await until(lambda: len(world.answered) == 4)
        assert (world.answered, cuts) == ([3, 4, 1, 2], [3])
        found = world.shell.core.committed_offsets[TopicPartition(OFFSETS_TOPIC, 0)]
        assert dict(found) == {("g", T0): OffsetAndMetadata(5)}
        assert not world.failures

    asyncio.run(play())


def test_a12_a_log_that_cannot_be_read_by_the_thread_ends_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(log: LogSnapshot) -> CommittedOffsets:
        raise StorageError(tmp_path, "Input/output error")

    monkeypatch.setattr(group_records, "groups_of", broken)
    monkeypatch.setattr(log_effects, "READ_AT_ONCE_BYTES", -1)

    async def play() -> None:
        world = await leading(tmp_path)
        world.coordination.may_report[OFFSETS_TOPIC] = asyncio.Event()
        world.coordination.may_report[OFFSETS_TOPIC].set()
        world.ask(world.connection(), world.leader_and_isr(OFFSETS_TOPIC, 1), 2)
        await until(lambda: bool(world.failures))
        assert [type(error) for error in world.failures] == [StorageError]
        assert world.answered == [1]

    asyncio.run(play())


def test_a12_a_flush_is_done_by_a_thread_before_what_it_flushes_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """flush.messages=1"""
    may_go_on = threading.Event()
    threads = []
    sync = Flush.sync

    def slow(flush: Flush) -> None:
        threads.append(threading.current_thread())
        may_go_on.wait(5)
        sync(flush)

    monkeypatch.setattr(Flush, "sync", slow)

    async def play() -> None:
        world = await leading(tmp_path, log_flush_interval_messages="1")
        log = world.logs.logs[T0]
        del world.answered[:]
        for number in (1, 2):
            request = produce_request("t", batch(0, [b"a"]), acks=1)
            world.ask(world.connection(), request, number)
        await until(lambda: bool(threads))
        world.ask(world.connection(), ApiVersionsRequest(), 3)
        await turns()
        assert threads[0] is not threading.current_thread()
        assert (world.answered, log.log_end_offset, log.recovery_point) == ([3], 1, 0)
        may_go_on.set()
        await until(lambda: len(world.answered) == 3)
        assert (world.answered, log.log_end_offset, log.recovery_point) == ([3, 1, 2], 2, 2)

    asyncio.run(play())


def test_a12_who_rolls_a_segment_does_not_wait_for_its_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on = threading.Event()
    threads = []
    sync = Flush.sync

    def slow(flush: Flush) -> None:
        threads.append(threading.current_thread())
        may_go_on.wait(5)
        sync(flush)

    monkeypatch.setattr(Flush, "sync", slow)

    async def play() -> None:
        world = await leading(tmp_path, log_segment_bytes="100")
        log = world.logs.logs[T0]
        del world.answered[:]
        for number in (1, 2, 3):
            request = produce_request("t", batch(0, [b"a"]), acks=1)
            world.ask(world.connection(), request, number)
        await until(lambda: bool(threads))
        assert threads[0] is not threading.current_thread()
        assert world.answered == [1, 2, 3]
        assert len(log.segment_base_offsets) > 1
        assert log.recovery_point == 0
        may_go_on.set()
        await until(lambda: log.recovery_point >= log.segment_base_offsets[-1])

    asyncio.run(play())


def test_a12_a_clean_end_waits_for_the_effects_of_the_last_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread flushes, so what is behind that is not done yet; what only waits is dropped."""
    has_begun, may_go_on = threading.Event(), threading.Event()
    sync = Flush.sync

    def slow(flush: Flush) -> None:
        has_begun.set()
        may_go_on.wait(5)
        sync(flush)

    async def play() -> None:
        world = await leading(tmp_path, log_flush_interval_messages="1")
        monkeypatch.setattr(Flush, "sync", slow)
        for number in (2, 3):
            request = produce_request("t", batch(0, [b"a"]), acks=1)
            world.ask(world.connection(), request, number)
        await until(has_begun.is_set)
        threading.Timer(0.05, may_go_on.set).start()
        world.shell.shut_down()
        assert world.answered == [1, 2]
        assert world.logs.logs[T0].recovery_point == 1
        assert world.logs.read_high_watermarks() == {T0: 1}
        assert not world.failures

    asyncio.run(play())


def test_a12_deleted_files_are_removed_by_a_thread_and_nobody_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on = threading.Event()
    threads = []

    def slow(doomed: Sequence[Path]) -> None:
        threads.append(threading.current_thread())
        may_go_on.wait(5)
        remove_now(doomed)

    monkeypatch.setattr(shell, "remove_now", slow)

    async def play() -> None:
        world = await leading(tmp_path)
        stop = events.StopReplicaRequested(0, 7, 1, True, (T0,))
        world.ask(world.connection(), world.control_request(stop), 2)
        await until(lambda: bool(threads))
        assert threads[0] is not threading.current_thread()
        assert world.answered == [1, 2]
        assert [path.name for path in (tmp_path / "data").glob("t-0*")] == ["t-0.0-delete"]
        may_go_on.set()
        await until(lambda: not list((tmp_path / "data").glob("t-0*")))
        assert not world.failures

    asyncio.run(play())
