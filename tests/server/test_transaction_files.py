"""P4 on disk: what logs and `.txnindex` files say of transactions, by our reader and Kafka's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.broker.replication.group.committed_offsets import (
    OFFSETS_TOPIC,
    OffsetAndMetadata,
    OffsetCommitRecord,
)
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.model import (
    Batch,
    EndTransactionMarker,
    ProducerSequence,
    TopicPartition,
)
from neaptide.clusters.broker.replication.partition.transactions import (
    AbortedTransaction,
    CompletedTransaction,
    Transactions,
)
from neaptide.clusters.broker.replication.transaction.transaction_metadata import (
    TRANSACTIONS_TOPIC,
    TransactionMetadata,
    TransactionState,
)
from neaptide.clusters.broker.server.log_effects import LogEffects, stored_replicas
from neaptide.clusters.broker.server.sequences import state_of
from neaptide.clusters.broker.storage.log import Log
from neaptide.clusters.broker.storage.log_manager import LogManager
from tests.storage.batches import batch
from tests.storage.conftest import TP
from tests.storage.dumped import dump

CLOCK_MS = 500_000  # that of the core
X = TopicPartition(TRANSACTIONS_TOPIC, 0)
G = TopicPartition(OFFSETS_TOPIC, 0)
PRODUCERS = (7, 8)
# In T: 7 begins at 0, 8 at 1; 7 aborts at 2; 7 begins at 3; 8 commits at 4; 7 aborts at 5.
STORY: tuple[tuple[int, bool | None], ...] = (
    (7, None),
    (8, None),
    (7, False),
    (7, None),
    (8, True),
    (7, False),
)
ABORTED = (AbortedTransaction(7, 0, 2, 1), AbortedTransaction(7, 3, 5, 6))


class Disk:
    """A log directory as the core's effects fill it."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        self.logs = LogManager.open([directory], 0, settings or {})
        self.reported: list[object] = []
        self.effects = LogEffects(
            self.logs, self.reported.append, GENERATIONS["4.0"], lambda: CLOCK_MS, Log.flush
        ).performers

    def do(self, effect: object) -> None:
        assert self.effects[type(effect)](effect) is None

    def append(self, place: TopicPartition, one: Batch, *aborted: AbortedTransaction) -> None:
        self.do(effects.AppendToLog(place, (one,), assign=True, aborted=aborted))

    def close(self) -> None:
        for log in self.logs.logs.values():
            log.flush()
        self.logs.shutdown()


def _told(directory: Path, settings: Mapping[str, str] | None = None) -> Disk:
    """The story, in T."""
    disk = Disk(directory, settings)
    disk.logs.create_log(TP)
    sequences = dict.fromkeys(PRODUCERS, 0)
    aborted = {one.last_offset: one for one in ABORTED}
    for offset, (producer_id, is_commit) in enumerate(STORY):
        if is_commit is None:
            sequence = sequences[producer_id]
            sequences[producer_id] += 1
            data = batch(0, [b"v"], producer=(producer_id, 0, sequence), attributes=0x10)
            of = ProducerSequence(producer_id, 0, sequence, is_transactional=True)
            disk.append(TP, Batch(offset, 1, 0, len(data), data, of))
        else:
            marker = EndTransactionMarker(producer_id, 0, 3, is_commit)
            ended = [aborted[offset]] if offset in aborted else []
            disk.append(TP, Batch(offset, 1, 0, 78, (marker,), marker=marker), *ended)
    return disk


@pytest.mark.parametrize(
    ("high_watermark", "completed"),
    [
        (6, ()),
        (5, (CompletedTransaction(7, 3, 5),)),
        (4, (CompletedTransaction(8, 1, 4), CompletedTransaction(7, 3, 5))),
    ],
)
def test_p4_a_log_says_which_transactions_it_has(
    tmp_path: Path, high_watermark: int, completed: tuple[CompletedTransaction, ...]
) -> None:
    disk = _told(tmp_path)
    found = state_of(disk.logs.logs[TP].snapshot(), high_watermark)
    assert found.aborted == ABORTED
    assert found.transactions == Transactions({}, completed)
    disk.close()


@pytest.mark.parametrize(
    ("offset", "end", "found"),
    [(0, 6, ABORTED), (0, 3, ABORTED[:1]), (3, 6, ABORTED[1:]), (1, 3, ABORTED[:1]), (6, 9, ())],
)
def test_p4_a_reader_is_given_those_that_concern_what_it_reads(
    tmp_path: Path, offset: int, end: int, found: tuple[AbortedTransaction, ...]
) -> None:
    disk = _told(tmp_path)
    assert disk.logs.logs[TP].aborted_within(offset, end) == found
    disk.close()


def test_p4_a_log_that_loses_a_marker_has_its_transaction_open_again(tmp_path: Path) -> None:
    disk = _told(tmp_path)
    disk.do(effects.TruncateLog(TP, 5))
    disk.do(effects.ReadProducers(TP, 5))
    [read] = disk.reported
    assert isinstance(read, events.ProducersRead)
    assert read.transactions == Transactions({7: 3})
    assert disk.logs.logs[TP].aborted_within(0, 9) == ABORTED[:1]
    disk.close()


