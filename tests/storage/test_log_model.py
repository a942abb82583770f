"""A log against a plain list of batches: any sequence of appends, cuts and reopenings agrees."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from neaptide.clusters.broker.replication.model import EpochEntry, TopicPartition
from neaptide.clusters.broker.storage.config import LogConfig
from neaptide.clusters.broker.storage.log import Log
from tests.storage.batches import NOW_MS, batch, with_headers

TP = TopicPartition("t", 0)
CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=150)


class LogModel(RuleBasedStateMachine):
    """`batches` is the truth: (base offset, next offset, epoch, bytes)."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.directory = self.root / "t-0"
        self.batches: list[tuple[int, int, int, bytes]] = []
        self.start = 0
        self.end = 0
        self.epoch = 0
        self.log = self.opened(clean=True)

    def opened(self, clean: bool, recovery_point: int = 0) -> Log:
        return Log.open(
            self.directory,
            TP,
            CONFIG,
            recovery_point,
            clean,
            log_start_offset=self.start,
            clock=lambda: NOW_MS,
        )

    def teardown(self) -> None:
        self.log.close()
        shutil.rmtree(self.root)

    @rule(sizes=st.lists(st.integers(1, 3), min_size=1, max_size=4), value=st.binary(max_size=120))
    def append(self, sizes: list[int], value: bytes) -> None:
        parts = []
        for size in sizes:
            data = batch(self.end, [value] * size, epoch=self.epoch, timestamp=NOW_MS + self.end)
            self.batches.append((self.end, self.end + size, self.epoch, data))
            self.end += size
            parts.append(data)
        self.log.append(*with_headers(*parts))

    @rule()
    def new_epoch(self) -> None:
        self.epoch += 1

    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        offset = self.start + int(part * (self.end - self.start))
        kept = [b for b in self.batches if b[1] <= offset]
        # Where the offset lies inside of a batch, that batch goes too.
        straddling = [b for b in self.batches if b[0] < offset < b[1]]
        self.end = straddling[0][0] if straddling else offset
        self.start = min(self.start, self.end)
        self.batches = kept
        assert self.log.truncate_to(offset) == self.end

    @rule(gap=st.integers(0, 5))
    def start_anew(self, gap: int) -> None:
        self.end += gap
        self.start = self.end
        self.batches = []
        self.log.truncate_fully_and_start_at(self.end)

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        self.start = self.start + int(part * (self.end - self.start))
        self.log.delete_records_before(self.start)

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.recovery_point == self.end

    @rule(clean=st.booleans())
    def reopen(self, clean: bool) -> None:
        recovery_point = self.log.recovery_point
        self.log.close()
        self.log = self.opened(clean, recovery_point)

    @precondition(lambda self: self.batches)
    @rule(part=st.floats(0, 1), limit=st.integers(0, 1500), max_bytes=st.integers(0, 900))
    def read(self, part: float, limit: int, max_bytes: int) -> None:
        offset = self.start + int(part * (self.end - self.start))
        max_offset = offset + limit % 12
        data = self.log.read(offset, max_offset, max_bytes, min_one_batch=True)
        wanted = [b for b in self.batches if b[1] > offset and b[0] < max_offset]
        if offset >= min(max_offset, self.end):
            wanted = []
        expected = b"".join(b[3] for b in wanted)
        assert expected.startswith(data)
        assert bool(data) == bool(wanted)
        if data:
            whole = [len(b"".join(b[3] for b in wanted[: n + 1])) for n in range(len(wanted))]
            assert len(data) in whole
            assert len(data) <= max(max_bytes, whole[0])

    @invariant()
    def agrees(self) -> None:
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        found = b""
        offset = self.start
        while offset < self.end:
            data = log.read(offset, self.end, 1 << 20, min_one_batch=True)
            if not data:
                break
            found += data
            offset = with_headers(data)[1][-1].next_offset
        wanted = [b for b in self.batches if b[1] > self.start]
        assert found == b"".join(b[3] for b in wanted)
        if wanted:
            assert log.bytes_from(self.start) == len(found)
            first = wanted[0]
            wanted_epochs = sorted({b[2] for b in wanted})
            epochs = [entry.epoch for entry in log.epochs.entries]
            assert epochs == wanted_epochs, (first, log.epochs.entries)

    @invariant()
    def timestamps_are_found(self) -> None:
        for base, _, _, _ in [b for b in self.batches if b[0] >= self.start][-2:]:
            assert self.log.offset_for_timestamp(NOW_MS + base) == self.expected_for(NOW_MS + base)

    def expected_for(self, timestamp: int) -> tuple[int, int]:
        """Record i of a batch has the batch's timestamp + i: its offset behind NOW_MS."""
        for base, next_offset, _, _ in self.batches:
            for offset in range(base, next_offset):
                if offset >= self.start and NOW_MS + offset >= timestamp:
                    return NOW_MS + offset, offset
        raise AssertionError("the batch is there")


TestLogModel = LogModel.TestCase
TestLogModel.pytestmark = [pytest.mark.slow]  # type: ignore[attr-defined]
TestLogModel.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def test_the_twin_an_epoch_entry_of_the_model_is_what_a_log_keeps(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "t-0", TP, CONFIG)
    log.append(*with_headers(batch(0, [b"a"], epoch=2), batch(1, [b"b"], epoch=5)))
    assert log.epochs.entries == (EpochEntry(2, 0), EpochEntry(5, 1))
    log.close()
