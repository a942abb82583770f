"""R10: which log the cleaner takes, up to where, and which it leaves alone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.replication.partition.partition_rules import (
    Follower,
    Partition,
    cleanable_up_to,
)
from neaptide.clusters.broker.replication.partition.transactions import Transactions
from neaptide.clusters.broker.replication.partition.unified_log import UnifiedLog
from neaptide.clusters.broker.replication.settings import replication_settings, topic_settings
from neaptide.clusters.broker.server.cleaning import LogCleaner
from neaptide.clusters.broker.server.config import server_config
from neaptide.clusters.broker.storage.errors import StorageError
from neaptide.clusters.broker.storage.log_manager import LogManager
from tests.server.given import GOOD
from tests.storage.batches import NOW_MS
from tests.storage.test_cleaner import offsets, put

COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}


def partition(
    tp: TopicPartition, end: int, high_watermark: int, transactions: Transactions | None = None
) -> Partition:
    rules = GENERATIONS["2.8"]
    settings = topic_settings({}, replication_settings({}, rules))
    log = UnifiedLog(0, end)
    if transactions is not None:
        log = replace(log, transactions=transactions)
    return Partition(tp, settings, log, high_watermark, role=Follower(1))


@pytest.mark.parametrize(
    ("generation", "bound", "bound_with_open"),
    [("0.10", None, None), ("0.11", None, 3), ("2.8", None, 3), ("4.0", 5, 3)],
)
def test_r10_from_4_0_on_nothing_above_the_high_watermark_is_cleaned(
    generation: str, bound: int | None, bound_with_open: int | None
) -> None:
    tp, rules = TopicPartition("t", 0), GENERATIONS[generation]
    assert cleanable_up_to(partition(tp, 9, 5), rules) == bound
    open_one = partition(tp, 9, 5, Transactions({7: 3}))
    assert cleanable_up_to(open_one, rules) == bound_with_open


class Cleaned:
    """A broker's logs, each with as many batches of one key as is said, each in its segment."""

    def __init__(
        self, tmp_path: Path, generation: str, batches: Mapping[TopicPartition, int], **topic: str
    ) -> None:
        self.config = server_config({**GOOD, "neaptide.generation": generation})
        self.logs = LogManager.open([tmp_path / "logs"], 0, {}, clock=lambda: NOW_MS)
        self.partitions: dict[TopicPartition, Partition] = {}
        for tp, count in batches.items():
            log = self.logs.create_log(tp, {**COMPACT, **topic})
            for number in range(count):
                put(log, (b"k", b"%d" % number))
            self.partitions[tp] = partition(tp, count, count)
        self.lost: list[StorageError] = []
        self.cleaner = LogCleaner(
            lambda: self.config,
            self.logs,
            lambda: self.partitions,
            lambda work: work(),
            self.in_thread,
            lambda: NOW_MS,
            self.lost.append,
        )

    async def in_thread(self, work: Callable[[], Any]) -> Any:
        return work()

    def clean(self) -> bool:
        return asyncio.run(self.cleaner.clean_filthiest())

    def offsets(self) -> dict[str, list[int]]:
        return {str(tp): offsets(log) for tp, log in self.logs.logs.items()}


A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def test_r10_the_log_with_most_dirt_is_cleaned_first(tmp_path: Path) -> None:
    here = Cleaned(tmp_path, "2.8", {A: 3, B: 3})
    assert here.clean()
    first = next(tp for tp, log in here.logs.logs.items() if log.cleaned_to)
    [other] = {A, B} - {first}
    put(here.logs.logs[first], (b"k", b"3"))  # now half of it is dirty, of the other all
    assert here.clean()
    assert here.logs.logs[other].cleaned_to == 3
    assert here.logs.logs[first].cleaned_to == 3
    assert here.clean()
    assert here.logs.logs[first].cleaned_to == 4
    assert not here.clean()
    assert here.offsets() == {str(first): [3], str(other): [2]}


def test_r10_a_log_that_is_not_dirty_enough_is_left_alone(tmp_path: Path) -> None:
    here = Cleaned(tmp_path, "2.8", {A: 2}, **{"min.cleanable.dirty.ratio": "1"})
    assert not here.clean()
    assert here.offsets() == {"t-0": [0, 1]}


def test_r10_a_log_that_is_late_is_cleaned_however_little_dirt_it_has(tmp_path: Path) -> None:
    late = {"min.cleanable.dirty.ratio": "1", "max.compaction.lag.ms": "1000"}
    here = Cleaned(tmp_path, "2.8", {A: 2}, **late)
    here.cleaner._clock = lambda: NOW_MS + 1_001
    assert here.clean()
    assert here.offsets() == {"t-0": [1]}


@pytest.mark.parametrize(("generation", "left"), [("2.8", [2]), ("4.0", [1, 2])])
def test_r10_a_newer_value_that_is_not_committed_takes_an_older_one_away_up_to_2_8(
    tmp_path: Path, generation: str, left: list[int]
) -> None:
    """KAFKA-13194: what is cut off then may be all that there is of the key."""
    here = Cleaned(tmp_path, generation, {A: 3})
    here.partitions[A] = partition(A, 3, 2)
    assert here.clean()
    assert here.offsets() == {"t-0": left}


def test_r10_a_log_that_cannot_be_read_is_left_alone_and_others_are_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    here = Cleaned(tmp_path, "2.8", {A: 3, B: 2})
    segment = here.logs.paths[0] / "t-0" / "00000000000000000000.log"
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(bytes(data))
    with caplog.at_level(logging.WARNING):
        while here.clean() or not caplog.messages:
            pass
        here.clean()
    assert here.offsets()["t-1"] == [1]
    assert [message for message in caplog.messages if "t-0 is not cleaned any more" in message]
    assert len(caplog.messages) == 1


def test_r10_a_log_that_is_not_made_yet_or_is_gone_is_no_matter(tmp_path: Path) -> None:
    here = Cleaned(tmp_path, "2.8", {A: 2})
    here.partitions[B] = partition(B, 2, 2)
    assert here.clean()
    assert not here.clean()
