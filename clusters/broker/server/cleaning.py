"""The log cleaner: compacts the logs whose topics want it, the one with most dirt first (R10).

A thread reads and writes; what it has written is put into its place when no other thread reads
logs. Between passes that find nothing it waits for log.cleaner.backoff.ms. A log that cannot be
read is left alone from then on. As Kafka's LogCleaner with one thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.replication.partition.partition_rules import (
    Partition,
    cleanable_up_to,
)
from neaptide.clusters.broker.replication.partition.producer_state_manager import Producers
from neaptide.clusters.broker.server.config import ServerConfig
from neaptide.clusters.broker.storage.cleaner import CleanedSegment, Cleaning, LastOfProducer
from neaptide.clusters.broker.storage.errors import RecordBatchError, StorageError
from neaptide.clusters.broker.storage.log import Dirt
from neaptide.clusters.broker.storage.log_manager import LogManager

_log = logging.getLogger("broker")
InThread = Callable[[Callable[[], Any]], Awaitable[Any]]


class LogCleaner:
    """`partitions`: those of this broker, as they are now. `when_free` does what cuts logs."""

    def __init__(
        self,
        config: Callable[[], ServerConfig],
        logs: LogManager,
        partitions: Callable[[], Mapping[TopicPartition, Partition]],
        when_free: Callable[[Callable[[], None]], None],
        in_thread: InThread,
        clock: Callable[[], int],
        lose: Callable[[StorageError], None],
    ) -> None:
        self._lose = lose
        self._config = config
        self._logs = logs
        self._partitions = partitions
        self._when_free = when_free
        self._in_thread = in_thread
        self._clock = clock
        self._uncleanable: set[TopicPartition] = set()

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            try:
                has_cleaned = await self.clean_filthiest()
            except StorageError as error:
                self._lose(error)
                has_cleaned = False
            if not has_cleaned:
                await asyncio.sleep(self._config().log_cleaner_backoff_ms / 1000)

    async def clean_filthiest(self) -> bool:
        """One pass over one log; False: none needs it. Raises StorageError."""
        found = self._filthiest()
        if found is None:
            return False
        tp, dirt = found
        log = self._logs.logs[tp]
        producers = _last_batches(self._partitions()[tp].log.producers)
        by_key = self._config().generation.cleans_markers_by_key
        cleaning = log.begin_cleaning(dirt, producers, markers_have_keys=by_key)
        try:
            cleaned = await self._in_thread(cleaning.run)
        except (FileNotFoundError, RecordBatchError) as error:
            if log.is_current(cleaning):
                _log.warning("%s is not cleaned any more: %s", tp, error)
                self._uncleanable.add(tp)
            return False
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def put_into_place() -> None:
            try:
                if self._logs.logs.get(tp) is log and log.end_cleaning(cleaning, cleaned):
                    self._logs.checkpoint_cleaned(tp)
                    gain = _gain(cleaning, cleaned)
                    _log.info("%s is cleaned up to %s%s", tp, cleaning.end_offset, gain)
            except StorageError as error:
                done.set_exception(error)
            else:
                done.set_result(None)

        self._when_free(put_into_place)
        await done
        return True

    def _filthiest(self) -> tuple[TopicPartition, Dirt] | None:
        """Above min.cleanable.dirty.ratio, or late."""
        rules, now_ms = self._config().generation, self._clock()
        skipped = self._uncleanable | self._logs.futures.keys()  # who is copied stays as it is
        found = []
        for tp, partition in self._partitions().items():
            log = self._logs.logs.get(tp)  # it may not be made yet
            if log is None or not log.config.is_compacted or tp in skipped:
                continue
            dirt = log.dirt(cleanable_up_to(partition, rules), now_ms)
            if dirt and (dirt.is_late or dirt.ratio > log.config.min_cleanable_dirty_ratio):
                found.append((dirt.is_late, dirt.ratio, tp, dirt))
        if not found:
            return None
        *_, tp, dirt = max(found)
        return tp, dirt


def _last_batches(producers: Producers) -> dict[int, LastOfProducer]:
    return {
        producer_id: LastOfProducer(
            one.batches[-1].next_offset - 1 if one.batches else None, one.producer_epoch
        )
        for producer_id, one in producers.items()
    }


def _gain(cleaning: Cleaning, cleaned: Iterable[CleanedSegment]) -> str:
    before = sum(source.size for source in cleaning.sources)
    after = sum(header.size for one in cleaned for header in one.headers)
    return f": {before} bytes became {after}"
