"""What is read out of a message between brokers: for rules, and as evidence of a find."""

from __future__ import annotations

import pytest

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import events
from neaptide.clusters.broker.replication.model import Batch, TopicPartition
from neaptide.clusters.broker.replication.partition.leader_epoch_file_cache import EpochEnd
from neaptide.clusters.simulation.network import facts_of

T, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
FETCHER = events.FetcherId(1, 0)


def _fetched(batches: tuple[Batch, ...], diverging: EpochEnd | None = None) -> object:
    result = events.FetchResult(T, Error.NONE, 3, 1, batches, diverging)
    return events.FetchResponded(FETCHER, 1, (result,))


@pytest.mark.parametrize(
    ("body", "facts"),
    [
        (
            _fetched((Batch(3, 1, 0, 100, "m"),)),
            {"high_watermark": 3, "log_start_offset": 1, "records_bytes": 100, "error": 0},
        ),
        (
            _fetched((), EpochEnd(2, 5)),
            {
                "high_watermark": 3,
                "log_start_offset": 1,
                "records_bytes": 0,
                "error": 0,
                "diverging_epoch": 2,
                "diverging_end_offset": 5,
            },
        ),
        (
            events.OffsetForLeaderEpochResponded(
                FETCHER, 1, (events.EpochEndOffset(T, Error.NONE, 7, 4),)
            ),
            {"answered_epoch": 4, "end_offset": 7, "error": 0},
        ),
        (
            events.OffsetForLeaderEpochRequested(1, (events.EpochAsked(T, 4, 6),)),
            {"leader_epoch": 4},
        ),
        (
            events.FetchRequested(
                1, 2, 0, 1, (events.FetchedPartition(OTHER, 1, 9), events.FetchedPartition(T, 8, 9))
            ),
            {"fetch_offset": 8},
        ),
    ],
    ids=["records", "where it diverges", "where an epoch ends", "which epoch", "of two partitions"],
)
def test_the_numbers_of_a_message_are_those_of_the_partition(
    body: object, facts: dict[str, int]
) -> None:
    assert facts_of(body, T) == facts
    assert facts_of(body, TopicPartition("u", 0)) == {}
