"""What responses need of the logs: records, sizes, look-ups by time. Nothing is changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import effects
from neaptide.clusters.broker.replication.interface.events import MAX_TIMESTAMP
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.replication.partition.transactions import AbortedTransaction
from neaptide.clusters.broker.server.produced import RECORDS_AT_ONCE, Accepted
from neaptide.clusters.broker.storage.compression import NONE, NUMBERS
from neaptide.clusters.broker.storage.config import LOG_APPEND_TIME
from neaptide.clusters.broker.storage.errors import (
    OffsetOutOfRangeError,
    RecordBatchError,
    StorageError,
)
from neaptide.clusters.broker.storage.log_manager import LogManager
from neaptide.clusters.broker.storage.record_batch import first_at_or_after, parse_batches

_log = logging.getLogger("broker")


class Found(NamedTuple):
    """What a look-up by time came to: a record's timestamp, offset and leader epoch; -1: none."""

    error: Error = Error.NONE
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


class LogInDirectory(NamedTuple):
    """`is_future`: a copy that is to replace its partition's log, and lags behind it."""

    partition: TopicPartition
    size_bytes: int
    lag: int = 0
    is_future: bool = False


class LogReader:
    """What is damaged on disk is an error of its partition; a log directory that cannot be read is
    reported by `lose`, too."""

    def __init__(
        self,
        logs: LogManager,
        in_thread: Callable[[Callable[[], Any]], Awaitable[Any]],
        lose: Callable[[StorageError], None],
    ) -> None:
        self._logs = logs
        self._in_thread = in_thread
        self._lose = lose

    def accepted(self, topic_partition: TopicPartition, now_ms: int, after_max_ms: int) -> Accepted:
        """What its topic accepts; `after_max_ms` is for one that sets nothing."""
        log = self._logs.logs.get(topic_partition)
        if log is None:
            return Accepted(now_ms)
        config = log.config
        after = config.message_timestamp_after_max_ms
        off = config.message_timestamp_difference_max_ms
        return Accepted(
            now_ms,
            config.message_timestamp_type == LOG_APPEND_TIME,
            min(off, config.message_timestamp_before_max_ms),
            min(off, after_max_ms if after is None else after),
            config.is_compacted,
            NUMBERS.get(config.compression_type),
        )

    def log_directories(self) -> dict[Path, list[LogInDirectory] | None]:
        """What each log directory has, in order; None: it is offline."""
        logs = self._logs.logs
        found: dict[Path, list[LogInDirectory] | None] = dict.fromkeys(self._logs.paths)
        for path, directory in self._logs.online.items():
            held = [LogInDirectory(tp, log.size_bytes) for tp, log in directory.logs.items()]
            for tp, log in directory.futures.items():
                lag = logs[tp].log_end_offset - log.log_end_offset if tp in logs else -1
                held.append(LogInDirectory(tp, log.size_bytes, lag, is_future=True))
            found[path] = sorted(held)
        return found

    def bytes_available(self, topic_partition: TopicPartition, offset: int) -> int:
        log = self._logs.logs.get(topic_partition)
        if log is None or not log.log_start_offset <= offset <= log.log_end_offset:
            return 0
        try:
            return log.bytes_from(offset)
        except (RecordBatchError, StorageError):  # who reads there is answered with an error
            return 0

    def read(
        self,
        topic_partition: TopicPartition,
        wanted: effects.LogSlice,
        limit: int,
        at_least_one: bool,
    ) -> tuple[bytes, Error]:
        """Whole batches of at most `limit` bytes, but one where `at_least_one`."""
        log = self._logs.logs.get(topic_partition)
        if log is None:  # it has gone since the core answered: with its directory, or alone
            has_failed = bool(self._logs.offline)
            lost = Error.KAFKA_STORAGE_ERROR if has_failed else Error.NOT_LEADER_OR_FOLLOWER
            return b"", lost
        try:
            return log.read(wanted.offset, wanted.end, limit, at_least_one), Error.NONE
        except OffsetOutOfRangeError:
            return b"", Error.NONE
        except StorageError as error:
            self._lose(error)
            return b"", Error.KAFKA_STORAGE_ERROR
        except RecordBatchError as error:
            _log.warning(
                "%s cannot be read at offset %s: %s", topic_partition, wanted.offset, error
            )
            return b"", Error.CORRUPT_MESSAGE

    def aborted(
        self, topic_partition: TopicPartition, offset: int, records: bytes
    ) -> tuple[AbortedTransaction, ...]:
        """The aborted transactions that these records, read from that offset on, are of."""
        log = self._logs.logs.get(topic_partition)
        if log is None or not records:
            return ()
        end_offset = parse_batches(records)[-1].next_offset
        return log.aborted_within(offset, end_offset)

    async def look_up_all(
        self, wanted: Iterable[effects.OffsetResult]
    ) -> dict[TopicPartition, Found]:
        """By partition; others have their turn in between."""
        found = {}
        for asked in wanted:
            await asyncio.sleep(0)
            found[asked.partition] = await self._look_up(asked)
        return found

    async def _look_up(self, asked: effects.OffsetResult) -> Found:
        """The first record that is not older; of MAX_TIMESTAMP, of those that are the newest."""
        assert asked.look_up is not None
        offset = -1
        try:
            while True:
                log = self._logs.logs.get(asked.partition)
                if log is None:
                    return Found(Error.UNKNOWN_TOPIC_OR_PARTITION)
                start = log.log_start_offset
                wanted = log.max_timestamp if asked.look_up == MAX_TIMESTAMP else asked.look_up
                if wanted is None:
                    return Found(asked.not_found)
                candidate = log.batch_for_timestamp(wanted, max(offset, start))
                if candidate is None:
                    return Found(asked.not_found)
                batch, header = candidate
                find = partial(first_at_or_after, batch, header, wanted, start)
                is_short = header.compression == NONE and header.record_count <= RECORDS_AT_ONCE
                record = find() if is_short else await self._in_thread(find)
                if record is not None:
                    timestamp, found = record
                    if found >= asked.end:
                        return Found(asked.not_found)
                    return Found(Error.NONE, timestamp, found, header.leader_epoch)
                offset = header.next_offset
        except StorageError as error:
            self._lose(error)
            return Found(Error.KAFKA_STORAGE_ERROR)
        except RecordBatchError as error:
            _log.warning("%s cannot be searched from %s on: %s", asked.partition, offset, error)
            return Found(Error.CORRUPT_MESSAGE)