@pytest.mark.parametrize("is_damaged", [False, True])
def test_p4_what_is_aborted_is_known_after_a_start_whatever_the_index_says(
    tmp_path: Path, is_damaged: bool
) -> None:
    disk = _told(tmp_path, {"log.segment.bytes": "200"})
    disk.close()
    files = sorted((tmp_path / "t-0").glob("*.txnindex"))
    before = [file.read_bytes() for file in files]
    assert sum(map(len, before)) == 2 * 34
    if is_damaged:
        files[0].write_bytes(b"nothing")
    again = Disk(tmp_path, {"log.segment.bytes": "200"})
    stored = stored_replicas(again.logs)[TP].log
    assert stored.transactions.ongoing == {}
    assert again.logs.logs[TP].aborted_within(0, 9) == ABORTED
    assert [file.read_bytes() for file in files] == before
    again.close()


def test_p4_the_index_goes_with_its_segment(tmp_path: Path) -> None:
    disk = _told(tmp_path, {"log.segment.bytes": "200"})
    disk.logs.logs[TP].delete_records_before(5)
    assert disk.logs.logs[TP].aborted_within(0, 9) == ABORTED[1:]
    disk.close()
    assert len(list((tmp_path / "t-0").glob("*.txnindex"))) == 1


STATES = (
    TransactionMetadata("tx", 7, 0, 60_000),
    TransactionMetadata(
        "tx", 7, 0, 60_000, TransactionState.ONGOING, (G, TP, TopicPartition("t", 3)), CLOCK_MS
    ),
    TransactionMetadata("other", 8, 2, 900_000, TransactionState.PREPARE_ABORT, (TP,), 400_000),
)


def _coordinated(directory: Path) -> Disk:
    disk = Disk(directory)
    disk.logs.create_log(X)
    for offset, state in enumerate(STATES):
        disk.append(X, Batch(offset, 1, 0, state.size_bytes, (state,)))
    return disk


def test_p4_the_last_state_of_an_id_counts_with_the_time_that_it_has_lasted(
    tmp_path: Path,
) -> None:
    disk = _coordinated(tmp_path)
    disk.do(effects.ReadTransactions(X))
    [read] = disk.reported
    assert isinstance(read, events.TransactionsRead)
    assert [one.transactional_id for one in read.transactions] == ["tx", "other"]
    for found, written in zip(read.transactions, STATES[1:], strict=True):
        assert abs(found.started_ms - written.started_ms) < 10_000  # by two readings of a clock
        assert (found.state, found.partitions) == (written.state, tuple(sorted(written.partitions)))
    disk.close()


def _committed(directory: Path) -> Disk:
    """5 in a transaction that commits, 6 in one that does not end."""
    disk = Disk(directory)
    disk.logs.create_log(G)
    marker = EndTransactionMarker(7, 0, 3, is_commit=True)
    for offset, (committed, producer_id) in enumerate(((5, 7), (None, 7), (6, 8))):
        if committed is None:
            disk.append(G, Batch(offset, 1, 0, 78, (marker,), marker=marker))
            continue
        record = OffsetCommitRecord("g", TP, OffsetAndMetadata(committed))
        of = ProducerSequence(producer_id, 0, 0, is_transactional=True)
        disk.append(G, Batch(offset, 1, 0, record.size_bytes, (record,), of))
    return disk


def test_p4_offsets_count_from_the_marker_of_their_transaction_on(tmp_path: Path) -> None:
    disk = _committed(tmp_path)
    disk.do(effects.ReadCommittedOffsets(G))
    [read] = disk.reported
    assert isinstance(read, events.CommittedOffsetsRead)
    assert read.committed_offsets == {("g", TP): OffsetAndMetadata(5)}
    assert read.pending == {8: (OffsetCommitRecord("g", TP, OffsetAndMetadata(6)),)}
    disk.close()


# --- Kafka's own reader ---------------------------------------------------------------------------


@pytest.mark.live
@pytest.mark.needs("maven")
def test_p4_kafka_reads_what_we_write_of_transactions(tmp_path: Path) -> None:
    _told(tmp_path / "1").close()
    _coordinated(tmp_path / "2").close()
    _committed(tmp_path / "3").close()
    of_topic = tmp_path / "1" / "t-0"
    text = dump(sorted(of_topic.glob("*.log")), "--deep-iteration")
    assert re.findall(r"endTxnMarker: (\w+) coordinatorEpoch: (\d+)", text) == [
        ("ABORT", "3"),
        ("COMMIT", "3"),
        ("ABORT", "3"),
    ]
    assert text.count("isTransactional: true") == len(STORY)
    index = dump(sorted(of_topic.glob("*.txnindex")))
    found = re.findall(
        r"producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)", index
    )
    assert [tuple(map(int, one)) for one in found] == list(ABORTED)
    states = dump(sorted((tmp_path / "2" / f"{X}").glob("*.log")), "--transaction-log-decoder")
    assert re.findall(r"transactionalId=(\w+)", states) == ["tx", "tx", "other"]
    assert re.findall(r"state=(\w+)", states) == ["Empty", "Ongoing", "PrepareAbort"]
    assert "t-0" in states
    assert "txnTimeoutMs=900000" in states
    offsets = dump(sorted((tmp_path / "3" / f"{G}").glob("*.log")), "--offsets-decoder")
    assert re.findall(r'"offset":(\d+)', offsets) == ["5", "6"]
    assert offsets.count("endTxnMarker: COMMIT") == 1
