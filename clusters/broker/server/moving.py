"""Moves logs to other log directories: copies each, then puts the copy in its place (KIP-113).

A copy follows what is appended to its log until it has all, between two events of the core. What is
cut from the log is cut from the copy at once (log_effects). One that was begun before this process
is begun anew: nobody has kept it a prefix of its log. As Kafka's ReplicaAlterLogDirsManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.server.flushing import flush_beside
from neaptide.clusters.broker.storage.errors import RecordBatchError, StorageError
from neaptide.clusters.broker.storage.log import Log
from neaptide.clusters.broker.storage.log_directory import may_have_future
from neaptide.clusters.broker.storage.log_manager import LogManager
from neaptide.clusters.broker.storage.record_batch import parse_batches

_log = logging.getLogger("broker")
_AT_ONCE_BYTES: Final = 1 << 20


class ReplicaAlterLogDirs:
    """`offline`: replicas in directories that have failed. `when_free` does what changes logs."""

    def __init__(
        self,
        logs: LogManager,
        offline: Callable[[], Collection[TopicPartition]],
        when_free: Callable[[Callable[[], None]], None],
        lose: Callable[[StorageError], None],
    ) -> None:
        self._logs = logs
        self._offline = offline
        self._when_free = when_free
        self._lose = lose
        self._wanted = asyncio.Event()
        for future in logs.futures.values():
            future.truncate_fully_and_start_at(0)
            self._wanted.set()

    def move(self, topic_partition: TopicPartition, path: Path) -> Error:
        """Begins with it."""
        known = {one.absolute(): one for one in self._logs.paths}
        target = known.get(path.absolute())
        if not may_have_future(topic_partition):
            return Error.INVALID_TOPIC_EXCEPTION
        if target is None:
            return Error.LOG_DIR_NOT_FOUND
        if target in self._logs.offline or topic_partition in self._offline():
            return Error.KAFKA_STORAGE_ERROR
        log = self._logs.logs.get(topic_partition)
        if log is None:
            self._logs.prefer(topic_partition, target)
            return Error.REPLICA_NOT_AVAILABLE
        if self._logs.offline:  # it may have a copy there
            return Error.KAFKA_STORAGE_ERROR
        try:
            self._logs.start_moving(topic_partition, target)
        except StorageError as error:
            self._lose(error)
            return Error.KAFKA_STORAGE_ERROR
        self._wanted.set()
        return Error.NONE

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            while moving := self._logs.futures.keys() & self._logs.logs.keys():
                for tp in sorted(moving):
                    await self._go_on(tp)

    async def _go_on(self, tp: TopicPartition) -> None:
        done = asyncio.get_running_loop().create_future()

        def copy() -> None:
            try:
                log, future = self._logs.logs.get(tp), self._logs.futures.get(tp)
                if log is not None and future is not None and copy_some(log, future):
                    self._logs.finish_moving(tp)
                    _log.info("%s is in %s now", tp, self._logs.directory_of(tp).path)
            except RecordBatchError as error:
                _log.warning("%s is not moved: %s", tp, error)
                self._logs.stop_moving(tp)
            finally:
                done.set_result(None)

        self._when_free(copy)
        await done
        await asyncio.sleep(0)  # others have their turn
        future = self._logs.futures.get(tp)
        if future is not None:
            try:
                await flush_beside(future, self._lose)
            except StorageError as error:
                self._lose(error)


def copy_some(log: Log, future: Log) -> bool:
    """One part of what a copy lacks; whether it has all then. Raises StorageError, and
    RecordBatchError where the log is damaged."""
    if future.log_end_offset < log.log_start_offset:
        future.truncate_fully_and_start_at(log.log_start_offset)
    data = log.read(future.log_end_offset, log.log_end_offset, _AT_ONCE_BYTES, True)
    if data:
        headers = parse_batches(data)
        if headers[0].base_offset < future.log_end_offset:  # the log starts inside of this batch
            future.truncate_fully_and_start_at(headers[0].base_offset)
        future.append(data, headers, flush=False)
    future.delete_records_before(log.log_start_offset)
    return future.log_end_offset >= log.log_end_offset
