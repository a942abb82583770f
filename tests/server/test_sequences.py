"""P4 on disk: what a log's own batches say of producers, after appends, cuts and restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.model import ProducerSequence
from neaptide.clusters.broker.replication.partition.producer_state_manager import (
    BatchMetadata,
    ProducerStateEntry,
)
from neaptide.clusters.broker.server.log_effects import LogEffects, stored_replicas
from neaptide.clusters.broker.server.produced import Accepted, produced_batch
from neaptide.clusters.broker.server.sequences import state_of
from neaptide.clusters.broker.storage.log import Log
from neaptide.clusters.broker.storage.log_manager import LogManager
from tests.storage.batches import NOW_MS, batch, with_headers
from tests.storage.conftest import TP


def _fill(log: Log) -> None:
    """Producers 7 and 8, two records a batch, and one batch of nobody's, over several segments."""
    for base_offset, producer in (
        (0, (7, 0, 0)),
        (2, (8, 3, 0)),
        (4, (7, 0, 2)),
        (6, (-1, -1, -1)),
        (8, (7, 1, 0)),
    ):
        log.append(*with_headers(batch(base_offset, [b"a", b"b"], producer=producer)))


WHOLE = {
    7: ProducerStateEntry(1, (BatchMetadata(0, 1, 8, 10),)),
    8: ProducerStateEntry(3, (BatchMetadata(0, 1, 2, 4),)),
}
CUT = {
    7: ProducerStateEntry(0, (BatchMetadata(0, 1, 0, 2), BatchMetadata(2, 3, 4, 6))),
    8: ProducerStateEntry(3, (BatchMetadata(0, 1, 2, 4),)),
}


def _opened(directory: Path) -> LogManager:
    return LogManager.open([directory], 0, {"log.segment.bytes": "200"})


def test_p4_a_log_says_the_same_of_its_producers_after_a_restart(tmp_path: Path) -> None:
    logs = _opened(tmp_path)
    _fill(logs.create_log(TP))
    assert len(logs.logs[TP].segment_base_offsets) > 1
    assert state_of(logs.logs[TP].snapshot(), 0).producers == WHOLE
    logs.shutdown()
    again = _opened(tmp_path)
    assert stored_replicas(again)[TP].log.producers == WHOLE
    again.shutdown()


def test_p4_after_a_cut_the_core_learns_what_the_rest_says(tmp_path: Path) -> None:
    """9 is inside of the last batch, so the log ends at 8: that is reported too."""
    logs = _opened(tmp_path)
    _fill(logs.create_log(TP))
    received: list[object] = []
    performers = LogEffects(
        logs, received.append, GENERATIONS["2.1"], lambda: 0, Log.flush
    ).performers
    for effect in (effects.TruncateLog(TP, 9), effects.ReadProducers(TP, 0)):
        performers[type(effect)](effect)
    assert received == [events.LogTruncated(TP, 8), events.ProducersRead(TP, cast(Any, CUT))]
    logs.shutdown()


def test_p4_deleted_batches_say_nothing_more(tmp_path: Path) -> None:
    logs = _opened(tmp_path)
    _fill(logs.create_log(TP))
    logs.logs[TP].delete_records_before(4)
    assert state_of(logs.logs[TP].snapshot(), 0).producers == {7: WHOLE[7]}
    logs.shutdown()


def test_p4_a_request_names_the_sequence_of_its_batch_or_none() -> None:
    def produced(records: bytes) -> events.ProducedBatch:
        return produced_batch(
            records, 7, Accepted(NOW_MS), names_invalid_records=True, at_once=True
        )

    idempotent = produced(batch(0, [b"a", b"b"], producer=(7, 1, 5)))
    plain = produced(batch(0, [b"a", b"b"]))
    wrong = produced(batch(0, [b"a"], producer=(7, 1, -1)))
    assert (idempotent.producer, idempotent.count) == (ProducerSequence(7, 1, 5), 2)
    assert (plain.producer, plain.error) == (None, Error.NONE)
    assert wrong.error is Error.INVALID_RECORD
